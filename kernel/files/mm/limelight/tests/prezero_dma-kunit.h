/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tests with a fake channel that works, fails, runs out of descriptors, or hangs.
 * Included by prezero_dma.c.
 *
 * The fake channel really writes to the addresses that it is given.
 */
#include <kunit/device.h>
#include <kunit/test.h>
#include <linux/dma-direct.h>

#define DMA_TEST_PAGES	8

enum dma_test_mode {
	DMA_TEST_GOOD,
	DMA_TEST_FAILS,		/* the third transfer fails, and is reported as failed */
	DMA_TEST_FAILS_OLD,	/* the same, reported by the status of its cookie */
	DMA_TEST_LIES,		/* the third transfer fails, but is reported as complete */
	DMA_TEST_FEW,		/* only two transfers can be prepared */
	DMA_TEST_NONE,		/* no transfer can be prepared */
	DMA_TEST_HANGS,		/* no transfer ends until the channel is terminated */
	DMA_TEST_RUNAWAY,	/* no transfer ends, and termination fails */
};

struct dma_test_transfer {
	struct dma_async_tx_descriptor descriptor;
	dma_addr_t to;
	dma_addr_t from;
};

struct dma_test_state {
	struct prezero_dma dma;
	struct dma_device device;
	struct dma_chan_dev chan_dev;
	struct dma_chan chan;
	enum dma_test_mode mode;
	unsigned int prepared, submitted, fills, stopped;
	struct dma_test_transfer transfers[DMA_TEST_PAGES];
	struct page *pages[DMA_TEST_PAGES];
};

static struct dma_test_state *dma_test_state(struct dma_chan *chan)
{
	return container_of(chan, struct dma_test_state, chan);
}

static dma_cookie_t dma_test_submit(struct dma_async_tx_descriptor *descriptor)
{
	return ++dma_test_state(descriptor->chan)->submitted;
}

static struct dma_async_tx_descriptor *
dma_test_copy(struct dma_chan *chan, dma_addr_t to, dma_addr_t from, size_t len,
	      unsigned long flags)
{
	struct dma_test_state *state = dma_test_state(chan);
	struct dma_test_transfer *transfer;

	if (state->mode == DMA_TEST_NONE ||
	    (state->mode == DMA_TEST_FEW && state->prepared == 2))
		return NULL;
	transfer = &state->transfers[state->prepared++];
	transfer->to = to;
	transfer->from = from;
	transfer->descriptor.chan = chan;
	transfer->descriptor.tx_submit = dma_test_submit;
	return &transfer->descriptor;
}

static struct dma_async_tx_descriptor *
dma_test_fill(struct dma_chan *chan, dma_addr_t to, int value, size_t len,
	      unsigned long flags)
{
	dma_test_state(chan)->fills++;
	return dma_test_copy(chan, to, 0, len, flags);
}

static void *dma_test_address(struct dma_test_state *state, dma_addr_t address)
{
	return phys_to_virt(dma_to_phys(state->device.dev, address));
}

/* Executes all submitted transfers. */
static void dma_test_issue(struct dma_chan *chan)
{
	struct dma_test_state *state = dma_test_state(chan);
	unsigned int i;

	if (state->mode == DMA_TEST_HANGS || state->mode == DMA_TEST_RUNAWAY)
		return;
	for (i = 0; i < state->submitted; i++) {
		struct dma_test_transfer *transfer = &state->transfers[i];
		struct dma_async_tx_descriptor *tx = &transfer->descriptor;
		struct dmaengine_result result = {};
		bool failed = i == 2 && state->mode != DMA_TEST_GOOD;

		if (!failed && transfer->from)
			memcpy(dma_test_address(state, transfer->to),
			       dma_test_address(state, transfer->from), PAGE_SIZE);
		else if (!failed)
			memset(dma_test_address(state, transfer->to), 0, PAGE_SIZE);
		else if (state->mode == DMA_TEST_LIES)
			memset(dma_test_address(state, transfer->to), 0xa5,
			       PAGE_SIZE);
		if (state->mode == DMA_TEST_FAILS_OLD) {
			tx->callback(tx->callback_param);
			continue;
		}
		if (failed && state->mode != DMA_TEST_LIES)
			result.result = DMA_TRANS_ABORTED;
		tx->callback_result(tx->callback_param, &result);
	}
}

static enum dma_status dma_test_status(struct dma_chan *chan, dma_cookie_t cookie,
				       struct dma_tx_state *tx)
{
	return dma_test_state(chan)->mode == DMA_TEST_FAILS_OLD && cookie == 3 ?
	       DMA_ERROR : DMA_COMPLETE;
}

