// SPDX-License-Identifier: GPL-2.0-only
/*
 * Limelight premap: one fault of the topmost app also maps the pages that its next
 * faults would map.
 *
 * Apps touch fresh heap memory soon, from front to back, and nearly completely. So
 * when a member of the topmost set first writes to anonymous memory, a window of the
 * following pages is mapped as well. Memory that an app only reserves stays
 * unmapped.
 *
 * The size of a window depends on the page table and on a short record of the
 * process's last windows (struct limelight_premap):
 *
 *   - a fault right after a window continues it with twice its size;
 *   - a fault right after mapped pages starts a window of twice as many pages;
 *   - the first fault in an extension of the heap maps it to its end, if it has at
 *     most EXTENSION pages. An extension is an empty range that starts right after
 *     mapped pages or at the start of its mapping, and ends at the next mapped page
 *     or at the end of the mapping;
 *   - an extension that brk() or mprotect() creates right after mapped pages is
 *     mapped at once. glibc's arenas grow by mprotect(), one page at a time, so a
 *     fault would find no further page to map;
 *   - any other fault maps one page.
 *
 * Windows adapt to their use. Pages of a window that were not requested are mapped
 * old and clean, so that the hardware records their first use. A window is inspected
 * when the app has continued after it, or when WINDOWS others have followed. If more
 * than an eighth of it is untouched, the largest window of the process is halved. If
 * hardly any of it is, the largest window is doubled, up to the limit. Pages that are
 * unmapped untouched are counted (limelight_premap_wasted); if they are more than an
 * eighth of the pages mapped in an epoch, they halve the largest window as well. Once
 * it is one page, premap is off for the process, until RETRY faults would have had a
 * window; then the largest window is two pages.
 *
 * A window ends at the end of its mapping, at the first page table entry in use, and
 * at the end of the page table. No window is mapped where single faults matter
 * (userfaultfd), where mapping has other effects (mlock), where it would bring the
 * app's cgroups near their limits, or where it would bring memory below the low
 * watermark. RLIMIT_AS and RLIMIT_DATA limit mappings, and a window does not create
 * any. Pages are allocated without reclaim, compaction or a wakeup of kswapd.
 *
 * Windows are filled with the largest folios that fit, up to limelight_folio_order,
 * of the sizes that are not set to `never` in /sys/kernel/mm/transparent_hugepage. If
 * no large folio is available, single pages are used: they save the same faults. Up
 * to BATCH folios are zeroed and charged first, and then mapped under one hold of the
 * page table lock.
 */
#include <linux/bits.h>
#include <linux/gfp.h>
#include <linux/limelight.h>
#include <linux/log2.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/oom.h>
#include <linux/pgtable.h>
#include <linux/rmap.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/swap.h>
#include <linux/userfaultfd_k.h>
#include <linux/vmstat.h>
#include <trace/events/limelight.h>

#include "../internal.h"
#include "internal.h"
#include "premap.h"

/* Largest hole that counts as an extension of the heap, in pages. */
#define EXTENSION	64
/* Largest number of mapped pages that are counted in front of a fault. */
#define LOOKBACK	16
/* Windows in the record of a process. */
#define WINDOWS		8
/* The first windows of a process have at most 1 << FIRST_SHIFT pages. */
#define FIRST_SHIFT	3
/* Refused windows after which a process with premap off may have windows again. */
#define RETRY		64
/* Pages mapped ahead between two checks of the pages unmapped untouched. */
#define EPOCH		256
/* Folios allocated, then mapped under one hold of the page table lock. */
#define BATCH		64

/* No reclaim, no kswapd wakeup, no reserves. The page allocator zeroes. */
#define GFP_PREMAP	((GFP_HIGHUSER_MOVABLE & ~__GFP_RECLAIM) | __GFP_ZERO | \
			 __GFP_NORETRY | __GFP_NOWARN | __GFP_NOMEMALLOC)

DEFINE_STATIC_KEY_FALSE(limelight_premap_key);

