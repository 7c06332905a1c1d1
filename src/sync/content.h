/* SPDX-License-Identifier: Apache-2.0 */
/* The content of one entry: into a stream, or only its hash. */
#ifndef SYNC_CONTENT_H
#define SYNC_CONTENT_H

#include "fs/stat.h"
#include "sync/stream.h"

/* Room to read with; one for each thread. */
struct sync_look;
struct sync_look *sync_look_new(void);
void sync_look_free(struct sync_look *l);
void cleanup_sync_lookp(struct sync_look **l);
#define cleanup_sync_look __attribute__((__cleanup__(cleanup_sync_lookp)))

struct sync_content {
	struct fs_stat st;                  /* before it was read; mode 0: it is not there */
	unsigned char hash[SYNC_HASH_SIZE]; /* of what was read, or a link's text; else zero */
	char *target;                       /* of a link; in the look, until it is used again */
	uint64_t len;                       /* of what was read */
	bool steady;                        /* it did not change meanwhile */
};
/*
 * Reads NAME of DIR_FD, and sends it to W (unless NULL) as DIR, FILE or LINK at PATH, as it is now; what
 * is neither as SKIPPED; nothing when it is not there. SEEN: the caller has just seen that it is a
 * regular file. -errno: a file whose FILE was written may be cut, and the stream is of no use.
 */
int sync_look_at(struct sync_look *l, int dir_fd, const char *name, const char *path, bool seen,
                 struct sync_writer *w, struct sync_content *ret);

#endif
