/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The beginning of a plan: with all its resources, or not at all.
 *
 *   lock       the plan's own lock, under an id nobody knows yet, and its resources' shared
 *   record     one transaction: the plan, marked as being made ("starting"), its sandboxes PENDING
 *              with the list of what will be made. From here on the name is taken. Synchronous,
 *              unless all of it will lie in the store, under an id that nobody else knows
 *   make       areas and workspaces
 *   complete   one synchronous transaction: sandboxes CREATED, the mark gone
 *
 * Whoever comes upon a plan with the mark waits for its lock. Once he has it the mark is gone, or
 * its maker is dead: then what the record lists is removed, and the plan with it (plan_unmake()).
 * So find-or-create needs no more than that: whoever finds the name taken waits, and looks again.
 *
 * Crash: before record nothing is there but a lock file; before complete a plan that the next
 * process removes; after it, the whole plan. A power cut before complete may also leave an area in the
 * store that no record knows, which cleanup removes.
 */
#include "plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/addition.h"
#include "plan/usage.h"
#include "registry/request.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/crashpoint.h"
#include "util/mem.h"
#include "util/random.h"

#define NAME_ATTEMPTS 64

enum { MADE = 0, OPENED = 1, AGAIN = 2 };

struct starting {
	struct atoll *a;
	const struct atoll_start *start;
	const char *id; /* chosen before, and on record; or NULL */
	struct additions adds;
	struct atoll_plan p; /* the one made or found */
	struct atoll_result *res;
};

/* ---- a new one ---- */

struct start_args {
	struct starting *s;
	struct plan_row *row;
	bool taken; /* somebody has the name since we looked */
};

static int write_started(struct registry *reg, const struct start_args *args, struct error *err)
{
	int r = registry_event_add(reg, args->row->id, "start", 0, args->row->name, err);

	return r == 0 && args->s->id ? registry_request_plan_made(reg, args->s->id, err) : r;
}

static int write_record(struct registry *reg, void *ctx, struct error *err)
{
	struct start_args *args = ctx;
	const struct atoll_start *start = args->s->start;
	int r = registry_plan_insert(reg, args->row, err);

	args->taken = r == -ATOLL_E_EXISTS;
	if (r == 0 && start->run_dir)
		r = registry_plan_ran_in(reg, args->row->id, start->run_dir, err);
	if (r == 0)
		r = additions_record(&args->s->adds, reg, err);
	if (r == 0 && !args->row->starting)
		r = write_started(reg, args, err);
	return r;
}

static int write_complete(struct registry *reg, void *ctx, struct error *err)
{
	struct start_args *args = ctx;
	int r = additions_complete(&args->s->adds, reg, err);

	if (r == 0)
		r = usage_write(reg, &args->s->adds.rows, err);
	args->row->starting = false;
	if (r == 0)
		r = registry_plan_update(reg, args->row, err);
	if (r == 0)
		r = write_started(reg, args, err);
	args->row->starting = r < 0;
	return r;
}

static int write_gone(struct registry *reg, void *ctx, struct error *err)
{
	return registry_plan_delete(reg, ctx, err);
}

/* The caller holds the plan's lock. */
static int forget(struct plan_op *op, struct error *err)
{
	int r = store_write(op->a, REGISTRY_DURABLE, write_gone, op->plan.id, err);

	crashpoint("plan.unmake.after-delete");
	if (r < 0)
		return r;
	owner_drop(op->a, op->plan.id);
	plan_lock_forget(op->a, op->plan.id);
	return 0;
}

/* What cannot be removed now stays on record as it is: the next process tries again. */
static void take_back(struct starting *s, struct plan_op *op)
{
	cleanup_error struct error cause = ERROR_INIT;
	cleanup_free char *text = NULL;
	int r = 0;

	for (size_t i = s->adds.rows.n; r == 0 && i > 0; i--)
		r = sandbox_erase(op->a, op->plan.name, &s->adds.rows.v[i - 1], &cause);
	if (r == 0)
		r = forget(op, &cause);
	if (r == 0) {
		resource_locks_forget(op->resources, op->a);
		return;
	}
	text = xasprintf("what was made so far could not be removed: %s; atoll recover tries "
	                 "again",
	                 cause.msg ? cause.msg : "unknown cause");
	result_note(s->res, ATOLL_NOTE_WARNING, "", "", text);
}

