/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of plans. */
#include "registry/registry.h"

#include "registry/rows-impl.h"
#include "util/cleanup.h"
#include "util/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS                                                                        \
	"id, name, state, seq, owned, abandoned, starting, epoch, batch, created_ms, " \
	"retry_at_ms, attempts"

static void read_plan(struct cols *c, void *item)
{
	struct plan_row *row = item;

	cols_text(c, row->id, sizeof(row->id));
	cols_text(c, row->name, sizeof(row->name));
	row->state = (enum atoll_plan_state)cols_int(c, 0, ATOLL_PLAN_STATE_END_ - 1);
	row->seq = cols_u64(c);
	row->owned = cols_bool(c);
	row->abandoned = cols_bool(c);
	row->starting = cols_bool(c);
	row->epoch = cols_u64(c);
	row->batch = cols_u32(c);
	row->created_ms = cols_int(c, INT64_MIN, INT64_MAX);
	row->retry_at_ms = cols_int(c, INT64_MIN, INT64_MAX);
	row->attempts = cols_u32(c);
}

#define PLAN_ROWS ((struct rows){ .size = sizeof(struct plan_row), .read = read_plan })

int registry_plan_insert(struct registry *r, struct plan_row *row, struct error *err)
{
	static const char sql[] =
		"INSERT INTO plan (id, name, state, owned, abandoned, epoch, batch, created_ms, "
		"retry_at_ms, attempts, starting) "
		"VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) "
		"ON CONFLICT DO NOTHING RETURNING seq";
	int64_t seq = 0;
	int k;

	k = rows_write_number(
		r, sql,
		ARGS(TEXT_VALUE(row->id), TEXT_VALUE(row->name), INT_VALUE(row->state),
	             INT_VALUE(row->owned), INT_VALUE(row->abandoned), INT_VALUE(row->epoch),
	             INT_VALUE(row->batch), INT_VALUE(row->created_ms), INT_VALUE(row->retry_at_ms),
	             INT_VALUE(row->attempts), INT_VALUE(row->starting)),
		&seq, err);
	if (k < 0)
		return k;
	if (k == 0) {
		k = error_set(err, -ATOLL_E_EXISTS, "a plan '%s' exists already", row->name);
		error_hint(err, "atoll status %s", row->name);
		return k;
	}
	row->seq = (uint64_t)seq;
	return 0;
}

int plan_find(struct registry *r, enum plan_key key, const char *value, struct plan_row *ret,
              struct error *err)
{
	static const char by_id[] = "SELECT " COLUMNS " FROM plan WHERE id = ?1";
	static const char open_by_id[] =
		"SELECT " COLUMNS " FROM plan WHERE id = ?1 AND state <> 7";
	static const char open_by_name[] =
		"SELECT " COLUMNS " FROM plan WHERE name = ?1 AND state <> 7";
	static const char last_run[] =
		"SELECT " COLUMNS " FROM plan JOIN run ON run.plan = plan.id "
		"WHERE run.dir = ?1 AND state <> 7 ORDER BY seq DESC LIMIT 1";
	static const char *const sql[] = {
		[PLAN_BY_ID] = by_id,
		[PLAN_OPEN_BY_ID] = open_by_id,
		[PLAN_OPEN_BY_NAME] = open_by_name,
		[PLAN_LAST_RUN] = last_run,
	};
	cleanup_rows struct rows rows = PLAN_ROWS;
	int k = rows_fetch(r, sql[key], ARGS(TEXT_VALUE(value)), &rows, err);

	if (k < 0)
		return k;
	if (rows.n > 0)
		*ret = *(const struct plan_row *)rows.items;
	return rows.n > 0;
}

int registry_plan_get(struct registry *r, const char *id, struct plan_row *ret, struct error *err)
{
	int k = plan_find(r, PLAN_BY_ID, id, ret, err);

	if (k == 0)
		return error_set(err, -ATOLL_E_NOT_FOUND, "there is no plan with the id '%s'", id);
	return k < 0 ? k : 0;
}

int registry_plan_named(struct registry *r, const char *name, struct plan_row *ret,
                        struct error *err)
{
	return plan_find(r, PLAN_OPEN_BY_NAME, name, ret, err);
}

int registry_plan_ran_in(struct registry *r, const char *id, const char *dir, struct error *err)
{
	static const char sql[] = "INSERT INTO run (plan, dir) VALUES (?1, ?2)";
	int k = registry_write(r, sql, ARGS(TEXT_VALUE(id), TEXT_VALUE(dir)), NULL, NULL, err);

	return k < 0 ? k : 0;
}

int registry_plan_last_run(struct registry *r, const char *dir, struct plan_row *ret,
                           struct error *err)
{
	return plan_find(r, PLAN_LAST_RUN, dir, ret, err);
}

int registry_plan_list(struct registry *r, registry_plan_fn fn, void *ctx, struct error *err)
{
	static const char sql[] = "SELECT " COLUMNS " FROM plan WHERE state <> 7 ORDER BY seq";
	cleanup_rows struct rows rows = PLAN_ROWS;
	const struct plan_row *plans;
	int k = rows_fetch(r, sql, NO_ARGS, &rows, err);

	plans = rows.items;
	for (size_t i = 0; k >= 0 && i < rows.n; i++)
		k = fn(ctx, &plans[i]);
	return k < 0 ? k : 0;
}

