/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tests of how many pages the threads zero for the pool, how fast, and how they stop and
 * fail. Included by prezero_manager.c.
 */
#include <kunit/static_stub.h>
#include <kunit/test.h>
#include <linux/completion.h>
#include <linux/delay.h>

static void manager_test_fills_to_the_target(struct kunit *test)
{
	const unsigned long plenty = 100000, high = 1000;

	KUNIT_EXPECT_EQ(test, pages_wanted(0, 800, false, plenty, high, 0),
			PREZERO_BATCH);
	KUNIT_EXPECT_EQ(test, pages_wanted(790, 800, true, plenty, high, 0), 10);
	KUNIT_EXPECT_EQ(test, pages_wanted(800, 800, true, plenty, high, 0), 0);
	KUNIT_EXPECT_EQ(test, pages_wanted(900, 800, true, plenty, high, 0), 0);
	/* A small shortfall does not start filling. */
	KUNIT_EXPECT_EQ(test, pages_wanted(700, 800, false, plenty, high, 0), 0);
	KUNIT_EXPECT_EQ(test, pages_wanted(699, 800, false, plenty, high, 0),
			PREZERO_BATCH);
	KUNIT_EXPECT_EQ(test, pages_wanted(0, 0, true, plenty, high, 0), 0);
}

static void manager_test_leaves_memory_free(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, pages_wanted(0, 800, true, 1000, 1000, 0), 0);
	KUNIT_EXPECT_EQ(test, pages_wanted(0, 800, true, 1000 + PREZERO_BATCH - 1,
					   1000, 0), 0);
	KUNIT_EXPECT_EQ(test, pages_wanted(0, 800, true, 1000 + PREZERO_BATCH, 1000,
					   0), PREZERO_BATCH);
}

/* While memory is full of page cache, the pool is filled up to the same target. */
static void manager_test_takes_the_place_of_page_cache(struct kunit *test)
{
	const unsigned long cache = PREZERO_BATCH;

	KUNIT_EXPECT_EQ(test, pages_wanted(0, 800, true, 0, 1000, cache), PREZERO_BATCH);
	KUNIT_EXPECT_EQ(test, pages_wanted(790, 800, true, 0, 1000, cache), 10);
	KUNIT_EXPECT_EQ(test, pages_wanted(800, 800, true, 0, 1000, cache), 0);
	KUNIT_EXPECT_EQ(test, pages_wanted(700, 800, false, 0, 1000, cache), 0);
	KUNIT_EXPECT_EQ(test, pages_wanted(0, 800, true, 0, 1000, cache - 1), 0);
	/* Free memory is used first. */
	KUNIT_EXPECT_TRUE(test, room_is_free(1000 + PREZERO_BATCH, 1000));
	KUNIT_EXPECT_FALSE(test, room_is_free(1000 + PREZERO_BATCH - 1, 1000));
}

static void manager_test_takes_a_share_of_the_cache(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, cache_room(0, 800 * CACHE_FILL, 1), 800);
	KUNIT_EXPECT_EQ(test, cache_room(700, 800 * CACHE_FILL, 1), 100);
	KUNIT_EXPECT_EQ(test, cache_room(800, 800 * CACHE_FILL, 1), 0);
	KUNIT_EXPECT_EQ(test, cache_room(900, 800 * CACHE_FILL, 1), 0);
	/* Below the low watermarks, kswapd needs the cache for others. */
	KUNIT_EXPECT_EQ(test, cache_room(0, 800 * CACHE_FILL, 0), 0);
}

static void manager_test_gives_way_when_cache_is_short(struct kunit *test)
{
	KUNIT_EXPECT_TRUE(test, pool_may_stay(800, 800 * CACHE_KEEP));
	KUNIT_EXPECT_FALSE(test, pool_may_stay(800, 800 * CACHE_KEEP - 1));
	/* A pool that has just been filled from cache stays. */
	KUNIT_EXPECT_TRUE(test, pool_may_stay(800, 800 * CACHE_FILL - 800));
}

/* memory.min may protect the cache that would let the pool stay. */
static void manager_test_kswapd_gives_up_on_cache(struct kunit *test)
{
	unsigned int scanned = 0, list = 1 << 20;
	int priority;

	for (priority = DEF_PRIORITY; kswapd_may_find_cache(priority); priority--)
		scanned += list >> priority;
	KUNIT_EXPECT_GT(test, priority, 0);
	/* Enough that a pool which may stay could have come from the list. */
	KUNIT_EXPECT_GE(test, scanned, list / CACHE_FILL);
	KUNIT_EXPECT_LE(test, scanned, list / CACHE_KEEP);
}

