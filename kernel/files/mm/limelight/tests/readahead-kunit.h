/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tests of windows, blocks, marks, and the reaction to waste. Included by
 * readahead.c.
 */
#include <kunit/test.h>
#include <linux/anon_inodes.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/mman.h>

static void readahead_test_a_window_is_a_multiple(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, ahead_window(32, 8, 100000), 256);
	KUNIT_EXPECT_EQ(test, ahead_window(32, 1, 100000), 32);
}

static void readahead_test_a_window_has_a_limit(struct kunit *test)
{
	const unsigned long limit = SZ_2M >> PAGE_SHIFT;

	KUNIT_EXPECT_EQ(test, ahead_window(limit / 2, 2, 100000), limit);
	KUNIT_EXPECT_EQ(test, ahead_window(limit / 2, 64, 100000), limit);
	/* Some disks have a larger read-ahead already. */
	KUNIT_EXPECT_EQ(test, ahead_window(4 * limit, 8, 100000), 4 * limit);
}

static void readahead_test_a_window_fits_into_what_is_free(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, ahead_window(32, 8, 400), 100);
	/* A request is never smaller than the default. */
	KUNIT_EXPECT_EQ(test, ahead_window(32, 8, 40), 32);
	KUNIT_EXPECT_EQ(test, ahead_window(32, 8, 0), 32);
}

static void readahead_test_around_a_fault_is_half_of_it(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, factor_at(8, LIMELIGHT_RA_STREAM, 0), 8);
	KUNIT_EXPECT_EQ(test, factor_at(8, LIMELIGHT_RA_AROUND, 0), 4);
	KUNIT_EXPECT_EQ(test, factor_at(1, LIMELIGHT_RA_AROUND, 0), 1);
	KUNIT_EXPECT_EQ(test, factor_at(3, LIMELIGHT_RA_AROUND, 0), 2);
}

static void readahead_test_levels_lead_to_the_default(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, factor_at(8, LIMELIGHT_RA_STREAM, 1), 4);
	KUNIT_EXPECT_EQ(test, factor_at(8, LIMELIGHT_RA_STREAM, 3), 1);
	KUNIT_EXPECT_EQ(test, factor_at(8, LIMELIGHT_RA_STREAM, LEVELS), 1);
	KUNIT_EXPECT_EQ(test, factor_at(LIMELIGHT_FACTOR_MAX,
					LIMELIGHT_RA_STREAM, LEVELS), 1);
}

static void readahead_test_blocks(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, ahead_block(1), 1);
	KUNIT_EXPECT_EQ(test, ahead_block(2), 4);
	KUNIT_EXPECT_EQ(test, ahead_block(3), 4);
	KUNIT_EXPECT_EQ(test, ahead_block(4), 8);
	KUNIT_EXPECT_EQ(test, ahead_block(8), NEIGHBOURS);
	KUNIT_EXPECT_EQ(test, ahead_block(64), NEIGHBOURS);
}

static void readahead_test_waste_lowers_and_use_raises_the_level(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, ahead_next_level(0, 512, 0), 0);
	KUNIT_EXPECT_EQ(test, ahead_next_level(0, 384, 128), 0);
	KUNIT_EXPECT_EQ(test, ahead_next_level(0, 383, 129), 1);
	KUNIT_EXPECT_EQ(test, ahead_next_level(LEVELS, 0, 512), LEVELS);
	KUNIT_EXPECT_EQ(test, ahead_next_level(2, 480, 32), 1);
	KUNIT_EXPECT_EQ(test, ahead_next_level(2, 479, 33), 2);
}

static void readahead_test_outcomes_are_judged_in_epochs(struct kunit *test)
{
	struct ahead_balance *balance = &balances[LIMELIGHT_RA_STREAM];

	if (limelight_readahead_enabled())
		kunit_skip(test, "readahead is switched on");
	ahead_reset();
	ahead_outcome(LIMELIGHT_RA_STREAM, EPOCH - 1, false);
	KUNIT_EXPECT_EQ(test, balance->level, 0);
	ahead_outcome(LIMELIGHT_RA_STREAM, 1, false);
	KUNIT_EXPECT_EQ(test, balance->level, 1);
	KUNIT_EXPECT_EQ(test, balances[LIMELIGHT_RA_AROUND].level, 0);
	/* A new epoch has started. */
	ahead_outcome(LIMELIGHT_RA_STREAM, EPOCH - 1, true);
	KUNIT_EXPECT_EQ(test, balance->level, 1);
	ahead_outcome(LIMELIGHT_RA_STREAM, 1, true);
	KUNIT_EXPECT_EQ(test, balance->level, 0);
	ahead_reset();
}

