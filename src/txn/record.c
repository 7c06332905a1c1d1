/* SPDX-License-Identifier: Apache-2.0 */
/* What the registry is told in each step: one durable transaction each. */
#include "txn/txn-impl.h"

#include <stdlib.h>
#include <string.h>

#include "util/clock.h"
#include "util/crashpoint.h"
#include "util/mem.h"

/* Runs FN between begin and a durable commit. */
static int record(struct txn *t, int (*fn)(struct txn *, const void *, struct error *),
                  const void *arg, struct error *err)
{
	int r = registry_begin(t->reg, REGISTRY_DURABLE, err);

	if (r < 0)
		return r;
	r = fn(t, arg, err);
	if (r < 0) {
		registry_rollback(t->reg);
		return r;
	}
	return registry_commit(t->reg, err);
}

static int set_plan(struct txn *t, enum atoll_plan_state to, uint32_t batch, struct error *err)
{
	int r = registry_plan_set_state(t->reg, t->plan.id, to, t->epoch, err);

	if (r < 0)
		return r;
	t->plan.state = to;
	t->plan.batch = batch;
	t->plan.epoch = t->epoch;
	t->plan.retry_at_ms = 0;
	t->plan.attempts = 0;
	return registry_plan_update(t->reg, &t->plan, err);
}

static int set_batch(struct txn *t, enum batch_state to, struct error *err)
{
	int r = registry_batch_set_state(t->reg, t->plan.id, t->batch.number, to, err);

	if (r >= 0)
		t->batch.state = to;
	return r;
}

static int set_sandbox(struct txn *t, struct txn_part *p, enum atoll_sandbox_state to,
                       struct error *err)
{
	struct atoll_participant_result *row;
	int r;

	if (p->row.state == to)
		return 0;
	r = registry_sandbox_set_state(t->reg, p->row.id, to, "", err);
	if (r < 0)
		return r;
	p->row.state = to;
	row = step_row(t, p);
	if (row)
		row->state = to;
	return 0;
}

static int put_parts(struct txn *t, struct error *err)
{
	int r = 0;

	for (size_t i = 0; i < t->n && r >= 0; i++)
		if (t->parts[i].prepared || t->parts[i].selected)
			r = registry_part_put(t->reg, &t->parts[i].record, err);
	return r;
}

static int do_preparing(struct txn *t, const void *arg, struct error *err)
{
	int r = 0;

	(void)arg;
	/* A plan that was settled and got new work is open again. */
	if (t->plan.state != ATOLL_PLAN_OPEN)
		r = set_plan(t, ATOLL_PLAN_OPEN, 0, err);
	if (r >= 0)
		r = registry_batch_insert(t->reg, &t->batch, err);
	for (size_t i = 0; i < t->n && r >= 0; i++) {
		struct txn_part *p = &t->parts[i];

		if (!p->selected)
			continue;
		p->record.batch = t->batch.number;
		(void)memcpy(p->record.plan, t->plan.id, sizeof(p->record.plan));
		(void)memcpy(p->record.sandbox, p->row.id, sizeof(p->record.sandbox));
		p->record.position = (uint32_t)i;
		p->record.irrevocable = !participant_can(p->part, ATOLL_CAP_UNDO);
	}
	if (r >= 0)
		r = put_parts(t, err);
	return r < 0 ? r : set_plan(t, ATOLL_PLAN_PREPARING, t->batch.number, err);
}

int record_preparing(struct txn *t, struct error *err)
{
	return record(t, do_preparing, NULL, err);
}

static int do_decided(struct txn *t, const void *arg, struct error *err)
{
	int r = put_parts(t, err);

	(void)arg;
	for (size_t i = 0; i < t->n && r >= 0; i++)
		if (t->parts[i].selected)
			r = set_sandbox(t, &t->parts[i], ATOLL_SANDBOX_PREPARED, err);
	if (r >= 0)
		r = set_batch(t, BATCH_DECIDED, err);
	return r < 0 ? r : set_plan(t, ATOLL_PLAN_DECIDED, t->batch.number, err);
}

int record_decided(struct txn *t, struct error *err)
{
	return record(t, do_decided, NULL, err);
}

static int do_revoked(struct txn *t, const void *arg, struct error *err)
{
	int r = set_batch(t, BATCH_REVOKED, err);

	(void)arg;
	return r < 0 ? r : set_plan(t, ATOLL_PLAN_REVOKED, t->batch.number, err);
}

int record_revoked(struct txn *t, struct error *err)
{
	return record(t, do_revoked, NULL, err);
}

