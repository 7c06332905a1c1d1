/* SPDX-License-Identifier: Apache-2.0 */
/* The local plan: started, filled by atoll-sync, committed or dropped. */
#include "remote/pull.h"

#include "fs/atomic.h"
#include "strategy/result.h"
#include "sync/apply.h"
#include "sync/program.h"
#include "util/cleanup.h"
#include "util/crashpoint.h"
#include "util/json-read.h"
#include "util/mem.h"
#include "util/random.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WORDS_MAX 4096 /* of what atoll-sync says */

static void result_freep(struct atoll_result **res)
{
	atoll_result_free(*res);
}
#define cleanup_result __attribute__((__cleanup__(result_freep)))

static void name_plan(struct remote_outcome *ret, const struct atoll_plan *plan)
{
	(void)snprintf(ret->plan, sizeof(ret->plan), "%s", plan ? plan->id : "");
	(void)snprintf(ret->plan_name, sizeof(ret->plan_name), "%s", plan ? plan->name : "");
}

/* ---- a base ---- */

int pull_base(struct remote_session *s, struct atoll_plan **ret_plan, struct error *err)
{
	cleanup_free char *here = realpath(".", NULL);
	const struct atoll_resource resource = { .root = s->project.root };
	const struct atoll_start start = { .resources = &resource,
		                           .n_resources = 1,
		                           .run_dir = here };
	char id[PLAN_ID_LEN + 1];
	int r;

	random_hex(id, PLAN_ID_LEN);
	r = session_save_pull(s, id, "", err);
	crashpoint("remote.base.recorded");
	if (r == 0)
		r = plan_start_once(s->atoll, &start, id, ret_plan, NULL, err);
	crashpoint("remote.base.started");
	return r < 0 ? error_prefix(err, r, "the project could not be made ready") : 0;
}

int pull_drop(struct remote_session *s, struct atoll_plan **plan, struct error *err)
{
	int r;

	if (!*plan)
		return 0;
	r = plan_stop(*plan, ATOLL_FORCE, NULL, err);
	atoll_plan_free(take_ptr(*plan));
	return r < 0 ? r : session_save_pull(s, "", "", err);
}

int pull_leave(struct remote_session *s, struct atoll_plan **plan, struct remote_outcome *ret,
               struct error *err)
{
	name_plan(ret, *plan);
	atoll_plan_free(take_ptr(*plan));
	return session_save_pull(s, "", s->row.pull_run, err);
}

/* ---- what a dead one left in it ---- */

/* One of them, or in one of them. */
static bool is_leftover(const char *path)
{
	cleanup_free char *copy = xstrdup(path);
	char *rest = copy;

	for (const char *name; (name = strsep(&rest, "/")) != NULL;)
		if (sync_is_temporary(name))
			return true;
	return false;
}

static int take_leftover(void *user, const struct atoll_change *change)
{
	if (change->kind == ATOLL_CHANGE_ADDED && is_leftover(change->path))
		strlist_add(user, change->path);
	return 0;
}

/* What is in a directory before it. */
static int write_leftovers(struct sync_writer *w, const struct strlist *left)
{
	int r = 0;

	for (size_t i = left->n; r == 0 && i > 0; i--)
		r = sync_write(w,
		               &(struct sync_record){ .type = SYNC_GONE, .path = left->v[i - 1] });
	return r == 0 ? sync_write_end(w) : r;
}

static int write_to(void *ctx, const void *data, size_t len)
{
	return fs_write_all(*(const int *)ctx, data, len);
}

/* Files that were being written when their writer was killed. All else is made again. */
int pull_tidy(struct remote_session *s, struct atoll_plan *plan, struct error *err)
{
	cleanup_close int fd = memfd_create("atoll-sync", MFD_CLOEXEC);
	cleanup_sync_writer struct sync_writer *w = NULL;
	cleanup_strlist struct strlist left = STRLIST_INIT;
	int64_t n;
	int r = fd < 0 ? -errno : sync_writer_new(write_to, &fd, &w);

	if (r < 0)
		return error_sys(err, r, "make ready", s->project.root);
	n = plan_diff(plan, take_leftover, &left, err);
	if (n < 0)
		return (int)n;
	if (left.n == 0)
		return 0;
	r = write_leftovers(w, &left);
	return r < 0 ? error_sys(err, r, "tidy up", plan->name) : pull_apply(s, plan, fd, err);
}

/* ---- an earlier one ---- */

static int take_state(void *user, const struct atoll_plan_info *info)
{
	*(enum atoll_plan_state *)user = info->state;
	return 0;
}

