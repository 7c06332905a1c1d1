/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where in the program a call comes from. A process that waits in a system call is known by the call and the
 * innermost functions of the program on its stack (found as words that point into its code, as old ones
 * may, too: then one place is taken for two, and tried twice).
 */
#ifndef PLACE_H
#define PLACE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* IP: the instruction that makes the call. 0: no program whose places are of interest, or its loader. */
uint64_t place_of(pid_t pid, int nr, uint64_t ip);

/* Places that were tried, in a file that several processes append to. */
struct places {
	int fd;
	uint64_t *known;
	size_t n;
};

/* Negative: errno. */
int places_open(struct places *p, const char *path);
bool places_know(const struct places *p, uint64_t place);
/* Negative: errno. */
int places_add(struct places *p, uint64_t place);

#endif
