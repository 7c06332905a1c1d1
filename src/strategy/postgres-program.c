/* SPDX-License-Identifier: Apache-2.0 */
/* Running atoll-postgres, and reading what it says. */
#include "strategy/postgres.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/atomic.h"
#include "util/child.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"
#include "util/program.h"

#define URL_MAX    2048 /* fits into a pipe, so that nobody waits */
#define WORDS_MAX  8
#define ANSWER_MAX (16u << 20)

struct pipes {
	int in[2], out[2]; /* of the program */
};
#define PIPES_INIT ((struct pipes){ { FD_NONE, FD_NONE }, { FD_NONE, FD_NONE } })

static void pipes_done(struct pipes *p)
{
	for (int i = 0; i < 2; i++) {
		close_fd(&p->in[i]);
		close_fd(&p->out[i]);
	}
}
#define cleanup_pipes __attribute__((__cleanup__(pipes_done)))

static int open_pipes(struct pipes *p, const char *url)
{
	size_t len = strlen(url);

	if (len > URL_MAX || strchr(url, '\n'))
		return -EINVAL;
	if (pipe2(p->in, O_CLOEXEC) < 0 || pipe2(p->out, O_CLOEXEC) < 0)
		return -errno;
	if (dprintf(p->in[1], "%s\n", url) < 0)
		return -errno;
	close_fd(&p->in[1]);
	return 0;
}

/* CHILD NULL: nobody will wait for it. */
static int spawn(const char *const *argv, const char *url, struct pipes *p, struct child *child,
                 struct error *err)
{
	static const struct program program = { .name = "atoll-postgres",
		                                .folder = "src/postgres",
		                                .variable = "ATOLL_POSTGRES" };
	cleanup_free char *file = program_path(&program);
	cleanup_close int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	const char *words[WORDS_MAX] = { program.name };
	struct child_options opt = { .file = file, .argv = words, .n_fds = 3 };
	int r = open_pipes(p, url);

	for (size_t i = 0; argv[i] && i + 2 < WORDS_MAX; i++)
		words[i + 1] = argv[i];
	if (r == 0) {
		const struct child_fd fds[] = { { p->in[0], 0 }, { p->out[1], 1 }, { null_fd, 2 } };

		opt.fds = fds;
		r = child ? child_spawn(child, &opt) : child_spawn_detached(&opt);
	}
	close_fd(&p->in[0]);
	close_fd(&p->out[1]);
	if (r != -ENOENT && r != -EACCES && r != -ENOTDIR)
		return r < 0 ? error_sys(err, r, "start", file) : 0;
	(void)error_set(err, -ATOLL_E_UNSUPPORTED, "the program '%s' cannot be started: %s", file,
	                strerror(-r));
	error_hint(err, "atoll-postgres belongs there; install atoll again");
	return -ATOLL_E_UNSUPPORTED;
}

/* ---- what it says ---- */

struct hearing {
	atoll_line_fn fn;
	void *user;
	char *hint;
	bool ended; /* it said "ok" or "error" */
	int code;
	struct error *err;
};

static void take_error(struct hearing *h, const char *words)
{
	char *end;
	long code = strtol(words, &end, 10);
	const char *state = end + strspn(end, " ");
	size_t len = strcspn(state, " ");
	const char *text = state + len + strspn(state + len, " ");
	cleanup_free char *detail = xstrndup(state, len);

	h->code = code < 0 ? (int)code : -ATOLL_E_CANNOT_PREPARE;
	(void)error_set(h->err, h->code, "%s", text);
	error_cause(h->err, "postgres", NULL, 0, strcmp(detail, "-") == 0 ? NULL : detail);
	if (h->hint)
		error_hint(h->err, "%s", h->hint);
}

static void take_line(struct hearing *h, const char *line, size_t len)
{
	if (h->ended)
		return;
	if (strncmp(line, "hint ", 5) == 0) {
		free(h->hint);
		h->hint = xstrdup(line + 5);
	} else if (strncmp(line, "error ", 6) == 0) {
		h->ended = true;
		take_error(h, line + 6);
	} else if (strcmp(line, "ok") == 0 || strncmp(line, "ok ", 3) == 0) {
		h->ended = true;
	} else if (h->fn && h->fn(h->user, line, len) < 0) {
		h->ended = true;
	}
}

/* Until the last line. The text in between may be long: it is not kept. */
static int listen_to(int fd, struct hearing *h)
{
	FILE *f = fdopen(fd, "r");
	cleanup_free char *line = NULL;
	size_t cap = 0;
	ssize_t n;

	if (!f) {
		(void)close(fd);
		return -errno;
	}
	while (!h->ended && (n = getline(&line, &cap, f)) >= 0) {
		if (n > 0 && line[n - 1] == '\n')
			line[--n] = '\0';
		take_line(h, line, (size_t)n);
	}
	(void)fclose(f);
	free(h->hint);
	h->hint = NULL;
	return h->code;
}

/* It ended without a word: most likely the dynamic loader did not find what it needs. */
static int say_silent(struct error *err, int status)
{
	(void)error_set(err, -ATOLL_E_UNSUPPORTED,
	                "the program atoll-postgres ended without an answer (status %d)", status);
	error_hint(err, "is libpq installed? (Debian: libpq5)");
	return -ATOLL_E_UNSUPPORTED;
}

int pg_call_lines(const char *const *argv, const char *url, atoll_line_fn fn, void *user,
                  struct error *err)
{
	cleanup_error struct error unheard = ERROR_INIT;
	cleanup_pipes struct pipes p = PIPES_INIT;
	struct hearing h = { .fn = fn, .user = user, .err = err ? err : &unheard };
	struct child child = CHILD_INIT;
	int status = 0, r = spawn(argv, url, &p, &child, err);

	if (r < 0)
		return r;
	r = listen_to(take_fd(&p.out[0]), &h);
	(void)child_wait(&child, CLOCK_NEVER, &status);
	if (!h.ended && r == 0)
		return say_silent(err, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
	return r;
}

static int keep_line(void *user, const char *line, size_t len)
{
	struct strbuf *out = user;

	if (out && out->len < ANSWER_MAX) {
		strbuf_add(out, line, len);
		strbuf_putc(out, '\n');
	}
	return 0;
}

int pg_call(const char *const *argv, const char *url, struct strbuf *out, struct error *err)
{
	return pg_call_lines(argv, url, keep_line, out, err);
}

int pg_start(const char *dir, const char *url, struct error *err)
{
	const char *const argv[] = { "hold", dir, NULL };
	cleanup_pipes struct pipes p = PIPES_INIT;
	struct hearing h = { .err = err };
	int r = spawn(argv, url, &p, NULL, err);

	if (r == 0)
		r = listen_to(take_fd(&p.out[0]), &h);
	if (r == 0 && !h.ended)
		r = say_silent(err, -1);
	return r;
}
