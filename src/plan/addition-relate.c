/* SPDX-License-Identifier: Apache-2.0 */
/* What additions are to one another, and to what the plan has already. See addition.h. */
#include "plan/addition.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diff/change.h"
#include "fs/mount.h"
#include "fs/resolve.h"
#include "util/cleanup.h"
#include "util/crashpoint.h"
#include "util/mem.h"

struct relating {
	struct additions *adds;
	const struct plan_op *op;
	struct error *err;
};

/* Sandboxes of the plan first, then additions. */
static size_t count(const struct relating *re)
{
	return re->op->boxes.n + re->adds->rows.n;
}

static const struct sandbox_row *at(const struct relating *re, size_t i)
{
	size_t there = re->op->boxes.n;

	return i < there ? &re->op->boxes.v[i] : &re->adds->rows.v[i - there];
}

static bool lies_in(const struct sandbox_row *inner, const struct sandbox_row *outer)
{
	return strcmp(inner->root, outer->root) != 0 && path_below(inner->root, outer->root);
}

/* ---- twice ---- */

/* By identity: a link or another mount of the same directory is no other directory. */
static int check_once(const struct relating *re, size_t k)
{
	const struct sandbox_row *row = at(re, k);

	for (size_t i = 0; i < k; i++) {
		const struct sandbox_row *other = at(re, i);

		if (strcmp(other->root, row->root) == 0)
			(void)error_set(re->err, -ATOLL_E_EXISTS, "'%s' already is in plan '%s'",
			                row->root, re->op->plan.name);
		else if (strcmp(other->root_id, row->root_id) == 0)
			(void)error_set(re->err, -ATOLL_E_EXISTS,
			                "'%s' is the same as '%s', which already is in plan '%s'",
			                row->root, other->root, re->op->plan.name);
		else
			continue;
		error_hint(re->err, "name every resource once");
		return -ATOLL_E_EXISTS;
	}
	return 0;
}

/* ---- parents ---- */

static void set_parent(struct relating *re, size_t i, const struct sandbox_row *parent)
{
	struct sandbox_row *row = &re->adds->rows.v[i];

	/* An addition has no id yet. */
	if (parent->id[0] == '\0') {
		re->adds->v[i].outer = xstrdup(parent->root);
		return;
	}
	free(row->parent);
	row->parent = xstrdup(parent->id);
}

static int set_declared(struct relating *re, size_t i)
{
	const char *wanted = re->adds->v[i].resource->parent;
	const struct sandbox_row *row = &re->adds->rows.v[i];
	cleanup_free char *canonical = NULL;
	size_t found = 0;
	int r;

	(void)resolve_canonical(wanted, &canonical);
	for (size_t k = 0; k < re->adds->rows.n; k++) {
		const struct sandbox_row *other = &re->adds->rows.v[k];

		if (strcmp(other->root, canonical ? canonical : wanted) == 0) {
			set_parent(re, i, other);
			return 0;
		}
	}
	r = sandboxes_find(&re->op->boxes, wanted, &found, re->err);
	if (r < 0)
		return error_prefix(re->err, r, "parent of '%s'", row->root);
	set_parent(re, i, &re->op->boxes.v[found]);
	return 0;
}

/* The nearest one around it. */
static void set_nearest(struct relating *re, size_t i)
{
	const struct sandbox_row *row = &re->adds->rows.v[i];
	const struct sandbox_row *nearest = NULL;

	for (size_t k = 0; k < count(re); k++) {
		const struct sandbox_row *other = at(re, k);

		if (lies_in(row, other) &&
		    (!nearest || strlen(other->root) > strlen(nearest->root)))
			nearest = other;
	}
	if (nearest)
		set_parent(re, i, nearest);
}

static int set_parents(struct relating *re)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < re->adds->rows.n; i++) {
		if (re->adds->v[i].resource->parent)
			r = set_declared(re, i);
		else
			set_nearest(re, i);
	}
	return r;
}

/* ---- order: parents first, else as given ---- */

static bool is_placed(const struct additions *adds, size_t placed, const char *root)
{
	for (size_t i = 0; i < placed; i++)
		if (strcmp(adds->rows.v[i].root, root) == 0)
			return true;
	return false;
}

