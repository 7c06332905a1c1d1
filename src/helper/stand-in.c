/* SPDX-License-Identifier: Apache-2.0 */
/* The order: what needs our own privileges first, what gives them up last. */
#include "helper/stand-in.h"

#include "helper/fence.h"
#include "helper/landlock.h"
#include "helper/run-impl.h"
#include "util/cleanup.h"

#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HAS_UID = 1, HAS_GID = 2, HAS_GROUPS = 4, HAS_CAPS = 8, HAS_ALL = 15 };

static int open_proc(const struct run *run, pid_t pid, const char *name, int flags)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "%d/%s", (int)pid, name);
	return openat(run->proc_fd, path, flags | O_CLOEXEC);
}

static bool read_groups(struct stand_in *as, const char *list)
{
	size_t room = strlen(list) / 2 + 1; /* a digit and a space each */
	char *end;

	as->groups = calloc(room, sizeof(*as->groups));
	as->n_groups = 0;
	while (as->groups) {
		unsigned long gid = strtoul(list, &end, 10);

		if (end == list)
			return true;
		if (as->n_groups == room)
			return false;
		as->groups[as->n_groups++] = (gid_t)gid;
		list = end;
	}
	return false;
}

static unsigned read_line(struct stand_in *as, const char *line)
{
	if (sscanf(line, "Uid: %*u %*u %*u %u", &as->uid) == 1)
		return HAS_UID;
	if (sscanf(line, "Gid: %*u %*u %*u %u", &as->gid) == 1)
		return HAS_GID;
	if (sscanf(line, "CapEff: %" SCNx64, &as->caps) == 1)
		return HAS_CAPS;
	return strncmp(line, "Groups:", 7) == 0 && read_groups(as, line + 7) ? HAS_GROUPS : 0;
}

bool stand_in_read(const struct run *run, pid_t pid, struct stand_in *ret)
{
	int fd = open_proc(run, pid, "status", O_RDONLY);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
	cleanup_free char *line = NULL;
	unsigned found = 0;
	size_t size = 0;

	ret->root_fd = open_proc(run, pid, "root", O_PATH | O_DIRECTORY);
	ret->user_ns_fd = open_proc(run, pid, "ns/user", O_RDONLY);
	while (file && getline(&line, &size, file) > 0)
		found |= read_line(ret, line);
	if (file)
		(void)fclose(file);
	return found == HAS_ALL && ret->root_fd >= 0 && ret->user_ns_fd >= 0;
}

/* Below another there may be no /proc, without which we cannot work. */
static bool has_our_root(int root_fd)
{
	struct stat own, theirs;

	return stat("/", &own) == 0 && fstat(root_fd, &theirs) == 0 &&
	       own.st_ino == theirs.st_ino && own.st_dev == theirs.st_dev;
}

static bool enter_user_ns(int user_ns_fd)
{
	struct stat own, theirs;

	if (stat("/proc/self/ns/user", &own) < 0 || fstat(user_ns_fd, &theirs) < 0)
		return false;
	return own.st_ino == theirs.st_ino || setns(user_ns_fd, CLONE_NEWUSER) == 0;
}

static bool has_groups(const struct stand_in *as)
{
	int n = getgroups(0, NULL);
	cleanup_free gid_t *own = n < 0 ? NULL : calloc((size_t)n + 1, sizeof(*own));

	return own && (size_t)n == as->n_groups && getgroups(n, own) == n &&
	       memcmp(own, as->groups, (size_t)n * sizeof(*own)) == 0;
}

/* Only what differs is set: where it may not be, it does not differ. */
static bool take_ids(const struct stand_in *as)
{
	if (!has_groups(as) && setgroups(as->n_groups, as->groups) < 0)
		return false;
	if (getegid() != as->gid && setresgid(as->gid, as->gid, as->gid) < 0)
		return false;
	return geteuid() == as->uid || setresuid(as->uid, as->uid, as->uid) == 0;
}

bool stand_in_become(const struct run *run, const struct stand_in *as)
{
	if (!has_our_root(as->root_fd) || !enter_user_ns(as->user_ns_fd))
		return false;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    (run->ruleset_fd != FD_NONE && landlock_enter(run->ruleset_fd) < 0))
		return false;
	if (!take_ids(as) || fence_keep_caps(as->caps) < 0)
		return false;
	(void)umask(0);
	return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0;
}
