/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _MM_LIMELIGHT_INTERNAL_H
#define _MM_LIMELIGHT_INTERNAL_H

#include <linux/atomic.h>
#include <linux/limelight.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <uapi/linux/limelight.h>

#include "compat.h"

/* Default budget of protect, in percent of reclaimable memory. */
#define LIMELIGHT_BUDGET_DEFAULT	60
#define LIMELIGHT_BUDGET_MAX		90

/* Default read-ahead factor. */
#define LIMELIGHT_FACTOR_DEFAULT	8

/* Default size of premap's largest window, in pages. */
#define LIMELIGHT_WINDOW_DEFAULT	64
/* Order of the largest folios in a window: 64 KiB with 4 KiB pages. */
#define LIMELIGHT_FOLIO_ORDER_DEFAULT	4
#define LIMELIGHT_FOLIO_ORDER_MAX	8

/* Default target of the pool of zeroed pages, in pages. */
#define LIMELIGHT_PREZERO_TARGET_DEFAULT	4096
/* Order of the large folios in the pool, for premap's windows. */
#define LIMELIGHT_PREZERO_ORDER			LIMELIGHT_FOLIO_ORDER_DEFAULT
/* Lease of the topmost set: time from the last ioctl until the set is emptied. */
#define LIMELIGHT_LEASE_MS	300000

/* The pool holds at most one in this many pages of memory. */
#define LIMELIGHT_PREZERO_SHARE			12

/*
 * struct limelight_usage - memory of the live members, in pages
 * @members: live processes of the topmost set
 * @anon: anonymous memory, summed over the members
 * @file: file and shared memory, summed over the members
 */
struct limelight_usage {
	unsigned int members;
	unsigned long anon;
	unsigned long file;
};

/* Most programs executed by members since SET_TOPMOST whose tags are kept. */
#define LIMELIGHT_TAGS_JOINED		32

/*
 * struct limelight_tags - the tags of the topmost app
 * @rcu: for kvfree_rcu()
 * @generation: number of the topmost set
 * @joined: tags of the programs that members have executed last, in any order;
 *	the first 0 ends the list
 * @next: index of @joined that the next tag replaces
 * @nr: entries of @tag
 * @tag: ascending, no duplicates, never 0
 */
struct limelight_tags {
	struct rcu_head rcu;
	u64 generation;
	u32 joined[LIMELIGHT_TAGS_JOINED];
	unsigned int next;
	unsigned int nr;
	u32 tag[] __counted_by(nr);
};

/*
 * struct limelight_tagged - pages with a tag of the topmost app
 * @cached: unmapped, in the page cache
 * @anon: anonymous and mapped by any process
 */
struct limelight_tagged {
	unsigned long cached;
	unsigned long anon;
};

/* core.c */
int limelight_topmost_set(struct task_struct **tasks, unsigned int nr);
void limelight_topmost_clear(void);
void limelight_usage(struct limelight_usage *usage);
unsigned long limelight_node_room(struct pglist_data *pgdat);
unsigned long limelight_node_fault_room(struct pglist_data *pgdat);
unsigned long limelight_node_min_room(struct pglist_data *pgdat);
unsigned long limelight_node_clean_cache(struct pglist_data *pgdat);
unsigned long limelight_cgroup_room(struct mm_struct *mm);

/* device.c */
extern unsigned int limelight_lease_ms;

/* window.c */
extern atomic_long_t limelight_windows_opened;
extern atomic_long_t limelight_windows_expired;
int limelight_window_request(u32 flags, u64 deadline_ns);
void limelight_window_end(enum limelight_window_end why);
bool limelight_in_window_since(u64 since);
void limelight_window_init(void);

/* sysfs.c */
int limelight_sysfs_init(void);

/*
 * Whether @now is before @until, for a deadline at most @longest jiffies ahead. A
 * deadline that seems further ahead is stale, from before jiffies wrapped.
 */
static inline bool limelight_pending(unsigned long until, unsigned long now,
				     unsigned long longest)
{
	return until - now - 1 < longest;
}

/* Whether neither the VMA nor the task has a memory policy. */
static inline bool limelight_no_policy(const struct vm_area_struct *vma)
{
#ifdef CONFIG_NUMA
	return !vma->vm_policy && !current->mempolicy;
#else
	return true;
#endif
}

#ifdef CONFIG_LIMELIGHT_PROTECT

/* protect.c */
int limelight_protect_configure(bool on, u32 budget_percent);
bool limelight_protect_enabled(void);
void limelight_protect_topmost(void);
void limelight_protect_reset(void);
unsigned int limelight_protect_suspended_ms(void);
bool limelight_suspended(const struct limelight_suspend *suspend,
			 unsigned long now, u32 generation);
unsigned int limelight_suspend_target(struct limelight_suspend *suspend,
				      unsigned long now, u32 generation,
				      unsigned int first);
bool limelight_trickled(struct limelight_suspend *suspend, unsigned long reclaimed,
			unsigned long kept);

/* footprint.c */
extern unsigned int limelight_budget_percent;
int limelight_budget_set(unsigned int percent, bool remember);
void limelight_budget_reset(void);
unsigned long limelight_reachable_pages(void);
unsigned long limelight_budget_pages(void);
bool limelight_over_budget(bool was_over, unsigned long pages, unsigned long budget);
enum limelight_mode limelight_footprint_mode(bool *cached);
void limelight_footprint_renew(void);
void limelight_footprint_stop(void);
unsigned long limelight_footprint_mapped(void);
unsigned long limelight_footprint_cached(void);

