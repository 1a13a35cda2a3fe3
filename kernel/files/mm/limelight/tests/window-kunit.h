/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tests of when a window is open, and of the statistics. Included by window.c.
 */
#include <kunit/test.h>
#include <linux/delay.h>

#define SECOND	((u64)NSEC_PER_SEC)

static int window_test_init(struct kunit *test)
{
	/* The tests open windows, which would disturb a running daemon. */
	if (static_key_enabled(&limelight_key))
		kunit_skip(test, "/dev/limelight is open");
	static_branch_enable(&limelight_key);
	test->priv = test;
	return 0;
}

static void window_test_exit(struct kunit *test)
{
	if (!test->priv)
		return;
	limelight_window_end(LIMELIGHT_WINDOW_RELEASED);
	static_branch_disable(&limelight_key);
}

static void window_test_lasts_until_its_deadline(struct kunit *test)
{
	KUNIT_EXPECT_FALSE(test, window_is_open(0, 5 * SECOND));
	KUNIT_EXPECT_TRUE(test, window_is_open(6 * SECOND, 5 * SECOND));
	KUNIT_EXPECT_TRUE(test, window_is_open(6 * SECOND, 6 * SECOND - 1));
	KUNIT_EXPECT_FALSE(test, window_is_open(6 * SECOND, 6 * SECOND));
	KUNIT_EXPECT_FALSE(test, window_is_open(6 * SECOND, 7 * SECOND));
	/* The longest possible window. */
	KUNIT_EXPECT_TRUE(test, window_is_open(15 * SECOND, 5 * SECOND));
}

static void window_test_ends_although_the_clock_wraps(struct kunit *test)
{
	KUNIT_EXPECT_TRUE(test, window_is_open(SECOND, -SECOND));
	KUNIT_EXPECT_TRUE(test, window_is_open(U64_MAX, U64_MAX - 1));
	KUNIT_EXPECT_FALSE(test, window_is_open(U64_MAX, U64_MAX));
	KUNIT_EXPECT_FALSE(test, window_is_open(U64_MAX, 0));
	/* No deadline lies further ahead than the longest window. */
	KUNIT_EXPECT_FALSE(test, window_is_open(15 * SECOND + 1, 5 * SECOND));
	KUNIT_EXPECT_FALSE(test, window_is_open(-SECOND, SECOND));
}

static void window_test_opens_and_closes(struct kunit *test)
{
	long opened = atomic_long_read(&limelight_windows_opened);
	long expired = atomic_long_read(&limelight_windows_expired);

	KUNIT_EXPECT_FALSE(test, limelight_in_window());
	KUNIT_EXPECT_EQ(test, limelight_window_request(LIMELIGHT_WINDOW_OPEN,
						       10 * SECOND), 0);
	KUNIT_EXPECT_TRUE(test, limelight_in_window());
	KUNIT_EXPECT_EQ(test, limelight_window_request(LIMELIGHT_WINDOW_CLOSE, 0), 0);
	KUNIT_EXPECT_FALSE(test, limelight_in_window());
	/* Closing it again is not an error. */
	KUNIT_EXPECT_EQ(test, limelight_window_request(LIMELIGHT_WINDOW_CLOSE, 0), 0);
	KUNIT_EXPECT_FALSE(test, hrtimer_active(&window_timer));
	KUNIT_EXPECT_EQ(test, atomic_long_read(&limelight_windows_opened), opened + 1);
	KUNIT_EXPECT_EQ(test, atomic_long_read(&limelight_windows_expired), expired);
}

static void window_test_ends_by_itself(struct kunit *test)
{
	long expired = atomic_long_read(&limelight_windows_expired);
	int i;

	limelight_window_request(LIMELIGHT_WINDOW_OPEN, 1);
	/* More than 1 ns has passed. */
	KUNIT_EXPECT_FALSE(test, limelight_in_window());
	for (i = 0; i < 1000 && READ_ONCE(limelight_window_until); i++)
		msleep(20);
	KUNIT_EXPECT_EQ(test, limelight_window_until, 0);
	KUNIT_EXPECT_EQ(test, atomic_long_read(&limelight_windows_expired), expired + 1);
}

