/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is here, over there: the project is compared with the manifest, which says what is there, and what
 * differs is sent. The manifest is a file in the session's directory; one that is not of the generation
 * that the daemon names is of no use, and the daemon lists what it has instead.
 *
 * Crash: the manifest is saved after what it tells of was done. So it is right, or old, which shows.
 */
#ifndef REMOTE_PUSH_H
#define REMOTE_PUSH_H

#include "remote/step.h"
#include "sync/manifest.h"

struct push {
	struct connection *c;
	int dir_fd; /* of the session */
	struct there *there;
	struct sync_manifest *manifest; /* what is there; NULL: not known yet */
	uint64_t sent;                  /* entries */
	char *skipped;                  /* one that cannot travel, and */
	uint64_t n_skipped;             /* how many there are */
};
#define PUSH_INIT ((struct push){ .dir_fd = -1 })
void push_done(struct push *p);

/* Scans the project, sends what differs, and waits until it is whole over there: P->there has its
 * generation then. */
int push_all(struct push *p, struct error *err);
/* When git's index was written that is in a plan of generation BASE; where nobody knows, long ago. */
int64_t push_index_time(struct push *p, int64_t base);
/* After what is in the stream FD was received from a plan of generation BASE: both sides have it. */
void push_pulled(struct push *p, int64_t base, int fd);

#endif
