/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directories of an overlay that the kernel would move.
 *
 * The kernel moves no directory that has a part in the lower layer (EXDEV), unless it may leave a redirect in
 * the upper layer, which no ordinary user's overlay allows. A directory is *raised* when it is made one of the
 * upper layer alone: a new directory takes in all its entries by rename, gets its owner, mode, times and
 * attributes, and then its name. What the kernel copies up on the way (the content of files that no command
 * changed yet) it would also copy for a program that falls back to copying. A tree is raised from its deepest
 * directories upward; so each entry keeps its path but in the one directory that is at work, and a failure
 * puts back the entries of one directory.
 *
 * All goes through the overlay's mount, with the rights of the caller. Names of one file that lie in the tree
 * stay names of one file. Nothing is followed; a tree with a mount point in it is left alone.
 *
 * Crash: a directory RAISE_BOX with 16 hex digits beside the one that was to be renamed may be left. What is in
 * its directory "new" belongs to the one directory of the tree that lacks entries.
 */
#ifndef HELPER_RAISE_H
#define HELPER_RAISE_H

#define RAISE_BOX ".atoll-rename-"

struct raise_rename {
	int from_fd, to_fd; /* directories; may be O_PATH */
	const char *from, *to;
	unsigned flags; /* of renameat2() */
};

/*
 * Before the rename R is left to the kernel: raises what would be in its way. Returns the errno that the call is
 * to have, or 0: the kernel answers it, as it does where something could not be raised. SIGTERM is blocked; when
 * it is pending the tree is put back.
 */
int raise_for_rename(const struct raise_rename *r);

#endif
