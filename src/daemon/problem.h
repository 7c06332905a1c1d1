/* SPDX-License-Identifier: Apache-2.0 */
/* Failures as documents (RFC 9457): the same codes, words and hints as everywhere. */
#ifndef DAEMON_PROBLEM_H
#define DAEMON_PROBLEM_H

#include <atoll.h>
#include "util/error.h"
#include "util/json.h"

#define PROBLEM_TYPE "application/problem+json"

struct problem {
	unsigned status;
	int code; /* negative */
	const char *detail, *hint, *op, *path, *cause;
	int os_errno;
	const char *instance;           /* the request's id */
	const struct atoll_result *res; /* participants and notes; or NULL */
	const char *session;            /* what becomes of it: "open", "closed"; or NULL */
};

/* STATUS 0: by the code. Strings are those of ERR and RES, and live as long as these. */
void problem_of_error(struct problem *p, unsigned status, const struct error *err);
void problem_of_result(struct problem *p, int code, const struct atoll_result *res);
void problem_write(struct json *j, const struct problem *p);
/* As member KEY of an open object. */
void problem_write_as(struct json *j, const char *key, const struct problem *p);

#endif
