/* SPDX-License-Identifier: Apache-2.0 */
#include "auth/credential.h"

#include "util/clock.h"
#include "util/suggest.h"

#include <stdio.h>
#include <string.h>

#define SECOND_MS INT64_C(1000)
#define MS_NS     INT64_C(1000000)
/* How exactly the time of the last use is known: enough to find keys that nobody needs. */
#define USE_STEP_MS (INT64_C(10) * 60 * SECOND_MS)
/* How long a token that is over is kept: what it began may still run, and can be revoked. */
#define KEEP_MS (INT64_C(24) * 3600 * SECOND_MS)

int scope_parse(const char *name, enum scope *ret, struct error *err)
{
	struct suggestions s = { .wanted = name };

	for (int i = 0; i < SCOPE_END_; i++) {
		const char *known = scope_name((enum scope)i);

		if (strcmp(known, name) == 0) {
			*ret = (enum scope)i;
			return 0;
		}
		suggest_try(&s, known, strlen(known));
	}
	(void)error_set(err, -ATOLL_E_INVALID,
	                "there is no such scope; it is admin, agent or review");
	suggest_hint(&s, "", err);
	return -ATOLL_E_INVALID;
}

/* ---- time ---- */

static void set_life(struct credential_row *row, int64_t life_ms)
{
	row->created_ms = clock_real_ms();
	(void)snprintf(row->boot, sizeof(row->boot), "%s", clock_boot_id());
	if (life_ms == 0)
		return;
	row->expires_ms = row->created_ms + life_ms;
	row->expires_boot_ns = clock_boot_ns() + life_ms * MS_NS;
}

