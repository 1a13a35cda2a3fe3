// SPDX-License-Identifier: GPL-2.0-only
/*
 * Limelight prezero, the pool of zeroed pages.
 *
 * The manager fills a list of each node. Faults are served from a short list of each
 * CPU, so most faults take a page under an uncontended lock. When a CPU's list is
 * empty, a batch moves there from the node's list. Large folios, for premap's
 * windows, are on a separate list of the node. To the page allocator, pages of the
 * pool are in use. They are accounted as reclaimable (those on the CPUs' lists are
 * not accounted, like those on the page allocator's per-CPU lists), and
 * prezero_pool_drain() frees all of them from any context.
 *
 * A page moves from a node's list to a CPU's list under the lock of that CPU, which is
 * in the node's mask of stocked CPUs by then. So a drain that empties first the node's
 * list and then the lists of these CPUs misses only pages that are added meanwhile, or
 * that another drain is about to free. The lockless counts miss pages on their way.
 */
#include <kunit/static_stub.h>
#include <linux/cpumask.h>
#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/percpu.h>
#include <linux/slab.h>
#include <linux/topology.h>
#include <linux/vmstat.h>

#include "internal.h"
#include "prezero.h"

/* Initialises @pool, which is all zero. Return: 0 or -ENOMEM. */
int prezero_pool_init(struct prezero_pool *pool)
{
	int i;

	pool->nodes = kcalloc(nr_node_ids, sizeof(*pool->nodes), GFP_KERNEL);
	pool->cpus = alloc_percpu(struct prezero_cpu);
	if (!pool->nodes || !pool->cpus) {
		prezero_pool_destroy(pool);
		return -ENOMEM;
	}
	for (i = 0; i < nr_node_ids; i++) {
		spin_lock_init(&pool->nodes[i].lock);
		INIT_LIST_HEAD(&pool->nodes[i].pages);
		INIT_LIST_HEAD(&pool->nodes[i].folios);
		if (!zalloc_cpumask_var(&pool->nodes[i].stocked, GFP_KERNEL)) {
			prezero_pool_destroy(pool);
			return -ENOMEM;
		}
	}
	for_each_possible_cpu(i) {
		struct prezero_cpu *cpu = per_cpu_ptr(pool->cpus, i);

		spin_lock_init(&cpu->lock);
		cpu->cpu = i;
		cpu->nid = cpu_to_mem(i);
	}
	return 0;
}

/* Frees @pool, which is empty and unused. */
void prezero_pool_destroy(struct prezero_pool *pool)
{
	int i;

	for (i = 0; pool->nodes && i < nr_node_ids; i++)
		free_cpumask_var(pool->nodes[i].stocked);
	free_percpu(pool->cpus);
	kfree(pool->nodes);
	*pool = (struct prezero_pool) {};
}

static unsigned long node_managed(int nid)
{
	unsigned long pages = 0;
	int i;

	for (i = 0; i < MAX_NR_ZONES; i++)
		pages += zone_managed_pages(&NODE_DATA(nid)->node_zones[i]);
	return pages;
}

/* Distributes a target of @pages among the nodes in proportion to their memory. */
void prezero_pool_set_target(struct prezero_pool *pool, unsigned long pages)
{
	unsigned long total = max(totalram_pages(), 1UL);
	int nid;

	for_each_node_state(nid, N_MEMORY)
		WRITE_ONCE(pool->nodes[nid].target,
			   div64_ul((u64)pages * node_managed(nid) + total - 1,
				    total));
}

static void pool_account(int nid, long pages)
{
	mod_node_page_state(NODE_DATA(nid), NR_KERNEL_MISC_RECLAIMABLE, pages);
}

/* Adds @nr zeroed pages of node @nid. */
void prezero_pool_add(struct prezero_pool *pool, int nid,
		      struct list_head *pages, unsigned int nr)
{
	struct prezero_node *node = &pool->nodes[nid];
	unsigned long flags;

	spin_lock_irqsave(&node->lock, flags);
	list_splice_tail_init(pages, &node->pages);
	WRITE_ONCE(node->nr, node->nr + nr);
	spin_unlock_irqrestore(&node->lock, flags);
	pool_account(nid, nr);
}