static void move_to(struct additions *adds, size_t to, size_t from)
{
	struct addition add = adds->v[from];
	struct sandbox_row row = adds->rows.v[from];

	memmove(&adds->v[to + 1], &adds->v[to], (from - to) * sizeof(add));
	memmove(&adds->rows.v[to + 1], &adds->rows.v[to], (from - to) * sizeof(row));
	adds->v[to] = add;
	adds->rows.v[to] = row;
}

static int sort(struct relating *re)
{
	struct additions *adds = re->adds;

	for (size_t placed = 0; placed < adds->rows.n; placed++) {
		size_t next = placed;

		while (next < adds->rows.n && adds->v[next].outer &&
		       !is_placed(adds, placed, adds->v[next].outer))
			next++;
		if (next == adds->rows.n) {
			(void)error_set(re->err, -ATOLL_E_INVALID,
			                "'%s' and '%s' are each other's parents, in a circle",
			                adds->rows.v[placed].root, adds->v[placed].outer);
			error_hint(re->err, "what lies in another resource is its child already");
			return -ATOLL_E_INVALID;
		}
		move_to(adds, placed, next);
	}
	return 0;
}

/* ---- names ---- */

static void number_them(struct relating *re)
{
	unsigned long last = 0;

	for (size_t i = 0; i < re->op->boxes.n; i++) {
		unsigned long n = strtoul(re->op->boxes.v[i].id + PLAN_ID_LEN + 1, NULL, 10);

		last = n > last ? n : last;
	}
	for (size_t i = 0; i < re->adds->rows.n; i++) {
		struct sandbox_row *row = &re->adds->rows.v[i];

		(void)snprintf(row->id, sizeof(row->id), "%.*s-%lu", PLAN_ID_LEN, re->op->plan.id,
		               ++last);
		(void)snprintf(row->plan, sizeof(row->plan), "%s", re->op->plan.id);
		for (size_t k = 0; re->adds->v[i].outer && k < i; k++) {
			if (strcmp(re->adds->rows.v[k].root, re->adds->v[i].outer) != 0)
				continue;
			free(row->parent);
			row->parent = xstrdup(re->adds->rows.v[k].id);
		}
	}
}

static const struct sandbox_row *parent_of(const struct relating *re, const struct sandbox_row *row)
{
	for (size_t i = 0; *row->parent && i < count(re); i++)
		if (strcmp(at(re, i)->id, row->parent) == 0)
			return at(re, i);
	return NULL;
}

/* ---- overlaps ---- */

/* There is no circle: additions were sorted, and have no children in the plan. */
static bool descends_from(const struct relating *re, const struct sandbox_row *row,
                          const struct sandbox_row *ancestor)
{
	while (row && row != ancestor)
		row = parent_of(re, row);
	return row != NULL;
}

static int open_root(const struct relating *re, size_t i)
{
	size_t there = re->op->boxes.n;

	if (i >= there)
		return fcntl(re->adds->v[i - there].root_fd, F_DUPFD_CLOEXEC, 0);
	return open(at(re, i)->root, O_PATH | O_NOFOLLOW | O_CLOEXEC);
}

/* What is no file, or is gone, is in nobody's way. */
static int check_mounts(const struct relating *re, size_t i, size_t k)
{
	cleanup_close int fd = open_root(re, i), other_fd = open_root(re, k);
	const struct mount_place place = { at(re, i)->root, fd };
	const struct mount_place other = { at(re, k)->root, other_fd };

	if (fd < 0 || other_fd < 0 || mount_overlap(&place, &other) <= 0)
		return 0;
	(void)error_set(re->err, -ATOLL_E_UNSUPPORTED,
	                "'%s' overlaps '%s' in plan '%s': by another mount of it they are one "
	                "directory, or one inside the other",
	                place.path, other.path, re->op->plan.name);
	error_hint(re->err, "name both by paths below one mount, or leave one of them out");
	return -ATOLL_E_UNSUPPORTED;
}

