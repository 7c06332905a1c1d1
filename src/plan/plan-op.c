/* SPDX-License-Identifier: Apache-2.0 */
/* The frame of every call that changes a plan: who is waited for, in which order, and recovery. */
#include "plan/plan-op.h"

#include "exec/exec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "diff/change.h"
#include "plan/usage.h"
#include "registry/ask.h"
#include "txn/recover.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/crashpoint.h"
#include "util/mem.h"
#include "util/remedy.h"

#define BRIEFLY_MS 5000
#define KEPT_NAMED 10 /* of one resource, in the history */

/* ---- other plans on the same resources ---- */

static bool meets(const struct sandbox_row *x, const struct sandbox_row *y)
{
	return strcmp(x->root_id, y->root_id) == 0 || path_below(x->root, y->root) ||
	       path_below(y->root, x->root);
}

static bool meets_any(const struct sandbox_row *row, const struct sandboxes *boxes)
{
	for (size_t i = 0; i < boxes->n; i++)
		if (meets(row, &boxes->v[i]))
			return true;
	return false;
}

/* The first other plan with an unfinished batch on a resource of ours: 1 and *ret, or 0. */
static int find_unsettled(struct atoll *a, const char *plan_id, const struct sandboxes *newcomers,
                          struct plan_row *ret, struct error *err)
{
	cleanup_free struct plan_row *plans = NULL;
	cleanup_sandboxes struct sandboxes mine = SANDBOXES_INIT;
	cleanup_sandboxes struct sandboxes theirs = SANDBOXES_INIT;
	size_t n = 0;
	int r = plan_rows_doubtful(a, &plans, &n, err);

	for (size_t i = 0; r == 0 && i < n; i++) {
		if (!recover_unsettled(&plans[i]) || strcmp(plans[i].id, plan_id) == 0)
			continue;
		r = sandboxes_load(a->reg, plan_id, &mine, err);
		if (r == 0)
			r = sandboxes_load(a->reg, plans[i].id, &theirs, err);
		for (size_t j = 0; r == 0 && j < theirs.n; j++) {
			if (meets_any(&theirs.v[j], &mine) ||
			    (newcomers && meets_any(&theirs.v[j], newcomers))) {
				*ret = plans[i];
				return 1;
			}
		}
	}
	return r;
}

/* ---- recovery ---- */

struct boot {
	struct sandboxes *boxes;
	enum durable_fate fates[LIMIT_SANDBOXES];
};

static int write_one_lost(struct registry *reg, const struct sandbox_row *row, struct error *err)
{
	char why[128];

	if (row->exec_n == 0)
		(void)snprintf(why, sizeof(why),
		               "the machine went down while its first command began");
	else
		(void)snprintf(why, sizeof(why),
		               "the machine went down before the work of command %llu was on disk",
		               (unsigned long long)row->exec_n);
	return registry_sandbox_set_state(reg, row->id, ATOLL_SANDBOX_ERRORED, why, err);
}

static int write_fates(struct registry *reg, void *ctx, struct error *err)
{
	const struct boot *b = ctx;
	int r = 0;

	for (size_t i = 0; r == 0 && i < b->boxes->n; i++) {
		struct sandbox_row *row = &b->boxes->v[i];

		if (b->fates[i] == DURABLE_LOST) {
			r = write_one_lost(reg, row, err);
		} else if (b->fates[i] == DURABLE_ANEW) {
			r = registry_sandbox_update(reg, row, err);
		}
	}
	return r;
}

struct dead {
	const struct sandbox_row *row;
	const char *why;
};

static int write_dead(struct registry *reg, void *ctx, struct error *err)
{
	const struct dead *d = ctx;

	return registry_sandbox_set_state(reg, d->row->id, ATOLL_SANDBOX_ERRORED, d->why, err);
}

/* A workspace that is a process or a connection may have ended. */
static bool may_be_dead(const struct sandbox_row *row)
{
	const struct atoll_strategy *s = NULL;

	return !row->stale &&
	       (row->state == ATOLL_SANDBOX_CREATED || row->state == ATOLL_SANDBOX_ACTIVE) &&
	       strategy_find(row->strategy, &s, NULL) == 0 && s->alive;
}

