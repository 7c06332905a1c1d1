/* SPDX-License-Identifier: Apache-2.0 */
/* A job's start, on both sides of the pipe. */
#include "daemon/job.h"

#include "answer/answer.h"
#include "auth/credential.h"
#include "daemon/command.h"
#include "daemon/daemon.h"
#include "daemon/exec-request.h"
#include "daemon/problem.h"
#include "daemon/reply.h"
#include "fs/atomic.h"
#include "plan/plan.h"
#include "util/child.h"
#include "util/cleanup.h"
#include "util/json.h"
#include "util/mem.h"
#include "util/strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ORDER_FD  3
#define REPORT_FD 4
#define HELD_FD   5
#define ORDER_MAX (4u << 20)
#define SAYS_MAX  (64u << 10)
#define BEGAN     "began"

/* ---- the job's process ---- */

/* HOME, wait in ms, id of the request, id of the plan, scope of who asks, request: with a NUL behind each. */
enum order {
	ORDER_HOME = 0,
	ORDER_WAIT,
	ORDER_ID,
	ORDER_PLAN,
	ORDER_SCOPE,
	ORDER_REQUEST,
	ORDER_END_
};

struct order_parts {
	char *text;
	const char *v[ORDER_END_];
};

static int read_order(struct order_parts *o)
{
	size_t len, at = 0;
	int r = fs_read_all(ORDER_FD, ORDER_MAX, &o->text, &len);

	for (int i = 0; r == 0 && i < ORDER_END_; i++) {
		if (at >= len)
			return -EPROTO;
		o->v[i] = o->text + at;
		at += strnlen(o->text + at, len - at) + 1;
	}
	return r;
}

static bool began;

static void on_began(void *ctx)
{
	int fd = REPORT_FD, held_fd = HELD_FD;

	(void)ctx;
	began = true;
	(void)fs_write_all(fd, BEGAN, sizeof(BEGAN) - 1);
	close_fd(&fd);
	close_fd(&held_fd);
	(void)(chdir("/") < 0);
}

static void report(const struct problem *p)
{
	cleanup_free char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);
	struct json j;

	if (!f)
		return;
	(void)fprintf(f, "%u ", p->status);
	json_init(&j, f);
	problem_write(&j, p);
	json_end(&j);
	if (fclose(f) == 0)
		(void)fs_write_all(REPORT_FD, text, len);
}

/* What is sent to this process is for the command: it stays, to tell how that ended. */
static int control_to = FD_NONE;

static void on_signal(int sig)
{
	char byte = (char)sig;
	int saved = errno;

	(void)(write(control_to, &byte, 1) < 0);
	errno = saved;
}

/* A daemon that died while the job began reads no report: the job goes on. A handler, for what is ignored
 * would be in the command, too. */
static void on_nobody_reads(int sig)
{
	(void)sig;
}

/* The option `control`, as a number; its descriptor stays open as long as the process lives. */
static int pass_signals_on(char text[16])
{
	static const int signals[] = { SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 };
	struct sigaction act = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	int ends[2];

	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
		return -errno;
	control_to = ends[1];
	(void)snprintf(text, 16, "%d", ends[0]);
	(void)sigemptyset(&act.sa_mask);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		(void)sigaction(signals[i], &act, NULL);
	return 0;
}

static int run(const struct order_parts *o, struct atoll *a, struct atoll_result *res,
               struct error *err)
{
	struct identity who = { .scope = SCOPE_AGENT };
	cleanup_exec_request struct exec_request q = EXEC_REQUEST_INIT;
	cleanup_free struct atoll_exec_option *v = NULL;
	cleanup_free char *cwd = NULL;
	struct atoll_plan *p = NULL;
	char control[16];
	size_t n = 0;
	int r = scope_parse(o->v[ORDER_SCOPE], &who.scope, err);

	if (r >= 0)
		r = exec_request_read(&q, o->v[ORDER_REQUEST], strlen(o->v[ORDER_REQUEST]), &who,
		                      err);
	if (r >= 0)
		r = atoll_plan_find(a, o->v[ORDER_PLAN], &p, res);
	if (r < 0)
		return r;
	v = xcalloc(q.options.n + 1, sizeof(*v));
	for (; n < q.options.n; n++)
		v[n] = (struct atoll_exec_option){ q.option_names.v[n], q.options.v[n] };
	r = pass_signals_on(control);
	if (r < 0)
		return error_sys(err, r, "make", "a pipe");
	v[n++] = (struct atoll_exec_option){ "control", control };
	cwd = q.cwd ? NULL : command_cwd(p);
	q.exec.cwd = q.cwd ? q.cwd : cwd;
	atoll_set_wait(a, strtoll(o->v[ORDER_WAIT], NULL, 10));
	atoll_set_min_free(a, q.min_free);
	plan_exec_on_job(on_began, NULL);
	r = atoll_plan_exec_with(p, &q.exec, v, n, NULL, res);
	atoll_plan_free(p);
	return r;
}

