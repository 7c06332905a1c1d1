/* SPDX-License-Identifier: Apache-2.0 */
/* A plan's beginning, how it is found again, and its recovery on demand. */
#include "plan/plan.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "plan/plan-op.h"
#include "txn/recover.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/crashpoint.h"
#include "util/list.h"
#include "util/mem.h"
#include "util/random.h"

#define NAME_ATTEMPTS 64

static struct atoll_plan *handle_of(struct atoll *a, const struct plan_row *row)
{
	struct atoll_plan *p = xcalloc(1, sizeof(*p));

	p->a = a;
	(void)snprintf(p->id, sizeof(p->id), "%s", row->id);
	(void)snprintf(p->name, sizeof(p->name), "%s", row->name);
	return p;
}

/* ---- start ---- */

struct start_args {
	struct plan_row row; /* to be inserted, or the one found */
	bool or_open;
	bool found;
};

static int find_by_name(void *ctx, const struct plan_row *row)
{
	struct start_args *s = ctx;

	if (strcmp(row->name, s->row.name) != 0)
		return 0;
	s->row = *row;
	s->found = true;
	return 0;
}

/* Under the store lock: looking and inserting are one step. */
static int write_plan(struct registry *reg, void *ctx, struct error *err)
{
	struct start_args *s = ctx;
	int r = registry_plan_list(reg, find_by_name, s, err);

	if (r < 0)
		return r;
	if (s->found && s->or_open)
		return 0;
	if (s->found) {
		(void)error_set(err, -ATOLL_E_EXISTS, "there already is a plan '%s'", s->row.name);
		error_hint(err, "choose another name, or open it with --or-open");
		return -ATOLL_E_EXISTS;
	}
	r = registry_plan_insert(reg, &s->row, err);
	if (r < 0)
		return r;
	return registry_event_add(reg, s->row.id, "start", 0, "", err);
}

static int start_named(struct atoll *a, const char *name, unsigned flags, struct plan_row *ret,
                       struct error *err)
{
	struct start_args s = { .or_open = flags & ATOLL_START_OR_OPEN };
	char id[PLAN_ID_LEN + 1];
	int r = 0;

	random_hex(id, PLAN_ID_LEN);
	memcpy(s.row.id, id, sizeof(s.row.id));
	(void)snprintf(s.row.name, sizeof(s.row.name), "%s", name);
	s.row.state = ATOLL_PLAN_OPEN;
	s.row.created_ms = clock_real_ms();
	s.row.owned = flags & ATOLL_START_OWNED;

	/* The owner's lock first: a recorded owned plan without one counts as abandoned. */
	if (s.row.owned)
		r = owner_take(a, id, name, err);
	if (r < 0)
		return r;
	crashpoint("plan.start.before-record");
	/* Nothing is on disk yet that only this record would name: what follows makes it durable. */
	r = store_write(a, REGISTRY_NORMAL, write_plan, &s, err);
	crashpoint("plan.start.after-record");
	if ((r < 0 || s.found) && (flags & ATOLL_START_OWNED)) {
		owner_drop(a, id);
		plan_lock_forget(a, id);
	}
	if (r == 0)
		*ret = s.row;
	return r;
}

static int start_made_up(struct atoll *a, unsigned flags, struct plan_row *ret, struct error *err)
{
	char name[LIMIT_NAME + 1];
	int r = -ATOLL_E_EXISTS;

	for (int i = 0; i < NAME_ATTEMPTS && r == -ATOLL_E_EXISTS; i++) {
		if (err)
			error_done(err);
		plan_name_make_up(name);
		r = start_named(a, name, flags & ~ATOLL_START_OR_OPEN, ret, err);
	}
	return r;
}

int plan_start(struct atoll *a, const char *name, unsigned flags, struct atoll_plan **ret,
               struct error *err)
{
	struct plan_row row;
	int r;

