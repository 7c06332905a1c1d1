/* SPDX-License-Identifier: Apache-2.0 */
/* A command in a plan: its input, output, signals and exit status are its own. */
#include "cli/command.h"

#include "plan/plan.h"
#include "util/cleanup.h"
#include "util/mem.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted; /* we were, by whomever */
static volatile sig_atomic_t late;        /* came when the command had ended */

/* What the terminal sends the command has received itself, unless it is in a session of its own: then a key
 * that sends a signal was typed while our terminal was not raw (helper/relay.h). Of a hang-up the relay hears
 * itself, and twice would be once too often. */
static bool is_news(int sig, const siginfo_t *info, pid_t helper)
{
	return info->si_code != SI_KERNEL || (sig != SIGHUP && getsid(helper) != getsid(0));
}

/* While the command runs it is told what it has not heard, and we stay to tell how it ended. Before and
 * after, the signal is for us. */
static void on_signal(int sig, siginfo_t *info, void *context)
{
	int saved = errno;
	pid_t helper = plan_exec_listener();

	(void)context;
	if (sig == SIGINT)
		interrupted = 1;
	if (helper <= 0) {
		(void)signal(sig, SIG_DFL);
		(void)raise(sig);
	} else if (plan_exec_has_ended()) {
		if (sig == SIGINT || sig == SIGTERM || sig == SIGHUP)
			late = sig;
		(void)kill(helper, sig);
	} else if (is_news(sig, info, helper)) {
		(void)kill(helper, sig);
	}
	errno = saved;
}

/* Handlers, and not SIG_IGN: that the command would inherit. What was ignored stays ignored. */
static void pass_signals_on(void)
{
	static const int signals[] = { SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 };
	struct sigaction act = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART };
	struct sigaction before;

	sigemptyset(&act.sa_mask);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
			(void)sigaction(signals[i], &act, NULL);
}

int command_options(struct cli *c, struct atoll_exec *exec)
{
	const char *file = args_value(&c->args, "status-file");
	struct error err = ERROR_INIT;
	int r = args_seconds(&c->args, "timeout", &exec->timeout_ms, &err);

	fence_read(&c->fence, &c->args, c->settings.v[SETTING_EXEC_STRICT].number);
	exec->fence = &c->fence.fence;
	exec->cwd = args_value(&c->args, "cwd");
	if (r == 0 && exec->cwd && !*exec->cwd)
		r = error_set(&err, -ATOLL_E_INVALID, "option '--cwd': which directory?");
	/* Before anything is done: what cannot be written to is not found out afterwards. */
	if (r == 0 && file && !(c->status = fopen(file, "we")))
		r = error_sys(&err, -errno, "open the status file", file);
	return r < 0 ? cli_fail_error(c, &err) : 0;
}

/* Options that the library has under the same names. */
static const struct {
	const char *name;
	enum setting setting; /* its default, or its value where it takes none; or SETTING_END_ */
	bool flag;
} handed_on[] = {
	{ "env", SETTING_END_, false },
	{ "unset", SETTING_END_, false },
	{ "at", SETTING_END_, false },
	{ "net", SETTING_EXEC_NET, false },
	{ "memory", SETTING_EXEC_MEMORY, false },
	{ "cpus", SETTING_EXEC_CPUS, false },
	{ "pids", SETTING_EXEC_PIDS, false },
	{ "private", SETTING_FENCE_PRIVATE, false },
	{ "transcript", SETTING_EXEC_TRANSCRIPT_MAX, true },
	{ "background", SETTING_END_, false },
	{ "shared", SETTING_END_, true },
	{ "unfenced", SETTING_END_, true },
};
#define HANDED_ON (sizeof(handed_on) / sizeof(handed_on[0]))

static struct atoll_exec_option option_of(const struct cli *c, size_t i, const char *given)
{
	const char *set = handed_on[i].setting == SETTING_END_
	                          ? NULL
	                          : c->settings.v[handed_on[i].setting].text;

	return (struct atoll_exec_option){ handed_on[i].name, given ? given : set };
}

/* Settings first, which options overrule; those in the order they were given. The caller frees. */
static struct atoll_exec_option *collect_options(const struct cli *c, size_t *ret_n)
{
	struct atoll_exec_option *v = xcalloc(HANDED_ON + 2 + c->args.n_given, sizeof(*v));
	size_t n = 0;

