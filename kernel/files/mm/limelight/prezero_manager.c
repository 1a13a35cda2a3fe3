// SPDX-License-Identifier: GPL-2.0-only
/*
 * Limelight prezero, the manager: a kthread per node fills the pool.
 *
 * CPU time. The zeroing is not charged to the app that will use the pages, so it has
 * to be bounded. A thread that zeroes with the CPU is SCHED_IDLE. A thread that only
 * submits work to a device needs little time, but SCHED_IDLE would give it none beside
 * a busy program. So it runs at nice 19, with a smaller share. Each thread uses at
 * most SHARE or DEVICE_SHARE percent of a CPU, and zeroes at most RATE pages a second
 * with any engine. zero_us in sysfs reports the CPU time. In a response window the
 * threads start no batch, the `cpu` engine no page and `block` no request.
 *
 * Memory. While twice the high watermarks stay free, the pool is filled from free
 * memory. Otherwise, as on most machines that have been in use for an hour, a thread
 * reclaims clean, old page cache for each batch, at nice 0, provided that there is
 * plenty of it: CACHE_FILL pages for each page of the pool. The thread takes no more
 * pages than it reclaimed, so free memory stays about what it was. As long as there are
 * CACHE_KEEP pages of such cache for each page of the pool, others reclaim cache and do
 * not drain the pool, except kswapd once it has scanned much of that cache in vain. The
 * pool is not filled for a second after it was drained.
 */
#include <kunit/static_stub.h>
#include <linux/atomic.h>
#include <linux/delay.h>
#include <linux/freezer.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/limelight.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/rwsem.h>
#include <linux/sched.h>
#include <linux/sched/cputime.h>
#include <linux/slab.h>
#include <linux/vmstat.h>
#include <linux/wait.h>
#include <uapi/linux/sched/types.h>

#include "../internal.h"
#include "internal.h"
#include "prezero.h"

/* Largest share of a CPU that a thread uses, in percent. */
#define SHARE		25
/* The same while a device zeroes. */
#define DEVICE_SHARE	5
/* Largest number of pages that a thread zeroes per second: 256 MiB/s. */
#define RATE		65536
/* Longest pause between batches, in ns. */
#define REST		(100 * NSEC_PER_MSEC)
/* Pause after the pool was drained, in jiffies. */
#define PAUSE		HZ
/* How long no folio is tried after none could be allocated, in jiffies. */
#define FRAGMENTED	(10 * HZ)
/* Pages of clean, old page cache for each page of the pool, to reclaim such cache. */
#define CACHE_FILL	8
/* The same, to keep the pool when kswapd runs. */
#define CACHE_KEEP	4
/* Polling interval while no pages may be zeroed, in jiffies. */
#define POLL		(HZ / 4)
/* The same after a while with too little free memory. */
#define POLL_MAX	(4 * HZ)

/*
 * struct zeroer - the thread of a node
 * @task: the thread; NULL: the node has none
 * @nid: the node
 * @wait: wait queue of the thread
 * @full: the thread sleeps without polling until pages are taken
 * @poll: polling interval of the thread, in jiffies
 * @device: the thread has the scheduling policy for a device that zeroes
 * @folios: most of the pool consists of large folios
 * @fragmented_until: until then, single pages take the place of folios, in jiffies
 * @spare: pages of cache that the thread reclaimed, and has not taken yet
 * @cpu_ns: CPU time of the node's earlier threads
 */
struct zeroer {
	struct task_struct *task;
	int nid;
	wait_queue_head_t wait;
	bool full;
	unsigned long poll;
	bool device;
	bool folios;
	unsigned long fragmented_until;
	unsigned long spare;
	u64 cpu_ns;
};

/* The pool that faults are served from. */
struct prezero_pool limelight_zeroed;

