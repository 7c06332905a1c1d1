/* SPDX-License-Identifier: Apache-2.0 */
/* Why a command could not be started, in a form that fits through a pipe. */
#ifndef HELPER_FAILURE_H
#define HELPER_FAILURE_H

#include "exec/request.h"

#include <stdint.h>

struct failure {
	int32_t stage;  /* enum reply_stage */
	int32_t error;  /* errno, 0: none */
	uint32_t flags; /* REPLY_SAYS_WHY */
	char text[REPLY_TEXT];
};
#define FAILURE_NONE ((struct failure){ .stage = REPLY_STARTED })

/* R is -errno and is returned. The text follows "cannot"; what does not fit is cut. */
int failure_set(struct failure *f, enum reply_stage stage, int r, const char *fmt, ...)
	__attribute__((__format__(__printf__, 4, 5)));
/* The same; the text says why. */
int failure_why(struct failure *f, enum reply_stage stage, int r, const char *what,
                const char *why);
/* Into the answer. */
void failure_reply(const struct failure *f, struct reply *reply);

#endif
