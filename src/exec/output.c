/* SPDX-License-Identifier: Apache-2.0 */
/* Keeping what a command prints: the process that does (helper/copy.h) is started before it. */
#include "exec/exec.h"

#include "exec/exec-impl.h"
#include "util/cleanup.h"
#include "util/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

void output_done(struct output *o)
{
	for (int i = 0; i < 2; i++) {
		close_fd(&o->out[i]);
		close_fd(&o->err[i]);
	}
}

static int spawn(struct output *o, const struct exec_options *how, const char *file, int null_fd)
{
	const struct exec_output *kept = how->output;
	const int nowhere[] = { null_fd, null_fd, null_fd };
	const struct exec_options none = { .stdio = nowhere };
	char max[24];
	const char *const argv[] = { "atoll-helper",         "--copy", kept->dir, max,
		                     kept->pass ? "1" : "0", NULL };
	struct child_fd fds[5] = { { o->out[0], 3 }, { o->err[0], 4 }, { null_fd, 0 } };
	const struct child_options opt = {
		.file = file,
		.argv = argv,
		.fds = fds,
		.n_fds = exec_add_stdio(kept->pass ? how : &none, STDOUT_FILENO, fds, 3),
		.leads_session = how->control || how->terminal,
	};

	(void)snprintf(max, sizeof(max), "%" PRIu64, kept->max);
	return child_spawn(&o->copier, &opt);
}

int output_start(struct output *o, const struct exec_options *opt, struct error *err)
{
	cleanup_free char *file = exec_helper_path();
	cleanup_close int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	int r = 0;

	if (null_fd < 0 || pipe2(o->out, O_CLOEXEC) < 0 || pipe2(o->err, O_CLOEXEC) < 0)
		r = -errno;
	if (r == 0)
		r = spawn(o, opt, file, null_fd);
	/* Its ends must be its own, or nobody would hear when it is gone. */
	close_fd(&o->out[0]);
	close_fd(&o->err[0]);
	return r < 0 ? exec_sys_error(r, "keep", "the output of the command", err) : 0;
}

void output_wait(struct output *o)
{
	output_done(o);
	if (o->copier.pid <= 0)
		return;
	(void)child_wait(&o->copier, CLOCK_NEVER, NULL);
	child_done(&o->copier);
}
