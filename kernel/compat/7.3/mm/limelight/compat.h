/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Interfaces whose form differs between kernel versions, for Linux 7.3.
 */
#ifndef _MM_LIMELIGHT_COMPAT_H
#define _MM_LIMELIGHT_COMPAT_H

#include <linux/gfp.h>
#include <linux/huge_mm.h>

/* A folio of @order at the aligned @address in @vma. */
static inline struct folio *limelight_alloc_folio(gfp_t gfp, int order,
						  struct vm_area_struct *vma,
						  unsigned long address)
{
	return vma_alloc_folio(gfp, order, vma, address);
}

/* Whether large folios are disabled for the whole @vma. */
static inline bool limelight_thp_disabled(struct vm_area_struct *vma)
{
	return vma_thp_disabled(vma, vma->vm_flags, false);
}

/* Prepares a charged large folio for the list of deferred splits. 0 or -ENOMEM. */
static inline int limelight_prepare_large_folio(struct folio *folio)
{
	return folio_order(folio) > 1 ? folio_memcg_alloc_deferred(folio) : 0;
}

#endif /* _MM_LIMELIGHT_COMPAT_H */
