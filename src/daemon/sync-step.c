/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Push, list, run, pull, received. What reads or writes the project's files is always atoll-sync, inside
 * the plan's sandbox; only the first push goes to the mirror itself, which nobody uses yet.
 */
#include "daemon/sync-step.h"

#include "daemon/follow.h"
#include "fs/atomic.h"
#include "sync/apply.h"
#include "sync/program.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/json-read.h"
#include "util/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- the plan ---- */

/* The session decides about its mirror, and about nothing else that may be in the plan. */
static int decide(struct sync *x, int (*verb)(struct atoll_plan *p, const char *root,
                                              struct atoll_result *res, struct error *err))
{
	cleanup_error struct error err = ERROR_INIT;
	struct stream *s = x->s;
	int r;

	result_reset(s->res);
	r = verb(s->plan, x->mirror.root, s->res, &err);
	return result_set(s->res, &err, r);
}

/* The workspace is the mirror again. */
static int drop_work(struct sync *x)
{
	x->pending = 0;
	return decide(x, plan_mirror_reset);
}

/* After a failure R, which is the one to tell of. */
static int take_back(struct sync *x, int r)
{
	(void)plan_mirror_reset(x->s->plan, x->mirror.root, NULL, NULL);
	return r;
}

/* The mirror is what the workspace is. */
static int commit_work(struct sync *x)
{
	struct stream *s = x->s;
	int r = decide(x, plan_mirror_commit);

	if (r < 0)
		return r;
	x->pending = 0;
	return mirror_generation(s->atoll, &x->mirror, &x->generation, &s->err);
}

/* No run is on record as pending: what is written from here on is not its work. */
static int forget_run(struct sync *x)
{
	if (x->mirror.ran_at != x->generation)
		return 0;
	x->mirror.ran_at = 0;
	return mirror_save(x->s->atoll, &x->mirror, &x->s->err);
}

/* A first push that was killed leaves what came, and in one place half of something. */
static int tidy_mirror(struct sync *x)
{
	cleanup_close int fd =
		open(x->mirror.root, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int r = fd < 0 ? -errno : sync_tidy(fd);

	return r < 0 ? error_sys(&x->s->err, r, "tidy up the mirror", x->mirror.root) : 0;
}

int sync_settle(struct sync *x)
{
	struct stream *s = x->s;
	int64_t changes;
	int r = plan_mirror_check(s->plan, x->mirror.root, &s->err);

	x->pending = 0;
	if (r == 0)
		r = mirror_generation(s->atoll, &x->mirror, &x->generation, &s->err);
	if (r < 0 || x->generation == 0)
		return r < 0 ? r : tidy_mirror(x);
	changes = atoll_plan_diff(s->plan, NULL, NULL, s->res);
	if (changes == 0)
		return 0;
	if (changes < 0 || x->mirror.ran_at != x->generation)
		return drop_work(x);
	x->pending = changes;
	return 0;
}

/* ---- what is asked for ---- */

struct wish {
	const char *name;
	int64_t value; /* -1: not given */
};

static int take_wish(void *user, const char *key, const char *value, size_t len)
{
	struct wish *w = user;

	if (!w->name || strcmp(key, w->name) != 0)
		return -ENOENT;
	return json_decode_int(value, len, &w->value);
}

/* An object with the number NAME, or (NULL) with nothing in it. */
static int read_wish(struct sync *x, const char *text, size_t len, struct wish *w)
{
	w->value = -1;
	if (json_members(text, len, take_wish, w) == 0 && (!w->name || w->value >= 0))
		return 0;
	if (w->name)
		return error_set(&x->s->err, -ATOLL_E_INVALID,
		                 "the frame is to be a JSON object with the number '%s'", w->name);
	return error_set(&x->s->err, -ATOLL_E_INVALID, "the frame is to be an empty JSON object");
}

static int need_settled(struct sync *x, const char *what)
{
	struct error *err = &x->s->err;

	if (x->pending == 0)
		return 0;
	(void)error_set(err, -ATOLL_E_STATE, "%lld changes of run %llu were not received yet; %s",
	                (long long)x->pending, (unsigned long long)x->mirror.run, what);
	error_hint(err, "pull them first, or POST /v1/plans/%s/reset drops them", x->mirror.plan);
	return -ATOLL_E_STATE;
}

/* ---- our own program ---- */

/* The last line it said is {"code","message","path"}. */
struct said {
	char code[64], message[1024], path[1024];
};

static int take_said(void *user, const char *key, const char *value, size_t len)
{
	struct said *t = user;

	if (strcmp(key, "code") == 0)
		(void)json_decode_string(value, len, t->code, sizeof(t->code));
	else if (strcmp(key, "message") == 0)
		(void)json_decode_string(value, len, t->message, sizeof(t->message));
	else if (strcmp(key, "path") == 0)
		(void)json_decode_string(value, len, t->path, sizeof(t->path));
	return 0;
}

/* What a full disk says is worth a code of its own; the rest is what was sent. */
static int code_of(const struct said *t)
{
	static const int known[] = { -ENOSPC, -EDQUOT, -EIO, -EACCES, -EROFS, -ENOMEM };

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strcmp(t->code, atoll_code_name(known[i])) == 0)
			return known[i];
	return -ATOLL_E_INVALID;
}

