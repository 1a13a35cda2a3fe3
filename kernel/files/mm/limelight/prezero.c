// SPDX-License-Identifier: GPL-2.0-only
/*
 * Limelight prezero: the topmost app gets pages that were zeroed in advance.
 *
 * Between response windows the manager (prezero_manager.c) fills a pool
 * (prezero_pool.c) with pages that an engine (prezero_cpu.c, _block.c, _dma.c) has
 * zeroed. This file decides which faults are served from the pool, and when the pool
 * is drained.
 *
 * The pool serves faults of the topmost app on anonymous memory, one page at a time,
 * and premap's windows, with single pages and with folios of PREZERO_ORDER. Faults
 * under a memory policy take the ordinary path, as do faults of a task whose cpuset
 * does not allow the CPU's node. So does a task whose CPU time is limited (cpu.max
 * of its cgroup or of an ancestor): the zeroing would escape the limit.
 *
 * The pool is drained before an allocation fails: in the slow path of the page
 * allocator, before kswapd is woken; before kswapd reclaims; before the OOM killer
 * runs; and through a shrinker. In the first two cases, a node keeps its pages while
 * reclaim will find enough clean, old page cache instead (prezero_manager_keeps()),
 * unless the allocation cannot wait for it, or kswapd has not found it. The pool is
 * also drained before a range of memory is isolated (contiguous allocations, memory
 * offlining) and before a zone is compacted (other than by kcompactd), because pages
 * of the pool cannot be migrated.
 *
 * With init_on_free, free pages are already zero, and the mechanism is refused. With
 * init_on_alloc, the page allocator zeroes the pages as the pool takes them, and no
 * engine is used.
 */
#include <linux/capability.h>
#include <linux/cpuset.h>
#include <linux/gfp.h>
#include <linux/jiffies.h>
#include <linux/limelight.h>
#include <linux/mm.h>
#include <linux/notifier.h>
#include <linux/oom.h>
#include <linux/page-flags.h>
#include <linux/preempt.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/cputime.h>
#include <linux/shrinker.h>
#include <linux/string.h>
#include <linux/swap.h>
#include <linux/vmstat.h>
#include <trace/events/limelight.h>

#include "../internal.h"
#include "internal.h"
#include "prezero.h"

/* Largest number of pages that an allocation that cannot sleep drains. */
#define ATOMIC_PAGES	256

DEFINE_STATIC_KEY_FALSE(limelight_prezero_key);

/* Whether each page is verified before it is handed out; for debugging. */
bool limelight_prezero_verify __read_mostly;

/* Target of the pool, in pages. */
static unsigned long target = LIMELIGHT_PREZERO_TARGET_DEFAULT;
static struct shrinker *pool_shrinker;

/* ------------------------------------------------------------ serving faults */

/* Whether the CPU time of current is limited, by its cgroup or an ancestor. */
static bool prezero_task_throttled(void)
{
	bool limited;

	/* Keeps the cgroup alive if current is being moved. */
	rcu_read_lock();
	limited = cfs_task_bw_constrained(current);
	rcu_read_unlock();
	return limited;
}

/*
 * Takes up to @nr zeroed pages for faults on @vma, whose mm belongs to the
 * topmost app. They are in the state of pages that the page allocator returns.
 *
 * Return: the number of pages taken.
 */
unsigned int limelight_prezero_pages(struct vm_area_struct *vma,
				     struct page **pages, unsigned int nr)
{
	unsigned int got, i;
	bool refilled;

	if (current->mm != vma->vm_mm || !limelight_no_policy(vma) ||
	    prezero_task_throttled())
		return 0;
	got = prezero_pool_get(&limelight_zeroed, &cpuset_current_mems_allowed,
			       pages, nr, &refilled);
	if (refilled)
		prezero_manager_taken(page_to_nid(pages[0]));
	for (i = 0; i < got;) {
		void *data = page_address(pages[i]);

		if (unlikely(PageHWPoison(pages[i]))) {
			/* The page allocator does not reuse it. */
			__free_page(pages[i]);
			pages[i] = pages[--got];
			continue;
		}
		if (unlikely(READ_ONCE(limelight_prezero_verify)) &&
		    WARN_ON_ONCE(memchr_inv(data, 0, PAGE_SIZE))) {
			prezero_manager_count_dirty();
			clear_page(data);
		}
		i++;
	}
	count_vm_events(LIMELIGHT_PREZERO_SERVED, got);
	return got;
}

