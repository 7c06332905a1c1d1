/* SPDX-License-Identifier: Apache-2.0 */
/* atoll-postgres: all of Atoll that links libpq, so that nothing else has to load it. See protocol.h. */
#include "postgres/finish.h"
#include "postgres/hold.h"
#include "postgres/identify.h"
#include "postgres/rows.h"
#include "util/cleanup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXIT_USAGE 2

struct call {
	char *const *words; /* after the command's name */
	size_t n;
	const char *url;
};

/* 1: the words are wrong. */
static int run_identify(const struct call *call, struct error *err)
{
	cleanup_strbuf struct strbuf out = STRBUF_INIT;
	int r;

	if (call->n != 0)
		return 1;
	r = identify(call->url, &out, err);
	if (r == 0)
		(void)fputs(strbuf_str(&out), stdout);
	return r;
}

static void say_ready(void *user, const struct holder *h)
{
	(void)user;
	(void)h;
	(void)puts("ok ready");
	(void)fflush(stdout);
}

static int run_hold(const struct call *call, struct error *err)
{
	struct hold_options opt = { .url = call->url, .ready = say_ready };

	if (call->n < 1)
		return 1;
	opt.dir = call->words[0];
	for (size_t i = 1; i < call->n; i++) {
		if (strcmp(call->words[i], "--wait-ms") == 0 && i + 1 < call->n)
			opt.wait_ms = strtoll(call->words[++i], NULL, 10);
		else
			return 1;
	}
	return hold(&opt, err);
}

static int run_finish(const struct call *call, struct error *err)
{
	struct finish_options opt = { .url = call->url };

	if (call->n != 4)
		return 1;
	opt.commit = strcmp(call->words[0], "commit") == 0;
	opt.decided = strcmp(call->words[0], "withdraw") == 0;
	if (!opt.commit && !opt.decided && strcmp(call->words[0], "rollback") != 0)
		return 1;
	opt.gid = call->words[1];
	opt.xid = call->words[2];
	opt.server = call->words[3];
	return finish(&opt, err);
}

static void say_line(void *user, const char *line)
{
	(void)user;
	(void)puts(line);
}

static int run_rows(const struct call *call, struct error *err)
{
	struct rows_options opt = { .url = call->url, .line = say_line };

	if (call->n != 2)
		return 1;
	opt.dir = call->words[0];
	opt.table = call->words[1];
	return rows(&opt, err);
}

static const struct {
	const char *name;
	int (*run)(const struct call *call, struct error *err);
} commands[] = {
	{ "identify", run_identify },
	{ "hold", run_hold },
	{ "finish", run_finish },
	{ "rows", run_rows },
};

static void say_error(const struct error *err, int r)
{
	if (err->hint)
		(void)printf("hint %s\n", err->hint);
	(void)printf("error %d %s %s\n", r, err->detail && *err->detail ? err->detail : "-",
	             err->msg ? err->msg : "unknown cause");
}

static int run(int argc, char **argv, const char *url)
{
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		cleanup_error struct error err = ERROR_INIT;
		const struct call call = { argv + 2, (size_t)argc - 2, url };
		int r;

		if (strcmp(argv[1], commands[i].name) != 0)
			continue;
		r = commands[i].run(&call, &err);
		if (r > 0)
			return EXIT_USAGE;
		if (r < 0)
			say_error(&err, r);
		else
			(void)puts("ok");
		return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
	}
	return EXIT_USAGE;
}

int main(int argc, char **argv)
{
	cleanup_free char *url = NULL;
	size_t cap = 0;

	if (argc < 2 || getline(&url, &cap, stdin) < 0)
		return EXIT_USAGE;
	url[strcspn(url, "\n")] = '\0';
	return run(argc, argv, url);
}
