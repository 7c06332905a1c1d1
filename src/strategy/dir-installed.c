/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a batch installed, entry by entry, new directories with all below them. Written after the
 * renames and before barrier 3; undo compares with it. On disk it is a manifest of CREATEs.
 */
#include "strategy/dir.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/resolve.h"
#include "fs/walk.h"
#include "util/cleanup.h"
#include "util/escape.h"
#include "util/mem.h"

static int add_entry(struct manifest *m, const char *path, const struct fs_stat *st)
{
	struct manifest_op o = { .op = CHANGE_CREATE,
		                 .flags = MANIFEST_RECORD,
		                 .path = xstrdup(path),
		                 .new_stat = *st };

	return manifest_add_op(m, &o);
}

static int list_entry(void *ctx, int dir_fd, const char *name, const char *path, unsigned char type)
{
	struct fs_stat st;
	int r = fs_stat_at(dir_fd, name, FS_STAT_ID, &st);

	(void)type;
	if (r < 0)
		return r == -ENOENT ? WALK_SKIP : r;
	return add_entry(ctx, path, &st);
}

int dir_list_tree(int root_fd, const char *path, struct manifest *ret)
{
	return walk_tree(root_fd, path, list_entry, NULL, ret);
}

static int collect_op(struct dir_batch *b, const struct manifest_op *o, struct manifest *m)
{
	const char *name;
	struct fs_stat st;
	int fd, r = dir_parent(b, b->root_fd, o->path, &fd, &name);

	if (r >= 0)
		r = fs_stat_at(fd, name, FS_STAT_ID, &st);
	if (r < 0)
		return r == -ENOENT ? 0 : r; /* removed since, by somebody else */
	if (!fs_id_equal(st.id, o->new_stat.id))
		return 0;
	if (S_ISDIR(st.mode))
		return dir_list_tree(b->root_fd, o->path, m);
	/* Written to between the exchange and now: not what we installed, so that an undo will
	 * find it changed. */
	if (st.mtime_ns != o->new_stat.mtime_ns || st.size != o->new_stat.size)
		st.ctime_ns = 0;
	return add_entry(m, o->path, &st);
}

/* As far as anybody can tell after it was moved. */
static bool same_content(const struct fs_stat *was, const struct fs_stat *now)
{
	return S_ISDIR(now->mode) ||
	       (was->mtime_ns == now->mtime_ns && was->size == now->size && was->mode == now->mode);
}

/* An undo was withdrawn: what was installed moved away and back, which shows on every ctime; what
 * somebody wrote to meanwhile, or put there, is not ours for that. */
static void keep_record(const struct manifest *was, struct manifest *m)
{
	size_t kept = 0;

	for (size_t i = 0; i < m->n_ops; i++) {
		const struct fs_stat *before = dir_installed_find(was, m->ops[i].path);
		struct fs_stat *now = &m->ops[i].new_stat;

		if (!before) {
			free(m->ops[i].path);
			continue;
		}
		if (before->ctime_ns == 0 || !fs_id_equal(before->id, now->id) ||
		    !same_content(before, now))
			now->ctime_ns = 0;
		m->ops[kept++] = m->ops[i];
	}
	m->n_ops = kept;
}

int dir_installed_write(struct atoll_participant *p, struct dir_batch *b)
{
	struct manifest m = { .created_ns = b->m.created_ns }, was = MANIFEST_INIT;
	char hash[HASH_TEXT_LEN];
	int r = 0;

	for (size_t k = 0; k < b->m.n_ops && r >= 0; k++)
		if (b->m.ops[k].new_stat.mode && !(b->m.ops[k].flags & MANIFEST_WORK))
			r = collect_op(b, &b->m.ops[k], &m);
	if (r >= 0 && p->batch.redoing &&
	    manifest_read(b->batch_fd, DIR_INSTALLED, "", &was, NULL) >= 0) {
		keep_record(&was, &m);
		manifest_done(&was);
	}
	if (r < 0)
		r = error_sys(&p->err, r, "record what was installed in", p->root);
	else
		r = manifest_write(&m, b->batch_fd, DIR_INSTALLED, hash, &p->err);
	manifest_done(&m);
	if (r >= 0 && p->batch.sync)
		r = syncset_add(p->batch.sync, b->batch_fd, DIR_INSTALLED);
	return r;
}

int dir_installed_read(struct atoll_participant *p, struct dir_batch *b, struct manifest *ret)
{
	int r = manifest_read(b->batch_fd, DIR_INSTALLED, "", ret, &p->err);

	if (r != -ENOENT && r != -ATOLL_E_DAMAGED)
		return r;
	error_done(&p->err);
	return error_set(&p->err, -ATOLL_E_RECOVERY_MISSING,
	                 "the record of what was installed in '%s' is missing or damaged", p->root);
}

/* ---- is it still what we wrote? ---- */

static int by_path(const void *key, const void *element)
{
	const struct manifest_op *o = element;

	return path_compare(key, o->path);
}

const struct fs_stat *dir_installed_find(const struct manifest *installed, const char *path)
{
	const struct manifest_op *o = installed->n_ops
	                                      ? bsearch(path, installed->ops, installed->n_ops,
	                                                sizeof(*installed->ops), by_path)
	                                      : NULL;

	return o ? &o->new_stat : NULL;
}

