/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands on descriptors of the caller's, many at once from threads of one process: what goes in and
 * comes out, signals, the end of the control, terminals.
 */
#include "lib/atest.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#define THREADS  8
#define BULK     (1u << 20)
#define PATIENCE 60000
/* What a caller that is gone may cost others: the half second, and a slow machine. */
#define SOON_MS 30000

/* ---- a command in a thread of its own ---- */

struct command {
	struct atoll_plan *p;
	const char *script;
	const char *more[2]; /* another option */
	bool terminal;
	int in[2], out[2], err[2], control[2];
	struct atoll_result *res;
	struct atoll_exec_status status;
	pthread_t thread;
	int r;
	char said[65536]; /* read from OUT so far */
	size_t n_said;
};

static void close_one(int *fd)
{
	if (*fd >= 0)
		expect_eq(close(*fd), 0);
	*fd = -1;
}

static void *run_command(void *user)
{
	struct command *c = user;
	const char *const argv[] = { "/bin/sh", "-c", c->script, NULL };
	const struct atoll_exec exec = { .argv = argv };
	char numbers[4][16];
	struct atoll_exec_option options[] = {
		{ "stdin", numbers[0] },   { "stdout", numbers[1] },   { "stderr", numbers[2] },
		{ "control", numbers[3] }, { c->more[0], c->more[1] }, { "terminal", "1" },
	};
	const int fds[] = { c->in[0], c->out[1], c->err[1], c->control[0] };
	size_t n = c->more[0] ? 5 : 4;

	for (int i = 0; i < 4; i++)
		(void)snprintf(numbers[i], sizeof(numbers[i]), "%d", fds[i]);
	if (c->terminal)
		options[n++] = (struct atoll_exec_option){ "terminal", "1" };
	c->r = atoll_plan_exec_with(c->p, &exec, options, n, &c->status, c->res);
	/* They stay ours: with these its readers come to an end. */
	close_one(&c->in[0]);
	close_one(&c->out[1]);
	close_one(&c->err[1]);
	return NULL;
}

static void start(struct command *c, struct atoll_plan *p, const char *script)
{
	c->p = p;
	c->script = script;
	c->res = atoll_result_new();
	expect_eq(pipe2(c->control, O_CLOEXEC), 0);
	expect_eq(pthread_create(&c->thread, NULL, run_command, c), 0);
}

static void begin(struct command *c, struct atoll_plan *p, const char *script)
{
	expect_eq(pipe2(c->in, O_CLOEXEC), 0);
	expect_eq(pipe2(c->out, O_CLOEXEC), 0);
	expect_eq(pipe2(c->err, O_CLOEXEC), 0);
	start(c, p, script);
}

