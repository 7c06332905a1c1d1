/* SPDX-License-Identifier: Apache-2.0 */
/* Which changes the user named, decided before the first one is shown. */
#include "answer/diff-view.h"

#include "diff/change.h"
#include "util/cleanup.h"
#include "util/glob.h"
#include "util/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

static char *change_path(const struct atoll_change *change)
{
	return xasprintf("%s%s%s", change->root, *change->path ? "/" : "", change->path);
}

int diff_select_exclude(struct diff_select *s, const char *pattern, struct error *err)
{
	if (!glob_can_match(pattern)) {
		(void)error_set(err, -ATOLL_E_INVALID, "the pattern '%s' can match nothing",
		                pattern);
		error_hint(err, "a name ('*.log'), or a path from a resource's root on "
		                "('docs/old')");
		return -ATOLL_E_INVALID;
	}
	strlist_add(&s->excludes, pattern);
	if (grow((void **)&s->used, &s->used_cap, s->excludes.n, sizeof(*s->used)) < 0)
		return error_set(err, -ENOMEM, "out of memory");
	s->used[s->excludes.n - 1] = false;
	return 0;
}

/* Every pattern is tried: a second one that matches is not one that matches nothing. */
static bool is_excluded(struct diff_select *s, const struct atoll_change *change)
{
	bool is_dir = S_ISDIR(change->new_mode ? change->new_mode : change->old_mode);
	bool excluded = false;

	for (size_t i = 0; i < s->excludes.n; i++) {
		if (!glob_path(s->excludes.v[i], change->path, is_dir))
			continue;
		s->used[i] = true;
		excluded = true;
	}
	return excluded;
}

bool diff_select_has(struct diff_select *s, const struct atoll_change *change)
{
	bool is_whole = change->kind != ATOLL_CHANGE_CHANGED || change->what & ATOLL_CHANGE_TYPE;
	cleanup_free char *path = NULL;

	if (s->conflicts_only && !(change->what & ATOLL_CHANGE_CONFLICT))
		return false;
	if (!s->is_narrowed)
		return !is_excluded(s, change);
	path = change_path(change);
	for (size_t i = 0; i < s->paths.n; i++) {
		if (path_below(path, s->paths.v[i]))
			return !is_excluded(s, change);
		/* A directory that comes or goes does so with what was named inside it. */
		if (*change->path && is_whole && path_below(s->paths.v[i], path))
			return !is_excluded(s, change);
	}
	return false;
}

void diff_select_done(struct diff_select *s)
{
	strlist_done(&s->paths);
	strlist_done(&s->excludes);
	free(s->used);
}

void diff_select_json(const struct diff_select *s, struct json *j)
{
	json_open_array(j, "unmatched");
	for (size_t i = 0; i < s->excludes.n; i++)
		if (!s->used[i])
			json_string(j, NULL, s->excludes.v[i]);
	json_close(j);
}