/* Of the pull before this one nobody asks any more: `rollback` undoes the last. */
static void drop_before(struct remote_session *s, const char *id)
{
	cleanup_error struct error err = ERROR_INIT;
	struct atoll_plan *plan = NULL;
	enum atoll_plan_state state = ATOLL_PLAN_OPEN;

	if (*id && plan_open(s->atoll, id, &plan, &err) == 0 &&
	    plan_show(plan, take_state, &state, &err) >= 0 && state == ATOLL_PLAN_COMMITTED)
		(void)plan_stop(plan, 0, NULL, &err);
	atoll_plan_free(plan);
}

/* What is in place can be undone; nothing is left to be settled. The one before goes first: once it is not on
 * record any more nobody would. */
static int note_committed(struct remote_session *s, const char *id, struct error *err)
{
	if (strcmp(s->row.pulled, id) != 0)
		drop_before(s, s->row.pulled);
	crashpoint("remote.commit.noted");
	return session_save_pulled(s, id, err);
}

/* One that is gone, or was undone, is settled: somebody decided. */
static int settle_plan(struct remote_session *s, const struct remote_run *run,
                       struct atoll_plan *plan, struct remote_outcome *ret, struct error *err)
{
	enum atoll_plan_state state = ATOLL_PLAN_OPEN;
	int r = plan_recover(s->atoll, plan->id, false, NULL, err);

	if (r >= 0)
		r = plan_show(plan, take_state, &state, err);
	if (r < 0)
		return r;
	if (state == ATOLL_PLAN_COMMITTED)
		return note_committed(s, plan->id, err);
	if (state != ATOLL_PLAN_OPEN)
		return session_save_pull(s, "", s->row.pull_run, err);
	r = pull_commit(s, run, plan, ret, err);
	return error_prefix(err, r, "what an earlier command changed on '%s' is not in place yet",
	                    s->remote->name);
}

int pull_settle(struct remote_session *s, const struct remote_run *run, struct remote_outcome *ret,
                struct atoll_plan **ret_plan, int64_t *ret_run, struct error *err)
{
	cleanup_error struct error gone = ERROR_INIT;
	struct atoll_plan *plan = NULL;
	bool is_whole = s->row.pull_run[0];
	int r;

	*ret_plan = NULL;
	*ret_run = is_whole ? strtoll(s->row.pull_run, NULL, 10) : -1;
	if (s->row.pull_plan[0] == '\0')
		return 0;
	r = plan_open(s->atoll, s->row.pull_plan, &plan, &gone);
	if (r == -ATOLL_E_NOT_FOUND)
		return session_save_pull(s, "", s->row.pull_run, err);
	if (r < 0) {
		error_move(err, &gone);
		return r;
	}
	if (!is_whole) {
		*ret_plan = plan;
		return 0;
	}
	r = settle_plan(s, run, plan, ret, err);
	atoll_plan_free(plan);
	return r;
}

/* ---- git's index ---- */

struct dating {
	struct sync_writer *w;
	int64_t mtime_ns;
};

static int copy_record(void *ctx, const struct sync_record *rec, struct error *err)
{
	const struct dating *d = ctx;
	struct sync_record copy = *rec;
	int r;

	if (rec->type == SYNC_FILE && strcmp(rec->path, ".git/index") == 0)
		copy.mtime_ns = d->mtime_ns;
	if (rec->type == SYNC_DONE)
		r = sync_write_done(d->w);
	else if (rec->type == SYNC_END)
		r = sync_write_end(d->w);
	else
		r = sync_write(d->w, &copy);
	return r < 0 ? error_sys(err, r, "keep", "what was pulled") : 0;
}

int pull_date_index(int dir_fd, int64_t mtime_ns, int *fd, struct error *err)
{
	cleanup_sync_writer struct sync_writer *w = NULL;
	cleanup_close int to = FD_NONE;
	struct dating d = { .mtime_ns = mtime_ns };
	int r = lseek(*fd, 0, SEEK_SET) < 0 ? -errno : fs_anonymous_at(dir_fd, &to);

	if (r == 0)
		r = sync_writer_new(write_to, &to, &w);
	if (r < 0)
		return error_sys(err, r, "keep", "what was pulled");
	d.w = w;
	r = sync_read_fd(*fd, copy_record, &d, err);
	if (r < 0)
		return r;
	close_fd(fd);
	*fd = take_fd(&to);
	return 0;
}

/* ---- making the changes ---- */

struct words {
	char code[64];
	char message[WORDS_MAX];
	char path[WORDS_MAX];
};

static int take_word(void *user, const char *key, const char *value, size_t len)
{
	struct words *w = user;

	if (strcmp(key, "message") == 0)
		(void)json_decode_string(value, len, w->message, sizeof(w->message));
	else if (strcmp(key, "path") == 0)
		(void)json_decode_string(value, len, w->path, sizeof(w->path));
	return 0;
}

