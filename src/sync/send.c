/* SPDX-License-Identifier: Apache-2.0 */
#include "sync/send.h"

#include "fs/atomic.h"
#include "fs/walk.h"
#include "sync/content.h"
#include "sync/git.h"
#include "sync/path.h"
#include "sync/place.h"
#include "util/cleanup.h"
#include "util/list.h"
#include "util/mem.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PATHS_MAX (1ull << 30) /* of all paths, bytes */

struct sending {
	struct sync_place place;
	struct strlist objects; /* names */
	bool is_repository;
	struct sync_look *look;
	struct sync_writer *w;
};

static void sending_done(struct sending *s)
{
	sync_place_done(&s->place);
	strlist_done(&s->objects);
	sync_look_free(s->look);
	sync_writer_free(s->w);
}
#define cleanup_sending __attribute__((__cleanup__(sending_done)))

static int begin(struct sending *s, int root_fd, sync_write_fn fn, void *ctx, struct error *err)
{
	int r = sync_writer_new(fn, ctx, &s->w);

	s->place = SYNC_PLACE_AT(root_fd);
	s->look = sync_look_new();
	if (r < 0)
		return error_set(err, r, "no memory to write a stream");
	r = sync_git_is_repository(root_fd);
	s->is_repository = r > 0;
	return r < 0 ? error_sys(err, r, "look at", ".git") : 0;
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

/* Is something at PATH? Not beyond a link. */
static int is_there(struct sending *s, const char *path, bool *ret)
{
	struct fs_stat st;
	const char *name;
	int r = sync_place_enter(&s->place, path, &name);

	if (r == 0)
		r = fs_stat_at(s->place.dir_fd, name, 0, &st);
	*ret = r == 0;
	return is_absent(r) ? 0 : r;
}

/* Before everything else, deepest first. */
static int send_gone(struct sending *s, const struct paths *p, struct error *err)
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

static int send_one(struct sending *s, const char *path)
{
	char object[SYNC_GIT_NAME_MAX];
	struct sync_content c;
	const char *name;
	bool is_object = s->is_repository && sync_git_is_object(path, object);
	int r = sync_place_enter(&s->place, path, &name);

	if (r == 0)
		r = sync_look_at(s->look, s->place.dir_fd, name, path, false,
		                 is_object ? NULL : s->w, &c);
	if (r == 0 && is_object && S_ISREG(c.st.mode))
		strlist_add(&s->objects, object);
	return is_absent(r) ? 0 : r;
}

/* The objects in one pack, and which they were, so that the other side knows that it has them. */
static int send_objects(struct sending *s, struct error *err)
{
	int r = s->objects.n > 0 ? sync_git_send_objects(s->place.root_fd, &s->objects, s->w, err)
	                         : 0;

	for (size_t i = 0; r == 0 && i < s->objects.n; i++) {
		const char *name = s->objects.v[i];
		cleanup_free char *path = xasprintf(".git/objects/%.2s/%s", name, name + 2);
		const struct sync_record rec = { .type = SYNC_ENTRY,
			                         .path = path,
			                         .mode = S_IFREG | 0444 };

		r = sync_write(s->w, &rec);
		if (r < 0)
			return error_sys(err, r, "send", path);
	}
	return r;
}

/* ---- what stays here ---- */

/* Does a directory above PATH, other than the root, hold a `.git`? The rules of this repository do not
 * reach into that one. */
static bool is_foreign(const struct sending *s, const char *path)
{
	cleanup_free char *above = xstrdup(path);
	struct fs_stat st;

	for (char *slash; (slash = strrchr(above, '/')) != NULL;) {
		cleanup_free char *git = NULL;

		*slash = '\0';
		git = xasprintf("%s/.git", above);
		if (fs_stat_at(s->place.root_fd, git, 0, &st) == 0)
			return true;
	}
	return false;
}

static bool is_of_git(const char *path)
{
	return strncmp(path, ".git", 4) == 0 && (path[4] == '/' || path[4] == '\0');
}

/* Out of PATHS with git's own passing files and with what it ignores. */
static int leave_out(const struct sending *s, struct paths *p, struct error *err)
{
	cleanup_sync_ignored struct sync_ignored ignored = { 0 };
	cleanup_free const char **asked = calloc(p->n + 1, sizeof(*asked));
	size_t n = 0;
	int r;

	if (!asked)
		return error_set(err, -ENOMEM, "no memory for the paths");
	for (size_t i = 0; i < p->n; i++)
		if (!is_of_git(p->v[i]) && !is_foreign(s, p->v[i]))
			asked[n++] = p->v[i];
	r = sync_git_check(s->place.root_fd, asked, n, &ignored, err);
	if (r < 0)
		return r;
	n = 0;
	for (size_t i = 0; i < p->n; i++)
		if (!sync_git_is_passing(p->v[i]) && !sync_ignored_has(&ignored, p->v[i]))
			p->v[n++] = p->v[i];
	p->n = n;
	return 0;
}

int sync_send_paths(int root_fd, int paths_fd, sync_write_fn fn, void *ctx, struct error *err)
{
	cleanup_sending struct sending s = { 0 };
	cleanup_paths struct paths p = { 0 };
	int r = begin(&s, root_fd, fn, ctx, err);

	if (r == 0)
		r = read_paths(paths_fd, &p, err);
	if (r == 0 && s.is_repository)
		r = leave_out(&s, &p, err);
	if (r == 0)
		r = send_gone(&s, &p, err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < p.n; i++) {
		r = send_one(&s, p.v[i]);
		if (r < 0)
			return error_sys(err, r, "send", p.v[i]);
	}
	r = send_objects(&s, err);
	return r < 0 ? r : end(&s, err);
}

/* ---- lists ---- */

struct listing {
	struct sending s;
	struct sync_ignored ignored;
};

static int list_one(void *ctx, int dir_fd, const char *name, const char *path, unsigned char type)
{
	struct listing *l = ctx;
	struct sync_content c;
	struct sync_record rec = { .type = SYNC_ENTRY, .path = path };
	int r;

	if (l->s.is_repository &&
	    (sync_git_is_passing(path) || sync_ignored_has(&l->ignored, path)))
		return WALK_SKIP;
	r = sync_look_at(l->s.look, dir_fd, name, path, type == DT_REG, NULL, &c);
	if (r < 0 || c.st.mode == 0)
		return r;
	rec.mode = c.st.mode;
	if ((!S_ISDIR(c.st.mode) && !S_ISREG(c.st.mode) && !S_ISLNK(c.st.mode)) || c.st.mount_root)
		rec.type = SYNC_SKIPPED;
	rec.mtime_ns = S_ISDIR(c.st.mode) ? 0 : c.st.mtime_ns;
	rec.other = c.target;
	rec.size = c.len;
	memcpy(rec.hash, c.hash, sizeof(rec.hash));
	return sync_write(l->s.w, &rec);
}

static void listing_done(struct listing *l)
{
	sending_done(&l->s);
	sync_ignored_done(&l->ignored);
}

int sync_send_list(int root_fd, sync_write_fn fn, void *ctx, struct error *err)
{
	__attribute__((__cleanup__(listing_done))) struct listing l = { 0 };
	int r = begin(&l.s, root_fd, fn, ctx, err);

	if (r == 0 && l.s.is_repository)
		r = sync_git_ignored(root_fd, SYNC_GIT_OWN, &l.ignored, err);
	if (r < 0)
		return r;
	r = walk_tree(root_fd, "", list_one, NULL, &l);
	return r < 0 ? error_sys(err, r, "list", "the tree") : end(&l.s, err);
}
