/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/issued.h"

#include "util/clock.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#define ENTRIES 256
#define KEEP_NS (INT64_C(3600) * 1000000000)

struct entry {
	char request[SHA256_TEXT_LEN]; /* "": free */
	char body[SHA256_TEXT_LEN];
	bool busy;
	int64_t at_ns;
	struct secret secret;
	struct credential_row row;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static struct entry *entries;

void issued_open(void)
{
	void *p = mmap(NULL, ENTRIES * sizeof(struct entry), PROT_READ | PROT_WRITE,
	               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		BUG("no memory for %d answers", ENTRIES);
	(void)madvise(p, ENTRIES * sizeof(struct entry), MADV_DONTDUMP);
	(void)madvise(p, ENTRIES * sizeof(struct entry), MADV_WIPEONFORK);
	entries = p;
}

void issued_close(void)
{
	if (!entries)
		return;
	explicit_bzero(entries, ENTRIES * sizeof(struct entry));
	(void)munmap(entries, ENTRIES * sizeof(struct entry));
	entries = NULL;
}

static void forget(struct entry *e)
{
	explicit_bzero(e, sizeof(*e));
}

static struct entry *find(const char *request)
{
	for (size_t i = 0; i < ENTRIES; i++)
		if (strcmp(entries[i].request, request) == 0)
			return &entries[i];
	return NULL;
}

/* A free one, or the oldest that nobody works on. */
static struct entry *make_room(void)
{
	struct entry *oldest = NULL;

	for (size_t i = 0; i < ENTRIES; i++) {
		struct entry *e = &entries[i];

		if (e->request[0] == '\0')
			return e;
		if (!e->busy && (!oldest || e->at_ns < oldest->at_ns))
			oldest = e;
	}
	if (oldest)
		forget(oldest);
	return oldest;
}

static bool is_stale(const struct entry *e)
{
	return !e->busy &&
	       (clock_boot_ns() - e->at_ns > KEEP_NS || credential_left_ms(&e->row) == 0);
}

static enum issued look(const char *request, const char *body, struct secret *ret_secret,
                        struct credential_row *ret_row)
{
	struct entry *e = find(request);

	if (e && is_stale(e)) {
		forget(e);
		e = NULL;
	}
	if (e) {
		if (strcmp(e->body, body) != 0)
			return ISSUED_OTHER;
		if (e->busy)
			return ISSUED_BUSY;
		*ret_secret = e->secret;
		*ret_row = e->row;
		return ISSUED_AGAIN;
	}
	e = make_room();
	if (!e)
		return ISSUED_BUSY;
	e->busy = true;
	memcpy(e->request, request, SHA256_TEXT_LEN);
	memcpy(e->body, body, SHA256_TEXT_LEN);
	return ISSUED_NEW;
}

enum issued issued_begin(const char *request, const char *body, struct secret *ret_secret,
                         struct credential_row *ret_row)
{
	enum issued answer;

	(void)pthread_mutex_lock(&mutex);
	answer = look(request, body, ret_secret, ret_row);
	(void)pthread_mutex_unlock(&mutex);
	return answer;
}

void issued_end(const char *request, const struct secret *secret, const struct credential_row *row)
{
	struct entry *e;

	(void)pthread_mutex_lock(&mutex);
	e = find(request);
	if (e && secret) {
		e->busy = false;
		e->at_ns = clock_boot_ns();
		e->secret = *secret;
		e->row = *row;
	} else if (e) {
		forget(e);
	}
	(void)pthread_mutex_unlock(&mutex);
}
