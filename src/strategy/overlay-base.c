/* SPDX-License-Identifier: Apache-2.0 */
/* Recording the base of an overlay. See overlay-base.h. */
#include "strategy/overlay-base-impl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/atomic.h"
#include "fs/content.h"
#include "fs/resolve.h"
#include "fs/stamp.h"
#include "fs/xattr.h"
#include "strategy/dir.h"
#include "strategy/overlay-origin.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/crashpoint.h"
#include "util/escape.h"
#include "util/mem.h"

/* A step back smaller than this is the clock being disciplined. */
#define STEP_NS 500000000

void overlay_base_file_name(const struct atoll_participant *p, const char *what,
                            char out[OVERLAY_BASE_NAME_LEN])
{
	(void)snprintf(out, OVERLAY_BASE_NAME_LEN, "%s%" PRIu64, what, p->generation);
}

static int64_t clock_offset(void)
{
	return clock_real_ns() - clock_boot_ns();
}

/* ---- T0 ---- */

char *overlay_base_stamp_text(int64_t t0, bool multigrain)
{
	return xasprintf("%" PRId64 " %d %" PRId64 " %s\n", t0, multigrain, clock_offset(),
	                 clock_boot_id());
}

int overlay_base_stamp(struct atoll_participant *p, int area_fd)
{
	cleanup_close int fd = FD_NONE;
	cleanup_free char *text = NULL;
	char name[OVERLAY_BASE_NAME_LEN];
	bool multigrain;
	int64_t t0;
	int r = stamp_make(area_fd, "marker", &t0, &multigrain);

	if (r < 0)
		return error_sys(&p->err, r, "stamp", p->area);
	text = overlay_base_stamp_text(t0, multigrain);
	overlay_base_file_name(p, "t", name);
	r = fs_create_at(area_fd, name, 0600, &fd);
	if (r >= 0)
		r = fs_write_all(fd, text, strlen(text));
	return r < 0 ? error_sys(&p->err, r, "write", p->area) : 0;
}

/* Without a clock to go by everything is suspect. */
static void suspect_all(struct overlay_base *b)
{
	b->strict = true;
	b->looked = true;
}

/* Nobody waits until it is on disk: the machine may have gone down before. */
static int read_stamp(struct atoll_participant *p, int area_fd, struct overlay_base *b)
{
	cleanup_close int fd = FD_NONE;
	cleanup_free char *text = NULL;
	char name[OVERLAY_BASE_NAME_LEN];
	size_t len = 0;
	int multigrain = 0, r = 0;

	overlay_base_file_name(p, "t", name);
	fd = openat(area_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno != ENOENT)
		return error_sys(&p->err, -errno, "open the stamp in", p->area);
	r = fd < 0 ? 0 : fs_read_all(fd, 200, &text, &len);
	if (r < 0)
		return error_sys(&p->err, r, "read the stamp in", p->area);
	if (len == 0 || text[0] == '\0')
		suspect_all(b);
	else if (sscanf(text, "%" SCNd64 " %d %" SCNd64 " %39s", &b->t0_ns, &multigrain,
	                &b->clock_offset_ns, b->boot_id) < 3)
		return error_set(&p->err, -ATOLL_E_DAMAGED, "the stamp in '%s' is damaged",
		                 p->area);
	b->multigrain = multigrain != 0;
	return 0;
}

/* Whoever only looks must be able to where nothing can be written. */
static bool cannot_write(int r)
{
	return r == -EROFS || r == -ENOSPC || r == -EDQUOT || r == -EACCES || r == -EPERM;
}

/* Did the clock go back? Within one boot its offset tells; a fresh stamp tells in any case. Without
 * one the clock itself is asked: it is what local filesystems stamp with. */
static int look_at_clock(struct atoll_participant *p, int area_fd, struct overlay_base *b)
{
	bool multigrain;
	int64_t now;
	int r;

	if (b->looked)
		return 0;
	r = stamp_make(area_fd, "now", &now, &multigrain);
	if (cannot_write(r))
		now = clock_real_ns();
	else if (r < 0)
		return error_sys(&p->err, r, "stamp", p->area);
	else
		(void)fs_unlink_at(area_fd, "now");
	b->strict = now < b->t0_ns || (strcmp(b->boot_id, clock_boot_id()) == 0 &&
	                               clock_offset() < b->clock_offset_ns - STEP_NS);
	b->looked = true;
	return 0;
}

