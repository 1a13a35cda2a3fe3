/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tests of generations and membership. Included by core.c.
 */
#include <kunit/static_stub.h>
#include <kunit/test.h>
#include <linux/mman.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

struct core_test_state {
	u64 generation;
	u64 last;
};

static int core_test_init(struct kunit *test)
{
	struct core_test_state *state;

	/* The tests set generations that a daemon may be using. */
	if (static_key_enabled(&limelight_key))
		kunit_skip(test, "/dev/limelight is open");
	state = kunit_kzalloc(test, sizeof(*state), GFP_KERNEL);
	if (!state)
		return -ENOMEM;
	state->generation = limelight_generation;
	state->last = limelight_last_generation;
	test->priv = state;
	static_branch_enable(&limelight_key);
	return 0;
}

static void core_test_exit(struct kunit *test)
{
	struct core_test_state *state = test->priv;

	if (!state)
		return;
	limelight_topmost_clear();
	limelight_generation = state->generation;
	/* Generations that a test has assigned are never reused. */
	limelight_last_generation = max(limelight_last_generation, state->last);
	limelight_next_generation = 0;
	static_branch_disable(&limelight_key);
}

static struct mm_struct *fake_mm(struct kunit *test, u64 generation)
{
	struct mm_struct *mm = kunit_kzalloc(test, sizeof(*mm), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, mm);
	mm->limelight_generation = generation;
	return mm;
}

static void core_test_generation_0_has_no_members(struct kunit *test)
{
	struct mm_struct *mm = fake_mm(test, 0);

	limelight_generation = 0;
	KUNIT_EXPECT_FALSE(test, limelight_mm(mm));
	limelight_generation = 7;
	KUNIT_EXPECT_FALSE(test, limelight_mm(mm));
}

static void core_test_only_the_set_in_force_counts(struct kunit *test)
{
	struct mm_struct *mm = fake_mm(test, 7);

	limelight_generation = 7;
	KUNIT_EXPECT_TRUE(test, limelight_mm(mm));
	limelight_generation = 8;
	KUNIT_EXPECT_FALSE(test, limelight_mm(mm));
	limelight_topmost_clear();
	KUNIT_EXPECT_FALSE(test, limelight_mm(mm));
}

static void core_test_a_closed_device_has_no_members(struct kunit *test)
{
	struct mm_struct *mm = fake_mm(test, 7);

	limelight_generation = 7;
	static_branch_disable(&limelight_key);
	KUNIT_EXPECT_FALSE(test, limelight_mm(mm));
	static_branch_enable(&limelight_key);
}

static void core_test_an_empty_set_clears_the_generation(struct kunit *test)
{
	u64 last = limelight_last_generation;

	KUNIT_EXPECT_EQ(test, limelight_topmost_set(NULL, 0), 0);
	KUNIT_EXPECT_EQ(test, limelight_generation, 0);
	KUNIT_EXPECT_EQ(test, limelight_last_generation, last + 1);
}

static void core_test_generations_are_not_used_twice(struct kunit *test)
{
	u64 first, second;

	limelight_topmost_set(NULL, 0);
	first = limelight_last_generation;
	limelight_topmost_clear();
	limelight_topmost_set(NULL, 0);
	second = limelight_last_generation;
	KUNIT_EXPECT_GT(test, second, first);
}

static void core_test_kernel_threads_are_skipped(struct kunit *test)
{
	/* Without an mm there is nothing to stamp. */
	struct task_struct *self = current;

	if (self->mm)
		kunit_skip(test, "does not run in a kernel thread");
	KUNIT_EXPECT_EQ(test, limelight_topmost_set(&self, 1), 0);
	KUNIT_EXPECT_EQ(test, limelight_generation, 0);
}

static void core_test_exec_by_a_kernel_thread_joins_no_set(struct kunit *test)
{
	struct mm_struct *mm = fake_mm(test, 7);

	limelight_generation = 7;
	limelight_mm_init(mm);
	limelight_exec_mmap(mm, NULL);
	KUNIT_EXPECT_FALSE(test, limelight_mm(mm));
}

#ifdef CONFIG_LIMELIGHT_PROTECT
static u64 core_test_generation_at_count;

static void core_test_note_count(void)
{
	core_test_generation_at_count = limelight_generation;
}
#endif

/* A count that runs too early finds the members of the set before. */
static void core_test_memory_is_counted_for_the_new_set(struct kunit *test)
{
#ifdef CONFIG_LIMELIGHT_PROTECT
	struct task_struct *self = current;

	/* Attaches an mm to the test's thread, which makes it eligible. */
	if (!kunit_vm_mmap(test, NULL, 0, PAGE_SIZE, PROT_READ,
			   MAP_ANONYMOUS | MAP_PRIVATE, 0))
		kunit_skip(test, "no user space");
	kunit_activate_static_stub(test, limelight_protect_topmost,
				   core_test_note_count);

	core_test_generation_at_count = 0;
	KUNIT_ASSERT_EQ(test, limelight_topmost_set(&self, 1), 1);
	KUNIT_EXPECT_NE(test, limelight_generation, 0);
	KUNIT_EXPECT_EQ(test, core_test_generation_at_count, limelight_generation);

	limelight_topmost_clear();
	KUNIT_EXPECT_EQ(test, core_test_generation_at_count, 0);
#endif
}

