// SPDX-License-Identifier: GPL-2.0-only
/*
 * Limelight protect: reclaim skips the pages of the topmost app.
 *
 * The rule is that of memory.low, for folios instead of cgroups. A first pass skips
 * the topmost app's folios and notes that it did. Only if it reclaims nothing does a
 * second pass take them. So protection can delay an allocation, but never fail one.
 *
 * Which folios belong to the topmost app? Reclaim walks the page tables that map a
 * folio before it evicts the folio (folio_referenced()). If one of them belongs to a
 * member of the topmost set, the folio is protected, whichever process brought it
 * in, so shared libraries need no bookkeeping. Folios have the page identifier as
 * well (identifier.c). Mappings whose pages are used once (MADV_SEQUENTIAL,
 * POSIX_FADV_NOREUSE) do not protect. MADV_FREE pages are not protected, because the
 * app has given them up.
 *
 * A protected folio is treated like a referenced one: it returns to the active
 * list, or to the youngest generation. Folios are still scanned, so scan counts,
 * priorities and NR_ISOLATED are those of any reclaim. Only folios that are known to
 * be protected without an rmap walk are moved without being isolated.
 *
 * Three rules bound the cost:
 *
 *   - When a pass finds only protected folios, protection is suspended for its target
 *     (a node, or a cgroup that hit its limit), so that not every allocation sweeps
 *     the lists twice. A suspension lasts 500 ms at first, and doubles up to 8 s if
 *     it happens again soon. For a cgroup it starts with 1 s, because the cgroup's
 *     own processes hit the limit and will do so again.
 *   - Protection is also suspended after sweeps that reclaimed next to nothing: several
 *     of a node, or one of a cgroup.
 *   - An app whose footprint exceeds its budget is not protected against itself
 *     (footprint.c).
 */
#include <kunit/static_stub.h>
#include <linux/cgroup.h>
#include <linux/gfp.h>
#include <linux/jiffies.h>
#include <linux/limelight.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/page_counter.h>
#include <linux/pagemap.h>
#include <linux/rmap.h>
#include <linux/sched.h>
#include <linux/swap.h>
#include <linux/vmstat.h>
#include <trace/events/limelight.h>

#include "internal.h"

#define SUSPEND_MS		500
#define SUSPEND_LEVELS		5	/* 0.5, 1, 2, 4, 8 s */
#define SUSPEND_NODE		1	/* The first level for a target. */
#define SUSPEND_CGROUP		2
#define SUSPEND_LONGEST		msecs_to_jiffies(SUSPEND_MS << (SUSPEND_LEVELS - 1))
/* The level decreases by one for each such interval without a suspension. */
#define SUSPEND_CALM		(8 * HZ)
/* Consecutive sweeps of a node with next to no progress that suspend protection. */
#define TRICKLES		3

DEFINE_STATIC_KEY_FALSE(limelight_protect_key);

static struct limelight_suspend node_suspend[MAX_NUMNODES];

/* -------------------------------------------------------------- suspension */

/* Whether protection is suspended for a target at @now. */
bool limelight_suspended(const struct limelight_suspend *suspend,
			 unsigned long now, u32 generation)
{
	/* A suspension ends with the topmost set that caused it. */
	return READ_ONCE(suspend->level) &&
	       READ_ONCE(suspend->generation) == generation &&
	       limelight_pending(READ_ONCE(suspend->until), now,
				 SUSPEND_LONGEST);
}

/*
 * Suspends protection for a target that held only protected folios at @now.
 * @first: lowest level for a target of its kind. Lockless: racing callers write
 * nearly the same values.
 *
 * Return: the length of the suspension in ms, 0 if the target was suspended already.
 */
unsigned int limelight_suspend_target(struct limelight_suspend *suspend,
				      unsigned long now, u32 generation,
				      unsigned int first)
{
	unsigned int level = READ_ONCE(suspend->level);
	unsigned int ms;

	if (limelight_suspended(suspend, now, generation))
		return 0;

	if (READ_ONCE(suspend->generation) != generation)
		level = 0;
	level -= min_t(unsigned long, level,
		       (now - READ_ONCE(suspend->until)) / SUSPEND_CALM);
	level = clamp(level + 1, first, SUSPEND_LEVELS);

	ms = SUSPEND_MS << (level - 1);
	WRITE_ONCE(suspend->until, now + msecs_to_jiffies(ms));
	WRITE_ONCE(suspend->generation, generation);
	WRITE_ONCE(suspend->level, level);
	return ms;
}

