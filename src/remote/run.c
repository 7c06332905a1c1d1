/* SPDX-License-Identifier: Apache-2.0 */
/* The command's input, output, terminal and signals: one loop around poll(). */
#include "remote/run.h"

#include "remote/console.h"
#include "util/cleanup.h"
#include "util/json-read.h"
#include "util/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NOTE_MAX       1024
#define SIGNALS_QUEUED 16

struct running {
	struct connection *c;
	const struct remote_run *run;
	struct remote_outcome *ret;
	struct console console;
	size_t window;    /* of input that may be sent */
	bool input_ended; /* and that was said */
	bool input_ready, signal_ready;
	bool suspend; /* once what is on its way is away */
	bool resized;
	unsigned char signals[SIGNALS_QUEUED]; /* to be sent */
	size_t n_signals;
	/* What the command printed and is not written yet: in the connection's reader. */
	const unsigned char *data;
	size_t len;
	int *to;                   /* which of the next two; NULL: none */
	int out_fd, err_fd;        /* FD_NONE: nobody reads it any more */
	bool out_waits, err_waits; /* it is a pipe or the like, which may make us wait */
	bool ended;
};

static void queue_signal(struct running *s, int sig)
{
	/* So many that nobody has taken yet say nothing new. */
	if (s->n_signals < SIGNALS_QUEUED)
		s->signals[s->n_signals++] = (unsigned char)sig;
}

/* ---- what it prints ---- */

static bool may_wait(int fd)
{
	struct stat st;

	return fstat(fd, &st) < 0 || !S_ISREG(st.st_mode);
}

/* Never more than a pipe that polls as writable takes: the descriptor is others', too, and must not be made
 * one that does not block. */
static void write_out(struct running *s)
{
	while (s->to && s->len > 0) {
		bool waits = s->to == &s->out_fd ? s->out_waits : s->err_waits;
		struct pollfd pfd = { .fd = *s->to, .events = POLLOUT };
		size_t n = waits && s->len > PIPE_BUF ? PIPE_BUF : s->len;
		ssize_t done;

		if (waits && poll(&pfd, 1, 0) == 0)
			return;
		done = write(*s->to, s->data, n);
		if (done < 0 && (errno == EINTR || errno == EAGAIN))
			return;
		if (done < 0) {
			queue_signal(s, SIGPIPE);
			*s->to = FD_NONE;
			break;
		}
		s->data += done;
		s->len -= (size_t)done;
	}
	s->to = NULL;
}

static void take_output(struct running *s, int *fd, const struct frame *f)
{
	if (*fd == FD_NONE)
		return;
	s->to = fd;
	s->data = f->data;
	s->len = f->len;
	write_out(s);
}

/* ---- its end ---- */

static int take_note(void *user, size_t i, const char *value, size_t len)
{
	struct strlist *notes = user;
	char text[NOTE_MAX];

	(void)i;
	if (json_decode_string(value, len, text, sizeof(text)) == 0)
		strlist_add(notes, text);
	return 0;
}

static int take_end_member(void *user, const char *key, const char *value, size_t len)
{
	struct remote_outcome *o = user;
	int64_t n;

	if (strcmp(key, "exit_code") == 0 && json_decode_int(value, len, &n) == 0)
		o->status.exit_code = (int)(n & 0xff);
	else if (strcmp(key, "term_signal") == 0 && json_decode_int(value, len, &n) == 0)
		o->status.term_signal = (int)n;
	else if (strcmp(key, "changes") == 0 && json_decode_int(value, len, &n) == 0)
		o->changes_there = n;
	else if (strcmp(key, "timed_out") == 0)
		(void)json_decode_bool(value, len, &o->status.timed_out);
	else if (strcmp(key, "isolated") == 0)
		(void)json_decode_bool(value, len, &o->status.isolated);
	else if (strcmp(key, "notes") == 0)
		(void)json_elements(value, len, SIZE_MAX, take_note, &o->notes);
	return 0;
}

static int take_end(struct running *s, const struct frame *f, struct error *err)
{
	s->ret->changes_there = -1;
	s->ret->status = (struct atoll_exec_status){ .exit_code = -1, .isolated = true };
	if (json_members((const char *)f->data, f->len, take_end_member, s->ret) < 0 ||
	    s->ret->status.exit_code < 0)
		return error_set(err, -EPROTO, "the daemon does not say how the command ended");
	s->ended = s->ret->ran = true;
	return 0;
}

/* ---- frames ---- */

static int take_frame(struct running *s, const struct frame *f, struct error *err)
{
	switch ((int)f->type) {
	case FRAME_STDOUT:
		take_output(s, &s->out_fd, f);
		return 0;
	case FRAME_STDERR:
		take_output(s, &s->err_fd, f);
		return 0;
	case FRAME_WINDOW_MORE:
		s->window += frame_u32(f->data);
		return 0;
	case FRAME_EXIT:
		return take_end(s, f, err);
	case FRAME_NOTICE:
	case FRAME_PONG:
		return 0;
	default:
		return error_set(err, -EPROTO, "the daemon sent a frame that belongs elsewhere");
	}
}

/* As much as can be written at once. */
static int receive(struct running *s, struct error *err)
{
	struct frame f;
	int r = 0;

	while (!s->to && !s->ended && (r = connection_try_next(s->c, &f, err)) > 0) {
		r = take_frame(s, &f, err);
		if (r < 0)
			return r;
	}
	return r < 0 ? r : 0;
}

/* ---- what goes there ---- */

