/* SPDX-License-Identifier: Apache-2.0 */
/* From the paths a caller names to what each sandbox of a plan is asked for, and back: which of
 * them had nothing to say. */
#include "plan/plan-select.h"

#include <stdlib.h>
#include <string.h>

#include "diff/change.h"
#include "util/cleanup.h"
#include "util/escape.h"
#include "util/glob.h"
#include "util/mem.h"

static bool is_given(const char *const *list)
{
	return list && *list;
}

/* Absolute, and no component that means something else than itself. */
static bool is_plain(const char *path)
{
	if (*path != '/')
		return false;
	while (*path) {
		size_t len;

		path++;
		len = strcspn(path, "/");
		if (len == 0 ? *path != '\0'
		             : (len == 1 && path[0] == '.') ||
		                       (len == 2 && strncmp(path, "..", 2) == 0))
			return false;
		path += len;
	}
	return true;
}

static char *without_slash(const char *path)
{
	size_t len = strlen(path);

	while (len && path[len - 1] == '/')
		len--;
	return xstrndup(path, len); /* "/" is "", above everything */
}

static struct selection *selection_of(struct txn_part *p)
{
	if (!p->select)
		p->select = xcalloc(1, sizeof(*p->select));
	return p->select;
}

/* The one that PATH, inside a resource, belongs to. */
static struct txn_part *innermost(struct txn *t, const char *path)
{
	struct txn_part *best = NULL;

	for (size_t i = 0; i < t->n; i++)
		if (path_below(path, t->parts[i].row.root) &&
		    (!best || strlen(t->parts[i].row.root) > strlen(best->row.root)))
			best = &t->parts[i];
	return best;
}

static struct strlist *list_at(struct selection *s, size_t offset)
{
	return (struct strlist *)(void *)((char *)s + offset);
}

/* Adds PATH to the list at OFFSET of every selection it concerns. */
static int add_path(struct txn *t, const char *given, size_t offset, struct error *err)
{
	cleanup_free char *path = without_slash(given), *shown = escape_dup(given);
	struct txn_part *in;
	bool found = false;

	if (*given != '/' || !is_plain(*path ? path : "/"))
		return error_set(err, -ATOLL_E_INVALID,
		                 "'%s' is no absolute path without \".\" and \"..\"", shown);
	for (size_t i = 0; i < t->n; i++) {
		if (!path_below(t->parts[i].row.root, path))
			continue;
		strlist_add(list_at(selection_of(&t->parts[i]), offset), "");
		found = true;
	}
	in = innermost(t, path);
	if (in && strcmp(in->row.root, path) != 0) {
		strlist_add(list_at(selection_of(in), offset), path + strlen(in->row.root) + 1);
		found = true;
	}
	if (!found)
		return error_set(err, -ATOLL_E_NOT_FOUND,
		                 "'%s' names nothing in the plan; nothing was changed", shown);
	return 0;
}

static int add_paths(struct txn *t, const char *const *list, size_t offset, struct error *err)
{
	int r = 0;

	for (; list && *list && r >= 0; list++)
		r = add_path(t, *list, offset, err);
	return r;
}

/* One that cannot match would leave nothing out, and its change be committed. */
static int check_excludes(const char *const *list, struct error *err)
{
	for (; list && *list; list++) {
		if (glob_can_match(*list))
			continue;
		(void)error_set(err, -ATOLL_E_INVALID,
		                "the pattern '%s' can match nothing; nothing was changed", *list);
		error_hint(err,
		           "a name ('*.log'), or a path from a resource's root on ('docs/old')");
		return -ATOLL_E_INVALID;
	}
	return 0;
}

static void add_excludes(struct txn *t, const char *const *list)
{
	size_t n = 0;

	while (list && list[n])
		n++;
	for (size_t i = 0; n && i < t->n; i++) {
		struct selection *s = t->parts[i].select;

		if (!s)
			continue;
		for (size_t k = 0; k < n; k++)
			strlist_add(&s->excludes, list[k]);
		s->used = xcalloc(n, sizeof(*s->used));
	}
}

static void note_idle(struct txn *t, const struct txn_part *p, const struct strlist *paths)
{
	for (size_t i = 0; i < paths->n; i++)
		result_note(t->res, ATOLL_NOTE_WARNING, p->row.id, paths->v[i],
		            "nothing was settled there: it is not among what is committed");
}

/* Settling conflicts asks nobody in who was not asked for changes. */
static void drop_unasked(struct txn *t)
{
	for (size_t i = 0; i < t->n; i++) {
		struct txn_part *p = &t->parts[i];

		if (!p->select || p->select->paths.n)
			continue;
		note_idle(t, p, &p->select->ours);
		note_idle(t, p, &p->select->theirs);
		selection_free(p->select);
		p->select = NULL;
	}
}

static int check_sides(const struct txn *t, struct error *err)
{
	for (size_t i = 0; i < t->n; i++) {
		const struct selection *s = t->parts[i].select;

		for (size_t k = 0; s && k < s->theirs.n; k++) {
			const char *path = s->theirs.v[k];
			cleanup_free char *full = NULL;
			cleanup_free char *shown = NULL;

			if (!strlist_has(&s->ours, path))
				continue;
			full = xasprintf("%s%s%s", t->parts[i].row.root, *path ? "/" : "", path);
			shown = escape_dup(full);
			(void)error_set(
				err, -ATOLL_E_INVALID,
				"'%s' cannot be settled for both sides; nothing was changed",
				shown);
			error_hint(err,
			           "name it in --ours or, to leave the version that is there, in "
			           "--theirs (undo: --keep-theirs)");
			return -ATOLL_E_INVALID;
		}
	}
	return 0;
}

int plan_select_sides(struct txn *t, const char *const *ours, const char *const *theirs,
                      struct error *err)
{
	int r = add_paths(t, ours, offsetof(struct selection, ours), err);

	if (r >= 0)
		r = add_paths(t, theirs, offsetof(struct selection, theirs), err);
	return r < 0 ? r : check_sides(t, err);
}

int plan_select(struct txn *t, const struct atoll_commit *commit, struct error *err)
{
	int r;

	t->selective = is_given(commit->paths) || is_given(commit->excludes);
	r = check_excludes(commit->excludes, err);
	if (r >= 0)
		r = add_paths(t, commit->paths, offsetof(struct selection, paths), err);
	for (size_t i = 0; !is_given(commit->paths) && i < t->n && r >= 0; i++)
		strlist_add(&selection_of(&t->parts[i])->paths, "");
	add_excludes(t, commit->excludes);
	if (r >= 0)
		r = plan_select_sides(t, commit->ours, commit->theirs, err);
	drop_unasked(t);
	return r;
}

static bool is_used(const struct txn *t, size_t exclude)
{
	for (size_t i = 0; i < t->n; i++)
		if (t->parts[i].select && atomic_load(&t->parts[i].select->used[exclude]))
			return true;
	return false;
}

void plan_select_report(const struct txn *t, const struct atoll_commit *commit)
{
	for (size_t i = 0; commit->excludes && commit->excludes[i]; i++) {
		cleanup_free char *text = NULL;

		if (is_used(t, i))
			continue;
		text = xasprintf("nothing that changed matches '%s', so it left nothing out",
		                 commit->excludes[i]);
		result_note(t->res, ATOLL_NOTE_WARNING, "", "", text);
	}
}
