/* SPDX-License-Identifier: Apache-2.0 */
/* One change whose contents matter: opened, read, compared. */
#include "answer/diff-view.h"

#include "util/cleanup.h"
#include "util/clock.h"
#include "util/limits.h"
#include "util/mem.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINK_MAX_LEN (64u << 10) /* more than any filesystem has */

/* ---- made ---- */

static bool has_content(uint32_t mode)
{
	return S_ISREG(mode) || S_ISLNK(mode);
}

static uint32_t mode_of(const struct atoll_change *change, enum atoll_side side)
{
	return side == ATOLL_SIDE_OLD ? change->old_mode : change->new_mode;
}

static void open_sides(struct diff_job *job, const struct atoll_change *change)
{
	/* Nothing to read where only the owner, the mode or the time is another. */
	if (change->kind == ATOLL_CHANGE_CHANGED &&
	    !(change->what & (ATOLL_CHANGE_CONTENT | ATOLL_CHANGE_TYPE)))
		return;
	for (int side = 0; side < 2; side++) {
		int r;

		if (!has_content(mode_of(change, (enum atoll_side)side)))
			continue;
		r = atoll_change_open(change, (enum atoll_side)side, &job->fd[side]);
		if (r < 0)
			job->failed = r;
	}
}

/* ---- limits ---- */

/* For one that is larger than this the daemon has one thread: each line in memory takes some hundred bytes. */
#define ALONE_FROM (32u << 10)

static pthread_mutex_t alone = PTHREAD_MUTEX_INITIALIZER;

/* Of the whole answer. Once it is reached nothing more is compared. */
static bool may_compare(struct diff_view *v, uint64_t bytes)
{
	int64_t none = 0, now;

	if (!v->limits.bytes)
		return true;
	now = clock_boot_ns();
	(void)atomic_compare_exchange_strong(&v->until, &none, clock_deadline(v->limits.ms));
	return atomic_fetch_add(&v->compared, bytes) + bytes <= v->limits.bytes &&
	       now < atomic_load(&v->until);
}

struct lines {
	struct diff_view *v;
	struct diff_job *job;
};

static int take_line(void *user, const char *line, size_t len)
{
	struct lines *l = user;
	char origin = len ? *line : ' ';

	l->job->is_cut = !may_compare(l->v, len) ||
	                 (l->v->limits.bytes && l->job->patch.len > l->v->limits.file);
	if (l->job->is_cut)
		return -ECANCELED;
	l->job->count.added += origin == '+';
	l->job->count.deleted += origin == '-';
	if (l->v->form == DIFF_PATCH)
		diff_patch_line(&l->job->patch, l->v, origin, line + (len > 0), len - (len > 0));
	return 0;
}

struct diff_job *diff_job_new(struct diff_view *v, const struct atoll_change *change)
{
	struct diff_job *job = xcalloc(1, sizeof(*job));
	struct lines l = { v, job };

	job->change = *change;
	job->change.sandbox = xstrdup(change->sandbox);
	job->change.root = xstrdup(change->root);
	job->change.path = xstrdup(change->path);
	job->change.text = xstrdup(change->text);
	job->change.conflict = xstrdup(change->conflict);
	job->change.detail = xstrdup(change->detail);
	job->change.from = NULL;
	job->fd[ATOLL_SIDE_OLD] = job->fd[ATOLL_SIDE_NEW] = FD_NONE;
	job->has_lines = atoll_change_lines(change, take_line, &l) == 1 || job->is_cut;
	if (job->is_cut) { /* a part would pass for the whole */
		strbuf_done(&job->patch);
		job->patch = STRBUF_INIT;
		job->count = (struct text_count){ 0 };
	}
	if (!job->has_lines)
		open_sides(job, change);
	return job;
}

void diff_job_free(struct diff_job *job)
{
	if (!job)
		return;
	free_const(job->change.sandbox);
	free_const(job->change.root);
	free_const(job->change.path);
	free_const(job->change.text);
	free_const(job->change.conflict);
	free_const(job->change.detail);
	close_fd(&job->fd[ATOLL_SIDE_OLD]);
	close_fd(&job->fd[ATOLL_SIDE_NEW]);
	strbuf_done(&job->patch);
	error_done(&job->err);
	free(job);
}

/* What is too large is not read. */
uint64_t diff_job_size(const struct diff_view *v, const struct diff_job *job)
{
	uint64_t old_size = job->change.old_size, new_size = job->change.new_size;

	return (old_size > v->limits.file ? 0 : old_size) +
	       (new_size > v->limits.file ? 0 : new_size);
}

/* ---- compared ---- */

/* One side in memory. */
struct content {
	char *data;
	size_t len;
	uint64_t size; /* on disk */
	bool is_large;
};

static int read_link(int fd, struct content *ret)
{
	ssize_t n;

	ret->data = malloc(LINK_MAX_LEN);
	if (!ret->data)
		return -ENOMEM;
	n = readlinkat(fd, "", ret->data, LINK_MAX_LEN);
	if (n < 0)
		return -errno;
	ret->len = (size_t)n;
	ret->size = ret->len;
	return 0;
}

/* Up to the end, or up to what is too large. SIZE is a guess: somebody may be writing. Never mapped: a
 * file that is cut short under a mapping kills the reader. */
