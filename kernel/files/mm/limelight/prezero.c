// SPDX-License-Identifier: GPL-2.0-only
/*
 * Limelight prezero: the topmost app gets pages that were zeroed before it asked.
 *
 * Between the response windows a pool (prezero_pool.c) is filled with zeroed
 * pages (prezero_manager.c), by whatever engine can (prezero_cpu.c and its
 * neighbours). Here is who gets them, and when they go back.
 *
 * They are for faults of the topmost app on anonymous memory, a page at a time,
 * and for premap's windows, in folios as large as these are made of.
 * A fault that they are not for takes the ordinary path: with a memory policy,
 * or outside the CPU's node where the cpuset does not allow that. A task whose
 * CPU time is limited (cpu.max, its cgroup's or one above) gets none: zeroing is
 * time that its limit is about, and would be spent outside of it.
 *
 * They go back before anybody goes without: when an allocation finds memory
 * below the low watermarks, before it wakes kswapd; when kswapd is about to
 * reclaim; before a process is killed; through a shrinker; and before a range of
 * memory is isolated, for a contiguous allocation or to be removed.
 *
 * With init_on_free the pages that are free are zero already: the mechanism is
 * refused. With init_on_alloc they are zeroed as the pool takes them, whatever
 * the engine.
 */
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
#include <linux/shrinker.h>
#include <linux/string.h>
#include <linux/vmstat.h>
#include <trace/events/limelight.h>

#include "../internal.h"
#include "internal.h"
#include "prezero.h"

/* Pages that go back at once where an allocation cannot wait. */
#define ATOMIC_PAGES	256

DEFINE_STATIC_KEY_FALSE(limelight_prezero_key);

/* Whether each page that is handed out is looked at; for debugging. */
bool limelight_prezero_verify __read_mostly;

/* Pages that should be in the pool. */
static unsigned long target = LIMELIGHT_PREZERO_TARGET_DEFAULT;
static struct shrinker *pool_shrinker;

/* ---------------------------------------------------------------- handing out */

/* Whether the time of current is limited, by its cgroup or one above. */
static bool time_is_limited(void)
{
	bool limited;

	/* Moved to another cgroup at this moment, the old one stays for that long. */
	rcu_read_lock();
	limited = cfs_task_bw_constrained(current);
	rcu_read_unlock();
	return limited;
}

/*
 * Takes up to @nr zeroed pages for faults on @vma, whose mm belongs to the
 * topmost app. Each is as a page fresh from the page allocator.
 *
 * Return: how many.
 */
unsigned int limelight_prezero_pages(struct vm_area_struct *vma,
				     struct page **pages, unsigned int nr)
{
	unsigned int got, i;
	bool refilled;

	if (current->mm != vma->vm_mm || !limelight_no_policy(vma) ||
	    time_is_limited())
		return 0;
	got = prezero_pool_get(&limelight_zeroed, &cpuset_current_mems_allowed,
			       pages, nr, &refilled);
	if (refilled)
		prezero_manager_taken(page_to_nid(pages[0]));
	for (i = 0; i < got;) {
		void *data = page_address(pages[i]);

		if (unlikely(PageHWPoison(pages[i]))) {
			/* The page allocator keeps it out of use. */
			__free_page(pages[i]);
			pages[i] = pages[--got];
			continue;
		}
		if (unlikely(READ_ONCE(limelight_prezero_verify)) &&
		    WARN_ON_ONCE(memchr_inv(data, 0, PAGE_SIZE))) {
			prezero_manager_dirty();
			clear_page(data);
		}
		i++;
	}
	count_vm_events(LIMELIGHT_PREZERO_SERVED, got);
	return got;
}

/* The same for a folio of PREZERO_ORDER; NULL: there is none. */
struct folio *limelight_prezero_large(struct vm_area_struct *vma)
{
	struct folio *folio;
	void *data;

