/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tests of suspension and of the two passes. Included by protect.c.
 */
#include <kunit/test.h>

#define TEST_GENERATION	5

static unsigned int exhausted_node(struct limelight_suspend *suspend,
				   unsigned long now, u32 generation)
{
	return limelight_suspend_target(suspend, now, generation, SUSPEND_NODE);
}

static void protect_test_a_fresh_target_is_not_suspended(struct kunit *test)
{
	struct limelight_suspend suspend = {};

	KUNIT_EXPECT_FALSE(test, limelight_suspended(&suspend, INITIAL_JIFFIES,
						     TEST_GENERATION));
	KUNIT_EXPECT_FALSE(test, limelight_suspended(&suspend, 0, 0));
}

static void protect_test_suspension_ends(struct kunit *test)
{
	struct limelight_suspend suspend = {};
	unsigned long now = 1000;
	unsigned long span = msecs_to_jiffies(SUSPEND_MS);

	KUNIT_EXPECT_EQ(test, exhausted_node(&suspend, now, TEST_GENERATION),
			SUSPEND_MS);
	KUNIT_EXPECT_TRUE(test, limelight_suspended(&suspend, now,
						    TEST_GENERATION));
	KUNIT_EXPECT_TRUE(test, limelight_suspended(&suspend, now + span - 1,
						    TEST_GENERATION));
	KUNIT_EXPECT_FALSE(test, limelight_suspended(&suspend, now + span,
						     TEST_GENERATION));
}

static void protect_test_suspensions_double_up_to_8_s(struct kunit *test)
{
	static const unsigned int expected[] = { 500, 1000, 2000, 4000, 8000, 8000 };
	struct limelight_suspend suspend = {};
	unsigned long now = 1000;
	int i;

	for (i = 0; i < ARRAY_SIZE(expected); i++) {
		KUNIT_EXPECT_EQ(test, exhausted_node(&suspend, now, TEST_GENERATION),
				expected[i]);
		now = suspend.until + 1;
	}
}

static void protect_test_a_cgroup_is_suspended_longer_at_first(struct kunit *test)
{
	static const unsigned int expected[] = { 1000, 2000, 4000, 8000, 8000 };
	struct limelight_suspend suspend = {};
	unsigned long now = 1000;
	int i;

	for (i = 0; i < ARRAY_SIZE(expected); i++) {
		KUNIT_EXPECT_EQ(test, limelight_suspend_target(&suspend, now,
							       TEST_GENERATION,
							       SUSPEND_CGROUP),
				expected[i]);
		now = suspend.until + 1;
	}
}

static void protect_test_a_suspended_target_is_not_suspended_longer(struct kunit *test)
{
	struct limelight_suspend suspend = {};
	unsigned long until;

	exhausted_node(&suspend, 1000, TEST_GENERATION);
	until = suspend.until;
	KUNIT_EXPECT_EQ(test, exhausted_node(&suspend, 1001, TEST_GENERATION),
			0);
	KUNIT_EXPECT_EQ(test, suspend.until, until);
	KUNIT_EXPECT_EQ(test, suspend.level, 1);
}

static void protect_test_calm_lowers_the_level(struct kunit *test)
{
	struct limelight_suspend suspend = {};
	unsigned long now = 1000;
	int i;

	for (i = 0; i < 4; i++) {
		exhausted_node(&suspend, now, TEST_GENERATION);
		now = suspend.until + 1;
	}
	KUNIT_EXPECT_EQ(test, suspend.level, 4);

	/* Two levels down, then one up. */
	exhausted_node(&suspend, suspend.until + 2 * SUSPEND_CALM,
		       TEST_GENERATION);
	KUNIT_EXPECT_EQ(test, suspend.level, 3);

	exhausted_node(&suspend, suspend.until + 100 * SUSPEND_CALM,
		       TEST_GENERATION);
	KUNIT_EXPECT_EQ(test, suspend.level, 1);
}

static void protect_test_another_app_starts_afresh(struct kunit *test)
{
	struct limelight_suspend suspend = {};

	exhausted_node(&suspend, 1000, TEST_GENERATION);
	exhausted_node(&suspend, suspend.until + 1, TEST_GENERATION);
	KUNIT_EXPECT_FALSE(test, limelight_suspended(&suspend, suspend.until - 1,
						     TEST_GENERATION + 1));
	KUNIT_EXPECT_EQ(test, exhausted_node(&suspend, suspend.until - 1,
					     TEST_GENERATION + 1),
			SUSPEND_MS);
}

