/* SPDX-License-Identifier: Apache-2.0 */
/* atoll serve: becomes atolld. The daemon is a program of its own, so that nothing else loads what it
 * needs; it reads the same options, and this hands them on as they were given. */
#include "cli/cli.h"

#include "util/cleanup.h"
#include "util/mem.h"
#include "util/program.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct program daemon_program = { .name = "atolld",
	                                       .folder = "src/daemon",
	                                       .variable = "ATOLL_DAEMON" };

static const struct option_row options[] = {
	{ "socket", "FILE", "listen on this Unix socket (default: atolld.sock in the store)" },
	{ "listen", "HOST:PORT", "listen on this address; may be repeated" },
	{ "tls-cert", "FILE", "certificate for addresses, in PEM; with the chain behind it" },
	{ "tls-key", "FILE", "and its key" },
	{ "host", "NAME", "a name that Host may have, besides those listened on; may be repeated" },
	{ "origin", "URL", "a page's origin that may ask; may be repeated (default: none)" },
	{ "max-connections", "N",
	  "at most so many at each place that is listened on (default: 256)" },
	{ "max-per-address", "N", "and so many from one address (default: 64)" },
	{ "head-timeout", "SECONDS", "for the head of a request (default: 10)" },
	{ "body-timeout", "SECONDS", "for its body (default: 60)" },
	{ "send-timeout", "SECONDS", "until a client has taken what it was sent (default: 60)" },
	{ "idle-timeout", "SECONDS", "between two requests (default: 75)" },
	{ "stop-timeout", "SECONDS", "for requests under way when it is stopped (default: 30)" },
	{ "mirrors", "DIR",
	  "where projects of remote clients go (default: ~/.local/share/atoll/mirrors)" },
	{ "root", "DIR",
	  "plans of agents' keys are below it only; may be repeated (default: anywhere)" },
	{ "database", "URL",
	  "a database that agents' keys may name; may be repeated (default: none)" },
	{ "unserialized", NULL, "their sessions hold no lock, and may mix" },
	{ "log", "errors|info|requests", "what to say on standard error (default: requests)" },
	{ NULL, NULL, NULL },
};

/* The daemon's own, and --wait, which every command has. */
static bool is_for_daemon(const struct option_row *row)
{
	for (const struct option_row *own = options; own->name; own++)
		if (own == row)
			return true;
	return strcmp(row->name, "wait") == 0;
}

static int become(struct cli *c, const char *program, char **argv)
{
	struct error err = ERROR_INIT;
	struct json j;

	if (c->json) {
		cli_json_begin(c, &j);
		json_bytes(&j, "program", program);
		cli_json_end(&j);
		(void)fflush(stdout);
	}
	(void)execv(program, argv);
	(void)error_sys(&err, -errno, "run", program);
	if (errno == ENOENT)
		error_hint(&err, "the daemon is a package of its own: install atolld");
	return cli_fail_error(c, &err);
}

static int serve_run(struct cli *c)
{
	cleanup_free char *program = program_path(&daemon_program);
	char **argv = xcalloc(c->args.n_given + 2, sizeof(*argv));
	size_t n = 0;
	int status;

	argv[n++] = program;
	for (size_t i = 0; i < c->args.n_given; i++) {
		const struct option_given *given = &c->args.given[i];

		if (is_for_daemon(given->row))
			argv[n++] = given->value
			                    ? xasprintf("--%s=%s", given->row->name, given->value)
			                    : xasprintf("--%s", given->row->name);
	}
	status = become(c, program, argv);
	while (n > 1)
		free(argv[--n]);
	free(argv);
	return status;
}

const struct command cmd_serve = {
	.name = "serve",
	.run = serve_run,
	.words = "",
	.summary = "serve the operations over HTTP, to programs and to other machines",
	.about =
		"Without --socket and --listen it listens on a Unix socket in the store, which only the\n"
		"store's user can open. An address that others can reach needs --tls-cert and --tls-key.\n"
		"It runs until SIGTERM or SIGINT, and finishes what is under way. --wait is for requests\n"
		"that do not say how long to wait for a lock (default: 10).",
	.options = options,
};
