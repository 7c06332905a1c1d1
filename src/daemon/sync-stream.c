/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a session: the lock, one step after another, and what is left when the client goes. */
#include "daemon/sync-stream.h"

#include "daemon/daemon.h"
#include "daemon/problem.h"
#include "daemon/sync-step.h"
#include "plan/hold.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/json-read.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define ASK_MS     10000 /* for the first frame */
#define CLIENT_LEN 256
#define LOG_LOOK   256 /* lines of the log in which the last session's are */

struct session {
	struct sync sync;
	int64_t wait_ms; /* for the lock */
	char client[CLIENT_LEN];
	bool asked;
	bool locked;
	bool opened;
	bool closing; /* the client said so */
	/* The step that is asked for; NULL: none. Its text is a copy. */
	sync_step_fn step;
	char *text;
	size_t len;
};

/* ---- what is told ---- */

struct telling {
	const struct session *x;
	struct problem problem;
	bool open;
};

static void fill_problem(struct json *j, const void *arg)
{
	const struct telling *t = arg;

	problem_write(j, &t->problem);
}

/* And forgets it: the next step has its own. */
static void say_error(struct session *x, int r, bool open)
{
	struct stream *s = x->sync.s;
	struct telling t = { .x = x };

	if (s->err.code)
		problem_of_error(&t.problem, s->status, &s->err);
	else
		problem_of_result(&t.problem, r, s->res);
	t.problem.instance = s->id;
	t.problem.session = open ? "open" : "closed";
	stream_say(s, FRAME_ERROR, fill_problem, &t);
	error_done(&s->err);
	s->status = 0;
}

static void fill_notice(struct json *j, const void *message)
{
	json_open_object(j, NULL);
	json_string(j, "kind", "waiting");
	json_string(j, "message", message);
	json_close(j);
}

static void fill_opened(struct json *j, const void *arg)
{
	const struct session *x = arg;
	const struct sync *y = &x->sync;

	json_open_object(j, NULL);
	json_uint(j, "generation", y->generation);
	if (y->pending > 0) {
		json_open_object(j, "pending");
		json_uint(j, "run", y->mirror.run);
		json_int(j, "changes", y->pending);
		json_close(j);
	} else {
		json_null(j, "pending");
	}
	json_open_array(j, "features");
	if (x->locked)
		json_string(j, NULL, "lock");
	json_close(j);
	json_bytes(j, "root", y->mirror.root);
	json_close(j);
}

/* ---- frames ---- */

static int take_open_member(void *user, const char *key, const char *value, size_t len)
{
	struct session *x = user;

	if (strcmp(key, "wait_ms") == 0)
		return json_decode_int(value, len, &x->wait_ms);
	if (strcmp(key, "client") == 0)
		return json_decode_string(value, len, x->client, sizeof(x->client));
	return -ENOENT;
}

static int take_open(struct stream *s, const struct frame *f, void *arg)
{
	struct session *x = arg;

	if (f->type != FRAME_OPEN)
		return stream_fail(s, -EPROTO, 400, "the first frame is to be 'open'");
	x->wait_ms = s->d->options.wait_ms;
	if (json_members((const char *)f->data, f->len, take_open_member, x) < 0 || !*x->client)
		return stream_fail(s, -ATOLL_E_INVALID, 0,
		                   "'open' is to be a JSON object with 'client' and 'wait_ms'");
	/* It stands in records and on terminals. */
	for (char *p = x->client; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			*p = '?';
	if (x->wait_ms < 0 || x->wait_ms > s->d->options.wait_max_ms)
		x->wait_ms = s->d->options.wait_max_ms;
	x->asked = true;
	return 0;
}

static bool has_not_asked(const void *arg)
{
	const struct session *x = arg;

	return !x->asked;
}

static const struct {
	enum frame_type type;
	sync_step_fn step;
} steps[] = {
	{ FRAME_PUSH, sync_push }, { FRAME_LIST, sync_list },         { FRAME_REQUEST, sync_run },
	{ FRAME_PULL, sync_pull }, { FRAME_RECEIVED, sync_received },
};

static int take_step(struct session *x, const struct frame *f)
{
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		if (steps[i].type != f->type)
			continue;
		x->text = malloc(f->len + 1);
		if (!x->text)
			return -ENOMEM;
		memcpy(x->text, f->data, f->len);
		x->text[f->len] = '\0';
		x->len = f->len;
		x->step = steps[i].step;
		return 0;
	}
	return -EPROTO;
}

/* Between steps; while the lock is waited for there are none. */
static int take_frame(struct stream *s, const struct frame *f, void *arg)
{
	struct session *x = arg;

	/* Sent before the client knew that its command had ended. */
	if (f->type == FRAME_STDIN || f->type == FRAME_RESIZE || f->type == FRAME_SIGNAL)
		return 0;
	if (f->type == FRAME_PING) {
		stream_say(s, FRAME_PONG, NULL, NULL);
		return 0;
	}
	if (f->type == FRAME_CLOSE) {
		x->closing = true;
		return 0;
	}
	if (x->opened && take_step(x, f) == 0)
		return 0;
	return stream_fail(s, -EPROTO, 400, "a frame that does not belong here");
}

static bool is_idle(const void *arg)
{
	const struct session *x = arg;

	return !x->step && !x->closing;
}

/* ---- the lock ---- */

static void tell_waiting(void *user, const char *message)
{
	stream_say(user, FRAME_NOTICE, fill_notice, message);
}

