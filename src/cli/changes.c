/* SPDX-License-Identifier: Apache-2.0 */
/* Collecting a plan's changes and choosing among them. */
#include "cli/changes.h"

#include "diff/change.h"
#include "util/cleanup.h"
#include "util/list.h"
#include "util/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int collect(void *user, const struct atoll_change *change)
{
	struct changes *ch = user;
	struct shown_change *to;

	if (grow((void **)&ch->v, &ch->cap, ch->n + 1, sizeof(*ch->v)) < 0)
		return -ENOMEM;
	to = &ch->v[ch->n++];
	*to = (struct shown_change){ .change = *change, .selected = true };
	to->change.sandbox = xstrdup(change->sandbox);
	to->change.root = xstrdup(change->root);
	to->change.path = xstrdup(change->path);
	to->change.text = xstrdup(change->text ? change->text : "");
	to->change.conflict = xstrdup(change->conflict);
	to->change.from = NULL;
	return 0;
}

int changes_read(struct cli *c, struct changes *ret)
{
	int64_t n = atoll_plan_diff(c->plan, collect, ret, c->res);

	return n < 0 ? (int)n : 0;
}

static void free_text(const char *s)
{
	union {
		const char *in;
		char *out;
	} u = { .in = s };

	free(u.out);
}

void changes_done(struct changes *ch)
{
	for (size_t i = 0; i < ch->n; i++) {
		free_text(ch->v[i].change.sandbox);
		free_text(ch->v[i].change.root);
		free_text(ch->v[i].change.path);
		free_text(ch->v[i].change.text);
		free_text(ch->v[i].change.conflict);
	}
	free(ch->v);
	*ch = CHANGES_INIT;
}

/* ---- what a word names ---- */

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

static bool exists(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

static bool is_changed(const struct changes *ch, const char *full)
{
	for (size_t i = 0; i < ch->n; i++) {
		cleanup_free char *path =
			xasprintf("%s/%s", ch->v[i].change.root, ch->v[i].change.path);

		if (path_below(path, full))
			return true;
	}
	return false;
}

/* In a resource, or around one. */
static bool is_in_plan(const struct strlist *roots, const char *full)
{
	for (size_t i = 0; i < roots->n; i++)
		if (path_below(full, roots->v[i]) || path_below(roots->v[i], full))
			return true;
	return false;
}

/* WORD below the one root where it names something. */
static int below_root(const struct changes *ch, const struct strlist *roots, const char *word,
                      char **ret, struct error *err)
{
	cleanup_free char *found = NULL;

	for (size_t i = 0; i < roots->n; i++) {
		char *full = xasprintf("%s/%s", roots->v[i], word);

		if (!exists(full) && !is_changed(ch, full)) {
			free(full);
			continue;
		}
		if (found) {
			(void)error_set(err, -ATOLL_E_AMBIGUOUS, "'%s' is both '%s' and '%s'", word,
			                found, full);
			error_hint(err, "give the whole path");
			free(full);
			return -ATOLL_E_AMBIGUOUS;
		}
		found = full;
	}
	if (!found)
		return error_set(err, -ATOLL_E_NOT_FOUND, "'%s' names nothing in the plan", word);
	*ret = take_ptr(found);
	return 0;
}

static int resolve_word(const struct changes *ch, const struct strlist *roots, const char *word,
                        char **ret, struct error *err)
{
	cleanup_free char *full = full_path(word);

	if (*word != '/' && !(is_in_plan(roots, full) && (exists(full) || is_changed(ch, full))))
		return below_root(ch, roots, word, ret, err);
	if (!is_in_plan(roots, full))
		return error_set(err, -ATOLL_E_NOT_FOUND, "'%s' names nothing in the plan", word);
	*ret = take_ptr(full);
	return 0;
}

static void select_below(struct changes *ch, const char *full)
{
	for (size_t i = 0; i < ch->n; i++) {
		const struct atoll_change *change = &ch->v[i].change;
		cleanup_free char *path =
			xasprintf("%s%s%s", change->root, *change->path ? "/" : "", change->path);

		/* A new directory is one change: something inside it is a part of it. */
		if (path_below(path, full) || (*change->path && path_below(full, path)))
			ch->v[i].selected = true;
	}
}

int changes_select(struct cli *c, struct changes *ch, char **words, size_t n, struct error *err)
{
	cleanup_strlist struct strlist roots = STRLIST_INIT;
	int r = atoll_plan_sandboxes(c->plan, note_root, &roots, NULL);

	for (size_t i = 0; i < ch->n; i++)
		ch->v[i].selected = false;
	for (size_t i = 0; r >= 0 && i < n; i++) {
		cleanup_free char *full = NULL;

		r = resolve_word(ch, &roots, words[i], &full, err);
		if (r >= 0)
			select_below(ch, full);
	}
	return r;
}