static int mark_dead(struct plan_op *op, struct error *err)
{
	bool any = false;
	int r = 0;

	for (size_t i = 0; i < op->boxes.n && r == 0; i++) {
		cleanup_sandbox struct sandbox s = SANDBOX_INIT;
		cleanup_error struct error cause = ERROR_INIT;
		struct dead d = { .row = &op->boxes.v[i] };

		if (!may_be_dead(d.row))
			continue;
		r = sandbox_open(&s, op->a, op->plan.name, d.row, err);
		if (r < 0 || participant_alive(s.part, &cause) >= 0)
			continue;
		d.why = cause.msg ? cause.msg : "the workspace is gone";
		r = store_write(op->a, REGISTRY_DURABLE, write_dead, &d, err);
		any = true;
	}
	return r < 0 || !any ? r : plan_op_reload(op, err);
}

/* By its own verb: a strategy does it at once, or with the next use (stale). */
static enum durable_fate make_anew(struct plan_op *op, struct sandbox_row *row)
{
	cleanup_sandbox struct sandbox s = SANDBOX_INIT;
	cleanup_error struct error e = ERROR_INIT;
	int r = sandbox_open(&s, op->a, op->plan.name, row, &e);

	if (r == 0)
		r = participant_reset(s.part, &e);
	if (r < 0)
		return DURABLE_LOST;
	row->stale = participant_stale(s.part);
	row->generation = participant_generation(s.part);
	sandbox_written(row);
	return DURABLE_ANEW;
}

/* Work that another boot's crash may have damaged is never used unasked. */
static int mark_lost(struct plan_op *op, struct error *err)
{
	struct boot b = { .boxes = &op->boxes };
	bool any = false;
	int r;

	for (size_t i = 0; i < op->boxes.n && i < LIMIT_SANDBOXES; i++) {
		b.fates[i] = durable_fate(op->a, op->plan.name, &op->boxes.v[i]);
		if (b.fates[i] == DURABLE_ANEW)
			b.fates[i] = make_anew(op, &op->boxes.v[i]);
		any |= b.fates[i] != DURABLE_KEPT;
	}
	if (!any)
		return 0;
	r = store_write(op->a, REGISTRY_DURABLE, write_fates, &b, err);
	return r < 0 ? r : plan_op_reload(op, err);
}

static int write_paths_gone(struct registry *reg, void *ctx, struct error *err)
{
	return sandbox_forget_paths(reg, ctx, err);
}

/* An area that was being made is gone. So are an empty directory around it, and the record. */
static void tidy_pending(struct plan_op *op, struct sandbox_row *row)
{
	if (area_remove(row->area, NULL) == 0 && area_remove(row->work, NULL) == 0)
		(void)store_write(op->a, REGISTRY_DURABLE, write_paths_gone, row, NULL);
}

/* What a recovery said, and of which plan. */
struct said {
	const struct plan_op *op;
	const struct atoll_result *res;
};

static char *place_of(const struct sandbox_row *row, const struct atoll_note *note)
{
	const char *root = row ? row->root : "";

	return xasprintf("%s%s%s", root, *root && *note->path ? "/" : "", note->path);
}

static int write_kept_of(struct registry *reg, const struct said *s, const struct sandbox_row *row,
                         struct error *err)
{
	cleanup_free char *more = NULL;
	size_t n = 0;

	for (size_t i = 0; i < atoll_result_notes(s->res); i++) {
		const struct atoll_note *note = atoll_result_note(s->res, i);
		cleanup_free char *path = NULL, *text = NULL;
		int r;

		if (note->kind != ATOLL_NOTE_KEPT || strcmp(note->sandbox, row->id) != 0 ||
		    n++ >= KEPT_NAMED)
			continue;
		path = place_of(row, note);
		text = xasprintf("%s: %s", path, note->text);
		r = registry_event_add(reg, s->op->plan.id, "recover", 0, text, err);
		if (r < 0)
			return r;
	}
	if (n <= KEPT_NAMED)
		return 0;
	more = xasprintf("%s: %zu more, kept in the same place", row->root, n - KEPT_NAMED);
	return registry_event_add(reg, s->op->plan.id, "recover", 0, more, err);
}

