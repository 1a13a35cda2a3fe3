/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tests of the size of windows and of its adaptation. Included by premap.c.
 */
#include <kunit/test.h>

static void premap_test_without_growth_there_is_no_window(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, window_wanted(0, 0, false, 100, false), 0);
	/* A hole between mapped pages alone does not justify a window. */
	KUNIT_EXPECT_EQ(test, window_wanted(0, 0, false, 10, true), 0);
	/* The first page of a large mapping may be the only one. */
	KUNIT_EXPECT_EQ(test, window_wanted(0, 0, true, EXTENSION + 1, false), 1);
}

static void premap_test_windows_double(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, window_wanted(0, 1, false, 500, false), 4);
	KUNIT_EXPECT_EQ(test, window_wanted(0, 7, false, 500, false), 16);
	KUNIT_EXPECT_EQ(test, window_wanted(4, 0, false, 500, false), 8);
	/* The window that is continued counts, not the pages mapped before it. */
	KUNIT_EXPECT_EQ(test, window_wanted(4, 16, false, 500, false), 8);
	KUNIT_EXPECT_EQ(test, window_wanted(LIMELIGHT_WINDOW_MAX, 0, false, 500,
					    false), LIMELIGHT_WINDOW_MAX);
}

static void premap_test_an_extension_is_mapped_to_its_end(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, window_wanted(0, 1, false, 33, true), 33);
	KUNIT_EXPECT_EQ(test, window_wanted(0, 0, true, 16, true), 16);
	KUNIT_EXPECT_EQ(test, window_wanted(0, 1, false, EXTENSION, true),
			EXTENSION);
	KUNIT_EXPECT_EQ(test, window_wanted(0, 1, false, EXTENSION + 1, true), 4);
	/* An extension by one page, as of glibc's arenas. */
	KUNIT_EXPECT_EQ(test, window_wanted(1, 0, false, 1, true), 2);
	/* The end of the scan is not the end of the hole. */
	KUNIT_EXPECT_EQ(test, window_wanted(0, 1, false, 33, false), 4);
}

static void premap_test_windows_that_are_used_grow(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, next_shift(3, 8, 0, 6), 4);
	KUNIT_EXPECT_EQ(test, next_shift(6, 64, 2, 6), 6);
	KUNIT_EXPECT_EQ(test, next_shift(5, 32, 1, 6), 6);
	/* A window that was cut short says little about larger ones. */
	KUNIT_EXPECT_EQ(test, next_shift(5, 15, 0, 6), 5);
	/* The limit may have been lowered meanwhile. */
	KUNIT_EXPECT_EQ(test, next_shift(6, 64, 0, 4), 4);
}

static void premap_test_windows_that_are_not_used_shrink(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, next_shift(5, 32, 4, 6), 5);
	KUNIT_EXPECT_EQ(test, next_shift(5, 32, 5, 6), 4);
	KUNIT_EXPECT_EQ(test, next_shift(1, 2, 1, 6), 0);
	KUNIT_EXPECT_EQ(test, next_shift(0, 2, 1, 6), 0);
}

static void premap_test_folios_are_aligned(struct kunit *test)
{
	unsigned long base = 0x10000000;

	KUNIT_EXPECT_EQ(test, folio_order_at(base, 64, 0x1c), 4);
	KUNIT_EXPECT_EQ(test, folio_order_at(base, 15, 0x1c), 3);
	KUNIT_EXPECT_EQ(test, folio_order_at(base, 64, 0), 0);
	KUNIT_EXPECT_EQ(test, folio_order_at(base + PAGE_SIZE, 64, 0x1c), 0);
	KUNIT_EXPECT_EQ(test, folio_order_at(base + 4 * PAGE_SIZE, 64, 0x1c), 2);
	KUNIT_EXPECT_EQ(test, folio_order_at(0, 64, 0x1c), 4);
	KUNIT_EXPECT_EQ(test, folio_order_at(base + 2 * PAGE_SIZE, 64, 0x1c), 0);
	KUNIT_EXPECT_EQ(test, folio_order_at(base, 3, 0x1c), 0);
	/* Some sizes are not allowed. */
	KUNIT_EXPECT_EQ(test, folio_order_at(base, 64, 0x0c), 3);
	KUNIT_EXPECT_EQ(test, folio_order_at(base, 15, 0x14), 2);
	KUNIT_EXPECT_EQ(test, folio_order_at(base, 15, 0x10), 0);
	KUNIT_EXPECT_EQ(test, singles_at(base + PAGE_SIZE, 64, 64, 0x1c), 3);
	KUNIT_EXPECT_EQ(test, singles_at(base + PAGE_SIZE, 64, 64, 0x10), 15);
	KUNIT_EXPECT_EQ(test, singles_at(base + PAGE_SIZE, 64, 64, 0), 64);
}

