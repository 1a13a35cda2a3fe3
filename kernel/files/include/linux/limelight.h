/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Limelight: hooks for the memory of the foreground ("topmost") app.
 *
 * Every hook is an inline function behind a static key, hence a NOP while
 * /dev/limelight is closed. The design is described in mm/limelight/: core.c (which
 * processes are topmost), window.c (response windows), protect.c (reclaim),
 * readahead.c, premap.c and prezero.c.
 */
#ifndef _LINUX_LIMELIGHT_H
#define _LINUX_LIMELIGHT_H

#include <linux/jump_label.h>
#include <linux/mm_types.h>

struct mem_cgroup;
struct pglist_data;
struct readahead_control;
struct vm_fault;
struct zone;

#ifdef CONFIG_LIMELIGHT

/* Enabled while /dev/limelight is open. */
DECLARE_STATIC_KEY_FALSE(limelight_key);

/* Generation of the current topmost set, 0: there is none. */
extern u64 limelight_generation;

/* Whether @mm belongs to the topmost app. Lockless; a stale result is harmless. */
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

/* Initialises a new mm, which may be a byte copy of another (fork). */
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

/* fork: @mm becomes topmost if @parent is. */
static inline void limelight_dup_mm(struct mm_struct *mm,
				    const struct mm_struct *parent)
{
	if (static_branch_unlikely(&limelight_key))
		__limelight_dup_mm(mm, parent);
}

/*
 * exec: @mm replaces @old, which is NULL if current is a kernel thread. The caller
 * holds task_lock().
 */
static inline void limelight_exec_mmap(struct mm_struct *mm,
				       const struct mm_struct *old)
{
	if (static_branch_unlikely(&limelight_key) && old)
		__limelight_exec_mmap(mm, old);
}

/* End of the response window, CLOCK_MONOTONIC in ns; 0: no window is open. */
extern u64 limelight_window_until;

bool __limelight_in_window(void);

/* Whether a response window is open, during which deferrable work should wait. */
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
	LIMELIGHT_WINDOW_ANSWERED,	/* closed through the device */
	LIMELIGHT_WINDOW_EXPIRED,	/* its deadline passed */
	LIMELIGHT_WINDOW_NO_TOPMOST,	/* the topmost set became empty */
	LIMELIGHT_WINDOW_RELEASED,	/* the device was closed */
};

/* How reclaim treats a folio of the topmost app. */
enum limelight_mode {
	LIMELIGHT_OFF,		/* treat it like any other folio */
	LIMELIGHT_KEEP,		/* skip it, and note that one was skipped */
	LIMELIGHT_TAKE,		/* last resort or suspended: reclaim and count it */
};

/* Flags: how the topmost app maps a folio, as found by folio_referenced(). */
#define LIMELIGHT_MAPPED	1	/* an ordinary mapping */
#define LIMELIGHT_STREAMED	2	/* a read-once mapping */

/*
 * struct limelight_reclaim - protect's part of a task's reclaim_state
 * @mode: enum limelight_mode, set whenever reclaim starts on a node
 * @seen: LIMELIGHT_MAPPED and LIMELIGHT_STREAMED, for the current folio
 * @cached: unmapped page cache is protected as well, by its tag
 * @last_resort: this pass may reclaim the topmost app's folios
 * @skipped: this pass skipped at least one protected folio
 * @topmost: the current folio belongs to the topmost app
 * @tag: tag of a member that maps the current folio, valid with LIMELIGHT_MAPPED
 * @kept: protected pages that this pass skipped, except on active lists
 *
 * All zero: reclaim without protection. Empty without CONFIG_LIMELIGHT_PROTECT.
 */
struct limelight_reclaim {
#ifdef CONFIG_LIMELIGHT_PROTECT
	u8 mode;
	u8 seen;
	bool cached;
	bool last_resort;
	bool skipped;
	bool topmost;
	u32 tag;
	unsigned long kept;
#endif
};