/* Takes a folio of PREZERO_ORDER; NULL: there is none. */
struct folio *limelight_prezero_large(struct vm_area_struct *vma)
{
	struct folio *folio;
	void *data;

	if (current->mm != vma->vm_mm || !limelight_no_policy(vma) ||
	    prezero_task_throttled())
		return NULL;
	folio = prezero_pool_get_folio(&limelight_zeroed,
				       &cpuset_current_mems_allowed);
	if (!folio)
		return NULL;
	prezero_manager_taken(folio_nid(folio));
	data = folio_address(folio);
	if (unlikely(READ_ONCE(limelight_prezero_verify)) &&
	    WARN_ON_ONCE(memchr_inv(data, 0, folio_size(folio)))) {
		prezero_manager_count_dirty();
		memset(data, 0, folio_size(folio));
	}
	count_vm_events(LIMELIGHT_PREZERO_SERVED, PREZERO_FOLIO_PAGES);
	return folio;
}

/* See limelight_prezero_folio(). */
struct folio *__limelight_prezero_folio(struct vm_area_struct *vma)
{
	struct page *page;

	if (!limelight_mm(vma->vm_mm))
		return NULL;
	if (limelight_prezero_pages(vma, &page, 1))
		return page_folio(page);
	count_vm_event(LIMELIGHT_PREZERO_MISSED);
	return NULL;
}

/* See limelight_prezero_missed(). */
void __limelight_prezero_missed(struct mm_struct *mm, unsigned long pages)
{
	if (limelight_mm(mm))
		count_vm_events(LIMELIGHT_PREZERO_MISSED, pages);
}

/* --------------------------------------------------------- draining the pool */

/*
 * Whether a drain must not miss pages that a fault is moving from a node's list to a
 * CPU's list, which the lockless counts miss. One such page makes the isolation of a
 * range fail, and after the mechanism is switched off, nothing else drains.
 */
static bool prezero_must_drain_all(enum limelight_prezero_drain why)
{
	return why == LIMELIGHT_DRAIN_RANGE || why == LIMELIGHT_DRAIN_OFF;
}

static unsigned long prezero_release(int nid, unsigned long most,
				     enum limelight_prezero_drain why)
{
	unsigned long pages;

	if (why != LIMELIGHT_DRAIN_OFF)
		prezero_manager_pause();
	if (!prezero_must_drain_all(why) && !prezero_pool_pages(&limelight_zeroed, nid))
		return 0;
	pages = prezero_pool_drain(&limelight_zeroed, nid, most);
	if (pages) {
		prezero_manager_wake();
		count_vm_events(LIMELIGHT_PREZERO_DRAINED, pages);
		trace_limelight_prezero_drain(nid, pages, why);
	}
	return pages;
}

/*
 * Releases all pages of @nid (NUMA_NO_NODE: of all nodes), and drains this CPU's
 * lists of the page allocator, because pages on these do not count as free.
 */
static unsigned long prezero_release_all(int nid, enum limelight_prezero_drain why)
{
	unsigned long pages;

	migrate_disable();
	pages = prezero_release(nid, ULONG_MAX, why);
	if (pages)
		drain_local_pages(NULL);
	migrate_enable();
	return pages;
}

/* See limelight_prezero_drain_alloc(). */
void __limelight_prezero_drain_alloc(gfp_t gfp_mask, unsigned int order)
{
	bool can_wait = gfpflags_allow_blocking(gfp_mask);
	unsigned long pages = 0;
	int nid;

	/*
	 * An allocation that may not even wake kswapd is best effort. A costly
	 * order is missing because of fragmentation, not for lack of memory, and
	 * compaction drains the pool when it runs.
	 */
	if (!(gfp_mask & __GFP_RECLAIM) || order > PAGE_ALLOC_COSTLY_ORDER)
		return;
	for_each_node_state(nid, N_MEMORY) {
		if (prezero_manager_keeps(nid) &&
		    (can_wait || limelight_node_min_room(NODE_DATA(nid))))
			continue;
		if (can_wait)
			prezero_release_all(nid, LIMELIGHT_DRAIN_ALLOCATION);
		else if (pages < ATOMIC_PAGES)
			pages += prezero_release(nid, ATOMIC_PAGES - pages,
						 LIMELIGHT_DRAIN_ALLOCATION);
	}
}

