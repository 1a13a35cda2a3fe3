/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tests of the ioctls as user space sees them. Included by device.c.
 */
#include <kunit/test.h>
#include <linux/delay.h>
#include <linux/mman.h>

struct device_test_state {
	struct inode inode;
	struct file file;
	bool opened;
};

static int device_test_init(struct kunit *test)
{
	struct device_test_state *state;

	state = kunit_kzalloc(test, sizeof(*state), GFP_KERNEL);
	if (!state)
		return -ENOMEM;
	if (limelight_open(&state->inode, &state->file))
		kunit_skip(test, "/dev/limelight is open");
	state->opened = true;
	test->priv = state;
	return 0;
}

static void device_test_exit(struct kunit *test)
{
	struct device_test_state *state = test->priv;

	if (state && state->opened)
		limelight_release(&state->inode, &state->file);
}

/* Maps a page of user space. */
static void __user *user_page(struct kunit *test)
{
	unsigned long address = kunit_vm_mmap(test, NULL, 0, PAGE_SIZE,
					      PROT_READ | PROT_WRITE,
					      MAP_ANONYMOUS | MAP_PRIVATE, 0);

	KUNIT_ASSERT_NE_MSG(test, address, 0, "no user space");
	KUNIT_ASSERT_LT(test, address, (unsigned long)TASK_SIZE);
	return (void __user *)address;
}

static long call(struct kunit *test, unsigned int cmd, void __user *user)
{
	struct device_test_state *state = test->priv;

	return limelight_ioctl(&state->file, cmd, (unsigned long)user);
}

/* LIMELIGHT_SET_WINDOW with @size bytes; @tail follows the struct. */
static long set_window(struct kunit *test, void __user *user, u32 size,
		       u32 flags, u64 deadline_ns, u64 tail)
{
	struct {
		struct limelight_window window;
		u64 tail;
	} request = {
		.window.size = size,
		.window.flags = flags,
		.window.deadline_ns = deadline_ns,
		.tail = tail,
	};

	KUNIT_ASSERT_EQ(test, copy_to_user(user, &request, sizeof(request)), 0);
	return call(test, _IOC(_IOC_WRITE, LIMELIGHT_IOC_MAGIC,
			       _IOC_NR(LIMELIGHT_SET_WINDOW), size), user);
}

static void device_test_windows_have_a_size(struct kunit *test)
{
	const u32 size = sizeof(struct limelight_window);
	void __user *user = user_page(test);

	KUNIT_EXPECT_EQ(test, set_window(test, user, 0, LIMELIGHT_WINDOW_OPEN,
					 NSEC_PER_SEC, 0), -EINVAL);
	KUNIT_EXPECT_EQ(test, set_window(test, user, size - 1,
					 LIMELIGHT_WINDOW_OPEN, NSEC_PER_SEC, 0),
			-EINVAL);
	KUNIT_EXPECT_EQ(test, set_window(test, user, size + 8,
					 LIMELIGHT_WINDOW_OPEN, NSEC_PER_SEC, 1),
			-E2BIG);
	KUNIT_EXPECT_EQ(test, set_window(test, user, PAGE_SIZE + 8,
					 LIMELIGHT_WINDOW_OPEN, NSEC_PER_SEC, 0),
			-E2BIG);
	KUNIT_EXPECT_EQ(test, set_window(test, user, size, 4, NSEC_PER_SEC, 0),
			-EINVAL);
	KUNIT_EXPECT_FALSE(test, limelight_in_window());

	KUNIT_EXPECT_EQ(test, set_window(test, user, size + 8,
					 LIMELIGHT_WINDOW_OPEN, NSEC_PER_SEC * 10,
					 0), 0);
	KUNIT_EXPECT_TRUE(test, limelight_in_window());
	KUNIT_EXPECT_EQ(test, set_window(test, user, size,
					 LIMELIGHT_WINDOW_CLOSE, 0, 0), 0);
	KUNIT_EXPECT_FALSE(test, limelight_in_window());
}

static void device_test_a_bad_address_opens_nothing(struct kunit *test)
{
	struct device_test_state *state = test->priv;

	/* Attaches a user address space, with nothing mapped at 0. */
	user_page(test);
	KUNIT_EXPECT_EQ(test, limelight_ioctl(&state->file, LIMELIGHT_SET_WINDOW,
					      0), -EFAULT);
	KUNIT_EXPECT_FALSE(test, limelight_in_window());
}

