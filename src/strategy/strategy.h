/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How callers use a strategy: find it by name, make a participant of a sandbox, call its verbs.
 *
 * The verbs are those of struct atoll_strategy (atoll.h). The wrappers here check capabilities,
 * turn what the strategy said with atoll_participant_fail() into ERR, and turn any other
 * non-zero answer, whatever its value, into an error with that code: no answer escapes.
 *
 * A participant belongs to one thread at a time.
 */
#ifndef STRATEGY_STRATEGY_H
#define STRATEGY_STRATEGY_H

#include <stdbool.h>
#include <stdint.h>
#include <atoll.h>
#include "fs/sync.h"
#include "strategy/result.h"
#include "strategy/select.h"
#include "util/error.h"
#include "util/list.h"

/* Of the directories of ours that lie outside the store: ".atoll-<uid>". */
#define STRATEGY_AREA_PREFIX ".atoll-"
/* PATH, below a root, is such a directory by its name. */
bool strategy_is_area(const char *path);

/* Built-in and registered ones. -ATOLL_E_NOT_FOUND names the known ones. */
int strategy_find(const char *name, const struct atoll_strategy **ret, struct error *err);
/* Adds the names of all that are known. */
void strategy_names(struct strlist *ret);
int strategy_register(const struct atoll_strategy *s, struct error *err);
/* What is put behind a resource's name for files beside it that belong to it: NULL at the end. */
const char *const *strategy_sides(const char *name);
/* Is PATH such a file of another one of EXCLUDES? */
bool strategy_is_side(const struct strlist *excludes, const char *path);

struct participant_options {
	const char *id;
	const char *plan; /* name */
	const char *strategy;
	const char *root;
	const char *area;
	const char *work;    /* where the workspace lies: the area, or a directory in the store */
	uint64_t generation; /* of the workspace */
	bool stale;          /* the workspace is to be made anew before use */
	int store_fd;        /* the store's directory, kept by the caller */
	/* Paths below the root left alone, kept by the caller: directories of areas (strategy_is_area()), and
	 * roots of other sandboxes. */
	const struct strlist *excludes;
};

struct atoll_participant;
int participant_new(const struct participant_options *opt, struct atoll_participant **ret,
                    struct error *err);
void participant_free(struct atoll_participant *p);
void cleanup_participantp(struct atoll_participant **p);
#define cleanup_participant __attribute__((__cleanup__(cleanup_participantp)))

bool participant_can(const struct atoll_participant *p, unsigned capability);
/* It prepares a redo: prepare with batch.redoing. */
bool participant_can_redo(const struct atoll_participant *p);
/* What the next verb is about. SYNC collects what the next barrier must cover; RES takes notes. */
struct participant_batch {
	uint32_t number;
	unsigned flags;
	bool undoing;
	bool recovering;
	bool redoing; /* what an undo took back is done again */
	bool alone; /* an undo or redo of this batch only: the workspace is not asked nor touched */
	bool again; /* which began as a redo */
	bool decided;                   /* found so by recovery: it may have been committed */
	const struct selection *select; /* of a commit being prepared; NULL: everything */
	const char *manifest;           /* expected hash, or "" when not yet known */
	struct syncset *sync;
	struct atoll_result *res;
};
void participant_set_batch(struct atoll_participant *p, const struct participant_batch *b);

/* 0 or negative; prepare also ATOLL_NO_CHANGE and ATOLL_FINAL. */
int participant_create(struct atoll_participant *p, struct error *err);
/* Rebuilds a stale workspace first; participant_stale() and _generation() then tell what to record. */
int participant_path(struct atoll_participant *p, char **ret_path, struct error *err);
/* What commands see where; each answer of the strategy is passed to FN. */
struct participant_mount {
	const char *target, *source;
	const char *upper, *work; /* of an overlay, else NULL */
	bool fixed;               /* only to be read */
};
typedef int (*participant_mount_fn)(void *user, const struct participant_mount *m);
/* The network of the command that mounts are for. */
struct participant_net {
	bool own;           /* nothing but the command is in it */
	unsigned listeners; /* that other participants want in it */
};
/* NET NULL: the host's. */
int participant_mounts(struct atoll_participant *p, const struct participant_net *net,
                       participant_mount_fn fn, void *user, struct error *err);
/* What is to listen in the command's own network, as exec/request.h has it; belongs to the participant. */
const struct strlist *participant_listen(const struct atoll_participant *p);
/* NAME=VALUE each, or NAME for one to take away, as mounts said it; belongs to the participant. */
const struct strlist *participant_env(const struct atoll_participant *p);
/* Also ATOLL_NO_CHANGE. */
int participant_observe(struct atoll_participant *p, struct error *err);
/* Observing counts the changes: participant_changes(). */
bool participant_counts(const struct atoll_participant *p);
/* A directory, as it will be after CHANGE; for its attributes (O_PATH). The same callers as atoll_change_open(). */
int change_open_dir(const struct atoll_change *change, int *ret_fd);
int participant_diff(struct atoll_participant *p, atoll_change_fn fn, void *user,
                     struct error *err);
int participant_prepare(struct atoll_participant *p, struct error *err);
/* An undo or redo that was prepared was not decided: what that set aside on the disk is free again. */
void participant_let_go(struct atoll_participant *p);
int participant_check(struct atoll_participant *p, struct error *err);
int participant_commit(struct atoll_participant *p, struct error *err);
int participant_abort(struct atoll_participant *p, struct error *err);
int participant_undo(struct atoll_participant *p, struct error *err);
int participant_finish(struct atoll_participant *p, struct error *err);
int participant_release(struct atoll_participant *p, struct error *err);
int participant_reset(struct atoll_participant *p, struct error *err);
int participant_remove(struct atoll_participant *p, struct error *err);
int participant_keep(struct atoll_participant *p, struct error *err);
int participant_refresh(struct atoll_participant *p, struct error *err);
int participant_unlock(struct atoll_participant *p, struct error *err);
int participant_alive(struct atoll_participant *p, struct error *err);
/* Only if the strategy can: atoll_strategy.identify. Both strings are the caller's. */
int participant_identify(struct atoll_participant *p, char **ret_name, char **ret_id,
                         struct error *err);

/*
 * Of a participant that was just created, and that no command has used: the work in the directory NAME of PARENT_FD,
 * the upper directory of another overlay over the same root, becomes its own, by a rename. What was changed outside
 * since that directory was made is a conflict. -ATOLL_E_UNSUPPORTED, with nothing moved: the strategy has no
 * upper directory, or it cannot be this one. _may_ says so beforehand. Crash: it is in one of the two places.
 */
int participant_may_adopt(struct atoll_participant *p, int from_fd, struct error *err);
int participant_adopt(struct atoll_participant *p, int parent_fd, const char *name,
                      struct error *err);

bool participant_stale(const struct atoll_participant *p);
uint64_t participant_generation(const struct atoll_participant *p);
/* After prepare or commit: does the workspace hold work that the batch leaves there? */
bool participant_rest(const struct atoll_participant *p);
uint64_t participant_changes(const struct atoll_participant *p); /* of the last diff or prepare */
const char *participant_manifest(const struct atoll_participant *p); /* hash, or "" */

#endif
