/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking at plans. Nothing here takes a lock or waits: the registry is read as it is, and a diff
 * works while a command runs. Rows are collected first, so the caller's function may use any call.
 */
#include "plan/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan-op.h"
#include "plan/sandbox.h"
#include "txn/recover.h"
#include "util/cleanup.h"
#include "util/list.h"
#include "util/mem.h"

struct rows {
	struct plan_row *v;
	size_t n, cap;
};

static int collect_plan(void *ctx, const struct plan_row *row)
{
	struct rows *rows = ctx;

	if (grow((void **)&rows->v, &rows->cap, rows->n + 1, sizeof(*rows->v)) < 0)
		return -ENOMEM;
	rows->v[rows->n++] = *row;
	return 0;
}

typedef int (*list_fn)(struct registry *reg, registry_plan_fn fn, void *ctx, struct error *err);

static int collect_rows(struct atoll *a, list_fn list, struct plan_row **ret, size_t *ret_n,
                        struct error *err)
{
	struct rows rows = { 0 };
	int r = list(a->reg, collect_plan, &rows, err);

	if (r < 0) {
		free(rows.v);
		return r;
	}
	*ret = rows.v;
	*ret_n = rows.n;
	return 0;
}

int plan_rows(struct atoll *a, struct plan_row **ret, size_t *ret_n, struct error *err)
{
	return collect_rows(a, registry_plan_list, ret, ret_n, err);
}

int plan_rows_doubtful(struct atoll *a, struct plan_row **ret, size_t *ret_n, struct error *err)
{
	return collect_rows(a, registry_plan_list_doubtful, ret, ret_n, err);
}

/* What a listing says about a plan beyond its row. */
struct tally {
	const struct plan_row *row;
	size_t sandboxes, pending;
	uint64_t bytes;
	bool has_work;
	char **roots, **strategies; /* end with NULL; the strings are the tally's */
	size_t cap;
	size_t batches;
	uint32_t newest; /* batch */
	int64_t undo_until_ms;
	struct plan_use use;
};

struct tallies {
	struct tally *v;
	struct tally **by_id;
	size_t n;
};

static void tallies_done(struct tallies *t)
{
	for (size_t i = 0; i < t->n; i++) {
		for (size_t k = 0; k < t->v[i].sandboxes; k++) {
			free(t->v[i].roots[k]);
			free(t->v[i].strategies[k]);
		}
		free(t->v[i].roots);
		free(t->v[i].strategies);
		free(t->v[i].use.command);
	}
	free(t->v);
	free(t->by_id);
}
#define cleanup_tallies __attribute__((__cleanup__(tallies_done)))

static int by_id(const void *a, const void *b)
{
	const struct tally *const *x = a, *const *y = b;

	return strcmp((*x)->row->id, (*y)->row->id);
}

static int by_key(const void *key, const void *element)
{
	const struct tally *const *t = element;

	return strcmp(key, (*t)->row->id);
}

static int tallies_init(struct tallies *t, const struct plan_row *rows, size_t n)
{
	t->v = calloc(n + 1, sizeof(*t->v));
	t->by_id = calloc(n + 1, sizeof(struct tally *));
	if (!t->v || !t->by_id)
		return -ENOMEM;
	t->n = n;
	for (size_t i = 0; i < n; i++) {
		t->v[i].row = &rows[i];
		t->v[i].use.changes = -1;
		t->by_id[i] = &t->v[i];
	}
	qsort(t->by_id, n, sizeof(struct tally *), by_id);
	return 0;
}

/* NULL: a plan that began since the rows were read. */
static struct tally *find_tally(const struct tallies *t, const char *plan_id)
{
	struct tally **found = bsearch(plan_id, t->by_id, t->n, sizeof(struct tally *), by_key);

	return found ? *found : NULL;
}

/* Room for one more of both lists, and for the NULL behind them. */
static int tally_grow(struct tally *t)
{
	size_t cap = t->cap;
	int r = grow((void **)&t->roots, &cap, t->sandboxes + 2, sizeof(*t->roots));

	if (r == 0)
		r = grow((void **)&t->strategies, &t->cap, t->sandboxes + 2,
		         sizeof(*t->strategies));
	return r;
}

