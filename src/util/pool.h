/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool of threads over a growing list of items (directories of a tree, mostly). The caller's
 * thread is one of the workers. FN may push further items; the run ends when none is left or one
 * FN failed, whose code is returned. Threads live only during pool_run(); all signals are blocked
 * in them. THREADS 1: everything runs in the caller.
 */
#ifndef UTIL_POOL_H
#define UTIL_POOL_H

#include <stddef.h>

struct pool;
/* ITEM is FN's to free(). Items left after a failure are free()d unseen, so an item is one block
 * of malloc() and owns nothing else. */
typedef int (*pool_fn)(struct pool *p, void *ctx, void *item);

int pool_run(unsigned threads, pool_fn fn, void *ctx, void *first_item);
/* From within FN only. Never fails (aborts without memory). Newest first, so memory follows the
 * depth of a tree, not its width. */
void pool_push(struct pool *p, void *item);
/* min(online CPUs, 8), at least 1. */
unsigned pool_default_threads(void);

#endif
