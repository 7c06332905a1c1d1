/* SPDX-License-Identifier: Apache-2.0 */
/* Requests by their sender's key. */
#include "registry/request.h"

#include "lock/range.h"
#include "registry/rows-impl.h"
#include "util/cleanup.h"
#include "util/hash.h"
#include "util/mem.h"

#include <limits.h>
#include <string.h>

#define HELD_FILE "requests"

static void read_request(struct cols *c, void *item)
{
	struct request_row *row = item;

	cols_text(c, row->sender, sizeof(row->sender));
	cols_text(c, row->key, sizeof(row->key));
	row->kind = (enum request_kind)cols_int(c, 0, REQUEST_KIND_END_ - 1);
	cols_text(c, row->digest, sizeof(row->digest));
	cols_text(c, row->plan, sizeof(row->plan));
	cols_text(c, row->name, sizeof(row->name));
	row->made = cols_bool(c);
	row->created_ms = cols_int(c, INT64_MIN, INT64_MAX);
}

int registry_request_hold(struct registry *r, const char *sender, const char *key)
{
	cleanup_free char *who = xasprintf("%s %s", sender, key);

	return range_try(registry_locks_fd(r), HELD_FILE, hash64(who, strlen(who)));
}

int registry_request_get(struct registry *r, const char *sender, const char *key,
                         struct request_row *ret, struct error *err)
{
	static const char sql[] = "SELECT sender, key, kind, digest, plan, name, made, created_ms "
				  "FROM request WHERE sender = ?1 AND key = ?2";
	cleanup_rows struct rows rows = { .size = sizeof(*ret), .read = read_request };
	int k = rows_fetch(r, sql, ARGS(TEXT_VALUE(sender), TEXT_VALUE(key)), &rows, err);

	if (k < 0 || rows.n == 0)
		return k < 0 ? k : 0;
	*ret = *(const struct request_row *)rows.items;
	return 1;
}

static int expire(struct registry *r, int64_t before_ms, struct error *err)
{
	static const char sql[] = "DELETE FROM request WHERE created_ms < ?1";

	return registry_write(r, sql, ARGS(INT_VALUE(before_ms)), NULL, NULL, err);
}

int registry_request_insert(struct registry *r, const struct request_row *row, struct error *err)
{
	static const char sql[] =
		"INSERT INTO request (sender, key, kind, digest, plan, name, made, created_ms) "
		"VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO NOTHING";
	int k = expire(r, row->created_ms - REQUEST_KEPT_MS, err);

	if (k >= 0)
		k = registry_write(r, sql,
		                   ARGS(TEXT_VALUE(row->sender), TEXT_VALUE(row->key),
		                        INT_VALUE(row->kind), TEXT_VALUE(row->digest),
		                        TEXT_VALUE(row->plan), TEXT_VALUE(row->name),
		                        INT_VALUE(row->made), INT_VALUE(row->created_ms)),
		                   NULL, NULL, err);
	if (k == 0)
		return error_set(err, -ATOLL_E_EXISTS, "the key of the request was used before");
	return k < 0 ? k : 0;
}

int registry_request_plan_made(struct registry *r, const char *plan, struct error *err)
{
	static const char sql[] = "UPDATE request SET made = 1 WHERE plan = ?1 AND kind = ?2";
	int k = registry_write(r, sql, ARGS(TEXT_VALUE(plan), INT_VALUE(REQUEST_PLAN)), NULL, NULL,
	                       err);

	return k < 0 ? k : 0;
}

int registry_request_update(struct registry *r, const struct request_row *row, struct error *err)
{
	static const char sql[] = "UPDATE request SET plan = ?3, name = ?4, made = ?5 "
				  "WHERE sender = ?1 AND key = ?2";
	int k = registry_write(r, sql,
	                       ARGS(TEXT_VALUE(row->sender), TEXT_VALUE(row->key),
	                            TEXT_VALUE(row->plan), TEXT_VALUE(row->name),
	                            INT_VALUE(row->made)),
	                       NULL, NULL, err);

	return k < 0 ? k : 0;
}

int registry_request_delete(struct registry *r, const char *sender, const char *key,
                            struct error *err)
{
	static const char sql[] = "DELETE FROM request WHERE sender = ?1 AND key = ?2";
	int k = registry_write(r, sql, ARGS(TEXT_VALUE(sender), TEXT_VALUE(key)), NULL, NULL, err);

	return k < 0 ? k : 0;
}