unsigned int limelight_window_pages __read_mostly = LIMELIGHT_WINDOW_DEFAULT;
/* Value of limelight_window_pages after the device is closed. */
static unsigned int window_configured = LIMELIGHT_WINDOW_DEFAULT;
unsigned int limelight_folio_order __read_mostly = LIMELIGHT_FOLIO_ORDER_DEFAULT;

/*
 * struct window - pages that one fault has mapped
 * @start: address of the first page
 * @nr: number of pages, 0: no window
 * @wanted: intended number of pages; the mapping may have ended earlier
 */
struct window {
	unsigned long start;
	u16 nr;
	u16 wanted;
};

/*
 * struct limelight_premap - how a process uses its windows
 * @lock: protects all members except @zapped
 * @shift: a window has at most 1 << @shift pages; 0: premap is off
 * @without: faults that would have had a window if @shift were larger
 * @next: slot of @ring that the next window uses
 * @ring: the last windows, until they are inspected
 * @mapped: pages mapped ahead in this epoch
 * @zapped: pages unmapped untouched in this epoch
 */
struct limelight_premap {
	spinlock_t lock;	/* all but @zapped */
	unsigned int shift;
	unsigned int without;
	unsigned int next;
	struct window ring[WINDOWS];
	unsigned int mapped;
	atomic_t zapped;
};

/* ------------------------------------------------------------- arithmetic */

/* The largest shift for the configured window. */
static unsigned int shift_max(void)
{
	return ilog2(READ_ONCE(limelight_window_pages));
}

/* Return: the new @shift after a window of @nr pages, @untouched of them unused. */
static unsigned int next_shift(unsigned int shift, unsigned int nr,
			       unsigned int untouched, unsigned int max)
{
	if (untouched > nr / 8)
		shift = shift ? shift - 1 : 0;
	else if (untouched <= nr / 32 && nr >= BIT(shift) / 2)
		shift++;
	return min(shift, max);
}

/*
 * Number of pages to map from an address on; 0: no window.
 * @wanted: intended size of the window that the new one continues, 0: none
 * @before: mapped pages right before the address
 * @at_start: this is a fault at the first page of the mapping
 * @hole: empty pages from the address on
 * @hole_ends: the hole ends at a page table entry in use or with the mapping
 */
static unsigned int window_wanted(unsigned int wanted, unsigned int before,
				  bool at_start, unsigned int hole,
				  bool hole_ends)
{
	unsigned int pages = 1;

	if (wanted)
		pages = 2 * wanted;
	else if (before)
		pages = 2 * (before + 1);
	else if (!at_start)
		return 0;

	if (hole_ends && hole <= EXTENSION)
		pages = max(pages, hole);
	return min(pages, LIMELIGHT_WINDOW_MAX);
}

/*
 * Order of the largest folio that is aligned at @address, has at most @nr pages and
 * one of @orders; 0: a single page.
 */
static unsigned int folio_order_at(unsigned long address, unsigned int nr,
				   unsigned long orders)
{
	unsigned int order = min_t(unsigned int, ilog2(nr),
				   __ffs((address >> PAGE_SHIFT) |
					 BIT(MAX_PAGE_ORDER)));

	orders &= GENMASK(order, 0);
	return orders ? __fls(orders) : 0;
}

/*
 * Bit mask of the orders of large folios in windows: those that the administrator
 * has not set to `never`. The topmost app is treated as if it had asked for them by
 * madvise().
 */
static unsigned long folio_orders(void)
{
#ifdef CONFIG_TRANSPARENT_HUGEPAGE
	unsigned long orders = READ_ONCE(huge_anon_orders_always) |
			       READ_ONCE(huge_anon_orders_madvise);

	if (hugepage_global_enabled())
		orders |= READ_ONCE(huge_anon_orders_inherit);
	/* No anonymous folio has order 1; 0 is for single pages. */
	return orders & GENMASK(READ_ONCE(limelight_folio_order), 0) & ~3UL;
#else
	return 0;
#endif
}