static int program_failed(struct sync *x, const struct follow *f, const char *what)
{
	const char *text = strbuf_str(&f->said);
	size_t len = strcspn(text, "\n");
	struct said t = { .message = "" };

	if (json_members(text, len, take_said, &t) < 0 || !*t.message)
		return error_set(&x->s->err, -EIO, "%s: atoll-sync ended with %d%s%.*s", what,
		                 f->cmd->status.exit_code, len ? ": " : "", (int)len, text);
	return error_set(&x->s->err, code_of(&t), "%s: %s%s%s%s", what, t.message,
	                 *t.path ? " ('" : "", t.path, *t.path ? "')" : "");
}

struct own {
	const char *verb;
	enum follow_kind kind;
	bool direct;      /* in the mirror itself */
	int input_fd;     /* what it reads, or FD_NONE */
	const char *what; /* of a failure */
};

static int run_own(struct sync *x, const struct own *o)
{
	cleanup_exec_request struct exec_request q = EXEC_REQUEST_INIT;
	cleanup_free char *program = sync_program_path();
	const char *const argv[] = { program, o->verb, x->mirror.root, NULL };
	struct stream *s = x->s;
	const struct command_options how = { .request = &q,
		                             .atoll = s->atoll,
		                             .plan = o->direct ? NULL : s->plan,
		                             .input = o->kind == FOLLOW_APPLY,
		                             .input_fd = o->input_fd };
	struct follow *f = xcalloc(1, sizeof(*f));
	int r;

	exec_request_of(&q, argv, x->mirror.root);
	f->kind = o->kind;
	r = command_start(&how, &f->cmd, &s->err);
	if (r >= 0)
		r = follow(f, s);
	/* Out of turn, or the client is gone. */
	x->out_of_turn = r < 0;
	if (r >= 0 && f->cmd->result < 0)
		r = error_set(&s->err, f->cmd->result, "%s: %s", o->what,
		              atoll_result_message(f->cmd->res));
	else if (r >= 0 && f->cmd->status.exit_code != 0)
		r = program_failed(x, f, o->what);
	follow_done(f);
	free(f);
	return r;
}

/* ---- push ---- */

static void fill_generation(struct json *j, const void *arg)
{
	const struct sync *x = arg;

	json_open_object(j, NULL);
	json_uint(j, "generation", x->generation);
	json_close(j);
}

