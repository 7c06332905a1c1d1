/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The changes of a stream, made below a directory. The stream is a stranger's: nothing but what is
 * below the root is touched, no link is followed, no mount crossed, no program run but git, to take
 * objects (git.h).
 *
 * Files and links are written beside under a name of their own (SYNC_TEMPORARY and hex digits) and
 * renamed over what was there. What is no directory gives way to anything, a directory only when it is
 * empty: else -ATOLL_E_CONFLICT. A directory that is gone in the stream and still holds what the stream
 * does not know stays as it is.
 * Directories get their mode and time when what is in them is done.
 *
 * Crash: some of the changes are made, and a file of ours may be left. Whoever wants all or nothing
 * applies it in a plan, and commits that when this has returned 0.
 */
#ifndef SYNC_APPLY_H
#define SYNC_APPLY_H

#include <stdbool.h>
#include "sync/stream.h"

/* And so many hex digits. */
#define SYNC_TEMPORARY     ".atoll-sync-"
#define SYNC_TEMPORARY_HEX 16

/* ROOT_FD may be O_PATH. On failure err->path names the entry, where there is one. */
int sync_apply(int root_fd, int in_fd, struct error *err);
/* Is it the name of a file, or of a directory for objects, that is not whole yet? */
bool sync_is_temporary(const char *name);
/* Removes those that were left below ROOT_FD, which nobody else uses. As far as it can. 0 or -errno. */
int sync_tidy(int root_fd);

#endif
