/* SPDX-License-Identifier: Apache-2.0 */
#include "diff/git-program.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "diff/git-directory.h"
#include "diff/git-settings.h"
#include "diff/other-settings.h"
#include "diff/tree-impl.h"
#include "fs/copy.h"
#include "util/cleanup.h"
#include "util/error.h"
#include "util/mem.h"
#include "util/strbuf.h"

#define CONFIG_MAX (1u << 20)
#define SMALL_MAX  4096u
#define RECENT     8u     /* directories that were judged last: several entries of each change */
#define FOUND_MAX  10000u /* further ones are not named */

struct finder {
	const struct tree_state *after;
	struct tree_state before;
	const char *root;
	bool is_hooks; /* the resource itself is a git directory's `hooks` */
	const char *recent[RECENT];
	size_t next;
	struct strlist *ret;
};

/* A git directory, and the changed entry for which it is judged. */
struct judged {
	struct finder *f;
	const char *dir;
	const char *trigger;
	bool was; /* one before the batch, too */
};

/* ---- paths ---- */

static const char *last_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* "" of a name in the root. */
static char *parent_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return xstrndup(path, slash ? (size_t)(slash - path) : 0);
}

/* The name of the directory at PATH, which may be the root. */
static const char *name_of(const struct finder *f, const char *path)
{
	return last_name(*path ? path : f->root);
}

/* Is PATH, or a directory around it, named `.git`, or so that it ends so? */
static bool is_below_git(const char *path)
{
	for (;; path++) {
		size_t len = strcspn(path, "/");

		if (git_directory_name(path, len))
			return true;
		path += len;
		if (!*path)
			return false;
	}
}

/* A link as a component would lead elsewhere. */
static bool passes_link(const struct finder *f, const char *path)
{
	for (const char *end = path; *end; end += *end == '/') {
		cleanup_tree_found struct tree_found found = TREE_FOUND_INIT;
		cleanup_free char *prefix = NULL;

		end += strcspn(end, "/");
		prefix = xstrndup(path, (size_t)(end - path));
		if (tree_state_find(f->after, prefix, &found) != 0 && S_ISLNK(found.st.mode))
			return true;
	}
	return false;
}

/* Where TEXT leads from directory DIR, as a path of the resource; NULL: out of it, or over a link. */
static char *lead(const struct finder *f, const char *dir, const char *text)
{
	cleanup_free char *from = NULL, *rest_of = NULL;
	cleanup_strbuf struct strbuf path = STRBUF_INIT;
	size_t root = strlen(f->root);
	char *rest;

	if (*text != '/')
		from = xasprintf("%s/%s", dir, text);
	else if (strncmp(text, f->root, root) == 0 && (text[root] == '/' || !text[root]))
		from = xstrdup(text + root);
	else
		return NULL;
	rest = rest_of = xstrdup(from);
	for (char *name; (name = strsep(&rest, "/")) != NULL;) {
		if (!*name || strcmp(name, ".") == 0)
			continue;
		if (strcmp(name, "..") == 0) {
			const char *slash = strrchr(strbuf_str(&path), '/');

			if (path.len == 0)
				return NULL;
			strbuf_truncate(&path, slash ? (size_t)(slash - path.buf) : 0);
			continue;
		}
		if (path.len)
			strbuf_putc(&path, '/');
		strbuf_puts(&path, name);
	}
	return passes_link(f, strbuf_str(&path)) ? NULL : xstrdup(strbuf_str(&path));
}

/* ---- what is found ---- */

static void accuse(struct finder *f, const char *path)
{
	if (f->ret->n < FOUND_MAX)
		strlist_add(f->ret, path);
}

/* FOUND itself, when the batch brings it; else what makes it count now. */
static void accuse_entry(const struct judged *g, const struct tree_found *found)
{
	accuse(g->f, found->is_changed ? found->path : g->trigger);
}

/* The same file or link with the same content, and as executable. */
static bool is_same(const struct tree_found *a, const struct tree_found *b)
{
	uint32_t bits = S_IFMT | (S_ISREG(a->st.mode) ? 0111 : 0);

	if ((a->st.mode & bits) != (b->st.mode & bits))
		return false;
	return (S_ISREG(a->st.mode) || S_ISLNK(a->st.mode)) &&
	       copy_same_content(a->fd, a->name, b->fd, b->name) == 1;
}

/* As it is now, at the same path. */
static bool was_there(const struct finder *f, const struct tree_found *now)
{
	cleanup_tree_found struct tree_found before = TREE_FOUND_INIT;

	return tree_state_find(&f->before, now->path, &before) == 1 && is_same(now, &before);
}

