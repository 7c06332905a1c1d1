/* SPDX-License-Identifier: Apache-2.0 */
/* The program was made when this was built: here it is only handed to the kernel. */
#include "helper/filter.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Linux 5.19; the kernel's header may be older. */
#define FLAG_WAIT_KILLABLE_RECV (1u << 5)

/* One more at the end, so that there is a table where there is no program. */
static struct sock_filter steps[] = {
/* not const: the kernel's structure does not say so */
#include "helper/filter-steps.inc"
	{ 0, 0, 0, 0 },
};

/* The lower half of an argument. */
#define ARGUMENT(n) \
	(offsetof(struct seccomp_data, args[n]) + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? 4 : 0))
/* The question whether a file may be written to; its mode is argument N. */
#define ASKS_TO_WRITE(call, n)                                     \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 4),           \
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARGUMENT(n)),   \
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, W_OK, 0, 1),  \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF), \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/* What a number means for another kind of program does not matter: the first filter refuses its calls. */
static struct sock_filter listening[] = {
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
#ifdef SYS_link
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_link, 0, 1),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
#endif
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_linkat, 0, 1),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
	/* Without links it begins here. */
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
#ifdef SYS_rename
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rename, 0, 1),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
#endif
#ifdef SYS_renameat
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat, 0, 1),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
#endif
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat2, 0, 1),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
#ifdef SYS_access
	ASKS_TO_WRITE(SYS_access, 1),
#endif
	ASKS_TO_WRITE(SYS_faccessat, 2),
	ASKS_TO_WRITE(SYS_faccessat2, 2),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};

#ifdef SYS_link
#define LINK_STEPS 5
#else
#define LINK_STEPS 3
#endif

bool filter_is_there(void)
{
	const uint32_t action = SECCOMP_RET_ERRNO;

	return sizeof(steps) / sizeof(steps[0]) > 1 &&
	       syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

/* Speculation is not ours to slow down: the command reads nothing of this process. */
static long install(const struct sock_fprog *program, unsigned flags)
{
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW | flags,
	               program);
}

int filter_install(void)
{
	const struct sock_fprog program = { .len = sizeof(steps) / sizeof(steps[0]) - 1,
		                            .filter = steps };
	int error;

	if (program.len == 0)
		return -ENOSYS;
	if (install(&program, 0) == 0)
		return 0;
	error = errno;
	/* Nobody does without one where others count on it. */
	return error == EINVAL && !filter_is_there() ? -ENOSYS : -error;
}

int filter_listen(bool links, int *ret_fd)
{
	const unsigned short skipped = links ? 0 : LINK_STEPS;
	const struct sock_fprog program = {
		.len = (unsigned short)(sizeof(listening) / sizeof(listening[0]) - skipped),
		.filter = listening + skipped,
	};
	/* Signals wait for the answer: else each would make the call begin again. */
	long fd = install(&program, SECCOMP_FILTER_FLAG_NEW_LISTENER | FLAG_WAIT_KILLABLE_RECV);

	if (fd < 0)
		return -errno;
	*ret_fd = (int)fd;
	return 0;
}