/* Adds a zeroed folio of PREZERO_ORDER. */
void prezero_pool_add_folio(struct prezero_pool *pool, int nid,
			    struct folio *folio)
{
	struct prezero_node *node = &pool->nodes[nid];
	unsigned long flags;

	spin_lock_irqsave(&node->lock, flags);
	list_add_tail(&folio->lru, &node->folios);
	WRITE_ONCE(node->nr_folios, node->nr_folios + 1);
	spin_unlock_irqrestore(&node->lock, flags);
	pool_account(nid, PREZERO_FOLIO_PAGES);
}

/* Takes a folio from @node; NULL: there is none. */
static struct folio *pool_take_folio(struct prezero_node *node)
{
	struct folio *folio;
	unsigned long flags;

	if (!READ_ONCE(node->nr_folios))
		return NULL;
	spin_lock_irqsave(&node->lock, flags);
	folio = list_first_entry_or_null(&node->folios, struct folio, lru);
	if (folio) {
		list_del(&folio->lru);
		WRITE_ONCE(node->nr_folios, node->nr_folios - 1);
	}
	spin_unlock_irqrestore(&node->lock, flags);
	return folio;
}

/*
 * Whether a page of @folio has an uncorrectable error. memory_failure() marks the
 * page, but gives up before it marks the folio if it does not know the owner. Such
 * a folio is leaked: the page allocator checks single pages only, and would reuse it.
 */
bool prezero_folio_has_poison(struct folio *folio)
{
	unsigned int i;

	for (i = 0; i < PREZERO_FOLIO_PAGES; i++) {
		if (unlikely(PageHWPoison(folio_page(folio, i))))
			return true;
	}
	return false;
}

/*
 * Takes a zeroed folio of PREZERO_ORDER of the current CPU's node if that node is in
 * @allowed; NULL: there is none.
 */
struct folio *prezero_pool_get_folio(struct prezero_pool *pool,
				     const nodemask_t *allowed)
{
	int nid = raw_cpu_ptr(pool->cpus)->nid;
	struct folio *folio;

	if (!node_isset(nid, *allowed))
		return NULL;
	while ((folio = pool_take_folio(&pool->nodes[nid]))) {
		pool_account(nid, -PREZERO_FOLIO_PAGES);
		if (!prezero_folio_has_poison(folio))
			break;
	}
	return folio;
}

/*
 * Moves up to @most pages from @node's list to the end of @pages.
 *
 * Return: the number of pages moved.
 */
static unsigned long pool_take_pages(struct prezero_node *node, struct list_head *pages,
				     unsigned long most)
{
	unsigned long nr = 0;

	KUNIT_STATIC_STUB_REDIRECT(pool_take_pages, node, pages, most);

	if (most >= node->nr) {
		nr = node->nr;
		list_splice_tail_init(&node->pages, pages);
	} else {
		for (; nr < most; nr++)
			list_move_tail(node->pages.next, pages);
	}
	WRITE_ONCE(node->nr, node->nr - nr);
	return nr;
}

/* Refills @cpu's list, which is empty and locked. Return: whether it got pages. */
static bool pool_refill_cpu(struct prezero_pool *pool, struct prezero_cpu *cpu)
{
	struct prezero_node *node = &pool->nodes[cpu->nid];
	struct page *page, *next;
	LIST_HEAD(pages);

	if (!READ_ONCE(node->nr))
		return false;
	/* A drain that finds the pages gone from the node must find them here. */
	if (!cpumask_test_cpu(cpu->cpu, node->stocked))
		cpumask_set_cpu(cpu->cpu, node->stocked);
	spin_lock(&node->lock);
	pool_take_pages(node, &pages, PREZERO_CPU_PAGES);
	spin_unlock(&node->lock);

	list_for_each_entry_safe(page, next, &pages, lru)
		cpu->pages[cpu->nr++] = page;
	pool_account(cpu->nid, -(long)cpu->nr);
	return cpu->nr;
}

/*
 * Takes up to @nr zeroed pages of the current CPU's node if that node is in @allowed.
 * @refilled: set if pages were taken from the node's list.
 *
 * Return: the number of pages taken.
 */
