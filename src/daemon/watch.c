/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/watch.h"

#include "daemon/log.h"
#include "plan/news.h"
#include "registry/news.h"
#include "util/cleanup.h"
#include "util/mem.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define KEPT          512 /* events */
#define KEPT_BYTES    (1u << 20)
#define READ_AT_ONCE  128
#define LOOK_EVERY_MS 10000
#define RETRY_MS      1000 /* after the store could not be read */

struct kept {
	int64_t seq;
	char plan[PLAN_ID_LEN + 1];
	char *text;
	size_t len;
};

struct watcher {
	int fd;
	struct watcher *next, *prev;
};

struct watch {
	struct atoll *a; /* the thread's, once it runs */
	int wake_fd;     /* to the thread: look at `ending`, or at `watchers` */
	pthread_t thread;
	bool runs;

	pthread_mutex_t mutex; /* guards what follows */
	bool ending;
	bool asleep; /* the thread reads nothing, and nothing is kept */
	struct watcher *watchers;
	struct kept kept[KEPT]; /* a ring */
	size_t first, n, bytes;
	int64_t floor, newest;
	uint64_t era;
};

/* ---- texts ---- */

static char *text_of(const struct atoll_news *n, size_t *ret_len)
{
	char *data = NULL;
	size_t len = 0;
	struct json j;
	FILE *f = open_memstream(&data, &len);

	if (!f)
		abort();
	(void)fprintf(f, "id: %lld\nevent: %s\ndata: ", (long long)n->seq, n->what);
	json_init(&j, f);
	news_json(&j, n);
	json_end(&j); /* ends the line */
	(void)fputc('\n', f);
	if (fclose(f) != 0)
		abort();
	*ret_len = len;
	return data;
}

/* What is of no plan is for all. */
static bool is_wanted(const struct watch_place *place, const char *plan)
{
	return !*place->plan || !*plan || strcmp(place->plan, plan) == 0;
}

void watch_append(struct watch_place *place, const struct atoll_news *n, struct strbuf *out)
{
	cleanup_free char *text = NULL;
	size_t len;

	place->at = n->seq;
	if (!is_wanted(place, n->plan_id))
		return;
	text = text_of(n, &len);
	strbuf_add(out, text, len);
}

/* ---- what is kept; under the mutex ---- */

static void drop_first(struct watch *w)
{
	struct kept *k = &w->kept[w->first];

	w->floor = k->seq;
	w->bytes -= k->len;
	free(k->text);
	w->first = (w->first + 1) % KEPT;
	w->n--;
}

static void keep(struct watch *w, const struct atoll_news *n, char *text, size_t len)
{
	while (w->n == KEPT || (w->n > 0 && w->bytes + len > KEPT_BYTES))
		drop_first(w);
	w->kept[(w->first + w->n++) % KEPT] =
		(struct kept){ .seq = n->seq, .text = text, .len = len };
	(void)snprintf(w->kept[(w->first + w->n - 1) % KEPT].plan, PLAN_ID_LEN + 1, "%s",
	               n->plan_id);
	w->bytes += len;
	w->newest = n->seq;
}

/* From AT on nothing is missing. */
static void keep_from(struct watch *w, int64_t at)
{
	while (w->n > 0)
		drop_first(w);
	w->floor = w->newest = at;
}

static void tell_all(struct watch *w)
{
	static const uint64_t one = 1;

	for (struct watcher *m = w->watchers; m; m = m->next)
		(void)write(m->fd, &one, sizeof(one));
}

/* ---- the thread ---- */

static int take_one(void *user, const struct atoll_news *n)
{
	struct watch *w = user;
	size_t len;
	char *text = text_of(n, &len);

	(void)pthread_mutex_lock(&w->mutex);
	if (strcmp(n->what, "gap") == 0) {
		w->era++;
		keep_from(w, n->seq);
		free(text);
	} else {
		keep(w, n, text, len);
	}
	(void)pthread_mutex_unlock(&w->mutex);
	return 0;
}

enum turn { TURN_READ = 0, TURN_SLEEP, TURN_WAKE, TURN_END };

static enum turn next_turn(struct watch *w)
{
	enum turn turn;

	registry_news_seen(w->wake_fd);
	(void)pthread_mutex_lock(&w->mutex);
	if (w->ending)
		turn = TURN_END;
	else if (!w->watchers)
		turn = TURN_SLEEP;
	else
		turn = w->asleep ? TURN_WAKE : TURN_READ;
	w->asleep = turn == TURN_SLEEP;
	if (w->asleep)
		keep_from(w, INT64_MAX);
	(void)pthread_mutex_unlock(&w->mutex);
	return turn;
}

/* What happened while nobody listened nobody waits for. */
static int begin(struct watch *w, struct error *err)
{
	int64_t at = news_tell(w->a, -1, 0, NULL, NULL, err);

	(void)pthread_mutex_lock(&w->mutex);
	if (at < 0)
		w->asleep = true; /* so that it is tried again */
	else
		keep_from(w, at);
	tell_all(w);
	(void)pthread_mutex_unlock(&w->mutex);
	return at < 0 ? (int)at : 0;
}

