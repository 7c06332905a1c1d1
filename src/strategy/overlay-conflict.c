/* SPDX-License-Identifier: Apache-2.0 */
/* What somebody else did to the base of an overlay: judging it, and taking it over. See overlay-base.h. */
#include "strategy/overlay-base-impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "diff/live-database.h"
#include "fs/atomic.h"
#include "fs/content.h"
#include "fs/resolve.h"
#include "strategy/moves.h"
#include "util/cleanup.h"
#include "util/crashpoint.h"
#include "util/escape.h"
#include "util/mem.h"

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
	bool databases;
	char *path;
	bool is_dir; /* and so perhaps only holds what is meant */
};

static int late_entry(void *ctx, int dir_fd, const char *name, const char *path,
                      const struct fs_stat *st)
{
	struct late *l = ctx;
	struct fs_stat now;
	int r;

	usage_add_entry(&l->goes, st);
	l->databases |= live_database_may_be(name, st) && live_database_at(dir_fd, name, st);
	if ((l->path && !l->is_dir) || !overlay_base_changed_since(l->b, st->ctime_ns))
		return 0;
	r = fs_stat_at(dir_fd, name, FS_STAT_ID, &now);
	if (r < 0 && r != -ENOENT)
		return r; /* what cannot be looked at is no conflict, but a failure */
	if (r >= 0 && dir_restored_known(&l->b->restored, path, &now))
		return 0;
	free(l->path);
	l->path = escape_dup(path);
	l->is_dir = S_ISDIR(st->mode);
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
	c->databases = l.databases;
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

#define SUSPECTS (MANIFEST_SUSPECT | MANIFEST_SUSPECT_ATTR)

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
	if (rec->flags & (c->op == CHANGE_ATTR ? SUSPECTS : MANIFEST_SUSPECT) ||
	    !same_entry(was, now))
		return fs_id_equal(was->id, now->id) ? "changed" : "replaced";
	return NULL;
}

/* 1: somebody gave the directory of C, which stays, other extended attributes since its record. */
static int has_other_xattrs(const struct upper_compare *u, const struct manifest_op *rec,
                            const struct change *c)
{
	uint64_t xattrs = 0;
	int r;

	if (c->op != CHANGE_ATTR || !(c->what & ATOLL_CHANGE_XATTR) ||
	    !(rec->flags & MANIFEST_XATTRS))
		return 0;
	r = overlay_base_xattrs(u->orig_fd, c->path, &xattrs, NULL);
	return r < 0 ? r : xattrs != rec->new_stat.size;
}

static int judge(struct atoll_participant *p, const struct upper_compare *u,
                 const struct overlay_base *b, const struct manifest_op *rec, struct change *c,
                 char **ret_why)
{
	const char *why = difference(rec, c);
	int r = 0;

	if (why && !(rec->flags & SUSPECTS) &&
	    (dir_restored_known(&b->restored, c->path, &c->base) ||
	     moves_same_entry(p, &rec->old_stat, &c->base)))
		why = NULL;
	/* Of a suspect there is content only when it is the base's: a conflict that a refresh left. */
	if (why && c->op != CHANGE_ATTR &&
	    fs_content_same(u->orig_fd, c->path, &rec->old_stat, &c->base))
		why = NULL;
	if (!why && c->op != CHANGE_ATTR)
		c->base.content = rec->old_stat.content;
	if (!why)
		r = has_other_xattrs(u, rec, c);
	if (r < 0)
		return error_sys(&p->err, r, "read the attributes of", c->path);
	if (r > 0)
		return say(ret_why, "changed");
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

/* 1 with *ret, which has no path; 0: there is none. */
static int find_record(struct atoll_participant *p, const struct overlay_base *b, const char *path,
                       struct manifest_op *ret)
{
	int r = manifest_find(&b->records, b->records.ops.n, path, ret);

	return r < 0 ? error_sys(&p->err, r, "read the records in", p->area) : r;
}

int overlay_conflict(struct atoll_participant *p, const struct upper_compare *u,
                     const struct overlay_base *b, struct change *c, char **ret_why)
{
	struct manifest_op rec;
	int r = find_record(p, b, c->path, &rec);

	if (r == 0)
		r = error_set(&p->err, -ATOLL_E_DAMAGED, "no record of the base of '%s'", c->path);
	return r < 0 ? r : judge(p, u, b, &rec, c, ret_why);
}

/* NULL: the directory of REC is the one it was. */
static const char *judge_dir(const struct manifest_op *rec, const struct fs_stat *now)
{
	if (!rec->old_stat.mode)
		return "created";
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

	if (!*b->at->path || (b->at->old_stat.mode && !S_ISDIR(b->at->old_stat.mode)) ||
	    resolve_parent(u->orig_fd, b->at->path, &fd, &name) < 0 ||
	    fs_stat_at(fd, name, FS_STAT_ID, &now) < 0)
		return;
	why = S_ISDIR(now.mode) ? judge_dir(b->at, &now) : NULL;
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
		r = overlay_base_next_record(p, b);
	}
	if (r < 0 || !b->at || strcmp(b->at->path, c->path) != 0)
		return r;
	b->at_is_judged = true;
	return judge(p, u, b, b->at, c, ret_why);
}

