/* SPDX-License-Identifier: Apache-2.0 */
/* What a service answered, and what is made of it. */
#ifndef TOKEN_ANSWER_H
#define TOKEN_ANSWER_H

#include <stddef.h>
#include <stdint.h>
#include "token/token.h"

#define ANSWER_MAX 65536 /* bytes of a body */

struct atoll_token_reply {
	int status;       /* 0: none yet */
	int64_t pause_ns; /* of Retry-After; -1: none */
	size_t len;
	char body[ANSWER_MAX];
};
struct atoll_token_reply *answer_new(void);
void answer_free(struct atoll_token_reply *a); /* wipes it */
void answer_freep(struct atoll_token_reply **a);
#define cleanup_answer __attribute__((__cleanup__(answer_freep)))

/* When, and for whom. */
struct answer_to {
	const char *sandbox;
	const char *url;
	const char *key; /* never to be seen in a text */
	struct token_now sent;
	const struct atoll_token *old; /* whose fields are kept; may be NULL */
};
/* A token, or NULL and *RET_FAILURE. */
struct atoll_token *answer_token(const struct atoll_token_reply *a, const struct answer_to *to,
                                 struct token_failure **ret_failure);
/* The transport gave CODE. */
struct token_failure *answer_missing(const struct answer_to *to, int code);

#endif
