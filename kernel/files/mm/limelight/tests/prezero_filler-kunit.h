/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tests with an engine that fails. Included by prezero_filler.c.
 *
 * The fake engine keeps a reference to every page that it gets, so that the tests can
 * detect lost pages. It fills pages that it does not zero with 0xa5.
 */
#include <kunit/test.h>

#define FAKE_PAGES	(4 * PREZERO_BATCH)

/* What the fake engine does. */
enum fake_mode {
	FAKE_GOOD,
	FAKE_FAILS,	/* an error, nothing zeroed */
	FAKE_SHORT,	/* an error after half of the pages */
	FAKE_LIES,	/* no error, but the third page is not zero */
	FAKE_KEEPS,	/* times out, and the device keeps all pages */
	FAKE_BUSY,	/* there is no memory for the request */
	FAKE_POISONED,	/* an error, and the last page is found to be bad */
};

struct fake_state {
	struct prezero_pool pool;
	struct prezero_filler filler;
	enum fake_mode mode;
	int nid;
	unsigned int calls;
	unsigned int nr;
	struct page *pages[FAKE_PAGES];
};

static int fake_zero(void *data, struct page **pages, unsigned int nr, u64 *zeroed)
{
	struct fake_state *state = data;
	unsigned int i;

	state->calls++;
	for (i = 0; i < nr; i++) {
		bool zero = state->mode == FAKE_GOOD ||
			    (state->mode == FAKE_SHORT && i < nr / 2) ||
			    (state->mode == FAKE_LIES && i != 2);

		if (state->nr < FAKE_PAGES) {
			get_page(pages[i]);
			state->pages[state->nr++] = pages[i];
		}
		memset(page_address(pages[i]), zero ? 0 : 0xa5, PAGE_SIZE);
		if (zero || state->mode == FAKE_LIES)
			*zeroed |= BIT_ULL(i);
		/* The device's reference. */
		if (state->mode == FAKE_KEEPS)
			get_page(pages[i]);
	}
	switch (state->mode) {
	case FAKE_POISONED:
		SetPageHWPoison(pages[nr - 1]);
		fallthrough;
	case FAKE_FAILS:
	case FAKE_SHORT:
		return -EIO;
	case FAKE_KEEPS:
		return -ETIMEDOUT;
	case FAKE_BUSY:
		return -EAGAIN;
	default:
		return 0;
	}
}

static const struct prezero_engine fake_engine = {
	.name = "fake",
	.zero = fake_zero,
};

static int filler_test_init(struct kunit *test)
{
	struct fake_state *state;

	if (want_init_on_alloc(GFP_PREZERO))
		kunit_skip(test, "init_on_alloc is set: no engine is used");
	state = kunit_kzalloc(test, sizeof(*state), GFP_KERNEL);
	if (!state || prezero_pool_init(&state->pool))
		return -ENOMEM;
	test->priv = state;
	state->nid = numa_mem_id();
	prezero_filler_set(&state->filler, &fake_engine, state, true);
	return 0;
}

static void filler_test_exit(struct kunit *test)
{
	struct fake_state *state = test->priv;

	if (!state)
		return;
	prezero_pool_drain(&state->pool, NUMA_NO_NODE, ULONG_MAX);
	while (state->nr)
		put_page(state->pages[--state->nr]);
	prezero_pool_destroy(&state->pool);
}

static int fake_fill(struct fake_state *state, enum fake_mode mode, unsigned int nr)
{
	state->mode = mode;
	return prezero_fill(&state->pool, state->nid, &state->filler, nr);
}

