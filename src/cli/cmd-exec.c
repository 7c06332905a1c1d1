/* SPDX-License-Identifier: Apache-2.0 */
/*
 * atoll exec: a command in a plan, as if it had been called directly: its input, output, signals
 * and exit status are its own.
 */
#include "cli/cli.h"

#include "util/cleanup.h"
#include "util/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Set before the handlers are: a handler must not allocate or format. */
static char children_path[64];

/* The first of our children, which is the helper while the command runs. Safe in a handler. */
static pid_t first_child(void)
{
	char text[32];
	pid_t pid = 0;
	int fd = open(children_path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text));
	(void)close(fd);
	for (ssize_t i = 0; i < n && text[i] >= '0' && text[i] <= '9'; i++)
		pid = pid * 10 + (text[i] - '0');
	return pid;
}

/*
 * While the command runs: what the terminal sends it has received itself, what a process sends
 * us is passed on, and we stay to tell how it ended. Before and after, the signal is for us.
 */
static void on_signal(int sig, siginfo_t *info, void *context)
{
	int saved = errno;
	pid_t child = first_child();

	(void)context;
	if (child <= 0) {
		(void)signal(sig, SIG_DFL);
		(void)raise(sig);
	} else if (info->si_code != SI_KERNEL) {
		(void)kill(child, sig);
	}
	errno = saved;
}

/* Handlers, and not SIG_IGN: that the command would inherit. What was ignored stays ignored. */
static void pass_signals_on(void)
{
	static const int signals[] = { SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 };
	struct sigaction act = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART };
	struct sigaction before;

	(void)snprintf(children_path, sizeof(children_path), "/proc/self/task/%d/children",
	               (int)getpid());
	sigemptyset(&act.sa_mask);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
			(void)sigaction(signals[i], &act, NULL);
}

/* A shell in the middle of a loop stops at ^C only if we, too, died of it. */
static int end_as(const struct cli *c, const struct atoll_exec_status *status)
{
	if (status->term_signal == SIGINT && !c->json) {
		(void)fflush(stdout);
		(void)signal(SIGINT, SIG_DFL);
		(void)raise(SIGINT);
	}
	return status->exit_code;
}

static int report(const struct cli *c, const struct atoll_exec_status *status)
{
	const char *name = atoll_plan_name(c->plan);
	struct json j;

	if (c->json) {
		/* On a line of its own, however the command's output ended. */
		(void)putchar('\n');
		cli_json_begin(c, &j);
		cli_json_plan(c, &j);
		json_int(&j, "exit_code", status->exit_code);
		json_int(&j, "term_signal", status->term_signal);
		json_bool(&j, "timed_out", status->timed_out);
		cli_json_end(&j);
	} else if (status->timed_out) {
		cli_say(c, "atoll: the command's time was up; it was ended");
	}
	/* Elsewhere than on a terminal standard error is the command's alone. */
	if (isatty(STDERR_FILENO))
		cli_next(c, "atoll diff %s, then atoll commit %s or atoll rollback %s", name, name,
		         name);
	return end_as(c, status);
}

static int exec_run(struct cli *c)
{
	struct atoll_exec_status status = { 0 };
	struct atoll_exec exec = { 0 };
	struct error err = ERROR_INIT;
	cleanup_free const char **argv = NULL;
	int failed, r;

	r = args_seconds(&c->args, "timeout", &exec.timeout_ms, &err);
	if (r < 0)
		return cli_fail_error(c, &err);
	failed = cli_open_plan_settled(c);
	if (failed)
		return failed;

	argv = xcalloc(c->args.n_words, sizeof(*argv));
	for (size_t i = 1; i < c->args.n_words; i++)
		argv[i - 1] = c->args.words[i];
	exec.argv = argv;
	/* So that atoll, called by the command, knows where it is. */
	if (setenv("ATOLL_PLAN_ID", atoll_plan_id(c->plan), 1) < 0) {
		(void)error_sys(&err, -errno, "set", "ATOLL_PLAN_ID");
		return cli_fail_error(c, &err);
	}
	pass_signals_on();
	(void)fflush(stdout);
	r = atoll_plan_exec(c->plan, &exec, &status, c->res);
	return r < 0 ? cli_fail(c, r) : report(c, &status);
}

static const struct option_row options[] = {
	{ "timeout", "SECONDS", "end the command then: SIGTERM, and SIGKILL two seconds later" },
	{ NULL, NULL, NULL },
};

const struct command cmd_exec = {
	.name = "exec",
	.run = exec_run,
	.words = "PLAN [--] COMMAND [ARGUMENT]...",
	.summary = "run a command in a plan",
	.about =
		"A current directory inside a resource becomes the same one in its private copy. The\n"
		"exit status is the command's; 124 when its time was up, 125 when atoll itself failed,\n"
		"126 and 127 when the command cannot be run or found, 128+N when signal N ended it.\n"
		"With --json the last line of standard output is the object.",
	.options = options,
	.min_words = 2,
	.max_words = SIZE_MAX,
	.stop_at = 2,
	.own_exit = EXIT_OWN,
};
