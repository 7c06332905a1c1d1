/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running a command: the request goes to atoll-helper in a memory file (writing it never blocks, and
 * the helper may have been started before there was one), the reply comes back through a pipe that also tells, by its end, that the helper
 * is gone. The write end of the lifeline stays here and dies with this process; through it the
 * helper hears when to begin, too.
 */
#include "exec/exec.h"

#include "exec/exec-impl.h"
#include "exec/jobserver.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define EXIT_KILLED (128 + SIGKILL)

static int add_all(struct request *q, enum request_field f, const char *const *values)
{
	for (size_t i = 0; values && values[i]; i++) {
		int r = request_add(q, f, values[i]);

		if (r < 0)
			return r;
	}
	return 0;
}

static int add_view(struct request *q, const struct exec_view *v)
{
	static const char *const kinds[EXEC_VIEW_KIND_END_] = {
		[EXEC_VIEW_BIND] = REQUEST_BIND,       [EXEC_VIEW_OVERLAY] = REQUEST_OVERLAY,
		[EXEC_VIEW_SCRATCH] = REQUEST_SCRATCH, [EXEC_VIEW_SHOW] = REQUEST_SHOW,
		[EXEC_VIEW_PRIVATE] = REQUEST_PRIVATE, [EXEC_VIEW_FIXED] = REQUEST_FIXED,
		[EXEC_VIEW_EMPTY] = REQUEST_EMPTY,     [EXEC_VIEW_HIDDEN] = REQUEST_HIDDEN,
		[EXEC_VIEW_CLOSED] = REQUEST_CLOSED,
	};
	const struct {
		enum request_field field;
		const char *value;
	} fields[] = {
		{ REQUEST_VIEW_KIND, kinds[v->kind] },
		{ REQUEST_VIEW_TARGET, v->target },
		{ REQUEST_VIEW_SOURCE, v->source },
		{ REQUEST_VIEW_UPPER, v->upper ? v->upper : "" },
		{ REQUEST_VIEW_WORK, v->work ? v->work : "" },
	};
	int r = 0;

	for (size_t i = 0; r == 0 && i < sizeof(fields) / sizeof(fields[0]); i++)
		r = request_add(q, fields[i].field, fields[i].value);
	if (r == 0 && v->moved)
		r = request_add(q, REQUEST_MOVED, v->target);
	return r;
}

static int add_views(struct request *q, const struct exec_options *opt)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < opt->n_views; i++)
		r = add_view(q, &opt->views[i]);
	if (r == 0 && opt->tmp)
		r = request_add(q, REQUEST_TMP, opt->tmp);
	if (r == 0 && opt->var_tmp)
		r = request_add(q, REQUEST_VAR_TMP, opt->var_tmp);
	if (r == 0 && opt->strict)
		r = request_add(q, REQUEST_STRICT, "1");
	if (r == 0 && opt->record)
		r = request_add(q, REQUEST_RECORD, opt->record);
	return r;
}

static int add_syncs(struct request *q, const struct exec_options *opt)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < opt->n_syncs; i++) {
		r = request_add(q, REQUEST_SYNC_WORK, opt->syncs[i].work);
		if (r == 0)
			r = request_add(q, REQUEST_SYNC_AREA, opt->syncs[i].area);
		if (r == 0)
			r = request_add(q, REQUEST_SYNC_NUMBER, opt->syncs[i].number);
	}
	return r;
}

/* In other mounts the same directory is not found by staying in it, only by its name. */
static int add_cwd(struct request *q, const struct exec_options *opt)
{
	cleanup_free char *here = NULL;

	if (opt->cwd)
		return request_add(q, REQUEST_CWD, opt->cwd);
	if (opt->n_views == 0 && !opt->join)
		return 0;
	here = getcwd(NULL, 0);
	return here ? request_add(q, REQUEST_CWD, here) : -errno;
}

/* Left out when it is not more than nothing. */
static int add_number(struct request *q, enum request_field f, int64_t number)
{
	char text[32];

	if (number <= 0)
		return 0;
	(void)snprintf(text, sizeof(text), "%" PRId64, number);
	return request_add(q, f, text);
}