/* ---------------------------------------------------------- use of windows */

/*
 * Whether the page that premap has mapped with the anonymous @pte is unused. On x86
 * pages are mapped clean, and the dirty bit remains when reclaim clears the accessed
 * bit. Elsewhere a writable page may have to be mapped dirty.
 */
static bool pte_untouched(pte_t pte)
{
	return !pte_young(pte) && (!IS_ENABLED(CONFIG_X86) || !pte_dirty(pte));
}

/* Whether @folio may contain pages that were never written to. */
static bool folio_maybe_untouched(const struct folio *folio)
{
	return folio_test_swapbacked(folio) && !folio_test_swapcache(folio) &&
	       !folio_test_dirty(folio) && !folio_test_ksm(folio);
}

/* Counts the mapped, untouched pages of @window, whose VMA is locked. */
static unsigned int premap_count_untouched(struct mm_struct *mm,
					   const struct window *window)
{
	unsigned int untouched = 0;
	pmd_t *pmd = mm_find_pmd(mm, window->start);
	pte_t *ptes;
	int i;

	ptes = pmd ? pte_offset_map(pmd, window->start) : NULL;
	if (!ptes)
		return 0;
	/* For sparse, here and below: pte_offset_map() has no annotation. */
	__acquire(RCU);
	for (i = 0; i < window->nr; i++) {
		pte_t pte = ptep_get(ptes + i);

		if (pte_present(pte) && pte_untouched(pte))
			untouched++;
	}
	pte_unmap(ptes);
	return untouched;
}

static bool in_vma(const struct vm_area_struct *vma, const struct window *window)
{
	return window->start >= vma->vm_start &&
	       window->start + window->nr * PAGE_SIZE <= vma->vm_end;
}

/*
 * Inspects @window. @vma is locked, but the window may be in another VMA.
 *
 * Return: the number of untouched pages, -1: unknown.
 */
static int premap_inspect_window(struct vm_area_struct *vma, const struct window *window)
{
	struct mm_struct *mm = vma->vm_mm;
	int untouched = -1;

	if (in_vma(vma, window))
		return premap_count_untouched(mm, window);
#ifdef CONFIG_PER_VMA_LOCK
	vma = lock_vma_under_rcu(mm, window->start);
	if (!vma)
		return -1;
	if (vma_is_anonymous(vma) && in_vma(vma, window))
		untouched = premap_count_untouched(mm, window);
	vma_end_read(vma);
#endif
	return untouched;
}

/* Counts the untouched pages in one page table, whether premap mapped them or not. */
static unsigned int premap_count_zapped(struct vm_area_struct *vma, pmd_t *pmd,
					unsigned long address, unsigned long end)
{
	unsigned int untouched = 0;
	spinlock_t *ptl = NULL;
	pte_t *ptes, *pte;

	ptes = pte_offset_map_lock(vma->vm_mm, pmd, address, &ptl);
	if (!ptes)
		return 0;
	__acquire(RCU);
	for (pte = ptes; address < end; pte++, address += PAGE_SIZE) {
		pte_t entry = ptep_get(pte);
		struct page *page;

		if (!pte_present(entry) || !pte_untouched(entry))
			continue;
		page = vm_normal_page(vma, address, entry);
		if (page && folio_maybe_untouched(page_folio(page)))
			untouched++;
	}
	pte_unmap_unlock(ptes, ptl);
	return untouched;
}

/*
 * The entry for @address in the page middle directory; NULL: there is none. *@end is
 * lowered to the end of the range that the entry, or its absence, covers.
 */
static pmd_t *premap_pmd_at(struct mm_struct *mm, unsigned long address,
			    unsigned long *end)
{
	unsigned long limit = *end;
	pgd_t *pgd = pgd_offset(mm, address);
	p4d_t *p4d;
	pud_t *pud;

	*end = pgd_addr_end(address, limit);
	if (!pgd_present(*pgd))
		return NULL;
	p4d = p4d_offset(pgd, address);
	*end = p4d_addr_end(address, limit);
	if (!p4d_present(*p4d))
		return NULL;
	pud = pud_offset(p4d, address);
	*end = pud_addr_end(address, limit);
	if (!pud_present(*pud) || pud_leaf(*pud))
		return NULL;
	*end = pmd_addr_end(address, limit);
	return pmd_offset(pud, address);
}

