/* SPDX-License-Identifier: Apache-2.0 */
/* The directory participant, staging: how new entries get to their slots. */
#include "strategy/dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/atomic.h"
#include "fs/copy.h"
#include "fs/resolve.h"
#include "fs/walk.h"
#include "util/cleanup.h"
#include "util/mem.h"

/* The workspace's entry stays where it is; its data and its name there must be durable. */
int dir_stage_in_place(struct atoll_participant *p, struct dir_batch *b,
                       const struct manifest_op *o)
{
	const char *slash = strrchr(o->path, '/');
	size_t len = slash ? (size_t)(slash - o->path) : 0;
	int r = S_ISDIR(o->new_stat.mode) ? syncset_add_tree(p->batch.sync, b->work_fd, o->path)
	                                  : syncset_add(p->batch.sync, b->work_fd, o->path);

	if (r >= 0 && !(b->noted_parent && strlen(b->noted_parent) == len &&
	                memcmp(b->noted_parent, o->path, len) == 0)) {
		free(b->noted_parent);
		b->noted_parent = xstrndup(o->path, len);
		r = syncset_add(p->batch.sync, b->work_fd, b->noted_parent);
	}
	return r < 0 ? error_sys(&p->err, r, "note for the barrier", o->path) : 0;
}

/* ---- by copying ---- */

struct staging {
	struct atoll_participant *p;
	struct dir_batch *b;
	const struct manifest_op *o;
	const char *slot;
	bool part;
	struct strlist wanted; /* of a part: selected entries and the directories down to them */
};

static bool is_wanted(const struct staging *s, const char *path)
{
	size_t low = 0, high = s->wanted.n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		int c = strcmp(path, s->wanted.v[mid]);

		if (c == 0)
			return true;
		if (c < 0)
			high = mid;
		else
			low = mid + 1;
	}
	return !s->part;
}

/* Whiteouts in what is new as a whole hide nothing. */
static bool is_nothing(const struct staging *s, int dir_fd, const char *name)
{
	struct fs_stat st;

	return s->o->flags & MANIFEST_MARKS && fs_stat_at(dir_fd, name, 0, &st) == 0 &&
	       overlay_is_whiteout(&st);
}

static int want(void *ctx, int dir_fd, const char *name, const char *path, unsigned char type)
{
	struct staging *s = ctx;
	cleanup_free char *up = xstrdup(path);

	if (!atoll_participant_selected(s->p, path, type == DT_DIR) || is_nothing(s, dir_fd, name))
		return 0;
	for (char *slash = up; slash && strlen(up) >= strlen(s->o->path);) {
		strlist_add(&s->wanted, up);
		slash = strrchr(up, '/');
		if (slash)
			*slash = '\0';
	}
	return 0;
}

static int list_wanted(struct staging *s)
{
	size_t kept = 0;
	int r = walk_tree(s->b->work_fd, s->o->path, want, NULL, s);

	strlist_sort(&s->wanted);
	for (size_t i = 0; i < s->wanted.n; i++) {
		if (kept && strcmp(s->wanted.v[kept - 1], s->wanted.v[i]) == 0)
			free(s->wanted.v[i]);
		else
			s->wanted.v[kept++] = s->wanted.v[i];
	}
	s->wanted.n = kept;
	return r;
}

/* Another name of an entry that was copied before. 1: made, 0: it is the first. */
static int link_copied(struct dir_batch *b, uint64_t ino, int to_fd, const char *to)
{
	for (size_t i = 0; i < b->n_copied; i++) {
		cleanup_close int fd = FD_NONE;
		const char *name;
		int r;

		if (b->copied[i].work_ino != ino)
			continue;
		r = resolve_parent(b->batch_fd, b->copied[i].path, &fd, &name);
		if (r >= 0)
			r = fs_link_at(fd, name, to_fd, to);
		return r < 0 ? r : 1;
	}
	return 0;
}

static int copy_file(struct dir_batch *b, int dir_fd, const char *name, int to_fd, const char *to,
                     const char *full)
{
	struct fs_stat st;
	int r = fs_stat_at(dir_fd, name, 0, &st);

	if (r >= 0 && st.nlink > 1)
		r = link_copied(b, st.id.ino, to_fd, to);
	if (r != 0)
		return r < 0 ? r : 0;
	r = copy_entry_at(dir_fd, name, to_fd, to, NULL, NULL);
	if (r < 0 || st.nlink < 2)
		return r;
	r = grow((void **)&b->copied, &b->cap_copied, b->n_copied + 1, sizeof(*b->copied));
	if (r >= 0)
		b->copied[b->n_copied++] = (struct dir_copied){ st.id.ino, xstrdup(full) };
	return r;
}