/* ---- a git directory ---- */

/* Only what lies below a `.git` has a working tree elsewhere, as a submodule has; and it is inside of the
 * resource, and no git directory, whose hooks git would check out. */
static bool is_worktree(const void *ctx, const char *value)
{
	const struct judged *g = ctx;
	cleanup_free char *path = NULL;
	bool is_below = false;

	for (const char *at = g->dir; *at && !is_below; at += *at == '/') {
		size_t len = strcspn(at, "/");

		is_below = len == 4 && strncasecmp(at, ".git", 4) == 0;
		at += len;
	}
	path = is_below ? lead(g->f, g->dir, value) : NULL;
	return path && !is_below_git(path);
}

/* -EINVAL: what they are cannot be said. */
static int read_settings(const struct judged *g, const struct tree_found *file, struct strlist *ret)
{
	const struct git_settings_at at = { .is_worktree = is_worktree, .ctx = g };
	cleanup_free char *text = NULL;
	size_t len = 0;
	int r = S_ISREG(file->st.mode) ? tree_found_text(file, CONFIG_MAX, &text, &len) : -EINVAL;

	return r < 0 ? r : git_settings_programs(text, len, &at, ret);
}

static int judge_settings(const struct judged *g, const char *name)
{
	cleanup_tree_found struct tree_found now = TREE_FOUND_INIT, old = TREE_FOUND_INIT;
	cleanup_strlist struct strlist after = STRLIST_INIT, before = STRLIST_INIT;
	int r = tree_state_find_in(g->f->after, g->dir, name, &now);

	if (r <= 0 || (g->was && was_there(g->f, &now)))
		return r;
	r = read_settings(g, &now, &after);
	if (r < 0 && r != -EINVAL)
		return r;
	if (r == 0 && after.n && g->was &&
	    tree_state_find_in(&g->f->before, g->dir, name, &old) == 1)
		(void)read_settings(g, &old, &before); /* what is not known is new */
	for (size_t i = 0; i < after.n && r == 0; i++)
		r = strlist_has(&before, after.v[i]) ? 0 : -EINVAL;
	if (r == -EINVAL)
		accuse_entry(g, &now);
	return 0;
}

/* Of a linked worktree it leads two directories up, from where git put it. */
static int judge_common(const struct judged *g)
{
	cleanup_tree_found struct tree_found now = TREE_FOUND_INIT;
	cleanup_free char *text = NULL, *up = NULL;
	size_t len = 0;
	int r = tree_state_find_in(g->f->after, g->dir, "commondir", &now);

	if (r <= 0 || (g->was && was_there(g->f, &now)))
		return r;
	r = S_ISREG(now.st.mode) ? tree_found_text(&now, SMALL_MAX, &text, &len) : -EINVAL;
	while (r == 0 && len && strchr("\r\n", text[len - 1]))
		text[--len] = '\0';
	up = r == 0 && strcmp(text, "../..") == 0 ? lead(g->f, g->dir, text) : NULL;
	if (!up ||
	    (!is_below_git(up) && git_directory_may_be(g->f->after, up, name_of(g->f, up)) != 1))
		accuse_entry(g, &now);
	return 0;
}

static int judge_hook(void *ctx, const struct tree_found *hook)
{
	const struct judged *g = ctx;
	size_t len = strlen(hook->name);
	bool runs = S_ISLNK(hook->st.mode) || (S_ISREG(hook->st.mode) && hook->st.mode & 0111);

	if (len > 7 && strcmp(hook->name + len - 7, ".sample") == 0)
		return 0;
	if (runs && !(g->was && was_there(g->f, hook)))
		accuse_entry(g, hook);
	return 0;
}

static int judge_hooks(struct judged *g)
{
	cleanup_tree_found struct tree_found hooks = TREE_FOUND_INIT;
	int r = tree_state_find_in(g->f->after, g->dir, "hooks", &hooks);

	if (r > 0 && S_ISDIR(hooks.st.mode))
		return tree_state_list(g->f->after, hooks.path, judge_hook, g);
	if (r > 0 && !(g->was && was_there(g->f, &hooks)))
		accuse_entry(g, &hooks);
	return r;
}

static int judge_directory(struct finder *f, const char *dir, const char *trigger)
{
	struct judged g = { .f = f, .dir = dir, .trigger = trigger };
	const char *name = name_of(f, dir);
	int r;

	for (size_t i = 0; i < RECENT; i++)
		if (f->recent[i] && strcmp(f->recent[i], dir) == 0)
			return 0;
	free_const(f->recent[f->next]);
	f->recent[f->next] = xstrdup(dir);
	f->next = (f->next + 1) % RECENT;
	r = git_directory_may_be(f->after, dir, name);
	if (r <= 0)
		return r;
	g.was = git_directory_may_be(&f->before, dir, name) == 1;
	r = judge_settings(&g, "config");
	if (r >= 0)
		r = judge_settings(&g, "config.worktree");
	if (r >= 0)
		r = judge_common(&g);
	return r < 0 ? r : judge_hooks(&g);
}

