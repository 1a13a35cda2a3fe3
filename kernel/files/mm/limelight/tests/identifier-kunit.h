/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tests of the tags of processes and pages. Included by identifier.c.
 */
#include <kunit/test.h>
#include <linux/gfp.h>

static void identifier_test_set_is_sorted_and_unique(struct kunit *test)
{
	static const u32 in[] = { 9, 3, 9, 1, U32_MAX, 3, 3 };
	static const u32 out[] = { 1, 3, 9, U32_MAX };
	struct limelight_tags *tags = limelight_tags_alloc(ARRAY_SIZE(in), 7);
	int i;

	KUNIT_ASSERT_NOT_NULL(test, tags);
	for (i = 0; i < ARRAY_SIZE(in); i++)
		limelight_tags_add(tags, in[i]);
	limelight_tags_finish(tags);

	KUNIT_EXPECT_EQ(test, tags->nr, ARRAY_SIZE(out));
	for (i = 0; i < ARRAY_SIZE(out); i++)
		KUNIT_EXPECT_EQ(test, tags->tag[i], out[i]);
	kvfree(tags);
}

static void identifier_test_set_finds_what_is_in_it(struct kunit *test)
{
	unsigned int nr;

	for (nr = 0; nr <= 9; nr++) {
		struct limelight_tags *tags = limelight_tags_alloc(nr, 7);
		unsigned int i;

		KUNIT_ASSERT_NOT_NULL(test, tags);
		for (i = 0; i < nr; i++)
			limelight_tags_add(tags, 10 * (nr - i));
		limelight_tags_finish(tags);

		for (i = 0; i <= 10 * nr + 10; i++)
			KUNIT_EXPECT_EQ_MSG(test, limelight_tags_has(tags, i),
					    i && i % 10 == 0 && i <= 10 * nr,
					    "tag %u of %u", i, nr);
		kvfree(tags);
	}
}

static void identifier_test_an_mm_keeps_its_tag(struct kunit *test)
{
	struct mm_struct *one = kunit_kzalloc(test, sizeof(*one), GFP_KERNEL);
	struct mm_struct *two = kunit_kzalloc(test, sizeof(*two), GFP_KERNEL);
	u32 tag;

	KUNIT_ASSERT_NOT_NULL(test, one);
	KUNIT_ASSERT_NOT_NULL(test, two);

	tag = limelight_tag_of(one);
	KUNIT_EXPECT_NE(test, tag, 0);
	KUNIT_EXPECT_EQ(test, limelight_tag_of(one), tag);
	KUNIT_EXPECT_NE(test, limelight_tag_of(two), tag);

	limelight_tag_inherit(two, one);
	KUNIT_EXPECT_EQ(test, limelight_tag_of(two), tag);
	limelight_tag_inherit(two, NULL);
	KUNIT_EXPECT_NE(test, limelight_tag_of(two), tag);
}

/* Allocates the table unless a daemon is using it. */
static int identifier_test_init(struct kunit *test)
{
	if (limelight_protecting())
		kunit_skip(test, "protect is switched on");
	return limelight_identifier_start();
}

static void identifier_test_exit(struct kunit *test)
{
	if (!limelight_protecting())
		limelight_identifier_stop();
}

static struct folio *test_folio(struct kunit *test, unsigned int order)
{
	struct folio *folio = folio_alloc(GFP_KERNEL, order);

	KUNIT_ASSERT_NOT_NULL(test, folio);
	return folio;
}

static void identifier_test_every_page_has_a_place(struct kunit *test)
{
	unsigned long pfn;

	rcu_read_lock();
	for (pfn = 0; pfn < max_pfn; pfn += CHUNK_PAGES / 4) {
		struct page *page = pfn_to_online_page(pfn);

		if (page && !PageReserved(page))
			KUNIT_EXPECT_NOT_NULL(test, tags_at(pfn));
	}
	rcu_read_unlock();
}

static void identifier_test_a_tag_is_set_and_replaced(struct kunit *test)
{
	struct folio *folio = test_folio(test, 0);

	write_tag(folio, 0);
	KUNIT_EXPECT_EQ(test, read_tag(folio), 0);
	write_tag(folio, 77);
	KUNIT_EXPECT_EQ(test, read_tag(folio), 77);
	write_tag(folio, 0);
	KUNIT_EXPECT_EQ(test, read_tag(folio), 0);
	folio_put(folio);
}

