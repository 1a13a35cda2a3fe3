// SPDX-License-Identifier: GPL-2.0-only
/*
 * Limelight prezero, the engine `cpu`: zeroes pages with non-temporal stores on x86,
 * with clear_page() elsewhere. The pages are not used soon, and ordinary stores would
 * evict other data from the caches.
 */
#include <linux/kmsan-checks.h>
#include <linux/limelight.h>
#include <linux/mm.h>
#include <linux/sched.h>

#include <asm/barrier.h>

#include "internal.h"
#include "prezero.h"

/* Not inlined, so that profiles show the zeroing under its own name. */
static noinline void clear_nontemporal(void *page)
{
#ifdef CONFIG_X86_64
	u64 *to = page;
	u64 *end = page + PAGE_SIZE;

	/* The compiler's sanitizers do not see these stores. */
	kmsan_unpoison_memory(page, PAGE_SIZE);
	for (; to < end; to += 8)
		asm volatile("movnti %1, 0x00(%0)\n\t"
			     "movnti %1, 0x08(%0)\n\t"
			     "movnti %1, 0x10(%0)\n\t"
			     "movnti %1, 0x18(%0)\n\t"
			     "movnti %1, 0x20(%0)\n\t"
			     "movnti %1, 0x28(%0)\n\t"
			     "movnti %1, 0x30(%0)\n\t"
			     "movnti %1, 0x38(%0)\n\t"
			     : : "r" (to), "r" (0UL) : "memory");
#else
	clear_page(page);
#endif
}

/* Stops before the next page when a window opens. */
static int cpu_zero(void *state, struct page **pages, unsigned int nr,
		    u64 *zeroed)
{
	unsigned int i;

	for (i = 0; i < nr && !limelight_in_window(); i++) {
		clear_nontemporal(page_address(pages[i]));
		*zeroed |= BIT_ULL(i);
		cond_resched();
	}
	/* Publishing the pages does not order non-temporal stores. */
	wmb();
	return 0;
}

const struct prezero_engine prezero_cpu_engine = {
	.name = "cpu",
	.id = LIMELIGHT_ENGINE_CPU,
	.zero = cpu_zero,
};
