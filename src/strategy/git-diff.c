/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan would do to a repository, told entry by entry. */
#include "strategy/git.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "strategy/dir.h"
#include "util/cleanup.h"
#include "util/escape.h"
#include "util/mem.h"
#include "util/random.h"

/* For the reader's eyes, beside whatever else goes on in the area. */
static int look(struct atoll_participant *p, struct git_view *v, struct git_record *rec)
{
	char digits[17];
	cleanup_free char *name = NULL;
	size_t conflicts;

	random_hex(digits, sizeof(digits) - 1);
	name = xasprintf("g-%s", digits);
	v->only_look = true;
	return git_compare_view(p, v, name, rec, &conflicts);
}

int git_observe(struct atoll_participant *p)
{
	cleanup_git_view struct git_view v = GIT_VIEW_INIT;
	cleanup_git_record struct git_record rec = GIT_RECORD_INIT;
	int r;

	git_hide(p);
	r = git_files(p)->observe(p);
	if (r < 0 || p->stale)
		return r;
	/* Only counted: what cannot be committed says so then. */
	if (look(p, &v, &rec) < 0) {
		error_done(&p->err);
		p->changes++;
	}
	git_view_remove(p, &v);
	p->changes += git_count(&rec);
	return 0;
}

static char *ref_detail(struct atoll_participant *p, const struct git_view *v,
                        const struct git_swap *s)
{
	cleanup_strbuf struct strbuf out = STRBUF_INIT;
	cleanup_free char *range = NULL;
	struct git g = GIT_AT(v->path);
	long n;

	if (!*s->new_value)
		return xasprintf("was %.7s", s->old_value);
	if (!*s->old_value)
		return xasprintf("%.7s", s->new_value);
	range = xasprintf("%s..%s", s->old_value, s->new_value);
	g.alternates = v->alternates;
	if (git_ask(p, &g, GIT_ARGS("rev-list", "--count", range), NULL, &out) != 0) {
		error_done(&p->err);
		return xasprintf("%.7s..%.7s", s->old_value, s->new_value);
	}
	n = strtol(strbuf_str(&out), NULL, 10);
	return xasprintf("%.7s..%.7s, %ld commit%s", s->old_value, s->new_value, n,
	                 n == 1 ? "" : "s");
}

static int report(struct atoll_participant *p, const char *path, const char *old_value,
                  const char *new_value, const char *detail)
{
	struct atoll_change c = { .path = path,
		                  .kind = !*old_value   ? ATOLL_CHANGE_ADDED
		                          : !*new_value ? ATOLL_CHANGE_DELETED
		                                        : ATOLL_CHANGE_CHANGED,
		                  .what = ATOLL_CHANGE_CONTENT,
		                  .detail = detail };

	return atoll_participant_change(p, &c);
}

/* Lines of TEXT, with SIGN before each. */
static int say_lines(const char *text, char sign, atoll_line_fn fn, void *user)
{
	int r = 0;

	while (*text && r >= 0) {
		size_t len = strcspn(text, "\n");
		cleanup_free char *line = xasprintf("%c%.*s", sign, (int)len, text);

		r = fn(user, line, len + 1);
		text += len + (text[len] == '\n');
	}
	return r;
}

/* Commits that A has and B, if there is one, has not. */
static int say_commits(struct atoll_participant *p, const struct git_view *v, const char *a,
                       const char *b, char sign, atoll_line_fn fn, void *user)
{
	cleanup_strbuf struct strbuf out = STRBUF_INIT;
	cleanup_free char *not_b = xasprintf("^%s", b);
	struct git g = GIT_AT(v->path);
	int r;

	g.alternates = v->alternates;
	r = git_ask(p, &g,
	            GIT_ARGS("log", "--format=%h %s", *b ? "-n1000" : "-n1", a, *b ? not_b : "--"),
	            NULL, &out);
	if (r != 0) { /* no commits */
		error_done(&p->err);
		return say_lines(a, sign, fn, user);
	}
	return say_lines(strbuf_str(&out), sign, fn, user);
}

/* Mode, id and path of each entry, as it was and as it will be. */
static int say_staged(const struct git_swaps *s, atoll_line_fn fn, void *user)
{
	int r = 0;

	for (size_t i = 0; i < s->n && r >= 0; i++) {
		const char *const values[] = { s->v[i].old_value, s->v[i].new_value };

		for (int k = 0; k < 2 && r >= 0; k++) {
			cleanup_free char *path = escape_dup(s->v[i].key);
			cleanup_free char *line = xasprintf("%s %s", values[k], path);

			r = *values[k] ? say_lines(line, "-+"[k], fn, user) : 0;
		}
	}
	return r < 0 ? r : 1;
}

int git_lines(struct atoll_participant *p, const struct atoll_change *change, atoll_line_fn fn,
              void *user)
{
	const struct git_swap *s;
	struct git_state *st;
	int r;

	if (git_state(p, &st) < 0 || change->old_mode || change->new_mode)
		return 0;
	if (st->staged)
		return say_staged(st->staged, fn, user);
	if (!st->shown)
		return 0;
	s = st->shown;
	if (strcmp(s->key, "HEAD") == 0) {
		r = say_lines(s->old_value, '-', fn, user);
		if (r >= 0)
			r = say_lines(s->new_value, '+', fn, user);
		return r < 0 ? r : 1;
	}
	r = *s->old_value ? say_commits(p, st->view, s->old_value, s->new_value, '-', fn, user) : 0;
	if (r >= 0 && *s->new_value)
		r = say_commits(p, st->view, s->new_value, s->old_value, '+', fn, user);
	return r < 0 ? r : 1;
}

