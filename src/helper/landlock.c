/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's header may be older than the kernel: what it lacks is said here. */
#include "helper/landlock.h"

#include "util/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ABI_REFER    2
#define ABI_TRUNCATE 3
#define ABI_SCOPES   6

#define ACCESS_TRUNCATE (UINT64_C(1) << 14)
#define SCOPE_SOCKETS   (UINT64_C(1) << 0)
#define SCOPE_SIGNALS   (UINT64_C(1) << 1)

#define ACCESS_TO_FILES ((uint64_t)LANDLOCK_ACCESS_FS_WRITE_FILE)
#define ACCESS_TO_DIRS                                                               \
	((uint64_t)(LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE | \
	            LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_DIR |     \
	            LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK |     \
	            LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK |   \
	            LANDLOCK_ACCESS_FS_MAKE_SYM | LANDLOCK_ACCESS_FS_REFER))

/* As of its sixth version; shorter ones are what older kernels expect. */
struct attributes {
	uint64_t files, net, scoped;
};

static long version(void)
{
	static long known;

	if (known == 0)
		known = syscall(SYS_landlock_create_ruleset, NULL, 0,
		                LANDLOCK_CREATE_RULESET_VERSION);
	return known;
}

enum landlock_grade landlock_grade(void)
{
	long abi = version();

	if (abi < 1)
		return LANDLOCK_NONE;
	if (abi < ABI_REFER)
		return LANDLOCK_NO_REFER;
	return abi < ABI_SCOPES ? LANDLOCK_WRITES : LANDLOCK_SCOPES;
}

static uint64_t access_to_files(long abi)
{
	return ACCESS_TO_FILES | (abi < ABI_TRUNCATE ? 0 : ACCESS_TRUNCATE);
}

int landlock_new(int *ret_fd)
{
	long abi = version();
	struct attributes attr = { .files = access_to_files(abi) | ACCESS_TO_DIRS };
	size_t size = sizeof(attr.files);
	long fd;

	*ret_fd = FD_NONE;
	if (abi < ABI_REFER)
		return 0;
	if (abi >= ABI_SCOPES) {
		attr.scoped = SCOPE_SOCKETS | SCOPE_SIGNALS;
		size = sizeof(attr);
	}
	fd = syscall(SYS_landlock_create_ruleset, &attr, size, 0);
	if (fd < 0)
		return -errno;
	*ret_fd = (int)fd;
	return 0;
}

static int add(int ruleset_fd, int fd)
{
	struct landlock_path_beneath_attr rule = { .parent_fd = fd };
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	rule.allowed_access = access_to_files(version());
	if (S_ISDIR(st.st_mode))
		rule.allowed_access |= ACCESS_TO_DIRS;
	if (syscall(SYS_landlock_add_rule, ruleset_fd, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
		return -errno;
	return 0;
}

int landlock_allow(int ruleset_fd, const char *path)
{
	cleanup_close int fd = open(path, O_PATH | O_CLOEXEC);

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	return add(ruleset_fd, fd);
}

/* What has no place in a tree (pipes, sockets) is free in any case. */
int landlock_allow_open(int ruleset_fd, int fd)
{
	cleanup_close int path_fd = FD_NONE;
	int flags = fcntl(fd, F_GETFL);
	struct stat st;
	char path[32];
	int r;

	if (flags < 0 || (flags & O_PATH) || (flags & O_ACCMODE) == O_RDONLY ||
	    fstat(fd, &st) < 0 || !(S_ISREG(st.st_mode) || S_ISCHR(st.st_mode)))
		return 0;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	path_fd = open(path, O_PATH | O_CLOEXEC);
	/* One of no tree at all is no file to be opened again. */
	r = path_fd < 0 ? 0 : add(ruleset_fd, path_fd);
	return r == -EBADFD ? 0 : r;
}

int landlock_enter(int ruleset_fd)
{
	return syscall(SYS_landlock_restrict_self, ruleset_fd, 0) < 0 ? -errno : 0;
}