static int add_fences(struct request *q, const struct exec_options *opt)
{
	static const enum request_field limits[REQUEST_LIMIT_END_] = {
		[REQUEST_LIMIT_MEMORY] = REQUEST_MEMORY,
		[REQUEST_LIMIT_CPUS] = REQUEST_CPUS,
		[REQUEST_LIMIT_PIDS] = REQUEST_PIDS,
	};
	int r = opt->net ? request_add(q, REQUEST_NET, opt->net) : 0;

	if (r == 0 && opt->net)
		r = add_all(q, REQUEST_LISTEN, opt->listen);
	for (int i = 0; r == 0 && i < REQUEST_LIMIT_END_; i++)
		r = add_number(q, limits[i], opt->limits[i]);
	return r;
}

/* What was started by another process, for a client or to go on alone, is no job of the make that started this one. */
static bool find_jobserver(const struct exec_options *opt, int ret_fds[2])
{
	return !opt->detached && !opt->control && jobserver_pipe(getenv("MAKEFLAGS"), ret_fds);
}

static int add_jobserver(struct request *q, const struct exec_options *opt)
{
	int fds[2];
	int r = 0;

	if (!find_jobserver(opt, fds))
		return 0;
	for (int i = 0; r == 0 && i < 2; i++)
		r = add_number(q, REQUEST_JOBSERVER, fds[i]);
	return r;
}

static int fill_request(struct request *q, const struct exec_options *opt)
{
	int r;

	r = add_all(q, REQUEST_ARG, opt->argv);
	if (r == 0)
		r = add_all(q, REQUEST_ENV, opt->setenv);
	if (r == 0)
		r = add_cwd(q, opt);
	if (r == 0 && opt->n_views > 0)
		r = add_views(q, opt);
	if (r == 0)
		r = add_syncs(q, opt);
	if (r == 0 && opt->lock_fd != FD_NONE)
		r = request_add(q, REQUEST_HAS_LOCK, "1");
	if (r == 0)
		r = add_number(q, REQUEST_TIMEOUT_MS, opt->timeout_ms);
	if (r == 0 && opt->began)
		r = request_add(q, REQUEST_TELL, "1");
	if (r == 0 && opt->join)
		r = request_add(q, REQUEST_JOIN, opt->join);
	if (r == 0 && opt->terminal)
		r = request_add(q, REQUEST_TERMINAL, "1");
	if (r == 0)
		r = add_jobserver(q, opt);
	return r < 0 ? r : add_fences(q, opt);
}

static int write_request(const struct exec_options *opt, int *ret_fd, struct error *err)
{
	cleanup_request struct request *q = request_new();
	cleanup_close int fd = memfd_create("atoll-request", MFD_CLOEXEC);
	int r;

	if (fd < 0)
		return exec_sys_error(-errno, "make", "the request to atoll-helper", err);
	r = fill_request(q, opt);
	if (r == -ATOLL_E_TOO_BIG)
		return error_set(err, r, "the command line is longer than %u bytes", REQUEST_MAX);
	if (r == 0)
		r = request_send(q, fd);
	if (r == 0 && lseek(fd, 0, SEEK_SET) < 0)
		r = -errno;
	if (r < 0)
		return error_sys(err, r, "write", "the request to atoll-helper");
	*ret_fd = take_fd(&fd);
	return 0;
}

/* The machine's own limits are told as they are; all else is something this host does not do. */
static int space_failed(const struct reply *reply, struct error *err)
{
	static const char *const ops[REPLY_STAGE_END_] = {
		[REPLY_REQUEST] = "start",
		[REPLY_NAMESPACE] = "namespace",
		[REPLY_VIEW] = "mount",
	};
	const char *hint = exec_limit_hint(reply->error);
	int code = hint ? -reply->error : -ATOLL_E_UNSUPPORTED;

	(void)exec_reply_error(reply, code, ops[reply->stage], err);
	error_hint(err, "%s", hint ? hint : "see what this host allows: atoll doctor");
	return code;
}

static int start_failed(const struct exec_options *opt, const struct reply *reply,
                        struct error *err)
{
	int r = -reply->error;