static int load_frame(struct atoll_participant *p, int area_fd, struct overlay_base *ret)
{
	int r = read_stamp(p, area_fd, ret);

	if (r >= 0)
		r = dir_restored_read(p, &ret->restored);
	return r;
}

/* There are none yet, or the machine went down before those of a command were on disk, which the commands do
 * not wait for. Without them nobody knows what a view was made of: everything in it is suspect. */
static int without_records(struct atoll_participant *p, struct overlay_base *b, int r)
{
	if (r != -ENOENT && r != -ATOLL_E_DAMAGED)
		return r;
	error_done(&p->err);
	if (r == -ATOLL_E_DAMAGED)
		suspect_all(b);
	return 0;
}

int overlay_base_load_unjudged(struct atoll_participant *p, int area_fd, struct overlay_base *ret)
{
	char name[OVERLAY_BASE_NAME_LEN];
	int r = load_frame(p, area_fd, ret);

	if (r < 0)
		return r;
	overlay_base_file_name(p, "records", name);
	r = manifest_read(area_fd, name, "", &ret->records, &p->err);
	return r < 0 ? without_records(p, ret, r) : 0;
}

int overlay_base_load(struct atoll_participant *p, int area_fd, struct overlay_base *ret)
{
	int r = overlay_base_load_unjudged(p, area_fd, ret);

	return r < 0 ? r : look_at_clock(p, area_fd, ret);
}

int overlay_base_next_record(struct atoll_participant *p, struct overlay_base *b)
{
	int r = manifest_reader_next(b->reader, &b->at, &p->err);

	if (r <= 0)
		b->at = NULL;
	b->at_is_judged = false;
	return r < 0 ? without_records(p, b, r) : 0;
}

int overlay_base_open(struct atoll_participant *p, int area_fd, struct overlay_base *ret)
{
	char name[OVERLAY_BASE_NAME_LEN];
	int r = load_frame(p, area_fd, ret);

	if (r >= 0)
		r = look_at_clock(p, area_fd, ret);
	if (r < 0)
		return r;
	overlay_base_file_name(p, "records", name);
	r = manifest_reader_open(area_fd, name, &ret->reader, &p->err);
	if (r >= 0)
		return overlay_base_next_record(p, ret);
	return without_records(p, ret, r);
}

void overlay_base_done(struct overlay_base *b)
{
	manifest_done(&b->records);
	manifest_done(&b->restored);
	manifest_reader_close(b->reader);
	strlist_done(&b->moved);
	strlist_done(&b->moved_why);
}

uint64_t overlay_base_room(const struct atoll_participant *p)
{
	cleanup_free char *path = NULL;
	char name[OVERLAY_BASE_NAME_LEN];
	struct fs_stat st;

	overlay_base_file_name(p, "records", name);
	path = xasprintf("%s/%s", p->work, name);
	/* To be sorted, and as they are written. */
	return 2 * ((fs_stat_at(AT_FDCWD, path, 0, &st) < 0 ? 0 : st.size) + dir_restored_size(p));
}

/* ---- recording ---- */

bool overlay_base_changed_since(const struct overlay_base *b, int64_t ctime_ns)
{
	return b->strict || (b->multigrain ? ctime_ns >= b->t0_ns : ctime_ns > b->t0_ns);
}

int overlay_base_record(struct overlay_base *b, const char *path, const struct fs_stat *base,
                        bool suspect)
{
	struct manifest_op o = { .op = base->mode ? CHANGE_DELETE : CHANGE_CREATE,
		                 .flags = MANIFEST_RECORD | (suspect ? MANIFEST_SUSPECT : 0),
		                 .path = xstrdup(path),
		                 .old_stat = *base };

	if (!base->mode)
		o.new_stat.mode = S_IFREG; /* a record of "nothing there" must not look empty */
	return manifest_add_op(&b->records, &o);
}

int overlay_base_record_dir(struct overlay_base *b, const char *path, const struct fs_stat *base,
                            unsigned flags, uint64_t xattrs)
{
	struct manifest_op o = { .op = CHANGE_DELETE,
		                 .flags = MANIFEST_RECORD | MANIFEST_XATTRS | flags,
		                 .path = xstrdup(path),
		                 .old_stat = *base,
		                 .new_stat.size = xattrs };

	return manifest_add_op(&b->records, &o);
}

