/* SPDX-License-Identifier: Apache-2.0 */
/* The cycle: which step comes when, and what is left where one fails. */
#include "remote/cycle.h"

#include "remote/connection.h"
#include "remote/pull.h"
#include "remote/push.h"
#include "remote/run.h"
#include "remote/step.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/crashpoint.h"
#include "util/escape.h"
#include "util/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct cycle {
	struct remote_session *s;
	struct remote_run run; /* a copy: the wait gets shorter */
	struct remote_outcome *ret;
	int64_t deadline; /* of waiting */
	struct ticket lock;
	int dir_fd; /* the session's own directory */
	struct connection *c;
	struct there there;
	struct atoll_plan *plan; /* a base; or NULL */
	int64_t run_had;         /* the last one that was pulled; or -1 */
	bool asked;              /* the command was asked for: its changes may be pending */
	struct push push;
};

void remote_outcome_done(struct remote_outcome *o)
{
	for (size_t i = 0; i < o->n_conflicts; i++) {
		free(o->conflicts[i].path);
		free(o->conflicts[i].why);
	}
	free(o->conflicts);
	strlist_done(&o->notes);
	error_done(&o->pull_err);
	*o = (struct remote_outcome){ 0 };
}

static void tell(const struct cycle *cy, enum remote_notice kind, const char *text)
{
	if (cy->run.notice)
		cy->run.notice(cy->run.user, kind, text);
}

static void tell_waiting(void *user, const char *message)
{
	tell(user, REMOTE_WAITING, message);
}

/* ---- the lock here, and what is on record ---- */

static int take_lock(struct cycle *cy, struct error *err)
{
	char file[SESSION_LOCK_LEN];
	cleanup_free char *subject =
		xasprintf("the session of '%s' on '%s'", cy->s->project.root, cy->s->remote->name);
	int r;

	session_lock_name(cy->s, "cycle", file);
	r = lock_ticket(&cy->lock, cy->s->atoll, file, subject, "atoll --remote", cy->deadline,
	                err);
	return r < 0 ? r : session_reload(cy->s, err);
}

static int begin(struct cycle *cy, struct error *err)
{
	int r = take_lock(cy, err);

	if (r == 0)
		r = session_dir(cy->s, &cy->dir_fd, err);
	if (r == 0)
		r = pull_settle(cy->s, &cy->run, cy->ret, &cy->plan, &cy->run_had, err);
	return r;
}

/* ---- to the other side ---- */

static int connect_and_open(struct cycle *cy, struct error *err)
{
	int r = connection_open(cy->s, tell_waiting, cy, &cy->c, err);

	if (r < 0)
		return r;
	if (cy->run.wait_ms > 0)
		cy->run.wait_ms = clock_left_ms(cy->deadline);
	cy->push.c = cy->c;
	cy->push.dir_fd = cy->dir_fd;
	cy->push.there = &cy->there;
	return step_open(cy->c, &cy->run, &cy->there, err);
}

/* The plan may have gone there: stopped by somebody, or with its machine. Then there is another. */
static int go_there(struct cycle *cy, struct error *err)
{
	cleanup_error struct error gone = ERROR_INIT;
	int r = connect_and_open(cy, &gone);

	if (r != -ATOLL_E_NOT_FOUND) {
		if (r < 0)
			error_move(err, &gone);
		return r;
	}
	connection_free(take_ptr(cy->c));
	r = session_replace(cy->s, err);
	if (r < 0)
		return r;
	tell(cy, REMOTE_TOLD, "the session was gone over there; a new one was made");
	return connect_and_open(cy, err);
}

/* ---- what comes back ---- */

