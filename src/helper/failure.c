/* SPDX-License-Identifier: Apache-2.0 */
/* Failures travel from the child to pid 1, from there to the helper, and on to the library. */
#include "helper/failure.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define ERRNO_MAX 4095

int failure_set(struct failure *f, enum reply_stage stage, int r, const char *fmt, ...)
{
	va_list ap;

	f->stage = (int32_t)stage;
	/* Below are our own codes; the only one that can come here is "too big". */
	f->error = r < -ERRNO_MAX ? EMSGSIZE : -r;
	va_start(ap, fmt);
	(void)vsnprintf(f->text, sizeof(f->text), fmt, ap);
	va_end(ap);
	return r;
}

int failure_why(struct failure *f, enum reply_stage stage, int r, const char *what, const char *why)
{
	f->flags = REPLY_SAYS_WHY;
	return failure_set(f, stage, r, "%s: %s", what, why);
}

void failure_reply(const struct failure *f, struct reply *reply)
{
	reply->stage = f->stage;
	reply->error = f->error;
	reply->flags |= f->flags;
	memcpy(reply->text, f->text, sizeof(reply->text));
}
