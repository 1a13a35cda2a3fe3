/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A model of the data caches of one processor, which records which cause evicts which lines.
 *
 * Three levels with true LRU and write-allocate, lines of 64 bytes, indexed by guest physical
 * address. The last level is inclusive: a line that it evicts leaves the other levels too.
 * Instruction fetches and prefetching are not modelled: all misses are misses of loads and stores.
 * DMA writes of devices are not modelled either: they neither allocate lines (no DDIO) nor drop the
 * lines of the written page.
 *
 * For each line that leaves the last level, the model records the cause of the eviction. A later
 * miss on that line is charged to the cause of the access and, in a second table, to the cause of
 * the eviction.
 */
#ifndef LIMELIGHT_CACHE_H
#define LIMELIGHT_CACHE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_SHIFT = 6, LEVELS = 3, MAX_WAYS = 32 };

/* Cause of an access: a role, with the zeroing of pages counted apart. */
enum cause {
	CAUSE_SYSTEM,
	CAUSE_SYSTEM_ZEROING,
	CAUSE_APP,
	CAUSE_APP_ZEROING,
	CAUSE_BACKGROUND,
	CAUSE_BACKGROUND_ZEROING,
	CAUSE_PREZERO,
	CAUSE_PREZERO_ZEROING,
	CAUSES,
};

static const char *const cause_names[CAUSES] = {
	"system", "system_zeroing", "app", "app_zeroing",
	"background", "background_zeroing", "prezero", "prezero_zeroing",
};

struct level {
	uint32_t sets;
	uint32_t ways;
	/* Line number + 1, most recently used first within a set; 0 is empty. */
	uint64_t *lines;
};

struct counters {
	uint64_t accesses[CAUSES];
	uint64_t misses[LEVELS][CAUSES];
	/* Misses of the last level: the first index is the cause of the access, the second one the
	 * cause of the line's eviction + 1, or 0 if the line was never cached. */
	uint64_t taken[CAUSES][CAUSES + 1];
	/* Stores that bypass the caches. */
	uint64_t bypassing[CAUSES];
};

struct caches {
	struct level level[LEVELS];
	/* By line number: cause of the eviction from the last level + 1, as in `taken`. */
	uint8_t *taker;
	uint64_t taker_lines;
	struct counters seen;
};

static inline bool level_init(struct level *level, uint64_t bytes, uint32_t ways)
{
	uint64_t sets;

	if (!ways || ways > MAX_WAYS || bytes % ((uint64_t)ways << LINE_SHIFT))
		return false;
	sets = bytes / ((uint64_t)ways << LINE_SHIFT);
	if (!sets || sets > UINT32_MAX || (sets & (sets - 1)))
		return false;
	level->sets = sets;
	level->ways = ways;
	level->lines = calloc(sets * ways, sizeof(*level->lines));
	return level->lines != NULL;
}

static inline uint64_t *level_set(const struct level *level, uint64_t line)
{
	return level->lines + (line & (level->sets - 1)) * level->ways;
}

/* Whether the line is cached. If so, makes it the most recently used line of its set. */
static inline bool level_find(struct level *level, uint64_t line)
{
	uint64_t *set = level_set(level, line);
	uint32_t way;

	for (way = 0; way < level->ways; way++) {
		if (set[way] == line + 1) {
			memmove(set + 1, set, way * sizeof(*set));
			set[0] = line + 1;
			return true;
		}
	}
	return false;
}

/* Inserts a line that is not cached. Returns the evicted line + 1, or 0 if none was evicted. */
static inline uint64_t level_insert(struct level *level, uint64_t line)
{
	uint64_t *set = level_set(level, line);
	uint64_t victim = set[level->ways - 1];

	memmove(set + 1, set, (level->ways - 1) * sizeof(*set));
	set[0] = line + 1;
	return victim;
}

/* Removes a line. Returns whether it was cached. */
static inline bool level_drop(struct level *level, uint64_t line)
{
	uint64_t *set = level_set(level, line);
	uint32_t way;

	for (way = 0; way < level->ways; way++) {
		if (set[way] == line + 1) {
			memmove(set + way, set + way + 1,
				(level->ways - 1 - way) * sizeof(*set));
			set[level->ways - 1] = 0;
			return true;
		}
	}
	return false;
}

static inline bool caches_init(struct caches *caches, const uint64_t bytes[LEVELS],
			       const uint32_t ways[LEVELS], uint64_t memory_bytes)
{
	int i;

	memset(caches, 0, sizeof(*caches));
	for (i = 0; i < LEVELS; i++)
		if (!level_init(&caches->level[i], bytes[i], ways[i]))
			return false;
	caches->taker_lines = memory_bytes >> LINE_SHIFT;
	caches->taker = calloc(caches->taker_lines, 1);
	return caches->taker != NULL;
}

/* Empties the caches and clears the causes of evictions. */
static inline void caches_clear(struct caches *caches)
{
	int i;

	for (i = 0; i < LEVELS; i++) {
		struct level *level = &caches->level[i];

		memset(level->lines, 0, (size_t)level->sets * level->ways * sizeof(*level->lines));
	}
	memset(caches->taker, 0, caches->taker_lines);
}

static inline void caches_took(struct caches *caches, uint64_t line, enum cause by)
{
	if (line < caches->taker_lines)
		caches->taker[line] = by + 1;
}

/* Models a load or a store of `line`. */
static inline void caches_access(struct caches *caches, uint64_t line, enum cause by)
{
	struct level *l1 = &caches->level[0], *l2 = &caches->level[1], *llc = &caches->level[2];
	uint64_t victim;

	caches->seen.accesses[by]++;
	if (level_find(l1, line))
		return;
	caches->seen.misses[0][by]++;
	if (!level_find(l2, line)) {
		caches->seen.misses[1][by]++;
		if (!level_find(llc, line)) {
			caches->seen.misses[2][by]++;
			caches->seen.taken[by][line < caches->taker_lines ?
					       caches->taker[line] : 0]++;
			victim = level_insert(llc, line);
			if (victim) {
				level_drop(l1, victim - 1);
				level_drop(l2, victim - 1);
				caches_took(caches, victim - 1, by);
			}
		}
		level_insert(l2, line);
	}
	level_insert(l1, line);
}

/* Models a store to `line` that bypasses the caches: it drops the line from all levels. */
static inline void caches_bypass(struct caches *caches, uint64_t line, enum cause by)
{
	caches->seen.bypassing[by]++;
	level_drop(&caches->level[0], line);
	level_drop(&caches->level[1], line);
	if (level_drop(&caches->level[2], line))
		caches_took(caches, line, by);
}

#endif
