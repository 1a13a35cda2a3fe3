// SPDX-License-Identifier: GPL-2.0-only
/*
 * Limelight core: the set of processes that make up the topmost app.
 *
 * Membership is a number. Each mm carries the generation of the last topmost set
 * that it was put into, and is a member while that generation is the current one.
 * One store therefore replaces or drops the whole set: there is no list, no
 * reference, and nothing to undo when a process exits. Generations are never reused,
 * so a dropped set cannot become valid again. Membership belongs to the mm, not to
 * the pid: a reused pid inherits nothing.
 *
 * fork (limelight_dup_mm()) and exec (limelight_exec_mmap()) copy the generation,
 * so the children of a member are members.
 *
 * A set is replaced in two steps. First every pidfd is resolved and memory is
 * allocated; a failure leaves the current set unchanged. Then the processes are
 * stamped and the generation is published, which cannot fail.
 *
 * The device's mutex serializes writers. Readers take no lock.
 */
#include <linux/gfp.h>
#include <linux/limelight.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/oom.h>
#include <linux/page_counter.h>
#include <linux/pid.h>
#include <linux/pid_namespace.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/topology.h>
#include <linux/vmstat.h>

#define CREATE_TRACE_POINTS
#include <trace/events/limelight.h>

#include "internal.h"

/* Pids that limelight_usage() visits in one RCU read section. */
#define USAGE_BATCH	256

DEFINE_STATIC_KEY_FALSE(limelight_key);
u64 limelight_generation __read_mostly;

/* The last generation that was assigned, current or not. */
static u64 limelight_last_generation;
/* The generation that is being stamped, 0: none. */
static u64 limelight_next_generation;

/*
 * Copies the generation of @parent to @mm.
 *
 * Return: the generation if @mm is now a member or about to become one, else 0.
 */
static u64 inherit_generation(struct mm_struct *mm, const struct mm_struct *parent)
{
	/* Pairs with limelight_topmost_set(): read the generation before the tag. */
	u64 generation = smp_load_acquire(&parent->limelight_generation);

	/*
	 * Copy the generation even if it is not current: it may be the one that is
	 * being stamped, and then the child is a member too.
	 */
	WRITE_ONCE(mm->limelight_generation, generation);
	if (generation == READ_ONCE(limelight_generation) ||
	    generation == READ_ONCE(limelight_next_generation))
		return generation;
	return 0;
}

/* See limelight_dup_mm(). A member's child shares its pages, hence its tag. */
void __limelight_dup_mm(struct mm_struct *mm, const struct mm_struct *parent)
{
	if (inherit_generation(mm, parent))
		limelight_tag_inherit(mm, parent);
}

/*
 * See limelight_exec_mmap(). The generation is copied here and not when @mm is
 * created, because a SET_TOPMOST in between stamps @old. task_lock() serializes
 * the copy and the switch to @mm against SET_TOPMOST.
 *
 * @mm does not inherit the tag, because the program may be topmost without its
 * parent.
 */
void __limelight_exec_mmap(struct mm_struct *mm, const struct mm_struct *old)
{
	u64 generation = inherit_generation(mm, old);

	if (generation)
		limelight_tags_join(limelight_tag_of(mm), generation);
}

/*
 * Replaces the topmost set with @nr processes. Processes that have exited, and so
 * have no mm, are skipped.
 *
 * Return: the number of members, or -ENOMEM with the old set unchanged.
 */
int limelight_topmost_set(struct task_struct **tasks, unsigned int nr)
{
	u64 generation = ++limelight_last_generation;
	struct limelight_tags *tags = NULL;
	int members = 0;
	unsigned int i;

	if (IS_ENABLED(CONFIG_LIMELIGHT_PROTECT)) {
		tags = limelight_tags_alloc(nr, generation);
		if (!tags)
			return -ENOMEM;
	}

	WRITE_ONCE(limelight_next_generation, generation);
	for (i = 0; i < nr; i++) {
		struct task_struct *task = find_lock_task_mm(tasks[i]);

		if (!task)
			continue;
		/* For sparse: find_lock_task_mm() has no annotation. */
		__acquire(&task->alloc_lock);
		limelight_tags_add(tags, limelight_tag_of(task->mm));
		/* Pairs with inherit_generation(): assign the tag first. */
		smp_store_release(&task->mm->limelight_generation, generation);
		task_unlock(task);
		members++;
	}

	/* The tags first: from here on, programs that members execute join them. */
	limelight_tags_publish(tags);
	WRITE_ONCE(limelight_generation, members ? generation : 0);
	WRITE_ONCE(limelight_next_generation, 0);
	/* Counts the members, so it comes after the generation. */
	limelight_protect_topmost();
	if (!members)
		limelight_window_end(LIMELIGHT_WINDOW_NO_TOPMOST);
	trace_limelight_topmost(limelight_generation, members);
	return members;
}

/* Empties the topmost set. Cannot fail. */
void limelight_topmost_clear(void)
{
	WRITE_ONCE(limelight_generation, 0);
	limelight_window_end(LIMELIGHT_WINDOW_NO_TOPMOST);
	limelight_tags_publish(NULL);
	limelight_protect_topmost();
	trace_limelight_topmost(0, 0);
}

