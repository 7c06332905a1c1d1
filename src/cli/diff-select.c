/* SPDX-License-Identifier: Apache-2.0 */
/* Which changes the user named, decided before the first one is shown. */
#include "cli/diff-view.h"

#include "cli/names.h"
#include "diff/change.h"
#include "util/cleanup.h"
#include "util/glob.h"
#include "util/mem.h"

#include <sys/stat.h>

static char *change_path(const struct atoll_change *change)
{
	return xasprintf("%s%s%s", change->root, *change->path ? "/" : "", change->path);
}

int diff_select_init(struct diff_select *s, struct cli *c, struct error *err)
{
	cleanup_names_lookup struct names_lookup look = NAMES_LOOKUP_INIT(c);
	const char *pattern;
	size_t at = 0;

	while ((pattern = args_next(&c->args, "exclude", &at)))
		strlist_add(&s->excludes, pattern);
	s->is_narrowed = c->args.n_words > 1;
	return names_resolve(&look, c->args.words + 1, c->args.n_words - 1, &s->paths, err);
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
