/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Talking to an atolld: one request and its answer, or a connection that is upgraded and then carries
 * bytes both ways. By libcurl, which is opened on first use.
 *
 * What the daemon refuses comes back as it said it: a problem document (RFC 9457) becomes a struct error
 * with the same code, words, hint and cause. No answer at all, or one that is none, is
 * -ATOLL_E_UNREACHABLE, with the errno, where there is one, as its cause. Words from outside are made
 * harmless for a terminal. A secret is in no message, and wiped where it is ours.
 *
 * Every socket is close-on-exec. A peer that is gone without a word is noticed within five seconds.
 */
#ifndef REMOTE_HTTP_H
#define REMOTE_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "util/error.h"

#define HTTP_BODY_MAX (16u << 20) /* bytes of an answer */

/* Where to. */
struct http_target {
	char *base; /* "https://host:port", "http://127.0.0.1:80"; of a socket "http://localhost" */
	char *unix_socket; /* or NULL */
	char *ca_file;     /* or NULL: whom the system trusts */
	char *shown;       /* as people wrote it, for messages */
};
/* URL: https://HOST[:PORT], http://127.0.0.1:PORT (or another name of this machine), unix:/PATH. CA_FILE
 * may be NULL. -ATOLL_E_INVALID, -ATOLL_E_POLICY (a key would travel for everybody to read). */
int http_target_init(struct http_target *t, const char *url, const char *ca_file,
                     struct error *err);
void http_target_done(struct http_target *t);

/* Wipes LEN bytes and frees them; accepts NULL. */
void http_wipe_data(char *data, size_t len);

/* ---- one request ---- */

struct http_request {
	const char *method;          /* "GET", "POST", "DELETE" */
	const char *path;            /* "/v1/plans?wait=0" */
	const char *body;            /* JSON; NULL: none */
	const char *bearer;          /* NULL: none */
	const char *idempotency_key; /* NULL: none */
	const char *if_match;        /* NULL: none */
	int64_t timeout_ms;          /* 0: 60 s; negative: none */
};
/* Filled whatever happens, so that the status can be looked at after a refusal. */
struct http_reply {
	int status;             /* 0: there was no answer */
	bool replayed;          /* Idempotency-Replayed: true */
	char etag[128];         /* "" */
	int64_t retry_after_ms; /* -1: none */
	char *body;             /* NUL behind it; NULL: none */
	size_t len;
};
#define HTTP_REPLY_INIT ((struct http_reply){ .retry_after_ms = -1 })
void http_reply_done(struct http_reply *r);
#define cleanup_http_reply __attribute__((__cleanup__(http_reply_done)))

/* 0: status 2xx. What was sent is never sent again. */
int http_call(const struct http_target *t, const struct http_request *q, struct http_reply *ret,
              struct error *err);
/* The same, but every answer is 0; what it says is the caller's to read. */
int http_ask(const struct http_target *t, const struct http_request *q, struct http_reply *ret,
             struct error *err);
/* As a failure: the problem document in TEXT (LEN bytes), which came with STATUS. */
int http_problem(const struct http_target *t, int status, const char *text, size_t len,
                 struct error *err);

/* A string member of the object that R's body is; NULL: it has none. Caller frees. */
char *http_reply_string(const struct http_reply *r, const char *name);
/* A number of it, or FALLBACK. */
int64_t http_reply_int(const struct http_reply *r, const char *name, int64_t fallback);

/* ---- a connection of one's own ---- */

struct remote_link; /* not thread-safe */

struct remote_upgrade {
	const char *path;     /* asked for by POST */
	const char *protocol; /* "atoll-sync/1" */
	const char *bearer;   /* NULL: none */
	int64_t deadline;     /* clock.h's kind, of the whole; CLOCK_NEVER */
};
/* Connects, asks, and looks at the answer: 101 and that protocol. *RET_STATUS (may be NULL) is what was
 * answered, 0 for nothing, on failure too: after 401 another token may do. */
int remote_upgrade(const struct http_target *t, const struct remote_upgrade *u,
                   struct remote_link **ret_link, int *ret_status, struct error *err);
void remote_link_close(struct remote_link *l); /* accepts NULL */
void remote_link_closep(struct remote_link **l);
#define cleanup_remote_link __attribute__((__cleanup__(remote_link_closep)))

/*
 * Neither blocks. How many bytes went (came); -EAGAIN: none now; -ECONNRESET, -ETIMEDOUT ... it is over,
 * and for recv also 0: the peer ended it. Poll remote_link_fd() only after recv said -EAGAIN: what came
 * behind the head of the answer, and what TLS has deciphered already, is not in the socket any more.
 */
int64_t remote_link_send(struct remote_link *l, const void *data, size_t len);
int64_t remote_link_recv(struct remote_link *l, void *data, size_t len);
int remote_link_fd(const struct remote_link *l); /* the link's own */
/* "the daemon at 'URL' went away", with the cause, for R as send and recv answered it (0, -errno). */
int remote_link_lost(const struct remote_link *l, int64_t r, struct error *err);

#endif
