/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tests of the parameters and of the mechanism as a whole. Included by prezero.c.
 */
#include <kunit/test.h>
#include <linux/cred.h>
#include <linux/delay.h>

static void prezero_test_the_target_is_a_share_of_memory(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, prezero_clamp_target(100, 12000), 100);
	KUNIT_EXPECT_EQ(test, prezero_clamp_target(1000, 12000), 1000);
	KUNIT_EXPECT_EQ(test, prezero_clamp_target(1001, 12000), 1000);
	KUNIT_EXPECT_EQ(test, prezero_clamp_target(U32_MAX, 12000), 1000);
	KUNIT_EXPECT_EQ(test, prezero_clamp_target(1, 11), 0);
}

static void prezero_test_invalid_values_are_refused(struct kunit *test)
{
	static const struct limelight_mechanism nonsense[] = {
		{ .flags = LIMELIGHT_MECHANISM_ON, .engine = LIMELIGHT_ENGINE_DMA + 1 },
		{ .flags = LIMELIGHT_MECHANISM_ON, .prezero_flags = 4 },
		{ .flags = LIMELIGHT_MECHANISM_ON,
		  .prezero_flags = LIMELIGHT_PREZERO_VERIFY | LIMELIGHT_PREZERO_TRUST },
		{ .flags = LIMELIGHT_MECHANISM_ON, .block_fd = 3 },
		{ .flags = LIMELIGHT_MECHANISM_ON, .block_len = PAGE_SIZE },
		{ .flags = LIMELIGHT_MECHANISM_ON, .block_offset = PAGE_SIZE },
		{ .engine = LIMELIGHT_ENGINE_BLOCK },
		{ .prezero_flags = LIMELIGHT_PREZERO_VERIFY },
	};
	unsigned long before = target;
	int i;

	for (i = 0; i < ARRAY_SIZE(nonsense); i++) {
		struct limelight_mechanism params = nonsense[i];

		params.target_pages = before + 1;
		KUNIT_EXPECT_EQ_MSG(test, limelight_prezero_configure(&params),
				    -EINVAL, "row %d", i);
		KUNIT_EXPECT_EQ(test, target, before);
	}
}

static void prezero_test_trust_needs_raw_io(struct kunit *test)
{
	const struct limelight_mechanism params = {
		.flags = LIMELIGHT_MECHANISM_ON,
		.prezero_flags = LIMELIGHT_PREZERO_TRUST,
	};
	const struct cred *old;
	struct cred *cred;

	if (limelight_prezero_enabled() || want_init_on_free())
		kunit_skip(test, "prezero is on, or init_on_free is set");
	cred = prepare_creds();
	KUNIT_ASSERT_NOT_NULL(test, cred);
	cap_lower(cred->cap_effective, CAP_SYS_RAWIO);
	old = override_creds(cred);
	KUNIT_EXPECT_EQ(test, prezero_check_params(true, &params), -EPERM);
	revert_creds(old);
	put_cred(cred);
	KUNIT_EXPECT_EQ(test, prezero_check_params(true, &params), 0);
}

/* sysfs may be read before and while the pool is allocated. */
static void prezero_test_the_pool_is_not_read_while_off(struct kunit *test)
{
	const struct prezero_pool before = limelight_zeroed;
	struct prezero_node *nodes;

	if (limelight_prezero_enabled())
		kunit_skip(test, "prezero is on");
	nodes = kunit_kcalloc(test, nr_node_ids, sizeof(*nodes), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, nodes);
	nodes[0].nr = 1;
	/* As in the middle of prezero_pool_init(): no CPUs' lists, and no masks. */
	limelight_zeroed = (struct prezero_pool) { .nodes = nodes };
	KUNIT_EXPECT_EQ(test, limelight_prezero_pooled(), 0);
	limelight_zeroed = before;
}

/* Switched on, filled, drained and switched off, the mechanism leaves no trace. */
static void prezero_test_on_and_off(struct kunit *test)
{
	const struct limelight_mechanism on = {
		.flags = LIMELIGHT_MECHANISM_ON,
		.target_pages = 256,
	};
	unsigned long room = limelight_node_room(NODE_DATA(numa_mem_id()));
	int i, round;

	if (limelight_prezero_enabled() || want_init_on_free())
		kunit_skip(test, "prezero is on, or init_on_free is set");
	if (num_node_state(N_MEMORY) > 1 || room < 65536)
		kunit_skip(test, "needs one node with 256 MiB free");
	/* With this much page cache, an allocation would not drain the pool. */
	if (limelight_node_clean_cache(NODE_DATA(numa_mem_id())) >= 256)
		kunit_skip(test, "needs an empty page cache");

	for (round = 0; round < 3; round++) {
		KUNIT_ASSERT_EQ(test, limelight_prezero_configure(&on), 0);
		KUNIT_EXPECT_TRUE(test, limelight_prezero_enabled());
		/* The drain of the previous round paused filling for a second. */
		for (i = 0; i < 1000 && limelight_prezero_pooled() < 256; i++)
			msleep(20);
		KUNIT_EXPECT_EQ(test, limelight_prezero_pooled(), 256);

		__limelight_prezero_drain_alloc(GFP_KERNEL | __GFP_ZERO,
						PAGE_ALLOC_COSTLY_ORDER + 1);
		KUNIT_EXPECT_EQ(test, limelight_prezero_pooled(), 256);
		__limelight_prezero_drain_alloc(GFP_PREZERO, 0);
		KUNIT_EXPECT_EQ(test, limelight_prezero_pooled(), 256);
		/* A page of the pool would keep compaction from making a huge page. */
		if (round == 1)
			limelight_prezero_drain_compaction(page_zone(ZERO_PAGE(0)));
		else
			__limelight_prezero_drain_alloc(GFP_KERNEL, 0);
		KUNIT_EXPECT_EQ(test, limelight_prezero_pooled(), 0);

		limelight_prezero_reset();
		KUNIT_EXPECT_FALSE(test, limelight_prezero_enabled());
		KUNIT_EXPECT_EQ(test, limelight_prezero_pooled(), 0);
		KUNIT_EXPECT_EQ(test, prezero_pool_pages(&limelight_zeroed,
							 NUMA_NO_NODE), 0);
		KUNIT_EXPECT_EQ(test, target, LIMELIGHT_PREZERO_TARGET_DEFAULT);
	}
	/* The CPU time of stopped threads still counts. */
	KUNIT_EXPECT_GT(test, prezero_manager_cpu_ns(), 0);
}

static struct kunit_case prezero_test_cases[] = {
	KUNIT_CASE(prezero_test_the_target_is_a_share_of_memory),
	KUNIT_CASE(prezero_test_invalid_values_are_refused),
	KUNIT_CASE(prezero_test_trust_needs_raw_io),
	KUNIT_CASE(prezero_test_the_pool_is_not_read_while_off),
	KUNIT_CASE_SLOW(prezero_test_on_and_off),
	{}
};

static struct kunit_suite prezero_test_suite = {
	.name = "limelight-prezero",
	.test_cases = prezero_test_cases,
};

kunit_test_suite(prezero_test_suite);