/* What was set aside stands in the history, for those who recover in passing. Of very much the first
 * few tell where all of it is. */
static int write_kept(struct registry *reg, void *ctx, struct error *err)
{
	const struct said *s = ctx;
	int r = 0;

	for (size_t i = 0; i < s->op->boxes.n && r >= 0; i++)
		r = write_kept_of(reg, s, &s->op->boxes.v[i], err);
	return r;
}

/* To who asked, all of it. */
static void pass_on(struct said *s)
{
	bool any_kept = false;

	for (size_t i = 0; i < atoll_result_notes(s->res); i++) {
		const struct atoll_note *note = atoll_result_note(s->res, i);
		const struct sandbox_row *row = NULL;
		cleanup_free char *path = NULL;

		for (size_t k = 0; k < s->op->boxes.n; k++)
			if (strcmp(s->op->boxes.v[k].id, note->sandbox) == 0)
				row = &s->op->boxes.v[k];
		path = place_of(row, note);
		result_note(s->op->res, note->kind, "", path, note->text);
		any_kept |= note->kind == ATOLL_NOTE_KEPT;
	}
	if (any_kept)
		(void)store_write(s->op->a, REGISTRY_NORMAL, write_kept, s, NULL);
}

/* What was begun in a directory is not finished in another that came into its place, such as the empty one
 * below a filesystem that is not mounted yet. One that is away is for the participant to say. */
static int check_root(const struct sandbox_row *row, struct error *err)
{
	cleanup_error struct error e = ERROR_INIT;

	if (sandbox_verify_root(row, &e) != -ATOLL_E_CONFLICT)
		return 0;
	return error_set(
		err, -ATOLL_E_CONFLICT,
		"'%s' is another than the one in which it was begun, and which must be put "
		"back",
		row->root);
}

static int recover_noted(struct plan_op *op, struct error *err)
{
	struct atoll_result *res = atoll_result_new();
	int r = recover_plan(op->a->reg, op->plan.id, op->epoch, check_root, res, err);

	if (res)
		pass_on(&(struct said){ op, res });
	atoll_result_free(res);
	return r;
}

static int recover_locked(struct plan_op *op, struct error *err)
{
	cleanup_resource_locks struct resource_locks *locks = NULL;
	int r = resource_locks_acquire(op->a, op->boxes.v, op->boxes.n, RESOURCE_EXCLUSIVE,
	                               op->what, op->deadline, &locks, err);

	if (r < 0)
		return r;
	r = recover_noted(op, err);
	if (r <= 0)
		return r;
	store_event(op->a, op->plan.id, "recover", 0,
	            "what an interrupted process left was settled");
	for (size_t i = 0; i < op->boxes.n; i++)
		if (op->boxes.v[i].state == ATOLL_SANDBOX_PENDING)
			tidy_pending(op, &op->boxes.v[i]);
	return 0;
}

/* Hands a failure on that may be none. */
static int cause_of(struct error *cause, struct error *err)
{
	int r = cause->code;

	if (r < 0)
		error_move(err, cause);
	return r;
}

/* We hold the lock of a plan that is still marked as being made: its maker is dead. */
static int take_back_start(struct plan_op *op, struct error *err)
{
	cleanup_error struct error cause = ERROR_INIT;
	int r = plan_unmake(op, &cause);

	if (r == 0) {
		store_event(op->a, op->plan.id, "recover", 0,
		            "a start that was interrupted was taken back");
		return error_set(err, -ATOLL_E_NOT_FOUND,
		                 "there is no plan '%s': its start was interrupted, and what it "
		                 "left is removed now",
		                 op->plan.name);
	}
	if (op->flags & OP_UNRECOVERED) {
		op->unrecovered = true;
		return 0;
	}
	(void)error_set(err, -ATOLL_E_NEEDS_RECOVERY,
	                "the start of plan '%s' was interrupted, and what it left cannot be "
	                "removed: %s",
	                op->plan.name, cause.msg ? cause.msg : "unknown cause");
	error_hint(err, "fix the problem above, then atoll recover %s", op->plan.name);
	return -ATOLL_E_NEEDS_RECOVERY;
}