/* ---- entries that are judged alone ---- */

/* What a file says after PREFIX, or where a link points, without the ends of lines. NULL: neither. */
static char *read_lead(const struct tree_found *e, const char *prefix)
{
	char *text;
	size_t len;

	if (tree_found_text(e, SMALL_MAX, &text, &len) < 0)
		return NULL;
	while (len && strchr("\r\n", text[len - 1]))
		text[--len] = '\0';
	if (S_ISREG(e->st.mode) && strncmp(text, prefix, strlen(prefix)) == 0)
		memmove(text, text + strlen(prefix), len - strlen(prefix) + 1);
	return text;
}

/* A `.git` that is no directory. What it leads to is judged where it lies. */
static bool git_link_is_harmless(struct finder *f, const struct tree_found *e)
{
	cleanup_free char *text = read_lead(e, "gitdir: "), *dir = parent_of(e->path);
	cleanup_free char *path = text ? lead(f, dir, text) : NULL;

	return path && is_below_git(path);
}

/* Of Jujutsu's: a git directory wherever it lies in the resource. */
static bool git_target_is_harmless(struct finder *f, const struct tree_found *e)
{
	cleanup_free char *text = read_lead(e, ""), *dir = parent_of(e->path);
	cleanup_free char *path = text ? lead(f, dir, text) : NULL;

	return path != NULL;
}

static bool lines_are_harmless(struct finder *f, const struct tree_found *e,
                               void (*programs)(const char *, size_t, struct strlist *))
{
	cleanup_tree_found struct tree_found old = TREE_FOUND_INIT;
	cleanup_strlist struct strlist after = STRLIST_INIT, before = STRLIST_INIT;
	cleanup_free char *text = NULL, *old_text = NULL;
	size_t len, i;

	if (!S_ISREG(e->st.mode) || tree_found_text(e, CONFIG_MAX, &text, &len) < 0)
		return false;
	programs(text, len, &after);
	if (after.n && tree_state_find(&f->before, e->path, &old) == 1 && S_ISREG(old.st.mode) &&
	    tree_found_text(&old, CONFIG_MAX, &old_text, &len) == 0)
		programs(old_text, len, &before);
	for (i = 0; i < after.n && strlist_has(&before, after.v[i]); i++)
		;
	return i == after.n;
}

static bool hg_is_harmless(struct finder *f, const struct tree_found *e)
{
	return lines_are_harmless(f, e, hg_settings_programs);
}

static bool jj_is_harmless(struct finder *f, const struct tree_found *e)
{
	return lines_are_harmless(f, e, jj_settings_programs);
}

/* The repository lies where it leads. */
static bool is_never_harmless(struct finder *f, const struct tree_found *e)
{
	(void)f;
	(void)e;
	return false;
}

static const struct {
	const char *path; /* or its end */
	bool (*is_harmless)(struct finder *f, const struct tree_found *e);
	bool may_be_dir; /* and is then nothing by itself */
} alone[] = {
	{ ".git", git_link_is_harmless, true },
	{ ".hg", is_never_harmless, true },
	{ ".hg/hgrc", hg_is_harmless, false },
	{ ".hg/hgrc-not-shared", hg_is_harmless, false },
	{ ".hg/sharedpath", is_never_harmless, false },
	{ ".jj", is_never_harmless, true },
	{ ".jj/workspace-config.toml", jj_is_harmless, false },
	{ ".jj/repo", is_never_harmless, true },
	{ ".jj/repo/config.toml", jj_is_harmless, false },
	{ ".jj/repo/store", is_never_harmless, true },
	{ ".jj/repo/store/git", is_never_harmless, true },
	{ ".jj/repo/store/git_target", git_target_is_harmless, false },
};

/* PATH is END, or ends with it behind a slash. */
static bool ends_with(const char *path, const char *end)
{
	size_t len = strlen(path), part = strlen(end);

	return len >= part && strcasecmp(path + len - part, end) == 0 &&
	       (len == part || path[len - part - 1] == '/');
}

