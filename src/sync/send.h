/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams of what is in a tree now, without anything known of it before: `atoll-sync send` and `list`.
 * With a manifest: scan.h.
 */
#ifndef SYNC_SEND_H
#define SYNC_SEND_H

#include "sync/stream.h"

/*
 * PATHS_FD has paths below the root, each ended by a NUL, in any order. What is there is sent, each path
 * once: a directory as itself, without what is in it; a path that is not there as gone. Files that git
 * ignores are left out, where the root is a repository.
 */
int sync_send_paths(int root_fd, int paths_fd, sync_write_fn fn, void *ctx, struct error *err);

/* An ENTRY for each that would travel, and SKIPPED for what cannot. */
int sync_send_list(int root_fd, sync_write_fn fn, void *ctx, struct error *err);

#endif