static int make(struct starting *s, struct plan_op *op, struct error *err)
{
	struct start_args args = { .s = s, .row = &op->plan };
	int r = additions_relate(&s->adds, op, s->res, err);
	bool loose;

	if (r < 0)
		return r;
	/* Whoever asks again under an id that he was given must find what there is of it. */
	loose = !s->id && op->plan.starting && additions_in_store(&s->adds, s->a);
	crashpoint("plan.start.before-record");
	r = store_write(s->a, loose ? REGISTRY_NORMAL : REGISTRY_DURABLE, write_record, &args, err);
	crashpoint("plan.start.after-record");
	if (args.taken) {
		error_done(err);
		return AGAIN;
	}
	if (r < 0 || !op->plan.starting)
		return r;
	r = additions_make(&s->adds, op, s->res, err);
	crashpoint("plan.start.after-make");
	if (r == 0)
		usage_measure(&s->adds.rows);
	if (r == 0)
		r = store_write(s->a, REGISTRY_DURABLE, write_complete, &args, err);
	crashpoint("plan.start.after-complete");
	if (r == 0)
		additions_report(&s->adds, s->res);
	else if (r != -ATOLL_E_NEEDS_RECOVERY) /* nobody knows what is on disk then */
		take_back(s, op);
	return r;
}

static int make_named(struct starting *s, const char *name, struct error *err)
{
	cleanup_plan_op struct plan_op op = PLAN_OP_INIT;
	const struct plan_op_options opt = { .verb = "start",
		                             .flags = OP_NEW | OP_QUIET,
		                             .newcomers = &s->adds.rows };
	bool owned = s->start->flags & ATOLL_START_OWNED;
	int r = 0;

	s->p = (struct atoll_plan){ .a = s->a };
	if (s->id)
		(void)snprintf(s->p.id, sizeof(s->p.id), "%s", s->id);
	else
		random_hex(s->p.id, PLAN_ID_LEN);
	(void)snprintf(s->p.name, sizeof(s->p.name), "%s", name);
	/* The owner's lock first: a recorded owned plan without one counts as abandoned. */
	if (owned)
		r = owner_take(s->a, s->p.id, name, err);
	if (r == 0)
		r = plan_op_begin(&op, &s->p, &opt, err);
	if (r == 0) {
		op.plan.state = ATOLL_PLAN_OPEN;
		op.plan.created_ms = clock_real_ms();
		op.plan.owned = owned;
		op.plan.starting = s->adds.rows.n > 0;
		r = make(s, &op, err);
	}
	if (r != 0 && r != -ATOLL_E_NEEDS_RECOVERY) {
		struct plan_row row;

		owner_drop(s->a, s->p.id);
		if (registry_plan_get(s->a->reg, s->p.id, &row, NULL) == -ATOLL_E_NOT_FOUND)
			plan_lock_forget(s->a, s->p.id);
	}
	return r;
}

static int make_with_any_name(struct starting *s, struct error *err)
{
	char name[LIMIT_NAME + 1];
	struct plan_row row;
	int r = 1;

	for (int i = 0; i < NAME_ATTEMPTS && r > 0; i++) {
		plan_name_make_up(name);
		r = registry_plan_named(s->a->reg, name, &row, err);
	}
	if (r > 0)
		return error_set(err, -ATOLL_E_EXISTS, "no name could be made up; give one");
	return r < 0 ? r : make_named(s, name, err);
}

/* ---- one that is there ---- */

static void set_handle(struct starting *s, const struct plan_row *row)
{
	s->p = (struct atoll_plan){ .a = s->a };
	memcpy(s->p.id, row->id, sizeof(s->p.id));
	memcpy(s->p.name, row->name, sizeof(s->p.name));
}

/* Is there anything to wait for, or to add? */
static int lacks_something(struct starting *s, const struct plan_row *row, struct error *err)
{
	cleanup_sandboxes struct sandboxes boxes = SANDBOXES_INIT;
	int r;

	if (row->starting)
		return 1;
	if (s->start->flags & ATOLL_START_AS_IS)
		return 0;
	r = sandboxes_load(s->a->reg, row->id, &boxes, err);
	for (size_t i = 0; r == 0 && i < s->adds.rows.n; i++)
		r = !additions_present(&boxes, &s->adds.rows.v[i]);
	return r;
}

