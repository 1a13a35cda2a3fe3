// SPDX-License-Identifier: GPL-2.0-only
/*
 * Limelight prezero, the engine `block`: reads pages from an extent of zeroes on a
 * block device. The device writes to memory without polluting the CPU's caches.
 *
 * User space passes a file descriptor of the device, opened exclusively (O_EXCL).
 * While this file is open, no file system on the device can be mounted. Processes
 * with write access to the device can still write to it, so the CPU verifies each
 * page, unless user space trusts the device.
 *
 * A regular file is unsuitable: the CPU zeroes pages for holes, and extents may move.
 *
 * A request that times out cannot be cancelled, and the device may still write to its
 * pages. So each request holds references to its pages until it ends, even if that is
 * after the engine was stopped.
 */
#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/completion.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/ioprio.h>
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "internal.h"
#include "prezero.h"

/* Timeout of a request, in jiffies. */
#define TIMEOUT		(2 * HZ)

/*
 * struct prezero_block - an extent of zeroes on a block device
 * @file: the block device, kept open by a reference
 * @offset: offset of the zeroes, in bytes
 * @len: length of the zeroes, in bytes
 */
struct prezero_block {
	struct file *file;
	u64 offset;
	u64 len;
};

/* Who frees a request: its submitter, or block_end_io(). */
enum owner {
	OWNER_WAITER,	/* in flight, the submitter waits and will free it */
	OWNER_DEVICE,	/* in flight, timed out: block_end_io() will free it */
	OWNER_DONE,	/* completed in time, the submitter frees it */
};

/*
 * struct block_request - a read into at most one batch of pages
 * @bio: the read
 * @owner: who frees the request, an enum owner
 * @done: completed when the read has ended
 * @file: keeps the device open, set only after a timeout
 * @nr: pages in @pages
 * @pages: the pages, with a reference to each
 * @vecs: the vectors of @bio
 */
struct block_request {
	struct bio bio;
	atomic_t owner;
	struct completion done;
	struct file *file;
	unsigned int nr;
	struct page *pages[PREZERO_BATCH];
	struct bio_vec vecs[PREZERO_BATCH];
};

static void block_request_free(struct block_request *request)
{
	while (request->nr)
		put_page(request->pages[--request->nr]);
	bio_uninit(&request->bio);
	kfree(request);
}

static void block_end_io(struct bio *bio)
{
	struct block_request *request = container_of(bio, struct block_request,
						     bio);

	if (atomic_cmpxchg(&request->owner, OWNER_WAITER, OWNER_DONE) ==
	    OWNER_WAITER) {
		complete(&request->done);
		return;
	}
	/* The submitter has timed out and left the request to this function. */
	fput(request->file);
	block_request_free(request);
}

static struct block_request *block_request_alloc(struct block_device *bdev, u64 offset,
						 struct page **pages, unsigned int nr)
{
	struct block_request *request;
	unsigned int i;

	request = kmalloc(sizeof(*request), GFP_NOWAIT | __GFP_NOWARN);
	if (!request)
		return NULL;
	bio_init(&request->bio, bdev, request->vecs, PREZERO_BATCH, REQ_OP_READ);
	request->bio.bi_iter.bi_sector = offset >> SECTOR_SHIFT;
	request->bio.bi_end_io = block_end_io;
	/* I/O schedulers with priorities serve all other requests first. */
	request->bio.bi_ioprio = IOPRIO_PRIO_VALUE(IOPRIO_CLASS_IDLE, 0);
	atomic_set(&request->owner, OWNER_WAITER);
	init_completion(&request->done);
	request->nr = nr;
	for (i = 0; i < nr; i++) {
		get_page(pages[i]);
		request->pages[i] = pages[i];
		__bio_add_page(&request->bio, pages[i], PAGE_SIZE, 0);
	}
	return request;
}

/*
 * Waits for @request to the device @file for at most @timeout jiffies.
 *
 * Return: 0 or a negative error. The request is freed, unless this function timed
 * out. In that case block_end_io() will free it and drop its references to the pages.
 */
