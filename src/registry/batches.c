/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of batches and of what each sandbox answered in them. */
#include "registry/registry.h"

#include "registry/rows-impl.h"

#include <limits.h>

#define COLUMNS "plan, number, state, flags, created_ms, retain_until_ms, released, turn"

static void read_batch(struct cols *c, void *item)
{
	struct batch_row *row = item;

	cols_text(c, row->plan, sizeof(row->plan));
	row->number = cols_u32(c);
	row->state = (enum batch_state)cols_int(c, 0, BATCH_STATE_END_ - 1);
	row->flags = (unsigned)cols_int(c, 0, UINT_MAX);
	row->created_ms = cols_int(c, INT64_MIN, INT64_MAX);
	row->retain_until_ms = cols_int(c, INT64_MIN, INT64_MAX);
	row->released = cols_bool(c);
	row->turn = cols_int(c, INT64_MIN, INT64_MAX);
}

#define BATCH_ROWS ((struct rows){ .size = sizeof(struct batch_row), .read = read_batch })

int registry_batch_insert(struct registry *r, struct batch_row *row, struct error *err)
{
	static const char sql[] =
		"INSERT INTO batch (plan, number, state, flags, created_ms, retain_until_ms, "
		"released) SELECT ?1, coalesce(max(number), 0) + 1, ?2, ?3, ?4, ?5, ?6 "
		"FROM batch WHERE plan = ?1 RETURNING number";
	int64_t number = 0;
	int k;

	k = rows_write_number(r, sql,
	                      ARGS(TEXT_VALUE(row->plan), INT_VALUE(row->state),
	                           INT_VALUE(row->flags), INT_VALUE(row->created_ms),
	                           INT_VALUE(row->retain_until_ms), INT_VALUE(row->released)),
	                      &number, err);
	if (k < 0)
		return k;
	row->number = (uint32_t)number;
	return 0;
}

static int not_found(const char *plan, uint32_t number, struct error *err)
{
	return error_set(err, -ATOLL_E_NOT_FOUND, "plan '%s' has no batch %u", plan, number);
}

int registry_batch_get(struct registry *r, const char *plan, uint32_t number, struct batch_row *ret,
                       struct error *err)
{
	static const char sql[] = "SELECT " COLUMNS " FROM batch WHERE plan = ?1 AND number = ?2";
	cleanup_rows struct rows rows = BATCH_ROWS;
	int k = rows_fetch(r, sql, ARGS(TEXT_VALUE(plan), INT_VALUE(number)), &rows, err);

	if (k < 0)
		return k;
	if (rows.n == 0)
		return not_found(plan, number, err);
	*ret = *(const struct batch_row *)rows.items;
	return 0;
}

static int list(struct registry *r, const char *sql, struct args args, registry_batch_fn fn,
                void *ctx, struct error *err)
{
	cleanup_rows struct rows rows = BATCH_ROWS;
	const struct batch_row *batches;
	int k = rows_fetch(r, sql, args, &rows, err);

	batches = rows.items;
	for (size_t i = 0; k >= 0 && i < rows.n; i++)
		k = fn(ctx, &batches[i]);
	return k < 0 ? k : 0;
}

int registry_batch_last(struct registry *r, const char *plan, enum batch_state state, uint32_t *ret,
                        struct error *err)
{
	static const char sql[] =
		"SELECT coalesce(max(number), 0) FROM batch WHERE plan = ?1 AND state = ?2";
	int64_t number = 0;
	int k = rows_number(r, sql, ARGS(TEXT_VALUE(plan), INT_VALUE(state)), &number, err);

	if (k < 0)
		return k;
	*ret = (uint32_t)number;
	return 0;
}

int registry_batch_list(struct registry *r, const char *plan, registry_batch_fn fn, void *ctx,
                        struct error *err)
{
	static const char all[] = "SELECT " COLUMNS " FROM batch ORDER BY plan, number";
	static const char one[] = "SELECT " COLUMNS " FROM batch WHERE plan = ?1 ORDER BY number";

	return plan ? list(r, one, ARGS(TEXT_VALUE(plan)), fn, ctx, err)
	            : list(r, all, NO_ARGS, fn, ctx, err);
}

int registry_batch_list_undoable(struct registry *r, const char *plan, registry_batch_fn fn,
                                 void *ctx, struct error *err)
{
	_Static_assert(BATCH_COMMITTED == 3 && PART_READY == 1 && ATOLL_SANDBOX_ERRORED == 6 &&
	                       ATOLL_SANDBOX_CLEANED_UP == 7,
	               "the question names them by number");
#define UNDOABLE                                                                                  \
	"SELECT " COLUMNS " FROM batch AS this WHERE state = 3 AND released = 0 AND NOT EXISTS (" \
	"SELECT 1 FROM batch AS other"                                                            \
	" JOIN part ON part.plan = other.plan AND part.batch = other.number"                      \
	" LEFT JOIN sandbox ON sandbox.id = part.sandbox"                                         \
	" WHERE other.plan = this.plan AND other.state = 3 AND part.answer = 1"                   \
	" AND (other.released = 1 OR sandbox.state IS NULL OR sandbox.state IN (6, 7)))"
	static const char all[] = UNDOABLE;
	static const char one[] = UNDOABLE " AND plan = ?1";

	return plan ? list(r, one, ARGS(TEXT_VALUE(plan)), fn, ctx, err)
	            : list(r, all, NO_ARGS, fn, ctx, err);
}

