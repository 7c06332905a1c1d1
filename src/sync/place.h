/* SPDX-License-Identifier: Apache-2.0 */
/* The directory of one path after another: those of one directory come together, so it is kept open. */
#ifndef SYNC_PLACE_H
#define SYNC_PLACE_H

struct sync_place {
	int root_fd; /* the caller's */
	int dir_fd;  /* of the directory entered last, or FD_NONE */
	char *dir;
};
#define SYNC_PLACE_AT(fd) ((struct sync_place){ .root_fd = (fd), .dir_fd = -1 })

/* The directory of PATH is place->dir_fd then, and its last component *ret_name, which points into PATH.
 * As resolve_parent(). */
int sync_place_enter(struct sync_place *p, const char *path, const char **ret_name);
void sync_place_done(struct sync_place *p);
#define cleanup_sync_place __attribute__((__cleanup__(sync_place_done)))

#endif