static int stage_entry(void *ctx, int dir_fd, const char *name, const char *path,
                       unsigned char type)
{
	struct staging *s = ctx;
	cleanup_free char *full = xasprintf("%s%s", s->slot, path + strlen(s->o->path));
	cleanup_close int fd = FD_NONE;
	const char *to;
	int r;

	if (!is_wanted(s, path) || is_nothing(s, dir_fd, name))
		return WALK_SKIP;
	r = resolve_parent(s->b->batch_fd, full, &fd, &to);
	if (r < 0)
		return r;
	return type == DT_DIR ? fs_mkdir_at(fd, to, 0700)
	                      : copy_file(s->b, dir_fd, name, fd, to, full);
}

static int finish_dir(void *ctx, int dir_fd, const char *name, const char *path, unsigned char type)
{
	struct staging *s = ctx;
	cleanup_free char *full = xasprintf("%s%s", s->slot, path + strlen(s->o->path));
	cleanup_close int from_fd = FD_NONE, to_fd = FD_NONE;
	int r;

	(void)dir_fd;
	(void)name;
	(void)type;
	if (!is_wanted(s, path))
		return 0;
	r = resolve_dir(s->b->work_fd, path, &from_fd);
	if (r >= 0)
		r = resolve_dir(s->b->batch_fd, full, &to_fd);
	return r < 0 ? r : copy_dir_meta(from_fd, to_fd);
}

int dir_stage_copy(struct atoll_participant *p, struct dir_batch *b, size_t k, bool part,
                   struct manifest_op *o)
{
	struct staging s = { .p = p, .b = b, .o = o, .part = part };
	char slot[DIR_SLOT_LEN];
	int r;

	dir_slot_name(k, slot);
	s.slot = slot;
	r = part ? list_wanted(&s) : 0;
	if (r >= 0)
		r = walk_tree(b->work_fd, o->path, stage_entry, finish_dir, &s);
	if (r >= 0)
		r = fs_stat_at(b->batch_fd, slot, FS_STAT_ID, &o->new_stat);
	if (r >= 0)
		r = syncset_add_tree(p->batch.sync, b->batch_fd, slot);
	p->changes += s.wanted.n;
	strlist_done(&s.wanted);
	if (r < 0)
		return error_sys(&p->err, r, "stage a copy of", o->path);
	o->flags |= MANIFEST_STAGED | (part ? MANIFEST_PART : 0);
	return 0;
}

/* ---- what the batch uses up in the workspace ---- */

/* After the decision, an entry leaves the workspace for its slot in one step, whole, which recovery can repeat.
 * Between two mounts there is no such step; so it is refused as long as nothing is decided. */
static int refuse_apart(struct atoll_participant *p)
{
	(void)error_set(
		&p->err, -ATOLL_E_UNSUPPORTED,
		"its work lies on another mount than the resource, so only all of it can be "
		"committed, and without --theirs");
	error_hint(&p->err, "commit all of it, or start the plan without --work-in-store");
	return -ATOLL_E_UNSUPPORTED;
}

static int consume(struct atoll_participant *p, struct dir_batch *b, const char *path,
                   const struct fs_stat *st)
{
	struct manifest_op o = { .op = CHANGE_DELETE, .flags = MANIFEST_WORK, .old_stat = *st };

	if (b->work_apart)
		return refuse_apart(p);
	o.path = xstrdup(path);
	if (S_ISDIR(st->mode) && geteuid() != 0 && (st->mode & 0300) != 0300)
		o.flags |= MANIFEST_TEMP;
	return manifest_add_op(&b->m, &o);
}

struct consumed {
	struct atoll_participant *p;
	struct dir_batch *b;
};

/* The directories themselves stay: they are merged with those the resource gets. */
static int consume_part(void *ctx, int dir_fd, const char *name, const char *path,
                        unsigned char type)
{
	struct consumed *c = ctx;
	struct fs_stat st;
	int r;

	if (type == DT_DIR || !atoll_participant_selected(c->p, path, false))
		return 0;
	r = fs_stat_at(dir_fd, name, FS_STAT_ID, &st);
	return r < 0 ? r : consume(c->p, c->b, path, &st);
}

