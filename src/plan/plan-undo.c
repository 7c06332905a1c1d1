/* SPDX-License-Identifier: Apache-2.0 */
/* Undo and redo of one commit: which one is meant, and whether it may be. The protocol is txn/'s. */
#include "plan/plan-undo.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "diff/change.h"
#include "plan/plan-op.h"
#include "plan/plan-select.h"
#include "plan/sandbox.h"
#include "strategy/dir.h"
#include "txn/txn.h"
#include "util/cleanup.h"
#include "util/mem.h"

static const struct {
	const char *verb;
	enum batch_state from;
} ways[] = {
	[UNDO_WAY_UNDO] = { "undo", BATCH_COMMITTED },
	[UNDO_WAY_REDO] = { "redo", BATCH_UNDONE },
};

/* ---- batches, the latest first ---- */

struct found {
	const char *plan; /* of this one only; NULL: of all */
	bool kept;        /* only those whose data is there */
	struct batch_row *v;
	size_t n, cap;
};

static void found_done(struct found *f)
{
	free(f->v);
}
#define cleanup_found __attribute__((__cleanup__(found_done)))

static int collect(void *ctx, const struct batch_row *row)
{
	struct found *f = ctx;

	if ((f->plan && strcmp(f->plan, row->plan) != 0) || (f->kept && row->released))
		return 0;
	if (grow((void **)&f->v, &f->cap, f->n + 1, sizeof(*f->v)) < 0)
		return -ENOMEM;
	f->v[f->n++] = *row;
	return 0;
}

static int find(struct atoll *a, const char *plan, enum batch_state state, struct found *ret,
                struct error *err)
{
	ret->plan = plan;
	/* A rollback releases what it undoes: no redo brings that back. */
	ret->kept = state == BATCH_UNDONE;
	return registry_batch_list_latest(a->reg, state, collect, ret, err);
}

/* ---- which plan ---- */

int plan_undo_list(struct atoll_plan *p, enum undo_way way, registry_batch_fn fn, void *ctx,
                   struct error *err)
{
	cleanup_found struct found f = { 0 };
	int r = find(p->a, p->id, ways[way].from, &f, err);

	for (size_t i = 0; r >= 0 && i < f.n; i++)
		r = fn(ctx, &f.v[i]);
	return r;
}

bool plan_undo_holds(const char *root, const char *dir)
{
	const char *slash = strrchr(root, '/');
	size_t len = slash ? (size_t)(slash - root) : 0;
	struct stat st;

	if (!slash)
		return false; /* no path */
	if (path_below(dir, root))
		return true;
	return strlen(dir) == len && strncmp(dir, root, len) == 0 && lstat(root, &st) == 0 &&
	       !S_ISDIR(st.st_mode);
}

struct holding {
	const char *dir;
	bool holds;
};

static int look_at_root(void *ctx, const struct sandbox_row *row)
{
	struct holding *h = ctx;

	h->holds |= plan_undo_holds(row->root, h->dir);
	return 0;
}

static int plan_holds(struct atoll *a, const char *plan, const char *dir, bool *ret,
                      struct error *err)
{
	struct holding h = { .dir = dir };
	int r = registry_sandbox_list(a->reg, plan, look_at_root, &h, err);

	*ret = h.holds;
	return r;
}

int plan_undo_next(struct atoll *a, const char *dir, enum undo_way way, struct atoll_plan **ret,
                   struct error *err)
{
	cleanup_found struct found f = { 0 };
	struct plan_row row;
	bool holds = false;
	int r = find(a, NULL, ways[way].from, &f, err);

	for (size_t i = 0; r >= 0 && i < f.n && !holds; i++) {
		r = plan_holds(a, f.v[i].plan, dir, &holds, err);
		if (r >= 0 && holds)
			r = registry_plan_get(a->reg, f.v[i].plan, &row, err);
	}
	if (r < 0)
		return r;
	if (!holds) {
		(void)error_set(err, -ATOLL_E_NOT_FOUND, "nothing to %s in '%s'", ways[way].verb,
		                dir);
		error_hint(
			err,
			way == UNDO_WAY_UNDO
				? "atoll discard drops uncommitted changes; atoll log shows what was committed where"
				: "atoll log shows what was undone where");
		return -ATOLL_E_NOT_FOUND;
	}
	*ret = xcalloc(1, sizeof(**ret));
	(*ret)->a = a;
	(void)memcpy((*ret)->id, row.id, sizeof((*ret)->id));
	(void)memcpy((*ret)->name, row.name, sizeof((*ret)->name));
	return 0;
}

