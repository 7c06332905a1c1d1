/* SPDX-License-Identifier: Apache-2.0 */
#include "sync/send.h"

#include "fs/atomic.h"
#include "fs/resolve.h"
#include "fs/walk.h"
#include "sync/content.h"
#include "sync/path.h"
#include "util/cleanup.h"
#include "util/mem.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PATHS_MAX (1ull << 30) /* of all paths, bytes */

struct sending {
	int root_fd;
	struct sync_look *look;
	struct sync_writer *w;
};

static void sending_done(struct sending *s)
{
	sync_look_free(s->look);
	sync_writer_free(s->w);
}
#define cleanup_sending __attribute__((__cleanup__(sending_done)))

static int begin(struct sending *s, int root_fd, sync_write_fn fn, void *ctx, struct error *err)
{
	int r = sync_writer_new(fn, ctx, &s->w);

	if (r < 0)
		return error_set(err, r, "no memory to write a stream");
	s->root_fd = root_fd;
	s->look = sync_look_new();
	return 0;
}

static int end(const struct sending *s, struct error *err)
{
	int r = sync_write_end(s->w);

	return r < 0 ? error_sys(err, r, "write", "the stream") : 0;
}

/* ---- paths ---- */

struct paths {
	char *text;
	const char **v; /* into it, sorted, each once */
	size_t n, cap;
};

static void paths_done(struct paths *p)
{
	free(p->text);
	free(p->v);
}
#define cleanup_paths __attribute__((__cleanup__(paths_done)))

static int by_path(const void *a, const void *b)
{
	return sync_path_compare(*(const char *const *)a, *(const char *const *)b);
}

static void sort_paths(struct paths *p)
{
	size_t n = 0;

	if (p->n > 1)
		qsort(p->v, p->n, sizeof(*p->v), by_path);
	for (size_t i = 0; i < p->n; i++)
		if (n == 0 || strcmp(p->v[n - 1], p->v[i]) != 0)
			p->v[n++] = p->v[i];
	p->n = n;
}

static int read_paths(int fd, struct paths *p, struct error *err)
{
	size_t len = 0;
	int r = fs_read_all(fd, PATHS_MAX, &p->text, &len);

	if (r < 0)
		return error_sys(err, r, "read", "the paths");
	if (len > 0 && p->text[len - 1] != '\0')
		return error_set(err, -ATOLL_E_INVALID, "the last path does not end with a NUL");
	for (char *at = p->text; at < p->text + len;) {
		size_t n = strlen(at);
		void *v = p->v;

		if (!sync_path_is_good(at, n))
			return error_set(err, -ATOLL_E_INVALID, "'%.200s' is no path below a root",
			                 at);
		r = grow(&v, &p->cap, p->n + 1, sizeof(*p->v));
		p->v = v;
		if (r < 0)
			return error_set(err, r, "no memory for the paths");
		p->v[p->n++] = at;
		at += n + 1;
	}
	sort_paths(p);
	return 0;
}

/* ---- what is there ---- */

static bool is_absent(int r)
{
	return r == -ENOENT || r == -ENOTDIR || r == -ELOOP;
}

/* Is something at PATH? Not a link's, nor beyond one. */
static int is_there(const struct sending *s, const char *path, bool *ret)
{
	cleanup_close int dir_fd = FD_NONE;
	struct fs_stat st;
	const char *name;
	int r = resolve_parent(s->root_fd, path, &dir_fd, &name);

	if (r == 0)
		r = fs_stat_at(dir_fd, name, 0, &st);
	*ret = r == 0;
	return is_absent(r) ? 0 : r;
}

/* Before everything else, deepest first. */
static int send_gone(const struct sending *s, const struct paths *p, struct error *err)
{
	for (size_t i = p->n; i-- > 0;) {
		const struct sync_record gone = { .type = SYNC_GONE, .path = p->v[i] };
		bool there;
		int r = is_there(s, p->v[i], &there);

		if (r < 0)
			return error_sys(err, r, "look at", p->v[i]);
		r = there ? 0 : sync_write(s->w, &gone);
		if (r < 0)
			return error_sys(err, r, "send", p->v[i]);
	}
	return 0;
}

static int send_one(const struct sending *s, const char *path)
{
	cleanup_close int dir_fd = FD_NONE;
	struct sync_content c;
	const char *name;
	int r = resolve_parent(s->root_fd, path, &dir_fd, &name);

	if (r == 0)
		r = sync_look_at(s->look, dir_fd, name, path, false, s->w, &c);
	return is_absent(r) ? 0 : r;
}

int sync_send_paths(int root_fd, int paths_fd, sync_write_fn fn, void *ctx, struct error *err)
{
	cleanup_sending struct sending s = { 0 };
	cleanup_paths struct paths p = { 0 };
	int r = begin(&s, root_fd, fn, ctx, err);

	if (r == 0)
		r = read_paths(paths_fd, &p, err);
	if (r == 0)
		r = send_gone(&s, &p, err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < p.n; i++) {
		r = send_one(&s, p.v[i]);
		if (r < 0)
			return error_sys(err, r, "send", p.v[i]);
	}
	return end(&s, err);
}

/* ---- lists ---- */

static int list_one(void *ctx, int dir_fd, const char *name, const char *path, unsigned char type)
{
	const struct sending *s = ctx;
	struct sync_content c;
	struct sync_record rec = { .type = SYNC_ENTRY, .path = path };
	int r = sync_look_at(s->look, dir_fd, name, path, type == DT_REG, NULL, &c);

	if (r < 0 || c.st.mode == 0)
		return r;
	rec.mode = c.st.mode;
	if (!S_ISDIR(c.st.mode) && !S_ISREG(c.st.mode) && !S_ISLNK(c.st.mode))
		rec.type = SYNC_SKIPPED;
	rec.mtime_ns = S_ISDIR(c.st.mode) ? 0 : c.st.mtime_ns;
	rec.other = c.target;
	rec.size = c.len;
	memcpy(rec.hash, c.hash, sizeof(rec.hash));
	return sync_write(s->w, &rec);
}

int sync_send_list(int root_fd, sync_write_fn fn, void *ctx, struct error *err)
{
	cleanup_sending struct sending s = { 0 };
	int r = begin(&s, root_fd, fn, ctx, err);

	if (r < 0)
		return r;
	r = walk_tree(root_fd, "", list_one, NULL, &s);
	return r < 0 ? error_sys(err, r, "list", "the tree") : end(&s, err);
}