static int op_recover(struct plan_op *op, struct error *err)
{
	cleanup_error struct error cause = ERROR_INIT;
	int r;

	if (op->plan.starting)
		return take_back_start(op, err);
	if (!recover_needed(op->a->reg, &op->plan, &cause))
		return cause_of(&cause, err);
	r = recover_locked(op, &cause);
	if (r < 0) {
		if (op->flags & OP_UNRECOVERED) {
			op->unrecovered = true;
			return plan_op_reload(op, err);
		}
		store_event(op->a, op->plan.id, "recover", r, cause.msg);
		return cause_of(&cause, err);
	}
	return plan_op_reload(op, err);
}

static int write_forgotten(struct registry *reg, void *ctx, struct error *err)
{
	return sandbox_forget(reg, ctx, err);
}

/* What a failed add could not remove then may go now; if not, it says so in the next try too. */
static int clear_remains(struct plan_op *op, struct error *err)
{
	bool cleared = false;

	for (size_t i = 0; i < op->boxes.n; i++) {
		struct sandbox_row *row = &op->boxes.v[i];

		if (sandbox_is_remains(row) &&
		    sandbox_erase(op->a, op->plan.name, row, NULL) == 0 &&
		    store_write(op->a, REGISTRY_DURABLE, write_forgotten, row, NULL) == 0)
			cleared = true;
	}
	return cleared ? plan_op_reload(op, err) : 0;
}

/* The last holder died: its command may be a moment behind it. */
static int bury_command(const struct plan_op *op, struct error *err)
{
	if (!op->lock.ticket.owner_died || op->boxes.n == 0)
		return 0;
	return exec_bury(op->boxes.v[0].area, err);
}

static int settle(struct atoll *a, const struct plan_row *row, const char *what, int64_t deadline,
                  struct error *err)
{
	cleanup_plan_op struct plan_op op = PLAN_OP_INIT;
	int r;

	op.a = a;
	op.verb = "recover";
	op.deadline = deadline;
	(void)snprintf(op.what, sizeof(op.what), "%s", what);
	r = plan_lock_acquire(&op.lock, a, row->id, row->name, what, deadline, err);
	if (r < 0)
		return r;
	op.plan = *row;
	r = plan_op_reload(&op, err);
	if (r == 0)
		r = bury_command(&op, err);
	if (r == -ATOLL_E_NOT_FOUND) { /* stopped meanwhile */
		if (err)
			error_done(err);
		return 0;
	}
	if (r == 0)
		r = op_recover(&op, err);
	return error_prefix(err, r, "plan '%s', which shares a resource", row->name);
}

int plan_settle_others(struct atoll *a, const char *plan_id, const struct sandboxes *newcomers,
                       const char *what, int64_t deadline, struct error *err)
{
	struct plan_row other;
	int r;

	while ((r = find_unsettled(a, plan_id, newcomers, &other, err)) > 0) {
		r = settle(a, &other, what, deadline, err);
		if (r < 0)
			return r;
	}
	return r;
}

/* ---- the frame ---- */

int plan_op_reload(struct plan_op *op, struct error *err)
{
	int r = registry_plan_get(op->a->reg, op->plan.id, &op->plan, err);

	if (r < 0)
		return r;
	/* Lock files are not synced: after a power cut one may grant smaller numbers again. */
	op->epoch = op->lock.ticket.epoch > op->plan.epoch ? op->lock.ticket.epoch : op->plan.epoch;
	return sandboxes_load(op->a->reg, op->plan.id, &op->boxes, err);
}

int plan_op_set_state(struct plan_op *op, enum atoll_plan_state to, struct error *err)
{
	int r = 0;

	if (op->plan.state == to)
		return 0;
	if (!plan_state_allows(op->plan.state, to) &&
	    plan_state_allows(op->plan.state, ATOLL_PLAN_OPEN))
		r = registry_plan_set_state(op->a->reg, op->plan.id, ATOLL_PLAN_OPEN, op->epoch,
		                            err);
	if (r == 0)
		r = registry_plan_set_state(op->a->reg, op->plan.id, to, op->epoch, err);
	if (r == 0)
		op->plan.state = to;
	return r;
}

