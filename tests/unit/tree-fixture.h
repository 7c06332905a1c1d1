/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An original, its workspace and its base record. Scripts edit them ($O, $W), change sets are
 * compared as text: one line per change, "~ path ct" (+ created, ~ replaced, - deleted, @
 * attributes; c content, m mode, o owner, x xattr, t mtime, T type, E escaping link, S set-id,
 * P special; after '!' U unreadable, K skipped).
 *
 * Helpers abort instead of asserting, so that they serve in children too.
 */
#ifndef UNIT_TREE_FIXTURE_H
#define UNIT_TREE_FIXTURE_H

#include "unit/fs-fixture.h"

#include "diff/tree.h"
#include "fs/stamp.h"
#include "fs/stat.h"
#include "util/cleanup.h"
#include "util/escape.h"
#include "util/strbuf.h"

#define REQUIRE(cond)                                                                \
	do {                                                                         \
		if (!(cond)) {                                                       \
			fprintf(stderr, "# %s:%d: %s\n", __FILE__, __LINE__, #cond); \
			abort();                                                     \
		}                                                                    \
	} while (0)

struct tree {
	int fd; /* holds all of it */
	int orig_fd;
	int work_fd;
	struct base *base;
	struct strlist excludes;
	struct strbuf notes; /* "path: why\n" */
	struct tree_compare cmp;
	struct changeset cs;
	struct change seen[4]; /* what tree_change() gave */
	struct error err;
};

/* One of the first changes, until the next diff. */
static inline struct change *tree_change(struct tree *t, size_t i)
{
	change_done(&t->seen[i]);
	REQUIRE(i < t->cs.v.n && changeset_get(&t->cs.v, i, &t->seen[i]) == 0);
	return &t->seen[i];
}

static inline void tree_drop(struct tree *t)
{
	base_free(t->base);
	changeset_done(&t->cs);
	for (size_t i = 0; i < sizeof(t->seen) / sizeof(t->seen[0]); i++)
		change_done(&t->seen[i]);
	strlist_done(&t->excludes);
	strbuf_done(&t->notes);
	error_done(&t->err);
	close_fd(&t->orig_fd);
	close_fd(&t->work_fd);
	REQUIRE(remove_tree_at(t->fd, "orig") == 0 && remove_tree_at(t->fd, "work") == 0);
	(void)unlinkat(t->fd, "base", 0);
	(void)unlinkat(t->fd, "stamp", 0);
}
#define cleanup_tree __attribute__((__cleanup__(tree_drop)))

/* With an empty original. DIR_FD is kept by the caller. */
static inline struct tree tree_start(int dir_fd)
{
	struct tree t = { .fd = dir_fd };

	REQUIRE(mkdirat(dir_fd, "orig", 0755) == 0 && mkdirat(dir_fd, "work", 0700) == 0);
	t.orig_fd = openat(dir_fd, "orig", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	t.work_fd = openat(dir_fd, "work", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	REQUIRE(t.orig_fd >= 0 && t.work_fd >= 0);
	return t;
}

/* A shell script in the directory that holds both trees; $O and $W are their paths. */
static inline void tree_sh(struct tree *t, const char *script)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;
	char proc[64], path[PATH_MAX];
	ssize_t n;

	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", t->fd);
	n = readlink(proc, path, sizeof(path) - 1);
	REQUIRE(n > 0);
	path[n] = '\0';
	strbuf_printf(&sb, "set -e; umask 022; cd '%s'; O=$PWD/orig; W=$PWD/work; %s", path,
	              script);
	REQUIRE(system(strbuf_str(&sb)) == 0);
}

static inline void tree_note(void *ctx, const char *path, const char *why)
{
	strbuf_printf(ctx, "%s: %s\n", path, why);
}

static inline int tree_try_copy(struct tree *t, unsigned threads)
{
	struct base_writer *w = NULL;
	int64_t t0;
	bool multigrain;
	int fd, r;

	fd = openat(t->fd, "base", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	REQUIRE(fd >= 0 && base_writer_new(fd, &w) == 0);
	r = tree_copy(t->orig_fd, t->work_fd, &t->excludes, w, threads, tree_note, &t->notes,
	              &t->err);
	base_writer_free(w);
	if (r == 0)
		REQUIRE(stamp_make(t->fd, "stamp", &t0, &multigrain) == 0 &&
		        base_open(fd, &t->base, &t->err) == 0);
	close(fd);
	t->cmp = (struct tree_compare){
		.work_fd = t->work_fd,
		.orig_fd = t->orig_fd,
		.base = t->base,
		.excludes = &t->excludes,
		.threads = threads,
	};
	return r;
}

static inline void tree_make(struct tree *t)
{
	int r = tree_try_copy(t, 3);

	if (r < 0)
		fprintf(stderr, "# %s\n", t->err.msg);
	REQUIRE(r == 0);
}

static inline void tree_put_bits(struct strbuf *sb, unsigned what, unsigned flags)
{
	static const struct {
		unsigned bit;
		char letter;
	} bits[] = {
		{ ATOLL_CHANGE_CONTENT, 'c' },       { ATOLL_CHANGE_MODE, 'm' },
		{ ATOLL_CHANGE_OWNER, 'o' },         { ATOLL_CHANGE_XATTR, 'x' },
		{ ATOLL_CHANGE_MTIME, 't' },         { ATOLL_CHANGE_TYPE, 'T' },
		{ ATOLL_CHANGE_ESCAPING_LINK, 'E' }, { ATOLL_CHANGE_SETUID, 'S' },
		{ ATOLL_CHANGE_SPECIAL, 'P' },
	};

	if (what)
		strbuf_putc(sb, ' ');
	for (size_t i = 0; i < sizeof(bits) / sizeof(bits[0]); i++)
		if (what & bits[i].bit)
			strbuf_putc(sb, bits[i].letter);
	if (flags)
		strbuf_printf(sb, " !%s%s", flags & BASE_UNREADABLE ? "U" : "",
		              flags & BASE_SKIPPED ? "K" : "");
}

/* The change set as text; caller frees. */
static inline char *tree_changes(struct tree *t)
{
	struct strbuf sb = STRBUF_INIT;
	int r;

	changeset_done(&t->cs);
	r = tree_diff(&t->cmp, &t->cs, &t->err);
	if (r < 0)
		fprintf(stderr, "# %s\n", t->err.msg);
	REQUIRE(r == 0);
	for (size_t i = 0; i < t->cs.v.n; i++) {
		cleanup_change struct change c = CHANGE_INIT;

		REQUIRE(changeset_get(&t->cs.v, i, &c) == 0);
		strbuf_printf(&sb, "%c ", "+~-@"[c.op]);
		escape_add(&sb, c.path, strlen(c.path));
		tree_put_bits(&sb, c.what, c.base_flags);
		strbuf_putc(&sb, '\n');
	}
	return strbuf_take(&sb);
}

static inline int tree_is(struct tree *t, const char *expected)
{
	cleanup_free char *got = tree_changes(t);

	if (strcmp(got, expected) == 0)
		return 1;
	fprintf(stderr, "# expected:\n%s# got:\n%s", expected, got);
	return 0;
}

/* The paths of the directories whose times are to be set, each with a blank after it. */
static inline char *tree_dirs(struct tree *t)
{
	struct strbuf sb = STRBUF_INIT;

	for (size_t i = 0; i < t->cs.n_dirs; i++)
		strbuf_printf(&sb, "%s ", *t->cs.dirs[i].path ? t->cs.dirs[i].path : ".");
	return strbuf_take(&sb);
}

/* as_ordinary_user() where the way to the directory is open to him: scripts go by path. */
static inline void as_user_in_memory(void **state, child_fn fn)
{
	struct fixture_dir *d = &((struct fixture *)*state)->dir[1];

	assert_int_equal(fchmod(d->fd, 0711), 0);
	as_ordinary_user(d, fn);
}

/* Everything find(1) can tell about both trees is the same. */
#define SAME_TREES                                                                         \
	"m() { (cd \"$1\" && find . -printf '%p %y %#m %U %G %T@ %l\\n' | LC_ALL=C sort; " \
	"find . -type f ! -name unreadable -exec md5sum {} + | LC_ALL=C sort); }; "        \
	"m $O > o.txt; m $W > w.txt; diff o.txt w.txt >&2; rm o.txt w.txt"

#endif
