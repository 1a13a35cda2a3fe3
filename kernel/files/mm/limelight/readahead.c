// SPDX-License-Identifier: GPL-2.0-only
/*
 * Limelight readahead: the topmost app reads ahead further than others.
 *
 * The limit of the window (ra_pages) is multiplied for requests that a member
 * of the topmost set makes, by read() or by a fault on a mapping. It is asked
 * for each request and written down nowhere: another reader of the same open
 * file, and everybody else on the device, keep the limit that they have. How
 * the window grows, where the read-ahead mark goes, what POSIX_FADV_RANDOM,
 * MADV_RANDOM and a read-ahead of 0 mean is the business of mm/readahead.c.
 *
 * There are three kinds of request, each with a limit of its own:
 *
 *   - a stream, read or mapped: the factor;
 *   - around a fault that does not belong to a stream: half of the factor,
 *     because half of what is read lies behind the fault;
 *   - neighbours: a single page that no pattern explains, where others read no
 *     more than that page. The aligned block of 16 pages around it is read.
 *
 * Two things bound it. A request takes no more than a quarter of the memory
 * that is free above the high watermark; below it there is nothing to take, and
 * everything is as for others. And it has to pay: each page that came in by a
 * larger request is marked (a byte for each page of memory, as long as the
 * mechanism is switched on), and is either used first or evicted first. When
 * more than a quarter of them are evicted, the factor of that kind is halved,
 * and when hardly any are it is doubled again, up to what was asked for. A kind
 * that is down tries again after a while.
 *
 * Used means passed to folio_mark_accessed(), or put into a page table: what is
 * mapped together with a faulting page (fault-around) counts as used.
 *
 * Locking: the marks are found under RCU. A mark is one byte: it is set before
 * the folio can be found by others, and taken by xchg().
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
#include <linux/spinlock.h>
#include <linux/vmalloc.h>
#include <linux/vmstat.h>
#include <trace/events/limelight.h>

#include "internal.h"

/* What one page is worth when nothing tells where the next will be. */
#define NEIGHBOURS	16
/* Outcomes of marked pages between two judgements, in pages. */
#define EPOCH		512
/* How long a kind that was halved waits before it tries more again. */
#define RETRY		(10 * HZ)
/* Halvings that lead from the largest factor to 1. */
#define LEVELS		6

DEFINE_STATIC_KEY_FALSE(limelight_readahead_key);

unsigned int limelight_factor __read_mostly = LIMELIGHT_FACTOR_DEFAULT;
/* What limelight_factor goes back to when the device is closed. */
static unsigned int factor_configured = LIMELIGHT_FACTOR_DEFAULT;

/* A chunk of marks is for a memory section. */
#ifdef CONFIG_SPARSEMEM
#define CHUNK_SHIFT	PFN_SECTION_SHIFT
#else
#define CHUNK_SHIFT	15
#endif
#define CHUNK_PAGES	BIT(CHUNK_SHIFT)

/*
 * struct ahead_marks - what larger requests have brought in
 * @nr: entries of @chunk
 * @chunk: for each chunk that holds memory a u8[CHUNK_PAGES], else NULL: for each
 *	page frame enum limelight_ra, LIMELIGHT_RA_NONE: not marked
 */
struct ahead_marks {
	unsigned long nr;
	u8 *chunk[] __counted_by(nr);
};

/* NULL while the mechanism is off. */
static struct ahead_marks __rcu *marks;

/*
 * struct ahead_balance - how a kind of request has paid
 * @used: marked pages that were used, since the last judgement
 * @wasted: marked pages that were evicted unused
 * @level: how often the factor is halved
 * @judged: jiffies of the last judgement
 */
struct ahead_balance {
	atomic_t used;
	atomic_t wasted;
	unsigned int level;
	unsigned long judged;
};

static struct ahead_balance balances[LIMELIGHT_RA_KINDS];
/* Serializes judgements; an outcome that finds it taken waits for none. */
static DEFINE_SPINLOCK(balances_lock);

/* ------------------------------------------------------------- arithmetic */

/* Return: how often the factor is to be halved after an epoch. */
static unsigned int next_level(unsigned int level, unsigned int used,
			       unsigned int wasted)
{
	if (wasted > (used + wasted) / 4)
		return min(level + 1, LEVELS);
	if (level && wasted <= (used + wasted) / 16)
		return level - 1;
	return level;
}

