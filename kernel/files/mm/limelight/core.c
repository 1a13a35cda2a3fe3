// SPDX-License-Identifier: GPL-2.0-only
/*
 * Limelight core: which processes make up the topmost app.
 *
 * Membership is a number. Each mm carries the number of the last topmost set
 * it was put into, and belongs to the topmost app as long as that number is
 * the one in force. Replacing or dropping the whole set is therefore one
 * store: no list is kept, no reference is held, nothing has to be undone for a
 * process that exits, and a set that was dropped can never come back, because
 * numbers are not used twice. The identity is the mm's, not the pid's: a pid
 * that is reused says nothing about the new process.
 *
 * fork (limelight_dup_mm()) and exec (limelight_exec_mmap()) copy the number, so
 * what a member starts is a member.
 *
 * A new set is put together in two steps. The device resolves every pidfd
 * first, which may fail and then leaves the set in force alone. Stamping the
 * processes and publishing the number cannot fail.
 *
 * Writers are serialized by the device's mutex. Readers take no lock.
 */
#include <linux/gfp.h>
#include <linux/limelight.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/oom.h>
#include <linux/page_counter.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/topology.h>
#include <linux/vmstat.h>

#define CREATE_TRACE_POINTS
#include <trace/events/limelight.h>

#include "internal.h"

DEFINE_STATIC_KEY_FALSE(limelight_key);
u64 limelight_generation __read_mostly;

/* The last number handed out, whether it is in force or not. */
static u64 limelight_last_generation;
/* The number that is being stamped, 0 when none is. */
static u64 limelight_next_generation;

/* Return: the number if @mm is a member now, or about to be one; else 0. */
static u64 inherit(struct mm_struct *mm, const struct mm_struct *parent)
{
	/* Pairs with limelight_topmost_set(): the number, then the tag. */
	u64 generation = smp_load_acquire(&parent->limelight_generation);

	/*
	 * A number that is not in force is copied as well. It means nothing,
	 * unless it is just being stamped: then the child is a member too.
	 */
	WRITE_ONCE(mm->limelight_generation, generation);
	if (generation == READ_ONCE(limelight_generation) ||
	    generation == READ_ONCE(limelight_next_generation))
		return generation;
	return 0;
}

/* See limelight_dup_mm(). A member's child has the same pages, and its tag. */
void __limelight_dup_mm(struct mm_struct *mm, const struct mm_struct *parent)
{
	if (inherit(mm, parent))
		limelight_tag_inherit(mm, parent);
}

/*
 * See limelight_exec_mmap(). The number is copied here and not when @mm is made:
 * a SET_TOPMOST in between stamps @old, and task_lock() keeps it from coming
 * between this and the moment from which on it stamps @mm.
 *
 * The program may become an app of its own, so @mm does not have the tag of what
 * started it.
 */
void __limelight_exec_mmap(struct mm_struct *mm, const struct mm_struct *old)
{
	u64 generation = inherit(mm, old);

	if (generation)
		limelight_tags_join(limelight_tag_of(mm), generation);
}

/*
 * Puts @nr processes in front, in place of those that were. Processes without
 * a memory of their own by now (exited) are skipped.
 *
 * Return: the number of members, or -ENOMEM with the old set still in force.
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
		limelight_tags_add(tags, limelight_tag_of(task->mm));
		/* Pairs with inherit(): the tag first. */
		smp_store_release(&task->mm->limelight_generation, generation);
		task_unlock(task);
		members++;
	}

	limelight_protect_topmost(tags);
	WRITE_ONCE(limelight_generation, members ? generation : 0);
	WRITE_ONCE(limelight_next_generation, 0);
	if (!members)
		limelight_window_end(LIMELIGHT_WINDOW_NOBODY);
	trace_limelight_topmost(limelight_generation, members);
	return members;
}

/* Nobody is topmost any more. Cannot fail. */
void limelight_topmost_clear(void)
{
	WRITE_ONCE(limelight_generation, 0);
	limelight_window_end(LIMELIGHT_WINDOW_NOBODY);
	limelight_protect_topmost(NULL);
	trace_limelight_topmost(0, 0);
}

/*
 * Adds up what the live members hold. The set is not written down anywhere, so
 * this looks at every process; it takes no lock that reclaim could not take.
 */
void limelight_usage(struct limelight_usage *usage)
{
	struct task_struct *process;

	*usage = (struct limelight_usage) {};
	if (!READ_ONCE(limelight_generation))
		return;

	rcu_read_lock();
	for_each_process(process) {
		struct task_struct *task;

		if (process->flags & PF_KTHREAD)
			continue;
		task = find_lock_task_mm(process);
		if (!task)
			continue;
		if (limelight_mm(task->mm)) {
			usage->members++;
			/* A vfork child borrows its parent's mm. */
			if (!task->vfork_done) {
				usage->anon += get_mm_counter(task->mm,
							      MM_ANONPAGES);
				usage->file += get_mm_counter(task->mm,
							      MM_FILEPAGES);
				usage->file += get_mm_counter(task->mm,
							      MM_SHMEMPAGES);
			}
		}
		task_unlock(task);
	}
	rcu_read_unlock();
}

/*
 * Pages that user memory can have of what is free on @pgdat above its high
 * watermarks: what work done in advance may take without making kswapd run for
 * it. What a low zone reserves for allocations that need it is not among them,
 * nor does its lack make up for what another zone has.
 */
unsigned long limelight_node_room(struct pglist_data *pgdat)
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
		kept = high_wmark_pages(zone) + zone->lowmem_reserve[highest];
		if (free > kept)
			room += free - kept;
	}
	return room;
}

/* The same for the node that this runs on. */
unsigned long limelight_memory_room(void)
{
	return limelight_node_room(NODE_DATA(numa_mem_id()));
}

/* How many pages the cgroups of @mm may still be charged for; ULONG_MAX: no limit. */
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