static int64_t min64(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

int64_t credential_left_ms(const struct credential_row *row)
{
	bool this_boot = strcmp(row->boot, clock_boot_id()) == 0;
	int64_t now = clock_real_ms(), left;

	if (row->revoked_ms != 0 || (row->kind == CREDENTIAL_TOKEN && !this_boot))
		return 0;
	if (row->expires_ms == 0)
		return INT64_MAX;
	/* A clock that is before its making, in another boot, tells nothing. */
	if (!this_boot && now < row->created_ms)
		return 0;
	left = row->expires_ms - now;
	if (this_boot)
		left = min64(left, (row->expires_boot_ns - clock_boot_ns()) / MS_NS);
	return left > 0 ? left : 0;
}

int64_t credential_left_s(const struct credential_row *row)
{
	int64_t left = credential_left_ms(row);

	return left == INT64_MAX ? left : (left + SECOND_MS - 1) / SECOND_MS;
}

/* ---- making ---- */

struct making {
	struct credential_row row;
	const struct credential_row *parent;
};

/* The same request once more, and nobody knows the secret any more: the other one must go. */
static int revoke_former(struct registry *reg, const char *request, struct error *err)
{
	struct credential_row former;
	int r = *request ? registry_credential_by_request(reg, request, &former, err) : 0;

	return r <= 0 ? r : registry_credential_revoke(reg, former.id, clock_real_ms(), err);
}

static int write_new(struct registry *reg, void *ctx, struct error *err)
{
	struct making *m = ctx;
	int r = revoke_former(reg, m->row.request, err);

	return r < 0 ? r : registry_credential_insert(reg, &m->row, err);
}

/* Inside the transaction: a key that is revoked meanwhile makes no token, and a plan that is stopped
 * has none. */
static int check_token(struct registry *reg, const struct making *m, struct error *err)
{
	struct credential_row parent;
	struct plan_row plan;
	int64_t n = 0;
	int r = registry_plan_get(reg, m->row.plan, &plan, err);

	if (r < 0)
		return r;
	if (m->parent) {
		r = registry_credential_by_digest(reg, m->parent->sha256, &parent, err);
		if (r < 0)
			return r;
		if (r == 0 || credential_left_ms(&parent) == 0)
			return error_set(err, -ATOLL_E_DENIED,
			                 "the credential is not in force any more");
	}
	r = registry_credential_prune(reg, clock_real_ms() - KEEP_MS, err);
	if (r == 0)
		r = registry_credential_count(reg, m->row.plan, clock_real_ms(), &n, err);
	if (r < 0 || n < CREDENTIAL_TOKENS_MAX)
		return r;
	(void)error_set(err, -ATOLL_E_POLICY, "plan '%s' has %d tokens, which is the most",
	                plan.name, CREDENTIAL_TOKENS_MAX);
	error_hint(err, "keep a token as long as it lives, or revoke them all");
	return -ATOLL_E_POLICY;
}

static int write_token(struct registry *reg, void *ctx, struct error *err)
{
	int r = check_token(reg, ctx, err);

	return r < 0 ? r : write_new(reg, ctx, err);
}

static int make(struct atoll *a, struct making *m, int64_t life_ms, store_write_fn write,
                struct secret *ret_secret, struct error *err)
{
	cleanup_secret struct secret secret = SECRET_INIT;
	int r = secret_make(&secret, m->row.kind, m->row.sha256, err);

	if (r < 0)
		return r;
	set_life(&m->row, life_ms);
	r = store_write(a, REGISTRY_DURABLE, write, m, err);
	if (r < 0)
		return error_prefix(err, r, "no %s was made", credential_kind_name(m->row.kind));
	*ret_secret = secret;
	return 0;
}

int credential_new_key(struct atoll *a, const struct key_wish *wish, struct secret *ret_secret,
                       struct credential_row *ret_row, struct error *err)
{
	struct making m = { .row = { .kind = CREDENTIAL_KEY, .scope = wish->scope } };
	int r;

	if (!plan_name_valid(wish->name)) {
		(void)error_set(err, -ATOLL_E_INVALID, "a key cannot be called '%s'", wish->name);
		error_hint(err, "a name is made of letters, digits, '.', '_' and '-'");
		return -ATOLL_E_INVALID;
	}
	if (wish->life_s < 0 || wish->life_s > CREDENTIAL_KEY_LIFE_MAX_S)
		return error_set(err, -ATOLL_E_INVALID, "a key lives for ten years at most");
	(void)snprintf(m.row.name, sizeof(m.row.name), "%s", wish->name);
	(void)snprintf(m.row.request, sizeof(m.row.request), "%s", wish->request);
	r = make(a, &m, wish->life_s * SECOND_MS, write_new, ret_secret, err);
	if (r == 0)
		*ret_row = m.row;
	return r;
}

int credential_new_token(struct atoll *a, const struct token_wish *wish, struct secret *ret_secret,
                         struct credential_row *ret_row, struct error *err)
{
	struct making m = { .row = { .kind = CREDENTIAL_TOKEN, .scope = wish->scope },
		            .parent = wish->parent };
	int64_t life_ms = wish->life_s * SECOND_MS;
	int r;

	if (wish->life_s < CREDENTIAL_TOKEN_LIFE_MIN_S ||
	    wish->life_s > CREDENTIAL_TOKEN_LIFE_MAX_S)
		return error_set(err, -ATOLL_E_INVALID, "a token lives from %d to %d seconds",
		                 CREDENTIAL_TOKEN_LIFE_MIN_S, CREDENTIAL_TOKEN_LIFE_MAX_S);
	if (wish->parent) {
		life_ms = min64(life_ms, credential_left_ms(wish->parent));
		(void)snprintf(m.row.parent, sizeof(m.row.parent), "%s", wish->parent->id);
	}
	if (life_ms == 0)
		return error_set(err, -ATOLL_E_DENIED, "the credential is not in force any more");
	(void)snprintf(m.row.name, sizeof(m.row.name), "%s", wish->name);
	(void)snprintf(m.row.plan, sizeof(m.row.plan), "%s", wish->plan);
	(void)snprintf(m.row.request, sizeof(m.row.request), "%s", wish->request);
	r = make(a, &m, life_ms, write_token, ret_secret, err);
	if (r == 0)
		*ret_row = m.row;
	return r;
}

/* ---- finding ---- */

int credential_find(struct atoll *a, const char *text, size_t len, struct credential_row *ret,
                    struct error *err)
{
	struct credential_row row;
	char sha256[SHA256_TEXT_LEN];
	int kind = secret_kind(text, len);
	int r;

	ret->id[0] = '\0';
	if (kind < 0)
		return 0;
	r = secret_digest(text, len, sha256, err);
	if (r == 0)
		r = registry_credential_by_digest(a->reg, sha256, &row, err);
	if (r <= 0)
		return r;
	/* The index has compared them, in its own time; this is what decides. */
	if (!sha256_text_equal(row.sha256, sha256) || (int)row.kind != kind)
		return 0;
	*ret = row;
	return credential_left_ms(&row) > 0;
}

int credential_holds(struct atoll *a, const char *sha256, struct error *err)
{
	struct credential_row row;
	int r = registry_credential_by_digest(a->reg, sha256, &row, err);

	return r <= 0 ? r : credential_left_ms(&row) > 0;
}

int credential_is_revoked(struct atoll *a, const char *sha256, struct error *err)
{
	struct credential_row row;
	int r = registry_credential_by_digest(a->reg, sha256, &row, err);

	return r < 0 ? r : r == 0 || row.revoked_ms != 0;
}

int credential_named(struct atoll *a, const char *ref, struct credential_row *ret,
                     struct error *err)
{
	int r = registry_credential_named(a->reg, ref, ret, err);

	if (r != 0)
		return r < 0 ? r : 0;
	(void)error_set(err, -ATOLL_E_NOT_FOUND,
	                "there is no key '%s', nor any credential with that id", ref);
	error_hint(err, "atoll token list");
	return -ATOLL_E_NOT_FOUND;
}

/* ---- revoking, and being used ---- */

struct revoking {
	const char *id, *plan;
	int n;
};

static int write_revoked(struct registry *reg, void *ctx, struct error *err)
{
	struct revoking *v = ctx;

	v->n = v->id ? registry_credential_revoke(reg, v->id, clock_real_ms(), err)
	             : registry_credential_revoke_plan(reg, v->plan, clock_real_ms(), err);
	return v->n < 0 ? v->n : 0;
}

int credential_revoke(struct atoll *a, const char *id, struct error *err)
{
	struct revoking v = { .id = id };
	int r = store_write(a, REGISTRY_DURABLE, write_revoked, &v, err);

	return r < 0 ? r : v.n;
}

int credential_revoke_plan(struct atoll *a, const char *plan, struct error *err)
{
	struct revoking v = { .plan = plan };
	int r = store_write(a, REGISTRY_DURABLE, write_revoked, &v, err);

	return r < 0 ? r : v.n;
}

struct use {
	const char *id;
	int64_t at_ms;
};

static int write_use(struct registry *reg, void *ctx, struct error *err)
{
	const struct use *u = ctx;

	return registry_credential_used(reg, u->id, u->at_ms, err);
}

void credential_note_use(struct atoll *a, const struct credential_row *row)
{
	int64_t now = clock_real_ms();
	struct use u = { .id = row->id, .at_ms = now - now % USE_STEP_MS };

	if (row->used_ms < u.at_ms)
		(void)store_write(a, REGISTRY_NORMAL, write_use, &u, NULL);
}

struct starter {
	const char *plan, *key;
};

static int write_starter(struct registry *reg, void *ctx, struct error *err)
{
	const struct starter *s = ctx;

	return registry_plan_set_starter(reg, s->plan, s->key, err);
}

int credential_plan_started(struct atoll *a, const char *plan, const char *key, struct error *err)
{
	struct starter s = { .plan = plan, .key = key };

	return store_write(a, REGISTRY_DURABLE, write_starter, &s, err);
}

/* ---- showing ---- */

static void put_time(struct json *j, const char *key, int64_t ms)
{
	char text[CLOCK_TEXT_LEN];

	if (ms != 0)
		clock_format(ms, text);
	json_string(j, key, ms != 0 ? text : NULL);
}

void credential_write_json(struct json *j, const struct credential_row *row)
{
	json_string(j, "id", row->id);
	json_string(j, "kind", credential_kind_name(row->kind));
	json_string(j, "name", row->name);
	json_string(j, "scope", scope_name(row->scope));
	json_string(j, "plan", *row->plan ? row->plan : NULL);
	json_string(j, "key", *row->parent ? row->parent : NULL);
	json_bool(j, "in_force", credential_left_ms(row) > 0);
	put_time(j, "created", row->created_ms);
	put_time(j, "expires", row->expires_ms);
	put_time(j, "revoked", row->revoked_ms);
	put_time(j, "last_used", row->used_ms);
}
