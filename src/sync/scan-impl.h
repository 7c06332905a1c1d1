/* SPDX-License-Identifier: Apache-2.0 */
/* What a scan found, for the sending. */
#ifndef SYNC_SCAN_IMPL_H
#define SYNC_SCAN_IMPL_H

#include "fs/stat.h"
#include "sync/scan.h"
#include "util/list.h"

enum sync_change_kind {
	CHANGE_DIR,
	CHANGE_FILE,
	CHANGE_LINK,
	CHANGE_META,   /* mode or time of a file */
	CHANGE_OBJECT, /* of the repository, loose */
};
struct sync_change {
	enum sync_change_kind kind;
	bool is_new; /* the path was not in the old manifest */
	size_t at;   /* in the new manifest */
	char *from;  /* it was moved here from there, or NULL; KIND is FILE or META then */
};

struct sync_changes {
	struct sync_counts counts;
	struct sync_change *v; /* as the walk met them */
	size_t n, cap;
	struct strlist gone; /* in the same order */
	struct strlist skipped;
	bool is_repository;
	unsigned char git_state[SYNC_HASH_SIZE];
	int64_t begin_ns; /* of the scan, by the clock of files */
};

/* How E looks now. What was changed since the scan began may change again without looking different. */
void sync_entry_set(struct sync_entry *e, const struct fs_stat *st, int64_t begin_ns);

#endif