static void readahead_test_a_kind_that_is_down_tries_again(struct kunit *test)
{
	struct ahead_balance *balance = &balances[LIMELIGHT_RA_STREAM];
	unsigned int full = READ_ONCE(limelight_factor);

	if (limelight_readahead_enabled())
		kunit_skip(test, "readahead is switched on");
	ahead_reset();
	balance->level = 2;
	KUNIT_EXPECT_EQ(test, limelight_readahead_factor(LIMELIGHT_RA_STREAM),
			factor_at(full, LIMELIGHT_RA_STREAM, 2));
	balance->judged = jiffies - RETRY - 1;
	KUNIT_EXPECT_EQ(test, limelight_readahead_factor(LIMELIGHT_RA_STREAM),
			factor_at(full, LIMELIGHT_RA_STREAM, 1));
	/* Reading stream_factor has no side effects; a request applies one step. */
	KUNIT_EXPECT_EQ(test, balance->level, 2);
	KUNIT_EXPECT_EQ(test, request_factor(LIMELIGHT_RA_STREAM),
			factor_at(full, LIMELIGHT_RA_STREAM, 1));
	KUNIT_EXPECT_EQ(test, balance->level, 1);
	KUNIT_EXPECT_EQ(test, request_factor(LIMELIGHT_RA_STREAM),
			factor_at(full, LIMELIGHT_RA_STREAM, 1));
	ahead_reset();
}

/* On a large machine, the holes may be larger than the memory. */
static void readahead_test_holes_have_no_marks(struct kunit *test)
{
	struct ahead_marks *all;
	unsigned long i, pfn;

	if (limelight_readahead_enabled())
		kunit_skip(test, "readahead is switched on");
	KUNIT_ASSERT_EQ(test, ahead_start(), 0);
	rcu_read_lock();
	all = rcu_dereference(marks);
	for (i = 0; i < all->nr; i++) {
		bool present = false;

		for (pfn = i << CHUNK_SHIFT; pfn < (i + 1) << CHUNK_SHIFT; pfn++)
			present |= pfn < max_pfn && pfn_to_online_page(pfn);
		if (!present)
			KUNIT_EXPECT_NULL(test, all->chunk[i]);
	}
	for (pfn = 0; pfn < max_pfn; pfn += CHUNK_PAGES / 4) {
		struct page *page = pfn_to_online_page(pfn);

		if (page && !PageReserved(page))
			KUNIT_EXPECT_NOT_NULL(test, ahead_mark(page_folio(page)));
	}
	rcu_read_unlock();
	ahead_stop();
}

static void readahead_test_a_mark_is_taken_once(struct kunit *test)
{
	struct folio *one, *other;

	if (limelight_readahead_enabled())
		kunit_skip(test, "readahead is switched on");
	one = folio_alloc(GFP_KERNEL, 0);
	other = folio_alloc(GFP_KERNEL, 0);
	if (!one || !other || ahead_start()) {
		kunit_err(test, "no memory");
		goto out;
	}

	KUNIT_EXPECT_EQ(test, ahead_take_mark(one), LIMELIGHT_RA_NONE);
	ahead_set_mark(one, LIMELIGHT_RA_AROUND);
	KUNIT_EXPECT_EQ(test, ahead_take_mark(other), LIMELIGHT_RA_NONE);
	__limelight_ra_move(other, one);
	KUNIT_EXPECT_EQ(test, ahead_take_mark(one), LIMELIGHT_RA_NONE);
	KUNIT_EXPECT_EQ(test, ahead_take_mark(other), LIMELIGHT_RA_AROUND);
	KUNIT_EXPECT_EQ(test, ahead_take_mark(other), LIMELIGHT_RA_NONE);
	ahead_stop();

	/* Without a table, no folio is marked. */
	ahead_set_mark(one, LIMELIGHT_RA_STREAM);
	KUNIT_EXPECT_EQ(test, ahead_take_mark(one), LIMELIGHT_RA_NONE);
out:
	if (one)
		folio_put(one);
	if (other)
		folio_put(other);
}

static void readahead_test_factors_out_of_range_are_refused(struct kunit *test)
{
	unsigned int factor = READ_ONCE(limelight_factor);

	KUNIT_EXPECT_EQ(test, limelight_factor_set(0, false), -EINVAL);
	KUNIT_EXPECT_EQ(test, limelight_factor_set(LIMELIGHT_FACTOR_MAX + 1, false),
			-EINVAL);
	KUNIT_EXPECT_EQ(test, limelight_readahead_configure(true,
							    LIMELIGHT_FACTOR_MAX + 1),
			-EINVAL);
	KUNIT_EXPECT_EQ(test, READ_ONCE(limelight_factor), factor);
}

