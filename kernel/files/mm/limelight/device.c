// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/limelight: the only way to change anything, see the uapi header.
 *
 * One file at a time is open, and everything belongs to it: release() runs
 * when its last reference is gone, also when the holder was killed, and leaves
 * the kernel as it was before open().
 */
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/limelight.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/overflow.h>
#include <linux/pid.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "internal.h"

/* Serializes open, release and every ioctl. */
static DEFINE_MUTEX(limelight_lock);
static bool limelight_is_open;

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
	static_branch_disable(&limelight_key);
	limelight_is_open = false;
	mutex_unlock(&limelight_lock);
	return 0;
}

/*
 * Copies a struct that starts with its own size. Binaries built with another
 * version of the uapi header work as long as they ask for nothing unknown.
 */
static int limelight_copy(void *to, size_t to_size, size_t min_size,
			  const void __user *from)
{
	u32 size;

	if (get_user(size, (const u32 __user *)from))
		return -EFAULT;
	if (size < min_size)
		return -EINVAL;
	if (size > PAGE_SIZE)
		return -E2BIG;
	return copy_struct_from_user(to, to_size, from, size);
}

static long limelight_get_info(void __user *user)
{
	struct limelight_info info;
	struct limelight_usage usage;
	size_t size;
	int ret;

	ret = limelight_copy(&info, sizeof(info),
			     offsetofend(struct limelight_info, reserved),
			     user);
	if (ret)
		return ret;
	size = min_t(size_t, info.size, sizeof(info));

	limelight_usage(&usage);
	info = (struct limelight_info) {
		.size = sizeof(info),
		.abi_version = LIMELIGHT_ABI_VERSION,
		.generation = limelight_generation,
		.members = usage.members,
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

	return copy_to_user(user, &info, size) ? -EFAULT : 0;
}

/*
 * The process behind a pidfd, with a reference; NULL when it has exited.
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

static long limelight_set_topmost(void __user *user)
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
			     user);
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

static long limelight_set_mechanism(void __user *user)
{
	struct limelight_mechanism mechanism;
	bool on;
	int ret;

	ret = limelight_copy(&mechanism, sizeof(mechanism),
			     offsetofend(struct limelight_mechanism, block_offset),
			     user);
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

static long limelight_set_window(void __user *user)
{
	struct limelight_window window;
	int ret;

	ret = limelight_copy(&window, sizeof(window),
			     offsetofend(struct limelight_window, deadline_ns),
			     user);
	if (ret)
		return ret;
	return limelight_window_request(window.flags, window.deadline_ns);
}

static long limelight_ioctl(struct file *file, unsigned int cmd,
			    unsigned long arg)
{
	void __user *user = (void __user *)arg;
	long ret = -ENOTTY;

	if (_IOC_TYPE(cmd) != LIMELIGHT_IOC_MAGIC)
		return -ENOTTY;

	mutex_lock(&limelight_lock);
	/* The struct's own size counts, not the one encoded in the number. */
	switch (_IOC_NR(cmd)) {
	case _IOC_NR(LIMELIGHT_GET_INFO):
		ret = limelight_get_info(user);
		break;
	case _IOC_NR(LIMELIGHT_SET_TOPMOST):
		ret = limelight_set_topmost(user);
		break;
	case _IOC_NR(LIMELIGHT_SET_MECHANISM):
		ret = limelight_set_mechanism(user);
		break;
	case _IOC_NR(LIMELIGHT_SET_WINDOW):
		ret = limelight_set_window(user);
		break;
	}
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
