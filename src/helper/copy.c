/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whoever reads one of the streams slowly must not hold up the other: nothing is read of a stream
 * before the last of it was passed on, and no more is written at once than a pipe that can be written
 * to takes without waiting.
 */
#include "helper/copy.h"

#include "exec/request.h"
#include "fs/atomic.h"
#include "util/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER  (64u << 10)
#define STREAMS 2
/* Another segment for every few bytes would cost the command more than it does. */
#define EACH_MIN (32u << 10)

struct kept {
	int dir_fd;
	int fd;             /* of the newest segment; FD_NONE: none yet */
	uint64_t each;      /* most bytes of a segment */
	uint64_t total;     /* printed so far */
	uint64_t begins[2]; /* of the older segment, of the newer */
	unsigned n;         /* segments there are */
	bool failed;        /* nothing more is kept */
};

struct stream {
	int from, to; /* FD_NONE: at its end; not passed on */
	char data[BUFFER];
	size_t begin, end; /* of what is to be passed on */
};

/* ---- keeping ---- */

static void segment_name(uint64_t begin, char out[EXEC_SEGMENT_LEN])
{
	(void)snprintf(out, EXEC_SEGMENT_LEN, EXEC_SEGMENT, begin);
}

static int next_segment(struct kept *k)
{
	char name[EXEC_SEGMENT_LEN];

	close_fd(&k->fd);
	if (k->n == 2) {
		segment_name(k->begins[0], name);
		(void)fs_unlink_at(k->dir_fd, name);
		k->begins[0] = k->begins[1];
		k->n = 1;
	}
	segment_name(k->total, name);
	k->begins[k->n++] = k->total;
	return fs_create_at(k->dir_fd, name, 0600, &k->fd);
}

/* A disk that is full is no reason to hold the command up. */
static void keep(struct kept *k, const char *data, size_t len)
{
	while (len > 0 && !k->failed) {
		uint64_t room = k->fd == FD_NONE ? 0 : k->begins[k->n - 1] + k->each - k->total;
		size_t n = len < room ? len : (size_t)room;

		if (n == 0) {
			k->failed = next_segment(k) < 0;
			continue;
		}
		k->failed = fs_write_all(k->fd, data, n) < 0;
		k->total += n;
		data += n;
		len -= n;
	}
}

/* ---- passing on ---- */

static void read_some(struct stream *s, struct kept *k)
{
	ssize_t n = read(s->from, s->data, sizeof(s->data));

	if (n < 0 && errno == EINTR)
		return;
	if (n <= 0) {
		close_fd(&s->from);
		return;
	}
	keep(k, s->data, (size_t)n);
	s->begin = 0;
	s->end = s->to == FD_NONE ? 0 : (size_t)n;
}

static void write_some(struct stream *s)
{
	size_t left = s->end - s->begin;
	ssize_t n = write(s->to, s->data + s->begin, left < PIPE_BUF ? left : PIPE_BUF);

	if (n >= 0)
		s->begin += (size_t)n;
	else if (errno != EINTR && errno != EAGAIN)
		close_fd(&s->from); /* as without us: the command hears of it */
	if (s->from == FD_NONE)
		s->begin = s->end;
}

static bool has_more(const struct stream *s)
{
	return s->begin < s->end;
}

static bool is_open(const struct stream *s)
{
	return s->from != FD_NONE || has_more(s);
}

static void copy_all(struct stream s[STREAMS], struct kept *k)
{
	while (is_open(&s[0]) || is_open(&s[1])) {
		struct pollfd fds[STREAMS];

		for (int i = 0; i < STREAMS; i++)
			fds[i] = (struct pollfd){ .fd = has_more(&s[i]) ? s[i].to : s[i].from,
				                  .events = has_more(&s[i]) ? POLLOUT : POLLIN };
		if (poll(fds, STREAMS, -1) < 0 && errno != EINTR)
			return;
		for (int i = 0; i < STREAMS; i++) {
			if (!fds[i].revents)
				continue;
			if (has_more(&s[i]))
				write_some(&s[i]);
			else
				read_some(&s[i], k);
		}
	}
}

/* What ends the command must not end us before it has said its last words. */
static void ignore_signals(void)
{
	static const int signals[] = { SIGINT,  SIGQUIT, SIGTERM, SIGHUP, SIGPIPE,
		                       SIGTSTP, SIGTTOU, SIGUSR1, SIGUSR2 };

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		(void)signal(signals[i], SIG_IGN);
}

int copy_run(const char *dir, const char *max, const char *pass)
{
	static struct stream s[STREAMS];
	bool passes = strcmp(pass, "1") == 0;
	struct kept k = { .dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC),
		          .fd = FD_NONE,
		          .each = strtoull(max, NULL, 10) / 2 };

	ignore_signals();
	k.each = k.each < EACH_MIN ? EACH_MIN : k.each;
	k.failed = k.dir_fd < 0;
	s[0] = (struct stream){ .from = COPY_OUTPUT_FD, .to = passes ? STDOUT_FILENO : FD_NONE };
	s[1] = (struct stream){ .from = COPY_ERROR_FD, .to = passes ? STDERR_FILENO : FD_NONE };
	copy_all(s, &k);
	close_fd(&k.fd);
	close_fd(&k.dir_fd);
	return k.failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
