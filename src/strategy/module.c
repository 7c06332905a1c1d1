/* SPDX-License-Identifier: Apache-2.0 */
/* Finding modules, and opening what may be trusted. See module.h. */
#include "strategy/module.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/mem.h"

#define INSTALLED ATOLL_LIB_PATH "/atoll/strategies"
#define SUFFIX    ".so"

/* The I-th directory, or NULL. */
static const char *directory(size_t i)
{
	const char *named = secure_getenv("ATOLL_STRATEGIES");

	if (!named || !*named)
		i++;
	return i == 0 ? named : i == 1 ? INSTALLED : NULL;
}

static int check_owner(int fd, const char *path, struct error *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return error_sys(err, -errno, "look at", path);
	if (st.st_uid != 0 && st.st_uid != geteuid()) {
		(void)error_set(err, -EACCES,
		                "'%s' belongs to user %u; strategies are taken from root and "
		                "yourself only",
		                path, st.st_uid);
		error_hint(err, "chown it to root or to yourself, if you trust it");
		return -EACCES;
	}
	if (st.st_mode & (S_IWGRP | S_IWOTH)) {
		(void)error_set(err, -EACCES,
		                "'%s' may be written by others (mode %04o), so what it does is "
		                "not known",
		                path, st.st_mode & 07777);
		error_hint(err, "chmod go-w %s, if you trust what is in it", path);
		return -EACCES;
	}
	return 0;
}

/* The file NAME.so in DIR, checked; -ENOENT: it is not there, and ERR is not set. */
static int open_module(const char *dir, const char *name, char **ret_path, int *ret_fd,
                       struct error *err)
{
	cleanup_close int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cleanup_free char *file = xasprintf("%s" SUFFIX, name);
	cleanup_close int fd = FD_NONE;
	int r;

	if (dir_fd < 0)
		return errno == ENOENT || errno == ENOTDIR ? -ENOENT
		                                           : error_sys(err, -errno, "open", dir);
	*ret_path = xasprintf("%s/%s", dir, file);
	fd = openat(dir_fd, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ENOENT : error_sys(err, -errno, "open", *ret_path);
	r = check_owner(dir_fd, dir, err);
	if (r == 0)
		r = check_owner(fd, *ret_path, err);
	if (r == 0)
		*ret_fd = take_fd(&fd);
	return r;
}

/* By the descriptor that was checked, not by the name. */
static int open_code(int fd, const char *path, const struct atoll_strategy **ret, struct error *err)
{
	char self[32];
	atoll_strategy_module_fn *table;
	void *code;

	(void)snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	code = dlopen(self, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!code)
		return error_set(err, -ATOLL_E_UNSUPPORTED,
		                 "the strategy '%s' cannot be opened: %s", path, dlerror());
	*(void **)&table = dlsym(code, ATOLL_STRATEGY_MODULE);
	*ret = table ? table() : NULL;
	if (!*ret) {
		(void)dlclose(code);
		return error_set(err, -ATOLL_E_UNSUPPORTED,
		                 "'%s' is no strategy: it lacks the function " ATOLL_STRATEGY_MODULE
		                 "()",
		                 path);
	}
	return 0;
}

int module_load(const char *name, const struct atoll_strategy **ret, struct error *err)
{
	const char *dir;

	for (size_t i = 0; (dir = directory(i)); i++) {
		cleanup_free char *path = NULL;
		cleanup_close int fd = FD_NONE;
		int r = open_module(dir, name, &path, &fd, err);

		if (r == -ENOENT && !(err && err->code))
			continue;
		if (r == 0)
			r = open_code(fd, path, ret, err);
		if (r == 0 && strcmp((*ret)->name, name) != 0)
			r = error_set(err, -ATOLL_E_UNSUPPORTED,
			              "'%s' holds the strategy '%s', not '%s'", path, (*ret)->name,
			              name);
		return r;
	}
	return -ATOLL_E_NOT_FOUND;
}

void module_names(struct strlist *ret)
{
	const char *dir;

	for (size_t i = 0; (dir = directory(i)); i++) {
		DIR *d = opendir(dir);
		const struct dirent *entry;

		while (d && (entry = readdir(d))) {
			size_t len = strlen(entry->d_name);
			cleanup_free char *name = NULL;

			if (len <= strlen(SUFFIX) ||
			    strcmp(entry->d_name + len - strlen(SUFFIX), SUFFIX) != 0)
				continue;
			name = xstrndup(entry->d_name, len - strlen(SUFFIX));
			if (!strlist_has(ret, name))
				strlist_add(ret, name);
		}
		if (d)
			(void)closedir(d);
	}
}
