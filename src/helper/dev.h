/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The /dev of a command: the devices every program counts on, terminals of its own, and nothing of
 * the host's hardware. The nodes are read-only binds of the host's: an ordinary user cannot make
 * any, and nobody in there can make more or change these.
 */
#ifndef HELPER_DEV_H
#define HELPER_DEV_H

#include "helper/failure.h"

#include <stdbool.h>

enum dev_mount {
	DEV_NULL = 0,
	DEV_ZERO,
	DEV_FULL,
	DEV_RANDOM,
	DEV_URANDOM,
	DEV_TTY,
	DEV_CONSOLE, /* the caller's terminal, when a standard descriptor is one */
	DEV_PTS,     /* other terminals: only those made in there */
	DEV_MQUEUE,
	DEV_MOUNT_END_
};

struct dev {
	int fd[DEV_MOUNT_END_]; /* detached; FD_NONE: the host does not have it */
};

void dev_init(struct dev *d);
/* While the host's /dev can still be seen and its devices be opened: all that is to be in the new
 * /dev, whose root is DIR_FD, and places for it there. One for /dev/shm, too. */
int dev_make(struct dev *d, int dir_fd, struct failure *f);
/* Into their places, when DIR_FD is attached; none of the descriptors is left. */
int dev_attach(struct dev *d, int dir_fd, struct failure *f);
void dev_done(struct dev *d);

#endif
