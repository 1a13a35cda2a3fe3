// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tests of /dev/limelight and /sys/kernel/mm/limelight.
 *
 * Needs root, and no other program that has the device open.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/limelight.h>

#include "../kselftest.h"

#define DEVICE	"/dev/limelight"
#define SYSFS	"/sys/kernel/mm/limelight/"

#ifndef __NR_pidfd_open
#define __NR_pidfd_open	434
#endif

/* An ioctl's number with another size. */
static unsigned long resized(unsigned long cmd, size_t size)
{
	return _IOC(_IOC_DIR(cmd), _IOC_TYPE(cmd), _IOC_NR(cmd), size);
}

/* Returns 0, or the errno of a failed ioctl. */
static int try_ioctl(int fd, unsigned long cmd, void *argument)
{
	return ioctl(fd, cmd, argument) ? errno : 0;
}

static struct limelight_info get_info(int fd)
{
	struct limelight_info info = { .size = sizeof(info) };

	if (ioctl(fd, LIMELIGHT_GET_INFO, &info))
		ksft_exit_fail_perror("LIMELIGHT_GET_INFO");
	return info;
}

/* Makes the processes behind @nr pidfds topmost. Returns 0 or an errno. */
static int set_topmost(int fd, const int32_t *pidfds, unsigned int nr)
{
	struct limelight_topmost topmost = {
		.size = sizeof(topmost),
		.nr = nr,
		.pidfds = (uintptr_t)pidfds,
	};

	return try_ioctl(fd, LIMELIGHT_SET_TOPMOST, &topmost);
}

/* Reads a number from sysfs; -1: there is no such file. */
static long long read_number(const char *name)
{
	char path[128];
	long long number = -1;
	FILE *file;

	snprintf(path, sizeof(path), SYSFS "%s", name);
	file = fopen(path, "r");
	if (!file)
		return -1;
	if (fscanf(file, "%lld", &number) != 1)
		number = -1;
	fclose(file);
	return number;
}

static void test_open_is_exclusive(void)
{
	int second = open(DEVICE, O_RDWR | O_CLOEXEC);
	int error = errno;

	ksft_test_result(second < 0 && error == EBUSY,
			 "a second open fails with EBUSY\n");
	if (second >= 0)
		close(second);
}

static void test_sizes(int fd)
{
	struct {
		struct limelight_info info;
		__u64 unknown;
	} larger = { .info.size = sizeof(larger) };
	struct limelight_info info = { .size = sizeof(info) };
	unsigned long cmd = resized(LIMELIGHT_GET_INFO, sizeof(larger));

	ksft_test_result(sizeof(struct limelight_info) == 40 &&
			 sizeof(struct limelight_topmost) == 24 &&
			 sizeof(struct limelight_mechanism) == 56 &&
			 sizeof(struct limelight_window) == 16,
			 "the structs have the sizes of version 2\n");
	ksft_test_result(get_info(fd).abi_version >= 2 &&
			 get_info(fd).size >= sizeof(info),
			 "GET_INFO reports a version and its size\n");
	ksft_test_result(!try_ioctl(fd, cmd, &larger),
			 "a larger struct with zeroes is accepted\n");
	larger.info.size = sizeof(larger);
	larger.unknown = 1;
	ksft_test_result(try_ioctl(fd, cmd, &larger) == E2BIG,
			 "a larger struct with an unknown value is E2BIG\n");
	ksft_test_result(try_ioctl(fd, resized(LIMELIGHT_GET_INFO, 8), &info) == EINVAL,
			 "a struct smaller than its first version is EINVAL\n");
	info.size = sizeof(info) - 8;
	ksft_test_result(try_ioctl(fd, LIMELIGHT_GET_INFO, &info) == EINVAL,
			 "a size that differs from the ioctl number's is EINVAL\n");
	cmd = _IOC(_IOC_READ, LIMELIGHT_IOC_MAGIC, 0, sizeof(info));
	ksft_test_result(try_ioctl(fd, cmd, &info) == ENOTTY,
			 "a number with another direction is ENOTTY\n");
}

static void test_topmost(int fd, int32_t self)
{
	int32_t bad[] = { self, -1 };
	__u64 generation;
	pid_t child;
	int pipes[2];

	ksft_test_result(!set_topmost(fd, &self, 1) && get_info(fd).generation &&
			 get_info(fd).members == 1, "a process can be made topmost\n");
	generation = get_info(fd).generation;
	ksft_test_result(set_topmost(fd, bad, 2) == EBADF &&
			 get_info(fd).generation == generation,
			 "a set with a bad pidfd changes nothing\n");

	if (pipe(pipes))
		ksft_exit_fail_perror("pipe");
	child = fork();
	if (child < 0)
		ksft_exit_fail_perror("fork");
	if (!child) {
		/* Lives until the parent closes its end. */
		close(pipes[1]);
		close(fd);
		_exit(read(pipes[0], &child, 1) != 0);
	}
	close(pipes[0]);
	ksft_test_result(get_info(fd).members == 2, "a child of a member is a member\n");
	close(pipes[1]);
	waitpid(child, NULL, 0);
	ksft_test_result(get_info(fd).members == 1, "a process that has exited is not\n");

	ksft_test_result(!set_topmost(fd, NULL, 0) && !get_info(fd).generation,
			 "an empty set ends it\n");
}