/* nr_node_ids entries; allocated when first needed, and never freed. */
static struct zeroer *zeroers;
/* Serializes creation and exit of the threads. */
static DEFINE_MUTEX(threads_lock);
/* Callers that wait for a thread, which therefore has nice 0. */
static atomic_t waiters = ATOMIC_INIT(0);
static struct prezero_filler filler = { .engine = &prezero_cpu_engine };
/* Held for reading by a thread that has pages which are not yet in the pool. */
static DECLARE_RWSEM(filling);
/* End of the pause in filling, in jiffies; see limelight_pending(). */
static unsigned long paused_until;

/* ------------------------------------------------------------- arithmetic */

/* Whether a batch can be taken from free memory; see pages_wanted(). */
static bool room_is_free(unsigned long room, unsigned long high)
{
	return room >= high + PREZERO_BATCH;
}

/*
 * Number of pages to zero next.
 * @pages: pages in the pool
 * @target: pages that the pool should have
 * @filling: the thread has been filling; else seven eighths of @target are enough
 * @room: free pages of the node above its high watermarks
 * @high: sum of these watermarks, in pages
 * @cache: pages that the pool may take from the page cache
 */
static unsigned int pages_wanted(unsigned long pages, unsigned long target,
				 bool filling, unsigned long room,
				 unsigned long high, unsigned long cache)
{
	unsigned long enough = filling ? target : target - target / 8;

	if (pages >= enough)
		return 0;
	if (room_is_free(room, high))
		return min3(target - pages, room - high, (unsigned long)PREZERO_BATCH);
	if (cache < PREZERO_BATCH)
		return 0;
	return min(target - pages, (unsigned long)PREZERO_BATCH);
}

/*
 * Number of pages that a pool of @pages may take from the page cache.
 * @clean: the node's clean, old page cache, in pages
 * @fault_room: free pages above its low watermarks; 0: kswapd is at work
 */
static unsigned long cache_room(unsigned long pages, unsigned long clean,
				unsigned long fault_room)
{
	unsigned long share = clean / CACHE_FILL;

	return fault_room && share > pages ? share - pages : 0;
}

/*
 * Whether a pool of @pages may stay while memory is below the low watermarks, because
 * reclaim will find enough page cache: @clean pages of clean, old cache in the node.
 */
static bool pool_may_stay(unsigned long pages, unsigned long clean)
{
	return clean / CACHE_KEEP >= pages;
}

/*
 * Whether kswapd may count on page cache in a round at @priority. Before the round at
 * ilog2(CACHE_KEEP), it has scanned about 1 / CACHE_KEEP of each list, so as many clean
 * pages as the pool has. If memory is short even then, it may not take them: memory.min
 * may protect their cgroup.
 */
static bool kswapd_may_find_cache(int priority)
{
	return priority > ilog2(CACHE_KEEP);
}

/* Number of large folios among the @target pages of a node. */
static unsigned long folios_of(unsigned long target)
{
	return (target - target / 8) / PREZERO_FOLIO_PAGES;
}

/*
 * Number of single pages among the @target pages of a node.
 * @folios: its target in folios
 * @nr_folios: folios that it has, perhaps more than @folios after a change
 */
static unsigned long singles_of(unsigned long target, unsigned long folios,
				unsigned long nr_folios)
{
	unsigned long large = max(folios, nr_folios) * PREZERO_FOLIO_PAGES;

	return target > large ? target - large : 0;
}

/*
 * Number of single pages that take the place of folios.
 * @singles: single pages in the pool
 * @target: pages that the node should have
 * @folios: folios that it should have
 */
static unsigned long stand_ins_of(unsigned long singles, unsigned long target,
				  unsigned long folios)
{
	unsigned long wanted = singles_of(target, folios, 0);

	return singles > wanted ? singles - wanted : 0;
}

/*
 * Length of the pause after a batch of @pages, in ns. The batch took @elapsed_ns and
 * @cpu_ns of CPU time. The thread may use @percent of a CPU.
 */
static u64 rest_after(u64 cpu_ns, unsigned int percent, u64 elapsed_ns,
		      unsigned int pages)
{
	u64 share = cpu_ns * (100 - percent) / percent;
	u64 rate = pages * (NSEC_PER_SEC / RATE);

	return min_t(u64, REST, max(share, rate > elapsed_ns ?
					   rate - elapsed_ns : 0));
}

