/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an undo or a redo found in the places of a batch's entries, and takes for them.
 *
 * The steps after the decision know entries by identity, and identities come from the manifest, whose hash is
 * in the registry. So what prepare found instead is written beside it, before the decision, and takes the
 * place of what the manifest, `installed` and `back` say: each later step, also of recovery, of a redo or of
 * another undo, looks for the entry that was compared, and its size, mode and mtime are those that an
 * exchange must bring along. There are two of these records, of the same format, a manifest of CREATEs:
 *
 *   found        stands for new versions; an undo writes it
 *   found-back   stands for old versions, which an undo puts back; a redo writes it
 *
 * An entry is in it for one of two reasons.
 *
 *   It holds the same    but has other times or another inode (fs/content.h).
 *   MANIFEST_INSISTED    It holds something else, and the user insists on the way (--ours). So the version
 *                        that is there goes where the batch's own would go, into the slot of its operation,
 *                        and the opposite way brings it back. It is the only copy: when the batch is
 *                        released, it goes to conflicts/. Of a directory all below it is on record. A DELETE
 *                        says that nothing was there. Of a directory that stays the record has what its
 *                        attributes were.
 *
 * A record that a decision may not have followed is PENDING. The opposite way is only taken once that one was
 * recorded, so its prepare takes the mark off; prepare of the same way forgets what still has it.
 *
 * Crash: written under another name and renamed; the old one or the new one. What is pending means nothing
 * unless the batch's row says that the way was decided.
 */
#include "strategy/dir.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/atomic.h"
#include "util/cleanup.h"
#include "util/limits.h"
#include "util/mem.h"

static const struct {
	const char *name, *new_name;
} files[] = {
	[DIR_FOUND_NEW] = { "found", "found.new" },
	[DIR_FOUND_OLD] = { "found-back", "found-back.new" },
};

static int read_side(struct atoll_participant *p, struct dir_batch *b, enum dir_found side)
{
	int r = manifest_read(b->batch_fd, files[side].name, "", &b->found[side], &p->err);

	if (r >= 0)
		return 0;
	b->found[side] = MANIFEST_INIT;
	if (r != -ENOENT && r != -ATOLL_E_DAMAGED)
		return r;
	error_done(&p->err);
	return 0;
}

int dir_found_read(struct atoll_participant *p, struct dir_batch *b)
{
	int r = read_side(p, b, DIR_FOUND_NEW);

	return r < 0 ? r : read_side(p, b, DIR_FOUND_OLD);
}

/* 1 with *ret, which has no path; 0. */
static int look_up(const struct dir_batch *b, enum dir_found side, const char *path,
                   struct manifest_op *ret)
{
	const struct manifest *m = &b->found[side];

	return m->ops.n ? manifest_find(m, m->ops.n, path, ret) : 0;
}

/* Pending records go, or are pending no more. */
static int settle(struct dir_batch *b, enum dir_found side, bool is_real)
{
	struct manifest *m = &b->found[side], kept = { .created_ns = m->created_ns };
	bool any = false;
	int r = 0;

	spool_spill_to(&kept.ops, b->area_fd);
	for (size_t i = 0; i < m->ops.n && r >= 0; i++) {
		struct manifest_op o = MANIFEST_OP_INIT;

		r = manifest_get(m, i, &o);
		if (r < 0)
			break;
		any |= (o.flags & MANIFEST_PENDING) != 0;
		if (o.flags & MANIFEST_PENDING && !is_real) {
			manifest_op_done(&o);
			continue;
		}
		o.flags &= ~MANIFEST_PENDING;
		r = manifest_add_op(&kept, &o);
	}
	if (r < 0 || !any) {
		manifest_done(&kept);
		return r;
	}
	manifest_done(m);
	*m = kept;
	b->found_changed[side] = true;
	return 0;
}

int dir_found_begin(struct dir_batch *b, enum dir_found side)
{
	int r = settle(b, side, false);

	return r < 0 ? r : settle(b, side == DIR_FOUND_NEW ? DIR_FOUND_OLD : DIR_FOUND_NEW, true);
}

static enum change_op op_between(const struct fs_stat *old, const struct fs_stat *new)
{
	return !new->mode ? CHANGE_DELETE : old->mode ? CHANGE_REPLACE : CHANGE_CREATE;
}

