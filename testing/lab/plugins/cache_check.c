/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Checks the cache model with access patterns whose misses are known. The lab's tests compile and
 * run it. It prints each wrong count; the exit status is then 1.
 */
#include <stdio.h>

#include "cache.h"

static int wrong;

static void expect(const char *what, uint64_t seen, uint64_t wanted)
{
	if (seen != wanted) {
		printf("%s: %llu, expected %llu\n", what, (unsigned long long)seen,
		       (unsigned long long)wanted);
		wrong = 1;
	}
}

static void walk(struct caches *caches, uint64_t from, uint64_t lines, int rounds, enum cause by)
{
	uint64_t line;

	while (rounds--)
		for (line = from; line < from + lines; line++)
			caches_access(caches, line, by);
}

static void start(struct caches *caches)
{
	caches_clear(caches);
	memset(&caches->seen, 0, sizeof(caches->seen));
}

int main(void)
{
	/* 32 KiB, 256 KiB, 8 MiB: 512, 4096 and 131072 lines. */
	const uint64_t bytes[LEVELS] = { 32 << 10, 256 << 10, 8 << 20 };
	const uint32_t ways[LEVELS] = { 8, 4, 16 };
	const uint64_t odd[LEVELS] = { 33 << 10, 256 << 10, 8 << 20 };
	struct caches caches;
	struct counters *seen = &caches.seen;
	uint64_t i;

	expect("48 sets of 11 ways are refused", caches_init(&caches, odd, ways, 64 << 20), 0);
	if (!caches_init(&caches, bytes, ways, 64 << 20))
		return 2;

	start(&caches);
	walk(&caches, 1000, 512, 10, CAUSE_APP);
	expect("inside L1: accesses", seen->accesses[CAUSE_APP], 5120);
	expect("inside L1: only the first round misses", seen->misses[0][CAUSE_APP], 512);
	expect("inside L1: the lines were never cached before", seen->taken[CAUSE_APP][0], 512);

	start(&caches);
	walk(&caches, 0, 1024, 4, CAUSE_APP);
	expect("twice L1: every access misses", seen->misses[0][CAUSE_APP], 4096);
	expect("twice L1: L2 holds all lines", seen->misses[1][CAUSE_APP], 1024);

	start(&caches);
	walk(&caches, 0, 8192, 3, CAUSE_APP);
	expect("twice L2: every access misses", seen->misses[1][CAUSE_APP], 3 * 8192);
	expect("twice L2: the LLC holds all lines", seen->misses[2][CAUSE_APP], 8192);

	start(&caches);
	walk(&caches, 0, 2 * 131072, 2, CAUSE_APP);
	expect("twice the LLC: every access misses", seen->misses[2][CAUSE_APP], 4 * 131072);
	expect("twice the LLC: the app evicts its own lines",
	       seen->taken[CAUSE_APP][CAUSE_APP + 1], 2 * 131072);

	/* Background lines fill the last level; zeroing half as many lines evicts half of them. */
	start(&caches);
	walk(&caches, 0, 131072, 1, CAUSE_BACKGROUND);
	walk(&caches, 1 << 19, 65536, 1, CAUSE_APP_ZEROING);
	memset(seen, 0, sizeof(*seen));
	for (i = 131072; i-- > 65536;)
		caches_access(&caches, i, CAUSE_BACKGROUND);
	expect("lines that zeroing did not evict hit", seen->misses[2][CAUSE_BACKGROUND], 0);
	walk(&caches, 0, 65536, 1, CAUSE_BACKGROUND);
	expect("lines that zeroing evicted miss",
	       seen->taken[CAUSE_BACKGROUND][CAUSE_APP_ZEROING + 1], 65536);

	/* Stores that bypass the caches do not evict other lines. */
	start(&caches);
	walk(&caches, 0, 131072, 1, CAUSE_BACKGROUND);
	for (i = 0; i < 65536; i++)
		caches_bypass(&caches, (1 << 19) + i, CAUSE_PREZERO_ZEROING);
	memset(seen, 0, sizeof(*seen));
	walk(&caches, 0, 131072, 1, CAUSE_BACKGROUND);
	expect("bypassing stores: no line is evicted", seen->misses[2][CAUSE_BACKGROUND], 0);
	caches_bypass(&caches, 7, CAUSE_PREZERO_ZEROING);
	walk(&caches, 7, 1, 1, CAUSE_BACKGROUND);
	expect("bypassing stores: the written line is dropped",
	       seen->taken[CAUSE_BACKGROUND][CAUSE_PREZERO_ZEROING + 1], 1);

	/* Inclusion: a line that leaves the last level leaves L1 too. One line stays hot in L1, while
	 * other lines fill its set in the last level (8192 sets). */
	start(&caches);
	caches_access(&caches, 0, CAUSE_APP);
	for (i = 1; i <= 16; i++) {
		caches_access(&caches, i * 8192, CAUSE_BACKGROUND);
		if (i < 16)
			caches_access(&caches, 0, CAUSE_APP);
	}
	expect("inclusion: L1 keeps the line hot at first", seen->misses[0][CAUSE_APP], 1);
	caches_access(&caches, 0, CAUSE_APP);
	expect("inclusion: the LLC evicts the line at last",
	       seen->taken[CAUSE_APP][CAUSE_BACKGROUND + 1], 1);
	return wrong;
}
