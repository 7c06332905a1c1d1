/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A token, and a failure to get one: both never change once they are made, are shared by counting
 * references, and are wiped when the last one goes.
 *
 * A token is over when either clock says so: real time, which another boot shares but anybody may
 * set, or boot time, which nobody sets and which goes on while the machine sleeps. Both count from
 * when the request was sent, so what the answer's way took is on the safe side.
 */
#ifndef TOKEN_TOKEN_H
#define TOKEN_TOKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <atoll.h>
#include "util/error.h"

#define TOKEN_TEXT_MAX   8192
#define TOKEN_FIELDS_MAX 16384              /* names and values together */
#define TOKEN_LIFE_MAX   INT64_C(315360000) /* ten years, in seconds */

/* Pairs of name and value, each with a NUL, one behind the other; a name is there once. */
struct token_fields {
	char *data;
	size_t len;
};
void token_fields_done(struct token_fields *f);
#define cleanup_token_fields __attribute__((__cleanup__(token_fields_done)))
int token_fields_copy(struct token_fields *f, const char *data, size_t len);
/* 1: it is another now; 0: it was so; -ATOLL_E_TOO_BIG, -ENOMEM. */
int token_fields_set(struct token_fields *f, const char *name, const char *value);
const char *token_fields_get(const char *data, size_t len, const char *name);
/* 1 to JSON_KEY_MAX bytes, none of them a control character. */
bool token_field_name_ok(const char *name);

struct atoll_token {
	_Atomic unsigned refs;
	uint64_t version;
	int64_t life_ns;
	int64_t real_end_ns;
	int64_t boot_end_ns; /* CLOCK_NEVER: from another boot */
	size_t size;         /* of the block */
	const char *fields;
	size_t fields_len;
	size_t text_len;
	char text[]; /* and a NUL, then the fields */
};

struct token_life {
	uint64_t version; /* 0: a new one */
	int64_t life_ns;
	int64_t real_end_ns;
	int64_t boot_end_ns;
};
/* NULL without memory. */
struct atoll_token *token_new(const char *text, size_t text_len, const struct token_fields *fields,
                              const struct token_life *life);
/* The same token with other fields. */
struct atoll_token *token_with_fields(const struct atoll_token *token,
                                      const struct token_fields *fields);
bool token_text_ok(const char *text, size_t len);
void token_unrefp(struct atoll_token **token);
#define cleanup_token __attribute__((__cleanup__(token_unrefp)))

/* Wipes LEN bytes and frees them. */
void wipe_free(void *p, size_t len);

enum token_age { TOKEN_FRESH, TOKEN_SOFT, TOKEN_HARD, TOKEN_OVER };
struct token_now {
	int64_t real_ns;
	int64_t boot_ns;
};
struct token_now token_now(void);
/* SOFT: in its last fifth, or last minute when that is longer (but not more than half its life):
 * renew it in passing. HARD: 30 s, but at most a tenth of its life, before its end: wait for another.
 * JITTER_PERMILLE, of the soft window, keeps a fleet apart. */
enum token_age token_age(const struct atoll_token *token, struct token_now now,
                         int jitter_permille);
/* ns until the earlier of the two ends; <= 0 when it is over. */
int64_t token_left(const struct atoll_token *token, struct token_now now);

/* Why there is no token. The message is whole; nothing secret is in it. */
struct token_failure {
	_Atomic unsigned refs;
	int code;
	int status; /* HTTP, 0: no answer */
	char *message;
	char *hint; /* or NULL */
	char *url;
	char *detail;     /* what the service said, or NULL */
	int64_t pause_ns; /* that the service asked for; < 0: none */
};
struct token_failure *token_failure_new(int code, int status, const char *fmt, ...)
	__attribute__((__format__(__printf__, 3, 4)));
struct token_failure *token_failure_ref(struct token_failure *f);
void token_failure_unref(struct token_failure *f);
/* PAUSE_NS > 0: it is an old one, and nobody asks again before. */
int token_failure_tell(const struct token_failure *f, int64_t pause_ns, struct error *err);

#endif
