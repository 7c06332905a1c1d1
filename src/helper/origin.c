/* SPDX-License-Identifier: Apache-2.0 */
#include "helper/origin.h"

#include "fs/atomic.h"
#include "fs/overlayfs.h"
#include "fs/resolve.h"
#include "fs/walk.h"
#include "helper/mount-fd.h"
#include "util/cleanup.h"
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
	struct strbuf *out;
};

/* ---- pid 1 ---- */

static int look_at(void *ctx, int dir_fd, const char *name, const char *path, unsigned char type)
{
	struct look *l = ctx;
	cleanup_close int fd = FD_NONE;
	const char *last;
	struct fs_id known = { 0 };
	struct fs_stat shown, own;
	int r;

	if (type != DT_DIR && type != DT_REG)
		return 0;
	r = overlay_origin(dir_fd, name, OVERLAY_USER, &known);
	if (r <= 0 || (type == DT_DIR && overlay_is_opaque(dir_fd, name, OVERLAY_USER) != 0))
		return WALK_SKIP; /* nothing is below it */
	if (overlay_origin_known(known))
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

static void look_at_view(struct look *l)
{
	cleanup_close int fd =
		openat(l->v->upper_fd, ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd >= 0)
		(void)walk_tree(fd, "", look_at, NULL, l);
}

void origins_look(const struct views *views, const struct request *q, int fd)
{
	cleanup_strbuf struct strbuf out = STRBUF_INIT;

	for (size_t i = 0; i < views->n; i++) {
		struct look l = { .v = &views->v[i], .out = &out };

		if (!l.v->notes_origins)
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
		(void)overlay_note_origin(fd, name, OVERLAY_USER, ino);
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