static void protect_test_suspension_survives_a_wrap_of_jiffies(struct kunit *test)
{
	struct limelight_suspend suspend = {};
	unsigned long now = ULONG_MAX - 1;
	unsigned long span = msecs_to_jiffies(SUSPEND_MS);

	exhausted_node(&suspend, now, TEST_GENERATION);
	KUNIT_EXPECT_LT(test, suspend.until, now);
	KUNIT_EXPECT_TRUE(test, limelight_suspended(&suspend, now + span - 1,
						    TEST_GENERATION));
	KUNIT_EXPECT_FALSE(test, limelight_suspended(&suspend, now + span,
						     TEST_GENERATION));
	/* Half of the range later, where the result of time_before() changes. */
	KUNIT_EXPECT_FALSE(test,
			   limelight_suspended(&suspend,
					       now + ULONG_MAX / 2 + 2 * span,
					       TEST_GENERATION));
}

static void protect_test_only_a_pass_that_skipped_is_repeated_once(struct kunit *test)
{
	struct limelight_reclaim reclaim = {};

	KUNIT_EXPECT_FALSE(test, __limelight_retry_unprotected(&reclaim, NULL, 0));
	reclaim.skipped = true;
	KUNIT_EXPECT_TRUE(test, __limelight_retry_unprotected(&reclaim, NULL, 0));
	KUNIT_EXPECT_TRUE(test, reclaim.last_resort);
	reclaim.skipped = true;
	KUNIT_EXPECT_FALSE(test, __limelight_retry_unprotected(&reclaim, NULL, 0));
}

static void protect_test_repeated_small_progress_ends_protection(struct kunit *test)
{
	struct limelight_suspend suspend = {};

	KUNIT_EXPECT_FALSE(test, limelight_trickled(&suspend, 1, 5000));
	KUNIT_EXPECT_FALSE(test, limelight_trickled(&suspend, 31, 5000));
	KUNIT_EXPECT_TRUE(test, limelight_trickled(&suspend, 1, 5000));
	/* The count starts again. */
	KUNIT_EXPECT_FALSE(test, limelight_trickled(&suspend, 1, 5000));
	KUNIT_EXPECT_FALSE(test, limelight_trickled(&suspend, 1, 5000));
	/* Progress is relative to the pages that were kept. */
	KUNIT_EXPECT_FALSE(test, limelight_trickled(&suspend, 100, 5000));
	KUNIT_EXPECT_EQ(test, suspend.trickles, 0);
	KUNIT_EXPECT_FALSE(test, limelight_trickled(&suspend, 100, 100000));
	KUNIT_EXPECT_EQ(test, suspend.trickles, 1);
}

static bool trickled(struct limelight_reclaim *reclaim, bool swept)
{
	return __limelight_reclaim_trickled(reclaim, NODE_DATA(numa_mem_id()), NULL,
					    swept, 1, 0);
}

static void protect_test_small_progress_counts_only_after_a_skip(struct kunit *test)
{
	struct limelight_suspend *suspend = &node_suspend[numa_mem_id()];
	struct limelight_suspend before = *suspend;
	struct limelight_reclaim reclaim = { .mode = LIMELIGHT_KEEP, .kept = 5000 };
	int i;

	if (limelight_protect_enabled())
		kunit_skip(test, "protect is switched on");
	*suspend = (struct limelight_suspend) {};
	/* No protected folio was skipped, so protection is not the cause. */
	for (i = 0; i < 2 * TRICKLES; i++)
		KUNIT_EXPECT_FALSE(test, trickled(&reclaim, true));
	reclaim.skipped = true;
	for (i = 1; i < TRICKLES; i++)
		KUNIT_EXPECT_FALSE(test, trickled(&reclaim, true));
	/* A pass that reclaims enough resets the count. */
	KUNIT_EXPECT_FALSE(test, trickled(&reclaim, false));
	for (i = 1; i < TRICKLES; i++)
		KUNIT_EXPECT_FALSE(test, trickled(&reclaim, true));
	KUNIT_EXPECT_TRUE(test, trickled(&reclaim, true));
	KUNIT_EXPECT_TRUE(test, reclaim.last_resort);
	*suspend = before;
}

/* Reclaim for a soft limit counts all references of a folio, also the topmost app's. */
static void protect_test_a_nested_reclaim_walks_all_mappings(struct kunit *test)
{
	struct reclaim_state state = { .limelight = { .mode = LIMELIGHT_KEEP } };
	struct limelight_reclaim *reclaim = &state.limelight;
	struct reclaim_state *before = current->reclaim_state;

	if (limelight_protect_enabled())
		kunit_skip(test, "protect is switched on");
	KUNIT_ASSERT_EQ(test, limelight_protect_configure(true, 0), 0);
	current->reclaim_state = &state;
	reclaim->seen = LIMELIGHT_MAPPED;
	KUNIT_EXPECT_TRUE(test, limelight_rmap_done(reclaim));
	KUNIT_EXPECT_TRUE(test, limelight_track_mappings());
	limelight_reclaim_off(reclaim);
	reclaim->seen = LIMELIGHT_MAPPED;
	KUNIT_EXPECT_FALSE(test, limelight_rmap_done(reclaim));
	KUNIT_EXPECT_FALSE(test, limelight_track_mappings());
	current->reclaim_state = before;
	limelight_protect_reset();
}

