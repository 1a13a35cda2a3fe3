/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The ioctls as user space sees them. Included by device.c.
 */
#include <kunit/test.h>
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

/* A page of user space. */
static void __user *user_page(struct kunit *test)
{
	unsigned long address = kunit_vm_mmap(test, NULL, 0, PAGE_SIZE,
					      PROT_READ | PROT_WRITE,
					      MAP_ANONYMOUS | MAP_PRIVATE, 0);

	KUNIT_ASSERT_NE_MSG(test, address, 0, "no user space");
	KUNIT_ASSERT_LT(test, address, (unsigned long)TASK_SIZE);
	return (void __user *)address;
}

/* LIMELIGHT_SET_WINDOW with @size bytes, of which @tail is the first unknown. */
static long set_window(struct kunit *test, void __user *user, u32 size,
		       u32 flags, u64 deadline_ns, u64 tail)
{
	struct device_test_state *state = test->priv;
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
	return limelight_ioctl(&state->file, LIMELIGHT_SET_WINDOW,
			       (unsigned long)user);
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
	KUNIT_EXPECT_EQ(test, set_window(test, user, PAGE_SIZE + 1,
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

	/* Attaches a user space, in which nothing is mapped at 0. */
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

	/* And the next one to open the device begins without. */
	KUNIT_ASSERT_EQ(test, limelight_open(&state->inode, &state->file), 0);
	state->opened = true;
	KUNIT_EXPECT_FALSE(test, limelight_in_window());
}

/* LIMELIGHT_SET_MECHANISM with @size bytes of @mechanism. */
static long set_mechanism(struct kunit *test, void __user *user, u32 size,
			  struct limelight_mechanism mechanism)
{
	struct device_test_state *state = test->priv;

	mechanism.size = size;
	KUNIT_ASSERT_EQ(test, copy_to_user(user, &mechanism, sizeof(mechanism)), 0);
	return limelight_ioctl(&state->file, LIMELIGHT_SET_MECHANISM,
			       (unsigned long)user);
}

static void device_test_older_programs_still_work(struct kunit *test)
{
	/* The struct ended there once, with what was reserved. */
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

static struct kunit_case device_test_cases[] = {
	KUNIT_CASE(device_test_windows_have_a_size),
	KUNIT_CASE(device_test_a_bad_address_opens_nothing),
	KUNIT_CASE(device_test_close_ends_the_window),
	KUNIT_CASE(device_test_older_programs_still_work),
	KUNIT_CASE(device_test_mechanisms_have_their_own_parameters),
	{}
};

static struct kunit_suite device_test_suite = {
	.name = "limelight-device",
	.init = device_test_init,
	.exit = device_test_exit,
	.test_cases = device_test_cases,
};

kunit_test_suite(device_test_suite);
