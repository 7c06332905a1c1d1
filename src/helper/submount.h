/* SPDX-License-Identifier: Apache-2.0 */
/* Filesystems mounted below the target of a view: the view alone would not show them. */
#ifndef HELPER_SUBMOUNT_H
#define HELPER_SUBMOUNT_H

#include "helper/view.h"

struct submount {
	char *path;
	const struct view *view; /* the innermost one around it */
	int mount_fd;            /* a read-only bind, detached */
};

struct submounts {
	struct submount *v; /* shorter paths first */
	size_t n, cap;
	int info_fd; /* /proc/self/mountinfo; FD_NONE until it was read */
	char *info;  /* what it said */
};
#define SUBMOUNTS_INIT ((struct submounts){ .info_fd = -1 })

/* Before there are views: what is mounted anywhere. A failure is left to submounts_make(). */
void submounts_look(struct submounts *s);
/* Something was mounted or unmounted since: what was seen is forgotten. */
void submounts_look_again(struct submounts *s);
/* Binds what is mounted below the views. What cannot be reached is left out. */
int submounts_make(struct submounts *s, const struct views *views, struct failure *f);
/* Those of VIEW, which is attached already. A place that VIEW does not have is left out. */
int submounts_attach(const struct submounts *s, const struct view *view, struct failure *f);
void submounts_done(struct submounts *s);

/* The fifth field of a line of mountinfo, octal escapes undone, into OUT, which may be LINE
 * itself; SIZE bytes. False when there is none or no room. */
bool submount_point(const char *line, char *out, size_t size);

#endif
