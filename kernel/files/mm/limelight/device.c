// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/limelight: the control interface, see the uapi header.
 *
 * Only one file can be open at a time, and all state belongs to it. When its last
 * reference is dropped, for example because the daemon was killed, release()
 * restores the state before open().
 *
 * A daemon that is stopped or hangs does not close its file. So the topmost set has
 * a lease, which each ioctl renews: LIMELIGHT_LEASE_MS after the last ioctl the set
 * is emptied. An idle limelightd issues an ioctl every 128 s. The lease is longer
 * than two of these intervals, so one late ioctl is harmless.
 */
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/jiffies.h>
#include <linux/limelight.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/nospec.h>
#include <linux/overflow.h>
#include <linux/pid.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/workqueue.h>

#include "internal.h"

/* Serializes open, release and every ioctl. */
static DEFINE_MUTEX(limelight_lock);
static bool limelight_is_open;

unsigned int limelight_lease_ms = LIMELIGHT_LEASE_MS;
/* End of the lease, in jiffies. */
static unsigned long lease_until;

static void lease_check(struct work_struct *work);
static DECLARE_DELAYED_WORK(lease_work, lease_check);

/* Jiffies until the lease ends; 0: it has ended. */
static unsigned long lease_left(void)
{
	unsigned long now = jiffies;

	return limelight_pending(lease_until, now,
				 msecs_to_jiffies(limelight_lease_ms)) ?
	       lease_until - now : 0;
}

/* Empties the topmost set if its lease has ended, else reschedules itself. */
static void lease_check(struct work_struct *work)
{
	unsigned long left;

	mutex_lock(&limelight_lock);
	if (limelight_generation) {
		left = lease_left();
		if (left) {
			schedule_delayed_work(&lease_work, left);
		} else {
			limelight_topmost_clear();
			pr_warn("limelight: no ioctl for %u s, lease expired: no topmost app\n",
				limelight_lease_ms / 1000);
		}
	}
	mutex_unlock(&limelight_lock);
}

/* Renews the lease. Called for each ioctl. */
static void lease_renew(void)
{
	unsigned long lease = msecs_to_jiffies(limelight_lease_ms);

	lease_until = jiffies + lease;
	if (limelight_generation && !delayed_work_pending(&lease_work))
		schedule_delayed_work(&lease_work, lease);
}

static int limelight_open(struct inode *inode, struct file *file)
{
	int ret = -EBUSY;

	if (!capable(CAP_SYS_NICE))
		return -EPERM;

	mutex_lock(&limelight_lock);
	if (!limelight_is_open) {
		limelight_is_open = true;
		static_branch_enable(&limelight_key);
		ret = stream_open(inode, file);
	}
	mutex_unlock(&limelight_lock);
	return ret;
}

static int limelight_release(struct inode *inode, struct file *file)
{
	mutex_lock(&limelight_lock);
	limelight_window_end(LIMELIGHT_WINDOW_RELEASED);
	limelight_topmost_clear();
	limelight_protect_reset();
	limelight_premap_reset();
	limelight_readahead_reset();
	limelight_prezero_reset();
	/* A running lease_check() waits for the lock, then finds no topmost set. */
	cancel_delayed_work(&lease_work);
	static_branch_disable(&limelight_key);
	limelight_is_open = false;
	mutex_unlock(&limelight_lock);
	return 0;
}

/*
 * Copies a struct of @size bytes from user space. @size is the size in the ioctl
 * number, and must equal the first field of the struct. Binaries built with another
 * version of the uapi header work as long as they use nothing unknown.
 */
static int limelight_copy(void *to, size_t to_size, size_t min_size,
			  const void __user *from, size_t size)
{
	int ret;

	if (size < min_size)
		return -EINVAL;
	if (size > PAGE_SIZE)
		return -E2BIG;
	ret = copy_struct_from_user(to, to_size, from, size);
	if (ret)
		return ret;
	return *(u32 *)to == size ? 0 : -EINVAL;
}

