/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Capabilities are kept by name, not dropped by name: what a later kernel adds is not kept. Gone
 * are those that reach mounts, devices, the kernel, files by handle, and our own processes. An
 * ordinary user keeps none: those of his user namespace are not for the command.
 */
#include "helper/fence.h"

#include "helper/filter.h"
#include "helper/landlock.h"
#include "helper/view.h"
#include "util/cleanup.h"
#include "util/crashpoint.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
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

static int drop_bounds(uint64_t set)
{
	/* Until there is no such capability. */
	for (unsigned cap = 0; cap < 64; cap++)
		if (!(set >> cap & 1) && prctl(PR_CAPBSET_DROP, cap) < 0)
			return errno == EINVAL ? 0 : -errno;
	return 0;
}

int fence_keep_caps(uint64_t set)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];

	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (syscall(SYS_capget, &head, data) < 0)
		return -errno;
	for (unsigned i = 0; i < _LINUX_CAPABILITY_U32S_3; i++) {
		data[i].permitted &= (uint32_t)(set >> 32 * i);
		data[i].effective = data[i].permitted;
		data[i].inheritable = 0;
	}
	return syscall(SYS_capset, &head, data) < 0 ? -errno : 0;
}

/* Root gets at execve what the bounding set allows; whoever has none left can drop none. */
static int reduce(const struct run *run)
{
	uint64_t set = run->is_root ? kept_set() : 0;
	int r = run->bounded ? 0 : drop_bounds(set);

	return r < 0 ? r : fence_keep_caps(set);
}

/* Where there is no filter to be had, a command runs without, unless that is not wanted. */
static int filter(const struct run *run, struct failure *f)
{
	int r = run->filtered || sabotage("seccomp") ? 0 : filter_install();

	if (r == -ENOSYS && !run->strict)
		return 0;
	if (r == -ENOSYS)
		return failure_why(f, REPLY_NAMESPACE, r, "be strict",
		                   "there is no filter of system calls for this kernel or machine");
	return r < 0 ? failure_set(f, REPLY_NAMESPACE, r, "filter system calls") : 0;
}

/* Where nothing can be asked, directories of an overlay are not renamed, and nothing else is different. Pid 1
 * needs a /proc to find those that ask. */
static void listen_self(struct run *run)
{
	if (run->proc_fd != FD_NONE && calls_wanted(run->request) && filter_is_there() &&
	    !sabotage("seccomp"))
		(void)filter_listen(run->user_xattrs, &run->listener_fd);
}

/* Ours besides the views; what is mounted read-only in them stays so. */
static const char *const places[] = { "/dev", "/proc", "/run", "/tmp", "/var/tmp" };

static int allow_all(int ruleset_fd, const struct views *views, const char **ret_path)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < sizeof(places) / sizeof(places[0]); i++)
		r = landlock_allow(ruleset_fd, *ret_path = places[i]);
	for (size_t i = 0; r == 0 && i < views->n; i++)
		if (view_is_writable(&views->v[i]))
			r = landlock_allow(ruleset_fd, *ret_path = views->v[i].target);
	return r;
}

int fence_ahead(struct run *run)
{
	int r = sabotage("capabilities") ? 0 : drop_bounds(0);

	run->bounded = r == 0;
	return r;
}

static enum landlock_grade grade_here(void)
{
	return sabotage("landlock") ? LANDLOCK_NONE : landlock_grade();
}

int fence_begin(struct run *run)
{
	int r = grade_here() < LANDLOCK_WRITES ? 0 : landlock_new(&run->ruleset_fd);

	for (int fd = 0; r == 0 && run->ruleset_fd != FD_NONE && fd <= 2; fd++)
		r = landlock_allow_open(run->ruleset_fd, fd);
	if (r < 0)
		close_fd(&run->ruleset_fd);
	return r;
}