static int consume_entry(struct atoll_participant *p, struct dir_batch *b,
                         const struct manifest_op *o)
{
	cleanup_close int fd = FD_NONE;
	const char *name;
	struct fs_stat st;
	int r = resolve_parent(b->work_fd, o->path, &fd, &name);

	if (r >= 0)
		r = fs_stat_at(fd, name, FS_STAT_ID, &st);
	if (r == -ENOENT || r == -ENOTDIR)
		return 0; /* deleted with a directory above it, or by a name that is not there */
	return r < 0 ? r : consume(p, b, o->path, &st);
}

int dir_stage_consumed(struct atoll_participant *p, struct dir_batch *b, const struct changeset *cs)
{
	struct consumed c = { p, b };
	size_t n = b->m.ops.n;
	int r = 0;

	(void)cs;
	for (size_t k = 0; k < n && r >= 0; k++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;

		r = dir_op(p, b, k, &o);
		if (r < 0)
			return r;
		if (o.flags & MANIFEST_PART)
			r = walk_tree(b->work_fd, o.path, consume_part, NULL, &c);
		else if (o.op == CHANGE_DELETE || o.flags & MANIFEST_STAGED)
			r = consume_entry(p, b, &o);
		if (r < 0)
			return p->err.code
			               ? r
			               : error_sys(&p->err, r, "look in the workspace at", o.path);
	}
	return 0;
}

/* ---- what is given up for somebody else's ---- */

bool dir_is_attr(const struct manifest_op *o)
{
	return o->op == CHANGE_CREATE && S_ISDIR(o->new_stat.mode);
}

int dir_take_attrs(struct dir_batch *b, const struct manifest_op *o)
{
	cleanup_close int from_fd = FD_NONE, to_fd = FD_NONE;
	int r = resolve_dir(b->root_fd, o->path, &from_fd);

	if (r >= 0)
		r = resolve_dir(b->work_fd, o->path, &to_fd);
	if (r >= 0)
		r = copy_dir_meta(from_fd, to_fd);
	return r == -ENOENT || r == -ENOTDIR || r == -ELOOP ? 0 : r;
}

static int list_theirs(struct dir_batch *b, const struct change *c, struct manifest *m)
{
	cleanup_close int fd = FD_NONE;
	int r;

	if (c->op != CHANGE_ATTR) {
		r = dir_list_tree(b->root_fd, c->path, m);
	} else {
		struct manifest_op o = { .op = CHANGE_CREATE, .flags = MANIFEST_RECORD };

		r = resolve_dir_path(b->root_fd, c->path, &fd);
		if (r >= 0)
			r = fs_stat_at(fd, "", FS_STAT_ID, &o.new_stat);
		if (r >= 0) {
			o.path = xstrdup(c->path);
			r = manifest_add_op(m, &o);
		}
	}
	return r == -ENOENT || r == -ENOTDIR || r == -ELOOP ? 0 : r;
}

/* The plan's version goes into a slot, where undo data lies. */
static int give_up(struct atoll_participant *p, struct dir_batch *b, const struct change *c)
{
	struct manifest_op o = { .op = CHANGE_CREATE,
		                 .flags = MANIFEST_WORK | MANIFEST_THEIRS,
		                 .new_stat = { .mode = S_IFREG } };
	cleanup_close int fd = FD_NONE;
	const char *name;
	int r = c->op == CHANGE_ATTR ? -ENOENT : resolve_parent(b->work_fd, c->path, &fd, &name);

	if (r >= 0)
		r = fs_stat_at(fd, name, FS_STAT_ID, &o.old_stat);
	if (r < 0 && r != -ENOENT && r != -ENOTDIR)
		return r;
	if (r >= 0 && b->work_apart)
		return refuse_apart(p);
	if (r >= 0) {
		o.op = CHANGE_DELETE;
		o.new_stat = (struct fs_stat){ 0 };
	} else if (c->op == CHANGE_ATTR) {
		o.new_stat = c->work;
	}
	o.path = xstrdup(c->path);
	return manifest_add_op(&b->m, &o);
}

