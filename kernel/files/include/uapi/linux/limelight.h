/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * /dev/limelight: tells the kernel which processes make up the foreground
 * ("topmost") app.
 *
 * Opening it needs CAP_SYS_NICE; its mode is 0600. Only one file can be open at a
 * time: a second open() returns -EBUSY. There is one topmost set per machine, even
 * if the machine has several seats. All state belongs to the open file. When its
 * last reference is dropped, for whatever reason, the topmost set becomes empty and
 * every mechanism is switched off.
 *
 * Every ioctl renews the lease of the topmost set. limelight_info.lease_ms after the
 * last ioctl the kernel empties the set; the next LIMELIGHT_SET_TOPMOST sets it again.
 *
 * Every struct starts with its size, which must equal the size in the ioctl number
 * (else -EINVAL). A larger struct is accepted if the part that the kernel does not
 * know is zero (else -E2BIG). A struct smaller than its first version, or an unknown
 * flag, returns -EINVAL. An ioctl number with another direction returns -ENOTTY.
 */
#ifndef _UAPI_LINUX_LIMELIGHT_H
#define _UAPI_LINUX_LIMELIGHT_H

#include <linux/ioctl.h>
#include <linux/types.h>

/*
 * 1: the topmost set has no lease
 * 2: the topmost set has a lease; the size in the ioctl number is checked;
 *    LIMELIGHT_PREZERO_TRUST needs CAP_SYS_RAWIO
 */
#define LIMELIGHT_ABI_VERSION	2

/* Bit numbers in limelight_info.built_in and limelight_info.enabled. */
enum limelight_mechanism_id {
	LIMELIGHT_MECHANISM_PROTECT	= 0,
	LIMELIGHT_MECHANISM_PREMAP	= 1,
	LIMELIGHT_MECHANISM_READAHEAD	= 2,
	LIMELIGHT_MECHANISM_PREZERO	= 3,
};

/* Engines that zero pages: limelight_mechanism.engine. */
enum limelight_engine_id {
	LIMELIGHT_ENGINE_CPU	= 0,
	LIMELIGHT_ENGINE_BLOCK	= 1,
	LIMELIGHT_ENGINE_DMA	= 2,
};

/**
 * struct limelight_info - features of this kernel, and the current state
 * @size: in: sizeof(struct limelight_info); out: the kernel's size
 * @abi_version: out: LIMELIGHT_ABI_VERSION of the running kernel
 * @built_in: out: bit mask of mechanisms compiled in
 * @enabled: out: bit mask of mechanisms switched on through this file
 * @generation: out: number of the current topmost set, 0: there is none
 * @members: out: live processes that belong to the topmost set
 * @lease_ms: out: time from the last ioctl until the topmost set is emptied; 0 in
 *	version 1
 */
struct limelight_info {
	__u32 size;
	__u32 abi_version;
	__u64 built_in;
	__u64 enabled;
	__u64 generation;
	__u32 members;
	__u32 lease_ms;
};

/* Upper bound of limelight_topmost.nr. */
#define LIMELIGHT_TOPMOST_MAX	4096

/**
 * struct limelight_topmost - replace the topmost set
 * @size: sizeof(struct limelight_topmost)
 * @nr: number of pidfds, 0 (no app is topmost) to LIMELIGHT_TOPMOST_MAX
 * @pidfds: address of an array of @nr __s32 pidfds of thread-group leaders
 * @flags: zero
 *
 * The whole set is replaced at once, or not at all. Future children of members
 * become members. A pidfd whose process has exited is skipped, because processes may
 * exit between the caller's scan and the ioctl.
 */
struct limelight_topmost {
	__u32 size;
	__u32 nr;
	__u64 pidfds;
	__u64 flags;
};

/* Upper bounds of limelight_mechanism.factor and .window_pages. */
#define LIMELIGHT_FACTOR_MAX	64
#define LIMELIGHT_WINDOW_MAX	512

/* limelight_mechanism.flags */
#define LIMELIGHT_MECHANISM_ON	(1u << 0)

/* limelight_mechanism.prezero_flags; with neither, the engine's default applies */
#define LIMELIGHT_PREZERO_VERIFY	(1u << 0)
#define LIMELIGHT_PREZERO_TRUST		(1u << 1)

