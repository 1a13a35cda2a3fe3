/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Internal interfaces of prezero: pool, filler, manager, engines.
 */
#ifndef _MM_LIMELIGHT_PREZERO_H
#define _MM_LIMELIGHT_PREZERO_H

#include <linux/atomic.h>
#include <linux/bits.h>
#include <linux/cpumask.h>
#include <linux/gfp.h>
#include <linux/list.h>
#include <linux/nodemask.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <uapi/linux/limelight.h>

#include "internal.h"

/* Pages in a batch: the bits of a u64. */
#define PREZERO_BATCH		64
/* Pages in a CPU's list, and in the batch that refills it. */
#define PREZERO_CPU_PAGES	32

/* Order of the large folios in the pool. */
#define PREZERO_ORDER		LIMELIGHT_PREZERO_ORDER
#define PREZERO_FOLIO_PAGES	BIT(PREZERO_ORDER)

/*
 * Free memory only: no reclaim, no kswapd wakeup, no reserves.
 */
#define GFP_PREZERO	((GFP_HIGHUSER_MOVABLE & ~__GFP_RECLAIM) | \
			 __GFP_THISNODE | __GFP_NORETRY | __GFP_NOWARN | \
			 __GFP_NOMEMALLOC)

/*
 * struct prezero_node - the zeroed pages of a memory node
 * @lock: protects the lists and counts; taken inside a CPU's
 * @pages: single pages, linked by page->lru
 * @folios: folios of PREZERO_ORDER, linked by folio->lru
 * @nr: pages in @pages
 * @nr_folios: folios in @folios
 * @target: pages that the node and its CPUs should have in total
 * @stocked: CPUs whose list may hold pages, so that counting and draining skip all
 *	other CPUs. Changes under the CPU's lock: set before the list is refilled,
 *	cleared by a drain that empties it
 */
struct prezero_node {
	spinlock_t lock;	/* lists and counts */
	struct list_head pages;
	struct list_head folios;
	unsigned long nr;
	unsigned long nr_folios;
	unsigned long target;
	cpumask_var_t stocked;
};

/*
 * struct prezero_cpu - the list of zeroed pages of a CPU
 * @lock: protects the list; other CPUs take it to drain
 * @cpu: the CPU
 * @nid: the node of the pages
 * @nr: pages in @pages
 */
struct prezero_cpu {
	spinlock_t lock;	/* @nr, @pages */
	int cpu;
	int nid;
	unsigned int nr;
	struct page *pages[PREZERO_CPU_PAGES];
};

/*
 * struct prezero_pool - a pool of zeroed pages
 * @nodes: nr_node_ids entries
 * @cpus: one for each possible CPU
 */
struct prezero_pool {
	struct prezero_node *nodes;
	struct prezero_cpu __percpu *cpus;
};

/* prezero_pool.c */
int prezero_pool_init(struct prezero_pool *pool);
void prezero_pool_destroy(struct prezero_pool *pool);
void prezero_pool_set_target(struct prezero_pool *pool, unsigned long pages);
void prezero_pool_add(struct prezero_pool *pool, int nid,
		      struct list_head *pages, unsigned int nr);
unsigned int prezero_pool_get(struct prezero_pool *pool,
			      const nodemask_t *allowed, struct page **pages,
			      unsigned int nr, bool *refilled);
void prezero_pool_add_folio(struct prezero_pool *pool, int nid,
			    struct folio *folio);
bool prezero_folio_has_poison(struct folio *folio);
struct folio *prezero_pool_get_folio(struct prezero_pool *pool,
				     const nodemask_t *allowed);
unsigned long prezero_pool_drain(struct prezero_pool *pool, int nid,
				 unsigned long most);
unsigned long prezero_pool_singles(const struct prezero_pool *pool, int nid);
unsigned long prezero_pool_pages(const struct prezero_pool *pool, int nid);

/*
 * struct prezero_engine - a way to zero pages
 * @name: its name in sysfs
 * @id: LIMELIGHT_ENGINE_*
 * @verify: whether its pages are verified by default
 * @device: a device does the work, and the CPU next to none
 * @missing: why it is known to be unavailable, or NULL. Has no side effects
 * @start: acquires resources; returns a state, or an ERR_PTR(). NULL: stateless
 * @same: whether a state matches these parameters
 * @stop: releases the state
 * @zero: zeroes @nr pages, at most PREZERO_BATCH, and sets the bits of the zeroed
 *	pages in @zeroed. Returns 0 or a negative error; -EAGAIN means that there
 *	was no memory for the request, which is not a failure of the engine. After
 *	its return, the engine writes only to pages that it holds references to.
 */
struct prezero_engine {
	const char *name;
	u32 id;
	bool verify;
	bool device;
	const char *(*missing)(void);
	void *(*start)(const struct limelight_mechanism *params);
	bool (*same)(const void *state, const struct limelight_mechanism *params);
	void (*stop)(void *state);
	int (*zero)(void *state, struct page **pages, unsigned int nr,
		    u64 *zeroed);
};

/*
 * struct prezero_filler - the engine in use, and its failures
 * @engine: the engine
 * @state: its state
 * @verify: the CPU verifies each page that the engine reports as zeroed
 * @failures: consecutive batches that failed
 * @errors: pages that the engine failed to zero
 */
struct prezero_filler {
	const struct prezero_engine *engine;
	void *state;
	bool verify;
	atomic_t failures;
	atomic_long_t errors;
};

/* prezero_filler.c */
const struct prezero_engine *prezero_engine_by_id(u32 id);
void prezero_filler_set(struct prezero_filler *filler,
			const struct prezero_engine *engine, void *state,
			bool verify);
bool prezero_filler_dropped(const struct prezero_filler *filler);
bool prezero_filler_is_device(const struct prezero_filler *filler);
int prezero_fill(struct prezero_pool *pool, int nid,
		 struct prezero_filler *filler, unsigned int nr);
int prezero_fill_folios(struct prezero_pool *pool, int nid,
			struct prezero_filler *filler, unsigned int nr);

/* prezero_cpu.c */
extern const struct prezero_engine prezero_cpu_engine;

/* prezero_block.c, prezero_dma.c */
extern const struct prezero_engine prezero_block_engine;
extern const struct prezero_engine prezero_dma_engine;

/* prezero_manager.c */
extern struct prezero_pool limelight_zeroed;

int prezero_manager_start(void);
void prezero_manager_stop(void);
int prezero_manager_use(const struct limelight_mechanism *params);
void prezero_manager_taken(int nid);
void prezero_manager_wake(void);
bool prezero_manager_keeps(int nid);
bool prezero_manager_kswapd_keeps(int nid, int priority);
bool prezero_manager_is_current(void);
void prezero_manager_pause(void);
void prezero_manager_quiesce(void);
u64 prezero_manager_cpu_ns(void);
unsigned long prezero_manager_errors(void);
void prezero_manager_count_dirty(void);
const struct prezero_engine *prezero_manager_engine(bool *dropped);

#endif /* _MM_LIMELIGHT_PREZERO_H */
