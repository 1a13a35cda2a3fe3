// SPDX-License-Identifier: GPL-2.0-only
/*
 * Limelight readahead: larger read-ahead windows for the topmost app.
 *
 * The limit of the window (ra_pages) is multiplied for requests by members of the
 * topmost set, made by read() or by faults on mappings. The factor applies per
 * request and is not stored: other readers of the same open file, and all other
 * processes, keep their limit. The generic code still decides how a window grows,
 * where the read-ahead mark goes, and what POSIX_FADV_RANDOM, MADV_RANDOM and a
 * read-ahead of 0 mean.
 *
 * There are three kinds of request, each with a factor of its own:
 *
 *   - streams, read or mapped: the configured factor;
 *   - around a fault that does not belong to a stream: half of it, because half of
 *     the request lies before the fault;
 *   - neighbours: for a random single page, the aligned block of 16 pages around it
 *     is read. Other processes read only that page.
 *
 * Three rules bound the requests. A request takes at most a quarter of the memory
 * that is free above the high watermark or occupied by old, clean file pages (a
 * sixteenth of them counts); without any, it is an ordinary request. It is enlarged
 * to at most WINDOW_MAX, because some disks have a large ra_pages already. And the
 * pages have to be used. Each folio of an enlarged request is marked (one byte for
 * each page of memory, while the mechanism is enabled), and is later either used or
 * evicted unused. If more than a quarter of the pages of a kind are evicted unused,
 * the factor of that kind is halved. If hardly any are, it is doubled, up to the
 * configured factor. After RETRY without an adjustment, a reduced factor is doubled.
 *
 * A folio is used when it is passed to folio_mark_accessed() or mapped, including by
 * fault-around.
 *
 * Locking: RCU protects the table of marks. A mark is one byte. It is set before the
 * folio is up to date, or when the folio replaces a marked one, and taken by xchg().
 */
#include <linux/atomic.h>
#include <linux/jiffies.h>
#include <linux/limelight.h>
#include <linux/memblock.h>
#include <linux/memory_hotplug.h>
#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/pagemap.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sizes.h>
#include <linux/spinlock.h>
#include <linux/vmalloc.h>
#include <linux/vmstat.h>
#include <trace/events/limelight.h>

#include "internal.h"

/* Block that is read for a random single page, in pages. */
#define NEIGHBOURS	16
/* Largest enlarged request, in pages. ra_pages may be larger. */
#define WINDOW_MAX	(SZ_2M >> PAGE_SHIFT)
/* Marked pages used or evicted between two adjustments of a factor. */
#define EPOCH		512
/* Time without an adjustment after which a reduced factor is doubled, in jiffies. */
#define RETRY		(10 * HZ)
/* Number of halvings from the largest factor to 1. */
#define LEVELS		6

DEFINE_STATIC_KEY_FALSE(limelight_readahead_key);

unsigned int limelight_factor __read_mostly = LIMELIGHT_FACTOR_DEFAULT;
/* Value of limelight_factor after the device is closed. */
static unsigned int factor_configured = LIMELIGHT_FACTOR_DEFAULT;

/* One chunk of marks per memory section. */
#ifdef CONFIG_SPARSEMEM
#define CHUNK_SHIFT	PFN_SECTION_SHIFT
#else
#define CHUNK_SHIFT	15
#endif
#define CHUNK_PAGES	BIT(CHUNK_SHIFT)

/*
 * struct ahead_marks - marks of folios read by enlarged requests
 * @nr: entries of @chunk
 * @chunk: for each chunk that holds memory a u8[CHUNK_PAGES], else NULL. Each u8 is
 *	the enum limelight_ra of a page frame, LIMELIGHT_RA_NONE: not marked
 */
struct ahead_marks {
	unsigned long nr;
	u8 *chunk[] __counted_by(nr);
};

/* NULL while the mechanism is off. */
static struct ahead_marks __rcu *marks;

/*
 * struct ahead_balance - use of the pages of one kind of request
 * @used: marked pages that were used since the last adjustment
 * @wasted: marked pages that were evicted unused
 * @level: how many times the factor is halved
 * @judged: time of the last adjustment, in jiffies
 */
struct ahead_balance {
	atomic_t used;
	atomic_t wasted;
	unsigned int level;
	unsigned long judged;
};