/* ---- whether it may be ---- */

struct asking {
	const struct plan_op *op;
	int code;
	struct error *err;
};

static const struct sandbox_row *box_of(const struct plan_op *op, const char *id)
{
	for (size_t i = 0; i < op->boxes.n; i++)
		if (strcmp(op->boxes.v[i].id, id) == 0)
			return &op->boxes.v[i];
	return NULL;
}

static int check_part(void *ctx, const struct part_row *part)
{
	struct asking *q = ctx;
	const struct sandbox_row *row = box_of(q->op, part->sandbox);

	if (part->answer != PART_READY || q->code < 0)
		return 0;
	if (!row || row->state == ATOLL_SANDBOX_CLEANED_UP) {
		q->code =
			error_set(q->err, -ATOLL_E_RECOVERY_MISSING,
		                  "a resource of the commit is not in plan '%s' any more; nothing "
		                  "was changed",
		                  q->op->plan.name);
	} else if (row->state == ATOLL_SANDBOX_ERRORED) {
		q->code = error_set(q->err, -ATOLL_E_STATE,
		                    "'%s' is in error: %s; nothing was changed", row->root,
		                    row->error);
		error_hint(q->err, "atoll recover %s", q->op->plan.name);
	} else {
		q->code = sandbox_verify_root(row, q->err);
	}
	return 0;
}

/* The last commit of the plan that can go this way. */
static int choose(struct plan_op *op, enum undo_way way, struct batch_row *ret, struct error *err)
{
	cleanup_found struct found f = { 0 };
	struct asking q = { .op = op, .err = err };
	int r = find(op->a, op->plan.id, ways[way].from, &f, err);

	if (r < 0)
		return r;
	if (f.n == 0) {
		(void)error_set(err, -ATOLL_E_STATE, "plan '%s' has no %s; nothing was changed",
		                op->plan.name,
		                way == UNDO_WAY_UNDO ? "commit to undo" : "undone commit to redo");
		return -ATOLL_E_STATE;
	}
	if (f.v[0].released) {
		(void)error_set(err, -ATOLL_E_RECOVERY_MISSING,
		                "what is needed to undo the last commit of '%s' was released; "
		                "nothing was changed",
		                op->plan.name);
		return -ATOLL_E_RECOVERY_MISSING;
	}
	*ret = f.v[0];
	r = registry_part_list(op->a->reg, ret->plan, ret->number, check_part, &q, err);
	return r < 0 ? r : q.code;
}

/* ---- who stands in the way ---- */

struct standing {
	const struct plan_op *op;
	const struct batch_row *ours, *theirs; /* THEIRS: of another plan, committed later */
	struct sandboxes boxes;                /* of that plan */
	const struct atoll_result *res; /* its notes name what is in the way; NULL: not asked yet */
	bool found;
	struct error *err;
};

/* Does the sandbox OURS have a conflict that only its strategy can name: a row, a ref? */
static bool has_conflict(const struct standing *s, const struct sandbox_row *ours)
{
	for (size_t i = 0; s->res && i < atoll_result_notes(s->res); i++) {
		const struct atoll_note *note = atoll_result_note(s->res, i);

		if (note->kind == ATOLL_NOTE_CONFLICT && strcmp(note->sandbox, ours->id) == 0)
			return true;
	}
	return false;
}

static bool stands_on(const struct standing *s, const struct sandbox_row *theirs,
                      const struct sandbox_row *ours)
{
	const struct dir_place a = { ours->root, ours->area, s->ours->number };
	const struct dir_place b = { theirs->root, theirs->area, s->theirs->number };

	if (dir_batches_meet(&a, &b))
		return true;
	return strcmp(ours->root, theirs->root) == 0 && has_conflict(s, ours);
}

static int look_at_theirs(void *ctx, const struct part_row *part)
{
	struct standing *s = ctx;
	const struct sandbox_row *theirs = NULL;

	for (size_t i = 0; i < s->boxes.n; i++)
		if (strcmp(s->boxes.v[i].id, part->sandbox) == 0)
			theirs = &s->boxes.v[i];
	for (size_t i = 0; i < s->op->boxes.n; i++)
		if (theirs && part->answer == PART_READY && !s->found)
			s->found = stands_on(s, theirs, &s->op->boxes.v[i]);
	return 0;
}