/* IN[1] is the other end of the terminal, from which OUT is read, too. */
static void begin_terminal(struct command *c, struct atoll_plan *p, const char *script)
{
	int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	const struct winsize size = { .ws_row = 33, .ws_col = 99 };
	char name[64];

	expect(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
	expect_eq(ptsname_r(master, name, sizeof(name)), 0);
	expect_eq(ioctl(master, TIOCSWINSZ, &size), 0);
	c->in[0] = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
	c->in[1] = master;
	c->out[0] = fcntl(master, F_DUPFD_CLOEXEC, 3);
	c->out[1] = fcntl(c->in[0], F_DUPFD_CLOEXEC, 3);
	c->err[0] = -1;
	c->err[1] = fcntl(c->in[0], F_DUPFD_CLOEXEC, 3);
	c->terminal = true;
	start(c, p, script);
}

/* Reads what it prints until WORD was among it. */
static bool await(struct command *c, const char *word)
{
	int64_t end = now_ms() + PATIENCE;

	while (!strstr(c->said, word)) {
		struct pollfd pfd = { .fd = c->out[0], .events = POLLIN };
		ssize_t n;

		if (now_ms() > end || c->n_said >= sizeof(c->said) - 1)
			return false;
		if (poll(&pfd, 1, 100) <= 0)
			continue;
		n = read(c->out[0], c->said + c->n_said, sizeof(c->said) - 1 - c->n_said);
		if (n <= 0)
			return false;
		c->n_said += (size_t)n;
		c->said[c->n_said] = '\0';
	}
	return true;
}

static void expect_said(struct command *c, const char *word)
{
	expect_msg(await(c, word), "'%s' was not printed, but '%s'", word, c->said);
}

static void say(struct command *c, int sig)
{
	const unsigned char byte = (unsigned char)sig;

	expect_eq(write(c->control[1], &byte, 1), 1);
}

static void type(struct command *c, const char *keys)
{
	expect_eq(write(c->in[1], keys, strlen(keys)), strlen(keys));
}

static int finish(struct command *c)
{
	expect_eq(pthread_join(c->thread, NULL), 0);
	for (int i = 0; i < 2; i++) {
		close_one(&c->in[i]);
		close_one(&c->out[i]);
		close_one(&c->err[i]);
		close_one(&c->control[i]);
	}
	atoll_result_free(c->res);
	return c->r;
}

static struct atoll_plan *plan(struct fix *f, const char *name)
{
	struct atoll_plan *p = fix_plan(f, name);
	const char *dir = fix_dir(f, fix_path(f, "%s-dir", name));

	put_text(fix_path(f, "%s/file", dir), "old\n");
	fix_add(f, p, dir, NULL);
	return p;
}

/* ---- both ways at once ---- */

struct bulk {
	struct command c;
	unsigned char sent[BULK], got[BULK];
	pthread_t writer;
	size_t n_got;
};

static void *write_bulk(void *user)
{
	struct bulk *b = user;

	for (size_t at = 0; at < BULK;) {
		ssize_t n = write(b->c.in[1], b->sent + at, BULK - at);

		if (n <= 0)
			break;
		at += (size_t)n;
	}
	close_one(&b->c.in[1]);
	return NULL;
}

static void exec_descriptors_of_many_threads(void **state)
{
	struct fix *f = *state;
	struct bulk *all = calloc(THREADS, sizeof(*all));
	uint64_t seed = 7;

	for (int i = 0; i < THREADS; i++) {
		struct bulk *b = &all[i];

		for (size_t k = 0; k < BULK; k++)
			b->sent[k] = (unsigned char)atest_random(&seed);
		begin(&b->c, plan(f, fix_path(f, "many-%d", i)),
		      fix_path(f, "cat && printf %%s error-%d >&2 && exit %d", i, 10 + i));
		expect_eq(pthread_create(&b->writer, NULL, write_bulk, b), 0);
	}
	for (int i = 0; i < THREADS; i++) {
		struct bulk *b = &all[i];
		char text[64] = { 0 };
		ssize_t n;

		while ((n = read(b->c.out[0], b->got + b->n_got, BULK - b->n_got)) > 0)
			b->n_got += (size_t)n;
		expect(read(b->c.err[0], text, sizeof(text) - 1) > 0);
		expect_str(text, fix_path(f, "error-%d", i));
		expect_eq(pthread_join(b->writer, NULL), 0);
		expect_eq(finish(&b->c), 0);
		expect_eq(b->c.status.exit_code, 10 + i);
		expect_eq(b->n_got, BULK);
		expect_eq(memcmp(b->sent, b->got, BULK), 0);
	}
	free(all);
}

/* ---- the control ---- */

static void exec_control_sends_signals(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = plan(f, "signals");
	struct command c = { 0 }, killed = { 0 }, stopped = { 0 };

	begin(&c, p,
	      "trap 'echo one' USR1; trap 'echo two; exit 7' WINCH; echo ready;"
	      "while :; do sleep 0.05; done");
	expect_said(&c, "ready");
	say(&c, 200); /* there is none */
	say(&c, SIGUSR1);
	expect_said(&c, "one");
	say(&c, SIGWINCH);
	expect_said(&c, "two");
	expect_eq(finish(&c), 0);
	expect_eq(c.status.exit_code, 7);

	begin(&killed, p, "echo ready; exec sleep 1000");
	expect_said(&killed, "ready");
	say(&killed, SIGKILL);
	expect_eq(finish(&killed), 0);
	expect_eq(killed.status.exit_code, 128 + SIGKILL);
	expect_eq(killed.status.term_signal, SIGKILL);

	/* Sent before it runs, it comes when it does. */
	begin(&stopped, p, "exec sleep 1000");
	say(&stopped, SIGRTMIN + 3);
	expect_eq(finish(&stopped), 0);
	expect_eq(stopped.status.term_signal, SIGRTMIN + 3);
}

static void exec_control_end_ends_all(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = plan(f, "ends");
	struct command deaf = { 0 }, halted = { 0 };
	int64_t began;
	int code = -1;

	/* It has half a second, in which others may have the processors now and then. */
	for (int i = 0; i < 10 && code != 9; i++) {
		struct command mild = { 0 };

		begin(&mild, p, "trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done");
		expect_said(&mild, "ready");
		close_one(&mild.control[1]);
		expect_eq(finish(&mild), 0);
		code = mild.status.exit_code;
		expect_msg(code == 9 || mild.status.term_signal == SIGKILL, "exit code %d", code);
	}
	expect_eq(code, 9);

	begin(&deaf, p,
	      "trap '' TERM HUP; setsid sleep 1000 & echo ready; while :; do sleep 1; done");
	expect_said(&deaf, "ready");
	began = now_ms();
	close_one(&deaf.control[1]);
	expect_eq(finish(&deaf), 0);
	expect_eq(deaf.status.term_signal, SIGKILL);
	expect_msg(now_ms() - began < SOON_MS, "it took %jd ms", (intmax_t)(now_ms() - began));

	begin(&halted, p, "echo ready; kill -STOP $$; exit 3");
	expect_said(&halted, "ready");
	close_one(&halted.control[1]);
	expect_eq(finish(&halted), 0);
	expect_eq(halted.status.term_signal, SIGTERM);
	/* Nothing of them is left: the fixture's end sees to that. */
}

static void exec_control_ends_a_wait(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = plan(f, "waits");
	struct command holder = { 0 }, gone = { 0 }, keyed = { 0 }, next = { 0 };
	int64_t began;

	begin(&holder, p, "echo ready; cat >/dev/null");
	expect_said(&holder, "ready");
	begin(&gone, p, "echo never");
	begin(&keyed, p, "echo never");
	sleep_ms(50); /* both wait, or will: it makes no difference */
	say(&keyed, SIGUSR1);
	say(&keyed, SIGINT);
	close_one(&gone.control[1]);
	began = now_ms();
	expect_eq(finish(&gone), -ECANCELED);
	expect_eq(finish(&keyed), -ECANCELED);
	expect_msg(now_ms() - began < SOON_MS, "it took %jd ms", (intmax_t)(now_ms() - began));
	close_one(&holder.in[1]);
	expect_eq(finish(&holder), 0);

	begin(&next, p, "echo mine; exit 5");
	expect_said(&next, "mine");
	expect_eq(finish(&next), 0);
	expect_eq(next.status.exit_code, 5);
}

/* ---- terminals ---- */

static void exec_terminal_is_one(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = plan(f, "terminal");
	const struct winsize size = { .ws_row = 44, .ws_col = 111 };
	struct command c = { 0 };

	begin_terminal(&c, p,
	               "trap 'stty size' WINCH; test -t 0 && test -t 1 && test -t 2 || exit 1;"
	               "tty; stty size; echo by-name >/dev/tty;"
	               "read line; echo \"<$line>\"; read rest; exit 6");
	expect_said(&c, "/dev/");
	expect_said(&c, "33 99");
	expect_said(&c, "by-name");
	type(&c, "words\n");
	expect_said(&c, "<words>");
	expect_eq(ioctl(c.in[1], TIOCSWINSZ, &size), 0);
	type(&c, "\n");
	expect_eq(pthread_join(c.thread, NULL), 0);
	c.thread = pthread_self();
	expect_said(&c, "44 111");
	expect_eq(c.status.exit_code, 6);
	expect_eq(c.r, 0);
	for (int i = 0; i < 2; i++) {
		close_one(&c.in[i]);
		close_one(&c.out[i]);
		close_one(&c.control[i]);
	}
	atoll_result_free(c.res);
}

static void exec_terminal_keys(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = plan(f, "keys");
	struct command c = { 0 }, jobs = { 0 };

	begin_terminal(&c, p, "echo ready; exec sleep 1000");
	expect_said(&c, "ready");
	type(&c, "\003");
	expect_eq(finish(&c), 0);
	expect_eq(c.status.term_signal, SIGINT);

	/* Whoever is in the foreground gets it, and the shell behind it does not. */
	begin_terminal(
		&jobs, p,
		"set -m; (echo first; exec sleep 1000); echo after-$?;"
		"(echo second; exec sleep 1000); echo then-$?; kill -KILL %1; exec sh -c \'exit 4\'");
	expect_said(&jobs, "first");
	say(&jobs, SIGUSR1);
	expect_said(&jobs, "after-138");
	expect_said(&jobs, "second");
	type(&jobs, "\032");
	expect_said(&jobs, "then-148");
	expect_eq(finish(&jobs), 0);
	expect_eq(jobs.status.exit_code, 4);
}

static void exec_terminal_hangs_up(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = plan(f, "hang-up");
	struct command c = { 0 };

	begin_terminal(&c, p, "trap 'exit 8' HUP; echo ready; while :; do sleep 0.05; done");
	expect_said(&c, "ready");
	close_one(&c.out[0]);
	close_one(&c.in[1]);
	expect_eq(finish(&c), 0);
	expect_eq(c.status.exit_code, 8);
}

/* ---- with other options ---- */

static int take_output(void *user, uint64_t offset, const void *data, size_t len)
{
	(void)offset;
	strncat(user, data, len);
	return 0;
}

struct last {
	int64_t id;
};

static int take_entry(void *user, const struct atoll_log_entry *e)
{
	if (e->ran)
		((struct last *)user)->id = e->id;
	return 0;
}

static void exec_descriptors_with_a_transcript(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = plan(f, "kept");
	struct command c = { .more = { "transcript", "64k" } };
	struct last last = { 0 };
	char kept[256] = { 0 };

	begin(&c, p, "echo printed; echo wrong >&2");
	expect_said(&c, "printed\n");
	expect_eq(finish(&c), 0);
	expect_ok(f, atoll_log(f->a, "kept", 0, take_entry, &last, f->res));
	expect_ok(f, atoll_log_output(f->a, last.id, take_output, kept, f->res));
	expect(strstr(kept, "printed\n") && strstr(kept, "wrong\n"));
}

static void exec_descriptors_shared(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = plan(f, "joined");
	struct command holder = { 0 }, c = { .more = { "shared", "1" } },
		       t = { .more = { "shared", "1" } };

	begin(&holder, p, "echo made >/tmp/private; echo ready; cat >/dev/null");
	expect_said(&holder, "ready");
	begin(&c, p, "cat /tmp/private; read line; echo \"<$line>\"; exec sleep 1000");
	expect_said(&c, "made");
	type(&c, "words\n");
	expect_said(&c, "<words>");
	say(&c, SIGUSR2);
	expect_eq(finish(&c), 0);
	expect_eq(c.status.term_signal, SIGUSR2);

	begin_terminal(&t, p, "stty size; exec sleep 1000");
	expect_said(&t, "33 99");
	type(&t, "\003");
	expect_eq(finish(&t), 0);
	expect_eq(t.status.term_signal, SIGINT);
	close_one(&holder.in[1]);
	expect_eq(finish(&holder), 0);
}

static void exec_descriptors_that_are_none(void **state)
{
	static const char *const argv[] = { "true", NULL };
	static const struct atoll_exec_option bad[][2] = {
		{ { "stdin", "9999" }, { NULL, NULL } },
		{ { "stdout", "-1" }, { NULL, NULL } },
		{ { "stderr", "x" }, { NULL, NULL } },
		{ { "control", "" }, { NULL, NULL } },
		{ { "terminal", "1" }, { NULL, NULL } },
		{ { "terminal", "yes" }, { NULL, NULL } },
		{ { "background", "job" }, { "stdout", "0" } },
	};
	struct fix *f = *state;
	struct atoll_plan *p = plan(f, "refused");
	const struct atoll_exec exec = { .argv = argv };

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		expect_code(f,
		            atoll_plan_exec_with(p, &exec, bad[i], bad[i][1].name ? 2 : 1, NULL,
		                                 f->res),
		            -ATOLL_E_INVALID);
}

int main(int argc, char **argv)
{
	static const struct atest_child children[] = { { NULL, NULL } };
	const struct CMUnitTest tests[] = {
		atest(exec_descriptors_of_many_threads),
		atest(exec_control_sends_signals),
		atest(exec_control_end_ends_all),
		atest(exec_control_ends_a_wait),
		atest(exec_terminal_is_one),
		atest(exec_terminal_keys),
		atest(exec_terminal_hangs_up),
		atest(exec_descriptors_with_a_transcript),
		atest(exec_descriptors_shared),
		atest(exec_descriptors_that_are_none),
	};

	return atest_main(argc, argv, tests, children);
}