int dir_found_apply(const struct dir_batch *b, struct manifest_op *o)
{
	struct manifest_op found[2];
	int new = 0, old = 0;

	if (o->flags & MANIFEST_WORK)
		return 0;
	new = look_up(b, DIR_FOUND_NEW, o->path, &found[DIR_FOUND_NEW]);
	if (new >= 0)
		old = look_up(b, DIR_FOUND_OLD, o->path, &found[DIR_FOUND_OLD]);
	if (new < 0 || old < 0)
		return new < 0 ? new : old;
	if (!new && !old)
		return 0;
	if (new) {
		o->new_stat = found[DIR_FOUND_NEW].new_stat;
		/* Nothing is taken off what never was in a workspace. */
		if (found[DIR_FOUND_NEW].flags & MANIFEST_INSISTED)
			o->flags &= ~(MANIFEST_STRIP | MANIFEST_MARKS | MANIFEST_OPAQUE);
	}
	if (old)
		o->old_stat = found[DIR_FOUND_OLD].new_stat;
	o->op = op_between(&o->old_stat, &o->new_stat);
	for (int i = 0; i < 2; i++) {
		const struct fs_stat *st = i ? &o->old_stat : &o->new_stat;

		if (S_ISDIR(st->mode) && (st->mode & 0300) != 0300)
			o->flags |= MANIFEST_TEMP;
	}
	return 0;
}

int dir_found_or_installed(const struct dir_batch *b, const struct manifest *installed,
                           const char *path, struct fs_stat *ret)
{
	struct manifest_op found;
	int r = look_up(b, DIR_FOUND_NEW, path, &found);

	if (r == 0)
		return dir_installed_find(installed, path, ret);
	if (r > 0)
		*ret = found.new_stat;
	return r > 0 ? ret->mode != 0 : r;
}

int dir_found_attrs(const struct dir_batch *b, const struct manifest_dir *d, enum dir_found side,
                    struct fs_stat *ret)
{
	struct manifest_op found;
	int r = d->flags & MANIFEST_DIR_ATTR ? look_up(b, side, d->path, &found) : 0;

	*ret = side == DIR_FOUND_OLD ? d->old_stat : d->new_stat;
	if (r <= 0)
		return r;
	ret->mode = found.new_stat.mode;
	ret->uid = found.new_stat.uid;
	ret->gid = found.new_stat.gid;
	return 0;
}

int dir_found_pending(const struct dir_batch *b, const char *path, struct fs_stat *ret)
{
	struct manifest_op found;
	int r = look_up(b, DIR_FOUND_OLD, path, &found);

	if (r <= 0 || !(found.flags & MANIFEST_PENDING))
		return r < 0 ? r : 0;
	*ret = found.new_stat;
	return 1;
}

int dir_found_given_back(const struct atoll_participant *p, const struct dir_batch *b,
                         const char *path)
{
	const unsigned both = MANIFEST_INSISTED | MANIFEST_PENDING;
	struct manifest_op found;
	int r = 0;

	if (p->batch.redoing && !p->batch.again)
		r = look_up(b, DIR_FOUND_NEW, path, &found);
	else if (p->batch.undoing && p->batch.again)
		r = look_up(b, DIR_FOUND_OLD, path, &found);
	return r > 0 ? (found.flags & both) == both : r;
}

int dir_found_add(struct manifest *found, const char *path, const struct fs_stat *now,
                  unsigned flags)
{
	struct manifest_op o = { .op = now ? CHANGE_CREATE : CHANGE_DELETE,
		                 .flags = MANIFEST_RECORD | flags,
		                 .path = xstrdup(path) };

	if (now)
		o.new_stat = *now;
	else
		o.old_stat.mode = S_IFREG; /* something would be there */
	return manifest_add_op(found, &o);
}

static int add_earlier(struct manifest *to, const struct manifest *earlier)
{
	size_t n = to->ops.n;
	int r = manifest_sort(to);

	for (size_t i = 0; i < earlier->ops.n && r >= 0; i++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;
		struct manifest_op newer;

		r = manifest_get(earlier, i, &o);
		if (r >= 0)
			r = manifest_find(to, n, o.path, &newer);
		if (r == 0)
			r = manifest_add_op(to, &o);
	}
	return r < 0 ? r : manifest_sort(to);
}