static int open_one(struct starting *s, const struct plan_row *row, struct error *err)
{
	cleanup_plan_op struct plan_op op = PLAN_OP_INIT;
	cleanup_error struct error cause = ERROR_INIT;
	bool as_is = s->start->flags & ATOLL_START_AS_IS;
	struct plan_op_options opt = { .verb = "start", .newcomers = &s->adds.rows };
	int r = lacks_something(s, row, err);

	set_handle(s, row);
	if (r <= 0)
		return r < 0 ? r : OPENED;
	if (as_is)
		opt.newcomers = NULL;
	r = plan_op_begin(&op, &s->p, &opt, &cause);
	if (r == -ATOLL_E_NOT_FOUND) /* its maker died, or it was stopped */
		return AGAIN;
	if (r < 0) {
		error_move(err, &cause);
		return r;
	}
	additions_skip_present(&s->adds, &op.boxes);
	if (!as_is && s->adds.rows.n > 0)
		r = plan_op_add(&op, &s->adds, s->res, err);
	else
		op.flags |= OP_QUIET;
	(void)plan_op_end(&op, r, err);
	return r < 0 ? r : OPENED;
}

/* One whose maker is dead is in nobody's way. */
static int refuse(struct starting *s, const struct plan_row *row, struct error *err)
{
	cleanup_plan_op struct plan_op op = PLAN_OP_INIT;
	const struct plan_op_options opt = { .verb = "start", .flags = OP_TRY | OP_QUIET };

	set_handle(s, row);
	if (row->starting && plan_op_begin(&op, &s->p, &opt, NULL) == -ATOLL_E_NOT_FOUND)
		return AGAIN;
	(void)error_set(err, -ATOLL_E_EXISTS, "there already is a plan '%s'%s", row->name,
	                row->starting ? ", which is just being made" : "");
	error_hint(err, "choose another name, or open it with --or-open");
	return -ATOLL_E_EXISTS;
}

/* The plan that has the id already, whole or not: then somebody began this very request before. */
static int find_begun(struct starting *s, struct error *err)
{
	cleanup_error struct error cause = ERROR_INIT;
	struct plan_row row;
	int r = registry_plan_get(s->a->reg, s->id, &row, &cause);

	if (r == 0)
		return open_one(s, &row, err);
	if (r == -ATOLL_E_NOT_FOUND)
		return MADE;
	error_move(err, &cause);
	return r;
}

static int find_or_make(struct starting *s, struct error *err)
{
	struct plan_row row;
	int r = s->id ? find_begun(s, err) : MADE;

	if (r != MADE)
		return r;
	if (!s->start->name)
		return make_with_any_name(s, err);
	r = registry_plan_named(s->a->reg, s->start->name, &row, err);
	if (r > 0)
		return s->start->flags & ATOLL_START_OR_OPEN ? open_one(s, &row, err)
		                                             : refuse(s, &row, err);
	return r < 0 ? r : make_named(s, s->start->name, err);
}

/* ---- the whole ---- */

static int check_name(const char *name, struct error *err)
{
	if (!name || plan_name_valid(name))
		return 0;
	(void)error_set(err, -ATOLL_E_INVALID, "'%.*s' is no name for a plan", LIMIT_NAME, name);
	error_hint(err,
	           "use 1 to %d of A-Z a-z 0-9 . _ -, not beginning with . or -, and not the form "
	           "of an id (%d digits of 0-9 a-f)",
	           LIMIT_NAME, PLAN_ID_LEN);
	return -ATOLL_E_INVALID;
}

int plan_start_once(struct atoll *a, const struct atoll_start *start, const char *id,
                    struct atoll_plan **ret, struct atoll_result *res, struct error *err)
{
	struct starting s = { .a = a, .start = start, .id = id, .res = res };
	int r = check_name(start->name, err);

	if (r == 0)
		r = additions_identify(&s.adds, a, start->resources, start->n_resources, err);
	if (r == 0) {
		cleanup_error struct error cause = ERROR_INIT;

		/* AGAIN: the name was taken, or given back, between two looks. */
		do {
			error_done(&cause);
			result_reset(res);
			r = find_or_make(&s, &cause);
		} while (r == AGAIN);
		if (r < 0)
			error_move(err, &cause);
	}
	additions_done(&s.adds);
	if (r < 0)
		return r;
	*ret = xcalloc(1, sizeof(**ret));
	**ret = s.p;
	return r;
}

int plan_start(struct atoll *a, const struct atoll_start *start, struct atoll_plan **ret,
               struct atoll_result *res, struct error *err)
{
	return plan_start_once(a, start, NULL, ret, res, err);
}

/* ---- what a dead maker left ---- */

int plan_unmake(struct plan_op *op, struct error *err)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < op->boxes.n; i++) {
		const struct sandbox_row *row = &op->boxes.v[i];

		r = area_remove(row->area, err);
		if (r == 0 && strcmp(row->work, row->area) != 0)
			r = area_remove(row->work, err);
		crashpoint("plan.unmake.after-remove");
	}
	return r < 0 ? r : forget(op, err);
}
