/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What both sides agree on when this one has taken a stream of the other: read beside its applying. Of a
 * list (atoll-sync list) it makes a manifest of what the other side has.
 */
#ifndef SYNC_PULLED_H
#define SYNC_PULLED_H

#include "sync/manifest.h"

struct sync_pulled;
/* OLD (may be NULL: nothing) must live until this is freed. */
int sync_pulled_new(const struct sync_manifest *old, struct sync_pulled **ret);
void sync_pulled_free(struct sync_pulled *p);
void cleanup_sync_pulledp(struct sync_pulled **p);
#define cleanup_sync_pulled __attribute__((__cleanup__(cleanup_sync_pulledp)))

/* As sync_reader_feed(). */
int sync_pulled_feed(struct sync_pulled *p, const void *data, size_t len, struct error *err);
/* The stream is whole: OLD with what came, of which the hashes are known but not how it looks here, so that
 * the next scan reads it (SYNC_ENTRY_UNKNOWN). *ret_changes: entries that came or went. */
int sync_pulled_finish(struct sync_pulled *p, struct sync_manifest **ret, uint64_t *ret_changes,
                       struct error *err);
/* Path number I of those that the other side skipped; NULL: there are no more. */
const char *sync_pulled_skipped(const struct sync_pulled *p, size_t i);

#endif
