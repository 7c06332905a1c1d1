/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a command prints, kept in a directory, in segments named by the place of their first byte in all
 * that was printed (EXEC_SEGMENT). No more than two are there: when the newer one has half of the most
 * that is kept, another is begun and the older one goes. So the name of the first says how much was
 * left out, whenever somebody looks and however the command ended.
 */
#ifndef HELPER_KEEP_H
#define HELPER_KEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct keep {
	int dir_fd;
	int fd;             /* of the newest segment; FD_NONE: none yet */
	uint64_t each;      /* most bytes of a segment */
	uint64_t total;     /* printed so far */
	uint64_t begins[2]; /* of the older segment, of the newer */
	unsigned n;         /* segments there are */
	bool failed;        /* nothing more is kept */
	bool nothing;       /* is to be kept */
};

/* DIR is there and empty, or "": nothing is kept; MAX is a number of bytes, 64 KiB at least. What cannot be kept, from the
 * beginning or from some byte on, is left out: a disk that is full is no reason to hold a command up. */
void keep_open(struct keep *k, const char *dir, const char *max);
void keep_add(struct keep *k, const char *data, size_t len);
/* Whether all was kept. */
bool keep_close(struct keep *k);

#endif
