// SPDX-License-Identifier: GPL-2.0-only
/*
 * Limelight page identifiers: a tag per page that names the app it belongs to.
 *
 * Page tables show which processes map a page, at the cost of an rmap walk. They do
 * not show which process has read() a page. So each page has a tag, a u32 in a table
 * beside struct page that exists while protect is enabled (vmalloc'ed in chunks of a
 * memory section; 4 bytes per page, 0.1 % of memory).
 *
 * Each mm gets a tag when it first brings in a page. A child forked by a member of
 * the topmost set shares its parent's tag, because it shares the pages. All other
 * processes get a tag of their own. So does each executed program, because it may be
 * topmost without its parent. A tag is
 *
 *   - recorded when a folio enters the page cache, and for new anonymous memory,
 *     for every process: its app may become topmost later;
 *   - replaced when a member of the topmost app uses a folio of the page cache.
 *     Background processes do not replace tags, so an app finds its pages still
 *     tagged when it becomes topmost again;
 *   - copied when the folio is migrated, replaced or collapsed. Each page of a large
 *     folio carries the tag, so a split needs no hook;
 *   - not cleared on free; every later user overwrites it. (Swap read-ahead is not
 *     tagged until it is mapped.)
 *
 * SET_TOPMOST collects the tags of the members in a sorted array. The tags of the
 * last 32 programs that members execute afterwards are added. A tag is a hint: for
 * earlier programs the page tables decide. A folio belongs to the topmost app if the
 * tag of its first page is in the array. That is sufficient for anonymous memory and
 * for unmapped folios. A mapped file folio must first be found in the app's page
 * tables, because the app may only stream through it. It is then marked
 * (TAG_CONFIRMED), and needs no further rmap walk.
 *
 * Locking: RCU protects the table. Tags are plain words. Insertion and migration
 * write them under the folio lock, a collapse under the lock of the old folio, and a
 * touch with only a reference. So a touch may tag a folio that has just left the page
 * cache, but not the next user of the page.
 */
#include <linux/atomic.h>
#include <linux/limelight.h>
#include <linux/memblock.h>
#include <linux/memory.h>
#include <linux/memory_hotplug.h>
#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/mutex.h>
#include <linux/pagemap.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/vmalloc.h>

#include "internal.h"

/* One chunk per memory section, the unit of hotplug. */
#ifdef CONFIG_SPARSEMEM
#define CHUNK_SHIFT	PFN_SECTION_SHIFT
#else
#define CHUNK_SHIFT	(MAX_PAGE_ORDER > 15 ? MAX_PAGE_ORDER : 15)
#endif
#define CHUNK_PAGES	BIT(CHUNK_SHIFT)

/* Flag in a tag: a member of its app has an ordinary mapping of the folio. */
#define TAG_CONFIRMED	BIT(31)

/*
 * struct tag_table - the tags of all pages
 * @nr: entries of @chunk, enough for all memory that may be plugged in
 * @chunk: for each chunk that holds memory a u32[CHUNK_PAGES], else NULL
 */
struct tag_table {
	unsigned long nr;
	u32 *chunk[] __counted_by(nr);
};

/* NULL while protect is off. */
static struct tag_table __rcu *table;
/* Serializes adding and freeing chunks, and the count of tags. */
static DEFINE_MUTEX(chunks_lock);

/* The tags of the topmost app. */
static struct limelight_tags __rcu *topmost_tags;
/* Serializes their writers: SET_TOPMOST and exec. */
static DEFINE_SPINLOCK(topmost_lock);

/*
 * Bloom filter of topmost_tags, by tag modulo BITS_PER_LONG. Reclaim tests every
 * folio, and for most folios of other apps this word is enough.
 */
static unsigned long topmost_filter;

/* ------------------------------------------------------------- tags of mms */

/* Returns the tag of @mm. The first call assigns it. */
u32 limelight_tag_of(struct mm_struct *mm)
{
	static atomic_t last = ATOMIC_INIT(0);
	u32 tag = READ_ONCE(mm->limelight_tag);
	u32 fresh;

	if (likely(tag))
		return tag;

	/* 0 means no tag. After 2^31 tags two mms may share one: harmless. */
	do {
		fresh = atomic_inc_return(&last) & ~TAG_CONFIRMED;
	} while (!fresh);
	tag = cmpxchg(&mm->limelight_tag, 0, fresh);
	return tag ?: fresh;
}

/* Sets the tag of @mm, which is new. @parent: the member that forks it, or NULL. */
void limelight_tag_inherit(struct mm_struct *mm, const struct mm_struct *parent)
{
	mm->limelight_tag = parent ? READ_ONCE(parent->limelight_tag) : 0;
}

