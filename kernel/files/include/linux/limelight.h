/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Limelight: what the rest of mm asks about the app the user looks at.
 *
 * Everything here is an inline behind a static key: as long as /dev/limelight
 * is closed it costs a NOP. The design is told in mm/limelight/core.c (who is
 * topmost), window.c (when the user waits for it), protect.c (what reclaim does
 * about it), readahead.c, premap.c and prezero.c.
 */
#ifndef _LINUX_LIMELIGHT_H
#define _LINUX_LIMELIGHT_H

#include <linux/jump_label.h>
#include <linux/mm_types.h>

struct mem_cgroup;
struct pglist_data;
struct readahead_control;
struct vm_fault;

#ifdef CONFIG_LIMELIGHT

/* On while /dev/limelight is open. */
DECLARE_STATIC_KEY_FALSE(limelight_key);

/* Number of the topmost set in force, 0 when there is none. */
extern u64 limelight_generation;

/*
 * Whether @mm belongs to the topmost app. No lock: an answer that a concurrent
 * SET_TOPMOST makes outdated is as good as one given a moment earlier.
 */
static inline bool limelight_mm(const struct mm_struct *mm)
{
	u64 generation;

	if (!static_branch_unlikely(&limelight_key))
		return false;
	generation = READ_ONCE(limelight_generation);
	return generation && READ_ONCE(mm->limelight_generation) == generation;
}

void __limelight_dup_mm(struct mm_struct *mm, const struct mm_struct *parent);
void __limelight_exec_mmap(struct mm_struct *mm, const struct mm_struct *old);

/* A new mm comes to life: it belongs to no app yet. fork has copied another. */
static inline void limelight_mm_init(struct mm_struct *mm)
{
	mm->limelight_generation = 0;
#ifdef CONFIG_LIMELIGHT_PROTECT
	mm->limelight_tag = 0;
#endif
#ifdef CONFIG_LIMELIGHT_PREMAP
	mm->limelight_premap = NULL;
#endif
}

/* @mm is a copy of @parent: a member if that is one. */
static inline void limelight_dup_mm(struct mm_struct *mm,
				    const struct mm_struct *parent)
{
	if (static_branch_unlikely(&limelight_key))
		__limelight_dup_mm(mm, parent);
}

/*
 * current executes a program: @mm takes the place of @old, which is NULL for a
 * kernel thread. The caller holds task_lock().
 */
static inline void limelight_exec_mmap(struct mm_struct *mm,
				       const struct mm_struct *old)
{
	if (static_branch_unlikely(&limelight_key) && old)
		__limelight_exec_mmap(mm, old);
}

/* When the response window ends, CLOCK_MONOTONIC in ns; 0: none is open. */
extern u64 limelight_window_until;

bool __limelight_in_window(void);

/* Whether the user waits for the topmost app now: what can wait has to. */
static inline bool limelight_in_window(void)
{
	return static_branch_unlikely(&limelight_key) &&
	       READ_ONCE(limelight_window_until) && __limelight_in_window();
}

#else /* !CONFIG_LIMELIGHT */

static inline bool limelight_mm(const struct mm_struct *mm)
{
	return false;
}

static inline void limelight_mm_init(struct mm_struct *mm)
{
}

static inline void limelight_dup_mm(struct mm_struct *mm,
				    const struct mm_struct *parent)
{
}

static inline void limelight_exec_mmap(struct mm_struct *mm,
				       const struct mm_struct *old)
{
}

static inline bool limelight_in_window(void)
{
	return false;
}

#endif /* CONFIG_LIMELIGHT */

/* Why a response window ended. */
enum limelight_window_end {
	LIMELIGHT_WINDOW_ANSWERED,	/* whoever opened it closed it */
	LIMELIGHT_WINDOW_EXPIRED,	/* its deadline has passed */
	LIMELIGHT_WINDOW_NOBODY,	/* nobody is topmost any more */
	LIMELIGHT_WINDOW_RELEASED,	/* the device is closed */
};

/* What reclaim does with a folio of the topmost app. */
enum limelight_mode {
	LIMELIGHT_OFF,		/* as if there were no topmost app */
	LIMELIGHT_KEEP,		/* pass it over and remember that it was there */
	LIMELIGHT_TAKE,		/* nothing else is left: take it, and count it */
};

/* What folio_referenced() saw of the topmost app, bits. */
#define LIMELIGHT_MAPPED	1	/* mapped for use */
#define LIMELIGHT_STREAMED	2	/* mapped to be read once */

