/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tests of extents, and of requests that succeed, fail or time out. Included by
 * prezero_block.c.
 */
#include <kunit/test.h>
#include <linux/anon_inodes.h>
#include <linux/sizes.h>

#define BLOCK_TEST_PAGES	4

struct block_test_state {
	struct file *file;
	struct page *pages[BLOCK_TEST_PAGES];
	struct block_request *request;
};

static const struct file_operations block_test_fops = {};

static int block_test_init(struct kunit *test)
{
	struct block_test_state *state;
	int i;

	state = kunit_kzalloc(test, sizeof(*state), GFP_KERNEL);
	if (!state)
		return -ENOMEM;
	state->file = anon_inode_getfile("limelight-test", &block_test_fops, NULL, 0);
	if (IS_ERR(state->file))
		return PTR_ERR(state->file);
	test->priv = state;
	for (i = 0; i < BLOCK_TEST_PAGES; i++) {
		state->pages[i] = alloc_page(GFP_KERNEL);
		if (!state->pages[i])
			return -ENOMEM;
	}
	state->request = block_request_alloc(NULL, 0, state->pages, BLOCK_TEST_PAGES);
	return state->request ? 0 : -ENOMEM;
}

static void block_test_exit(struct kunit *test)
{
	struct block_test_state *state = test->priv;
	int i;

	if (!state)
		return;
	for (i = 0; i < BLOCK_TEST_PAGES; i++) {
		if (state->pages[i])
			put_page(state->pages[i]);
	}
	if (state->request)
		block_request_free(state->request);
	fput(state->file);
}

static void expect_references(struct kunit *test, int references)
{
	struct block_test_state *state = test->priv;
	int i;

	for (i = 0; i < BLOCK_TEST_PAGES; i++)
		KUNIT_EXPECT_EQ(test, page_count(state->pages[i]), references);
}

static void block_test_invalid_extents_are_refused(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, block_check_extent(SZ_1M, 512, 0, SZ_1M), 0);
	KUNIT_EXPECT_EQ(test, block_check_extent(SZ_1M, 512, 512, PAGE_SIZE), 0);
	KUNIT_EXPECT_EQ(test, block_check_extent(SZ_1M, 4096, 0, PAGE_SIZE), 0);
	KUNIT_EXPECT_EQ(test, block_check_extent(SZ_1M, 512, 0, 0), -EINVAL);
	KUNIT_EXPECT_EQ(test, block_check_extent(SZ_1M, 512, 0, 512), -EINVAL);
	KUNIT_EXPECT_EQ(test, block_check_extent(SZ_1M, 512, 256, PAGE_SIZE), -EINVAL);
	KUNIT_EXPECT_EQ(test, block_check_extent(SZ_1M, 4096, 512, PAGE_SIZE), -EINVAL);
	KUNIT_EXPECT_EQ(test, block_check_extent(SZ_1M, 512, 512, SZ_1M), -EINVAL);
	KUNIT_EXPECT_EQ(test, block_check_extent(SZ_1M, 512, SZ_2M, PAGE_SIZE), -EINVAL);
	KUNIT_EXPECT_EQ(test, block_check_extent(SZ_1M, 512, SZ_1M, PAGE_SIZE), -EINVAL);
	KUNIT_EXPECT_EQ(test, block_check_extent(SZ_1M, 512, -(u64)PAGE_SIZE, SZ_1M),
			-EINVAL);
	KUNIT_EXPECT_EQ(test, block_check_extent(SZ_1M, 512, 0, -(u64)PAGE_SIZE), -EINVAL);
}

static void block_test_file_must_be_a_block_device(struct kunit *test)
{
	struct block_test_state *state = test->priv;

	KUNIT_EXPECT_EQ(test, block_check_file(state->file), -ENOTBLK);
}

static void block_test_completed_request_returns_0(struct kunit *test)
{
	struct block_test_state *state = test->priv;

	block_end_io(&state->request->bio);
	KUNIT_EXPECT_EQ(test, block_request_wait(state->request, state->file, HZ), 0);
	state->request = NULL;
	expect_references(test, 1);
}

static void block_test_failed_request_returns_its_error(struct kunit *test)
{
	struct block_test_state *state = test->priv;

	state->request->bio.bi_status = BLK_STS_MEDIUM;
	block_end_io(&state->request->bio);
	KUNIT_EXPECT_EQ(test, block_request_wait(state->request, state->file, HZ),
			-ENODATA);
	state->request = NULL;
	expect_references(test, 1);
}

static void block_test_timed_out_request_drops_its_references(struct kunit *test)
{
	struct block_test_state *state = test->priv;
	struct block_request *request = state->request;
	long files = file_count(state->file);

	state->request = NULL;
	KUNIT_EXPECT_EQ(test, block_request_wait(request, state->file, 1), -ETIMEDOUT);
	/* The request holds references to the pages and to the device. */
	expect_references(test, 2);
	KUNIT_EXPECT_EQ(test, file_count(state->file), files + 1);

	block_end_io(&request->bio);
	expect_references(test, 1);
	KUNIT_EXPECT_EQ(test, file_count(state->file), files);
}

static struct kunit_case block_test_cases[] = {
	KUNIT_CASE(block_test_invalid_extents_are_refused),
	KUNIT_CASE(block_test_file_must_be_a_block_device),
	KUNIT_CASE(block_test_completed_request_returns_0),
	KUNIT_CASE(block_test_failed_request_returns_its_error),
	KUNIT_CASE(block_test_timed_out_request_drops_its_references),
	{}
};

static struct kunit_suite block_test_suite = {
	.name = "limelight-prezero-block",
	.init = block_test_init,
	.exit = block_test_exit,
	.test_cases = block_test_cases,
};

kunit_test_suite(block_test_suite);
