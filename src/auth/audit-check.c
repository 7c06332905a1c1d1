/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the audit log, and whether it is as it was written. */
#include "auth/audit-impl.h"

#include "util/cleanup.h"
#include "util/json-read.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct reading {
	audit_fn fn;
	void *user;
	struct audit_sum sum;
	char prev[SHA256_TEXT_LEN]; /* digest of the line before; "": not known */
};

/* ---- a line ---- */

static int take_prev(void *user, const char *key, const char *value, size_t len)
{
	if (strcmp(key, "prev") != 0)
		return 0;
	return json_decode_string(value, len, user, SHA256_TEXT_LEN);
}

static const char *what_is_wrong(const struct reading *rd, struct audit_line *line, size_t len)
{
	char prev[SHA256_TEXT_LEN] = "";

	line->is_entry = json_members(line->text, len, take_prev, prev) == 0;
	if (!line->is_entry)
		return "it is no entry: a crash cut it short, or somebody wrote it";
	if (rd->prev[0] != '\0' && strcmp(prev, rd->prev) != 0)
		return "it does not follow the line before: that was changed, or lines are gone";
	return NULL;
}

/* TEXT has its newline, or is the very last and torn. */
static int read_line(struct reading *rd, struct audit_line *line, char *text, size_t len)
{
	bool whole = text[len - 1] == '\n';
	int r;

	line->number++;
	line->text = text;
	if (whole)
		text[len - 1] = '\0';
	line->wrong = what_is_wrong(rd, line, len - whole);
	rd->sum.lines++;
	rd->sum.wrong += line->wrong != NULL;
	r = rd->fn ? rd->fn(rd->user, line) : 0;
	if (whole)
		text[len - 1] = '\n';
	return r < 0 ? r : sha256_text(text, len, rd->prev);
}

/* ---- a file ---- */

/* Its first SIZE bytes: what is written meanwhile is for the next time. Closes FD. */
static int read_file(struct reading *rd, int fd, int64_t size, const char *name)
{
	struct audit_line line = { .file = name };
	cleanup_free char *text = NULL;
	size_t room = 0;
	FILE *f = fdopen(fd, "r");
	int r = 0;

	if (!f) {
		r = -errno;
		close_fd(&fd);
		return r;
	}
	while (r >= 0 && size > 0) {
		ssize_t len = getline(&text, &room, f);

		if (len <= 0) {
			r = ferror(f) ? -EIO : 0;
			break;
		}
		size -= len;
		r = read_line(rd, &line, text, (size_t)len);
	}
	(void)fclose(f);
	return r < 0 ? r : 0;
}

static int open_file(struct atoll *a, const char *name, int *ret_fd, int64_t *ret_size)
{
	cleanup_close int fd =
		openat(a->home_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EPERM;
	*ret_size = st.st_size;
	*ret_fd = take_fd(&fd);
	return 0;
}

/* ---- all files ---- */

struct files {
	uint64_t first, last; /* of those that are full */
	int fd;               /* the current one, or FD_NONE */
	int64_t size;
};

/* Between two writers: then the current file ends with a whole line. */
static int look(struct atoll *a, struct files *ret, struct error *err)
{
	struct ticket ticket = TICKET_INIT;
	int r = audit_lock(a, &ticket, err);

	if (r < 0)
		return r;
	r = audit_numbers(a, &ret->first, &ret->last, err);
	if (r == 0) {
		r = open_file(a, AUDIT_NAME, &ret->fd, &ret->size);
		r = r == -ENOENT ? 0 : r;
		if (r < 0)
			(void)audit_failed(err, r, "read", AUDIT_NAME);
	}
	ticket_release(&ticket);
	return r;
}

static int read_full(struct atoll *a, struct reading *rd, const struct files *files,
                     struct error *err)
{
	for (uint64_t n = files->first; n > 0 && n <= files->last; n++) {
		char name[AUDIT_NAME_LEN];
		int64_t size;
		int fd, r;

		audit_name(n, name);
		r = open_file(a, name, &fd, &size);
		if (r == -ENOENT) {
			if (rd->sum.missing == 0)
				rd->sum.missing = n;
			continue;
		}
		if (r == 0)
			r = read_file(rd, fd, size, name);
		if (r < 0)
			return audit_failed(err, r, "read", name);
	}
	return 0;
}

int audit_read(struct atoll *a, audit_fn fn, void *user, struct audit_sum *ret, struct error *err)
{
	struct reading rd = { .fn = fn, .user = user, .prev = AUDIT_ZEROS };
	struct files files = { .fd = FD_NONE };
	int r = look(a, &files, err);

	if (r < 0)
		return r;
	/* Old files may have been taken elsewhere: then the chain begins in its middle. */
	if (files.first > 1) {
		rd.sum.missing = 1;
		rd.prev[0] = '\0';
	}
	r = read_full(a, &rd, &files, err);
	if (r < 0) {
		close_fd(&files.fd);
		return r;
	}
	if (files.fd != FD_NONE)
		r = read_file(&rd, files.fd, files.size, AUDIT_NAME);
	if (r < 0)
		return audit_failed(err, r, "read", AUDIT_NAME);
	memcpy(rd.sum.last, rd.prev, sizeof(rd.sum.last));
	*ret = rd.sum;
	return 0;
}
