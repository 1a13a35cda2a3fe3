/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * liblimelight-premap: map fresh heap before it faults.
 *
 * Preloaded (`limelight run --premap -- PROGRAM`) the library watches glibc's
 * malloc and needs nothing from the program. An allocator of its own calls
 * limelight_premap() when it has got more memory from the kernel.
 */
#ifndef LIMELIGHT_PREMAP_H
#define LIMELIGHT_PREMAP_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Maps the whole pages between START and START + LENGTH, which is private
 * anonymous memory that will be written to soon. Its contents do not change.
 *
 * Nothing is done, and 0 returned, for more than LIMELIGHT_PREMAP_MAX_KIB
 * (environment, 1024 by default), when less than a sixteenth of memory is free,
 * and on kernels before 5.14.
 *
 * Returns the number of bytes that are mapped now, or -1 and errno: EFAULT,
 * EINVAL and ENOMEM as from madvise(MADV_POPULATE_WRITE). May be called from
 * any thread; allocates nothing.
 */
long limelight_premap(void *start, size_t length);

#ifdef __cplusplus
}
#endif

#endif /* LIMELIGHT_PREMAP_H */
