/* SPDX-License-Identifier: Apache-2.0 */
/* The directory participant, before the decision: policy, feasibility, staging, manifest. */
#include "strategy/dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "diff/live-database.h"
#include "fs/atomic.h"
#include "fs/mount.h"
#include "fs/remove.h"
#include "fs/resolve.h"
#include "fs/walk.h"
#include "util/cleanup.h"
#include "util/progress.h"
#include "util/clock.h"
#include "util/crashpoint.h"
#include "util/limits.h"
#include "util/mem.h"

/* ---- policy on what leaves a workspace ---- */

struct policy {
	struct atoll_participant *p;
	uint64_t entries; /* what diff lists */
	bool counts;
	const char *refused; /* the first path refused, owned */
	size_t row;          /* of policies, by which */
	struct dir_sides sides;
	struct strlist *databases; /* found, however they are judged */
};

static const struct {
	unsigned bit;
	enum atoll_note_kind note;
	unsigned allow; /* flag that lets it pass, 0: passes anyway */
	unsigned deny;  /* flag that refuses it */
	bool refuse;    /* refused unless allowed */
	const char *text;
	const char *option;  /* what to type to have it */
	const char *instead; /* what else can be done; NULL: remove it from the plan */
} policies[] = {
	{ ATOLL_CHANGE_SPECIAL, ATOLL_NOTE_SPECIAL, ATOLL_ALLOW_SPECIAL, 0, true,
	  "a device, socket or FIFO made in the workspace", "--allow special", NULL },
	{ ATOLL_CHANGE_SETUID, ATOLL_NOTE_SETUID, ATOLL_ALLOW_SETUID, 0, false,
	  "set-id bits or capabilities taken off", "--allow setuid", NULL },
	{ ATOLL_CHANGE_ESCAPING_LINK, ATOLL_NOTE_ESCAPING_LINK, 0, ATOLL_DENY_ESCAPING_LINKS, false,
	  "a new link that leaves the tree", "without --deny escaping-links", NULL },
	{ ATOLL_CHANGE_GIT_PROGRAM, ATOLL_NOTE_GIT_PROGRAM, ATOLL_ALLOW_GIT_PROGRAMS, 0, true,
	  "a hook or setting by which git, hg or jj would run a program outside the plan",
	  "--allow git-programs", NULL },
	{ ATOLL_CHANGE_DATABASE, ATOLL_NOTE_OPEN_DATABASE, ATOLL_ALLOW_OPEN_DATABASE, 0, true,
	  "an SQLite database that a process has open", "--allow open-database",
	  "end what has it open first; a plan that is given it with --sqlite commits its rows" },
};
#define POLICY_BITS (ATOLL_CHANGE_SPECIAL | ATOLL_CHANGE_SETUID | ATOLL_CHANGE_ESCAPING_LINK)

static void judge_bits(struct policy *pol, const char *path, unsigned what)
{
	unsigned flags = pol->p->batch.flags;

	for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
		if (!(what & policies[i].bit) || (policies[i].allow && (flags & policies[i].allow)))
			continue;
		atoll_participant_note(pol->p, policies[i].note, path, policies[i].text);
		if (pol->refused || !(policies[i].refuse || (flags & policies[i].deny)))
			continue;
		pol->refused = xstrdup(path);
		pol->row = i;
	}
}

/* Once for each database, whichever part of it changed. */
static void judge_database(struct policy *pol, const char *path, const struct fs_stat *old)
{
	cleanup_free char *database = NULL;

	if (pol->p->batch.flags & ATOLL_ALLOW_OPEN_DATABASE ||
	    !dir_is_database(&pol->sides, path, old))
		return;
	database = xstrndup(path, live_database_stem(path));
	if (strlist_has(pol->databases, database))
		return;
	strlist_add(pol->databases, database);
	if (live_database_is_open(pol->sides.root_fd[ATOLL_SIDE_OLD], database))
		judge_bits(pol, database, ATOLL_CHANGE_DATABASE);
}

static int judge_entry(void *ctx, const char *path, enum atoll_change_kind kind, unsigned what,
                       const struct fs_stat *old_stat, const struct fs_stat *new_stat,
                       const char *link_target)
{
	struct policy *pol = ctx;
	const struct fs_stat *st = new_stat ? new_stat : old_stat;

	(void)kind;
	(void)link_target;
	if (!atoll_participant_selected(pol->p, path, st && S_ISDIR(st->mode)))
		return 0;
	pol->entries += pol->counts;
	judge_bits(pol, path, what);
	judge_database(pol, path, old_stat);
	return 0;
}