static void usage_add_process(struct limelight_usage *usage, struct task_struct *process)
{
	struct task_struct *task;

	if (process->flags & PF_KTHREAD)
		return;
	task = find_lock_task_mm(process);
	if (!task)
		return;
	/* For sparse, as above. */
	__acquire(&task->alloc_lock);
	if (limelight_mm(task->mm)) {
		usage->members++;
		/* A vfork child borrows its parent's mm. */
		if (!task->vfork_done) {
			usage->anon += get_mm_counter(task->mm, MM_ANONPAGES);
			usage->file += get_mm_counter(task->mm, MM_FILEPAGES);
			usage->file += get_mm_counter(task->mm, MM_SHMEMPAGES);
		}
	}
	task_unlock(task);
}

/*
 * Adds the processes among the next @nr pids, starting at *@pid, to @usage in one
 * RCU read section. Advances *@pid.
 *
 * Return: whether more pids may follow.
 */
static bool usage_add_processes(struct limelight_usage *usage, int *pid, unsigned int nr)
{
	struct pid *each = NULL;

	rcu_read_lock();
	while (nr--) {
		struct task_struct *process;

		each = find_ge_pid(*pid, &init_pid_ns);
		if (!each)
			break;
		*pid = pid_nr(each) + 1;
		process = pid_task(each, PIDTYPE_TGID);
		if (process)
			usage_add_process(usage, process);
	}
	rcu_read_unlock();
	return each;
}

/*
 * Sums up the memory of the live members. There is no list of members, so this
 * walks all processes, in batches. May sleep.
 */
void limelight_usage(struct limelight_usage *usage)
{
	int pid = 1;

	*usage = (struct limelight_usage) {};
	if (!READ_ONCE(limelight_generation))
		return;
	while (usage_add_processes(usage, &pid, USAGE_BATCH))
		cond_resched();
}

/*
 * Free pages of @pgdat above the watermarks @mark that user memory may use. Excludes
 * lowmem reserves. A zone below its watermark does not reduce the room of other zones.
 * While fragmentation boosts a zone's watermarks, the boost counts for all but the min
 * watermark, as in zone_watermark_fast().
 */
static unsigned long node_room(struct pglist_data *pgdat, enum zone_watermarks mark)
{
	const int highest = gfp_zone(GFP_HIGHUSER_MOVABLE);
	unsigned long room = 0;
	int i;

	for (i = 0; i <= highest; i++) {
		struct zone *zone = &pgdat->node_zones[i];
		unsigned long free, kept;

		if (!managed_zone(zone))
			continue;
		free = zone_page_state(zone, NR_FREE_PAGES);
		kept = zone->_watermark[mark] + zone->lowmem_reserve[highest];
		if (mark != WMARK_MIN)
			kept += zone->watermark_boost;
		if (free > kept)
			room += free - kept;
	}
	return room;
}

/* Inactive file pages that are clean, if all @dirty and @writeback pages are inactive. */
static unsigned long clean_pages(unsigned long inactive, unsigned long dirty,
				 unsigned long writeback)
{
	return inactive - min(inactive, dirty + writeback);
}

/*
 * Inactive file pages of @pgdat that are neither dirty nor under writeback. While memory
 * is full of page cache, these are what reclaim takes first.
 */
unsigned long limelight_node_clean_cache(struct pglist_data *pgdat)
{
	return clean_pages(node_page_state(pgdat, NR_INACTIVE_FILE),
			   node_page_state(pgdat, NR_FILE_DIRTY),
			   node_page_state(pgdat, NR_WRITEBACK));
}

/*
 * Free pages of @pgdat above its high watermarks that user memory may use.
 * Speculative allocations up to this size do not wake kswapd.
 */
unsigned long limelight_node_room(struct pglist_data *pgdat)
{
	return node_room(pgdat, WMARK_HIGH);
}

/*
 * The same above the low watermarks, for pages that would be allocated soon in any
 * case. While memory is full of page cache, kswapd sleeps between these watermarks.
 */
unsigned long limelight_node_fault_room(struct pglist_data *pgdat)
{
	return node_room(pgdat, WMARK_LOW);
}

/* The same above the min watermarks. Without it, allocations have to wait for reclaim. */
unsigned long limelight_node_min_room(struct pglist_data *pgdat)
{
	return node_room(pgdat, WMARK_MIN);
}

/* Pages that can still be charged to the cgroups of @mm; ULONG_MAX: unlimited. */
unsigned long limelight_cgroup_room(struct mm_struct *mm)
{
	unsigned long room = ULONG_MAX;
#ifdef CONFIG_MEMCG
	struct mem_cgroup *memcg = get_mem_cgroup_from_mm(mm);
	struct mem_cgroup *each = memcg;

	for (; each && !mem_cgroup_is_root(each); each = parent_mem_cgroup(each)) {
		unsigned long usage = page_counter_read(&each->memory);
		unsigned long limit = min(READ_ONCE(each->memory.max),
					  READ_ONCE(each->memory.high));

		room = min(room, limit > usage ? limit - usage : 0);
	}
	mem_cgroup_put(memcg);
#endif
	return room;
}

#ifdef CONFIG_LIMELIGHT_KUNIT_TEST
#include "tests/core-kunit.h"
#endif
