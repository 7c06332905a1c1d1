/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Some calls of a command, renames first of all, wait in its filter until the supervisor has looked at them, a
 * child of pid 1 of the namespace that is made for the first of them. It lets the kernel go on with every one of them but those links, with the command's own rights; only before that of a
 * directory which has a lower part in an overlay, and which the kernel would refuse to move (EXDEV), a process
 * makes the directory one of the upper layer alone (helper/raise.h).
 *
 * A file with several names gets another inode number when it is copied up, which is when it is first opened for
 * writing. Editors take that for a change by another program (vim: "File changed while writing"). So such a
 * file is copied up already when a command asks whether it may write to it (access() with W_OK).
 *
 * A link to a file that has an original is refused to git (EXDEV), and to no other program, in an ordinary user's
 * overlay: there the new name has another inode number than the file had, which git takes for an attack on its
 * local clone. Refused, it copies.
 *
 * To look at a path, or at a page of the command's memory, can take for ever: on a filesystem whose server does
 * not answer. Then the command's renames wait, as they would for that filesystem; pid 1, which ends the command
 * when its time is up or its caller has gone, never looks at either.
 *
 * Nothing is gained by misleading the supervisor, with a path that changes or a process that ends: all that it
 * does itself is to look. A command that kills it has no renames any more (ENOSYS). The process that changes something has the user, the groups, the capabilities, the root,
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
	int listener_fd;  /* in pid 1 until there is a supervisor; FD_NONE: nothing waits */
	pid_t supervisor; /* in pid 1; -1: there is none */
	pid_t worker; /* in the supervisor: raises a directory for the first in line; -1: none does */
	struct call *line; /* in the supervisor: they wait for a worker, in the order they came */
};
#define CALLS_NONE ((struct calls){ .listener_fd = -1, .supervisor = -1, .worker = -1 })

/* Is there an overlay of a resource? */
bool calls_wanted(const struct request *q);
/* In the command's process: LISTENER_FD through SOCKET. 0 or -errno. */
int calls_give(int socket, int listener_fd);
/* In pid 1: the next message on SOCKET. CALLS_TAKEN: it was a listener, which is kept; else as recv(). */
#define CALLS_TAKEN (-(ssize_t)2)
ssize_t calls_take(struct calls *calls, int socket, void *data, size_t size);

/* In pid 1: a call waits there, or none ever will (REVENTS of poll). Starts the supervisor. */
void calls_supervise(struct run *run, short revents);
/* In pid 1: the child PID has ended, which may be the supervisor. */
void calls_reaped(struct run *run, pid_t pid);
/* In pid 1: the command has ended. The supervisor ends, and its worker first puts back what it has begun. What
 * still waits is not answered; it is about to be killed. */
void calls_end(struct calls *calls);

#endif
