/* SPDX-License-Identifier: Apache-2.0 */
/* Other processes, as /proc tells of them. A number alone is no name: it is given out again. */
#ifndef UTIL_PROCESS_H
#define UTIL_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* When it started, in ticks since boot (field 22 of /proc/PID/stat). PID 0: this process, also where
 * /proc belongs to another namespace. False: there is none, or it cannot be told. */
bool process_start_time(pid_t pid, uint64_t *ret);
/* The process with that number and start time is stopped (SIGSTOP, ^Z): it does nothing until somebody
 * lets it go on. */
bool process_is_stopped(pid_t pid, uint64_t start_time);
/* In a copy of a process: what it is called from here on, instead of the arguments that main() was
 * given, which are gone then. */
void process_rename(char **argv, const char *name);
/* Whose rights it has. */
bool process_uid(pid_t pid, uid_t *ret);
/* A pidfd of the process with that number and start time: 1 and *ret, 0 when there is none, or
 * -errno. Held by it the number stays its own. */
int process_open(pid_t pid, uint64_t start_time, int *ret_pidfd);
/* By pidfd. 0 or -errno. */
int process_signal(int pidfd, int sig);
/* Until it has ended or DEADLINE (clock.h): 1 when it has. */
int process_wait(int pidfd, int64_t deadline);

#endif