static void fake_readahead(struct readahead_control *ractl)
{
	struct folio *folio;

	while ((folio = readahead_folio(ractl))) {
		folio_mark_uptodate(folio);
		folio_unlock(folio);
	}
}

static const struct address_space_operations fake_aops = {
	.readahead = fake_readahead,
	.dirty_folio = noop_dirty_folio,
};

static const struct file_operations fake_fops = {};

/* The window after current has read @pages of @file, not in sequence. */
static struct file_ra_state random_read(struct file *file, pgoff_t index,
					unsigned long pages)
{
	struct file_ra_state ra = { .ra_pages = 32, .prev_pos = -1 };
	DEFINE_READAHEAD(ractl, file, &ra, file->f_mapping, index);

	page_cache_sync_ra(&ractl, pages);
	return ra;
}

/* What is oversized for the device is so for the topmost app, too. */
static void readahead_test_large_random_reads_start_a_stream(struct kunit *test)
{
	struct file_ra_state ra;
	struct file *file;
	int ret;

	if (static_key_enabled(&limelight_key))
		kunit_skip(test, "/dev/limelight is open");
	if (limelight_node_room(NODE_DATA(numa_mem_id())) < 4096)
		kunit_skip(test, "too little free memory");
	/* Attaches an mm to the test's thread. */
	if (!kunit_vm_mmap(test, NULL, 0, PAGE_SIZE, PROT_READ,
			   MAP_ANONYMOUS | MAP_PRIVATE, 0))
		kunit_skip(test, "no user space");
	file = anon_inode_create_getfile("[limelight-test]", &fake_fops, NULL,
					 O_RDONLY, NULL);
	KUNIT_ASSERT_FALSE(test, IS_ERR(file));
	file->f_mapping->a_ops = &fake_aops;
	i_size_write(file_inode(file), (loff_t)100000 << PAGE_SHIFT);

	/* For any process: its bdi takes no larger requests than the window. */
	ra = random_read(file, 1000, 64);
	KUNIT_EXPECT_EQ(test, ra.start, 1000);
	KUNIT_EXPECT_EQ(test, ra.size, 32);

	static_branch_enable(&limelight_key);
	limelight_generation = 7;
	current->mm->limelight_generation = 7;
	ret = limelight_readahead_configure(true, 8);
	KUNIT_EXPECT_EQ(test, ret, 0);
	if (!ret) {
		/* Within the enlarged limit of 256 pages. */
		ra = random_read(file, 10000, 64);
		KUNIT_EXPECT_EQ(test, ra.start, 10000);
		KUNIT_EXPECT_GT(test, ra.size, 64);
		/* A small one still starts none. */
		ra = random_read(file, 20000, 16);
		KUNIT_EXPECT_EQ(test, ra.size, 0);
	}
	limelight_readahead_reset();
	limelight_generation = 0;
	static_branch_disable(&limelight_key);
	truncate_inode_pages(file->f_mapping, 0);
	fput(file);
}

static struct kunit_case readahead_test_cases[] = {
	KUNIT_CASE(readahead_test_a_window_is_a_multiple),
	KUNIT_CASE(readahead_test_a_window_has_a_limit),
	KUNIT_CASE(readahead_test_a_window_fits_into_what_is_free),
	KUNIT_CASE(readahead_test_around_a_fault_is_half_of_it),
	KUNIT_CASE(readahead_test_levels_lead_to_the_default),
	KUNIT_CASE(readahead_test_blocks),
	KUNIT_CASE(readahead_test_waste_lowers_and_use_raises_the_level),
	KUNIT_CASE(readahead_test_outcomes_are_judged_in_epochs),
	KUNIT_CASE(readahead_test_a_kind_that_is_down_tries_again),
	KUNIT_CASE(readahead_test_holes_have_no_marks),
	KUNIT_CASE(readahead_test_a_mark_is_taken_once),
	KUNIT_CASE(readahead_test_factors_out_of_range_are_refused),
	KUNIT_CASE(readahead_test_large_random_reads_start_a_stream),
	{}
};

static struct kunit_suite readahead_test_suite = {
	.name = "limelight-readahead",
	.test_cases = readahead_test_cases,
};

kunit_test_suite(readahead_test_suite);