/* One ref, HEAD or entry of the stash. */
static int report_swap(struct atoll_participant *p, const struct git_view *v,
                       const struct git_swap *s, const char *path, const char *detail)
{
	struct git_state *st;
	int r = git_state(p, &st);

	if (r < 0)
		return r;
	st->view = v;
	st->shown = s;
	r = report(p, path, s->old_value, s->new_value, detail);
	st->shown = NULL;
	return r;
}

static int report_refs(struct atoll_participant *p, struct git_view *v,
                       const struct git_record *rec)
{
	int r = rec->parts[GIT_REFS].n ? git_view_objects(p, v) : 0;

	for (size_t i = 0; i < rec->parts[GIT_REFS].n && r >= 0; i++) {
		const struct git_swap *s = &rec->parts[GIT_REFS].v[i];
		cleanup_free char *detail = ref_detail(p, v, s);

		r = report_swap(p, v, s, s->key, detail);
	}
	for (size_t i = 0; i < rec->parts[GIT_HEAD].n && r >= 0; i++) {
		const struct git_swap *s = &rec->parts[GIT_HEAD].v[i];
		cleanup_free char *detail = xasprintf("%s -> %s", s->old_value, s->new_value);

		r = report_swap(p, v, s, s->key, detail);
	}
	for (size_t i = 0; i < rec->parts[GIT_STASH].n && r >= 0; i++) {
		const struct git_swap *s = &rec->parts[GIT_STASH].v[i];
		cleanup_free char *path = xasprintf("refs/stash/%.7s", s->key);

		r = report(p, path, s->old_value, s->new_value,
		           *s->new_value ? s->new_value + 1 : s->old_value + 1);
	}
	return r;
}

/* One line for all of it: the files have theirs. */
static int report_index(struct atoll_participant *p, const struct git_record *rec)
{
	const struct git_swaps *s = &rec->parts[GIT_INDEX];
	cleanup_free char *detail = NULL;
	size_t added = 0, gone = 0;
	struct git_state *st;
	int r = git_staged_only(rec) ? git_state(p, &st) : 0;

	if (r < 0 || !git_staged_only(rec))
		return r;
	for (size_t i = 0; i < s->n; i++) {
		added += !*s->v[i].old_value;
		gone += !*s->v[i].new_value;
	}
	detail = xasprintf("staged: %zu added, %zu changed, %zu removed", added,
	                   s->n - added - gone, gone);
	st->staged = s;
	r = report(p, ".git/index", "old", "new", detail);
	st->staged = NULL;
	return r;
}

/* What git writes of a linked worktree, .git/worktrees/NAME, is one that the plan made when it is new. */
static bool is_new_worktree(const char *path, enum atoll_change_kind kind)
{
	static const char dir[] = "worktrees/";
	const char *name = path + sizeof(dir) - 1;

	return kind == ATOLL_CHANGE_ADDED && strncmp(path, dir, sizeof(dir) - 1) == 0 &&
	       !strchr(name, '/');
}

static int report_other(void *ctx, const char *path, enum atoll_change_kind kind, unsigned what,
                        const struct fs_stat *old_stat, const struct fs_stat *new_stat,
                        const char *link_target)
{
	struct atoll_participant *p = ctx;
	cleanup_free char *full = xasprintf(".git/%s", path);
	struct atoll_change c = { .path = full,
		                  .kind = kind,
		                  .what = what & ~ATOLL_CHANGE_GIT_PROGRAM, /* it stays */
		                  .old_mode = old_stat ? old_stat->mode : 0,
		                  .new_mode = new_stat ? new_stat->mode : 0,
		                  .old_size = old_stat ? old_stat->size : 0,
		                  .new_size = new_stat ? new_stat->size : 0,
		                  .text = link_target,
		                  .detail = "stays in the plan, never installed" };

	if (is_new_worktree(path, kind))
		c.detail = "a worktree made in the plan: it will not arrive working";
	return atoll_participant_change(p, &c);
}

/* With both sides at hand, for who wants to see their content. */
static int report_others(struct atoll_participant *p, const struct git_view *v)
{
	cleanup_close int root_fd = FD_NONE, work_fd = FD_NONE;
	struct git_state *st;
	struct dir_sides sides;
	int r = git_state(p, &st);

	if (r < 0 || v->upper_fd == FD_NONE)
		return r;
	root_fd = openat(st->dir_fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	work_fd = openat(v->upper_fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	dir_sides_init(&sides, root_fd, work_fd);
	p->sides = &sides;
	r = git_others(p, v, report_other, p);
	p->sides = NULL;
	dir_sides_done(&sides);
	return r;
}

int git_diff(struct atoll_participant *p)
{
	cleanup_git_view struct git_view v = GIT_VIEW_INIT;
	cleanup_git_record struct git_record rec = GIT_RECORD_INIT;
	int r;

	git_hide(p);
	r = git_files(p)->diff(p);
	if (r < 0 || p->stale)
		return r;
	/* While a command runs it may be half-way through anything. */
	r = look(p, &v, &rec);
	if (r >= 0)
		r = report_refs(p, &v, &rec);
	if (r >= 0)
		r = report_index(p, &rec);
	if (r < 0 && p->err.code) {
		cleanup_error struct error e = ERROR_INIT;

		error_move(&e, &p->err);
		r = report(p, ".git", "old", "new", e.msg);
	}
	if (r >= 0)
		r = report_others(p, &v);
	git_view_remove(p, &v);
	return r;
}

int git_content(struct atoll_participant *p, const struct atoll_change *change,
                enum atoll_side side, int *ret_fd)
{
	if (!change->old_mode && !change->new_mode) /* a ref */
		return -ATOLL_E_UNSUPPORTED;
	return git_files(p)->content(p, change, side, ret_fd);
}