static void identifier_test_every_page_of_a_large_folio_is_tagged(struct kunit *test)
{
	struct folio *folio = test_folio(test, 3);
	unsigned long pfn = folio_pfn(folio);
	unsigned long i;

	write_tag(folio, 77);
	rcu_read_lock();
	for (i = 0; i < 8; i++)
		KUNIT_EXPECT_EQ(test, *tags_at(pfn + i), 77);
	rcu_read_unlock();

	write_tag(folio, 0);
	rcu_read_lock();
	for (i = 0; i < 8; i++)
		KUNIT_EXPECT_EQ(test, *tags_at(pfn + i), 0);
	rcu_read_unlock();
	folio_put(folio);
}

static void identifier_test_a_tag_moves(struct kunit *test)
{
	struct folio *from = test_folio(test, 0);
	struct folio *to = test_folio(test, 2);

	write_tag(from, 77);
	write_tag(to, 0);
	__limelight_cache_move(to, from);
	KUNIT_EXPECT_EQ(test, read_tag(to), 77);

	/* An older tag of the target is overwritten. */
	write_tag(from, 0);
	__limelight_cache_move(to, from);
	KUNIT_EXPECT_EQ(test, read_tag(to), 0);
	folio_put(from);
	folio_put(to);
}

/* Each further write would be one of 512 tags. */
static void identifier_test_a_collapse_writes_one_tag_once(struct kunit *test)
{
	struct folio *first = test_folio(test, 0);
	struct folio *second = test_folio(test, 0);
	struct folio *to = test_folio(test, 1);
	LIST_HEAD(old);
	u32 tags[2];

	list_add_tail(&first->lru, &old);
	list_add_tail(&second->lru, &old);
	write_tag(first, 77);
	write_tag(second, 78);
	write_tag(to, 79);
	__limelight_cache_collapse(to, &old);

	rcu_read_lock();
	tags[0] = *tags_at(folio_pfn(to));
	tags[1] = *tags_at(folio_pfn(to) + 1);
	rcu_read_unlock();
	KUNIT_EXPECT_EQ(test, tags[0], 77);
	KUNIT_EXPECT_EQ(test, tags[1], 77);
	folio_put(first);
	folio_put(second);
	folio_put(to);
}

/* A huge page of hugetlbfs is never reclaimed, and may be larger than a chunk. */
static void identifier_test_hugetlb_folios_have_no_tag(struct kunit *test)
{
	struct folio *from = test_folio(test, 0);
	struct folio *to = test_folio(test, 2);

	if (!IS_ENABLED(CONFIG_HUGETLB_PAGE)) {
		folio_put(from);
		folio_put(to);
		kunit_skip(test, "no hugetlb");
	}
	write_tag(from, 77);
	write_tag(to, 0);
#ifdef CONFIG_HUGETLB_PAGE
	__folio_set_hugetlb(to);
	__limelight_cache_move(to, from);
	__folio_clear_hugetlb(to);
#endif
	KUNIT_EXPECT_EQ(test, read_tag(to), 0);
	folio_put(from);
	folio_put(to);
}

static void identifier_test_a_range_may_end_in_another_chunk(struct kunit *test)
{
	struct tag_table *all;
	u32 *last, *first;

	rcu_read_lock();
	all = rcu_dereference(table);
	if (all->nr < 2 || !all->chunk[0] || !all->chunk[1]) {
		rcu_read_unlock();
		kunit_skip(test, "memory fits into one chunk");
	}
	last = &all->chunk[0][CHUNK_PAGES - 2];
	first = all->chunk[1];
	write_tags(CHUNK_PAGES - 2, 5, 77);
	KUNIT_EXPECT_EQ(test, last[-1], 0);
	KUNIT_EXPECT_EQ(test, last[0], 77);
	KUNIT_EXPECT_EQ(test, last[1], 77);
	KUNIT_EXPECT_EQ(test, first[0], 77);
	KUNIT_EXPECT_EQ(test, first[2], 77);
	KUNIT_EXPECT_EQ(test, first[3], 0);

	/* Tags of memory beyond the table are ignored. */
	write_tags(all->nr << CHUNK_SHIFT, 5, 77);
	write_tags((all->nr << CHUNK_SHIFT) - 1, CHUNK_PAGES + 2, 0);
	rcu_read_unlock();
}

