/* SPDX-License-Identifier: Apache-2.0 */
/*
 * atoll-helper: runs one command for the library (helper/run.h), tries what this host allows
 * (helper/probe.h), keeps what a command prints (helper/copy.h), also at a terminal (helper/relay.h), or
 * syncs a workspace in the background (helper/durable.h). A program of its own because it has one
 * thread, and may fork.
 */
#include "exec/request.h"
#include "helper/copy.h"
#include "helper/durable.h"
#include "helper/probe.h"
#include "helper/relay.h"
#include "helper/run.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXIT_USAGE 2

#ifdef __SANITIZE_ADDRESS__
/* The search for leaks at the end has a process of its own, which looks for its parent. Of one that
 * joined another namespace of processes it sees none, and the two wait for each other. */
__attribute__((__visibility__("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}
#endif

static int usage(const char *why)
{
	(void)fprintf(stderr,
	              "atoll-helper: %s\n"
	              "atoll-helper is started by atoll, not by hand; try: atoll help\n",
	              why);
	return EXIT_USAGE;
}

int main(int argc, char **argv)
{
	int r;

	if (argc == 5 && strcmp(argv[1], "--sync") == 0) {
		r = durable_run(argv[2], argv[3], argv[4]);
		return r < 0 ? usage(strerror(-r)) : EXIT_SUCCESS;
	}
	if (argc == 5 && strcmp(argv[1], "--copy") == 0)
		return copy_run(argv[2], argv[3], argv[4]);
	if (argc == 4 && strcmp(argv[1], "--relay") == 0)
		return relay_run(argv[2], argv[3]);
	if (argc != 1 && (argc != 4 || strcmp(argv[1], "--probe") != 0))
		return usage("unknown arguments");
	if (fcntl(REPLY_FD, F_GETFD) < 0 || fcntl(LIFELINE_FD, F_GETFD) < 0)
		return usage("no request");
	return argc == 4 ? probe_run(argv[2], argv[3]) : run_helper();
}