/* identifier.c */
u32 limelight_tag_of(struct mm_struct *mm);
void limelight_tag_inherit(struct mm_struct *mm, const struct mm_struct *parent);
struct limelight_tags *limelight_tags_alloc(unsigned int nr, u64 generation);
void limelight_tags_join(u32 tag, u64 generation);
void limelight_tags_add(struct limelight_tags *tags, u32 tag);
void limelight_tags_finish(struct limelight_tags *tags);
bool limelight_tags_has(const struct limelight_tags *tags, u32 tag);
void limelight_tags_publish(struct limelight_tags *tags);
bool limelight_folio_tagged(struct folio *folio);
bool limelight_folio_known(struct folio *folio, bool cached);
void limelight_folio_confirm(struct folio *folio, u32 tag);
int limelight_identifier_start(void);
void limelight_identifier_stop(void);
void limelight_identifier_count(struct limelight_tagged *tagged);

#else /* !CONFIG_LIMELIGHT_PROTECT */

static inline u32 limelight_tag_of(struct mm_struct *mm)
{
	return 0;
}

static inline void limelight_tag_inherit(struct mm_struct *mm,
					 const struct mm_struct *parent)
{
}

static inline struct limelight_tags *limelight_tags_alloc(unsigned int nr,
							  u64 generation)
{
	return NULL;
}

static inline void limelight_tags_join(u32 tag, u64 generation)
{
}

static inline void limelight_tags_add(struct limelight_tags *tags, u32 tag)
{
}

static inline void limelight_tags_publish(struct limelight_tags *tags)
{
}

static inline void limelight_protect_topmost(void)
{
}

static inline int limelight_protect_configure(bool on, u32 budget_percent)
{
	return -EOPNOTSUPP;
}

static inline bool limelight_protect_enabled(void)
{
	return false;
}

static inline void limelight_protect_reset(void)
{
}

#endif /* CONFIG_LIMELIGHT_PROTECT */

#ifdef CONFIG_LIMELIGHT_READAHEAD

/* readahead.c */
extern unsigned int limelight_factor;
int limelight_factor_set(unsigned int factor, bool remember);
unsigned int limelight_readahead_factor(enum limelight_ra kind);
int limelight_readahead_configure(bool on, u32 factor);
bool limelight_readahead_enabled(void);
void limelight_readahead_reset(void);

#else /* !CONFIG_LIMELIGHT_READAHEAD */

static inline int limelight_readahead_configure(bool on, u32 factor)
{
	return -EOPNOTSUPP;
}

static inline bool limelight_readahead_enabled(void)
{
	return false;
}

static inline void limelight_readahead_reset(void)
{
}

#endif /* CONFIG_LIMELIGHT_READAHEAD */

#ifdef CONFIG_LIMELIGHT_PREMAP

/* premap.c */
extern unsigned int limelight_window_pages;
extern unsigned int limelight_folio_order;
int limelight_window_set(unsigned int pages, bool remember);
int limelight_folio_order_set(unsigned int order);
int limelight_premap_configure(bool on, u32 window_pages);
bool limelight_premap_enabled(void);
bool limelight_premap_takes(unsigned int order);
void limelight_premap_reset(void);

#else /* !CONFIG_LIMELIGHT_PREMAP */

static inline int limelight_premap_configure(bool on, u32 window_pages)
{
	return -EOPNOTSUPP;
}

static inline bool limelight_premap_enabled(void)
{
	return false;
}

static inline bool limelight_premap_takes(unsigned int order)
{
	return false;
}

static inline void limelight_premap_reset(void)
{
}

#endif /* CONFIG_LIMELIGHT_PREMAP */

#ifdef CONFIG_LIMELIGHT_PREZERO

/* prezero.c */
extern bool limelight_prezero_verify;
unsigned int limelight_prezero_pages(struct vm_area_struct *vma,
				     struct page **pages, unsigned int nr);
int limelight_prezero_configure(const struct limelight_mechanism *params);
bool limelight_prezero_enabled(void);
unsigned long limelight_prezero_target(void);
unsigned long limelight_prezero_pooled(void);
void limelight_prezero_wake(void);
void limelight_prezero_reset(void);

struct folio *limelight_prezero_large(struct vm_area_struct *vma);

/* Takes up to @nr zeroed pages for a premap window. Return: the number taken. */
static inline unsigned int
limelight_prezero_window(struct vm_area_struct *vma, struct page **pages,
			 unsigned int nr)
{
	return limelight_prezeroing() ?
	       limelight_prezero_pages(vma, pages, nr) : 0;
}

/* Takes a zeroed folio of @order for a premap window; NULL: there is none. */
static inline struct folio *
limelight_prezero_window_folio(struct vm_area_struct *vma, unsigned int order)
{
	return limelight_prezeroing() && order == LIMELIGHT_PREZERO_ORDER ?
	       limelight_prezero_large(vma) : NULL;
}

#else /* !CONFIG_LIMELIGHT_PREZERO */

static inline unsigned int
limelight_prezero_window(struct vm_area_struct *vma, struct page **pages,
			 unsigned int nr)
{
	return 0;
}

static inline struct folio *
limelight_prezero_window_folio(struct vm_area_struct *vma, unsigned int order)
{
	return NULL;
}

static inline int
limelight_prezero_configure(const struct limelight_mechanism *params)
{
	return -EOPNOTSUPP;
}

static inline bool limelight_prezero_enabled(void)
{
	return false;
}

static inline void limelight_prezero_wake(void)
{
}

static inline void limelight_prezero_reset(void)
{
}

#endif /* CONFIG_LIMELIGHT_PREZERO */

#endif /* _MM_LIMELIGHT_INTERNAL_H */