unsigned int prezero_pool_get(struct prezero_pool *pool,
			      const nodemask_t *allowed, struct page **pages,
			      unsigned int nr, bool *refilled)
{
	/* If the task migrates before the lock is taken, any CPU's list will do. */
	struct prezero_cpu *cpu = raw_cpu_ptr(pool->cpus);
	unsigned int got = 0;
	unsigned long flags;

	*refilled = false;
	if (!node_isset(cpu->nid, *allowed))
		return 0;
	spin_lock_irqsave(&cpu->lock, flags);
	while (got < nr) {
		if (!cpu->nr) {
			if (!pool_refill_cpu(pool, cpu))
				break;
			*refilled = true;
		}
		pages[got++] = cpu->pages[--cpu->nr];
	}
	spin_unlock_irqrestore(&cpu->lock, flags);
	return got;
}

static unsigned long pool_drain_node(struct prezero_pool *pool, int nid,
				     unsigned long most)
{
	struct prezero_node *node = &pool->nodes[nid];
	struct page *page, *next;
	unsigned long flags, nr;
	struct folio *folio;
	LIST_HEAD(pages);
	int i;

	spin_lock_irqsave(&node->lock, flags);
	nr = pool_take_pages(node, &pages, most);
	spin_unlock_irqrestore(&node->lock, flags);
	if (nr)
		pool_account(nid, -(long)nr);

	for_each_cpu(i, node->stocked) {
		struct prezero_cpu *cpu = per_cpu_ptr(pool->cpus, i);

		if (nr >= most)
			break;
		spin_lock_irqsave(&cpu->lock, flags);
		for (; cpu->nr && nr < most; nr++)
			list_add(&cpu->pages[--cpu->nr]->lru, &pages);
		/* Under the lock, so that no other drain passes by pages. */
		if (!cpu->nr)
			cpumask_clear_cpu(i, node->stocked);
		spin_unlock_irqrestore(&cpu->lock, flags);
	}

	list_for_each_entry_safe(page, next, &pages, lru)
		__free_page(page);
	while (nr < most) {
		folio = pool_take_folio(node);
		if (!folio)
			break;
		pool_account(nid, -PREZERO_FOLIO_PAGES);
		if (prezero_folio_has_poison(folio))
			continue;
		folio_put(folio);
		nr += PREZERO_FOLIO_PAGES;
	}
	return nr;
}

/*
 * Frees up to @most pages of @nid (NUMA_NO_NODE: of all nodes), single pages first,
 * then whole folios, which may exceed @most. Any context.
 *
 * Return: the number of pages freed.
 */
unsigned long prezero_pool_drain(struct prezero_pool *pool, int nid,
				 unsigned long most)
{
	unsigned long nr = 0;

	if (nid != NUMA_NO_NODE)
		return pool_drain_node(pool, nid, most);
	for (nid = 0; nid < nr_node_ids && nr < most; nid++) {
		if (node_state(nid, N_POSSIBLE) && NODE_DATA(nid))
			nr += pool_drain_node(pool, nid, most - nr);
	}
	return nr;
}

static unsigned long pool_node_singles(const struct prezero_pool *pool, int nid)
{
	const struct prezero_node *node = &pool->nodes[nid];
	unsigned long pages = READ_ONCE(node->nr);
	int i;

	for_each_cpu(i, node->stocked)
		pages += READ_ONCE(per_cpu_ptr(pool->cpus, i)->nr);
	return pages;
}

/*
 * Single pages of node @nid (NUMA_NO_NODE: of all nodes) in the pool. Lockless, and
 * therefore approximate.
 */
unsigned long prezero_pool_singles(const struct prezero_pool *pool, int nid)
{
	unsigned long pages = 0;

	if (nid != NUMA_NO_NODE)
		return pool_node_singles(pool, nid);
	for (nid = 0; nid < nr_node_ids; nid++)
		pages += pool_node_singles(pool, nid);
	return pages;
}

/* prezero_pool_singles() plus the pages of large folios. */
unsigned long prezero_pool_pages(const struct prezero_pool *pool, int nid)
{
	unsigned long pages = prezero_pool_singles(pool, nid);
	int i;

	for (i = 0; i < nr_node_ids; i++) {
		if (nid == NUMA_NO_NODE || nid == i)
			pages += READ_ONCE(pool->nodes[i].nr_folios) *
				 PREZERO_FOLIO_PAGES;
	}
	return pages;
}

#ifdef CONFIG_LIMELIGHT_KUNIT_TEST
#include "tests/prezero_pool-kunit.h"
#endif
