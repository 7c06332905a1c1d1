/* SPDX-License-Identifier: Apache-2.0 */
/* The connection to a running atoll-helper, for the files of this folder. */
#ifndef EXEC_EXEC_IMPL_H
#define EXEC_EXEC_IMPL_H

#include <stdbool.h>
#include <termios.h>
#include "exec/exec.h"
#include "exec/request.h"
#include "util/child.h"
#include "util/error.h"

struct channels {
	int reply[2];
	int lifeline[2];
};
#define CHANNELS_INIT ((struct channels){ { -1, -1 }, { -1, -1 } })

int channels_open(struct channels *ch);
void channels_done(struct channels *ch);
#define cleanup_channels __attribute__((__cleanup__(channels_done)))

/* Finds and starts the helper, with our standard descriptors or (OPT, which may be NULL) others; its
 * ends of the channels are closed here. -ATOLL_E_UNSUPPORTED: there is none. */
int helper_spawn(struct child *c, struct channels *ch, const char *const *argv,
                 const struct exec_options *opt, struct error *err);
/* One that was started ahead, if there is one and it will do (1), else a new one (0). */
int helper_get(struct child *c, struct channels *ch, const struct exec_options *opt,
               struct error *err);
/* After its answer: waits until it said that it leaves. False: it did not say so. */
bool helper_left(const struct channels *ch);
/* Its end is for exec_end(). */
void helper_leave(struct child *c);
/* Adds the standard descriptors from FIRST on that are given instead of ours; the new number of them. */
unsigned exec_add_stdio(const struct exec_options *opt, int first, struct child_fd *fds,
                        unsigned n);
/* Hands over what to do: FDS are copied, each for its letter in SLOTS (request.h). 0 or -errno; a
 * helper that is gone is found out by its reply. */
int helper_give(const struct channels *ch, const char *slots, const int *fds);
/* Until it answers, or until it must end, which it is doing then. */
enum follow {
	FOLLOW_ANSWERED = 0,
	FOLLOW_STOPPED, /* OPT->watch forbids it to go on */
	FOLLOW_ENDED,   /* OPT->control has ended */
};
enum follow helper_follow(struct child *c, struct channels *ch, const struct exec_options *opt);
/* Its answer; it may still be ending. */
int helper_reply(struct child *c, const struct channels *ch, struct reply *ret, struct error *err);

/* ---- output.c ---- */

/* Write ends, for the command, and who reads from the other ones; or a terminal for the command, and
 * who passes on between it and ours. */
struct output {
	int out[2], err[2];
	int master, slave;       /* of that terminal */
	int tty;                 /* ours */
	struct termios modes;    /* before */
	int caller[2];           /* by which the relay hears of us */
	int stopped[2];          /* and of the command */
	int stdio[3];            /* what the command gets then */
	struct exec_options how; /* and how it is run */
	struct child copier;
};
#define OUTPUT_INIT                                \
	((struct output){ .out = { -1, -1 },       \
	                  .err = { -1, -1 },       \
	                  .master = -1,            \
	                  .slave = -1,             \
	                  .tty = -1,               \
	                  .caller = { -1, -1 },    \
	                  .stopped = { -1, -1 },   \
	                  .stdio = { -1, -1, -1 }, \
	                  .copier = CHILD_INIT })
/* Before the helper is started: *OPT becomes what it is to be started with. Nothing for one that is neither
 * kept nor relayed; output_start(), too. */
int output_open(struct output *o, const struct exec_options **opt, struct error *err);
/* After it; OPT is what output_open() made of it. */
int output_start(struct output *o, const struct exec_options *opt, struct error *err);
/* Until all was kept and passed on. Nobody else may have the write ends any more. */
void output_wait(struct output *o);
/* Ours of what the command and the copier have. */
void output_done(struct output *o);

/* What the helper said it cannot do, as the error CODE of operation OP. */
int exec_reply_error(const struct reply *reply, int code, const char *op, struct error *err);
/* error_sys(), with what to do about it where it is one of the machine's own limits. */
int exec_sys_error(int r, const char *op, const char *path, struct error *err);
/* What to do about ERROR where it is one of the machine's own limits, else NULL. */
const char *exec_limit_hint(int error);
/* OPT->cwd (NULL: where the caller is) could not be entered. -ATOLL_E_NOT_FOUND. */
int exec_cwd_failed(const struct exec_options *opt, int error, struct error *err);

#endif