/*
 * Counts untouched pages in a separate walk before the page tables are cleared: a
 * hook in the path that unmaps single pages would cost time in every process. The
 * caller holds the mmap lock or the VMA's lock, either of which keeps the upper page
 * tables; walk_page_range_vma() would have to be told which.
 */
void __limelight_premap_zap(struct vm_area_struct *vma, unsigned long start,
			    unsigned long end)
{
	unsigned int untouched = 0;
	unsigned long next;

	if (!vma_is_anonymous(vma))
		return;
	for (; start < end; start = next) {
		pmd_t *pmd;

		next = end;
		pmd = premap_pmd_at(vma->vm_mm, start, &next);
		if (pmd && !pmd_none(pmdp_get_lockless(pmd)))
			untouched += premap_count_zapped(vma, pmd, start, next);
	}
	if (!untouched)
		return;
	count_vm_events(LIMELIGHT_PREMAP_WASTED, untouched);
	atomic_add(untouched, &vma->vm_mm->limelight_premap->zapped);
}

/* -------------------------------------------------- the record of a process */

/* Returns the record of @mm. The first call allocates it; NULL: no memory. */
static struct limelight_premap *premap_record(struct mm_struct *mm)
{
	struct limelight_premap *record = READ_ONCE(mm->limelight_premap);
	struct limelight_premap *fresh;

	if (likely(record))
		return record;
	fresh = kzalloc(sizeof(*fresh), GFP_NOWAIT | __GFP_NOWARN);
	if (!fresh)
		return NULL;
	spin_lock_init(&fresh->lock);
	fresh->shift = min(FIRST_SHIFT, shift_max());
	record = cmpxchg(&mm->limelight_premap, NULL, fresh);
	if (record)
		kfree(fresh);
	return record ?: fresh;
}

/* Frees the record of @mm. */
void limelight_premap_free(struct mm_struct *mm)
{
	kfree(mm->limelight_premap);
	mm->limelight_premap = NULL;
}

/*
 * Removes the window that ends at @address from the record, or else the window in
 * the slot that is used next, the oldest one.
 *
 * Return: whether the window ends at @address.
 */
static bool premap_take_window(struct limelight_premap *record, unsigned long address,
			       struct window *taken)
{
	bool continues = false;
	int i;

	spin_lock(&record->lock);
	*taken = record->ring[record->next];
	for (i = 0; i < WINDOWS; i++) {
		struct window *window = &record->ring[i];

		if (window->nr &&
		    window->start + window->nr * PAGE_SIZE == address) {
			*taken = *window;
			window->nr = 0;
			continues = true;
			break;
		}
	}
	if (!continues)
		record->ring[record->next].nr = 0;
	spin_unlock(&record->lock);
	return continues;
}

static void premap_add_window(struct limelight_premap *record, unsigned long start,
			      unsigned int nr, unsigned int wanted, unsigned int ahead)
{
	unsigned int zapped = 0;

	spin_lock(&record->lock);
	record->ring[record->next] = (struct window) {
		.start = start,
		.nr = nr,
		.wanted = wanted,
	};
	record->next = (record->next + 1) % WINDOWS;
	record->mapped += ahead;
	if (record->mapped >= EPOCH) {
		zapped = atomic_xchg(&record->zapped, 0);
		if (zapped > record->mapped / 8 && record->shift)
			record->shift--;
		record->mapped = 0;
	}
	spin_unlock(&record->lock);
}