static int block_request_wait(struct block_request *request, struct file *file,
			      unsigned long timeout)
{
	int error;

	if (!wait_for_completion_io_timeout(&request->done, timeout)) {
		request->file = get_file(file);
		if (atomic_cmpxchg(&request->owner, OWNER_WAITER,
				   OWNER_DEVICE) == OWNER_WAITER)
			return -ETIMEDOUT;
		/* The read ended meanwhile; block_end_io() is about to complete it. */
		wait_for_completion(&request->done);
		fput(request->file);
	}
	error = blk_status_to_errno(request->bio.bi_status);
	block_request_free(request);
	return error;
}

static int block_zero(void *state, struct page **pages, unsigned int nr,
		      u64 *zeroed)
{
	struct prezero_block *block = state;
	unsigned int most = min_t(u64, block->len >> PAGE_SHIFT, nr);
	unsigned int done = 0;

	/* An extent that is smaller than the batch is read repeatedly. */
	while (done < nr) {
		unsigned int now = min(most, nr - done);
		struct block_request *request;
		int error;

		if (done && limelight_in_window())
			break;
		request = block_request_alloc(file_bdev(block->file), block->offset,
					      pages + done, now);
		if (!request)
			return -EAGAIN;
		submit_bio(&request->bio);
		error = block_request_wait(request, block->file, TIMEOUT);
		if (error)
			return error;
		*zeroed |= GENMASK_ULL(done + now - 1, done);
		done += now;
	}
	return 0;
}

/* Checks that @file is a block device, opened read-only and exclusively. */
static int block_check_file(struct file *file)
{
	if (!S_ISBLK(file_inode(file)->i_mode))
		return -ENOTBLK;
	/* An exclusive open sets private_data, see file_to_blk_mode(). */
	if (!(file->f_mode & FMODE_READ) || file->f_mode & FMODE_WRITE ||
	    !file->private_data)
		return -EACCES;
	return 0;
}

/* Checks an extent of a device of @size bytes with blocks of @block_size. */
static int block_check_extent(u64 size, unsigned int block_size, u64 offset, u64 len)
{
	if (!len || !PAGE_ALIGNED(len) || offset > size || len > size - offset ||
	    offset & (block_size - 1) || block_size > PAGE_SIZE)
		return -EINVAL;
	return 0;
}

static void *block_start(const struct limelight_mechanism *params)
{
	struct file *file = fget(params->block_fd);
	struct prezero_block *block;
	int ret;

	if (!file)
		return ERR_PTR(-EBADF);
	ret = block_check_file(file);
	if (!ret)
		ret = block_check_extent(bdev_nr_bytes(file_bdev(file)),
					 bdev_logical_block_size(file_bdev(file)),
					 params->block_offset, params->block_len);
	if (ret)
		goto error;
	ret = -ENOMEM;
	block = kmalloc(sizeof(*block), GFP_KERNEL);
	if (!block)
		goto error;
	*block = (struct prezero_block) {
		.file = file,
		.offset = params->block_offset,
		.len = params->block_len,
	};
	return block;
error:
	fput(file);
	return ERR_PTR(ret);
}

static bool block_same(const void *state, const struct limelight_mechanism *params)
{
	const struct prezero_block *block = state;
	struct file *file = fget(params->block_fd);
	bool same = file == block->file && params->block_offset == block->offset &&
		    params->block_len == block->len;

	if (file)
		fput(file);
	return same;
}

static void block_stop(void *state)
{
	struct prezero_block *block = state;

	fput(block->file);
	kfree(block);
}

const struct prezero_engine prezero_block_engine = {
	.name = "block",
	.id = LIMELIGHT_ENGINE_BLOCK,
	.verify = true,
	.device = true,
	.start = block_start,
	.same = block_same,
	.stop = block_stop,
	.zero = block_zero,
};

#ifdef CONFIG_LIMELIGHT_KUNIT_TEST
#include "tests/prezero_block-kunit.h"
#endif
