/* SPDX-License-Identifier: Apache-2.0 */
/* The program was made when this was built: here it is only handed to the kernel. */
#include "helper/filter.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* One more at the end, so that there is a table where there is no program. */
static struct sock_filter steps[] = {
/* not const: the kernel's structure does not say so */
#include "helper/filter-steps.inc"
	{ 0, 0, 0, 0 },
};

bool filter_is_there(void)
{
	const uint32_t action = SECCOMP_RET_ERRNO;

	return sizeof(steps) / sizeof(steps[0]) > 1 &&
	       syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

int filter_install(void)
{
	struct sock_fprog program = { .len = sizeof(steps) / sizeof(steps[0]) - 1,
		                      .filter = steps };
	int error;

	if (program.len == 0)
		return -ENOSYS;
	/* Speculation is not ours to slow down: the command reads nothing of this process. */
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW,
	            &program) == 0)
		return 0;
	error = errno;
	/* Nobody does without one where others count on it. */
	return error == EINVAL && !filter_is_there() ? -ENOSYS : -error;
}