static int lock_and_load(struct plan_op *op, struct atoll_plan *p, struct error *err)
{
	int r = plan_lock_for(&op->lock, p, op->what, op->deadline, err);

	if (r < 0)
		return r;
	(void)snprintf(op->plan.id, sizeof(op->plan.id), "%s", p->id);
	r = plan_op_reload(op, err);
	if (r == -ATOLL_E_NOT_FOUND && !op->lock.hold)
		plan_lock_forget(op->a, p->id); /* our waiting made the file anew */
	return r < 0 ? r : bury_command(op, err);
}

static int lock_new(struct plan_op *op, const struct atoll_plan *p, struct error *err)
{
	int r = plan_lock_acquire(&op->lock, op->a, p->id, p->name, op->what, op->deadline, err);

	op->plan = (struct plan_row){ .epoch = op->lock.ticket.epoch };
	(void)snprintf(op->plan.id, sizeof(op->plan.id), "%s", p->id);
	(void)snprintf(op->plan.name, sizeof(op->plan.name), "%s", p->name);
	op->epoch = op->plan.epoch;
	return r;
}

static int lock_old(struct plan_op *op, struct atoll_plan *p, struct error *err)
{
	int r = lock_and_load(op, p, err);

	if (r == 0)
		r = op_recover(op, err);
	if (r == 0)
		r = mark_lost(op, err);
	if (r == 0)
		r = mark_dead(op, err);
	return r < 0 ? r : clear_remains(op, err);
}

/* 1: others must be settled first, start again. */
static int lock_resources(struct plan_op *op, const struct sandboxes *newcomers, struct error *err)
{
	struct plan_row other;
	int r;

	if (newcomers)
		r = resource_locks_acquire(op->a, newcomers->v, newcomers->n, RESOURCE_SHARED,
		                           op->what, op->deadline, &op->resources, err);
	else
		r = resource_locks_acquire(op->a, op->boxes.v, op->boxes.n, RESOURCE_EXCLUSIVE,
		                           op->what, op->deadline, &op->resources, err);
	return r < 0 ? r : find_unsettled(op->a, op->plan.id, newcomers, &other, err);
}

static void let_go(struct plan_op *op)
{
	resource_locks_release(op->resources);
	op->resources = NULL;
	plan_lock_release(&op->lock);
}

static int begin_once(struct plan_op *op, struct atoll_plan *p, const struct sandboxes *newcomers,
                      struct error *err)
{
	int r = 0;

	if (!(op->flags & OP_UNRECOVERED))
		r = plan_settle_others(op->a, p->id, newcomers, op->what, op->deadline, err);
	if (r < 0)
		return r;
	r = op->flags & OP_NEW ? lock_new(op, p, err) : lock_old(op, p, err);
	if (r < 0)
		return r;
	if (!newcomers && !(op->flags & OP_RESOURCES))
		return 0;
	r = lock_resources(op, newcomers, err);
	return r > 0 && (op->flags & OP_UNRECOVERED) ? 0 : r;
}

static int64_t deadline_of(struct atoll *a, unsigned flags)
{
	int64_t limit = store_deadline(a), soon = clock_deadline(BRIEFLY_MS);

	if (flags & OP_TRY)
		return 0;
	return flags & OP_BRIEFLY && soon < limit ? soon : limit;
}

/* What is done without a review is done to nothing else. */
int plan_op_check_mirror(const struct plan_op *op, const char *root, struct error *err)
{
	if ((op->boxes.n == 1 && sandbox_is_at(&op->boxes.v[0], root)) || sabotage("mirror-only"))
		return 0;
	(void)error_set(err, -ATOLL_E_DENIED,
	                "plan '%s' is more than the mirror of its session, '%s'; nothing was "
	                "changed",
	                op->plan.name, root);
	error_hint(err,
	           "an admin commits it (POST /v1/plans/%s/commit) or ends it (DELETE "
	           "/v1/plans/%s?force)",
	           op->plan.id, op->plan.id);
	return -ATOLL_E_DENIED;
}

static int record_decision(const struct plan_op *op, int code, struct error *err)
{
	const struct plan_decision d = { .plan = op->plan.id, .verb = op->verb, .code = code };

	return op->flags & OP_AUDITED ? store_decision(op->a, &d, err) : 0;
}