static int judge_dropped(void *ctx, int dir_fd, const char *name, const char *path,
                         unsigned char type)
{
	struct policy *pol = ctx;
	struct fs_stat st;

	if (type == DT_DIR)
		return faccessat(dir_fd, name, R_OK | X_OK, AT_EACCESS) < 0 ? WALK_SKIP : 0;
	if (type == DT_REG && fs_stat_at(dir_fd, name, 0, &st) == 0)
		judge_database(pol, path, &st);
	return 0;
}

/* With a directory that goes, or is another now, every original below it goes, changed or not. It was read
 * when conflicts were looked for, unless they were settled. */
static int judge_tree(struct policy *pol, const struct change *c)
{
	bool drops = S_ISDIR(c->base.mode) && (c->op == CHANGE_DELETE || c->op == CHANGE_REPLACE);
	int r;

	if (!drops || (c->goes.entries && !c->databases) ||
	    pol->p->batch.flags & ATOLL_ALLOW_OPEN_DATABASE)
		return 0;
	r = walk_tree(pol->sides.root_fd[ATOLL_SIDE_OLD], c->path, judge_dropped, NULL, pol);
	return r < 0 && r != -ENOENT ? error_sys(&pol->p->err, r, "look below", c->path) : 0;
}

static int judge_change(struct policy *pol, const struct dir_source *source, const struct change *c)
{
	int r;

	if (c->base_flags & BASE_UNREADABLE && c->op != CHANGE_CREATE)
		return error_set(&pol->p->err, -ATOLL_E_POLICY,
		                 "'%s' could not be read when the sandbox was made, so a change of "
		                 "it cannot be judged",
		                 c->path);
	r = judge_tree(pol, c);
	if (r < 0)
		return r;
	pol->counts = !c->in_part; /* what comes of a part is known when it is staged */
	if (c->what & POLICY_BITS || (!c->counted && pol->counts))
		return source->expand(source->ctx, c, judge_entry, pol, &pol->p->err);
	judge_database(pol, c->path, c->base.mode ? &c->base : NULL);
	if (pol->counts)
		pol->entries += c->entries;
	return 0;
}

/* 0, or the error that names the first path refused. */
static int answer(struct policy *pol)
{
	struct atoll_participant *p = pol->p;
	const char *instead = policies[pol->row].instead;

	if (!pol->refused)
		return 0;
	(void)error_set(&p->err, -ATOLL_E_POLICY, "'%s' is %s", pol->refused,
	                policies[pol->row].text);
	if (instead)
		error_hint(&p->err, "%s; or atoll commit %s %s", instead, p->plan,
		           policies[pol->row].option);
	else
		error_hint(&p->err, "atoll commit %s %s, or remove it there (atoll shell %s)",
		           p->plan, policies[pol->row].option, p->plan);
	return -ATOLL_E_POLICY;
}

