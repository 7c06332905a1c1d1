/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session's plan at the remote: made once, replaced when it is gone, ended. All of it with the
 * session's lock held, and with requests that may be repeated.
 */
#include "remote/session-impl.h"

#include "fs/atomic.h"
#include "fs/remove.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/crashpoint.h"
#include "util/json-read.h"
#include "util/json.h"
#include "util/mem.h"
#include "util/random.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AGAIN_NS INT64_C(200000000)

enum { GONE_NOT_FOUND = 404, GONE_CONFLICT = 409, GONE_FOR_EVER = 410 };

/* ---- the lock ---- */

static int lock(struct remote_session *s, const char *kind, struct ticket *t, struct error *err)
{
	cleanup_free char *subject = xasprintf("session %s of '%s' at remote '%s'", s->row.id,
	                                       s->project.root, s->remote->name);
	cleanup_free char *what = xasprintf("atoll --remote %s", s->remote->name);
	char file[SESSION_LOCK_LEN];

	session_lock_name(s, kind, file);
	return lock_ticket(t, s->atoll, file, subject, what, store_deadline(s->atoll), err);
}

/* The file goes with the session; those who wait for it begin again. */
void session_unlock(struct remote_session *s, const char *kind, struct ticket *t)
{
	char file[SESSION_LOCK_LEN];

	session_lock_name(s, kind, file);
	if (s->is_gone && t->fd >= 0)
		(void)fs_unlink_at(registry_locks_fd(s->atoll->reg), file);
	ticket_release(t);
}

/* ---- the request ---- */

/* The same bytes every time: another body with the same key would be refused. */
static char *request_body(const struct session_row *row)
{
	const char *slash = strrchr(row->root, '/');
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);
	struct json j;

	if (!f)
		return NULL;
	json_init(&j, f);
	json_open_object(&j, NULL);
	json_string(&j, "label", slash && slash[1] ? slash + 1 : row->root);
	if (row->name[0])
		json_string(&j, "name", row->name);
	json_close(&j);
	if (fclose(f) != 0) {
		free(text);
		return NULL;
	}
	return text;
}

struct made {
	char plan[PLAN_ID_LEN + 1];
	char sandbox[SANDBOX_ID_LEN + 1];
};

static int take_plan(void *user, const char *key, const char *value, size_t len)
{
	struct made *m = user;

	return strcmp(key, "id") == 0 ? json_decode_string(value, len, m->plan, sizeof(m->plan))
	                              : 0;
}

static int take_member(void *user, const char *key, const char *value, size_t len)
{
	struct made *m = user;

	if (strcmp(key, "plan") == 0)
		return json_members(value, len, take_plan, user);
	if (strcmp(key, "sandbox") == 0)
		return json_decode_string(value, len, m->sandbox, sizeof(m->sandbox));
	return 0;
}

static int read_made(const struct remote_session *s, const struct http_reply *reply,
                     struct made *ret, struct error *err)
{
	*ret = (struct made){ "", "" };
	if (reply->body && json_members(reply->body, reply->len, take_member, ret) == 0 &&
	    strlen(ret->plan) == PLAN_ID_LEN && ret->sandbox[0])
		return 0;
	return error_set(err, -ATOLL_E_UNREACHABLE,
	                 "remote '%s' made a session and does not say which", s->remote->name);
}

/* 1: somebody's request with this key is under way there: the one of a dead predecessor. */
static int ask(struct remote_session *s, struct made *ret, int *ret_status, struct error *err)
{
	cleanup_http_reply struct http_reply reply = HTTP_REPLY_INIT;
	cleanup_free char *body = request_body(&s->row);
	int r;

	if (!body)
		return error_set(err, -ENOMEM, "out of memory");
	r = remote_call(s->remote,
	                &(struct http_request){ .method = "POST",
	                                        .path = "/v1/sessions",
	                                        .body = body,
	                                        .idempotency_key = s->row.key },
	                &reply, err);
	*ret_status = reply.status;
	if (reply.status == GONE_NOT_FOUND) {
		error_done(err);
		(void)error_set(err, -ATOLL_E_UNSUPPORTED,
		                "the daemon of remote '%s' knows nothing of sessions",
		                s->remote->name);
		error_hint(err, "install a newer atolld there");
		return -ATOLL_E_UNSUPPORTED;
	}
	if (r == -ATOLL_E_BUSY && reply.status == GONE_CONFLICT) {
		error_done(err);
		return 1;
	}
	return r < 0 ? r : read_made(s, &reply, ret, err);
}

