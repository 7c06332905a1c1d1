/* SPDX-License-Identifier: Apache-2.0 */
/* Of what is not given to a command, its names. */
#include "plan/fence.h"

#include <stddef.h>

/* What they lead to is out of sight anyway: a program that still has the name would wait for it, or
 * complain. */
static const char *const variables[] = {
	"ATOLL_HOME",
	"ATOLL_HELPER",
	"ATOLL_POSTGRES",
	"DBUS_SESSION_BUS_ADDRESS",
	"DBUS_SYSTEM_BUS_ADDRESS",
	"GPG_AGENT_INFO",
	"GNOME_KEYRING_CONTROL",
	"SSH_AGENT_PID",
	"SSH_AUTH_SOCK",
	"XDG_RUNTIME_DIR",
};

void fence_env(struct strlist *ret)
{
	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
		strlist_add(ret, variables[i]);
}