/* Until what is pending there is in the local plan, all of it; then it is received. 1: something came. */
static int fetch(struct cycle *cy, struct error *err)
{
	cleanup_close int fd = FD_NONE;
	int64_t base = cy->there.generation;
	uint64_t came = 0; /* what git ignores does not */
	int r = cy->plan ? 0 : pull_base(cy->s, &cy->plan, err);

	if (r == 0)
		r = step_pull(cy->c, cy->dir_fd, &cy->there, &fd, err);
	crashpoint("remote.pull.fetched");
	if (r < 0 || cy->there.changes == 0)
		return r;
	if (cy->s->project.is_git)
		r = pull_date_index(cy->dir_fd, push_index_time(&cy->push, base), &fd, err);
	if (r == 0)
		r = pull_apply(cy->s, cy->plan, fd, err);
	crashpoint("remote.pull.applied");
	if (r == 0)
		r = pull_record(cy->s, cy->plan, cy->there.run, &came, err);
	crashpoint("remote.pull.recorded");
	if (r < 0)
		return r;
	cy->ret->pulled += came;
	r = step_received(cy->c, &cy->there, err);
	crashpoint("remote.pull.received");
	if (r < 0)
		return r;
	push_pulled(&cy->push, base, fd);
	return came > 0;
}

/* The state they were made from is not known here, so neither is what was edited since. */
static int leave_pending(struct cycle *cy, struct error *err)
{
	cleanup_free char *text = NULL;
	int r = pull_leave(cy->s, &cy->plan, cy->ret, err);

	if (r < 0)
		return r;
	text = xasprintf("what was changed on '%s' before is kept in plan %s: atoll diff %s, then "
	                 "atoll commit %s",
	                 cy->s->remote->name, cy->ret->plan_name, cy->ret->plan_name,
	                 cy->ret->plan_name);
	tell(cy, REMOTE_TOLD, text);
	return 0;
}

/* Of an earlier command, whose client did not live to see it. */
static int bring_pending(struct cycle *cy, struct error *err)
{
	bool has_base = cy->plan;
	int r;

	if (!cy->there.has_pending)
		return pull_drop(cy->s, &cy->plan, err);
	if (cy->there.run == cy->run_had)
		return step_received(cy->c, &cy->there, err);
	r = has_base ? pull_tidy(cy->s, cy->plan, err) : 0;
	if (r == 0)
		r = fetch(cy, err);
	if (r <= 0)
		return r < 0 ? r : pull_drop(cy->s, &cy->plan, err);
	cy->ret->had_pending = true;
	if (!has_base)
		return leave_pending(cy, err);
	r = pull_commit(cy->s, &cy->run, cy->plan, cy->ret, err);
	atoll_plan_free(take_ptr(cy->plan));
	return error_prefix(err, r, "what an earlier command changed on '%s' is not in place yet",
	                    cy->s->remote->name);
}

/* ---- there and back ---- */

static void tell_skipped(const struct cycle *cy, bool first)
{
	cleanup_free char *path = NULL, *text = NULL;

	if (!first || cy->push.n_skipped == 0)
		return;
	path = escape_dup(cy->push.skipped);
	text = xasprintf("%llu that is no file, directory or link stays here, such as '%s'",
	                 (unsigned long long)cy->push.n_skipped, path);
	tell(cy, REMOTE_TOLD, text);
}

static int push(struct cycle *cy, struct error *err)
{
	bool first = cy->there.generation == 0;
	struct progress progress = { 0 };
	int r = pull_base(cy->s, &cy->plan, err);

	store_progress_begin(cy->s->atoll, &progress);
	if (r == 0)
		r = push_all(&cy->push, err);
	progress_end(&progress);
	crashpoint("remote.push.done");
	cy->ret->pushed = cy->push.sent;
	if (r == 0)
		tell_skipped(cy, first);
	return r;
}

static int command(struct cycle *cy, struct error *err)
{
	int r;

	cy->asked = true;
	r = run_there(cy->c, &cy->run, cy->s->project.root, cy->there.root, cy->ret, err);
	crashpoint("remote.run.done");
	/* What could not be started has changed nothing. */
	if (r < 0 && !cy->c->ended)
		cy->asked = false;
	return r;
}

/* After the command: what fails from here on does not change how it ended. */
static int bring_back(struct cycle *cy, struct error *err)
{
	int r = cy->ret->changes_there == 0 ? 0 : fetch(cy, err);

	if (r == 0)
		r = pull_drop(cy->s, &cy->plan, err);
	if (r < 0)
		return r;
	/* What is lost now is only the daemon's good-bye. */
	(void)step_close(cy->c, NULL);
	crashpoint("remote.closed");
	cy->ret->committed = !cy->plan;
	if (cy->plan)
		r = pull_commit(cy->s, &cy->run, cy->plan, cy->ret, err);
	return r;
}

