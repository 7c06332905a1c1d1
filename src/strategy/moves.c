/* SPDX-License-Identifier: Apache-2.0 */
/* Which ctime of an entry became which when Atoll moved it away and back. See moves.h. */
#include "strategy/moves.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/atomic.h"
#include "fs/walk.h"
#include "strategy/strategy-impl.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"

#define MOVES "moves"

struct move {
	struct fs_id id;
	int64_t was_ns, now_ns;
};

struct moves {
	struct move *v; /* by id */
	size_t n, cap;
};

void moves_free(struct moves *m)
{
	if (m)
		free(m->v);
	free(m);
}

/* ---- writing ---- */

static bool is_same_version(const struct fs_stat *was, const struct fs_stat *now)
{
	return fs_id_equal(was->id, now->id) && was->mode == now->mode && was->uid == now->uid &&
	       was->gid == now->gid && was->size == now->size &&
	       (S_ISDIR(now->mode) || was->mtime_ns == now->mtime_ns);
}

int moves_add(struct manifest *to, const char *path, const struct fs_stat *was,
              const struct fs_stat *now)
{
	struct manifest_op o = { .op = CHANGE_REPLACE, .flags = MANIFEST_RECORD };

	/* A ctime of 0 says that it was changed already. */
	if (!to || was->ctime_ns == 0 || now->ctime_ns == 0 || was->ctime_ns == now->ctime_ns ||
	    !is_same_version(was, now))
		return 0;
	o.path = xstrdup(path);
	o.old_stat = *was;
	o.new_stat = *now;
	return manifest_add_op(to, &o);
}

int moves_write(struct atoll_participant *p, const struct manifest *to)
{
	cleanup_close int fd = FD_NONE;
	cleanup_free char *name = NULL;
	char hash[HASH_TEXT_LEN];
	int r;

	if (!to->ops.n)
		return 0;
	/* Never that of another undo: what it says still counts. */
	name = xasprintf("%s-b%" PRIu32 "-%" PRId64, p->id, p->batch.number, clock_real_ns());
	r = fs_private_dir_at(p->store_fd, MOVES, &fd);
	if (r >= 0)
		r = manifest_write(to, fd, name, hash, NULL);
	if (r == -ENOSPC || r == -EDQUOT) {
		if (fd != FD_NONE)
			(void)fs_unlink_at(fd, name);
		return 0;
	}
	if (r >= 0 && p->batch.sync)
		r = syncset_add(p->batch.sync, fd, name);
	if (r >= 0 && p->batch.sync)
		r = syncset_add(p->batch.sync, fd, "");
	return r < 0 ? error_sys(&p->err, r, "record what was put back in", p->root) : 0;
}

/* ---- reading ---- */

static int by_id(const void *a, const void *b)
{
	const struct move *x = a, *y = b;

	if (x->id.ino != y->id.ino)
		return x->id.ino < y->id.ino ? -1 : 1;
	return x->id.gen < y->id.gen ? -1 : x->id.gen > y->id.gen;
}

static void read_file(struct moves *m, int dir_fd, const char *name)
{
	struct manifest file = MANIFEST_INIT;

	if (manifest_read(dir_fd, name, "", &file, NULL) < 0)
		return;
	for (size_t i = 0; i < file.ops.n; i++) {
		cleanup_manifest_op struct manifest_op o = MANIFEST_OP_INIT;

		if (manifest_get(&file, i, &o) < 0 ||
		    grow((void **)&m->v, &m->cap, m->n + 1, sizeof(*m->v)) < 0)
			break;
		m->v[m->n++] =
			(struct move){ o.new_stat.id, o.old_stat.ctime_ns, o.new_stat.ctime_ns };
	}
	manifest_done(&file);
}

static int open_moves(int store_fd)
{
	return openat(store_fd, MOVES, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static struct moves *read_all(int store_fd)
{
	cleanup_dirlist struct dirlist names = DIRLIST_INIT;
	cleanup_close int fd = open_moves(store_fd);
	struct moves *m = xcalloc(1, sizeof(*m));

	if (fd < 0 || dirlist_read(fd, &names) < 0)
		return m;
	for (size_t i = 0; i < names.n; i++)
		read_file(m, fd, names.v[i].name);
	if (m->n > 1)
		qsort(m->v, m->n, sizeof(*m->v), by_id);
	return m;
}

/* Those of one entry are few: as many as it was put back. */
#define MOVES_OF_ONE 256

bool moves_same(struct atoll_participant *p, struct fs_id id, int64_t was_ns, int64_t now_ns)
{
	const struct move key = { .id = id };
	int64_t known[MOVES_OF_ONE + 1] = { was_ns };
	size_t n = 1, from, to;
	const struct move *v, *hit;

	if (was_ns == now_ns)
		return true;
	if (was_ns == 0 || now_ns == 0 || fs_id_none(id))
		return false;
	if (!p->moves)
		p->moves = read_all(p->store_fd);
	v = p->moves->v;
	hit = p->moves->n ? bsearch(&key, v, p->moves->n, sizeof(*v), by_id) : NULL;
	if (!hit)
		return false;
	for (from = (size_t)(hit - v); from > 0 && by_id(&v[from - 1], &key) == 0;)
		from--;
	for (to = (size_t)(hit - v) + 1; to < p->moves->n && by_id(&v[to], &key) == 0;)
		to++;
	/* All that is the same version as what is known to be. */
	for (size_t at = 0; at < n; at++)
		for (size_t i = from; i < to; i++) {
			int64_t other = v[i].was_ns == known[at]   ? v[i].now_ns
			                : v[i].now_ns == known[at] ? v[i].was_ns
			                                           : 0;
			bool is_known = other == 0;

			for (size_t k = 0; k < n && !is_known; k++)
				is_known = known[k] == other;
			if (is_known || n > MOVES_OF_ONE)
				continue;
			if (other == now_ns)
				return true;
			known[n++] = other;
		}
	return false;
}

bool moves_same_entry(struct atoll_participant *p, const struct fs_stat *was,
                      const struct fs_stat *now)
{
	return is_same_version(was, now) && moves_same(p, now->id, was->ctime_ns, now->ctime_ns);
}

/* ---- tidying ---- */

bool moves_any(int store_fd)
{
	cleanup_dirlist struct dirlist names = DIRLIST_INIT;
	cleanup_close int fd = open_moves(store_fd);

	return fd >= 0 && dirlist_read(fd, &names) >= 0 && names.n > 0;
}

void moves_tidy(int store_fd, int64_t oldest_ms)
{
	cleanup_dirlist struct dirlist names = DIRLIST_INIT;
	cleanup_close int fd = open_moves(store_fd);

	if (fd < 0 || dirlist_read(fd, &names) < 0)
		return;
	for (size_t i = 0; i < names.n; i++) {
		struct fs_stat st;

		if (fs_stat_at(fd, names.v[i].name, 0, &st) >= 0 &&
		    st.mtime_ns / 1000000 < oldest_ms)
			(void)fs_unlink_at(fd, names.v[i].name);
	}
}
