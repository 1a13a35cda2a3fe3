// SPDX-License-Identifier: GPL-2.0-only
/*
 * Limelight protect: reclaim passes over the pages of the topmost app.
 *
 * The rule is that of memory.low, for folios instead of cgroups: a first pass
 * leaves the topmost app's folios alone and remembers that it did; only when it
 * has reclaimed nothing at all does a second pass take them. So protection can
 * delay an allocation, but never fail one.
 *
 * Whose is a folio? Reclaim walks the page tables that map a folio before it
 * evicts it (folio_referenced()). If one of them belongs to a member of the
 * topmost set, the folio is protected, whoever brought it in: shared libraries
 * need no bookkeeping. For a folio in the page cache there is the page
 * identifier as well (identifier.c). Mappings that say their pages are used
 * once (MADV_SEQUENTIAL, POSIX_FADV_NOREUSE) do not protect. MADV_FREE pages
 * are not protected: the app gave them up.
 *
 * A protected folio is treated as a used one: it returns to the active list, or
 * to the youngest generation. Nothing is filtered out before it is looked at,
 * so scan counts, priorities and NR_ISOLATED are those of any reclaim.
 *
 * Two things bound the price. When a pass has found nothing but protected
 * folios, protection is suspended for its target (a node; or a cgroup whose
 * limit was hit), so that not every allocation sweeps the lists twice: for
 * 500 ms first (a cgroup: 1 s, since who hits its limit is who lives in it, and
 * will again), doubling up to 8 s when it happens again soon. And there is a
 * budget (footprint.c): an app that is most of the machine is not protected
 * against itself.
 */
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
#define SUSPEND_NODE		1	/* The level to begin with. */
#define SUSPEND_CGROUP		2
#define SUSPEND_LONGEST		msecs_to_jiffies(SUSPEND_MS << (SUSPEND_LEVELS - 1))
/* A target that has been calm for this long falls back by one level. */
#define SUSPEND_CALM		(8 * HZ)

DEFINE_STATIC_KEY_FALSE(limelight_protect_key);

static struct limelight_suspend node_suspend[MAX_NUMNODES];

/* -------------------------------------------------------------- suspension */

/* Whether protection is suspended for a target at @now. */
bool limelight_suspended(const struct limelight_suspend *suspend,
			 unsigned long now, u32 generation)
{
	/* It was about the app that was topmost then, not about this one. */
	return READ_ONCE(suspend->level) &&
	       READ_ONCE(suspend->generation) == generation &&
	       limelight_pending(READ_ONCE(suspend->until), now,
				 SUSPEND_LONGEST);
}

/*
 * A target held nothing but protected folios at @now. @first is the lowest
 * level for a target of its kind. Racing callers may each write the same thing.
 *
 * Return: for how many ms protection is suspended, 0 if it already was.
 */
unsigned int limelight_exhausted(struct limelight_suspend *suspend,
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

/* For people: how long protection is still suspended, at most, on any node. */
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
		 * An allocation that may not swap or enter file systems proves
		 * nothing about the next one, unless all that its cgroup does
		 * may be of that kind.
		 */
		if (!memcg &&
		    (gfp_mask & (__GFP_IO | __GFP_FS)) != (__GFP_IO | __GFP_FS))
			return;
		ms = limelight_exhausted(suspend, jiffies, generation,
					 memcg ? SUSPEND_CGROUP : SUSPEND_NODE);
		if (ms)
			trace_limelight_protect_suspend(pgdat->node_id,
							cgroup_id_of(memcg),
							ms);
	} else if (limelight_suspended(suspend, jiffies, generation)) {
		reclaim->mode = LIMELIGHT_TAKE;
	}
}