	switch ((enum reply_stage)reply->stage) {
	case REPLY_EXEC:
		return error_sys(err, r, "run", opt->argv[0]);
	case REPLY_CHDIR:
		return exec_cwd_failed(opt, reply->error, err);
	case REPLY_REQUEST:
		if (reply->error == EPROTO || reply->error == EMSGSIZE)
			break;
		return space_failed(reply, err);
	case REPLY_NAMESPACE:
	case REPLY_VIEW:
		return space_failed(reply, err);
	case REPLY_JOIN:
		(void)exec_reply_error(reply, -ATOLL_E_STATE, "join", err);
		error_hint(err, "it may have just ended; atoll lock show says what runs");
		return -ATOLL_E_STATE;
	case REPLY_LOST:
		(void)exec_reply_error(reply, -EIO, "follow", err);
		error_hint(err, "what it had written is in the plan; was memory short? see dmesg");
		return -EIO;
	case REPLY_STARTED:
	case REPLY_RUNNING:
	case REPLY_STAGE_END_:
		break;
	}
	(void)error_set(err, -ATOLL_E_UNSUPPORTED, "atoll-helper could not do as asked: %s",
	                strerror(reply->error));
	error_hint(err, "atoll and atoll-helper must come from the same version");
	return -ATOLL_E_UNSUPPORTED;
}

static int take_reply(const struct exec_options *opt, const struct reply *reply,
                      struct exec_usage *ret, struct error *err)
{
	if (reply->error != 0)
		return start_failed(opt, reply, err);
	*ret = (struct exec_usage){
		.exit_code = reply->exit_code,
		.term_signal = reply->term_signal,
		.timed_out = reply->timed_out != 0,
		.user_us = reply->user_us,
		.system_us = reply->system_us,
		.max_rss_kb = reply->max_rss_kb,
		.isolated = opt->n_views > 0,
		.still_written = (reply->flags & REPLY_STILL_WRITTEN) != 0,
		.memory_kills = reply->memory_kills,
	};
	for (int i = 0; i < REQUEST_LIMIT_END_; i++)
		ret->limit_by[i] = (enum reply_limit)reply->limit_by[i];
	return 0;
}

/* ---- the steps ---- */

struct exec {
	const struct exec_options *opt;
	struct channels ch;
	struct child child;
	struct output output;
	char *record;  /* the directory of EXEC_RUNNING, or NULL */
	bool ahead;    /* the helper was started ahead, by a program that ends soon */
	bool answered; /* and has nothing to say but that it leaves */
};

/* All that goes with the request; ours of the output are not needed any more. */
static int give(struct exec *e, int request_fd, struct error *err)
{
	int jobs[2] = { FD_NONE, FD_NONE };
	bool has_jobs = find_jobserver(e->opt, jobs);
	const struct {
		char slot;
		int fd;
	} all[] = { { 'r', request_fd },
		    { 'l', e->opt->lock_fd },
		    { 'o', e->output.out[1] },
		    { 'e', e->output.err[1] },
		    { 'n', e->output.stopped[1] },
		    { 'j', has_jobs ? jobs[0] : FD_NONE },
		    { 'w', has_jobs ? jobs[1] : FD_NONE } };
	char slots[REQUEST_SLOTS + 1] = { 0 };
	int fds[REQUEST_SLOTS], r;
	size_t n = 0;

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		if (all[i].fd == FD_NONE)
			continue;
		slots[n] = all[i].slot;
		fds[n++] = all[i].fd;
	}
	r = helper_give(&e->ch, slots, fds);
	output_done(&e->output);
	return r < 0 ? exec_sys_error(r, "send", "the request to atoll-helper", err) : 0;
}

int exec_start(const struct exec_options *opt, struct exec **ret, struct error *err)
{
	cleanup_exec struct exec *e = xcalloc(1, sizeof(*e));
	cleanup_close int request_fd = FD_NONE;
	int r;

	*e = (struct exec){ .opt = opt,
		            .ch = CHANNELS_INIT,
		            .child = CHILD_INIT,
		            .output = OUTPUT_INIT,
		            .record = opt->record ? xstrdup(opt->record) : NULL };
	r = output_open(&e->output, &e->opt, err);
	if (r == 0)
		r = write_request(e->opt, &request_fd, err);
	if (r == 0)
		r = helper_get(&e->child, &e->ch, e->opt, err);
	e->ahead = r == 1;
	r = r < 0 ? r : 0;
	if (r == 0)
		r = output_start(&e->output, e->opt, err);
	if (r == 0)
		r = give(e, request_fd, err);
	if (r == 0)
		*ret = take_ptr(e);
	return r;
}

