/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adding resources to a plan that is there: checked, recorded, made, recorded again. Whatever is on
 * disk is on record before it is there, so a process that dies anywhere here leaves a list of what
 * to remove.
 */
#include "plan/plan.h"

#include <fcntl.h>
#include <stdlib.h>

#include "plan/addition.h"
#include "plan/private-files.h"
#include "util/cleanup.h"
#include "util/crashpoint.h"

struct record_args {
	struct plan_op *op;
	struct additions *adds;
	const struct sandbox_row *row; /* the one, when it is taken back */
	const char *why;
};

static int write_pending(struct registry *reg, void *ctx, struct error *err)
{
	struct record_args *args = ctx;
	int r = plan_op_set_state(args->op, ATOLL_PLAN_OPEN, err);

	return r < 0 ? r : additions_record(args->adds, reg, err);
}

static int write_created(struct registry *reg, void *ctx, struct error *err)
{
	const struct record_args *args = ctx;

	return additions_complete(args->adds, reg, err);
}

static int write_removed(struct registry *reg, void *ctx, struct error *err)
{
	const struct record_args *args = ctx;

	return sandbox_forget(reg, args->row, err);
}

static int write_errored(struct registry *reg, void *ctx, struct error *err)
{
	const struct record_args *args = ctx;

	return registry_sandbox_set_state(reg, args->row->id, ATOLL_SANDBOX_ERRORED, args->why,
	                                  err);
}

/* Takes back what was recorded and made. What cannot be removed stays on record. */
static void take_back(struct plan_op *op, const struct sandbox_row *row)
{
	cleanup_error struct error cause = ERROR_INIT;
	struct record_args args = { .op = op, .row = row };

	if (sandbox_erase(op->a, op->plan.name, row, &cause) == 0) {
		(void)store_write(op->a, REGISTRY_DURABLE, write_removed, &args, NULL);
		return;
	}
	args.why = cause.msg ? cause.msg : "could not be removed";
	(void)store_write(op->a, REGISTRY_DURABLE, write_errored, &args, NULL);
}

static int check_plan(const struct plan_op *op, struct error *err)
{
	for (size_t i = 0; i < op->boxes.n; i++)
		if (op->boxes.v[i].state == ATOLL_SANDBOX_CLEANED_UP)
			return sandbox_allows(&op->boxes.v[i], SANDBOX_VERB_EXEC, op->plan.name,
			                      err);
	return 0;
}

/* ---- what commands wrote there while it was no resource ---- */

struct adoption {
	struct plan_op *op;
	struct sandbox_row *row;
	int parent_fd;
	char *name;
};

static void adoption_done(struct adoption *a)
{
	close_fd(&a->parent_fd);
	free(a->name);
}
#define cleanup_adoption __attribute__((__cleanup__(adoption_done)))

/* 1 or 0. */
static int find_private(struct plan_op *op, struct sandbox_row *row, struct adoption *ret,
                        struct error *err)
{
	int r;

	*ret = (struct adoption){ .op = op, .row = row, .parent_fd = FD_NONE };
	if (op->boxes.n == 0)
		return 0;
	r = private_files_find(op->boxes.v[0].area, row->root, &ret->parent_fd, &ret->name);
	return r < 0 ? error_sys(err, r, "look for private files of the plan in", row->root) : r;
}

static int check_private(struct plan_op *op, struct sandbox_row *row, struct error *err)
{
	cleanup_adoption struct adoption a = { .parent_fd = FD_NONE };
	cleanup_sandbox struct sandbox s = SANDBOX_INIT;
	cleanup_close int from_fd = FD_NONE;
	int r = find_private(op, row, &a, err);

	if (r <= 0)
		return r;
	from_fd = openat(a.parent_fd, a.name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	r = sandbox_open(&s, op->a, op->plan.name, row, err);
	if (r == 0)
		r = participant_may_adopt(s.part, from_fd, err);
	if (r == -ATOLL_E_UNSUPPORTED)
		error_hint(err, "commands of plan %s see it; remove it in the plan, and add again",
		           op->plan.name);
	return r;
}

static int write_active(struct registry *reg, void *ctx, struct error *err)
{
	const struct adoption *a = ctx;
	int r = registry_sandbox_update(reg, a->row, err);

	return r < 0 ? r
	             : registry_sandbox_set_state(reg, a->row->id, ATOLL_SANDBOX_ACTIVE, "", err);
}

/* Recorded first, as for a command: from then on there may be work in it. */
static int adopt_private(struct plan_op *op, struct sandbox_row *row, struct error *err)
{
	cleanup_adoption struct adoption a = { .parent_fd = FD_NONE };
	cleanup_sandbox struct sandbox s = SANDBOX_INIT;
	int r = find_private(op, row, &a, err);

	if (r <= 0)
		return r;
	r = sandbox_open(&s, op->a, op->plan.name, row, err);
	if (r < 0)
		return r;
	durable_count(row);
	r = store_write(op->a, REGISTRY_DURABLE, write_active, &a, err);
	if (r == 0)
		r = participant_adopt(s.part, a.parent_fd, a.name, err);
	if (r == 0)
		r = participant_observe(s.part, err);
	return r < 0 ? error_prefix(err, r, "'%s' was added", row->root) : 0;
}

int plan_op_add(struct plan_op *op, struct additions *adds, struct atoll_result *res,
                struct error *err)
{
	struct record_args args = { .op = op, .adds = adds };
	int r = check_plan(op, err);

	if (r == 0)
		r = additions_relate(adds, op, res, err);
	if (r == 0)
		r = store_write(op->a, REGISTRY_DURABLE, write_pending, &args, err);
	if (r < 0)
		return r;
	crashpoint("plan.add.after-record");
	r = additions_make(adds, op, res, err);
	for (size_t i = 0; r == 0 && i < adds->rows.n; i++)
		r = check_private(op, &adds->rows.v[i], err);
	if (r == 0)
		r = store_write(op->a, REGISTRY_DURABLE, write_created, &args, err);
	if (r == -ATOLL_E_NEEDS_RECOVERY) /* nobody knows what is on disk: recovery reads it */
		return r;
	for (size_t i = adds->rows.n; r < 0 && i > 0; i--)
		take_back(op, &adds->rows.v[i - 1]);
	if (r < 0) {
		resource_locks_forget(op->resources, op->a);
		return r;
	}
	for (size_t i = 0; r == 0 && i < adds->rows.n; i++)
		r = adopt_private(op, &adds->rows.v[i], err);
	additions_report(adds, res);
	return r;
}

int plan_add(struct atoll_plan *p, const struct atoll_resource *resource, struct atoll_result *res,
             struct error *err)
{
	cleanup_additions struct additions adds = ADDITIONS_INIT;
	cleanup_plan_op struct plan_op op = PLAN_OP_INIT;
	const struct plan_op_options opt = { .verb = "add", .newcomers = &adds.rows };
	int r = additions_identify(&adds, p->a, resource, 1, err);

	if (r == 0)
		r = plan_op_begin(&op, p, &opt, err);
	if (r < 0)
		return r;
	r = plan_op_add(&op, &adds, res, err);
	return plan_op_end(&op, r, err);
}