/* Every page that the engine had is either zero and in the pool, or freed. */
static void expect_no_page_lost(struct kunit *test, unsigned int zeroed)
{
	struct fake_state *state = test->priv;
	unsigned int i, pooled = 0, back = 0;

	for (i = 0; i < state->nr; i++) {
		struct page *page = state->pages[i];

		if (page_count(page) == 1) {
			back++;
			continue;
		}
		KUNIT_EXPECT_EQ(test, page_count(page), 2);
		KUNIT_EXPECT_NULL(test, memchr_inv(page_address(page), 0, PAGE_SIZE));
		pooled++;
	}
	KUNIT_EXPECT_EQ(test, pooled, zeroed);
	KUNIT_EXPECT_EQ(test, prezero_pool_pages(&state->pool, NUMA_NO_NODE), zeroed);
	KUNIT_EXPECT_EQ(test, back, state->nr - zeroed);
	/* A drain frees all of them. */
	prezero_pool_drain(&state->pool, NUMA_NO_NODE, ULONG_MAX);
	for (i = 0; i < state->nr; i++)
		KUNIT_EXPECT_EQ(test, page_count(state->pages[i]), 1);
}

static void filler_test_zeroed_pages_are_pooled(struct kunit *test)
{
	struct fake_state *state = test->priv;

	KUNIT_EXPECT_EQ(test, fake_fill(state, FAKE_GOOD, 10), 10);
	KUNIT_EXPECT_EQ(test, state->nr, 10);
	KUNIT_EXPECT_EQ(test, atomic_long_read(&state->filler.errors), 0);
	expect_no_page_lost(test, 10);
}

static void filler_test_errors_give_pages_back(struct kunit *test)
{
	struct fake_state *state = test->priv;

	KUNIT_EXPECT_EQ(test, fake_fill(state, FAKE_FAILS, 10), 0);
	KUNIT_EXPECT_EQ(test, atomic_long_read(&state->filler.errors), 10);
	expect_no_page_lost(test, 0);
}

static void filler_test_short_batches_count_with_their_pages(struct kunit *test)
{
	struct fake_state *state = test->priv;

	KUNIT_EXPECT_EQ(test, fake_fill(state, FAKE_SHORT, 10), 5);
	KUNIT_EXPECT_EQ(test, atomic_long_read(&state->filler.errors), 5);
	expect_no_page_lost(test, 5);
}

static void filler_test_pages_that_are_not_zero_are_found(struct kunit *test)
{
	struct fake_state *state = test->priv;

	KUNIT_EXPECT_EQ(test, fake_fill(state, FAKE_LIES, 10), 9);
	KUNIT_EXPECT_EQ(test, atomic_long_read(&state->filler.errors), 1);
	KUNIT_EXPECT_EQ(test, atomic_read(&state->filler.failures), 1);
	expect_no_page_lost(test, 9);
}

static void filler_test_pages_may_stay_with_the_engine(struct kunit *test)
{
	struct fake_state *state = test->priv;
	unsigned int i;

	KUNIT_EXPECT_EQ(test, fake_fill(state, FAKE_KEEPS, 10), 0);
	KUNIT_EXPECT_EQ(test, atomic_long_read(&state->filler.errors), 10);
	/* The device's reference and the test's. */
	for (i = 0; i < state->nr; i++) {
		KUNIT_EXPECT_EQ(test, page_count(state->pages[i]), 2);
		put_page(state->pages[i]);
	}
	/* The engine is not used again. */
	KUNIT_EXPECT_TRUE(test, prezero_filler_dropped(&state->filler));
}

