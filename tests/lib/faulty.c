/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FAILER and GATE: strategies with real effects on a real directory, that do something besides on
 * demand.
 *
 * The resource's `value` is replaced by rename. In the area: `work/value`, the workspace; `bN.new`
 * and `bN.old`, what batch N installs and what it replaced (missing: there was nothing). Whether
 * a batch is done is read from `bN.done`, so every verb can be repeated.
 */
#include "lib/phase.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define VALUE_MAX 65536

/* ---- files ---- */

/* 0, -ENOENT, or another failure; *ret_n without a final NUL. */
static int read_value(const char *path, char *out, size_t *ret_n)
{
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	ssize_t n;
	int r;

	if (fd < 0)
		return -errno;
	n = read(fd, out, VALUE_MAX);
	r = n < 0 ? -errno : 0;
	(void)close(fd);
	*ret_n = n > 0 ? (size_t)n : 0;
	return r;
}

/* Replaces PATH whole, so that no reader sees a part. */
static int write_value(const char *path, const char *data, size_t n)
{
	char beside[PATH_MAX + 8];
	int r = 0, fd;

	(void)snprintf(beside, sizeof(beside), "%s.tmp", path);
	fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	if (write(fd, data, n) != (ssize_t)n || fsync(fd) < 0)
		r = -EIO;
	(void)close(fd);
	if (r == 0 && rename(beside, path) < 0)
		r = -errno;
	return r;
}

static int copy_value(const char *from, const char *to)
{
	char *data = malloc(VALUE_MAX);
	size_t n = 0;
	int r = data ? read_value(from, data, &n) : -ENOMEM;

	if (r == 0)
		r = write_value(to, data, n);
	else if (r == -ENOENT)
		r = unlink(to) < 0 && errno != ENOENT ? -errno : 0;
	free(data);
	return r;
}

static bool same_value(const char *a, const char *b)
{
	char *x = malloc(VALUE_MAX), *y = malloc(VALUE_MAX);
	size_t n = 0, m = 0;
	int r = x && y ? read_value(a, x, &n) : -ENOMEM;
	int q = x && y ? read_value(b, y, &m) : -ENOMEM;
	bool same = r == q && n == m && (r < 0 || memcmp(x, y, n) == 0);

	free(x);
	free(y);
	return same;
}

struct names {
	char value[PATH_MAX + 64], work_dir[PATH_MAX + 64], work[PATH_MAX + 64];
	char new_one[PATH_MAX + 64], old_one[PATH_MAX + 64], done[PATH_MAX + 64];
};

static void names_of(struct atoll_participant *p, struct names *ret)
{
	const char *area = atoll_participant_area(p);
	unsigned long long n = atoll_participant_batch(p);

	(void)snprintf(ret->value, sizeof(ret->value), "%s/value", atoll_participant_root(p));
	(void)snprintf(ret->work_dir, sizeof(ret->work_dir), "%s/work", area);
	(void)snprintf(ret->work, sizeof(ret->work), "%s/work/value", area);
	(void)snprintf(ret->new_one, sizeof(ret->new_one), "%s/b%llu.new", area, n);
	(void)snprintf(ret->old_one, sizeof(ret->old_one), "%s/b%llu.old", area, n);
	(void)snprintf(ret->done, sizeof(ret->done), "%s/b%llu.done", area, n);
}

static int failed(struct atoll_participant *p, int r, const char *op, const char *path)
{
	return r < 0 ? atoll_participant_fail(p, r, op, path, -r) : 0;
}

/* ---- verbs ---- */

#define BEGIN(phase)                   \
	struct names n;                \
	int r = phase_run(p, (phase)); \
                                       \
	names_of(p, &n);               \
	if (r != 0)                    \
	return r

static int faulty_create(struct atoll_participant *p)
{
	BEGIN(PHASE_CREATE);
	if (mkdir(n.work_dir, 0700) < 0)
		return failed(p, -errno, "make", n.work_dir);
	return failed(p, copy_value(n.value, n.work), "fill", n.work);
}

static int faulty_path(struct atoll_participant *p, char **ret_path)
{
	BEGIN(PHASE_PATH);
	*ret_path = strdup(n.work_dir);
	return *ret_path ? 0 : -ENOMEM;
}

static int faulty_diff(struct atoll_participant *p)
{
	const struct atoll_change change = { .path = "value",
		                             .kind = ATOLL_CHANGE_CHANGED,
		                             .what = ATOLL_CHANGE_CONTENT };
	BEGIN(PHASE_DIFF);
	return same_value(n.value, n.work) ? 0 : atoll_participant_change(p, &change);
}

static int faulty_prepare(struct atoll_participant *p)
{
	bool undoing = atoll_participant_undoing(p);
	BEGIN(undoing ? PHASE_PREPARE_UNDO : PHASE_PREPARE);
	phase_log(p, undoing ? PHASE_PREPARE_UNDO : PHASE_PREPARE);
	if (undoing)
		return access(n.done, F_OK) == 0
		               ? ATOLL_READY
		               : failed(p, -ATOLL_E_RECOVERY_MISSING, "find", n.done);
	if (same_value(n.value, n.work))
		return ATOLL_NO_CHANGE;
	r = copy_value(n.value, n.old_one);
	if (r == 0)
		r = copy_value(n.work, n.new_one);
	atoll_participant_count(p, 1);
	return failed(p, r, "stage", n.new_one);
}

static int faulty_check(struct atoll_participant *p)
{
	BEGIN(PHASE_CHECK);
	return 0;
}

static int faulty_commit(struct atoll_participant *p)
{
	BEGIN(PHASE_COMMIT);
	phase_log(p, PHASE_COMMIT);
	r = copy_value(n.new_one, n.value);
	if (r == 0)
		r = write_value(n.done, "", 0);
	return failed(p, r, "replace", n.value);
}

