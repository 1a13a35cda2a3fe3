/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A plugin for QEMU's translator (TCG). It runs the model of cache.h over every load and store of a
 * guest with one processor, and reports the causes of the misses.
 *
 * The plugin finds the cause of an access without changes to the guest's kernel:
 *
 * - The current task: __switch_to_asm loads the next task's stack pointer from its task_struct; the
 *   address of that load identifies the task. A new task starts at ret_from_fork_asm.
 * - The task's role: a program announces its role by a load with a displacement that no other code
 *   uses (`mov al, [rax + 0x6c696d65]`, "lime"). The low 12 bits of the address are an operation
 *   and its argument. The load reads the program's own memory and has no other effect. The kernel's
 *   zeroing thread is recognised by the functions that only this thread executes.
 * - Zeroing of a page: the address of the instruction lies inside clear_page_*.
 *
 * Interrupts count for the task that they interrupt.
 *
 * Operations:
 * 1 ROLE: this task is 0 system, 1 the app, 2 background.
 * 2 BEGIN: reset the counters to zero and start modelling with empty caches; if modelling already,
 *   keep the contents of the caches.
 * 3 END: write the counters as report ARGUMENT, and stop modelling.
 *
 * Arguments: out=FILE memory=BYTES l1=BYTES:WAYS l2=... llc=... switch=ADDRESS fork=ADDRESS
 * zeroing=FROM-TO prezero=FROM-TO (both as often as needed, hexadecimal, TO excluded).
 *
 * QEMU's plugin interface, version 1, is documented in its docs/devel/tcg-plugins. No Debian
 * package contains the header, so the parts in use are declared here.
 */
#include <inttypes.h>
#include <stdio.h>

#include "cache.h"

typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t;
typedef struct qemu_info_t qemu_info_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_hwaddr;
enum { QEMU_PLUGIN_CB_NO_REGS };
enum { QEMU_PLUGIN_MEM_RW = 3 };
typedef void (*translated_t)(qemu_plugin_id_t, struct qemu_plugin_tb *);
typedef void (*accessed_t)(unsigned int, qemu_plugin_meminfo_t, uint64_t, void *);
typedef void (*executed_t)(unsigned int, void *);

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, translated_t callback);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn, accessed_t callback,
				      int flags, int rw, void *userdata);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, executed_t callback,
					    int flags, void *userdata);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t index);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
unsigned int qemu_plugin_mem_size_shift(qemu_plugin_meminfo_t info);
bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t info);
struct qemu_plugin_hwaddr *qemu_plugin_get_hwaddr(qemu_plugin_meminfo_t info, uint64_t vaddr);
bool qemu_plugin_hwaddr_is_io(const struct qemu_plugin_hwaddr *address);
uint64_t qemu_plugin_hwaddr_phys_addr(const struct qemu_plugin_hwaddr *address);

#define EXPORT __attribute__((visibility("default")))
EXPORT int qemu_plugin_version = 1;
EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv);

/* The first six bytes of the load by which programs send operations. */
static const uint8_t mark[] = { 0x8a, 0x80, 0x65, 0x6d, 0x69, 0x6c };
/* The load of the next task's stack pointer: mov rsp, [rsi + displacement]. */
static const uint8_t switch_load[] = { 0x48, 0x8b, 0xa6 };
/* Upper bound of the size of __switch_to_asm, in bytes. */
enum { SWITCH_BYTES = 64 };

enum { OP_ROLE = 1, OP_BEGIN = 2, OP_END = 3 };
enum { ROLE_SYSTEM, ROLE_APP, ROLE_BACKGROUND, ROLE_PREZERO, ROLES };

/* Flags of an instruction, determined when it is translated. */
enum { INSN_ZEROING = 1, INSN_BYPASSING = 2 };

enum { MAX_RANGES = 16, TASKS = 4096 };
struct range {
	uint64_t from, to;
};
static struct range zeroing[MAX_RANGES], prezero[MAX_RANGES];
static size_t zeroing_count, prezero_count;
static uint64_t switch_from, fork_at;

static struct caches caches;
static FILE *out;
static bool modelling;
static uint64_t current;
static int role;

/* Tasks that have had a role other than ROLE_SYSTEM, by address; linear probing, never full. */
static struct {
	uint64_t task;
	int role;
} tasks[TASKS];
static size_t task_count;

