/* SPDX-License-Identifier: GPL-2.0-only */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM limelight

#if !defined(_TRACE_LIMELIGHT_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_LIMELIGHT_H

#include <linux/fs.h>
#include <linux/kdev_t.h>
#include <linux/limelight.h>
#include <linux/mm.h>
#include <linux/tracepoint.h>
#include <uapi/linux/limelight.h>

TRACE_EVENT(limelight_topmost,

	TP_PROTO(u64 generation, unsigned int members),

	TP_ARGS(generation, members),

	TP_STRUCT__entry(
		__field(u64, generation)
		__field(unsigned int, members)
	),

	TP_fast_assign(
		__entry->generation = generation;
		__entry->members = members;
	),

	TP_printk("generation=%llu members=%u", __entry->generation,
		  __entry->members)
);

TRACE_EVENT(limelight_window_open,

	TP_PROTO(u64 deadline_ns, bool moved),

	TP_ARGS(deadline_ns, moved),

	TP_STRUCT__entry(
		__field(u64, deadline_ns)
		__field(bool, moved)
	),

	TP_fast_assign(
		__entry->deadline_ns = deadline_ns;
		__entry->moved = moved;
	),

	TP_printk("deadline_ns=%llu moved=%d", __entry->deadline_ns,
		  __entry->moved)
);

TRACE_DEFINE_ENUM(LIMELIGHT_WINDOW_ANSWERED);
TRACE_DEFINE_ENUM(LIMELIGHT_WINDOW_EXPIRED);
TRACE_DEFINE_ENUM(LIMELIGHT_WINDOW_NO_TOPMOST);
TRACE_DEFINE_ENUM(LIMELIGHT_WINDOW_RELEASED);

#define limelight_window_ends				\
	{ LIMELIGHT_WINDOW_ANSWERED, "answered" },	\
	{ LIMELIGHT_WINDOW_EXPIRED, "expired" },	\
	{ LIMELIGHT_WINDOW_NO_TOPMOST, "no-topmost" },		\
	{ LIMELIGHT_WINDOW_RELEASED, "released" }

TRACE_EVENT(limelight_window_close,

	TP_PROTO(u8 reason),

	TP_ARGS(reason),

	TP_STRUCT__entry(
		__field(u8, reason)
	),

	TP_fast_assign(
		__entry->reason = reason;
	),

	TP_printk("reason=%s",
		  __print_symbolic(__entry->reason, limelight_window_ends))
);

#ifdef CONFIG_LIMELIGHT_PROTECT

TRACE_EVENT(limelight_protect_keep,

	TP_PROTO(struct folio *folio, u8 seen, bool active),

	TP_ARGS(folio, seen, active),

	TP_STRUCT__entry(
		__field(unsigned long, pfn)
		__field(unsigned long, nr_pages)
		__field(bool, anon)
		__field(u8, seen)
		__field(bool, active)
	),

	TP_fast_assign(
		__entry->pfn = folio_pfn(folio);
		__entry->nr_pages = folio_nr_pages(folio);
		__entry->anon = folio_test_anon(folio);
		__entry->seen = seen;
		__entry->active = active;
	),

	TP_printk("pfn=0x%lx nr_pages=%lu type=%s because=%s list=%s",
		  __entry->pfn, __entry->nr_pages,
		  __entry->anon ? "anon" : "file",
		  __entry->seen & LIMELIGHT_MAPPED ? "mapped" : "tagged",
		  __entry->active ? "active" : "inactive")
);

TRACE_EVENT(limelight_protect_fallback,

	TP_PROTO(u64 cgroup, int order),

	TP_ARGS(cgroup, order),

	TP_STRUCT__entry(
		__field(u64, cgroup)
		__field(int, order)
	),

	TP_fast_assign(
		__entry->cgroup = cgroup;
		__entry->order = order;
	),

	TP_printk("cgroup=%llu order=%d", __entry->cgroup, __entry->order)
);

TRACE_EVENT(limelight_protect_suspend,

	TP_PROTO(int nid, u64 cgroup, unsigned int ms),

	TP_ARGS(nid, cgroup, ms),

	TP_STRUCT__entry(
		__field(u64, cgroup)
		__field(int, nid)
		__field(unsigned int, ms)
	),

	TP_fast_assign(
		__entry->cgroup = cgroup;
		__entry->nid = nid;
		__entry->ms = ms;
	),

	TP_printk("nid=%d cgroup=%llu ms=%u", __entry->nid, __entry->cgroup,
		  __entry->ms)
);

