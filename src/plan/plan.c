/* SPDX-License-Identifier: Apache-2.0 */
/* How a plan is found again, and its recovery on demand. */
#include "plan/plan.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "plan/plan-op.h"
#include "txn/recover.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/mem.h"

static struct atoll_plan *handle_of(struct atoll *a, const struct plan_row *row)
{
	struct atoll_plan *p = xcalloc(1, sizeof(*p));

	p->a = a;
	(void)snprintf(p->id, sizeof(p->id), "%s", row->id);
	(void)snprintf(p->name, sizeof(p->name), "%s", row->name);
	return p;
}

int plan_open(struct atoll *a, const char *ref, struct atoll_plan **ret, struct error *err)
{
	struct plan_row row;
	int r = registry_plan_resolve(a->reg, ref, &row, err);

	if (r < 0)
		return r;
	*ret = handle_of(a, &row);
	return 0;
}

int plan_open_whole(struct atoll *a, const char *ref, struct atoll_plan **ret, struct error *err)
{
	struct plan_row row;
	int r = registry_plan_whole(a->reg, ref, &row, err);

	if (r > 0)
		*ret = handle_of(a, &row);
	return r;
}

int plan_open_run(struct atoll *a, const char *dir, struct atoll_plan **ret, struct error *err)
{
	struct plan_row row;
	int r = registry_plan_last_run(a->reg, dir, &row, err);

	if (r < 0)
		return r;
	if (r == 0) {
		(void)error_set(err, -ATOLL_E_NOT_FOUND, "no run in '%s' left a plan", dir);
		error_hint(err, "name the plan; atoll list shows them");
		return -ATOLL_E_NOT_FOUND;
	}
	*ret = handle_of(a, &row);
	return 0;
}

/* ---- recover ---- */

struct accepting {
	struct sandboxes *boxes;
	size_t n; /* workspaces that were in doubt */
};

static int write_accepted(struct registry *reg, void *ctx, struct error *err)
{
	struct accepting *a = ctx;
	int r = 0;

	for (size_t i = 0; r == 0 && i < a->boxes->n; i++) {
		struct sandbox_row *row = &a->boxes->v[i];

		if (row->state != ATOLL_SANDBOX_ERRORED || sandbox_is_remains(row) ||
		    strcmp(row->boot_id, clock_boot_id()) == 0)
			continue;
		/* It holds something: from here on it is one that was used. */
		if (row->exec_n == 0)
			durable_count(row);
		else
			sandbox_written(row);
		r = registry_sandbox_update(reg, row, err);
		if (r == 0)
			r = registry_sandbox_set_state(reg, row->id, ATOLL_SANDBOX_ACTIVE, "", err);
		a->n++;
	}
	return r;
}

static int accept_all(struct plan_op *op, const struct plan_row *row, struct atoll_result *res,
                      struct error *err)
{
	struct accepting a = { .boxes = &op->boxes };
	cleanup_free char *text = NULL;
	int r = store_write(op->a, REGISTRY_DURABLE, write_accepted, &a, err);

	if (r < 0 || a.n == 0)
		return r;
	/* The next boot is not to ask again. */
	for (size_t i = 0; i < op->boxes.n; i++)
		if (op->boxes.v[i].state == ATOLL_SANDBOX_ERRORED &&
		    strcmp(op->boxes.v[i].boot_id, clock_boot_id()) == 0)
			durable_note_later(&op->boxes.v[i]);
	text = xasprintf("what a machine crash may have damaged in plan %s is taken as it is",
	                 row->name);
	result_note(res, ATOLL_NOTE_INFO, "", "", text);
	store_event(op->a, row->id, "recover", r, "workspaces taken as they are");
	return r;
}

