/* SPDX-License-Identifier: Apache-2.0 */
/* Which session a project has, and what is kept of it. */
#include "remote/session-impl.h"

#include "fs/atomic.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/crashpoint.h"
#include "util/list.h"
#include "util/mem.h"
#include "util/random.h"
#include "util/strbuf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRIES 1000 /* each needs somebody else who ends the session in between */

void remote_session_free(struct remote_session *s)
{
	if (!s)
		return;
	remote_close(s->remote);
	project_done(&s->project);
	session_row_done(&s->row);
	free(s);
}

void remote_session_freep(struct remote_session **s)
{
	remote_session_free(*s);
}

void session_lock_name(const struct remote_session *s, const char *kind, char out[SESSION_LOCK_LEN])
{
	(void)snprintf(out, SESSION_LOCK_LEN, "%s.%s", s->row.id, kind);
}

/* ---- those that there are ---- */

struct sessions {
	struct session_row *v;
	size_t n, cap;
};

static void sessions_done(struct sessions *all)
{
	for (size_t i = 0; i < all->n; i++)
		session_row_done(&all->v[i]);
	free(all->v);
	*all = (struct sessions){ 0 };
}
#define cleanup_sessions __attribute__((__cleanup__(sessions_done)))

static int sessions_add(struct sessions *all, const struct session_row *row)
{
	void *v = all->v;

	if (grow(&v, &all->cap, all->n + 1, sizeof(*all->v)) < 0)
		return -ENOMEM;
	all->v = v;
	session_row_copy(&all->v[all->n++], row);
	return 0;
}

static int take_row(void *ctx, const struct session_row *row)
{
	return sessions_add(ctx, row);
}

static int ambiguous(const struct sessions *all, const char *why, struct error *err)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;

	for (size_t i = 0; i < all->n; i++)
		strbuf_printf(&sb, "%s%s (%s)", i ? ", " : "", all->v[i].id, all->v[i].branch);
	(void)error_set(err, -ATOLL_E_AMBIGUOUS, "%s: %s; nothing was changed", why,
	                strbuf_str(&sb));
	error_hint(err, "--session ID picks one");
	return -ATOLL_E_AMBIGUOUS;
}

/* ---- which one ---- */

/* All three: 1 and s->row, or 0. */
static int find_by_id(struct remote_session *s, const char *id, struct error *err)
{
	cleanup_sessions struct sessions all = { 0 }, fit = { 0 };
	int r = registry_session_list(s->atoll->reg, s->remote->name, NULL, take_row, &all, err);

	for (size_t i = 0; r == 0 && i < all.n; i++)
		if (*id && strncmp(all.v[i].id, id, strlen(id)) == 0)
			r = sessions_add(&fit, &all.v[i]);
	if (r < 0)
		return r;
	if (fit.n > 1)
		return ambiguous(&fit, "several sessions begin so", err);
	if (fit.n == 0) {
		(void)error_set(err, -ATOLL_E_NOT_FOUND, "remote '%s' has no session '%s'",
		                s->remote->name, id);
		error_hint(err, "atoll --remote %s list", s->remote->name);
		return -ATOLL_E_NOT_FOUND;
	}
	if (strcmp(fit.v[0].root, s->project.root) != 0) {
		(void)error_set(err, -ATOLL_E_INVALID, "session %s is of '%s', not of '%s'",
		                fit.v[0].id, fit.v[0].root, s->project.root);
		error_hint(err, "cd there, or --dir '%s'", fit.v[0].root);
		return -ATOLL_E_INVALID;
	}
	session_row_copy(&s->row, &fit.v[0]);
	return 1;
}

static int find_by_head(struct remote_session *s, struct error *err)
{
	cleanup_sessions struct sessions all = { 0 }, near = { 0 };
	int64_t nearest = INT64_MAX, distance;
	int r = registry_session_list(s->atoll->reg, s->remote->name, s->project.root, take_row,
	                              &all, err);

	for (size_t i = 0; r >= 0 && i < all.n; i++) {
		r = project_distance(&s->project, all.v[i].head, &distance, err);
		if (r <= 0 || distance > nearest)
			continue;
		if (distance < nearest)
			sessions_done(&near);
		nearest = distance;
		r = sessions_add(&near, &all.v[i]);
	}
	if (r < 0)
		return r;
	if (near.n > 1)
		return ambiguous(&near, "HEAD is detached, and several sessions are equally near",
		                 err);
	if (near.n == 1)
		session_row_copy(&s->row, &near.v[0]);
	return near.n > 0;
}

static bool is_detached(const struct project *p)
{
	return p->is_git && p->branch[0] == '\0';
}

static int find(struct remote_session *s, const char *id, struct error *err)
{
	if (id)
		return find_by_id(s, id, err);
	if (is_detached(&s->project))
		return find_by_head(s, err);
	return registry_session_find(s->atoll->reg, s->remote->name, s->project.root,
	                             s->project.branch, &s->row, err);
}

static int not_there(const struct remote_session *s, struct error *err)
{
	(void)error_set(err, -ATOLL_E_NOT_FOUND, "'%s'%s%s has no session at remote '%s'",
	                s->project.root, s->project.branch[0] ? ", branch " : "", s->project.branch,
	                s->remote->name);
	error_hint(err, "atoll --remote %s exec -- COMMAND makes one; list shows those there are",
	           s->remote->name);
	return -ATOLL_E_NOT_FOUND;
}

/* ---- find or create ---- */

/* In one transaction: found, or made. */
static int find_or_insert(struct registry *reg, void *ctx, struct error *err)
{
	struct remote_session *s = ctx;
	struct session_row found;
	int r = registry_session_find(reg, s->row.remote, s->row.root, s->row.branch, &found, err);

	if (r == 0)
		return registry_session_insert(reg, &s->row, err);
	if (r > 0) {
		session_row_done(&s->row);
		s->row = found;
	}
	return r < 0 ? r : 0;
}