static void manager_test_folios_are_most_of_the_target(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, folios_of(0), 0);
	KUNIT_EXPECT_EQ(test, folios_of(PREZERO_FOLIO_PAGES), 0);
	KUNIT_EXPECT_EQ(test, folios_of(128 * PREZERO_FOLIO_PAGES), 112);
	KUNIT_EXPECT_EQ(test, singles_of(128 * PREZERO_FOLIO_PAGES, 112, 0),
			16 * PREZERO_FOLIO_PAGES);
	/* While the pool has more folios than its target, it wants fewer single pages. */
	KUNIT_EXPECT_EQ(test, singles_of(128 * PREZERO_FOLIO_PAGES, 112, 120),
			8 * PREZERO_FOLIO_PAGES);
	KUNIT_EXPECT_EQ(test, singles_of(128 * PREZERO_FOLIO_PAGES, 112, 130), 0);
	KUNIT_EXPECT_EQ(test, singles_of(100, 0, 0), 100);
}

static void manager_test_single_pages_stand_in_for_folios(struct kunit *test)
{
	const unsigned long target = 128 * PREZERO_FOLIO_PAGES;

	/* An eighth of the target should be single pages anyway. */
	KUNIT_EXPECT_EQ(test, stand_ins_of(0, target, 112), 0);
	KUNIT_EXPECT_EQ(test, stand_ins_of(target / 8, target, 112), 0);
	KUNIT_EXPECT_EQ(test, stand_ins_of(target / 8 + 3, target, 112), 3);
	/* With single pages alone, the pool is full: no folio is wanted on top. */
	KUNIT_EXPECT_EQ(test, stand_ins_of(target, target, 112),
			112 * PREZERO_FOLIO_PAGES);
	/* While memory is fragmented, the folios that are there are the target. */
	KUNIT_EXPECT_EQ(test, singles_of(target, 5, 5),
			target - 5 * PREZERO_FOLIO_PAGES);
	KUNIT_EXPECT_EQ(test, stand_ins_of(target - 5 * PREZERO_FOLIO_PAGES,
					   target, 5), 0);
	/* The target may shrink at any time. */
	KUNIT_EXPECT_EQ(test, stand_ins_of(7, 0, 112), 7);
}

static void manager_test_rests(struct kunit *test)
{
	/* The pause limits the thread to its share of a CPU. */
	KUNIT_EXPECT_EQ(test, rest_after(1000000, 25, 1000000, 1), 3000000);
	KUNIT_EXPECT_EQ(test, rest_after(1000000, 5, 1000000, 1), 19000000);
	/* It also limits the rate, even if the engine needs no CPU time. */
	KUNIT_EXPECT_EQ(test, rest_after(0, 25, 0, RATE / 64),
			RATE / 64 * (NSEC_PER_SEC / RATE));
	/* A pause is at most REST, and a batch slower than the rate limit needs none. */
	KUNIT_EXPECT_EQ(test, rest_after(NSEC_PER_SEC, 25, NSEC_PER_SEC, 1), REST);
	KUNIT_EXPECT_EQ(test, rest_after(0, 25, NSEC_PER_SEC, PREZERO_BATCH), 0);
}

static void manager_test_polls_less_often_without_free_memory(struct kunit *test)
{
	unsigned long poll = POLL;
	int i;

	for (i = 0; i < 10; i++)
		poll = next_poll(poll, true);
	KUNIT_EXPECT_EQ(test, poll, POLL_MAX);
	KUNIT_EXPECT_EQ(test, next_poll(POLL, true), 2 * POLL);
	/* A thread that waits for the end of a response window polls often: it ends soon. */
	KUNIT_EXPECT_EQ(test, next_poll(POLL_MAX, false), POLL);
}

static DECLARE_COMPLETION(manager_test_quiesced);

static int manager_test_quiesce(void *unused)
{
	prezero_manager_quiesce();
	complete(&manager_test_quiesced);
	return 0;
}

/*
 * prezero_manager_quiesce() must release `filling` before it takes threads_lock. Otherwise
 * it can deadlock with zeroers_stop(), which holds threads_lock while it waits for a thread,
 * and that thread may wait for `filling`.
 */
static void manager_test_quiesce_unlocks_before_threads_lock(struct kunit *test)
{
	struct task_struct *quiescer;
	bool released = false;
	int i;

	/* Takes `filling` as a filling thread does; prezero_manager_quiesce() has to wait. */
	reinit_completion(&manager_test_quiesced);
	down_read(&filling);
	quiescer = kthread_run(manager_test_quiesce, NULL, "limelight-test");
	if (IS_ERR(quiescer)) {
		up_read(&filling);
		kunit_skip(test, "cannot create a thread");
	}
	for (i = 0; i < 500 && !rwsem_is_contended(&filling); i++)
		msleep(20);
	KUNIT_EXPECT_TRUE(test, rwsem_is_contended(&filling));

	/*
	 * Holds threads_lock, as zeroers_stop() does while it waits for the filling thread.
	 * That thread ends its batch and must be able to begin the next one.
	 */
	mutex_lock(&threads_lock);
	up_read(&filling);
	for (i = 0; i < 250 && !released; i++) {
		msleep(20);
		released = down_read_trylock(&filling);
	}
	KUNIT_EXPECT_TRUE(test, released);
	mutex_unlock(&threads_lock);
	if (released)
		up_read(&filling);
	wait_for_completion(&manager_test_quiesced);
}

static unsigned int manager_test_policy;
static int manager_test_nice;