static int write_side(struct atoll_participant *p, struct dir_batch *b, enum dir_found side)
{
	char hash[HASH_TEXT_LEN];
	int r;

	if (!b->found_changed[side])
		return 0;
	b->found[side].created_ns = b->m.created_ns;
	r = manifest_write(&b->found[side], b->batch_fd, files[side].new_name, hash, NULL);
	if (r >= 0)
		r = fs_rename_over(b->batch_fd, files[side].new_name, files[side].name);
	if (r >= 0)
		r = syncset_add(p->batch.sync, b->batch_fd, files[side].name);
	if (r >= 0)
		r = syncset_add(p->batch.sync, b->batch_fd, "");
	b->found_changed[side] = r < 0;
	return r;
}

int dir_found_write(struct atoll_participant *p, struct dir_batch *b, enum dir_found side,
                    struct manifest *found)
{
	struct manifest m = *found;
	int r = 0;

	*found = MANIFEST_INIT;
	if (m.ops.n) {
		r = add_earlier(&m, &b->found[side]);
		manifest_done(&b->found[side]);
		b->found[side] = m;
		b->found_changed[side] = true;
	} else {
		manifest_done(&m);
	}
	if (r >= 0)
		r = write_side(p, b, DIR_FOUND_NEW);
	if (r >= 0)
		r = write_side(p, b, DIR_FOUND_OLD);
	return r < 0 ? error_sys(&p->err, r, "record what was found in", p->root) : 0;
}

uint64_t dir_found_size(const struct dir_batch *b)
{
	uint64_t size = 0;
	struct fs_stat st;

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		if (fs_stat_at(b->batch_fd, files[i].name, 0, &st) >= 0)
			size += st.size;
	return size;
}

bool dir_found_insisted(const struct dir_batch *b, enum dir_found side, const char *path)
{
	const struct manifest *m = &b->found[side];
	size_t i = 0;
	int r = m->ops.n ? manifest_from(m, path, &i) : 0;

	for (; r >= 0 && i < m->ops.n; i++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;

		r = manifest_get(m, i, &o);
		if (r < 0 || !path_below(o.path, path))
			break;
		if (o.flags & MANIFEST_INSISTED && o.new_stat.mode)
			return true;
	}
	return r < 0;
}

/* ---- where they are ---- */

/* The operation that PATH is at or below; its number, or the number of operations. */
static size_t operation_at(const struct dir_batch *b, const char *path, size_t *ret_len)
{
	size_t k;

	for (k = 0; k < b->m.ops.n; k++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;

		if (manifest_get(&b->m, k, &o) < 0 || o.flags & MANIFEST_WORK ||
		    !path_below(path, o.path))
			continue;
		*ret_len = strlen(o.path);
		break;
	}
	return k;
}

static void say_one(struct atoll_participant *p, struct dir_batch *b, enum dir_found side,
                    const struct manifest_op *o)
{
	const char *back = side == DIR_FOUND_NEW ? "redo" : "undo";
	cleanup_free char *text = NULL;
	char slot[DIR_SLOT_LEN];
	size_t len = 0, k = operation_at(b, o->path, &len);

	dir_slot_name(k, slot);
	if (k < b->m.ops.n)
		text = xasprintf("the version that was there is kept at %s/b%u/%s%s; atoll %s %s "
		                 "brings it back",
		                 p->area, p->batch.number, slot, o->path + len, back, p->plan);
	else
		text = xasprintf(
			"it had mode %04o, owner %u, group %u; atoll %s %s brings them back",
			(unsigned)o->new_stat.mode & 07777, (unsigned)o->new_stat.uid,
			(unsigned)o->new_stat.gid, back, p->plan);
	atoll_participant_note(p, ATOLL_NOTE_KEPT, o->path, text);
}

void dir_found_say(struct atoll_participant *p, struct dir_batch *b, enum dir_found side)
{
	const unsigned both = MANIFEST_INSISTED | MANIFEST_PENDING;
	const struct manifest *m = &b->found[side];
	cleanup_free char *last = NULL;

	for (size_t i = 0, n = 0; i < m->ops.n && n < LIMIT_CONFLICTS; i++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;

		if (manifest_get(m, i, &o) < 0 || (o.flags & both) != both || !o.new_stat.mode ||
		    (last && path_below(o.path, last)))
			continue;
		say_one(p, b, side, &o);
		free(last);
		last = xstrdup(o.path);
		n++;
	}
}