struct doubtful {
	char (*ids)[PLAN_ID_LEN + 1];
	size_t n, cap;
};

static int note_id(void *ctx, const struct value *v, size_t count)
{
	struct cols c = { .v = v, .n = count };
	struct doubtful *d = ctx;
	char id[PLAN_ID_LEN + 1] = "";

	cols_text(&c, id, sizeof(id));
	for (size_t i = 0; i < d->n; i++)
		if (strcmp(d->ids[i], id) == 0)
			return c.code;
	if (grow((void **)&d->ids, &d->cap, d->n + 1, sizeof(*d->ids)) < 0)
		return -ENOMEM;
	memcpy(d->ids[d->n++], id, sizeof(id));
	return c.code;
}

static int by_seq(const void *a, const void *b)
{
	const struct plan_row *x = a, *y = b;

	return x->seq < y->seq ? -1 : x->seq > y->seq;
}

/* Mostly there are none, so the question itself is kept short: SQLite takes longer to understand
 * it than to answer. In the words of the partial indexes, or they would not be used. */
int registry_plan_list_doubtful(struct registry *r, registry_plan_fn fn, void *ctx,
                                struct error *err)
{
	static const char sql[] = "SELECT id FROM plan WHERE state IN (1, 2, 3, 5) "
				  "UNION ALL SELECT id FROM plan WHERE starting = 1 "
				  "UNION ALL SELECT plan FROM sandbox WHERE state = 0";
	cleanup_free struct plan_row *rows = NULL;
	struct doubtful d = { 0 };
	size_t n = 0;
	int k = registry_read(r, sql, NO_ARGS, note_id, &d, err);

	if (k >= 0 && d.n > 0)
		rows = xcalloc(d.n, sizeof(*rows));
	for (size_t i = 0; k >= 0 && i < d.n; i++) {
		k = plan_find(r, PLAN_OPEN_BY_ID, d.ids[i], &rows[n], err);
		n += k > 0;
	}
	free(d.ids);
	if (n > 0)
		qsort(rows, n, sizeof(*rows), by_seq);
	for (size_t i = 0; k >= 0 && i < n; i++)
		k = fn(ctx, &rows[i]);
	return k < 0 ? k : 0;
}

/* Nobody may write with an epoch below one that has written. */
static int check_epoch(const struct plan_row *row, uint64_t epoch, struct error *err)
{
	if (epoch == 0 || epoch >= row->epoch)
		return 0;
	return error_set(err, -ATOLL_E_STATE,
	                 "plan '%s' was taken over by a later command; this one is too late",
	                 row->name);
}

int registry_plan_set_state(struct registry *r, const char *id, enum atoll_plan_state to,
                            uint64_t epoch, struct error *err)
{
	static const char sql[] = "UPDATE plan SET state = ?2, epoch = ?3 WHERE id = ?1";
	struct plan_row row;
	int k = registry_plan_get(r, id, &row, err);

	if (k < 0)
		return k;
	k = check_epoch(&row, epoch, err);
	if (k < 0)
		return k;
	if (!plan_state_allows(row.state, to))
		return error_set(err, -ATOLL_E_STATE, "plan '%s' is %s and cannot become %s",
		                 row.name, atoll_plan_state_name(row.state),
		                 atoll_plan_state_name(to));
	k = registry_write(
		r, sql,
		ARGS(TEXT_VALUE(id), INT_VALUE(to), INT_VALUE(epoch > 0 ? epoch : row.epoch)), NULL,
		NULL, err);
	return k < 0 ? k : news_add(r, &(struct news_item){ .plan = id, .what = "state" }, err);
}

int registry_plan_update(struct registry *r, const struct plan_row *row, struct error *err)
{
	static const char sql[] =
		"UPDATE plan SET owned = ?2, abandoned = ?3, epoch = ?4, batch = ?5, "
		"created_ms = ?6, retry_at_ms = ?7, attempts = ?8, starting = ?9 WHERE id = ?1";
	struct plan_row old;
	int k = registry_plan_get(r, row->id, &old, err);

	if (k < 0)
		return k;
	k = check_epoch(&old, row->epoch, err);
	if (k < 0)
		return k;
	k = registry_write(
		r, sql,
		ARGS(TEXT_VALUE(row->id), INT_VALUE(row->owned), INT_VALUE(row->abandoned),
	             INT_VALUE(row->epoch > 0 ? row->epoch : old.epoch), INT_VALUE(row->batch),
	             INT_VALUE(row->created_ms), INT_VALUE(row->retry_at_ms),
	             INT_VALUE(row->attempts), INT_VALUE(row->starting)),
		NULL, NULL, err);
	return k < 0 ? k : 0;
}

int registry_plan_delete(struct registry *r, const char *id, struct error *err)
{
	/* Sandboxes, batches, parts and paths go with it: ON DELETE CASCADE. */
	static const char sql[] = "DELETE FROM plan WHERE id = ?1";
	struct plan_row row;
	int k = registry_plan_get(r, id, &row, err);

	if (k >= 0)
		k = registry_write(r, sql, ARGS(TEXT_VALUE(id)), NULL, NULL, err);
	/* One that never was whole has no news. */
	if (k < 0 || row.starting)
		return k < 0 ? k : 0;
	return news_add(r, &(struct news_item){ .plan = id, .what = "state" }, err);
}