static void window_test_deadlines_move(struct kunit *test)
{
	long opened = atomic_long_read(&limelight_windows_opened);
	long expired = atomic_long_read(&limelight_windows_expired);
	u64 until;

	limelight_window_request(LIMELIGHT_WINDOW_OPEN, 9 * SECOND);
	until = limelight_window_until;
	/* Later, then earlier. */
	limelight_window_request(LIMELIGHT_WINDOW_OPEN, 10 * SECOND);
	KUNIT_EXPECT_GT(test, limelight_window_until, until);
	limelight_window_request(LIMELIGHT_WINDOW_OPEN, 1);
	KUNIT_EXPECT_LT(test, limelight_window_until, until);
	KUNIT_EXPECT_EQ(test, atomic_long_read(&limelight_windows_opened), opened + 1);
	/* That window has ended, whether its timer has run or not. */
	limelight_window_request(LIMELIGHT_WINDOW_OPEN, 10 * SECOND);
	KUNIT_EXPECT_TRUE(test, limelight_in_window());
	KUNIT_EXPECT_EQ(test, atomic_long_read(&limelight_windows_opened), opened + 2);
	KUNIT_EXPECT_EQ(test, atomic_long_read(&limelight_windows_expired), expired + 1);
}

static void window_test_refuses_nonsense(struct kunit *test)
{
	static const struct { u32 flags; u64 deadline_ns; } nonsense[] = {
		{ 0, SECOND },
		{ LIMELIGHT_WINDOW_OPEN | LIMELIGHT_WINDOW_CLOSE, SECOND },
		{ LIMELIGHT_WINDOW_OPEN | 4, SECOND },
		{ LIMELIGHT_WINDOW_OPEN, 0 },
		{ LIMELIGHT_WINDOW_OPEN, LIMELIGHT_WINDOW_DEADLINE_MAX + 1 },
		{ LIMELIGHT_WINDOW_OPEN, U64_MAX },
		{ LIMELIGHT_WINDOW_CLOSE, 1 },
	};
	u64 until;
	int i;

	limelight_window_request(LIMELIGHT_WINDOW_OPEN, 10 * SECOND);
	until = limelight_window_until;
	for (i = 0; i < ARRAY_SIZE(nonsense); i++)
		KUNIT_EXPECT_EQ_MSG(test, limelight_window_request(nonsense[i].flags,
								   nonsense[i].deadline_ns),
				    -EINVAL, "row %d", i);
	/* The open window is unchanged. */
	KUNIT_EXPECT_EQ(test, limelight_window_until, until);
}

static void window_test_an_empty_set_closes_the_window(struct kunit *test)
{
	limelight_window_request(LIMELIGHT_WINDOW_OPEN, 10 * SECOND);
	limelight_topmost_clear();
	KUNIT_EXPECT_FALSE(test, limelight_in_window());

	limelight_window_request(LIMELIGHT_WINDOW_OPEN, 10 * SECOND);
	KUNIT_EXPECT_EQ(test, limelight_topmost_set(NULL, 0), 0);
	KUNIT_EXPECT_FALSE(test, limelight_in_window());
}

static void window_test_a_closed_device_has_none(struct kunit *test)
{
	limelight_window_request(LIMELIGHT_WINDOW_OPEN, 10 * SECOND);
	static_branch_disable(&limelight_key);
	KUNIT_EXPECT_FALSE(test, limelight_in_window());
	static_branch_enable(&limelight_key);
}

static struct kunit_case window_test_cases[] = {
	KUNIT_CASE(window_test_lasts_until_its_deadline),
	KUNIT_CASE(window_test_ends_although_the_clock_wraps),
	KUNIT_CASE(window_test_opens_and_closes),
	KUNIT_CASE(window_test_ends_by_itself),
	KUNIT_CASE(window_test_deadlines_move),
	KUNIT_CASE(window_test_refuses_nonsense),
	KUNIT_CASE(window_test_an_empty_set_closes_the_window),
	KUNIT_CASE(window_test_a_closed_device_has_none),
	{}
};

static struct kunit_suite window_test_suite = {
	.name = "limelight-window",
	.init = window_test_init,
	.exit = window_test_exit,
	.test_cases = window_test_cases,
};

kunit_test_suite(window_test_suite);