/*
 * The polling interval after one of @poll, in jiffies. @short_of_memory: it is free
 * memory that is missing. While memory is full of page cache, that lasts for hours.
 */
static unsigned long next_poll(unsigned long poll, bool short_of_memory)
{
	if (!short_of_memory)
		return POLL;
	return min_t(unsigned long, 2 * poll, POLL_MAX);
}

/* ---------------------------------------------------------------- threads */

static unsigned long node_high_wmark(int nid)
{
	unsigned long pages = 0;
	int i;

	for (i = 0; i <= gfp_zone(GFP_PREZERO); i++) {
		struct zone *zone = &NODE_DATA(nid)->node_zones[i];

		if (managed_zone(zone))
			pages += high_wmark_pages(zone);
	}
	return pages;
}

static unsigned long nr_folios(const struct zeroer *zeroer)
{
	return READ_ONCE(limelight_zeroed.nodes[zeroer->nid].nr_folios);
}

/* Target of @zeroer's node in folios. While none can be allocated: those it has. */
static unsigned long target_folios(const struct zeroer *zeroer)
{
	unsigned long folios;

	if (!READ_ONCE(zeroer->folios))
		return 0;
	folios = folios_of(READ_ONCE(limelight_zeroed.nodes[zeroer->nid].target));
	if (limelight_pending(READ_ONCE(zeroer->fragmented_until), jiffies,
			      FRAGMENTED))
		folios = min(folios, nr_folios(zeroer));
	return folios;
}

static unsigned long target_singles(const struct zeroer *zeroer)
{
	return singles_of(READ_ONCE(limelight_zeroed.nodes[zeroer->nid].target),
			  target_folios(zeroer), nr_folios(zeroer));
}

/* Pages in folios that @zeroer's node has, and single pages that take their place. */
static unsigned long pages_for_folios(const struct zeroer *zeroer)
{
	return nr_folios(zeroer) * PREZERO_FOLIO_PAGES +
	       stand_ins_of(prezero_pool_singles(&limelight_zeroed, zeroer->nid),
			    READ_ONCE(limelight_zeroed.nodes[zeroer->nid].target),
			    target_folios(zeroer));
}

/* Whether the threads must not zero now, however much memory is free. */
static bool zeroers_held(void)
{
	return limelight_pending(READ_ONCE(paused_until), jiffies, PAUSE) ||
	       limelight_in_window();
}

/* Number of pages that @zeroer may take from the page cache. */
static unsigned long zeroer_cache_room(const struct zeroer *zeroer)
{
	struct pglist_data *pgdat = NODE_DATA(zeroer->nid);

	return cache_room(prezero_pool_pages(&limelight_zeroed, zeroer->nid),
			  limelight_node_clean_cache(pgdat),
			  limelight_node_fault_room(pgdat));
}

/* Number of pages that @zeroer should zero next, in @folios or as single pages. */
static unsigned int zeroer_wants_some(const struct zeroer *zeroer, bool folios)
{
	unsigned long room = limelight_node_room(NODE_DATA(zeroer->nid));
	unsigned long high = node_high_wmark(zeroer->nid);
	unsigned long cache = zeroer_cache_room(zeroer);
	unsigned long pages;

	if (zeroers_held())
		return 0;
	if (!folios)
		return pages_wanted(prezero_pool_singles(&limelight_zeroed,
							 zeroer->nid),
				    target_singles(zeroer), !zeroer->full, room,
				    high, cache);
	pages = pages_wanted(pages_for_folios(zeroer),
			     target_folios(zeroer) * PREZERO_FOLIO_PAGES,
			     !zeroer->full, room, high, cache);
	return round_down(pages, PREZERO_FOLIO_PAGES);
}

static unsigned int zeroer_wants(const struct zeroer *zeroer)
{
	return zeroer_wants_some(zeroer, true) ?: zeroer_wants_some(zeroer, false);
}