/* ------------------------------------------------- the set of topmost tags */

/* Allocates room for @nr tags of the topmost set @generation. */
struct limelight_tags *limelight_tags_alloc(unsigned int nr, u64 generation)
{
	struct limelight_tags *tags;

	tags = kvzalloc(struct_size(tags, tag, nr), GFP_KERNEL);
	if (tags)
		tags->generation = generation;
	return tags;
}

/* Adds a tag, in any order. The caller ensures that there is room. */
void limelight_tags_add(struct limelight_tags *tags, u32 tag)
{
	tags->nr++;
	tags->tag[tags->nr - 1] = tag;
}

static int compare_tags(const void *a, const void *b)
{
	u32 x = *(const u32 *)a;
	u32 y = *(const u32 *)b;

	return x < y ? -1 : x > y;
}

/* Sorts the tags and drops duplicates, after the last limelight_tags_add(). */
void limelight_tags_finish(struct limelight_tags *tags)
{
	unsigned int i, nr = 0;

	sort(tags->tag, tags->nr, sizeof(tags->tag[0]), compare_tags, NULL);
	for (i = 0; i < tags->nr; i++) {
		if (!nr || tags->tag[nr - 1] != tags->tag[i])
			tags->tag[nr++] = tags->tag[i];
	}
	tags->nr = nr;
}

bool limelight_tags_has(const struct limelight_tags *tags, u32 tag)
{
	unsigned int low = 0;
	unsigned int high = tags->nr;

	while (low < high) {
		unsigned int middle = low + (high - low) / 2;

		if (tags->tag[middle] == tag)
			return true;
		if (tags->tag[middle] < tag)
			low = middle + 1;
		else
			high = middle;
	}
	for (low = 0; low < LIMELIGHT_TAGS_JOINED; low++) {
		u32 joined = READ_ONCE(tags->joined[low]);

		if (!joined)
			break;
		if (joined == tag)
			return true;
	}
	return false;
}

static unsigned long tag_bit(u32 tag)
{
	return BIT(tag % BITS_PER_LONG);
}

static unsigned long filter_of(const struct limelight_tags *tags)
{
	unsigned long filter = 0;
	unsigned int i;

	for (i = 0; i < tags->nr; i++)
		filter |= tag_bit(tags->tag[i]);
	for (i = 0; i < LIMELIGHT_TAGS_JOINED && tags->joined[i]; i++)
		filter |= tag_bit(tags->joined[i]);
	return filter;
}

/* Publishes @tags and takes ownership of them; NULL: the topmost set is empty. */
void limelight_tags_publish(struct limelight_tags *tags)
{
	struct limelight_tags *old;

	if (tags)
		limelight_tags_finish(tags);
	spin_lock(&topmost_lock);
	/* Between the two stores a folio may seem untagged: harmless. */
	WRITE_ONCE(topmost_filter, tags ? filter_of(tags) : 0);
	old = rcu_replace_pointer(topmost_tags, tags,
				  lockdep_is_held(&topmost_lock));
	spin_unlock(&topmost_lock);
	if (old)
		kvfree_rcu(old, rcu);
}

/*
 * Adds @tag, the tag of a program that a member of the topmost set @generation
 * executes. It replaces the oldest one if there are LIMELIGHT_TAGS_JOINED already:
 * a terminal may run many scripts and compilers. A no-op if another set is published.
 */
void limelight_tags_join(u32 tag, u64 generation)
{
	struct limelight_tags *tags;

	spin_lock(&topmost_lock);
	tags = rcu_dereference_protected(topmost_tags,
					 lockdep_is_held(&topmost_lock));
	if (tags && tags->generation == generation) {
		WRITE_ONCE(tags->joined[tags->next], tag);
		tags->next = (tags->next + 1) % LIMELIGHT_TAGS_JOINED;
		WRITE_ONCE(topmost_filter, filter_of(tags));
	}
	spin_unlock(&topmost_lock);
}

static __always_inline bool tag_is_topmost(u32 tag)
{
	const struct limelight_tags *tags;
	bool topmost;

	if (!tag || likely(!(READ_ONCE(topmost_filter) & tag_bit(tag))))
		return false;
	rcu_read_lock();
	tags = rcu_dereference(topmost_tags);
	topmost = tags && limelight_tags_has(tags, tag);
	rcu_read_unlock();
	return topmost;
}

/* ----------------------------------------------------------- tags of pages */