int registry_batch_list_expired(struct registry *r, int64_t now_ms, registry_batch_fn fn, void *ctx,
                                struct error *err)
{
	/* In the words of the partial index, or it would not be used. */
	static const char sql[] =
		"SELECT " COLUMNS " FROM batch WHERE state IN (3, 6) "
		"AND released = 0 AND retain_until_ms > 0 AND retain_until_ms <= ?1 "
		"ORDER BY retain_until_ms";

	return list(r, sql, ARGS(INT_VALUE(now_ms)), fn, ctx, err);
}

int registry_batch_list_latest(struct registry *r, enum batch_state state, registry_batch_fn fn,
                               void *ctx, struct error *err)
{
	static const char sql[] = "SELECT " COLUMNS " FROM batch WHERE state = ?1 "
				  "ORDER BY turn DESC, plan, number DESC";

	return list(r, sql, ARGS(INT_VALUE(state)), fn, ctx, err);
}

int registry_batch_take_turn(struct registry *r, const char *plan, uint32_t number, int64_t now_ms,
                             struct error *err)
{
	static const char last[] = "SELECT coalesce(max(turn), 0) FROM batch";
	static const char sql[] = "UPDATE batch SET turn = ?3 WHERE plan = ?1 AND number = ?2";
	int64_t turn = 0;
	int k = rows_number(r, last, NO_ARGS, &turn, err);

	if (k < 0)
		return k;
	/* After a clock that was set back it is the latest all the same. */
	turn = turn < now_ms ? now_ms : turn + 1;
	k = registry_write(r, sql, ARGS(TEXT_VALUE(plan), INT_VALUE(number), INT_VALUE(turn)), NULL,
	                   NULL, err);
	if (k == 0)
		return not_found(plan, number, err);
	return k < 0 ? k : 0;
}

int registry_batch_set_state(struct registry *r, const char *plan, uint32_t number,
                             enum batch_state to, struct error *err)
{
	static const char sql[] = "UPDATE batch SET state = ?3 WHERE plan = ?1 AND number = ?2";
	struct batch_row row;
	int k = registry_batch_get(r, plan, number, &row, err);

	if (k < 0)
		return k;
	if (!batch_state_allows(row.state, to))
		return error_set(err, -ATOLL_E_STATE,
		                 "batch %u of plan '%s' is %s and cannot become %s", number, plan,
		                 batch_state_name(row.state), batch_state_name(to));
	k = registry_write(r, sql, ARGS(TEXT_VALUE(plan), INT_VALUE(number), INT_VALUE(to)), NULL,
	                   NULL, err);
	return k < 0 ? k : 0;
}

int registry_batch_update(struct registry *r, const struct batch_row *row, struct error *err)
{
	static const char sql[] =
		"UPDATE batch SET flags = ?3, created_ms = ?4, retain_until_ms = ?5, "
		"released = ?6 WHERE plan = ?1 AND number = ?2";
	int k = registry_write(r, sql,
	                       ARGS(TEXT_VALUE(row->plan), INT_VALUE(row->number),
	                            INT_VALUE(row->flags), INT_VALUE(row->created_ms),
	                            INT_VALUE(row->retain_until_ms), INT_VALUE(row->released)),
	                       NULL, NULL, err);

	if (k == 0)
		return not_found(row->plan, row->number, err);
	return k < 0 ? k : 0;
}

int registry_part_put(struct registry *r, const struct part_row *row, struct error *err)
{
	static const char sql[] =
		"INSERT INTO part (plan, batch, sandbox, position, answer, manifest, irrevocable, "
		"changes) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) "
		"ON CONFLICT (plan, batch, sandbox) DO UPDATE SET position = excluded.position, "
		"answer = excluded.answer, manifest = excluded.manifest, "
		"irrevocable = excluded.irrevocable, changes = excluded.changes";
	int k = registry_write(r, sql,
	                       ARGS(TEXT_VALUE(row->plan), INT_VALUE(row->batch),
	                            TEXT_VALUE(row->sandbox), INT_VALUE(row->position),
	                            INT_VALUE(row->answer), TEXT_VALUE(row->manifest),
	                            INT_VALUE(row->irrevocable), INT_VALUE(row->changes)),
	                       NULL, NULL, err);

	return k < 0 ? k : 0;
}

static void read_part(struct cols *c, void *item)
{
	struct part_row *row = item;

	cols_text(c, row->plan, sizeof(row->plan));
	row->batch = cols_u32(c);
	cols_text(c, row->sandbox, sizeof(row->sandbox));
	row->position = cols_u32(c);
	row->answer = (enum part_answer)cols_int(c, 0, PART_ANSWER_END_ - 1);
	cols_text(c, row->manifest, sizeof(row->manifest));
	row->irrevocable = cols_bool(c);
	row->changes = cols_u64(c);
}

int registry_part_list(struct registry *r, const char *plan, uint32_t batch, registry_part_fn fn,
                       void *ctx, struct error *err)
{
	static const char sql[] =
		"SELECT plan, batch, sandbox, position, answer, manifest, irrevocable, changes "
		"FROM part WHERE plan = ?1 AND batch = ?2 ORDER BY position, sandbox";
	cleanup_rows struct rows rows = { .size = sizeof(struct part_row), .read = read_part };
	const struct part_row *parts;
	int k = rows_fetch(r, sql, ARGS(TEXT_VALUE(plan), INT_VALUE(batch)), &rows, err);

	parts = rows.items;
	for (size_t i = 0; k >= 0 && i < rows.n; i++)
		k = fn(ctx, &parts[i]);
	return k < 0 ? k : 0;
}