/*
 * struct limelight_reclaim - protect's part of a task's reclaim_state
 * @mode: enum limelight_mode, settled once for each node and cgroup visited
 * @cached: ask the page identifier about folios that no page table tells about
 * @last_resort: the pass that may take the topmost app's folios
 * @skipped: the pass left at least one folio alone for the topmost app's sake
 * @seen: LIMELIGHT_MAPPED, LIMELIGHT_STREAMED: the folio at hand
 * @topmost: the folio at hand belongs to the topmost app
 * @tag: page identifier of a member that maps it, with LIMELIGHT_MAPPED
 * @kept: pages that the pass left alone for the topmost app's sake
 *
 * All zeroes is reclaim without protection.
 */
struct limelight_reclaim {
	u8 mode;
	u8 seen;
	bool cached;
	bool last_resort;
	bool skipped;
	bool topmost;
	u32 tag;
	unsigned long kept;
};

/*
 * struct limelight_suspend - memory of an exhausted target (a node, a cgroup)
 * @until: jiffies, end of the last suspension
 * @generation: low bits of the topmost set it was about
 * @level: the last suspension lasted 500 ms << (level - 1); 0: none yet
 */
struct limelight_suspend {
	unsigned long until;
	u32 generation;
	u8 level;
};

#ifdef CONFIG_LIMELIGHT_PROTECT

/* On while the mechanism is switched on through /dev/limelight. */
DECLARE_STATIC_KEY_FALSE(limelight_protect_key);

static inline bool limelight_protecting(void)
{
	return static_branch_unlikely(&limelight_protect_key);
}

void __limelight_reclaim_begin(struct limelight_reclaim *reclaim,
			       struct pglist_data *pgdat,
			       struct mem_cgroup *memcg, gfp_t gfp_mask);
bool __limelight_reclaim_again(struct limelight_reclaim *reclaim,
			       struct mem_cgroup *memcg, int order);
bool __limelight_reclaim_vain(const struct limelight_reclaim *reclaim,
			      const struct mem_cgroup *memcg);
void __limelight_saw_vma(struct limelight_reclaim *reclaim,
			 const struct vm_area_struct *vma);
bool limelight_look(void);
bool __limelight_keep(struct limelight_reclaim *reclaim, struct folio *folio);
bool __limelight_rotate(struct limelight_reclaim *reclaim, struct folio *folio);
bool limelight_known(struct limelight_reclaim *reclaim, struct folio *folio,
		     bool active);
void __limelight_taken(unsigned long nr_pages);
bool __limelight_migrate_instead(struct folio *folio);
void __limelight_anon_add(struct folio *folio, struct mm_struct *mm);
void __limelight_cache_add(struct folio *folio);
void __limelight_cache_touch(struct folio *folio);
void __limelight_cache_move(struct folio *to, struct folio *from);

/* Reclaim turns to @pgdat, for @memcg's limit or (NULL) for the machine. */
static inline void limelight_reclaim_begin(struct limelight_reclaim *reclaim,
					   struct pglist_data *pgdat,
					   struct mem_cgroup *memcg,
					   gfp_t gfp_mask)
{
	if (limelight_protecting())
		__limelight_reclaim_begin(reclaim, pgdat, memcg, gfp_mask);
	else
		reclaim->mode = LIMELIGHT_OFF;
}

/*
 * A pass has found nothing to reclaim. True when that is because of us: the
 * next pass is the last resort.
 */
static inline bool limelight_reclaim_again(struct limelight_reclaim *reclaim,
					   struct mem_cgroup *memcg, int order)
{
	return limelight_protecting() &&
	       __limelight_reclaim_again(reclaim, memcg, order);
}

/*
 * Nothing was reclaimed so far: whether to look harder is in vain, because as
 * many pages as @memcg holds were left alone.
 */
static inline bool limelight_reclaim_vain(const struct limelight_reclaim *reclaim,
					  const struct mem_cgroup *memcg)
{
	return limelight_protecting() && memcg && reclaim->kept &&
	       __limelight_reclaim_vain(reclaim, memcg);
}

/* The folio at hand is mapped by @vma, which is of the topmost app. */
static inline void limelight_saw_vma(struct limelight_reclaim *reclaim,
				     const struct vm_area_struct *vma)
{
	__limelight_saw_vma(reclaim, vma);
}

