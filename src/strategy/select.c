/* SPDX-License-Identifier: Apache-2.0 */
/* Which part of a resource's changes a batch takes. */
#include "strategy/select.h"

#include <stdlib.h>
#include <string.h>

#include "diff/change.h"
#include "util/glob.h"

void selection_free(struct selection *s)
{
	if (!s)
		return;
	strlist_done(&s->paths);
	strlist_done(&s->excludes);
	strlist_done(&s->ours);
	strlist_done(&s->theirs);
	free(s->used);
	free(s);
}

bool selection_is_inside(const struct selection *s)
{
	return s && !strlist_has(&s->paths, "");
}

bool selection_is_whole(const struct selection *s)
{
	return !s || (!selection_is_inside(s) && s->excludes.n == 0);
}

const char *selection_cover(const struct strlist *paths, const char *path)
{
	const char *best = NULL;

	for (size_t i = 0; i < paths->n; i++)
		if (path_below(path, paths->v[i]) && (!best || strlen(paths->v[i]) > strlen(best)))
			best = paths->v[i];
	return best;
}

bool selection_has(const struct selection *s, const char *path, bool is_dir)
{
	bool has = true;

	if (!s)
		return true;
	if (!selection_cover(&s->paths, path))
		return false;
	for (size_t i = 0; i < s->excludes.n; i++) {
		if (!glob_path(s->excludes.v[i], path, is_dir))
			continue;
		has = false;
		if (!s->used)
			return has;
		atomic_store_explicit(&s->used[i], true, memory_order_relaxed);
	}
	return has;
}
