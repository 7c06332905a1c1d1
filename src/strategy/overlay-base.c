/* SPDX-License-Identifier: Apache-2.0 */
/* Recording the base of an overlay, and judging what happened to it. See overlay-base.h. */
#include "strategy/overlay-base.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/atomic.h"
#include "fs/resolve.h"
#include "fs/stamp.h"
#include "strategy/dir.h"
#include "strategy/overlay-origin.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/crashpoint.h"
#include "util/escape.h"
#include "util/mem.h"

/* A step back smaller than this is the clock being disciplined. */
#define STEP_NS 500000000

static void file_name(const struct atoll_participant *p, const char *what, char out[48])
{
	(void)snprintf(out, 48, "%s%" PRIu64, what, p->generation);
}

static int64_t clock_offset(void)
{
	return clock_real_ns() - clock_boot_ns();
}

/* ---- T0 ---- */

static char *stamp_text(int64_t t0, bool multigrain)
{
	return xasprintf("%" PRId64 " %d %" PRId64 " %s\n", t0, multigrain, clock_offset(),
	                 clock_boot_id());
}

int overlay_base_stamp(struct atoll_participant *p, int area_fd)
{
	cleanup_close int fd = FD_NONE;
	cleanup_free char *text = NULL;
	char name[48];
	bool multigrain;
	int64_t t0;
	int r = stamp_make(area_fd, "marker", &t0, &multigrain);

	if (r < 0)
		return error_sys(&p->err, r, "stamp", p->area);
	text = stamp_text(t0, multigrain);
	file_name(p, "t", name);
	r = fs_create_at(area_fd, name, 0600, &fd);
	if (r >= 0)
		r = fs_write_all(fd, text, strlen(text));
	return r < 0 ? error_sys(&p->err, r, "write", p->area) : 0;
}

