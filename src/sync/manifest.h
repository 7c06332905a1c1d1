/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A manifest: what two sides agreed on at a generation, each entry of the tree that travels, ordered by
 * path (path.h). With it a scan (scan.h) knows what changed here since, and mostly without reading it.
 *
 * Its file is this machine's own: native numbers, and a sum over everything. One that is torn, damaged, or
 * of another version or machine is no manifest, and then everything is compared anew.
 */
#ifndef SYNC_MANIFEST_H
#define SYNC_MANIFEST_H

#include <stddef.h>
#include <stdint.h>
#include "sync/stream.h"
#include "sync/scan-time.h"

/* Size and times do not tell whether the content is still that: it is read at the next scan. So it is with
 * what came from the other side, and what was changed at the very time of the scan. */
#define SYNC_ENTRY_UNKNOWN 0x1u

struct sync_entry {
	uint64_t path_at; /* sync_manifest_path() */
	uint32_t mode;    /* with the type: file, directory or link */
	uint32_t flags;
	uint64_t size;
	int64_t mtime_ns; /* of directories 0 */
	int64_t ctime_ns; /* here */
	uint64_t ino;     /* here */
	unsigned char hash[SYNC_HASH_SIZE];
};

struct sync_manifest {
	uint64_t generation;   /* as its user says */
	struct sync_time time; /* of the scan that looked at the entries */
	struct sync_entry *v;
	size_t n, cap;
	char *paths; /* each with a NUL behind it */
	size_t paths_len, paths_cap;
};

struct sync_manifest *sync_manifest_new(void);
void sync_manifest_free(struct sync_manifest *m);
void cleanup_sync_manifestp(struct sync_manifest **m);
#define cleanup_sync_manifest __attribute__((__cleanup__(cleanup_sync_manifestp)))

/* Good until an entry is added. */
const char *sync_manifest_path(const struct sync_manifest *m, const struct sync_entry *e);
/* NULL: it is not in it. */
const struct sync_entry *sync_manifest_find(const struct sync_manifest *m, const char *path);
/* Behind the last; E without its path_at. 0 or -ENOMEM. */
int sync_manifest_add(struct sync_manifest *m, const char *path, const struct sync_entry *e);

/* 1 and *ret; 0: there is none, or none that can be used; -errno. */
int sync_manifest_load(int dir_fd, const char *name, struct sync_manifest **ret);
/* Durable. Crash: the old one or this one. 0 or -errno. */
int sync_manifest_save(int dir_fd, const char *name, const struct sync_manifest *m);
/* Any bytes: 1 and *ret, 0: they are no manifest of ours; -ENOMEM. */
int sync_manifest_parse(const void *data, size_t len, struct sync_manifest **ret);

#endif