/*
 * struct limelight_suspend - suspension of protection for a node or a cgroup
 * @until: end of the last suspension, in jiffies
 * @generation: low 32 bits of the generation of the topmost set at that time
 * @level: the last suspension lasted 500 ms << (level - 1); 0: none yet
 * @trickles: consecutive full sweeps that reclaimed next to nothing
 */
struct limelight_suspend {
	unsigned long until;
	u32 generation;
	u8 level;
	u8 trickles;
};

#ifdef CONFIG_LIMELIGHT_PROTECT

/* Enabled while protect is switched on through /dev/limelight. */
DECLARE_STATIC_KEY_FALSE(limelight_protect_key);

static inline bool limelight_protecting(void)
{
	return static_branch_unlikely(&limelight_protect_key);
}

void __limelight_reclaim_begin(struct limelight_reclaim *reclaim,
			       struct pglist_data *pgdat,
			       struct mem_cgroup *memcg, gfp_t gfp_mask);
bool __limelight_retry_unprotected(struct limelight_reclaim *reclaim,
				   struct mem_cgroup *memcg, int order);
bool __limelight_reclaim_trickled(struct limelight_reclaim *reclaim,
				  struct pglist_data *pgdat,
				  struct mem_cgroup *memcg, bool swept,
				  unsigned long reclaimed, int order);
bool __limelight_should_abort(const struct limelight_reclaim *reclaim,
			      const struct mem_cgroup *memcg);
void __limelight_note_mapping(struct limelight_reclaim *reclaim,
			      const struct vm_area_struct *vma);
bool limelight_track_mappings(void);
bool __limelight_keep_folio(struct limelight_reclaim *reclaim, struct folio *folio);
bool __limelight_rotate_folio(struct limelight_reclaim *reclaim, struct folio *folio);
bool limelight_keep_known_folio(struct limelight_reclaim *reclaim, struct folio *folio,
				bool active);
void __limelight_count_reclaimed(unsigned long nr_pages);
bool __limelight_migrate_instead(struct folio *folio);
void __limelight_anon_add(struct folio *folio, struct mm_struct *mm);
void __limelight_cache_add(struct folio *folio);
void __limelight_cache_touch(struct folio *folio);
void __limelight_cache_move(struct folio *to, struct folio *from);
void __limelight_cache_collapse(struct folio *to, struct list_head *old);

/* Starts reclaim of @pgdat for @memcg's limit; a NULL @memcg: global reclaim. */
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
 * Ends protection in a task's reclaim_state until limelight_reclaim_begin(), for a nested
 * reclaim with a state of its own: rmap walks end early only for the one that protects.
 */
static inline void limelight_reclaim_off(struct limelight_reclaim *reclaim)
{
	if (limelight_protecting())
		reclaim->mode = LIMELIGHT_OFF;
}

/*
 * Starts a pass through the priorities. What an earlier pass kept must not end this
 * one: it may be the first to visit another cgroup, or to ignore memory.low.
 */
static inline void limelight_begin_pass(struct limelight_reclaim *reclaim)
{
	if (limelight_protecting())
		reclaim->kept = 0;
}

/*
 * Called after a pass that reclaimed nothing. True if the pass skipped protected
 * folios: the caller should retry, and the next pass may reclaim them.
 */
static inline bool limelight_retry_unprotected(struct limelight_reclaim *reclaim,
					       struct mem_cgroup *memcg, int order)
{
	return limelight_protecting() &&
	       __limelight_retry_unprotected(reclaim, memcg, order);
}

/*
 * Called after a pass that reclaimed @reclaimed pages. @swept: the pass went
 * through all priorities. True if protected folios should not be skipped any
 * longer: after one such sweep of a cgroup, or after several sweeps of a node that
 * reclaimed next to nothing. The next pass may reclaim them.
 */
static inline bool limelight_reclaim_trickled(struct limelight_reclaim *reclaim,
					      struct pglist_data *pgdat,
					      struct mem_cgroup *memcg,
					      bool swept,
					      unsigned long reclaimed, int order)
{
	return limelight_protecting() &&
	       __limelight_reclaim_trickled(reclaim, pgdat, memcg, swept,
					    reclaimed, order);
}

