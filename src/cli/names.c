/* SPDX-License-Identifier: Apache-2.0 */
/* What a word on the command line names in a plan. */
#include "cli/names.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "diff/change.h"
#include "util/cleanup.h"
#include "util/mem.h"
#include "util/strbuf.h"

struct names {
	struct strlist roots;
	struct names_lookup *look;
};

/* ---- one word as a path ---- */

/* Absolute, without "." and "..", links only resolved in the part of HEAD that exists: a changed
 * entry need not be there any more. */
static char *resolve_head(const char *head_text, const char *tail_text)
{
	cleanup_free char *head = xstrdup(head_text);
	cleanup_free char *tail = xstrdup(tail_text);

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

static bool is_dots(const char *name)
{
	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* The last component is the entry meant, link or not. */
static char *full_path(const char *word)
{
	size_t len = strlen(word);
	cleanup_free char *text = NULL;
	char *slash;

	while (len > 1 && word[len - 1] == '/')
		len--;
	text = xstrndup(word, len);
	slash = strrchr(text, '/');
	if (is_dots(slash ? slash + 1 : text) || !(slash ? slash[1] : *text))
		return resolve_head(text, "");
	if (!slash)
		return resolve_head("", text);
	*slash = '\0';
	return resolve_head(slash == text ? "/" : text, slash + 1);
}

/* WORD as text: absolute, without "." and empty components. NULL where it says "..", which means what
 * the links before it lead to. */
static char *as_written(const char *word)
{
	cleanup_free char *cwd = *word == '/' ? xstrdup("") : getcwd(NULL, 0);
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;

	if (!cwd)
		return NULL;
	strbuf_puts(&sb, cwd);
	while (*word) {
		size_t len = strcspn(word, "/");

		if (len == 2 && strncmp(word, "..", 2) == 0)
			return NULL;
		if (len > 1 || (len == 1 && *word != '.'))
			strbuf_printf(&sb, "/%.*s", (int)len, word);
		word += len;
		word += *word == '/';
	}
	return xstrdup(strbuf_str(&sb));
}

/* ---- changes that nobody has read yet ---- */

static int note_changed(void *user, const struct atoll_change *change)
{
	cleanup_free char *path = xasprintf("%s/%s", change->root, change->path);

	strlist_add(user, path);
	return 0;
}

/* Did the plan change anything at or below FULL, an absolute path? */
static bool is_changed(struct names_lookup *l, const char *full)
{
	if (!l->changed) {
		l->changed = xcalloc(1, sizeof(*l->changed));
		(void)atoll_plan_diff(l->c->plan, note_changed, l->changed, NULL);
	}
	for (size_t i = 0; i < l->changed->n; i++)
		if (path_below(l->changed->v[i], full))
			return true;
	return false;
}

void names_lookup_done(struct names_lookup *l)
{
	if (l->changed)
		strlist_done(l->changed);
	free(l->changed);
	l->changed = NULL;
}

/* ---- what it names ---- */

static int note_root(void *user, const struct atoll_sandbox_info *info)
{
	strlist_add(user, info->root);
	return 0;
}

static bool names_something(const struct names *n, const char *full)
{
	struct stat st;

	return lstat(full, &st) == 0 || is_changed(n->look, full);
}

/* In a resource, or around one. */
static bool is_in_plan(const struct names *n, const char *full)
{
	for (size_t i = 0; i < n->roots.n; i++)
		if (path_below(full, n->roots.v[i]) || path_below(n->roots.v[i], full))
			return true;
	return false;
}

static int names_nothing(const struct names *n, const char *word, struct error *err)
{
	if (n->look->c->is_picked)
		(void)error_set(err, -ATOLL_E_NOT_FOUND,
		                "'%s' is no plan, and names nothing in plan %s", word,
		                atoll_plan_name(n->look->c->plan));
	else
		(void)error_set(err, -ATOLL_E_NOT_FOUND, "'%s' names nothing in the plan", word);
	error_hint(err, "atoll diff %s shows what changed, atoll status %s its resources",
	           atoll_plan_name(n->look->c->plan), atoll_plan_name(n->look->c->plan));
	return -ATOLL_E_NOT_FOUND;
}

/* Inside a root a path is what it says: a link there may be a directory in the plan. */
static char *path_of(const struct names *n, const char *word)
{
	char *text = as_written(word);

	for (size_t i = 0; text && i < n->roots.n; i++)
		if (path_below(text, n->roots.v[i]))
			return text;
	free(text);
	return full_path(word);
}

/* WORD below the one root where it names something. */
static int below_root(const struct names *n, const char *word, char **ret, struct error *err)
{
	cleanup_free char *found = NULL;

	for (size_t i = 0; i < n->roots.n; i++) {
		cleanup_free char *joined = xasprintf("%s/%s", n->roots.v[i], word);
		cleanup_free char *full = path_of(n, joined);

		if (!path_below(full, n->roots.v[i]) || !names_something(n, full))
			continue;
		if (found) {
			(void)error_set(err, -ATOLL_E_AMBIGUOUS, "'%s' is both '%s' and '%s'", word,
			                found, full);
			error_hint(err, "give the whole path");
			return -ATOLL_E_AMBIGUOUS;
		}
		found = take_ptr(full);
	}
	if (!found)
		return names_nothing(n, word, err);
	*ret = take_ptr(found);
	return 0;
}

static int resolve_word(const struct names *n, const char *word, char **ret, struct error *err)
{
	cleanup_free char *full = NULL;

	/* What a script leaves empty must not mean everything. */
	if (!*word)
		return names_nothing(n, word, err);
	full = path_of(n, word);
	if (is_in_plan(n, full) && (n->look->may_be_gone || names_something(n, full))) {
		*ret = take_ptr(full);
		return 0;
	}
	return *word == '/' ? names_nothing(n, word, err) : below_root(n, word, ret, err);
}

int names_resolve(struct names_lookup *l, char *const *words, size_t n, struct strlist *ret,
                  struct error *err)
{
	struct names names = { .look = l };
	int r = atoll_plan_sandboxes(l->c->plan, note_root, &names.roots, l->c->res);

	if (r < 0)
		(void)error_set(err, r, "%s", atoll_result_message(l->c->res));
	for (size_t i = 0; r >= 0 && i < n; i++) {
		cleanup_free char *full = NULL;

		r = resolve_word(&names, words[i], &full, err);
		if (r >= 0)
			strlist_add(ret, full);
	}
	strlist_done(&names.roots);
	return r;
}

int names_of_option(struct names_lookup *l, const char *name, struct strlist *ret,
                    struct error *err)
{
	const char *value;
	size_t at = 0;
	int r = 0;

	while (r >= 0 && (value = args_next(&l->c->args, name, &at))) {
		cleanup_free char *word = xstrdup(value);

		r = names_resolve(l, &word, 1, ret, err);
	}
	return r;
}

const char **names_array(const struct strlist *list)
{
	const char **v = xcalloc(list->n + 1, sizeof(*v));

	for (size_t i = 0; i < list->n; i++)
		v[i] = list->v[i];
	return v;
}
