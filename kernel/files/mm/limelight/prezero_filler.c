// SPDX-License-Identifier: GPL-2.0-only
/*
 * Limelight prezero, the filler: zeroes batches of pages with an engine.
 *
 * Pages that an engine failed to zero are freed. After MAX_FAILURES consecutive
 * batches with errors, or one batch that timed out, the engine is dropped and the CPU
 * zeroes instead.
 */
#include <linux/bitops.h>
#include <linux/limelight.h>
#include <linux/mm.h>
#include <linux/string.h>
#include <linux/vmstat.h>
#include <trace/events/limelight.h>

#include "internal.h"
#include "prezero.h"

/* Consecutive failed batches after which an engine is dropped. */
#define MAX_FAILURES	3

static const struct prezero_engine *const engines[] = {
	[LIMELIGHT_ENGINE_CPU] = &prezero_cpu_engine,
#ifdef CONFIG_LIMELIGHT_PREZERO_BLOCK
	[LIMELIGHT_ENGINE_BLOCK] = &prezero_block_engine,
#endif
#ifdef CONFIG_LIMELIGHT_PREZERO_DMA
	[LIMELIGHT_ENGINE_DMA] = &prezero_dma_engine,
#endif
};

/* Returns the engine with this id; NULL: it is not built in. */
const struct prezero_engine *prezero_engine_by_id(u32 id)
{
	return id < ARRAY_SIZE(engines) ? engines[id] : NULL;
}

/* Switches @filler to @engine, and resets its failures. */
void prezero_filler_set(struct prezero_filler *filler,
			const struct prezero_engine *engine, void *state,
			bool verify)
{
	filler->engine = engine;
	filler->state = state;
	filler->verify = verify;
	atomic_set(&filler->failures, 0);
	atomic_long_set(&filler->errors, 0);
}

/* Whether the engine of @filler was dropped, and the CPU zeroes instead. */
bool prezero_filler_dropped(const struct prezero_filler *filler)
{
	return atomic_read(&filler->failures) >= MAX_FAILURES;
}

/* Records a batch. @error: 0 or -errno; @pages: pages that were not zeroed. */
static void filler_record_result(struct prezero_filler *filler, int error, unsigned int pages)
{
	if (!error) {
		if (!prezero_filler_dropped(filler))
			atomic_set(&filler->failures, 0);
		return;
	}
	if (error == -EAGAIN)
		return;
	atomic_long_add(pages, &filler->errors);
	count_vm_events(LIMELIGHT_PREZERO_ENGINE_ERRORS, pages);
	trace_limelight_prezero_error(filler->engine->id, error, pages);
	if (prezero_filler_dropped(filler))
		return;
	/* A batch that timed out drops the engine at once. */
	atomic_add(error == -ETIMEDOUT ? MAX_FAILURES : 1, &filler->failures);
	if (prezero_filler_dropped(filler))
		pr_warn("limelight: prezero: engine %s dropped (error %d), using the CPU\n",
			filler->engine->name, error);
}

/* Whether a device zeroes for @filler and the CPU does not verify its pages. */
bool prezero_filler_is_device(const struct prezero_filler *filler)
{
	return filler->engine->device && !READ_ONCE(filler->verify) &&
	       !prezero_filler_dropped(filler);
}

/*
 * Zeroes @nr pages of @nid, and sets the bits of the zeroed ones in @zeroed.
 *
 * Return: the number of zeroed pages.
 */
static unsigned int filler_zero_batch(struct prezero_filler *filler, int nid,
				      struct page **pages, unsigned int nr, u64 *zeroed)
{
	const struct prezero_engine *engine = filler->engine;
	bool verify = READ_ONCE(filler->verify);
	unsigned int i, done;
	int error = 0;

	*zeroed = 0;
	if (want_init_on_alloc(GFP_PREZERO)) {
		/* The page allocator has already zeroed all of them. */
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
		filler_record_result(filler, error, nr - done);
	trace_limelight_prezero_fill(nid, engine->id, nr, done);
	return done;
}

/*
 * Allocates up to @nr pages, zeroes them, and adds the zeroed ones to the pool. The
 * others are freed.
 *
 * Return: pages added, or -ENOMEM.
 */
int prezero_fill(struct prezero_pool *pool, int nid,
		 struct prezero_filler *filler, unsigned int nr)
{
	struct page *pages[PREZERO_BATCH] = {};
	unsigned int got, i, done;
	LIST_HEAD(list);
	u64 zeroed;

	got = alloc_pages_bulk_node(GFP_PREZERO, nid, nr, pages);
	if (!got)
		return -ENOMEM;
	done = filler_zero_batch(filler, nid, pages, got, &zeroed);
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
 * prezero_fill() for up to @nr folios of PREZERO_ORDER. A folio is freed if one of
 * its pages was not zeroed.
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
	filler_zero_batch(filler, nid, pages, got * PREZERO_FOLIO_PAGES, &zeroed);
	for (i = 0; i < got; i++) {
		if ((zeroed >> (i * PREZERO_FOLIO_PAGES) & whole) == whole) {
			prezero_pool_add_folio(pool, nid, folios[i]);
			done += PREZERO_FOLIO_PAGES;
		} else if (!prezero_folio_has_poison(folios[i])) {
			folio_put(folios[i]);
		}
	}
	count_vm_events(LIMELIGHT_PREZERO_ZEROED, done);
	return done;
}

#ifdef CONFIG_LIMELIGHT_KUNIT_TEST
#include "tests/prezero_filler-kunit.h"
#endif