static int store_work(struct txn *t, struct txn_part *p, struct error *err)
{
	p->row.stale = participant_stale(p->part);
	p->row.generation = participant_generation(p->part);
	return registry_sandbox_update(t->reg, &p->row, err);
}

static int do_withdrawn(struct txn *t, const void *arg, struct error *err)
{
	int r = set_batch(t, BATCH_WITHDRAWN, err);

	(void)arg;
	for (size_t i = 0; i < t->n && r >= 0; i++) {
		struct txn_part *p = &t->parts[i];
		bool final;

		if (p->row.state != ATOLL_SANDBOX_PREPARED)
			continue;
		/* What cannot be taken back was committed all the same. */
		final = p->done && p->record.irrevocable;
		r = set_sandbox(t, p, final ? ATOLL_SANDBOX_COMMITTED : ATOLL_SANDBOX_ACTIVE, err);
		if (r >= 0 && final)
			r = store_work(t, p, err);
	}
	return r < 0 ? r : set_plan(t, ATOLL_PLAN_OPEN, 0, err);
}

int record_withdrawn(struct txn *t, struct error *err)
{
	return record(t, do_withdrawn, NULL, err);
}

/* Who has work that this batch did not take? Of one that asked for everything, nobody who answered
 * that he has none. */
static bool leaves_work(const struct txn *t, const struct txn_part *p)
{
	if (p->selected)
		return participant_rest(p->part);
	return (p->row.state == ATOLL_SANDBOX_CREATED || p->row.state == ATOLL_SANDBOX_ACTIVE) &&
	       (t->batch.flags & TXN_SELECTIVE || p->record.answer != PART_NO_CHANGE);
}

static bool is_open(const struct txn *t)
{
	for (size_t i = 0; i < t->n; i++)
		if (leaves_work(t, &t->parts[i]))
			return true;
	return false;
}

/* From now on, however long it took to get here, a crash included. */
static int64_t retain_until(const struct batch_row *b)
{
	return b->retain_until_ms ? clock_real_ms() + b->retain_until_ms - b->created_ms : 0;
}

static int take_turn(struct txn *t, uint32_t number, struct error *err)
{
	return registry_batch_take_turn(t->reg, t->plan.id, number, clock_real_ms(), err);
}

static int do_committed(struct txn *t, const void *arg, struct error *err)
{
	int r = set_batch(t, BATCH_COMMITTED, err);

	(void)arg;
	t->batch.retain_until_ms = retain_until(&t->batch);
	if (r >= 0)
		r = registry_batch_update(t->reg, &t->batch, err);
	if (r >= 0)
		r = take_turn(t, t->batch.number, err);
	for (size_t i = 0; i < t->n && r >= 0; i++) {
		struct txn_part *p = &t->parts[i];

		if (!p->selected)
			continue;
		r = set_sandbox(t, p, ATOLL_SANDBOX_COMMITTED, err);
		if (r >= 0 && participant_rest(p->part))
			r = set_sandbox(t, p, ATOLL_SANDBOX_ACTIVE, err);
		if (r >= 0)
			r = store_work(t, p, err);
	}
	if (r >= 0)
		r = set_plan(t, ATOLL_PLAN_COMMITTED, 0, err);
	return r < 0 || !is_open(t) ? r : set_plan(t, ATOLL_PLAN_OPEN, 0, err);
}

int record_committed(struct txn *t, struct error *err)
{
	return record(t, do_committed, NULL, err);
}

/* ---- undo: several batches at once ---- */

struct batches {
	const struct batch_row *v;
	size_t n;
};

static int set_batches(struct txn *t, const struct batches *b, enum batch_state to,
                       struct error *err)
{
	int r = 0;

	for (size_t i = 0; i < b->n && r >= 0; i++)
		r = registry_batch_set_state(t->reg, t->plan.id, b->v[i].number, to, err);
	return r;
}

/* What the undo is to do with the work, for whoever has to finish it. */
static int set_flags(struct txn *t, const struct batches *b, struct error *err)
{
	int r = 0;

	for (size_t i = 0; i < b->n && r >= 0; i++)
		r = registry_batch_update(t->reg, &b->v[i], err);
	/* Preparing may have made workspaces anew. */
	for (size_t i = 0; i < t->n && r >= 0; i++)
		r = store_work(t, &t->parts[i], err);
	return r;
}

static int do_undoing(struct txn *t, const void *arg, struct error *err)
{
	int r = set_flags(t, arg, err);

	if (r >= 0)
		r = set_batches(t, arg, BATCH_UNDOING, err);
	return r < 0 ? r : set_plan(t, ATOLL_PLAN_UNDOING, 0, err);
}

