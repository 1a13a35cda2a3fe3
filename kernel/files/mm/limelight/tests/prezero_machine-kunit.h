/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tests of prezero with a DMA channel of this machine, skipped if there is none.
 * Included by prezero_dma.c.
 */
#include <kunit/test.h>
#include <linux/delay.h>
#include <linux/nodemask.h>

/* Number of batches, enough to reuse the channel's descriptors many times. */
#define MACHINE_TEST_BATCHES	64
#define MACHINE_TEST_TARGET	512
/* Longest time to fill the pool, in ms. */
#define MACHINE_TEST_PATIENCE	30000

static void machine_test_needs_channel(struct kunit *test)
{
	struct dma_chan *chan;
	bool fills;

	chan = prezero_find_channel(&fills);
	if (IS_ERR(chan))
		kunit_skip(test, "no usable channel");
	dma_release_channel(chan);
}

static void machine_test_zero_batch(struct kunit *test, void *state)
{
	struct page *pages[PREZERO_BATCH];
	unsigned int i, nr;
	u64 zeroed = 0;

	for (nr = 0; nr < PREZERO_BATCH; nr++) {
		pages[nr] = alloc_page(GFP_KERNEL);
		if (!pages[nr])
			break;
		memset(page_address(pages[nr]), 0xa5, PAGE_SIZE);
	}
	KUNIT_EXPECT_EQ(test, nr, PREZERO_BATCH);
	KUNIT_EXPECT_EQ(test, dma_zero(state, pages, nr, &zeroed), 0);
	KUNIT_EXPECT_EQ(test, zeroed, GENMASK_ULL(nr - 1, 0));
	for (i = 0; i < nr; i++) {
		if (!pages[i])
			continue;
		KUNIT_EXPECT_NULL(test, memchr_inv(page_address(pages[i]), 0,
						   PAGE_SIZE));
		__free_page(pages[i]);
	}
}

static void machine_test_dma_channel_zeroes(struct kunit *test)
{
	static const struct limelight_mechanism params;
	void *state;
	int i;

	machine_test_needs_channel(test);
	state = dma_start(&params);
	KUNIT_ASSERT_FALSE(test, IS_ERR(state));
	for (i = 0; i < MACHINE_TEST_BATCHES; i++)
		machine_test_zero_batch(test, state);
	dma_stop(state);
}

/* Like /dev/limelight: switches prezero on, fills and empties the pool, switches off. */
static void machine_test_dma_channel_fills_the_pool(struct kunit *test)
{
	struct limelight_mechanism params = {
		.size = sizeof(params),
		.id = LIMELIGHT_MECHANISM_PREZERO,
		.flags = LIMELIGHT_MECHANISM_ON,
		.target_pages = MACHINE_TEST_TARGET,
		.engine = LIMELIGHT_ENGINE_DMA,
	};
	unsigned long waited = 0, seen = 0;
	struct page *page;
	bool refilled;

	machine_test_needs_channel(test);
	KUNIT_ASSERT_EQ(test, limelight_prezero_configure(&params), 0);
	while (limelight_prezero_pooled() < MACHINE_TEST_TARGET &&
	       waited < MACHINE_TEST_PATIENCE) {
		msleep(20);
		waited += 20;
	}
	KUNIT_EXPECT_GE(test, limelight_prezero_pooled(), MACHINE_TEST_TARGET);
	KUNIT_EXPECT_EQ(test, prezero_manager_errors(), 0);
	while (seen < MACHINE_TEST_TARGET &&
	       prezero_pool_get(&limelight_zeroed, &node_states[N_MEMORY], &page,
				1, &refilled)) {
		KUNIT_EXPECT_NULL(test, memchr_inv(page_address(page), 0,
						   PAGE_SIZE));
		__free_page(page);
		seen++;
	}
	KUNIT_EXPECT_EQ(test, seen, MACHINE_TEST_TARGET);
	limelight_prezero_reset();
	KUNIT_EXPECT_EQ(test, prezero_pool_pages(&limelight_zeroed, NUMA_NO_NODE), 0);
}

static struct kunit_case machine_test_cases[] = {
	KUNIT_CASE(machine_test_dma_channel_zeroes),
	KUNIT_CASE_SLOW(machine_test_dma_channel_fills_the_pool),
	{}
};

static struct kunit_suite machine_test_suite = {
	.name = "limelight-prezero-machine",
	.test_cases = machine_test_cases,
};

kunit_test_suite(machine_test_suite);
