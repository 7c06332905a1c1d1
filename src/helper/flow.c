/* SPDX-License-Identifier: Apache-2.0 */
/* What the copy of a command's output and the relay of its terminal have in common. */
#include "helper/flow.h"

#include <signal.h>

bool flow_has_more(const struct flow *f)
{
	return f->begin < f->end;
}

void flow_ignore_signals(void)
{
	static const int signals[] = { SIGINT,  SIGQUIT, SIGTERM, SIGHUP,
		                       SIGPIPE, SIGUSR1, SIGUSR2, SIGXFSZ };
	sigset_t none;

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		(void)signal(signals[i], SIG_IGN);
	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}