#define WAY (TXN_ALONE | TXN_OPEN | TXN_REDO)

int record_undoing(struct txn *t, struct batch_row *batches, size_t n, unsigned flags,
                   struct error *err)
{
	for (size_t i = 0; i < n; i++) {
		batches[i].flags &= ~(ATOLL_KEEP_WORK | WAY);
		batches[i].flags |= flags & (ATOLL_KEEP_WORK | WAY);
	}
	return record(t, do_undoing, &(struct batches){ batches, n }, err);
}

static int do_redoing(struct txn *t, const void *arg, struct error *err)
{
	return set_batches(t, arg, BATCH_REDOING, err);
}

int record_redoing(struct txn *t, const struct batch_row *batches, size_t n, struct error *err)
{
	return record(t, do_redoing, &(struct batches){ batches, n }, err);
}

/* ---- of one batch alone ---- */

/* The way it went is over. Its data is kept as long as was asked for when it was committed. */
static int forget_way(struct txn *t, const struct batch_row *b, struct error *err)
{
	struct batch_row row = *b;

	row.flags &= ~WAY;
	return registry_batch_update(t->reg, &row, err);
}

struct others {
	struct txn *t;
	uint32_t number; /* of the batch that does not count */
	bool *committed; /* per t->parts: in another batch */
	bool any;
	struct error *err;
};

static int note_committed(void *ctx, const struct part_row *row)
{
	struct others *o = ctx;

	for (size_t i = 0; i < o->t->n; i++)
		if (row->answer == PART_READY && strcmp(o->t->parts[i].row.id, row->sandbox) == 0)
			o->committed[i] = true;
	return 0;
}

static int note_batch(void *ctx, const struct batch_row *row)
{
	struct others *o = ctx;

	if (row->state != BATCH_COMMITTED || row->number == o->number)
		return 0;
	o->any = true;
	return registry_part_list(o->t->reg, row->plan, row->number, note_committed, o, o->err);
}

/* What had nothing but this batch committed is as it was before the plan. Uncommitted changes are not
 * asked. */
static int settle_parts(struct txn *t, const struct others *o, bool undone, struct error *err)
{
	int r = 0;

	for (size_t i = 0; i < t->n && r >= 0; i++) {
		struct txn_part *p = &t->parts[i];

		if (!p->selected || p->record.irrevocable)
			continue;
		if (undone && p->row.state == ATOLL_SANDBOX_COMMITTED && !o->committed[i])
			r = set_sandbox(t, p, ATOLL_SANDBOX_ROLLED_BACK, err);
		else if (!undone && p->row.state == ATOLL_SANDBOX_ROLLED_BACK)
			r = set_sandbox(t, p, ATOLL_SANDBOX_COMMITTED, err);
	}
	return r;
}

/* T is at the batch. */
static int end_alone(struct txn *t, const struct batch_row *b, enum batch_state to,
                     struct error *err)
{
	struct others o = { .t = t,
		            .number = b->number,
		            .committed = xcalloc(t->n + 1, sizeof(bool)),
		            .err = err };
	bool undone = to == BATCH_UNDONE;
	enum atoll_plan_state plan;
	int r = registry_batch_set_state(t->reg, t->plan.id, b->number, to, err);

	if (r >= 0)
		r = forget_way(t, b, err);
	if (r >= 0)
		r = take_turn(t, b->number, err);
	if (r >= 0)
		r = registry_batch_list(t->reg, t->plan.id, note_batch, &o, err);
	if (r >= 0)
		r = settle_parts(t, &o, undone, err);
	plan = b->flags & TXN_OPEN ? ATOLL_PLAN_OPEN
	       : undone && !o.any  ? ATOLL_PLAN_ROLLED_BACK
	                           : ATOLL_PLAN_COMMITTED;
	free(o.committed);
	return r < 0 ? r : set_plan(t, plan, 0, err);
}

static int do_redo(struct txn *t, const void *arg, struct error *err)
{
	const struct batch_row *b = arg;
	int r = registry_batch_update(t->reg, b, err);

	if (r >= 0)
		r = registry_batch_set_state(t->reg, t->plan.id, b->number, BATCH_REDOING, err);
	return r < 0 ? r : set_plan(t, ATOLL_PLAN_UNDOING, b->number, err);
}

