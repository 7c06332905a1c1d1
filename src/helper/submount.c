/* SPDX-License-Identifier: Apache-2.0 */
/* They are bound recursively, so only the outermost mount of each kind of place is needed. */
#include "helper/submount.h"

#include "fs/atomic.h"
#include "fs/stat.h"
#include "helper/mount-fd.h"
#include "util/cleanup.h"
#include "util/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>

#define MOUNTINFO_MAX (64u << 20)
#define FIELD         4 /* the mount point, counted from 0 */

static bool is_octal(const char *p)
{
	for (int i = 0; i < 3; i++)
		if (p[i] < '0' || p[i] > '7')
			return false;
	return true;
}

bool submount_point(const char *line, char *out, size_t size)
{
	const char *p = line;

	for (int i = 0; i < FIELD; i++) {
		p = strchr(p, ' ');
		if (!p)
			return false;
		p++;
	}
	for (; *p != ' '; size--) {
		if (*p == '\0' || size < 2)
			return false;
		if (*p == '\\' && is_octal(p + 1)) {
			*out++ = (char)((p[1] - '0') * 64 + (p[2] - '0') * 8 + (p[3] - '0'));
			p += 4;
		} else {
			*out++ = *p++;
		}
	}
	*out = '\0';
	return true;
}

static int by_length(const void *a, const void *b)
{
	const struct submount *x = a, *y = b;
	size_t lx = strlen(x->path), ly = strlen(y->path);

	return (lx > ly) - (lx < ly);
}

static int add_line(struct submounts *s, const struct views *views, const char *line)
{
	const struct view *view;
	char path[PATH_MAX];
	int r;

	if (!submount_point(line, path, sizeof(path)))
		return 0;
	/* Of what is fixed there is more to be seen than the directory that the mount covers. */
	view = views_find(views, path);
	if (!view || view->kind != VIEW_FIXED)
		view = view ? NULL : views_around(views, path);
	if (!view || view_covers(view))
		return 0;
	r = grow((void **)&s->v, &s->cap, s->n + 1, sizeof(*s->v));
	if (r < 0)
		return r;
	s->v[s->n++] = (struct submount){ xstrdup(path), view, FD_NONE };
	return 0;
}

static void forget(struct submounts *s)
{
	close_fd(&s->info_fd);
	free(s->info);
	s->info = NULL;
}

static int read_info(struct submounts *s)
{
	size_t len;
	int r;

	s->info_fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	if (s->info_fd < 0)
		return -errno;
	r = fs_read_all(s->info_fd, MOUNTINFO_MAX, &s->info, &len);
	if (r < 0)
		forget(s);
	return r;
}

void submounts_look(struct submounts *s)
{
	(void)read_info(s);
}

void submounts_look_again(struct submounts *s)
{
	struct pollfd changed = { .fd = s->info_fd, .events = POLLPRI };

	if (s->info_fd != FD_NONE && poll(&changed, 1, 0) != 0)
		forget(s);
}

static int read_all(struct submounts *s, const struct views *views)
{
	char *line, *rest;
	int r = s->info ? 0 : read_info(s);

	rest = s->info;
	while (r == 0 && (line = strsep(&rest, "\n")))
		r = add_line(s, views, line);
	forget(s);
	return r;
}

/* Comes along with one before it in the list, or is the same place mounted over. */
static bool is_covered(const struct submounts *s, size_t i)
{
	for (size_t k = 0; k < i; k++) {
		size_t len = strlen(s->v[k].path);

		if (s->v[k].view == s->v[i].view && s->v[k].mount_fd != FD_NONE &&
		    strncmp(s->v[k].path, s->v[i].path, len) == 0 &&
		    (s->v[i].path[len] == '/' || s->v[i].path[len] == '\0'))
			return true;
	}
	return false;
}

static int bind_one(struct submount *sub)
{
	cleanup_close int fd = FD_NONE;
	struct fs_stat st;
	int r;

	/* Hidden below another mount, or in a directory closed to us: not to be seen anyway. */
	if (mount_open_target(sub->path, &fd) < 0 || fs_stat_at(fd, "", 0, &st) < 0 ||
	    !st.mount_root)
		return 0;
	r = mount_clone(fd, &sub->mount_fd);
	return r < 0 ? r
	             : mount_change(sub->mount_fd, MOUNT_ALL, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV,
	                            0);
}

int submounts_make(struct submounts *s, const struct views *views, struct failure *f)
{
	int r = read_all(s, views);

	if (r < 0)
		return failure_set(f, REPLY_VIEW, r, "read '/proc/self/mountinfo'");
	if (s->n > 1)
		qsort(s->v, s->n, sizeof(*s->v), by_length);
	for (size_t i = 0; i < s->n; i++) {
		r = is_covered(s, i) ? 0 : bind_one(&s->v[i]);
		if (r < 0)
			return failure_set(f, REPLY_VIEW, r, "bind '%s'", s->v[i].path);
	}
	return 0;
}

int submounts_attach(const struct submounts *s, const struct view *view, struct failure *f)
{
	for (size_t i = 0; i < s->n; i++) {
		const struct submount *sub = &s->v[i];
		int r;

		if (sub->view != view || sub->mount_fd == FD_NONE)
			continue;
		r = mount_attach(sub->mount_fd, sub->path);
		if (r < 0 && r != -ENOENT && r != -ENOTDIR && r != -ELOOP)
			return failure_set(f, REPLY_VIEW, r, "mount '%s'", sub->path);
	}
	return 0;
}

void submounts_done(struct submounts *s)
{
	for (size_t i = 0; i < s->n; i++) {
		free(s->v[i].path);
		close_fd(&s->v[i].mount_fd);
	}
	free(s->v);
	forget(s);
	*s = SUBMOUNTS_INIT;
}