static void filler_test_engines_are_dropped(struct kunit *test)
{
	struct fake_state *state = test->priv;
	struct page *pages[10];
	bool refilled;
	int i;

	/* A success resets the number of failures. */
	for (i = 0; i < 2 * MAX_FAILURES; i++)
		fake_fill(state, i % 2 ? FAKE_GOOD : FAKE_FAILS, 4);
	KUNIT_EXPECT_FALSE(test, prezero_filler_dropped(&state->filler));
	/* -EAGAIN is not a failure of the engine. */
	for (i = 0; i < MAX_FAILURES; i++)
		fake_fill(state, FAKE_BUSY, 4);
	KUNIT_EXPECT_FALSE(test, prezero_filler_dropped(&state->filler));
	for (i = 0; i < MAX_FAILURES; i++)
		fake_fill(state, FAKE_LIES, 4);
	KUNIT_EXPECT_TRUE(test, prezero_filler_dropped(&state->filler));

	/* Now the CPU zeroes. */
	prezero_pool_drain(&state->pool, NUMA_NO_NODE, ULONG_MAX);
	state->calls = 0;
	KUNIT_EXPECT_EQ(test, fake_fill(state, FAKE_FAILS, 10), 10);
	KUNIT_EXPECT_EQ(test, state->calls, 0);
	KUNIT_EXPECT_EQ(test, prezero_pool_get(&state->pool, &node_states[N_MEMORY],
					       pages, 10, &refilled), 10);
	for (i = 0; i < 10; i++) {
		KUNIT_EXPECT_NULL(test, memchr_inv(page_address(pages[i]), 0,
						   PAGE_SIZE));
		__free_page(pages[i]);
	}
}

static void filler_test_folios_are_zero_as_a_whole(struct kunit *test)
{
	struct fake_state *state = test->priv;
	struct folio *folio;

	state->mode = FAKE_LIES;
	/* The fake engine holds one reference to the folio for each of its pages. */
	KUNIT_ASSERT_EQ(test, prezero_fill_folios(&state->pool, state->nid,
						  &state->filler, 2),
			PREZERO_FOLIO_PAGES);
	KUNIT_EXPECT_EQ(test, state->nr, 2 * PREZERO_FOLIO_PAGES);
	KUNIT_EXPECT_EQ(test, page_count(state->pages[0]), PREZERO_FOLIO_PAGES);
	KUNIT_EXPECT_EQ(test, atomic_long_read(&state->filler.errors), 1);
	KUNIT_EXPECT_EQ(test, prezero_pool_pages(&state->pool, state->nid),
			PREZERO_FOLIO_PAGES);
	KUNIT_EXPECT_EQ(test, prezero_pool_singles(&state->pool, state->nid), 0);

	folio = prezero_pool_get_folio(&state->pool, &node_states[N_MEMORY]);
	KUNIT_ASSERT_NOT_NULL(test, folio);
	KUNIT_EXPECT_PTR_EQ(test, folio,
			    page_folio(state->pages[PREZERO_FOLIO_PAGES]));
	KUNIT_EXPECT_EQ(test, folio_order(folio), PREZERO_ORDER);
	KUNIT_EXPECT_NULL(test, memchr_inv(folio_address(folio), 0,
					   folio_size(folio)));
	folio_put(folio);
	KUNIT_EXPECT_NULL(test, prezero_pool_get_folio(&state->pool,
						       &node_states[N_MEMORY]));

	/* Draining frees whole folios. */
	KUNIT_EXPECT_EQ(test, prezero_fill_folios(&state->pool, state->nid,
						  &state->filler, 1), 0);
	state->mode = FAKE_GOOD;
	KUNIT_EXPECT_EQ(test, prezero_fill_folios(&state->pool, state->nid,
						  &state->filler, 4),
			4 * PREZERO_FOLIO_PAGES);
	KUNIT_EXPECT_EQ(test, prezero_pool_drain(&state->pool, state->nid, 17),
			2 * PREZERO_FOLIO_PAGES);
	KUNIT_EXPECT_EQ(test, prezero_pool_drain(&state->pool, NUMA_NO_NODE,
						 ULONG_MAX),
			2 * PREZERO_FOLIO_PAGES);
	KUNIT_EXPECT_EQ(test, page_count(state->pages[state->nr - 1]),
			PREZERO_FOLIO_PAGES);
}

