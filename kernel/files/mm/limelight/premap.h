/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What brk() and mprotect() tell premap about the heap.
 */
#ifndef _MM_LIMELIGHT_PREMAP_H
#define _MM_LIMELIGHT_PREMAP_H

#include <linux/limelight.h>

#ifdef CONFIG_LIMELIGHT_PREMAP

void __limelight_premap_extension(unsigned long start, unsigned long end);

/*
 * current may write to the anonymous memory from @start to @end, and could not
 * before. It holds no lock on its mappings.
 */
static inline void limelight_premap_extension(unsigned long start,
					      unsigned long end)
{
	if (static_branch_unlikely(&limelight_premap_key))
		__limelight_premap_extension(start, end);
}

#else /* !CONFIG_LIMELIGHT_PREMAP */

static inline void limelight_premap_extension(unsigned long start,
					      unsigned long end)
{
}

#endif /* CONFIG_LIMELIGHT_PREMAP */

#endif /* _MM_LIMELIGHT_PREMAP_H */