static bool zeroer_full(const struct zeroer *zeroer)
{
	/* Fewer missing pages than a folio has are not zeroed in a folio. */
	return pages_for_folios(zeroer) + PREZERO_FOLIO_PAGES >
	       target_folios(zeroer) * PREZERO_FOLIO_PAGES &&
	       prezero_pool_singles(&limelight_zeroed, zeroer->nid) >=
	       target_singles(zeroer);
}

static void wake_kswapd(struct zone *zone)
{
	KUNIT_STATIC_STUB_REDIRECT(wake_kswapd, zone);

	wakeup_kswapd(zone, 0, 0, zone_idx(zone));
}

/*
 * Wakes kswapd for each zone of node @nid whose watermarks are boosted. An allocation
 * that takes pages from a block of another migratetype boosts them, but the allocator
 * does not wake kswapd if it was GFP_PREZERO (boost_watermark() in mm/page_alloc.c). The
 * watermarks would then stay boosted, and memory would look short, until other tasks
 * allocate.
 */
static void wake_boosted_kswapd(int nid)
{
	int i;

	for (i = 0; i <= gfp_zone(GFP_PREZERO); i++) {
		struct zone *zone = &NODE_DATA(nid)->node_zones[i];

		if (managed_zone(zone) && READ_ONCE(zone->watermark_boost))
			wake_kswapd(zone);
	}
}

/* Sleeps until there may be pages to zero. */
static void zeroer_sleep(struct zeroer *zeroer)
{
	if (!zeroer_full(zeroer)) {
		/* The last call had no effect if kswapd was running. */
		if (!zeroers_held())
			wake_boosted_kswapd(zeroer->nid);
		wait_event_freezable_timeout(zeroer->wait,
					     kthread_should_stop() ||
					     zeroer_wants(zeroer), zeroer->poll);
		zeroer->poll = next_poll(zeroer->poll, !zeroers_held());
		return;
	}
	/* zeroer_rouse() wakes the thread when that changes. */
	WRITE_ONCE(zeroer->full, true);
	wait_event_freezable(zeroer->wait, kthread_should_stop() ||
			     !READ_ONCE(zeroer->full) || !zeroer_full(zeroer));
	WRITE_ONCE(zeroer->full, false);
}

/* Wakes @zeroer: there may be pages to zero. Any context. */
static void zeroer_rouse(struct zeroer *zeroer)
{
	WRITE_ONCE(zeroer->full, false);
	/* wq_has_sleeper()'s barrier pairs with prepare_to_wait_event()'s. */
	if (wq_has_sleeper(&zeroer->wait))
		wake_up(&zeroer->wait);
}

/*
 * Sets the scheduling policy of @task, depending on whether a @device zeroes. While a
 * caller waits for the threads, @task keeps nice 0: either the caller's
 * sched_set_normal() is the later one, or `waiters` is seen to be set.
 */
static void zeroer_set_policy(struct task_struct *task, bool device)
{
	static const struct sched_param param = {};

	if (device)
		sched_set_normal(task, MAX_NICE);
	else
		sched_setscheduler_nocheck(task, SCHED_IDLE, &param);
	if (atomic_read(&waiters))
		sched_set_normal(task, 0);
}

static unsigned long reclaim_batch(struct pglist_data *pgdat)
{
	KUNIT_STATIC_STUB_REDIRECT(reclaim_batch, pgdat);

	return limelight_reclaim_cache(pgdat, PREZERO_BATCH);
}

/*
 * Reclaims page cache of @zeroer's node. Avoids priority inversion: reclaim locks
 * folios and file mappings, which the topmost app may wait for, and on a busy CPU a
 * SCHED_IDLE thread can be preempted for seconds. Return: the number of pages.
 */
static unsigned long zeroer_reclaim(struct zeroer *zeroer)
{
	unsigned long pages;

	sched_set_normal(current, 0);
	pages = reclaim_batch(NODE_DATA(zeroer->nid));
	zeroer_set_policy(current, zeroer->device);
	return pages;
}

/*
 * Reclaims page cache for the next batch of @zeroer if its node has too little free
 * memory. Return: whether there is memory for a batch.
 */
