// SPDX-License-Identifier: GPL-2.0-only
/*
 * Limelight: the footprint of the topmost app, and the budget that bounds
 * protection.
 *
 * Protection is meant for one app among others. An app that uses most of the
 * machine's memory would gain nothing: reclaim has to take the app's own pages, and
 * each skipped page costs time. So there is a budget, a share of memory:
 *
 *   - mapped memory above the budget: nothing is protected;
 *   - mapped and cached memory together above it: cached pages are not protected.
 *
 * Both figures are cheap upper bounds. Mapped memory is the sum of the members'
 * RSS counters. Shared pages count several times, but the sum is limited to what the
 * whole machine has mapped. Cached pages are counted by their tags. So is mapped
 * anonymous memory, because a page with a member's tag is protected even if only
 * another process maps it (a member's parent, which shares it after fork).
 *
 * Reclaim does not count. When the figures are old it queues work items, and uses the
 * old figures until these have run. Nothing is counted while no reclaim runs.
 */
#include <linux/atomic.h>
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/limelight.h>
#include <linux/mm.h>
#include <linux/rcupdate.h>
#include <linux/vmstat.h>
#include <linux/workqueue.h>
#include <trace/events/limelight.h>

#include "internal.h"

/* Shortest interval between requests for new figures, in jiffies. */
#define REFRESH_INTERVAL	(HZ / 10)
/* Shortest intervals between counts. Each count may take 2 % of the time. */
#define MAPPED_INTERVAL_MS	100LL
#define CACHED_INTERVAL_MS	500LL
#define COUNT_DUTY		50
/* Longest interval between counts while reclaim runs, in jiffies. */
#define COUNT_INTERVAL_MAX	(60 * HZ)

unsigned int limelight_budget_percent __read_mostly = LIMELIGHT_BUDGET_DEFAULT;
/* Value of limelight_budget_percent after the device is closed. */
static unsigned int budget_configured = LIMELIGHT_BUDGET_DEFAULT;

static struct {
	unsigned long next;	/* jiffies: next request for new figures */
	unsigned long mapped;	/* pages */
	unsigned long cached;	/* pages */
	unsigned long anon;	/* mapped anonymous pages with a topmost tag */
	unsigned long mapped_after;	/* jiffies: @mapped is counted no earlier */
	unsigned long cached_after;	/* the same for @cached and @anon */
	bool over_mapped;
	bool over_cached;
} footprint;

static void mapped_work_fn(struct work_struct *work);
static void cached_work_fn(struct work_struct *work);
static DECLARE_DELAYED_WORK(mapped_work, mapped_work_fn);
static DECLARE_DELAYED_WORK(cached_work, cached_work_fn);
/* Whether reclaim may queue the work items. */
static bool counting;

/* Sets the budget. @remember: keep it after the device is closed. */
int limelight_budget_set(unsigned int percent, bool remember)
{
	if (!percent || percent > LIMELIGHT_BUDGET_MAX)
		return -EINVAL;
	WRITE_ONCE(limelight_budget_percent, percent);
	if (remember)
		budget_configured = percent;
	return 0;
}

void limelight_budget_reset(void)
{
	WRITE_ONCE(limelight_budget_percent, budget_configured);
}

/*
 * Pages that reclaim can work with: free, on the evictable LRU lists, reclaimable
 * slab, or compressed in zram (else an app would lose its protection when others are
 * swapped out for it). Kernel, driver and mlock()ed memory is excluded: a share of
 * it would be taken from the other apps' last pages.
 */
unsigned long limelight_reachable_pages(void)
{
	unsigned long pages = global_zone_page_state(NR_FREE_PAGES) +
			      global_node_page_state_pages(NR_SLAB_RECLAIMABLE_B);
	enum lru_list lru;

	for_each_evictable_lru(lru)
		pages += global_node_page_state(NR_LRU_BASE + lru);
#if IS_ENABLED(CONFIG_ZSMALLOC)
	pages += global_zone_page_state(NR_ZSPAGES);
#endif
	return min(pages, totalram_pages());
}

unsigned long limelight_budget_pages(void)
{
	return mult_frac(limelight_reachable_pages(),
			 (unsigned long)READ_ONCE(limelight_budget_percent),
			 100UL);
}

/*
 * Whether a footprint of @pages is over @budget. Hysteresis: once over, it has to
 * fall to an eighth below the budget.
 */
bool limelight_over_budget(bool was_over, unsigned long pages, unsigned long budget)
{
	return pages > (was_over ? budget - budget / 8 : budget);
}

static void footprint_update(void)
{
	unsigned long mapped = READ_ONCE(footprint.mapped);
	unsigned long cached = READ_ONCE(footprint.cached);
	unsigned long budget = limelight_budget_pages();
	bool was_mapped = READ_ONCE(footprint.over_mapped);
	bool was_cached = READ_ONCE(footprint.over_cached);
	bool over_mapped = limelight_over_budget(was_mapped, mapped, budget);
	bool over_cached = limelight_over_budget(was_cached, mapped + cached, budget);

	if (over_mapped == was_mapped && over_cached == was_cached)
		return;
	WRITE_ONCE(footprint.over_mapped, over_mapped);
	WRITE_ONCE(footprint.over_cached, over_cached);
	trace_limelight_protect_budget(mapped, cached, budget, over_mapped,
				       over_cached);
}

