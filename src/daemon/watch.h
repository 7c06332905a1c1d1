/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Following the store, for all streams of events at once. One thread waits for what happens
 * (atoll_events_fd()), reads it once, makes the text of it once, and keeps the last of these; every
 * stream has a descriptor that says when to look. There is no thread before the first stream, and it
 * sleeps while there is none.
 *
 *   kept   the events after `floor`, up to the newest that the thread has read. A stream that stands at
 *          `floor` or later takes from here; one that stands before it reads the store itself, at its own
 *          pace, until it has caught up. So nobody who reads slowly holds anything in memory, and nobody
 *          misses anything: nothing is dropped but connections that read nothing at all (peer.h).
 *   era    another one when the store's numbers began anew: then every stream asks the store first,
 *          which says that there is a gap.
 *
 * Locking: one mutex, held while texts are copied, never while the store is read or anybody waits.
 */
#ifndef DAEMON_WATCH_H
#define DAEMON_WATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <atoll.h>
#include "util/error.h"
#include "util/strbuf.h"

struct watch;
struct watcher; /* a stream's side */

int watch_open(struct watch **ret, struct error *err);
void watch_close(struct watch *w); /* ends the thread; no watcher may be left. NULL is fine */

int watch_join(struct watch *w, struct watcher **ret, struct error *err);
void watch_leave(struct watch *w, struct watcher *m);
/* Readable when there may be more; watch_take() clears it. */
int watcher_fd(const struct watcher *m);

/* Where a stream stands, and what it wants. */
struct watch_place {
	int64_t at;       /* number of the last event it has, or passed over */
	const char *plan; /* id, or "": of all */
	uint64_t era;     /* watch_take()'s own; 0 at first */
};
/* Appends what is kept after the place, about MAX bytes of it at most. 1: that was from there; 0: the
 * place is too old, or of another era: the store is to be asked (atoll_events() with watch_append()) before
 * this is called again. */
int watch_take(struct watch *w, struct watcher *m, struct watch_place *place, size_t max,
               struct strbuf *out);
/* One event as text, if the place wants it; moves it. */
void watch_append(struct watch_place *place, const struct atoll_news *n, struct strbuf *out);

#endif
