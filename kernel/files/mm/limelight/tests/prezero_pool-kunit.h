/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tests of the pool. Included by prezero_pool.c.
 *
 * Each test holds a reference to every page that it adds. A page whose only reference
 * is the test's has been given back.
 */
#include <kunit/test-bug.h>
#include <kunit/test.h>

#define POOL_TEST_PAGES	100

struct pool_test_state {
	struct prezero_pool pool;
	int nid;
	struct page *pages[POOL_TEST_PAGES];
	bool stocked_first;
};

static int pool_test_init(struct kunit *test)
{
	struct pool_test_state *state;
	LIST_HEAD(pages);
	int i;

	state = kunit_kzalloc(test, sizeof(*state), GFP_KERNEL);
	if (!state || prezero_pool_init(&state->pool))
		return -ENOMEM;
	test->priv = state;
	/* Stay on this CPU, whose list has pages of this node. */
	migrate_disable();
	state->nid = numa_mem_id();
	for (i = 0; i < POOL_TEST_PAGES; i++) {
		state->pages[i] = alloc_pages_node(state->nid, GFP_KERNEL, 0);
		if (!state->pages[i])
			return -ENOMEM;
		get_page(state->pages[i]);
		list_add_tail(&state->pages[i]->lru, &pages);
	}
	prezero_pool_add(&state->pool, state->nid, &pages, POOL_TEST_PAGES);
	return 0;
}

static void pool_test_exit(struct kunit *test)
{
	struct pool_test_state *state = test->priv;
	int i;

	if (!state)
		return;
	prezero_pool_drain(&state->pool, NUMA_NO_NODE, ULONG_MAX);
	for (i = 0; i < POOL_TEST_PAGES; i++) {
		if (state->pages[i])
			put_page(state->pages[i]);
	}
	prezero_pool_destroy(&state->pool);
	migrate_enable();
}

/* Pages that only the test holds a reference to. */
static unsigned int given_back(const struct pool_test_state *state)
{
	unsigned int nr = 0;
	int i;

	for (i = 0; i < POOL_TEST_PAGES; i++)
		nr += page_count(state->pages[i]) == 1;
	return nr;
}

static void pool_test_no_page_is_lost(struct kunit *test)
{
	struct pool_test_state *state = test->priv;
	struct page *pages[POOL_TEST_PAGES];
	unsigned int got, i, j;
	bool refilled;

	KUNIT_EXPECT_EQ(test, prezero_pool_pages(&state->pool, NUMA_NO_NODE),
			POOL_TEST_PAGES);
	got = prezero_pool_get(&state->pool, &node_states[N_MEMORY], pages, 40,
			       &refilled);
	KUNIT_EXPECT_EQ(test, got, 40);
	KUNIT_EXPECT_EQ(test, prezero_pool_pages(&state->pool, state->nid), 60);
	KUNIT_EXPECT_EQ(test, given_back(state), 0);

	/* No page is handed out twice. */
	for (i = 0; i < got; i++) {
		for (j = 0; j < i; j++)
			KUNIT_EXPECT_PTR_NE(test, pages[i], pages[j]);
	}
	KUNIT_EXPECT_EQ(test, prezero_pool_drain(&state->pool, NUMA_NO_NODE,
						 ULONG_MAX), 60);
	KUNIT_EXPECT_EQ(test, given_back(state), 60);
	while (got)
		__free_page(pages[--got]);
	KUNIT_EXPECT_EQ(test, given_back(state), POOL_TEST_PAGES);
	KUNIT_EXPECT_EQ(test, prezero_pool_pages(&state->pool, NUMA_NO_NODE), 0);
}

static void pool_test_cpus_take_batches(struct kunit *test)
{
	struct pool_test_state *state = test->priv;
	struct prezero_node *node = &state->pool.nodes[state->nid];
	struct prezero_cpu *cpu = raw_cpu_ptr(state->pool.cpus);
	struct page *page;
	bool refilled;
	int i;

	KUNIT_EXPECT_EQ(test, cpu->nr, 0);
	for (i = 1; i <= POOL_TEST_PAGES; i++) {
		KUNIT_EXPECT_EQ(test, prezero_pool_get(&state->pool,
						       &node_states[N_MEMORY],
						       &page, 1, &refilled), 1);
		__free_page(page);
		KUNIT_EXPECT_EQ(test, refilled, i % PREZERO_CPU_PAGES == 1);
		KUNIT_EXPECT_EQ(test, cpu->nr + node->nr, POOL_TEST_PAGES - i);
		if (i == 1)
			KUNIT_EXPECT_EQ(test, cpu->nr, PREZERO_CPU_PAGES - 1);
	}
	KUNIT_EXPECT_EQ(test, prezero_pool_get(&state->pool, &node_states[N_MEMORY],
					       &page, 1, &refilled), 0);
	KUNIT_EXPECT_FALSE(test, refilled);
}

