/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Remotes: daemons on other machines, by a name. In the user's settings (or the machine's):
 *
 *   [remote "big"]
 *           url = https://big.example:8443
 *           key-file = /home/me/.config/atoll/big.key
 *           ca-file = /home/me/.config/atoll/big.pem
 *
 * No file inside a resource is ever read, so what is worked on cannot say where it is sent. A key file is
 * a plain file of ours, 0600, no link; the key is read when the remote is opened, kept in memory that is
 * wiped, and shown nowhere.
 *
 * Control plane: the key, or on a Unix socket nothing. Data plane: tokens of the plan, from the token
 * cache (in the store's directory `tokens`, shared by all processes); on a Unix socket without a key
 * nothing: the daemon knows our uid.
 */
#ifndef REMOTE_REMOTE_H
#define REMOTE_REMOTE_H

#include "plan/plan.h"
#include "remote/http.h"

struct remote_config {
	char *name;
	char *url;
	char *key_file; /* NULL: none */
	char *ca_file;  /* NULL: none */
	char *file;     /* where it stands */
};
void remote_config_done(struct remote_config *c);
#define cleanup_remote_config __attribute__((__cleanup__(remote_config_done)))

/* ---- the settings ---- */

/* A letter or digit, then up to 63 of [A-Za-z0-9._-]. */
int remote_check_name(const char *name, struct error *err);
/* -ATOLL_E_NOT_FOUND names those that there are. */
int remote_config_find(const char *name, struct remote_config *ret, struct error *err);
/* In the order of the files. A negative answer of FN ends it. */
typedef int (*remote_config_fn)(void *user, const struct remote_config *c);
int remote_config_list(remote_config_fn fn, void *user, struct error *err);
/* In the user's file; -ATOLL_E_EXISTS when there is one of that name. C's name, url and files.
 * Crash: it is there as a whole or not at all. */
int remote_config_add(const struct remote_config *c, struct error *err);
/* From the user's file. */
int remote_config_remove(const char *name, struct error *err);

/* ---- one that is open ---- */

struct remote {
	char *name;
	struct http_target target;
	char *key;                   /* NULL: none; wiped */
	char *token_dir;             /* NULL: nothing is kept on disk */
	struct atoll_tokens *tokens; /* opened with the first token */
};

/* A may be NULL: tokens are not kept. Nothing is sent yet. */
int remote_open(struct atoll *a, const char *name, struct remote **ret, struct error *err);
/* The same for one that is in no file yet. */
int remote_open_config(struct atoll *a, const struct remote_config *c, struct remote **ret,
                       struct error *err);
void remote_close(struct remote *r); /* accepts NULL; tokens that were got are saved first */
void remote_closep(struct remote **r);
#define cleanup_remote __attribute__((__cleanup__(remote_closep)))

/* http_call() with the key. */
int remote_call(struct remote *r, const struct http_request *q, struct http_reply *ret,
                struct error *err);
/* That the daemon answers, and takes the key: 0, or exactly what is wrong. */
int remote_check(struct remote *r, struct error *err);
/* After a connection was lost: -ATOLL_E_DENIED, the key is not taken any more; 0: it is, or nobody answers. */
int remote_check_key(struct remote *r, struct error *err);

/* http_call() with a token of SANDBOX; another one, once, when that is refused (401). */
int remote_call_token(struct remote *r, const char *sandbox, const struct http_request *q,
                      struct http_reply *ret, struct error *err);
/* remote_upgrade() in the same way; U's bearer is set here. */
int remote_connect(struct remote *r, const char *sandbox, const struct remote_upgrade *u,
                   struct remote_link **ret_link, struct error *err);

#endif