static void identifier_test_only_tags_of_the_set_protect(struct kunit *test)
{
	struct folio *folio = test_folio(test, 0);
	struct limelight_tags *tags = limelight_tags_alloc(1, 7);

	KUNIT_ASSERT_NOT_NULL(test, tags);
	limelight_tags_add(tags, 77);
	limelight_tags_publish(tags);

	write_tag(folio, 0);
	KUNIT_EXPECT_FALSE(test, limelight_folio_tagged(folio));
	write_tag(folio, 78);
	KUNIT_EXPECT_FALSE(test, limelight_folio_tagged(folio));
	write_tag(folio, 77);
	KUNIT_EXPECT_TRUE(test, limelight_folio_tagged(folio));

	limelight_tags_publish(NULL);
	KUNIT_EXPECT_FALSE(test, limelight_folio_tagged(folio));
	write_tag(folio, 0);
	folio_put(folio);
}

/* Whether a page with that tag belongs to the topmost app. */
static bool tag_protects(struct folio *folio, u32 tag)
{
	write_tag(folio, tag);
	return limelight_folio_tagged(folio);
}

static void identifier_test_exec_by_a_member_joins_the_set(struct kunit *test)
{
	struct folio *folio = test_folio(test, 0);
	struct limelight_tags *tags = limelight_tags_alloc(1, 7);
	u32 tag;

	KUNIT_ASSERT_NOT_NULL(test, tags);
	limelight_tags_add(tags, 77);
	limelight_tags_publish(tags);

	KUNIT_EXPECT_FALSE(test, tag_protects(folio, 100));
	limelight_tags_join(100, 7);
	KUNIT_EXPECT_TRUE(test, tag_protects(folio, 100));
	KUNIT_EXPECT_TRUE(test, tag_protects(folio, 77));
	/* A program executed by a member of another set does not join. */
	limelight_tags_join(99, 6);
	KUNIT_EXPECT_FALSE(test, tag_protects(folio, 99));

	/* A compilation executes thousands of programs; only the last ones count. */
	for (tag = 101; tag <= 100 + LIMELIGHT_TAGS_JOINED; tag++)
		limelight_tags_join(tag, 7);
	KUNIT_EXPECT_FALSE(test, tag_protects(folio, 100));
	KUNIT_EXPECT_TRUE(test, tag_protects(folio, 101));
	KUNIT_EXPECT_TRUE(test, tag_protects(folio, tag - 1));
	KUNIT_EXPECT_TRUE(test, tag_protects(folio, 77));

	limelight_tags_publish(NULL);
	limelight_tags_join(100, 7);
	KUNIT_EXPECT_FALSE(test, tag_protects(folio, 100));
	write_tag(folio, 0);
	folio_put(folio);
}

/* A page that is kept because of its tag counts, whichever process maps it. */
static void identifier_test_mapped_anonymous_pages_count(struct kunit *test)
{
	struct folio *folio = test_folio(test, 0);
	struct limelight_tagged tagged = {};

	tag_count_folio(folio, &tagged);
	KUNIT_EXPECT_EQ(test, tagged.anon + tagged.cached, 0);
	atomic_set(&folio->_mapcount, 0);
	tag_count_folio(folio, &tagged);
	KUNIT_EXPECT_EQ(test, tagged.anon + tagged.cached, 0);
	folio->mapping = (void *)FOLIO_MAPPING_ANON;
	tag_count_folio(folio, &tagged);
	KUNIT_EXPECT_EQ(test, tagged.anon, 1);
	KUNIT_EXPECT_EQ(test, tagged.cached, 0);
	folio->mapping = NULL;
	atomic_set(&folio->_mapcount, -1);
	folio_put(folio);
}

