/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making, finding and revoking credentials, for the command and for the daemon. Nothing is remembered
 * here: the store is asked each time, so what one process revokes is refused by all from then on.
 *
 * Crash: a credential is made or revoked in one transaction, durable before the caller hears of it. A
 * secret that was made and not handed out is nobody's.
 */
#ifndef AUTH_CREDENTIAL_H
#define AUTH_CREDENTIAL_H

#include <stdbool.h>
#include <stdint.h>
#include "auth/secret.h"
#include "plan/plan.h"
#include "registry/credential.h"
#include "util/json.h"

#define CREDENTIAL_KEY_LIFE_MAX_S   (INT64_C(3650) * 24 * 3600)
#define CREDENTIAL_TOKEN_LIFE_MIN_S 60
#define CREDENTIAL_TOKEN_LIFE_MAX_S 3600
#define CREDENTIAL_TOKEN_LIFE_S     900
#define CREDENTIAL_TOKENS_MAX       1000 /* of a plan, at a time */

int scope_parse(const char *name, enum scope *ret, struct error *err);

/* LIFE_S 0: for ever. -ATOLL_E_EXISTS. */
struct key_wish {
	const char *name;
	enum scope scope;
	int64_t life_s;
	const char *request; /* digest of the request, or "": the one it made before is revoked */
};
int credential_new_key(struct atoll *a, const struct key_wish *wish, struct secret *ret_secret,
                       struct credential_row *ret_row, struct error *err);

/* For PLAN (an id). PARENT: the key it is made for, or NULL: for the owner of the store. A token
 * lives no longer than its parent, which must be in force. */
struct token_wish {
	const char *plan;
	const char *name; /* of whom it is made for */
	const struct credential_row *parent;
	enum scope scope;
	int64_t life_s;
	const char *request;
};
int credential_new_token(struct atoll *a, const struct token_wish *wish, struct secret *ret_secret,
                         struct credential_row *ret_row, struct error *err);

/* How long it is still in force; 0: it is over, or revoked. INT64_MAX: it has no end. */
int64_t credential_left_ms(const struct credential_row *row);
/* The same in seconds, rounded up. */
int64_t credential_left_s(const struct credential_row *row);
/* In force by its text: 1 and *RET; 0: it is revoked or over, and *RET says so, or there is none such, and RET's
 * id is "". */
int credential_find(struct atoll *a, const char *text, size_t len, struct credential_row *ret,
                    struct error *err);
/* A key by its name, a key or token by its id. -ATOLL_E_NOT_FOUND. */
int credential_named(struct atoll *a, const char *ref, struct credential_row *ret,
                     struct error *err);
/* Is the credential that was found still in force? 1, or 0. */
int credential_holds(struct atoll *a, const char *sha256, struct error *err);
/* 1 when it was revoked since it was found, or is gone with its plan; 0 when not, over or not. */
int credential_is_revoked(struct atoll *a, const char *sha256, struct error *err);
/* With all tokens made for it. How many were in force. */
int credential_revoke(struct atoll *a, const char *id, struct error *err);
/* All tokens of a plan. */
int credential_revoke_plan(struct atoll *a, const char *plan, struct error *err);
/* Notes its use, now and then; does not wait for the store, and cannot fail. */
void credential_note_use(struct atoll *a, const struct credential_row *row);

/* Remembers which key started a plan: a key for agents gets tokens of those only. */
int credential_plan_started(struct atoll *a, const char *plan, const char *key, struct error *err);

/* Its members, in an object that is open: all but the secret. As docs/schema/token.schema.json. */
void credential_write_json(struct json *j, const struct credential_row *row);

#endif