/*
 * Mapped pages that may be protected. @usage: pages mapped by members; @tagged:
 * anonymous pages with a member's tag, mapped by any process.
 */
static unsigned long mapped_pages(const struct limelight_usage *usage,
				  unsigned long tagged)
{
	return max(usage->anon, tagged) + usage->file;
}

static void count_mapped(void)
{
	struct limelight_usage usage;

	limelight_usage(&usage);
	usage.anon = min(usage.anon, global_node_page_state(NR_ANON_MAPPED));
	usage.file = min(usage.file, global_node_page_state(NR_FILE_MAPPED));
	WRITE_ONCE(footprint.mapped,
		   mapped_pages(&usage, READ_ONCE(footprint.anon)));
}

/* Earliest time of the next count in jiffies, after one that took @took_ms. */
static unsigned long next_count(unsigned long now, s64 took_ms, s64 interval_ms)
{
	unsigned long delay = msecs_to_jiffies(max(interval_ms,
						   took_ms * COUNT_DUTY));

	return now + min(delay, COUNT_INTERVAL_MAX);
}

/* Jiffies from @now until @after, 0 if that has passed. */
static unsigned long count_delay(unsigned long after, unsigned long now)
{
	return limelight_pending(after, now, COUNT_INTERVAL_MAX) ? after - now : 0;
}

static void mapped_work_fn(struct work_struct *work)
{
	ktime_t start = ktime_get();

	count_mapped();
	footprint_update();
	WRITE_ONCE(footprint.mapped_after,
		   next_count(jiffies, ktime_ms_delta(ktime_get(), start),
			      MAPPED_INTERVAL_MS));
}

static void cached_work_fn(struct work_struct *work)
{
	ktime_t start = ktime_get();
	struct limelight_tagged tagged;

	limelight_identifier_count(&tagged);
	WRITE_ONCE(footprint.cached, tagged.cached);
	WRITE_ONCE(footprint.anon, tagged.anon);
	count_mapped();
	footprint_update();
	WRITE_ONCE(footprint.cached_after,
		   next_count(jiffies, ktime_ms_delta(ktime_get(), start),
			      CACHED_INTERVAL_MS));
}

/*
 * Called by reclaim. Only queues the counts: they walk all processes and all tags,
 * and the reclaimer may hold locks.
 */
static void footprint_refresh(void)
{
	unsigned long next = READ_ONCE(footprint.next);
	unsigned long now = jiffies;

	if (limelight_pending(next, now, REFRESH_INTERVAL))
		return;
	/* Only one of the concurrent reclaimers queues the counts. */
	if (cmpxchg(&footprint.next, next, now + REFRESH_INTERVAL) != next)
		return;

	rcu_read_lock();
	if (READ_ONCE(counting)) {
		queue_delayed_work(system_unbound_wq, &mapped_work,
				   count_delay(READ_ONCE(footprint.mapped_after), now));
		queue_delayed_work(system_unbound_wq, &cached_work,
				   count_delay(READ_ONCE(footprint.cached_after), now));
	}
	rcu_read_unlock();
}

/* The mode that the budget allows. @cached: unmapped page cache is protected. */
enum limelight_mode limelight_footprint_mode(bool *cached)
{
	footprint_refresh();
	*cached = !READ_ONCE(footprint.over_cached);
	return READ_ONCE(footprint.over_mapped) ? LIMELIGHT_OFF :
						  LIMELIGHT_KEEP;
}

/* Counts afresh after the topmost set has changed or protect was enabled. */
void limelight_footprint_renew(void)
{
	WRITE_ONCE(footprint.cached, 0);
	WRITE_ONCE(footprint.anon, 0);
	WRITE_ONCE(footprint.over_mapped, false);
	WRITE_ONCE(footprint.over_cached, false);
	count_mapped();
	footprint_update();
	WRITE_ONCE(footprint.next, jiffies + REFRESH_INTERVAL);
	WRITE_ONCE(footprint.mapped_after, jiffies);
	WRITE_ONCE(counting, true);
	mod_delayed_work(system_unbound_wq, &cached_work, 0);
}

/* Stops counting, and waits for running counts. The static key is already off. */
void limelight_footprint_stop(void)
{
	WRITE_ONCE(counting, false);
	/* Wait for reclaimers that are about to queue a count. */
	synchronize_rcu();
	cancel_delayed_work_sync(&mapped_work);
	cancel_delayed_work_sync(&cached_work);
	WRITE_ONCE(footprint.mapped, 0);
	WRITE_ONCE(footprint.cached, 0);
	WRITE_ONCE(footprint.anon, 0);
}

unsigned long limelight_footprint_mapped(void)
{
	return READ_ONCE(footprint.mapped);
}

unsigned long limelight_footprint_cached(void)
{
	return READ_ONCE(footprint.cached);
}

#ifdef CONFIG_LIMELIGHT_KUNIT_TEST
#include "tests/footprint-kunit.h"
#endif