/* Returns the tag at @pfn, or NULL. The caller is in an RCU read section. */
static __always_inline u32 *tags_at(unsigned long pfn)
{
	struct tag_table *all = rcu_dereference(table);
	unsigned long index = pfn >> CHUNK_SHIFT;
	u32 *tags;

	if (!all || index >= all->nr)
		return NULL;
	tags = READ_ONCE(all->chunk[index]);
	return tags ? tags + (pfn & (CHUNK_PAGES - 1)) : NULL;
}

static __always_inline u32 read_tag(struct folio *folio)
{
	const u32 *at;
	u32 tag;

	rcu_read_lock();
	at = tags_at(folio_pfn(folio));
	tag = at ? READ_ONCE(*at) : 0;
	rcu_read_unlock();
	return tag;
}

/* Tags a range, which may span chunks. The caller is in an RCU read section. */
static void write_tags(unsigned long pfn, unsigned long nr, u32 tag)
{
	while (nr) {
		unsigned long part = min(nr, CHUNK_PAGES - (pfn & (CHUNK_PAGES - 1)));
		u32 *at = tags_at(pfn);

		if (at)
			memset32(at, tag, part);
		pfn += part;
		nr -= part;
	}
}

static __always_inline void write_tag(struct folio *folio, u32 tag)
{
	u32 *at;

	rcu_read_lock();
	if (unlikely(folio_test_large(folio))) {
		/* hugetlb folios are never reclaimed, and up to 16 GiB large. */
		if (!folio_test_hugetlb(folio))
			write_tags(folio_pfn(folio), folio_nr_pages(folio), tag);
	} else {
		at = tags_at(folio_pfn(folio));
		if (at)
			WRITE_ONCE(*at, tag);
	}
	rcu_read_unlock();
}

void __limelight_anon_add(struct folio *folio, struct mm_struct *mm)
{
	write_tag(folio, limelight_tag_of(mm));
}

void __limelight_cache_add(struct folio *folio)
{
	write_tag(folio, current->mm ? limelight_tag_of(current->mm) : 0);
}

void __limelight_cache_touch(struct folio *folio)
{
	u32 tag;

	if (!current->mm || !limelight_mm(current->mm) ||
	    folio_test_anon(folio))
		return;
	tag = limelight_tag_of(current->mm);
	if ((read_tag(folio) & ~TAG_CONFIRMED) != tag)
		write_tag(folio, tag);
}

void __limelight_cache_move(struct folio *to, struct folio *from)
{
	write_tag(to, read_tag(from));
}

/*
 * Any tag of the old folios will do. That of the first one is written, once: a huge
 * page has as many tags to write as there may be old folios.
 */
void __limelight_cache_collapse(struct folio *to, struct list_head *old)
{
	__limelight_cache_move(to, list_first_entry(old, struct folio, lru));
}

/* Tags @folio, which reclaim has found mapped by a member with tag @tag. */
void limelight_folio_confirm(struct folio *folio, u32 tag)
{
	tag |= TAG_CONFIRMED;
	if (read_tag(folio) != tag)
		write_tag(folio, tag);
}

/* Whether the topmost app brought @folio in or has used it. */
bool limelight_folio_tagged(struct folio *folio)
{
	return tag_is_topmost(read_tag(folio) & ~TAG_CONFIRMED);
}

/*
 * Whether @folio is known to be the topmost app's without an rmap walk. @cached:
 * include unmapped folios. Takes no lock and no reference.
 */
bool limelight_folio_known(struct folio *folio, bool cached)
{
	u32 tag = read_tag(folio);

	if (!tag || !tag_is_topmost(tag & ~TAG_CONFIRMED))
		return false;
	if (folio_test_anon(folio))
		return folio_test_swapbacked(folio);
	/* Swap read-ahead is not tagged until it is mapped. */
	if (folio_test_swapcache(folio))
		return false;
	return folio_mapped(folio) ? tag & TAG_CONFIRMED : cached;
}

/* --------------------------------------------------------------- the table */

/* Returns the table. The caller holds chunks_lock. */
static struct tag_table *tag_table_locked(void)
{
	return rcu_dereference_protected(table, lockdep_is_held(&chunks_lock));
}

/* Allocates the chunks of a range, for walk_system_ram_range(). */
static int tag_add_chunks(unsigned long start_pfn, unsigned long nr_pages, void *arg)
{
	unsigned long last = (start_pfn + nr_pages - 1) >> CHUNK_SHIFT;
	struct tag_table *all = arg;
	unsigned long index;

	for (index = start_pfn >> CHUNK_SHIFT; index <= last; index++) {
		u32 *tags;

		/* Memory beyond the possible maximum known at boot has no tags. */
		if (index >= all->nr || all->chunk[index])
			continue;
		tags = vzalloc(array_size(CHUNK_PAGES, sizeof(*tags)));
		if (!tags)
			return -ENOMEM;
		WRITE_ONCE(all->chunk[index], tags);
	}
	return 0;
}