static void premap_test_mthp_never_allows_no_folios(struct kunit *test)
{
#ifdef CONFIG_TRANSPARENT_HUGEPAGE
	const unsigned long always = huge_anon_orders_always;
	const unsigned long madvise = huge_anon_orders_madvise;
	const unsigned long inherit = huge_anon_orders_inherit;
	const unsigned int order = limelight_folio_order;

	limelight_folio_order = 4;
	huge_anon_orders_always = 0;
	huge_anon_orders_madvise = 0;
	huge_anon_orders_inherit = 0;
	KUNIT_EXPECT_EQ(test, folio_orders(), 0);
	huge_anon_orders_madvise = BIT(4);
	KUNIT_EXPECT_EQ(test, folio_orders(), BIT(4));
	huge_anon_orders_always = BIT(2) | BIT(9);
	KUNIT_EXPECT_EQ(test, folio_orders(), BIT(2) | BIT(4));
	huge_anon_orders_inherit = BIT(3);
	KUNIT_EXPECT_EQ(test, folio_orders(), BIT(2) | BIT(4) |
			(hugepage_global_enabled() ? BIT(3) : 0));
	limelight_folio_order = 0;
	KUNIT_EXPECT_EQ(test, folio_orders(), 0);

	limelight_folio_order = order;
	huge_anon_orders_always = always;
	huge_anon_orders_madvise = madvise;
	huge_anon_orders_inherit = inherit;
#else
	kunit_skip(test, "no CONFIG_TRANSPARENT_HUGEPAGE");
#endif
}

static void premap_test_windows_end_with_a_folio(struct kunit *test)
{
	const unsigned long base = 0x10000000, end = base + 100 * PAGE_SIZE;

	/* Small windows are not adjusted. */
	KUNIT_EXPECT_EQ(test, whole_folios(base + 7 * PAGE_SIZE, 8, end), 8);
	KUNIT_EXPECT_EQ(test, whole_folios(base + 15 * PAGE_SIZE, 16, end), 17);
	KUNIT_EXPECT_EQ(test, whole_folios(base + PAGE_SIZE, 16, end), 15);
	KUNIT_EXPECT_EQ(test, whole_folios(base + 32 * PAGE_SIZE, 64, end), 64);
	/* A window never exceeds its mapping. */
	KUNIT_EXPECT_EQ(test, whole_folios(base + 80 * PAGE_SIZE, 20, end), 16);
	KUNIT_EXPECT_EQ(test, whole_folios(base + 72 * PAGE_SIZE, 28, end), 24);
	KUNIT_EXPECT_EQ(test, whole_folios(base + 64 * PAGE_SIZE, 31,
					   base + 95 * PAGE_SIZE), 31);
}

static void premap_test_windows_are_found_where_they_end(struct kunit *test)
{
	struct limelight_premap record = { .shift = 6 };
	struct window taken;
	int i;

	spin_lock_init(&record.lock);
	KUNIT_EXPECT_FALSE(test, premap_take_window(&record, 0, &taken));
	KUNIT_EXPECT_EQ(test, taken.nr, 0);

	for (i = 1; i <= WINDOWS; i++)
		premap_add_window(&record, i * SZ_1M, 4, 8, 3);
	KUNIT_EXPECT_TRUE(test, premap_take_window(&record, 3 * SZ_1M + 4 * PAGE_SIZE,
						   &taken));
	KUNIT_EXPECT_EQ(test, taken.start, 3 * SZ_1M);
	KUNIT_EXPECT_EQ(test, taken.wanted, 8);
	/* A window is continued only once. */
	KUNIT_EXPECT_FALSE(test, premap_take_window(&record, 3 * SZ_1M + 4 * PAGE_SIZE,
						    &taken));
	/* The oldest window is returned instead, for inspection. */
	KUNIT_EXPECT_EQ(test, taken.start, 1 * SZ_1M);
	KUNIT_EXPECT_EQ(test, taken.nr, 4);
}

