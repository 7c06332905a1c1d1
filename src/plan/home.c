/* SPDX-License-Identifier: Apache-2.0 */
/* The tables are rows of the documentation: man/atoll-exec.mdoc lists them too. */
#include "plan/home.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "diff/change.h"
#include "fs/resolve.h"
#include "fs/stat.h"
#include "fs/walk.h"
#include "util/cleanup.h"
#include "util/mem.h"
#include "util/strbuf.h"

extern char **environ;

/* Where package managers and tool chains keep what they install, directly in the home. */
static const char *const private_dirs[] = {
	"Android",    "R",          "anaconda3", "go",    "mambaforge",
	"miniconda3", "miniforge3", "nltk_data", "perl5", "snap",
};

/* Variables that name such a directory, or several with colons between them; one star. */
static const char *const private_variables[] = {
	"ANDROID_HOME", "CARGO_HOME",  "CONDA_PREFIX",     "FLUTTER_ROOT",      "GOBIN",
	"GOMODCACHE",   "GOPATH",      "GRADLE_USER_HOME", "NPM_CONFIG_PREFIX", "PNPM_HOME",
	"RUSTUP_HOME",  "VIRTUAL_ENV", "XDG_*_HOME",
};

struct home {
	struct views *views;
	size_t given; /* so many of the views are not ours */
	const char *path;
	struct strlist private; /* absolute; they need not be there */
	struct error *err;
};

/* ---- what is private ---- */

static bool is_missing(const char *path)
{
	return faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
}

static bool is_inside(const char *path, const char *dir)
{
	return path_below(path, dir) && strcmp(path, dir) != 0;
}

/* The home itself is not taken: nothing would be left of the rule. */
static void add_private(struct home *h, const char *given)
{
	cleanup_free char *below = strncmp(given, "~/", 2) == 0
	                                   ? xasprintf("%s/%s", h->path, given + 2)
	                                   : xstrdup(given);
	cleanup_free char *path = NULL;

	if (*below != '/' || (resolve_canonical(below, &path) < 0 && !request_is_target(below)))
		return;
	if (is_inside(path ? path : below, h->path))
		strlist_add(&h->private, path ? path : below);
}

static void add_list(struct home *h, const char *list)
{
	cleanup_free char *copy = xstrdup(list);
	char *rest = copy, *part;

	while ((part = strsep(&rest, ":")))
		add_private(h, part);
}

static bool is_named(const char *name, size_t len, const char *pattern)
{
	size_t head = strcspn(pattern, "*");
	const char *tail = pattern[head] ? pattern + head + 1 : "";

	if (!pattern[head])
		return strlen(pattern) == len && strncmp(name, pattern, len) == 0;
	return len > head + strlen(tail) && strncmp(name, pattern, head) == 0 &&
	       strncmp(name + len - strlen(tail), tail, strlen(tail)) == 0;
}

/* The length of the name in PAIR when that is one of the table, else 0. */
static size_t names_private(const char *pair)
{
	size_t len = strcspn(pair, "=");

	for (size_t i = 0; i < sizeof(private_variables) / sizeof(private_variables[0]); i++)
		if (is_named(pair, len, private_variables[i]))
			return len;
	return 0;
}

/* The command's own value counts, or that it has none. */
static bool is_overruled(const struct strlist *env, size_t from, const char *pair, size_t len)
{
	for (size_t i = from; i < env->n; i++)
		if (strncmp(env->v[i], pair, len) == 0 && strchr("=", env->v[i][len]))
			return true;
	return false;
}

static void add_variables(struct home *h, const struct strlist *env)
{
	for (char **p = environ; p && *p; p++) {
		size_t len = names_private(*p);

		if (len > 0 && (*p)[len] == '=' && !is_overruled(env, 0, *p, len))
			add_list(h, *p + len + 1);
	}
	for (size_t i = 0; i < env->n; i++) {
		size_t len = names_private(env->v[i]);

		if (len > 0 && env->v[i][len] == '=' && !is_overruled(env, i + 1, env->v[i], len))
			add_list(h, env->v[i] + len + 1);
	}
}

static void collect_private(struct home *h, const struct exec_wishes *wishes)
{
	for (size_t i = 0; i < sizeof(private_dirs) / sizeof(private_dirs[0]); i++) {
		cleanup_free char *path = xasprintf("%s/%s", h->path, private_dirs[i]);

		strlist_add(&h->private, path);
	}
	if (wishes->private_dirs)
		add_list(h, wishes->private_dirs);
	add_variables(h, &wishes->env);
}