/* The folio will be kept whatever other mappings say: end the rmap walk. */
static inline bool limelight_settled(const struct limelight_reclaim *reclaim)
{
	return reclaim->mode == LIMELIGHT_KEEP &&
	       (reclaim->seen & LIMELIGHT_MAPPED);
}

/* After folio_referenced(): whether @folio must not be evicted in this pass. */
static inline bool limelight_keep(struct limelight_reclaim *reclaim,
				  struct folio *folio)
{
	return limelight_protecting() && reclaim->mode != LIMELIGHT_OFF &&
	       __limelight_keep(reclaim, folio);
}

/* After folio_referenced(): whether @folio must stay on the active list. */
static inline bool limelight_rotate(struct limelight_reclaim *reclaim,
				    struct folio *folio)
{
	return limelight_protecting() && reclaim->mode == LIMELIGHT_KEEP &&
	       __limelight_rotate(reclaim, folio);
}

/* Whether a scan begins with folios that are known to be the topmost app's. */
static inline bool limelight_knows(const struct limelight_reclaim *reclaim)
{
	return limelight_protecting() && reclaim->mode == LIMELIGHT_KEEP;
}

/* The folio that limelight_keep() was last asked about is gone. */
static inline void limelight_taken(const struct limelight_reclaim *reclaim,
				   unsigned long nr_pages)
{
	if (limelight_protecting() && reclaim->topmost)
		__limelight_taken(nr_pages);
}

/* Whether a clean file folio in the way of a contiguous range must survive. */
static inline bool limelight_migrate_instead(struct folio *folio)
{
	return limelight_protecting() && __limelight_migrate_instead(folio);
}

/* @folio is new anonymous memory of @mm. */
static inline void limelight_anon_add(struct folio *folio, struct mm_struct *mm)
{
	if (limelight_protecting())
		__limelight_anon_add(folio, mm);
}

/* @folio has entered the page cache; the caller holds its lock. */
static inline void limelight_cache_add(struct folio *folio)
{
	if (limelight_protecting())
		__limelight_cache_add(folio);
}

#else /* !CONFIG_LIMELIGHT_PROTECT */

static inline void limelight_reclaim_begin(struct limelight_reclaim *reclaim,
					   struct pglist_data *pgdat,
					   struct mem_cgroup *memcg,
					   gfp_t gfp_mask)
{
}

static inline bool limelight_reclaim_again(struct limelight_reclaim *reclaim,
					   struct mem_cgroup *memcg, int order)
{
	return false;
}

static inline bool limelight_reclaim_vain(const struct limelight_reclaim *reclaim,
					  const struct mem_cgroup *memcg)
{
	return false;
}

static inline bool limelight_protecting(void)
{
	return false;
}

static inline bool limelight_look(void)
{
	return false;
}

static inline void limelight_saw_vma(struct limelight_reclaim *reclaim,
				     const struct vm_area_struct *vma)
{
}

static inline bool limelight_settled(const struct limelight_reclaim *reclaim)
{
	return false;
}

static inline bool limelight_keep(struct limelight_reclaim *reclaim,
				  struct folio *folio)
{
	return false;
}

static inline bool limelight_rotate(struct limelight_reclaim *reclaim,
				    struct folio *folio)
{
	return false;
}

static inline bool limelight_knows(const struct limelight_reclaim *reclaim)
{
	return false;
}

static inline bool limelight_known(struct limelight_reclaim *reclaim,
				   struct folio *folio, bool active)
{
	return false;
}

static inline void limelight_taken(const struct limelight_reclaim *reclaim,
				   unsigned long nr_pages)
{
}

static inline bool limelight_migrate_instead(struct folio *folio)
{
	return false;
}

static inline void limelight_anon_add(struct folio *folio, struct mm_struct *mm)
{
}

static inline void limelight_cache_add(struct folio *folio)
{
}

static inline void __limelight_cache_touch(struct folio *folio)
{
}

static inline void __limelight_cache_move(struct folio *to, struct folio *from)
{
}

#endif /* CONFIG_LIMELIGHT_PROTECT */

/* Why the topmost app reads more than others. */
enum limelight_ra {
	LIMELIGHT_RA_NONE,		/* it does not */
	LIMELIGHT_RA_STREAM,		/* one page after the other */
	LIMELIGHT_RA_AROUND,		/* a fault on a mapping */
	LIMELIGHT_RA_NEIGHBOURS,	/* a single page, no pattern */
	LIMELIGHT_RA_KINDS,
};

