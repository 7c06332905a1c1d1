/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a test in which the kernel refuses a system call, as an older one or another filesystem would. */
#ifndef UNIT_REFUSE_H
#define UNIT_REFUSE_H

#include "unit/fs-fixture.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

struct refusal {
	int nr;    /* SYS_... */
	int error; /* what is said instead */
	int arg;   /* counted from 1, and only when it is VALUE; 0: whatever they are */
	unsigned value;
};

/* For this process and what comes of it, for good. */
static inline int refuse(const struct refusal *r)
{
	const unsigned at =
		(unsigned)offsetof(struct seccomp_data, args) + 8u * (unsigned)(r->arg - 1);
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)r->nr, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, r->arg ? at : 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, r->arg ? r->value : (unsigned)r->nr, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)r->error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(code) / sizeof(code[0]), code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0 ? -errno : 0;
}

/* FN in a child for which R holds; its answer. */
static inline int while_refused(int dir_fd, struct refusal r, child_fn fn)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(refuse(&r) < 0 ? 2 : fn(dir_fd));
	return wait_child(pid);
}

#endif
