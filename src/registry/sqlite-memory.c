/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for SQLite in a program that opens the registry, asks a few things and ends: most of what
 * it takes are thousands of small pieces for the schema, in which a general allocator spends a sixth
 * of such a program. Here a small piece is cut off a block or comes from the list of those of its size
 * that were given back; blocks are kept. Larger ones are malloc's.
 */
#include "registry/sqlite-impl.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/single_threaded.h>

#define GRAIN     16
#define SMALL_MAX 1024 /* with its head */
#define BLOCK     (32u << 10)

/* Before each piece. SQLite wants what it gets to begin at a multiple of eight. */
struct head {
	size_t size;         /* with this */
	struct head *next[]; /* in a list of free ones only */
};

static struct head *free_of[SMALL_MAX / GRAIN + 1];
static char *rest;
static size_t rest_len;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static size_t whole(int n)
{
	return (sizeof(struct head) + (size_t)n + GRAIN - 1) / GRAIN * GRAIN;
}

static struct head *cut(size_t size)
{
	struct head *h;

	if (rest_len < size) {
		rest = malloc(BLOCK);
		rest_len = rest ? BLOCK : 0;
	}
	if (!rest)
		return NULL;
	h = (struct head *)(void *)rest;
	rest += size;
	rest_len -= size;
	return h;
}

static struct head *small(size_t size)
{
	struct head **list = &free_of[size / GRAIN];
	bool alone = __libc_single_threaded;
	struct head *h;

	if (!alone)
		pthread_mutex_lock(&mutex);
	h = *list;
	if (h)
		*list = h->next[0];
	else
		h = cut(size);
	if (!alone)
		pthread_mutex_unlock(&mutex);
	return h;
}

static void *memory_get(int n)
{
	size_t size = whole(n);
	struct head *h = size <= SMALL_MAX ? small(size) : malloc(size);

	if (!h)
		return NULL;
	h->size = size;
	return h + 1;
}

static void memory_free(void *p)
{
	struct head *h = (struct head *)p - 1;
	bool alone = __libc_single_threaded;

	if (h->size > SMALL_MAX) {
		free(h);
		return;
	}
	if (!alone)
		pthread_mutex_lock(&mutex);
	h->next[0] = free_of[h->size / GRAIN];
	free_of[h->size / GRAIN] = h;
	if (!alone)
		pthread_mutex_unlock(&mutex);
}

static int memory_size(void *p)
{
	return p ? (int)(((struct head *)p - 1)->size - sizeof(struct head)) : 0;
}

static void *memory_resize(void *p, int n)
{
	struct head *h = (struct head *)p - 1;
	size_t size = whole(n);
	void *other;

	if (size == h->size)
		return p;
	if (size > SMALL_MAX && h->size > SMALL_MAX) {
		h = realloc(h, size);
		if (!h)
			return NULL;
		h->size = size;
		return h + 1;
	}
	other = memory_get(n);
	if (other) {
		memcpy(other, p, (size < h->size ? size : h->size) - sizeof(struct head));
		memory_free(p);
	}
	return other;
}

static int memory_round(int n)
{
	return (int)(whole(n) - sizeof(struct head));
}

static int memory_begin(void *ctx)
{
	(void)ctx;
	return SQLITE_OK;
}

static void memory_end(void *ctx)
{
	(void)ctx;
}

const sqlite3_mem_methods sqlite_memory = {
	.xMalloc = memory_get,
	.xFree = memory_free,
	.xRealloc = memory_resize,
	.xSize = memory_size,
	.xRoundup = memory_round,
	.xInit = memory_begin,
	.xShutdown = memory_end,
};