	/* What decides about the work must not have been the command's; and a shell has its jobs there. */
	if (c->command != &cmd_exec)
		v[n++] = (struct atoll_exec_option){ "terminal", "own" };
	if (!c->settings.v[SETTING_FENCE_REQUIRED].number)
		v[n++] = (struct atoll_exec_option){ "unfenced", "1" };

	for (size_t i = 0; i < HANDED_ON; i++)
		if (handed_on[i].setting != SETTING_END_ && !handed_on[i].flag)
			v[n++] = option_of(c, i, NULL);
	for (size_t g = 0; g < c->args.n_given; g++)
		for (size_t i = 0; i < HANDED_ON; i++)
			if (strcmp(c->args.given[g].row->name, handed_on[i].name) == 0)
				v[n++] = option_of(c, i, c->args.given[g].value);
	*ret_n = n;
	return v;
}

/* What it was not held to, and what became of it, is for people to hear; --json has it all. */
static void take_notes(struct cli *c)
{
	for (size_t i = 0; i < atoll_result_notes(c->res); i++) {
		const struct atoll_note *note = atoll_result_note(c->res, i);

		strlist_add(&c->ran_notes, note->text);
		if (note->kind == ATOLL_NOTE_WARNING)
			cli_say(c, "atoll: %s", note->text);
	}
}

static void put_on(const struct cli *c, FILE *f, command_put_fn put, void *ctx)
{
	struct json j;

	cli_json_begin_on(c, &j, f);
	cli_json_plan(c, &j);
	cli_json_ran(c, &j);
	json_open_array(&j, "notes");
	for (size_t i = 0; i < c->ran_notes.n; i++)
		json_string(&j, NULL, c->ran_notes.v[i]);
	json_close(&j);
	if (put)
		put(c, &j, ctx);
	cli_json_end(&j);
}

int command_late_signal(void)
{
	return late;
}

int command_run_shell(struct cli *c, struct atoll_exec *exec, struct atoll_exec_status *ret)
{
	char fallback[] = "/bin/sh", *words[] = { getenv("SHELL"), NULL };

	if (!words[0] || words[0][0] != '/')
		words[0] = fallback;
	if (isatty(STDERR_FILENO))
		cli_say(c, "in plan %s: nothing outside changes until you commit",
		        atoll_plan_name(c->plan));
	return command_run(c, words, 1, exec, ret);
}

void command_report(const struct cli *c, command_put_fn put, void *ctx)
{
	if (c->status)
		put_on(c, c->status, put, ctx);
	if (!c->json)
		return;
	(void)putchar('\n'); /* on a line of its own, however the command's output ended */
	put_on(c, stdout, put, ctx);
}

/* Of a key typed at a terminal of the command's own (helper/relay.h) no other process heard: a shell that runs
 * us in a script would have, at its own. */
static bool was_typed(void)
{
	return plan_exec_was_relayed() && !interrupted && tcgetpgrp(STDIN_FILENO) == getpgrp();
}

/* A shell in the middle of a loop stops at ^C only if we, too, died of it. */
int command_end(struct cli *c)
{
	if (c->ran->term_signal == SIGINT && !c->json) {
		(void)fflush(NULL);
		(void)signal(SIGINT, SIG_DFL);
		(void)kill(was_typed() ? 0 : getpid(), SIGINT);
	}
	return c->ran->exit_code;
}

int command_run(struct cli *c, char **words, size_t n, struct atoll_exec *exec,
                struct atoll_exec_status *ret)
{
	cleanup_free const char **argv = xcalloc(n + 1, sizeof(*argv));
	size_t n_options;
	cleanup_free struct atoll_exec_option *options = collect_options(c, &n_options);
	int r;

	for (size_t i = 0; i < n; i++)
		argv[i] = words[i];
	exec->argv = argv;
	pass_signals_on();
	(void)fflush(stdout);
	r = atoll_plan_exec_with(c->plan, exec, options, n_options, ret, c->res);
	if (r == 0) {
		c->ran = ret;
		take_notes(c);
	}
	if (r == 0 && !ret->isolated && cli_is_terminal(c, stderr))
		cli_say(c,
		        "atoll: it ran without a fence: it could change every file that you can; "
		        "atoll doctor says why");
	return r;
}
