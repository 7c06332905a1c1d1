/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions at remotes. */
#include "registry/session.h"

#include "registry/rows-impl.h"
#include "util/mem.h"
#include "util/random.h"

#include <stdlib.h>
#include <string.h>

#define COLUMNS                                                                         \
	"id, remote, root, branch, name, state, key, plan, sandbox, head, generation, " \
	"pull_plan, pull_run, pulled, created_ms, used_ms"

const char *session_state_name(enum session_state s)
{
	return s == SESSION_ACTIVE ? "active" : "creating";
}

void session_row_done(struct session_row *row)
{
	free(row->root);
	free(row->branch);
	*row = (struct session_row){ 0 };
}

void session_row_copy(struct session_row *to, const struct session_row *from)
{
	*to = *from;
	to->root = xstrdup(from->root);
	to->branch = xstrdup(from->branch);
}

static void read_session(struct cols *c, void *item)
{
	struct session_row *row = item;

	cols_text(c, row->id, sizeof(row->id));
	cols_text(c, row->remote, sizeof(row->remote));
	row->root = cols_dup(c);
	row->branch = cols_dup(c);
	cols_text(c, row->name, sizeof(row->name));
	row->state = (enum session_state)cols_int(c, 0, SESSION_STATE_END_ - 1);
	cols_text(c, row->key, sizeof(row->key));
	cols_text(c, row->plan, sizeof(row->plan));
	cols_text(c, row->sandbox, sizeof(row->sandbox));
	cols_text(c, row->head, sizeof(row->head));
	row->generation = cols_int(c, 0, INT64_MAX);
	cols_text(c, row->pull_plan, sizeof(row->pull_plan));
	cols_text(c, row->pull_run, sizeof(row->pull_run));
	cols_text(c, row->pulled, sizeof(row->pulled));
	row->created_ms = cols_int(c, INT64_MIN, INT64_MAX);
	row->used_ms = cols_int(c, INT64_MIN, INT64_MAX);
}

static void session_done(void *item)
{
	session_row_done(item);
}

static int find_one(struct registry *r, const char *sql, struct args args, struct session_row *ret,
                    struct error *err)
{
	cleanup_rows struct rows rows = { .size = sizeof(*ret),
		                          .read = read_session,
		                          .done = session_done };
	int k = rows_fetch(r, sql, args, &rows, err);

	if (k < 0 || rows.n == 0)
		return k < 0 ? k : 0;
	session_row_copy(ret, rows.items);
	return 1;
}

int registry_session_find(struct registry *r, const char *remote, const char *root,
                          const char *branch, struct session_row *ret, struct error *err)
{
	static const char sql[] = "SELECT " COLUMNS " FROM session "
				  "WHERE remote = ?1 AND root = ?2 AND branch = ?3";

	return find_one(r, sql, ARGS(TEXT_VALUE(remote), TEXT_VALUE(root), TEXT_VALUE(branch)), ret,
	                err);
}

int registry_session_get(struct registry *r, const char *id, struct session_row *ret,
                         struct error *err)
{
	static const char sql[] = "SELECT " COLUMNS " FROM session WHERE id = ?1";

	return find_one(r, sql, ARGS(TEXT_VALUE(id)), ret, err);
}

int registry_session_list(struct registry *r, const char *remote, const char *root,
                          registry_session_fn fn, void *ctx, struct error *err)
{
	static const char sql[] = "SELECT " COLUMNS " FROM session "
				  "WHERE (?1 = '' OR remote = ?1) AND (?2 = '' OR root = ?2) "
				  "ORDER BY seq";
	cleanup_rows struct rows rows = { .size = sizeof(struct session_row),
		                          .read = read_session,
		                          .done = session_done };
	int k = rows_fetch(r, sql, ARGS(TEXT_VALUE(remote), TEXT_VALUE(root)), &rows, err);

	for (size_t i = 0; k >= 0 && i < rows.n; i++)
		k = fn(ctx, (const struct session_row *)rows.items + i);
	return k < 0 ? k : 0;
}

int registry_session_insert(struct registry *r, struct session_row *row, struct error *err)
{
	static const char sql[] =
		"INSERT INTO session (" COLUMNS ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, "
		"?10, ?11, ?12, ?13, ?14, ?15, ?16) ON CONFLICT DO NOTHING";
	int k;

	random_hex(row->id, SESSION_ID_LEN);
	k = registry_write(r, sql,
	                   ARGS(TEXT_VALUE(row->id), TEXT_VALUE(row->remote), TEXT_VALUE(row->root),
	                        TEXT_VALUE(row->branch), TEXT_VALUE(row->name),
	                        INT_VALUE(row->state), TEXT_VALUE(row->key), TEXT_VALUE(row->plan),
	                        TEXT_VALUE(row->sandbox), TEXT_VALUE(row->head),
	                        INT_VALUE(row->generation), TEXT_VALUE(row->pull_plan),
	                        TEXT_VALUE(row->pull_run), TEXT_VALUE(row->pulled),
	                        INT_VALUE(row->created_ms), INT_VALUE(row->used_ms)),
	                   NULL, NULL, err);
	if (k == 0)
		return error_set(err, -ATOLL_E_EXISTS, "there is a session of '%s' at '%s'",
		                 row->root, row->remote);
	return k < 0 ? k : 0;
}

int registry_session_update(struct registry *r, const struct session_row *row, struct error *err)
{
	static const char sql[] =
		"UPDATE session SET state = ?2, key = ?3, plan = ?4, sandbox = ?5, head = ?6, "
		"generation = ?7, pull_plan = ?8, pull_run = ?9, pulled = ?10, used_ms = ?11, "
		"name = ?12 WHERE id = ?1";
	int k = registry_write(r, sql,
	                       ARGS(TEXT_VALUE(row->id), INT_VALUE(row->state),
	                            TEXT_VALUE(row->key), TEXT_VALUE(row->plan),
	                            TEXT_VALUE(row->sandbox), TEXT_VALUE(row->head),
	                            INT_VALUE(row->generation), TEXT_VALUE(row->pull_plan),
	                            TEXT_VALUE(row->pull_run), TEXT_VALUE(row->pulled),
	                            INT_VALUE(row->used_ms), TEXT_VALUE(row->name)),
	                       NULL, NULL, err);

	if (k == 0)
		return error_set(err, -ATOLL_E_NOT_FOUND, "session %s was stopped meanwhile",
		                 row->id);
	return k < 0 ? k : 0;
}

int registry_session_delete(struct registry *r, const char *id, struct error *err)
{
	static const char sql[] = "DELETE FROM session WHERE id = ?1";
	int k = registry_write(r, sql, ARGS(TEXT_VALUE(id)), NULL, NULL, err);

	return k < 0 ? k : 0;
}
