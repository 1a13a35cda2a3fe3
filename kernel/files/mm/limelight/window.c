// SPDX-License-Identifier: GPL-2.0-only
/*
 * Limelight response windows: while one is open, the user waits for the topmost app.
 *
 * A window is just a deadline, set by the caller that opens it. A daemon that hangs
 * or is not scheduled therefore cannot delay other work beyond the deadline.
 * limelight_in_window() compares the deadline with the clock. The timer only updates
 * statistics and wakes kprezerod; a late timer does not prolong a window.
 */
#include <linux/atomic.h>
#include <linux/hrtimer.h>
#include <linux/ktime.h>
#include <linux/limelight.h>
#include <linux/mm.h>
#include <linux/spinlock.h>
#include <trace/events/limelight.h>

#include "internal.h"

/* Slack of the timer, in ns. */
#define SLACK	NSEC_PER_MSEC

u64 limelight_window_until __read_mostly;

/*
 * Statistics. They are not in /proc/vmstat, which is world-readable, because windows
 * reveal keystrokes.
 */
atomic_long_t limelight_windows_opened;
atomic_long_t limelight_windows_expired;

/* Serializes changes by the device and the timer. */
static DEFINE_SPINLOCK(window_lock);
static struct hrtimer window_timer;
/* When the last window opened, CLOCK_MONOTONIC in ns. */
static u64 window_opened;

/*
 * Whether a window that ends at @until (0: there is none) is open at @now.
 * Compares differences, so a stale deadline never appears to be in the future.
 */
static bool window_is_open(u64 until, u64 now)
{
	return until && until - now - 1 < LIMELIGHT_WINDOW_DEADLINE_MAX;
}

/* See limelight_in_window(). */
bool __limelight_in_window(void)
{
	return window_is_open(READ_ONCE(limelight_window_until), ktime_get_ns());
}

/* Whether a window is open now that was already open at @since. */
bool limelight_in_window_since(u64 since)
{
	return limelight_in_window() &&
	       (s64)(since - READ_ONCE(window_opened)) >= 0;
}

/* Closes the window. */
static void window_close(enum limelight_window_end why)
{
	lockdep_assert_held(&window_lock);
	WRITE_ONCE(limelight_window_until, 0);
	if (why == LIMELIGHT_WINDOW_EXPIRED)
		atomic_long_inc(&limelight_windows_expired);
	trace_limelight_window_close(why);
	limelight_prezero_wake();
}

static enum hrtimer_restart window_timeout(struct hrtimer *timer)
{
	unsigned long flags;

	spin_lock_irqsave(&window_lock, flags);
	/* The deadline may have moved while the timer waited for the lock. */
	if (limelight_window_until && !__limelight_in_window())
		window_close(LIMELIGHT_WINDOW_EXPIRED);
	spin_unlock_irqrestore(&window_lock, flags);
	return HRTIMER_NORESTART;
}

static void window_open(u64 deadline_ns)
{
	unsigned long flags;
	bool moved;
	u64 now;

	spin_lock_irqsave(&window_lock, flags);
	now = ktime_get_ns();
	moved = window_is_open(limelight_window_until, now);
	if (!moved) {
		if (limelight_window_until)
			window_close(LIMELIGHT_WINDOW_EXPIRED);
		atomic_long_inc(&limelight_windows_opened);
		WRITE_ONCE(window_opened, now);
	}
	WRITE_ONCE(limelight_window_until, now + deadline_ns);
	trace_limelight_window_open(deadline_ns, moved);
	hrtimer_start_range_ns(&window_timer, ns_to_ktime(now + deadline_ns),
			       SLACK, HRTIMER_MODE_ABS);
	spin_unlock_irqrestore(&window_lock, flags);
}

/* Ends the window, if one is open. */
void limelight_window_end(enum limelight_window_end why)
{
	unsigned long flags;

	spin_lock_irqsave(&window_lock, flags);
	if (limelight_window_until) {
		window_close(__limelight_in_window() ? why : LIMELIGHT_WINDOW_EXPIRED);
		/* A running timer finds no window, or the next one, which it keeps. */
		hrtimer_try_to_cancel(&window_timer);
	}
	spin_unlock_irqrestore(&window_lock, flags);
}

/* LIMELIGHT_SET_WINDOW. Return: 0 or -EINVAL. */
int limelight_window_request(u32 flags, u64 deadline_ns)
{
	switch (flags) {
	case LIMELIGHT_WINDOW_OPEN:
		if (!deadline_ns || deadline_ns > LIMELIGHT_WINDOW_DEADLINE_MAX)
			return -EINVAL;
		window_open(deadline_ns);
		return 0;
	case LIMELIGHT_WINDOW_CLOSE:
		if (deadline_ns)
			return -EINVAL;
		limelight_window_end(LIMELIGHT_WINDOW_ANSWERED);
		return 0;
	default:
		return -EINVAL;
	}
}

void __init limelight_window_init(void)
{
	hrtimer_setup(&window_timer, window_timeout, CLOCK_MONOTONIC,
		      HRTIMER_MODE_ABS);
}

#ifdef CONFIG_LIMELIGHT_KUNIT_TEST
#include "tests/window-kunit.h"
#endif