static void pool_test_drains_what_cpus_have(struct kunit *test)
{
	struct pool_test_state *state = test->priv;
	struct page *page;
	bool refilled;

	prezero_pool_get(&state->pool, &node_states[N_MEMORY], &page, 1, &refilled);
	__free_page(page);
	/* The node's list is drained first, then as much of the CPU's as is missing. */
	KUNIT_EXPECT_EQ(test, prezero_pool_drain(&state->pool, state->nid, 78), 78);
	KUNIT_EXPECT_EQ(test, prezero_pool_pages(&state->pool, state->nid), 21);
	KUNIT_EXPECT_EQ(test, state->pool.nodes[state->nid].nr, 0);
	KUNIT_EXPECT_EQ(test, given_back(state), 79);
	KUNIT_EXPECT_EQ(test, prezero_pool_drain(&state->pool, state->nid, 78), 21);
	KUNIT_EXPECT_EQ(test, given_back(state), POOL_TEST_PAGES);
	KUNIT_EXPECT_EQ(test, prezero_pool_drain(&state->pool, state->nid, 78), 0);
}

/* Reclaim drains often, and most of hundreds of CPUs may have empty lists. */
static void pool_test_only_stocked_cpus_are_visited(struct kunit *test)
{
	struct pool_test_state *state = test->priv;
	struct prezero_node *node = &state->pool.nodes[state->nid];
	struct prezero_cpu *cpu = raw_cpu_ptr(state->pool.cpus);
	struct page *page;
	bool refilled;

	KUNIT_EXPECT_TRUE(test, cpumask_empty(node->stocked));
	/* The list of a CPU that is not in the mask is not read. */
	cpu->nr = 5;
	KUNIT_EXPECT_EQ(test, prezero_pool_pages(&state->pool, NUMA_NO_NODE),
			POOL_TEST_PAGES);
	cpu->nr = 0;

	prezero_pool_get(&state->pool, &node_states[N_MEMORY], &page, 1, &refilled);
	__free_page(page);
	KUNIT_EXPECT_EQ(test, cpumask_weight(node->stocked), 1);
	KUNIT_EXPECT_TRUE(test, cpumask_test_cpu(cpu->cpu, node->stocked));
	/* A drain that leaves pages sets the CPU in the mask again. */
	prezero_pool_drain(&state->pool, state->nid, 78);
	KUNIT_EXPECT_EQ(test, cpu->nr, 21);
	KUNIT_EXPECT_TRUE(test, cpumask_test_cpu(cpu->cpu, node->stocked));
	prezero_pool_drain(&state->pool, state->nid, ULONG_MAX);
	KUNIT_EXPECT_TRUE(test, cpumask_empty(node->stocked));
}

/* Takes nothing, so that the CPU's list stays empty. */
static unsigned long take_nothing(struct prezero_node *node, struct list_head *pages,
				  unsigned long most)
{
	struct pool_test_state *state = kunit_get_current_test()->priv;
	struct prezero_cpu *cpu = raw_cpu_ptr(state->pool.cpus);

	state->stocked_first = cpumask_test_cpu(cpu->cpu, node->stocked);
	return 0;
}

/* Between the node's list and the CPU's list, a drain finds a page by the mask alone. */
static void pool_test_cpus_are_stocked_before_they_take_pages(struct kunit *test)
{
	struct pool_test_state *state = test->priv;
	struct prezero_node *node = &state->pool.nodes[state->nid];
	struct page *page;
	bool refilled;

	kunit_activate_static_stub(test, pool_take_pages, take_nothing);
	KUNIT_EXPECT_EQ(test, prezero_pool_get(&state->pool, &node_states[N_MEMORY],
					       &page, 1, &refilled), 0);
	kunit_deactivate_static_stub(test, pool_take_pages);
	KUNIT_EXPECT_FALSE(test, refilled);
	KUNIT_EXPECT_TRUE(test, state->stocked_first);
	/* A drain clears the mask although the list stayed empty. */
	KUNIT_EXPECT_EQ(test, prezero_pool_drain(&state->pool, state->nid, ULONG_MAX),
			POOL_TEST_PAGES);
	KUNIT_EXPECT_TRUE(test, cpumask_empty(node->stocked));
}

static void pool_test_cpusets_are_respected(struct kunit *test)
{
	struct pool_test_state *state = test->priv;
	nodemask_t none = NODE_MASK_NONE;
	struct page *page;
	bool refilled;

	KUNIT_EXPECT_EQ(test, prezero_pool_get(&state->pool, &none, &page, 1,
					       &refilled), 0);
	KUNIT_EXPECT_EQ(test, prezero_pool_pages(&state->pool, state->nid),
			POOL_TEST_PAGES);
}

