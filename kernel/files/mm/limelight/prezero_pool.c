// SPDX-License-Identifier: GPL-2.0-only
/*
 * Limelight prezero, the pool: pages that are all zero and belong to nobody.
 *
 * A list for each node, filled by the manager, and a short one for each CPU,
 * from which faults take: most take a page under a lock that nobody else wants,
 * and a batch moves when the short list is empty. Large folios, for the windows
 * of premap, are on a list of the node's alone: each is many pages. To the page allocator these
 * pages are in use. To everybody else they are memory that can be had back:
 * they count as reclaimable (but for those on the CPUs' lists, which like its
 * own count as nothing), and prezero_pool_drain() returns all of them from any
 * context.
 *
 * A page that leaves a node's list for a CPU's is under that CPU's lock all the
 * way. So a drain that empties the node's list first and the CPUs' after that
 * leaves nothing behind but what is added meanwhile.
 */
#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/percpu.h>
#include <linux/slab.h>
#include <linux/topology.h>
#include <linux/vmstat.h>

#include "internal.h"
#include "prezero.h"

/* @pool: zeroed. Return: 0 or -ENOMEM. */
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
	}
	for_each_possible_cpu(i) {
		struct prezero_cpu *cpu = per_cpu_ptr(pool->cpus, i);

		spin_lock_init(&cpu->lock);
		cpu->nid = cpu_to_mem(i);
	}
	return 0;
}