static int take_brief(void *ctx, const struct sandbox_brief *brief)
{
	struct tally *t = find_tally(ctx, brief->plan);

	if (!t)
		return 0;
	if (tally_grow(t) < 0)
		return -ENOMEM;
	t->roots[t->sandboxes] = xstrdup(brief->root);
	t->strategies[t->sandboxes++] = xstrdup(brief->strategy);
	t->roots[t->sandboxes] = t->strategies[t->sandboxes] = NULL;
	t->pending += brief->state == ATOLL_SANDBOX_PENDING;
	t->has_work |=
		brief->state == ATOLL_SANDBOX_ACTIVE || brief->state == ATOLL_SANDBOX_ERRORED;
	t->bytes += brief->bytes;
	return 0;
}

static int take_undoable(void *ctx, const struct batch_row *row)
{
	struct tally *t = find_tally(ctx, row->plan);

	if (!t)
		return 0;
	if (row->number > t->newest) {
		t->newest = row->number;
		t->undo_until_ms = row->retain_until_ms ? row->retain_until_ms : INT64_MAX;
	}
	t->batches++;
	return 0;
}

static int take_use(void *ctx, const struct plan_use *use)
{
	struct tally *t = find_tally(ctx, use->plan);

	if (!t)
		return 0;
	t->use = *use;
	t->use.command = xstrdup(use->command);
	return 0;
}

/* A plan at rest is not asked for its lock. */
static void read_holder(struct atoll *a, const struct tally *t, struct ticket_holder *ret)
{
	if (t->has_work || t->pending > 0 || t->row->starting || recover_unsettled(t->row))
		(void)plan_lock_holder(a, t->row->id, ret);
}

/* The command of "atoll exec NAME -- COMMAND", else "". */
static const char *running_of(const char *holder)
{
	static const char exec[] = "atoll exec ", dashes[] = " -- ";
	const char *command = strstr(holder, dashes);

	return command && strncmp(holder, exec, strlen(exec)) == 0 ? command + strlen(dashes) : "";
}

static int tell_plan(struct atoll *a, const struct tally *t, atoll_plan_fn fn, void *user)
{
	static const char *const none[] = { NULL };
	const struct plan_row *row = t->row;
	struct ticket_holder holder = { 0 };
	struct atoll_plan_info info = { .id = row->id,
		                        .name = row->name,
		                        .state = row->state,
		                        .owned = row->owned && owner_alive(a, row->id),
		                        .abandoned = row->abandoned,
		                        .created_ms = row->created_ms,
		                        .sandboxes = t->sandboxes,
		                        .batches = t->batches,
		                        .bytes = t->bytes,
		                        .from_run = t->use.from_run,
		                        .used_ms =
		                                t->use.plan[0] ? t->use.used_ms : row->created_ms,
		                        .command = t->use.command ? t->use.command : "",
		                        .has_work = t->has_work,
		                        .changes = t->has_work ? t->use.changes : 0,
		                        .undo_until_ms = t->undo_until_ms };

	read_holder(a, t, &holder);
	info.starting = row->starting && plan_lock_held(a, row->id);
	info.in_doubt = !info.starting && (t->pending > 0 || recover_unsettled(row));
	info.holder = holder.command;
	info.running = running_of(holder.command);
	info.roots = t->roots ? (const char *const *)t->roots : none;
	info.strategies = t->strategies ? (const char *const *)t->strategies : none;
	return fn(user, &info);
}

/* PLAN_ID: the only one of them, or NULL. However many there are, three questions are enough. */
static int tell_plans(struct atoll *a, const struct plan_row *rows, size_t n, const char *plan_id,
                      atoll_plan_fn fn, void *user, struct error *err)
{
	cleanup_tallies struct tallies t = { 0 };
	int r = tallies_init(&t, rows, n);

	if (r < 0)
		return error_set(err, r, "too many plans for memory");
	if (n == 0)
		return 0;
	r = registry_sandbox_briefs(a->reg, plan_id, take_brief, &t, err);
	if (r == 0)
		r = registry_batch_list_undoable(a->reg, plan_id, take_undoable, &t, err);
	if (r == 0)
		r = registry_plan_uses(a->reg, plan_id, take_use, &t, err);
	for (size_t i = 0; r >= 0 && i < n; i++)
		r = tell_plan(a, &t.v[i], fn, user);
	return r < 0 ? r : 0;
}