static void device_test_close_ends_the_window(struct kunit *test)
{
	struct device_test_state *state = test->priv;
	void __user *user = user_page(test);

	KUNIT_ASSERT_EQ(test, set_window(test, user, sizeof(struct limelight_window),
					 LIMELIGHT_WINDOW_OPEN,
					 LIMELIGHT_WINDOW_DEADLINE_MAX, 0), 0);
	KUNIT_EXPECT_TRUE(test, limelight_in_window());
	limelight_release(&state->inode, &state->file);
	state->opened = false;
	KUNIT_EXPECT_FALSE(test, limelight_in_window());
	KUNIT_EXPECT_EQ(test, limelight_window_until, 0);

	/* The next open starts without a window. */
	KUNIT_ASSERT_EQ(test, limelight_open(&state->inode, &state->file), 0);
	state->opened = true;
	KUNIT_EXPECT_FALSE(test, limelight_in_window());
}

/* LIMELIGHT_SET_MECHANISM with @size bytes of @mechanism. */
static long set_mechanism(struct kunit *test, void __user *user, u32 size,
			  struct limelight_mechanism mechanism)
{
	mechanism.size = size;
	KUNIT_ASSERT_EQ(test, copy_to_user(user, &mechanism, sizeof(mechanism)), 0);
	return call(test, _IOC(_IOC_WRITE, LIMELIGHT_IOC_MAGIC,
			       _IOC_NR(LIMELIGHT_SET_MECHANISM), size), user);
}

static void device_test_older_programs_still_work(struct kunit *test)
{
	/* The first version of the struct ended after block_offset. */
	const u32 first = offsetofend(struct limelight_mechanism, block_offset);
	struct limelight_mechanism off = { .id = LIMELIGHT_MECHANISM_READAHEAD };
	void __user *user = user_page(test);

	KUNIT_EXPECT_EQ(test, first, 48);
	if (!IS_ENABLED(CONFIG_LIMELIGHT_READAHEAD))
		kunit_skip(test, "no mechanism to switch off");
	KUNIT_EXPECT_EQ(test, set_mechanism(test, user, first, off), 0);
	KUNIT_EXPECT_EQ(test, set_mechanism(test, user, sizeof(off), off), 0);
	KUNIT_EXPECT_EQ(test, set_mechanism(test, user, first - 1, off), -EINVAL);
}

static void device_test_mechanisms_have_their_own_parameters(struct kunit *test)
{
	const struct limelight_mechanism nonsense[] = {
		{ .id = LIMELIGHT_MECHANISM_PROTECT, .target_pages = 1 },
		{ .id = LIMELIGHT_MECHANISM_PROTECT, .factor = 1 },
		{ .id = LIMELIGHT_MECHANISM_PREMAP, .engine = 1 },
		{ .id = LIMELIGHT_MECHANISM_PREMAP, .block_fd = -1 },
		{ .id = LIMELIGHT_MECHANISM_READAHEAD, .prezero_flags = 1 },
		{ .id = LIMELIGHT_MECHANISM_READAHEAD, .block_offset = 1 },
		{ .id = LIMELIGHT_MECHANISM_READAHEAD, .block_len = 1 },
		{ .id = LIMELIGHT_MECHANISM_PREZERO, .window_pages = 1 },
		{ .id = LIMELIGHT_MECHANISM_PREZERO, .budget_percent = 1 },
		{ .id = LIMELIGHT_MECHANISM_PREZERO + 1 },
		{ .id = LIMELIGHT_MECHANISM_PROTECT, .flags = 2 },
	};
	void __user *user = user_page(test);
	int i;

	for (i = 0; i < ARRAY_SIZE(nonsense); i++)
		KUNIT_EXPECT_EQ_MSG(test, set_mechanism(test, user,
							sizeof(nonsense[i]),
							nonsense[i]),
				    -EINVAL, "row %d", i);
}

/* strace and seccomp filters rely on the direction and size in the number. */
static void device_test_ioctl_numbers_encode_direction_and_size(struct kunit *test)
{
	const unsigned int nr = _IOC_NR(LIMELIGHT_SET_WINDOW);
	const u32 size = sizeof(struct limelight_window);
	struct limelight_window window = {
		.size = size,
		.flags = LIMELIGHT_WINDOW_OPEN,
		.deadline_ns = NSEC_PER_SEC,
	};
	void __user *user = user_page(test);
	unsigned int i;

	KUNIT_ASSERT_EQ(test, copy_to_user(user, &window, size), 0);
	for (i = 0; i < 4; i++) {
		if (i != _IOC_WRITE)
			KUNIT_EXPECT_EQ(test, call(test, _IOC(i, LIMELIGHT_IOC_MAGIC,
							      nr, size), user),
					-ENOTTY);
	}
	KUNIT_EXPECT_EQ(test, call(test, _IOC(_IOC_WRITE, LIMELIGHT_IOC_MAGIC, nr,
					      size + 8), user), -EINVAL);
	KUNIT_EXPECT_EQ(test, call(test, _IOC(_IOC_WRITE, LIMELIGHT_IOC_MAGIC, nr, 0),
				   user), -EINVAL);
	KUNIT_EXPECT_EQ(test, call(test, _IOC(_IOC_WRITE, LIMELIGHT_IOC_MAGIC, 4,
					      size), user), -ENOTTY);
	KUNIT_EXPECT_EQ(test, call(test, _IOC(_IOC_WRITE, LIMELIGHT_IOC_MAGIC + 1, nr,
					      size), user), -ENOTTY);
	KUNIT_EXPECT_FALSE(test, limelight_in_window());
	KUNIT_EXPECT_EQ(test, call(test, LIMELIGHT_SET_WINDOW, user), 0);
	KUNIT_EXPECT_TRUE(test, limelight_in_window());
}

