/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows from one database to another. A row that somebody else changed too is a conflict, also when
 * other columns of it were changed: two halves of a row that nobody wrote together make no sense.
 */
#include "strategy/sqlite-impl.h"

#include <stdlib.h>
#include <string.h>

#include "util/cleanup.h"
#include "util/limits.h"
#include "util/mem.h"

/* ---- a change of a changeset ---- */

struct op {
	sqlite3_changeset_iter *it;
	const char *table;
	int cols, kind; /* SQLITE_INSERT, ... */
	unsigned char *pk;
};

static int op_read(struct op *o, sqlite3_changeset_iter *it)
{
	int indirect, rc = sqlite3changeset_op(it, &o->table, &o->cols, &o->kind, &indirect);

	o->it = it;
	return rc == SQLITE_OK ? sqlite3changeset_pk(it, &o->pk, NULL) : rc;
}

static sqlite3_value *op_key(const struct op *o, int column)
{
	sqlite3_value *v = NULL;

	if (o->kind == SQLITE_INSERT)
		(void)sqlite3changeset_new(o->it, column, &v);
	else
		(void)sqlite3changeset_old(o->it, column, &v);
	return v;
}

/* users(3), or pairs('a', 7) */
static char *op_name(const struct op *o)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;
	const char *comma = "(";

	strbuf_puts(&sb, o->table);
	for (int i = 0; i < o->cols; i++) {
		sqlite3_value *v = o->pk[i] ? op_key(o, i) : NULL;
		const char *text = v ? (const char *)sqlite3_value_text(v) : NULL;
		bool quoted = v && sqlite3_value_type(v) == SQLITE_TEXT;

		if (!o->pk[i])
			continue;
		strbuf_printf(&sb, "%s%s%.64s%s", comma, quoted ? "'" : "", text ? text : "NULL",
		              quoted ? "'" : "");
		comma = ", ";
	}
	strbuf_putc(&sb, ')');
	return strbuf_take(&sb);
}

static void note(struct atoll_participant *p, const struct op *o, const char *why,
                 size_t *conflicts)
{
	cleanup_free char *name = op_name(o);

	if ((*conflicts)++ < LIMIT_CONFLICTS)
		atoll_participant_note(p, ATOLL_NOTE_CONFLICT, name, why);
}

/* ---- applying ---- */

struct applying {
	struct atoll_participant *p;
	bool judged;      /* every row was looked at before: what does not fit is to be left */
	size_t conflicts; /* rows that do not fit */
	char *constraint; /* judged: the first row that a constraint keeps out */
};

static int on_conflict(void *ctx, int what, sqlite3_changeset_iter *it)
{
	static const char *const reasons[] = {
		[SQLITE_CHANGESET_DATA] = "changed by somebody else",
		[SQLITE_CHANGESET_NOTFOUND] = "deleted by somebody else",
		[SQLITE_CHANGESET_CONFLICT] = "added by somebody else",
		[SQLITE_CHANGESET_CONSTRAINT] = "against a constraint of what is there now",
	};
	struct applying *a = ctx;
	struct op o;

	/* Foreign keys are off: what they say is asked in the end. */
	if (what == SQLITE_CHANGESET_FOREIGN_KEY || op_read(&o, it) != SQLITE_OK)
		return SQLITE_CHANGESET_OMIT;
	if (!a->judged)
		note(a->p, &o, reasons[what], &a->conflicts);
	else if (what == SQLITE_CHANGESET_CONSTRAINT && !a->constraint)
		a->constraint = op_name(&o);
	return SQLITE_CHANGESET_OMIT;
}

/* SQLite passes over tables that do not fit. */
static int check_tables(struct atoll_participant *p, sqlite3 *db, const void *changeset, int len,
                        size_t *conflicts)
{
	cleanup_sqldb_tables struct sqldb_tables tables = SQLDB_TABLES_INIT;
	sqlite3_changeset_iter *it = NULL;
	int rc = sqlite3changeset_start(&it, len, (void *)(uintptr_t)changeset);
	int r = rc == SQLITE_OK ? sqldb_tables_read(p, db, "main", &tables) : 0;

	while (rc == SQLITE_OK && r >= 0 && sqlite3changeset_next(it) == SQLITE_ROW) {
		const struct sqldb_table *t;
		struct op o;
		bool fits;

		rc = op_read(&o, it);
		if (rc != SQLITE_OK)
			break;
		t = sqldb_tables_find(&tables, o.table);
		fits = t && !t->is_virtual && t->n_cols >= (size_t)o.cols && t->n_pk;
		for (size_t i = 0; fits && i < t->n_pk; i++)
			fits = t->pk_at[i] < o.cols && o.pk[t->pk_at[i]];
		if (!fits)
			note(p, &o, "its table was altered by somebody else", conflicts);
	}
	if (it) {
		int end = sqlite3changeset_finalize(it);

		rc = rc == SQLITE_OK ? end : rc;
	}
	return r < 0 || rc == SQLITE_OK ? r : sqldb_fail(p, db, rc, "read a changeset for");
}