/* The mark first: without it the others mean nothing, wherever we are killed. */
static int drop_batch(struct names *n)
{
	if (unlink(n->done) < 0 && errno != ENOENT)
		return -errno;
	(void)unlink(n->new_one);
	(void)unlink(n->old_one);
	return 0;
}

static int faulty_abort(struct atoll_participant *p)
{
	BEGIN(PHASE_ABORT);
	phase_log(p, PHASE_ABORT);
	if (atoll_participant_undoing(p)) /* preparing an undo made nothing */
		return 0;
	return failed(p, drop_batch(&n), "drop", n.done);
}

static int faulty_undo(struct atoll_participant *p)
{
	BEGIN(PHASE_UNDO);
	if (access(n.done, F_OK) < 0) /* never done, or undone before */
		return 0;
	phase_log(p, PHASE_UNDO);
	r = copy_value(n.old_one, n.value);
	return failed(p, r == 0 ? drop_batch(&n) : r, "restore", n.value);
}

static int faulty_finish(struct atoll_participant *p)
{
	BEGIN(PHASE_FINISH);
	return 0;
}

static int faulty_release(struct atoll_participant *p)
{
	BEGIN(PHASE_RELEASE);
	return failed(p, drop_batch(&n), "drop", n.done);
}

static int faulty_reset(struct atoll_participant *p)
{
	BEGIN(PHASE_RESET);
	phase_log(p, PHASE_RESET);
	return failed(p, copy_value(n.value, n.work), "reset", n.work);
}

static int faulty_remove(struct atoll_participant *p)
{
	BEGIN(PHASE_REMOVE);
	phase_log(p, PHASE_REMOVE);
	(void)unlink(n.work);
	if (rmdir(n.work_dir) < 0 && errno != ENOENT && errno != ENOTEMPTY)
		return failed(p, -errno, "remove", n.work_dir);
	return 0;
}

/* ---- without undo: `bN.new` is the promise, and goes with it ---- */

/* -ECONNRESET: it was done, and the answer is lost. */
static int final_commit(struct atoll_participant *p)
{
	struct names n;
	int asked = phase_run(p, PHASE_COMMIT), r;

	names_of(p, &n);
	if (asked != 0 && asked != -ECONNRESET)
		return asked;
	phase_log(p, PHASE_COMMIT);
	if (access(n.done, F_OK) < 0 && access(n.new_one, F_OK) < 0)
		return failed(p, -ATOLL_E_CONFLICT, "find what was let go,", n.new_one);
	r = copy_value(n.new_one, n.value);
	if (r == 0)
		r = write_value(n.done, "", 0);
	return r < 0 ? failed(p, r, "replace", n.value) : asked;
}

static int final_abort(struct atoll_participant *p)
{
	BEGIN(PHASE_ABORT);
	phase_log(p, PHASE_ABORT);
	if (access(n.done, F_OK) == 0)
		return failed(p, -ATOLL_E_NOT_UNDOABLE, "take back", n.value);
	return failed(p, drop_batch(&n), "drop", n.done);
}

/* ---- pass-through: the workspace is the resource ---- */

static int blunt_create(struct atoll_participant *p)
{
	BEGIN(PHASE_CREATE);
	return 0;
}

static int blunt_path(struct atoll_participant *p, char **ret_path)
{
	BEGIN(PHASE_PATH);
	*ret_path = strdup(atoll_participant_root(p));
	return *ret_path ? 0 : -ENOMEM;
}

static int blunt_commit(struct atoll_participant *p)
{
	BEGIN(PHASE_COMMIT);
	phase_log(p, PHASE_COMMIT);
	return 0;
}

static int blunt_remove(struct atoll_participant *p)
{
	BEGIN(PHASE_REMOVE);
	return 0;
}

/* clang-format off */
#define FAULTY(its_name, caps)                                                                 \
	{                                                                                      \
		.api_version = ATOLL_STRATEGY_API_VERSION, .name = (its_name),                 \
		.kind = "directory", .capabilities = (caps), .create = faulty_create,          \
		.path = faulty_path, .diff = faulty_diff, .prepare = faulty_prepare,           \
		.check = faulty_check,                                                         \
		.commit = (caps) & ATOLL_CAP_UNDO ? faulty_commit : final_commit,              \
		.abort = (caps) & ATOLL_CAP_UNDO ? faulty_abort : final_abort,                 \
		.undo = (caps) & ATOLL_CAP_UNDO ? faulty_undo : NULL, .finish = faulty_finish, \
		.release = faulty_release, .reset = faulty_reset, .remove = faulty_remove,     \
	}
/* clang-format on */

#define MOST (ATOLL_CAP_PREPARE | ATOLL_CAP_DIFF | ATOLL_CAP_PATH)

static const struct atoll_strategy strategies[] = {
	FAULTY("failer", MOST | ATOLL_CAP_UNDO),
	FAULTY("gate", MOST | ATOLL_CAP_UNDO),
	FAULTY("late", MOST | ATOLL_CAP_UNDO | ATOLL_CAP_LATE),
	FAULTY("final", MOST),
	{ .api_version = ATOLL_STRATEGY_API_VERSION,
	  .name = "blunt",
	  .kind = "directory",
	  .capabilities = ATOLL_CAP_PATH,
	  .create = blunt_create,
	  .path = blunt_path,
	  .commit = blunt_commit,
	  .remove = blunt_remove },
};

void faulty_register(void)
{
	static bool done;

	for (size_t i = 0; !done && i < sizeof(strategies) / sizeof(strategies[0]); i++) {
		if (atoll_strategy_register(&strategies[i], NULL) < 0)
			abort();
	}
	done = true;
}
