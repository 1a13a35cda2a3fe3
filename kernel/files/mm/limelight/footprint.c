// SPDX-License-Identifier: GPL-2.0-only
/*
 * Limelight: how much the topmost app holds, and how much of it is protected.
 *
 * Protection is meant for an app among others. An app that takes most of the
 * machine would gain nothing from it, because its own pages are what reclaim
 * has to work with, and would pay for every page that is passed over. So there
 * is a budget, a share of memory:
 *
 *   - mapped memory above the budget: nothing is protected;
 *   - mapped and cached memory together above it: cached pages are not.
 *
 * Both figures are upper bounds that cost next to nothing. What the members
 * map is summed up from their counters; pages that several of them share count
 * several times, but never for more than what the whole machine has mapped.
 * What is only cached is counted from the page identifiers. So is anonymous
 * memory: one that carries a member's identifier is kept even if another process
 * maps it (a member's parent, which shares it after fork), and counts as well.
 *
 * Nothing is counted while no reclaim runs: reclaim itself asks for new figures
 * when the last ones are old.
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

/* Mapped memory is summed up at most this often. */
#define MAPPED_INTERVAL		(HZ / 10)
/* Identifiers are counted at most this often, and for 2 % of the time. */
#define CACHED_INTERVAL_MS	500LL
#define CACHED_DUTY		50

unsigned int limelight_budget_percent __read_mostly = LIMELIGHT_BUDGET_DEFAULT;
/* What limelight_budget_percent goes back to when the device is closed. */
static unsigned int budget_configured = LIMELIGHT_BUDGET_DEFAULT;

static struct {
	unsigned long next;	/* jiffies: @mapped is old from then on */
	unsigned long mapped;	/* pages */
	unsigned long cached;	/* pages */
	unsigned long anon;	/* mapped pages tagged as the topmost app's */
	unsigned long cached_delay;	/* jiffies before @cached is counted again */
	bool over_mapped;
	bool over_cached;
} footprint;

static void count_cached(struct work_struct *work);
static DECLARE_DELAYED_WORK(cached_work, count_cached);
/* Cleared to keep reclaim from starting cached_work any more. */
static bool cached_wanted;

/* Sets the budget; @remember: also beyond the life of the open device. */
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
 * What reclaim can work with: free, on one of its lists, slab that can be given
 * back, or what it has compressed already: an app does not lose its protection
 * because the others went to zram for its sake. A share of what the kernel, a
 * driver or mlock() holds would be a promise of the others' last pages.
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
 * Whether a footprint is over budget. Once over, it has to fall an eighth below
 * it: an app at its budget must not flip between the two at every look.
 */
bool limelight_over(bool was_over, unsigned long pages, unsigned long budget)
{
	return pages > (was_over ? budget - budget / 8 : budget);
}

static void footprint_judge(void)
{
	unsigned long mapped = READ_ONCE(footprint.mapped);
	unsigned long cached = READ_ONCE(footprint.cached);
	unsigned long budget = limelight_budget_pages();
	bool was_mapped = READ_ONCE(footprint.over_mapped);
	bool was_cached = READ_ONCE(footprint.over_cached);
	bool over_mapped = limelight_over(was_mapped, mapped, budget);
	bool over_cached = limelight_over(was_cached, mapped + cached, budget);

	if (over_mapped == was_mapped && over_cached == was_cached)
		return;
	WRITE_ONCE(footprint.over_mapped, over_mapped);
	WRITE_ONCE(footprint.over_cached, over_cached);
	trace_limelight_protect_budget(mapped, cached, budget, over_mapped,
				       over_cached);
}

/*
 * Mapped pages that protection is about. @usage: what the members map, @tagged:
 * anonymous pages that are kept for their tags, whoever maps them.
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

static void count_cached(struct work_struct *work)
{
	ktime_t start = ktime_get();
	struct limelight_tagged tagged;
	s64 took_ms;

	limelight_identifier_count(&tagged);
	WRITE_ONCE(footprint.cached, tagged.cached);
	WRITE_ONCE(footprint.anon, tagged.anon);
	count_mapped();
	footprint_judge();

	took_ms = ktime_ms_delta(ktime_get(), start);
	WRITE_ONCE(footprint.cached_delay,
		   msecs_to_jiffies(max(CACHED_INTERVAL_MS,
					took_ms * CACHED_DUTY)));
}

/* Reclaim asks for fresh figures. Cheap when they are fresh. */
static void footprint_refresh(void)
{
	unsigned long next = READ_ONCE(footprint.next);
	unsigned long now = jiffies;

	if (limelight_pending(next, now, MAPPED_INTERVAL))
		return;
	/* One of the reclaimers does it for all. */
	if (cmpxchg(&footprint.next, next, now + MAPPED_INTERVAL) != next)
		return;

	count_mapped();
	footprint_judge();
	rcu_read_lock();
	if (READ_ONCE(cached_wanted))
		queue_delayed_work(system_unbound_wq, &cached_work,
				   READ_ONCE(footprint.cached_delay));
	rcu_read_unlock();
}

/* What the budget allows now; @cached: also for pages that are only cached. */
enum limelight_mode limelight_footprint_mode(bool *cached)
{
	footprint_refresh();
	*cached = !READ_ONCE(footprint.over_cached);
	return READ_ONCE(footprint.over_mapped) ? LIMELIGHT_OFF :
						  LIMELIGHT_KEEP;
}

/* Another app is topmost, or the mechanism was just switched on. */
void limelight_footprint_renew(void)
{
	WRITE_ONCE(footprint.cached, 0);
	WRITE_ONCE(footprint.anon, 0);
	WRITE_ONCE(footprint.over_mapped, false);
	WRITE_ONCE(footprint.over_cached, false);
	count_mapped();
	footprint_judge();
	WRITE_ONCE(footprint.next, jiffies + MAPPED_INTERVAL);
	WRITE_ONCE(cached_wanted, true);
	mod_delayed_work(system_unbound_wq, &cached_work, 0);
}

/* Returns with nothing running any more; the static key is off by now. */
void limelight_footprint_stop(void)
{
	WRITE_ONCE(cached_wanted, false);
	/* A reclaimer may be about to queue the work. */
	synchronize_rcu();
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