int overlay_conflict_dir(struct atoll_participant *p, const struct upper_compare *u,
                         const struct overlay_base *b, const struct change_dir *d, char **ret_why)
{
	struct manifest_op rec;
	const char *why;
	int r = find_record(p, b, d->path, &rec);

	(void)u;
	if (r == 0)
		r = error_set(&p->err, -ATOLL_E_DAMAGED, "no record of the base of '%s'", d->path);
	if (r < 0)
		return r;
	why = judge_dir(&rec, &d->base);
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
	cleanup_free char *why = NULL, *text = NULL;
	struct manifest_op rec;
	int found = find_record(f->p, f->was, c->path, &rec), r = found;

	if (r >= 0)
		r = c->op == CHANGE_ATTR ? 0 : overlay_conflict(f->p, f->u, f->was, c, &why);
	if (r < 0)
		return r;
	if (r != 1 || !found) {
		if (!c->base.content.known)
			fs_content_take_below(f->u->orig_fd, c->path, &c->base);
		return overlay_base_record(f->to, c->path, &c->base, false);
	}
	text = xasprintf("%s by somebody else", why);
	atoll_participant_note(f->p, ATOLL_NOTE_CONFLICT, c->path, text);
	return overlay_base_record(f->to, c->path, &rec.old_stat, true);
}

/* A merged directory: does a change of it, or what it holds, stand against what somebody did to it? 1
 * or 0. */
static int is_disputed(struct refreshing *f, const char *path, bool moved)
{
	size_t i;
	int r = changeset_from(f->cs, path, &i);

	for (; r >= 0 && i < f->cs->v.n; i++) {
		cleanup_change struct change c = CHANGE_INIT;
		cleanup_free char *why = NULL;

		r = changeset_get(&f->cs->v, i, &c);
		if (r < 0 || !path_below(c.path, path))
			break;
		if (c.op != CHANGE_ATTR
		            ? moved
		            : strcmp(c.path, path) == 0 &&
		                      overlay_conflict(f->p, f->u, f->was, &c, &why) != 0)
			return 1;
		if (!moved)
			break; /* a change of it comes first */
	}
	return r;
}

static int refresh_merged(void *ctx, const char *path, const struct fs_stat *base)
{
	struct refreshing *f = ctx;
	struct manifest_op rec;
	int r = find_record(f->p, f->was, path, &rec);

	if (r > 0)
		r = is_disputed(f, path,
		                rec.flags & MANIFEST_SUSPECT ||
		                        !fs_id_equal(rec.old_stat.id, base->id));
	if (r == 0) {
		uint64_t xattrs = 0;
		struct fs_stat now;

		r = overlay_base_xattrs(f->u->orig_fd, path, &xattrs, &now);
		if (r < 0)
			return r;
		return overlay_base_record_dir(
			f->to, path, base,
			now.ctime_ns == base->ctime_ns ? 0 : MANIFEST_SUSPECT_ATTR, xattrs);
	}
	if (r < 0)
		return r;
	atoll_participant_note(f->p, ATOLL_NOTE_CONFLICT, path,
	                       "replaced or changed by somebody else");
	return overlay_base_record_dir(
		f->to, path, &rec.old_stat,
		(rec.flags & SUSPECTS) | (rec.flags & MANIFEST_XATTRS ? 0 : MANIFEST_SUSPECT_ATTR),
		rec.new_stat.size);
}

int overlay_base_refresh(struct atoll_participant *p, int area_fd, const struct upper_compare *u,
                         const struct changeset *cs, const struct overlay_base *b, int64_t t0_ns,
                         bool multigrain)
{
	cleanup_overlay_base struct overlay_base to = OVERLAY_BASE_INIT;
	cleanup_free char *text = overlay_base_stamp_text(t0_ns, multigrain);
	struct refreshing f = { .p = p, .u = u, .cs = cs, .was = b, .to = &to };
	char name[OVERLAY_BASE_NAME_LEN];
	int r;

	spool_spill_to(&to.records.ops, area_fd);
	r = upper_merged(u, refresh_merged, &f, &p->err);
	for (size_t i = 0; i < cs->v.n && r >= 0; i++) {
		cleanup_change struct change c = CHANGE_INIT;

		r = changeset_get(&cs->v, i, &c);
		if (r >= 0 && c.op != CHANGE_ATTR)
			r = refresh_change(&f, &c);
	}
	if (r < 0)
		return p->err.code ? r : error_sys(&p->err, r, "record the base of", p->root);
	/* The records first: with them an older T0 is only more careful. */
	r = overlay_base_save_whole(p, area_fd, &to);
	crashpoint("overlay.refresh.recorded");
	overlay_base_file_name(p, "t", name);
	if (r >= 0)
		r = fs_replace_file(area_fd, name, text, strlen(text), 0600);
	return r < 0 && !p->err.code ? error_sys(&p->err, r, "stamp", p->area) : r;
}
