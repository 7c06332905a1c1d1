/* SPDX-License-Identifier: Apache-2.0 */
/* Files as text lines under a hash of themselves. */
#include "token/disk-impl.h"

#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD_ROOM 64
#define VERSION   1

void form_done(struct form *f)
{
	wipe_free(f->data, f->cap);
	*f = (struct form){ 0 };
}

void form_init(struct form *f, size_t room)
{
	f->cap = HEAD_ROOM + room + 1;
	f->data = xcalloc(1, f->cap);
	f->len = HEAD_ROOM;
}

void form_line(struct form *f, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(f->data + f->len, f->cap - f->len, fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n + 1 >= f->cap - f->len)
		BUG("no room for a line of %d bytes", n);
	f->len += (size_t)n;
	f->data[f->len++] = '\n';
}

void form_seal(struct form *f, const char *kind)
{
	char head[HEAD_ROOM], hash[HASH_TEXT_LEN];
	size_t n;

	hash_buffer(f->data + HEAD_ROOM, f->len - HEAD_ROOM, hash);
	n = (size_t)snprintf(head, sizeof(head), "%s %d %s\n", kind, VERSION, hash);
	if (n >= sizeof(head))
		BUG("no room for the first line of a %s", kind);
	memmove(f->data + n, f->data + HEAD_ROOM, f->len - HEAD_ROOM);
	memcpy(f->data, head, n);
	f->len -= HEAD_ROOM - n;
}

/* ---- reading ---- */

static const char *unfit(const struct stat *st)
{
	if (!S_ISREG(st->st_mode))
		return "is not a plain file";
	if (st->st_uid != geteuid())
		return "belongs to somebody else";
	if ((st->st_mode & 077) != 0)
		return "is open to others";
	if (st->st_nlink != 1)
		return "has another name, too";
	return st->st_size <= 0 || st->st_size > FORM_MAX ? "is too short or too long" : NULL;
}

int form_read(int dir_fd, const char *name, struct form *f, const char **ret_wrong)
{
	cleanup_close int fd =
		openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct stat st;

	*ret_wrong = "cannot be read";
	if (fd < 0 && errno == ENOENT)
		return -ENOENT;
	if (fd < 0 && errno == ELOOP)
		*ret_wrong = "is a link";
	if (fd < 0 || fstat(fd, &st) < 0)
		return -EBADMSG;
	*ret_wrong = unfit(&st);
	if (*ret_wrong)
		return -EBADMSG;
	f->cap = (size_t)st.st_size + 1;
	f->data = xcalloc(1, f->cap);
	while (f->len < (size_t)st.st_size) {
		ssize_t n = read(fd, f->data + f->len, (size_t)st.st_size - f->len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		f->len += (size_t)n;
	}
	*ret_wrong = "is not what was written";
	return f->len == (size_t)st.st_size ? 0 : -EBADMSG;
}

int form_open(struct form *f, const char *kind, char **ret_lines)
{
	char *end = f->len > 0 ? memchr(f->data, '\n', f->len) : NULL;
	char head[HEAD_ROOM], hash[HASH_TEXT_LEN];

	if (!end || f->data[f->len - 1] != '\n' || memchr(f->data, '\0', f->len))
		return -EBADMSG;
	*end = '\0';
	hash_buffer(end + 1, f->len - (size_t)(end + 1 - f->data), hash);
	(void)snprintf(head, sizeof(head), "%s %d %s", kind, VERSION, hash);
	*ret_lines = end + 1;
	return strcmp(head, f->data) == 0 ? 0 : -EBADMSG;
}

char *form_next(char **lines, const char *name)
{
	size_t n = strlen(name);
	char *line = *lines, *end = strchr(line, '\n');

	if (!end || strncmp(line, name, n) != 0 || line[n] != '\t')
		return NULL;
	*end = '\0';
	*lines = end + 1;
	return line + n + 1;
}

/* ---- tokens ---- */

void token_file_write(struct form *f, const struct token_file *file)
{
	const struct atoll_token *t = file->token;
	const char *p = t->fields, *end = t->fields + t->fields_len;

	form_init(f, strlen(file->endpoint) + strlen(file->principal) + strlen(file->sandbox) +
	                     t->text_len + t->fields_len * 8 + 512);
	form_line(f, "endpoint\t%s", file->endpoint);
	form_line(f, "principal\t%s", file->principal);
	form_line(f, "sandbox\t%s", file->sandbox);
	form_line(f, "version\t%" PRIu64, t->version);
	form_line(f, "life\t%" PRId64, t->life_ns);
	form_line(f, "end\t%" PRId64, t->real_end_ns);
	form_line(f, "boot-end\t%" PRId64, t->boot_end_ns);
	form_line(f, "boot\t%s", clock_boot_id());
	form_line(f, "token\t%s", t->text);
	while (p < end) {
		const char *value = p + strlen(p) + 1;

		form_line(f, "field\t%s\t%s", p, value);
		p = value + strlen(value) + 1;
	}
	form_seal(f, "atoll-token");
}

static int next_number(char **lines, const char *name, int64_t *ret)
{
	char *value = form_next(lines, name), *end;

	if (!value)
		return -EBADMSG;
	errno = 0;
	*ret = strtoll(value, &end, 10);
	return errno == 0 && end > value && *end == '\0' ? 0 : -EBADMSG;
}

static int read_fields(char **lines, struct token_fields *fields)
{
	char *line;
	int r = 0;

	while (r >= 0 && (line = form_next(lines, "field")) != NULL) {
		char *value = strchr(line, '\t');

		if (!value)
			return -EBADMSG;
		*value++ = '\0';
		r = token_fields_set(fields, line, value);
	}
	return r < 0 || **lines != '\0' ? -EBADMSG : 0;
}

static int read_life(char **lines, struct token_life *life)
{
	char *version = form_next(lines, "version"), *end, *boot;

	if (!version)
		return -EBADMSG;
	life->version = strtoull(version, &end, 10);
	if (*end != '\0' || life->version == 0 || next_number(lines, "life", &life->life_ns) < 0 ||
	    next_number(lines, "end", &life->real_end_ns) < 0 ||
	    next_number(lines, "boot-end", &life->boot_end_ns) < 0)
		return -EBADMSG;
	boot = form_next(lines, "boot");
	if (!boot || life->life_ns <= 0)
		return -EBADMSG;
	if (strcmp(boot, clock_boot_id()) != 0)
		life->boot_end_ns = CLOCK_NEVER;
	return 0;
}

int token_file_read(struct form *f, struct token_file *ret)
{
	cleanup_token_fields struct token_fields fields = { 0 };
	struct token_life life = { 0 };
	char *lines, *text;

	if (form_open(f, "atoll-token", &lines) < 0)
		return -EBADMSG;
	ret->endpoint = form_next(&lines, "endpoint");
	ret->principal = form_next(&lines, "principal");
	ret->sandbox = form_next(&lines, "sandbox");
	if (!ret->endpoint || !ret->principal || !ret->sandbox || read_life(&lines, &life) < 0)
		return -EBADMSG;
	text = form_next(&lines, "token");
	if (!text || !token_text_ok(text, strlen(text)) || read_fields(&lines, &fields) < 0)
		return -EBADMSG;
	ret->token = token_new(text, strlen(text), &fields, &life);
	return ret->token ? 0 : -ENOMEM;
}