static size_t task_slot(uint64_t task)
{
	size_t slot = (task * UINT64_C(0x9e3779b97f4a7c15)) >> 52;

	while (tasks[slot].task && tasks[slot].task != task)
		slot = (slot + 1) % TASKS;
	return slot;
}

static void set_role(int new_role)
{
	size_t slot = task_slot(current);

	role = new_role;
	if (!tasks[slot].task) {
		if (new_role == ROLE_SYSTEM)
			return;
		if (++task_count == TASKS) {
			fprintf(stderr, "cache_model: more than %d tasks with a role\n", TASKS - 1);
			exit(1);
		}
		tasks[slot].task = current;
	}
	tasks[slot].role = new_role;
}

static void on_switch(unsigned int cpu, qemu_plugin_meminfo_t info, uint64_t vaddr, void *data)
{
	(void)cpu, (void)info, (void)data;
	current = vaddr;
	role = tasks[task_slot(current)].role;
}

/* Resets the role: the task_struct may have belonged to a task that has ended. */
static void on_new_task(unsigned int cpu, void *data)
{
	(void)cpu, (void)data;
	set_role(ROLE_SYSTEM);
}

static void on_zeroing_thread(unsigned int cpu, void *data)
{
	(void)cpu, (void)data;
	if (role != ROLE_PREZERO)
		set_role(ROLE_PREZERO);
}

static void report(unsigned int number)
{
	static const char *const level_names[LEVELS] = { "l1", "l2", "llc" };
	const struct counters *seen = &caches.seen;
	int by, whose, i;

	fprintf(out, "{\"report\":%u,\"values\":{\"cache_tasks\":%zu", number, task_count);
	for (by = 0; by < CAUSES; by++) {
		fprintf(out, ",\"cache_%s_accesses\":%" PRIu64, cause_names[by], seen->accesses[by]);
		fprintf(out, ",\"cache_%s_bypassing\":%" PRIu64, cause_names[by], seen->bypassing[by]);
		for (i = 0; i < LEVELS; i++)
			fprintf(out, ",\"cache_%s_%s_misses\":%" PRIu64, cause_names[by],
				level_names[i], seen->misses[i][by]);
		fprintf(out, ",\"cache_%s_llc_misses_new\":%" PRIu64, cause_names[by],
			seen->taken[by][0]);
		for (whose = 0; whose < CAUSES; whose++)
			fprintf(out, ",\"cache_%s_llc_misses_by_%s\":%" PRIu64, cause_names[by],
				cause_names[whose], seen->taken[by][whose + 1]);
	}
	fprintf(out, "}}\n");
	if (fflush(out)) {
		perror("cache_model: cannot write the counters");
		exit(1);
	}
}

static void on_mark(unsigned int cpu, qemu_plugin_meminfo_t info, uint64_t vaddr, void *data)
{
	unsigned int argument = vaddr & 0xff;

	(void)cpu, (void)info, (void)data;
	switch ((vaddr >> 8) & 0xf) {
	case OP_ROLE:
		if (argument < ROLE_PREZERO)
			set_role(argument);
		break;
	case OP_BEGIN:
		if (!modelling)
			caches_clear(&caches);
		memset(&caches.seen, 0, sizeof(caches.seen));
		modelling = true;
		break;
	case OP_END:
		if (modelling)
			report(argument);
		modelling = false;
		break;
	}
}

static void on_access(unsigned int cpu, qemu_plugin_meminfo_t info, uint64_t vaddr, void *data)
{
	uintptr_t insn = (uintptr_t)data;
	struct qemu_plugin_hwaddr *address;
	enum cause by;
	uint64_t line;

	(void)cpu;
	if (!modelling)
		return;
	address = qemu_plugin_get_hwaddr(info, vaddr);
	if (!address || qemu_plugin_hwaddr_is_io(address))
		return;
	by = 2 * role + (insn & INSN_ZEROING);
	line = qemu_plugin_hwaddr_phys_addr(address) >> LINE_SHIFT;
	if (insn & INSN_BYPASSING && qemu_plugin_mem_is_store(info)) {
		caches_bypass(&caches, line, by);
		return;
	}
	caches_access(&caches, line, by);
	/* An access that crosses into the next line touches that line too. The next page may have
	 * any physical address, so the part of an access that lies there is not modelled. */
	if ((vaddr & 63) + (UINT64_C(1) << qemu_plugin_mem_size_shift(info)) > 64 &&
	    (vaddr & 4095) < 4032)
		caches_access(&caches, line + 1, by);
}

