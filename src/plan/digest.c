/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/digest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/copy.h"
#include "fs/xattr.h"
#include "strategy/strategy.h"
#include "util/cleanup.h"
#include "util/escape.h"
#include "util/mem.h"

/* Another one when what goes in changes: digests of two versions must not be compared. */
#define HEADER "atoll diff 2"
#define LOOKS  16 /* at what is put in another's place meanwhile */
#define CHUNK  65536

struct digesting {
	struct sha256 *sum;
	char *buffer; /* of CHUNK bytes */
	uint64_t changes;
	struct error *err;
};

/* ---- what goes in ---- */

static void add_number(struct digesting *d, uint64_t n)
{
	unsigned char bytes[8];

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)(n >> (8 * i));
	sha256_add(d->sum, bytes, sizeof(bytes));
}

static void add_bytes(struct digesting *d, const void *data, size_t len)
{
	add_number(d, len);
	sha256_add(d->sum, data, len);
}

static void add_text(struct digesting *d, const char *text)
{
	add_bytes(d, text, strlen(text));
}

static ssize_t read_chunk(int fd, char *buffer)
{
	size_t len = 0;

	while (len < CHUNK) {
		ssize_t n = read(fd, buffer + len, CHUNK - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : (ssize_t)len;
		len += (size_t)n;
	}
	return (ssize_t)len;
}

/* Behind chunks without data, which are zeros: how many there were. */
static int64_t skip_hole(int fd)
{
	off_t at = lseek(fd, 0, SEEK_CUR);
	int64_t chunks = at < 0 ? 0 : (copy_next_data(fd, at) - at) / CHUNK;

	return at < 0 || lseek(fd, at + (off_t)(chunks * CHUNK), SEEK_SET) < 0 ? -errno : chunks;
}

static void add_zeros(struct digesting *d, uint64_t chunks)
{
	if (!chunks)
		return;
	add_number(d, UINT64_MAX); /* no chunk is so long */
	add_number(d, chunks);
}

/* Chunks of one size but the last, which may be empty: that is where it ends. Of zeros the number, however
 * they are stored: a file can be said to be larger than anybody could read. */
static int add_file(struct digesting *d, int fd)
{
	uint64_t zeros = 0;
	ssize_t n;

	do {
		n = read_chunk(fd, d->buffer);
		if (n == CHUNK && copy_is_zero(d->buffer, CHUNK)) {
			int64_t more = skip_hole(fd);

			if (more < 0)
				return (int)more;
			zeros += 1 + (uint64_t)more;
			continue;
		}
		if (n < 0)
			return (int)n;
		add_zeros(d, zeros);
		zeros = 0;
		add_bytes(d, d->buffer, (size_t)n);
	} while (n == CHUNK);
	return 0;
}

static int add_xattrs(struct digesting *d, int fd)
{
	cleanup_xattrs struct xattrs x = XATTRS_INIT;
	int r = xattrs_read_at(fd, "", &x);

	if (r < 0)
		return r;
	add_number(d, x.n);
	for (size_t i = 0; i < x.n; i++) {
		add_text(d, x.v[i].name);
		add_bytes(d, x.v[i].value, x.v[i].len);
	}
	return 0;
}

/* ---- one change ---- */

static int fail_content(struct digesting *d, const struct atoll_change *c, int r)
{
	cleanup_free char *path = xasprintf("%s%s%s", c->root, *c->path ? "/" : "", c->path);

	(void)error_sys(d->err, r, "read", path);
	if (r == -EACCES || r == -EPERM)
		error_hint(d->err, "make it readable: what cannot be read cannot be reviewed");
	return r;
}

/* Which a commit gives it: what is made by it, and what was made before, shows by that to make, tar or rsync. */
static int add_time(struct digesting *d, int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	add_number(d, (uint64_t)st.st_mtim.tv_sec);
	add_number(d, (uint64_t)st.st_mtim.tv_nsec);
	return 0;
}

/* Of a link, whose target is in the change, and of a directory, whose entries are changes of their own. */
static int add_attributes(struct digesting *d, const struct atoll_change *c)
{
	cleanup_close int fd = FD_NONE;
	bool is_link = S_ISLNK(c->new_mode);
	int r = is_link ? atoll_change_open(c, ATOLL_SIDE_NEW, &fd) : change_open_dir(c, &fd);

	/* A directory that only holds changes need not be in the workspace itself. */
	if (r == -ATOLL_E_UNSUPPORTED || (r == -ENOENT && !is_link)) {
		add_text(d, "none");
		return 0;
	}
	if (r == -ENOENT)
		r = -EAGAIN; /* it went while we were looking */
	if (r >= 0)
		r = is_link ? add_time(d, fd) : add_xattrs(d, fd);
	return r < 0 ? fail_content(d, c, r) : 0;
}

static int add_new(struct digesting *d, const struct atoll_change *c)
{
	cleanup_close int fd = FD_NONE;
	int r = atoll_change_open(c, ATOLL_SIDE_NEW, &fd);

	/* A strategy that shows no content: the words are all there is. */
	if (r == -ATOLL_E_UNSUPPORTED) {
		add_text(d, "none");
		return 0;
	}
	if (r == -ENOENT)
		r = -EAGAIN; /* it went while we were looking */
	if (r >= 0)
		r = add_time(d, fd);
	if (r >= 0)
		r = add_xattrs(d, fd);
	if (r >= 0)
		r = add_file(d, fd);
	return r < 0 ? fail_content(d, c, r) : 0;
}

/* What is replaced. Somebody else may have taken it away, or closed it: a conflict, not our failure. */
static void add_old(struct digesting *d, const struct atoll_change *c)
{
	cleanup_close int fd = FD_NONE;
	int r = atoll_change_open(c, ATOLL_SIDE_OLD, &fd);

	if (r >= 0)
		r = add_file(d, fd);
	if (r < 0)
		add_text(d, atoll_code_name(r));
}

static int add_line(void *user, const char *line, size_t len)
{
	struct digesting *d = user;

	add_number(d, 1);
	add_bytes(d, line, len);
	return 0;
}

static int add_content(struct digesting *d, const struct atoll_change *c)
{
	int told = atoll_change_lines(c, add_line, d), r = 0;

	add_number(d, 0); /* no more lines */
	if (told < 0)
		return fail_content(d, c, told);
	if (told > 0)
		return 0;
	if (S_ISREG(c->new_mode))
		r = add_new(d, c);
	else if (S_ISLNK(c->new_mode) || S_ISDIR(c->new_mode))
		r = add_attributes(d, c);
	if (r >= 0 && c->kind == ATOLL_CHANGE_CHANGED && c->what & ATOLL_CHANGE_CONTENT &&
	    S_ISREG(c->old_mode))
		add_old(d, c);
	return r;
}

static int add_change(void *user, const struct atoll_change *c)
{
	struct digesting *d = user;
	const uint64_t numbers[] = {
		c->kind,
		c->what & ~ATOLL_CHANGE_CONFLICT,
		c->old_mode,
		c->new_mode,
		c->old_uid,
		c->new_uid,
		c->old_gid,
		c->new_gid,
		S_ISREG(c->old_mode) ? c->old_size : 0,
		S_ISREG(c->new_mode) ? c->new_size : 0,
	};

	d->changes++;
	add_text(d, c->root);
	add_text(d, c->path);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		add_number(d, numbers[i]);
	add_text(d, c->text);
	add_text(d, c->detail);
	return add_content(d, c);
}

/* ---- sandboxes and plans ---- */

static int no_libcrypto(struct error *err)
{
	return error_set(err, -ATOLL_E_UNSUPPORTED, "there is no libcrypto to make a digest with");
}

static int digest_box(struct atoll *a, const char *plan_name, const struct sandbox_row *row,
                      char out[SHA256_TEXT_LEN], struct error *err)
{
	cleanup_error struct error e = ERROR_INIT;
	cleanup_sha256 struct sha256 *sum = sha256_new();
	cleanup_free char *buffer = xcalloc(1, CHUNK);
	struct digesting d = { .sum = sum, .buffer = buffer, .err = err };
	int r;

	if (!sum)
		return no_libcrypto(err);
	add_text(&d, HEADER);
	r = sandbox_diff(a, plan_name, row, add_change, &d, &e);
	if (r < 0) {
		/* What a change's content said is nearer to the cause. */
		if (err && !err->code)
			error_move(err, &e);
		return r;
	}
	out[0] = '\0';
	if (d.changes > 0)
		sha256_end(sum, out);
	return 0;
}

int digest_boxes(struct atoll *a, const char *plan_name, const struct sandboxes *boxes,
                 struct digest *ret, struct error *err)
{
	cleanup_sha256 struct sha256 *sum = sha256_new();
	struct digesting d = { .sum = sum };

	if (!sum)
		return no_libcrypto(err);
	add_text(&d, HEADER);
	for (size_t i = 0; i < boxes->n; i++) {
		int r = digest_box(a, plan_name, &boxes->v[i], ret->part[i], err);

		if (r < 0)
			return r;
		if (*ret->part[i])
			add_text(&d, ret->part[i]);
	}
	sha256_end(sum, ret->whole);
	return 0;
}

static int load_plan(struct atoll_plan *p, struct sandboxes *ret, struct error *err)
{
	struct plan_row row;
	int r = registry_plan_get(p->a->reg, p->id, &row, err);

	return r < 0 ? r : sandboxes_load(p->a->reg, p->id, ret, err);
}

static bool same_work(const struct sandboxes *a, const struct sandboxes *b)
{
	bool same = a->n == b->n;

	for (size_t i = 0; same && i < a->n; i++)
		same = strcmp(a->v[i].id, b->v[i].id) == 0 && a->v[i].state == b->v[i].state &&
		       a->v[i].generation == b->v[i].generation && a->v[i].stale == b->v[i].stale;
	return same;
}

/* No lock is held: what is looked at may be put in another's place meanwhile, or go with its plan. 1: look
 * again. */
static int digest_once(struct atoll_plan *p, struct digest *ret, struct error *err)
{
	cleanup_sandboxes struct sandboxes boxes = SANDBOXES_INIT, now = SANDBOXES_INIT;
	cleanup_error struct error later = ERROR_INIT;
	int r = load_plan(p, &boxes, err), again;

	if (r < 0)
		return r;
	r = digest_boxes(p->a, p->name, &boxes, ret, err);
	if (r >= 0)
		return 0;
	again = load_plan(p, &now, &later);
	if (again == -ATOLL_E_NOT_FOUND) {
		error_done(err);
		error_move(err, &later);
		return again;
	}
	return again < 0 || same_work(&boxes, &now) ? r : 1;
}

int digest_plan(struct atoll_plan *p, char out[SHA256_TEXT_LEN], struct error *err)
{
	struct digest d;
	int r;

	for (int look = 0; (r = digest_once(p, &d, err)) > 0; look++) {
		error_done(err);
		if (look < LOOKS)
			continue;
		(void)error_set(err, -EAGAIN, "'%s' was decided about while it was looked at",
		                p->name);
		error_hint(err, "look again");
		return -EAGAIN;
	}
	if (r == 0)
		memcpy(out, d.whole, sizeof(d.whole));
	return r;
}

/* ---- before a commit ---- */

bool digest_is_text(const char *text)
{
	return strlen(text) == SHA256_TEXT_LEN - 1 &&
	       strspn(text, "0123456789abcdef") == SHA256_TEXT_LEN - 1;
}

static int stale(const struct plan_row *plan, const char *what, struct error *err)
{
	(void)error_set(err, -ATOLL_E_STALE, "%s; nothing was changed, and the work is kept", what);
	error_hint(err, "look again: atoll diff %s, with --digest for the digest to commit with",
	           plan->name);
	return -ATOLL_E_STALE;
}

int digest_check(struct atoll *a, const struct plan_row *plan, const struct sandboxes *boxes,
                 const char *want, struct digest *ret, struct error *err)
{
	cleanup_free char *what = NULL;
	int r = digest_boxes(a, plan->name, boxes, ret, err);

	if (r < 0)
		return error_prefix(err, r, "nothing was changed");
	if (strcmp(ret->whole, want) == 0)
		return 0;
	what = xasprintf("the changes of '%s' are not those that were looked at", plan->name);
	return stale(plan, what, err);
}

/* Whoever has a path can write below it without asking us; to a database nobody can who does not ask. */
static bool is_open_to_others(const struct sandbox_row *row)
{
	const struct atoll_strategy *s = NULL;

	return strategy_find(row->strategy, &s, NULL) == 0 && s->content &&
	       s->capabilities & ATOLL_CAP_PATH;
}

int digest_check_again(struct atoll *a, const struct plan_row *plan, const struct sandboxes *boxes,
                       const struct digest *before, struct error *err)
{
	for (size_t i = 0; i < boxes->n; i++) {
		const struct sandbox_row *row = &boxes->v[i];
		char now[SHA256_TEXT_LEN];
		int r;

		if (!is_open_to_others(row))
			continue;
		r = digest_box(a, plan->name, row, now, err);
		if (r < 0)
			return r;
		if (strcmp(now, before->part[i]) != 0) {
			cleanup_free char *root = escape_dup(row->root);
			cleanup_free char *what =
				xasprintf("somebody wrote to the workspace of '%s' while it was "
			                  "being committed",
			                  root);

			return stale(plan, what, err);
		}
	}
	return 0;
}
