// SPDX-License-Identifier: GPL-2.0-only
/*
 * Limelight prezero, the engine `dma`: a DMA channel fills pages, or copies the zero
 * page to them if it cannot fill. Any free channel of the machine is used.
 *
 * Drivers report success for transfers that failed (ptdma after a hardware error,
 * dw_dmac after a bad descriptor), so the CPU verifies each page unless user space
 * vouches for the channel (LIMELIGHT_PREZERO_TRUST).
 *
 * A channel is terminated when a transfer times out; channels that cannot be
 * terminated are not used. Termination does not prove that the hardware has stopped:
 * some drivers only drop their descriptors. So the pages of the batch are leaked, and
 * the channel is not used again before the next boot.
 */
#include <linux/completion.h>
#include <linux/dma-mapping.h>
#include <linux/dmaengine.h>
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/slab.h>

#include "internal.h"
#include "prezero.h"

/* Timeout of a batch, in jiffies. */
#define TIMEOUT		(2 * HZ)

/*
 * struct prezero_dma - the channel
 * @lock: serializes batches, because the nodes share the channel
 * @chan: the channel
 * @fills: the channel can fill; else it copies
 * @zero_page: DMA address of the zero page, the source of copies
 * @timeout: longest time for a batch, in jiffies
 * @stuck: a batch timed out; its pages and the channel are leaked
 */
struct prezero_dma {
	struct mutex lock;	/* the channel */
	struct dma_chan *chan;
	bool fills;
	dma_addr_t zero_page;
	unsigned long timeout;
	bool stuck;
};

struct dma_batch;

/*
 * struct dma_transfer - one page
 * @page: the page, with a reference
 * @batch: the batch that the transfer belongs to
 * @address: DMA address of the page
 * @cookie: the transfer's number in the channel
 * @failed: the driver has reported a failure
 */
struct dma_transfer {
	struct page *page;
	struct dma_batch *batch;
	dma_addr_t address;
	dma_cookie_t cookie;
	bool failed;
};

/*
 * struct dma_batch - transfers that are waited for together
 * @done: completed when all transfers have ended
 * @left: transfers that have not ended, plus one until all are submitted
 * @nr: number of transfers
 * @transfers: the transfers
 */
struct dma_batch {
	struct completion done;
	atomic_t left;
	unsigned int nr;
	struct dma_transfer transfers[PREZERO_BATCH];
};

/* Why the last attempt to get a channel failed; NULL: it did not fail. */
static const char *unavailable;

static void dma_transfer_done(struct dma_batch *batch)
{
	if (atomic_dec_and_test(&batch->left))
		complete(&batch->done);
}

/* Old drivers call this function, newer ones dma_transfer_result(). */
static void dma_transfer_ended(void *data)
{
	struct dma_transfer *transfer = data;

	dma_transfer_done(transfer->batch);
}

static void dma_transfer_result(void *data, const struct dmaengine_result *result)
{
	struct dma_transfer *transfer = data;

	transfer->failed = result->result != DMA_TRANS_NOERROR;
	dma_transfer_done(transfer->batch);
}

/* Submits a transfer for @page. Return: whether that succeeded. */
static bool dma_submit_page(struct prezero_dma *dma, struct dma_batch *batch,
			    struct page *page)
{
	const unsigned long flags = DMA_PREP_INTERRUPT | DMA_CTRL_ACK;
	struct device *dev = dmaengine_get_dma_device(dma->chan);
	struct dma_transfer *transfer = &batch->transfers[batch->nr];
	struct dma_async_tx_descriptor *descriptor;

	transfer->batch = batch;
	transfer->address = dma_map_page(dev, page, 0, PAGE_SIZE, DMA_FROM_DEVICE);
	if (dma_mapping_error(dev, transfer->address))
		return false;
	if (dma->fills)
		descriptor = dmaengine_prep_dma_memset(dma->chan, transfer->address,
						       0, PAGE_SIZE, flags);
	else
		descriptor = dmaengine_prep_dma_memcpy(dma->chan, transfer->address,
						       dma->zero_page, PAGE_SIZE,
						       flags);
	if (!descriptor)
		goto unmap;
	descriptor->callback = dma_transfer_ended;
	descriptor->callback_result = dma_transfer_result;
	descriptor->callback_param = transfer;
	atomic_inc(&batch->left);
	transfer->cookie = dmaengine_submit(descriptor);
	if (!dma_submit_error(transfer->cookie)) {
		get_page(page);
		transfer->page = page;
		batch->nr++;
		return true;
	}
	atomic_dec(&batch->left);
unmap:
	dma_unmap_page(dev, transfer->address, PAGE_SIZE, DMA_FROM_DEVICE);
	return false;
}

/*
 * Waits for all transfers of @batch.
 *
 * Return: false if they timed out and may still be running.
 */
static bool dma_wait_batch(struct prezero_dma *dma, struct dma_batch *batch)
{
	dma_transfer_done(batch);
	dma_async_issue_pending(dma->chan);
	if (wait_for_completion_timeout(&batch->done, dma->timeout))
		return true;
	/* This does not prove that the hardware has stopped, see above. */
	dmaengine_terminate_sync(dma->chan);
	return false;
}

/*
 * Releases the pages of a batch that has ended, and sets the bits of the zeroed ones
 * in @zeroed.
 *
 * Return: 0, or -EIO if a transfer failed.
 */
