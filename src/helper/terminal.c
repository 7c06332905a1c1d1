/* SPDX-License-Identifier: Apache-2.0 */
/* The command does not lead the session: from whoever leads it, the kernel tells who is in front. */
#include "helper/terminal.h"

#include <errno.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

int terminal_take(struct run *run, struct failure *f)
{
	if (!request_get(run->request, REQUEST_TERMINAL, 0))
		return 0;
	/* The helper itself leads one already. */
	if ((setsid() < 0 && errno != EPERM) || ioctl(STDIN_FILENO, TIOCSCTTY, 0) < 0)
		return failure_set(f, REPLY_REQUEST, -errno, "take the terminal for the command");
	run->terminal = true;
	return 0;
}

int terminal_enter(const struct run *run)
{
	if (!run->terminal)
		return 0;
	if (setpgid(0, 0) < 0 || tcsetpgrp(STDIN_FILENO, getpid()) < 0)
		return -errno;
	return 0;
}

void terminal_signal(const struct run *run, int sig)
{
	pid_t group = run->terminal ? tcgetpgrp(STDIN_FILENO) : -1;

	/* Never to all there is, nor to ourselves. */
	if (group <= 1 || group == getpgrp() || kill(-group, sig) < 0)
		(void)kill(run->pid, sig);
}

void terminal_hang_up(const struct run *run)
{
	(void)kill(-run->pid, SIGHUP);
	(void)kill(-run->pid, SIGCONT);
}

void terminal_continue(const struct run *run)
{
	(void)kill(-run->pid, SIGCONT);
	if (tcgetpgrp(STDIN_FILENO) != run->pid)
		terminal_signal(run, SIGCONT);
}

bool terminal_is_relayed(void)
{
	return request_has('n');
}

void terminal_say_stopped(int sig)
{
	const unsigned char byte = (unsigned char)sig;

	(void)(write(STOPPED_FD, &byte, 1) < 0); /* whoever does not read it will not stop either */
}
