/* SPDX-License-Identifier: Apache-2.0 */
/* The directory participant: opening a batch, and what its steps share. See dir.h. */
#include "strategy/dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "diff/git-program.h"
#include "fs/atomic.h"
#include "fs/remove.h"
#include "fs/resolve.h"
#include "util/cleanup.h"
#include "util/limits.h"
#include "util/mem.h"

static void batch_free(void *state)
{
	struct dir_batch *b = state;

	close_fd(&b->root_fd);
	close_fd(&b->area_fd);
	close_fd(&b->batch_fd);
	close_fd(&b->work_fd);
	close_fd(&b->parent_fd);
	free(b->parent_path);
	free(b->noted_parent);
	free(b->foreign_dirs);
	free(b->keep);
	for (size_t i = 0; i < b->n_copied; i++)
		free(b->copied[i].path);
	free(b->copied);
	strlist_done(&b->databases);
	manifest_done(&b->m);
	manifest_done(&b->found[DIR_FOUND_NEW]);
	manifest_done(&b->found[DIR_FOUND_OLD]);
	free(b);
}

static int open_dir(const char *path, int *ret_fd)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 && errno == EACCES)
		fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

int dir_open_area(const struct atoll_participant *p)
{
	int fd = FD_NONE;

	return open_dir(p->area, &fd) < 0 ? FD_NONE : fd;
}

#define BATCH_LEN 24

static void batch_name(const struct atoll_participant *p, char out[BATCH_LEN])
{
	(void)snprintf(out, BATCH_LEN, "b%u", p->batch.number);
}

