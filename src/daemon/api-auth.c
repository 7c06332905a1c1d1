/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens of plans: POST /v1/sandboxes/{sandbox}/auth answers as the token cache expects it
 * (docs/design/tokens.md). Keys get them, and the owner of the store; a token gets none, else it would
 * live for ever.
 */
#include "auth/credential.h"
#include "daemon/body.h"
#include "daemon/grant.h"
#include "util/json-read.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define BODY_MAX 4096

struct wish {
	struct call *c;
	struct plan_row plan;
	enum scope scope;
	int64_t life_s;
};

/* ---- which plan ---- */

/* A sandbox by its id, or a plan by whatever names it. */
static int find_plan(struct call *c, struct plan_row *ret)
{
	struct registry *reg = c->atoll->reg;
	struct sandbox_row box = SANDBOX_ROW_INIT;
	int r;

	if (registry_sandbox_get(reg, c->args[0], &box, NULL) == 0)
		r = registry_plan_get(reg, box.plan, ret, &c->err);
	else
		r = registry_plan_resolve(reg, c->args[0], ret, &c->err);
	sandbox_row_done(&box);
	return r;
}

/* A key for agents is for the plans that it started. */
static int check_plan(struct call *c, const struct plan_row *plan)
{
	const struct identity *who = &c->who;
	int r = 1;

	if (who->credential.kind == CREDENTIAL_TOKEN)
		return error_set(&c->err, -ATOLL_E_DENIED, "a token is no key to others");
	if (who->scope == SCOPE_AGENT)
		r = registry_plan_started_by(c->atoll->reg, plan->id, who->credential.id, &c->err);
	if (r != 0)
		return r < 0 ? r : 0;
	(void)error_set(&c->err, -ATOLL_E_DENIED, "plan '%s' was not started with this key",
	                plan->name);
	error_hint(&c->err, "ask somebody with an admin key for a token");
	return -ATOLL_E_DENIED;
}

/* ---- which token ---- */

static int take_member(void *user, const char *key, const char *value, size_t len)
{
	struct wish *w = user;
	struct error *err = &w->c->err;
	char scope[16];

	if (strcmp(key, "scope") == 0) {
		if (json_decode_string(value, len, scope, sizeof(scope)) < 0)
			return error_set(err, -ATOLL_E_INVALID, "'scope' is agent or review");
		return scope_parse(scope, &w->scope, err);
	}
	if (strcmp(key, "ttl") != 0)
		return error_set(err, -ATOLL_E_INVALID, "there is no member '%s'", key);
	if (json_decode_int(value, len, &w->life_s) < 0 ||
	    w->life_s < CREDENTIAL_TOKEN_LIFE_MIN_S || w->life_s > CREDENTIAL_TOKEN_LIFE_MAX_S)
		return error_set(err, -ATOLL_E_INVALID, "'ttl' is %d to %d, in seconds",
		                 CREDENTIAL_TOKEN_LIFE_MIN_S, CREDENTIAL_TOKEN_LIFE_MAX_S);
	return 0;
}

static int read_wish(struct call *c, struct wish *w)
{
	int r = 0;

	w->scope = c->who.scope == SCOPE_ADMIN ? SCOPE_AGENT : c->who.scope;
	w->life_s = CREDENTIAL_TOKEN_LIFE_S;
	if (c->body_len > 0)
		r = json_members(c->body, c->body_len, take_member, w);
	if (r == -EBADMSG && !c->err.code)
		return error_set(&c->err, -ATOLL_E_INVALID, "the body is no JSON object");
	if (r < 0)
		return r;
	if (w->scope == SCOPE_ADMIN)
		return error_set(&c->err, -ATOLL_E_INVALID, "a token's scope is agent or review");
	if (c->who.scope != SCOPE_ADMIN && w->scope != c->who.scope)
		return error_set(&c->err, -ATOLL_E_DENIED,
		                 "with scope '%s' there are no tokens of scope '%s'",
		                 scope_name(c->who.scope), scope_name(w->scope));
	return 0;
}

/* ---- POST ---- */

static int make_token(struct call *c, void *arg, const char *request, struct secret *ret_secret,
                      struct credential_row *ret_row)
{
	const struct wish *w = arg;
	const struct token_wish wish = {
		.plan = w->plan.id,
		.name = c->who.by_socket ? c->who.name : c->who.credential.name,
		.parent = c->who.by_socket ? NULL : &c->who.credential,
		.scope = w->scope,
		.life_s = w->life_s,
		.request = request,
	};

	return credential_new_token(c->atoll, &wish, ret_secret, ret_row, &c->err);
}

static void fill_token(struct json *j, const struct secret *secret,
                       const struct credential_row *row)
{
	json_open_object(j, NULL);
	json_string(j, "token", secret->text);
	json_int(j, "expires_in", credential_left_s(row));
	json_string(j, "id", row->id);
	json_string(j, "scope", scope_name(row->scope));
	json_string(j, "plan", row->plan);
	json_close(j);
}

static int auth_post(struct call *c)
{
	struct wish w = { .c = c };
	const struct grant g = { .subject = w.plan.id,
		                 .make = make_token,
		                 .arg = &w,
		                 .fill = fill_token };
	int r = find_plan(c, &w.plan);

	if (r == 0)
		r = check_plan(c, &w.plan);
	if (r == 0)
		r = body_expect_json(c);
	if (r == 0)
		r = read_wish(c, &w);
	return r < 0 ? r : r > 0 ? 0 : grant_answer(c, &g);
}

/* ---- DELETE ---- */

static int fill_revoked(struct json *j, void *arg)
{
	json_open_object(j, NULL);
	json_int(j, "revoked", *(int *)arg);
	json_close(j);
	return 0;
}

static int auth_delete(struct call *c)
{
	struct plan_row plan;
	int r = find_plan(c, &plan);

	if (r == 0)
		r = check_plan(c, &plan);
	if (r == 0)
		r = credential_revoke_plan(c->atoll, plan.id, &c->err);
	return r < 0 ? r : reply_json(c, 200, fill_revoked, &r);
}

const struct route auth_routes[] = {
	{ "POST", "/v1/sandboxes/{sandbox}/auth", MAY_ALL, ROUTE_STORE | ROUTE_CREATES, BODY_MAX,
	  auth_post },
	{ "DELETE", "/v1/sandboxes/{sandbox}/auth", MAY_ALL, ROUTE_STORE, 0, auth_delete },
	{ NULL, NULL, 0, 0, 0, NULL },
};