int fence_make(struct run *run, const struct views *views, struct failure *f)
{
	enum landlock_grade grade = grade_here();
	const char *path = NULL;
	int r;

	if (run->strict && grade < LANDLOCK_SCOPES)
		return failure_why(f, REPLY_NAMESPACE, -ENOSYS, "be strict",
		                   grade < LANDLOCK_WRITES
		                           ? "the kernel has no Landlock, or it is switched off"
		                           : "the kernel's Landlock does not keep signals and "
		                             "abstract sockets inside (Linux 6.12)");
	if (grade < LANDLOCK_WRITES)
		return 0;
	r = run->ruleset_fd == FD_NONE ? fence_begin(run) : 0;
	if (r < 0)
		return failure_set(f, REPLY_NAMESPACE, r, "make a set of Landlock rules");
	r = allow_all(run->ruleset_fd, views, &path);
	return r < 0 ? failure_set(f, REPLY_NAMESPACE, r, "allow to write to '%s'", path) : 0;
}

/* "\\040" and the like, in place. */
static void unescape(char *path)
{
	char *to = path;

	while (*path) {
		unsigned byte = 0;

		if (*path == '\\' && sscanf(path + 1, "%3o", &byte) == 1 && byte > 0) {
			*to++ = (char)byte;
			path += 4;
		} else {
			*to++ = *path++;
		}
	}
	*to = '\0';
}

/* The fifth and the sixth word of a line. The root is never to be written to as a whole. */
static int allow_mount(int ruleset_fd, char *line)
{
	char *save = NULL, *word = strtok_r(line, " ", &save), *path = NULL;

	for (int i = 1; word && i < 6; i++) {
		path = i == 5 ? path : NULL;
		word = strtok_r(NULL, " ", &save);
		if (i == 4)
			path = word;
	}
	if (!word || !path || strncmp(word, "rw", 2) != 0 || strcmp(path, "/") == 0)
		return 0;
	unescape(path);
	return landlock_allow(ruleset_fd, path);
}

static int allow_mounts(int ruleset_fd, FILE *mounts)
{
	cleanup_free char *line = NULL;
	size_t size = 0;
	int r = 0;

	for (size_t i = 0; r == 0 && i < sizeof(places) / sizeof(places[0]); i++)
		r = landlock_allow(ruleset_fd, places[i]);
	while (r == 0 && getline(&line, &size, mounts) > 0) {
		r = allow_mount(ruleset_fd, line);
		if (r == -EACCES) /* covered by what is hidden */
			r = 0;
	}
	return r == 0 && ferror(mounts) ? -EIO : r;
}

int fence_join(struct run *run, int mounts_fd, struct failure *f)
{
	FILE *mounts;
	int r;

	if (run->ruleset_fd == FD_NONE)
		return 0;
	mounts = fdopen(mounts_fd, "r");
	r = mounts ? allow_mounts(run->ruleset_fd, mounts) : -errno;
	if (mounts)
		(void)fclose(mounts);
	else
		(void)close(mounts_fd);
	return r < 0 ? failure_set(f, REPLY_NAMESPACE, r, "make a set of Landlock rules") : 0;
}

static int keep_privileges_few(void)
{
	return sabotage("no-new-privs") ? 0 : prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

void fence_self_ahead(struct run *run)
{
	run->filtered = !sabotage("seccomp") && keep_privileges_few() == 0 && filter_install() == 0;
	if (!run->bounded && !sabotage("capabilities"))
		run->bounded = drop_bounds(run->is_root ? kept_set() : 0) == 0;
}

int fence_self(struct run *run, struct failure *f)
{
	int r;

	if (keep_privileges_few() < 0)
		return failure_set(f, REPLY_NAMESPACE, -errno, "give up privileges");
	r = run->ruleset_fd == FD_NONE ? 0 : landlock_enter(run->ruleset_fd);
	if (r < 0)
		return failure_set(f, REPLY_NAMESPACE, r, "enter the Landlock rules");
	r = filter(run, f);
	if (r < 0)
		return r;
	listen_self(run);
	if (sabotage("capabilities"))
		return 0;
	r = reduce(run);
	return r < 0 ? failure_set(f, REPLY_NAMESPACE, r, "give up capabilities") : 0;
}