/* -ATOLL_E_CONFLICT names the plan whose later commit stands on the same entries as BATCH, the latest first. RES:
 * of an undo that met a conflict; what of it is no file is that plan's then, if it is about the same resource. */
static int check_standing(const struct plan_op *op, const struct batch_row *batch,
                          const struct atoll_result *res, struct error *err)
{
	cleanup_found struct found f = { 0 };
	int r = find(op->a, NULL, BATCH_COMMITTED, &f, err);

	for (size_t i = 0; r >= 0 && i < f.n && f.v[i].turn > batch->turn; i++) {
		struct standing s = { .op = op, .ours = batch, .theirs = &f.v[i], .res = res };
		struct plan_row row;

		if (strcmp(f.v[i].plan, op->plan.id) == 0)
			continue;
		r = sandboxes_load(op->a->reg, f.v[i].plan, &s.boxes, err);
		if (r >= 0)
			r = registry_part_list(op->a->reg, f.v[i].plan, f.v[i].number,
			                       look_at_theirs, &s, err);
		sandboxes_done(&s.boxes);
		if (r < 0 || !s.found || registry_plan_get(op->a->reg, f.v[i].plan, &row, NULL) < 0)
			continue;
		(void)error_set(err, -ATOLL_E_CONFLICT,
		                "plan '%s' committed later on the same entries; nothing was undone",
		                row.name);
		error_hint(err, "atoll undo %s first", row.name);
		return -ATOLL_E_CONFLICT;
	}
	return r < 0 ? r : 0;
}

/* ---- the verbs ---- */

static void say_instead(struct error *err, struct error *named)
{
	if (!err)
		return;
	error_done(err);
	error_move(err, named);
}

static int undo_locked(struct plan_op *op, const struct atoll_undo *undo, struct atoll_result *res,
                       struct error *err)
{
	cleanup_error struct error named = ERROR_INIT;
	cleanup_txn struct txn t = TXN_INIT;
	struct batch_row batch;
	int r = choose(op, UNDO_WAY_UNDO, &batch, err);

	/* What they put there is left, then. */
	if (r >= 0 && !(undo->flags & ATOLL_KEEP_THEIRS))
		r = check_standing(op, &batch, NULL, err);
	if (r >= 0)
		r = txn_open(&t, op->a->reg, &op->plan, op->epoch, res, err);
	if (r >= 0)
		r = plan_select_sides(&t, undo->ours, undo->theirs, err);
	if (r < 0)
		return r;
	r = txn_undo_batch(&t, batch.number, undo->flags, err);
	if (r == -ATOLL_E_CONFLICT && check_standing(op, &batch, res, &named) == r)
		say_instead(err, &named);
	return r;
}

int plan_undo(struct atoll_plan *p, const struct atoll_undo *undo, struct atoll_result *res,
              struct error *err)
{
	cleanup_plan_op struct plan_op op = PLAN_OP_INIT;
	const struct plan_op_options opt = { .verb = "undo", .flags = OP_RESOURCES | OP_AUDITED };
	int r = plan_op_begin(&op, p, &opt, err);

	if (r < 0)
		return r;
	r = undo_locked(&op, undo, res, err);
	return plan_op_end(&op, r, err);
}

static int redo_locked(struct plan_op *op, const struct atoll_undo *redo, struct atoll_result *res,
                       struct error *err)
{
	cleanup_txn struct txn t = TXN_INIT;
	struct batch_row batch;
	int r = choose(op, UNDO_WAY_REDO, &batch, err);

	if (r >= 0)
		r = txn_open(&t, op->a->reg, &op->plan, op->epoch, res, err);
	if (r >= 0)
		r = plan_select_sides(&t, redo->ours, NULL, err);
	return r < 0 ? r : txn_redo_batch(&t, batch.number, err);
}

int plan_redo(struct atoll_plan *p, const struct atoll_undo *redo, struct atoll_result *res,
              struct error *err)
{
	cleanup_plan_op struct plan_op op = PLAN_OP_INIT;
	const struct plan_op_options opt = { .verb = "redo", .flags = OP_RESOURCES | OP_AUDITED };
	int r = plan_op_begin(&op, p, &opt, err);

	if (r < 0)
		return r;
	r = redo_locked(&op, redo, res, err);
	return plan_op_end(&op, r, err);
}
