/* SPDX-License-Identifier: Apache-2.0 */
/* One loop around poll(). */
#include "daemon/follow.h"

#include "daemon/daemon.h"
#include "util/cleanup.h"

#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#define CREDIT_MIN (FRAME_WINDOW / 4)
#define SAID_MAX   4096
/* Sent without looking whether anything else has come. */
#define FRAMES_AT_ONCE 8

/* ---- to the client ---- */

static void fill_notice(struct json *j, const void *message)
{
	json_open_object(j, NULL);
	json_string(j, "kind", "waiting");
	json_string(j, "message", message);
	json_close(j);
}

void exec_put_exit(struct json *j, const struct command *cmd)
{
	json_int(j, "exit_code", cmd->status.exit_code);
	json_int(j, "term_signal", cmd->status.term_signal);
	json_bool(j, "timed_out", cmd->status.timed_out);
	json_bool(j, "isolated", cmd->status.isolated);
	if (cmd->changes < 0)
		json_null(j, "changes");
	else
		json_int(j, "changes", cmd->changes);
	json_open_array(j, "notes");
	for (size_t i = 0; i < atoll_result_notes(cmd->res); i++)
		json_string(j, NULL, atoll_result_note(cmd->res, i)->text);
	json_close(j);
}

void exec_problem(struct problem *p, const struct command *cmd)
{
	problem_of_result(p, cmd->result, cmd->res);
	/* Nothing is wrong here: what was asked for cannot be run. */
	if (cmd->result == -ENOENT || cmd->result == -EACCES)
		p->status = MHD_HTTP_UNPROCESSABLE_CONTENT;
}

/* What it printed, in a frame or where it belongs. True: there is a frame. */
static bool take_output(struct follow *f, struct stream *s, bool is_err)
{
	struct command *cmd = f->cmd;
	int *fd = is_err ? &cmd->err_fd : &cmd->out_fd;
	unsigned char *to = s->out + FRAME_HEAD;
	ssize_t n = *fd == FD_NONE ? 0 : command_read(cmd, fd, to, FRAME_MAX);

	if (n <= 0)
		return false;
	if (f->kind == FOLLOW_RUN) {
		stream_put(s, is_err ? FRAME_STDERR : FRAME_STDOUT, (size_t)n);
		return true;
	}
	if (is_err && f->said.len < SAID_MAX)
		strbuf_add(&f->said, to, (size_t)n);
	if (is_err || f->kind == FOLLOW_APPLY)
		return false;
	stream_put(s, FRAME_PULL_DATA, (size_t)n);
	return true;
}

/* A frame of what there is to tell, when the last one is away. */
static void fill_out(struct follow *f, struct stream *s)
{
	char message[COMMAND_NOTICE_MAX + 1];
	ssize_t n;

	if (f->pings > 0) {
		f->pings--;
		stream_put(s, FRAME_PONG, 0);
		return;
	}
	if (f->kind == FOLLOW_RUN && f->credit >= CREDIT_MIN) {
		frame_put_u32(s->out + FRAME_HEAD, (uint32_t)f->credit);
		stream_put(s, FRAME_WINDOW_MORE, 4);
		f->credit = 0;
		return;
	}
	n = f->news ? read(f->cmd->notice_fd, message, COMMAND_NOTICE_MAX) : 0;
	f->news = false;
	if (n > 0) {
		message[n] = '\0';
		stream_put_json(s, FRAME_NOTICE, fill_notice, message);
		return;
	}
	for (int i = 0; i < 2; i++) {
		f->turn = !f->turn;
		if (take_output(f, s, !f->turn))
			return;
	}
}

/* ---- from the client ---- */

static int take_input(struct follow *f, struct stream *s, const struct frame *frame)
{
	size_t at = (f->in_begin + f->in_len) % FRAME_WINDOW, first;

	if (f->no_more)
		return stream_fail(s, -EPROTO, 400, "input after its end");
	/* What was taken and not told is the client's only once it is told. */
	if (frame->len > FRAME_WINDOW - f->in_len - f->credit)
		return stream_fail(s, -EPROTO, 400, "more input than the window allows");
	first = frame->len < FRAME_WINDOW - at ? frame->len : FRAME_WINDOW - at;
	memcpy(f->in + at, frame->data, first);
	memcpy(f->in, frame->data + first, frame->len - first);
	f->in_len += frame->len;
	return 0;
}

static int end_input(struct follow *f)
{
	f->no_more = true;
	return 0;
}

static bool is_for(enum follow_kind kind, enum frame_type type)
{
	if (type == FRAME_STDIN || type == FRAME_RESIZE || type == FRAME_SIGNAL)
		return kind == FOLLOW_RUN;
	if (type == FRAME_PUSH_DATA || type == FRAME_PUSH_END)
		return kind == FOLLOW_APPLY;
	return type == FRAME_PING;
}

static int take_frame(struct stream *s, const struct frame *frame, void *arg)
{
	struct follow *f = arg;

	if (!is_for(f->kind, frame->type))
		return stream_fail(s, -EPROTO, 400, "a frame that does not belong here");
	if (frame->type == FRAME_PUSH_END || (frame->type == FRAME_STDIN && frame->len == 0))
		return end_input(f);
	if (frame->type == FRAME_STDIN || frame->type == FRAME_PUSH_DATA)
		return take_input(f, s, frame);
	if (frame->type == FRAME_RESIZE)
		command_resize(f->cmd, frame_u16(frame->data), frame_u16(frame->data + 2));
	else if (frame->type == FRAME_SIGNAL)
		command_signal(f->cmd, frame->data[0]);
	else
		f->pings++;
	return 0;
}

