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

static struct kunit_case device_test_cases[] = {
	KUNIT_CASE(device_test_windows_have_a_size),
	KUNIT_CASE(device_test_a_bad_address_opens_nothing),
	KUNIT_CASE(device_test_close_ends_the_window),
	{}
};

static struct kunit_suite device_test_suite = {
	.name = "limelight-device",
	.init = device_test_init,
	.exit = device_test_exit,
	.test_cases = device_test_cases,
};

kunit_test_suite(device_test_suite);