	if (name && !plan_name_valid(name)) {
		(void)error_set(err, -ATOLL_E_INVALID, "'%.*s' is no name for a plan", LIMIT_NAME,
		                name);
		error_hint(err, "use 1 to %d of A-Z a-z 0-9 . _ -, not beginning with . or -",
		           LIMIT_NAME);
		return -ATOLL_E_INVALID;
	}
	r = name ? start_named(a, name, flags, &row, err) : start_made_up(a, flags, &row, err);
	if (r < 0)
		return r;
	*ret = handle_of(a, &row);
	return 0;
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

/* ---- recover ---- */

static int write_accepted(struct registry *reg, void *ctx, struct error *err)
{
	struct sandboxes *boxes = ctx;
	int r = 0;

	for (size_t i = 0; r == 0 && i < boxes->n; i++) {
		struct sandbox_row *row = &boxes->v[i];

		if (row->state != ATOLL_SANDBOX_ERRORED || sandbox_is_remains(row) ||
		    strcmp(row->boot_id, clock_boot_id()) == 0)
			continue;
		cleanup_freep(&row->boot_id);
		row->boot_id = xstrdup(clock_boot_id());
		r = registry_sandbox_update(reg, row, err);
		if (r == 0)
			r = registry_sandbox_set_state(reg, row->id, ATOLL_SANDBOX_ACTIVE, "", err);
	}
	return r;
}

/* Beginning an operation is what recovers; here it has nothing else to do. */
static int recover_one(struct atoll *a, const struct plan_row *row, unsigned flags, bool accept,
                       struct error *err)
{
	cleanup_plan_op struct plan_op op = PLAN_OP_INIT;
	const struct plan_op_options opt = { .verb = "recover", .flags = flags | OP_QUIET };
	struct atoll_plan *p = handle_of(a, row);
	int r = plan_op_begin(&op, p, &opt, err);

	cleanup_freep(&p);
	if (r < 0 || !accept)
		return r;
	r = store_write(a, REGISTRY_DURABLE, write_accepted, &op.boxes, err);
	store_event(a, row->id, "recover", r, "workspaces taken as they are");
	return r;
}

static int recover_named(struct atoll *a, const char *ref, bool accept, struct atoll_result *res,
                         struct error *err)
{
	cleanup_error struct error cause = ERROR_INIT;
	struct plan_row row;
	int r = registry_plan_resolve(a->reg, ref, &row, err);

	if (r < 0)
		return r;
	r = recover_one(a, &row, 0, accept, &cause);
	if (r == -ATOLL_E_NEEDS_RECOVERY) {
		result_note(res, ATOLL_NOTE_WARNING, "", "", cause.msg);
		return 1;
	}
	if (r < 0)
		error_move(err, &cause);
	return r;
}

static int note_plan(void *ctx, const struct sandbox_row *row)
{
	strlist_add(ctx, row->plan);
	return 0;
}

static int recover_all(struct atoll *a, bool accept, struct atoll_result *res, struct error *err)
{
	cleanup_free struct plan_row *rows = NULL;
	cleanup_strlist struct strlist pending = STRLIST_INIT;
	size_t n = 0;
	int left = 0;
	int r = plan_rows(a, &rows, &n, err);

	/* One question instead of one for each plan: every command that changes something asks. */
	if (r == 0)
		r = registry_sandbox_list_in(a->reg, ATOLL_SANDBOX_PENDING, note_plan, &pending,
		                             err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++) {
		cleanup_error struct error cause = ERROR_INIT;

		if (!accept && !recover_unsettled(&rows[i]) && !strlist_has(&pending, rows[i].id))
			continue;
		r = rows[i].retry_at_ms > clock_real_ms()
		            ? -ATOLL_E_NEEDS_RECOVERY
		            : recover_one(a, &rows[i], OP_TRY, accept, &cause);
		/* A plan that is being worked on is no business of ours. */
		if (r == 0 || r == -ATOLL_E_BUSY || r == -ATOLL_E_NOT_FOUND)
			continue;
		left++;
		if (cause.msg)
			result_note(res, ATOLL_NOTE_WARNING, "", "", cause.msg);
	}
	cleanup_retention(a);
	return left;
}

int plan_recover(struct atoll *a, const char *ref, bool accept, struct atoll_result *res,
                 struct error *err)
{
	return ref ? recover_named(a, ref, accept, res, err) : recover_all(a, accept, res, err);
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
