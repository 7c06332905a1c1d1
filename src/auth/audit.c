/* SPDX-License-Identifier: Apache-2.0 */
/* Writing the audit log. */
#include "auth/audit-impl.h"

#include "fs/atomic.h"
#include "fs/walk.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/json.h"
#include "util/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK_NAME    "audit.lk"
#define LOCK_WAIT_MS 10000
#define NAME_BEFORE  "audit."
#define NAME_AFTER   ".log"
#define TEXT_MAX     256 /* bytes of one member */

int audit_failed(struct error *err, int code, const char *op, const char *name)
{
	cleanup_free char *what = xasprintf("%s the audit log", op);

	(void)error_sys(err, code, what, name);
	if (code == -EPERM)
		error_hint(err, "it must be a file of yours that is closed to others: chmod 600");
	return code;
}

/* ---- files ---- */

uint64_t audit_number(const char *name)
{
	const char *at = name + strlen(NAME_BEFORE);
	uint64_t number;
	char *end;

	if (strncmp(name, NAME_BEFORE, strlen(NAME_BEFORE)) != 0 || *at < '1' || *at > '9')
		return 0;
	number = strtoull(at, &end, 10);
	return end - at <= 18 && strcmp(end, NAME_AFTER) == 0 ? number : 0;
}

void audit_name(uint64_t number, char out[AUDIT_NAME_LEN])
{
	(void)snprintf(out, AUDIT_NAME_LEN, NAME_BEFORE "%" PRIu64 NAME_AFTER, number);
}

int audit_numbers(struct atoll *a, uint64_t *ret_first, uint64_t *ret_last, struct error *err)
{
	cleanup_dirlist struct dirlist list = DIRLIST_INIT;
	int r = dirlist_read(a->home_fd, &list);

	if (r < 0)
		return error_sys(err, r, "read", a->home);
	*ret_first = *ret_last = 0;
	for (size_t i = 0; i < list.n; i++) {
		uint64_t n = audit_number(list.v[i].name);

		if (n > *ret_last)
			*ret_last = n;
		if (n > 0 && (*ret_first == 0 || n < *ret_first))
			*ret_first = n;
	}
	return 0;
}

int audit_lock(struct atoll *a, struct ticket *t, struct error *err)
{
	const struct ticket_options opt = { .command = program_invocation_short_name,
		                            .deadline = clock_deadline(LOCK_WAIT_MS) };
	int r = ticket_acquire(t, registry_locks_fd(a->reg), LOCK_NAME, &opt);

	return r < 0 ? audit_failed(err, r, "lock", LOCK_NAME) : 0;
}

/* ---- the end of the chain ---- */

struct tail {
	char digest[SHA256_TEXT_LEN];
	bool torn; /* the last line has no end */
};

/* Of the last line of a file that is not empty. */
static int read_tail(int fd, int64_t size, struct tail *ret)
{
	char buf[AUDIT_LINE_MAX + 1];
	size_t want = size < AUDIT_LINE_MAX ? (size_t)size : AUDIT_LINE_MAX;
	ssize_t n = pread(fd, buf, want, size - (int64_t)want);
	char *end, *begin;

	if (n < 0)
		return -errno;
	if ((size_t)n != want)
		return -EIO;
	end = buf + n;
	ret->torn = end[-1] != '\n';
	/* What was cut short is ended by whoever comes next: its digest is that of the line it becomes. */
	if (ret->torn)
		*end++ = '\n';
	begin = memrchr(buf, '\n', (size_t)(end - buf) - 1);
	begin = begin ? begin + 1 : buf;
	return sha256_text(begin, (size_t)(end - begin), ret->digest);
}

/* Of the file before this one, when this one has no line yet. */
static int read_older_tail(struct atoll *a, uint64_t last, struct tail *ret)
{
	cleanup_close int fd = FD_NONE;
	char name[AUDIT_NAME_LEN];
	struct stat st;

	*ret = (struct tail){ .digest = AUDIT_ZEROS };
	if (last == 0)
		return 0;
	audit_name(last, name);
	fd = openat(a->home_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_size == 0)
		return -EBADMSG;
	return read_tail(fd, st.st_size, ret); /* never torn: see rotate() */
}

