/* SPDX-License-Identifier: Apache-2.0 */
/* Takes no lock: while a command prints, a segment may go, and then what follows it is read. */
#include "plan/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/request.h"
#include "fs/atomic.h"
#include "fs/remove.h"
#include "fs/walk.h"
#include "plan/sandbox.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"
#include "util/random.h"

#define DIR_NAME   "output"
#define TIME_LEN   16
#define BLOCK_SIZE (64u << 10)

static int open_dir_at(int dir_fd, const char *name)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* ---- writing ---- */

static void drop_oldest(int dir_fd)
{
	cleanup_dirlist struct dirlist list = DIRLIST_INIT;

	if (dirlist_read(dir_fd, &list) < 0)
		return;
	for (size_t i = 0; i + OUTPUT_MOST <= list.n; i++)
		(void)remove_tree_at(dir_fd, list.v[i].name);
}

int output_make(const char *area, char name[OUTPUT_NAME_LEN], char **ret_path, struct error *err)
{
	cleanup_close int area_fd = open_dir_at(AT_FDCWD, area);
	cleanup_close int dir_fd = FD_NONE;
	int r = area_fd < 0 ? area_fd : fs_private_dir_at(area_fd, DIR_NAME, &dir_fd);

	if (r < 0)
		return error_sys(err, r, "keep the command's output in", area);
	drop_oldest(dir_fd);
	(void)snprintf(name, OUTPUT_NAME_LEN, "%016" PRIx64, (uint64_t)clock_real_ms());
	random_hex(name + TIME_LEN, OUTPUT_NAME_LEN - 1 - TIME_LEN);
	r = fs_mkdir_at(dir_fd, name, 0700);
	if (r < 0)
		return error_sys(err, r, "keep the command's output in", area);
	*ret_path = xasprintf("%s/" DIR_NAME "/%s", area, name);
	return 0;
}

void output_drop(const char *area, const char *name)
{
	cleanup_free char *path = xasprintf("%s/" DIR_NAME "/%s", area, name);

	(void)remove_tree(path);
}

/* ---- reading ---- */

static int open_output(struct atoll *a, const char *plan_id, const char *name)
{
	cleanup_sandboxes struct sandboxes boxes = SANDBOXES_INIT;
	cleanup_close int area_fd = FD_NONE;
	cleanup_close int dir_fd = FD_NONE;

	if (!*name || strchr(name, '/') || sandboxes_load(a->reg, plan_id, &boxes, NULL) < 0 ||
	    boxes.n == 0)
		return -ENOENT;
	area_fd = open_dir_at(AT_FDCWD, boxes.v[0].area);
	if (area_fd < 0)
		return take_fd(&area_fd);
	dir_fd = open_dir_at(area_fd, DIR_NAME);
	return dir_fd < 0 ? take_fd(&dir_fd) : open_dir_at(dir_fd, name);
}

static uint64_t segment_begin(const struct dirlist *list, size_t i)
{
	return strtoull(list->v[i].name, NULL, 10);
}

int output_size(struct atoll *a, const char *plan_id, const char *name, struct output_size *ret)
{
	cleanup_close int dir_fd = open_output(a, plan_id, name);
	cleanup_dirlist struct dirlist list = DIRLIST_INIT;

	if (dir_fd < 0 || dirlist_read(dir_fd, &list) < 0)
		return 0;
	*ret = (struct output_size){ .left_out = list.n ? segment_begin(&list, 0) : 0 };
	for (size_t i = 0; i < list.n; i++) {
		struct stat st;

		if (fstatat(dir_fd, list.v[i].name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			ret->bytes += (uint64_t)st.st_size;
	}
	return 1;
}

struct reading {
	uint64_t at; /* the next byte that is wanted */
	atoll_output_fn fn;
	void *user;
};

static int read_segment(struct reading *rd, int fd, uint64_t begin)
{
	cleanup_free char *block = malloc(BLOCK_SIZE);
	ssize_t n;
	int r = 0;

	if (!block)
		return -ENOMEM;
	rd->at = rd->at < begin ? begin : rd->at;
	while (r >= 0 && (n = pread(fd, block, BLOCK_SIZE, (off_t)(rd->at - begin))) > 0) {
		r = rd->fn(rd->user, rd->at, block, (size_t)n);
		rd->at += (uint64_t)n;
	}
	return r < 0 ? r : n < 0 ? -errno : 0;
}

int64_t output_read(struct atoll *a, const char *plan_id, const char *name, uint64_t offset,
                    atoll_output_fn fn, void *user, struct error *err)
{
	cleanup_close int dir_fd = open_output(a, plan_id, name);
	cleanup_dirlist struct dirlist list = DIRLIST_INIT;
	struct reading rd = { .at = offset, .fn = fn, .user = user };
	int r = dir_fd < 0 ? dir_fd : dirlist_read(dir_fd, &list);

	if (r < 0)
		return error_set(err, -ATOLL_E_NOT_FOUND,
		                 "the output of that command is not kept (any more)");
	for (size_t i = 0; r >= 0 && i < list.n; i++) {
		cleanup_close int fd =
			openat(dir_fd, list.v[i].name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

		if (fd >= 0) /* else it went meanwhile */
			r = read_segment(&rd, fd, segment_begin(&list, i));
	}
	return r < 0 ? r : (int64_t)rd.at;
}