static bool zeroer_make_room(struct zeroer *zeroer)
{
	struct pglist_data *pgdat = NODE_DATA(zeroer->nid);

	if (room_is_free(limelight_node_room(pgdat), node_high_wmark(zeroer->nid)))
		return true;
	if (zeroer->spare < PREZERO_BATCH)
		zeroer->spare += zeroer_reclaim(zeroer);
	return zeroer->spare >= PREZERO_BATCH;
}

/* Zeroes a batch. Return: pages added; -EAGAIN: none wanted; -ENOMEM: none free. */
static int zeroer_fill(struct zeroer *zeroer)
{
	int filled = -EAGAIN;
	unsigned int nr;
	u64 since;

	if (!zeroer_make_room(zeroer))
		return -ENOMEM;
	since = ktime_get_ns();
	down_read(&filling);
	/* Under the lock, so that a pause before prezero_manager_quiesce() is seen. */
	nr = zeroer_wants_some(zeroer, true) / PREZERO_FOLIO_PAGES;
	if (nr)
		filled = prezero_fill_folios(&limelight_zeroed, zeroer->nid,
					     &filler, nr);
	if (filled == -ENOMEM)
		WRITE_ONCE(zeroer->fragmented_until, jiffies + FRAGMENTED);
	/* No folio is wanted or available: try single pages. */
	nr = filled < 0 ? zeroer_wants_some(zeroer, false) : 0;
	if (nr)
		filled = prezero_fill(&limelight_zeroed, zeroer->nid, &filler, nr);
	up_read(&filling);
	wake_boosted_kswapd(zeroer->nid);

	/* On -ENOMEM, other tasks may have allocated the reclaimed pages: take others. */
	if (filled > 0)
		zeroer->spare -= min_t(unsigned long, zeroer->spare, filled);

	/* Counts batches that began in a window. The checks above leave none. */
	if (filled > 0 && limelight_in_window_since(since))
		count_vm_events(LIMELIGHT_PREZERO_IN_WINDOW, filled);
	return filled;
}

/* Adapts to changes of the engine and of premap's folio sizes. */
static void zeroer_adapt(struct zeroer *zeroer)
{
	bool device = prezero_filler_is_device(&filler);
	bool folios = limelight_premap_takes(PREZERO_ORDER);

	if (device != zeroer->device) {
		WRITE_ONCE(zeroer->device, device);
		zeroer_set_policy(current, device);
	}
	if (folios != zeroer->folios) {
		WRITE_ONCE(zeroer->folios, folios);
		count_vm_events(LIMELIGHT_PREZERO_DRAINED,
				prezero_pool_drain(&limelight_zeroed, zeroer->nid,
						   ULONG_MAX));
	}
}

static int zeroer_main(void *data)
{
	struct zeroer *zeroer = data;

	zeroer_set_policy(current, zeroer->device);
	set_freezable();

	while (!kthread_should_stop()) {
		unsigned int percent;
		u64 cpu, now, rest;
		int filled;

		zeroer_adapt(zeroer);
		if (!zeroer_wants(zeroer)) {
			zeroer_sleep(zeroer);
			continue;
		}
		percent = zeroer->device ? DEVICE_SHARE : SHARE;
		cpu = task_sched_runtime(current);
		now = ktime_get_ns();
		filled = zeroer_fill(zeroer);
		if (filled == -ENOMEM) {
			schedule_timeout_idle(zeroer->poll);
			zeroer->poll = next_poll(zeroer->poll, true);
		} else if (filled >= 0) {
			zeroer->poll = POLL;
			rest = rest_after(task_sched_runtime(current) - cpu,
					  percent, ktime_get_ns() - now,
					  filled ?: PREZERO_BATCH);
			rest = div_u64(rest, NSEC_PER_USEC) + 1;
			usleep_range_state(rest, rest + rest / 4, TASK_IDLE);
		}
		try_to_freeze();
	}
	return 0;
}