/* Replaces reclaim_batch(): records the scheduling policy of the thread that reclaims. */
static unsigned long manager_test_reclaim(struct pglist_data *pgdat)
{
	manager_test_policy = current->policy;
	manager_test_nice = task_nice(current);
	return PREZERO_BATCH;
}

/*
 * Reclaim holds locks that the topmost app may wait for, so the thread must not be
 * SCHED_IDLE while it reclaims, nor while a caller waits for it.
 */
static void manager_test_reclaims_at_nice_0(struct kunit *test)
{
	struct zeroer zeroer = { .nid = numa_node_id() };
	unsigned int during, after, waited_for;
	unsigned long pages;
	int nice;

	kunit_activate_static_stub(test, reclaim_batch, manager_test_reclaim);
	zeroer_set_policy(current, false);
	pages = zeroer_reclaim(&zeroer);
	during = manager_test_policy;
	nice = manager_test_nice;
	after = current->policy;
	begin_waiting();
	zeroer_reclaim(&zeroer);
	waited_for = current->policy;
	end_waiting();
	sched_set_normal(current, 0);

	KUNIT_EXPECT_EQ(test, pages, PREZERO_BATCH);
	KUNIT_EXPECT_EQ(test, during, SCHED_NORMAL);
	KUNIT_EXPECT_EQ(test, nice, 0);
	KUNIT_EXPECT_EQ(test, after, SCHED_IDLE);
	KUNIT_EXPECT_EQ(test, waited_for, SCHED_NORMAL);
}

static struct zone *manager_test_woken;

/* Replaces wake_kswapd(): records the zone. */
static void manager_test_wake(struct zone *zone)
{
	manager_test_woken = zone;
}

/* kswapd lowers the watermarks again that filling the pool has boosted. */
static void manager_test_wakes_kswapd_for_boosted_watermarks(struct kunit *test)
{
	struct page *page = alloc_page(GFP_PREZERO | __GFP_RECLAIM);
	struct zone *zone;

	KUNIT_ASSERT_NOT_NULL(test, page);
	zone = page_zone(page);
	__free_page(page);
	kunit_activate_static_stub(test, wake_kswapd, manager_test_wake);
	manager_test_woken = NULL;
	spin_lock_irq(&zone->lock);
	zone->watermark_boost++;
	spin_unlock_irq(&zone->lock);
	wake_boosted_kswapd(zone_to_nid(zone));
	spin_lock_irq(&zone->lock);
	zone->watermark_boost -= min(zone->watermark_boost, 1UL);
	spin_unlock_irq(&zone->lock);
	KUNIT_EXPECT_PTR_EQ(test, manager_test_woken, zone);
}

/* Replaces zeroers_start(): a page is in the pool when the start of a thread fails. */
static int manager_test_partial_start(void)
{
	struct page *page = alloc_page(GFP_KERNEL);
	LIST_HEAD(pages);

	if (page) {
		list_add(&page->lru, &pages);
		prezero_pool_add(&limelight_zeroed, page_to_nid(page), &pages, 1);
	}
	return -EINTR;
}

static void manager_test_a_failed_start_leaves_no_pages(struct kunit *test)
{
	const struct limelight_mechanism on = { .flags = LIMELIGHT_MECHANISM_ON };

	if (limelight_prezero_enabled() || want_init_on_free())
		kunit_skip(test, "prezero is already on, or init_on_free is set");
	kunit_activate_static_stub(test, zeroers_start, manager_test_partial_start);
	KUNIT_EXPECT_EQ(test, limelight_prezero_configure(&on), -EINTR);
	KUNIT_EXPECT_FALSE(test, limelight_prezero_enabled());
	KUNIT_EXPECT_EQ(test, prezero_pool_pages(&limelight_zeroed, NUMA_NO_NODE), 0);
}

static struct kunit_case manager_test_cases[] = {
	KUNIT_CASE(manager_test_fills_to_the_target),
	KUNIT_CASE(manager_test_leaves_memory_free),
	KUNIT_CASE(manager_test_takes_the_place_of_page_cache),
	KUNIT_CASE(manager_test_takes_a_share_of_the_cache),
	KUNIT_CASE(manager_test_gives_way_when_cache_is_short),
	KUNIT_CASE(manager_test_kswapd_gives_up_on_cache),
	KUNIT_CASE(manager_test_folios_are_most_of_the_target),
	KUNIT_CASE(manager_test_single_pages_stand_in_for_folios),
	KUNIT_CASE(manager_test_rests),
	KUNIT_CASE(manager_test_polls_less_often_without_free_memory),
	KUNIT_CASE(manager_test_reclaims_at_nice_0),
	KUNIT_CASE(manager_test_wakes_kswapd_for_boosted_watermarks),
	KUNIT_CASE(manager_test_a_failed_start_leaves_no_pages),
	KUNIT_CASE_SLOW(manager_test_quiesce_unlocks_before_threads_lock),
	{}
};

static struct kunit_suite manager_test_suite = {
	.name = "limelight-prezero-manager",
	.test_cases = manager_test_cases,
};

kunit_test_suite(manager_test_suite);