static int read_more(struct watch *w, struct error *err)
{
	int64_t at = w->newest, last; /* only this thread sets it */

	while ((last = news_tell(w->a, at, READ_AT_ONCE, take_one, w, err)) >= 0 && last != at)
		at = last;
	(void)pthread_mutex_lock(&w->mutex);
	tell_all(w);
	(void)pthread_mutex_unlock(&w->mutex);
	return last < 0 ? (int)last : 0;
}

static void *run(void *user)
{
	struct watch *w = user;
	struct pollfd fds[] = { { .fd = w->wake_fd, .events = POLLIN },
		                { .fd = news_fd(w->a, NULL), .events = POLLIN } };
	enum turn turn;

	while ((turn = next_turn(w)) != TURN_END) {
		cleanup_error struct error err = ERROR_INIT;
		int r = 0;

		if (turn == TURN_WAKE)
			r = begin(w, &err);
		else if (turn == TURN_READ)
			r = news_wait(w->a, w->newest, 0, &err);
		if (r > 0)
			r = read_more(w, &err);
		if (r < 0)
			log_failure("events", &err);
		if (turn == TURN_SLEEP)
			(void)poll(fds, 1, -1);
		else
			(void)poll(fds, 2, r < 0 ? RETRY_MS : LOOK_EVERY_MS);
	}
	return NULL;
}

static void wake(struct watch *w)
{
	static const uint64_t one = 1;

	(void)write(w->wake_fd, &one, sizeof(one));
}

/* ---- life ---- */

int watch_open(struct watch **ret, struct error *err)
{
	struct watch *w = xcalloc(1, sizeof(*w));

	w->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (w->wake_fd < 0) {
		free(w);
		return error_sys(err, -errno, "make", "a descriptor");
	}
	(void)pthread_mutex_init(&w->mutex, NULL);
	w->asleep = true;
	w->floor = INT64_MAX;
	w->era = 1;
	*ret = w;
	return 0;
}

void watch_close(struct watch *w)
{
	if (!w)
		return;
	(void)pthread_mutex_lock(&w->mutex);
	w->ending = true;
	(void)pthread_mutex_unlock(&w->mutex);
	wake(w);
	if (w->runs)
		(void)pthread_join(w->thread, NULL);
	while (w->n > 0)
		drop_first(w);
	store_close(w->a);
	(void)close(w->wake_fd);
	(void)pthread_mutex_destroy(&w->mutex);
	free(w);
}

/* Under the mutex. */
static int start(struct watch *w, struct error *err)
{
	int r = 0;

	if (w->runs)
		return 0;
	if (!w->a)
		r = store_open(NULL, &w->a, err);
	if (r >= 0)
		r = news_fd(w->a, err);
	if (r < 0)
		return r;
	r = pthread_create(&w->thread, NULL, run, w);
	w->runs = r == 0;
	return r ? error_sys(err, -r, "start", "a thread") : 0;
}

int watch_join(struct watch *w, struct watcher **ret, struct error *err)
{
	struct watcher *m = xcalloc(1, sizeof(*m));
	int r;

	m->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (m->fd < 0) {
		free(m);
		return error_sys(err, -errno, "make", "a descriptor");
	}
	(void)pthread_mutex_lock(&w->mutex);
	r = start(w, err);
	if (r >= 0) {
		m->next = w->watchers;
		if (m->next)
			m->next->prev = m;
		w->watchers = m;
	}
	(void)pthread_mutex_unlock(&w->mutex);
	if (r < 0) {
		(void)close(m->fd);
		free(m);
		return r;
	}
	wake(w);
	*ret = m;
	return 0;
}

void watch_leave(struct watch *w, struct watcher *m)
{
	(void)pthread_mutex_lock(&w->mutex);
	if (m->prev)
		m->prev->next = m->next;
	else
		w->watchers = m->next;
	if (m->next)
		m->next->prev = m->prev;
	(void)pthread_mutex_unlock(&w->mutex);
	(void)close(m->fd);
	free(m);
}

int watcher_fd(const struct watcher *m)
{
	return m->fd;
}

/* ---- taking ---- */

int watch_take(struct watch *w, struct watcher *m, struct watch_place *place, size_t max,
               struct strbuf *out)
{
	int is_kept;

	registry_news_seen(m->fd);
	(void)pthread_mutex_lock(&w->mutex);
	is_kept = place->era == w->era && place->at >= w->floor;
	place->era = w->era;
	for (size_t i = 0; is_kept && i < w->n && out->len < max; i++) {
		const struct kept *k = &w->kept[(w->first + i) % KEPT];

		if (k->seq <= place->at)
			continue;
		place->at = k->seq;
		if (is_wanted(place, k->plan))
			strbuf_add(out, k->text, k->len);
	}
	(void)pthread_mutex_unlock(&w->mutex);
	return is_kept;
}
