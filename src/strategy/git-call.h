/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running git: its own plumbing, in an environment made once and free of the caller's GIT_*, without
 * hooks, prompts, background maintenance or network, with a time limit ($ATOLL_GIT_TIMEOUT seconds,
 * 600 when unset) after which its whole process group is killed.
 *
 * Every exit status is looked at. What git said on stderr goes into the error.
 */
#ifndef STRATEGY_GIT_CALL_H
#define STRATEGY_GIT_CALL_H

#include <stdbool.h>
#include "util/error.h"
#include "util/list.h"
#include "util/strbuf.h"

/* Where git works. Paths are absolute; NULL: not set. */
struct git {
	const char *dir;        /* the repository: GIT_DIR */
	const char *index;      /* GIT_INDEX_FILE */
	const char *objects;    /* new ones go there, and are looked for there first */
	const char *alternates; /* looked for here, too; a list as git_path_list() makes it */
	const char *work_tree;  /* also the working directory; NULL: git_call()'s CWD is */
	bool durable;           /* what it writes is synced */
	int in_fd, out_fd;      /* or FD_NONE */
	int held_fd;            /* kept open by git as long as it lives; or FD_NONE */
	const char *const *env; /* NAME=VALUE, ends with NULL */
	/* Instead of the repository's: a key, its value, the next key; or NULL. */
	const struct strlist *settings;
};
#define GIT_AT(path)  ((struct git){ .dir = (path), .in_fd = -1, .out_fd = -1, .held_fd = -1 })
#define GIT_ARGS(...) ((const char *const[]){ __VA_ARGS__, NULL })

/* ARGS without "git". IN (may be NULL) is its input, OUT (may be NULL) gets its output. 0, or 1 when
 * git ended with status 1, which is how it says no; any other end is an error. */
struct git_call {
	const char *cwd;
	const char *const *args;
	const struct strbuf *in;
	struct strbuf *out;
};
int git_call(const struct git *g, const struct git_call *call, struct error *err);

#endif