static int apply(struct applying *a, sqlite3 *db, const void *changeset, int len)
{
	int rc = len ? sqlite3changeset_apply(db, len, (void *)(uintptr_t)changeset, NULL,
	                                      on_conflict, a)
	             : SQLITE_OK;

	return rc == SQLITE_OK ? 0 : sqldb_fail(a->p, db, rc, "write");
}

int sqldb_rows_apply(struct atoll_participant *p, sqlite3 *db, const void *changeset, int len,
                     size_t *omit)
{
	struct applying a = { .p = p };
	int r = check_tables(p, db, changeset, len, &a.conflicts);

	if (r >= 0 && !a.conflicts)
		r = apply(&a, db, changeset, len);
	if (omit)
		*omit = a.conflicts;
	return r < 0 || omit ? r : sqldb_conflict(p, a.conflicts);
}

/* ---- recording ---- */

static int is_recorded(void *ctx, const char *table)
{
	(void)ctx;
	return strcmp(table, SQLDB_MARKER) != 0;
}

int sqldb_record_begin(struct atoll_participant *p, sqlite3 *db, sqlite3_session **ret)
{
	int rc = sqlite3session_create(db, "main", ret);

	if (rc == SQLITE_OK) {
		sqlite3session_table_filter(*ret, is_recorded, NULL);
		rc = sqlite3session_attach(*ret, NULL);
	}
	return rc == SQLITE_OK ? 0 : sqldb_fail(p, db, rc, "record changes of");
}

int sqldb_record_end(struct atoll_participant *p, sqlite3 *db, sqlite3_session *session,
                     void **ret_changeset, int *ret_len)
{
	int rc = sqlite3session_changeset(session, ret_len, ret_changeset);

	return rc == SQLITE_OK ? 0 : sqldb_fail(p, db, rc, "record changes of");
}

/* ---- merging ---- */

/* A row as it is to be in the end, whatever the changeset makes of it. */
struct forced {
	const struct sqldb_table *table;
	sqlite3_value **key; /* n_pk of them */
	sqlite3_value **row; /* n_cols of them; NULL: there is to be none */
};

enum side { BASE, WORK, LIVE, SIDES };

struct merge {
	struct atoll_participant *p;
	sqlite3 *work, *live;
	const struct sqldb_delta *d;
	const struct sqldb_table *table; /* that the statements are for */
	sqlite3_stmt *find[SIDES];
	bool found[SIDES];
	struct forced *v;
	size_t n, cap;
	size_t conflicts;
};

static void free_values(sqlite3_value **v, size_t n)
{
	for (size_t i = 0; v && i < n; i++)
		sqlite3_value_free(v[i]);
	free(v);
}

static void forget_statements(struct merge *m)
{
	for (int i = 0; i < SIDES; i++) {
		(void)sqlite3_finalize(m->find[i]);
		m->find[i] = NULL;
	}
}

static void merge_done(struct merge *m)
{
	forget_statements(m);
	for (size_t i = 0; i < m->n; i++) {
		free_values(m->v[i].key, m->v[i].table->n_pk);
		free_values(m->v[i].row, m->v[i].table->n_cols);
	}
	free(m->v);
}
#define cleanup_merge __attribute__((__cleanup__(merge_done)))

static int use_table(struct merge *m, const char *name)
{
	static const char *const schemas[] = { SQLDB_BASE, "main", "main" };
	int r = 0;

	if (m->table && strcmp(m->table->name, name) == 0)
		return 0;
	forget_statements(m);
	m->table = sqldb_tables_find(&m->d->work, name);
	for (int i = 0; i < SIDES && r >= 0; i++)
		r = sqldb_prepare(m->p, i == LIVE ? m->live : m->work, &m->find[i],
		                  "SELECT %s FROM %s.\"%w\" WHERE %s", m->table->columns,
		                  schemas[i], name, m->table->match);
	return r;
}