static void filler_test_poisoned_folios_are_not_freed(struct kunit *test)
{
#ifdef CONFIG_MEMORY_FAILURE
	struct fake_state *state = test->priv;
	struct folio *folio;

	state->mode = FAKE_POISONED;
	KUNIT_ASSERT_EQ(test, prezero_fill_folios(&state->pool, state->nid,
						  &state->filler, 2), 0);
	KUNIT_ASSERT_EQ(test, state->nr, 2 * PREZERO_FOLIO_PAGES);
	/* Only the fake holds references. */
	KUNIT_EXPECT_EQ(test, page_count(state->pages[0]), PREZERO_FOLIO_PAGES);

	folio = page_folio(state->pages[state->nr - 1]);
	KUNIT_EXPECT_EQ(test, folio_ref_count(folio), PREZERO_FOLIO_PAGES + 1);
	ClearPageHWPoison(state->pages[state->nr - 1]);
	if (folio_ref_count(folio) > PREZERO_FOLIO_PAGES)
		folio_put(folio);
#else
	kunit_skip(test, "no CONFIG_MEMORY_FAILURE");
#endif
}

static void filler_test_names_the_device_only_while_it_is_used(struct kunit *test)
{
	static const struct prezero_engine device = { .device = true };
	struct fake_state *state = test->priv;

	KUNIT_EXPECT_FALSE(test, prezero_filler_is_device(&state->filler));
	prezero_filler_set(&state->filler, &device, NULL, true);
	KUNIT_EXPECT_FALSE(test, prezero_filler_is_device(&state->filler));
	prezero_filler_set(&state->filler, &device, NULL, false);
	KUNIT_EXPECT_TRUE(test, prezero_filler_is_device(&state->filler));
	atomic_set(&state->filler.failures, MAX_FAILURES);
	KUNIT_EXPECT_FALSE(test, prezero_filler_is_device(&state->filler));
}

static void filler_test_the_cpu_stops_for_a_window(struct kunit *test)
{
	struct page *page = alloc_page(GFP_KERNEL);
	u64 zeroed = 0;

	KUNIT_ASSERT_NOT_NULL(test, page);
	memset(page_address(page), 0xa5, PAGE_SIZE);
	if (static_key_enabled(&limelight_key)) {
		__free_page(page);
		kunit_skip(test, "/dev/limelight is open");
	}
	static_branch_enable(&limelight_key);
	limelight_window_request(LIMELIGHT_WINDOW_OPEN, NSEC_PER_SEC * 10);
	prezero_cpu_engine.zero(NULL, &page, 1, &zeroed);
	KUNIT_EXPECT_EQ(test, zeroed, 0);
	limelight_window_request(LIMELIGHT_WINDOW_CLOSE, 0);
	static_branch_disable(&limelight_key);

	prezero_cpu_engine.zero(NULL, &page, 1, &zeroed);
	KUNIT_EXPECT_EQ(test, zeroed, 1);
	KUNIT_EXPECT_NULL(test, memchr_inv(page_address(page), 0, PAGE_SIZE));
	__free_page(page);
}

static struct kunit_case filler_test_cases[] = {
	KUNIT_CASE(filler_test_zeroed_pages_are_pooled),
	KUNIT_CASE(filler_test_errors_give_pages_back),
	KUNIT_CASE(filler_test_short_batches_count_with_their_pages),
	KUNIT_CASE(filler_test_pages_that_are_not_zero_are_found),
	KUNIT_CASE(filler_test_pages_may_stay_with_the_engine),
	KUNIT_CASE(filler_test_engines_are_dropped),
	KUNIT_CASE(filler_test_folios_are_zero_as_a_whole),
	KUNIT_CASE(filler_test_poisoned_folios_are_not_freed),
	KUNIT_CASE(filler_test_names_the_device_only_while_it_is_used),
	KUNIT_CASE(filler_test_the_cpu_stops_for_a_window),
	{}
};

static struct kunit_suite filler_test_suite = {
	.name = "limelight-prezero-filler",
	.init = filler_test_init,
	.exit = filler_test_exit,
	.test_cases = filler_test_cases,
};

kunit_test_suite(filler_test_suite);