/* Frees @all, which readers cannot reach. */
static void tag_free_table(struct tag_table *all)
{
	unsigned long index;

	for (index = 0; index < all->nr; index++)
		vfree(all->chunk[index]);
	kvfree(all);
}

/* Allocates the table, with all tags 0. The static key is still off. */
int limelight_identifier_start(void)
{
	unsigned long pfns = max_t(u64, max_pfn, max_possible_pfn);
	unsigned long nr = DIV_ROUND_UP(pfns, CHUNK_PAGES);
	struct tag_table *all;
	int ret;

	all = kvzalloc(struct_size(all, chunk, nr), GFP_KERNEL);
	if (!all)
		return -ENOMEM;
	all->nr = nr;

	mutex_lock(&chunks_lock);
	ret = walk_system_ram_range(0, max_pfn, all, tag_add_chunks);
	if (ret)
		tag_free_table(all);
	else
		rcu_assign_pointer(table, all);
	mutex_unlock(&chunks_lock);
	return ret;
}

/* Frees the table. The static key is already off. */
void limelight_identifier_stop(void)
{
	struct tag_table *all;

	mutex_lock(&chunks_lock);
	all = rcu_replace_pointer(table, NULL, lockdep_is_held(&chunks_lock));
	mutex_unlock(&chunks_lock);
	if (all) {
		synchronize_rcu();
		tag_free_table(all);
	}
}

/* Counts @folio, which has a topmost tag. The caller holds a reference. */
static void tag_count_folio(struct folio *folio, struct limelight_tagged *tagged)
{
	if (!folio_mapped(folio)) {
		if (folio_mapping(folio))
			tagged->cached += folio_nr_pages(folio);
	} else if (folio_test_anon(folio)) {
		tagged->anon += folio_nr_pages(folio);
	}
}

/* Counts the folio that begins at @pfn and has a topmost tag, if there is one. */
static void tag_count_page(unsigned long pfn, struct limelight_tagged *tagged)
{
	struct page *page = pfn_to_online_page(pfn);
	struct folio *folio;

	if (!page)
		return;
	/* A large folio is counted at its first page. */
	folio = page_folio(page);
	if (folio_pfn(folio) != pfn || !folio_test_lru(folio) ||
	    !folio_try_get(folio))
		return;
	/* The page may have joined another folio before the reference was taken. */
	if (page_folio(page) == folio)
		tag_count_folio(folio, tagged);
	folio_put(folio);
}

/* Counts the pages that have a topmost tag. May sleep. */
void limelight_identifier_count(struct limelight_tagged *tagged)
{
	u32 last = 0;
	bool last_is_topmost = false;
	struct tag_table *all;
	unsigned long index;

	*tagged = (struct limelight_tagged) {};
	mutex_lock(&chunks_lock);
	all = tag_table_locked();
	for (index = 0; all && index < all->nr; index++) {
		const u32 *tags = all->chunk[index];
		unsigned long i;

		for (i = 0; tags && i < CHUNK_PAGES; i++) {
			u32 tag = READ_ONCE(tags[i]) & ~TAG_CONFIRMED;

			if (!tag)
				continue;
			if (tag != last) {
				last = tag;
				last_is_topmost = tag_is_topmost(tag);
			}
			if (last_is_topmost)
				tag_count_page((index << CHUNK_SHIFT) + i, tagged);
		}
		cond_resched();
	}
	mutex_unlock(&chunks_lock);
}

static int tag_hotplug_event(struct notifier_block *self, unsigned long action,
			     void *arg)
{
	struct memory_notify *notify = arg;
	struct tag_table *all;
	int ret = 0;

	/*
	 * Memory that goes offline keeps its chunk until protect is switched
	 * off: the chunk is small, and is used again when the memory returns.
	 */
	if (action != MEM_GOING_ONLINE)
		return NOTIFY_OK;

	mutex_lock(&chunks_lock);
	all = tag_table_locked();
	if (all)
		ret = tag_add_chunks(notify->start_pfn, notify->nr_pages, all);
	mutex_unlock(&chunks_lock);
	return notifier_from_errno(ret);
}

static int __init limelight_identifier_init(void)
{
	hotplug_memory_notifier(tag_hotplug_event, DEFAULT_CALLBACK_PRI);
	return 0;
}
subsys_initcall(limelight_identifier_init);

#ifdef CONFIG_LIMELIGHT_KUNIT_TEST
#include "tests/identifier-kunit.h"
#endif
