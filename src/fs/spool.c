/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records are appended to a piece of memory; when that is full, it goes to the end of the file as a
 * whole, so that no record lies in both. A reference is an offset from the first byte ever added.
 */
#include "fs/spool.h"

#include <atoll.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/atomic.h"
#include "util/cleanup.h"
#include "util/mem.h"

#define TAIL_MIN   1024
#define LEN_BITS   24
#define OFFSET_MAX ((UINT64_C(1) << (64 - LEN_BITS)) - 1)
/* What is read at once: little where records are asked for here and there, more and more in a row. */
#define READ_MIN 4096u
#define READ_MAX (64u << 10)

struct spool_window {
	char *buf;
	size_t cap, len;
	uint64_t from; /* offset of its first byte */
	size_t ahead;  /* how much to read the next time, if it goes on where this ends */
	size_t found;  /* behind the record found last */
};

static uint64_t offset_of(uint64_t ref)
{
	return ref >> LEN_BITS;
}

static size_t len_of(uint64_t ref)
{
	return (size_t)(ref & SPOOL_RECORD_MAX);
}

static void window_free(struct spool_window *w)
{
	if (w)
		free(w->buf);
	free(w);
}

void spool_spill_to(struct spool *s, int dir_fd)
{
	s->may_spill = true;
	s->dir_fd = dir_fd;
}

/* The tail to the file. When that cannot be done, it stays in memory for good. */
static void spill(struct spool *s)
{
	bool opened;
	int r = 0;

	if (s->file_len == s->over_len)
		r = fs_anonymous_at(s->dir_fd, &s->fd);
	opened = r >= 0;
	if (r >= 0 && !s->window)
		s->window = calloc(1, sizeof(*s->window));
	if (r >= 0 && s->window)
		r = fs_write_at(s->fd, s->tail, s->tail_len, s->file_len - s->over_len);
	if (r >= 0 && s->window) {
		s->file_len += s->tail_len;
		s->tail_len = 0;
		return;
	}
	if (opened && s->file_len == s->over_len)
		close_fd(&s->fd);
	s->may_spill = false;
}

/* Bytes only; *ret refers to them. */
static int append(struct spool *s, const void *data, size_t len, uint64_t *ret)
{
	uint64_t offset = s->file_len + s->tail_len;
	int r;

	if (len > SPOOL_RECORD_MAX || offset + len > OFFSET_MAX)
		return -ATOLL_E_TOO_BIG;
	if (s->may_spill && s->tail_len > 0 && s->tail_len + len > SPOOL_MEMORY)
		spill(s);
	r = grow((void **)&s->tail, &s->tail_cap, s->tail_len + len + (s->tail ? 0 : TAIL_MIN), 1);
	if (r < 0)
		return r;
	if (len > 0)
		memcpy(s->tail + s->tail_len, data, len);
	*ret = (s->file_len + s->tail_len) << LEN_BITS | len;
	s->tail_len += len;
	return 0;
}

int spool_add(struct spool *s, const void *data, size_t len)
{
	int r = grow((void **)&s->refs, &s->cap, s->n + 1, sizeof(*s->refs));

	if (r >= 0)
		r = append(s, data, len, &s->refs[s->n]);
	if (r >= 0)
		s->n++;
	return r;
}

int spool_set(struct spool *s, size_t i, const void *data, size_t len)
{
	return append(s, data, len, &s->refs[i]);
}