static void put_input(struct running *s)
{
	unsigned char *to = connection_room(s->c);
	size_t n = s->window < FRAME_MAX ? s->window : FRAME_MAX;
	ssize_t got;

	s->input_ready = false;
	got = read(s->run->in_fd, to, n);
	if (got < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (got <= 0) {
		s->input_ended = true;
		got = 0;
	}
	if (s->run->terminal && s->run->suspends && memchr(to, CONSOLE_SUSPEND_KEY, (size_t)got))
		s->suspend = true;
	s->window -= (size_t)got;
	connection_put(s->c, FRAME_STDIN, (size_t)got);
}

static void put_resize(struct running *s)
{
	unsigned char *to = connection_room(s->c);
	uint16_t rows = 0, columns = 0;

	s->resized = false;
	if (!console_size(&s->console, &rows, &columns) || rows == 0 || columns == 0)
		return;
	to[0] = (unsigned char)(rows >> 8);
	to[1] = (unsigned char)rows;
	to[2] = (unsigned char)(columns >> 8);
	to[3] = (unsigned char)columns;
	connection_put(s->c, FRAME_RESIZE, 4);
}

static void put_signal(struct running *s)
{
	connection_room(s->c)[0] = s->signals[0];
	memmove(s->signals, s->signals + 1, --s->n_signals);
	connection_put(s->c, FRAME_SIGNAL, 1);
}

/* Stopped here and there; then the size may be another. */
static void suspend(struct running *s)
{
	s->suspend = false;
	console_suspend(&s->console);
	queue_signal(s, SIGCONT);
	s->resized = true;
}

/* Signals before input: they do not wait for who reads it. */
static int send_some(struct running *s, struct error *err)
{
	int r = connection_flush(s->c, err);

	while (r == 0 && connection_is_idle(s->c)) {
		if (s->n_signals > 0)
			put_signal(s);
		else if (s->suspend)
			suspend(s);
		else if (s->resized)
			put_resize(s);
		else if (s->input_ready && s->window > 0 && !s->input_ended)
			put_input(s);
		if (connection_is_idle(s->c) && s->n_signals == 0 && !s->resized)
			break;
		r = connection_flush(s->c, err);
	}
	return r;
}

static void take_signals(struct running *s)
{
	int sig;

	while ((sig = console_signal(&s->console)) > 0) {
		if (sig == SIGWINCH) {
			s->resized = s->run->terminal;
			continue;
		}
		queue_signal(s, sig);
		s->suspend |= sig == SIGTSTP;
	}
}

/* ---- the loop ---- */

enum { ON_LINK = 0, ON_SIGNAL, ON_IN, ON_OUT, ON_END_ };

static void set_polls(const struct running *s, struct pollfd fds[ON_END_])
{
	bool idle = connection_is_idle(s->c);

	for (int i = 0; i < ON_END_; i++)
		fds[i] = (struct pollfd){ .fd = FD_NONE, .events = POLLIN };
	fds[ON_LINK].fd = connection_fd(s->c);
	fds[ON_LINK].events = (short)((s->to ? 0 : POLLIN) | (idle ? 0 : POLLOUT));
	fds[ON_SIGNAL].fd = s->console.signal_fd;
	if (!s->input_ended && s->window > 0 && idle)
		fds[ON_IN].fd = s->run->in_fd;
	if (s->to)
		fds[ON_OUT] = (struct pollfd){ .fd = *s->to, .events = POLLOUT };
}

static int follow(struct running *s, struct error *err)
{
	int r = receive(s, err);

	while (r == 0 && (!s->ended || s->to)) {
		struct pollfd fds[ON_END_];

		set_polls(s, fds);
		if (poll(fds, ON_END_, -1) < 0 && errno != EINTR)
			return error_sys(err, -errno, "wait for", "the command");
		if (fds[ON_SIGNAL].revents)
			take_signals(s);
		s->input_ready = fds[ON_IN].revents != 0;
		write_out(s);
		r = receive(s, err);
		if (r == 0 && !s->ended)
			r = send_some(s, err);
	}
	return r;
}

int run_there(struct connection *c, const struct remote_run *run, const char *root_here,
              const char *root_there, struct remote_outcome *ret, struct error *err)
{
	cleanup_free char *request = NULL;
	struct running s = { .c = c,
		             .run = run,
		             .ret = ret,
		             .console = CONSOLE_INIT,
		             .window = FRAME_WINDOW,
		             .out_fd = run->out_fd,
		             .err_fd = run->err_fd,
		             .out_waits = may_wait(run->out_fd),
		             .err_waits = may_wait(run->err_fd) };
	int r = run_request(run, root_here, root_there, &request, err);

	if (r < 0)
		return r;
	c->doing = "while the command ran";
	r = connection_send(c, FRAME_REQUEST, request, strlen(request), err);
	if (r == 0 && run->in_fd == FD_NONE) {
		r = connection_send(c, FRAME_STDIN, NULL, 0, err);
		s.input_ended = true;
	}
	if (r < 0)
		return r;
	r = console_begin(&s.console, run->terminal ? run->in_fd : FD_NONE);
	if (r < 0)
		return error_sys(err, r, "use", "the terminal");
	r = follow(&s, err);
	console_end(&s.console);
	/* Input that nobody wants any more may be on its way: a frame that was begun is sent to its end. */
	if (r == 0)
		r = connection_drain(c, err);
	/* As a shell has it: what could not be run is told apart from what failed. */
	if (r < 0 && r > -ATOLL_E_INVALID && c->refused && !c->ended && err && !err->op)
		error_cause(err, "run", run->argv[0], -r, NULL);
	return r;
}