static int dma_test_terminate(struct dma_chan *chan)
{
	struct dma_test_state *state = dma_test_state(chan);

	state->stopped++;
	return state->mode == DMA_TEST_RUNAWAY ? -EIO : 0;
}

static int dma_test_init(struct kunit *test)
{
	struct dma_test_state *state;
	struct device *dev;
	int i;

	state = kunit_kzalloc(test, sizeof(*state), GFP_KERNEL);
	dev = kunit_device_register(test, "limelight-dma");
	if (!state || IS_ERR(dev))
		return -ENOMEM;
	dev->coherent_dma_mask = DMA_BIT_MASK(64);
	dev->dma_mask = &dev->coherent_dma_mask;

	state->device.dev = dev;
	state->device.device_prep_dma_memcpy = dma_test_copy;
	state->device.device_prep_dma_memset = dma_test_fill;
	state->device.device_issue_pending = dma_test_issue;
	state->device.device_tx_status = dma_test_status;
	state->device.device_terminate_all = dma_test_terminate;
	dma_cap_set(DMA_MEMCPY, state->device.cap_mask);
	dma_cap_set(DMA_MEMSET, state->device.cap_mask);
	state->chan.device = &state->device;
	state->chan.dev = &state->chan_dev;

	mutex_init(&state->dma.lock);
	state->dma.chan = &state->chan;
	state->dma.fills = true;
	state->dma.timeout = 1;
	test->priv = state;
	for (i = 0; i < DMA_TEST_PAGES; i++) {
		state->pages[i] = alloc_page(GFP_KERNEL);
		if (!state->pages[i])
			return -ENOMEM;
		memset(page_address(state->pages[i]), 0xa5, PAGE_SIZE);
	}
	return 0;
}

static void dma_test_exit(struct kunit *test)
{
	struct dma_test_state *state = test->priv;
	int i;

	for (i = 0; state && i < DMA_TEST_PAGES; i++) {
		if (state->pages[i])
			__free_page(state->pages[i]);
	}
}

/* Return: the pages that the engine reports as zero. Checks that only these are. */
static u64 dma_test_zero(struct kunit *test, enum dma_test_mode mode, int error)
{
	struct dma_test_state *state = test->priv;
	u64 zeroed = 0;
	int i;

	state->mode = mode;
	KUNIT_EXPECT_EQ(test, dma_zero(&state->dma, state->pages, DMA_TEST_PAGES,
				       &zeroed), error);
	for (i = 0; i < DMA_TEST_PAGES; i++)
		KUNIT_EXPECT_EQ(test, !memchr_inv(page_address(state->pages[i]), 0,
						  PAGE_SIZE),
				!!(zeroed & BIT_ULL(i)));
	return zeroed;
}

static void dma_test_fills_pages(struct kunit *test)
{
	struct dma_test_state *state = test->priv;

	KUNIT_EXPECT_EQ(test, dma_test_zero(test, DMA_TEST_GOOD, 0), 0xff);
	KUNIT_EXPECT_EQ(test, state->fills, DMA_TEST_PAGES);
}

static void dma_test_copies_the_zero_page(struct kunit *test)
{
	struct dma_test_state *state = test->priv;

	state->dma.fills = false;
	state->dma.zero_page = dma_map_page(state->device.dev, ZERO_PAGE(0), 0,
					    PAGE_SIZE, DMA_TO_DEVICE);
	KUNIT_ASSERT_FALSE(test, dma_mapping_error(state->device.dev,
						   state->dma.zero_page));
	KUNIT_EXPECT_EQ(test, dma_test_zero(test, DMA_TEST_GOOD, 0), 0xff);
	KUNIT_EXPECT_EQ(test, state->fills, 0);
	dma_unmap_page(state->device.dev, state->dma.zero_page, PAGE_SIZE,
		       DMA_TO_DEVICE);
}

static void dma_test_failed_transfers_do_not_count(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, dma_test_zero(test, DMA_TEST_FAILS, -EIO), 0xfb);
}

static void dma_test_old_drivers_fail_as_well(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, dma_test_zero(test, DMA_TEST_FAILS_OLD, -EIO), 0xfb);
}

static void dma_test_descriptors_run_out(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, dma_test_zero(test, DMA_TEST_FEW, 0), 0x03);
}

static void dma_test_no_descriptor_is_an_error(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, dma_test_zero(test, DMA_TEST_NONE, -EIO), 0);
}

/*
 * The channel still has the pages, which the engine leaks. The fake channel does not
 * write any more, so the test frees them.
 */
