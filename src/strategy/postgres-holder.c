/* SPDX-License-Identifier: Apache-2.0 */
/* The holder of a transaction: begun, asked, ended. */
#include "strategy/postgres.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "fs/atomic.h"
#include "fs/remove.h"
#include "postgres/protocol.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"
#include "util/process.h"

#define GONE_MAX     4096
#define ANSWER_MAX   (16u << 20)
#define END_LIMIT_MS 5000

static int open_dir(const char *area, int *ret_fd)
{
	cleanup_free char *dir = xasprintf("%s/" PG_DIR, area);

	*ret_fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return *ret_fd < 0 ? -errno : 0;
}

/* ---- asking ---- */

/* 1, or 0 when nobody listens. */
static int dial(const char *area, int *ret_fd)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	cleanup_close int dir_fd = FD_NONE;
	cleanup_close int fd = FD_NONE;
	int r = open_dir(area, &dir_fd);

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	/* By way of the descriptor: an address has no room for a long path. */
	(void)snprintf(addr.sun_path, sizeof(addr.sun_path), "/proc/self/fd/%d/" PROTOCOL_MANAGE,
	               dir_fd);
	if (connect(fd, (const struct sockaddr *)&addr, sizeof(addr)) < 0)
		return errno == ECONNREFUSED || errno == ENOENT ? 0 : -errno;
	*ret_fd = take_fd(&fd);
	return 1;
}

/* To the end of the answer, which comes when the holder hangs up. */
static int hear(int fd, int64_t deadline, struct strbuf *out)
{
	char buf[4096];

	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		int left = clock_left_ms(deadline);
		int n = poll(&p, 1, left);
		ssize_t got;

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			return -ETIMEDOUT;
		got = n > 0 ? recv(fd, buf, sizeof(buf), MSG_DONTWAIT) : -1;
		if (got == 0)
			return 0;
		if (got < 0 && errno != EINTR && errno != EAGAIN)
			return errno == ECONNRESET ? 0 : -errno;
		if (got > 0)
			strbuf_add(out, buf, (size_t)got);
		if (out->len > ANSWER_MAX)
			return -ATOLL_E_TOO_BIG;
	}
}

/* The last line, cut off. */
static const char *last_line(struct strbuf *text)
{
	char *start;

	if (text->len > 0 && text->buf[text->len - 1] == '\n')
		strbuf_truncate(text, text->len - 1);
	if (text->len == 0)
		return "";
	start = memrchr(text->buf, '\n', text->len);
	return start ? start + 1 : text->buf;
}

static int judge(struct strbuf *text, struct strbuf *out, struct error *err)
{
	const char *last = last_line(text);
	cleanup_free char *state = NULL;

	if (strncmp(last, "ok", 2) == 0) {
		if (out && last > text->buf)
			strbuf_add(out, text->buf, (size_t)(last - text->buf));
		else if (out)
			strbuf_puts(out, last + 2 + strspn(last + 2, " "));
		return 1;
	}
	if (strncmp(last, "error ", 6) != 0)
		return 0; /* it died before it could answer */
	last += 6;
	state = xstrndup(last, strcspn(last, " "));
	last += strlen(state);
	if (strcmp(state, PROTOCOL_BUSY) == 0)
		return error_set(err, -ATOLL_E_BUSY, "a program is inside a transaction");
	(void)error_set(err, -ATOLL_E_CANNOT_PREPARE, "the server says:%s", last);
	error_cause(err, "postgres", NULL, 0, state);
	return -ATOLL_E_CANNOT_PREPARE;
}

int pg_ask(const char *area, const char *line, int64_t deadline, struct strbuf *out,
           struct error *err)
{
	cleanup_strbuf struct strbuf text = STRBUF_INIT;
	cleanup_free char *sent = xasprintf("%s\n", line);
	cleanup_close int fd = FD_NONE;
	int r = dial(area, &fd);