int plan_op_begin(struct plan_op *op, struct atoll_plan *p, const struct plan_op_options *opt,
                  struct error *err)
{
	int r;

	op->a = p->a;
	op->verb = opt->verb;
	op->flags = opt->flags;
	op->res = opt->res;
	op->deadline = deadline_of(p->a, opt->flags);
	(void)snprintf(op->what, sizeof(op->what), "atoll %s %s%s%s", opt->verb, p->name,
	               opt->detail ? " -- " : "", opt->detail ? opt->detail : "");
	if (p->a->pid != getpid())
		return error_set(
			err, -ATOLL_E_STATE,
			"this handle was opened by another process; a child opens its own");
	store_progress_begin(p->a, &op->progress);
	while ((r = begin_once(op, p, opt->newcomers, err)) > 0)
		let_go(op);
	if (r == 0 && opt->mirror)
		r = plan_op_check_mirror(op, opt->mirror, err);
	if (r == 0)
		r = record_decision(op, DECISION_ASKED, err);
	if (r < 0)
		plan_op_done(op);
	return r;
}

static int write_adopted(struct registry *reg, void *ctx, struct error *err)
{
	struct plan_row row;
	int r = registry_plan_get(reg, ctx, &row, err);

	if (r < 0)
		return r;
	row.abandoned = false;
	return registry_plan_update(reg, &row, err);
}

struct ending {
	const struct plan_op *op;
	struct sandboxes boxes; /* as they are now */
	int code;
	const char *message;
};

static int write_ending(struct registry *reg, void *ctx, struct error *err)
{
	const struct ending *e = ctx;
	int r = registry_event_add(reg, e->op->plan.id, e->op->verb, e->code, e->message, err);

	if (r >= 0 && e->code == 0 && e->op->flags & OP_DECIDES)
		r = registry_ask_end(reg, e->op->plan.id, 0, ASK_DECIDED, "", err);
	return r < 0 ? r : usage_write(reg, &e->boxes, err);
}

/* The line of history, and what the sandboxes take now if a resource was held for this: then one
 * was added, or work was committed, undone or dropped. */
static void record_ending(struct plan_op *op, int r, const struct error *err)
{
	struct ending e = { .op = op,
		            .code = r < 0 ? r : 0,
		            .message = r >= 0 && op->why          ? op->why
		                       : r < 0 && err && err->msg ? err->msg
		                                                  : "" };

	if (r >= 0 && op->resources && sandboxes_load(op->a->reg, op->plan.id, &e.boxes, NULL) == 0)
		usage_measure(&e.boxes);
	(void)store_write(op->a, REGISTRY_NORMAL, write_ending, &e, NULL);
	sandboxes_done(&e.boxes);
}

int plan_op_end(struct plan_op *op, int r, const struct error *err)
{
	/* Somebody works with it again. */
	if (r >= 0 && op->plan.abandoned && !(op->flags & OP_UNASKED))
		(void)store_write(op->a, REGISTRY_NORMAL, write_adopted, op->plan.id, NULL);
	if (!(op->flags & OP_QUIET))
		record_ending(op, r, err);
	(void)record_decision(op, r < 0 ? r : 0, NULL);
	plan_op_done(op);
	return r;
}

int plan_op_refused(const struct plan_op *op, int r, const char *unchanged, struct error *err)
{
	if (r >= 0 || r == -ATOLL_E_NEEDS_RECOVERY)
		return r;
	if (err && !err->hint)
		error_hint(err, "%s, then atoll %s %s", remedy_for(err->os_errno), op->verb,
		           op->plan.name);
	return error_prefix(err, r, "%s", unchanged);
}

int plan_op_unfinished(const struct plan_op *op, size_t done, struct error *err)
{
	(void)error_set(err, -ATOLL_E_NEEDS_RECOVERY,
	                "not finished: %zu of %zu resources; the same again finishes it", done,
	                op->boxes.n);
	error_hint(err, "atoll %s %s", op->verb, op->plan.name);
	return -ATOLL_E_NEEDS_RECOVERY;
}

void plan_op_done(struct plan_op *op)
{
	progress_end(&op->progress);
	let_go(op);
	sandboxes_done(&op->boxes);
}
