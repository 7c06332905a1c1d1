/* SPDX-License-Identifier: Apache-2.0 */
/* git with a pipe to it or from it. */
#ifndef SYNC_GIT_RUN_H
#define SYNC_GIT_RUN_H

#include <limits.h>
#include "sync/git.h"
#include "util/child.h"
#include "util/strbuf.h"

struct sync_git {
	struct child child;
	const char *command;
	int pipe;   /* our end */
	int err_fd; /* what it complains */
};
#define SYNC_GIT_INIT ((struct sync_git){ .child = CHILD_INIT, .pipe = -1, .err_fd = -1 })

struct sync_git_how {
	int root_fd;
	const char *const *args; /* without "git" */
	enum sync_git_rules rules;
	const char *objects;     /* where it puts objects; NULL: where the repository has them */
	bool takes;              /* the pipe is its input; else its output */
	const struct strbuf *in; /* its input when it does not take; NULL: none */
};
/* The path of ROOT_FD. */
int sync_git_root(int root_fd, char out[PATH_MAX]);
int sync_git_start(struct sync_git *g, const struct sync_git_how *how, struct error *err);
/* Closes the pipe and waits. 0, or 1 when it said no by ending with 1; else an error. */
int sync_git_finish(struct sync_git *g, struct error *err);
/* Ends it when it still runs. */
void sync_git_done(struct sync_git *g);
#define cleanup_sync_git __attribute__((__cleanup__(sync_git_done)))

#endif
