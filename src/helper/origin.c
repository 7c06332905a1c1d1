/* SPDX-License-Identifier: Apache-2.0 */
#include "helper/origin.h"

#include "fs/atomic.h"
#include "fs/overlayfs.h"
#include "fs/resolve.h"
#include "fs/walk.h"
#include "helper/mount-fd.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"
#include "util/strbuf.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOTES_MAX (64u << 20)

/* On record: "VIEW INO PATH" and a zero byte. */
struct look {
	const struct view *v;
	unsigned number; /* of the view in the request */
	char *dir;       /* whose names were asked for last */
	bool late;       /* and the answer */
	struct strbuf *out;
};

/* ---- pid 1 ---- */

/* Did names come or go in the original's directory that holds PATH? */
static bool in_late_dir(struct look *l, const char *path, const char *name)
{
	size_t len = (size_t)(name - path);
	cleanup_close int fd = FD_NONE;
	struct fs_stat st;

	if (l->dir && strlen(l->dir) == len && strncmp(l->dir, path, len) == 0)
		return l->late;
	free(l->dir);
	l->dir = xstrndup(path, len);
	l->late = resolve_parent(l->v->lower_fd, path, &fd, &name) < 0 ||
	          fs_stat_at(fd, "", 0, &st) < 0 || st.ctime_ns >= l->v->since_ns;
	return l->late;
}

static int look_at(void *ctx, int dir_fd, const char *name, const char *path, unsigned char type)
{
	struct look *l = ctx;
	cleanup_close int fd = FD_NONE;
	const char *last = strrchr(path, '/');
	struct fs_id known = { 0 };
	struct fs_stat shown, own;
	int r;

	last = last ? last + 1 : path;
	if (type != DT_DIR && (type != DT_REG || !in_late_dir(l, path, last)))
		return 0;
	r = overlay_origin(dir_fd, name, OVERLAY_USER, &known);
	if (r <= 0 || (type == DT_DIR && overlay_is_opaque(dir_fd, name, OVERLAY_USER) != 0))
		return WALK_SKIP; /* nothing is below it */
	if (known.ino || known.gen)
		return 0;
	/* What has no original in this view has the number of its own entry. */
	if (resolve_parent(l->v->mount_fd, path, &fd, &last) == 0 &&
	    fs_stat_at(fd, last, 0, &shown) == 0 && fs_stat_at(dir_fd, name, 0, &own) == 0 &&
	    shown.id.ino != own.id.ino) {
		strbuf_printf(l->out, "%u %" PRIu64 " %s", l->number, shown.id.ino, path);
		strbuf_putc(l->out, '\0');
	}
	return 0;
}

/* Numbers of two filesystems cannot be told from each other. */
static bool is_comparable(const struct view *v, int upper_fd)
{
	struct fs_stat upper, lower;

	return fs_stat_at(upper_fd, "", 0, &upper) == 0 &&
	       fs_stat_at(v->lower_fd, "", 0, &lower) == 0 && upper.dev == lower.dev;
}

static void look_at_view(struct look *l)
{
	cleanup_close int fd =
		openat(l->v->upper_fd, ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd >= 0 && is_comparable(l->v, fd))
		(void)walk_tree(fd, "", look_at, NULL, l);
	free(l->dir);
}

void origins_look(const struct views *views, const struct request *q, int fd)
{
	cleanup_strbuf struct strbuf out = STRBUF_INIT;

	for (size_t i = 0; i < views->n; i++) {
		struct look l = { .v = &views->v[i], .out = &out };

		if (l.v->lower_fd == FD_NONE)
			continue;
		while (strcmp(request_get(q, REQUEST_VIEW_TARGET, l.number), l.v->target) != 0)
			l.number++;
		look_at_view(&l);
	}
	if (out.len > 0 && out.len < NOTES_MAX)
		(void)fs_write_all(fd, out.buf, out.len);
}

/* ---- the helper ---- */

static void note(const struct request *q, char *line)
{
	cleanup_close int upper_fd = FD_NONE, fd = FD_NONE;
	unsigned long view = strtoul(line, &line, 10);
	uint64_t ino = strtoull(line, &line, 10);
	const char *upper, *name;

	if (*line != ' ' || view >= request_count(q, REQUEST_VIEW_UPPER))
		return;
	upper = request_get(q, REQUEST_VIEW_UPPER, (unsigned)view);
	if (mount_open_dir(upper, &upper_fd) == 0 &&
	    resolve_parent(upper_fd, line + 1, &fd, &name) == 0)
		(void)overlay_note_origin(fd, name, ino);
}

void origins_note(const struct request *q, int fd)
{
	cleanup_free char *text = NULL;
	size_t len = 0;

	if (lseek(fd, 0, SEEK_END) <= 0 || lseek(fd, 0, SEEK_SET) < 0 ||
	    fs_read_all(fd, NOTES_MAX, &text, &len) < 0 || len == 0 || text[len - 1])
		return;
	for (char *line = text; line < text + len;) {
		char *next = line + strlen(line) + 1;

		note(q, line);
		line = next;
	}
}