/* On disk before anybody relies on it; and the plan's view is of what is there now. */
static int fill_mirror(struct sync *x)
{
	cleanup_close int fd =
		open(x->mirror.root, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stream *s = x->s;
	int r = fd < 0 ? -errno : fs_sync_filesystem(fd);

	if (r < 0)
		return error_sys(&s->err, r, "sync the mirror", x->mirror.root);
	r = decide(x, plan_mirror_reset);
	if (r < 0)
		return r;
	x->mirror.filled = true;
	r = mirror_save(s->atoll, &x->mirror, &s->err);
	x->mirror.filled = r == 0;
	return r < 0 ? r : mirror_generation(s->atoll, &x->mirror, &x->generation, &s->err);
}

/* What came so far of one that is cut off stays, to be gone on from. */
static int push_first(struct sync *x)
{
	static const struct own apply = {
		.verb = "apply",
		.kind = FOLLOW_APPLY,
		.direct = true,
		.input_fd = FD_NONE,
		.what = "nothing was changed: what was pushed could not all be taken"
	};
	int r = run_own(x, &apply);

	return r < 0 ? r : fill_mirror(x);
}

static int push_more(struct sync *x)
{
	static const struct own apply = { .verb = "apply",
		                          .kind = FOLLOW_APPLY,
		                          .input_fd = FD_NONE,
		                          .what = "what was pushed was not taken, nothing was "
		                                  "changed" };
	int r = forget_run(x);

	if (r == 0)
		r = run_own(x, &apply);
	if (r >= 0)
		r = commit_work(x);
	return r < 0 ? take_back(x, r) : r;
}

struct drain {
	bool over;
};

static int drop_data(struct stream *s, const struct frame *f, void *arg)
{
	struct drain *d = arg;

	d->over = f->type == FRAME_PUSH_END;
	if (f->type == FRAME_PING)
		stream_say(s, FRAME_PONG, NULL, NULL);
	if (d->over || f->type == FRAME_PUSH_DATA || f->type == FRAME_PING)
		return 0;
	return stream_fail(s, -EPROTO, 400, "a frame that does not belong here");
}

static bool may_drop(const void *arg)
{
	const struct drain *d = arg;

	return !d->over;
}

/* What a client pushes that was refused: it could not know. */
static int drain(struct sync *x)
{
	struct stream *s = x->s;
	struct drain d = { false };
	const struct stream_taker taker = { drop_data, may_drop, &d };
	struct error why = ERROR_INIT;
	int r;

	error_move(&why, &s->err);
	r = stream_take(s, &taker);
	while (r >= 0 && !d.over)
		r = stream_wait(s, &taker, CLOCK_NEVER);
	x->out_of_turn = r < 0;
	if (r < 0)
		error_done(&why);
	else
		error_move(&s->err, &why);
	return r;
}

int sync_push(struct sync *x, const char *text, size_t len)
{
	struct wish w = { .name = "base_generation" };
	int r = read_wish(x, text, len, &w);

	if (r == 0)
		r = need_settled(x, "nothing was pushed");
	if (r == 0 && (uint64_t)w.value != x->generation)
		r = error_set(&x->s->err, -ATOLL_E_STALE,
		              "the mirror is at generation %llu, not %lld; nothing was pushed",
		              (unsigned long long)x->generation, (long long)w.value);
	if (r < 0)
		return drain(x) < 0 ? -ECONNRESET : r;
	r = x->generation == 0 ? push_first(x) : push_more(x);
	if (r >= 0)
		stream_say(x->s, FRAME_PUSHED, fill_generation, x);
	return r;
}

/* ---- run ---- */

struct ran {
	const struct sync *x;
	const struct command *cmd;
};

static void fill_exit(struct json *j, const void *arg)
{
	const struct ran *v = arg;

	json_open_object(j, NULL);
	exec_put_exit(j, v->cmd);
	json_uint(j, "run", v->x->mirror.run);
	json_close(j);
}

/* What it changed is pending, and stays so whoever dies. */
static int note_run(struct sync *x, struct command *cmd)
{
	struct stream *s = x->s;
	int r;

	if (cmd->changes < 0)
		cmd->changes = atoll_plan_diff(s->plan, NULL, NULL, s->res);
	if (cmd->changes < 0)
		return (int)cmd->changes;
	if (cmd->changes == 0)
		return 0;
	x->mirror.run++;
	x->mirror.ran_at = x->generation;
	r = mirror_save(s->atoll, &x->mirror, &s->err);
	if (r < 0)
		x->mirror.ran_at = 0;
	else
		x->pending = cmd->changes;
	return r;
}

static int follow_run(struct sync *x, const struct exec_request *q)
{
	struct stream *s = x->s;
	const struct command_options how = { .request = q,
		                             .atoll = s->atoll,
		                             .plan = s->plan,
		                             .input = true,
		                             .input_fd = FD_NONE };
	struct follow *f = xcalloc(1, sizeof(*f));
	int r = command_start(&how, &f->cmd, &s->err);

	if (r >= 0)
		r = follow(f, s);
	x->out_of_turn = r < 0;
	if (r >= 0 && f->cmd->result < 0) {
		struct problem p;

		exec_problem(&p, f->cmd);
		s->status = p.status;
		r = error_set(&s->err, f->cmd->result, "%s", p.detail);
		error_hint(&s->err, "%s", p.hint);
	}
	if (r >= 0)
		r = note_run(x, f->cmd);
	if (r >= 0)
		stream_say(s, FRAME_EXIT, fill_exit, &(struct ran){ x, f->cmd });
	follow_done(f);
	free(f);
	return r;
}

static int check_run(struct sync *x, const struct exec_request *q)
{
	struct error *err = &x->s->err;

	if (q->background || q->shared)
		return error_set(err, -ATOLL_E_INVALID,
		                 "a session runs one command after another: not 'background', not "
		                 "'shared'");
	if (x->generation == 0)
		return error_set(err, -ATOLL_E_STATE,
		                 "nothing whole was pushed yet; nothing was run");
	return need_settled(x, "nothing was run");
}

int sync_run(struct sync *x, const char *text, size_t len)
{
	cleanup_exec_request struct exec_request q = EXEC_REQUEST_INIT;
	struct stream *s = x->s;
	int r = exec_request_read(&q, text, len, &s->who, &s->err);

	if (r >= 0)
		r = check_run(x, &q);
	if (r >= 0)
		r = forget_run(x);
	/* Frames for a command that is not run would be out of turn, and are the client's to avoid. */
	if (r < 0)
		return r;
	r = follow_run(x, &q);
	return r < 0 ? take_back(x, r) : r;
}

/* ---- pull, list ---- */

struct pulled {
	int64_t changes;
	uint64_t run;
};

static void fill_pulled(struct json *j, const void *arg)
{
	const struct pulled *p = arg;

	json_open_object(j, NULL);
	json_int(j, "changes", p->changes);
	json_uint(j, "run", p->run);
	json_close(j);
}

static int add_path(void *user, const struct atoll_change *change)
{
	/* The project's own directory is each side's own. */
	if (*change->path && strcmp(change->path, ".") != 0)
		strbuf_add(user, change->path, strlen(change->path) + 1);
	return 0;
}

/* A file in memory with LEN bytes, to be read from its beginning. */
static int memory_of(const char *data, size_t len, int *ret_fd)
{
	cleanup_close int fd = memfd_create("paths", MFD_CLOEXEC);
	int r = fd < 0 ? -errno : fs_write_all(fd, data, len);

	if (r == 0 && lseek(fd, 0, SEEK_SET) < 0)
		r = -errno;
	if (r == 0)
		*ret_fd = take_fd(&fd);
	return r;
}

int sync_pull(struct sync *x, const char *text, size_t len)
{
	cleanup_strbuf struct strbuf paths = STRBUF_INIT;
	cleanup_close int fd = FD_NONE;
	struct own send = { .verb = "send",
		            .kind = FOLLOW_SEND,
		            .what = "it could not all be sent" };
	struct wish none = { .name = NULL };
	struct pulled p = { .run = x->mirror.run };
	struct stream *s = x->s;
	int r = read_wish(x, text, len, &none);

	if (r == 0 && x->pending > 0) {
		p.changes = atoll_plan_diff(s->plan, add_path, &paths, s->res);
		r = p.changes < 0 ? (int)p.changes : memory_of(paths.buf, paths.len, &fd);
		if (r < 0 && p.changes >= 0)
			(void)error_sys(&s->err, r, "make", "the list of what changed");
	}
	if (r == 0 && p.changes > 0) {
		send.input_fd = fd;
		r = run_own(x, &send);
	}
	if (r >= 0)
		stream_say(s, FRAME_PULL_END, fill_pulled, &p);
	return r;
}

int sync_list(struct sync *x, const char *text, size_t len)
{
	static const struct own list = { .verb = "list",
		                         .kind = FOLLOW_SEND,
		                         .input_fd = FD_NONE,
		                         .what = "it could not all be listed" };
	struct wish none = { .name = NULL };
	const struct pulled p = { .changes = x->pending, .run = x->mirror.run };
	int r = read_wish(x, text, len, &none);

	if (r == 0)
		r = run_own(x, &list);
	if (r >= 0)
		stream_say(x->s, FRAME_PULL_END, fill_pulled, &p);
	return r;
}

/* ---- received ---- */

/* Again is harmless: whoever lost the answer does not know that it was heard. */
int sync_received(struct sync *x, const char *text, size_t len)
{
	struct wish w = { .name = "run" };
	int r = read_wish(x, text, len, &w);

	if (r == 0 && (uint64_t)w.value > x->mirror.run)
		r = error_set(&x->s->err, -ATOLL_E_STATE, "there was no run %lld",
		              (long long)w.value);
	if (r == 0 && x->pending > 0 && (uint64_t)w.value == x->mirror.run)
		r = commit_work(x);
	if (r >= 0)
		stream_say(x->s, FRAME_RECEIVED_TOO, fill_generation, x);
	return r;
}