static int read_at(int fd, char *buf, size_t len, uint64_t offset)
{
	while (len > 0) {
		ssize_t n = pread(fd, buf, len, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO; /* somebody cut it */
		buf += n;
		len -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

/* Reads such that OFFSET up to END, both within the file, is in W. */
static int window_fill(const struct spool *s, struct spool_window *w, uint64_t offset, uint64_t end)
{
	uint64_t from = offset, to = end;
	uint64_t w_end = w->from + w->len;
	/* The part of it that lies in one file. */
	bool over = offset < s->over_len;
	uint64_t first = over ? 0 : s->over_len, last = over ? s->over_len : s->file_len;
	int r;

	if (w->len > 0 && offset >= w->from && offset <= w_end) {
		if (to - from < w->ahead) /* forward: it begins in what was read, or right behind */
			to = from + w->ahead;
	} else if (w->len > 0 && end <= w_end && end >= w->from) {
		if (to - from < w->ahead) /* backward */
			from = to < first + w->ahead ? first : to - w->ahead;
	} else {
		w->ahead = READ_MIN;
		if (to - from < READ_MIN)
			to = from + READ_MIN;
	}
	w->ahead = w->ahead * 2 > READ_MAX ? READ_MAX : w->ahead * 2;
	if (to > last)
		to = last;
	w->len = 0;
	r = grow((void **)&w->buf, &w->cap, (size_t)(to - from), 1);
	if (r >= 0)
		r = read_at(over ? s->over_fd : s->fd, w->buf, (size_t)(to - from), from - first);
	if (r < 0)
		return r;
	w->from = from;
	w->len = (size_t)(to - from);
	return 0;
}

static int get(const struct spool *s, struct spool_window *w, uint64_t ref, const void **ret_data,
               size_t *ret_len)
{
	uint64_t offset = offset_of(ref);
	size_t len = len_of(ref);
	int r = 0;

	*ret_len = len;
	if (offset >= s->file_len) {
		*ret_data = s->tail_len > 0 ? s->tail + (offset - s->file_len) : "";
		return 0;
	}
	if (offset < w->from || offset + len > w->from + w->len)
		r = window_fill(s, w, offset, offset + len);
	*ret_data = r < 0 ? NULL : w->buf + (offset - w->from);
	return r;
}

int spool_get(const struct spool *s, size_t i, const void **ret_data, size_t *ret_len)
{
	return get(s, s->window, s->refs[i], ret_data, ret_len);
}

void spool_move(struct spool *s, size_t from, size_t to)
{
	s->refs[to] = s->refs[from];
}

void spool_cut(struct spool *s, size_t n)
{
	if (n < s->n)
		s->n = n;
}

/* ---- sorting ---- */

struct sorter {
	const struct spool *s;
	spool_cmp_fn cmp;
	struct spool_window a, b;
	int failure;
};

static bool is_behind(struct sorter *t, uint64_t a, uint64_t b)
{
	const void *a_data = NULL, *b_data = NULL;
	size_t a_len = 0, b_len = 0;
	int r = get(t->s, &t->a, a, &a_data, &a_len);

	if (r >= 0)
		r = get(t->s, &t->b, b, &b_data, &b_len);
	if (r < 0) {
		t->failure = r;
		return false;
	}
	return t->cmp(a_data, a_len, b_data, b_len) > 0;
}

/* End of the sorted run that begins at I. */
static size_t run_end(struct sorter *t, const uint64_t *refs, size_t i, size_t n)
{
	for (i++; i < n && !t->failure && !is_behind(t, refs[i - 1], refs[i]);)
		i++;
	return i;
}

/* FROM..MID and MID..END of REFS, each sorted, to OUT. */
static void merge(struct sorter *t, const uint64_t *refs, size_t from, size_t mid, size_t end,
                  uint64_t *out)
{
	size_t i = from, j = mid;

	for (size_t k = from; k < end; k++) {
		bool second =
			i == mid || (j < end && !t->failure && is_behind(t, refs[i], refs[j]));

		out[k] = second ? refs[j++] : refs[i++];
	}
}

/* Merges neighbouring runs to OUT. How many there were. */
static size_t pass(struct sorter *t, const uint64_t *refs, size_t n, uint64_t *out)
{
	size_t runs = 0;

	for (size_t from = 0; from < n;) {
		size_t mid = run_end(t, refs, from, n);
		size_t end = mid < n ? run_end(t, refs, mid, n) : mid;

		merge(t, refs, from, mid, end, out);
		runs += mid < n ? 2 : 1;
		from = end;
	}
	return runs;
}

int spool_sort(struct spool *s, spool_cmp_fn cmp)
{
	struct sorter t = { .s = s, .cmp = cmp };
	size_t sorted = s->n ? run_end(&t, s->refs, 0, s->n) : 0;
	uint64_t *out = NULL;
	size_t runs;

	if (sorted < s->n && !t.failure) {
		out = malloc(s->cap * sizeof(*out));
		if (!out)
			t.failure = -ENOMEM;
	}
	while (out && !t.failure) {
		uint64_t *refs = s->refs;

		runs = pass(&t, refs, s->n, out);
		if (t.failure)
			break;
		s->refs = out;
		out = refs;
		if (runs <= 2)
			break;
	}
	free(out);
	free(t.a.buf);
	free(t.b.buf);
	return t.failure;
}

/* ---- looking up ---- */

static int compare(const struct spool *s, size_t i, spool_key_fn cmp, const void *key,
                   int *ret_order)
{
	const void *data;
	size_t len;
	int r = spool_get(s, i, &data, &len);

	if (r >= 0)
		*ret_order = cmp(key, data, len);
	return r;
}

int spool_search(const struct spool *s, size_t n, spool_key_fn cmp, const void *key, size_t *ret)
{
	size_t low = 0, high = n, mid = s->window ? s->window->found : n / 2;
	int r = 0, order = 1;

	while (low < high && order != 0) {
		if (mid < low || mid >= high)
			mid = low + (high - low) / 2;
		r = compare(s, mid, cmp, key, &order);
		if (r < 0)
			return r;
		*ret = mid;
		if (order < 0)
			high = mid;
		else
			low = mid + 1;
		mid = low + (high - low) / 2;
	}
	if (order != 0)
		return 0;
	if (s->window)
		s->window->found = *ret + 1;
	return 1;
}

/* ---- a file that is there already ---- */

int spool_over(struct spool *s, int fd, uint64_t len)
{
	int own = fcntl(fd, F_DUPFD_CLOEXEC, 3), r = own < 0 ? -errno : 0;
	struct spool_window *w = r < 0 ? NULL : calloc(1, sizeof(*w));

	if (r >= 0 && (!w || len == 0 || len > OFFSET_MAX)) {
		r = w ? -EINVAL : -ENOMEM;
		close_fd(&own);
	}
	if (r < 0) {
		window_free(w);
		return r;
	}
	*s = (struct spool){ .over_fd = own, .over_len = len, .file_len = len, .window = w };
	return 0;
}

int spool_name(struct spool *s, uint64_t offset, size_t len)
{
	int r;

	if (len > SPOOL_RECORD_MAX || offset > s->over_len || len > s->over_len - offset)
		return -ATOLL_E_TOO_BIG;
	r = grow((void **)&s->refs, &s->cap, s->n + 1, sizeof(*s->refs));
	if (r >= 0)
		s->refs[s->n++] = offset << LEN_BITS | len;
	return r;
}

void spool_done(struct spool *s)
{
	int saved = errno;

	free(s->refs);
	free(s->tail);
	if (s->over_len > 0)
		close_fd(&s->over_fd);
	if (s->file_len > s->over_len)
		close_fd(&s->fd);
	window_free(s->window);
	*s = (struct spool){ 0 };
	errno = saved;
}