/* Adapts the largest window to the use of @window. @untouched: -1 if unknown. */
static void premap_adapt(struct limelight_premap *record, const struct window *window,
			 int untouched)
{
	unsigned int shift;

	if (untouched < 0)
		return;
	spin_lock(&record->lock);
	shift = next_shift(record->shift, window->nr, untouched, shift_max());
	if (shift != record->shift)
		trace_limelight_premap_shift(window->start, window->nr,
					     untouched, shift);
	WRITE_ONCE(record->shift, shift);
	spin_unlock(&record->lock);
}

/* Counts a fault that would have had a window if premap were not off. */
static void premap_count_refused(struct limelight_premap *record)
{
	spin_lock(&record->lock);
	if (!record->shift && ++record->without >= RETRY) {
		record->without = 0;
		record->shift = min(1U, shift_max());
	}
	spin_unlock(&record->lock);
}

/* ------------------------------------------------------------ size of a window */

/* Whether faults in @vma may map more than one page. */
static bool vma_premappable(struct vm_area_struct *vma)
{
	const unsigned long refused = VM_SHARED | VM_LOCKED | VM_LOCKONFAULT |
		VM_GROWSDOWN | VM_GROWSUP | VM_SPECIAL | VM_HUGETLB |
		VM_DROPPABLE | VM_SHADOW_STACK;

	return vma_is_anonymous(vma) && vma->vm_flags & VM_WRITE &&
	       !(vma->vm_flags & refused) && !userfaultfd_armed(vma);
}

/* Whether this is a fault, as opposed to an extension of the heap. */
static bool is_fault(const struct vm_fault *vmf)
{
	return vmf->flags & FAULT_FLAG_WRITE;
}

/*
 * Determines the size of a window at @address, which is not mapped, from the page
 * table around it.
 * @continued: intended size of the window that the new one continues, 0: none
 * @scan: pages to scan ahead
 *
 * Return: pages to map, at most @scan; 0: no window.
 */
static unsigned int premap_window_size(struct vm_fault *vmf, unsigned long address,
				       unsigned int continued, unsigned int scan)
{
	struct vm_area_struct *vma = vmf->vma;
	unsigned long end = min(vma->vm_end, pmd_addr_end(address, vma->vm_end));
	unsigned int most = min_t(unsigned long, (end - address) >> PAGE_SHIFT,
				  max(scan, EXTENSION + 1));
	unsigned long behind = (address - max(vma->vm_start,
					      address & PMD_MASK)) >> PAGE_SHIFT;
	unsigned int before = 0, hole = 0;
	bool hole_ends;
	pte_t *ptes;

	ptes = pte_offset_map(vmf->pmd, address);
	if (!ptes)
		return 0;
	__acquire(RCU);
	behind = min(behind, LOOKBACK);
	while (!continued && before < behind &&
	       pte_present(ptep_get(ptes - before - 1)))
		before++;
	while (hole < most && pte_none(ptep_get(ptes + hole)))
		hole++;
	pte_unmap(ptes);

	hole_ends = hole < most || address + hole * PAGE_SIZE == vma->vm_end;
	return min3(window_wanted(continued, before,
				  is_fault(vmf) && address == vma->vm_start,
				  hole, hole_ends), hole, scan);
}

/* ----------------------------------------------------------------- mapping */

/*
 * Adjusts a window of @pages at @address, in a mapping that ends at @end, so that
 * it ends at the boundary of a large folio. Folios from the pool of zeroed pages can
 * then fill this window and the next ones.
 */
static unsigned int whole_folios(unsigned long address, unsigned int pages,
				 unsigned long end)
{
	const unsigned long size = 1 << LIMELIGHT_PREZERO_ORDER;
	unsigned long start = address >> PAGE_SHIFT;
	unsigned long near = round_down(start + pages + size / 2, size);

	if (pages < size || near > end >> PAGE_SHIFT)
		return pages;
	return near - start;
}