/* A stream has no window: it waits at the client until there is room for a whole frame. Behind its end
 * the next step's frames may be here already. */
static bool may_take(const void *arg)
{
	const struct follow *f = arg;

	return f->kind != FOLLOW_APPLY || (!f->no_more && f->in_len <= FRAME_WINDOW - FRAME_MAX);
}

/* ---- to the command ---- */

static void feed(struct follow *f)
{
	struct command *cmd = f->cmd;

	while (f->in_len > 0 && cmd->in_fd != FD_NONE) {
		size_t n = FRAME_WINDOW - f->in_begin;
		ssize_t done;

		n = f->in_len < n ? f->in_len : n;
		done = write(cmd->in_fd, f->in + f->in_begin, n);
		if (done < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (done < 0) { /* nobody reads it any more: as if it were read */
			close_fd(&cmd->in_fd);
			break;
		}
		f->in_begin = (f->in_begin + (size_t)done) % FRAME_WINDOW;
		f->in_len -= (size_t)done;
		f->credit += f->kind == FOLLOW_RUN ? (size_t)done : 0;
	}
	if (cmd->in_fd == FD_NONE) {
		f->credit += f->kind == FOLLOW_RUN ? f->in_len : 0;
		f->in_len = 0;
	}
	/* At a terminal the end of the input is a key. */
	if (f->in_len == 0 && f->no_more && !cmd->terminal)
		close_fd(&cmd->in_fd);
}

/* ---- the loop ---- */

enum { ON_SOCK = 0, ON_STOP, ON_DONE, ON_IN, ON_OUT, ON_ERR, ON_NOTICE, ON_END_ };

/* Nothing is read of the command while its last is not away. */
static void set_polls(const struct follow *f, const struct stream *s, struct pollfd fds[ON_END_])
{
	const struct command *cmd = f->cmd;
	bool fill = stream_is_free(s);

	for (int i = 0; i < ON_END_; i++)
		fds[i] = (struct pollfd){ .fd = FD_NONE, .events = POLLIN };
	fds[ON_SOCK].fd = s->wire.fd;
	fds[ON_SOCK].events =
		(short)(POLLRDHUP | (may_take(f) ? POLLIN : 0) | (fill ? 0 : POLLOUT));
	fds[ON_STOP].fd = s->d->stop_fd;
	if (!f->ended)
		fds[ON_DONE].fd = cmd->done_fd;
	if (f->in_len > 0)
		fds[ON_IN] = (struct pollfd){ .fd = cmd->in_fd, .events = POLLOUT };
	if (!fill)
		return;
	fds[ON_OUT].fd = cmd->out_fd;
	fds[ON_ERR].fd = cmd->err_fd;
	if (!f->ended)
		fds[ON_NOTICE].fd = cmd->notice_fd;
}

static bool is_over(const struct follow *f, const struct stream *s)
{
	return f->ended && f->cmd->out_fd == FD_NONE && f->cmd->err_fd == FD_NONE &&
	       stream_is_free(s) && f->pings == 0 && (f->kind != FOLLOW_APPLY || f->no_more);
}

static int receive(struct follow *f, struct stream *s, const struct pollfd *sock)
{
	const struct stream_taker taker = { take_frame, may_take, f };

	if (may_take(f))
		return sock->revents & ~POLLOUT || wire_pending(&s->wire)
		               ? stream_receive(s, &taker)
		               : 0;
	/* Not even what it has sent can be made use of without it. */
	if (sock->revents & (POLLRDHUP | POLLHUP | POLLERR)) {
		s->gone = true;
		return -ECONNRESET;
	}
	return 0;
}

/* All that is here goes as far as it can, also the end of the input: nothing would wake us for it. */
static int pass_on(struct follow *f, struct stream *s)
{
	const struct stream_taker taker = { take_frame, may_take, f };
	bool full;

	do {
		int r = stream_take(s, &taker);

		if (r < 0)
			return r;
		full = !may_take(f);
		feed(f);
	} while (full && may_take(f));
	return 0;
}

static int step(struct follow *f, struct stream *s)
{
	struct pollfd fds[ON_END_];
	int r;

	set_polls(f, s, fds);
	if (poll(fds, ON_END_, may_take(f) && wire_pending(&s->wire) ? 0 : -1) < 0 &&
	    errno != EINTR)
		return stream_fail(s, -errno, 0, "cannot wait for the command");
	if (fds[ON_STOP].revents)
		return stream_fail(s, -ECANCELED, 503, "the daemon stops; the command was ended");
	if (fds[ON_DONE].revents) {
		command_join(f->cmd);
		f->ended = true;
	}
	r = receive(f, s, &fds[ON_SOCK]);
	if (r < 0)
		return r;
	f->news = fds[ON_NOTICE].revents != 0;
	r = pass_on(f, s);
	if (r < 0)
		return r;
	stream_send(s);
	for (int i = 0; i < FRAMES_AT_ONCE && stream_is_free(s) && !s->gone; i++) {
		fill_out(f, s);
		stream_send(s);
	}
	return s->gone ? -ECONNRESET : 0;
}

int follow(struct follow *f, struct stream *s)
{
	int r = pass_on(f, s); /* what came with the request */

	while (r >= 0 && !is_over(f, s))
		r = step(f, s);
	if (r < 0) {
		command_end(f->cmd);
		command_join(f->cmd);
	}
	return r;
}

void follow_done(struct follow *f)
{
	command_free(f->cmd);
	f->cmd = NULL;
	strbuf_done(&f->said);
}