static int record(struct remote_session *s, const char *name, struct error *err)
{
	const struct project *p = &s->project;
	struct session_row wanted = { .state = SESSION_CREATING, .created_ms = clock_real_ms() };
	int r;

	if (name && strlen(name) > LIMIT_NAME)
		return error_set(err, -ATOLL_E_INVALID, "the name is longer than %d bytes",
		                 LIMIT_NAME);
	wanted.used_ms = wanted.created_ms;
	random_hex(wanted.key, SESSION_KEY_LEN);
	(void)snprintf(wanted.remote, sizeof(wanted.remote), "%s", s->remote->name);
	(void)snprintf(wanted.name, sizeof(wanted.name), "%s", name ? name : "");
	(void)snprintf(wanted.head, sizeof(wanted.head), "%.*s", SESSION_HEAD_LEN, p->head);
	wanted.root = p->root;
	wanted.branch = is_detached(p) ? xasprintf("@%s", p->head) : xstrdup(p->branch);
	session_row_copy(&s->row, &wanted);
	free(wanted.branch);
	session_sweep(s->atoll);
	r = store_write(s->atoll, REGISTRY_DURABLE, find_or_insert, s, err);
	crashpoint("session.recorded");
	return r < 0 ? r : 0;
}

static int find_or_create(struct remote_session *s, const struct session_wish *w, struct error *err)
{
	int r = find(s, w->id, err);

	if (r == 0 && w->must_exist)
		return not_there(s, err);
	if (r == 0)
		r = record(s, w->name, err);
	if (r >= 0 && s->row.state == SESSION_CREATING && !w->must_exist)
		r = session_complete(s, err);
	return r < 0 ? r : 0;
}

int session_get(struct atoll *a, const struct session_wish *w, struct remote_session **ret,
                struct error *err)
{
	cleanup_remote_session struct remote_session *s = xcalloc(1, sizeof(*s));
	int r;

	s->atoll = a;
	r = remote_open(a, w->remote, &s->remote, err);
	if (r == 0)
		r = project_find(w->dir, &s->project, err);
	if (r < 0)
		return r;
	for (int i = 0;; i++) {
		r = find_or_create(s, w, err);
		/* Stopped by somebody while we waited for it: it is as if it had never been. */
		if (r != -ESTALE || i == TRIES)
			break;
		error_done(err);
		session_row_done(&s->row);
		s->is_gone = false;
	}
	if (r == 0)
		*ret = take_ptr(s);
	return r;
}

int session_reload(struct remote_session *s, struct error *err)
{
	struct session_row row;
	int r = registry_session_get(s->atoll->reg, s->row.id, &row, err);

	if (r < 0)
		return r;
	s->is_gone = r == 0;
	if (r == 0)
		return error_set(err, -ATOLL_E_NOT_FOUND, "session %s was stopped meanwhile",
		                 s->row.id);
	session_row_done(&s->row);
	s->row = row;
	return 0;
}

/* ---- what is kept ---- */

struct changing {
	struct remote_session *s;
	session_change_fn change;
	const void *ctx;
};

static int change_row(struct registry *reg, void *ctx, struct error *err)
{
	const struct changing *c = ctx;
	int r = session_reload(c->s, err);

	if (r < 0)
		return r;
	c->change(&c->s->row, c->ctx);
	c->s->row.used_ms = clock_real_ms();
	return registry_session_update(reg, &c->s->row, err);
}

int session_change(struct remote_session *s, session_change_fn change, const void *ctx,
                   struct error *err)
{
	struct changing c = { .s = s, .change = change, .ctx = ctx };

	return store_write(s->atoll, REGISTRY_DURABLE, change_row, &c, err);
}

struct agreed {
	const char *head;
	int64_t generation;
};

static void set_agreed(struct session_row *row, const void *ctx)
{
	const struct agreed *a = ctx;

	(void)snprintf(row->head, sizeof(row->head), "%s", a->head);
	row->generation = a->generation;
}

int session_save(struct remote_session *s, const char *head, int64_t generation, struct error *err)
{
	return session_change(s, set_agreed,
	                      &(struct agreed){ .head = head, .generation = generation }, err);
}

struct pull {
	const char *plan, *run;
};

static void set_pull(struct session_row *row, const void *ctx)
{
	const struct pull *p = ctx;

	(void)snprintf(row->pull_plan, sizeof(row->pull_plan), "%s", p->plan);
	(void)snprintf(row->pull_run, sizeof(row->pull_run), "%s", p->run);
}

int session_save_pull(struct remote_session *s, const char *plan_id, const char *run,
                      struct error *err)
{
	return session_change(s, set_pull, &(struct pull){ .plan = plan_id, .run = run }, err);
}

static void set_pulled(struct session_row *row, const void *ctx)
{
	(void)snprintf(row->pulled, sizeof(row->pulled), "%s", (const char *)ctx);
	row->pull_plan[0] = '\0';
}

int session_save_pulled(struct remote_session *s, const char *plan_id, struct error *err)
{
	return session_change(s, set_pulled, plan_id, err);
}

int session_dir(struct remote_session *s, int *ret_fd, struct error *err)
{
	cleanup_close int all = FD_NONE;
	int r = fs_private_dir_at(s->atoll->home_fd, SESSION_DIRS, &all);

	if (r == 0)
		r = fs_private_dir_at(all, s->row.id, ret_fd);
	return r < 0 ? error_sys(err, r, "open the directory of session", s->row.id) : 0;
}
