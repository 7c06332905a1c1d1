/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directories to work in, one on the build's filesystem and one in memory, and ways to run a part
 * of a test as somebody else or among mounts of its own.
 */
#ifndef UNIT_FS_FIXTURE_H
#define UNIT_FS_FIXTURE_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "fs/remove.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534

struct fixture_dir {
	char path[PATH_MAX];
	int fd;
};

struct fixture {
	struct fixture_dir dir[2];
};

#define for_each_dir(d, state)                                                            \
	for (struct fixture_dir *d = ((struct fixture *)*(state))->dir, *d##_end = d + 2; \
	     d < d##_end; d++)

static inline int fixture_setup(void **state)
{
	static const char *const parent[] = { ".", "/dev/shm" };
	struct fixture *f = calloc(1, sizeof(*f));

	umask(022);
	for (int i = 0; f != NULL && i < 2; i++) {
		char name[64];

		snprintf(name, sizeof(name), "%s/fs-test-XXXXXX", parent[i]);
		if (mkdtemp(name) == NULL || realpath(name, f->dir[i].path) == NULL)
			return -1;
		f->dir[i].fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (f->dir[i].fd < 0)
			return -1;
	}
	*state = f;
	return f != NULL ? 0 : -1;
}

static inline int fixture_teardown(void **state)
{
	struct fixture *f = *state;
	int r = 0;

	for (int i = 0; i < 2; i++) {
		close(f->dir[i].fd);
		r = r == 0 ? remove_tree(f->dir[i].path) : r;
	}
	free(f);
	return r;
}

static inline void write_file(int dir_fd, const char *name, const char *text)
{
	int fd = openat(dir_fd, name, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static inline void make_dir(int dir_fd, const char *name)
{
	assert_int_equal(mkdirat(dir_fd, name, 0755), 0);
}

static inline int open_dir(int dir_fd, const char *name)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static inline int exists(int dir_fd, const char *name)
{
	return faccessat(dir_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* A chain of DEPTH directories "d<name>" below DIR_FD, with a file "leaf" in the last. */
static inline void make_chain(int dir_fd, const char *name, int depth)
{
	int fd = dup(dir_fd);

	for (int i = 0; i < depth; i++) {
		int next;

		assert_int_equal(mkdirat(fd, name, 0755), 0);
		next = open_dir(fd, name);
		close(fd);
		fd = next;
	}
	write_file(fd, "leaf", "leaf");
	close(fd);
}

/* In a child a failed assertion would run the parent's tests on; this just counts. */
#define CHECK(cond)                                                                  \
	do {                                                                         \
		if (!(cond)) {                                                       \
			fprintf(stderr, "# %s:%d: %s\n", __FILE__, __LINE__, #cond); \
			return 1;                                                    \
		}                                                                    \
	} while (0)

typedef int (*child_fn)(int dir_fd);

static inline int wait_child(pid_t pid)
{
	int status;

	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* FN as an ordinary user (whoever runs the tests, or "nobody" for root) in "his", a
 * directory of his own. */
static inline void as_ordinary_user(struct fixture_dir *d, child_fn fn)
{
	int fd;
	pid_t pid;

	assert_true(mkdirat(d->fd, "his", 0755) == 0 || errno == EEXIST);
	if (geteuid() == 0)
		assert_int_equal(fchownat(d->fd, "his", NOBODY, NOBODY, 0), 0);
	fd = open_dir(d->fd, "his");
	pid = fork();
	if (pid == 0) {
		if (geteuid() == 0 && (setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
		                       setresuid(NOBODY, NOBODY, NOBODY) < 0))
			_exit(2);
		_exit(fn(fd));
	}
	assert_int_equal(wait_child(pid), 0);
	close(fd);
}

/* FN as root in a mount namespace that ends with it. False: not possible here. */
static inline int among_own_mounts(struct fixture_dir *d, child_fn fn)
{
	pid_t pid;
	int r;

	if (geteuid() != 0)
		return 0;
	pid = fork();
	if (pid == 0) {
		if (unshare(CLONE_NEWNS) < 0 ||
		    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
			_exit(77);
		if (chdir(d->path) < 0)
			_exit(2);
		_exit(fn(open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
	}
	r = wait_child(pid);
	if (r == 77)
		return 0;
	assert_int_equal(r, 0);
	return 1;
}

#endif