int job_main(void)
{
	cleanup_error struct error err = ERROR_INIT;
	struct order_parts o = { 0 };
	struct atoll_result *res = atoll_result_new();
	struct atoll *a = NULL;
	const struct sigaction act = { .sa_handler = on_nobody_reads, .sa_flags = SA_RESTART };
	struct problem p;
	int r;

	/* None of them is the command's. */
	for (int fd = ORDER_FD; fd <= HELD_FD; fd++)
		(void)fcntl(fd, F_SETFD, FD_CLOEXEC);
	(void)sigaction(SIGPIPE, &act, NULL);
	r = read_order(&o);

	if (r < 0)
		(void)error_sys(&err, r, "read", "what to do");
	else
		r = store_open(o.v[ORDER_HOME], &a, &err);
	if (r >= 0)
		r = run(&o, a, res, &err);
	/* Its time was up before it began: it is on record, and has ended. */
	if (r >= 0 && !began)
		on_began(NULL);
	if (r < 0) {
		if (err.code)
			problem_of_error(&p, 0, &err);
		else
			problem_of_result(&p, r, res);
		if (r == -ENOENT || r == -EACCES)
			p.status = 422;
		p.instance = o.v[ORDER_ID] ? o.v[ORDER_ID] : "";
		report(&p);
	}
	store_close(a);
	atoll_result_free(res);
	free(o.text);
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* ---- the daemon ---- */

static int write_order(struct call *c, const char *plan, int *ret_fd)
{
	cleanup_close int fd = memfd_create("atoll-job", MFD_CLOEXEC);
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;
	const char *home = stores_home(c->d->stores);
	const char *scope = scope_name(c->who.scope);
	int r;

	if (fd < 0)
		return -errno;
	strbuf_add(&sb, home, strlen(home) + 1);
	strbuf_printf(&sb, "%" PRId64, c->atoll->wait_ms);
	strbuf_putc(&sb, '\0');
	strbuf_add(&sb, c->id, strlen(c->id) + 1);
	strbuf_add(&sb, plan, strlen(plan) + 1);
	strbuf_add(&sb, scope, strlen(scope) + 1);
	strbuf_add(&sb, c->body, c->body_len);
	r = fs_write_all(fd, sb.buf, sb.len);
	if (r == 0)
		r = fs_write_all(fd, "", 1);
	if (r == 0 && lseek(fd, 0, SEEK_SET) < 0)
		r = -errno;
	if (r == 0)
		*ret_fd = take_fd(&fd);
	return r;
}

static int spawn(int order_fd, int held_fd, int *ret_fd)
{
	static const char *const argv[] = { "atolld", JOB_ARGUMENT, NULL };
	cleanup_close int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	cleanup_close int report_to = FD_NONE;
	cleanup_close int report_fd = FD_NONE;
	int ends[2], r;

	if (null_fd < 0 || pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	report_fd = ends[0];
	report_to = ends[1];
	const struct child_fd fds[] = {
		{ null_fd, 0 },           { null_fd, 1 },
		{ null_fd, 2 },           { order_fd, ORDER_FD },
		{ report_to, REPORT_FD }, { held_fd == FD_NONE ? null_fd : held_fd, HELD_FD },
	};
	const struct child_options opt = { .file = "/proc/self/exe",
		                           .argv = argv,
		                           .fds = fds,
		                           .n_fds = 6,
		                           .leads_session = true };
	r = child_spawn_detached(&opt);
	if (r == 0)
		*ret_fd = take_fd(&report_fd);
	return r;
}

/* Until it runs, or has said why not: what it said, at most SAYS_MAX bytes and a NUL. */
static char *listen_to(int fd)
{
	char *said = xcalloc(1, SAYS_MAX + 1);
	size_t len = 0;
	ssize_t n;

	do {
		n = read(fd, said + len, SAYS_MAX - len);
		if (n > 0)
			len += (size_t)n;
	} while ((n > 0 && len < SAYS_MAX && strcmp(said, BEGAN) != 0) ||
	         (n < 0 && errno == EINTR));
	return said;
}

struct started {
	struct atoll_plan *plan;
	const char *name;
};

static int fill_started(struct json *j, void *arg)
{
	const struct started *s = arg;

	answer_begin(j, j->out, "job");
	answer_plan_of(j, s->plan);
	json_string(j, "job", s->name);
	json_close(j);
	return 0;
}

int job_answer(struct call *c, struct atoll_plan *p, const char *name)
{
	struct started started = { p, name };
	char place[128];

	(void)snprintf(place, sizeof(place), "/v1/plans/%s/jobs/%s", atoll_plan_id(p), name);
	reply_header(c, "Location", place);
	return reply_json(c, 202, fill_started, &started);
}

static int answer(struct call *c, struct atoll_plan *p, const char *name, char *said)
{
	char *text = NULL;
	unsigned long status;

	if (strcmp(said, BEGAN) == 0)
		return job_answer(c, p, name);
	status = strtoul(said, &text, 10);
	if (status < 400 || status > 599 || *text != ' ')
		return error_set(&c->err, -EIO, "the process of the job ended without a word");
	return reply_text(c, (unsigned)status, PROBLEM_TYPE, xstrdup(text + 1), strlen(text + 1));
}

int job_reply(struct call *c, const char *name, int held_fd)
{
	cleanup_close int order_fd = FD_NONE;
	cleanup_close int report_fd = FD_NONE;
	cleanup_free char *said = NULL;
	struct atoll_plan *p = NULL;
	int r = call_plan(c, 0, &p);

	if (r < 0)
		return r;
	r = write_order(c, atoll_plan_id(p), &order_fd);
	if (r == 0)
		r = spawn(order_fd, held_fd, &report_fd);
	if (r < 0) {
		(void)error_sys(&c->err, r, "start", "the process of the job");
	} else {
		said = listen_to(report_fd);
		r = answer(c, p, name, said);
	}
	atoll_plan_free(p);
	return r;
}