/* @pool is empty, and nobody uses it. */
void prezero_pool_destroy(struct prezero_pool *pool)
{
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

/* Spreads a target of @pages over the nodes as memory is. */
void prezero_pool_set_target(struct prezero_pool *pool, unsigned long pages)
{
	unsigned long total = max(totalram_pages(), 1UL);
	int nid;

	for_each_node_state(nid, N_MEMORY)
		WRITE_ONCE(pool->nodes[nid].target,
			   div64_ul((u64)pages * node_managed(nid) + total - 1,
				    total));
}

static void account(int nid, long pages)
{
	mod_node_page_state(NODE_DATA(nid), NR_KERNEL_MISC_RECLAIMABLE, pages);
}

/* @nr zeroed pages of node @nid enter the pool. */
void prezero_pool_add(struct prezero_pool *pool, int nid,
		      struct list_head *pages, unsigned int nr)
{
	struct prezero_node *node = &pool->nodes[nid];
	unsigned long flags;

	spin_lock_irqsave(&node->lock, flags);
	list_splice_tail_init(pages, &node->pages);
	WRITE_ONCE(node->nr, node->nr + nr);
	spin_unlock_irqrestore(&node->lock, flags);
	account(nid, nr);
}

/* The same for a folio of PREZERO_ORDER. */
void prezero_pool_add_folio(struct prezero_pool *pool, int nid,
			    struct folio *folio)
{
	struct prezero_node *node = &pool->nodes[nid];
	unsigned long flags;

	spin_lock_irqsave(&node->lock, flags);
	list_add_tail(&folio->lru, &node->folios);
	WRITE_ONCE(node->nr_folios, node->nr_folios + 1);
	spin_unlock_irqrestore(&node->lock, flags);
	account(nid, PREZERO_FOLIO_PAGES);
}

/* Takes a folio from @node, NULL: there is none. */
static struct folio *take_folio(struct prezero_node *node)
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
 * page, and gives up before it marks the folio if it does not know whose it is.
 */
static bool has_poison(struct folio *folio)
{
	unsigned int i;

	for (i = 0; i < PREZERO_FOLIO_PAGES; i++) {
		if (unlikely(PageHWPoison(folio_page(folio, i))))
			return true;
	}
	return false;
}

/*
 * Takes a zeroed folio of PREZERO_ORDER for the CPU that this runs on, if its
 * node is in @allowed. It is as the page allocator hands it out.
 */
struct folio *prezero_pool_get_folio(struct prezero_pool *pool,
				     const nodemask_t *allowed)
{
	int nid = raw_cpu_ptr(pool->cpus)->nid;
	struct folio *folio;

	if (!node_isset(nid, *allowed))
		return NULL;
	while ((folio = take_folio(&pool->nodes[nid]))) {
		account(nid, -PREZERO_FOLIO_PAGES);
		if (!has_poison(folio))
			break;
		/* It is kept: the page allocator would hand the page out again. */
	}
	return folio;
}

/*
 * Moves up to @most pages from @node's list to the end of @pages.
 *
 * Return: how many.
 */
static unsigned long take(struct prezero_node *node, struct list_head *pages,
			  unsigned long most)
{
	unsigned long nr = 0;

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

/* @cpu's list is empty, and locked. Return: whether there is something in it now. */
static bool refill(struct prezero_pool *pool, struct prezero_cpu *cpu)
{
	struct prezero_node *node = &pool->nodes[cpu->nid];
	struct page *page, *next;
	LIST_HEAD(pages);

	if (!READ_ONCE(node->nr))
		return false;
	spin_lock(&node->lock);
	take(node, &pages, PREZERO_CPU_PAGES);
	spin_unlock(&node->lock);

	list_for_each_entry_safe(page, next, &pages, lru)
		cpu->pages[cpu->nr++] = page;
	account(cpu->nid, -(long)cpu->nr);
	return cpu->nr;
}

/*
 * Takes up to @nr zeroed pages for the CPU that this runs on, if its node is in
 * @allowed. They are as the page allocator hands them out. @refilled: the node
 * has fewer now.
 *
 * Return: how many.
 */
unsigned int prezero_pool_get(struct prezero_pool *pool,
			      const nodemask_t *allowed, struct page **pages,
			      unsigned int nr, bool *refilled)
{
	/* Another CPU's by the time that it is locked is as good. */
	struct prezero_cpu *cpu = raw_cpu_ptr(pool->cpus);
	unsigned int got = 0;
	unsigned long flags;

	*refilled = false;
	if (!node_isset(cpu->nid, *allowed))
		return 0;
	spin_lock_irqsave(&cpu->lock, flags);
	while (got < nr) {
		if (!cpu->nr) {
			if (!refill(pool, cpu))
				break;
			*refilled = true;
		}
		pages[got++] = cpu->pages[--cpu->nr];
	}
	spin_unlock_irqrestore(&cpu->lock, flags);
	return got;
}

static unsigned long drain_node(struct prezero_pool *pool, int nid,
				unsigned long most)
{
	struct prezero_node *node = &pool->nodes[nid];
	struct page *page, *next;
	unsigned long flags, nr;
	struct folio *folio;
	LIST_HEAD(pages);
	int i;

	spin_lock_irqsave(&node->lock, flags);
	nr = take(node, &pages, most);
	spin_unlock_irqrestore(&node->lock, flags);
	if (nr)
		account(nid, -(long)nr);

	for_each_possible_cpu(i) {
		struct prezero_cpu *cpu = per_cpu_ptr(pool->cpus, i);

		if (cpu->nid != nid)
			continue;
		spin_lock_irqsave(&cpu->lock, flags);
		for (; cpu->nr && nr < most; nr++)
			list_add(&cpu->pages[--cpu->nr]->lru, &pages);
		spin_unlock_irqrestore(&cpu->lock, flags);
	}

	list_for_each_entry_safe(page, next, &pages, lru)
		__free_page(page);
	while (nr < most) {
		folio = take_folio(node);
		if (!folio)
			break;
		account(nid, -PREZERO_FOLIO_PAGES);
		/* As above: one with an error does not go back. */
		if (has_poison(folio))
			continue;
		folio_put(folio);
		nr += PREZERO_FOLIO_PAGES;
	}
	return nr;
}

/*
 * Gives @most pages of @nid (NUMA_NO_NODE: of all nodes) back to the page
 * allocator, or a few more, single ones first. Any context.
 *
 * Return: how many.
 */
unsigned long prezero_pool_drain(struct prezero_pool *pool, int nid,
				 unsigned long most)
{
	unsigned long nr = 0;

	/* The usual case: not even a lock. */
	if (!prezero_pool_pages(pool, nid))
		return 0;
	if (nid != NUMA_NO_NODE)
		return drain_node(pool, nid, most);
	for (nid = 0; nid < nr_node_ids && nr < most; nid++) {
		if (node_state(nid, N_POSSIBLE) && NODE_DATA(nid))
			nr += drain_node(pool, nid, most - nr);
	}
	return nr;
}

/* Single pages of node @nid (NUMA_NO_NODE: of all) in the pool now, about. */
unsigned long prezero_pool_singles(const struct prezero_pool *pool, int nid)
{
	unsigned long pages = 0;
	int i;

	for (i = 0; i < nr_node_ids; i++) {
		if (nid == NUMA_NO_NODE || nid == i)
			pages += READ_ONCE(pool->nodes[i].nr);
	}
	for_each_possible_cpu(i) {
		const struct prezero_cpu *cpu = per_cpu_ptr(pool->cpus, i);

		if (nid == NUMA_NO_NODE || nid == cpu->nid)
			pages += READ_ONCE(cpu->nr);
	}
	return pages;
}

/* Pages of node @nid (NUMA_NO_NODE: of all) in the pool now, about. */
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
