/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tests of the budget's arithmetic. Included by footprint.c.
 */
#include <kunit/test.h>

static void footprint_test_over_needs_more_than_the_budget(struct kunit *test)
{
	KUNIT_EXPECT_FALSE(test, limelight_over_budget(false, 0, 800));
	KUNIT_EXPECT_FALSE(test, limelight_over_budget(false, 800, 800));
	KUNIT_EXPECT_TRUE(test, limelight_over_budget(false, 801, 800));
}

static void footprint_test_back_needs_an_eighth_less(struct kunit *test)
{
	KUNIT_EXPECT_TRUE(test, limelight_over_budget(true, 800, 800));
	KUNIT_EXPECT_TRUE(test, limelight_over_budget(true, 701, 800));
	KUNIT_EXPECT_FALSE(test, limelight_over_budget(true, 700, 800));
}

static void footprint_test_kept_pages_of_other_tasks_count(struct kunit *test)
{
	const struct limelight_usage usage = { .anon = 100, .file = 50 };

	KUNIT_EXPECT_EQ(test, mapped_pages(&usage, 0), 150);
	KUNIT_EXPECT_EQ(test, mapped_pages(&usage, 90), 150);
	KUNIT_EXPECT_EQ(test, mapped_pages(&usage, 400), 450);
}

static void footprint_test_budget_is_a_share_of_memory(struct kunit *test)
{
	unsigned int saved = limelight_budget_percent;
	unsigned long all = limelight_reachable_pages();

	KUNIT_EXPECT_GT(test, all, 0UL);
	KUNIT_EXPECT_LE(test, all, totalram_pages());

	/* Other CPUs allocate meanwhile. */
	limelight_budget_percent = 50;
	KUNIT_EXPECT_GT(test, limelight_budget_pages(), all / 4);
	KUNIT_EXPECT_LE(test, limelight_budget_pages(), totalram_pages() / 2);
	limelight_budget_percent = 1;
	KUNIT_EXPECT_LE(test, limelight_budget_pages(), totalram_pages() / 100);
	limelight_budget_percent = saved;
}

static void footprint_test_budget_is_refused_outside_its_range(struct kunit *test)
{
	unsigned int saved = limelight_budget_percent;

	KUNIT_EXPECT_EQ(test, limelight_budget_set(0, false), -EINVAL);
	KUNIT_EXPECT_EQ(test, limelight_budget_set(LIMELIGHT_BUDGET_MAX + 1, false),
			-EINVAL);
	KUNIT_EXPECT_EQ(test, limelight_budget_percent, saved);
}

static void footprint_test_reset_forgets_only_the_devices_budget(struct kunit *test)
{
	unsigned int saved = limelight_budget_percent;
	unsigned int saved_configured = budget_configured;

	KUNIT_EXPECT_EQ(test, limelight_budget_set(40, true), 0);
	KUNIT_EXPECT_EQ(test, limelight_budget_set(30, false), 0);
	KUNIT_EXPECT_EQ(test, limelight_budget_percent, 30);
	limelight_budget_reset();
	KUNIT_EXPECT_EQ(test, limelight_budget_percent, 40);

	limelight_budget_percent = saved;
	budget_configured = saved_configured;
}

static void footprint_test_pending_survives_a_wrap_of_jiffies(struct kunit *test)
{
	unsigned long now = ULONG_MAX - 10;
	unsigned long until = now + 100;

	KUNIT_EXPECT_LT(test, until, now);
	KUNIT_EXPECT_TRUE(test, limelight_pending(until, now, 100));
	KUNIT_EXPECT_TRUE(test, limelight_pending(until, now + 99, 100));
	KUNIT_EXPECT_FALSE(test, limelight_pending(until, now + 100, 100));
	KUNIT_EXPECT_FALSE(test, limelight_pending(until, now + 5000, 100));
}

static void footprint_test_an_old_deadline_has_passed(struct kunit *test)
{
	/* Passed more than half of the range ago: time_before() would be wrong. */
	unsigned long until = 1000;
	unsigned long now = until + ULONG_MAX / 2 + 1000;

	KUNIT_EXPECT_FALSE(test, limelight_pending(until, now, 100));
	/* Never set. */
	KUNIT_EXPECT_FALSE(test, limelight_pending(0, INITIAL_JIFFIES, 100));
}

/* A reclaimer may hold locks, so it must not walk all processes. */
static void footprint_test_reclaim_does_not_count(struct kunit *test)
{
	const unsigned long nonsense = 123456789;

	if (static_key_enabled(&limelight_key))
		kunit_skip(test, "/dev/limelight is open");
	KUNIT_ASSERT_FALSE(test, counting);
	footprint.mapped = nonsense;
	footprint.next = jiffies;
	footprint_refresh();
	KUNIT_EXPECT_EQ(test, footprint.mapped, nonsense);
	/* The time of the next request has been set. */
	KUNIT_EXPECT_TRUE(test, limelight_pending(footprint.next, jiffies,
						  REFRESH_INTERVAL));
	KUNIT_EXPECT_FALSE(test, delayed_work_pending(&mapped_work));
	footprint.mapped = 0;
}

static void footprint_test_counts_take_a_share_of_time(struct kunit *test)
{
	const unsigned long now = ULONG_MAX - 5;
	unsigned long after;

	after = next_count(now, 0, MAPPED_INTERVAL_MS);
	KUNIT_EXPECT_EQ(test, after - now, msecs_to_jiffies(100));
	KUNIT_EXPECT_EQ(test, count_delay(after, now), msecs_to_jiffies(100));
	/* Long after the last count, the next one starts at once. */
	KUNIT_EXPECT_EQ(test, count_delay(after, now + 10 * HZ), 0);
	after = next_count(now, 20, MAPPED_INTERVAL_MS);
	KUNIT_EXPECT_EQ(test, after - now, msecs_to_jiffies(1000));
	after = next_count(now, 1000000, MAPPED_INTERVAL_MS);
	KUNIT_EXPECT_EQ(test, after - now, 60UL * HZ);
}

static struct kunit_case footprint_test_cases[] = {
	KUNIT_CASE(footprint_test_over_needs_more_than_the_budget),
	KUNIT_CASE(footprint_test_back_needs_an_eighth_less),
	KUNIT_CASE(footprint_test_kept_pages_of_other_tasks_count),
	KUNIT_CASE(footprint_test_budget_is_a_share_of_memory),
	KUNIT_CASE(footprint_test_budget_is_refused_outside_its_range),
	KUNIT_CASE(footprint_test_reset_forgets_only_the_devices_budget),
	KUNIT_CASE(footprint_test_pending_survives_a_wrap_of_jiffies),
	KUNIT_CASE(footprint_test_an_old_deadline_has_passed),
	KUNIT_CASE(footprint_test_reclaim_does_not_count),
	KUNIT_CASE(footprint_test_counts_take_a_share_of_time),
	{}
};

static struct kunit_suite footprint_test_suite = {
	.name = "limelight-footprint",
	.test_cases = footprint_test_cases,
};

kunit_test_suite(footprint_test_suite);