TRACE_EVENT(limelight_protect_budget,

	TP_PROTO(unsigned long mapped, unsigned long cached,
		 unsigned long budget, bool over_mapped, bool over_cached),

	TP_ARGS(mapped, cached, budget, over_mapped, over_cached),

	TP_STRUCT__entry(
		__field(unsigned long, mapped)
		__field(unsigned long, cached)
		__field(unsigned long, budget)
		__field(bool, over_mapped)
		__field(bool, over_cached)
	),

	TP_fast_assign(
		__entry->mapped = mapped;
		__entry->cached = cached;
		__entry->budget = budget;
		__entry->over_mapped = over_mapped;
		__entry->over_cached = over_cached;
	),

	TP_printk("mapped=%lu cached=%lu budget=%lu protects=%s",
		  __entry->mapped, __entry->cached, __entry->budget,
		  __entry->over_mapped ? "nothing" :
		  __entry->over_cached ? "mapped" : "all")
);

#endif /* CONFIG_LIMELIGHT_PROTECT */

#ifdef CONFIG_LIMELIGHT_PREMAP

TRACE_EVENT(limelight_premap,

	TP_PROTO(unsigned long address, unsigned int pages, unsigned int wanted,
		 unsigned int shift),

	TP_ARGS(address, pages, wanted, shift),

	TP_STRUCT__entry(
		__field(unsigned long, address)
		__field(unsigned int, pages)
		__field(unsigned int, wanted)
		__field(unsigned int, shift)
	),

	TP_fast_assign(
		__entry->address = address;
		__entry->pages = pages;
		__entry->wanted = wanted;
		__entry->shift = shift;
	),

	TP_printk("address=0x%lx pages=%u wanted=%u most=%u",
		  __entry->address, __entry->pages, __entry->wanted,
		  1U << __entry->shift)
);

TRACE_EVENT(limelight_premap_shift,

	TP_PROTO(unsigned long address, unsigned int pages,
		 unsigned int untouched, unsigned int shift),

	TP_ARGS(address, pages, untouched, shift),

	TP_STRUCT__entry(
		__field(unsigned long, address)
		__field(unsigned int, pages)
		__field(unsigned int, untouched)
		__field(unsigned int, shift)
	),

	TP_fast_assign(
		__entry->address = address;
		__entry->pages = pages;
		__entry->untouched = untouched;
		__entry->shift = shift;
	),

	TP_printk("address=0x%lx pages=%u untouched=%u most=%u",
		  __entry->address, __entry->pages, __entry->untouched,
		  1U << __entry->shift)
);

#endif /* CONFIG_LIMELIGHT_PREMAP */

#ifdef CONFIG_LIMELIGHT_READAHEAD

TRACE_DEFINE_ENUM(LIMELIGHT_RA_STREAM);
TRACE_DEFINE_ENUM(LIMELIGHT_RA_AROUND);
TRACE_DEFINE_ENUM(LIMELIGHT_RA_NEIGHBOURS);

#define limelight_ra_names			\
	{ LIMELIGHT_RA_STREAM, "stream" },	\
	{ LIMELIGHT_RA_AROUND, "around" },	\
	{ LIMELIGHT_RA_NEIGHBOURS, "neighbours" }

TRACE_EVENT(limelight_readahead,

	TP_PROTO(struct inode *inode, pgoff_t index, unsigned long pages,
		 unsigned long default_pages, u8 kind),

	TP_ARGS(inode, index, pages, default_pages, kind),

	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(ino_t, ino)
		__field(pgoff_t, index)
		__field(unsigned long, pages)
		__field(unsigned long, default_pages)
		__field(u8, kind)
	),

	TP_fast_assign(
		__entry->dev = inode->i_sb->s_dev;
		__entry->ino = inode->i_ino;
		__entry->index = index;
		__entry->pages = pages;
		__entry->default_pages = default_pages;
		__entry->kind = kind;
	),

	TP_printk("dev=%d:%d ino=%lx index=%lu pages=%lu default=%lu kind=%s",
		  MAJOR(__entry->dev), MINOR(__entry->dev),
		  (unsigned long)__entry->ino, __entry->index, __entry->pages,
		  __entry->default_pages,
		  __print_symbolic(__entry->kind, limelight_ra_names))
);

