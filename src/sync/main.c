/* SPDX-License-Identifier: Apache-2.0 */
/*
 * atoll-sync: brings a stream into a tree, and a tree into a stream (program.h). It runs in a plan, where
 * a hostile stream or tree can reach nothing else. Single-threaded.
 */
#include "sync/apply.h"
#include "sync/send.h"

#include "fs/atomic.h"
#include "util/cleanup.h"
#include "util/json.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int write_out(void *ctx, const void *data, size_t len)
{
	(void)ctx;
	return fs_write_all(STDOUT_FILENO, data, len);
}

static int apply(int root_fd, struct error *err)
{
	return sync_apply(root_fd, STDIN_FILENO, err);
}

static int send_paths(int root_fd, struct error *err)
{
	return sync_send_paths(root_fd, STDIN_FILENO, write_out, NULL, err);
}

static int send_list(int root_fd, struct error *err)
{
	return sync_send_list(root_fd, write_out, NULL, err);
}

static const struct {
	const char *name;
	int (*run)(int root_fd, struct error *err);
} verbs[] = {
	{ "apply", apply },
	{ "list", send_list },
	{ "send", send_paths },
};

static void complain(const struct error *err)
{
	struct json j;

	json_init(&j, stderr);
	json_open_object(&j, NULL);
	json_string(&j, "code", error_code_name(err->code));
	json_string(&j, "message", err->msg);
	if (err->path)
		json_bytes(&j, "path", err->path);
	else
		json_null(&j, "path");
	json_close(&j);
	json_end(&j);
}

static int run(size_t verb, const char *root, struct error *err)
{
	cleanup_close int root_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return root_fd < 0 ? error_sys(err, -errno, "open", root) : verbs[verb].run(root_fd, err);
}

int main(int argc, char **argv)
{
	cleanup_error struct error err = ERROR_INIT;

	/* A reader that goes is told as an error. */
	(void)signal(SIGPIPE, SIG_IGN);
	for (size_t i = 0; argc == 3 && i < sizeof(verbs) / sizeof(verbs[0]); i++) {
		if (strcmp(argv[1], verbs[i].name) != 0)
			continue;
		if (run(i, argv[2], &err) == 0)
			return 0;
		complain(&err);
		return 1;
	}
	(void)fputs("usage: atoll-sync apply|send|list ROOT\n"
	            "atoll-sync is started by atoll, not by hand; try: atoll help\n",
	            stderr);
	return 2;
}