static void premap_test_pages_unmapped_untouched_count(struct kunit *test)
{
	struct limelight_premap record = { .shift = 6 };
	int i;

	spin_lock_init(&record.lock);
	atomic_set(&record.zapped, EPOCH / 4);
	for (i = 0; record.shift == 6 && i < EPOCH; i++)
		premap_add_window(&record, i * SZ_1M, 33, 33, 32);
	KUNIT_EXPECT_EQ(test, i, EPOCH / 32);
	KUNIT_EXPECT_EQ(test, record.shift, 5);
	KUNIT_EXPECT_EQ(test, atomic_read(&record.zapped), 0);
	/* An epoch without waste does not change the limit. */
	for (i = 0; i < EPOCH / 32; i++)
		premap_add_window(&record, i * SZ_1M, 33, 33, 32);
	KUNIT_EXPECT_EQ(test, record.shift, 5);
}

static void premap_test_a_process_may_try_again_later(struct kunit *test)
{
	struct limelight_premap record = {};
	int i;

	spin_lock_init(&record.lock);
	for (i = 1; i < RETRY; i++)
		premap_count_refused(&record);
	KUNIT_EXPECT_EQ(test, record.shift, 0);
	premap_count_refused(&record);
	KUNIT_EXPECT_EQ(test, record.shift, min(1U, shift_max()));
}

static void premap_test_values_out_of_range_are_refused(struct kunit *test)
{
	unsigned int pages = READ_ONCE(limelight_window_pages);
	unsigned int order = READ_ONCE(limelight_folio_order);

	KUNIT_EXPECT_EQ(test, limelight_window_set(0, false), -EINVAL);
	KUNIT_EXPECT_EQ(test, limelight_window_set(LIMELIGHT_WINDOW_MAX + 1, false),
			-EINVAL);
	KUNIT_EXPECT_EQ(test, limelight_premap_configure(true,
							 LIMELIGHT_WINDOW_MAX + 1),
			-EINVAL);
	KUNIT_EXPECT_EQ(test, limelight_folio_order_set(1), -EINVAL);
	KUNIT_EXPECT_EQ(test, limelight_folio_order_set(LIMELIGHT_FOLIO_ORDER_MAX + 1),
			-EINVAL);
	KUNIT_EXPECT_EQ(test, READ_ONCE(limelight_window_pages), pages);
	KUNIT_EXPECT_EQ(test, READ_ONCE(limelight_folio_order), order);
}

static struct kunit_case premap_test_cases[] = {
	KUNIT_CASE(premap_test_without_growth_there_is_no_window),
	KUNIT_CASE(premap_test_windows_double),
	KUNIT_CASE(premap_test_an_extension_is_mapped_to_its_end),
	KUNIT_CASE(premap_test_windows_that_are_used_grow),
	KUNIT_CASE(premap_test_windows_that_are_not_used_shrink),
	KUNIT_CASE(premap_test_folios_are_aligned),
	KUNIT_CASE(premap_test_mthp_never_allows_no_folios),
	KUNIT_CASE(premap_test_windows_end_with_a_folio),
	KUNIT_CASE(premap_test_windows_are_found_where_they_end),
	KUNIT_CASE(premap_test_pages_unmapped_untouched_count),
	KUNIT_CASE(premap_test_a_process_may_try_again_later),
	KUNIT_CASE(premap_test_values_out_of_range_are_refused),
	{}
};

static struct kunit_suite premap_test_suite = {
	.name = "limelight-premap",
	.test_cases = premap_test_cases,
};

kunit_test_suite(premap_test_suite);
