/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of a file: by reflink, copy_file_range, sendfile, or read and write, each taken where
 * the one before is refused. Holes are looked up and left out, so they stay holes.
 */
#include "fs/copy.h"

#include "fs/atomic.h"
#include "fs/fs-impl.h"
#include "util/cleanup.h"
#include "util/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <unistd.h>

#define LOOP_CHUNK (256u << 10)
#define CALL_MAX   ((size_t)128 << 20) /* so that progress shows within a file */

static atomic_int best_method = COPY_REFLINK;

void copy_force(enum copy_method worst)
{
	atomic_store(&best_method, (int)worst);
}

/* The method does not work between these two files; another one will. */
static bool is_refusal(int r)
{
	switch (-r) {
	case EXDEV:
	case EOPNOTSUPP:
	case EINVAL:
	case ENOSYS:
	case ENOTTY:
	case EPERM:
	case ETXTBSY:
		return true;
	default:
		return false;
	}
}

struct segment {
	int src, dst;
	off_t at; /* how far it got */
	off_t end;
};

static size_t left(const struct segment *s, size_t max)
{
	return (uint64_t)(s->end - s->at) < max ? (size_t)(s->end - s->at) : max;
}

/* Each advances AT and returns the number of bytes, 0 where the source gave none, or -errno. */
static ssize_t step_range(struct segment *s)
{
	off_t in = s->at;
	off_t out = s->at;

	return copy_file_range(s->src, &in, s->dst, &out, left(s, CALL_MAX), 0);
}

static ssize_t step_sendfile(struct segment *s)
{
	off_t in = s->at;

	if (lseek(s->dst, s->at, SEEK_SET) < 0)
		return -1;
	return sendfile(s->dst, s->src, &in, left(s, CALL_MAX));
}

typedef ssize_t (*step_fn)(struct segment *s);

static int by_step(step_fn step, struct segment *s)
{
	while (s->at < s->end) {
		ssize_t n = step(s);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -EOPNOTSUPP; /* some filesystems say so instead of refusing */
		s->at += n;
		progress_add(0, (uint64_t)n);
	}
	return 0;
}

static int by_loop(struct segment *s)
{
	cleanup_free char *buf = malloc(LOOP_CHUNK);
	int r = buf != NULL ? 0 : -ENOMEM;

	while (r == 0 && s->at < s->end) {
		ssize_t n = pread(s->src, buf, left(s, LOOP_CHUNK), s->at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EAGAIN; /* it was cut meanwhile */
		r = fs_write_at(s->dst, buf, (size_t)n, (uint64_t)s->at);
		s->at += n;
		progress_add(0, (uint64_t)n);
	}
	return r;
}

/* *METHOD stays at what worked, for the segments that follow. */
static int copy_segment(struct segment *s, int *method)
{
	int r;

	if (*method == COPY_RANGE) {
		r = by_step(step_range, s);
		if (!is_refusal(r))
			return r;
		*method = COPY_SENDFILE;
	}
	if (*method == COPY_SENDFILE) {
		r = by_step(step_sendfile, s);
		if (!is_refusal(r))
			return r;
		*method = COPY_LOOP;
	}
	return by_loop(s);
}

/* The next stretch of data at or after AT. Both come in as SIZE, and stay so when there is none. */
static int next_data(int fd, off_t at, off_t size, off_t *ret_from, off_t *ret_end)
{
	off_t from = lseek(fd, at, SEEK_DATA);
	off_t end;

	if (from < 0 && errno == ENXIO)
		return 0;
	if (from < 0 && is_refusal(-errno)) {
		*ret_from = at; /* cannot tell: take all of it */
		return 0;
	}
	if (from < 0)
		return -errno;
	end = lseek(fd, from, SEEK_HOLE);
	if (end < 0 && errno != ENXIO)
		return -errno;
	*ret_from = from < size ? from : size;
	*ret_end = end < 0 || end > size ? size : end;
	return 0;
}

static int copy_segments(int src_fd, int dst_fd, off_t size, int method)
{
	off_t at = 0;

	/* First the size: what no segment covers is a hole. */
	if (ftruncate(dst_fd, size) < 0)
		return -errno;
	while (at < size) {
		off_t from = size;
		off_t end = size;
		int r = next_data(src_fd, at, size, &from, &end);

		if (r < 0)
			return r;
		if (from >= size)
			break;
		r = copy_segment(&(struct segment){ src_fd, dst_fd, from, end }, &method);
		if (r < 0)
			return r;
		at = end;
	}
	return 0;
}

int copy_data(int src_fd, int dst_fd, uint64_t size)
{
	int method = atomic_load(&best_method);

	if (size == 0)
		return 0;
	if (method == COPY_REFLINK) {
		if (ioctl(dst_fd, FICLONE, src_fd) == 0)
			return 0;
		if (!is_refusal(-errno))
			return -errno;
		method = COPY_RANGE;
	}
	return copy_segments(src_fd, dst_fd, (off_t)size, method);
}