/* Its last words: one line of JSON. */
static int say_why(int fd, const struct atoll_exec_status *status, struct error *err)
{
	char text[2 * WORDS_MAX];
	ssize_t n = pread(fd, text, sizeof(text), 0);
	struct words *w = xcalloc(1, sizeof(*w));
	cleanup_free struct words *words = w;

	if (n > 0)
		(void)json_members(text, (size_t)n, take_word, words);
	if (!*w->message)
		return error_set(err, -EIO,
		                 "what was pulled could not be made: atoll-sync ended with %d",
		                 status->exit_code);
	(void)error_set(err, -EIO, "what was pulled could not be made: %s", w->message);
	error_cause(err, "apply", w->path, 0, NULL);
	return -EIO;
}

static int apply_with(struct remote_session *s, struct atoll_plan *plan, int in_fd, int words_fd,
                      struct error *err)
{
	cleanup_free char *program = sync_program_path();
	cleanup_close int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	cleanup_result struct atoll_result *res = atoll_result_new();
	/* Without namespaces only the working directory is the plan's. */
	const char *const argv[] = { program, "apply", ".", NULL };
	const struct atoll_exec exec = { .argv = argv, .cwd = s->project.root };
	char in[16], out[16], words[16];
	const struct atoll_exec_option options[] = { { "stdin", in },
		                                     { "stdout", out },
		                                     { "stderr", words } };
	struct atoll_exec_status status = { 0 };
	int r;

	(void)snprintf(in, sizeof(in), "%d", in_fd);
	(void)snprintf(out, sizeof(out), "%d", null);
	(void)snprintf(words, sizeof(words), "%d", words_fd);
	r = atoll_plan_exec_with(plan, &exec, options, 3, &status, res);
	/* Its words are about a command of the user's. */
	if (r == -ENOSPC)
		return error_set(err, r,
		                 "what was pulled could not be made: on the filesystem of '%s' is "
		                 "less room than exec.min-free asks for",
		                 atoll_result_cause_path(res));
	if (r < 0)
		return error_set(err, r, "what was pulled could not be made: %s",
		                 atoll_result_message(res));
	return status.exit_code == 0 ? 0 : say_why(words_fd, &status, err);
}

int pull_apply(struct remote_session *s, struct atoll_plan *plan, int fd, struct error *err)
{
	cleanup_close int words = memfd_create("atoll-sync", MFD_CLOEXEC);

	if (words < 0 || lseek(fd, 0, SEEK_SET) < 0)
		return error_sys(err, -errno, "read", "what was pulled");
	return apply_with(s, plan, fd, words, err);
}

int pull_record(struct remote_session *s, struct atoll_plan *plan, int64_t run, uint64_t *ret_came,
                struct error *err)
{
	cleanup_free char *name = xasprintf("%lld", (long long)run);
	int64_t n = plan_diff(plan, NULL, NULL, err);

	if (n < 0)
		return (int)n;
	*ret_came = (uint64_t)n;
	return session_save_pull(s, plan->id, name, err);
}

/* ---- the commit ---- */

static void take_conflicts(struct remote_session *s, const struct atoll_result *res,
                           struct remote_outcome *ret)
{
	size_t n = atoll_result_notes(res);

	ret->conflicts = xcalloc(n + 1, sizeof(*ret->conflicts));
	for (size_t i = 0; i < n; i++) {
		const struct atoll_note *note = atoll_result_note(res, i);

		if (note->kind != ATOLL_NOTE_CONFLICT)
			continue;
		ret->conflicts[ret->n_conflicts++] = (struct remote_conflict){
			.path = xasprintf("%s%s%s", s->project.root, *note->path ? "/" : "",
			                  note->path),
			.why = xstrdup(note->text),
		};
	}
}

int pull_commit(struct remote_session *s, const struct remote_run *run, struct atoll_plan *plan,
                struct remote_outcome *ret, struct error *err)
{
	cleanup_result struct atoll_result *res = atoll_result_new();
	const struct atoll_commit commit = { .flags = run->commit_flags };
	int r = plan_commit(plan, &commit, res, err);

	name_plan(ret, plan);
	if (r < 0) {
		take_conflicts(s, res, ret);
		if (r == -ATOLL_E_CONFLICT)
			error_hint(
				err,
				"atoll diff %s --conflicts; then atoll commit %s --ours PATH (as it is on "
				"%s) or --theirs PATH (as it is here), or atoll rm %s --force",
				plan->name, plan->name, s->remote->name, plan->name);
		return r;
	}
	crashpoint("remote.commit.done");
	ret->committed = true;
	return note_committed(s, plan->id, err);
}