/*
 * Called after a sweep of all priorities that reclaimed @reclaimed pages and skipped
 * @kept protected pages. Without this check, a few pages that become reclaimable now
 * and then would postpone the last resort without end.
 *
 * Return: whether the last TRICKLES sweeps reclaimed next to nothing.
 */
bool limelight_trickled(struct limelight_suspend *suspend, unsigned long reclaimed,
			unsigned long kept)
{
	unsigned int trickles = 0;

	if (reclaimed < max(SWAP_CLUSTER_MAX, kept / 64))
		trickles = READ_ONCE(suspend->trickles) + 1;
	if (trickles >= TRICKLES) {
		WRITE_ONCE(suspend->trickles, 0);
		return true;
	}
	if (READ_ONCE(suspend->trickles) != trickles)
		WRITE_ONCE(suspend->trickles, trickles);
	return false;
}

static struct limelight_suspend *suspend_of(int nid, struct mem_cgroup *memcg)
{
#ifdef CONFIG_MEMCG
	if (memcg)
		return &memcg->limelight_suspend;
#endif
	return &node_suspend[nid];
}

static u64 cgroup_id_of(struct mem_cgroup *memcg)
{
#ifdef CONFIG_MEMCG
	if (memcg)
		return cgroup_id(memcg->css.cgroup);
#endif
	return 0;
}

/* The longest remaining suspension of all nodes in ms, for sysfs. */
unsigned int limelight_protect_suspended_ms(void)
{
	u32 generation = READ_ONCE(limelight_generation);
	unsigned long now = jiffies;
	unsigned int ms = 0;
	int nid;

	for_each_online_node(nid) {
		const struct limelight_suspend *suspend = &node_suspend[nid];

		if (limelight_suspended(suspend, now, generation))
			ms = max(ms, jiffies_to_msecs(suspend->until - now));
	}
	return ms;
}

/* ----------------------------------------------------- one pass of reclaim */

void __limelight_reclaim_begin(struct limelight_reclaim *reclaim,
			       struct pglist_data *pgdat,
			       struct mem_cgroup *memcg, gfp_t gfp_mask)
{
	u32 generation = READ_ONCE(limelight_generation);
	struct limelight_suspend *suspend;
	unsigned int ms;

	reclaim->mode = LIMELIGHT_OFF;
	if (!generation)
		return;
	reclaim->mode = limelight_footprint_mode(&reclaim->cached);
	if (reclaim->mode == LIMELIGHT_OFF)
		return;

	suspend = suspend_of(pgdat->node_id, memcg);
	if (reclaim->last_resort) {
		reclaim->mode = LIMELIGHT_TAKE;
		/*
		 * A GFP_NOIO or GFP_NOFS pass does not predict the next one, so
		 * it does not suspend a node. In a cgroup, however, all
		 * allocations may be of that kind.
		 */
		if (!memcg &&
		    (gfp_mask & (__GFP_IO | __GFP_FS)) != (__GFP_IO | __GFP_FS))
			return;
		ms = limelight_suspend_target(suspend, jiffies, generation,
					      memcg ? SUSPEND_CGROUP : SUSPEND_NODE);
		if (ms)
			trace_limelight_protect_suspend(pgdat->node_id,
							cgroup_id_of(memcg),
							ms);
	} else if (limelight_suspended(suspend, jiffies, generation)) {
		reclaim->mode = LIMELIGHT_TAKE;
	}
}

bool __limelight_retry_unprotected(struct limelight_reclaim *reclaim,
				   struct mem_cgroup *memcg, int order)
{
	if (!reclaim->skipped || reclaim->last_resort)
		return false;
	reclaim->skipped = false;
	reclaim->kept = 0;
	reclaim->last_resort = true;
	trace_limelight_protect_fallback(cgroup_id_of(memcg), order);
	return true;
}