static int look_up(struct merge *m, const struct op *o)
{
	int r = 0;

	for (int i = 0; i < SIDES && r >= 0; i++) {
		(void)sqlite3_reset(m->find[i]);
		for (size_t k = 0; k < m->table->n_pk; k++)
			(void)sqlite3_bind_value(m->find[i], (int)k + 1,
			                         op_key(o, m->table->pk_at[k]));
		r = sqldb_step(m->p, m->find[i]);
		m->found[i] = r == 1;
	}
	return r;
}

static bool same_value(sqlite3_stmt *a, sqlite3_stmt *b, int column)
{
	int type = sqlite3_column_type(a, column);

	if (type != sqlite3_column_type(b, column))
		return false;
	if (type == SQLITE_NULL)
		return true;
	if (type == SQLITE_INTEGER)
		return sqlite3_column_int64(a, column) == sqlite3_column_int64(b, column);
	if (type == SQLITE_FLOAT) {
		double x = sqlite3_column_double(a, column), y = sqlite3_column_double(b, column);

		return memcmp(&x, &y, sizeof(x)) == 0;
	}
	return sqlite3_column_bytes(a, column) == sqlite3_column_bytes(b, column) &&
	       memcmp(sqlite3_column_blob(a, column), sqlite3_column_blob(b, column),
	              (size_t)sqlite3_column_bytes(a, column)) == 0;
}

static bool same_row(const struct merge *m, enum side a, enum side b)
{
	if (!m->found[a] || !m->found[b])
		return m->found[a] == m->found[b];
	for (size_t i = 0; i < m->table->n_cols; i++)
		if (!same_value(m->find[a], m->find[b], (int)i))
			return false;
	return true;
}

static void force(struct merge *m, const struct op *o, enum side to)
{
	struct forced *f;

	if (grow((void **)&m->v, &m->cap, m->n + 1, sizeof(*m->v)) < 0)
		BUG("no memory");
	f = &m->v[m->n++];
	*f = (struct forced){ .table = m->table,
		              .key = xcalloc(m->table->n_pk, sizeof(sqlite3_value *)) };
	for (size_t i = 0; i < m->table->n_pk; i++)
		f->key[i] = sqlite3_value_dup(op_key(o, m->table->pk_at[i]));
	if (!m->found[to])
		return;
	f->row = xcalloc(m->table->n_cols, sizeof(sqlite3_value *));
	for (size_t i = 0; i < m->table->n_cols; i++)
		f->row[i] = sqlite3_value_dup(sqlite3_column_value(m->find[to], (int)i));
}

/* As the caller settled it: the nearest path counts. */
static int settled(const struct merge *m, const char *table)
{
	const struct selection *s = m->p->batch.select;
	const char *ours = s ? selection_cover(&s->ours, table) : NULL;
	const char *theirs = s ? selection_cover(&s->theirs, table) : NULL;

	if (ours && (!theirs || strlen(ours) >= strlen(theirs)))
		return WORK;
	return theirs ? LIVE : SIDES;
}

static int judge(struct merge *m, const struct op *o)
{
	int to, r = use_table(m, o->table);

	if (r >= 0)
		r = look_up(m, o);
	if (r < 0 || same_row(m, LIVE, BASE) || same_row(m, LIVE, WORK))
		return r < 0 ? r : 0;
	to = settled(m, o->table);
	if (to != SIDES)
		force(m, o, (enum side)to);
	else
		note(m->p, o,
		     !m->found[LIVE]   ? "deleted by somebody else and changed in the plan"
		     : !m->found[BASE] ? "added by somebody else and in the plan"
		                       : "changed by somebody else and in the plan",
		     &m->conflicts);
	return 0;
}

static int judge_all(struct merge *m)
{
	sqlite3_changeset_iter *it = NULL;
	int rc = sqlite3changeset_start(&it, m->d->changeset_len, m->d->changeset), r = 0;

	while (rc == SQLITE_OK && r >= 0 && sqlite3changeset_next(it) == SQLITE_ROW) {
		struct op o;

		rc = op_read(&o, it);
		if (rc == SQLITE_OK)
			r = judge(m, &o);
	}
	if (it) {
		int end = sqlite3changeset_finalize(it);

		rc = rc == SQLITE_OK ? end : rc;
	}
	return r < 0 || rc == SQLITE_OK ? r : sqldb_fail(m->p, m->work, rc, "compare");
}

