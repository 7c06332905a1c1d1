/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ring between the thread that writes and the connection's, which reads, and which waits at the end
 * until the writer has noticed: so nothing of a request is left when its connection is gone.
 */
#include "daemon/feed.h"

#include "daemon/reply.h"
#include "util/mem.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct feed {
	struct feed_source source;
	pthread_mutex_t mutex; /* guards what follows */
	pthread_cond_t changed;
	char ring[FEED_BYTES];
	size_t first, n; /* of what lies in it */
	int code;        /* of the writer */
	bool over;       /* the writer has ended */
	bool dropped;    /* the reader has */
	pthread_t thread;
};

/* ---- the writer ---- */

static size_t put(struct feed *f, const char *data, size_t len)
{
	size_t at = (f->first + f->n) % FEED_BYTES;
	size_t room = FEED_BYTES - f->n, straight = FEED_BYTES - at;

	len = len < room ? len : room;
	len = len < straight ? len : straight;
	memcpy(f->ring + at, data, len);
	f->n += len;
	return len;
}

/* Of a stream of stdio: what was taken; 0 when nobody wants it. */
static ssize_t on_write(void *cookie, const char *data, size_t len)
{
	struct feed *f = cookie;
	size_t done = 0;

	(void)pthread_mutex_lock(&f->mutex);
	while (done < len && !f->dropped) {
		size_t n = put(f, data + done, len - done);

		done += n;
		(void)pthread_cond_broadcast(&f->changed);
		if (n == 0)
			(void)pthread_cond_wait(&f->changed, &f->mutex);
	}
	if (f->dropped)
		done = 0;
	(void)pthread_mutex_unlock(&f->mutex);
	return (ssize_t)done;
}

static void *writer(void *arg)
{
	struct feed *f = arg;
	FILE *out = fopencookie(f, "w", (cookie_io_functions_t){ .write = on_write });
	int r = out ? f->source.write(f->source.arg, out) : -ENOMEM;

	if (out && fclose(out) != 0 && r >= 0)
		r = -EPIPE;
	(void)pthread_mutex_lock(&f->mutex);
	f->code = r < 0 ? r : 0;
	f->over = true;
	(void)pthread_cond_broadcast(&f->changed);
	(void)pthread_mutex_unlock(&f->mutex);
	return NULL;
}

/* ---- the reader ---- */

static void feed_free(struct feed *f)
{
	if (f->source.done)
		f->source.done(f->source.arg);
	(void)pthread_cond_destroy(&f->changed);
	(void)pthread_mutex_destroy(&f->mutex);
	free(f);
}

static void drop(void *arg)
{
	struct feed *f = arg;

	(void)pthread_mutex_lock(&f->mutex);
	f->dropped = true;
	(void)pthread_cond_broadcast(&f->changed);
	(void)pthread_mutex_unlock(&f->mutex);
	(void)pthread_join(f->thread, NULL);
	feed_free(f);
}

static ssize_t on_read(void *arg, char *buf, size_t size)
{
	struct feed *f = arg;
	ssize_t done;
	size_t n;

	(void)pthread_mutex_lock(&f->mutex);
	while (f->n == 0 && !f->over)
		(void)pthread_cond_wait(&f->changed, &f->mutex);
	n = FEED_BYTES - f->first;
	n = n < f->n ? n : f->n;
	n = n < size ? n : size;
	memcpy(buf, f->ring + f->first, n);
	f->first = (f->first + n) % FEED_BYTES;
	f->n -= n;
	done = n > 0 ? (ssize_t)n : f->code;
	(void)pthread_cond_broadcast(&f->changed);
	(void)pthread_mutex_unlock(&f->mutex);
	return done;
}

/* Until it is known whether it is short, long or nothing. */
static bool await_beginning(struct feed *f)
{
	bool over;

	(void)pthread_mutex_lock(&f->mutex);
	while (!f->over && f->n < FEED_BYTES)
		(void)pthread_cond_wait(&f->changed, &f->mutex);
	over = f->over;
	(void)pthread_mutex_unlock(&f->mutex);
	return over;
}

static int reply_short(struct call *c, struct feed *f)
{
	char *text = malloc(f->n + 1);

	if (!text)
		return error_set(&c->err, -ENOMEM, "no memory for the answer");
	memcpy(text, f->ring, f->n); /* nothing was read: it begins at the beginning */
	return reply_text(c, 200, f->source.type, text, f->n);
}

int feed_reply(struct call *c, const struct feed_source *source)
{
	struct feed *f = xcalloc(1, sizeof(*f));
	struct reply_stream stream = { .type = source->type,
		                       .read = on_read,
		                       .done = drop,
		                       .arg = f };
	int r;

	f->source = *source;
	(void)pthread_mutex_init(&f->mutex, NULL);
	(void)pthread_cond_init(&f->changed, NULL);
	r = -pthread_create(&f->thread, NULL, writer, f);
	if (r < 0) {
		feed_free(f);
		return error_sys(&c->err, r, "start", "a thread");
	}
	if (!await_beginning(f))
		return reply_stream(c, 200, &stream);
	r = f->code;
	if (r < 0 && source->failed)
		source->failed(source->arg, c);
	else if (r >= 0)
		r = reply_short(c, f);
	drop(f);
	return r;
}