/* Nobody waits on behalf of a client that is gone. */
static bool is_over(void *ctx)
{
	struct session *x = ctx;
	struct stream *s = x->sync.s;
	const struct stream_taker taker = { take_frame, is_idle, x };
	struct pollfd pfd = { .fd = s->wire.fd, .events = POLLIN };

	if (atomic_load(&s->d->stopping))
		(void)stream_fail(s, -ECANCELED, 503, "the daemon stops");
	else if (poll(&pfd, 1, 0) > 0 || wire_pending(&s->wire))
		(void)stream_receive(s, &taker);
	return s->gone || s->err.code || x->closing;
}

/* What was said while it was waited for comes first. */
static int take_lock(struct session *x)
{
	cleanup_lock_cancel struct lock_cancel cancel = { 0 };
	cleanup_error struct error err = ERROR_INIT;
	struct stream *s = x->sync.s;
	int r;

	atoll_set_wait(s->atoll, x->wait_ms);
	atoll_set_wait_notify(s->atoll, tell_waiting, s);
	lock_cancel_begin(&cancel, is_over, x);
	r = plan_hold(s->plan, "sync", x->client, &err);
	atoll_set_wait_notify(s->atoll, NULL, NULL);
	atoll_set_wait(s->atoll, s->d->options.wait_ms);
	x->locked = r >= 0;
	if (r < 0 && !s->err.code && !x->closing)
		error_move(&s->err, &err);
	return r;
}

/* ---- begin and end ---- */

static int look_for_end(void *user, const struct atoll_log_entry *e)
{
	int *open = user;

	if (strncmp(e->what, "sync-", 5) != 0)
		return 0;
	*open = strcmp(e->what, "sync-begin") == 0;
	return -ECANCELED; /* that is all */
}

/* One whose daemon was killed has ended, too. */
static void note_begin(struct session *x)
{
	struct stream *s = x->sync.s;
	int open = 0;

	(void)atoll_log(s->atoll, atoll_plan_id(s->plan), LOG_LOOK, look_for_end, &open, NULL);
	if (open)
		store_event(s->atoll, x->sync.mirror.plan, "sync-end", -ECANCELED,
		            "its daemon was ended");
	store_event(s->atoll, x->sync.mirror.plan, "sync-begin", 0, x->client);
}

static void note_end(struct session *x, int r)
{
	store_event(x->sync.s->atoll, x->sync.mirror.plan, "sync-end", r < 0 ? r : 0, x->client);
}

static int await_open(struct session *x)
{
	struct stream *s = x->sync.s;
	const struct stream_taker taker = { take_open, has_not_asked, x };
	int64_t deadline = clock_deadline(ASK_MS);
	int r = stream_take(s, &taker);

	while (r >= 0 && !x->asked)
		r = stream_wait(s, &taker, deadline);
	if (r == -ATOLL_E_TIMEOUT && !s->err.code)
		return stream_fail(s, r, 408, "no 'open' came");
	return r;
}

static int open_session(struct session *x)
{
	struct stream *s = x->sync.s;
	int r = await_open(x);

	if (r >= 0)
		r = mirror_load(s->atoll, atoll_plan_id(s->plan), &x->sync.mirror, &s->err);
	if (r >= 0 && !s->d->options.unserialized)
		r = take_lock(x);
	if (r >= 0 && atomic_load(&s->d->stopping))
		r = stream_fail(s, -ECANCELED, 503, "the daemon stops");
	if (r < 0)
		return r;
	/* As it is now that nobody else can change it. */
	mirror_done(&x->sync.mirror);
	r = mirror_load(s->atoll, atoll_plan_id(s->plan), &x->sync.mirror, &s->err);
	if (r >= 0)
		r = sync_settle(&x->sync);
	return r;
}

/* ---- steps ---- */

static int run_step(struct session *x)
{
	cleanup_free char *text = take_ptr(x->text);
	struct sync *y = &x->sync;
	sync_step_fn step = x->step;
	int r;

	x->step = NULL;
	y->out_of_turn = false;
	r = step(y, text, x->len);
	if (y->s->gone)
		return -ECONNRESET;
	if (r >= 0)
		return 0;
	if (y->out_of_turn)
		return r;
	say_error(x, r, true);
	return 0;
}

static int serve_steps(struct session *x)
{
	struct stream *s = x->sync.s;
	const struct stream_taker taker = { take_frame, is_idle, x };
	int r = 0;

	while (r >= 0 && !x->closing) {
		r = stream_take(s, &taker);
		if (r >= 0 && x->step)
			r = run_step(x);
		else if (r >= 0 && !x->closing)
			r = stream_wait(s, &taker, CLOCK_NEVER);
		if (r >= 0 && s->gone)
			r = -ECONNRESET;
	}
	return r;
}

static void serve(struct stream *s)
{
	struct session x = { .sync = { .s = s } };
	int r = open_session(&x);

	x.opened = r >= 0;
	if (x.opened) {
		note_begin(&x);
		stream_say(s, FRAME_OPENED, fill_opened, &x);
		r = serve_steps(&x);
		note_end(&x, r);
	}
	if (x.locked)
		plan_hold_end(s->plan);
	if (x.closing)
		stream_say(s, FRAME_CLOSED, NULL, NULL);
	else if (!s->gone)
		say_error(&x, r, false);
	stream_linger(s);
	free(x.text);
	mirror_done(&x.sync.mirror);
}

const struct stream_protocol sync_stream = { .name = FRAME_SYNC_PROTOCOL,
	                                     .from = FRAME_OF_SYNC_CLIENT,
	                                     .serve = serve };
