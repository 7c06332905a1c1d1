/* SPDX-License-Identifier: Apache-2.0 */
/* One descriptor over a Unix socket, beside a few bytes. */
#ifndef UTIL_PASS_FD_H
#define UTIL_PASS_FD_H

#include <stddef.h>
#include <sys/types.h>

/* Sends DATA, of at least one byte, and FD, which stays the caller's. 0 or -errno. */
int pass_fd(int socket, const void *data, size_t len, int fd);
/* As recvmsg(), again after EINTR. A descriptor that came along is *ret_fd, the caller's, close-on-exec, in place
 * of what was there, which is closed; else *ret_fd is left as it is. */
ssize_t take_passed(int socket, void *data, size_t len, int *ret_fd);

#endif
