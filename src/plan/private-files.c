/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The upper directory of the layer is read as it lies. A file that was only opened for writing was copied
 * there, too: it is left out while it looks as the original does.
 */
#include "plan/private-files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "diff/change.h"
#include "fs/atomic.h"
#include "fs/resolve.h"
#include "fs/stat.h"
#include "fs/walk.h"
#include "plan/fence.h"
#include "plan/sandbox.h"
#include "util/cleanup.h"
#include "util/escape.h"
#include "util/glob.h"
#include "util/hash.h"
#include "util/mem.h"
#include "util/strbuf.h"

#define LAYER        "home"
#define UPPER        "upper"
#define REPORTED     "reported" /* in the layer: a number for each file that was reported, sorted */
#define REPORTED_NEW "reported.new"
#define NAMED        3 /* in a report */

/* Patterns (util/glob.h) of what tools keep for themselves: a commit is complete without it. */
static const char *const known_caches[] = {
	/* caches */
	"/.bun",
	"/.cache",
	"/.cargo/git",
	"/.cargo/registry",
	"/.config/go/telemetry",
	"/.gradle/caches",
	"/.m2/repository",
	"/.npm",
	"/.pnpm-store",
	"/.rustup",
	"/.yarn",
	"/go/pkg",
	/* histories */
	"/.*_history",
	"/.lesshst",
	"/.viminfo",
	"/.wget-hsts",
	/* locks */
	"*.lock",
	".lock",
	"/.cargo/.global-cache",
	"/.cargo/.package-cache*",
};

void private_files_done(struct private_files *f)
{
	for (size_t i = 0; i < f->n; i++)
		free(f->v[i].path);
	free(f->v);
	*f = PRIVATE_FILES_INIT;
}

/* ---- what is there ---- */

struct reading {
	struct private_files *files;
	int home_fd; /* FD_NONE: there is none */
	unsigned seen;
};

static bool is_cache(const char *path, bool is_dir)
{
	for (size_t i = 0; i < sizeof(known_caches) / sizeof(known_caches[0]); i++)
		if (glob_path(known_caches[i], path, is_dir))
			return true;
	return false;
}

/* A deletion is a name of the one inode that the overlay has for all of them: its times say nothing. */
static uint64_t sum_of(const char *path, const struct fs_stat *st, enum private_kind kind)
{
	const uint64_t said[] = { hash64(path, strlen(path)), kind, st->id.ino, st->size,
		                  (uint64_t)st->ctime_ns };

	return hash64(said, kind == PRIVATE_DELETED ? 2 * sizeof(said[0]) : sizeof(said));
}

static bool is_same(const struct fs_stat *a, const struct fs_stat *b)
{
	return a->mode == b->mode && a->size == b->size && a->mtime_ns == b->mtime_ns &&
	       a->uid == b->uid && a->gid == b->gid;
}

static int add_file(struct reading *r, const char *path, const struct fs_stat *st,
                    enum private_kind kind)
{
	struct private_files *f = r->files;
	int e = grow((void **)&f->v, &f->cap, f->n + 1, sizeof(*f->v));

	if (e == 0)
		f->v[f->n++] = (struct private_file){ .path = xstrdup(path),
			                              .kind = kind,
			                              .sum = sum_of(path, st, kind) };
	return e;
}

static int look(void *ctx, int dir_fd, const char *name, const char *path, unsigned char type)
{
	struct reading *r = ctx;
	struct fs_stat st, original = { .mode = 0 };

	(void)type;
	if (++r->seen > PRIVATE_FILES_MAX)
		return -ECANCELED;
	if (fs_stat_at(dir_fd, name, 0, &st) < 0)
		return 0;
	if (is_cache(path, S_ISDIR(st.mode)))
		return WALK_SKIP;
	if (S_ISDIR(st.mode)) {
		if (faccessat(dir_fd, name, R_OK | X_OK, AT_EACCESS) == 0)
			return 0;
		r->files->cut = true;
		return WALK_SKIP;
	}
	if (r->home_fd != FD_NONE)
		(void)fs_stat_at(r->home_fd, path, 0, &original);
	if (S_ISCHR(st.mode) && st.rdev == 0)
		return original.mode ? add_file(r, path, &st, PRIVATE_DELETED) : 0;
	if ((!S_ISREG(st.mode) && !S_ISLNK(st.mode)) || is_same(&st, &original))
		return 0;
	return add_file(r, path, &st, original.mode ? PRIVATE_CHANGED : PRIVATE_ADDED);
}