#ifdef CONFIG_LIMELIGHT_READAHEAD

/* On while the mechanism is switched on through /dev/limelight. */
DECLARE_STATIC_KEY_FALSE(limelight_readahead_key);

static inline bool limelight_reading_ahead(void)
{
	return static_branch_unlikely(&limelight_readahead_key);
}

unsigned long __limelight_ra_pages(struct readahead_control *ractl,
				   unsigned long pages, enum limelight_ra kind);
unsigned long __limelight_ra_neighbours(struct readahead_control *ractl,
					unsigned long pages);
void __limelight_ra_request(struct readahead_control *ractl,
			    unsigned long pages);
void __limelight_ra_add(struct readahead_control *ractl, struct folio *folio);
void __limelight_ra_used(struct folio *folio);
void __limelight_ra_evicted(struct folio *folio);
void __limelight_ra_forget(struct folio *folio);
void __limelight_ra_move(struct folio *to, struct folio *from);

#else /* !CONFIG_LIMELIGHT_READAHEAD */

static inline bool limelight_reading_ahead(void)
{
	return false;
}

static inline unsigned long
__limelight_ra_pages(struct readahead_control *ractl, unsigned long pages,
		     enum limelight_ra kind)
{
	return pages;
}

static inline unsigned long
__limelight_ra_neighbours(struct readahead_control *ractl, unsigned long pages)
{
	return pages;
}

static inline void __limelight_ra_request(struct readahead_control *ractl,
					  unsigned long pages)
{
}

static inline void __limelight_ra_add(struct readahead_control *ractl,
				      struct folio *folio)
{
}

static inline void __limelight_ra_used(struct folio *folio)
{
}

static inline void __limelight_ra_evicted(struct folio *folio)
{
}

static inline void __limelight_ra_forget(struct folio *folio)
{
}

static inline void __limelight_ra_move(struct folio *to, struct folio *from)
{
}

#endif /* CONFIG_LIMELIGHT_READAHEAD */

/* The limit of a read-ahead window, @pages for all but the topmost app. */
static inline unsigned long limelight_ra_pages(struct readahead_control *ractl,
					       unsigned long pages,
					       enum limelight_ra kind)
{
	if (limelight_reading_ahead())
		return __limelight_ra_pages(ractl, pages, kind);
	return pages;
}

/* How many pages to read where @pages are wanted; may move the index back. */
static inline unsigned long
limelight_ra_neighbours(struct readahead_control *ractl, unsigned long pages)
{
	if (limelight_reading_ahead())
		return __limelight_ra_neighbours(ractl, pages);
	return pages;
}

/* The request is for @pages: settles whether it is larger than others'. */
static inline void limelight_ra_request(struct readahead_control *ractl,
					unsigned long pages)
{
	if (limelight_reading_ahead())
		__limelight_ra_request(ractl, pages);
}

/* @folio comes in by the request; it is locked. */
static inline void limelight_ra_add(struct readahead_control *ractl,
				    struct folio *folio)
{
	if (limelight_reading_ahead())
		__limelight_ra_add(ractl, folio);
}

/* @folio is mapped by a fault. */
static inline void limelight_ra_used(struct folio *folio)
{
	if (limelight_reading_ahead())
		__limelight_ra_used(folio);
}

/* @folio is about to leave the page cache because it was reclaimed. */
static inline void limelight_ra_evicted(struct folio *folio)
{
	if (limelight_reading_ahead())
		__limelight_ra_evicted(folio);
}

/* current uses @folio, which may be in the page cache. */
static inline void limelight_cache_touch(struct folio *folio)
{
	if (limelight_protecting())
		__limelight_cache_touch(folio);
	if (limelight_reading_ahead())
		__limelight_ra_used(folio);
}

/* @folio has left the page cache. */
static inline void limelight_ra_forget(struct folio *folio)
{
	if (limelight_reading_ahead())
		__limelight_ra_forget(folio);
}

/* @to takes @from's place in the page cache. */
static inline void limelight_cache_move(struct folio *to, struct folio *from)
{
	if (limelight_protecting())
		__limelight_cache_move(to, from);
	if (limelight_reading_ahead())
		__limelight_ra_move(to, from);
}

#ifdef CONFIG_LIMELIGHT_PREMAP

/* On while the mechanism is switched on through /dev/limelight. */
DECLARE_STATIC_KEY_FALSE(limelight_premap_key);