static struct ahead_balance balances[LIMELIGHT_RA_KINDS];
/* Serializes adjustments; only ever trylocked. */
static DEFINE_SPINLOCK(balances_lock);

/* ------------------------------------------------------------- arithmetic */

/* Return: the level after an epoch, given the current one. */
static unsigned int ahead_next_level(unsigned int level, unsigned int used,
				     unsigned int wasted)
{
	if (wasted > (used + wasted) / 4)
		return min(level + 1, LEVELS);
	if (level && wasted <= (used + wasted) / 16)
		return level - 1;
	return level;
}

/* The factor of @kind at @level; 1: the default size. */
static unsigned int factor_at(unsigned int factor, enum limelight_ra kind,
			      unsigned int level)
{
	if (kind == LIMELIGHT_RA_AROUND)
		factor = DIV_ROUND_UP(factor, 2);
	return max(factor >> level, 1U);
}

/*
 * Pages of an enlarged request: @factor times @pages, but at most WINDOW_MAX and a
 * quarter of @room, and at least @pages.
 */
static unsigned long ahead_window(unsigned long pages, unsigned int factor,
				  unsigned long room)
{
	return max(pages, min3(pages * factor, room / 4, WINDOW_MAX));
}

/*
 * Pages of the block that is read for a single page: NEIGHBOURS at a factor of 8 or
 * more, one page at a factor of 1.
 */
static unsigned int ahead_block(unsigned int factor)
{
	if (factor < 2)
		return 1;
	return min(NEIGHBOURS, 2 * rounddown_pow_of_two(factor));
}

/* ---------------------------------------------------------------- balance */

/*
 * The level of @balance at @now. Decreases after RETRY without an adjustment, because
 * no pages are marked at a factor of 1.
 */
static unsigned int level_at(const struct ahead_balance *balance, unsigned long now)
{
	unsigned int level = READ_ONCE(balance->level);

	if (level && time_after(now, READ_ONCE(balance->judged) + RETRY))
		level--;
	return level;
}

/* The current factor of @kind. No side effects. */
unsigned int limelight_readahead_factor(enum limelight_ra kind)
{
	return factor_at(READ_ONCE(limelight_factor), kind,
			 level_at(&balances[kind], jiffies));
}

/* The factor for a request of @kind, which applies a retry that is due. */
static unsigned int request_factor(enum limelight_ra kind)
{
	struct ahead_balance *balance = &balances[kind];
	unsigned int level = level_at(balance, jiffies);

	/* Racing requests may skip a level. */
	if (level != READ_ONCE(balance->level)) {
		WRITE_ONCE(balance->judged, jiffies);
		WRITE_ONCE(balance->level, level);
		trace_limelight_readahead_level(kind, level, 0, 0);
	}
	return factor_at(READ_ONCE(limelight_factor), kind, level);
}

/* Counts a marked folio of @pages that was used, or evicted unused. */
static void ahead_outcome(enum limelight_ra kind, unsigned int pages, bool was_used)
{
	struct ahead_balance *balance = &balances[kind];
	unsigned int used, wasted, level;
	unsigned long flags;

	atomic_add(pages, was_used ? &balance->used : &balance->wasted);
	if (atomic_read(&balance->used) + atomic_read(&balance->wasted) < EPOCH)
		return;
	if (!spin_trylock_irqsave(&balances_lock, flags))
		return;

	used = atomic_xchg(&balance->used, 0);
	wasted = atomic_xchg(&balance->wasted, 0);
	level = ahead_next_level(balance->level, used, wasted);
	if (level != balance->level)
		trace_limelight_readahead_level(kind, level, used, wasted);
	WRITE_ONCE(balance->level, level);
	WRITE_ONCE(balance->judged, jiffies);
	spin_unlock_irqrestore(&balances_lock, flags);
}

static void ahead_reset(void)
{
	int kind;

	for (kind = 0; kind < LIMELIGHT_RA_KINDS; kind++) {
		atomic_set(&balances[kind].used, 0);
		atomic_set(&balances[kind].wasted, 0);
		WRITE_ONCE(balances[kind].level, 0);
		WRITE_ONCE(balances[kind].judged, jiffies);
	}
}

/* --------------------------------------------------------------- requests */