static int read_bytes(int fd, uint64_t size, uint64_t limit, struct content *ret)
{
	size_t cap = 0;

	for (;;) {
		size_t want = ret->len ? ret->len * 2 : (size_t)size + 1;
		ssize_t n;

		if (grow((void **)&ret->data, &cap, want, 1) < 0)
			return -ENOMEM;
		n = read(fd, ret->data + ret->len, want - ret->len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		ret->len += (size_t)n;
		/* Of a file less than asked for is all there is. */
		if (ret->len < want || ret->len > limit)
			return 0;
	}
}

static int read_file(int fd, uint64_t size, uint64_t limit, struct content *ret)
{
	struct stat st;
	int r = size > limit ? 0 : read_bytes(fd, size, limit, ret);

	ret->size = ret->len;
	ret->is_large = size > limit || ret->len > limit;
	if (r == 0 && ret->is_large && fstat(fd, &st) == 0)
		ret->size = (uint64_t)st.st_size;
	return r;
}

static int read_side(const struct diff_view *v, struct diff_job *job, enum atoll_side side,
                     struct content *ret)
{
	int *fd = &job->fd[side];
	uint64_t size = side == ATOLL_SIDE_OLD ? job->change.old_size : job->change.new_size;
	int r;

	if (*fd == FD_NONE)
		return 0;
	if (S_ISLNK(mode_of(&job->change, side)))
		r = read_link(*fd, ret);
	else
		r = read_file(*fd, size, v->limits.file, ret);
	close_fd(fd);
	return r;
}

static struct text text_of(const struct content *c)
{
	return (struct text){ c->data ? c->data : "", c->len };
}

static enum diff_content judge(const struct diff_view *v, const struct content *a,
                               const struct content *b)
{
	struct text x = text_of(a), y = text_of(b);

	if (a->is_large || b->is_large)
		return DIFF_CONTENT_LARGE;
	if (text_is_binary(&x) || text_is_binary(&y))
		return DIFF_CONTENT_BINARY;
	if (text_lines(&x) > v->limits.lines || text_lines(&y) > v->limits.lines)
		return DIFF_CONTENT_LARGE;
	return DIFF_CONTENT_TEXT;
}

static int compare_part(const struct diff_view *v, struct diff_job *job,
                        const struct diff_part *part)
{
	struct text_count n = { 0 };
	int r = 0;

	if (v->form == DIFF_PATCH)
		r = diff_patch_part(&job->patch, v, part, &n, &job->err);
	else if (part->content == DIFF_CONTENT_TEXT)
		r = text_compare(&part->before, &part->after, 0, NULL, NULL, &n, &job->err);
	job->count.added += n.added;
	job->count.deleted += n.deleted;
	return r;
}

/* A file that becomes a link, or the reverse, is one that goes and one that comes. */
static int compare_parts(const struct diff_view *v, struct diff_job *job, const struct content *a,
                         const struct content *b)
{
	const struct atoll_change *change = &job->change;
	struct diff_part whole = {
		.path = change->path,
		.old_mode = diff_git_mode(change->old_mode),
		.new_mode = diff_git_mode(change->new_mode),
		.before = text_of(a),
		.after = text_of(b),
		.old_size = a->size,
		.new_size = b->size,
		.content = job->content,
	};
	struct diff_part half = whole;
	int r;

	if (!whole.old_mode || !whole.new_mode || !((whole.old_mode ^ whole.new_mode) & S_IFMT))
		return compare_part(v, job, &whole);
	half.new_mode = 0;
	half.new_size = 0;
	half.after = (struct text){ "", 0 };
	r = compare_part(v, job, &half);
	half = whole;
	half.old_mode = 0;
	half.old_size = 0;
	half.before = (struct text){ "", 0 };
	return r < 0 ? r : compare_part(v, job, &half);
}

static void compare(struct diff_view *v, struct diff_job *job)
{
	bool is_read = job->fd[0] != FD_NONE || job->fd[1] != FD_NONE;
	struct content a = { .size = job->change.old_size }, b = { .size = job->change.new_size };
	bool is_omitted = is_read && !may_compare(v, diff_job_size(v, job));

	if (!job->failed && !is_omitted)
		job->failed = read_side(v, job, ATOLL_SIDE_OLD, &a);
	if (!job->failed && !is_omitted)
		job->failed = read_side(v, job, ATOLL_SIDE_NEW, &b);
	if (job->failed)
		job->content = DIFF_CONTENT_UNREADABLE;
	else if (is_omitted)
		job->content = DIFF_CONTENT_OMITTED;
	else if (is_read)
		job->content = judge(v, &a, &b);
	/* What cannot be read has no place in a patch: its line says so. */
	if (!job->failed)
		(void)compare_parts(v, job, &a, &b);
	free(a.data);
	free(b.data);
}

void diff_job_compare(struct diff_view *v, struct diff_job *job)
{
	bool is_alone = v->limits.bytes && diff_job_size(v, job) > ALONE_FROM;

	if (job->has_lines) {
		job->content = job->is_cut ? DIFF_CONTENT_OMITTED : DIFF_CONTENT_TEXT;
		return;
	}
	if (is_alone)
		(void)pthread_mutex_lock(&alone);
	compare(v, job);
	if (is_alone)
		(void)pthread_mutex_unlock(&alone);
}