/* A retry for memory.low must not end after its first priority. */
static void protect_test_kept_pages_end_only_the_pass_that_kept_them(struct kunit *test)
{
#ifdef CONFIG_MEMCG
	struct limelight_reclaim reclaim = { .mode = LIMELIGHT_KEEP, .kept = 100 };
	struct mem_cgroup *memcg;

	if (limelight_protect_enabled())
		kunit_skip(test, "protect is switched on");
	memcg = kunit_kzalloc(test, sizeof(*memcg), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, memcg);
	KUNIT_ASSERT_EQ(test, limelight_protect_configure(true, 0), 0);

	atomic_long_set(&memcg->memory.usage, 101);
	KUNIT_EXPECT_FALSE(test, limelight_should_abort(&reclaim, memcg));
	atomic_long_set(&memcg->memory.usage, 100);
	KUNIT_EXPECT_TRUE(test, limelight_should_abort(&reclaim, memcg));
	KUNIT_EXPECT_FALSE(test, limelight_should_abort(&reclaim, NULL));
	limelight_begin_pass(&reclaim);
	KUNIT_EXPECT_FALSE(test, limelight_should_abort(&reclaim, memcg));

	limelight_protect_reset();
#else
	kunit_skip(test, "no CONFIG_MEMCG");
#endif
}

static void protect_test_a_mapping_gives_tag_and_access_pattern(struct kunit *test)
{
	struct limelight_reclaim reclaim = {};
	struct vm_area_struct *vma = kunit_kzalloc(test, sizeof(*vma), GFP_KERNEL);
	struct file *file = kunit_kzalloc(test, sizeof(*file), GFP_KERNEL);
	struct mm_struct *mm = kunit_kzalloc(test, sizeof(*mm), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, vma);
	KUNIT_ASSERT_NOT_NULL(test, file);
	KUNIT_ASSERT_NOT_NULL(test, mm);
	vma->vm_mm = mm;

	__limelight_note_mapping(&reclaim, vma);
	KUNIT_EXPECT_EQ(test, reclaim.seen, LIMELIGHT_MAPPED);
	KUNIT_EXPECT_EQ(test, reclaim.tag, limelight_tag_of(mm));

	protect_reset_folio(&reclaim);
	vm_flags_init(vma, VM_RAND_READ);
	__limelight_note_mapping(&reclaim, vma);
	KUNIT_EXPECT_EQ(test, reclaim.seen, LIMELIGHT_MAPPED);

	protect_reset_folio(&reclaim);
	vm_flags_init(vma, VM_SEQ_READ);
	__limelight_note_mapping(&reclaim, vma);
	KUNIT_EXPECT_EQ(test, reclaim.seen, LIMELIGHT_STREAMED);

	protect_reset_folio(&reclaim);
	vm_flags_init(vma, 0);
	vma->vm_file = file;
	file->f_mode = FMODE_NOREUSE;
	__limelight_note_mapping(&reclaim, vma);
	KUNIT_EXPECT_EQ(test, reclaim.seen, LIMELIGHT_STREAMED);
}

static struct kunit_case protect_test_cases[] = {
	KUNIT_CASE(protect_test_a_fresh_target_is_not_suspended),
	KUNIT_CASE(protect_test_suspension_ends),
	KUNIT_CASE(protect_test_suspensions_double_up_to_8_s),
	KUNIT_CASE(protect_test_a_cgroup_is_suspended_longer_at_first),
	KUNIT_CASE(protect_test_a_suspended_target_is_not_suspended_longer),
	KUNIT_CASE(protect_test_calm_lowers_the_level),
	KUNIT_CASE(protect_test_another_app_starts_afresh),
	KUNIT_CASE(protect_test_suspension_survives_a_wrap_of_jiffies),
	KUNIT_CASE(protect_test_only_a_pass_that_skipped_is_repeated_once),
	KUNIT_CASE(protect_test_repeated_small_progress_ends_protection),
	KUNIT_CASE(protect_test_small_progress_counts_only_after_a_skip),
	KUNIT_CASE(protect_test_a_nested_reclaim_walks_all_mappings),
	KUNIT_CASE(protect_test_kept_pages_end_only_the_pass_that_kept_them),
	KUNIT_CASE(protect_test_a_mapping_gives_tag_and_access_pattern),
	{}
};

static struct kunit_suite protect_test_suite = {
	.name = "limelight-protect",
	.test_cases = protect_test_cases,
};

kunit_test_suite(protect_test_suite);