/*
 * Pages of which a request may take a quarter. While memory is full of page cache,
 * kswapd keeps free memory near the watermarks, and every request, of whatever size,
 * evicts inactive file pages.
 */
static unsigned long ahead_room(void)
{
	struct pglist_data *pgdat = NODE_DATA(numa_mem_id());

	return limelight_node_room(pgdat) + limelight_node_clean_cache(pgdat) / 16;
}

/* The factor for requests of current. @room: set to the pages that it may use. */
static unsigned int ahead_factor_of_current(enum limelight_ra kind,
					    unsigned long *room)
{
	unsigned int factor;

	if (!current->mm || !limelight_mm(current->mm))
		return 1;
	factor = request_factor(kind);
	if (factor < 2)
		return 1;
	/* Near its limit, a cgroup would evict its own pages. */
	*room = min(ahead_room(), limelight_cgroup_room(current->mm));
	return *room ? factor : 1;
}

/* See limelight_ra_pages(). */
unsigned long __limelight_ra_pages(struct readahead_control *ractl,
				   unsigned long pages, enum limelight_ra kind)
{
	unsigned long room;
	unsigned int factor = ahead_factor_of_current(kind, &room);

	if (factor < 2)
		return pages;
	ractl->_limelight = kind;
	return ahead_window(pages, factor, room);
}

/*
 * Enlarges a random request of @pages at the index of @ractl to the block around it,
 * and moves the index to the beginning of that block.
 *
 * Return: the number of pages to read.
 */
unsigned long __limelight_ra_neighbours(struct readahead_control *ractl,
					unsigned long pages)
{
	unsigned long room, start, end;
	unsigned int factor, size;

	factor = ahead_factor_of_current(LIMELIGHT_RA_NEIGHBOURS, &room);
	size = ahead_block(factor);
	if (size < 2 || pages >= size || room / 4 < size)
		return pages;

	start = round_down(ractl->_index, size);
	end = round_up(ractl->_index + pages, size);
	ractl->_index = start;
	ractl->_limelight = LIMELIGHT_RA_NEIGHBOURS;
	return end - start;
}

/* See limelight_ra_request(). */
void __limelight_ra_request(struct readahead_control *ractl,
			    unsigned long pages)
{
	if (!ractl->_limelight)
		return;
	if (ractl->_limelight != LIMELIGHT_RA_NEIGHBOURS &&
	    pages <= ractl->ra->ra_pages) {
		ractl->_limelight = LIMELIGHT_RA_NONE;
		return;
	}
	count_vm_event(LIMELIGHT_READAHEAD_BOOSTED);
	trace_limelight_readahead(ractl->mapping->host, ractl->_index, pages,
				  ractl->ra->ra_pages, ractl->_limelight);
}

/* ------------------------------------------------------------------ marks */

/* The mark of @folio; NULL: it cannot be marked. The caller holds the RCU lock. */
static u8 *ahead_mark(struct folio *folio)
{
	struct ahead_marks *all = rcu_dereference(marks);
	unsigned long pfn = folio_pfn(folio);
	unsigned long index = pfn >> CHUNK_SHIFT;

	if (!all || index >= all->nr || !all->chunk[index])
		return NULL;
	return all->chunk[index] + (pfn & (CHUNK_PAGES - 1));
}

/* Clears the mark of @folio. Return: its old value. */
static enum limelight_ra ahead_take_mark(struct folio *folio)
{
	enum limelight_ra kind = LIMELIGHT_RA_NONE;
	u8 *mark;

	rcu_read_lock();
	mark = ahead_mark(folio);
	if (mark && READ_ONCE(*mark))
		kind = xchg(mark, LIMELIGHT_RA_NONE);
	rcu_read_unlock();
	return kind;
}

/* Marks @folio, which is not yet up to date or replaces a marked folio. */
static void ahead_set_mark(struct folio *folio, enum limelight_ra kind)
{
	u8 *mark;

	rcu_read_lock();
	mark = ahead_mark(folio);
	if (mark)
		WRITE_ONCE(*mark, kind);
	rcu_read_unlock();
}

/* See limelight_ra_add(). */
void __limelight_ra_add(struct readahead_control *ractl, struct folio *folio)
{
	if (ractl->_limelight)
		ahead_set_mark(folio, ractl->_limelight);
}

