/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache from inside.
 *
 * An *entry* is one sandbox: its current token, and what is under way for it. A *flight* is one piece
 * of work for an entry, done by a thread of the cache: get a token (from disk or by a request), set
 * fields, or both. A *wait* is somebody who wants to know how a flight ends. Callers make entries,
 * flights and waits; only the cache's threads do work. So nobody leads, and whoever leaves takes only
 * its wait along.
 *
 * One mutex, tokens.lock, guards all that is not atomic below; it is held for some loads and stores,
 * never over a system call on a file, a request, a callback, or a wake-up. Entries are never freed
 * before the cache, nor moved, so a pointer to one needs no lock.
 *
 * An entry has at most one flight that runs and one that is next:
 *
 *   idle --want--> queued --thread--> running --end--> idle, or the next one is queued
 *
 * Whoever wants a token joins the running flight, unless that began before the last clear or has its
 * answer already: then, as with fields to be set, the next one.
 *
 * A wait is LINKED while it is in a flight's list: then its owner may unlink it, under the lock, and
 * is alone with it again. Who ends the flight takes the whole list off under the lock (TAKEN) and ends
 * each wait without it; the owner must then wait for DONE, which is near.
 *
 * Invariants:
 *   1. a flight that runs or is next belongs to exactly one entry, and to one job
 *   2. entry.seq changes whenever entry.token does
 *   3. a flight whose clears is not the entry's neither changes the entry nor leaves a file
 */
#ifndef TOKEN_CACHE_IMPL_H
#define TOKEN_CACHE_IMPL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "token/answer.h"
#include "token/disk.h"
#include "token/token.h"

#define ID_MAX        128
#define WORKERS_MAX   64
#define WORKER_IDLE_S 10

struct entry;
struct atoll_tokens;

/* ---- waits ---- */

/* READY: the result is there, its callback may be running. DONE: the cache does not know it any more. */
enum wait_state { WAIT_LINKED, WAIT_TAKEN, WAIT_READY, WAIT_DONE };

struct atoll_token_wait {
	struct atoll_token_wait *next, *prev; /* in the flight's list; NEXT also of those taken */
	struct wait_list *list;               /* LINKED: where; or SLOT */
	struct atoll_token_wait **slot;       /* LINKED: the pointer of a job to it */
	struct atoll_token_wait *all_next, **all_link; /* tokens.waits; not if it blocks */
	struct atoll_tokens *tokens;
	int64_t deadline; /* for the timer; of one that blocks its owner sees to it */
	int fd;           /* eventfd, or FD_NONE */
	atoll_token_fn fn;
	void *user;
	bool is_blocking;       /* on its owner's stack */
	bool free_itself;       /* freed by the thread that ends it, before it is DONE */
	const void *taker;      /* TAKEN: by which thread */
	_Atomic uint32_t state; /* enum wait_state; a futex */
	/* the result */
	int code; /* >= 0, or negative, with or without FAILURE */
	struct atoll_token *token;
	struct token_failure *failure;
};

struct wait_list {
	struct atoll_token_wait *first;
};
/* All four with the lock held. */
void wait_link(struct wait_list *list, struct atoll_token_wait *w);
void wait_link_slot(struct atoll_token_wait **slot, struct atoll_token_wait *w);
void wait_unlink(struct atoll_token_wait *w);
/* Those of a list, or the one of a slot: TAKEN now, in a chain. */
struct atoll_token_wait *wait_take_list(struct wait_list *list);
struct atoll_token_wait *wait_take_slot(struct atoll_token_wait **slot);
/* Without the lock: ends every wait of the chain, each with references of its own. */
void wait_end(struct atoll_token_wait *chain, int code, struct atoll_token *token,
              struct token_failure *failure);
/* Until it is DONE: true; or the deadline: false. */
bool wait_sleep(struct atoll_token_wait *w, int64_t deadline);
/* One for the heap, LINKED nowhere yet. The timer is there when it will be wanted. */
int wait_new(struct atoll_tokens *t, const struct atoll_token_call *call,
             struct atoll_token_wait **ret, struct error *err);
/* One for the stack. */
void wait_init(struct atoll_token_wait *w, struct atoll_tokens *t);
/* With the lock held, once it is linked. */
void wait_arm(struct atoll_token_wait *w);
/* Of one that is READY: the code, and the words into ERR. */
int wait_tell(const struct atoll_token_wait *w, struct error *err);
/* Drops what it holds; not the block. */
void wait_done(struct atoll_token_wait *w);

/* ---- work ---- */

struct job {
	struct job *next;
	void (*run)(struct atoll_tokens *t, struct job *job); /* frees it */
};
/* Locking: held. -errno when there is no thread and none can be made; then nothing happened. */
int work_push(struct atoll_tokens *t, struct job *job);
/* In a thread of any cache: it must not wait for one. */
bool work_is_inside(void);
/* Starts a thread that runs FN, is counted, and has all signals blocked; it ends by calling the other.
 * Locking: held. */
