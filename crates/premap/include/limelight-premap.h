/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * liblimelight-premap: map fresh heap before it faults.
 *
 * If the library is preloaded (`limelight run --premap -- PROGRAM`), it watches
 * glibc's malloc and needs nothing from the program. Other allocators call
 * limelight_premap() after they have got more memory from the kernel.
 */
#ifndef LIMELIGHT_PREMAP_H
#define LIMELIGHT_PREMAP_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Maps the whole pages between START and START + LENGTH. The range must be
 * private anonymous memory that will be written to soon. Its contents do not
 * change.
 *
 * Does nothing and returns 0 for a range larger than LIMELIGHT_PREMAP_MAX_KIB
 * (environment, 1024 by default), while less than a sixteenth of memory is
 * free, and on kernels before 5.14.
 *
 * Returns the number of bytes that are mapped now, or -1 with errno set to
 * EFAULT, EINVAL or ENOMEM as by madvise(MADV_POPULATE_WRITE). May be called
 * from any thread; allocates nothing.
 */
long limelight_premap(void *start, size_t length);

#ifdef __cplusplus
}
#endif

#endif /* LIMELIGHT_PREMAP_H */
