/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A model of one processor's data caches, and of which cause evicts the lines of which other one.
 *
 * Three levels with true LRU, write-allocate, 64-byte lines, indexed by guest physical address. The
 * last level includes the others: what it loses, they lose. There is no prefetcher, so misses are
 * what the program asked for, and no instruction fetch. What a device writes by DMA does not pass
 * through here: it neither allocates lines (no DDIO) nor drops those of the page that it writes.
 *
 * For each line that leaves the last level the model records the cause that evicted it. A later
 * miss on that line is charged to the cause of the access and, in a second table, to the evicting
 * cause.
 */
#ifndef LIMELIGHT_CACHE_H
#define LIMELIGHT_CACHE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_SHIFT = 6, LEVELS = 3, MAX_WAYS = 32 };

/* Who executes. The zeroing of pages is apart from whatever else the same task does. */
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
	/* Misses of the last level, by the cause of the access and by the evicting cause: a cause + 1,
	 * or 0 if the line was never cached. */
	uint64_t taken[CAUSES][CAUSES + 1];
	/* Stores past the caches. */
	uint64_t bypassing[CAUSES];
};

struct caches {
	struct level level[LEVELS];
	/* By line number: the cause that evicted it from the last level, as in `taken`. */
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

/* Whether the line is there; it is the most recently used one afterwards. */
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

/* Puts a line in that is not there; returns what had to leave, + 1, or 0. */
static inline uint64_t level_insert(struct level *level, uint64_t line)
{
	uint64_t *set = level_set(level, line);
	uint64_t victim = set[level->ways - 1];

	memmove(set + 1, set, (level->ways - 1) * sizeof(*set));
	set[0] = line + 1;
	return victim;
}

/* Takes a line out; whether it was there. */
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

/* Empties the caches and forgets the evicting causes. */
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

/* A load or a store of `line`. */
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

/* A store that bypasses the caches: every cached copy of the line is dropped. */
static inline void caches_bypass(struct caches *caches, uint64_t line, enum cause by)
{
	caches->seen.bypassing[by]++;
	level_drop(&caches->level[0], line);
	level_drop(&caches->level[1], line);
	if (level_drop(&caches->level[2], line))
		caches_took(caches, line, by);
}

#endif