int overlay_base_xattrs(int orig_fd, const char *path, uint64_t *ret, struct fs_stat *ret_now)
{
	cleanup_close int fd = FD_NONE;
	int r = resolve_dir_path(orig_fd, path, &fd);

	if (r >= 0)
		r = xattrs_hash_at(fd, "", ret);
	return r < 0 || !ret_now ? r : fs_stat_at(fd, "", FS_STAT_ID, ret_now);
}

struct observation {
	struct atoll_participant *p;
	int area_fd;
	const struct upper_compare *u;
	const struct changeset *cs;
	struct overlay_base *b;
	size_t n; /* records that were there before */
	struct overlay_hidden hidden;
};

/* Nobody knows of a late directory whether somebody gave it its attributes; if the view has the same,
 * nobody needs to. 1 or 0. */
static int differs_in_attributes(const struct observation *o, const char *path)
{
	cleanup_change struct change c = CHANGE_INIT;

	return changeset_find(o->cs, path, &c);
}

/* Did somebody else make, remove or rename something in the directory that PATH is in? */
static bool names_changed(const struct observation *o, const char *path)
{
	cleanup_close int fd = FD_NONE;
	cleanup_free char *above = NULL;
	const char *name;
	struct fs_stat parent;

	if (resolve_parent(o->u->orig_fd, path, &fd, &name) < 0 ||
	    fs_stat_at(fd, "", FS_STAT_ID, &parent) < 0)
		return true;
	above = xstrndup(path, name > path ? (size_t)(name - path) - 1 : 0);
	return overlay_base_changed_since(o->b, parent.ctime_ns) &&
	       !dir_restored_known(&o->b->restored, above, &parent);
}

enum dir_origin {
	DIR_SAME,  /* the one that the view was made of */
	DIR_OTHER, /* somebody else put it there */
	DIR_MADE,  /* the command made one of this name: there was none */
	DIR_UNKNOWN, /* for an ordinary user the kernel only notes that there was one (helper/origin.h) */
};

/* Of a shared directory. The root has no note, and its identity is verified by itself. */
static int dir_origin(const struct observation *o, const char *path, const struct fs_stat *base)
{
	cleanup_close int fd = FD_NONE;
	const char *name;
	struct fs_id origin = { 0 };
	int r;

	if (!*path)
		return DIR_SAME;
	r = resolve_parent(o->u->upper_fd, path, &fd, &name);
	if (r >= 0)
		r = overlay_origin(fd, name, o->u->marks, &origin);
	if (r <= 0)
		return r < 0 ? r : DIR_MADE;
	if (!overlay_origin_known(origin))
		return DIR_UNKNOWN;
	return overlay_origin_is(origin, base->id) ? DIR_SAME : DIR_OTHER;
}

/* 1: the directory may be another than the view was made of. Entries that come and go change ctime and mtime
 * together; one renamed into place has a late ctime alone, until something comes or goes in it. */
static int is_suspect_dir(const struct observation *o, const char *path, const struct fs_stat *base,
                          bool late)
{
	int origin = dir_origin(o, path, base);

	if (origin < 0 || origin == DIR_SAME)
		return origin < 0 ? origin : 0;
	return origin == DIR_OTHER ||
	       (late && (origin == DIR_MADE ||
	                 (base->ctime_ns != base->mtime_ns && names_changed(o, path))));
}

static int observe_dir(void *ctx, const char *path, const struct fs_stat *base)
{
	struct observation *o = ctx;
	unsigned flags = 0;
	uint64_t xattrs = 0;
	struct manifest_op rec;
	struct fs_stat now;
	bool late;
	int r = manifest_find(&o->b->records, o->n, path, &rec);

	if (r != 0)
		return r < 0 ? r : 0;
	r = look_at_clock(o->p, o->area_fd, o->b);
	if (r >= 0)
		r = overlay_base_xattrs(o->u->orig_fd, path, &xattrs, &now);
	if (r < 0)
		return r;
	late = overlay_base_changed_since(o->b, base->ctime_ns);
	if (!dir_restored_known(&o->b->restored, path, base)) {
		r = is_suspect_dir(o, path, base, late);
		if (r > 0)
			flags |= MANIFEST_SUSPECT;
		if (r >= 0 && late)
			r = differs_in_attributes(o, path);
		if (r < 0)
			return r;
		if (late && r > 0)
			flags |= MANIFEST_SUSPECT_ATTR;
	}
	if (now.ctime_ns != base->ctime_ns)
		flags |= MANIFEST_SUSPECT_ATTR; /* right now: the hash may be his */
	return overlay_base_record_dir(o->b, path, base, flags, xattrs);
}