/* Leaves the device closed. */
static void test_close_undoes(int fd, int32_t self)
{
	struct limelight_mechanism mechanism = {
		.size = sizeof(mechanism),
		.id = LIMELIGHT_MECHANISM_PROTECT,
		.flags = LIMELIGHT_MECHANISM_ON,
		.budget_percent = 33,
	};
	bool built_in = get_info(fd).built_in & (1u << LIMELIGHT_MECHANISM_PROTECT);
	long long budget = read_number("protect/budget_percent");
	int error = try_ioctl(fd, LIMELIGHT_SET_MECHANISM, &mechanism);

	if (built_in)
		ksft_test_result(!error && read_number("protect/enabled") == 1 &&
				 read_number("protect/budget_percent") == 33,
				 "protect can be switched on\n");
	else
		ksft_test_result(error == EOPNOTSUPP,
				 "a mechanism that is not built in is EOPNOTSUPP\n");

	if (set_topmost(fd, &self, 1))
		ksft_exit_fail_perror("LIMELIGHT_SET_TOPMOST");
	ksft_test_result(read_number("generation") == (long long)get_info(fd).generation &&
			 read_number("members") == 1, "sysfs shows the set\n");
	close(fd);
	ksft_test_result(read_number("generation") == 0 && read_number("members") == 0,
			 "closing the device ends the set\n");
	if (built_in)
		ksft_test_result(read_number("protect/enabled") == 0 &&
				 read_number("protect/budget_percent") == budget,
				 "closing the device switches protect off\n");
	else
		ksft_test_result_skip("protect is not built in\n");
}

static void test_sysfs(void)
{
	long long budget = read_number("protect/budget_percent");

	ksft_test_result(read_number("windows_opened") >= 0 &&
			 read_number("windows_expired") >= 0,
			 "the numbers of windows can be read\n");
	if (budget < 0)
		ksft_test_result_skip("protect is not built in\n");
	else
		ksft_test_result(budget >= 1 && budget <= 90 &&
				 read_number("protect/budget_kb") > 0,
				 "the budget can be read\n");
}

/* Whether only root has access to a file in sysfs. True if there is no such file. */
static bool is_for_root(const char *name)
{
	char path[128];
	struct stat stats;

	snprintf(path, sizeof(path), SYSFS "%s", name);
	if (stat(path, &stats))
		return errno == ENOENT;
	return !stats.st_uid && !(stats.st_mode & 077);
}

/* Whether /proc/vmstat, which every user can read, has a counter with this prefix. */
static bool vmstat_has(const char *prefix)
{
	FILE *file = fopen("/proc/vmstat", "r");
	bool found = false;
	char line[128];

	if (!file)
		ksft_exit_fail_perror("/proc/vmstat");
	while (!found && fgets(line, sizeof(line), file))
		found = !strncmp(line, prefix, strlen(prefix));
	fclose(file);
	return found;
}

/* Windows reveal keystrokes, and generations reveal changes of the foreground app. */
static void test_no_oracle(void)
{
	ksft_test_result(is_for_root("windows_opened") && is_for_root("windows_expired"),
			 "only root can read the numbers of windows\n");
	ksft_test_result(is_for_root("generation") && is_for_root("members"),
			 "only root can read the topmost set's state\n");
	ksft_test_result(is_for_root("protect/footprint_kb") &&
			 is_for_root("protect/cached_kb"),
			 "only root can read the topmost app's footprint\n");
	ksft_test_result(!vmstat_has("limelight_window"),
			 "/proc/vmstat has no counter of windows\n");
}

int main(void)
{
	int32_t self;
	int fd;

	ksft_print_header();
	fd = open(DEVICE, O_RDWR | O_CLOEXEC);
	if (fd < 0 && (errno == ENOENT || errno == ENXIO || errno == ENODEV))
		ksft_exit_skip("no " DEVICE ": CONFIG_LIMELIGHT is not set\n");
	if (fd < 0 && (errno == EACCES || errno == EPERM))
		ksft_exit_skip(DEVICE " needs CAP_SYS_NICE\n");
	if (fd < 0 && errno == EBUSY)
		ksft_exit_skip(DEVICE " is in use\n");
	if (fd < 0)
		ksft_exit_fail_perror(DEVICE);
	self = syscall(__NR_pidfd_open, getpid(), 0);
	if (self < 0)
		ksft_exit_fail_perror("pidfd_open");

	ksft_set_plan(23);
	test_open_is_exclusive();
	test_sizes(fd);
	test_topmost(fd, self);
	test_close_undoes(fd, self);
	test_sysfs();
	test_no_oracle();
	ksft_finished();
}
