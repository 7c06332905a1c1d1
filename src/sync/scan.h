/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What changed in a tree since a manifest, and a stream of it.
 *
 * A scan looks at every entry and reads only what may have changed: where size, times, mode and inode are as
 * in the manifest, the content is, too, unless the entry says that this is not known. What is new or of
 * another size is read once, when it is sent. A file that is gone while another with its inode has come
 * is a move, when its content is the same.
 *
 * In a repository (a directory `.git` in the root) what git ignores is left out, and forgotten when it was
 * in the manifest: it stays where it is on both sides. So are git's locks and temporary files. The scan is
 * repeated when HEAD, the index or a ref changed meanwhile. Loose objects are compared by name.
 *
 * The order of calls: sync_scan(), sync_send() when there are changes, and when the other side has them, the
 * new manifest is the one to save. It is complete after sync_send() only.
 */
#ifndef SYNC_SCAN_H
#define SYNC_SCAN_H

#include "sync/manifest.h"

struct sync_changes;
void sync_changes_free(struct sync_changes *c);
void cleanup_sync_changesp(struct sync_changes **c);
#define cleanup_sync_changes __attribute__((__cleanup__(cleanup_sync_changesp)))

/* What a scan did, for messages and tests. */
struct sync_counts {
	uint64_t entries; /* that travel */
	uint64_t
		changes; /* that will be sent, those that are gone included; 0: nothing is to be done */
	uint64_t hashed;  /* files that were read */
	uint64_t skipped; /* FIFOs, sockets, devices, mount points; sync_changes_skipped() */
};
const struct sync_counts *sync_changes_counts(const struct sync_changes *c);
/* Path number I of those that cannot travel; NULL: there are no more. */
const char *sync_changes_skipped(const struct sync_changes *c, size_t i);

/* OLD NULL: everything is new. *ret_new has the generation of OLD. -ATOLL_E_BUSY: the repository does not
 * come to rest. */
int sync_scan(int root_fd, const struct sync_manifest *old, struct sync_changes **ret,
              struct sync_manifest **ret_new, struct error *err);

/* The changes as a stream to FN. What changed again since the scan is sent as it is now, and M, the scan's
 * new manifest, says what was sent. -EAGAIN: HEAD, index or a ref changed; scan again, what was sent is of
 * no use. On any failure M is of no use. */
int sync_send(int root_fd, struct sync_changes *c, struct sync_manifest *m, sync_write_fn fn,
              void *ctx, struct error *err);

#endif
