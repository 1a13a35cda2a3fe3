// SPDX-License-Identifier: GPL-2.0-only
/*
 * Limelight prezero, the filler: a batch of pages goes through an engine.
 *
 * An engine that fails does no harm: what it did not zero goes back to the page
 * allocator as it came. After STRIKES batches in a row with errors, or one that
 * never came back, it is dropped, and the CPU does its work.
 */
#include <linux/bitops.h>
#include <linux/limelight.h>
#include <linux/mm.h>
#include <linux/string.h>
#include <linux/vmstat.h>
#include <trace/events/limelight.h>

#include "internal.h"
#include "prezero.h"

/* Batches in a row that an engine may fail. */
#define STRIKES		3

static const struct prezero_engine *const engines[] = {
	[LIMELIGHT_ENGINE_CPU] = &prezero_cpu_engine,
#ifdef CONFIG_LIMELIGHT_PREZERO_BLOCK
	[LIMELIGHT_ENGINE_BLOCK] = &prezero_block_engine,
#endif
#ifdef CONFIG_LIMELIGHT_PREZERO_DMA
	[LIMELIGHT_ENGINE_DMA] = &prezero_dma_engine,
#endif
};

/* The engine of that number, NULL: there is none in this kernel. */
const struct prezero_engine *prezero_engine_by_id(u32 id)
{
	return id < ARRAY_SIZE(engines) ? engines[id] : NULL;
}

/* From now on @engine zeroes for @filler; it has done nothing wrong yet. */
void prezero_filler_set(struct prezero_filler *filler,
			const struct prezero_engine *engine, void *state,
			bool verify)
{
	filler->engine = engine;
	filler->state = state;
	filler->verify = verify;
	atomic_set(&filler->strikes, 0);
	atomic_long_set(&filler->errors, 0);
}

/* Whether the CPU stands in for the engine of @filler. */
bool prezero_filler_dropped(const struct prezero_filler *filler)
{
	return atomic_read(&filler->strikes) >= STRIKES;
}

/* @error: what the batch came to, 0 or negative; @pages that were not zeroed. */
static void judge(struct prezero_filler *filler, int error, unsigned int pages)
{
	if (!error) {
		if (!prezero_filler_dropped(filler))
			atomic_set(&filler->strikes, 0);
		return;
	}
	if (error == -EAGAIN)
		return;
	atomic_long_add(pages, &filler->errors);
	count_vm_events(LIMELIGHT_PREZERO_ENGINE_ERRORS, pages);
	trace_limelight_prezero_error(filler->engine->id, error, pages);
	if (prezero_filler_dropped(filler))
		return;
	/* What never came back is not asked again. */
	atomic_add(error == -ETIMEDOUT ? STRIKES : 1, &filler->strikes);
	if (prezero_filler_dropped(filler))
		pr_warn("limelight: prezero: engine %s dropped (error %d), the CPU zeroes now\n",
			filler->engine->name, error);
}

/* Whether a device alone zeroes for @filler now: who verifies works as hard. */
bool prezero_filler_is_device(const struct prezero_filler *filler)
{
	return filler->engine->device && !READ_ONCE(filler->verify) &&
	       !prezero_filler_dropped(filler);
}

/*
 * Has @nr pages of @nid zeroed, and sets the bits of those that are in @zeroed.
 *
 * Return: how many.
 */
static unsigned int zero_batch(struct prezero_filler *filler, int nid,
			       struct page **pages, unsigned int nr, u64 *zeroed)
{
	const struct prezero_engine *engine = filler->engine;
	bool verify = READ_ONCE(filler->verify);
	unsigned int i, done;
	int error = 0;

	*zeroed = 0;
	if (want_init_on_alloc(GFP_PREZERO)) {
		/* All of them are zero already. */
		*zeroed = GENMASK_ULL(nr - 1, 0);
		verify = false;
	} else if (prezero_filler_dropped(filler)) {
		engine = &prezero_cpu_engine;
		verify = false;
		engine->zero(NULL, pages, nr, zeroed);
	} else {
		error = engine->zero(filler->state, pages, nr, zeroed);
	}

	for (i = 0; verify && i < nr; i++) {
		if ((*zeroed & BIT_ULL(i)) &&
		    memchr_inv(page_address(pages[i]), 0, PAGE_SIZE)) {
			*zeroed &= ~BIT_ULL(i);
			error = error ?: -EILSEQ;
		}
	}
	done = hweight64(*zeroed);
	if (engine == filler->engine)
		judge(filler, error, nr - done);
	trace_limelight_prezero_fill(nid, engine->id, nr, done);
	return done;
}

/*
 * Gets up to @nr pages, has them zeroed, and adds those that are to the pool.
 * Whatever else becomes of a page, it goes back to the page allocator.
 *
 * Return: pages added, or -ENOMEM: there were none to be had.
 */
int prezero_fill(struct prezero_pool *pool, int nid,
		 struct prezero_filler *filler, unsigned int nr)
{
	struct page *pages[PREZERO_BATCH] = {};
	unsigned int got, i, done;
	LIST_HEAD(list);
	u64 zeroed;

	got = alloc_pages_bulk_array_node(GFP_PREZERO, nid, nr, pages);
	if (!got)
		return -ENOMEM;
	done = zero_batch(filler, nid, pages, got, &zeroed);
	for (i = 0; i < got; i++) {
		if (zeroed & BIT_ULL(i))
			list_add_tail(&pages[i]->lru, &list);
		else
			__free_page(pages[i]);
	}
	if (done)
		prezero_pool_add(pool, nid, &list, done);
	count_vm_events(LIMELIGHT_PREZERO_ZEROED, done);
	return done;
}

/*
 * The same with up to @nr folios of PREZERO_ORDER; one of which a single page
 * was not zeroed goes back as a whole.
 *
 * Return: pages added, or -ENOMEM.
 */
int prezero_fill_folios(struct prezero_pool *pool, int nid,
			struct prezero_filler *filler, unsigned int nr)
{
	const u64 whole = GENMASK_ULL(PREZERO_FOLIO_PAGES - 1, 0);
	struct folio *folios[PREZERO_BATCH / PREZERO_FOLIO_PAGES];
	struct page *pages[PREZERO_BATCH];
	unsigned int got = 0, i, done = 0;
	u64 zeroed;

	while (got < min_t(unsigned int, nr, ARRAY_SIZE(folios))) {
		folios[got] = __folio_alloc_node(GFP_PREZERO, PREZERO_ORDER, nid);
		if (!folios[got])
			break;
		for (i = 0; i < PREZERO_FOLIO_PAGES; i++)
			pages[got * PREZERO_FOLIO_PAGES + i] =
				folio_page(folios[got], i);
		got++;
	}
	if (!got)
		return -ENOMEM;
	zero_batch(filler, nid, pages, got * PREZERO_FOLIO_PAGES, &zeroed);
	for (i = 0; i < got; i++) {
		if ((zeroed >> (i * PREZERO_FOLIO_PAGES) & whole) == whole) {
			prezero_pool_add_folio(pool, nid, folios[i]);
			done += PREZERO_FOLIO_PAGES;
		} else {
			folio_put(folios[i]);
		}
	}
	count_vm_events(LIMELIGHT_PREZERO_ZEROED, done);
	return done;
}

#ifdef CONFIG_LIMELIGHT_KUNIT_TEST
#include "tests/prezero_filler-kunit.h"
#endif