bool __limelight_reclaim_trickled(struct limelight_reclaim *reclaim,
				  struct pglist_data *pgdat,
				  struct mem_cgroup *memcg, bool swept,
				  unsigned long reclaimed, int order)
{
	struct limelight_suspend *suspend = suspend_of(pgdat->node_id, memcg);

	if (reclaim->mode != LIMELIGHT_KEEP)
		return false;
	if (!swept || !reclaim->skipped) {
		if (READ_ONCE(suspend->trickles))
			WRITE_ONCE(suspend->trickles, 0);
		return false;
	}
	/*
	 * A cgroup whose limit leaves little room beside the topmost app always
	 * has a few other pages, and each charge would sweep all lists for them.
	 * So one sweep is enough.
	 */
	if (!memcg && !limelight_trickled(suspend, reclaimed, reclaim->kept))
		return false;
	return __limelight_retry_unprotected(reclaim, memcg, order);
}

/*
 * Lower priorities scan more folios. MGLRU promotes the skipped folios, ages them,
 * and scans them again. Without this check, a pass would scan a cgroup three times.
 */
bool __limelight_should_abort(const struct limelight_reclaim *reclaim,
			      const struct mem_cgroup *memcg)
{
#ifdef CONFIG_MEMCG
	/* page_counter_read() does not take a const pointer. */
	return reclaim->mode == LIMELIGHT_KEEP &&
	       reclaim->kept >= atomic_long_read(&memcg->memory.usage);
#else
	return false;
#endif
}

/* ------------------------------------------------------------ single folios */

static void protect_reset_folio(struct limelight_reclaim *reclaim)
{
	reclaim->seen = 0;
	reclaim->topmost = false;
}

/*
 * Called when folio_referenced() begins with the next folio. Returns whether it
 * should note the topmost app's mappings in current->reclaim_state: false outside of
 * reclaim, and while nothing is protected.
 */
bool limelight_track_mappings(void)
{
	struct reclaim_state *state = current->reclaim_state;

	if (!state)
		return false;
	protect_reset_folio(&state->limelight);
	return state->limelight.mode != LIMELIGHT_OFF;
}

void __limelight_note_mapping(struct limelight_reclaim *reclaim,
			      const struct vm_area_struct *vma)
{
	bool once = vma->vm_flags & VM_SEQ_READ ||
		    (vma->vm_file && vma->vm_file->f_mode & FMODE_NOREUSE);

	if (once) {
		reclaim->seen |= LIMELIGHT_STREAMED;
	} else {
		reclaim->seen |= LIMELIGHT_MAPPED;
		reclaim->tag = limelight_tag_of(vma->vm_mm);
	}
}

static bool protect_folio_is_topmost(const struct limelight_reclaim *reclaim,
				     struct folio *folio)
{
	if (folio_test_anon(folio))
		return folio_test_swapbacked(folio) &&
		       (reclaim->seen & LIMELIGHT_MAPPED ||
			limelight_folio_tagged(folio));
	if (reclaim->seen & LIMELIGHT_MAPPED)
		return true;
	if (reclaim->seen & LIMELIGHT_STREAMED || folio_test_swapcache(folio))
		return false;
	return reclaim->cached && limelight_folio_tagged(folio);
}

/* Notes that @folio is kept. @active: it was on the active list. */
static void protect_note_kept(struct limelight_reclaim *reclaim, struct folio *folio,
			      bool active)
{
	reclaim->skipped = true;
	if (!active)
		reclaim->kept += folio_nr_pages(folio);
	/* The next scan needs no rmap walk. */
	if (reclaim->seen & LIMELIGHT_MAPPED)
		limelight_folio_confirm(folio, reclaim->tag);
	count_vm_events(active ? LIMELIGHT_PROTECT_ROTATED :
				 LIMELIGHT_PROTECT_KEPT,
			folio_nr_pages(folio));
	trace_limelight_protect_keep(folio, reclaim->seen, active);
}

bool __limelight_keep_folio(struct limelight_reclaim *reclaim, struct folio *folio)
{
	reclaim->topmost = protect_folio_is_topmost(reclaim, folio);
	if (!reclaim->topmost || reclaim->mode != LIMELIGHT_KEEP)
		return false;

	protect_note_kept(reclaim, folio, false);
	return true;
}