/* Its directory; -errno. */
static int open_layer(const char *area)
{
	cleanup_close int area_fd = open(area, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int fd = area_fd < 0
	                 ? -1
	                 : openat(area_fd, LAYER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static int read_layer(int layer_fd, const char *home, struct private_files *ret)
{
	cleanup_close int upper_fd =
		openat(layer_fd, UPPER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_close int home_fd = home ? open(home, O_PATH | O_DIRECTORY | O_CLOEXEC) : FD_NONE;
	struct reading r = { .files = ret, .home_fd = home_fd < 0 ? FD_NONE : home_fd };
	int e = upper_fd < 0 ? -errno : walk_tree(upper_fd, "", look, NULL, &r);

	/* What vanishes or is closed meanwhile is no reason to say nothing of the rest. */
	ret->cut |= e < 0;
	return e == -ENOMEM ? e : 0;
}

static bool has_entries(int parent_fd, const char *name)
{
	cleanup_close int fd =
		openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_dirlist struct dirlist list = DIRLIST_INIT;

	return fd >= 0 ? dirlist_read(fd, &list) < 0 || list.n > 0 : errno != ENOENT;
}

int private_files_find(const char *area, const char *root, int *ret_parent_fd, char **ret_name)
{
	cleanup_free char *home = fence_home();
	cleanup_close int layer_fd = open_layer(area);
	cleanup_close int upper_fd = FD_NONE;
	cleanup_close int parent_fd = FD_NONE;
	const char *entry;
	int r;

	if (layer_fd < 0 || !home || !path_below(root, home) || strcmp(root, home) == 0)
		return layer_fd < 0 && layer_fd != -ENOENT ? layer_fd : 0;
	upper_fd = openat(layer_fd, UPPER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	r = upper_fd < 0 ? -errno
	                 : resolve_parent(upper_fd, root + strlen(home) + 1, &parent_fd, &entry);
	if (r == -ENOENT || r == -ENOTDIR || (r == 0 && !has_entries(parent_fd, entry)))
		return 0;
	if (r < 0)
		return r;
	*ret_name = xstrdup(entry);
	*ret_parent_fd = take_fd(&parent_fd);
	return 1;
}

/* ---- what is reported ---- */

static int compare_sums(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Sorted. Without a record, or with a damaged one, all is reported again. */
static uint64_t *read_reported(int layer_fd, size_t *ret_n)
{
	cleanup_close int fd = openat(layer_fd, REPORTED, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	char *data = NULL;
	size_t len = 0;

	*ret_n = 0;
	if (fd < 0 || fs_read_all(fd, PRIVATE_FILES_MAX * sizeof(uint64_t), &data, &len) < 0)
		return NULL;
	*ret_n = len / sizeof(uint64_t);
	return (uint64_t *)(void *)data;
}

static void write_reported(int layer_fd, const struct private_files *files)
{
	cleanup_free uint64_t *sums = xcalloc(files->n ? files->n : 1, sizeof(*sums));
	cleanup_close int fd = FD_NONE;

	for (size_t i = 0; i < files->n; i++)
		sums[i] = files->v[i].sum;
	qsort(sums, files->n, sizeof(*sums), compare_sums);
	(void)fs_unlink_at(layer_fd, REPORTED_NEW);
	if (fs_create_at(layer_fd, REPORTED_NEW, 0600, &fd) == 0 &&
	    fs_write_all(fd, sums, files->n * sizeof(*sums)) == 0)
		(void)fs_rename_over(layer_fd, REPORTED_NEW, REPORTED);
}

static void add_name(struct strbuf *sb, size_t i, const char *path)
{
	cleanup_free char *shown = escape_dup(path);

	strbuf_printf(sb, "%s~/%s", i > 0 ? ", " : "", shown);
}

static void say(struct strbuf *names, size_t n, const char *plan, struct atoll_result *res)
{
	cleanup_free char *text = NULL;

	if (n > NAMED)
		strbuf_printf(names, " and %zu more", n - NAMED);
	text = xasprintf("private to the plan, not committed: %s (atoll diff %s --home)",
	                 strbuf_str(names), plan);
	result_note(res, ATOLL_NOTE_WARNING, "", "", text);
}

void private_files_report(const char *area, const char *plan, struct atoll_result *res)
{
	cleanup_private_files struct private_files files = PRIVATE_FILES_INIT;
	cleanup_strbuf struct strbuf names = STRBUF_INIT;
	cleanup_free uint64_t *reported = NULL;
	cleanup_free char *home = fence_home();
	cleanup_close int layer_fd = open_layer(area);
	size_t n_reported, n = 0;

	if (layer_fd < 0 || read_layer(layer_fd, home, &files) < 0)
		return;
	reported = read_reported(layer_fd, &n_reported);
	for (size_t i = 0; i < files.n; i++) {
		if (reported &&
		    bsearch(&files.v[i].sum, reported, n_reported, sizeof(*reported), compare_sums))
			continue;
		if (n < NAMED)
			add_name(&names, n, files.v[i].path);
		n++;
	}
	if (n == 0)
		return;
	say(&names, n, plan, res);
	write_reported(layer_fd, &files);
}

int plan_private_files(struct atoll_plan *p, char **ret_home, struct private_files *ret,
                       struct error *err)
{
	cleanup_sandboxes struct sandboxes boxes = SANDBOXES_INIT;
	cleanup_free char *home = fence_home();
	int r = sandboxes_load(p->a->reg, p->id, &boxes, err);

	if (r == 0 && boxes.n > 0) {
		cleanup_close int layer_fd = open_layer(boxes.v[0].area);

		/* -ENOENT: no command had a layer. */
		r = layer_fd < 0 ? layer_fd : read_layer(layer_fd, home, ret);
		if (r < 0 && r != -ENOENT)
			return error_sys(err, r, "read the private files in", boxes.v[0].area);
	}
	if (r == 0 || r == -ENOENT)
		*ret_home = take_ptr(home);
	return r == -ENOENT ? 0 : r;
}