/* Beginning an operation is what recovers; here it has nothing else to do. */
static int recover_one(struct atoll *a, const struct plan_row *row, unsigned flags, bool accept,
                       struct atoll_result *res, struct error *err)
{
	cleanup_plan_op struct plan_op op = PLAN_OP_INIT;
	const struct plan_op_options opt = { .verb = "recover",
		                             .flags = flags | OP_QUIET,
		                             .res = res };
	struct atoll_plan *p = handle_of(a, row);
	int r = plan_op_begin(&op, p, &opt, err);

	cleanup_freep(&p);
	return r < 0 || !accept ? r : accept_all(&op, row, res, err);
}

static int recover_named(struct atoll *a, const char *ref, bool accept, struct atoll_result *res,
                         struct error *err)
{
	cleanup_error struct error cause = ERROR_INIT;
	struct plan_row row;
	int r = registry_plan_resolve(a->reg, ref, &row, err);

	if (r < 0)
		return r;
	r = recover_one(a, &row, 0, accept, res, &cause);
	if (r == -ATOLL_E_NOT_FOUND && row.starting) /* a start cut off is taken back whole */
		return 0;
	if (r == -ATOLL_E_NEEDS_RECOVERY) {
		result_note(res, ATOLL_NOTE_WARNING, "", "", cause.msg);
		return 1;
	}
	if (r < 0)
		error_move(err, &cause);
	return r;
}

/* IN_PASSING: nobody asked for it. */
static int recover_all(struct atoll *a, bool accept, bool in_passing, struct atoll_result *res,
                       struct error *err)
{
	cleanup_free struct plan_row *rows = NULL;
	size_t n = 0;
	int left = 0;
	int r = accept ? plan_rows(a, &rows, &n, err) : plan_rows_doubtful(a, &rows, &n, err);

	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++) {
		cleanup_error struct error cause = ERROR_INIT;

		/* Whoever passes by does not try again at once; who asks may just have mended it, or
		 * killed a command whose children are still dying. */
		r = in_passing && rows[i].retry_at_ms > clock_real_ms()
		            ? -ATOLL_E_NEEDS_RECOVERY
		            : recover_one(a, &rows[i], in_passing ? OP_TRY : OP_BRIEFLY, accept,
		                          res, &cause);
		/* A plan that is being worked on is no business of ours. */
		if (r == 0 || r == -ATOLL_E_BUSY || r == -ATOLL_E_NOT_FOUND)
			continue;
		left++;
		if (cause.msg)
			result_note(res, ATOLL_NOTE_WARNING, "", "", cause.msg);
	}
	return left;
}

int plan_recover(struct atoll *a, const char *ref, bool accept, struct atoll_result *res,
                 struct error *err)
{
	struct plan_row row;
	bool named = ref && registry_plan_resolve(a->reg, ref, &row, NULL) >= 0;
	int r = ref ? recover_named(a, ref, accept, res, err)
	            : recover_all(a, accept, res == NULL, res, err);

	/* A process that was killed before it could release undo data that was not wanted left that, too. */
	cleanup_retention(a, named ? row.id : NULL);
	return r;
}

void plan_settle(struct atoll *a, struct atoll_result *res)
{
	(void)recover_all(a, false, true, res, NULL);
}

/* ---- giving a plan up to nobody ---- */

static int write_kept(struct registry *reg, void *ctx, struct error *err)
{
	struct plan_op *op = ctx;

	op->plan.owned = false;
	return registry_plan_update(reg, &op->plan, err);
}

/* On record first: a purge between the two steps finds a plan that needs no owner. */
int plan_keep(struct atoll_plan *p, struct error *err)
{
	cleanup_plan_op struct plan_op op = PLAN_OP_INIT;
	const struct plan_op_options opt = { .verb = "keep", .flags = OP_QUIET };
	int r = plan_op_begin(&op, p, &opt, err);

	if (r < 0)
		return r;
	r = store_write(op.a, REGISTRY_DURABLE, write_kept, &op, err);
	if (r == 0)
		owner_drop(op.a, op.plan.id);
	return plan_op_end(&op, r, err);
}
