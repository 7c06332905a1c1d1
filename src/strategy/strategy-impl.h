/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For files that implement a strategy: the participant from inside. Built-in strategies use the
 * public table (struct atoll_strategy) like everybody else, and report failures by setting
 * p->err with error_set() or error_sys().
 */
#ifndef STRATEGY_STRATEGY_IMPL_H
#define STRATEGY_STRATEGY_IMPL_H

#include "fs/stat.h"
#include "strategy/manifest.h"
#include "strategy/strategy.h"
#include "util/hash.h"

struct atoll_participant {
	const struct atoll_strategy *ops;
	char *id;
	char *plan;
	char *root;
	char *area;
	char *work;
	uint64_t generation;
	bool stale;
	const struct strlist *excludes;
	int store_fd;        /* the store's directory */
	struct moves *moves; /* read once they are asked for */

	struct participant_batch batch;
	struct error err; /* what the running verb said */
	uint64_t changes;
	bool counted; /* by observe */
	bool rest;    /* the batch leaves work in the workspace */
	bool keeps;   /* the workspace is ready for an undo that keeps the work */
	char manifest[HASH_TEXT_LEN];
	struct strlist undone_attrs; /* directories whose attributes they will have put back */
	struct strlist undone;       /* of other than directories: numbers of those batches */
	/* Operations of newer batches of the same undo, sorted, without those on whose paths an
	 * older one of them has a say: what will be there is their old state. */
	struct manifest put_back;
	/* What newer batches of the same undo moved out of the resource, put back or not: the
	 * ctime of its other names is our doing. No directories. Each an fs_id, sorted. */
	struct spool displaced;

	atoll_change_fn change_fn; /* during diff */
	void *change_user;
	int64_t change_count;
	const char *conflict;    /* of the change at hand: what somebody else did, or NULL */
	struct dir_sides *sides; /* of a directory: where its two sides lie; NULL outside diff */
	struct strlist programs; /* of a directory: found during diff (dir_programs()) */

	participant_mount_fn mount_fn; /* during mounts */
	void *mount_user;
	struct strlist env; /* NAME=VALUE, said by mounts */
	const struct participant_net *net;
	struct strlist listen; /* said by mounts, as exec/request.h has it */

	void *state; /* the strategy's own, from one verb to the next within a batch */
	void (*state_free)(void *state);
	/* Of a strategy that builds on another one: its own, as long as the participant, */
	void *extra;
	void (*extra_free)(void *extra);
	struct strlist own_excludes; /* what it keeps from the other one */
	struct strlist merged;       /* files it has another version of than the workspace, */
	int merged_fd;               /* below here: these take their places */
	bool batch_anyway;           /* and that prepare makes a batch even of no change */
};

/* In mounts: what a command sees at TARGET, and cannot change. */
int participant_show(struct atoll_participant *p, const char *target, const char *source);

extern const struct atoll_strategy strategy_none;
extern const struct atoll_strategy strategy_copy;
extern const struct atoll_strategy strategy_overlay;
extern const struct atoll_strategy strategy_sqlite;
extern const struct atoll_strategy strategy_git;
extern const struct atoll_strategy strategy_worktree;
extern const struct atoll_strategy strategy_postgres;
/* Of strategy_overlay alone; strategy.h has the contract. */
int overlay_may_adopt(struct atoll_participant *p, int from_fd);
int overlay_adopt(struct atoll_participant *p, int parent_fd, const char *name);

#endif
