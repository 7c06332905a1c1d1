/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The request's wire form: magic, length of the rest, then fields of (type, length, bytes), all
 * numbers 32 bits little-endian. It must be exactly as long as it says.
 */
#include "exec/request.h"

#include "fs/atomic.h"
#include "util/cleanup.h"
#include "util/mem.h"
#include "util/strbuf.h"

#include <atoll.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define NUMBER     4u
#define FIELD_HEAD (2 * NUMBER)
#define HEADER     (2 * NUMBER)

struct values {
	char **v;
	size_t n;
	size_t cap;
};

struct request {
	struct values fields[REQUEST_FIELD_END_];
	size_t size; /* of the fields on the wire */
};

struct request *request_new(void)
{
	return xcalloc(1, sizeof(struct request));
}

void request_free(struct request *r)
{
	if (!r)
		return;
	for (unsigned f = 0; f < REQUEST_FIELD_END_; f++) {
		for (size_t i = 0; i < r->fields[f].n; i++)
			free(r->fields[f].v[i]);
		free(r->fields[f].v);
	}
	free(r);
}

void cleanup_requestp(struct request **r)
{
	int saved = errno;

	request_free(*r);
	errno = saved;
}

/* VALUE has LEN bytes and need not be terminated. */
static int add_bytes(struct request *r, uint32_t field, const char *value, size_t len)
{
	struct values *values;
	char *copy;
	int ret;

	if (len > REQUEST_MAX || r->size + FIELD_HEAD + len > REQUEST_MAX - HEADER)
		return -ATOLL_E_TOO_BIG;
	values = &r->fields[field];
	ret = grow((void **)&values->v, &values->cap, values->n + 1, sizeof(*values->v));
	if (ret < 0)
		return ret;
	copy = malloc(len + 1);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, value, len);
	copy[len] = '\0';
	values->v[values->n++] = copy;
	r->size += FIELD_HEAD + len;
	return 0;
}

int request_add(struct request *r, enum request_field f, const char *value)
{
	return add_bytes(r, f, value, strlen(value));
}

unsigned request_count(const struct request *r, enum request_field f)
{
	return (unsigned)r->fields[f].n;
}

const char *request_get(const struct request *r, enum request_field f, unsigned i)
{
	return i < r->fields[f].n ? r->fields[f].v[i] : NULL;
}

static void put_number(struct strbuf *sb, size_t n)
{
	uint32_t le = htole32((uint32_t)n);

	strbuf_add(sb, &le, sizeof(le));
}

static uint32_t get_number(const char *p)
{
	uint32_t le;

	memcpy(&le, p, sizeof(le));
	return le32toh(le);
}

int request_send(const struct request *r, int fd)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;

	put_number(&sb, REQUEST_MAGIC);
	put_number(&sb, r->size);
	for (unsigned f = 1; f < REQUEST_FIELD_END_; f++) {
		for (size_t i = 0; i < r->fields[f].n; i++) {
			size_t len = strlen(r->fields[f].v[i]);

			put_number(&sb, f);
			put_number(&sb, len);
			strbuf_add(&sb, r->fields[f].v[i], len);
		}
	}
	return fs_write_all(fd, sb.buf, sb.len);
}

static int parse_fields(struct request *r, const char *p, size_t left)
{
	while (left > 0) {
		uint32_t field, len;
		int ret;

		if (left < FIELD_HEAD)
			return -EPROTO;
		field = get_number(p);
		len = get_number(p + NUMBER);
		p += FIELD_HEAD;
		left -= FIELD_HEAD;
		if (field == 0 || field >= REQUEST_FIELD_END_ || len > left)
			return -EPROTO;
		/* A value with a NUL inside would be used cut short. */
		if (memchr(p, '\0', len))
			return -EPROTO;
		ret = add_bytes(r, field, p, len);
		if (ret < 0)
			return ret;
		p += len;
		left -= len;
	}
	return 0;
}

int request_receive(int fd, struct request **ret)
{
	cleanup_request struct request *r = NULL;
	cleanup_free char *data = NULL;
	size_t len = 0;
	int err;

	err = fs_read_all(fd, REQUEST_MAX, &data, &len);
	if (err < 0)
		return err;
	if (len < HEADER || get_number(data) != REQUEST_MAGIC)
		return -EPROTO;
	if (get_number(data + NUMBER) != len - HEADER)
		return -EPROTO;
	r = request_new();
	err = parse_fields(r, data + HEADER, len - HEADER);
	if (err < 0)
		return err;
	*ret = take_ptr(r);
	return 0;
}

/* ---- its way ---- */