/* ---- what is only read ---- */

enum part {
	PART_FIXED = 0,
	PART_GIVEN, /* private, or as the caller of the command says */
	PART_OPEN,  /* a place in it has to be made, which only the layer allows */
};

/* One of the first N views. */
static bool is_view(const struct home *h, size_t n, const char *path)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(h->views->v[i].target, path) == 0)
			return true;
	return false;
}

static bool holds_missing(const char *dir, size_t len, const char *path)
{
	return strncmp(path, dir, len) == 0 && path[len] == '/' && is_missing(path);
}

/* Of the directory PATH; what is around it is open. There can be many. */
static enum part part_of(const struct home *h, const char *path)
{
	size_t len = strlen(path);
	bool open = h->views->to && holds_missing(path, len, h->views->to);

	if (is_view(h, h->given, path))
		return PART_GIVEN;
	for (size_t i = 0; i < h->private.n; i++) {
		if (strcmp(h->private.v[i], path) == 0)
			return PART_GIVEN;
		open |= holds_missing(path, len, h->private.v[i]);
	}
	return open ? PART_OPEN : PART_FIXED;
}

static int fix_entries(struct home *h, const char *dir);

static int fix_entry(struct home *h, const char *path)
{
	enum part part = part_of(h, path);

	if (part == PART_OPEN)
		return fix_entries(h, path);
	if (part == PART_GIVEN)
		return 0;
	return views_add(
		h->views,
		&(struct exec_view){ .kind = EXEC_VIEW_FIXED, .target = path, .source = path });
}

/* Nothing is asked of a directory itself: what is mounted there may not answer. */
static bool is_dir(int dir_fd, const struct dirlist_entry *e)
{
	struct fs_stat st;

	if (e->type != DT_UNKNOWN)
		return e->type == DT_DIR;
	return fs_stat_at(dir_fd, e->name, 0, &st) == 0 && S_ISDIR(st.mode);
}

static int fix_entries(struct home *h, const char *dir)
{
	cleanup_close int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_dirlist struct dirlist list = DIRLIST_INIT;
	cleanup_strbuf struct strbuf path = STRBUF_INIT;
	bool is_home = strcmp(dir, h->path) == 0;
	size_t len = strlen(dir) + 1;
	int r = dir_fd < 0 ? -errno : dirlist_read_fresh(dir_fd, &list);

	/* Of another user's home, which HOME names: the command can change nothing in it either. */
	if (r == -EACCES)
		return 0;
	if (r < 0)
		return error_sys(h->err, r, "read", dir);
	strbuf_puts(&path, dir);
	strbuf_putc(&path, '/');
	for (size_t i = 0; r == 0 && i < list.n; i++) {
		if ((is_home && list.v[i].name[0] == '.') || !is_dir(dir_fd, &list.v[i]))
			continue;
		strbuf_truncate(&path, len);
		strbuf_puts(&path, list.v[i].name);
		r = fix_entry(h, strbuf_str(&path));
	}
	return r;
}

/* In what the caller of the command gives, it says what is written there. */
static bool is_given(const struct home *h, const char *path)
{
	for (size_t i = 0; i < h->given; i++)
		if (is_inside(h->views->v[i].target, h->path) &&
		    path_below(path, h->views->v[i].target))
			return true;
	return false;
}

static bool is_fixed(const struct home *h, const char *path)
{
	for (size_t i = h->given; i < h->views->n; i++)
		if (h->views->v[i].kind == EXEC_VIEW_FIXED &&
		    is_inside(path, h->views->v[i].target))
			return true;
	return false;
}

static int show_private(struct home *h)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < h->private.n; i++) {
		const char *path = h->private.v[i];

		if (is_fixed(h, path) && !is_given(h, path) && !is_view(h, h->views->n, path))
			r = views_add(h->views, &(struct exec_view){ .kind = EXEC_VIEW_PRIVATE,
			                                             .target = path,
			                                             .source = path });
	}
	return r;
}

int home_views(struct views *views, const char *home, const struct exec_wishes *wishes,
               struct error *err)
{
	struct home h = { .views = views, .given = views->n, .path = home, .err = err };
	int r;

	collect_private(&h, wishes);
	r = fix_entries(&h, home);
	if (r == 0)
		r = show_private(&h);
	strlist_done(&h.private);
	return r;
}