/* See limelight_prezero_drain_kswapd(). */
bool __limelight_prezero_drain_kswapd(struct pglist_data *pgdat, int order,
				      int priority)
{
	/* With room, a costly order is missing because of fragmentation. */
	if (order > PAGE_ALLOC_COSTLY_ORDER && limelight_node_room(pgdat))
		return false;
	if (prezero_manager_kswapd_keeps(pgdat->node_id, priority))
		return false;
	return prezero_release_all(pgdat->node_id, LIMELIGHT_DRAIN_KSWAPD);
}

/* See limelight_prezero_drain_isolation(). */
void __limelight_prezero_drain_isolation(void)
{
	prezero_manager_pause();
	prezero_manager_quiesce();
	prezero_release(NUMA_NO_NODE, ULONG_MAX, LIMELIGHT_DRAIN_RANGE);
}

/*
 * See limelight_prezero_drain_compaction(). Pages of the pool cannot be migrated,
 * and one of them keeps a whole pageblock from becoming a huge page.
 */
void __limelight_prezero_drain_compaction(struct zone *zone)
{
	prezero_release_all(zone_to_nid(zone), LIMELIGHT_DRAIN_COMPACTION);
}

static int prezero_oom_notify(struct notifier_block *block, unsigned long unused,
			      void *freed)
{
	*(unsigned long *)freed += prezero_release_all(NUMA_NO_NODE,
						 LIMELIGHT_DRAIN_OOM);
	return NOTIFY_OK;
}

static struct notifier_block oom_block = { .notifier_call = prezero_oom_notify };

/*
 * Whether slab reclaim by current leaves node @nid's pages in the pool: a thread that
 * reclaims page cache for the pool must not drain it, and kswapd has page cache to take.
 */
static bool prezero_spares(int nid)
{
	return prezero_manager_is_current() ||
	       (current_is_kswapd() && prezero_manager_keeps(nid));
}

static unsigned long prezero_shrink_count(struct shrinker *shrinker,
					  struct shrink_control *control)
{
	if (prezero_spares(control->nid))
		return SHRINK_EMPTY;
	return prezero_pool_pages(&limelight_zeroed, control->nid) ?: SHRINK_EMPTY;
}

static unsigned long prezero_shrink_scan(struct shrinker *shrinker,
					 struct shrink_control *control)
{
	unsigned long pages = prezero_release(control->nid, control->nr_to_scan,
					      LIMELIGHT_DRAIN_SHRINKER);

	control->nr_scanned = pages;
	return pages ?: SHRINK_STOP;
}

/* Wakes the threads: a window has ended, or premap has changed. Any context. */
void limelight_prezero_wake(void)
{
	if (limelight_prezeroing())
		prezero_manager_wake();
}

/* -------------------------------------------------------------- the mechanism */

bool limelight_prezero_enabled(void)
{
	return static_key_enabled(&limelight_prezero_key);
}

/* Limits @pages to the share of @total pages that the pool may hold. */
static unsigned long prezero_clamp_target(unsigned long pages, unsigned long total)
{
	return min(pages, total / LIMELIGHT_PREZERO_SHARE);
}

/* Effective target of the pool, in pages. */
unsigned long limelight_prezero_target(void)
{
	return prezero_clamp_target(READ_ONCE(target), totalram_pages());
}

/*
 * Pages in the pool now; 0 while prezero is off. Any user may read this through sysfs
 * while prezero_start() allocates the pool, so the pool is used only with the key on:
 * by then it is complete, and it is never freed afterwards.
 */
unsigned long limelight_prezero_pooled(void)
{
	return limelight_prezeroing() ?
	       prezero_pool_pages(&limelight_zeroed, NUMA_NO_NODE) : 0;
}