static void core_test_children_of_members_are_members(struct kunit *test)
{
	struct mm_struct *parent = fake_mm(test, 7);
	struct mm_struct *child = fake_mm(test, 0);

	limelight_generation = 7;
	limelight_tag_of(parent);

	limelight_dup_mm(child, parent);

	KUNIT_EXPECT_TRUE(test, limelight_mm(child));
#ifdef CONFIG_LIMELIGHT_PROTECT
	KUNIT_EXPECT_NE(test, parent->limelight_tag, 0);
	KUNIT_EXPECT_EQ(test, child->limelight_tag, parent->limelight_tag);
#endif
}

static void core_test_children_of_other_tasks_are_no_members(struct kunit *test)
{
	struct mm_struct *parent = fake_mm(test, 6);
	struct mm_struct *child = fake_mm(test, 7);

	limelight_generation = 7;
	limelight_tag_of(parent);

	limelight_mm_init(child);
	limelight_dup_mm(child, parent);

	KUNIT_EXPECT_FALSE(test, limelight_mm(child));
#ifdef CONFIG_LIMELIGHT_PROTECT
	KUNIT_EXPECT_EQ(test, child->limelight_tag, 0);
#endif
}

static void core_test_a_child_born_while_stamping_is_a_member(struct kunit *test)
{
	struct mm_struct *parent = fake_mm(test, 8);
	struct mm_struct *child = fake_mm(test, 0);

	limelight_generation = 7;
	limelight_next_generation = 8;
	limelight_tag_of(parent);

	limelight_dup_mm(child, parent);

	limelight_generation = 8;
	limelight_next_generation = 0;
	KUNIT_EXPECT_TRUE(test, limelight_mm(child));
#ifdef CONFIG_LIMELIGHT_PROTECT
	KUNIT_EXPECT_EQ(test, child->limelight_tag, parent->limelight_tag);
#endif
}

/* A terminal starts an app, which may be topmost without it later. */
static void core_test_exec_separates_tags(struct kunit *test)
{
#ifdef CONFIG_LIMELIGHT_PROTECT
	struct mm_struct *terminal = fake_mm(test, 7);
	struct mm_struct *app = fake_mm(test, 7);

	limelight_generation = 7;
	limelight_tag_of(terminal);

	limelight_mm_init(app);
	limelight_exec_mmap(app, terminal);

	KUNIT_EXPECT_TRUE(test, limelight_mm(app));
	KUNIT_EXPECT_NE(test, limelight_tag_of(app), terminal->limelight_tag);
#endif
}

/* exec creates the new mm long before it drops the old one. */
static void core_test_a_set_that_comes_during_exec_counts(struct kunit *test)
{
	struct mm_struct *old = fake_mm(test, 6);
	struct mm_struct *mm = fake_mm(test, 6);

	limelight_generation = 6;
	limelight_mm_init(mm);
	old->limelight_generation = 7;
	limelight_generation = 7;
	limelight_exec_mmap(mm, old);
	KUNIT_EXPECT_TRUE(test, limelight_mm(mm));

	/* A set that is replaced during exec does not count. */
	mm->limelight_generation = 0;
	limelight_mm_init(mm);
	limelight_generation = 8;
	limelight_exec_mmap(mm, old);
	KUNIT_EXPECT_FALSE(test, limelight_mm(mm));
}

/* Small batches visit all processes, too. */
static void core_test_usage_is_summed_up_in_batches(struct kunit *test)
{
	struct limelight_usage usage = {};
	unsigned int batches = 1, pids = 0;
	struct task_struct *process, *thread;
	int pid = 1;

	rcu_read_lock();
	for_each_process_thread(process, thread)
		pids++;
	rcu_read_unlock();

	while (usage_add_processes(&usage, &pid, 3))
		batches++;
	/* Kernel threads come and go meanwhile; none is a member. */
	KUNIT_EXPECT_GE(test, batches, pids / 6);
	KUNIT_EXPECT_GT(test, pid, 2);
	KUNIT_EXPECT_EQ(test, usage.members, 0);
	/* No pid follows the last one. */
	KUNIT_EXPECT_FALSE(test, usage_add_processes(&usage, &pid, 3));
}

static void fake_zone(struct zone *zone, unsigned long managed,
		      unsigned long free, unsigned long high,
		      unsigned long reserve)
{
	atomic_long_set(&zone->managed_pages, managed);
	atomic_long_set(&zone->vm_stat[NR_FREE_PAGES], free);
	zone->_watermark[WMARK_MIN] = high / 4;
	zone->_watermark[WMARK_LOW] = high / 2;
	zone->_watermark[WMARK_HIGH] = high;
	zone->lowmem_reserve[gfp_zone(GFP_HIGHUSER_MOVABLE)] = reserve;
}