bool __limelight_premap(struct vm_fault *vmf);
void __limelight_premap_zap(struct vm_area_struct *vma, unsigned long start,
			    unsigned long end);
void limelight_premap_free(struct mm_struct *mm);

/*
 * A page of private anonymous memory is missing that somebody writes to. True:
 * it is mapped, and perhaps some that follow it.
 */
static inline bool limelight_premap(struct vm_fault *vmf)
{
	return static_branch_unlikely(&limelight_premap_key) &&
	       __limelight_premap(vmf);
}

/* The pages of @vma from @start to @end are about to be unmapped. */
static inline void limelight_premap_zap(struct vm_area_struct *vma,
					unsigned long start, unsigned long end)
{
	if (static_branch_unlikely(&limelight_premap_key) &&
	    READ_ONCE(vma->vm_mm->limelight_premap))
		__limelight_premap_zap(vma, start, end);
}

#else /* !CONFIG_LIMELIGHT_PREMAP */

static inline void limelight_premap_free(struct mm_struct *mm)
{
}

static inline bool limelight_premap(struct vm_fault *vmf)
{
	return false;
}

static inline void limelight_premap_zap(struct vm_area_struct *vma,
					unsigned long start, unsigned long end)
{
}

#endif /* CONFIG_LIMELIGHT_PREMAP */

/* Who needs the memory of the pool of zeroed pages. */
enum limelight_prezero_drain {
	LIMELIGHT_DRAIN_ALLOCATION,	/* an allocation, below the low watermarks */
	LIMELIGHT_DRAIN_KSWAPD,		/* kswapd, before it reclaims */
	LIMELIGHT_DRAIN_OOM,		/* the OOM killer, before it kills */
	LIMELIGHT_DRAIN_SHRINKER,	/* reclaim of caches */
	LIMELIGHT_DRAIN_RANGE,		/* isolation of a range */
	LIMELIGHT_DRAIN_OFF,		/* nobody: the mechanism is switched off */
};

#ifdef CONFIG_LIMELIGHT_PREZERO

/* On while the mechanism is switched on through /dev/limelight. */
DECLARE_STATIC_KEY_FALSE(limelight_prezero_key);

static inline bool limelight_prezeroing(void)
{
	return static_branch_unlikely(&limelight_prezero_key);
}

struct folio *__limelight_prezero_folio(struct vm_area_struct *vma);
void __limelight_prezero_missed(struct mm_struct *mm, unsigned long pages);
void __limelight_prezero_relieve(gfp_t gfp_mask, unsigned int order);
bool __limelight_prezero_yield(struct pglist_data *pgdat, int order);
void __limelight_prezero_range(void);

/* A zeroed page for a fault on @vma; NULL: as for everybody. */
static inline struct folio *limelight_prezero_folio(struct vm_area_struct *vma)
{
	return limelight_prezeroing() ? __limelight_prezero_folio(vma) : NULL;
}

/* @pages for a fault of @mm were zeroed when it needed them. */
static inline void limelight_prezero_missed(struct mm_struct *mm,
					    unsigned long pages)
{
	if (limelight_prezeroing())
		__limelight_prezero_missed(mm, pages);
}

/* An allocation finds too little memory: what is in the pool is free again. */
static inline void limelight_prezero_relieve(gfp_t gfp_mask, unsigned int order)
{
	if (limelight_prezeroing())
		__limelight_prezero_relieve(gfp_mask, order);
}

/* The same for kswapd. Return: whether there is more memory now. */
static inline bool limelight_prezero_yield(struct pglist_data *pgdat, int order)
{
	return limelight_prezeroing() &&
	       __limelight_prezero_yield(pgdat, order);
}

/* A range of memory is about to be isolated: the pool has none of it. */
static inline void limelight_prezero_range(void)
{
	if (limelight_prezeroing())
		__limelight_prezero_range();
}

#else /* !CONFIG_LIMELIGHT_PREZERO */

static inline struct folio *limelight_prezero_folio(struct vm_area_struct *vma)
{
	return NULL;
}

static inline void limelight_prezero_missed(struct mm_struct *mm,
					    unsigned long pages)
{
}

static inline void limelight_prezero_relieve(gfp_t gfp_mask, unsigned int order)
{
}

static inline bool limelight_prezero_yield(struct pglist_data *pgdat, int order)
{
	return false;
}

static inline void limelight_prezero_range(void)
{
}

#endif /* CONFIG_LIMELIGHT_PREZERO */

#endif /* _LINUX_LIMELIGHT_H */
