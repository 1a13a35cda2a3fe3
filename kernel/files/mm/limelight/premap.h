/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hooks of premap in brk() and mprotect().
 */
#ifndef _MM_LIMELIGHT_PREMAP_H
#define _MM_LIMELIGHT_PREMAP_H

#include <linux/limelight.h>

#ifdef CONFIG_LIMELIGHT_PREMAP

void __limelight_premap_extension(unsigned long start, unsigned long end);

/*
 * Called after the range from @start to @end has become writable. current does not
 * hold the mmap lock.
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