static int ask_until(struct remote_session *s, struct made *ret, int *ret_status, struct error *err)
{
	int64_t deadline = store_deadline(s->atoll);
	int r;

	while ((r = ask(s, ret, ret_status, err)) > 0) {
		if (clock_boot_ns() >= deadline)
			return error_set(err, -ATOLL_E_TIMEOUT,
			                 "remote '%s' is still making the session",
			                 s->remote->name);
		clock_sleep_ns(AGAIN_NS);
	}
	return r;
}

/* ---- the row ---- */

static void set_again(struct session_row *row, const void *ctx)
{
	(void)ctx;
	row->state = SESSION_CREATING;
	row->plan[0] = row->sandbox[0] = '\0';
	row->generation = 0;
	random_hex(row->key, SESSION_KEY_LEN);
}

static void remove_dir(struct remote_session *s)
{
	cleanup_close int all = openat(s->atoll->home_fd, SESSION_DIRS,
	                               O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (all >= 0)
		(void)remove_tree_at(all, s->row.id); /* what is left is a stale manifest */
}

/* The directory first: what is in it must not outlive the generation it is of. */
int session_begin_again(struct remote_session *s, struct error *err)
{
	int r;

	remove_dir(s);
	crashpoint("session.emptied");
	r = session_change(s, set_again, NULL, err);
	crashpoint("session.again");
	return r;
}

static void set_active(struct session_row *row, const void *ctx)
{
	const struct made *m = ctx;

	row->state = SESSION_ACTIVE;
	(void)snprintf(row->plan, sizeof(row->plan), "%s", m->plan);
	(void)snprintf(row->sandbox, sizeof(row->sandbox), "%s", m->sandbox);
}

static int delete_row(struct registry *reg, void *ctx, struct error *err)
{
	const struct remote_session *s = ctx;

	return registry_session_delete(reg, s->row.id, err);
}

/* Answered, and not to be answered otherwise: then there is nothing there to be found later. */
static bool is_final(int status)
{
	return status >= 400 && status < 500 && status != 408 && status != 429;
}

int session_make_plan(struct remote_session *s, struct error *err)
{
	struct made made;
	int status = 0;
	int r = ask_until(s, &made, &status, err);

	/* It was made, and stopped there before we heard of it. */
	if (r < 0 && status == GONE_FOR_EVER) {
		error_done(err);
		r = session_begin_again(s, err);
		if (r == 0)
			r = ask_until(s, &made, &status, err);
	}
	if (r < 0) {
		if (is_final(status) && s->row.generation == 0 && !s->row.pulled[0] &&
		    !s->row.pull_plan[0])
			s->is_gone =
				store_write(s->atoll, REGISTRY_DURABLE, delete_row, s, NULL) >= 0;
		return error_prefix(err, r, "cannot make a session");
	}
	crashpoint("session.asked");
	r = session_change(s, set_active, &made, err);
	crashpoint("session.active");
	s->is_new = r == 0;
	return r;
}

static int complete_locked(struct remote_session *s, struct error *err)
{
	int r = session_reload(s, err);

	crashpoint("session.locked");
	if (r == -ATOLL_E_NOT_FOUND)
		return -ESTALE;
	if (r < 0 || s->row.state == SESSION_ACTIVE)
		return r;
	return session_make_plan(s, err);
}

int session_complete(struct remote_session *s, struct error *err)
{
	struct ticket t = TICKET_INIT;
	int r = lock(s, SESSION_LOCK_SESSION, &t, err);

	if (r < 0)
		return r;
	r = complete_locked(s, err);
	session_unlock(s, SESSION_LOCK_SESSION, &t);
	return r;
}

/* ---- one that is gone ---- */

static int replace_locked(struct remote_session *s, const char *gone, struct error *err)
{
	int r = session_reload(s, err);

	if (r == 0 && s->row.state == SESSION_ACTIVE && strcmp(s->row.plan, gone) != 0)
		return 0; /* by somebody else, meanwhile */
	if (r == 0 && s->row.state == SESSION_ACTIVE)
		r = session_begin_again(s, err);
	if (r == 0)
		r = session_make_plan(s, err);
	s->is_replaced = r == 0;
	return r;
}

int session_replace(struct remote_session *s, struct error *err)
{
	struct ticket t = TICKET_INIT;
	char gone[PLAN_ID_LEN + 1];
	int r = lock(s, SESSION_LOCK_SESSION, &t, err);

	if (r < 0)
		return r;
	memcpy(gone, s->row.plan, sizeof(gone));
	r = replace_locked(s, gone, err);
	session_unlock(s, SESSION_LOCK_SESSION, &t);
	return r;
}

int session_check(struct remote_session *s, struct error *err)
{
	cleanup_http_reply struct http_reply reply = HTTP_REPLY_INIT;
	cleanup_free char *path = xasprintf("/v1/sessions/%s", s->row.plan);
	int r = remote_call(s->remote, &(struct http_request){ .method = "GET", .path = path },
	                    &reply, err);

	if (reply.status != GONE_NOT_FOUND && reply.status != GONE_FOR_EVER)
		return r;
	error_done(err);
	return session_replace(s, err);
}

/* ---- the end ---- */

static int delete_there(struct remote_session *s, struct error *err)
{
	cleanup_http_reply struct http_reply reply = HTTP_REPLY_INIT;
	cleanup_free char *path = xasprintf("/v1/sessions/%s", s->row.plan);
	int r = remote_call(s->remote, &(struct http_request){ .method = "DELETE", .path = path },
	                    &reply, err);

	if (reply.status != GONE_NOT_FOUND && reply.status != GONE_FOR_EVER)
		return r;
	error_done(err);
	return 0;
}

/* A row that is `creating` may have a plan there that nobody heard of: it is asked for first. */
static int end_there(struct remote_session *s, struct error *err)
{
	int r = 0;

	if (s->row.state == SESSION_CREATING)
		r = session_make_plan(s, err);
	return r == 0 ? delete_there(s, err) : r;
}

static int stop_locked(struct remote_session *s, bool is_forced, struct error *err)
{
	int left = 0;
	int r = session_reload(s, err);

	if (r == 0)
		r = end_there(s, err);
	if (r < 0 && is_forced && r != -ENOMEM) {
		error_done(err);
		left = 1;
		r = 0;
	}
	crashpoint("session.ended");
	if (r == 0)
		r = store_write(s->atoll, REGISTRY_DURABLE, delete_row, s, err);
	crashpoint("session.deleted");
	if (r < 0)
		return r;
	s->is_gone = true;
	remove_dir(s);
	return left;
}

int session_stop(struct remote_session *s, bool is_forced, struct error *err)
{
	struct ticket cycle = TICKET_INIT, session = TICKET_INIT;
	int r = lock(s, SESSION_LOCK_CYCLE, &cycle, err);

	if (r == 0)
		r = lock(s, SESSION_LOCK_SESSION, &session, err);
	if (r == 0)
		r = stop_locked(s, is_forced, err);
	session_unlock(s, SESSION_LOCK_SESSION, &session);
	session_unlock(s, SESSION_LOCK_CYCLE, &cycle);
	session_sweep(s->atoll);
	return r;
}