/* ---- a line ---- */

static void put(struct json *j, const char *key, const char *text)
{
	cleanup_free char *cut = NULL;

	if (strlen(text) > TEXT_MAX)
		cut = xstrndup(text, TEXT_MAX);
	json_string(j, key, *text ? cut ? cut : text : NULL);
}

/* With its newline; the caller frees. A torn line before it is ended by the same write. */
static char *make_line(const struct audit_entry *e, const struct tail *tail, size_t *ret_len)
{
	static const char *const ways[AUDIT_WAY_END_] = {
		[AUDIT_CLI] = "cli",
		[AUDIT_SOCKET] = "socket",
		[AUDIT_HTTP] = "http",
	};
	char at[CLOCK_TEXT_LEN], *text = NULL;
	FILE *f = open_memstream(&text, ret_len);
	struct json j;

	if (!f)
		return NULL;
	if (tail->torn)
		(void)fputc('\n', f);
	clock_format(clock_real_ms(), at);
	json_init(&j, f);
	json_open_object(&j, NULL);
	json_string(&j, "format", "atoll.audit/1");
	json_string(&j, "at", at);
	json_string(&j, "by", ways[e->by]);
	put(&j, "who", e->who);
	put(&j, "credential", e->credential);
	put(&j, "what", e->what);
	put(&j, "plan", e->plan);
	put(&j, "request", e->request);
	put(&j, "outcome", e->outcome);
	json_string(&j, "prev", tail->digest);
	json_close(&j);
	json_end(&j);
	if (fclose(f) != 0) {
		free(text);
		return NULL;
	}
	return text;
}

/* ---- writing ---- */

struct current {
	int fd;
	struct tail tail;
};

static int open_current(struct atoll *a, struct current *ret)
{
	uint64_t first, last;
	struct stat st;
	int r = fs_open_append_at(a->home_fd, AUDIT_NAME, &ret->fd);

	if (r < 0)
		return r;
	if (fstat(ret->fd, &st) < 0)
		return -errno;
	if (st.st_size > 0)
		return read_tail(ret->fd, st.st_size, &ret->tail);
	r = audit_numbers(a, &first, &last, NULL);
	if (r == 0)
		r = read_older_tail(a, last, &ret->tail);
	/* It may be new: its name must last as long as its lines. */
	return r < 0 ? r : fs_sync_dir(a->home_fd);
}

/* Crash: without a current file the next writer makes one, and finds the chain's end in the last. */
static int rotate(struct atoll *a, struct current *c)
{
	char name[AUDIT_NAME_LEN];
	uint64_t first, last;
	struct stat st;
	int r;

	if (fstat(c->fd, &st) < 0)
		return -errno;
	if (st.st_size < AUDIT_FILE_MAX || c->tail.torn)
		return 0;
	r = audit_numbers(a, &first, &last, NULL);
	if (r < 0)
		return r;
	audit_name(last + 1, name);
	r = fs_move(a->home_fd, AUDIT_NAME, a->home_fd, name);
	if (r < 0)
		return r;
	close_fd(&c->fd);
	return open_current(a, c);
}

static int append(struct atoll *a, struct current *c, const struct audit_entry *e)
{
	cleanup_free char *line = NULL;
	size_t len = 0;
	int r = rotate(a, c);

	if (r < 0)
		return r;
	line = make_line(e, &c->tail, &len);
	if (!line)
		return -ENOMEM;
	if (len > AUDIT_LINE_MAX)
		return -ATOLL_E_TOO_BIG;
	return fs_append(c->fd, line, len, !e->unsynced);
}

int audit_write(struct atoll *a, const struct audit_entry *e, struct error *err)
{
	struct ticket ticket = TICKET_INIT;
	struct current c = { .fd = FD_NONE };
	int r = audit_lock(a, &ticket, err);

	if (r < 0)
		return r;
	r = open_current(a, &c);
	if (r == 0)
		r = append(a, &c, e);
	close_fd(&c.fd);
	ticket_release(&ticket);
	return r < 0 ? audit_failed(err, r, "write", AUDIT_NAME) : 0;
}
