/* SPDX-License-Identifier: Apache-2.0 */
/* The text of an answer, as long as the store has not changed. Static, one per thing. */
#ifndef DAEMON_REPLY_CACHE_H
#define DAEMON_REPLY_CACHE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct reply_cache {
	pthread_mutex_t
		mutex;    /* guards the rest; held while the text is made, so it is made once */
	uint64_t version; /* of the store, when it was read */
	bool passing;     /* it holds for the answer it was made for only */
	char *text;       /* NULL: not made yet */
	size_t len;
};
#define REPLY_CACHE_INIT ((struct reply_cache){ .mutex = PTHREAD_MUTEX_INITIALIZER })

#endif