/* An entry whose copy in the upper came from another than the one that is there, if any: named so by the command,
 * or deleted or replaced below by somebody else. If nobody touched the directory, it was the command. */
static bool has_lost_origin(struct observation *o, const struct change *c)
{
	return names_changed(o, c->path) &&
	       overlay_misses_origin(o->u, &o->b->records, c, &o->hidden) != 0;
}

/* Names coming and going inside a directory that goes are judged one by one. Whether it is another, of which
 * the upper has no note, its times tell as long as nothing came or went; after that those of its names. */
static bool is_suspect(struct observation *o, const struct change *c)
{
	bool late = c->base.mode && overlay_base_changed_since(o->b, c->base.ctime_ns);

	if (S_ISDIR(c->base.mode) && !o->b->strict)
		return late && (c->base.ctime_ns != c->base.mtime_ns || names_changed(o, c->path));
	return late || has_lost_origin(o, c);
}

/* The entry is the base, unless it is SUSPECT: then it may be another's, and so is its content. */
static int record_change(struct observation *o, const struct change *c, bool suspect)
{
	struct fs_stat base = c->base;

	if (!suspect)
		fs_content_take_below(o->u->orig_fd, c->path, &base);
	return overlay_base_record(o->b, c->path, &base, suspect);
}

static int observe_change(struct observation *o, const struct change *c)
{
	struct manifest_op rec;
	int r = manifest_find(&o->b->records, o->n, c->path, &rec);

	if (r != 0)
		return r < 0 ? r : 0;
	r = look_at_clock(o->p, o->area_fd, o->b);
	if (r < 0)
		return r;
	if (c->base.mode && dir_restored_known(&o->b->restored, c->path, &c->base))
		return record_change(o, c, false);
	return record_change(o, c, is_suspect(o, c));
}

static int save(struct atoll_participant *p, int area_fd, struct overlay_base *b, bool whole)
{
	cleanup_close int fd = FD_NONE;
	char name[OVERLAY_BASE_NAME_LEN], hash[HASH_TEXT_LEN];
	int r = manifest_sort(&b->records);

	if (r < 0)
		return error_sys(&p->err, r, "sort the records in", p->area);
	r = manifest_write(&b->records, area_fd, "records.new", hash, &p->err);
	if (r < 0)
		return r;
	if (whole) {
		fd = openat(area_fd, "records.new", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		r = fd < 0 ? -errno : fs_sync_file(fd);
	}
	overlay_base_file_name(p, "records", name);
	if (r >= 0)
		r = fs_rename_over(area_fd, "records.new", name);
	return r < 0 ? error_sys(&p->err, r, "write the records in", p->area) : 0;
}

int overlay_base_save_whole(struct atoll_participant *p, int area_fd, struct overlay_base *b)
{
	return save(p, area_fd, b, true);
}

int overlay_base_sync(struct atoll_participant *p, int area_fd)
{
	char name[OVERLAY_BASE_NAME_LEN];
	int r;

	overlay_base_file_name(p, "records", name);
	r = syncset_add(p->batch.sync, area_fd, name);
	if (r >= 0)
		r = syncset_add(p->batch.sync, area_fd, "");
	return r < 0 ? error_sys(&p->err, r, "write the records in", p->area) : 0;
}

int overlay_base_observe(struct atoll_participant *p, int area_fd, const struct upper_compare *u,
                         const struct changeset *cs, struct overlay_base *b, bool whole)
{
	struct observation o = { .p = p,
		                 .area_fd = area_fd,
		                 .u = u,
		                 .cs = cs,
		                 .b = b,
		                 .n = b->records.ops.n };
	int r;

	spool_spill_to(&b->records.ops, area_fd);
	r = upper_merged(u, observe_dir, &o, &p->err);
	for (size_t i = 0; i < cs->v.n && r >= 0; i++) {
		cleanup_change struct change c = CHANGE_INIT;

		r = changeset_get(&cs->v, i, &c);
		if (r >= 0 && c.op != CHANGE_ATTR)
			r = observe_change(&o, &c);
	}
	overlay_hidden_done(&o.hidden);
	if (r < 0)
		return p->err.code ? r : error_sys(&p->err, r, "record the base of", p->root);
	if (b->records.ops.n == o.n)
		return 0;
	return save(p, area_fd, b, whole);
}