static void core_test_room_leaves_the_reserves_of_low_zones(struct kunit *test)
{
	struct pglist_data *node = vzalloc(sizeof(*node));
	struct zone *zones = node ? node->node_zones : NULL;

	KUNIT_ASSERT_NOT_NULL(test, node);
	/* A PC, with low memory that user space cannot allocate. */
	fake_zone(&zones[0], 4000, 3900, 30, 14000);
	fake_zone(&zones[1], 700000, 13000, 1000, 12500);
	KUNIT_EXPECT_EQ(test, limelight_node_room(node), 0);
	/* Memory above the reserve can be allocated. */
	fake_zone(&zones[1], 700000, 20000, 1000, 12500);
	KUNIT_EXPECT_EQ(test, limelight_node_room(node), 6500);
	/* Without higher zones there is no reserve. */
	fake_zone(&zones[1], 700000, 20000, 1000, 0);
	KUNIT_EXPECT_EQ(test, limelight_node_room(node), 19000);
	vfree(node);
}

/* Free memory between the watermarks is room for faults only. */
static void core_test_faults_have_room_between_the_watermarks(struct kunit *test)
{
	struct pglist_data *node = vzalloc(sizeof(*node));
	struct zone *zone = node ? node->node_zones : NULL;

	KUNIT_ASSERT_NOT_NULL(test, node);
	fake_zone(zone, 700000, 900, 1000, 100);
	KUNIT_EXPECT_EQ(test, limelight_node_room(node), 0);
	KUNIT_EXPECT_EQ(test, limelight_node_fault_room(node), 300);
	fake_zone(zone, 700000, 600, 1000, 100);
	KUNIT_EXPECT_EQ(test, limelight_node_fault_room(node), 0);
	KUNIT_EXPECT_EQ(test, limelight_node_min_room(node), 250);
	vfree(node);
}

/*
 * While fragmentation boosts the watermarks, as in zone_watermark_fast(): the boost does
 * not count for allocations that can take memory down to the min watermarks.
 */
static void core_test_boost_leaves_room_above_the_min_watermarks(struct kunit *test)
{
	struct pglist_data *node = vzalloc(sizeof(*node));
	struct zone *zone = node ? node->node_zones : NULL;

	KUNIT_ASSERT_NOT_NULL(test, node);
	fake_zone(zone, 700000, 900, 1000, 100);
	zone->watermark_boost = 1000;
	KUNIT_EXPECT_EQ(test, limelight_node_fault_room(node), 0);
	KUNIT_EXPECT_EQ(test, limelight_node_min_room(node), 550);
	vfree(node);
}

static void core_test_dirty_pages_are_not_clean_cache(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, clean_pages(1000, 0, 0), 1000);
	KUNIT_EXPECT_EQ(test, clean_pages(1000, 300, 200), 500);
	/* Active pages and shared memory may be dirty, too. */
	KUNIT_EXPECT_EQ(test, clean_pages(1000, 300, 2000), 0);
}

static struct kunit_case core_test_cases[] = {
	KUNIT_CASE(core_test_generation_0_has_no_members),
	KUNIT_CASE(core_test_only_the_set_in_force_counts),
	KUNIT_CASE(core_test_a_closed_device_has_no_members),
	KUNIT_CASE(core_test_an_empty_set_clears_the_generation),
	KUNIT_CASE(core_test_generations_are_not_used_twice),
	KUNIT_CASE(core_test_kernel_threads_are_skipped),
	KUNIT_CASE(core_test_exec_by_a_kernel_thread_joins_no_set),
	KUNIT_CASE(core_test_memory_is_counted_for_the_new_set),
	KUNIT_CASE(core_test_children_of_members_are_members),
	KUNIT_CASE(core_test_children_of_other_tasks_are_no_members),
	KUNIT_CASE(core_test_a_child_born_while_stamping_is_a_member),
	KUNIT_CASE(core_test_exec_separates_tags),
	KUNIT_CASE(core_test_a_set_that_comes_during_exec_counts),
	KUNIT_CASE(core_test_usage_is_summed_up_in_batches),
	KUNIT_CASE(core_test_room_leaves_the_reserves_of_low_zones),
	KUNIT_CASE(core_test_faults_have_room_between_the_watermarks),
	KUNIT_CASE(core_test_boost_leaves_room_above_the_min_watermarks),
	KUNIT_CASE(core_test_dirty_pages_are_not_clean_cache),
	{}
};

static struct kunit_suite core_test_suite = {
	.name = "limelight-core",
	.init = core_test_init,
	.exit = core_test_exit,
	.test_cases = core_test_cases,
};

kunit_test_suite(core_test_suite);
