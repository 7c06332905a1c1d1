/* SPDX-License-Identifier: Apache-2.0 */
/* From what a person types to a plan. */
#include "registry/registry.h"

#include "registry/rows-impl.h"
#include "util/cleanup.h"
#include "util/escape.h"
#include "util/strbuf.h"
#include "util/suggest.h"

#include <stdlib.h>
#include <string.h>

#define NAMED_MAX 8 /* candidates in a message; the rest is counted */

/* Plans that match, and the names nearest to it among those that do not. */
struct search {
	const char *ref; /* "": everything matches */
	size_t matches;
	struct plan_row match; /* the first */
	struct strbuf names;
	struct suggestions near;
};

static bool has_prefix(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

static int look_at(void *ctx, const struct plan_row *row)
{
	struct search *s = ctx;

	if (!has_prefix(row->name, s->ref) && !has_prefix(row->id, s->ref)) {
		suggest_try(&s->near, row->name, strlen(row->name));
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
	error_hint(err, "atoll list");
	suggest_hint(&s->near, "", err);
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
	struct search s = { .ref = prefix, .near = { .wanted = prefix } };
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

int registry_plan_whole(struct registry *r, const char *ref, struct plan_row *ret,
                        struct error *err)
{
	int k = 0;

	/* The id first: nobody takes another's place by a name that looks like its id. */
	if (strlen(ref) == sizeof(ret->id) - 1)
		k = plan_find(r, PLAN_OPEN_BY_ID, ref, ret, err);
	return k == 0 ? plan_find(r, PLAN_OPEN_BY_NAME, ref, ret, err) : k;
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
	k = registry_plan_whole(r, ref, &row, err);
	/* The id of a plan that is gone is the beginning of no other plan's name. */
	if (k == 0 && strlen(ref) == PLAN_ID_LEN && strspn(ref, "0123456789abcdef") == PLAN_ID_LEN)
		return not_found(&(struct search){ .ref = ref }, err);
	if (k == 0)
		return resolve_prefix(r, ref, ret, err);
	if (k > 0)
		*ret = row;
	return k < 0 ? k : 0;
}
