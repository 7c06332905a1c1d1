/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lock on one of 2^62 bytes of a file that is made when it is not there and stays. Nobody waits for
 * it: it is a sign that somebody is at something, which goes with the last of the descriptors, whatever
 * process has them by then.
 */
#ifndef LOCK_RANGE_H
#define LOCK_RANGE_H

#include <stdint.h>

/* A descriptor that holds it, close-on-exec; -ATOLL_E_BUSY: another one does; -errno. */
int range_try(int dir_fd, const char *name, uint64_t at);

#endif
