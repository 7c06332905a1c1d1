/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One number space for failures, and the object that carries the words.
 *
 * A function that can fail returns 0 or positive on success and a negative code on failure:
 * -1..-4095 a raw errno, below that -ATOLL_E_*. util/ and fs/ return codes and say nothing.
 * From diff/ upward the last parameter is a struct error (may be NULL): set once, where the
 * failure happened; callers only prefix. Setting it twice is a BUG().
 */
#ifndef UTIL_ERROR_H
#define UTIL_ERROR_H

#include <stdbool.h>
#include <atoll.h>

struct error {
	int code;     /* 0: not set */
	char *msg;    /* what failed, lower case, no full stop */
	char *hint;   /* what to type next, or NULL */
	char *op;     /* cause: the operation ("rename", "open"), or NULL */
	char *path;   /* cause: on which path, or NULL */
	int os_errno; /* cause: errno, 0: none */
	char *detail; /* cause: SQLSTATE, git's stderr, or NULL */
};

#define ERROR_INIT ((struct error){ 0 })

/* All return CODE (error_prefix: R), so that `return error_set(...)` reads well. CODE < 0. */
int error_set(struct error *err, int code, const char *fmt, ...)
	__attribute__((__format__(__printf__, 3, 4)));
/* "cannot OP 'PATH': strerror". CODE is -errno or an own code; records the cause. */
int error_sys(struct error *err, int code, const char *op, const char *path);
/* Puts "...: " before the message. Does nothing when R >= 0. */
int error_prefix(struct error *err, int r, const char *fmt, ...)
	__attribute__((__format__(__printf__, 3, 4)));
/* The next command to type. Replaces an earlier hint. */
void error_hint(struct error *err, const char *fmt, ...)
	__attribute__((__format__(__printf__, 2, 3)));
/* Cause without message; used by error_sys() and for SQLSTATE and child output. */
void error_cause(struct error *err, const char *op, const char *path, int os_errno,
                 const char *detail);
/* Moves FROM into TO (which must be unset); FROM is empty afterwards. */
void error_move(struct error *to, struct error *from);
void error_done(struct error *err); /* frees, back to ERROR_INIT; keeps errno */

/* Short words for a code: "conflict", "ENOSPC"; negative or positive. Never NULL. */
const char *error_code_name(int code);
/* The negative code of that name; 0: there is none. */
int error_code_of(const char *name);
/* CLI exit status, 0..7 (design section 11). */
int error_code_exit(int code);
/* HTTP status; every raw errno is a 500. */
int error_code_http(int code);

/* A programmer's error: says where on stderr and aborts. An abort is safe by design: recovery
 * copes with SIGKILL at any instruction. Always compiled in. */
#define BUG(...) error_bug(__FILE__, __LINE__, __VA_ARGS__)
_Noreturn void error_bug(const char *file, int line, const char *fmt, ...)
	__attribute__((__format__(__printf__, 3, 4)));

#define cleanup_error __attribute__((__cleanup__(error_done)))

#endif
