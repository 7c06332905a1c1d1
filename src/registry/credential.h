/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Credentials: what opens the daemon to a client. Of a secret only its SHA-256 is kept.
 *
 * A key is made by people, has a name and lives until it is revoked or over. A token belongs to one
 * plan, is made for the holder of a key or of the socket, and lives minutes; it ends with its plan (its
 * row goes with the plan's), with the key it was made for, and with the boot.
 *
 * All that is asked of a request is read from here, every time: whatever another process revokes is
 * refused from then on.
 *
 * Over: real time or boot time says so, whichever is first. Boot time counts only in the boot the row
 * names.
 */
#ifndef REGISTRY_CREDENTIAL_H
#define REGISTRY_CREDENTIAL_H

#include <stdbool.h>
#include <stdint.h>
#include "registry/registry.h"
#include "util/sha256.h"

/* These two are on disk: only ever appended to. */
enum credential_kind { CREDENTIAL_KEY = 0, CREDENTIAL_TOKEN, CREDENTIAL_KIND_END_ };
enum scope {
	SCOPE_ADMIN = 0, /* everything */
	SCOPE_AGENT,     /* works, and asks for a commit */
	SCOPE_REVIEW,    /* looks, commits, rolls back */
	SCOPE_END_
};
const char *scope_name(enum scope s);
const char *credential_kind_name(enum credential_kind k);

#define CREDENTIAL_ID_LEN 16 /* hex digits */

struct credential_row {
	char id[CREDENTIAL_ID_LEN + 1];
	enum credential_kind kind;
	enum scope scope;
	char name[LIMIT_NAME + 1];  /* of a token: whom it was made for */
	char plan[PLAN_ID_LEN + 1]; /* of a token; "" of a key */
	char parent[CREDENTIAL_ID_LEN +
	            1]; /* the key a token was made for; "": the socket's owner */
	char sha256[SHA256_TEXT_LEN];
	char request
		[SHA256_TEXT_LEN]; /* digest of the request that made it (Idempotency-Key), or "" */
	int64_t created_ms;
	int64_t expires_ms; /* 0: never */
	int64_t expires_boot_ns;
	char boot[40];      /* in which expires_boot_ns counts */
	int64_t revoked_ms; /* 0: not */
	int64_t used_ms;    /* of its last use, coarsely; 0: never */
};

/* 0; -ATOLL_E_EXISTS: a key of that name that is not revoked. Sets the id. */
int registry_credential_insert(struct registry *r, struct credential_row *row, struct error *err);
/* 1 and *RET, or 0. Revoked ones and those that are over are found, too. */
int registry_credential_by_digest(struct registry *r, const char *sha256,
                                  struct credential_row *ret, struct error *err);
/* The latest that was made by REQUEST and is not revoked. */
int registry_credential_by_request(struct registry *r, const char *request,
                                   struct credential_row *ret, struct error *err);
/* The key by that name which is not revoked; else a key or token by its id. */
int registry_credential_named(struct registry *r, const char *ref, struct credential_row *ret,
                              struct error *err);
typedef int (*registry_credential_fn)(void *ctx, const struct credential_row *row);
/* In the order they were made: all keys, then all tokens. */
int registry_credential_list(struct registry *r, registry_credential_fn fn, void *ctx,
                             struct error *err);
/* It, and what was made for it. How many were not revoked before. */
int registry_credential_revoke(struct registry *r, const char *id, int64_t now_ms,
                               struct error *err);
int registry_credential_revoke_plan(struct registry *r, const char *plan, int64_t now_ms,
                                    struct error *err);
int registry_credential_used(struct registry *r, const char *id, int64_t used_ms,
                             struct error *err);
/* Tokens that were over or revoked before BEFORE_MS go; history is the audit log's business. */
int registry_credential_prune(struct registry *r, int64_t before_ms, struct error *err);
/* How many tokens of PLAN are in force. */
int registry_credential_count(struct registry *r, const char *plan, int64_t now_ms, int64_t *ret,
                              struct error *err);

/* Which key a plan was started with; the first one said stays. */
int registry_plan_set_starter(struct registry *r, const char *plan, const char *key,
                              struct error *err);
/* 1 when it was KEY, else 0. */
int registry_plan_started_by(struct registry *r, const char *plan, const char *key,
                             struct error *err);

#endif