static int zeroers_init(void)
{
	int nid;

	if (zeroers)
		return 0;
	zeroers = kcalloc(nr_node_ids, sizeof(*zeroers), GFP_KERNEL);
	if (!zeroers)
		return -ENOMEM;
	for (nid = 0; nid < nr_node_ids; nid++) {
		zeroers[nid].nid = nid;
		init_waitqueue_head(&zeroers[nid].wait);
	}
	return 0;
}

/* Raises the priority of the threads, because the caller waits for them. */
static void begin_waiting(void)
{
	int nid;

	atomic_inc(&waiters);
	mutex_lock(&threads_lock);
	for (nid = 0; zeroers && nid < nr_node_ids; nid++) {
		if (zeroers[nid].task)
			sched_set_normal(zeroers[nid].task, 0);
	}
	mutex_unlock(&threads_lock);
}

/* Restores it, unless another caller waits. */
static void end_waiting(void)
{
	int nid;

	mutex_lock(&threads_lock);
	if (atomic_dec_and_test(&waiters)) {
		for (nid = 0; zeroers && nid < nr_node_ids; nid++) {
			struct zeroer *zeroer = &zeroers[nid];

			if (zeroer->task)
				zeroer_set_policy(zeroer->task,
						  READ_ONCE(zeroer->device));
		}
	}
	mutex_unlock(&threads_lock);
}

/* Waits until the threads' pages are in the pool or freed, and blocks filling. */
static void lock_filling(void)
{
	begin_waiting();
	down_write(&filling);
}

/*
 * Unlocks `filling` before end_waiting() takes threads_lock: zeroers_stop() waits
 * for a thread under threads_lock, and that thread may wait for `filling`.
 */
static void unlock_filling(void)
{
	up_write(&filling);
	end_waiting();
}

static void zeroers_stop(void)
{
	int nid;

	mutex_lock(&threads_lock);
	for (nid = 0; nid < nr_node_ids; nid++) {
		struct zeroer *zeroer = &zeroers[nid];
		struct task_struct *task = zeroer->task;

		if (!task)
			continue;
		/* Avoids priority inversion: the thread is SCHED_IDLE. */
		atomic_inc(&waiters);
		sched_set_normal(task, 0);
		kthread_stop(get_task_struct(task));
		atomic_dec(&waiters);
		zeroer->cpu_ns += task_sched_runtime(task);
		zeroer->task = NULL;
		put_task_struct(task);
	}
	mutex_unlock(&threads_lock);
}

static int zeroers_start(void)
{
	int nid;

	KUNIT_STATIC_STUB_REDIRECT(zeroers_start);

	for_each_node_state(nid, N_MEMORY) {
		const struct cpumask *cpus = cpumask_of_node(nid);
		struct task_struct *task;

		task = kthread_create_on_node(zeroer_main, &zeroers[nid], nid,
					      "kprezerod%d", nid);
		if (IS_ERR(task)) {
			zeroers_stop();
			return PTR_ERR(task);
		}
		if (!cpumask_empty(cpus))
			set_cpus_allowed_ptr(task, cpus);
		zeroers[nid].full = false;
		zeroers[nid].poll = POLL;
		zeroers[nid].device = false;
		zeroers[nid].fragmented_until = jiffies;
		zeroers[nid].spare = 0;
		mutex_lock(&threads_lock);
		zeroers[nid].task = task;
		mutex_unlock(&threads_lock);
		wake_up_process(task);
	}
	return 0;
}

/* ------------------------------------------------- interface to prezero.c */

/*
 * Switches to the engine in @params. If it is in use with the same parameters, it
 * stays as it is, dropped or not; only verification may change.
 *
 * Return: 0, or an error with nothing changed.
 */