/* Every kind of change comes by here: of a directory, of a repository's files, what was pulled. */
static int judge_programs(struct policy *pol, int root_fd, const char *work,
                          const struct changeset *cs)
{
	struct atoll_participant *p = pol->p;
	cleanup_strlist struct strlist programs = STRLIST_INIT;
	cleanup_close int work_fd = FD_NONE;
	int r;

	if (p->batch.flags & ATOLL_ALLOW_GIT_PROGRAMS)
		return 0;
	work_fd = open(work, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (work_fd < 0)
		return error_sys(&p->err, -errno, "open", work);
	r = dir_programs(p, &(struct dir_roots){ .work_fd = work_fd, .orig_fd = root_fd }, cs,
	                 &programs);
	for (size_t i = 0; i < programs.n && r >= 0; i++)
		if (i == 0 || strcmp(programs.v[i], programs.v[i - 1]) != 0)
			judge_bits(pol, programs.v[i], ATOLL_CHANGE_GIT_PROGRAM);
	return r;
}

static int judge(struct atoll_participant *p, const char *work, const struct dir_source *source,
                 const struct changeset *cs, struct strlist *databases)
{
	cleanup_close int root_fd = open(p->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct policy pol = { .p = p, .databases = databases };
	int r = root_fd < 0 ? error_sys(&p->err, -errno, "open", p->root) : 0;

	if (r >= 0)
		r = judge_programs(&pol, root_fd, work, cs);

	dir_sides_init(&pol.sides, root_fd, FD_NONE);
	for (size_t i = 0; i < cs->v.n && r >= 0; i++) {
		cleanup_change struct change c = CHANGE_INIT;

		r = changeset_get(&cs->v, i, &c);
		r = r < 0 ? dir_unreadable(p, r) : judge_change(&pol, source, &c);
	}
	dir_sides_done(&pol.sides);
	p->changes = pol.entries;
	if (r >= 0)
		r = answer(&pol);
	free_const(pol.refused);
	return r;
}

/* ---- can it be done? ---- */

static int feasible_parent(struct atoll_participant *p, struct dir_batch *b,
                           const struct fs_stat *root, const char *path, const char **ret_name,
                           int *ret_fd)
{
	struct fs_stat st;
	int r = dir_parent(b, b->root_fd, path, ret_fd, ret_name);

	if (r < 0)
		return error_sys(&p->err, r, "open the directory of", path);
	r = fs_stat_at(*ret_fd, "", 0, &st);
	if (r < 0)
		return error_sys(&p->err, r, "look at the directory of", path);
	if (st.immutable)
		return error_sys(&p->err, -EPERM, "change an immutable directory, that of", path);
	if (st.mnt_id != root->mnt_id)
		return error_sys(&p->err, -EXDEV, "reach over a mount", path);
	if (st.dev != root->dev)
		return dir_reach_subvolume(p, b, path, root->dev);
	if (faccessat(*ret_fd, ".", W_OK | X_OK, AT_EACCESS) != 0 && st.uid != geteuid())
		return error_sys(&p->err, -EACCES, "write to the directory of", path);
	return 0;
}

static int feasible(struct atoll_participant *p, struct dir_batch *b, const struct change *c,
                    const struct fs_stat *root, struct fs_stat *ret_old)
{
	const char *name;
	int fd, r = feasible_parent(p, b, root, c->path, &name, &fd);

	*ret_old = (struct fs_stat){ 0 };
	if (r < 0 || c->op == CHANGE_CREATE)
		return r;
	r = fs_stat_at(fd, name, FS_STAT_ID, ret_old);
	if (r == -ENOENT) {
		atoll_participant_note(p, ATOLL_NOTE_CONFLICT, c->path, "deleted");
		return dir_conflicts(p, 1);
	}
	if (r < 0)
		return error_sys(&p->err, r, "look at", c->path);
	if (ret_old->immutable)
		return error_sys(&p->err, -EPERM, "replace, it is immutable or append-only,",
		                 c->path);
	if (ret_old->mount_root || ret_old->mnt_id != root->mnt_id)
		return error_sys(&p->err, -EBUSY, "replace a mount point", c->path);
	return 0;
}

/* Space that apply may need when directories must grow, and for RECORDS; let go when the disk is full then. */
static int make_ballast(struct atoll_participant *p, struct dir_batch *b, uint64_t records)
{
	cleanup_close int fd = FD_NONE;
	uint64_t size = (64u << 10) + 256u * (uint64_t)b->m.ops.n + records;
	struct fs_stat st;
	int r = fs_stat_at(b->area_fd, DIR_BALLAST, 0, &st);

	/* That of another batch: one that died, or of the same undo. */
	if (r >= 0 && st.size >= size)
		return 0;
	(void)fs_unlink_at(b->area_fd, DIR_BALLAST);
	r = fs_create_at(b->area_fd, DIR_BALLAST, 0600, &fd);
	if (r >= 0)
		r = fs_allocate(fd, size);
	if (r < 0) {
		(void)fs_unlink_at(b->area_fd, DIR_BALLAST);
		return error_sys(&p->err, r, "set space aside in", p->area);
	}
	return 0;
}

int dir_set_aside(struct atoll_participant *p, uint64_t room, int ready)
{
	struct dir_batch *b = p->state;
	struct fs_stat st = { 0 };
	int r;

	if (!b || b->batch_fd == FD_NONE)
		return ready;
	(void)fs_stat_at(b->batch_fd, DIR_INSTALLED, 0,
	                 &st); /* without it, nothing would be undone */
	r = make_ballast(p, b, room + 4 * st.size + dir_found_size(b));
	return r < 0 ? r : ready;
}

/* ---- staging and the manifest ---- */

static bool locked_dir(const struct fs_stat *st)
{
	return geteuid() != 0 && S_ISDIR(st->mode) && (st->mode & 0300) != 0300;
}

static bool is_opaque(struct dir_batch *b, const struct dir_source *source, const char *path)
{
	cleanup_close int fd = FD_NONE;
	const char *name;

	return resolve_parent(b->work_fd, path, &fd, &name) >= 0 &&
	       overlay_is_opaque(fd, name, source->marks) == 1;
}

/* What the slot will hold. A directory was read when conflicts were looked for, unless somebody else's
 * came in the place of one. */
static void measure(struct dir_batch *b, const struct change *c, const struct fs_stat *old)
{
	if (!old->mode)
		return;
	if (!S_ISDIR(old->mode)) {
		usage_add_entry(&b->goes, old);
	} else if (c->goes.entries) {
		b->goes.bytes += c->goes.bytes;
		b->goes.entries += c->goes.entries;
	} else {
		usage_add_tree(b->root_fd, c->path, &b->goes);
	}
}

/* Another version than the workspace's, made by a strategy that builds on ours. */
static int stage_merged(struct atoll_participant *p, struct dir_batch *b, struct manifest_op *o)
{
	int work_fd = b->work_fd, r;

	b->work_fd = p->merged_fd;
	r = dir_stage_copy(p, b, b->m.ops.n, false, o);
	b->work_fd = work_fd;
	return r;
}

static int add_op(struct atoll_participant *p, struct dir_batch *b, const struct change *c,
                  const struct fs_stat *root, const struct dir_source *source, bool copy)
{
	struct manifest_op o = { .op = c->op, .path = xstrdup(c->path), .new_stat = c->work };
	int r = feasible(p, b, c, root, &o.old_stat);

	/* What is judged is that the two are one entry. */
	o.old_stat.content = c->base.content;
	if (c->op == CHANGE_DELETE)
		o.new_stat = (struct fs_stat){ 0 };
	else
		o.flags = source->op_flags;
	if (o.flags & MANIFEST_MARKS && S_ISDIR(o.new_stat.mode) && is_opaque(b, source, c->path))
		o.flags |= MANIFEST_OPAQUE;
	if (r >= 0 && strlist_has(&p->merged, c->path))
		r = stage_merged(p, b, &o);
	else if (r >= 0 && c->op != CHANGE_DELETE)
		r = copy || c->in_part ? dir_stage_copy(p, b, b->m.ops.n, c->in_part, &o)
		                       : dir_stage_in_place(p, b, &o);
	if (r >= 0)
		r = dir_reach_project(p, b, (struct dir_kth){ &o, b->m.ops.n });
	if (c->what & ATOLL_CHANGE_SETUID && !(p->batch.flags & ATOLL_ALLOW_SETUID))
		o.flags |= MANIFEST_STRIP;
	if (locked_dir(&o.old_stat) || locked_dir(&o.new_stat))
		o.flags |= MANIFEST_TEMP;
	if (r < 0) {
		free(o.path);
		return r;
	}
	measure(b, c, &o.old_stat);
	r = manifest_add_op(&b->m, &o);
	return r < 0 ? error_set(&p->err, r, "change set too big for memory") : 0;
}

static int by_path(const void *a, const void *b)
{
	const struct manifest_dir *x = a, *y = b;

	return path_compare(x->path, y->path);
}

/* For a search: PATH beside a record's. */
static int compare_to_dir(const void *path, const void *dir)
{
	const struct manifest_dir *d = dir;

	return path_compare(path, d->path);
}

/* Directories come in order, twice: those whose time changed, then those with other attributes. */
struct dirs_so_far {
	size_t first;  /* how many the first time; sorted */
	bool no_order; /* those behind them are not, after all */
};

static struct manifest_dir *find_dir(const struct dir_batch *b, const struct dirs_so_far *so_far,
                                     const char *path)
{
	struct manifest_dir *v = b->m.dirs, *found = NULL;
	size_t n = b->m.n_dirs, first = so_far->first;

	if (first)
		found = bsearch(path, v, first, sizeof(*v), compare_to_dir);
	if (!found && n > first && !so_far->no_order)
		found = bsearch(path, v + first, n - first, sizeof(*v), compare_to_dir);
	for (size_t i = n; i-- > first && !found && so_far->no_order;)
		if (strcmp(v[i].path, path) == 0)
			found = &v[i];
	return found;
}

/* The record of directory PATH, made when missing. WORK: its state in the view. */
static struct manifest_dir *dir_record(struct atoll_participant *p, struct dir_batch *b,
                                       struct dirs_so_far *so_far, const char *path)
{
	struct manifest_dir d = { 0 }, *known = find_dir(b, so_far, path);
	cleanup_close int fd = FD_NONE;
	int r;

	if (known)
		return known;
	if (b->m.n_dirs > so_far->first && path_compare(b->m.dirs[b->m.n_dirs - 1].path, path) > 0)
		so_far->no_order = true;
	r = resolve_dir_path(b->root_fd, path, &fd);
	if (r >= 0)
		r = fs_stat_at(fd, "", FS_STAT_ID, &d.old_stat);
	if (r < 0) {
		(void)error_sys(&p->err, r, "look at", path);
		return NULL;
	}
	d.path = xstrdup(path);
	d.new_stat = d.old_stat;
	if (locked_dir(&d.old_stat))
		d.flags |= MANIFEST_DIR_TEMP;
	if (manifest_add_dir(&b->m, &d) < 0) {
		(void)error_set(&p->err, -ENOMEM, "change set too big for memory");
		return NULL;
	}
	return &b->m.dirs[b->m.n_dirs - 1];
}

static int add_attr(struct atoll_participant *p, struct dir_batch *b, struct dirs_so_far *so_far,
                    const struct change *c)
{
	struct manifest_dir *d = dir_record(p, b, so_far, c->path);
	cleanup_close int root = FD_NONE, work = FD_NONE;
	int r;

	if (!d)
		return p->err.code;
	if (d->old_stat.immutable)
		return error_sys(&p->err, -EPERM, "change the immutable directory", c->path);
	r = resolve_dir_path(b->root_fd, c->path, &root);
	if (r >= 0)
		r = resolve_dir_path(b->work_fd, c->path, &work);
	if (r >= 0)
		r = xattrs_read_at(root, "", &d->old_xattrs);
	if (r >= 0)
		r = xattrs_read_at(work, "", &d->new_xattrs);
	if (r < 0)
		return error_sys(&p->err, r, "read the attributes of", c->path);
	d->flags |= MANIFEST_DIR_ATTR;
	d->new_stat.mode = c->work.mode;
	if (c->what & ATOLL_CHANGE_OWNER) {
		d->new_stat.uid = c->work.uid;
		d->new_stat.gid = c->work.gid;
	}
	return 0;
}

static int add_dirs(struct atoll_participant *p, struct dir_batch *b, const struct changeset *cs)
{
	struct dirs_so_far so_far = { 0 };
	int r = 0;

	for (size_t i = 0; i < cs->n_dirs; i++) {
		struct manifest_dir *d = dir_record(p, b, &so_far, cs->dirs[i].path);

		if (!d)
			return p->err.code;
		d->flags |= MANIFEST_DIR_TIME;
		d->new_stat.mtime_ns = cs->dirs[i].work_mtime_ns;
	}
	if (b->m.n_dirs)
		qsort(b->m.dirs, b->m.n_dirs, sizeof(*b->m.dirs), by_path);
	so_far = (struct dirs_so_far){ .first = b->m.n_dirs };
	for (size_t i = 0; i < cs->v.n && r >= 0; i++) {
		cleanup_change struct change c = CHANGE_INIT;

		r = changeset_get(&cs->v, i, &c);
		if (r < 0)
			return dir_unreadable(p, r);
		if (c.op == CHANGE_ATTR)
			r = add_attr(p, b, &so_far, &c);
	}
	if (b->m.n_dirs)
		qsort(b->m.dirs, b->m.n_dirs, sizeof(*b->m.dirs), by_path);
	return r;
}

static int build(struct atoll_participant *p, struct dir_batch *b, const struct dir_source *source,
                 const struct changeset *cs)
{
	struct mount_info work, area, root;
	struct dir_links links = { 0 };
	struct fs_stat root_st;
	bool stays = source->stays && p->rest;
	uint64_t records;
	int r = mount_info(b->work_fd, &work);

	progress_phase("preparing", 0);
	if (r >= 0)
		r = mount_info(b->area_fd, &area);
	if (r >= 0)
		r = mount_info(b->root_fd, &root);
	if (r >= 0)
		r = fs_stat_at(b->root_fd, "", 0, &root_st);
	if (r < 0)
		return error_sys(&p->err, r, "look at", p->root);
	if (root.read_only)
		return error_sys(&p->err, -EROFS, "write to", p->root);
	if (!mount_same(&area, &root))
		return error_set(&p->err, -ATOLL_E_UNSUPPORTED,
		                 "'%s' is not on the mount of '%s' any more", p->area, p->root);

	b->work_apart = !mount_same(&work, &area);
	r = dir_links_count(b, cs, &links);
	/* Once it is decided, it must be possible to write that down. */
	records = links.record;
	if (p->rest) /* a base: sorted in one file, written to another, and how entries look since */
		records += source->room + 4 * links.record;
	if (r >= 0 && MANIFEST_HEADER_SIZE + links.record > manifest_limit()) {
		dir_links_done(&links);
		return error_sys(&p->err, -EFBIG, "list all that would be new in", p->root);
	}
	for (size_t i = 0; i < cs->v.n && r >= 0; i++) {
		cleanup_change struct change c = CHANGE_INIT;
		bool copy = false;

		r = changeset_get(&cs->v, i, &c);
		if (r < 0 || c.op == CHANGE_ATTR)
			continue;
		r = dir_links_leave(b, &c, &links, &copy);
		if (copy && p->rest)
			atoll_participant_note(p, ATOLL_NOTE_WARNING, c.path,
			                       "has other names that are left out, so it is "
			                       "committed as a file of its own");
		if (r >= 0)
			r = add_op(p, b, &c, &root_st, source, copy || stays || b->work_apart);
		if (r >= 0)
			r = progress_check();
	}
	dir_links_done(&links);
	if (r < 0 && progress_check() < 0 && !p->err.code)
		return error_set(&p->err, r, "interrupted");
	if (r < 0 && !p->err.code)
		return error_sys(&p->err, r, "look for hard links in", p->work);
	if (r >= 0 && p->rest && !source->stays)
		r = dir_stage_consumed(p, b, cs);
	if (r >= 0)
		r = dir_stage_theirs(p, b, cs);
	if (r >= 0)
		r = add_dirs(p, b, cs);
	if (r >= 0)
		r = make_ballast(p, b, records);
	return r;
}

/* A directory that holds another sandbox's root may not go with it: that one's originals would. */
static int spare_children(struct atoll_participant *p, const struct changeset *cs)
{
	for (size_t i = 0; p->excludes && p->excludes->n && i < cs->v.n; i++) {
		cleanup_change struct change c = CHANGE_INIT;
		int r = changeset_get(&cs->v, i, &c);

		if (r < 0)
			return dir_unreadable(p, r);
		if (!S_ISDIR(c.base.mode) || (c.op != CHANGE_DELETE && c.op != CHANGE_REPLACE))
			continue;
		for (size_t k = 0; k < p->excludes->n; k++) {
			if (!path_below(p->excludes->v[k], c.path))
				continue;
			(void)error_set(&p->err, -ATOLL_E_POLICY,
			                "'%s' was moved, removed or replaced, but holds '%s', %s",
			                c.path, p->excludes->v[k],
			                strategy_is_area(p->excludes->v[k])
			                        ? "where the plan keeps its data"
			                        : "another resource of the plan");
			error_hint(&p->err, "put it back in the plan, or atoll discard");
			return -ATOLL_E_POLICY;
		}
	}
	return 0;
}

int dir_prepare(struct atoll_participant *p, const char *work, const struct dir_source *source,
                const struct changeset *cs)
{
	cleanup_strlist struct strlist databases = STRLIST_INIT;
	struct dir_batch *b;
	int r = spare_children(p, cs);

	if (r >= 0)
		r = judge(p, work, source, cs, &databases);
	if (r < 0)
		return r;
	r = dir_batch_open(p, work, true, &b);
	if (r < 0)
		return r;
	b->databases = databases;
	databases = STRLIST_INIT;
	b->m.created_ns = clock_real_ns();
	spool_spill_to(&b->m.ops, b->area_fd);
	r = p->rest ? dir_work_write(p, b, source, cs) : dir_used_write(p, b);
	if (r >= 0)
		r = build(p, b, source, cs);
	crashpoint("dir.prepare.staged");
	if (r >= 0)
		r = manifest_write(&b->m, b->batch_fd, MANIFEST_NAME, p->manifest, &p->err);
	if (r < 0)
		return r;
	b->loaded = true;
	b->measured = true;
	dir_note_size(p, b);
	r = syncset_add(p->batch.sync, b->batch_fd, MANIFEST_NAME);
	if (r >= 0)
		r = syncset_add(p->batch.sync, b->batch_fd, "");
	if (r >= 0)
		r = syncset_add(p->batch.sync, b->area_fd, "");
	crashpoint("dir.prepare.done");
	return r < 0 ? error_sys(&p->err, r, "note for the barrier", p->area) : ATOLL_READY;
}

int dir_same_base(struct atoll_participant *p, const struct changeset *cs, bool settled_only)
{
	const struct dir_batch *b = p->state;
	size_t k = 0, conflicts = 0;

	for (size_t i = 0; i < cs->v.n; i++) {
		cleanup_change struct change c = CHANGE_INIT;
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;
		const struct fs_stat *was = &c.base, *now = &o.old_stat;
		int r = changeset_get(&cs->v, i, &c);

		if (r < 0)
			return dir_unreadable(p, r);
		if (c.op == CHANGE_ATTR)
			continue;
		r = dir_op(p, b, k++, &o);
		if (r < 0)
			return r;
		if (settled_only && !c.settled)
			continue;
		if (was->mode == now->mode && was->id.ino == now->id.ino &&
		    was->id.gen == now->id.gen &&
		    (S_ISDIR(now->mode) || was->ctime_ns == now->ctime_ns))
			continue;
		if (conflicts++ < LIMIT_CONFLICTS)
			atoll_participant_note(p, ATOLL_NOTE_CONFLICT, c.path, "changed");
	}
	return dir_conflicts(p, conflicts);
}

/* ---- once more, right before the decision ---- */

static int check_op(struct atoll_participant *p, struct dir_batch *b, const struct manifest_op *o)
{
	const char *name;
	struct fs_stat now;
	int fd, r = dir_parent(b, b->root_fd, o->path, &fd, &name);

	if (r >= 0)
		r = fs_stat_at(fd, name, FS_STAT_ID, &now);
	if (r == -ENOENT && !o->old_stat.mode)
		return 0;
	if (r < 0 && r != -ENOENT)
		return error_sys(&p->err, r, "look at", o->path);
	if (r == 0 && o->old_stat.mode && fs_id_equal(now.id, o->old_stat.id) &&
	    now.ctime_ns == o->old_stat.ctime_ns)
		return 0;
	atoll_participant_note(p, ATOLL_NOTE_CONFLICT, o->path,
	                       "changed by somebody else while the commit was prepared");
	return error_set(&p->err, -ATOLL_E_CONFLICT,
	                 "'%s' was changed by somebody else while the commit was prepared",
	                 o->path);
}

int dir_check(struct atoll_participant *p, const char *work)
{
	struct policy pol = { .p = p };
	struct dir_batch *b;
	int r;

	if (p->batch.redoing && !p->batch.recovering)
		return dir_prepare_redo(p, work, true);
	r = dir_batch_load(p, work, &b);
	/* After a crash there is nothing to compare with: that the manifest is the one decided on
	 * is all that can be asked. */
	for (size_t k = 0; r >= 0 && !p->batch.recovering && k < b->m.ops.n; k++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;

		r = dir_op(p, b, k, &o);
		if (r >= 0 && progress_check_look() < 0)
			r = error_set(&p->err, -ECANCELED, "interrupted");
		if (r >= 0 && !(o.flags & MANIFEST_WORK))
			r = check_op(p, b, &o);
	}
	for (size_t i = 0; r >= 0 && i < b->databases.n; i++)
		if (live_database_is_open(b->root_fd, b->databases.v[i]))
			judge_bits(&pol, b->databases.v[i], ATOLL_CHANGE_DATABASE);
	if (r >= 0)
		r = answer(&pol);
	free_const(pol.refused);
	return r;
}