int plan_list(struct atoll *a, atoll_plan_fn fn, void *user, struct error *err)
{
	cleanup_free struct plan_row *rows = NULL;
	size_t n = 0;
	int r = plan_rows(a, &rows, &n, err);

	return r < 0 ? r : tell_plans(a, rows, n, NULL, fn, user, err);
}

int plan_list_at(struct atoll *a, const char *dir, atoll_plan_fn fn, void *user, struct error *err)
{
	struct rows rows = { 0 };
	int r = registry_plan_list_at(a->reg, dir, collect_plan, &rows, err);

	for (size_t i = 0; r >= 0 && i < rows.n; i++)
		r = tell_plans(a, &rows.v[i], 1, rows.v[i].id, fn, user, err);
	free(rows.v);
	return r;
}

int plan_show(struct atoll_plan *p, atoll_plan_fn fn, void *user, struct error *err)
{
	struct plan_row row;
	int r = registry_plan_get(p->a->reg, p->id, &row, err);

	return r < 0 ? r : tell_plans(p->a, &row, 1, row.id, fn, user, err);
}

int plan_undoable(struct atoll_plan *p, registry_batch_fn fn, void *ctx, struct error *err)
{
	return registry_batch_list_undoable(p->a->reg, p->id, fn, ctx, err);
}

/* The sandboxes of a plan that exists. */
static int load(struct atoll_plan *p, struct sandboxes *ret, struct error *err)
{
	struct plan_row row;
	int r = registry_plan_get(p->a->reg, p->id, &row, err);

	return r < 0 ? r : sandboxes_load(p->a->reg, p->id, ret, err);
}

int plan_sandboxes(struct atoll_plan *p, atoll_sandbox_fn fn, void *user, struct error *err)
{
	cleanup_sandboxes struct sandboxes boxes = SANDBOXES_INIT;
	int r = load(p, &boxes, err);

	for (size_t i = 0; r >= 0 && i < boxes.n; i++) {
		const struct sandbox_row *row = &boxes.v[i];
		const struct atoll_sandbox_info info = { .id = row->id,
			                                 .root = row->root,
			                                 .strategy = row->strategy,
			                                 .state = row->state,
			                                 .area = row->area,
			                                 .parent = row->parent,
			                                 .error = row->error,
			                                 .bytes = row->bytes };

		r = fn(user, &info);
	}
	return r < 0 ? r : 0;
}

int plan_sandbox_state(struct atoll_plan *p, const char *sandbox,
                       enum atoll_sandbox_state *ret_state, struct error *err)
{
	cleanup_sandboxes struct sandboxes boxes = SANDBOXES_INIT;
	size_t i = 0;
	int r = load(p, &boxes, err);

	if (r == 0)
		r = sandboxes_find(&boxes, sandbox, &i, err);
	if (r == 0)
		*ret_state = boxes.v[i].state;
	return r;
}

static int collect_path(void *ctx, const char *plan, const char *sandbox, const char *path)
{
	(void)plan;
	(void)sandbox;
	strlist_add(ctx, path);
	return 0;
}

int plan_paths(struct atoll_plan *p, atoll_path_fn fn, void *user, struct error *err)
{
	cleanup_strlist struct strlist paths = STRLIST_INIT;
	int r = registry_path_list(p->a->reg, p->id, collect_path, &paths, err);

	for (size_t i = 0; r >= 0 && i < paths.n; i++)
		r = fn(user, p->id, paths.v[i]);
	return r < 0 ? r : 0;
}

struct events {
	struct event_row *v;
	size_t n, cap;
};

static int collect_event(void *ctx, const struct event_row *row)
{
	struct events *e = ctx;

	if (grow((void **)&e->v, &e->cap, e->n + 1, sizeof(*e->v)) < 0)
		return -ENOMEM;
	e->v[e->n++] = (struct event_row){ .at_ms = row->at_ms,
		                           .what = xstrdup(row->what),
		                           .code = row->code,
		                           .message = xstrdup(row->message ? row->message : "") };
	return 0;
}

