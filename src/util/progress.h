/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far a long piece of work is, for whoever watches. A meter belongs to the thread that does the
 * work, and to those of a pool it runs (pool.h); the code that copies and renames says what it did
 * without knowing of the watcher, and nothing at all happens when there is none.
 *
 * The watcher is called by whichever thread just did something, never by two at once, at most every
 * PROGRESS_EACH_MS, and a last time, with DONE, when it was called before. Besides it is asked, when another
 * stage begins and between two steps, whether the work goes on.
 *
 * It may ask that the work stops, by an answer other than 0. Before the decision that ends it, with nothing
 * changed; after it the work is left as a crash would leave it.
 */
#ifndef UTIL_PROGRESS_H
#define UTIL_PROGRESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define PROGRESS_EACH_MS 50

enum progress_stage {
	PROGRESS_BEGUN = 0, /* waiting, or recovering what others left: the caller is not asked */
	PROGRESS_PREPARING, /* nothing is decided */
	PROGRESS_DECIDED,   /* it will be carried out, if need be by a recovery */
};

struct progress_state {
	const char *what; /* "copying", "committing", ... */
	uint64_t files;
	uint64_t bytes;
	uint64_t total; /* of files; 0: not known */
	enum progress_stage stage;
	bool asked; /* it is only asked; with DONE: it was never told anything */
	bool done;
};
/* Not 0: stop. */
typedef int (*progress_fn)(void *user, const struct progress_state *state);

struct progress {
	progress_fn fn;
	void *user;
	struct progress *outer; /* this thread's before */
	_Atomic(const char *) what;
	_Atomic uint64_t files, bytes, total;
	_Atomic int64_t next_ns;
	_Atomic int stage;
	_Atomic bool stops, entered;
	pthread_mutex_t telling;
	bool told;
};

/* From here to progress_end(), work of this thread is P's. FN NULL: nobody watches. */
void progress_begin(struct progress *p, progress_fn fn, void *user);
void progress_end(struct progress *p); /* harmless on one that never began (zeroes) */

/* This thread's, or NULL; and taking another's over, for a thread that works for it. */
struct progress *progress_current(void);
void progress_attach(struct progress *p);

/* Something else begins, of TOTAL files (0: not known). WHAT lives for ever. */
void progress_phase(const char *what, uint64_t total);
void progress_add(uint64_t files, uint64_t bytes);

/* STAGE begins, and with it nothing is stopped any more that was before. -ECANCELED: the watcher wants to
 * stop, and it has not begun. */
int progress_enter(enum progress_stage stage);
/* Between two steps: -ECANCELED when the watcher asks, or has asked, to stop in this stage. */
int progress_check(void);
/* The same within a step that only looks: 0 once it is decided. */
int progress_check_look(void);
/* Of the phase at hand; zeroes without a progress callback. */
void progress_count(uint64_t *ret_files, uint64_t *ret_total);

#endif
