/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control groups. Where they are: /proc/self/mountinfo says where a hierarchy is mounted and which
 * part of it, /proc/self/cgroup which group of it we are in. Ours becomes the parent of a new one;
 * in version 2 a group with processes in it has no controllers for its children, so there the new one
 * is mostly our own group's neighbour.
 */
#include "helper/limit.h"

#include "fs/atomic.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"
#include "util/random.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROC_MAX     (16u << 20)
#define PERIOD_US    100000 /* of processor time that is shared out */
#define THOUSAND     1000
#define REMOVE_TRIES 200 /* the kernel takes a moment to let the dead go */
#define REMOVE_NS    1000000

static const char *const controllers[REQUEST_LIMIT_END_] = {
	[REQUEST_LIMIT_MEMORY] = "memory",
	[REQUEST_LIMIT_CPUS] = "cpu",
	[REQUEST_LIMIT_PIDS] = "pids",
};

/* ---- text files ---- */

static char *read_text(int dir_fd, const char *name)
{
	cleanup_close int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
	char *text = NULL;
	size_t len;

	return fd >= 0 && fs_read_all(fd, PROC_MAX, &text, &len) == 0 ? text : NULL;
}

static int write_text(int dir_fd, const char *name, const char *text)
{
	cleanup_close int fd = openat(dir_fd, name, O_WRONLY | O_CLOEXEC);

	return fd < 0 ? -errno : fs_write_all(fd, text, strlen(text));
}

/* WORD is one of those in LIST, which SEP separates. */
static bool has_word(const char *list, const char *word, const char *sep)
{
	size_t len = strlen(word);

	while (*list) {
		size_t n = strcspn(list, sep);

		if (n == len && strncmp(list, word, n) == 0)
			return true;
		list += n;
		list += strspn(list, sep);
	}
	return false;
}

/* ---- where our own group is ---- */

/* Our path in the hierarchy of CONTROLLER; NULL: of version 2. */
static char *own_path(const char *controller)
{
	cleanup_free char *text = read_text(AT_FDCWD, "/proc/self/cgroup");
	char *line, *rest = NULL;

	for (line = text ? strtok_r(text, "\n", &rest) : NULL; line;
	     line = strtok_r(NULL, "\n", &rest)) {
		char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;

		if (!path)
			continue;
		*path++ = '\0';
		names++;
		if (controller ? has_word(names, controller, ",") : *names == '\0')
			return xstrdup(path);
	}
	return NULL;
}

/* One line of mountinfo: is it that hierarchy? Then *ret_root and *ret_point are in LINE. */
static bool is_hierarchy(char *line, const char *controller, const char **ret_root,
                         const char **ret_point)
{
	char root[PATH_MAX], point[PATH_MAX], type[64], options[1024];
	char *tail = strstr(line, " - ");

	if (!tail || sscanf(line, "%*s %*s %*s %4095s %4095s", root, point) != 2 ||
	    sscanf(tail, " - %63s %*s %1023s", type, options) != 2)
		return false;
	if (strcmp(type, controller ? "cgroup" : "cgroup2") != 0 ||
	    (controller && !has_word(options, controller, ",")))
		return false;
	/* Both are shorter than the line they come from. */
	*tail = '\0';
	*ret_root = line;
	memcpy(line, root, strlen(root) + 1);
	*ret_point = line + strlen(root) + 1;
	memcpy(line + strlen(root) + 1, point, strlen(point) + 1);
	return true;
}

/* Our group's directory; the caller frees. */
static char *own_dir(const char *controller)
{
	cleanup_free char *path = own_path(controller);
	cleanup_free char *text = read_text(AT_FDCWD, "/proc/self/mountinfo");
	char *line, *rest = NULL;

	for (line = path && text ? strtok_r(text, "\n", &rest) : NULL; line;
	     line = strtok_r(NULL, "\n", &rest)) {
		const char *root, *point;
		size_t len;

		if (!is_hierarchy(line, controller, &root, &point))
			continue;
		len = strcmp(root, "/") == 0 ? 0 : strlen(root);
		if (strncmp(path, root, len) == 0 && (path[len] == '/' || path[len] == '\0'))
			return xasprintf("%s%s", point, strcmp(path + len, "/") ? path + len : "");
	}
	return NULL;
}

/* ---- what is written ---- */

/* Processors as time within a period. */
static int64_t quota_us(int64_t thousandths)
{
	int64_t us = thousandths * PERIOD_US / THOUSAND;

	return us < THOUSAND ? THOUSAND : us; /* the kernel takes no less */
}

static int set_v2(int fd, int which, int64_t value)
{
	char text[64];
	int r;

	switch (which) {
	case REQUEST_LIMIT_MEMORY:
		(void)snprintf(text, sizeof(text), "%" PRId64, value);
		r = write_text(fd, "memory.max", text);
		if (r == 0) /* or it would only be moved elsewhere; there may be no swap */
			(void)write_text(fd, "memory.swap.max", "0");
		return r;
	case REQUEST_LIMIT_CPUS:
		(void)snprintf(text, sizeof(text), "%" PRId64 " %d", quota_us(value), PERIOD_US);
		return write_text(fd, "cpu.max", text);
	default:
		(void)snprintf(text, sizeof(text), "%" PRId64, value);
		return write_text(fd, "pids.max", text);
	}
}