static int dma_collect_batch(struct prezero_dma *dma, struct dma_batch *batch, u64 *zeroed)
{
	struct device *dev = dmaengine_get_dma_device(dma->chan);
	int error = 0;
	unsigned int i;

	for (i = 0; i < batch->nr; i++) {
		struct dma_transfer *transfer = &batch->transfers[i];

		dma_unmap_page(dev, transfer->address, PAGE_SIZE, DMA_FROM_DEVICE);
		put_page(transfer->page);
		if (!transfer->failed &&
		    dma_async_is_tx_complete(dma->chan, transfer->cookie, NULL,
					     NULL) == DMA_COMPLETE)
			*zeroed |= BIT_ULL(i);
		else
			error = -EIO;
	}
	return error;
}

static int dma_zero(void *state, struct page **pages, unsigned int nr, u64 *zeroed)
{
	struct prezero_dma *dma = state;
	struct dma_batch *batch;
	int error;

	batch = kzalloc(sizeof(*batch), GFP_NOWAIT | __GFP_NOWARN);
	if (!batch)
		return -EAGAIN;
	init_completion(&batch->done);
	atomic_set(&batch->left, 1);

	mutex_lock(&dma->lock);
	/* A batch of another node's thread has timed out. */
	if (dma->stuck) {
		mutex_unlock(&dma->lock);
		kfree(batch);
		return -EIO;
	}
	while (batch->nr < nr && dma_submit_page(dma, batch, pages[batch->nr]))
		;
	if (!batch->nr) {
		mutex_unlock(&dma->lock);
		kfree(batch);
		return -EIO;
	}
	if (!dma_wait_batch(dma, batch)) {
		/* The batch and its references to the pages are leaked. */
		pr_err("limelight: prezero: %s: transfer timed out, %u pages leaked\n",
		       dma_chan_name(dma->chan), batch->nr);
		dma->stuck = true;
		mutex_unlock(&dma->lock);
		return -ETIMEDOUT;
	}
	error = dma_collect_batch(dma, batch, zeroed);
	mutex_unlock(&dma->lock);
	kfree(batch);
	return error;
}

static struct dma_chan *prezero_request_channel(enum dma_transaction_type type)
{
	struct dma_chan *chan;
	dma_cap_mask_t mask;

	dma_cap_zero(mask);
	dma_cap_set(type, mask);
	chan = dma_request_chan_by_mask(&mask);
	if (!IS_ERR(chan) && !chan->device->device_terminate_all) {
		dma_release_channel(chan);
		chan = ERR_PTR(-ENODEV);
	}
	return chan;
}

/* Requests a channel that can fill, or else one that can copy. */
static struct dma_chan *prezero_find_channel(bool *fills)
{
	struct dma_chan *chan = prezero_request_channel(DMA_MEMSET);

	*fills = !IS_ERR(chan);
	if (IS_ERR(chan))
		chan = prezero_request_channel(DMA_MEMCPY);
	return chan;
}

/*
 * Reports only the last attempt: searching for a channel means requesting one,
 * which may power up a device. A read from sysfs must not do that.
 */
static const char *dma_missing(void)
{
	return READ_ONCE(unavailable);
}

static void *dma_start(const struct limelight_mechanism *params)
{
	struct prezero_dma *dma = kzalloc(sizeof(*dma), GFP_KERNEL);
	struct device *dev;

	if (!dma)
		return ERR_PTR(-ENOMEM);
	mutex_init(&dma->lock);
	dma->timeout = TIMEOUT;
	dma->chan = prezero_find_channel(&dma->fills);
	if (IS_ERR(dma->chan))
		goto free;
	if (!dma->fills) {
		dev = dmaengine_get_dma_device(dma->chan);
		dma->zero_page = dma_map_page(dev, ZERO_PAGE(0), 0, PAGE_SIZE,
					      DMA_TO_DEVICE);
		if (dma_mapping_error(dev, dma->zero_page))
			goto release;
	}
	WRITE_ONCE(unavailable, NULL);
	return dma;
release:
	dma_release_channel(dma->chan);
free:
	WRITE_ONCE(unavailable,
		   "no channel that fills or copies memory and can be stopped");
	kfree(dma);
	return ERR_PTR(-ENODEV);
}

static bool dma_same(const void *state, const struct limelight_mechanism *params)
{
	return true;
}

static void dma_stop(void *state)
{
	struct prezero_dma *dma = state;

	if (!dma->stuck) {
		if (!dma->fills)
			dma_unmap_page(dmaengine_get_dma_device(dma->chan),
				       dma->zero_page, PAGE_SIZE, DMA_TO_DEVICE);
		dma_release_channel(dma->chan);
	}
	kfree(dma);
}

const struct prezero_engine prezero_dma_engine = {
	.name = "dma",
	.id = LIMELIGHT_ENGINE_DMA,
	.verify = true,
	.device = true,
	.missing = dma_missing,
	.start = dma_start,
	.same = dma_same,
	.stop = dma_stop,
	.zero = dma_zero,
};

#ifdef CONFIG_LIMELIGHT_KUNIT_TEST
#include "tests/prezero_dma-kunit.h"
#include "tests/prezero_machine-kunit.h"
#endif
