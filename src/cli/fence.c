/* SPDX-License-Identifier: Apache-2.0 */
/* From the command line to the library's struct. */
#include "cli/fence.h"

#include "util/mem.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[FENCE_LIST_END_] = {
	[FENCE_RW] = "rw",
	[FENCE_RO] = "ro",
	[FENCE_HIDE] = "hide",
	[FENCE_PROFILE] = "profile",
};

static const char **list_of(const struct args *a, const char *name)
{
	const char **list = xcalloc(a->n_given + 1, sizeof(*list));
	const char *value;
	size_t at = 0, n = 0;

	while ((value = args_next(a, name, &at)))
		list[n++] = value;
	return list;
}

static enum atoll_home home_of(const char *word)
{
	if (word && strcmp(word, "real") == 0)
		return ATOLL_HOME_REAL;
	return word && strcmp(word, "none") == 0 ? ATOLL_HOME_NONE : ATOLL_HOME_SCRATCH;
}

void fence_read(struct fence_args *f, const struct args *a, bool strict)
{
	for (int i = 0; i < FENCE_LIST_END_; i++)
		f->lists[i] = list_of(a, names[i]);
	f->fence = (struct atoll_fence){
		.home = home_of(args_value(a, "home")),
		.rw = f->lists[FENCE_RW],
		.ro = f->lists[FENCE_RO],
		.hide = f->lists[FENCE_HIDE],
		.profiles = f->lists[FENCE_PROFILE],
		.strict = strict || args_has(a, "strict"),
	};
}

void fence_done(struct fence_args *f)
{
	for (int i = 0; i < FENCE_LIST_END_; i++)
		free(f->lists[i]);
}