static int check_overlaps(const struct relating *re, const struct sandbox_row *row)
{
	for (size_t i = 0; i < count(re); i++) {
		const struct sandbox_row *other = at(re, i);
		bool inside = lies_in(row, other) && !descends_from(re, row, other);
		bool around = i < re->op->boxes.n && lies_in(other, row);

		if (!inside && !around)
			continue;
		(void)error_set(re->err, -ATOLL_E_UNSUPPORTED, "'%s' overlaps '%s' in plan '%s'",
		                row->root, other->root, re->op->plan.name);
		error_hint(re->err, "%s",
		           around ? "add the outer one first" : "let it be the outer one's child");
		return -ATOLL_E_UNSUPPORTED;
	}
	return 0;
}

/* ---- areas ---- */

static int choose_area(const struct relating *re, size_t i)
{
	struct addition *add = &re->adds->v[i];
	struct sandbox_row *row = &re->adds->rows.v[i];
	const struct area_request request = { .root = row->root,
		                              .root_fd = add->root_fd,
		                              .sandbox_id = row->id,
		                              .work_in_store = add->resource->work_in_store,
		                              .newcomers = &re->adds->rows };
	int r = area_choose(re->op->a, &request, &add->area, re->err);

	if (r < 0)
		return r;
	row->area = xstrdup(add->area.path);
	row->work = xstrdup(add->area.work);
	return 0;
}

static void say_whose_child(const struct relating *re, size_t i, struct atoll_result *res)
{
	const struct sandbox_row *row = &re->adds->rows.v[i];
	const struct sandbox_row *parent = parent_of(re, row);
	cleanup_free char *text = NULL;

	if (!parent || re->adds->v[i].resource->parent)
		return;
	text = xasprintf("lies in '%s', whose commit leaves it alone", parent->root);
	result_note(res, ATOLL_NOTE_INFO, row->id, "", text);
}

/* As they were identified: an earlier attempt may have related them to another plan. */
static void start_over(struct additions *adds)
{
	for (size_t i = 0; i < adds->rows.n; i++) {
		struct sandbox_row *row = &adds->rows.v[i];

		area_done(&adds->v[i].area);
		cleanup_freep(&adds->v[i].outer);
		cleanup_freep(&row->area);
		cleanup_freep(&row->work);
		row->id[0] = '\0';
		row->parent[0] = '\0';
	}
}

/* What a session's client pushes and takes back is committed without a review: into its mirror, the one resource that
 * the plan began with. */
static int check_session(const struct relating *re)
{
	const struct plan_row *plan = &re->op->plan;
	int r = count(re) > 1 && !sabotage("mirror-only") ? store_has_session(re->op->a, plan->id)
	                                                  : 0;

	if (r <= 0)
		return r < 0 ? error_sys(re->err, r, "look for the record of a session in",
		                         re->op->a->home)
		             : 0;
	(void)error_set(re->err, -ATOLL_E_DENIED,
	                "plan '%s' is a remote client's session, and takes no further resources",
	                plan->name);
	error_hint(re->err, "start another plan for it");
	return -ATOLL_E_DENIED;
}

int additions_relate(struct additions *adds, const struct plan_op *op, struct atoll_result *res,
                     struct error *err)
{
	struct relating re = { .adds = adds, .op = op, .err = err };
	int r = 0;

	if (op->boxes.n + adds->rows.n > LIMIT_SANDBOXES)
		return error_set(err, -ATOLL_E_TOO_BIG, "a plan has at most %d resources",
		                 LIMIT_SANDBOXES);
	r = check_session(&re);
	if (r < 0)
		return r;
	start_over(adds);
	for (size_t i = op->boxes.n; r == 0 && i < count(&re); i++)
		r = check_once(&re, i);
	if (r == 0)
		r = set_parents(&re);
	if (r == 0)
		r = sort(&re);
	if (r < 0)
		return r;
	number_them(&re);
	for (size_t i = 0; r == 0 && i < adds->rows.n; i++)
		r = check_overlaps(&re, &adds->rows.v[i]);
	for (size_t i = op->boxes.n; r == 0 && i < count(&re); i++)
		for (size_t k = 0; r == 0 && k < i; k++)
			r = check_mounts(&re, i, k);
	for (size_t i = 0; r == 0 && i < adds->rows.n; i++)
		r = choose_area(&re, i);
	for (size_t i = 0; r == 0 && i < adds->rows.n; i++)
		say_whose_child(&re, i, res);
	return r;
}