/* How many times the default a kind may read at @level; 1: the default. */
static unsigned int factor_at(unsigned int factor, enum limelight_ra kind,
			      unsigned int level)
{
	if (kind == LIMELIGHT_RA_AROUND)
		factor = DIV_ROUND_UP(factor, 2);
	return max(factor >> level, 1U);
}

/*
 * Pages of a larger request: @factor times @pages, but no more than a quarter
 * of @room, and never less than @pages.
 */
static unsigned long window(unsigned long pages, unsigned int factor,
			    unsigned long room)
{
	return max(pages, min(pages * factor, room / 4));
}

/*
 * Pages of the block that is read for a single one. A factor of 8 or more is
 * worth all of it; at 1 there are no neighbours.
 */
static unsigned int block(unsigned int factor)
{
	if (factor < 2)
		return 1;
	return min(NEIGHBOURS, 2 * rounddown_pow_of_two(factor));
}

/* ---------------------------------------------------------------- balance */

/* The factor in force for @kind now. */
unsigned int limelight_readahead_factor(enum limelight_ra kind)
{
	struct ahead_balance *balance = &balances[kind];
	unsigned int level = READ_ONCE(balance->level);

	/*
	 * Somebody has to try again, or a factor of 1 would yield no outcomes
	 * for ever. Racing callers may take two steps at once.
	 */
	if (level && time_after(jiffies, READ_ONCE(balance->judged) + RETRY)) {
		WRITE_ONCE(balance->judged, jiffies);
		WRITE_ONCE(balance->level, --level);
		trace_limelight_readahead_level(kind, level, 0, 0);
	}
	return factor_at(READ_ONCE(limelight_factor), kind, level);
}

/* One marked folio of @pages has come to an end, this or that. */
static void outcome(enum limelight_ra kind, unsigned int pages, bool was_used)
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
	level = next_level(balance->level, used, wasted);
	if (level != balance->level)
		trace_limelight_readahead_level(kind, level, used, wasted);
	WRITE_ONCE(balance->level, level);
	WRITE_ONCE(balance->judged, jiffies);
	spin_unlock_irqrestore(&balances_lock, flags);
}

static void forget_balances(void)
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

/* A factor above 1 if current may read more than others, and how much. */
static unsigned int factor_of_current(enum limelight_ra kind,
				      unsigned long *room)
{
	unsigned int factor;

	if (!current->mm || !limelight_mm(current->mm))
		return 1;
	factor = limelight_readahead_factor(kind);
	if (factor < 2)
		return 1;
	/* Near its limit an app reads ahead at the cost of its own pages. */
	*room = min(limelight_memory_room(), limelight_cgroup_room(current->mm));
	return *room ? factor : 1;
}

/* The limit of a window, which is @pages for others. */
unsigned long __limelight_ra_pages(struct readahead_control *ractl,
				   unsigned long pages, enum limelight_ra kind)
{
	unsigned long room;
	unsigned int factor = factor_of_current(kind, &room);

	if (factor < 2)
		return pages;
	ractl->_limelight = kind;
	return window(pages, factor, room);
}

/*
 * @pages at the index of @ractl are wanted, and nothing tells what will be
 * wanted next. Moves the index to the beginning of the block to read.
 *
 * Return: the number of pages to read.
 */
unsigned long __limelight_ra_neighbours(struct readahead_control *ractl,
					unsigned long pages)
{
	unsigned long room, start, end;
	unsigned int factor, size;

	factor = factor_of_current(LIMELIGHT_RA_NEIGHBOURS, &room);
	size = block(factor);
	if (size < 2 || pages >= size || room / 4 < size)
		return pages;

	start = round_down(ractl->_index, size);
	end = round_up(ractl->_index + pages, size);
	ractl->_index = start;
	ractl->_limelight = LIMELIGHT_RA_NEIGHBOURS;
	return end - start;
}

/* A request of @pages is about to be made. Settles whether it is a larger one. */
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

/* The mark of @folio, under RCU; NULL: it cannot be marked. */
static u8 *mark_of(struct folio *folio)
{
	struct ahead_marks *all = rcu_dereference(marks);
	unsigned long pfn = folio_pfn(folio);
	unsigned long index = pfn >> CHUNK_SHIFT;

	if (!all || index >= all->nr || !all->chunk[index])
		return NULL;
	return all->chunk[index] + (pfn & (CHUNK_PAGES - 1));
}