void __limelight_ra_used(struct folio *folio)
{
	enum limelight_ra kind = ahead_take_mark(folio);

	if (kind)
		ahead_outcome(kind, folio_nr_pages(folio), true);
}

/* See limelight_ra_evicted(). */
void __limelight_ra_evicted(struct folio *folio)
{
	enum limelight_ra kind = ahead_take_mark(folio);

	if (!kind)
		return;
	count_vm_events(LIMELIGHT_READAHEAD_WASTED, folio_nr_pages(folio));
	ahead_outcome(kind, folio_nr_pages(folio), false);
}

/* See limelight_ra_forget(). Called for truncation as well as for reclaim. */
void __limelight_ra_forget(struct folio *folio)
{
	ahead_take_mark(folio);
}

void __limelight_ra_move(struct folio *to, struct folio *from)
{
	enum limelight_ra kind = ahead_take_mark(from);

	if (kind)
		ahead_set_mark(to, kind);
}

void __limelight_ra_collapse(struct folio *to, struct list_head *old)
{
	struct folio *folio;

	list_for_each_entry(folio, old, lru)
		__limelight_ra_move(to, folio);
}

/* Allocates the chunks of a range, for walk_system_ram_range(). */
static int ahead_add_chunks(unsigned long start_pfn, unsigned long nr_pages, void *arg)
{
	unsigned long last = (start_pfn + nr_pages - 1) >> CHUNK_SHIFT;
	struct ahead_marks *all = arg;
	unsigned long index;

	for (index = start_pfn >> CHUNK_SHIFT; index <= last; index++) {
		if (index >= all->nr || all->chunk[index])
			continue;
		all->chunk[index] = vzalloc(CHUNK_PAGES);
		if (!all->chunk[index])
			return -ENOMEM;
	}
	return 0;
}

static void ahead_free_marks(struct ahead_marks *all)
{
	unsigned long index;

	for (index = 0; all && index < all->nr; index++)
		vfree(all->chunk[index]);
	kvfree(all);
}

static int ahead_start(void)
{
	unsigned long nr = DIV_ROUND_UP(max_pfn, CHUNK_PAGES);
	struct ahead_marks *all;
	int ret;

	all = kvzalloc(struct_size(all, chunk, nr), GFP_KERNEL);
	if (!all)
		return -ENOMEM;
	all->nr = nr;
	/* Memory that is hotplugged later has no marks, and is not counted. */
	ret = walk_system_ram_range(0, max_pfn, all, ahead_add_chunks);
	if (ret)
		ahead_free_marks(all);
	else
		rcu_assign_pointer(marks, all);
	return ret;
}

/* Frees the marks. The static key is already off. */
static void ahead_stop(void)
{
	struct ahead_marks *all = rcu_replace_pointer(marks, NULL, true);

	synchronize_rcu();
	ahead_free_marks(all);
}

/* ---------------------------------------------------------- the mechanism */

bool limelight_readahead_enabled(void)
{
	return static_key_enabled(&limelight_readahead_key);
}

/* Sets the factor. @remember: keep it after the device is closed. */
int limelight_factor_set(unsigned int factor, bool remember)
{
	if (!factor || factor > LIMELIGHT_FACTOR_MAX)
		return -EINVAL;
	WRITE_ONCE(limelight_factor, factor);
	if (remember)
		factor_configured = factor;
	return 0;
}

/* Switches readahead on or off. @factor: 0 keeps the current value. */
int limelight_readahead_configure(bool on, u32 factor)
{
	int ret;

	if (factor > LIMELIGHT_FACTOR_MAX)
		return -EINVAL;

	if (on && !limelight_readahead_enabled()) {
		ret = ahead_start();
		if (ret)
			return ret;
		ahead_reset();
		static_branch_enable(&limelight_readahead_key);
	} else if (!on && limelight_readahead_enabled()) {
		static_branch_disable(&limelight_readahead_key);
		ahead_stop();
	}
	if (factor)
		limelight_factor_set(factor, false);
	return 0;
}

/* Resets readahead when the device is closed. */
void limelight_readahead_reset(void)
{
	limelight_readahead_configure(false, 0);
	WRITE_ONCE(limelight_factor, factor_configured);
}

#ifdef CONFIG_LIMELIGHT_KUNIT_TEST
#include "tests/readahead-kunit.h"
#endif