bool __limelight_rotate_folio(struct limelight_reclaim *reclaim, struct folio *folio)
{
	if (!protect_folio_is_topmost(reclaim, folio))
		return false;
	protect_note_kept(reclaim, folio, true);
	return true;
}

/*
 * Whether @folio is known to be the topmost app's without an rmap walk. An
 * optimisation: may be false for folios that limelight_keep_folio() would keep.
 * @active: the folio is on the active list. The caller holds the lru_lock, and moves
 * the folio if this is true.
 */
bool limelight_keep_known_folio(struct limelight_reclaim *reclaim, struct folio *folio,
				bool active)
{
	if (!limelight_folio_known(folio, reclaim->cached))
		return false;
	protect_reset_folio(reclaim);
	protect_note_kept(reclaim, folio, active);
	return true;
}

void __limelight_count_reclaimed(unsigned long nr_pages)
{
	count_vm_events(LIMELIGHT_PROTECT_FALLBACK, nr_pages);
}

static bool protect_rmap_one(struct folio *folio, struct vm_area_struct *vma,
			     unsigned long address, void *arg)
{
	DEFINE_FOLIO_VMA_WALK(pvmw, folio, vma, address, 0);
	struct limelight_reclaim *reclaim = arg;

	while (page_vma_mapped_walk(&pvmw))
		__limelight_note_mapping(reclaim, vma);
	return !(reclaim->seen & LIMELIGHT_MAPPED);
}

static bool protect_invalid_vma(struct vm_area_struct *vma, void *arg)
{
	return !limelight_mm(vma->vm_mm);
}

/*
 * alloc_contig_range() drops clean file folios that it could migrate. Those of the
 * topmost app should be migrated. Unlike in reclaim, no other process loses a page
 * for that, so budget and suspension do not apply.
 */
bool __limelight_migrate_instead(struct folio *folio)
{
	struct limelight_reclaim reclaim = { .cached = true };
	struct rmap_walk_control rwc = {
		.rmap_one = protect_rmap_one,
		.arg = &reclaim,
		.try_lock = true,
		.invalid_vma = protect_invalid_vma,
	};
	bool topmost;

	if (!READ_ONCE(limelight_generation) || folio_test_anon(folio))
		return false;
	if (!folio_trylock(folio))
		return false;
	if (folio_mapped(folio) && folio_mapping(folio))
		rmap_walk(folio, &rwc);
	topmost = protect_folio_is_topmost(&reclaim, folio);
	folio_unlock(folio);
	if (topmost)
		count_vm_events(LIMELIGHT_PROTECT_MIGRATED,
				folio_nr_pages(folio));
	return topmost;
}

/* ---------------------------------------------------------- the mechanism */

bool limelight_protect_enabled(void)
{
	return static_key_enabled(&limelight_protect_key);
}

/* Called when another topmost set is in force. */
void limelight_protect_topmost(void)
{
	KUNIT_STATIC_STUB_REDIRECT(limelight_protect_topmost);

	if (limelight_protect_enabled())
		limelight_footprint_renew();
}

/* Switches protect on or off. @budget_percent: 0 keeps the current value. */
int limelight_protect_configure(bool on, u32 budget_percent)
{
	int ret;

	if (budget_percent > LIMELIGHT_BUDGET_MAX)
		return -EINVAL;

	if (on && !limelight_protect_enabled()) {
		ret = limelight_identifier_start();
		if (ret)
			return ret;
		static_branch_enable(&limelight_protect_key);
		limelight_footprint_renew();
	} else if (!on && limelight_protect_enabled()) {
		static_branch_disable(&limelight_protect_key);
		limelight_footprint_stop();
		limelight_identifier_stop();
	}
	if (budget_percent)
		limelight_budget_set(budget_percent, false);
	return 0;
}

/* Resets protect when the device is closed. */
void limelight_protect_reset(void)
{
	limelight_protect_configure(false, 0);
	limelight_budget_reset();
}

#ifdef CONFIG_LIMELIGHT_KUNIT_TEST
#include "tests/protect-kunit.h"
#endif