/* Also of a plan that was stopped: its history stays. */
int plan_history(struct atoll_plan *p, atoll_event_fn fn, void *user, struct error *err)
{
	struct events e = { 0 };
	int r = registry_event_list(p->a->reg, p->id, collect_event, &e, err);

	for (size_t i = 0; i < e.n; i++) {
		const struct atoll_event event = { .at_ms = e.v[i].at_ms,
			                           .what = e.v[i].what,
			                           .code = e.v[i].code,
			                           .message = e.v[i].message };

		if (r >= 0)
			r = fn(user, &event);
		event_row_done(&e.v[i]);
	}
	free(e.v);
	return r < 0 ? r : 0;
}

#define DIFF_LOOKS 16

struct counting {
	atoll_change_fn fn;
	void *user;
	int64_t n;
	bool ended; /* by FN */
};

static int count_change(void *user, const struct atoll_change *change)
{
	struct counting *c = user;
	int r;

	c->n++;
	r = c->fn ? c->fn(c->user, change) : 0;
	c->ended = r < 0;
	return r;
}

/* Does the sandbox have another workspace by now, or none? Then *ROW is as it is now. 1, 0 or a code. */
static int look_again(struct atoll_plan *p, struct sandboxes *boxes, size_t i, struct error *err)
{
	cleanup_sandboxes struct sandboxes now = SANDBOXES_INIT;
	struct sandbox_row *row = &boxes->v[i], swap;
	size_t k = 0;
	int r = load(p, &now, err);

	if (r < 0)
		return r;
	while (k < now.n && strcmp(now.v[k].id, row->id) != 0)
		k++;
	if (k == now.n) {
		row->state = ATOLL_SANDBOX_CLEANED_UP;
		return 1;
	}
	if (now.v[k].generation == row->generation && now.v[k].stale == row->stale &&
	    now.v[k].state == row->state)
		return 0;
	swap = *row;
	*row = now.v[k];
	now.v[k] = swap;
	return 1;
}

/* No lock is held: a commit, a reset or a rollback may put another workspace in its place meanwhile, and
 * remove the one that is looked at; a stop takes the plan away with it. */
static int diff_one(struct atoll_plan *p, struct sandboxes *boxes, size_t i, struct counting *c,
                    struct error *err)
{
	int64_t before = c->n;

	for (int look = 0;; look++) {
		cleanup_error struct error later = ERROR_INIT;
		int r = sandbox_diff(p->a, p->name, &boxes->v[i], count_change, c, err);
		int again;

		if (r >= 0 || c->ended)
			return r;
		again = look_again(p, boxes, i, &later);
		if (again == 0 || (again < 0 && again != -ATOLL_E_NOT_FOUND))
			return r;
		error_done(err);
		if (again < 0) {
			error_move(err, &later);
			return again;
		}
		if (c->n == before && look < DIFF_LOOKS)
			continue;
		(void)error_set(err, -EAGAIN, "'%s' was decided about while it was looked at",
		                boxes->v[i].root);
		error_hint(err, "look again");
		return -EAGAIN;
	}
}

int64_t plan_diff(struct atoll_plan *p, atoll_change_fn fn, void *user, struct error *err)
{
	cleanup_sandboxes struct sandboxes boxes = SANDBOXES_INIT;
	struct counting c = { .fn = fn, .user = user };
	int r = load(p, &boxes, err);

	for (size_t i = 0; r >= 0 && i < boxes.n; i++)
		r = diff_one(p, &boxes, i, &c, err);
	return r < 0 ? r : c.n;
}

static int end_at_change(void *user, const struct atoll_change *change)
{
	bool *found = user;

	(void)change;
	*found = true;
	return -ECANCELED;
}

bool plan_has_changes(struct atoll_plan *p)
{
	cleanup_error struct error err = ERROR_INIT;
	bool found = false;

	return plan_diff(p, end_at_change, &found, &err) < 0 || found;
}

int plan_count(struct atoll *a, struct error *err)
{
	cleanup_free struct plan_row *rows = NULL;
	size_t n = 0;
	int r = plan_rows(a, &rows, &n, err);

	return r < 0 ? r : (int)n;
}

int plan_count_paths(struct atoll *a, struct error *err)
{
	cleanup_strlist struct strlist paths = STRLIST_INIT;
	int r = registry_path_list(a->reg, NULL, collect_path, &paths, err);

	return r < 0 ? r : (int)paths.n;
}