static int check_altered(struct merge *m)
{
	cleanup_sqldb_tables struct sqldb_tables live = SQLDB_TABLES_INIT;
	int r = sqldb_tables_read(m->p, m->live, "main", &live);

	for (size_t i = 0; i < m->d->n && r >= 0; i++) {
		const struct sqldb_entry *e = &m->d->v[i];
		const struct sqldb_table *was = sqldb_tables_find(&m->d->base, e->name);
		const struct sqldb_table *is = sqldb_tables_find(&live, e->name);

		if (is && strcmp(is->sql, was->sql) == 0)
			continue;
		m->conflicts++;
		atoll_participant_note(m->p, ATOLL_NOTE_CONFLICT, e->name,
		                       is ? "the table was altered by somebody else"
		                          : "the table was dropped by somebody else");
	}
	return r;
}

static int force_row(struct merge *m, const struct forced *f)
{
	cleanup_strbuf struct strbuf marks = STRBUF_INIT;
	cleanup_stmt sqlite3_stmt *del = NULL, *ins = NULL;
	int r = sqldb_prepare(m->p, m->live, &del, "DELETE FROM main.\"%w\" WHERE %s",
	                      f->table->name, f->table->match);

	for (size_t i = 0; r >= 0 && i < f->table->n_pk; i++)
		(void)sqlite3_bind_value(del, (int)i + 1, f->key[i]);
	if (r >= 0)
		r = sqldb_step(m->p, del);
	if (r < 0 || !f->row)
		return r;
	for (size_t i = 0; i < f->table->n_cols; i++)
		strbuf_puts(&marks, i ? ",?" : "?");
	r = sqldb_prepare(m->p, m->live, &ins, "INSERT INTO main.\"%w\"(%s) VALUES(%s)",
	                  f->table->name, f->table->columns, strbuf_str(&marks));
	for (size_t i = 0; r >= 0 && i < f->table->n_cols; i++)
		(void)sqlite3_bind_value(ins, (int)i + 1, f->row[i]);
	return r < 0 ? r : sqldb_step(m->p, ins);
}

/* How many rows point nowhere; 0 also where that cannot be asked. */
static int64_t dangling(sqlite3 *db)
{
	cleanup_stmt sqlite3_stmt *stmt = NULL;

	if (sqlite3_prepare_v2(
		    db,
		    "SELECT count(*) FROM pragma_foreign_key_check WHERE EXISTS (SELECT 1 "
		    "FROM main.sqlite_schema m, pragma_foreign_key_list(m.name) WHERE "
		    "m.type='table')",
		    -1, &stmt, NULL) != SQLITE_OK ||
	    sqlite3_step(stmt) != SQLITE_ROW)
		return 0;
	return sqlite3_column_int64(stmt, 0);
}

static int check_keys(struct merge *m)
{
	int64_t now = dangling(m->live);

	if (now == 0 || now <= dangling(m->work))
		return 0;
	atoll_participant_note(m->p, ATOLL_NOTE_CONFLICT, "",
	                       "rows of the plan and of somebody else break a foreign key");
	return sqldb_conflict(m->p, 1);
}

static int carry_over(struct merge *m, bool *ret_try_whole)
{
	struct applying a = { .p = m->p, .judged = true };
	int r = apply(&a, m->live, m->d->changeset, m->d->changeset_len);

	for (size_t i = 0; i < m->n && r >= 0; i++)
		r = force_row(m, &m->v[i]);
	*ret_try_whole = r >= 0 && a.constraint;
	if (*ret_try_whole)
		r = error_set(&m->p->err, -ATOLL_E_CONFLICT,
		              "row %s breaks a constraint of what is there now", a.constraint);
	free(a.constraint);
	return r < 0 ? r : check_keys(m);
}

int sqldb_rows_merge(struct atoll_participant *p, sqlite3 *work, sqlite3 *live,
                     const struct sqldb_delta *d, void **ret_changeset, int *ret_len,
                     bool *ret_try_whole)
{
	cleanup_merge struct merge m = { .p = p, .work = work, .live = live, .d = d };
	sqlite3_session *session = NULL;
	int r = check_altered(&m);

	*ret_try_whole = false;
	if (r >= 0 && !m.conflicts)
		r = judge_all(&m);
	if (r >= 0)
		r = sqldb_conflict(p, m.conflicts);
	forget_statements(&m);
	if (r >= 0)
		r = sqldb_record_begin(p, live, &session);
	if (r >= 0)
		r = carry_over(&m, ret_try_whole);
	if (r >= 0)
		r = sqldb_record_end(p, live, session, ret_changeset, ret_len);
	if (session)
		sqlite3session_delete(session);
	return r;
}
