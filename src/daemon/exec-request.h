/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What to run, as a client asks for it: a JSON object whose members are the options of `atoll exec`, by
 * the same names.
 *
 *   argv        list of texts, not empty
 *   at          absolute path where the first of the directories is shown
 *   cwd         absolute path; without it the plan's first resource, if that is a directory
 *   env, unset  lists; of env each "NAME=value"
 *   net home    texts                      memory cpus pids     texts or numbers
 *   rw ro hide profile  lists              strict shared        true or false
 *   timeout     seconds                    transcript           true, or bytes as a text or number
 *   terminal    true: on a terminal of its own, with `rows` and `columns`
 *   background  the name of a job
 *   unfenced    true: also where this host has no namespaces
 *
 * What is not given is as the settings say. What would reach outside the plan for real (rw, ro, profile,
 * home: real, unfenced) is for admins: an agent's work is reviewed before it reaches another user.
 */
#ifndef DAEMON_EXEC_REQUEST_H
#define DAEMON_EXEC_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <atoll.h>
#include "daemon/auth.h"
#include "util/error.h"
#include "util/list.h"

enum exec_list {
	EXEC_LIST_ARGV = 0,
	EXEC_LIST_RW,
	EXEC_LIST_RO,
	EXEC_LIST_HIDE,
	EXEC_LIST_PROFILE,
	EXEC_LIST_END_
};

struct exec_request {
	struct strlist lists[EXEC_LIST_END_];
	const char **ends[EXEC_LIST_END_];    /* the same, each with a NULL behind it */
	struct strlist option_names, options; /* as for atoll_plan_exec_with() */
	char *cwd, *background;               /* or NULL */
	bool terminal, shared, unfenced;
	int64_t rows, columns; /* 0: not said */
	int64_t min_free;      /* as the settings say */
	struct atoll_fence fence;
	struct atoll_exec exec; /* of all this */
};
#define EXEC_REQUEST_INIT ((struct exec_request){ 0 })
void exec_request_done(struct exec_request *q);
#define cleanup_exec_request __attribute__((__cleanup__(exec_request_done)))

/* Q is EXEC_REQUEST_INIT. -ATOLL_E_INVALID names the member; -ATOLL_E_DENIED: not for WHO. */
int exec_request_read(struct exec_request *q, const char *text, size_t len,
                      const struct identity *who, struct error *err);

/* For a program of ours, in CWD: nothing but what is usual. Q is EXEC_REQUEST_INIT. */
void exec_request_of(struct exec_request *q, const char *const *argv, const char *cwd);

#endif
