/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program run to its end, with what it says kept. It leads a process group of its own, and when its
 * time is over the whole group goes.
 */
#ifndef UTIL_RUN_H
#define UTIL_RUN_H

#include <stddef.h>
#include <stdint.h>
#include "util/strbuf.h"

struct run {
	const char *file;        /* absolute path of the program */
	const char *const *argv; /* NULL-terminated */
	const char *const *envp;
	const char *cwd;
	const void *in; /* what it reads; NULL: nothing, unless IN_FD */
	size_t in_len;
	int in_fd;        /* or FD_NONE */
	int out_fd;       /* where its output goes, or FD_NONE: kept */
	int held_fd;      /* stays open in it as number 3, and in all that it starts; or FD_NONE */
	size_t max;       /* of kept output, bytes */
	int64_t deadline; /* clock.h */
};

/* Adds to OUT (may be NULL when nothing is kept) and ERR (at most a few KiB of it, the last), and
 * gives the wait status. 0, -errno, -ETIMEDOUT, -ATOLL_E_TOO_BIG. A pipe that the program leaves to
 * others is not waited for. */
int run_program(const struct run *how, struct strbuf *out, struct strbuf *err,
                int *ret_wait_status);

#endif