	if (current->mm != vma->vm_mm || !limelight_no_policy(vma) ||
	    time_is_limited())
		return NULL;
	folio = prezero_pool_get_folio(&limelight_zeroed,
				       &cpuset_current_mems_allowed);
	if (!folio)
		return NULL;
	prezero_manager_taken(folio_nid(folio));
	data = folio_address(folio);
	if (unlikely(READ_ONCE(limelight_prezero_verify)) &&
	    WARN_ON_ONCE(memchr_inv(data, 0, folio_size(folio)))) {
		prezero_manager_dirty();
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

/* ---------------------------------------------------------------- giving back */

static unsigned long give_back(int nid, unsigned long most,
			       enum limelight_prezero_drain why)
{
	unsigned long pages;

	if (why != LIMELIGHT_DRAIN_OFF)
		prezero_manager_pause();
	pages = prezero_pool_drain(&limelight_zeroed, nid, most);
	if (pages) {
		prezero_manager_wake();
		count_vm_events(LIMELIGHT_PREZERO_DRAINED, pages);
		trace_limelight_prezero_drain(nid, pages, why);
	}
	return pages;
}

/*
 * The same where there is time for it: what goes back does not stay on this
 * CPU's lists of the page allocator, where it does not count as free.
 */
static unsigned long give_all_back(int nid, enum limelight_prezero_drain why)
{
	unsigned long pages;

	migrate_disable();
	pages = give_back(nid, ULONG_MAX, why);
	if (pages)
		drain_local_pages(NULL);
	migrate_enable();
	return pages;
}

/* See limelight_prezero_relieve(). */
void __limelight_prezero_relieve(gfp_t gfp_mask, unsigned int order)
{
	/*
	 * Who does not even wake kswapd takes what is there or nothing, and a
	 * large block is not missing for lack of memory.
	 */
	if (!(gfp_mask & __GFP_RECLAIM) || order > PAGE_ALLOC_COSTLY_ORDER)
		return;
	if (gfpflags_allow_blocking(gfp_mask))
		give_all_back(NUMA_NO_NODE, LIMELIGHT_DRAIN_ALLOCATION);
	else
		give_back(NUMA_NO_NODE, ATOMIC_PAGES, LIMELIGHT_DRAIN_ALLOCATION);
}

/* See limelight_prezero_yield(). */
bool __limelight_prezero_yield(struct pglist_data *pgdat, int order)
{
	/* A large block is not missing for lack of memory. */
	if (order > PAGE_ALLOC_COSTLY_ORDER && limelight_node_room(pgdat))
		return false;
	return give_all_back(pgdat->node_id, LIMELIGHT_DRAIN_KSWAPD);
}

/* See limelight_prezero_range(). */
void __limelight_prezero_range(void)
{
	prezero_manager_pause();
	prezero_manager_quiesce();
	give_back(NUMA_NO_NODE, ULONG_MAX, LIMELIGHT_DRAIN_RANGE);
}

static int before_oom(struct notifier_block *block, unsigned long unused,
		      void *freed)
{
	*(unsigned long *)freed += give_all_back(NUMA_NO_NODE,
						 LIMELIGHT_DRAIN_OOM);
	return NOTIFY_OK;
}

static struct notifier_block oom_block = { .notifier_call = before_oom };

static unsigned long shrink_count(struct shrinker *shrinker,
				  struct shrink_control *control)
{
	return prezero_pool_pages(&limelight_zeroed, control->nid) ?: SHRINK_EMPTY;
}

static unsigned long shrink_scan(struct shrinker *shrinker,
				 struct shrink_control *control)
{
	unsigned long pages = give_back(control->nid, control->nr_to_scan,
					LIMELIGHT_DRAIN_SHRINKER);

	control->nr_scanned = pages;
	return pages ?: SHRINK_STOP;
}

/* A window is over, or others are made of folios now: look again. Any context. */
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

/* Return: @pages, or as much as the mechanism may have of @total pages. */
static unsigned long clamp_target(unsigned long pages, unsigned long total)
{
	return min(pages, total / LIMELIGHT_PREZERO_SHARE);
}

/* Pages that should be in the pool while the mechanism is on. */
unsigned long limelight_prezero_target(void)
{
	return clamp_target(READ_ONCE(target), totalram_pages());
}

/* Pages in the pool now. */
unsigned long limelight_prezero_pooled(void)
{
	return limelight_zeroed.nodes ?
	       prezero_pool_pages(&limelight_zeroed, NUMA_NO_NODE) : 0;
}

/* What user space may not ask for. */
static int check(bool on, const struct limelight_mechanism *params)
{
	const u32 flags = LIMELIGHT_PREZERO_VERIFY | LIMELIGHT_PREZERO_TRUST;

	if (params->prezero_flags & ~flags || params->prezero_flags == flags)
		return -EINVAL;
	if (params->engine > LIMELIGHT_ENGINE_DMA)
		return -EINVAL;
	if (params->engine != LIMELIGHT_ENGINE_BLOCK &&
	    (params->block_fd || params->block_offset || params->block_len))
		return -EINVAL;
	/* Switched off, it has no engine. */
	if (!on && (params->engine || params->prezero_flags))
		return -EINVAL;
	if (on && want_init_on_free())
		return -EOPNOTSUPP;
	return 0;
}

static int start(const struct limelight_mechanism *params)
{
	int ret;

	if (!limelight_zeroed.nodes) {
		/* Made once; a fault may still be looking at it after the end. */
		ret = prezero_pool_init(&limelight_zeroed);
		if (ret)
			return ret;
	}
	pool_shrinker = shrinker_alloc(SHRINKER_NUMA_AWARE, "limelight-prezero");
	if (!pool_shrinker)
		return -ENOMEM;
	pool_shrinker->count_objects = shrink_count;
	pool_shrinker->scan_objects = shrink_scan;

	prezero_pool_set_target(&limelight_zeroed, limelight_prezero_target());
	ret = prezero_manager_use(params);
	if (!ret)
		ret = prezero_manager_start();
	if (ret) {
		prezero_manager_stop();
		shrinker_free(pool_shrinker);
		return ret;
	}
	shrinker_register(pool_shrinker);
	register_oom_notifier(&oom_block);
	static_branch_enable(&limelight_prezero_key);
	return 0;
}

static void stop(void)
{
	prezero_manager_stop();
	static_branch_disable(&limelight_prezero_key);
	unregister_oom_notifier(&oom_block);
	shrinker_free(pool_shrinker);
	give_all_back(NUMA_NO_NODE, LIMELIGHT_DRAIN_OFF);
}

/* Gives back what the pool has above its target. */
static void trim(void)
{
	int nid;

	for_each_node_state(nid, N_MEMORY) {
		unsigned long most = READ_ONCE(limelight_zeroed.nodes[nid].target);
		unsigned long pages = prezero_pool_pages(&limelight_zeroed, nid);

		if (pages > most)
			give_back(nid, pages - most, LIMELIGHT_DRAIN_OFF);
	}
}

/*
 * Switches the mechanism on or off, or changes what it does.
 *
 * Return: 0, or an error with everything as it was.
 */
int limelight_prezero_configure(const struct limelight_mechanism *params)
{
	bool on = params->flags & LIMELIGHT_MECHANISM_ON;
	unsigned long before = target;
	int ret = check(on, params);

	if (ret)
		return ret;
	if (params->target_pages)
		WRITE_ONCE(target, params->target_pages);
	if (!on) {
		if (limelight_prezero_enabled())
			stop();
		return 0;
	}

	if (!limelight_prezero_enabled())
		ret = start(params);
	else
		ret = prezero_manager_use(params);
	if (ret) {
		WRITE_ONCE(target, before);
		return ret;
	}
	prezero_pool_set_target(&limelight_zeroed, limelight_prezero_target());
	trim();
	prezero_manager_wake();
	return 0;
}

/* The device is closed. */
void limelight_prezero_reset(void)
{
	static const struct limelight_mechanism none;

	limelight_prezero_configure(&none);
	WRITE_ONCE(target, LIMELIGHT_PREZERO_TARGET_DEFAULT);
}

#ifdef CONFIG_LIMELIGHT_KUNIT_TEST
#include "tests/prezero-kunit.h"
#endif