static void dma_test_expect_pages_kept(struct kunit *test)
{
	struct dma_test_state *state = test->priv;
	struct dma_batch *batch;
	int i;

	for (i = 0; i < DMA_TEST_PAGES; i++)
		KUNIT_ASSERT_EQ(test, page_count(state->pages[i]), 2);
	KUNIT_EXPECT_TRUE(test, state->dma.stuck);

	batch = ((struct dma_transfer *)
		 state->transfers[0].descriptor.callback_param)->batch;
	for (i = 0; i < DMA_TEST_PAGES; i++) {
		dma_unmap_page(state->device.dev, batch->transfers[i].address,
			       PAGE_SIZE, DMA_FROM_DEVICE);
		put_page(state->pages[i]);
	}
	kfree(batch);
}

/* Drivers report that a channel has stopped even if its hardware has not. */
static void dma_test_a_timeout_keeps_the_pages(struct kunit *test)
{
	struct dma_test_state *state = test->priv;

	KUNIT_EXPECT_EQ(test, dma_test_zero(test, DMA_TEST_HANGS, -ETIMEDOUT), 0);
	KUNIT_EXPECT_EQ(test, state->stopped, 1);
	dma_test_expect_pages_kept(test);
}

static void dma_test_a_channel_that_cannot_be_stopped_keeps_its_pages(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, dma_test_zero(test, DMA_TEST_RUNAWAY, -ETIMEDOUT), 0);
	dma_test_expect_pages_kept(test);
}

/* Some drivers report success for failed transfers: ptdma, dw_dmac. */
static void dma_test_false_success_is_found_by_default(struct kunit *test)
{
	struct dma_test_state *state = test->priv;
	struct prezero_filler filler = {};
	struct prezero_pool pool = {};
	struct page *pages[DMA_TEST_PAGES];
	unsigned int got, i;
	bool refilled;

	if (want_init_on_alloc(GFP_PREZERO))
		kunit_skip(test, "init_on_alloc is set: no engine is used");
	KUNIT_ASSERT_EQ(test, prezero_pool_init(&pool), 0);
	state->mode = DMA_TEST_LIES;
	prezero_filler_set(&filler, &prezero_dma_engine, &state->dma,
			   prezero_dma_engine.verify);
	KUNIT_EXPECT_EQ(test, prezero_fill(&pool, numa_mem_id(), &filler,
					   DMA_TEST_PAGES), DMA_TEST_PAGES - 1);
	KUNIT_EXPECT_EQ(test, atomic_long_read(&filler.errors), 1);

	got = prezero_pool_get(&pool, &node_states[N_MEMORY], pages,
			       DMA_TEST_PAGES, &refilled);
	KUNIT_EXPECT_EQ(test, got, DMA_TEST_PAGES - 1);
	for (i = 0; i < got; i++) {
		KUNIT_EXPECT_NULL(test, memchr_inv(page_address(pages[i]), 0,
						   PAGE_SIZE));
		__free_page(pages[i]);
	}
	prezero_pool_drain(&pool, NUMA_NO_NODE, ULONG_MAX);
	prezero_pool_destroy(&pool);
}

/* A read of prezero/engines must not request a channel. */
static void dma_test_missing_reports_the_last_attempt(struct kunit *test)
{
	static const struct limelight_mechanism params;
	const char *before = unavailable;
	void *state;

	unavailable = NULL;
	KUNIT_EXPECT_NULL(test, dma_missing());
	state = dma_start(&params);
	if (IS_ERR(state)) {
		KUNIT_EXPECT_NOT_NULL(test, dma_missing());
	} else {
		KUNIT_EXPECT_NULL(test, dma_missing());
		dma_stop(state);
	}
	unavailable = before;
}

static struct kunit_case dma_test_cases[] = {
	KUNIT_CASE(dma_test_fills_pages),
	KUNIT_CASE(dma_test_copies_the_zero_page),
	KUNIT_CASE(dma_test_failed_transfers_do_not_count),
	KUNIT_CASE(dma_test_old_drivers_fail_as_well),
	KUNIT_CASE(dma_test_descriptors_run_out),
	KUNIT_CASE(dma_test_no_descriptor_is_an_error),
	KUNIT_CASE(dma_test_a_timeout_keeps_the_pages),
	KUNIT_CASE(dma_test_a_channel_that_cannot_be_stopped_keeps_its_pages),
	KUNIT_CASE(dma_test_false_success_is_found_by_default),
	KUNIT_CASE(dma_test_missing_reports_the_last_attempt),
	{}
};

static struct kunit_suite dma_test_suite = {
	.name = "limelight-prezero-dma",
	.init = dma_test_init,
	.exit = dma_test_exit,
	.test_cases = dma_test_cases,
};

kunit_test_suite(dma_test_suite);