static long limelight_get_info(void __user *user, size_t size)
{
	struct limelight_info info;
	struct limelight_usage usage;
	int ret;

	ret = limelight_copy(&info, sizeof(info),
			     offsetofend(struct limelight_info, lease_ms),
			     user, size);
	if (ret)
		return ret;

	limelight_usage(&usage);
	info = (struct limelight_info) {
		.size = sizeof(info),
		.abi_version = LIMELIGHT_ABI_VERSION,
		.generation = limelight_generation,
		.members = usage.members,
		.lease_ms = limelight_lease_ms,
	};
	if (IS_ENABLED(CONFIG_LIMELIGHT_PROTECT))
		info.built_in |= BIT_ULL(LIMELIGHT_MECHANISM_PROTECT);
	if (limelight_protect_enabled())
		info.enabled |= BIT_ULL(LIMELIGHT_MECHANISM_PROTECT);
	if (IS_ENABLED(CONFIG_LIMELIGHT_PREMAP))
		info.built_in |= BIT_ULL(LIMELIGHT_MECHANISM_PREMAP);
	if (limelight_premap_enabled())
		info.enabled |= BIT_ULL(LIMELIGHT_MECHANISM_PREMAP);
	if (IS_ENABLED(CONFIG_LIMELIGHT_READAHEAD))
		info.built_in |= BIT_ULL(LIMELIGHT_MECHANISM_READAHEAD);
	if (limelight_readahead_enabled())
		info.enabled |= BIT_ULL(LIMELIGHT_MECHANISM_READAHEAD);
	if (IS_ENABLED(CONFIG_LIMELIGHT_PREZERO))
		info.built_in |= BIT_ULL(LIMELIGHT_MECHANISM_PREZERO);
	if (limelight_prezero_enabled())
		info.enabled |= BIT_ULL(LIMELIGHT_MECHANISM_PREZERO);

	return copy_to_user(user, &info, min(size, sizeof(info))) ? -EFAULT : 0;
}

/*
 * Returns the process behind a pidfd, with a reference; NULL: it has exited.
 */
static struct task_struct *limelight_get_process(int pidfd)
{
	struct task_struct *task;
	unsigned int flags;
	struct pid *pid;

	pid = pidfd_get_pid(pidfd, &flags);
	if (IS_ERR(pid))
		return ERR_CAST(pid);
	task = get_pid_task(pid, PIDTYPE_PID);
	put_pid(pid);
	if (!task)
		return NULL;

	if (!thread_group_leader(task) || (task->flags & PF_KTHREAD)) {
		put_task_struct(task);
		return ERR_PTR(-EINVAL);
	}
	return task;
}

static long limelight_set_topmost(void __user *user, size_t size)
{
	struct limelight_topmost topmost;
	struct task_struct **tasks;
	unsigned int nr = 0;
	u32 i;
	s32 __user *pidfds;
	s32 *fds;
	int ret;

	ret = limelight_copy(&topmost, sizeof(topmost),
			     offsetofend(struct limelight_topmost, flags),
			     user, size);
	if (ret)
		return ret;
	if (topmost.flags || topmost.nr > LIMELIGHT_TOPMOST_MAX)
		return -EINVAL;
	if (!topmost.nr) {
		limelight_topmost_clear();
		return 0;
	}

	pidfds = u64_to_user_ptr(topmost.pidfds);
	fds = vmemdup_array_user(pidfds, topmost.nr, sizeof(*fds));
	if (IS_ERR(fds))
		return PTR_ERR(fds);
	tasks = kvmalloc_array(topmost.nr, sizeof(*tasks), GFP_KERNEL);
	if (!tasks) {
		kvfree(fds);
		return -ENOMEM;
	}

	for (i = 0; i < topmost.nr; i++) {
		struct task_struct *task = limelight_get_process(fds[i]);

		if (IS_ERR(task)) {
			ret = PTR_ERR(task);
			goto out;
		}
		if (task)
			tasks[nr++] = task;
	}
	ret = limelight_topmost_set(tasks, nr);
out:
	while (nr)
		put_task_struct(tasks[--nr]);
	kvfree(tasks);
	kvfree(fds);
	return ret < 0 ? ret : 0;
}