int work_thread(struct atoll_tokens *t, void *(*fn)(void *));
void work_thread_ends(struct atoll_tokens *t);
/* Until every thread is gone, with what libraries keep for it, not only counted out: the program may
 * unload us next. Each thread waits for the one that ended before it, and we for the last.
 * Locking: held. */
void work_join(struct atoll_tokens *t);
void work_set_inside(bool is_inside);
/* Waits on COND for at most NS. Locking: held. */
void work_wait(struct atoll_tokens *t, pthread_cond_t *cond, int64_t ns);

/* ---- entries ---- */

struct field_set {
	struct field_set *next;
	struct atoll_token_wait *wait; /* a slot; NULL: it left */
	int changed;                   /* or a code */
	char name[64 + 1];
	char value[];
};

struct flight {
	struct job job;
	struct entry *entry;
	bool has_begun;         /* until then everything may still join it */
	bool wants_token;       /* and the waits have not been taken yet */
	bool is_retry;          /* ATOLL_TOKEN_RETRY */
	uint64_t clears;        /* of the entry, when it began */
	struct wait_list waits; /* for the token */
	struct field_set *sets; /* oldest first */
};

struct entry {
	_Atomic uint64_t seq; /* alone on its line with what get() reads */
	uint64_t number;      /* never used twice in a process */
	struct atoll_tokens *tokens;
	uint64_t hash;
	char padding[32];
	/* under the lock */
	struct atoll_token *token;
	struct token_failure *failure; /* the last one; NULL after a success */
	int64_t retry_at;              /* boot time */
	unsigned failures;             /* one after another */
	bool is_forgiven;              /* the next one asks whatever others were told */
	uint64_t rejected;             /* version that the service refused */
	uint64_t clears;
	struct flight *running, *next;
	struct disk_key key;
	char id[];
};

/* Open addressing, at most half full; grown by making another. Readers need no lock, so old ones stay
 * until the cache is closed. */
struct entry_table {
	struct entry_table *older;
	size_t mask;
	_Atomic(struct entry *) slot[];
};

enum load_state { LOAD_NOT, LOAD_RUNNING, LOAD_DONE };

struct atoll_tokens {
	pthread_mutex_t lock;
	pthread_cond_t work;   /* for threads: a job, or the end */
	pthread_cond_t change; /* for close and load */
	struct job *jobs, *last_job;
	unsigned queued, threads, idle;
	bool has_ended;
	pthread_t ended;         /* the last thread that ended: whoever ends next joins it */
	_Atomic bool is_closing; /* set under the lock */
	bool has_timer;
	pthread_cond_t timer;
	struct atoll_token_wait *waits; /* all on the heap, for the timer and for fork */
	_Atomic(struct entry_table *) table;
	size_t n_entries;
	enum load_state load;
	uint64_t clears; /* of everything */
	char *key;       /* wiped */
	/* fixed */
	char *endpoint;
	char *unix_socket;
	atoll_token_send_fn send;
	void *user;
	int64_t request_ns;
	int jitter_permille;
	struct disk disk;
	struct atoll_tokens *fork_next;
};

/* The mutex and what is waited on; again in the child of a fork. */
void tokens_init_sync(struct atoll_tokens *t);
void tokens_lock(struct atoll_tokens *t);
void tokens_unlock(struct atoll_tokens *t);
bool id_ok(const char *id);
uint64_t id_hash(const char *id, size_t *ret_len);
struct entry *entry_find(struct atoll_tokens *t, const char *id, uint64_t hash, size_t len);
/* Locking: held. NULL without memory. */
struct entry *entry_intern(struct atoll_tokens *t, const char *id);
/* Locking: held. Takes TOKEN (may be NULL) over; the old one, to be unref'ed without the lock. */
struct atoll_token *entry_publish(struct entry *e, struct atoll_token *token);

/* ---- flights ---- */

/* Locking: held. The flight that a new wish belongs to, for a token or for fields. 0 or -errno. */
int flight_for(struct entry *e, bool wants_token, bool is_retry, struct flight **ret);
/* What a caller gets. */
struct verdict {
	struct atoll_token *token;     /* served, with a reference; or */
	struct token_failure *failure; /* told, with a reference, and how long nobody asks; or */
	int64_t pause_ns;
	struct flight *flight; /* to wait for; or */
	int code;              /* neither can be */
};
/* Locking: held. Starts what must be started. */
void entry_judge(struct entry *e, unsigned flags, struct verdict *ret);
/* Reads what is on disk, once; the others who need it wait. Locking: not held. */
void tokens_load(struct atoll_tokens *t);

/* ---- fork ---- */

void fork_add(struct atoll_tokens *t);
void fork_remove(struct atoll_tokens *t);

/* The transport by libcurl (http.c). */
int http_send(const struct atoll_tokens *t, const struct atoll_token_request *request,
              struct atoll_token_reply *reply);

#endif
