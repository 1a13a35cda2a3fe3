/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Interfaces of newer kernels that mm/limelight uses, for Linux 6.12.
 */
#ifndef _MM_LIMELIGHT_COMPAT_H
#define _MM_LIMELIGHT_COMPAT_H

#include <linux/gfp.h>
#include <linux/hrtimer.h>
#include <linux/huge_mm.h>
#include <linux/page-flags.h>

#define FOLIO_MAPPING_ANON	PAGE_MAPPING_ANON

#define alloc_pages_bulk	alloc_pages_bulk_array
#define alloc_pages_bulk_node	alloc_pages_bulk_array_node

static inline void hrtimer_setup(struct hrtimer *timer,
				 enum hrtimer_restart (*function)(struct hrtimer *),
				 clockid_t clock, enum hrtimer_mode mode)
{
	hrtimer_init(timer, clock, mode);
	timer->function = function;
}

/* A folio of @order at the aligned @address in @vma. */
static inline struct folio *limelight_alloc_folio(gfp_t gfp, int order,
						  struct vm_area_struct *vma,
						  unsigned long address)
{
	return vma_alloc_folio(gfp, order, vma, address, order > 0);
}

/* Whether large folios are disabled for the whole @vma. */
static inline bool limelight_thp_disabled(struct vm_area_struct *vma)
{
	return vma_thp_disabled(vma, vma->vm_flags);
}

/* Prepares a charged large folio for the list of deferred splits. 0 or -ENOMEM. */
static inline int limelight_prepare_large_folio(struct folio *folio)
{
	return 0;
}

#endif /* _MM_LIMELIGHT_COMPAT_H */