/* Number of single pages to allocate at @address, at most @nr and at most @most. */
static unsigned int singles_at(unsigned long address, unsigned int nr,
			       unsigned int most, unsigned long orders)
{
	most = min(nr, most);
	/* Stop where a large folio fits. */
	if (orders) {
		unsigned int size = BIT(__ffs(orders));

		most = min(most, size - ((address >> PAGE_SHIFT) & (size - 1)));
	}
	return most;
}

/*
 * Allocates folios for @nr pages from @address on, zeroed and charged.
 *
 * Return: the number of folios, fewer than needed if memory is short.
 */
static unsigned int premap_alloc_folios(struct vm_area_struct *vma, unsigned long address,
					unsigned int nr, unsigned long *orders,
					struct folio **folios)
{
	struct page **pages = (struct page **)folios;
	unsigned int count = 0, charged = 0;

	while (nr && count < BATCH) {
		unsigned int order = folio_order_at(address, nr, *orders);
		unsigned int got;

		/* Try the pool of zeroed pages first. */
		if (order) {
			folios[count] = limelight_prezero_window_folio(vma, order);
			got = !!folios[count];
		} else {
			got = limelight_prezero_window(vma, pages + count,
						       singles_at(address, nr,
								  BATCH - count,
								  *orders));
		}
		if (got) {
			count += got;
			nr -= got << order;
			address += (got << order) * PAGE_SIZE;
			continue;
		}

		got = 1;
		if (order) {
			folios[count] = limelight_alloc_folio(GFP_PREMAP, order,
							      vma, address);
			if (!folios[count]) {
				/* Do not retry this size in this window. */
				count_mthp_stat(order, MTHP_STAT_ANON_FAULT_FALLBACK);
				*orders &= GENMASK(order - 1, 0);
				continue;
			}
		} else if (limelight_no_policy(vma)) {
			unsigned int most = singles_at(address, nr, BATCH - count,
						       *orders);

			memset(pages + count, 0, most * sizeof(*pages));
			got = alloc_pages_bulk(GFP_PREMAP, most, pages + count);
			if (!got)
				break;
		} else {
			folios[count] = limelight_alloc_folio(GFP_PREMAP, 0, vma,
							      address);
			if (!folios[count])
				break;
		}
		limelight_prezero_missed(vma->vm_mm, got << order);
		count += got;
		nr -= got << order;
		address += (got << order) * PAGE_SIZE;
	}

	while (charged < count &&
	       !mem_cgroup_charge(folios[charged], vma->vm_mm, GFP_PREMAP) &&
	       !limelight_prepare_large_folio(folios[charged])) {
		folio_throttle_swaprate(folios[charged], GFP_PREMAP);
		charged++;
	}
	while (count > charged)
		folio_put(folios[--count]);
	return count;
}

/* Page table entry of page @i of @folio, which is mapped ahead. */
static pte_t premapped_pte(struct folio *folio, unsigned long i,
			   struct vm_area_struct *vma)
{
	pte_t pte = pte_mkold(mk_pte(folio_page(folio, i), vma->vm_page_prot));

	/* Soft-dirty tracking treats a new page as a changed page. */
	pte = pte_mksoft_dirty(pte);
	return pte_mkwrite(IS_ENABLED(CONFIG_X86) ? pte : pte_mkdirty(pte), vma);
}

static void premap_map_folio(struct vm_fault *vmf, struct folio *folio,
			     unsigned long address, pte_t *ptes)
{
	struct vm_area_struct *vma = vmf->vma;
	unsigned int nr = folio_nr_pages(folio);
	unsigned int i = 0;

	/* Publish the contents before the mapping. */
	__folio_mark_uptodate(folio);
	folio_ref_add(folio, nr - 1);
	count_mthp_stat(folio_order(folio), MTHP_STAT_ANON_FAULT_ALLOC);
	folio_add_new_anon_rmap(folio, vma, address, RMAP_EXCLUSIVE);
	folio_add_lru_vma(folio, vma);

	if (address == vmf->address && is_fault(vmf)) {
		pte_t pte = mk_pte(folio_page(folio, 0), vma->vm_page_prot);

		pte = pte_mkwrite(pte_mkdirty(pte_sw_mkyoung(pte)), vma);
		set_pte_at(vma->vm_mm, address, ptes, pte);
		i = 1;
	}
	if (i < nr)
		set_ptes(vma->vm_mm, address + i * PAGE_SIZE, ptes + i,
			 premapped_pte(folio, i, vma), nr - i);
	update_mmu_cache_range(vmf, vma, address, ptes, nr);
}