static int batch_dirs(struct atoll_participant *p, struct dir_batch *b, bool make)
{
	char name[BATCH_LEN];
	int r;

	batch_name(p, name);
	if (make) {
		r = fs_mkdir_at(b->area_fd, name, 0700);
		if (r < 0 && r != -EEXIST)
			return error_sys(&p->err, r, "make directory", p->area);
	}
	b->batch_fd = openat(b->area_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (b->batch_fd < 0 && errno == ENOENT)
		return -ENOENT;
	if (b->batch_fd < 0)
		return error_sys(&p->err, -errno, "open", p->area);
	return 0;
}

int dir_batch_open(struct atoll_participant *p, const char *work, bool make, struct dir_batch **ret)
{
	struct dir_batch *b = xcalloc(1, sizeof(*b));
	int r;

	b->root_fd = b->area_fd = b->batch_fd = b->work_fd = b->parent_fd = FD_NONE;
	r = open_dir(p->root, &b->root_fd);
	if (r < 0)
		r = error_sys(&p->err, r, "open", p->root);
	if (r >= 0) {
		r = open_dir(p->area, &b->area_fd);
		if (r < 0 && r != -ENOENT)
			r = error_sys(&p->err, r, "open", p->area);
	}
	if (r >= 0)
		r = batch_dirs(p, b, make);
	if (r >= 0 && work) {
		r = open_dir(work, &b->work_fd);
		r = r == -ENOENT ? 0 : r < 0 ? error_sys(&p->err, r, "open", work) : 0;
	}
	if (r < 0) {
		batch_free(b);
		return r;
	}
	if (make && p->batch.sync)
		syncset_spill_to(p->batch.sync, b->area_fd);
	if (p->state && p->state_free)
		p->state_free(p->state);
	p->state = b;
	p->state_free = batch_free;
	*ret = b;
	return 0;
}

int dir_batch_load(struct atoll_participant *p, const char *work, struct dir_batch **ret)
{
	struct dir_batch *b = p->state;
	int r;

	if (b && b->loaded) {
		*ret = b;
		return 0;
	}
	r = dir_batch_open(p, work, false, &b);
	if (r < 0)
		return r;
	r = manifest_read(b->batch_fd, MANIFEST_NAME, p->manifest, &b->m, &p->err);
	if (r < 0)
		return r;
	r = dir_found_read(p, b);
	if (r < 0)
		return r;
	b->loaded = true;
	*ret = b;
	return 0;
}

int dir_remove_batch(struct atoll_participant *p, struct dir_batch *b)
{
	char name[BATCH_LEN];
	int r;

	batch_name(p, name);
	usage_forget(b->area_fd, name);
	r = remove_tree_at(b->area_fd, name);
	return r < 0 ? error_sys(&p->err, r, "remove", p->area) : 0;
}

/* The paths of a batch, whole and sorted. */
static int list_paths(const struct dir_place *at, struct manifest *ret)
{
	cleanup_free char *name = xasprintf("%s/b%u", at->area, at->number);
	cleanup_close int fd = open(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct manifest m = MANIFEST_INIT;
	int r = fd < 0 ? -errno : manifest_read(fd, MANIFEST_NAME, "", &m, NULL);

	for (size_t k = 0; r >= 0 && k < m.ops.n; k++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;
		struct manifest_op whole;

		r = manifest_get(&m, k, &o);
		if (r < 0 || o.flags & MANIFEST_WORK)
			continue;
		whole = o;
		/* Paths below "/" are relative, as in any manifest. */
		whole.path = xasprintf("%s/%s", at->root + (*at->root == '/'), o.path);
		r = manifest_add_op(ret, &whole);
	}
	manifest_done(&m);
	return r < 0 ? r : manifest_sort(ret);
}

bool dir_batches_meet(const struct dir_place *a, const struct dir_place *b)
{
	struct manifest of_a = MANIFEST_INIT, of_b = MANIFEST_INIT;
	int r = list_paths(a, &of_a);
	bool meet = false;

	if (r >= 0)
		r = list_paths(b, &of_b);
	for (size_t k = 0; r >= 0 && !meet && k < of_a.ops.n; k++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;
		cleanup_manifest_op struct manifest_op next = MANIFEST_OP_INIT;
		struct manifest_op above;
		size_t i = 0;

		r = manifest_get(&of_a, k, &o);
		if (r >= 0)
			r = manifest_find_above(&of_b, o.path, &above);
		meet = r > 0;
		if (r == 0)
			r = manifest_from(&of_b, o.path, &i);
		if (r < 0 || meet || i == of_b.ops.n)
			continue;
		r = manifest_get(&of_b, i, &next);
		meet = r >= 0 && path_below(next.path, o.path);
	}
	manifest_done(&of_a);
	manifest_done(&of_b);
	return meet;
}

void dir_note_size(struct atoll_participant *p, struct dir_batch *b)
{
	static const char *const records[] = { "",       MANIFEST_NAME, DIR_INSTALLED,
		                               DIR_WORK, DIR_THEIRS,    DIR_USED };
	struct usage u = b->goes;
	char name[BATCH_LEN];

	batch_name(p, name);
	for (size_t i = 0; i < sizeof(records) / sizeof(records[0]); i++) {
		struct fs_stat st;

		if (fs_stat_at(b->batch_fd, records[i], 0, &st) >= 0)
			usage_add_entry(&u, &st);
	}
	(void)usage_note(b->area_fd, name, &u); /* a figure that nobody relies on */
}

int dir_op(struct atoll_participant *p, const struct dir_batch *b, size_t k,
           struct manifest_op *ret)
{
	int r = manifest_get(&b->m, k, ret);

	if (r >= 0)
		r = dir_found_apply(b, ret);
	return r < 0 ? error_sys(&p->err, r, "read again the manifest in", p->area) : 0;
}

void dir_slot_name(size_t k, char out[DIR_SLOT_LEN])
{
	(void)snprintf(out, DIR_SLOT_LEN, "s%zu", k);
}

int dir_parent(struct dir_batch *b, int root_fd, const char *path, int *ret_fd,
               const char **ret_name)
{
	const char *slash = strrchr(path, '/');
	size_t len = slash ? (size_t)(slash - path) : 0;

	/* Only the resource's parents are remembered: neighbours in a manifest share them. */
	if (root_fd == b->root_fd && b->parent_fd != FD_NONE && strlen(b->parent_path) == len &&
	    memcmp(b->parent_path, path, len) == 0) {
		*ret_fd = b->parent_fd;
		*ret_name = slash ? slash + 1 : path;
		return 0;
	}
	close_fd(&b->parent_fd);
	free(b->parent_path);
	b->parent_path = NULL;
	b->parent_asked = false;
	int r = resolve_parent(root_fd, path, &b->parent_fd, ret_name);
	if (r < 0) {
		b->parent_fd = FD_NONE;
		return r;
	}
	/* Another root's parent must not be taken for the resource's. */
	b->parent_path = root_fd == b->root_fd ? xstrndup(path, len) : xstrdup("/");
	*ret_fd = b->parent_fd;
	return 0;
}

int dir_open_up(int dir_fd, const char *name, struct fs_stat *ret_before)
{
	int r = fs_stat_at(dir_fd, name, 0, ret_before);

	if (r < 0 || geteuid() == 0 || !S_ISDIR(ret_before->mode) ||
	    (ret_before->mode & 0300) == 0300)
		return r;
	return fs_set_mode(dir_fd, *name ? name : "", (ret_before->mode & 07777) | 0300);
}

#define KEPT_OF_ONE 1000u /* entries of one path, under conflicts/ */

int dir_late_write(struct dir_batch *b, size_t k, const struct manifest_op *o)
{
	struct fs_stat st;
	char slot[DIR_SLOT_LEN];
	int r;

	if (!o->old_stat.mode || S_ISDIR(o->old_stat.mode))
		return 0;
	dir_slot_name(k, slot);
	r = fs_stat_at(b->batch_fd, slot, FS_STAT_ID, &st);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	return fs_id_equal(st.id, o->old_stat.id) &&
	       (st.mtime_ns != o->old_stat.mtime_ns || st.size != o->old_stat.size);
}

int dir_keep_conflict(struct atoll_participant *p, struct dir_batch *b, size_t k,
                      const struct manifest_op *o, const char *why)
{
	cleanup_close int fd = FD_NONE;
	cleanup_free char *where = NULL;
	char slot[DIR_SLOT_LEN], name[48];
	int r = fs_private_dir_at(b->area_fd, DIR_CONFLICTS, &fd);

	if (r < 0)
		return error_sys(&p->err, r, "make directory", p->area);
	dir_slot_name(k, slot);
	(void)snprintf(name, sizeof(name), "b%u-%zu", p->batch.number, k);
	r = fs_move(b->batch_fd, slot, fd, name);
	for (unsigned n = 1; r == -EEXIST && n < KEPT_OF_ONE; n++) {
		(void)snprintf(name, sizeof(name), "b%u-%zu.%u", p->batch.number, k, n);
		r = fs_move(b->batch_fd, slot, fd, name);
	}
	if (r < 0 && r != -ENOENT)
		return error_sys(&p->err, r, "keep", o->path);
	where = xasprintf("%s; kept at %s/%s/%s", why, p->area, DIR_CONFLICTS, name);
	atoll_participant_note(p, ATOLL_NOTE_KEPT, o->path, where);
	return 0;
}

static int sync_parent(struct atoll_participant *p, struct dir_batch *b, const char *parent)
{
	int r = syncset_add(p->batch.sync, b->root_fd, parent);

	if (r >= 0 && b->work_fd != FD_NONE)
		r = syncset_add(p->batch.sync, b->work_fd, parent);
	return r;
}

/* What was taken off must not come back with a power cut. */
static int sync_stripped(struct atoll_participant *p, struct dir_batch *b,
                         const struct manifest_op *o)
{
	int r = 0;

	if (o->flags & MANIFEST_STRIP)
		r = syncset_add_tree(p->batch.sync, b->root_fd, o->path);
	return r == -ENOENT || r == -ENOTDIR || r == -ELOOP ? 0 : r;
}

int dir_sync_parents(struct atoll_participant *p, struct dir_batch *b)
{
	cleanup_free char *last = NULL; /* parent */
	int r = 0;

	if (!p->batch.sync)
		return 0;
	for (size_t i = 0; i < b->m.ops.n && r >= 0; i++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;
		const char *slash;
		size_t len;

		r = dir_op(p, b, i, &o);
		if (r < 0)
			return r;
		r = sync_stripped(p, b, &o);
		slash = strrchr(o.path, '/');
		len = slash ? (size_t)(slash - o.path) : 0;
		/* Sorted: neighbours mostly share their parent. */
		if (r < 0 || (last && strlen(last) == len && memcmp(last, o.path, len) == 0))
			continue;
		free(last);
		last = xstrndup(o.path, len);
		r = sync_parent(p, b, last);
	}
	for (size_t i = 0; i < b->m.n_dirs && r >= 0; i++)
		r = syncset_add(p->batch.sync, b->root_fd, b->m.dirs[i].path);
	if (r >= 0)
		r = syncset_add(p->batch.sync, b->batch_fd, "");
	return r < 0 ? error_sys(&p->err, r, "note for the barrier", p->root) : 0;
}

int dir_report(void *ctx, const char *path, enum atoll_change_kind kind, unsigned what,
               const struct fs_stat *old_stat, const struct fs_stat *new_stat,
               const char *link_target)
{
	struct atoll_participant *p = ctx;
	struct atoll_change c = {
		.path = path,
		.kind = kind,
		.what = what,
		.old_mode = old_stat ? old_stat->mode : 0,
		.new_mode = new_stat ? new_stat->mode : 0,
		.old_size = old_stat ? old_stat->size : 0,
		.new_size = new_stat ? new_stat->size : 0,
		.text = link_target,
		.old_uid = old_stat ? old_stat->uid : 0,
		.new_uid = new_stat ? new_stat->uid : 0,
		.old_gid = old_stat ? old_stat->gid : 0,
		.new_gid = new_stat ? new_stat->gid : 0,
		.old_links = old_stat ? old_stat->nlink : 0,
		.new_links = new_stat ? new_stat->nlink : 0,
		.conflict = what & ATOLL_CHANGE_CONFLICT ? p->conflict : NULL,
	};

	/* A commit puts another inode at this name only. */
	if (kind == ATOLL_CHANGE_CHANGED && !S_ISDIR(c.old_mode) && c.new_links < c.old_links)
		c.what |= ATOLL_CHANGE_HARD_LINK;
	if (p->sides && dir_is_database(p->sides, path, old_stat))
		c.what |= ATOLL_CHANGE_DATABASE;
	if (git_programs_has(&p->programs, path))
		c.what |= ATOLL_CHANGE_GIT_PROGRAM;
	return atoll_participant_change(p, &c);
}

int dir_report_moved(struct atoll_participant *p, const char *path, const struct fs_stat *now,
                     const char *why)
{
	int r;

	p->conflict = why;
	r = dir_report(p, path, ATOLL_CHANGE_CHANGED, ATOLL_CHANGE_CONFLICT, now, now, NULL);
	p->conflict = NULL;
	return r;
}

int dir_conflicts(struct atoll_participant *p, size_t conflicts)
{
	if (!conflicts)
		return 0;
	(void)error_set(&p->err, -ATOLL_E_CONFLICT,
	                "%zu entr%s changed outside the plan since it was started", conflicts,
	                conflicts == 1 ? "y was" : "ies were");
	error_hint(&p->err,
	           "atoll diff %s --conflicts shows them; atoll commit %s --ours PATH takes the "
	           "plan's version, --theirs PATH what is there now; atoll refresh %s merges "
	           "the non-conflicting changes",
	           p->plan, p->plan, p->plan);
	return -ATOLL_E_CONFLICT;
}

/* 1 or 0: those below a directory follow it. */
static int changes_below(const struct changeset *cs, const char *dir)
{
	cleanup_change struct change c = CHANGE_INIT;
	size_t i;
	int r = changeset_from(cs, dir, &i);

	if (r < 0 || i == cs->v.n)
		return r;
	r = changeset_get(&cs->v, i, &c);
	return r < 0 ? r : path_below(c.path, dir);
}

int dir_unreadable(struct atoll_participant *p, int r)
{
	return error_sys(&p->err, r, "read again the changes of", p->root);
}

/* ---- conflicts and their ways out ---- */

static void note_conflict(struct atoll_participant *p, const struct change *c, const char *why)
{
	static const char *const ours[] = { [CHANGE_CREATE] = "created",
		                            [CHANGE_REPLACE] = "changed",
		                            [CHANGE_DELETE] = "deleted",
		                            [CHANGE_ATTR] = "its attributes changed" };
	/* A reason that names a path is a sentence of its own. */
	cleanup_free char *text =
		xasprintf("%s%s, %s in the plan", why, strchr(why, ':') ? "" : " by somebody else",
	                  ours[c->op]);

	atoll_participant_note(p, ATOLL_NOTE_CONFLICT, c->path, text);
}

static void note_dir_conflict(struct atoll_participant *p, const char *dir, const char *why)
{
	cleanup_free char *text = xasprintf("%s by somebody else, the plan has changes in it", why);

	atoll_participant_note(p, ATOLL_NOTE_CONFLICT, dir, text);
}

static int look_now(int root_fd, const char *path, struct fs_stat *ret)
{
	cleanup_close int fd = FD_NONE;
	const char *name = "";
	int r = *path ? resolve_parent(root_fd, path, &fd, &name) : 0;

	*ret = (struct fs_stat){ 0 };
	if (r < 0)
		return r;
	r = fs_stat_at(*path ? fd : root_fd, name, FS_STAT_ID, ret);
	return r == -ENOENT ? 0 : r;
}

/* The plan's version it is: from now on what is there is what the change was made on. 1: it cannot
 * be, there is no place for it any more. */
static int take_ours(struct atoll_participant *p, int root_fd, struct change *c)
{
	struct fs_stat now;
	int r = look_now(root_fd, c->path, &now);

	if (r == -ENOENT || r == -ENOTDIR || r == -ELOOP ||
	    (r >= 0 && c->op == CHANGE_ATTR && !S_ISDIR(now.mode)))
		return 1;
	if (r < 0)
		return error_sys(&p->err, r, "look at", c->path);
	if (c->op == CHANGE_CREATE && now.mode)
		c->op = CHANGE_REPLACE;
	else if (c->op == CHANGE_REPLACE && !now.mode)
		c->op = CHANGE_CREATE;
	c->base = now;
	c->base_flags = 0;
	c->counted = c->counted && !change_is_tree(c);
	c->goes = (struct usage){ 0 };
	c->settled = true;
	return 0;
}

static int take_theirs(struct atoll_participant *p, int root_fd, struct changeset *cs,
                       struct change *c)
{
	int r = look_now(root_fd, c->path, &c->base);

	if (r < 0 && r != -ENOENT && r != -ENOTDIR && r != -ELOOP)
		return error_sys(&p->err, r, "look at", c->path);
	r = changeset_give_up(cs, c);
	return r < 0 ? error_set(&p->err, r, "change set too big for memory") : 0;
}

struct weeding {
	struct atoll_participant *p;
	struct changeset *cs;
	int root_fd;
	size_t conflicts;
	struct strlist used; /* paths by which something was settled */
};

enum dir_side dir_side_of(const struct atoll_participant *p, const char *path, struct strlist *used)
{
	const struct selection *s = p->batch.select;
	const char *ours = s ? selection_cover(&s->ours, path) : NULL;
	const char *theirs = s ? selection_cover(&s->theirs, path) : NULL;
	bool is_theirs = theirs && (!ours || strlen(theirs) > strlen(ours));
	const char *name = is_theirs ? theirs : ours;

	if (strlist_has(&p->merged, path)) /* what comes has both sides in it */
		return DIR_SIDE_OURS;
	if (!name)
		return p->batch.flags & ATOLL_KEEP_THEIRS ? DIR_SIDE_THEIRS : DIR_SIDE_NONE;
	if (!strlist_has(used, name))
		strlist_add(used, name);
	return is_theirs ? DIR_SIDE_THEIRS : DIR_SIDE_OURS;
}

static enum dir_side side_of(struct weeding *w, const char *path)
{
	return dir_side_of(w->p, path, &w->used);
}

/* A change that conflicts. 0: it stays in the set, 1: it was given up. */
static int settle(struct weeding *w, struct change *c, const char *why)
{
	enum dir_side side = side_of(w, c->path);
	int r = 1;

	if (side == DIR_SIDE_THEIRS) {
		r = take_theirs(w->p, w->root_fd, w->cs, c);
		return r < 0 ? r : 1;
	}
	if (side == DIR_SIDE_OURS)
		r = take_ours(w->p, w->root_fd, c);
	if (r <= 0)
		return r;
	if (w->conflicts++ >= LIMIT_CONFLICTS)
		return 0;
	if (side == DIR_SIDE_OURS)
		atoll_participant_note(w->p, ATOLL_NOTE_CONFLICT, c->path,
		                       "there is no place for the plan's version: make its "
		                       "directory again, then --ours");
	else
		note_conflict(w->p, c, why);
	return 0;
}

/* Gives up what was changed below DIR, where what is there now is to stay. */
static int give_up_below(struct weeding *w, const char *dir)
{
	struct changeset *cs = w->cs;
	size_t kept = 0;
	int r = 0;

	for (size_t i = 0; i < cs->v.n && r >= 0; i++) {
		cleanup_change struct change c = CHANGE_INIT;
		bool goes;

		r = changeset_get(&cs->v, i, &c);
		if (r < 0)
			return dir_unreadable(w->p, r);
		goes = path_below(c.path, dir) && side_of(w, c.path) == DIR_SIDE_THEIRS;
		if (goes)
			r = take_theirs(w->p, w->root_fd, cs, &c);
		else
			spool_move(&cs->v, i, kept++);
	}
	if (r >= 0)
		spool_cut(&cs->v, kept);
	return r;
}

/* The directories the changes lie in. Another one in the place of one in which nothing of ours is
 * left is in nobody's way; its times are not ours to set. */
static int weed_dirs(struct weeding *w, dir_judge_dir_fn judge_dir, void *ctx)
{
	struct changeset *cs = w->cs;
	size_t kept = 0;
	int r = 0;

	for (size_t i = 0; i < cs->n_dirs; i++) {
		cleanup_free char *why = NULL;
		const char *dir = cs->dirs[i].path;
		int holds = 1;
		bool hit;

		if (r >= 0)
			r = judge_dir(ctx, &cs->dirs[i], &why);
		hit = r == 1;
		if (hit && side_of(w, dir) == DIR_SIDE_THEIRS)
			r = give_up_below(w, dir);
		if (hit && r >= 0)
			holds = changes_below(cs, dir);
		if (holds < 0)
			r = dir_unreadable(w->p, holds);
		if (holds == 0) {
			free(cs->dirs[i].path);
			continue;
		}
		if (hit && r >= 0 && side_of(w, dir) == DIR_SIDE_NONE &&
		    w->conflicts++ < LIMIT_CONFLICTS)
			note_dir_conflict(w->p, dir, why);
		cs->dirs[kept++] = cs->dirs[i];
	}
	cs->n_dirs = kept;
	return r < 0 ? r : dir_conflicts(w->p, w->conflicts);
}

static void note_unused(struct atoll_participant *p, const struct strlist *given,
                        const struct strlist *used)
{
	for (size_t i = 0; i < given->n; i++)
		if (!strlist_has(used, given->v[i]))
			atoll_participant_note(p, ATOLL_NOTE_WARNING, given->v[i],
			                       "no conflict there");
}

void dir_note_unused(struct atoll_participant *p, const struct strlist *used)
{
	if (!p->batch.select)
		return;
	note_unused(p, &p->batch.select->ours, used);
	note_unused(p, &p->batch.select->theirs, used);
}

/* Judging a change may tell more of it: how much it is, or what its base is from now on. */
static int keep_change(struct changeset *cs, size_t i, size_t to, const struct change *was,
                       const struct change *c)
{
	spool_move(&cs->v, i, to);
	if (c->op == was->op && c->entries == was->entries && c->counted == was->counted &&
	    c->settled == was->settled && c->goes.entries == was->goes.entries &&
	    c->goes.bytes == was->goes.bytes && c->base_flags == was->base_flags &&
	    c->base.content.known == was->base.content.known)
		return 0;
	return changeset_set(&cs->v, to, c);
}

static int weed(struct weeding *w, dir_judge_fn judge, dir_judge_dir_fn judge_dir, void *ctx)
{
	struct changeset *cs = w->cs;
	size_t kept = 0;
	int r = 0;

	for (size_t i = 0; i < cs->v.n && r >= 0; i++) {
		cleanup_change struct change c = CHANGE_INIT;
		cleanup_free char *why = NULL;
		struct change was;
		int gone = 0;

		r = changeset_get(&cs->v, i, &c);
		if (r < 0)
			return dir_unreadable(w->p, r);
		was = c;
		r = judge(ctx, &c, &why);
		if (r == 1) {
			gone = settle(w, &c, why);
			r = gone < 0 ? gone : 0;
		}
		if (r < 0 || r == 2 || gone)
			continue;
		r = keep_change(cs, i, kept++, &was, &c);
		if (r < 0)
			(void)error_set(&w->p->err, r, "change set too big for memory");
	}
	if (r < 0)
		return r;
	spool_cut(&cs->v, kept);
	return weed_dirs(w, judge_dir, ctx);
}

int dir_weed(struct atoll_participant *p, struct changeset *cs, dir_judge_fn judge,
             dir_judge_dir_fn judge_dir, void *ctx)
{
	cleanup_close int root_fd = FD_NONE;
	struct weeding w = { .p = p, .cs = cs };
	int r = open_dir(p->root, &root_fd);

	w.root_fd = root_fd;
	r = r < 0 ? error_sys(&p->err, r, "open", p->root) : weed(&w, judge, judge_dir, ctx);
	if (r >= 0)
		dir_note_unused(p, &w.used);
	strlist_done(&w.used);
	return r;
}
