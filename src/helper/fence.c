/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Capabilities are kept by name, not dropped by name: what a later kernel adds is not kept. Gone
 * are those that reach mounts, devices, the kernel, files by handle, and our own processes.
 */
#include "helper/fence.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const unsigned kept[] = {
	CAP_CHOWN,       CAP_DAC_OVERRIDE, CAP_FOWNER,           CAP_FSETID,
	CAP_KILL,        CAP_SETGID,       CAP_SETUID,           CAP_SETPCAP,
	CAP_SETFCAP,     CAP_SYS_CHROOT,   CAP_NET_BIND_SERVICE, CAP_NET_RAW,
	CAP_AUDIT_WRITE,
};

static uint64_t kept_set(void)
{
	uint64_t set = 0;

	for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
		set |= UINT64_C(1) << kept[i];
	return set;
}

static int reduce(uint64_t set)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];

	/* Root gets at execve what the bounding set allows. */
	for (unsigned cap = 0; prctl(PR_CAPBSET_READ, cap) >= 0; cap++)
		if (!(cap < 64 && (set >> cap & 1)) && prctl(PR_CAPBSET_DROP, cap) < 0)
			return -errno;
	if (syscall(SYS_capget, &head, data) < 0)
		return -errno;
	for (unsigned i = 0; i < _LINUX_CAPABILITY_U32S_3; i++) {
		data[i].permitted &= (uint32_t)(set >> 32 * i);
		data[i].effective = data[i].permitted;
		data[i].inheritable = 0;
	}
	return syscall(SYS_capset, &head, data) < 0 ? -errno : 0;
}

int fence_self(bool in_ours)
{
	int r = in_ours ? reduce(kept_set()) : 0;

	if (r == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		r = -errno;
	return r;
}