static void pool_test_nodes_share_the_target(struct kunit *test)
{
	struct pool_test_state *state = test->priv;
	unsigned long pages = 0;
	int nid;

	prezero_pool_set_target(&state->pool, 1000);
	for_each_node_state(nid, N_MEMORY)
		pages += state->pool.nodes[nid].target;
	KUNIT_EXPECT_GE(test, pages, 1000);
	/* The share of each node is rounded up. */
	KUNIT_EXPECT_LE(test, pages, 1000 + num_node_state(N_MEMORY));
}

#ifdef CONFIG_MEMORY_FAILURE
/*
 * Adds a folio whose page @page has an uncorrectable error. memory_failure() gives
 * up on a page of the pool before it marks the folio, so only the page is marked.
 */
static struct folio *add_poisoned_folio(struct kunit *test, unsigned int page)
{
	struct pool_test_state *state = test->priv;
	struct folio *folio = __folio_alloc_node(GFP_KERNEL, PREZERO_ORDER, state->nid);

	KUNIT_ASSERT_NOT_NULL(test, folio);
	/* The test's own reference. */
	folio_get(folio);
	SetPageHWPoison(folio_page(folio, page));
	prezero_pool_add_folio(&state->pool, state->nid, folio);
	return folio;
}

/* Whether @folio, which has left the pool, was not freed. Frees it. */
static bool poisoned_folio_leaked(struct folio *folio, unsigned int page)
{
	bool leaked = folio_ref_count(folio) == 2;

	ClearPageHWPoison(folio_page(folio, page));
	if (leaked)
		folio_put(folio);
	folio_put(folio);
	return leaked;
}
#endif

static void pool_test_poisoned_folios_are_not_served(struct kunit *test)
{
#ifdef CONFIG_MEMORY_FAILURE
	struct pool_test_state *state = test->priv;
	const unsigned int last = PREZERO_FOLIO_PAGES - 1;
	struct folio *folios[2], *good;

	folios[0] = add_poisoned_folio(test, 0);
	folios[1] = add_poisoned_folio(test, last);
	good = __folio_alloc_node(GFP_KERNEL, PREZERO_ORDER, state->nid);
	KUNIT_ASSERT_NOT_NULL(test, good);
	prezero_pool_add_folio(&state->pool, state->nid, good);

	KUNIT_EXPECT_PTR_EQ(test, prezero_pool_get_folio(&state->pool,
							 &node_states[N_MEMORY]),
			    good);
	KUNIT_EXPECT_NULL(test, prezero_pool_get_folio(&state->pool,
						       &node_states[N_MEMORY]));
	KUNIT_EXPECT_TRUE(test, poisoned_folio_leaked(folios[0], 0));
	KUNIT_EXPECT_TRUE(test, poisoned_folio_leaked(folios[1], last));
	folio_put(good);
#else
	kunit_skip(test, "no CONFIG_MEMORY_FAILURE");
#endif
}

static void pool_test_poisoned_folios_are_not_freed(struct kunit *test)
{
#ifdef CONFIG_MEMORY_FAILURE
	struct pool_test_state *state = test->priv;
	struct folio *folio = add_poisoned_folio(test, 3);

	/* It is not memory that the drain has released, either. */
	KUNIT_EXPECT_EQ(test, prezero_pool_drain(&state->pool, NUMA_NO_NODE,
						 ULONG_MAX), POOL_TEST_PAGES);
	KUNIT_EXPECT_EQ(test, prezero_pool_pages(&state->pool, NUMA_NO_NODE), 0);
	KUNIT_EXPECT_TRUE(test, poisoned_folio_leaked(folio, 3));
#else
	kunit_skip(test, "no CONFIG_MEMORY_FAILURE");
#endif
}

static struct kunit_case pool_test_cases[] = {
	KUNIT_CASE(pool_test_no_page_is_lost),
	KUNIT_CASE(pool_test_cpus_take_batches),
	KUNIT_CASE(pool_test_drains_what_cpus_have),
	KUNIT_CASE(pool_test_only_stocked_cpus_are_visited),
	KUNIT_CASE(pool_test_cpus_are_stocked_before_they_take_pages),
	KUNIT_CASE(pool_test_cpusets_are_respected),
	KUNIT_CASE(pool_test_nodes_share_the_target),
	KUNIT_CASE(pool_test_poisoned_folios_are_not_served),
	KUNIT_CASE(pool_test_poisoned_folios_are_not_freed),
	{}
};

static struct kunit_suite pool_test_suite = {
	.name = "limelight-prezero-pool",
	.init = pool_test_init,
	.exit = pool_test_exit,
	.test_cases = pool_test_cases,
};

kunit_test_suite(pool_test_suite);