int dir_stage_theirs(struct atoll_participant *p, struct dir_batch *b, const struct changeset *cs)
{
	struct manifest m = { .created_ns = b->m.created_ns };
	char hash[HASH_TEXT_LEN];
	int r = 0;

	spool_spill_to(&m.ops, b->area_fd);
	for (size_t i = 0; i < cs->theirs.n && r >= 0; i++) {
		cleanup_change struct change c = CHANGE_INIT;

		r = changeset_get(&cs->theirs, i, &c);
		if (r < 0) {
			r = dir_unreadable(p, r);
			break;
		}
		r = give_up(p, b, &c);
		if (r >= 0)
			r = list_theirs(b, &c, &m);
		if (r < 0 && !p->err.code)
			r = error_sys(&p->err, r, "look at", c.path);
	}
	if (r >= 0 && cs->theirs.n) {
		/* What lies below something that was given up comes last otherwise. */
		r = manifest_sort(&m);
		r = r < 0 ? dir_unreadable(p, r)
		          : manifest_write(&m, b->batch_fd, DIR_THEIRS, hash, &p->err);
		if (r >= 0)
			r = syncset_add(p->batch.sync, b->batch_fd, DIR_THEIRS);
	}
	manifest_done(&m);
	return r;
}

static void say_given_up(struct atoll_participant *p, struct dir_kth op)
{
	cleanup_free char *where = NULL;
	char slot[DIR_SLOT_LEN];

	dir_slot_name(op.k, slot);
	if (op.o->op == CHANGE_DELETE && !overlay_is_whiteout(&op.o->old_stat))
		where = xasprintf(
			"the plan's version is kept at %s/b%u/%s as long as the commit can "
			"be undone",
			p->area, p->batch.number, slot);
	atoll_participant_note(p, ATOLL_NOTE_KEPT, op.o->path,
	                       where ? where : "what is there now stays");
}

void dir_say_theirs(struct atoll_participant *p)
{
	struct dir_batch *b = p->state;
	size_t first;

	if (!b || !b->loaded || p->batch.flags & ATOLL_NO_UNDO)
		return;
	/* They come last, so that where there are none one operation is read. */
	for (first = b->m.ops.n; first > 0; first--) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;

		if (manifest_get(&b->m, first - 1, &o) < 0 || !(o.flags & MANIFEST_THEIRS))
			break;
	}
	for (size_t k = first; k < b->m.ops.n; k++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;

		if (manifest_get(&b->m, k, &o) >= 0)
			say_given_up(p, (struct dir_kth){ &o, k });
	}
}

int dir_theirs_read(struct atoll_participant *p, struct dir_batch *b, struct manifest *ret)
{
	int r = manifest_read(b->batch_fd, DIR_THEIRS, "", ret, &p->err);

	if (r != -ENOENT)
		return r;
	error_done(&p->err);
	*ret = MANIFEST_INIT;
	return 0;
}

/* ---- how the workspace's entries looked ---- */

int dir_work_write(struct atoll_participant *p, struct dir_batch *b,
                   const struct dir_source *source, const struct changeset *cs)
{
	struct manifest m = { .created_ns = b->m.created_ns };
	char hash[HASH_TEXT_LEN];
	int r = 0;

	spool_spill_to(&m.ops, b->area_fd);
	for (size_t i = 0; source->stays && i < cs->v.n && r >= 0; i++) {
		cleanup_change struct change c = CHANGE_INIT;

		r = changeset_get(&cs->v, i, &c);
		if (r >= 0 && (c.op == CHANGE_CREATE || c.op == CHANGE_REPLACE))
			r = dir_list_tree(b->work_fd, c.path, &m);
	}
	if (r < 0)
		r = error_sys(&p->err, r, "look at the workspace in", p->work);
	if (r >= 0)
		r = manifest_write(&m, b->batch_fd, DIR_WORK, hash, &p->err);
	manifest_done(&m);
	if (r >= 0)
		r = syncset_add(p->batch.sync, b->batch_fd, DIR_WORK);
	return r;
}

int dir_used_write(struct atoll_participant *p, struct dir_batch *b)
{
	cleanup_close int fd = FD_NONE;
	char text[24];
	int r, len = snprintf(text, sizeof(text), "%" PRIu64 "\n", p->generation);

	r = fs_create_at(b->batch_fd, DIR_USED, 0600, &fd);
	if (r >= 0)
		r = fs_write_all(fd, text, (size_t)len);
	if (r >= 0)
		r = syncset_add(p->batch.sync, b->batch_fd, DIR_USED);
	return r < 0 ? error_sys(&p->err, r, "write", DIR_USED) : 0;
}

