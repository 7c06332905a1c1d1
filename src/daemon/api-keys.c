/* SPDX-License-Identifier: Apache-2.0 */
/* Keys, for who may everything: what `atoll token` does, with the same JSON. */
#include "auth/credential.h"
#include "daemon/body.h"
#include "daemon/grant.h"
#include "util/json-read.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define BODY_MAX 4096
#define FORMAT   "atoll.token/1"

/* ---- GET ---- */

static int show_credential(void *user, const struct credential_row *row)
{
	struct json *j = user;

	json_open_object(j, NULL);
	credential_write_json(j, row);
	json_close(j);
	return 0;
}

static int fill_list(struct json *j, void *arg)
{
	struct call *c = arg;
	int r;

	json_open_object(j, NULL);
	json_string(j, "format", FORMAT);
	json_open_array(j, "credentials");
	r = registry_credential_list(c->atoll->reg, show_credential, j, &c->err);
	json_close(j);
	json_string(j, "code", error_code_name(0));
	json_close(j);
	return r;
}

static int keys_get(struct call *c)
{
	return reply_json(c, 200, fill_list, c);
}

/* ---- POST ---- */

struct wish {
	struct call *c;
	char name[LIMIT_NAME + 1];
	bool scoped;
	struct key_wish key;
};

static int take_member(void *user, const char *key, const char *value, size_t len)
{
	struct wish *w = user;
	struct error *err = &w->c->err;
	char scope[16];

	if (strcmp(key, "name") == 0) {
		if (json_decode_string(value, len, w->name, sizeof(w->name)) < 0)
			return error_set(err, -ATOLL_E_INVALID, "'name' is no name");
		return 0;
	}
	if (strcmp(key, "scope") == 0) {
		w->scoped = true;
		if (json_decode_string(value, len, scope, sizeof(scope)) < 0)
			return error_set(err, -ATOLL_E_INVALID,
			                 "'scope' is admin, agent or review");
		return scope_parse(scope, &w->key.scope, err);
	}
	if (strcmp(key, "expires_in") != 0)
		return error_set(err, -ATOLL_E_INVALID, "there is no member '%s'", key);
	if (json_decode_int(value, len, &w->key.life_s) < 0 || w->key.life_s <= 0 ||
	    w->key.life_s > CREDENTIAL_KEY_LIFE_MAX_S)
		return error_set(err, -ATOLL_E_INVALID,
		                 "'expires_in' is a number of seconds, up to ten years");
	return 0;
}

static int make_key(struct call *c, void *arg, const char *request, struct secret *ret_secret,
                    struct credential_row *ret_row)
{
	struct wish *w = arg;

	w->key.request = request;
	return credential_new_key(c->atoll, &w->key, ret_secret, ret_row, &c->err);
}

static void fill_key(struct json *j, const struct secret *secret, const struct credential_row *row)
{
	json_open_object(j, NULL);
	json_string(j, "format", FORMAT);
	credential_write_json(j, row);
	json_string(j, "secret", secret->text);
	json_close(j);
}

static int keys_post(struct call *c)
{
	struct wish w = { .c = c };
	const struct grant g = { .subject = "", .make = make_key, .arg = &w, .fill = fill_key };
	int r = body_expect_json(c);

	if (r != 0)
		return r < 0 ? r : 0;
	r = json_members(c->body, c->body_len, take_member, &w);
	if (r < 0 && !c->err.code)
		return error_set(&c->err, -ATOLL_E_INVALID, "the body is no JSON object");
	if (r < 0)
		return r;
	if (w.name[0] == '\0' || !w.scoped)
		return error_set(&c->err, -ATOLL_E_INVALID, "a key has a 'name' and a 'scope'");
	w.key.name = w.name;
	return grant_answer(c, &g);
}

/* ---- DELETE ---- */

struct revoked {
	struct credential_row row;
	int n;
};

static int fill_revoked(struct json *j, void *arg)
{
	const struct revoked *v = arg;

	json_open_object(j, NULL);
	json_string(j, "format", FORMAT);
	json_string(j, "id", v->row.id);
	json_string(j, "kind", credential_kind_name(v->row.kind));
	json_string(j, "name", v->row.name);
	json_int(j, "revoked", v->n);
	json_close(j);
	return 0;
}

static int keys_delete(struct call *c)
{
	struct revoked v;
	int r = credential_named(c->atoll, c->args[0], &v.row, &c->err);

	if (r < 0)
		return r;
	v.n = credential_revoke(c->atoll, v.row.id, &c->err);
	if (v.n < 0)
		return v.n;
	(void)snprintf(c->outcome, sizeof(c->outcome), "%s", v.row.id);
	return reply_json(c, 200, fill_revoked, &v);
}

const struct route key_routes[] = {
	{ "GET", "/v1/keys", MAY_ADMIN, ROUTE_STORE, 0, keys_get },
	{ "POST", "/v1/keys", MAY_ADMIN, ROUTE_STORE | ROUTE_CREATES, BODY_MAX, keys_post },
	{ "DELETE", "/v1/keys/{key}", MAY_ADMIN, ROUTE_STORE, 0, keys_delete },
	{ NULL, NULL, 0, 0, 0, NULL },
};