bool dir_covered(const struct strlist *undone, const char *path)
{
	for (size_t i = 0; i < undone->n; i++)
		if (path_below(path, undone->v[i]))
			return true;
	return false;
}

static bool is_displaced(const struct atoll_participant *p, struct fs_id id)
{
	for (size_t i = 0; i < p->n_displaced; i++)
		if (fs_id_equal(p->displaced[i], id))
			return true;
	return false;
}

/* Where a newer batch of the same undo moved another name of it away, its ctime says nothing. */
static bool same(const struct atoll_participant *p, const struct fs_stat *was,
                 const struct fs_stat *now)
{
	return was && fs_id_equal(was->id, now->id) &&
	       (S_ISDIR(now->mode) || was->ctime_ns == now->ctime_ns ||
	        (was->ctime_ns != 0 && same_content(was, now) && is_displaced(p, now->id)));
}

struct check {
	const struct atoll_participant *p;
	const struct manifest *installed;
	char *why;
};

static int check_entry(void *ctx, int dir_fd, const char *name, const char *path,
                       unsigned char type)
{
	struct check *c = ctx;
	const struct fs_stat *was = dir_installed_find(c->installed, path);
	struct fs_stat st;
	int r = fs_stat_at(dir_fd, name, FS_STAT_ID, &st);

	(void)type;
	if (r == -ENOENT || dir_covered(&c->p->undone, path))
		return WALK_SKIP;
	if (r < 0)
		return r;
	if (same(c->p, was, &st))
		return 0;
	cleanup_free char *shown = escape_dup(path);
	if (!c->why)
		c->why = xasprintf(was ? "'%s' was changed since" : "holds '%s', which is not ours",
		                   shown);
	return WALK_SKIP;
}

/* No batch older than that of undone path I has a say about what is there afterwards. */
static bool is_last_word(const struct strlist *undone, size_t i)
{
	for (size_t k = i + 1; k < undone->n; k++)
		if (path_below(undone->v[i], undone->v[k]))
			return false;
	return true;
}

/* An original that waited in a slot: its ctime is that of moving it there, or of an earlier undo. */
static bool same_original(const struct fs_stat *was, const struct fs_stat *old)
{
	return was && fs_id_equal(was->id, old->id) &&
	       (was->ctime_ns == old->ctime_ns || (was->ctime_ns != 0 && same_content(was, old)));
}

/* What newer batches of this undo put back at operation O's path and below: is it what O's batch
 * installed? NULL, or what somebody did to it in between. */
static char *check_put_back(const struct atoll_participant *p, const struct manifest *installed,
                            const struct manifest_op *o)
{
	for (size_t i = 0; i < p->undone.n; i++) {
		const char *path = p->undone.v[i];
		const struct fs_stat *old = &p->undone_old[i];
		bool is_self = strcmp(path, o->path) == 0;

		if (!path_below(path, o->path) || !is_last_word(&p->undone, i))
			continue;
		if (!old->mode && is_self && o->op == CHANGE_REPLACE)
			return xstrdup("was deleted since");
		if (!old->mode || same_original(dir_installed_find(installed, path), old))
			continue;
		if (is_self)
			return xstrdup(o->op == CHANGE_DELETE ? "was created since"
			                                      : "was changed since");
		cleanup_free char *shown = escape_dup(path);
		return xasprintf("will hold '%s', which is not ours", shown);
	}
	return NULL;
}

int dir_installed_check(struct atoll_participant *p, struct dir_batch *b,
                        const struct manifest *installed, size_t k, char **ret_why)
{
	struct check c = { .p = p, .installed = installed };
	const struct manifest_op *o = &b->m.ops[k];
	const char *name;
	struct fs_stat st;
	int fd, r;

	*ret_why = check_put_back(p, installed, o);
	if (*ret_why || dir_covered(&p->undone, o->path))
		return 0;
	r = dir_parent(b, b->root_fd, o->path, &fd, &name);
	if (r >= 0)
		r = fs_stat_at(fd, name, FS_STAT_ID, &st);
	if (r < 0 && r != -ENOENT && r != -ENOTDIR && r != -ELOOP)
		return error_sys(&p->err, r, "look at", o->path);
	if (r < 0) {
		/* Absent: fine for what we created or deleted; an original to be put back whose
		 * replacement somebody deleted is his decision against ours. */
		if (o->op == CHANGE_REPLACE || r != -ENOENT)
			*ret_why = xstrdup("was deleted since");
		return 0;
	}
	if (o->op == CHANGE_DELETE) {
		*ret_why = xstrdup("was created since");
		return 0;
	}
	if (!same(p, dir_installed_find(installed, o->path), &st)) {
		*ret_why = xstrdup("was changed since");
		return 0;
	}
	if (S_ISDIR(st.mode)) {
		r = walk_tree(b->root_fd, o->path, check_entry, NULL, &c);
		*ret_why = c.why;
		if (r < 0)
			return error_sys(&p->err, r, "look below", o->path);
	}
	return 0;
}
