/* SPDX-License-Identifier: Apache-2.0 */
/*
 * No command runs a filesystem full. While one runs, the free space of every filesystem that its work
 * goes to, and of the store's, is looked at; below the handle's limit the command is ended, and none
 * is started. What it did until then is kept. The last bytes are left for the commit, or for whoever
 * has to make room.
 *
 * A look costs a system call per filesystem; it comes the more often the nearer the limit is. A
 * command can be quicker than that: then it meets ENOSPC itself.
 */
#ifndef PLAN_DISK_GUARD_H
#define PLAN_DISK_GUARD_H

#include <stddef.h>
#include <stdint.h>
#include "plan/plan-op.h"
#include "util/limits.h"

struct disk_guard {
	struct guarded {
		const char *path;
		int fd;
		uint64_t dev;
		uint64_t min_free;
	} v[LIMIT_SANDBOXES + 1];
	size_t n;
	const struct guarded *low; /* found below its limit */
	uint64_t free_bytes;       /* there, then */
};
#define DISK_GUARD_INIT ((struct disk_guard){ 0 })

/* The filesystems of OP's plan. One that cannot be looked at is left out. */
void disk_guard_open(struct disk_guard *g, const struct plan_op *op);
void disk_guard_close(struct disk_guard *g);
#define cleanup_disk_guard __attribute__((__cleanup__(disk_guard_close)))
/* ms until the next look; below the limit EXEC_END, below half of it EXEC_END_NOW. CTX is a struct
 * disk_guard. */
int disk_guard_look(void *ctx);
/* -ENOSPC, about g->low. */
int disk_guard_fail(const struct disk_guard *g, const char *what_happened, struct error *err);

#endif