int record_redo(struct txn *t, struct batch_row *batch, struct error *err)
{
	int r = record(t, do_redo, batch, err);

	if (r >= 0)
		batch->state = BATCH_REDOING;
	return r;
}

static int do_redo_withdrawn(struct txn *t, const void *arg, struct error *err)
{
	const struct batch_row *b = arg;

	return registry_batch_set_state(t->reg, t->plan.id, b->number, BATCH_UNDOING, err);
}

int record_redo_withdrawn(struct txn *t, const struct batch_row *batch, struct error *err)
{
	return record(t, do_redo_withdrawn, batch, err);
}

/* ---- the end of it ---- */

static int do_redone(struct txn *t, const void *arg, struct error *err)
{
	const struct batches *b = arg;
	int r;

	if (b->n && b->v[0].flags & TXN_ALONE)
		return end_alone(t, b->v, BATCH_COMMITTED, err);
	r = set_batches(t, arg, BATCH_COMMITTED, err);
	return r < 0 ? r : set_plan(t, ATOLL_PLAN_COMMITTED, 0, err);
}

int record_redone(struct txn *t, const struct batch_row *batches, size_t n, struct error *err)
{
	return record(t, do_redone, &(struct batches){ batches, n }, err);
}

static int do_undone(struct txn *t, const void *arg, struct error *err)
{
	const struct batches *b = arg;
	bool keeps = b->n && b->v[0].flags & ATOLL_KEEP_WORK;
	int r;

	if (b->n && b->v[0].flags & TXN_ALONE)
		return end_alone(t, b->v, BATCH_UNDONE, err);
	r = set_batches(t, arg, BATCH_UNDONE, err);
	for (size_t i = 0; i < t->n && r >= 0; i++) {
		struct txn_part *p = &t->parts[i];
		bool settled = p->row.state == ATOLL_SANDBOX_CREATED ||
		               p->row.state == ATOLL_SANDBOX_ACTIVE ||
		               p->row.state == ATOLL_SANDBOX_COMMITTED;

		/* What is final stays committed, and says so. */
		if (!settled || !participant_can(p->part, ATOLL_CAP_UNDO))
			continue;
		/* A sandbox that no batch touched goes on as it is. */
		if (!keeps || p->row.state == ATOLL_SANDBOX_COMMITTED)
			r = set_sandbox(t, p, ATOLL_SANDBOX_ROLLED_BACK, err);
		if (r >= 0 && keeps && p->row.state == ATOLL_SANDBOX_ROLLED_BACK)
			r = set_sandbox(t, p, ATOLL_SANDBOX_ACTIVE, err);
		if (r >= 0)
			r = store_work(t, p, err);
	}
	if (r >= 0)
		r = set_plan(t, ATOLL_PLAN_ROLLED_BACK, 0, err);
	return r < 0 || !keeps ? r : set_plan(t, ATOLL_PLAN_OPEN, 0, err);
}

int record_undone(struct txn *t, const struct batch_row *batches, size_t n, struct error *err)
{
	return record(t, do_undone, &(struct batches){ batches, n }, err);
}

static int do_released(struct txn *t, const void *arg, struct error *err)
{
	const uint32_t *number = arg;
	struct batch_row row;
	int r = registry_batch_get(t->reg, t->plan.id, *number, &row, err);

	row.released = true;
	return r < 0 ? r : registry_batch_update(t->reg, &row, err);
}

int record_released(struct txn *t, uint32_t batch, struct error *err)
{
	return record(t, do_released, &batch, err);
}

/* ---- reading ---- */

struct pick {
	unsigned mask;
	struct batch_row *v;
	size_t n, cap;
};

static int pick_batch(void *ctx, const struct batch_row *row)
{
	struct pick *p = ctx;
	int r;

	if (!(p->mask & (1u << row->state)))
		return 0;
	r = grow((void **)&p->v, &p->cap, p->n + 1, sizeof(*p->v));
	if (r >= 0)
		p->v[p->n++] = *row;
	return r;
}

int batches_in(struct txn *t, unsigned mask, struct batch_row **ret, size_t *ret_n,
               struct error *err)
{
	struct pick p = { .mask = mask };
	int r = registry_batch_list(t->reg, t->plan.id, pick_batch, &p, err);

	if (r < 0) {
		free(p.v);
		return r;
	}
	for (size_t i = 0; i < p.n / 2; i++) { /* listed oldest first */
		struct batch_row swap = p.v[i];

		p.v[i] = p.v[p.n - 1 - i];
		p.v[p.n - 1 - i] = swap;
	}
	*ret = p.v;
	*ret_n = p.n;
	return 0;
}