int dir_used_up(struct atoll_participant *p)
{
	cleanup_free char *path = xasprintf("%s/b%u/%s", p->area, p->batch.number, DIR_USED);
	cleanup_close int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_free char *text = NULL;
	size_t len = 0;
	int r = fd < 0 ? -errno : fs_read_all(fd, 24, &text, &len);

	if (r == -ENOENT)
		return 0;
	return r < 0 ? error_sys(&p->err, r, "read", path)
	             : strtoull(text, NULL, 10) == p->generation;
}

void dir_work_read(struct dir_batch *b, struct manifest *ret)
{
	if (manifest_read(b->batch_fd, DIR_WORK, "", ret, NULL) < 0)
		*ret = MANIFEST_INIT;
}

int dir_leaves_work(struct atoll_participant *p, const struct dir_batch *b)
{
	struct fs_stat st;
	int r = fs_stat_at(b->batch_fd, DIR_WORK, 0, &st);

	if (r == -ENOENT)
		return 0;
	return r < 0 ? error_sys(&p->err, r, "look at", DIR_WORK) : 1;
}

struct timing {
	struct dir_batch *b;
	const char *path; /* of the operation */
	size_t skip;      /* bytes of a path that stand for it */
};

static int restore_time(void *ctx, int dir_fd, const char *name, const char *path,
                        unsigned char type)
{
	const struct timing *t = ctx;
	cleanup_free char *there = xasprintf("%s%s", t->path, path + t->skip);
	cleanup_close int fd = FD_NONE;
	struct fs_stat st;

	if (type == DT_DIR && resolve_dir_path(t->b->work_fd, there, &fd) >= 0 &&
	    fs_stat_at(dir_fd, name, 0, &st) >= 0)
		(void)fs_set_mtime(fd, "", st.mtime_ns);
	return 0;
}

/* Of a new directory in part the copy has the times, in its slot or in its place. */
static void restore_part(struct dir_batch *b, struct dir_kth op)
{
	struct timing t = { .b = b, .path = op.o->path };
	struct fs_stat st;
	char slot[DIR_SLOT_LEN];
	bool staged;

	dir_slot_name(op.k, slot);
	staged = fs_stat_at(b->batch_fd, slot, 0, &st) == 0;
	t.skip = staged ? strlen(slot) : strlen(t.path);
	(void)walk_tree(staged ? b->batch_fd : b->root_fd, staged ? slot : t.path, restore_time,
	                NULL, &t);
}

void dir_restore_work(struct dir_batch *b)
{
	for (size_t k = 0; b->work_fd != FD_NONE && k < b->m.ops.n; k++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;

		if (manifest_get(&b->m, k, &o) >= 0 && o.flags & MANIFEST_PART)
			restore_part(b, (struct dir_kth){ &o, k });
	}
	for (size_t i = b->m.n_dirs; i-- > 0;) {
		const struct manifest_dir *d = &b->m.dirs[i];
		cleanup_close int fd = FD_NONE;

		if (b->work_fd == FD_NONE || resolve_dir_path(b->work_fd, d->path, &fd) < 0)
			continue;
		if (d->flags & MANIFEST_DIR_TEMP)
			(void)fs_set_mode(fd, "", d->new_stat.mode & 07777);
		if (d->flags & MANIFEST_DIR_TIME)
			(void)fs_set_mtime(fd, "", d->new_stat.mtime_ns);
	}
}

int dir_list_now(struct atoll_participant *p, struct dir_batch *b, struct manifest *ret)
{
	int r = 0;

	spool_spill_to(&ret->ops, b->area_fd);
	for (size_t k = 0; k < b->m.ops.n && r >= 0; k++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;

		r = dir_op(p, b, k, &o);
		if (r < 0 || o.flags & MANIFEST_WORK)
			continue;
		r = dir_list_tree(b->root_fd, o.path, ret);
		if (r == -ENOENT || r == -ENOTDIR || r == -ELOOP)
			r = 0;
		if (r < 0)
			r = error_sys(&p->err, r, "look at", o.path);
	}
	return r;
}