/* It never blocks and never raises SIGPIPE. */
static bool tell(struct exec *e, const char *byte)
{
	return send(e->ch.lifeline[1], byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}

static _Atomic(pid_t) listener;
static atomic_bool has_ended;

bool exec_has_ended(void)
{
	return atomic_load(&has_ended);
}

pid_t exec_listener(void)
{
	return atomic_load(&listener);
}

void exec_go(struct exec *e)
{
	/* What came before it ends us, and so the helper. */
	atomic_store(&has_ended, false);
	atomic_store(&listener, e->child.pid);
	(void)tell(e, "g"); /* one that is gone does not answer either */
}

/* The last reply; that the command runs comes before it, where it was asked for. */
static int await_reply(struct exec *e, struct reply *ret, enum follow *ret_how, struct error *err)
{
	int r;

	do {
		*ret_how = helper_follow(&e->child, &e->ch, e->opt);
		r = helper_reply(&e->child, &e->ch, ret, *ret_how ? NULL : err);
		if (r == 0 && ret->stage == REPLY_RUNNING && e->opt->began)
			e->opt->began(e->opt->began_ctx);
	} while (r == 0 && ret->stage == REPLY_RUNNING && *ret_how == FOLLOW_ANSWERED);
	if (r == 0 && ret->stage == REPLY_RUNNING)
		r = helper_reply(&e->child, &e->ch, ret, NULL);
	/* Without its answer nobody saw the command's end: we hold the lock until it is certain. */
	if (r < 0 && e->opt->record)
		(void)exec_bury(e->opt->record, NULL);
	return r;
}

int exec_wait(struct exec *e, struct exec_usage *ret, struct error *err)
{
	struct reply reply = { 0 };
	enum follow how;
	int r = await_reply(e, &reply, &how, err);

	atomic_store(&has_ended, true);
	if (e->output.caller[1] != FD_NONE && e->output.copier.pid > 0)
		atomic_store(&listener, e->output.copier.pid);
	output_wait(&e->output);
	atomic_store(&listener, e->child.pid);
	e->answered = r == 0;
	if (how == FOLLOW_ANSWERED)
		return r < 0 ? r : take_reply(e->opt, &reply, ret, err);
	/* Ended at once it has nothing more to say. */
	*ret = (struct exec_usage){ .exit_code = EXIT_KILLED, .term_signal = SIGKILL };
	if (r == 0)
		(void)take_reply(e->opt, &reply, ret, NULL);
	ret->stopped = how == FOLLOW_STOPPED;
	return 0;
}

bool exec_note(struct exec *e, bool sync)
{
	return tell(e, sync ? "s" : "n");
}

void exec_close(struct exec *e)
{
	int status = 0;
	pid_t pid;

	if (!e)
		return;
	pid = e->child.pid;
	(void)atomic_compare_exchange_strong(&listener, &pid, 0);
	/* By this the helper ends what still runs. */
	close_fd(&e->ch.lifeline[1]);
	/* Who has something to do meanwhile need not see it go now. */
	if (e->ahead && e->answered && helper_left(&e->ch))
		helper_leave(&e->child);
	channels_done(&e->ch);
	/* Its answer may have come before the end of pid 1; killed, it did not see to that. */
	if (child_wait(&e->child, CLOCK_NEVER, &status) == 0 && status != 0 && e->record)
		(void)exec_bury(e->record, NULL);
	child_done(&e->child);
	output_wait(&e->output);
	free(e->record);
	free(e);
}

void cleanup_execp(struct exec **e)
{
	exec_close(*e);
}

int exec_run(const struct exec_options *opt, struct exec_usage *ret, struct error *err)
{
	cleanup_exec struct exec *e = NULL;
	int r = exec_start(opt, &e, err);

	if (r < 0)
		return r;
	exec_go(e);
	return exec_wait(e, ret, err);
}