/**
 * struct limelight_mechanism - switch one mechanism on or off
 * @size: sizeof(struct limelight_mechanism)
 * @id: enum limelight_mechanism_id
 * @flags: LIMELIGHT_MECHANISM_ON or 0
 * @budget_percent: protect: largest footprint of the topmost app that is
 *	protected, in percent of the memory that reclaim can work with (free, on
 *	its lists, reclaimable slab, or in zram), 1 to 90; 0 keeps the current
 *	value
 * @factor: readahead: limit of the topmost app's read-ahead as a multiple of the
 *	default, 1 to LIMELIGHT_FACTOR_MAX; 0 keeps the current value
 * @window_pages: premap: largest number of pages that one fault of the topmost app
 *	may map, 1 to LIMELIGHT_WINDOW_MAX; 0 keeps the current value
 * @target_pages: prezero: number of zeroed pages in the pool, at most a twelfth
 *	of memory; 0 keeps the current value
 * @engine: prezero: enum limelight_engine_id, in each call that enables prezero
 * @block_fd: prezero, LIMELIGHT_ENGINE_BLOCK: a block device opened with
 *	O_RDONLY | O_EXCL; the kernel keeps it open and claimed until another engine
 *	is chosen or prezero is switched off
 * @prezero_flags: LIMELIGHT_PREZERO_VERIFY: the CPU verifies each page that the
 *	engine reports as zeroed; LIMELIGHT_PREZERO_TRUST: the CPU does not, which
 *	needs CAP_SYS_RAWIO (else -EPERM), because a page that the engine did not
 *	write holds another process's data
 * @block_offset: LIMELIGHT_ENGINE_BLOCK: offset of the zeroes on the device in
 *	bytes, a multiple of its logical block size
 * @block_len: LIMELIGHT_ENGINE_BLOCK: length of the zeroes in bytes, a multiple of
 *	the page size, not 0
 *
 * Parameters of other mechanisms and of other engines must be zero (else -EINVAL).
 * An unknown mechanism or engine returns -EINVAL; one that is not built in returns
 * -EOPNOTSUPP. Enabling prezero also returns -EOPNOTSUPP if freed pages are zeroed
 * anyway (init_on_free). The first version of the struct ended before @block_len.
 */
struct limelight_mechanism {
	__u32 size;
	__u32 id;
	__u32 flags;
	__u32 budget_percent;
	__u32 factor;
	__u32 window_pages;
	__u32 target_pages;
	__u32 engine;
	__s32 block_fd;
	__u32 prezero_flags;
	__u64 block_offset;
	__u64 block_len;
};

/* limelight_window.flags: exactly one of them */
#define LIMELIGHT_WINDOW_OPEN	(1u << 0)
#define LIMELIGHT_WINDOW_CLOSE	(1u << 1)

/* Upper bound of limelight_window.deadline_ns: 10 s. */
#define LIMELIGHT_WINDOW_DEADLINE_MAX	10000000000ull

/**
 * struct limelight_window - opens or closes a response window
 * @size: sizeof(struct limelight_window)
 * @flags: LIMELIGHT_WINDOW_OPEN or LIMELIGHT_WINDOW_CLOSE
 * @deadline_ns: open: latest end of the window, in nanoseconds from now, 1 to
 *	LIMELIGHT_WINDOW_DEADLINE_MAX; close: zero
 *
 * While a window is open the user waits for the topmost app, and deferrable work
 * does not run. Opening an open window moves its deadline; closing a closed window
 * is not an error. A window also ends when the topmost set becomes empty or the
 * file is closed.
 */
struct limelight_window {
	__u32 size;
	__u32 flags;
	__u64 deadline_ns;
};

#define LIMELIGHT_IOC_MAGIC	0xF5

#define LIMELIGHT_GET_INFO	_IOWR(LIMELIGHT_IOC_MAGIC, 0x00, struct limelight_info)
#define LIMELIGHT_SET_TOPMOST	_IOW(LIMELIGHT_IOC_MAGIC, 0x01, struct limelight_topmost)
#define LIMELIGHT_SET_MECHANISM	_IOW(LIMELIGHT_IOC_MAGIC, 0x02, struct limelight_mechanism)
#define LIMELIGHT_SET_WINDOW	_IOW(LIMELIGHT_IOC_MAGIC, 0x03, struct limelight_window)

#endif /* _UAPI_LINUX_LIMELIGHT_H */
