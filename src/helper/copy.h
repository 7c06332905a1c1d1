/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeping what a command prints: a process of its own between the command's standard output and
 * error and the caller's (helper/keep.h). It ends when nobody can write any more.
 */
#ifndef HELPER_COPY_H
#define HELPER_COPY_H

/* What is read here: the command's standard output, its standard error. */
#define COPY_OUTPUT_FD 3
#define COPY_ERROR_FD  4

/* DIR and MAX as for keep_open(); PASS "1": all of it goes to the standard output and error of this
 * process as well. Returns an exit status. */
int copy_run(const char *dir, const char *max, const char *pass);

#endif