/* Lost without a word, perhaps because the key was revoked, which the daemon says when it is asked. */
static void explain_loss(const struct cycle *cy, struct error *err)
{
	cleanup_error struct error why = ERROR_INIT;

	if (!cy->c || !cy->c->ended || cy->c->refused || !cy->s->remote->key ||
	    remote_check_key(cy->s->remote, &why) == 0)
		return;
	error_done(err);
	error_move(err, &why);
	(void)error_prefix(err, err->code, "%s the connection was ended", cy->c->doing);
}

/* Where the next cycle will look for it. */
static void hint_pending(const struct cycle *cy, struct error *err)
{
	const char *first = err->code == -ENOSPC ? "make room here, then bring it: " : "";

	if (cy->ret->pulled == 0)
		error_hint(err,
		           "what the command changed is kept there: %satoll --remote %s commit",
		           first, cy->s->remote->name);
}

static int do_exec(struct cycle *cy, struct error *err)
{
	int r = push(cy, err);

	if (r == 0)
		r = command(cy, err);
	if (r < 0)
		return r;
	if (bring_back(cy, &cy->ret->pull_err) < 0) {
		explain_loss(cy, &cy->ret->pull_err);
		hint_pending(cy, &cy->ret->pull_err);
	}
	return 0;
}

static int do_commit(struct cycle *cy, struct error *err)
{
	(void)step_close(cy->c, NULL);
	(void)err;
	cy->ret->committed |= !*cy->ret->plan;
	return 0;
}

/* ---- the whole ---- */

/* For the next time: where HEAD is now, and what both sides have. Without it nothing is wrong. */
static void remember(struct cycle *cy)
{
	cleanup_project struct project now = { 0 };
	cleanup_error struct error ignored = ERROR_INIT;

	if (cy->there.generation != cy->s->row.generation ||
	    (cy->s->project.is_git && project_find(cy->s->project.root, &now, &ignored) == 0 &&
	     strcmp(now.head, cy->s->row.head) != 0))
		(void)session_save(cy->s, now.head ? now.head : cy->s->row.head,
		                   cy->there.generation, &ignored);
}

static int work(struct cycle *cy, struct error *err)
{
	int r = begin(cy, err);

	if (r == 0)
		r = go_there(cy, err);
	if (r == 0)
		r = bring_pending(cy, err);
	if (r < 0)
		return r;
	r = cy->run.step == REMOTE_COMMIT ? do_commit(cy, err) : do_exec(cy, err);
	if (r == 0)
		remember(cy);
	return r;
}

/* A base of which nothing can come is removed at once; else the next cycle may need it. */
static void finish(struct cycle *cy, int r)
{
	cleanup_error struct error ignored = ERROR_INIT;

	if (r < 0 && cy->plan && !cy->asked && !cy->there.has_pending)
		(void)pull_drop(cy->s, &cy->plan, &ignored);
	atoll_plan_free(cy->plan);
	connection_free(cy->c);
	push_done(&cy->push);
	step_there_done(&cy->there);
	close_fd(&cy->dir_fd);
	session_unlock(cy->s, "cycle", &cy->lock);
}

/* Nobody is to wonder what became of the project. */
static void hint_unchanged(const struct cycle *cy, int r, struct error *err)
{
	bool lost = cy->c && cy->c->ended;
	bool denied;

	if (r == 0 || !lost)
		return;
	explain_loss(cy, err);
	denied = err->code == -ATOLL_E_DENIED;
	error_hint(err, "nothing was changed here; run it again%s",
	           denied ? " when another key (atoll token new, there) is in the key file" : "");
}

int remote_cycle(struct remote_session *s, const struct remote_run *run, struct remote_outcome *ret,
                 struct error *err)
{
	struct cycle cy = { .s = s,
		            .run = *run,
		            .ret = ret,
		            .deadline = clock_deadline(run->wait_ms),
		            .lock = TICKET_INIT,
		            .push = PUSH_INIT,
		            .dir_fd = FD_NONE };
	int r;

	*ret = (struct remote_outcome){ 0 };
	r = work(&cy, err);
	hint_unchanged(&cy, r, err);
	r = r < 0 ? err->code : r;
	finish(&cy, r);
	return r;
}