/* Checks the parameters. Return: 0 or an error. */
static int prezero_check_params(bool on, const struct limelight_mechanism *params)
{
	const u32 flags = LIMELIGHT_PREZERO_VERIFY | LIMELIGHT_PREZERO_TRUST;

	if (params->prezero_flags & ~flags || params->prezero_flags == flags)
		return -EINVAL;
	if (params->engine > LIMELIGHT_ENGINE_DMA)
		return -EINVAL;
	if (params->engine != LIMELIGHT_ENGINE_BLOCK &&
	    (params->block_fd || params->block_offset || params->block_len))
		return -EINVAL;
	/* Switching off takes no engine and no flags. */
	if (!on && (params->engine || params->prezero_flags))
		return -EINVAL;
	if (on && want_init_on_free())
		return -EOPNOTSUPP;
	/* A page that the engine did not write holds another process's data. */
	if (params->prezero_flags & LIMELIGHT_PREZERO_TRUST &&
	    !capable(CAP_SYS_RAWIO))
		return -EPERM;
	return 0;
}

static int prezero_start(const struct limelight_mechanism *params)
{
	int ret;

	if (!limelight_zeroed.nodes) {
		/* Allocated once; late faults may still use it after prezero_stop(). */
		ret = prezero_pool_init(&limelight_zeroed);
		if (ret)
			return ret;
	}
	pool_shrinker = shrinker_alloc(SHRINKER_NUMA_AWARE, "limelight-prezero");
	if (!pool_shrinker)
		return -ENOMEM;
	pool_shrinker->count_objects = prezero_shrink_count;
	pool_shrinker->scan_objects = prezero_shrink_scan;

	prezero_pool_set_target(&limelight_zeroed, limelight_prezero_target());
	ret = prezero_manager_use(params);
	if (!ret)
		ret = prezero_manager_start();
	if (ret) {
		prezero_manager_stop();
		/* The threads of some nodes may have run, and nothing else drains. */
		prezero_release_all(NUMA_NO_NODE, LIMELIGHT_DRAIN_OFF);
		shrinker_free(pool_shrinker);
		return ret;
	}
	shrinker_register(pool_shrinker);
	register_oom_notifier(&oom_block);
	static_branch_enable(&limelight_prezero_key);
	return 0;
}

static void prezero_stop(void)
{
	prezero_manager_stop();
	static_branch_disable(&limelight_prezero_key);
	unregister_oom_notifier(&oom_block);
	shrinker_free(pool_shrinker);
	prezero_release_all(NUMA_NO_NODE, LIMELIGHT_DRAIN_OFF);
}

/* Releases the pages above the target. */
static void prezero_trim(void)
{
	int nid;

	for_each_node_state(nid, N_MEMORY) {
		unsigned long most = READ_ONCE(limelight_zeroed.nodes[nid].target);
		unsigned long pages = prezero_pool_pages(&limelight_zeroed, nid);

		if (pages > most)
			prezero_release(nid, pages - most, LIMELIGHT_DRAIN_OFF);
	}
}

/*
 * Switches the mechanism on or off, or changes its parameters.
 *
 * Return: 0, or an error with nothing changed.
 */
int limelight_prezero_configure(const struct limelight_mechanism *params)
{
	bool on = params->flags & LIMELIGHT_MECHANISM_ON;
	unsigned long before = target;
	int ret = prezero_check_params(on, params);

	if (ret)
		return ret;
	if (params->target_pages)
		WRITE_ONCE(target, params->target_pages);
	if (!on) {
		if (limelight_prezero_enabled())
			prezero_stop();
		return 0;
	}

	if (!limelight_prezero_enabled())
		ret = prezero_start(params);
	else
		ret = prezero_manager_use(params);
	if (ret) {
		WRITE_ONCE(target, before);
		return ret;
	}
	prezero_pool_set_target(&limelight_zeroed, limelight_prezero_target());
	prezero_trim();
	prezero_manager_wake();
	return 0;
}

/* Resets prezero when the device is closed. */
void limelight_prezero_reset(void)
{
	static const struct limelight_mechanism none;

	limelight_prezero_configure(&none);
	WRITE_ONCE(target, LIMELIGHT_PREZERO_TARGET_DEFAULT);
}

#ifdef CONFIG_LIMELIGHT_KUNIT_TEST
#include "tests/prezero-kunit.h"
#endif