	if (r <= 0)
		return r < 0 ? error_sys(err, r, "reach the transaction in", area) : 0;
	if (send(fd, sent, strlen(sent), MSG_NOSIGNAL) < 0)
		return 0;
	r = hear(fd, deadline, &text);
	if (r < 0)
		return error_sys(err, r, "hear of the transaction in", area);
	return judge(&text, out, err);
}

/* ---- beginning and ending ---- */

static int make_places(const char *area, int *ret_fd)
{
	cleanup_close int area_fd = open(area, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int r = area_fd < 0 ? -errno : remove_tree_at(area_fd, PG_DIR);

	if (r == 0 || r == -ENOENT)
		r = fs_mkdir_at(area_fd, PG_DIR, 0700);
	if (r == 0)
		r = open_dir(area, ret_fd);
	return r < 0 ? r : fs_mkdir_at(*ret_fd, PROTOCOL_CLIENTS_DIR, 0700);
}

static int drop_places(const char *area)
{
	cleanup_free char *dir = xasprintf("%s/" PG_DIR, area);
	int r = remove_tree(dir);

	return r == -ENOENT ? 0 : r;
}

int pg_begin(const char *area, const char *url, struct error *err)
{
	cleanup_free char *dir = xasprintf("%s/" PG_DIR, area);
	cleanup_close int fd = FD_NONE;
	int r = make_places(area, &fd);

	if (r < 0)
		return error_sys(err, r, "make", dir);
	r = pg_start(dir, url, err);
	if (r < 0)
		(void)drop_places(area);
	return r;
}

/* Who listens there is what the kernel says, and no other process can be taken for it. */
static int wait_for_end(int fd)
{
	struct ucred who;
	socklen_t len = sizeof(who);
	cleanup_close int pidfd = FD_NONE;
	uint64_t started;
	int r;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0)
		return -errno;
	if (!process_start_time(who.pid, &started))
		return 0;
	r = process_open(who.pid, started, &pidfd);
	if (r <= 0)
		return r;
	(void)send(fd, "rollback\n", sizeof("rollback\n") - 1, MSG_NOSIGNAL);
	if (process_wait(pidfd, clock_deadline(END_LIMIT_MS)) == 1)
		return 0;
	(void)process_signal(pidfd, SIGKILL);
	return process_wait(pidfd, clock_deadline(END_LIMIT_MS)) == 1 ? 0 : -ETIMEDOUT;
}

int pg_end(const char *area, struct error *err)
{
	cleanup_close int fd = FD_NONE;
	int r = dial(area, &fd);

	if (r > 0)
		r = wait_for_end(fd);
	if (r == 0)
		r = drop_places(area);
	return r < 0 ? error_sys(err, r, "end the transaction in", area) : 0;
}

/* ---- when it is gone ---- */

static char *read_gone(const char *area)
{
	cleanup_close int dir_fd = FD_NONE;
	cleanup_close int fd = FD_NONE;
	char *text = NULL;
	size_t len;

	if (open_dir(area, &dir_fd) < 0)
		return NULL;
	fd = openat(dir_fd, PROTOCOL_GONE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fs_read_all(fd, GONE_MAX, &text, &len) < 0)
		return NULL;
	return text;
}

int pg_gone(struct atoll_participant *p, int code)
{
	cleanup_free char *why = read_gone(p->area);

	if (p->err.code)
		return p->err.code;
	(void)error_set(&p->err, code, "its transaction is gone: %s",
	                why ? why : "the process that held it was ended");
	error_hint(&p->err, "atoll discard %s begins again; what was done in the database is lost",
	           p->plan);
	return code;
}

void pg_leave_word(const char *area, const char *why)
{
	cleanup_close int dir_fd = FD_NONE;
	cleanup_close int fd = FD_NONE;

	if (open_dir(area, &dir_fd) == 0 && fs_create_at(dir_fd, PROTOCOL_GONE, 0600, &fd) == 0)
		(void)fs_write_all(fd, why, strlen(why));
}