static int judge_alone(struct finder *f, const char *path)
{
	for (size_t i = 0; i < sizeof(alone) / sizeof(alone[0]); i++) {
		cleanup_tree_found struct tree_found e = TREE_FOUND_INIT;
		int r;

		if (!ends_with(path, alone[i].path))
			continue;
		r = tree_state_find(f->after, path, &e);
		if (r <= 0)
			return r;
		if ((alone[i].may_be_dir && S_ISDIR(e.st.mode)) || was_there(f, &e))
			continue;
		if (!alone[i].is_harmless(f, &e))
			accuse(f, path);
	}
	return 0;
}

/* ---- all that a change set touches ---- */

static const char *const parts[] = { "HEAD",  "commondir", "config", "config.worktree",
	                             "hooks", "objects",   "refs" };

static bool is_part(const char *name)
{
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (strcasecmp(name, parts[i]) == 0)
			return true;
	return false;
}

/* "hooks/NAME", or what ends so. */
static bool is_hook(const char *path)
{
	const char *slash = strrchr(path, '/');
	size_t len = slash ? (size_t)(slash - path) : 0;

	return len >= 5 && strncasecmp(slash - 5, "hooks", 5) == 0 &&
	       (len == 5 || slash[-6] == '/');
}

bool git_program_named(const char *name, const char *path)
{
	for (size_t i = 0; i < sizeof(alone) / sizeof(alone[0]); i++)
		if (ends_with(path, alone[i].path))
			return true;
	return is_part(name) || is_hook(path);
}

static int judge_entry(struct finder *f, const char *path)
{
	cleanup_free char *dir = parent_of(path), *above = parent_of(dir);
	int r = judge_alone(f, path);

	if (r >= 0 && is_part(last_name(path)))
		r = judge_directory(f, dir, path);
	if (r >= 0 && is_hook(path))
		r = judge_directory(f, above, path);
	if (r >= 0 && f->is_hooks && !*dir) {
		struct judged g = { .f = f, .dir = "", .trigger = path, .was = true };
		cleanup_tree_found struct tree_found e = TREE_FOUND_INIT;

		r = tree_state_find(f->after, path, &e);
		if (r > 0)
			r = judge_hook(&g, &e);
	}
	return r;
}

static int judge_below(void *ctx, int dir_fd, const char *name, const char *path,
                       unsigned char type)
{
	(void)dir_fd;
	(void)type;
	return git_program_named(name, path) ? judge_entry(ctx, path) : 0;
}

static int judge_change(struct finder *f, const struct change *c)
{
	bool comes = c->op == CHANGE_CREATE || c->op == CHANGE_REPLACE;

	if (comes && S_ISDIR(c->work.mode)) {
		int r = c->what & CHANGE_GIT_NAMED
		                ? walk_tree(f->after->work_fd, c->path, judge_below, NULL, f)
		                : 0;

		return r == -ENOENT ? 0 : r;
	}
	return f->is_hooks || git_program_named(last_name(c->path), c->path)
	               ? judge_entry(f, c->path)
	               : 0;
}

bool git_programs_may_be(const struct change *c, const char *root)
{
	return c->what & CHANGE_GIT_NAMED || strcasecmp(last_name(root), "hooks") == 0 ||
	       git_program_named(last_name(c->path), c->path);
}

/* The resource is the directory of hooks of a repository around it. */
static bool root_is_hooks(const char *root)
{
	cleanup_free char *above = parent_of(root);
	struct tree_state around = { .orig_fd = FD_NONE };
	cleanup_close int fd = FD_NONE;

	if (strcasecmp(last_name(root), "hooks") != 0)
		return false;
	fd = open(*above ? above : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return false;
	around.orig_fd = fd;
	return git_directory_may_be(&around, "", last_name(above)) == 1;
}

static int compare(const void *a, const void *b)
{
	return path_compare(*(char *const *)a, *(char *const *)b);
}

int git_programs_find(struct tree_state *after, const char *root, struct strlist *ret)
{
	struct finder f = { .after = after,
		            .before = { .orig_fd = after->orig_fd },
		            .root = root,
		            .is_hooks = root_is_hooks(root),
		            .ret = ret };
	int r = 0;

	for (size_t i = 0; i < after->cs->v.n && r >= 0; i++) {
		cleanup_change struct change c = CHANGE_INIT;

		r = changeset_get(&after->cs->v, i, &c);
		after->at = &c;
		if (r >= 0)
			r = judge_change(&f, &c);
		after->at = NULL;
	}
	for (size_t i = 0; i < RECENT; i++)
		free_const(f.recent[i]);
	if (ret->n > 1)
		qsort(ret->v, ret->n, sizeof(*ret->v), compare);
	return r < 0 ? r : 0;
}

bool git_programs_has(const struct strlist *found, const char *path)
{
	return found->n && bsearch(&path, found->v, found->n, sizeof(*found->v), compare);
}