static void device_test_info_has_the_requested_size(struct kunit *test)
{
	const u32 size = sizeof(struct limelight_info);
	struct {
		struct limelight_info info;
		u64 tail;
	} answer = { .info.size = size };
	void __user *user = user_page(test);

	KUNIT_ASSERT_EQ(test, copy_to_user(user, &answer, sizeof(answer)), 0);
	KUNIT_EXPECT_EQ(test, call(test, LIMELIGHT_GET_INFO, user), 0);
	KUNIT_ASSERT_EQ(test, copy_from_user(&answer, user, sizeof(answer)), 0);
	KUNIT_EXPECT_EQ(test, answer.info.size, size);
	KUNIT_EXPECT_EQ(test, answer.info.abi_version, LIMELIGHT_ABI_VERSION);
	KUNIT_EXPECT_EQ(test, answer.info.lease_ms, LIMELIGHT_LEASE_MS);
	KUNIT_EXPECT_EQ(test, answer.tail, 0);
}

/* Pretends that a process was made topmost. */
static void publish(void)
{
	limelight_generation = 7;
	lease_renew();
}

static void device_test_a_stopped_daemon_loses_its_set(struct kunit *test)
{
	int i;

	limelight_lease_ms = 200;
	mutex_lock(&limelight_lock);
	publish();
	mutex_unlock(&limelight_lock);
	KUNIT_EXPECT_TRUE(test, delayed_work_pending(&lease_work));
	for (i = 0; i < 500 && READ_ONCE(limelight_generation); i++)
		msleep(20);
	KUNIT_EXPECT_EQ(test, limelight_generation, 0);
	KUNIT_EXPECT_FALSE(test, delayed_work_pending(&lease_work));
	limelight_lease_ms = LIMELIGHT_LEASE_MS;
}

static void device_test_each_call_renews_the_lease(struct kunit *test)
{
	struct limelight_info info = { .size = sizeof(info) };
	void __user *user = user_page(test);
	unsigned long before;

	KUNIT_ASSERT_EQ(test, copy_to_user(user, &info, sizeof(info)), 0);
	mutex_lock(&limelight_lock);
	publish();
	lease_until = jiffies + HZ;
	before = lease_until;
	mutex_unlock(&limelight_lock);

	KUNIT_EXPECT_EQ(test, call(test, LIMELIGHT_GET_INFO, user), 0);
	KUNIT_EXPECT_GT(test, (long)(lease_until - before), 100L * HZ);
	/* lease_check() finds a lease in progress and reschedules itself. */
	lease_check(NULL);
	KUNIT_EXPECT_EQ(test, limelight_generation, 7);
	KUNIT_EXPECT_TRUE(test, delayed_work_pending(&lease_work));

	/* A lease that ended as long ago as jiffies can express. */
	mutex_lock(&limelight_lock);
	lease_until = jiffies - LONG_MAX;
	mutex_unlock(&limelight_lock);
	lease_check(NULL);
	KUNIT_EXPECT_EQ(test, limelight_generation, 0);
}

static struct kunit_case device_test_cases[] = {
	KUNIT_CASE(device_test_windows_have_a_size),
	KUNIT_CASE(device_test_a_bad_address_opens_nothing),
	KUNIT_CASE(device_test_close_ends_the_window),
	KUNIT_CASE(device_test_older_programs_still_work),
	KUNIT_CASE(device_test_mechanisms_have_their_own_parameters),
	KUNIT_CASE(device_test_ioctl_numbers_encode_direction_and_size),
	KUNIT_CASE(device_test_info_has_the_requested_size),
	KUNIT_CASE(device_test_a_stopped_daemon_loses_its_set),
	KUNIT_CASE(device_test_each_call_renews_the_lease),
	{}
};

static struct kunit_suite device_test_suite = {
	.name = "limelight-device",
	.init = device_test_init,
	.exit = device_test_exit,
	.test_cases = device_test_cases,
};

kunit_test_suite(device_test_suite);