static bool ptes_none(pte_t *ptes, unsigned int nr)
{
	while (nr--) {
		if (!pte_none(ptep_get(ptes + nr)))
			return false;
	}
	return true;
}

static void premap_put_folios(struct folio **folios, unsigned int count)
{
	while (count)
		folio_put(folios[--count]);
}

/*
 * Maps @count folios up to the first page table entry in use, and frees the others.
 *
 * Return: the number of pages mapped.
 */
static unsigned int premap_map_folios(struct vm_fault *vmf, unsigned long address,
				      struct folio **folios, unsigned int count)
{
	struct mm_struct *mm = vmf->vma->vm_mm;
	unsigned int i, pages = 0;
	spinlock_t *ptl = NULL;
	pte_t *ptes;

	ptes = pte_offset_map_lock(mm, vmf->pmd, address, &ptl);
	if (!ptes) {
		premap_put_folios(folios, count);
		return 0;
	}
	__acquire(RCU);
	for (i = 0; i < count && !check_stable_address_space(mm); i++) {
		unsigned int nr = folio_nr_pages(folios[i]);

		if (!ptes_none(ptes + pages, nr))
			break;
		premap_map_folio(vmf, folios[i], address + pages * PAGE_SIZE,
				 ptes + pages);
		pages += nr;
	}
	add_mm_counter(mm, MM_ANONPAGES, pages);
	pte_unmap_unlock(ptes, ptl);
	premap_put_folios(folios + i, count - i);
	return pages;
}

/* Maps up to @nr pages from vmf->address on. Return: how many, perhaps 0. */
static unsigned int premap_map_window(struct vm_fault *vmf, unsigned int nr)
{
	unsigned long orders = folio_orders();
	unsigned int done = 0;

	if (orders && limelight_thp_disabled(vmf->vma))
		orders = 0;

	while (done < nr) {
		unsigned long address = vmf->address + done * PAGE_SIZE;
		struct folio *folios[BATCH];
		unsigned int count, mapped, wanted = 0, i;

		count = premap_alloc_folios(vmf->vma, address, nr - done, &orders,
					    folios);
		if (!count)
			break;
		for (i = 0; i < count; i++)
			wanted += folio_nr_pages(folios[i]);
		mapped = premap_map_folios(vmf, address, folios, count);
		done += mapped;
		if (mapped < wanted)
			break;
	}
	return done;
}

/*
 * Maps a window from vmf->address on if there should be one. The VMA is locked and
 * has an anon_vma.
 *
 * Return: whether the page at vmf->address is mapped now.
 */
static bool premap_window_at(struct vm_fault *vmf)
{
	struct vm_area_struct *vma = vmf->vma;
	unsigned long address = vmf->address;
	unsigned int asked = is_fault(vmf);
	unsigned int shift, wanted, pages;
	struct limelight_premap *record;
	struct window last;
	bool continues;

	record = premap_record(vma->vm_mm);
	if (!record)
		return false;

	continues = premap_take_window(record, address, &last);
	if (last.nr)
		premap_adapt(record, &last, premap_inspect_window(vma, &last));

	shift = min(READ_ONCE(record->shift), shift_max());
	wanted = premap_window_size(vmf, address, continues ? last.wanted : 0,
				    max(BIT(shift), 2UL));
	if (wanted <= asked)
		return false;
	if (!shift) {
		premap_count_refused(record);
		return false;
	}

	pages = min3((unsigned long)wanted,
		     limelight_node_fault_room(NODE_DATA(numa_mem_id())) / 2,
		     limelight_cgroup_room(vma->vm_mm) / 4);
	if (pages <= asked)
		return false;
	if (limelight_prezero_enabled() &&
	    limelight_premap_takes(LIMELIGHT_PREZERO_ORDER))
		pages = whole_folios(address, pages, vma->vm_end);
	pages = premap_map_window(vmf, pages);
	if (!pages)
		return false;

	premap_add_window(record, address, pages, wanted, pages - asked);
	count_vm_events(LIMELIGHT_PREMAP_MAPPED, pages - asked);
	trace_limelight_premap(address, pages, wanted, shift);
	return true;
}