TRACE_EVENT(limelight_readahead_level,

	TP_PROTO(u8 kind, unsigned int level, unsigned int used,
		 unsigned int wasted),

	TP_ARGS(kind, level, used, wasted),

	TP_STRUCT__entry(
		__field(unsigned int, level)
		__field(unsigned int, used)
		__field(unsigned int, wasted)
		__field(u8, kind)
	),

	TP_fast_assign(
		__entry->level = level;
		__entry->used = used;
		__entry->wasted = wasted;
		__entry->kind = kind;
	),

	TP_printk("kind=%s halved=%u used=%u wasted=%u",
		  __print_symbolic(__entry->kind, limelight_ra_names),
		  __entry->level, __entry->used, __entry->wasted)
);

#endif /* CONFIG_LIMELIGHT_READAHEAD */

#ifdef CONFIG_LIMELIGHT_PREZERO

TRACE_DEFINE_ENUM(LIMELIGHT_ENGINE_CPU);
TRACE_DEFINE_ENUM(LIMELIGHT_ENGINE_BLOCK);
TRACE_DEFINE_ENUM(LIMELIGHT_ENGINE_DMA);

#define limelight_engine_names			\
	{ LIMELIGHT_ENGINE_CPU, "cpu" },	\
	{ LIMELIGHT_ENGINE_BLOCK, "block" },	\
	{ LIMELIGHT_ENGINE_DMA, "dma" }

TRACE_DEFINE_ENUM(LIMELIGHT_DRAIN_ALLOCATION);
TRACE_DEFINE_ENUM(LIMELIGHT_DRAIN_KSWAPD);
TRACE_DEFINE_ENUM(LIMELIGHT_DRAIN_OOM);
TRACE_DEFINE_ENUM(LIMELIGHT_DRAIN_SHRINKER);
TRACE_DEFINE_ENUM(LIMELIGHT_DRAIN_RANGE);
TRACE_DEFINE_ENUM(LIMELIGHT_DRAIN_COMPACTION);
TRACE_DEFINE_ENUM(LIMELIGHT_DRAIN_OFF);

#define limelight_drain_reasons				\
	{ LIMELIGHT_DRAIN_ALLOCATION, "allocation" },	\
	{ LIMELIGHT_DRAIN_KSWAPD, "kswapd" },		\
	{ LIMELIGHT_DRAIN_OOM, "oom" },			\
	{ LIMELIGHT_DRAIN_SHRINKER, "shrinker" },	\
	{ LIMELIGHT_DRAIN_RANGE, "range" },		\
	{ LIMELIGHT_DRAIN_COMPACTION, "compaction" },	\
	{ LIMELIGHT_DRAIN_OFF, "off" }

TRACE_EVENT(limelight_prezero_fill,

	TP_PROTO(int nid, u32 engine, unsigned int pages, unsigned int zeroed),

	TP_ARGS(nid, engine, pages, zeroed),

	TP_STRUCT__entry(
		__field(int, nid)
		__field(u32, engine)
		__field(unsigned int, pages)
		__field(unsigned int, zeroed)
	),

	TP_fast_assign(
		__entry->nid = nid;
		__entry->engine = engine;
		__entry->pages = pages;
		__entry->zeroed = zeroed;
	),

	TP_printk("nid=%d engine=%s pages=%u zeroed=%u", __entry->nid,
		  __print_symbolic(__entry->engine, limelight_engine_names),
		  __entry->pages, __entry->zeroed)
);

TRACE_EVENT(limelight_prezero_error,

	TP_PROTO(u32 engine, int error, unsigned int pages),

	TP_ARGS(engine, error, pages),

	TP_STRUCT__entry(
		__field(u32, engine)
		__field(int, error)
		__field(unsigned int, pages)
	),

	TP_fast_assign(
		__entry->engine = engine;
		__entry->error = error;
		__entry->pages = pages;
	),

	TP_printk("engine=%s error=%d pages=%u",
		  __print_symbolic(__entry->engine, limelight_engine_names),
		  __entry->error, __entry->pages)
);

TRACE_EVENT(limelight_prezero_drain,

	TP_PROTO(int nid, unsigned long pages, u8 reason),

	TP_ARGS(nid, pages, reason),

	TP_STRUCT__entry(
		__field(unsigned long, pages)
		__field(int, nid)
		__field(u8, reason)
	),

	TP_fast_assign(
		__entry->pages = pages;
		__entry->nid = nid;
		__entry->reason = reason;
	),

	TP_printk("nid=%d pages=%lu reason=%s", __entry->nid, __entry->pages,
		  __print_symbolic(__entry->reason, limelight_drain_reasons))
);

#endif /* CONFIG_LIMELIGHT_PREZERO */

#endif /* _TRACE_LIMELIGHT_H */

/* This part must be outside protection */
#include <trace/define_trace.h>
