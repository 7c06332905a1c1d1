/* SPDX-License-Identifier: Apache-2.0 */
/*
 * atoll-postgres: all of Atoll that links libpq, so that nothing else has to load it.
 *
 *   hold DIR            keeps a transaction open; the URL comes on standard input, since a command
 *                       line is for everybody to see; "ready" goes to standard output
 */
#include "postgres/hold.h"

#include "postgres/holder.h"
#include "util/cleanup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXIT_USAGE 2

static void say_ready(void *user, const struct holder *h)
{
	(void)user;
	(void)printf("ready %s %s %s\n", h->guard.table ? "guarded" : "unguarded",
	             backend_user(h->b), backend_database(h->b));
	(void)fflush(stdout);
}

static bool parse(int argc, char **argv, struct hold_options *opt)
{
	if (argc < 3 || strcmp(argv[1], "hold") != 0)
		return false;
	opt->dir = argv[2];
	for (int i = 3; i < argc; i++) {
		if (strcmp(argv[i], "--unguarded") == 0)
			opt->unguarded = true;
		else if (strcmp(argv[i], "--wait-ms") == 0 && i + 1 < argc)
			opt->wait_ms = strtoll(argv[++i], NULL, 10);
		else
			return false;
	}
	return true;
}

int main(int argc, char **argv)
{
	cleanup_error struct error err = ERROR_INIT;
	cleanup_free char *url = NULL;
	size_t cap = 0;
	struct hold_options opt = { .ready = say_ready };

	if (!parse(argc, argv, &opt) || getline(&url, &cap, stdin) < 0)
		return EXIT_USAGE;
	url[strcspn(url, "\n")] = '\0';
	opt.url = url;
	if (hold(&opt, &err) == 0)
		return EXIT_SUCCESS;
	(void)printf("error %s\n", err.msg ? err.msg : "");
	return EXIT_FAILURE;
}