static bool within(const struct range *ranges, size_t count, uint64_t address)
{
	size_t i;

	for (i = 0; i < count; i++)
		if (address >= ranges[i].from && address < ranges[i].to)
			return true;
	return false;
}

/* MOVNTI, MOVNTPS, MOVNTPD, MOVNTDQ: stores that bypass the caches. */
static bool bypasses(const uint8_t *code, size_t size)
{
	bool operand_size = false;

	while (size && (*code == 0x66 || (*code & 0xf0) == 0x40)) {
		operand_size |= *code == 0x66;
		code++;
		size--;
	}
	if (size < 3 || code[0] != 0x0f)
		return false;
	return code[1] == 0xc3 || code[1] == 0x2b || (code[1] == 0xe7 && operand_size);
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	size_t count = qemu_plugin_tb_n_insns(tb), i;

	(void)id;
	for (i = 0; i < count; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		const uint8_t *code = qemu_plugin_insn_data(insn);
		size_t size = qemu_plugin_insn_size(insn);
		uint64_t at = qemu_plugin_insn_vaddr(insn);
		accessed_t callback = on_access;
		uintptr_t what = 0;

		if (at == fork_at)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, on_new_task,
							       QEMU_PLUGIN_CB_NO_REGS, NULL);
		if (within(prezero, prezero_count, at))
			qemu_plugin_register_vcpu_insn_exec_cb(insn, on_zeroing_thread,
							       QEMU_PLUGIN_CB_NO_REGS, NULL);
		if (size >= sizeof(switch_load) && at - switch_from < SWITCH_BYTES &&
		    !memcmp(code, switch_load, sizeof(switch_load)))
			callback = on_switch;
		else if (size == sizeof(mark) && !memcmp(code, mark, sizeof(mark)))
			callback = on_mark;
		if (within(zeroing, zeroing_count, at))
			what |= INSN_ZEROING;
		if (bypasses(code, size))
			what |= INSN_BYPASSING;
		qemu_plugin_register_vcpu_mem_cb(insn, callback, QEMU_PLUGIN_CB_NO_REGS,
						 QEMU_PLUGIN_MEM_RW, (void *)what);
	}
}

static bool parse_range(const char *text, struct range *ranges, size_t *count)
{
	struct range *range = &ranges[*count];

	if (*count == MAX_RANGES ||
	    sscanf(text, "%" SCNx64 "-%" SCNx64, &range->from, &range->to) != 2)
		return false;
	++*count;
	return true;
}

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
	static const char *const level_arguments[LEVELS] = { "l1=", "l2=", "llc=" };
	uint64_t bytes[LEVELS] = { 0 }, memory = 0;
	uint32_t ways[LEVELS] = { 0 };
	int i, level;

	(void)info;
	for (i = 0; i < argc; i++) {
		const char *equals = strchr(argv[i], '='), *value = equals ? equals + 1 : "";
		bool ok;

		for (level = 0; level < LEVELS; level++)
			if (!strncmp(argv[i], level_arguments[level], strlen(level_arguments[level])))
				break;
		if (level < LEVELS)
			ok = sscanf(value, "%" SCNu64 ":%" SCNu32, &bytes[level], &ways[level]) == 2;
		else if (!strncmp(argv[i], "out=", 4))
			ok = (out = fopen(value, "w")) != NULL;
		else if (!strncmp(argv[i], "memory=", 7))
			ok = sscanf(value, "%" SCNu64, &memory) == 1;
		else if (!strncmp(argv[i], "switch=", 7))
			ok = sscanf(value, "%" SCNx64, &switch_from) == 1;
		else if (!strncmp(argv[i], "fork=", 5))
			ok = sscanf(value, "%" SCNx64, &fork_at) == 1;
		else if (!strncmp(argv[i], "zeroing=", 8))
			ok = parse_range(value, zeroing, &zeroing_count);
		else if (!strncmp(argv[i], "prezero=", 8))
			ok = parse_range(value, prezero, &prezero_count);
		else
			ok = false;
		if (!ok) {
			fprintf(stderr, "cache_model: invalid argument %s\n", argv[i]);
			return -1;
		}
	}
	if (!out || !memory || !switch_from || !fork_at || !zeroing_count) {
		fprintf(stderr, "cache_model: out, memory, switch, fork, zeroing are required\n");
		return -1;
	}
	if (!caches_init(&caches, bytes, ways, memory)) {
		fprintf(stderr, "cache_model: invalid cache sizes, or out of memory\n");
		return -1;
	}
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
	return 0;
}
