/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listing one directory, and going through a tree with a stack of our own: depth costs memory
 * for names, neither stack nor, beyond OPEN_LEVELS, descriptors.
 */
#include "fs/walk.h"

#include "fs/fs-impl.h"
#include "fs/resolve.h"
#include "fs/stat.h"
#include "util/cleanup.h"
#include "util/limits.h"
#include "util/mem.h"

#include <atoll.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DENTS_SIZE  (64u << 10)
#define OPEN_LEVELS 64u

/* While reading, names are offsets: the arena may still move. */
struct reader {
	struct dirlist_entry *v;
	size_t n, cap;
	char *arena;
	size_t used, arena_cap;
};

static bool is_dot(const char *name)
{
	return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

static int reader_add(struct reader *rd, const char *name, unsigned char type)
{
	size_t len = strlen(name) + 1;
	void *v = rd->v;
	void *arena = rd->arena;
	int r;

	if (rd->n >= LIMIT_DIR_ENTRIES)
		return -ATOLL_E_TOO_BIG;
	r = grow(&v, &rd->cap, rd->n + 1, sizeof(*rd->v));
	rd->v = v;
	if (r < 0)
		return r;
	r = grow(&arena, &rd->arena_cap, rd->used + len, 1);
	rd->arena = arena;
	if (r < 0)
		return r;
	memcpy(rd->arena + rd->used, name, len);
	rd->v[rd->n++] = (struct dirlist_entry){
		.name = (const char *)(uintptr_t)rd->used,
		.type = type,
	};
	rd->used += len;
	return 0;
}

static int reader_add_unknown(struct reader *rd, int fd, const char *name)
{
	struct fs_stat st;
	int r = fs_stat_at(fd, name, 0, &st);

	if (r == -ENOENT)
		return 0; /* gone meanwhile */
	return r < 0 ? r : reader_add(rd, name, (unsigned char)IFTODT(st.mode));
}

static int read_all(int fd, char *buf, struct reader *rd)
{
	for (;;) {
		ssize_t len = getdents64(fd, buf, DENTS_SIZE);

		if (len <= 0)
			return len < 0 ? -errno : 0;
		for (ssize_t at = 0; at < len;) {
			const struct dirent64 *d = (const void *)(buf + at);
			int r = 0;

			at += d->d_reclen;
			if (is_dot(d->d_name))
				continue;
			if (d->d_type == DT_UNKNOWN)
				r = reader_add_unknown(rd, fd, d->d_name);
			else
				r = reader_add(rd, d->d_name, d->d_type);
			if (r < 0)
				return r;
		}
	}
}

static int by_name(const void *a, const void *b)
{
	const struct dirlist_entry *x = a;
	const struct dirlist_entry *y = b;

	return strcmp(x->name, y->name);
}

int dirlist_read_fresh(int fd, struct dirlist *ret)
{
	cleanup_free char *buf = malloc(DENTS_SIZE);
	struct reader rd = { 0 };
	int r = buf != NULL ? read_all(fd, buf, &rd) : -ENOMEM;
	if (r < 0) {
		free(rd.v);
		free(rd.arena);
		return r;
	}
	for (size_t i = 0; i < rd.n; i++)
		rd.v[i].name = rd.arena + (uintptr_t)rd.v[i].name;
	if (rd.n > 1)
		qsort(rd.v, rd.n, sizeof(*rd.v), by_name);
	*ret = (struct dirlist){ .v = rd.v, .n = rd.n, .arena = rd.arena };
	return 0;
}

int dirlist_read(int dir_fd, struct dirlist *ret)
{
	cleanup_close int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -errno : dirlist_read_fresh(fd, ret);
}

void dirlist_done(struct dirlist *d)
{
	int e = errno;

	free(d->v);
	free(d->arena);
	*d = DIRLIST_INIT;
	errno = e;
}

/* A directory being gone through. */
struct level {
	int fd;            /* FD_NONE while too many deeper ones are open */
	uint64_t dev, ino; /* set when fd was given up, to know it again */
	struct dirlist list;
	size_t next;
	size_t path_len; /* of the directory, in walk.path */
};

struct walk {
	int root_fd;
	int base_fd; /* holds the start */
	walk_fn fn, post;
	void *ctx;
	int *first_error; /* NULL: errors end the walk */
	struct level *v;
	size_t n, cap;
	char *path;
	size_t path_cap;
};

/* An error of entering or reading a directory: final, or noted and passed over. */
static int tolerate(struct walk *w, int r)
{
	if (r >= 0 || w->first_error == NULL)
		return r;
	if (*w->first_error == 0)
		*w->first_error = r;
	return 0;
}

static int path_set(struct walk *w, size_t dir_len, const char *name)
{
	size_t len = strlen(name);
	size_t slash = dir_len > 0 ? 1 : 0;
	void *p = w->path;
	int r;

	if (dir_len + slash + len > LIMIT_PATH)
		return -ATOLL_E_TOO_BIG;
	r = grow(&p, &w->path_cap, dir_len + slash + len + 1, 1);
	w->path = p;
	if (r < 0)
		return r;
	if (slash != 0)
		w->path[dir_len] = '/';
	memcpy(w->path + dir_len + slash, name, len + 1);
	return 0;
}

/* Keeps the number of open levels bounded. */
static void give_up_old(struct walk *w)
{
	struct level *old;
	struct fs_stat st;

	if (w->n <= OPEN_LEVELS)
		return;
	old = &w->v[w->n - OPEN_LEVELS - 1];
	if (old->fd == FD_NONE || fs_stat_at(old->fd, "", 0, &st) < 0)
		return;
	old->dev = st.dev;
	old->ino = st.id.ino;
	close_fd(&old->fd);
}

/* Takes FD, just opened, also on failure. The path is that of the directory. */
static int push(struct walk *w, int fd)
{
	struct level lv = { .fd = fd, .path_len = strlen(w->path) };
	void *v = w->v;
	int r;

	r = tolerate(w, dirlist_read_fresh(fd, &lv.list));
	if (r == 0) {
		r = grow(&v, &w->cap, w->n + 1, sizeof(*w->v));
		w->v = v;
	}
	if (r < 0) {
		dirlist_done(&lv.list);
		close_fd(&lv.fd);
		return r;
	}
	w->v[w->n++] = lv;
	give_up_old(w);
	return 0;
}

/* The parent through the child's "..": one step, right if it is the directory we came from.
 * Resolving from the root each time would cost the square of the depth. */
static int reopen_through(int child_fd, struct level *lv)
{
	cleanup_close int fd = openat(child_fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct fs_stat st;

	if (fd < 0 || fs_stat_at(fd, "", 0, &st) < 0 || st.dev != lv->dev || st.id.ino != lv->ino)
		return -ENOENT;
	lv->fd = take_fd(&fd);
	return 0;
}

/* The path in w->path is that of the level. */
static int reopen(struct walk *w, int child_fd, struct level *lv)
{
	if (lv->fd != FD_NONE)
		return 0;
	if (reopen_through(child_fd, lv) == 0)
		return 0;
	return resolve_dir(w->root_fd, w->path, &lv->fd);
}

/* The deepest level is finished. */
static int pop(struct walk *w)
{
	struct level lv = w->v[--w->n];
	struct level *up = w->n > 0 ? &w->v[w->n - 1] : NULL;
	const char *name = ".";
	int r = 0;

	if (up != NULL) {
		w->path[up->path_len] = '\0';
		r = reopen(w, lv.fd, up);
	}
	dirlist_done(&lv.list);
	close_fd(&lv.fd);
	if (r < 0 || w->post == NULL)
		return r;
	if (up != NULL) {
		name = up->list.v[up->next - 1].name;
		r = path_set(w, up->path_len, name);
	} else if (lv.path_len > 0) {
		const char *slash = strrchr(w->path, '/');

		name = slash != NULL ? slash + 1 : w->path;
	}
	if (r == 0)
		r = w->post(w->ctx, up != NULL ? up->fd : w->base_fd, name, w->path, DT_DIR);
	return r < 0 ? r : 0;
}

static bool not_there(int r)
{
	return r == -ENOENT || r == -ENOTDIR || r == -ELOOP;
}

/* Shows one entry, whose path is set, and enters it if it is a directory. */
static int visit(struct walk *w, int dir_fd, const char *name, unsigned char type)
{
	int fd;
	int r = w->fn(w->ctx, dir_fd, name, w->path, type);

	if (r != 0 || type != DT_DIR)
		return r < 0 ? r : 0;
	r = fs_open_below(dir_fd, name, O_RDONLY | O_DIRECTORY, &fd);
	if (r == -EXDEV || not_there(r))
		return 0; /* another mount, or replaced meanwhile */
	if (r == 0)
		return push(w, fd);
	r = tolerate(w, r);
	if (r == 0 && w->post != NULL)
		r = w->post(w->ctx, dir_fd, name, w->path, DT_DIR);
	return r < 0 ? r : 0;
}

static int run(struct walk *w)
{
	int r = 0;

	while (r == 0 && w->n > 0) {
		struct level *lv = &w->v[w->n - 1];

		w->path[lv->path_len] = '\0';
		if (lv->next == lv->list.n) {
			r = pop(w);
			continue;
		}
		const struct dirlist_entry *e = &lv->list.v[lv->next++];

		r = path_set(w, lv->path_len, e->name);
		if (r == 0)
			r = visit(w, lv->fd, e->name, e->type);
	}
	return r;
}

static int begin(struct walk *w, const char *start, int *base_fd)
{
	struct fs_stat st;
	const char *name;
	int fd;
	int r;

	r = path_set(w, 0, start);
	if (r < 0)
		return r;
	if (start[0] == '\0') {
		r = resolve_dir(w->root_fd, "", &fd);
		return r < 0 ? r : push(w, fd);
	}
	r = resolve_parent(w->root_fd, start, base_fd, &name);
	if (r == 0)
		r = fs_stat_at(*base_fd, name, 0, &st);
	if (r < 0)
		return r;
	w->base_fd = *base_fd;
	return visit(w, *base_fd, name, (unsigned char)IFTODT(st.mode));
}

static int walk(struct walk *w, const char *start)
{
	cleanup_close int base_fd = FD_NONE;
	int r = begin(w, start, &base_fd);

	if (r == 0)
		r = run(w);
	while (w->n > 0) {
		struct level *lv = &w->v[--w->n];

		dirlist_done(&lv->list);
		close_fd(&lv->fd);
	}
	free(w->v);
	free(w->path);
	return r;
}

int walk_tree(int root_fd, const char *start, walk_fn fn, walk_fn post, void *ctx)
{
	struct walk w = { .root_fd = root_fd,
		          .base_fd = root_fd,
		          .fn = fn,
		          .post = post,
		          .ctx = ctx };

	return walk(&w, start);
}

int walk_tree_past(int root_fd, const char *start, walk_fn fn, walk_fn post, void *ctx,
                   int *first_error)
{
	struct walk w = { .root_fd = root_fd,
		          .base_fd = root_fd,
		          .fn = fn,
		          .post = post,
		          .ctx = ctx,
		          .first_error = first_error };

	return walk(&w, start);
}
