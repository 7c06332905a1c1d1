/* SPDX-License-Identifier: Apache-2.0 */
/* A process of pid 1 that may do what one of the command's may, and nothing more. */
#ifndef HELPER_STAND_IN_H
#define HELPER_STAND_IN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct run;
struct stand_in {
	int root_fd, user_ns_fd;
	uid_t uid; /* by which files are judged, as are the next */
	gid_t gid, *groups;
	size_t n_groups;
	uint64_t caps;
};

/* What the process PID is; the descriptors and the memory stay until the caller ends. */
bool stand_in_read(const struct run *run, pid_t pid, struct stand_in *ret);
/* For ever: user namespace, groups, user, capabilities of AS, and the Landlock rules of the command. No process of
 * the command's can trace this one. False: it must end, with nothing done; also of one with another root. */
bool stand_in_become(const struct run *run, const struct stand_in *as);

#endif
