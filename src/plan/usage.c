/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What sandboxes take on disk. Measured where somebody works on a plan anyway, and kept in the
 * registry, so that a listing of a thousand plans reads nothing else. Losing a figure harms nobody.
 */
#include "plan/usage.h"

#include <string.h>

void usage_add(const char *path, struct usage *u)
{
	usage_add_path(path, false, u);
}

/* Who has views leaves a note of what does not change (fs/usage.h). Another strategy's area may be a
 * whole copy, and is measured when it is new. */
static bool is_cheap(const struct sandbox_row *row)
{
	const struct atoll_strategy *s = NULL;

	return row->entries == 0 || (strategy_find(row->strategy, &s, NULL) == 0 &&
	                             (s->capabilities & ATOLL_CAP_MOUNTS) != 0);
}

void usage_measure(struct sandboxes *boxes)
{
	for (size_t i = 0; i < boxes->n; i++) {
		struct sandbox_row *row = &boxes->v[i];
		struct usage u = { 0 };

		if (!is_cheap(row))
			continue;
		usage_add_path(row->area, true, &u);
		if (strcmp(row->work, row->area) != 0)
			usage_add_path(row->work, true, &u);
		row->remeasured = row->bytes != u.bytes || row->entries != u.entries;
		row->bytes = u.bytes;
		row->entries = u.entries;
	}
}

int usage_write(struct registry *reg, const struct sandboxes *boxes, struct error *err)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < boxes->n; i++) {
		const struct sandbox_row *row = &boxes->v[i];

		if (row->remeasured)
			r = registry_sandbox_set_usage(reg, row->id, row->bytes, row->entries, err);
	}
	return r;
}
