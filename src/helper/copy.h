/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeping what a command prints: a process of its own between the command's standard output and
 * error and the caller's. It ends when nobody can write any more.
 *
 * What is kept lies in a directory, in segments named by the place of their first byte in all that
 * was printed (EXEC_SEGMENT). No more than two are there: when the newer one has half of the most
 * that is kept, another is begun and the older one goes. So the name of the first says how much was
 * left out, whenever somebody looks and however the command ended.
 */
#ifndef HELPER_COPY_H
#define HELPER_COPY_H

/* What is read here: the command's standard output, its standard error. */
#define COPY_OUTPUT_FD 3
#define COPY_ERROR_FD  4

/* DIR is there and empty; MAX is a number of bytes, 64 KiB at least; PASS "1": all of it goes to the standard output
 * and error of this process as well. Returns an exit status. */
int copy_run(const char *dir, const char *max, const char *pass);

#endif
