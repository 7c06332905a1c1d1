/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Some calls of a command, renames first of all, wait in its filter until pid 1 of the namespace has looked at them.
 * It lets the kernel go on with every one of them, with the command's own rights; only before that of a
 * directory which has a lower part in an overlay, and which the kernel would refuse to move (EXDEV), a process
 * makes the directory one of the upper layer alone (helper/raise.h).
 *
 * A file with several names gets another inode number when it is copied up, which is when it is first opened for
 * writing. Editors take that for a change by another program (vim: "File changed while writing"). So such a
 * file is copied up already when a command asks whether it may write to it (access() with W_OK).
 *
 * Nothing is gained by misleading pid 1, with a path that changes or a process that ends: all that it does
 * itself is to look. The process that changes something has the user, the groups, the capabilities, the root,
 * the mounts and the Landlock rules of the command, and changes nothing that the command sees but inode
 * numbers. There is one at a time; other renames go on meanwhile, unless they need one, too.
 *
 * The listener never reaches the command: its process hands it over and closes it before execve.
 */
#ifndef HELPER_CALLS_H
#define HELPER_CALLS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct request;
struct run;
struct call;
struct calls {
	int listener_fd;   /* FD_NONE: nothing waits */
	pid_t worker;      /* raises a directory for the first of those in line; -1: none does */
	struct call *line; /* they wait for a worker, in the order they came */
};
#define CALLS_NONE ((struct calls){ .listener_fd = -1, .worker = -1 })

/* Is there an overlay of a resource? */
bool calls_wanted(const struct request *q);
/* In the command's process: LISTENER_FD through SOCKET. 0 or -errno. */
int calls_give(int socket, int listener_fd);
/* In pid 1: the next message on SOCKET. CALLS_TAKEN: it was a listener, which is kept; else as recv(). */
#define CALLS_TAKEN ((ssize_t)-2)
ssize_t calls_take(struct calls *calls, int socket, void *data, size_t size);

/* A call waits there, or none ever will (REVENTS of poll). */
void calls_answer(struct run *run, short revents);
/* The child PID has ended with STATUS: if it was the worker, its call goes on. */
void calls_reaped(struct run *run, pid_t pid, int status);
/* The command has ended: a worker puts back what it has begun, and ends. What still waits is not answered; it
 * is about to be killed. */
void calls_end(struct calls *calls);

#endif
