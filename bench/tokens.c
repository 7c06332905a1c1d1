/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a cached token costs, in nanoseconds of processor time for one get:
 *
 *   bench-tokens handle|id|mutex THREADS MS
 *
 * by handle, by id, and, to compare with, from a map of the same ids under a mutex, with a count of
 * references and the same look at the clock. 64 sandboxes; each thread works on one.
 */
#include <atoll.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SANDBOXES 64
#define SLOTS     1024
#define BATCH     256

struct entry {
	char id[48];
	int64_t end;
	_Atomic int refs;
};

static struct {
	pthread_mutex_t lock;
	struct entry slot[SLOTS];
} map = { .lock = PTHREAD_MUTEX_INITIALIZER };

static struct atoll_tokens *tokens;
static char ids[SANDBOXES][48];
static const char *way;
static atomic_bool begin, end;
static atomic_ullong total, sum;

static int64_t now_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static struct entry *slot_of(const char *id)
{
	uint64_t h = 1469598103934665603u;

	for (const char *p = id; *p; p++)
		h = (h ^ (unsigned char)*p) * 1099511628211u;
	for (;; h++) {
		struct entry *e = &map.slot[h % SLOTS];

		if (e->id[0] == '\0' || strcmp(e->id, id) == 0)
			return e;
	}
}

static int from_map(const char *id)
{
	struct entry *e;
	int64_t left;

	pthread_mutex_lock(&map.lock);
	e = slot_of(id);
	left = e->end;
	atomic_fetch_add(&e->refs, 1);
	pthread_mutex_unlock(&map.lock);
	left -= now_ns(CLOCK_REALTIME_COARSE);
	atomic_fetch_sub(&e->refs, 1);
	return left > 0;
}

static int by_handle(struct atoll_token_handle *h)
{
	struct atoll_token *token = NULL;

	return atoll_token_get(h, -1, 0, &token, NULL) == 0 && atoll_token_text(token)[0] == 't';
}

static int by_id(const char *id)
{
	struct atoll_token *token = NULL;

	return atoll_tokens_get(tokens, id, -1, 0, &token, NULL) == 0 &&
	       atoll_token_text(token)[0] == 't';
}

static void *work(void *arg)
{
	const char *id = arg;
	struct atoll_token_handle *h = NULL;
	unsigned long long n = 0, good = 0;

	if (atoll_tokens_handle(tokens, id, &h, NULL) < 0 || !by_handle(h))
		abort();
	while (!atomic_load_explicit(&begin, memory_order_acquire))
		;
	while (!atomic_load_explicit(&end, memory_order_relaxed)) {
		for (int i = 0; i < BATCH; i++)
			good += (unsigned)(way[0] == 'h'   ? by_handle(h)
			                   : way[0] == 'i' ? by_id(id)
			                                   : from_map(id));
		n += BATCH;
	}
	total += n;
	sum += good;
	return NULL;
}

static int answer(void *user, const struct atoll_token_request *request,
                  struct atoll_token_reply *reply)
{
	static const char body[] = "{\"token\": \"tok-0123456789\", \"expires_in\": 3600}";

	(void)user;
	(void)request;
	atoll_token_reply_status(reply, 200);
	return atoll_token_reply_body(reply, body, strlen(body));
}

int main(int argc, char **argv)
{
	const struct atoll_tokens_config config = { .endpoint = "bench:", .send = answer };
	int n = argc == 4 ? atoi(argv[2]) : 0;
	pthread_t *threads = calloc((size_t)n + 1, sizeof(*threads));
	struct timespec ms = { 0 };
	int64_t cpu;

	if (n < 1 || !threads || atoll_tokens_open(&config, &tokens, NULL) < 0)
		return 2;
	way = argv[1];
	for (int i = 0; i < SANDBOXES; i++) {
		snprintf(ids[i], sizeof(ids[i]), "sandbox-%032x", (unsigned)i * 2654435761u);
		strcpy(slot_of(ids[i])->id, ids[i]);
		slot_of(ids[i])->end = now_ns(CLOCK_REALTIME) + INT64_C(3600000000000);
	}
	for (int i = 0; i < n; i++) {
		if (pthread_create(&threads[i], NULL, work, ids[i % SANDBOXES]) != 0)
			return 2;
	}
	ms.tv_nsec = 50000000;
	nanosleep(&ms, NULL);
	cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID);
	atomic_store(&begin, true);
	ms = (struct timespec){ atoi(argv[3]) / 1000, atoi(argv[3]) % 1000 * 1000000 };
	nanosleep(&ms, NULL);
	atomic_store(&end, true);
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	if (total != sum)
		return 1;
	printf("%.2f\n", (double)cpu / (double)total);
	atoll_tokens_close(tokens);
	free(threads);
	return 0;
}