/* Where what is given goes. */
static const struct {
	char slot;
	int fd;
} places[] = {
	{ 'r', REQUEST_FD },
	{ 'l', LOCK_FD },
	{ 'm', LIMIT_FD + REQUEST_LIMIT_MEMORY },
	{ 'c', LIMIT_FD + REQUEST_LIMIT_CPUS },
	{ 'p', LIMIT_FD + REQUEST_LIMIT_PIDS },
	{ 'o', OUTPUT_FD },
	{ 'e', OUTPUT_FD + 1 },
	{ 'n', STOPPED_FD },
	{ 'j', JOBSERVER_FD },
	{ 'w', JOBSERVER_FD + 1 },
};
#define PLACES (sizeof(places) / sizeof(places[0]))
_Static_assert(PLACES <= REQUEST_SLOTS, "a letter for each");
static unsigned filled; /* places; the helper has one thread */

union control {
	struct cmsghdr head; /* for its alignment */
	char bytes[CMSG_SPACE(PLACES * sizeof(int))];
};

int request_give(int socket, const char *slots, const int *fds)
{
	size_t n = strlen(slots);
	union control control = { 0 };
	char text[REQUEST_SLOTS] = { 0 };
	struct iovec iov = { .iov_base = text, .iov_len = sizeof(text) };
	struct msghdr msg = { .msg_iov = &iov,
		              .msg_iovlen = 1,
		              .msg_control = n ? control.bytes : NULL,
		              .msg_controllen = n ? CMSG_SPACE(n * sizeof(int)) : 0 };
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	if (n > PLACES)
		return -EINVAL;
	memcpy(text, slots, n);
	if (c) {
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(c), fds, n * sizeof(int));
	}
	return sendmsg(socket, &msg, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int request_hand_on(int socket)
{
	char slots[PLACES + 1] = { 0 };
	int fds[PLACES];
	size_t n = 0;

	for (size_t i = 0; i < PLACES; i++) {
		if (!(filled >> i & 1))
			continue;
		slots[n] = places[i].slot;
		fds[n++] = places[i].fd;
	}
	return request_give(socket, slots, fds);
}

/* Ours is open: a number that is not allowed is one beyond the limit. */
static int copy_to(int fd, int place)
{
	if (dup3(fd, place, O_CLOEXEC) >= 0)
		return 0;
	return errno == EBADF ? -EMFILE : -errno;
}

int request_reserve(void)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < PLACES; i++)
		r = copy_to(LIFELINE_FD, places[i].fd);
	return r;
}

bool request_has(char slot)
{
	for (size_t i = 0; i < PLACES; i++)
		if (places[i].slot == slot)
			return filled >> i & 1;
	return false;
}

int request_put(char slot, int fd)
{
	for (size_t i = 0; i < PLACES; i++) {
		int r;

		if (places[i].slot != slot)
			continue;
		r = copy_to(fd, places[i].fd);
		filled |= r == 0 ? 1u << i : 0;
		return r;
	}
	return -EPROTO;
}

static int put_in_places(const struct msghdr *msg, const char *slots)
{
	const struct cmsghdr *c = CMSG_FIRSTHDR(msg);
	size_t n;
	int r = 0;

	if (msg->msg_flags & MSG_CTRUNC) /* there was no number left for them */
		return -EMFILE;
	if (!c)
		return 1; /* only the word */
	n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS || n > PLACES)
		return -EPROTO;
	for (size_t i = 0; i < n; i++) {
		cleanup_close int fd = FD_NONE;
		int k;

		memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
		k = request_put(slots[i], fd);
		r = k < 0 ? k : r;
	}
	return r < 0 ? r : 1;
}

int request_take(int socket)
{
	union control control = { 0 };
	char slots[REQUEST_SLOTS];
	struct iovec iov = { .iov_base = slots, .iov_len = sizeof(slots) };
	struct msghdr msg = { .msg_iov = &iov,
		              .msg_iovlen = 1,
		              .msg_control = control.bytes,
		              .msg_controllen = sizeof(control.bytes) };
	ssize_t n;

	do {
		n = recvmsg(socket, &msg, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n <= 0)
		return n < 0 ? -errno : 0;
	return n == (ssize_t)sizeof(slots) ? put_in_places(&msg, slots) : -EPROTO;
}

bool request_is_target(const char *path)
{
	while (*path == '/') {
		size_t len = strcspn(++path, "/");

		if (len == 0 || (path[0] == '.' && (len == 1 || (len == 2 && path[1] == '.'))))
			return false;
		path += len;
		if (*path == '\0')
			return true;
	}
	return false;
}
