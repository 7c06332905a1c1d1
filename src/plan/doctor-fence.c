/* SPDX-License-Identifier: Apache-2.0 */
/* What of the fence around a command this kernel has. What is missing is not put up, and said here;
 * --strict refuses to go without. What the user can change is a warning. */
#include "plan/doctor-impl.h"

#include <errno.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LANDLOCK_MOVES  2 /* versions: files may be moved between directories */
#define LANDLOCK_SCOPES 6 /* signals and abstract sockets are kept in, too */

static void examine_filter(struct doctor *d)
{
	uint32_t action = SECCOMP_RET_ERRNO;

	if (syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0)
		doctor_say(d, GOOD("system calls"), "filtered (seccomp)");
	else
		doctor_say(d,
		           WARN("system calls", "use a kernel with CONFIG_SECCOMP_FILTER=y; until "
		                                "then --strict is refused"),
		           "the kernel cannot filter those of a command");
}

static void examine_landlock(struct doctor *d)
{
	long version =
		syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

	if (version < 0 && errno == EOPNOTSUPP)
		doctor_say(d, WARN("landlock", "add landlock to lsm= on the kernel's command line"),
		           "switched off: mounts alone keep a command from writing elsewhere");
	else if (version < LANDLOCK_MOVES)
		doctor_say(
			d,
			WARN("landlock",
		             "use Linux 5.19 or newer, with CONFIG_SECURITY_LANDLOCK=y"),
			"not there, or too old: mounts alone keep a command from writing elsewhere");
	else if (version < LANDLOCK_SCOPES)
		doctor_say(d, GOOD("landlock"),
		           "version %ld: a command's writes are kept in; its signals and abstract "
		           "sockets are not before Linux 6.12, so that --strict is refused",
		           version);
	else
		doctor_say(d, GOOD("landlock"), "version %ld", version);
}

void doctor_fence(struct doctor *d)
{
	examine_filter(d);
	examine_landlock(d);
}