bool __limelight_reclaim_again(struct limelight_reclaim *reclaim,
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

/*
 * With each step of its priority reclaim looks at more folios. MGLRU makes the
 * kept ones young, ages them, and meets them again: what a cgroup holds would
 * be looked at three times before the pass ends.
 */
bool __limelight_reclaim_vain(const struct limelight_reclaim *reclaim,
			      const struct mem_cgroup *memcg)
{
#ifdef CONFIG_MEMCG
	/* As page_counter_read(), which does not take one that is const. */
	return reclaim->mode == LIMELIGHT_KEEP &&
	       reclaim->kept >= atomic_long_read(&memcg->memory.usage);
#else
	return false;
#endif
}

/* ------------------------------------------------------------ single folios */

static void forget_folio(struct limelight_reclaim *reclaim)
{
	reclaim->seen = 0;
	reclaim->topmost = false;
}

/*
 * folio_referenced() turns to the next folio. Whether it has to note in
 * current->reclaim_state what it sees of the topmost app: not when this is no
 * reclaim, or when there is nothing to protect.
 */
bool limelight_look(void)
{
	struct reclaim_state *state = current->reclaim_state;

	if (!state)
		return false;
	forget_folio(&state->limelight);
	return state->limelight.mode != LIMELIGHT_OFF;
}

void __limelight_saw_vma(struct limelight_reclaim *reclaim,
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

static bool is_topmost(const struct limelight_reclaim *reclaim,
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

/* @active: on the active list, where it was not in danger yet. */
static void passed_over(struct limelight_reclaim *reclaim, struct folio *folio,
			bool active)
{
	reclaim->skipped = true;
	if (!active)
		reclaim->kept += folio_nr_pages(folio);
	/* The next time it is known without looking at its mappings. */
	if (reclaim->seen & LIMELIGHT_MAPPED)
		limelight_folio_confirm(folio, reclaim->tag);
	count_vm_events(active ? LIMELIGHT_PROTECT_ROTATED :
				 LIMELIGHT_PROTECT_KEPT,
			folio_nr_pages(folio));
	trace_limelight_protect_keep(folio, reclaim->seen, active);
}

bool __limelight_keep(struct limelight_reclaim *reclaim, struct folio *folio)
{
	reclaim->topmost = is_topmost(reclaim, folio);
	if (!reclaim->topmost || reclaim->mode != LIMELIGHT_KEEP)
		return false;

	passed_over(reclaim, folio, false);
	return true;
}

bool __limelight_rotate(struct limelight_reclaim *reclaim, struct folio *folio)
{
	if (!is_topmost(reclaim, folio))
		return false;
	passed_over(reclaim, folio, true);
	return true;
}

/*
 * Before anything is done about @folio: whether it is known to be the topmost
 * app's. That only saves work, it may be false for folios that
 * limelight_keep() would keep. @active: it is on the active list. The caller
 * holds the lru_lock, and moves the folio out of the way.
 */
bool limelight_known(struct limelight_reclaim *reclaim, struct folio *folio,
		     bool active)
{
	if (!limelight_folio_known(folio, reclaim->cached))
		return false;
	forget_folio(reclaim);
	passed_over(reclaim, folio, active);
	return true;
}

void __limelight_taken(unsigned long nr_pages)
{
	count_vm_events(LIMELIGHT_PROTECT_FALLBACK, nr_pages);
}

static bool saw_one(struct folio *folio, struct vm_area_struct *vma,
		    unsigned long address, void *arg)
{
	DEFINE_FOLIO_VMA_WALK(pvmw, folio, vma, address, 0);
	struct limelight_reclaim *reclaim = arg;

	if (page_vma_mapped_walk(&pvmw)) {
		__limelight_saw_vma(reclaim, vma);
		page_vma_mapped_walk_done(&pvmw);
	}
	return !(reclaim->seen & LIMELIGHT_MAPPED);
}

static bool not_topmost_vma(struct vm_area_struct *vma, void *arg)
{
	return !limelight_mm(vma->vm_mm);
}

/*
 * alloc_contig_range() drops clean file folios that it could as well migrate.
 * The topmost app's are migrated. Unlike in reclaim proper this costs nobody
 * anything, so neither budget nor suspension count.
 */
bool __limelight_migrate_instead(struct folio *folio)
{
	struct limelight_reclaim reclaim = { .cached = true };
	struct rmap_walk_control rwc = {
		.rmap_one = saw_one,
		.arg = &reclaim,
		.try_lock = true,
		.invalid_vma = not_topmost_vma,
	};
	bool topmost;

	if (!READ_ONCE(limelight_generation) || folio_test_anon(folio))
		return false;
	if (!folio_trylock(folio))
		return false;
	if (folio_mapped(folio) && folio_mapping(folio))
		rmap_walk(folio, &rwc);
	topmost = is_topmost(&reclaim, folio);
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

/* Another set of processes is topmost; takes over @tags, NULL for none. */
void limelight_protect_topmost(struct limelight_tags *tags)
{
	limelight_tags_publish(tags);
	if (limelight_protect_enabled())
		limelight_footprint_renew();
}

/* @budget_percent: 0 keeps the one in force. */
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

/* The device is closed. */
void limelight_protect_reset(void)
{
	limelight_protect_configure(false, 0);
	limelight_budget_reset();
}

#ifdef CONFIG_LIMELIGHT_KUNIT_TEST
#include "tests/protect-kunit.h"
#endif