static void identifier_test_mapped_files_need_confirmation(struct kunit *test)
{
	struct folio *folio = test_folio(test, 0);
	struct limelight_tags *tags = limelight_tags_alloc(1, 7);

	KUNIT_ASSERT_NOT_NULL(test, tags);
	limelight_tags_add(tags, 77);
	limelight_tags_publish(tags);

	/* Unmapped: the budget for cached pages decides. */
	write_tag(folio, 77);
	KUNIT_EXPECT_TRUE(test, limelight_folio_known(folio, true));
	KUNIT_EXPECT_FALSE(test, limelight_folio_known(folio, false));

	/* Mapped by any process. */
	atomic_set(&folio->_mapcount, 0);
	KUNIT_EXPECT_FALSE(test, limelight_folio_known(folio, true));
	write_tag(folio, 77 | TAG_CONFIRMED);
	KUNIT_EXPECT_TRUE(test, limelight_folio_known(folio, true));
	KUNIT_EXPECT_TRUE(test, limelight_folio_tagged(folio));
	write_tag(folio, 78 | TAG_CONFIRMED);
	KUNIT_EXPECT_FALSE(test, limelight_folio_known(folio, true));
	atomic_set(&folio->_mapcount, -1);

	limelight_tags_publish(NULL);
	write_tag(folio, 0);
	folio_put(folio);
}

static void identifier_test_a_new_owner_replaces_the_tag(struct kunit *test)
{
	struct mm_struct *mm = kunit_kzalloc(test, sizeof(*mm), GFP_KERNEL);
	struct folio *folio = test_folio(test, 0);

	KUNIT_ASSERT_NOT_NULL(test, mm);
	mm->limelight_tag = 78;
	limelight_folio_confirm(folio, 77);
	__limelight_anon_add(folio, mm);
	KUNIT_EXPECT_EQ(test, read_tag(folio), 78);

	/* Kernel threads have no tag. */
	KUNIT_ASSERT_NULL(test, current->mm);
	limelight_folio_confirm(folio, 77);
	__limelight_cache_add(folio);
	KUNIT_EXPECT_EQ(test, read_tag(folio), 0);
	folio_put(folio);
}

static void identifier_test_without_a_table_no_page_is_tagged(struct kunit *test)
{
	struct folio *folio = test_folio(test, 0);

	write_tag(folio, 77);
	limelight_identifier_stop();
	KUNIT_EXPECT_EQ(test, read_tag(folio), 0);
	write_tag(folio, 77);
	KUNIT_EXPECT_EQ(test, read_tag(folio), 0);
	folio_put(folio);
}

static struct kunit_case identifier_test_cases[] = {
	KUNIT_CASE(identifier_test_set_is_sorted_and_unique),
	KUNIT_CASE(identifier_test_set_finds_what_is_in_it),
	KUNIT_CASE(identifier_test_an_mm_keeps_its_tag),
	KUNIT_CASE(identifier_test_every_page_has_a_place),
	KUNIT_CASE(identifier_test_a_tag_is_set_and_replaced),
	KUNIT_CASE(identifier_test_every_page_of_a_large_folio_is_tagged),
	KUNIT_CASE(identifier_test_a_tag_moves),
	KUNIT_CASE(identifier_test_a_collapse_writes_one_tag_once),
	KUNIT_CASE(identifier_test_hugetlb_folios_have_no_tag),
	KUNIT_CASE(identifier_test_a_range_may_end_in_another_chunk),
	KUNIT_CASE(identifier_test_only_tags_of_the_set_protect),
	KUNIT_CASE(identifier_test_exec_by_a_member_joins_the_set),
	KUNIT_CASE(identifier_test_mapped_anonymous_pages_count),
	KUNIT_CASE(identifier_test_mapped_files_need_confirmation),
	KUNIT_CASE(identifier_test_a_new_owner_replaces_the_tag),
	KUNIT_CASE(identifier_test_without_a_table_no_page_is_tagged),
	{}
};

static struct kunit_suite identifier_test_suite = {
	.name = "limelight-identifier",
	.init = identifier_test_init,
	.exit = identifier_test_exit,
	.test_cases = identifier_test_cases,
};

kunit_test_suite(identifier_test_suite);
