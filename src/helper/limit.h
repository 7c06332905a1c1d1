/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a command may use at most: memory, processors, processes.
 *
 * Each limit is held by a control group where one can be made: version 2 where it is delegated to
 * us, else version 1 of that kind (root's). Where there is none: memory by a limit of each process on
 * its own data, processes by the user's number of them (not for root, whom that does not bind),
 * processors by nothing. The answer says by what; nothing is said to hold that does not.
 *
 * Only the command and what it starts are in the groups, not pid 1 of its namespace: what the kernel
 * kills for want of memory is theirs. The helper makes the groups before the command begins and
 * removes them when all has ended; killed itself, it leaves their paths in EXEC_RUNNING for
 * exec_bury().
 */
#ifndef HELPER_LIMIT_H
#define HELPER_LIMIT_H

#include "exec/request.h"

#include <stdint.h>

struct limit_group {
	char *path;
	int dir_fd;
};

struct limits {
	int64_t value[REQUEST_LIMIT_END_]; /* 0: none */
	enum reply_limit by[REQUEST_LIMIT_END_];
	struct limit_group groups[REQUEST_LIMIT_END_];
	unsigned n_groups;
};
#define LIMITS_INIT ((struct limits){ 0 })

/* -EPROTO: no numbers. */
int limits_read(struct limits *l, const struct request *q);
/* Makes the groups and puts descriptors to enter them by into LIMIT_FD + I, for those that are held
 * by one. */
void limits_make(struct limits *l);
/* In the child that becomes the command: by what is in LIMIT_FD. 0 or -errno. */
int limits_enter(const struct limits *l);
/* Paths of the groups, a line each; the caller frees. */
char *limits_paths(const struct limits *l);
/* All has ended: what happened, and no group is left. */
void limits_end(struct limits *l, struct reply *reply);

/* ---- group.c ---- */

/* A group for the limits of MASK (1 << enum request_limit) with their values, of that version; only a
 * group that holds all of them counts. 0 and *ret, or -errno: nothing is left of it. */
int group_make(const struct limits *l, unsigned mask, enum reply_limit version,
               struct limit_group *ret);
/* A descriptor through which a process enters it. */
int group_entrance(const struct limit_group *g);
/* Processes killed for want of memory. */
unsigned group_memory_kills(const struct limit_group *g);
void group_remove(struct limit_group *g);

#endif