static int read_stamp(struct atoll_participant *p, int area_fd, struct overlay_base *b)
{
	cleanup_close int fd = FD_NONE;
	cleanup_free char *text = NULL;
	char name[48];
	size_t len = 0;
	int multigrain = 0, r = 0;

	file_name(p, "t", name);
	fd = openat(area_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return error_sys(&p->err, -errno, "open the stamp in", p->area);
	r = fs_read_all(fd, 200, &text, &len);
	if (r < 0)
		return error_sys(&p->err, r, "read the stamp in", p->area);
	if (sscanf(text, "%" SCNd64 " %d %" SCNd64 " %39s", &b->t0_ns, &multigrain,
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
	int r = stamp_make(area_fd, "now", &now, &multigrain);

	if (cannot_write(r))
		now = clock_real_ns();
	else if (r < 0)
		return error_sys(&p->err, r, "stamp", p->area);
	else
		(void)fs_unlink_at(area_fd, "now");
	b->strict = now < b->t0_ns || (strcmp(b->boot_id, clock_boot_id()) == 0 &&
	                               clock_offset() < b->clock_offset_ns - STEP_NS);
	return 0;
}

static int load_frame(struct atoll_participant *p, int area_fd, struct overlay_base *ret)
{
	int r = read_stamp(p, area_fd, ret);

	if (r >= 0)
		r = look_at_clock(p, area_fd, ret);
	if (r >= 0)
		dir_restored_read(p, &ret->restored);
	return r;
}

int overlay_base_load(struct atoll_participant *p, int area_fd, struct overlay_base *ret)
{
	char name[48];
	int r = load_frame(p, area_fd, ret);

	if (r < 0)
		return r;
	file_name(p, "records", name);
	r = manifest_read(area_fd, name, "", &ret->records, &p->err);
	if (r != -ENOENT)
		return r;
	error_done(&p->err); /* none yet */
	return 0;
}

static int next_record(struct atoll_participant *p, struct overlay_base *b)
{
	int r = manifest_reader_next(b->reader, &b->at, &p->err);

	if (r <= 0)
		b->at = NULL;
	b->at_is_judged = false;
	return r < 0 ? r : 0;
}

int overlay_base_open(struct atoll_participant *p, int area_fd, struct overlay_base *ret)
{
	char name[48];
	int r = load_frame(p, area_fd, ret);

	if (r < 0)
		return r;
	file_name(p, "records", name);
	r = manifest_reader_open(area_fd, name, &ret->reader, &p->err);
	if (r >= 0)
		return next_record(p, ret);
	if (r != -ENOENT)
		return r;
	error_done(&p->err); /* none yet */
	return 0;
}

void overlay_base_done(struct overlay_base *b)
{
	manifest_done(&b->records);
	manifest_done(&b->restored);
	manifest_reader_close(b->reader);
	strlist_done(&b->moved);
	strlist_done(&b->moved_why);
}

/* ---- recording ---- */

static int by_path(const void *a, const void *b)
{
	const struct manifest_op *x = a, *y = b;

	return path_compare(x->path, y->path);
}

static int by_key(const void *key, const void *element)
{
	const struct manifest_op *o = element;

	return path_compare(key, o->path);
}

static const struct manifest_op *find(const struct manifest *m, size_t n, const char *path)
{
	return n ? bsearch(path, m->ops, n, sizeof(*m->ops), by_key) : NULL;
}

static bool changed_since(const struct overlay_base *b, int64_t ctime_ns)
{
	return b->strict || (b->multigrain ? ctime_ns >= b->t0_ns : ctime_ns > b->t0_ns);
}

static int record(struct overlay_base *b, const char *path, const struct fs_stat *base,
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

struct observation {
	struct overlay_base *b;
	size_t n; /* records that were there before */
	struct overlay_hidden hidden;
};

static int observe_dir(void *ctx, const char *path, const struct fs_stat *base)
{
	struct observation *o = ctx;

	if (find(&o->b->records, o->n, path))
		return 0;
	if (dir_restored_known(&o->b->restored, path, base))
		return record(o->b, path, base, false);
	/* Entries that come and go change ctime and mtime together; a directory renamed into place
	 * or given other attributes has a late ctime alone. */
	return record(o->b, path, base,
	              changed_since(o->b, base->ctime_ns) && base->ctime_ns != base->mtime_ns);
}

/* An entry without a base whose copy in the upper came from one: named so by the command, or deleted
 * below by somebody else. If nobody touched the directory, it was the command. */
static bool vanished(const struct upper_compare *u, struct observation *o, const struct change *c)
{
	cleanup_close int fd = FD_NONE;
	cleanup_free char *above = NULL;
	const char *name;
	struct fs_stat parent;

	if (resolve_parent(u->orig_fd, c->path, &fd, &name) < 0 ||
	    fs_stat_at(fd, "", FS_STAT_ID, &parent) < 0)
		return true;
	above = xstrndup(c->path, name > c->path ? (size_t)(name - c->path) - 1 : 0);
	if (!changed_since(o->b, parent.ctime_ns) ||
	    dir_restored_known(&o->b->restored, above, &parent))
		return false;
	return overlay_misses_origin(u, &o->b->records, c, &o->hidden) != 0;
}

static int observe_change(const struct upper_compare *u, struct observation *o,
                          const struct change *c)
{
	bool suspect;

	if (find(&o->b->records, o->n, c->path))
		return 0;
	if (c->base.mode && dir_restored_known(&o->b->restored, c->path, &c->base))
		return record(o->b, c->path, &c->base, false);
	suspect = c->base.mode ? changed_since(o->b, c->base.ctime_ns) : vanished(u, o, c);
	/* Names coming and going inside a directory that goes are judged one by one. */
	if (S_ISDIR(c->base.mode) && !o->b->strict)
		suspect = suspect && c->base.ctime_ns != c->base.mtime_ns;
	return record(o->b, c->path, &c->base, suspect);
}

static int save(struct atoll_participant *p, int area_fd, const struct overlay_base *b)
{
	char name[48], hash[HASH_TEXT_LEN];
	int r = manifest_write(&b->records, area_fd, "records.new", hash, &p->err);

	if (r < 0)
		return r;
	file_name(p, "records", name);
	r = fs_rename_over(area_fd, "records.new", name);
	return r < 0 ? error_sys(&p->err, r, "write the records in", p->area) : 0;
}

int overlay_base_observe(struct atoll_participant *p, int area_fd, const struct upper_compare *u,
                         const struct changeset *cs, struct overlay_base *b)
{
	struct observation o = { .b = b, .n = b->records.n_ops };
	int r = upper_merged(u, observe_dir, &o, &p->err);

	for (size_t i = 0; i < cs->n && r >= 0; i++)
		if (cs->v[i].op != CHANGE_ATTR)
			r = observe_change(u, &o, &cs->v[i]);
	overlay_hidden_done(&o.hidden);
	if (r < 0)
		return p->err.code ? r : error_sys(&p->err, r, "record the base of", p->root);
	if (b->records.n_ops == o.n)
		return 0;
	qsort(b->records.ops, b->records.n_ops, sizeof(*b->records.ops), by_path);
	return save(p, area_fd, b);
}

/* ---- after a batch that left work behind ---- */

static void saved_name(const struct atoll_participant *p, char out[64])
{
	char name[48];

	file_name(p, "records", name);
	(void)snprintf(out, 64, "%s.b%u", name, p->batch.number);
}

static bool in_batch(const struct dir_batch *b, const char *path)
{
	for (size_t k = 0; k < b->m.n_ops; k++)
		if ((!(b->m.ops[k].flags & MANIFEST_WORK) || b->m.ops[k].flags & MANIFEST_THEIRS) &&
		    (dir_is_attr(&b->m.ops[k]) && b->m.ops[k].flags & MANIFEST_THEIRS
		             ? strcmp(path, b->m.ops[k].path) == 0
		             : path_below(path, b->m.ops[k].path)))
			return true;
	for (size_t i = 0; i < b->m.n_dirs; i++)
		if (b->m.dirs[i].flags & MANIFEST_DIR_ATTR && strcmp(path, b->m.dirs[i].path) == 0)
			return true;
	return false;
}

/* What B's record says now of the paths that the batch has nothing to do with. */
static int keep_others(struct overlay_base *to, struct manifest *from, const struct dir_batch *b)
{
	int r = 0;

	for (size_t i = 0; i < from->n_ops && r >= 0; i++) {
		if (in_batch(b, from->ops[i].path))
			continue;
		r = manifest_add_op(&to->records, &from->ops[i]);
	}
	return r;
}

static int record_batch(struct overlay_base *to, const struct dir_batch *b,
                        const struct manifest *installed, const struct manifest *theirs, bool back)
{
	static const struct fs_stat none;
	int r = 0;

	for (size_t k = 0; k < b->m.n_ops && r >= 0; k++) {
		const struct manifest_op *o = &b->m.ops[k];
		const struct fs_stat *now = dir_installed_find(
			o->flags & MANIFEST_THEIRS ? theirs : installed, o->path);

		if (o->flags & MANIFEST_THEIRS && !back) {
			r = record(to, o->path, now ? now : &none, false);
			continue;
		}
		if (o->flags & MANIFEST_WORK)
			continue;
		/* Gone already: what was installed was changed by somebody at once. */
		if (!now)
			now = back || o->op == CHANGE_DELETE ? &none : &o->new_stat;
		r = record(to, o->path, now, false);
	}
	for (size_t i = 0; i < b->m.n_dirs && r >= 0; i++)
		if (b->m.dirs[i].flags & MANIFEST_DIR_ATTR)
			r = record(to, b->m.dirs[i].path,
			           back ? &b->m.dirs[i].old_stat : &b->m.dirs[i].new_stat, false);
	return r;
}

static int save_records(struct atoll_participant *p, int area_fd)
{
	char name[48], saved[64];
	int r;

	if (p->batch.redoing)
		return 0;
	file_name(p, "records", name);
	saved_name(p, saved);
	r = fs_link_at(area_fd, name, area_fd, saved);
	return r == -EEXIST || r == -ENOENT ? 0 : r;
}

static int rebase(struct atoll_participant *p, int area_fd, struct dir_batch *b,
                  const struct manifest *installed, bool back)
{
	struct overlay_base to = OVERLAY_BASE_INIT;
	struct manifest from = MANIFEST_INIT, theirs = MANIFEST_INIT;
	char name[48];
	int r;

	file_name(p, "records", name);
	r = manifest_read(area_fd, name, "", &from, &p->err);
	if (r == -ENOENT) {
		error_done(&p->err);
		r = 0;
	}
	if (r >= 0)
		r = keep_others(&to, &from, b);
	if (!back)
		dir_theirs_read(b, &theirs);
	if (r >= 0)
		r = record_batch(&to, b, installed, &theirs, back);
	if (r >= 0) {
		qsort(to.records.ops, to.records.n_ops, sizeof(*to.records.ops), by_path);
		r = save(p, area_fd, &to);
	}
	manifest_done(&from);
	overlay_base_done(&to);
	if (r >= 0)
		r = syncset_add(p->batch.sync, area_fd, name);
	if (r >= 0)
		r = syncset_add(p->batch.sync, area_fd, "");
	if (r < 0 && !p->err.code)
		r = error_sys(&p->err, r, "write the records in", p->area);
	if (r >= 0)
		r = dir_restored_add(p, b, installed, &theirs, back);
	manifest_done(&theirs);
	return r;
}

int overlay_base_rebase(struct atoll_participant *p, int area_fd, struct dir_batch *b,
                        const struct manifest *installed)
{
	int r = save_records(p, area_fd);

	return r < 0 ? error_sys(&p->err, r, "keep the records in", p->area)
	             : rebase(p, area_fd, b, installed, false);
}

int overlay_base_back(struct atoll_participant *p, int area_fd, struct dir_batch *b,
                      const struct manifest *now)
{
	return rebase(p, area_fd, b, now, true);
}

int overlay_base_revert(struct atoll_participant *p, int area_fd)
{
	char name[48], saved[64];
	int r;

	file_name(p, "records", name);
	saved_name(p, saved);
	(void)fs_unlink_at(area_fd, "records.new");
	r = fs_link_at(area_fd, saved, area_fd, "records.new");
	if (r >= 0)
		r = fs_rename_over(area_fd, "records.new", name);
	if (r >= 0)
		r = syncset_add(p->batch.sync, area_fd, "");
	return r < 0 && r != -ENOENT ? error_sys(&p->err, r, "put back the records in", p->area)
	                             : 0;
}

void overlay_base_settle(struct atoll_participant *p, int area_fd)
{
	char saved[64];

	saved_name(p, saved);
	(void)fs_unlink_at(area_fd, saved);
}

/* ---- judging ---- */

static int say(char **ret_why, const char *why)
{
	*ret_why = xstrdup(why);
	return 1;
}

struct late {
	const struct overlay_base *b;
	uint64_t entries; /* told */
	struct usage goes;
	char *path;
	bool is_dir; /* and so perhaps only holds what is meant */
};

static int late_entry(void *ctx, int dir_fd, const char *name, const char *path,
                      const struct fs_stat *st)
{
	struct late *l = ctx;
	struct fs_stat now;

	usage_add_entry(&l->goes, st);
	if ((!l->path || l->is_dir) && changed_since(l->b, st->ctime_ns) &&
	    !(fs_stat_at(dir_fd, name, FS_STAT_ID, &now) >= 0 &&
	      dir_restored_known(&l->b->restored, path, &now))) {
		free(l->path);
		l->path = escape_dup(path);
		l->is_dir = S_ISDIR(st->mode);
	}
	return 0;
}

static int count_entry(void *ctx, const char *path, enum atoll_change_kind kind, unsigned what,
                       const struct fs_stat *old_stat, const struct fs_stat *new_stat,
                       const char *link_target)
{
	struct late *l = ctx;

	(void)path;
	(void)kind;
	(void)what;
	(void)old_stat;
	(void)new_stat;
	(void)link_target;
	l->entries++;
	return 0;
}

/* Everything below a directory that goes; and it is counted and measured. */
static int late_below(struct atoll_participant *p, const struct upper_compare *u,
                      const struct overlay_base *b, struct change *c, char **ret_why)
{
	struct late l = { .b = b };
	int r = upper_expand_base(u, c, count_entry, late_entry, &l);

	if (r < 0) {
		free(l.path);
		return error_sys(&p->err, r, "look for changes below", c->path);
	}
	c->entries = l.entries;
	c->counted = true;
	c->goes = l.goes;
	if (!l.path)
		return 0;
	*ret_why = xasprintf("contains changes: %s", l.path);
	free(l.path);
	return 1;
}

static bool same_entry(const struct fs_stat *was, const struct fs_stat *now)
{
	if (!fs_id_equal(was->id, now->id))
		return false;
	return S_ISDIR(now->mode)
	               ? was->mode == now->mode && was->uid == now->uid && was->gid == now->gid
	               : was->ctime_ns == now->ctime_ns && was->size == now->size &&
	                         was->mtime_ns == now->mtime_ns;
}

/* Nothing, or what somebody did to it since its record. */
static const char *difference(const struct manifest_op *rec, const struct change *c)
{
	const struct fs_stat *was = &rec->old_stat, *now = &c->base;

	if (!was->mode)
		return now->mode || rec->flags & MANIFEST_SUSPECT
		               ? now->mode ? "created" : "deleted"
		               : NULL;
	if (!now->mode)
		return "deleted";
	if (rec->flags & MANIFEST_SUSPECT || !same_entry(was, now))
		return fs_id_equal(was->id, now->id) ? "changed" : "replaced";
	return NULL;
}

static int judge(struct atoll_participant *p, const struct upper_compare *u,
                 const struct overlay_base *b, const struct manifest_op *rec, struct change *c,
                 char **ret_why)
{
	const char *why = difference(rec, c);
	int r = 0;

	if (why && !(rec->flags & MANIFEST_SUSPECT) &&
	    dir_restored_known(&b->restored, c->path, &c->base))
		why = NULL;
	if (!why && c->op != CHANGE_ATTR && S_ISDIR(c->base.mode))
		r = late_below(p, u, b, c, ret_why);
	if (r != 0 || !why)
		return r;
	if (c->op == CHANGE_DELETE && !c->base.mode)
		return 2;
	if ((c->op == CHANGE_CREATE || c->op == CHANGE_REPLACE) && c->base.mode &&
	    tree_already(u->upper_fd, u->orig_fd, c))
		return 2;
	return say(ret_why, why);
}

int overlay_conflict(struct atoll_participant *p, const struct upper_compare *u,
                     const struct overlay_base *b, struct change *c, char **ret_why)
{
	const struct manifest_op *rec = find(&b->records, b->records.n_ops, c->path);

	if (!rec)
		return error_set(&p->err, -ATOLL_E_DAMAGED, "no record of the base of '%s'",
		                 c->path);
	return judge(p, u, b, rec, c, ret_why);
}

/* NULL: the directory of REC is the one it was. */
static const char *judge_dir(const struct manifest_op *rec, const struct fs_stat *now)
{
	if (rec->flags & MANIFEST_SUSPECT)
		return "replaced or changed";
	return fs_id_equal(rec->old_stat.id, now->id) ? NULL : "replaced";
}

/* The directory the reader is at, on the way to a change. One that is gone is a change itself. */
static void look_at_dir(const struct upper_compare *u, struct overlay_base *b)
{
	cleanup_close int fd = FD_NONE;
	const char *name, *why;
	struct fs_stat now;

	if (!*b->at->path || !S_ISDIR(b->at->old_stat.mode) ||
	    resolve_parent(u->orig_fd, b->at->path, &fd, &name) < 0 ||
	    fs_stat_at(fd, name, FS_STAT_ID, &now) < 0)
		return;
	why = judge_dir(b->at, &now);
	if (!why)
		return;
	strlist_add(&b->moved, b->at->path);
	strlist_add(&b->moved_why, why);
}

int overlay_base_conflict(struct atoll_participant *p, const struct upper_compare *u,
                          struct overlay_base *b, struct change *c, char **ret_why)
{
	int r = 0;

	while (r >= 0 && b->at && path_compare(b->at->path, c->path) < 0) {
		if (!b->at_is_judged && path_below(c->path, b->at->path))
			look_at_dir(u, b);
		r = next_record(p, b);
	}
	if (r < 0 || !b->at || strcmp(b->at->path, c->path) != 0)
		return r;
	b->at_is_judged = true;
	return judge(p, u, b, b->at, c, ret_why);
}

int overlay_conflict_dir(struct atoll_participant *p, const struct upper_compare *u,
                         const struct overlay_base *b, const struct change_dir *d, char **ret_why)
{
	const struct manifest_op *rec = find(&b->records, b->records.n_ops, d->path);
	const char *why;

	(void)u;
	if (!rec)
		return error_set(&p->err, -ATOLL_E_DAMAGED, "no record of the base of '%s'",
		                 d->path);
	why = judge_dir(rec, &d->base);
	return why ? say(ret_why, why) : 0;
}

/* ---- taking over what somebody else changed ---- */

struct refreshing {
	struct atoll_participant *p;
	const struct upper_compare *u;
	const struct changeset *cs;
	const struct overlay_base *was;
	struct overlay_base *to;
};

static int refresh_change(struct refreshing *f, struct change *c)
{
	const struct manifest_op *rec = find(&f->was->records, f->was->records.n_ops, c->path);
	cleanup_free char *why = NULL, *text = NULL;
	int r = c->op == CHANGE_ATTR ? 0 : overlay_conflict(f->p, f->u, f->was, c, &why);

	if (r < 0)
		return r;
	if (r != 1 || !rec)
		return record(f->to, c->path, &c->base, false);
	text = xasprintf("%s by somebody else", why);
	atoll_participant_note(f->p, ATOLL_NOTE_CONFLICT, c->path, text);
	return record(f->to, c->path, &rec->old_stat, true);
}

/* A merged directory: does a change of it, or what it holds, stand against what somebody did to it? */
static bool is_disputed(struct refreshing *f, const char *path, bool moved)
{
	for (size_t i = 0; i < f->cs->n; i++) {
		struct change *c = &f->cs->v[i];
		cleanup_free char *why = NULL;

		if (c->op != CHANGE_ATTR
		            ? moved && path_below(c->path, path)
		            : strcmp(c->path, path) == 0 &&
		                      overlay_conflict(f->p, f->u, f->was, c, &why) != 0)
			return true;
	}
	return false;
}

static int refresh_merged(void *ctx, const char *path, const struct fs_stat *base)
{
	struct refreshing *f = ctx;
	const struct manifest_op *rec = find(&f->was->records, f->was->records.n_ops, path);
	bool suspect = rec && rec->flags & MANIFEST_SUSPECT;

	if (!rec || !is_disputed(f, path, suspect || !fs_id_equal(rec->old_stat.id, base->id)))
		return record(f->to, path, base, false);
	atoll_participant_note(f->p, ATOLL_NOTE_CONFLICT, path,
	                       "replaced or changed by somebody else");
	return record(f->to, path, &rec->old_stat, suspect);
}

int overlay_base_refresh(struct atoll_participant *p, int area_fd, const struct upper_compare *u,
                         const struct changeset *cs, const struct overlay_base *b, int64_t t0_ns,
                         bool multigrain)
{
	cleanup_overlay_base struct overlay_base to = OVERLAY_BASE_INIT;
	cleanup_free char *text = stamp_text(t0_ns, multigrain);
	struct refreshing f = { .p = p, .u = u, .cs = cs, .was = b, .to = &to };
	char name[48];
	int r = upper_merged(u, refresh_merged, &f, &p->err);

	for (size_t i = 0; i < cs->n && r >= 0; i++)
		if (cs->v[i].op != CHANGE_ATTR)
			r = refresh_change(&f, &cs->v[i]);
	if (r < 0)
		return p->err.code ? r : error_sys(&p->err, r, "record the base of", p->root);
	if (to.records.n_ops)
		qsort(to.records.ops, to.records.n_ops, sizeof(*to.records.ops), by_path);
	/* The records first: with them an older T0 is only more careful. */
	r = save(p, area_fd, &to);
	crashpoint("overlay.refresh.recorded");
	file_name(p, "t", name);
	if (r >= 0)
		r = fs_replace_file(area_fd, name, text, strlen(text), 0600);
	return r < 0 && !p->err.code ? error_sys(&p->err, r, "stamp", p->area) : r;
}