static int set_v1(int fd, int which, int64_t value)
{
	char text[32], period[32];
	int r;

	(void)snprintf(text, sizeof(text), "%" PRId64,
	               which == REQUEST_LIMIT_CPUS ? quota_us(value) : value);
	switch (which) {
	case REQUEST_LIMIT_MEMORY:
		r = write_text(fd, "memory.limit_in_bytes", text);
		if (r == 0) /* not everywhere */
			(void)write_text(fd, "memory.memsw.limit_in_bytes", text);
		return r;
	case REQUEST_LIMIT_CPUS:
		(void)snprintf(period, sizeof(period), "%d", PERIOD_US);
		r = write_text(fd, "cpu.cfs_period_us", period);
		return r < 0 ? r : write_text(fd, "cpu.cfs_quota_us", text);
	default:
		return write_text(fd, "pids.max", text);
	}
}

/* ---- making one ---- */

/* Children of the group in DIR_FD have the controllers of MASK, or get them now. */
static int enable(int dir_fd, unsigned mask)
{
	cleanup_free char *on = read_text(dir_fd, "cgroup.subtree_control");

	if (!on)
		return -ENOENT;
	for (int i = 0; i < REQUEST_LIMIT_END_; i++) {
		char text[32];
		int r;

		if (!(mask >> i & 1) || has_word(on, controllers[i], " \n"))
			continue;
		(void)snprintf(text, sizeof(text), "+%s", controllers[i]);
		r = write_text(dir_fd, "cgroup.subtree_control", text);
		if (r < 0)
			return r;
	}
	return 0;
}

static int set_all(const struct limits *l, unsigned mask, enum reply_limit version, int dir_fd)
{
	int r = 0;

	for (int i = 0; r == 0 && i < REQUEST_LIMIT_END_; i++)
		if (mask >> i & 1)
			r = version == REPLY_LIMIT_CGROUP2 ? set_v2(dir_fd, i, l->value[i])
			                                   : set_v1(dir_fd, i, l->value[i]);
	return r;
}

/* A child of the group PARENT. */
static int make_in(const struct limits *l, unsigned mask, enum reply_limit version,
                   const char *parent, struct limit_group *ret)
{
	cleanup_close int parent_fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct limit_group g = { .dir_fd = FD_NONE };
	char name[sizeof("atoll-") + 16];
	int r;

	if (parent_fd < 0)
		return -errno;
	r = version == REPLY_LIMIT_CGROUP2 ? enable(parent_fd, mask) : 0;
	if (r < 0)
		return r;
	memcpy(name, "atoll-", sizeof("atoll-"));
	random_hex(name + strlen(name), 16);
	r = fs_mkdir_at(parent_fd, name, 0755);
	if (r < 0)
		return r;
	g.path = xasprintf("%s/%s", parent, name);
	g.dir_fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	r = g.dir_fd < 0 ? -errno : set_all(l, mask, version, g.dir_fd);
	if (r < 0)
		group_remove(&g);
	else
		*ret = g;
	return r;
}

static const char *controller_of(unsigned mask)
{
	for (int i = 0; i < REQUEST_LIMIT_END_; i++)
		if (mask >> i & 1)
			return controllers[i];
	return NULL;
}

int group_make(const struct limits *l, unsigned mask, enum reply_limit version,
               struct limit_group *ret)
{
	cleanup_free char *own =
		own_dir(version == REPLY_LIMIT_CGROUP1 ? controller_of(mask) : NULL);
	char *slash;
	int r;

	if (!own)
		return -ENOENT;
	r = make_in(l, mask, version, own, ret);
	if (r == 0 || version == REPLY_LIMIT_CGROUP1)
		return r;
	slash = strrchr(own, '/');
	if (!slash || slash == own)
		return r;
	*slash = '\0';
	return make_in(l, mask, version, own, ret);
}

int group_entrance(const struct limit_group *g)
{
	int fd = openat(g->dir_fd, "cgroup.procs", O_WRONLY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

unsigned group_memory_kills(const struct limit_group *g)
{
	/* Of version 2, of version 1. */
	static const char *const files[] = { "memory.events", "memory.oom_control" };
	static const char word[] = "oom_kill ";

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		cleanup_free char *text = read_text(g->dir_fd, files[i]);
		char *line, *rest = NULL;

		for (line = text ? strtok_r(text, "\n", &rest) : NULL; line;
		     line = strtok_r(NULL, "\n", &rest))
			if (strncmp(line, word, sizeof(word) - 1) == 0)
				return (unsigned)strtoul(line + sizeof(word) - 1, NULL, 10);
	}
	return 0;
}

void group_remove(struct limit_group *g)
{
	int r = g->path ? fs_rmdir_at(AT_FDCWD, g->path) : 0;

	for (int i = 0; r == -EBUSY && i < REMOVE_TRIES; i++) {
		clock_sleep_ns(REMOVE_NS);
		r = fs_rmdir_at(AT_FDCWD, g->path);
	}
	close_fd(&g->dir_fd);
	free(g->path);
	g->path = NULL;
}
