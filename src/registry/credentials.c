/* SPDX-License-Identifier: Apache-2.0 */
#include "registry/credential.h"

#include "registry/rows-impl.h"
#include "util/random.h"

#include <string.h>

#define COLUMNS                                                                            \
	"id, kind, scope, name, coalesce(plan, ''), parent, sha256, request, created_ms, " \
	"expires_ms, expires_boot_ns, boot, revoked_ms, used_ms"

const char *scope_name(enum scope s)
{
	static const char *const names[SCOPE_END_] = {
		[SCOPE_ADMIN] = "admin",
		[SCOPE_AGENT] = "agent",
		[SCOPE_REVIEW] = "review",
	};

	return (unsigned)s < SCOPE_END_ ? names[s] : "unknown";
}

const char *credential_kind_name(enum credential_kind k)
{
	return k == CREDENTIAL_KEY ? "key" : "token";
}

static void read_credential(struct cols *c, void *item)
{
	struct credential_row *row = item;

	cols_text(c, row->id, sizeof(row->id));
	row->kind = (enum credential_kind)cols_int(c, 0, CREDENTIAL_KIND_END_ - 1);
	row->scope = (enum scope)cols_int(c, 0, SCOPE_END_ - 1);
	cols_text(c, row->name, sizeof(row->name));
	cols_text(c, row->plan, sizeof(row->plan));
	cols_text(c, row->parent, sizeof(row->parent));
	cols_text(c, row->sha256, sizeof(row->sha256));
	cols_text(c, row->request, sizeof(row->request));
	row->created_ms = cols_int(c, INT64_MIN, INT64_MAX);
	row->expires_ms = cols_int(c, 0, INT64_MAX);
	row->expires_boot_ns = cols_int(c, 0, INT64_MAX);
	cols_text(c, row->boot, sizeof(row->boot));
	row->revoked_ms = cols_int(c, 0, INT64_MAX);
	row->used_ms = cols_int(c, 0, INT64_MAX);
}

struct found {
	struct credential_row row;
	int n;
};

static int found_row(void *ctx, const struct value *v, size_t count)
{
	struct cols c = { .v = v, .n = count };
	struct found *found = ctx;

	read_credential(&c, &found->row);
	found->n = 1;
	return c.code;
}

static int find_one(struct registry *r, const char *sql, const char *key,
                    struct credential_row *ret, struct error *err)
{
	struct found found = { 0 };
	int k = registry_read(r, sql, ARGS(TEXT_VALUE(key)), found_row, &found, err);

	if (k < 0)
		return k;
	if (found.n > 0)
		*ret = found.row;
	return found.n;
}

int registry_credential_by_digest(struct registry *r, const char *sha256,
                                  struct credential_row *ret, struct error *err)
{
	static const char sql[] = "SELECT " COLUMNS " FROM credential WHERE sha256 = ?1";

	return find_one(r, sql, sha256, ret, err);
}

int registry_credential_by_request(struct registry *r, const char *request,
                                   struct credential_row *ret, struct error *err)
{
	static const char sql[] = "SELECT " COLUMNS " FROM credential WHERE request = ?1 "
				  "AND request <> '' AND revoked_ms = 0 "
				  "ORDER BY created_ms DESC LIMIT 1";

	return find_one(r, sql, request, ret, err);
}

int registry_credential_named(struct registry *r, const char *ref, struct credential_row *ret,
                              struct error *err)
{
	static const char sql[] = "SELECT " COLUMNS " FROM credential WHERE id = ?1 "
				  "OR (name = ?1 AND kind = 0 AND revoked_ms = 0) "
				  "ORDER BY name = ?1 AND kind = 0 AND revoked_ms = 0 DESC LIMIT 1";

	return find_one(r, sql, ref, ret, err);
}

