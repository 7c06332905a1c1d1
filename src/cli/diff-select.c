/* SPDX-License-Identifier: Apache-2.0 */
/* Which changes the user named, decided before the first one is shown. */
#include "cli/diff-view.h"

#include "diff/change.h"
#include "util/cleanup.h"
#include "util/glob.h"
#include "util/mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A place that a word may mean. */
struct place {
	char *path; /* absolute */
	bool is_there;
};

struct places {
	struct place *v; /* those of word I begin at I * per_word: here, then below each root */
	size_t n, per_word;
};

/* Absolute, without "." and "..", links only resolved in the part that exists: a changed entry
 * need not be there any more. */
static char *full_path(const char *word)
{
	cleanup_free char *head = xstrdup(word);
	cleanup_free char *tail = xstrdup("");

	for (;;) {
		cleanup_free char *real = realpath(*head ? head : ".", NULL);
		char *slash = strrchr(head, '/');
		char *longer;

		if (real)
			return xasprintf("%s%s%s", strcmp(real, "/") == 0 ? "" : real,
			                 *tail ? "/" : "", tail);
		longer = xasprintf("%s%s%s", slash ? slash + 1 : head, *tail ? "/" : "", tail);
		free(tail);
		tail = longer;
		if (slash == head)
			return xasprintf("/%s", tail);
		head[slash ? slash - head : 0] = '\0';
	}
}

static int note_root(void *user, const struct atoll_sandbox_info *info)
{
	strlist_add(user, info->root);
	return 0;
}

/* In a resource, or around one. */
static bool is_in_plan(const struct strlist *roots, const char *full)
{
	for (size_t i = 0; i < roots->n; i++)
		if (path_below(full, roots->v[i]) || path_below(roots->v[i], full))
			return true;
	return false;
}

static char *change_path(const struct atoll_change *change)
{
	return xasprintf("%s%s%s", change->root, *change->path ? "/" : "", change->path);
}

/* ---- what the words name ---- */

static void places_done(struct places *p)
{
	for (size_t i = 0; i < p->n; i++)
		free(p->v[i].path);
	free(p->v);
}
#define cleanup_places __attribute__((__cleanup__(places_done)))

static void add_place(struct places *p, char *path)
{
	struct stat st;

	p->v[p->n++] = (struct place){ path, lstat(path, &st) == 0 };
}

static void places_init(struct places *p, char **words, size_t n, const struct strlist *roots)
{
	p->per_word = roots->n + 1;
	p->v = xcalloc(n * p->per_word + 1, sizeof(*p->v));
	for (size_t i = 0; i < n; i++) {
		const char *word = words[i];

		add_place(p, full_path(word));
		while (word[0] == '.' && word[1] == '/')
			word += 2;
		for (size_t k = 0; k < roots->n; k++)
			add_place(p, xasprintf("%s/%s", roots->v[k], word));
	}
}

/* What is not on disk may be among the changes. */
static int find_changed(void *user, const struct atoll_change *change)
{
	struct places *p = user;
	cleanup_free char *path = change_path(change);

	for (size_t i = 0; i < p->n; i++)
		p->v[i].is_there |= path_below(path, p->v[i].path);
	return 0;
}

static int choose_below(const struct place *v, size_t n, const char *word, const char **ret,
                        struct error *err)
{
	const char *found = NULL;

	for (size_t i = 0; i < n; i++) {
		if (!v[i].is_there)
			continue;
		if (found) {
			(void)error_set(err, -ATOLL_E_AMBIGUOUS, "'%s' is both '%s' and '%s'", word,
			                found, v[i].path);
			error_hint(err, "give the whole path");
			return -ATOLL_E_AMBIGUOUS;
		}
		found = v[i].path;
	}
	if (!found)
		return error_set(err, -ATOLL_E_NOT_FOUND, "'%s' names nothing in the plan", word);
	*ret = found;
	return 0;
}

static int choose(const struct place *v, size_t n, const struct strlist *roots, const char *word,
                  const char **ret, struct error *err)
{
	bool in_plan = is_in_plan(roots, v->path);

	if (*word != '/' && !(in_plan && v->is_there))
		return choose_below(v + 1, n - 1, word, ret, err);
	if (!in_plan)
		return error_set(err, -ATOLL_E_NOT_FOUND, "'%s' names nothing in the plan", word);
	*ret = v->path;
	return 0;
}

/* Whether a look at the changes is needed to know what the words mean. */
static bool is_unclear(const struct places *p, char **words, size_t n, const struct strlist *roots)
{
	for (size_t i = 0; i < n; i++) {
		const struct place *here = &p->v[i * p->per_word];

		if (*words[i] != '/' && !(here->is_there && is_in_plan(roots, here->path)))
			return true;
	}
	return false;
}

static int select_words(struct diff_select *s, struct cli *c, char **words, size_t n,
                        struct error *err)
{
	cleanup_strlist struct strlist roots = STRLIST_INIT;
	cleanup_places struct places p = { 0 };
	int r = atoll_plan_sandboxes(c->plan, note_root, &roots, NULL);

	places_init(&p, words, n, &roots);
	if (r >= 0 && is_unclear(&p, words, n, &roots))
		(void)atoll_plan_diff(c->plan, find_changed, &p, NULL); /* it will fail again */
	for (size_t i = 0; r >= 0 && i < n; i++) {
		const char *path = NULL;

		r = choose(&p.v[i * p.per_word], p.per_word, &roots, words[i], &path, err);
		if (r >= 0)
			strlist_add(&s->paths, path);
	}
	return r;
}

int diff_select_init(struct diff_select *s, struct cli *c, struct error *err)
{
	const char *pattern;
	size_t at = 0;

	while ((pattern = args_next(&c->args, "exclude", &at)))
		strlist_add(&s->excludes, pattern);
	s->is_narrowed = c->args.n_words > 1;
	return s->is_narrowed ? select_words(s, c, c->args.words + 1, c->args.n_words - 1, err) : 0;
}

static bool is_excluded(const struct diff_select *s, const struct atoll_change *change)
{
	bool is_dir = S_ISDIR(change->new_mode ? change->new_mode : change->old_mode);

	for (size_t i = 0; i < s->excludes.n; i++)
		if (glob_path(s->excludes.v[i], change->path, is_dir))
			return true;
	return false;
}

bool diff_select_has(const struct diff_select *s, const struct atoll_change *change)
{
	bool is_whole = change->kind != ATOLL_CHANGE_CHANGED || change->what & ATOLL_CHANGE_TYPE;
	cleanup_free char *path = NULL;

	if (s->conflicts_only && !(change->what & ATOLL_CHANGE_CONFLICT))
		return false;
	if (is_excluded(s, change))
		return false;
	if (!s->is_narrowed)
		return true;
	path = change_path(change);
	for (size_t i = 0; i < s->paths.n; i++) {
		if (path_below(path, s->paths.v[i]))
			return true;
		/* A directory that comes or goes does so with what was named inside it. */
		if (*change->path && is_whole && path_below(s->paths.v[i], path))
			return true;
	}
	return false;
}

void diff_select_done(struct diff_select *s)
{
	strlist_done(&s->paths);
	strlist_done(&s->excludes);
}
