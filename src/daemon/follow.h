/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command (command.h) that is followed over a connection (stream.h): what the client sends goes to it,
 * what it prints goes to the client, each as fast as the other side takes it.
 *
 *   FOLLOW_RUN    a command of the client's. Input comes in stdin frames, within the window; signals and
 *                 sizes come whenever they are sent. What it prints goes out in stdout and stderr frames
 *   FOLLOW_APPLY  our own program, which takes a stream. That comes in data frames and ends with an end
 *                 frame; while the program does not take it nothing is read from the client. One that
 *                 fails is not noticed before the stream's end, so that the client can send it whole
 *   FOLLOW_SEND   our own program, which makes one: data frames to the client
 *
 * What our own programs say on standard error is kept, and not sent.
 */
#ifndef DAEMON_FOLLOW_H
#define DAEMON_FOLLOW_H

#include "daemon/command.h"
#include "daemon/problem.h"
#include "daemon/stream.h"
#include "util/strbuf.h"

enum follow_kind { FOLLOW_RUN = 0, FOLLOW_APPLY, FOLLOW_SEND };

struct follow {
	enum follow_kind kind;
	struct command *cmd;
	struct strbuf said; /* of our own programs, on standard error; the beginning */

	/* the rest is follow.c's */
	bool ended;     /* the command has */
	bool no_more;   /* the client said that its input ends here */
	bool news;      /* there is a notice */
	bool turn;      /* standard error is looked at first */
	unsigned pings; /* that are not answered yet */
	/* Input on its way to the command: a ring. */
	size_t in_begin, in_len;
	size_t credit; /* bytes of it that the command has taken and the client was not told of */
	unsigned char in[FRAME_WINDOW];
};

/* Until the command has ended and all it printed is sent. Negative: the session is over (stream.h), and
 * the command has been ended. */
int follow(struct follow *f, struct stream *s);
void follow_done(struct follow *f); /* what it points to; ends the command */

/* How a command ended, as members of an open object. */
void exec_put_exit(struct json *j, const struct command *cmd);
/* Of a command that was not run. */
void exec_problem(struct problem *p, const struct command *cmd);

#endif
