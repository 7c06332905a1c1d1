/* SPDX-License-Identifier: Apache-2.0 */
/* From what a person types to a plan. */
#include "registry/registry.h"

#include "registry/rows-impl.h"
#include "util/cleanup.h"
#include "util/escape.h"
#include "util/strbuf.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define NAMED_MAX 8 /* candidates in a message; the rest is counted */

/* Plans that match, and the nearest name among those that do not. */
struct search {
	const char *ref; /* "": everything matches */
	size_t matches;
	struct plan_row match; /* the first */
	struct strbuf names;
	unsigned distance; /* of `nearest`; UINT_MAX: there is none */
	char nearest[LIMIT_NAME + 1];
};

/* Insertions, deletions and replacements of bytes; both at most LIMIT_NAME long. */
static unsigned edit_distance(const char *a, const char *b)
{
	unsigned row[LIMIT_NAME + 1];
	size_t len = strlen(b);

	for (size_t j = 0; j <= len; j++)
		row[j] = (unsigned)j;
	for (size_t i = 0; a[i] != '\0'; i++) {
		unsigned diagonal = row[0];

		row[0] = (unsigned)i + 1;
		for (size_t j = 0; j < len; j++) {
			unsigned best = diagonal + (a[i] != b[j]);

			diagonal = row[j + 1];
			if (row[j] + 1 < best)
				best = row[j] + 1;
			if (diagonal + 1 < best)
				best = diagonal + 1;
			row[j + 1] = best;
		}
	}
	return row[len];
}

static bool has_prefix(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

static void note_near(struct search *s, const struct plan_row *row)
{
	unsigned distance;

	if (strlen(s->ref) > LIMIT_NAME)
		return;
	distance = edit_distance(s->ref, row->name);
	if (distance >= s->distance)
		return;
	s->distance = distance;
	memcpy(s->nearest, row->name, sizeof(s->nearest));
}

static int look_at(void *ctx, const struct plan_row *row)
{
	struct search *s = ctx;

	if (!has_prefix(row->name, s->ref) && !has_prefix(row->id, s->ref)) {
		note_near(s, row);
		return 0;
	}
	if (s->matches == 0)
		s->match = *row;
	if (s->matches < NAMED_MAX)
		strbuf_printf(&s->names, "%s%s (%s)", s->matches > 0 ? ", " : "", row->name,
		              row->id);
	s->matches++;
	return 0;
}

static int not_found(const struct search *s, struct error *err)
{
	cleanup_free char *shown = escape_dup(s->ref);
	int k;

	if (s->ref[0] == '\0') {
		k = error_set(err, -ATOLL_E_NOT_FOUND, "there is no plan");
		error_hint(err, "atoll start NAME");
		return k;
	}
	k = error_set(err, -ATOLL_E_NOT_FOUND, "there is no plan '%s'", shown);
	/* A name that differs in more than a third is another name, not a slip. */
	if (s->distance <= 1 + strlen(s->ref) / 3)
		error_hint(err, "did you mean '%s'?", s->nearest);
	else
		error_hint(err, "atoll list");
	return k;
}

static int ambiguous(struct search *s, struct error *err)
{
	cleanup_free char *shown = escape_dup(s->ref);
	int k;

	if (s->matches > NAMED_MAX)
		strbuf_printf(&s->names, " and %zu more", s->matches - NAMED_MAX);
	if (s->ref[0] == '\0')
		k = error_set(err, -ATOLL_E_AMBIGUOUS, "there are several plans: %s",
		              strbuf_str(&s->names));
	else
		k = error_set(err, -ATOLL_E_AMBIGUOUS, "'%s' matches several plans: %s", shown,
		              strbuf_str(&s->names));
	error_hint(err, "give the whole name or id");
	return k;
}

static int resolve_prefix(struct registry *r, const char *prefix, struct plan_row *ret,
                          struct error *err)
{
	struct search s = { .ref = prefix, .distance = UINT_MAX };
	int k = registry_plan_list(r, look_at, &s, err);

	if (k == 0 && s.matches == 0)
		k = not_found(&s, err);
	else if (k == 0 && s.matches > 1)
		k = ambiguous(&s, err);
	else if (k == 0)
		*ret = s.match;
	strbuf_done(&s.names);
	return k;
}

int registry_plan_resolve(struct registry *r, const char *ref, struct plan_row *ret,
                          struct error *err)
{
	struct plan_row row;
	int k;

	if (ref[0] == '\0')
		return error_set(err, -ATOLL_E_INVALID, "the name of the plan is empty");
	if (strcmp(ref, "-") == 0)
		return resolve_prefix(r, "", ret, err);
	k = plan_find(r, PLAN_OPEN_BY_NAME, ref, &row, err);
	if (k == 0)
		k = plan_find(r, PLAN_OPEN_BY_ID, ref, &row, err);
	if (k == 0)
		return resolve_prefix(r, ref, ret, err);
	if (k > 0)
		*ret = row;
	return k < 0 ? k : 0;
}