/*
 * Called while nothing has been reclaimed. True if a lower priority would not
 * help, because this pass has already skipped as many pages as @memcg holds.
 */
static inline bool limelight_should_abort(const struct limelight_reclaim *reclaim,
					  const struct mem_cgroup *memcg)
{
	return limelight_protecting() && memcg && reclaim->kept &&
	       __limelight_should_abort(reclaim, memcg);
}

/* Notes that @vma, which belongs to the topmost app, maps the current folio. */
static inline void limelight_note_mapping(struct limelight_reclaim *reclaim,
					  const struct vm_area_struct *vma)
{
	__limelight_note_mapping(reclaim, vma);
}

/* True if further mappings cannot change the decision: end the rmap walk. */
static inline bool limelight_rmap_done(const struct limelight_reclaim *reclaim)
{
	return reclaim->mode == LIMELIGHT_KEEP &&
	       (reclaim->seen & LIMELIGHT_MAPPED);
}

/* After folio_referenced(): whether to keep @folio in this pass. */
static inline bool limelight_keep_folio(struct limelight_reclaim *reclaim,
					struct folio *folio)
{
	return limelight_protecting() && reclaim->mode != LIMELIGHT_OFF &&
	       __limelight_keep_folio(reclaim, folio);
}

/* After folio_referenced(): whether to keep @folio on the active list. */
static inline bool limelight_rotate_folio(struct limelight_reclaim *reclaim,
					  struct folio *folio)
{
	return limelight_protecting() && reclaim->mode == LIMELIGHT_KEEP &&
	       __limelight_rotate_folio(reclaim, folio);
}

/* Whether limelight_keep_known_folio() can return true now. */
static inline bool limelight_keeps_folios(const struct limelight_reclaim *reclaim)
{
	return limelight_protecting() && reclaim->mode == LIMELIGHT_KEEP;
}

/* Counts the folio last passed to limelight_keep_folio(), which was reclaimed. */
static inline void limelight_count_reclaimed(const struct limelight_reclaim *reclaim,
					     unsigned long nr_pages)
{
	if (limelight_protecting() && reclaim->topmost)
		__limelight_count_reclaimed(nr_pages);
}

/* Whether alloc_contig_range() should migrate a clean file folio, not drop it. */
static inline bool limelight_migrate_instead(struct folio *folio)
{
	return limelight_protecting() && __limelight_migrate_instead(folio);
}

/* Tags @folio, which is new anonymous memory of @mm. */
static inline void limelight_anon_add(struct folio *folio, struct mm_struct *mm)
{
	if (limelight_protecting())
		__limelight_anon_add(folio, mm);
}

/* Tags @folio, which has entered the page cache. The caller holds its lock. */
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

static inline void limelight_reclaim_off(struct limelight_reclaim *reclaim)
{
}

static inline void limelight_begin_pass(struct limelight_reclaim *reclaim)
{
}

static inline bool limelight_should_abort(const struct limelight_reclaim *reclaim,
					  const struct mem_cgroup *memcg)
{
	return false;
}

static inline bool limelight_protecting(void)
{
	return false;
}

static inline bool limelight_track_mappings(void)
{
	return false;
}

static inline void limelight_note_mapping(struct limelight_reclaim *reclaim,
					  const struct vm_area_struct *vma)
{
}

static inline bool limelight_rmap_done(const struct limelight_reclaim *reclaim)
{
	return false;
}

static inline bool limelight_keep_folio(struct limelight_reclaim *reclaim,
					struct folio *folio)
{
	return false;
}

static inline bool limelight_rotate_folio(struct limelight_reclaim *reclaim,
					  struct folio *folio)
{
	return false;
}

static inline bool limelight_keeps_folios(const struct limelight_reclaim *reclaim)
{
	return false;
}

static inline bool limelight_keep_known_folio(struct limelight_reclaim *reclaim,
					      struct folio *folio, bool active)
{
	return false;
}

