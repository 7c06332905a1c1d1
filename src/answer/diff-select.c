/* SPDX-License-Identifier: Apache-2.0 */
/* Which changes the user named, decided before the first one is shown. */
#include "cli/diff-view.h"

#include "cli/names.h"
#include "diff/change.h"
#include "util/cleanup.h"
#include "util/glob.h"
#include "util/mem.h"

#include <stdlib.h>
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

	while ((pattern = args_next(&c->args, "exclude", &at))) {
		if (!glob_can_match(pattern)) {
			(void)error_set(err, -ATOLL_E_INVALID, "the pattern '%s' can match nothing",
			                pattern);
			error_hint(err, "a name ('*.log'), or a path from a resource's root on "
			                "('docs/old')");
			return -ATOLL_E_INVALID;
		}
		strlist_add(&s->excludes, pattern);
	}
	s->used = xcalloc(s->excludes.n + 1, sizeof(*s->used));
	s->is_narrowed = c->args.n_words > 1;
	return names_resolve(&look, c->args.words + 1, c->args.n_words - 1, &s->paths, err);
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

void diff_select_report(const struct diff_select *s, const struct cli *c)
{
	for (size_t i = 0; i < s->excludes.n; i++)
		if (!s->used[i])
			cli_say(c,
			        "  warning: nothing that changed matches '%s', so it left nothing "
			        "out",
			        s->excludes.v[i]);
}

void diff_select_json(const struct diff_select *s, struct json *j)
{
	json_open_array(j, "unmatched");
	for (size_t i = 0; i < s->excludes.n; i++)
		if (!s->used[i])
			json_string(j, NULL, s->excludes.v[i]);
	json_close(j);
}