int prezero_manager_use(const struct limelight_mechanism *params)
{
	const struct prezero_engine *engine = prezero_engine_by_id(params->engine);
	const struct prezero_engine *old = filler.engine;
	void *state = NULL, *old_state = filler.state;
	bool verify;

	if (!engine)
		return -EOPNOTSUPP;
	verify = params->prezero_flags & LIMELIGHT_PREZERO_VERIFY ||
		 (engine->verify &&
		  !(params->prezero_flags & LIMELIGHT_PREZERO_TRUST));
	if (engine == old &&
	    (!engine->same || engine->same(old_state, params))) {
		WRITE_ONCE(filler.verify, verify);
		return 0;
	}
	if (engine->start)
		state = engine->start(params);
	if (IS_ERR(state))
		return PTR_ERR(state);

	lock_filling();
	prezero_filler_set(&filler, engine, state, verify);
	unlock_filling();
	if (old->stop)
		old->stop(old_state);
	return 0;
}

/* Starts the threads. Return: 0 or an error. */
int prezero_manager_start(void)
{
	int ret = zeroers_init();

	return ret ?: zeroers_start();
}

/* Stops the threads and releases the engine. */
void prezero_manager_stop(void)
{
	static const struct limelight_mechanism none = {
		.engine = LIMELIGHT_ENGINE_CPU,
	};

	if (zeroers)
		zeroers_stop();
	prezero_manager_use(&none);
}

/* Called after a fault took pages of node @nid's list. Any context. */
void prezero_manager_taken(int nid)
{
	if (READ_ONCE(zeroers[nid].full) && zeroer_wants(&zeroers[nid]))
		zeroer_rouse(&zeroers[nid]);
}

/* Wakes the threads: there may be pages to zero. Any context. */
void prezero_manager_wake(void)
{
	int nid;

	for (nid = 0; nid < nr_node_ids; nid++)
		zeroer_rouse(&zeroers[nid]);
}

/*
 * Whether the pool's pages of node @nid may stay although its free memory is below the
 * low watermarks. Any context.
 */
bool prezero_manager_keeps(int nid)
{
	struct pglist_data *pgdat = NODE_DATA(nid);

	return pool_may_stay(prezero_pool_pages(&limelight_zeroed, nid),
			     limelight_node_clean_cache(pgdat));
}

/* The same for kswapd, before it reclaims from node @nid at @priority. */
bool prezero_manager_kswapd_keeps(int nid, int priority)
{
	return kswapd_may_find_cache(priority) && prezero_manager_keeps(nid);
}

/* Whether current is a thread that fills the pool. */
bool prezero_manager_is_current(void)
{
	int nid;

	if (!(current->flags & PF_KTHREAD))
		return false;
	for (nid = 0; nid < nr_node_ids; nid++) {
		if (READ_ONCE(zeroers[nid].task) == current)
			return true;
	}
	return false;
}

/* Pauses the threads for PAUSE, because memory is needed. Any context. */
void prezero_manager_pause(void)
{
	WRITE_ONCE(paused_until, jiffies + PAUSE);
}

/*
 * Called after prezero_manager_pause(). Waits until pages that are being zeroed are
 * in the pool or freed.
 */
void prezero_manager_quiesce(void)
{
	lock_filling();
	unlock_filling();
}

/* CPU time that the threads have used so far, in ns. */
u64 prezero_manager_cpu_ns(void)
{
	u64 ns = 0;
	int nid;

	mutex_lock(&threads_lock);
	for (nid = 0; zeroers && nid < nr_node_ids; nid++) {
		ns += zeroers[nid].cpu_ns;
		if (zeroers[nid].task)
			ns += task_sched_runtime(zeroers[nid].task);
	}
	mutex_unlock(&threads_lock);
	return ns;
}

/* The selected engine. @dropped: the CPU zeroes instead. */
const struct prezero_engine *prezero_manager_engine(bool *dropped)
{
	*dropped = prezero_filler_dropped(&filler);
	return filler.engine;
}

/* Pages that the engine failed to zero since it was selected. */
unsigned long prezero_manager_errors(void)
{
	return atomic_long_read(&filler.errors);
}

/* Counts a page of the pool that was not zero. */
void prezero_manager_count_dirty(void)
{
	atomic_long_inc(&filler.errors);
	count_vm_event(LIMELIGHT_PREZERO_ENGINE_ERRORS);
}

#ifdef CONFIG_LIMELIGHT_KUNIT_TEST
#include "tests/prezero_manager-kunit.h"
#endif
