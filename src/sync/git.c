/* SPDX-License-Identifier: Apache-2.0 */
/* What git ignores, and what in `.git` is what. */
#include "sync/git.h"

#include "fs/atomic.h"
#include "fs/stat.h"
#include "fs/walk.h"
#include "sync/git-run.h"
#include "sync/path.h"
#include "sync/place.h"
#include "util/cleanup.h"
#include "util/hash.h"
#include "util/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ANSWER_MAX (1ull << 30)

int sync_git_is_repository(int root_fd)
{
	struct fs_stat st;
	int r = fs_stat_at(root_fd, ".git", 0, &st);

	if (r == -ENOENT)
		return 0;
	return r < 0 ? r : S_ISDIR(st.mode);
}

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && strcmp(s + n - m, end) == 0;
}

bool sync_git_is_passing(const char *path)
{
	const char *name = strrchr(path, '/');

	if (strncmp(path, ".git/", 5) != 0)
		return false;
	if (ends_with(path, ".lock"))
		return true;
	return strncmp(path, ".git/objects/", 13) == 0 &&
	       (strncmp(name, "/tmp_", 5) == 0 || strncmp(name, "/.tmp-", 6) == 0);
}

bool sync_git_is_object(const char *path, char name[SYNC_GIT_NAME_MAX])
{
	size_t n = 0;

	if (strncmp(path, ".git/objects/", 13) != 0)
		return false;
	for (const char *p = path + 13; *p; p++) {
		if (n == 2 && p == path + 15) {
			if (*p != '/')
				return false;
			continue;
		}
		if (n == SYNC_GIT_NAME_MAX - 1 || !strchr("0123456789abcdef", *p))
			return false;
		name[n++] = *p;
	}
	name[n] = '\0';
	return n == 40 || n == 64;
}

/* ---- the state of refs and index ---- */

static int add_look(void *ctx, int dir_fd, const char *name, const char *path, unsigned char type)
{
	struct hash *h = ctx;
	struct fs_stat st;
	int r = fs_stat_at(dir_fd, name, 0, &st);
	int64_t look[] = { r, 0, 0, 0, 0 };

	(void)type;
	if (r == 0) {
		look[1] = (int64_t)st.id.ino;
		look[2] = (int64_t)st.size;
		look[3] = st.mtime_ns;
		look[4] = st.ctime_ns;
	}
	/* A lock comes and goes without a change, and with it the time of the directory. */
	if (ends_with(name, ".lock"))
		return 0;
	hash_add(h, path, strlen(path) + 1);
	if (r < 0 || !S_ISDIR(st.mode))
		hash_add(h, look, sizeof(look));
	return 0;
}

int sync_git_state(int root_fd, unsigned char ret[SYNC_HASH_SIZE])
{
	static const char *const files[] = { ".git/HEAD", ".git/index", ".git/packed-refs" };
	cleanup_hash struct hash *h = hash_new();
	int r;

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		(void)add_look(h, root_fd, files[i], files[i], 0);
	r = walk_tree(root_fd, ".git/refs", add_look, NULL, h);
	if (r < 0 && r != -ENOENT && r != -ENOTDIR && r != -ELOOP)
		return r;
	hash_bytes(h, ret);
	return 0;
}

/* ---- what is ignored ---- */

void sync_ignored_done(struct sync_ignored *i)
{
	int e = errno;

	free(i->text);
	free(i->v);
	*i = (struct sync_ignored){ 0 };
	errno = e;
}

static int by_path(const void *a, const void *b)
{
	return sync_path_compare(*(const char *const *)a, *(const char *const *)b);
}

static int split(struct sync_ignored *i, size_t len)
{
	for (char *at = i->text; at < i->text + len;) {
		size_t n = strlen(at);
		char *path = strncmp(at, "./", 2) == 0 ? at + 2 : at;
		void *v = i->v;
		int r = grow(&v, &i->cap, i->n + 1, sizeof(*i->v));

		i->v = v;
		if (r < 0)
			return r;
		if (n > 0 && at[n - 1] == '/')
			at[n - 1] = '\0';
		if (sync_path_is_good(path, strlen(path)))
			i->v[i->n++] = path;
		at += n + 1;
	}
	if (i->n > 1)
		qsort(i->v, i->n, sizeof(*i->v), by_path);
	return 0;
}

/* A directory that is not ignored, but has nothing in it that is not, is named before what is in it; one
 * that is ignored is named alone. */
static void drop_parents(struct sync_ignored *i)
{
	size_t n = 0;

	for (size_t k = 0; k < i->n; k++)
		if (k + 1 == i->n || !sync_path_is_below(i->v[k + 1], i->v[k]))
			i->v[n++] = i->v[k];
	i->n = n;
}

static int ask(const struct sync_git_how *how, struct sync_ignored *ret, struct error *err)
{
	cleanup_sync_git struct sync_git g = SYNC_GIT_INIT;
	size_t len = 0;
	int r = sync_git_start(&g, how, err);

	if (r < 0)
		return r;
	r = fs_read_all(g.pipe, ANSWER_MAX, &ret->text, &len);
	if (r == 0)
		r = split(ret, len);
	if (r < 0)
		return error_sys(err, r, "read", "the answer of git");
	r = sync_git_finish(&g, err);
	return r < 0 ? r : 0;
}

int sync_git_ignored(int root_fd, enum sync_git_rules rules, struct sync_ignored *ret,
                     struct error *err)
{
	static const char *const args[] = { "ls-files",           "-z",          "-o", "-i",
		                            "--exclude-standard", "--directory", NULL };
	int r = ask(&(struct sync_git_how){ .root_fd = root_fd, .args = args, .rules = rules }, ret,
	            err);

	if (r == 0)
		drop_parents(ret);
	return r;
}

/* What was in a directory that is a link now is gone, and git says nothing of it but that. */
static bool is_beyond_link(struct sync_place *at, const char *path)
{
	const char *name;

	return sync_place_enter(at, path, &name) == -ELOOP;
}

int sync_git_check(int root_fd, const char *const *paths, size_t n, struct sync_ignored *ret,
                   struct error *err)
{
	static const char *const args[] = { "check-ignore", "-z", "--stdin", NULL };
	cleanup_sync_place struct sync_place at = SYNC_PLACE_AT(root_fd);
	cleanup_strbuf struct strbuf in = STRBUF_INIT;

	/* With a dot before it nothing in a path has a meaning of its own. */
	for (size_t i = 0; i < n; i++) {
		if (is_beyond_link(&at, paths[i]))
			continue;
		strbuf_puts(&in, "./");
		strbuf_add(&in, paths[i], strlen(paths[i]) + 1);
	}
	if (in.len == 0)
		return 0;
	return ask(&(struct sync_git_how){ .root_fd = root_fd, .args = args, .in = &in }, ret, err);
}

static bool has_itself(const struct sync_ignored *i, const char *path)
{
	return i->n > 0 && bsearch(&path, i->v, i->n, sizeof(*i->v), by_path);
}

bool sync_ignored_has(const struct sync_ignored *i, const char *path)
{
	cleanup_free char *above = NULL;

	if (i->n == 0)
		return false;
	above = xstrdup(path);
	for (;;) {
		char *slash = strrchr(above, '/');

		if (has_itself(i, above))
			return true;
		if (!slash)
			return false;
		*slash = '\0';
	}
}
