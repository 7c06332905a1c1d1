/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/direct.h"

#include "plan/plan.h"
#include "util/child.h"
#include "util/clock.h"
#include "util/error.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define GRACE_MS 500

/* Until it has ended. When nobody wants it any more, its input has ended, too, and it has a moment to clear
 * away what is not whole. */
static void wait_for(struct child *c, int control)
{
	struct pollfd fds[] = {
		{ .fd = c->pidfd, .events = POLLIN },
		{ .fd = control, .events = 0 },
	};

	while (!fds[0].revents && !fds[1].revents)
		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			return;
	if (!fds[0].revents && poll(fds, 1, GRACE_MS) == 0)
		(void)child_kill_group(c, SIGKILL);
}

int direct_run(const char *const *argv, const int fds[4], struct atoll_exec_status *ret,
               struct atoll_result *res)
{
	const struct child_fd numbers[] = { { fds[0], STDIN_FILENO },
		                            { fds[1], STDOUT_FILENO },
		                            { fds[2], STDERR_FILENO } };
	const struct child_options how = { .file = argv[0],
		                           .argv = argv,
		                           .fds = numbers,
		                           .n_fds = 3,
		                           .leads_session = true };
	struct child c = CHILD_INIT;
	struct error err = ERROR_INIT;
	int status = 0, r = child_spawn(&c, &how);

	if (r == 0) {
		wait_for(&c, fds[3]);
		r = child_wait(&c, CLOCK_NEVER, &status);
		child_done(&c);
	}
	if (r < 0)
		(void)error_sys(&err, r, "run", argv[0]);
	*ret = (struct atoll_exec_status){ 0 };
	if (WIFSIGNALED(status))
		ret->term_signal = WTERMSIG(status);
	ret->exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
	return result_set(res, &err, r);
}