/* Return: the mark that @folio had, and has no more. */
static enum limelight_ra take_mark(struct folio *folio)
{
	enum limelight_ra kind = LIMELIGHT_RA_NONE;
	u8 *mark;

	rcu_read_lock();
	mark = mark_of(folio);
	if (mark && READ_ONCE(*mark))
		kind = xchg(mark, LIMELIGHT_RA_NONE);
	rcu_read_unlock();
	return kind;
}

/* @folio, which nobody uses yet, came in by a larger request. */
static void set_mark(struct folio *folio, enum limelight_ra kind)
{
	u8 *mark;

	rcu_read_lock();
	mark = mark_of(folio);
	if (mark)
		WRITE_ONCE(*mark, kind);
	rcu_read_unlock();
}

/* @folio comes in by the request; it is locked. */
void __limelight_ra_add(struct readahead_control *ractl, struct folio *folio)
{
	if (ractl->_limelight)
		set_mark(folio, ractl->_limelight);
}

void __limelight_ra_used(struct folio *folio)
{
	enum limelight_ra kind = take_mark(folio);

	if (kind)
		outcome(kind, folio_nr_pages(folio), true);
}

/* @folio is reclaimed. */
void __limelight_ra_evicted(struct folio *folio)
{
	enum limelight_ra kind = take_mark(folio);

	if (!kind)
		return;
	count_vm_events(LIMELIGHT_READAHEAD_WASTED, folio_nr_pages(folio));
	outcome(kind, folio_nr_pages(folio), false);
}

/* @folio leaves the page cache for a reason that says nothing about its use. */
void __limelight_ra_forget(struct folio *folio)
{
	take_mark(folio);
}

void __limelight_ra_move(struct folio *to, struct folio *from)
{
	enum limelight_ra kind = take_mark(from);

	if (kind)
		set_mark(to, kind);
}

/* For walk_system_ram_range(). */
static int add_chunks(unsigned long start_pfn, unsigned long nr_pages, void *arg)
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

static void free_marks(struct ahead_marks *all)
{
	unsigned long index;

	for (index = 0; all && index < all->nr; index++)
		vfree(all->chunk[index]);
	kvfree(all);
}

static int marks_start(void)
{
	unsigned long nr = DIV_ROUND_UP(max_pfn, CHUNK_PAGES);
	struct ahead_marks *all;
	int ret;

	all = kvzalloc(struct_size(all, chunk, nr), GFP_KERNEL);
	if (!all)
		return -ENOMEM;
	all->nr = nr;
	/* Memory that is plugged in later is read ahead, but not judged. */
	ret = walk_system_ram_range(0, max_pfn, all, add_chunks);
	if (ret)
		free_marks(all);
	else
		rcu_assign_pointer(marks, all);
	return ret;
}

/* The static key is off already. */
static void marks_stop(void)
{
	struct ahead_marks *all = rcu_replace_pointer(marks, NULL, true);

	synchronize_rcu();
	free_marks(all);
}

/* ---------------------------------------------------------- the mechanism */

bool limelight_readahead_enabled(void)
{
	return static_key_enabled(&limelight_readahead_key);
}

/* Sets the factor; @remember: also beyond the life of the open device. */
int limelight_factor_set(unsigned int factor, bool remember)
{
	if (!factor || factor > LIMELIGHT_FACTOR_MAX)
		return -EINVAL;
	WRITE_ONCE(limelight_factor, factor);
	if (remember)
		factor_configured = factor;
	return 0;
}

/* @factor: 0 keeps the one in force. */
int limelight_readahead_configure(bool on, u32 factor)
{
	int ret;

	if (factor > LIMELIGHT_FACTOR_MAX)
		return -EINVAL;

	if (on && !limelight_readahead_enabled()) {
		ret = marks_start();
		if (ret)
			return ret;
		forget_balances();
		static_branch_enable(&limelight_readahead_key);
	} else if (!on && limelight_readahead_enabled()) {
		static_branch_disable(&limelight_readahead_key);
		marks_stop();
	}
	if (factor)
		limelight_factor_set(factor, false);
	return 0;
}

/* The device is closed. */
void limelight_readahead_reset(void)
{
	limelight_readahead_configure(false, 0);
	WRITE_ONCE(limelight_factor, factor_configured);
}

#ifdef CONFIG_LIMELIGHT_KUNIT_TEST
#include "tests/readahead-kunit.h"
#endif
