/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bucket is one number: the time at which it will be empty again. A failure adds a step to it; what
 * would put it further ahead than the burst allows is too much. The table has a fixed size: who comes
 * back after others took its place begins anew, and the overall bucket counts on.
 */
#include "daemon/rate.h"

#include "util/hash.h"
#include "util/mem.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SETS      256
#define WAYS      4
#define MS_NS     INT64_C(1000000)
#define SECOND_NS INT64_C(1000000000)

struct bucket {
	uint64_t who; /* hash of the address */
	int64_t empty_ns;
};

struct limit {
	int64_t step_ns, burst;
};
static const struct limit one = { RATE_STEP_MS * MS_NS, RATE_BURST };
static const struct limit all = { RATE_ALL_STEP_MS * MS_NS, RATE_ALL_BURST };

struct rate {
	pthread_mutex_t mutex; /* guards the rest */
	struct bucket overall;
	struct bucket sets[SETS][WAYS];
};

struct rate *rate_new(void)
{
	struct rate *r = xcalloc(1, sizeof(*r));

	(void)pthread_mutex_init(&r->mutex, NULL);
	return r;
}

void rate_free(struct rate *r)
{
	if (!r)
		return;
	(void)pthread_mutex_destroy(&r->mutex);
	free(r);
}

/* Whoever has one address of a network of 64 bits has them all. */
static uint64_t who_is(const char *address)
{
	struct in6_addr v6;

	if (inet_pton(AF_INET6, address, &v6) == 1)
		return IN6_IS_ADDR_V4MAPPED(&v6) ? hash64(v6.s6_addr + 12, 4)
		                                 : hash64(v6.s6_addr, 8);
	if (inet_pton(AF_INET, address, &v6) == 1)
		return hash64(&v6, 4);
	return hash64(address, strlen(address));
}

/* The one of WHO, or that of its set which will be empty first. */
static struct bucket *find(struct rate *r, uint64_t who)
{
	struct bucket *set = r->sets[who % SETS], *oldest = set;

	for (size_t i = 0; i < WAYS; i++) {
		if (set[i].who == who)
			return &set[i];
		if (set[i].empty_ns < oldest->empty_ns)
			oldest = &set[i];
	}
	*oldest = (struct bucket){ .who = who };
	return oldest;
}

/* How long until one more fits; 0: it does. */
static int64_t wait_ns(const struct bucket *b, const struct limit *l, int64_t now_ns)
{
	int64_t ahead = b->empty_ns - now_ns, room = l->step_ns * (l->burst - 1);

	return ahead > room ? ahead - room : 0;
}

static void add(struct bucket *b, const struct limit *l, int64_t now_ns)
{
	b->empty_ns = (b->empty_ns > now_ns ? b->empty_ns : now_ns) + l->step_ns;
}

bool rate_failed(struct rate *r, const char *address, int64_t now_ns, unsigned *ret_retry_s)
{
	struct bucket *b;
	int64_t wait, overall;

	(void)pthread_mutex_lock(&r->mutex);
	b = find(r, who_is(address));
	wait = wait_ns(b, &one, now_ns);
	overall = wait_ns(&r->overall, &all, now_ns);
	if (overall > wait)
		wait = overall;
	if (wait == 0) {
		add(b, &one, now_ns);
		add(&r->overall, &all, now_ns);
	}
	(void)pthread_mutex_unlock(&r->mutex);
	if (wait > 0)
		*ret_retry_s = (unsigned)((wait + SECOND_NS - 1) / SECOND_NS);
	return wait == 0;
}
