/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adding resources to a plan that is there: checked, recorded, made, recorded again. Whatever is on
 * disk is on record before it is there, so a process that dies anywhere here leaves a list of what
 * to remove.
 */
#include "plan/plan.h"

#include "plan/addition.h"
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
	if (r == 0)
		r = store_write(op->a, REGISTRY_DURABLE, write_created, &args, err);
	if (r == -ATOLL_E_NEEDS_RECOVERY) /* nobody knows what is on disk: recovery reads it */
		return r;
	for (size_t i = adds->rows.n; r < 0 && i > 0; i--)
		take_back(op, &adds->rows.v[i - 1]);
	if (r < 0)
		resource_locks_forget(op->resources, op->a);
	else
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