static long limelight_set_mechanism(void __user *user, size_t size)
{
	struct limelight_mechanism mechanism;
	bool on;
	int ret;

	ret = limelight_copy(&mechanism, sizeof(mechanism),
			     offsetofend(struct limelight_mechanism, block_offset),
			     user, size);
	if (ret)
		return ret;
	if (mechanism.flags & ~LIMELIGHT_MECHANISM_ON)
		return -EINVAL;
	if (mechanism.id != LIMELIGHT_MECHANISM_PREZERO &&
	    memchr_inv(&mechanism.target_pages, 0, sizeof(mechanism) -
		       offsetof(struct limelight_mechanism, target_pages)))
		return -EINVAL;

	on = mechanism.flags & LIMELIGHT_MECHANISM_ON;
	switch (mechanism.id) {
	case LIMELIGHT_MECHANISM_PROTECT:
		if (mechanism.factor || mechanism.window_pages)
			return -EINVAL;
		return limelight_protect_configure(on, mechanism.budget_percent);
	case LIMELIGHT_MECHANISM_PREMAP:
		if (mechanism.budget_percent || mechanism.factor)
			return -EINVAL;
		return limelight_premap_configure(on, mechanism.window_pages);
	case LIMELIGHT_MECHANISM_READAHEAD:
		if (mechanism.budget_percent || mechanism.window_pages)
			return -EINVAL;
		return limelight_readahead_configure(on, mechanism.factor);
	case LIMELIGHT_MECHANISM_PREZERO:
		if (mechanism.budget_percent || mechanism.factor ||
		    mechanism.window_pages)
			return -EINVAL;
		return limelight_prezero_configure(&mechanism);
	default:
		return -EINVAL;
	}
}

static long limelight_set_window(void __user *user, size_t size)
{
	struct limelight_window window;
	int ret;

	ret = limelight_copy(&window, sizeof(window),
			     offsetofend(struct limelight_window, deadline_ns),
			     user, size);
	if (ret)
		return ret;
	return limelight_window_request(window.flags, window.deadline_ns);
}

/* Direction and handler of each ioctl. */
static const struct {
	unsigned int direction;
	long (*handler)(void __user *user, size_t size);
} limelight_calls[] = {
	[_IOC_NR(LIMELIGHT_GET_INFO)] = {
		_IOC_DIR(LIMELIGHT_GET_INFO), limelight_get_info },
	[_IOC_NR(LIMELIGHT_SET_TOPMOST)] = {
		_IOC_DIR(LIMELIGHT_SET_TOPMOST), limelight_set_topmost },
	[_IOC_NR(LIMELIGHT_SET_MECHANISM)] = {
		_IOC_DIR(LIMELIGHT_SET_MECHANISM), limelight_set_mechanism },
	[_IOC_NR(LIMELIGHT_SET_WINDOW)] = {
		_IOC_DIR(LIMELIGHT_SET_WINDOW), limelight_set_window },
};

static long limelight_ioctl(struct file *file, unsigned int cmd,
			    unsigned long arg)
{
	unsigned int nr = _IOC_NR(cmd);
	long ret;

	if (_IOC_TYPE(cmd) != LIMELIGHT_IOC_MAGIC ||
	    nr >= ARRAY_SIZE(limelight_calls) ||
	    _IOC_DIR(cmd) != limelight_calls[nr].direction)
		return -ENOTTY;
	nr = array_index_nospec(nr, ARRAY_SIZE(limelight_calls));

	mutex_lock(&limelight_lock);
	ret = limelight_calls[nr].handler((void __user *)arg, _IOC_SIZE(cmd));
	lease_renew();
	mutex_unlock(&limelight_lock);
	return ret;
}

static const struct file_operations limelight_fops = {
	.owner = THIS_MODULE,
	.open = limelight_open,
	.release = limelight_release,
	.unlocked_ioctl = limelight_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.llseek = noop_llseek,
};

static struct miscdevice limelight_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "limelight",
	.fops = &limelight_fops,
	.mode = 0600,
};

static int __init limelight_init(void)
{
	int ret;

	limelight_window_init();
	ret = limelight_sysfs_init();
	if (ret)
		return ret;
	return misc_register(&limelight_device);
}
device_initcall(limelight_init);

#ifdef CONFIG_LIMELIGHT_KUNIT_TEST
#include "tests/device-kunit.h"
#endif