int registry_credential_insert(struct registry *r, struct credential_row *row, struct error *err)
{
	static const char sql[] =
		"INSERT INTO credential (id, kind, scope, name, plan, parent, sha256, request, "
		"created_ms, expires_ms, expires_boot_ns, boot, revoked_ms, used_ms) VALUES (?1, "
		"?2, ?3, ?4, nullif(?5, ''), ?6, ?7, ?8, ?9, ?10, ?11, ?12, 0, 0) "
		"ON CONFLICT DO NOTHING";
	int k;

	random_hex(row->id, CREDENTIAL_ID_LEN);
	k = registry_write(r, sql,
	                   ARGS(TEXT_VALUE(row->id), INT_VALUE(row->kind), INT_VALUE(row->scope),
	                        TEXT_VALUE(row->name), TEXT_VALUE(row->plan),
	                        TEXT_VALUE(row->parent), TEXT_VALUE(row->sha256),
	                        TEXT_VALUE(row->request), INT_VALUE(row->created_ms),
	                        INT_VALUE(row->expires_ms), INT_VALUE(row->expires_boot_ns),
	                        TEXT_VALUE(row->boot)),
	                   NULL, NULL, err);
	if (k != 0)
		return k < 0 ? k : 0;
	k = error_set(err, -ATOLL_E_EXISTS, "there is a key '%s' already", row->name);
	error_hint(err, "choose another name, or atoll token revoke %s", row->name);
	return k;
}

int registry_credential_list(struct registry *r, registry_credential_fn fn, void *ctx,
                             struct error *err)
{
	static const char sql[] = "SELECT " COLUMNS " FROM credential "
				  "ORDER BY kind, created_ms, id";
	cleanup_rows struct rows rows = { .size = sizeof(struct credential_row),
		                          .read = read_credential };
	const struct credential_row *items;
	int k = rows_fetch(r, sql, NO_ARGS, &rows, err);

	items = rows.items;
	for (size_t i = 0; k >= 0 && i < rows.n; i++)
		k = fn(ctx, &items[i]);
	return k < 0 ? k : 0;
}

int registry_credential_revoke(struct registry *r, const char *id, int64_t now_ms,
                               struct error *err)
{
	static const char sql[] = "UPDATE credential SET revoked_ms = ?2 "
				  "WHERE (id = ?1 OR parent = ?1) AND revoked_ms = 0";

	return registry_write(r, sql, ARGS(TEXT_VALUE(id), INT_VALUE(now_ms)), NULL, NULL, err);
}

int registry_credential_revoke_plan(struct registry *r, const char *plan, int64_t now_ms,
                                    struct error *err)
{
	static const char sql[] = "UPDATE credential SET revoked_ms = ?2 "
				  "WHERE plan = ?1 AND revoked_ms = 0";

	return registry_write(r, sql, ARGS(TEXT_VALUE(plan), INT_VALUE(now_ms)), NULL, NULL, err);
}

int registry_credential_used(struct registry *r, const char *id, int64_t used_ms, struct error *err)
{
	static const char sql[] = "UPDATE credential SET used_ms = ?2 "
				  "WHERE id = ?1 AND used_ms < ?2";
	int k = registry_write(r, sql, ARGS(TEXT_VALUE(id), INT_VALUE(used_ms)), NULL, NULL, err);

	return k < 0 ? k : 0;
}

int registry_credential_prune(struct registry *r, int64_t before_ms, struct error *err)
{
	static const char sql[] = "DELETE FROM credential WHERE kind = 1 AND expires_ms < ?1";
	int k = registry_write(r, sql, ARGS(INT_VALUE(before_ms)), NULL, NULL, err);

	return k < 0 ? k : 0;
}

int registry_credential_count(struct registry *r, const char *plan, int64_t now_ms, int64_t *ret,
                              struct error *err)
{
	static const char sql[] = "SELECT count(*) FROM credential WHERE plan = ?1 "
				  "AND revoked_ms = 0 AND expires_ms > ?2";
	int k = rows_number(r, sql, ARGS(TEXT_VALUE(plan), INT_VALUE(now_ms)), ret, err);

	return k < 0 ? k : 0;
}

int registry_plan_set_starter(struct registry *r, const char *plan, const char *key,
                              struct error *err)
{
	static const char sql[] = "UPDATE plan SET starter = ?2 WHERE id = ?1 AND starter = ''";
	int k = registry_write(r, sql, ARGS(TEXT_VALUE(plan), TEXT_VALUE(key)), NULL, NULL, err);

	return k < 0 ? k : 0;
}

int registry_plan_started_by(struct registry *r, const char *plan, const char *key,
                             struct error *err)
{
	static const char sql[] = "SELECT 1 FROM plan WHERE id = ?1 AND starter = ?2";
	int64_t one;

	return rows_number(r, sql, ARGS(TEXT_VALUE(plan), TEXT_VALUE(key)), &one, err);
}