static inline void limelight_count_reclaimed(const struct limelight_reclaim *reclaim,
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

static inline void __limelight_cache_collapse(struct folio *to,
					      struct list_head *old)
{
}

#endif /* CONFIG_LIMELIGHT_PROTECT */

/* Kinds of enlarged read-ahead requests. */
enum limelight_ra {
	LIMELIGHT_RA_NONE,		/* not enlarged */
	LIMELIGHT_RA_STREAM,		/* sequential */
	LIMELIGHT_RA_AROUND,		/* around a fault on a mapping */
	LIMELIGHT_RA_NEIGHBOURS,	/* around a random single page */
	LIMELIGHT_RA_KINDS,
};

#ifdef CONFIG_LIMELIGHT_READAHEAD

/* Enabled while readahead is switched on through /dev/limelight. */
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
void __limelight_ra_collapse(struct folio *to, struct list_head *old);

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

static inline void __limelight_ra_collapse(struct folio *to, struct list_head *old)
{
}

#endif /* CONFIG_LIMELIGHT_READAHEAD */

/* Limit of a read-ahead window: @pages, or more for the topmost app. */
static inline unsigned long limelight_ra_pages(struct readahead_control *ractl,
					       unsigned long pages,
					       enum limelight_ra kind)
{
	if (limelight_reading_ahead())
		return __limelight_ra_pages(ractl, pages, kind);
	return pages;
}

/* Pages to read for a random request of @pages; may move the index back. */
static inline unsigned long
limelight_ra_neighbours(struct readahead_control *ractl, unsigned long pages)
{
	if (limelight_reading_ahead())
		return __limelight_ra_neighbours(ractl, pages);
	return pages;
}

/* Called before a request of @pages: decides whether it counts as enlarged. */
static inline void limelight_ra_request(struct readahead_control *ractl,
					unsigned long pages)
{
	if (limelight_reading_ahead())
		__limelight_ra_request(ractl, pages);
}

/* Marks @folio if its request is enlarged. The caller holds the folio lock. */
static inline void limelight_ra_add(struct readahead_control *ractl,
				    struct folio *folio)
{
	if (limelight_reading_ahead())
		__limelight_ra_add(ractl, folio);
}

/* Notes that a fault maps @folio. */
static inline void limelight_ra_used(struct folio *folio)
{
	if (limelight_reading_ahead())
		__limelight_ra_used(folio);
}

/* Notes that reclaim is about to remove @folio from the page cache. */
static inline void limelight_ra_evicted(struct folio *folio)
{
	if (limelight_reading_ahead())
		__limelight_ra_evicted(folio);
}

/* Notes that current accesses @folio, which need not be in the page cache. */
static inline void limelight_cache_touch(struct folio *folio)
{
	if (limelight_protecting())
		__limelight_cache_touch(folio);
	if (limelight_reading_ahead())
		__limelight_ra_used(folio);
}

/* Clears the mark of @folio, which has left the page cache. */
static inline void limelight_ra_forget(struct folio *folio)
{
	if (limelight_reading_ahead())
		__limelight_ra_forget(folio);
}

/* Copies the tag and moves the mark: @to replaces @from in the page cache. */
static inline void limelight_cache_move(struct folio *to, struct folio *from)
{
	if (limelight_protecting())
		__limelight_cache_move(to, from);
	if (limelight_reading_ahead())
		__limelight_ra_move(to, from);
}

/* @to is about to replace the folios of list @old in the page cache. */
static inline void limelight_cache_collapse(struct folio *to, struct list_head *old)
{
	if (limelight_protecting())
		__limelight_cache_collapse(to, old);
	if (limelight_reading_ahead())
		__limelight_ra_collapse(to, old);
}

#ifdef CONFIG_LIMELIGHT_PREMAP

/* Enabled while premap is switched on through /dev/limelight. */
DECLARE_STATIC_KEY_FALSE(limelight_premap_key);

bool __limelight_premap(struct vm_fault *vmf);
void __limelight_premap_zap(struct vm_area_struct *vma, unsigned long start,
			    unsigned long end);
void limelight_premap_free(struct mm_struct *mm);

/*
 * Called for a fault without a page table entry. Handles it if it is a write by the
 * topmost app to private anonymous memory and deserves a window of pages. True if
 * the fault has been handled.
 */
static inline bool limelight_premap(struct vm_fault *vmf)
{
	return static_branch_unlikely(&limelight_premap_key) &&
	       __limelight_premap(vmf);
}

/* Counts untouched pages of @vma from @start to @end, which will be unmapped. */
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

/* Why pages were drained from the pool of zeroed pages. */
enum limelight_prezero_drain {
	LIMELIGHT_DRAIN_ALLOCATION,	/* slow path of the page allocator */
	LIMELIGHT_DRAIN_KSWAPD,		/* kswapd, before it reclaims */
	LIMELIGHT_DRAIN_OOM,		/* OOM, before a process is killed */
	LIMELIGHT_DRAIN_SHRINKER,	/* shrink_slab() */
	LIMELIGHT_DRAIN_RANGE,		/* isolation of a range of pages */
	LIMELIGHT_DRAIN_COMPACTION,	/* compaction of a zone */
	LIMELIGHT_DRAIN_OFF,		/* prezero is disabled, or its target lowered */
};

#ifdef CONFIG_LIMELIGHT_PREZERO

/* Enabled while prezero is switched on through /dev/limelight. */
DECLARE_STATIC_KEY_FALSE(limelight_prezero_key);

static inline bool limelight_prezeroing(void)
{
	return static_branch_unlikely(&limelight_prezero_key);
}

struct folio *__limelight_prezero_folio(struct vm_area_struct *vma);
void __limelight_prezero_missed(struct mm_struct *mm, unsigned long pages);
void __limelight_prezero_drain_alloc(gfp_t gfp_mask, unsigned int order);
bool __limelight_prezero_drain_kswapd(struct pglist_data *pgdat, int order,
				      int priority);
void __limelight_prezero_drain_isolation(void);
void __limelight_prezero_drain_compaction(struct zone *zone);

/* Returns a zeroed page for a fault on @vma, or NULL: the caller allocates one. */
static inline struct folio *limelight_prezero_folio(struct vm_area_struct *vma)
{
	return limelight_prezeroing() ? __limelight_prezero_folio(vma) : NULL;
}

/* Counts @pages that had to be zeroed during a fault of @mm. */
static inline void limelight_prezero_missed(struct mm_struct *mm,
					    unsigned long pages)
{
	if (limelight_prezeroing())
		__limelight_prezero_missed(mm, pages);
}

/* Frees the pool in the slow path of the page allocator. */
static inline void limelight_prezero_drain_alloc(gfp_t gfp_mask, unsigned int order)
{
	if (limelight_prezeroing())
		__limelight_prezero_drain_alloc(gfp_mask, order);
}

/* Frees the node's pool before kswapd reclaims. True if that freed pages. */
static inline bool limelight_prezero_drain_kswapd(struct pglist_data *pgdat, int order,
						  int priority)
{
	return limelight_prezeroing() &&
	       __limelight_prezero_drain_kswapd(pgdat, order, priority);
}

/* Frees the pool before a range of pages is isolated. */
static inline void limelight_prezero_drain_isolation(void)
{
	if (limelight_prezeroing())
		__limelight_prezero_drain_isolation();
}

/* Frees the pool of the node of @zone before @zone is compacted. */
static inline void limelight_prezero_drain_compaction(struct zone *zone)
{
	if (limelight_prezeroing())
		__limelight_prezero_drain_compaction(zone);
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

static inline void limelight_prezero_drain_alloc(gfp_t gfp_mask, unsigned int order)
{
}

static inline bool limelight_prezero_drain_kswapd(struct pglist_data *pgdat, int order,
						  int priority)
{
	return false;
}

static inline void limelight_prezero_drain_isolation(void)
{
}

static inline void limelight_prezero_drain_compaction(struct zone *zone)
{
}

#endif /* CONFIG_LIMELIGHT_PREZERO */

#endif /* _LINUX_LIMELIGHT_H */