/* See limelight_premap(). */
bool __limelight_premap(struct vm_fault *vmf)
{
	if (!limelight_mm(vmf->vma->vm_mm) || vmf->flags & FAULT_FLAG_REMOTE ||
	    !is_fault(vmf) || !vma_premappable(vmf->vma))
		return false;
	/* As in do_anonymous_page(), which reports the error if this fails. */
	if (pte_alloc(vmf->vma->vm_mm, vmf->pmd) || __vmf_anon_prepare(vmf))
		return false;
	return premap_window_at(vmf);
}

/* See limelight_premap_extension(). */
void __limelight_premap_extension(unsigned long start, unsigned long end)
{
#ifdef CONFIG_PER_VMA_LOCK
	struct mm_struct *mm = current->mm;
	struct vm_area_struct *vma;

	if (!limelight_mm(mm) || start >= end ||
	    end - start > EXTENSION * PAGE_SIZE)
		return;
	vma = lock_vma_under_rcu(mm, start);
	if (!vma)
		return;
	/* A VMA without an anon_vma has no pages, so nothing is extended. */
	if (vma_premappable(vma) && vma->anon_vma && end <= vma->vm_end) {
		struct vm_fault vmf = {
			.vma = vma,
			.address = start,
			.pmd = mm_find_pmd(mm, start),
		};

		if (vmf.pmd)
			premap_window_at(&vmf);
	}
	vma_end_read(vma);
#endif
}

/* ---------------------------------------------------------- the mechanism */

bool limelight_premap_enabled(void)
{
	return static_key_enabled(&limelight_premap_key);
}

/* Whether windows may be filled with folios of @order. */
bool limelight_premap_takes(unsigned int order)
{
	return limelight_premap_enabled() && folio_orders() & BIT(order);
}

/* Sets the largest window. @remember: keep it after the device is closed. */
int limelight_window_set(unsigned int pages, bool remember)
{
	if (!pages || pages > LIMELIGHT_WINDOW_MAX)
		return -EINVAL;
	WRITE_ONCE(limelight_window_pages, pages);
	if (remember)
		window_configured = pages;
	return 0;
}

/* Sets the order of the largest folio in a window; 0: single pages. */
int limelight_folio_order_set(unsigned int order)
{
	if (order == 1 || order > LIMELIGHT_FOLIO_ORDER_MAX)
		return -EINVAL;
	WRITE_ONCE(limelight_folio_order, order);
	return 0;
}

/* Switches premap on or off. @window_pages: 0 keeps the current value. */
int limelight_premap_configure(bool on, u32 window_pages)
{
	if (window_pages > LIMELIGHT_WINDOW_MAX)
		return -EINVAL;
	if (window_pages)
		limelight_window_set(window_pages, false);

	if (on && !limelight_premap_enabled())
		static_branch_enable(&limelight_premap_key);
	else if (!on && limelight_premap_enabled())
		static_branch_disable(&limelight_premap_key);
	/* The sizes of folios in the pool of zeroed pages depend on premap. */
	limelight_prezero_wake();
	return 0;
}

/* Resets premap when the device is closed. */
void limelight_premap_reset(void)
{
	limelight_premap_configure(false, 0);
	WRITE_ONCE(limelight_window_pages, window_configured);
}

#ifdef CONFIG_LIMELIGHT_KUNIT_TEST
#include "tests/premap-kunit.h"
#endif
