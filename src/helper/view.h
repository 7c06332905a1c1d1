/* SPDX-License-Identifier: Apache-2.0 */
/* The views of a request, from their fields to detached mounts. */
#ifndef HELPER_VIEW_H
#define HELPER_VIEW_H

#include "fs/overlayfs.h"
#include "helper/failure.h"

#include <stdbool.h>
#include <stddef.h>

enum view_kind {
	VIEW_BIND = 0,
	VIEW_OVERLAY,
	VIEW_SCRATCH, /* an overlay that is nobody's resource, and may be missing */
	VIEW_SHOW,
	VIEW_PRIVATE, /* part of a scratch view, seen above what is fixed in it; made when that is attached */
	VIEW_FIXED, /* a directory in a scratch view, only to be read; may be gone */
	VIEW_EMPTY,
	VIEW_HIDDEN,
	VIEW_CLOSED,
	VIEW_KIND_END_
};

struct view {
	enum view_kind kind;
	bool is_overlay;                            /* of the first sort */
	bool moved;                                 /* REQUEST_MOVED */
	const char *target, *source, *upper, *work; /* the request's */
	int mount_fd;                               /* FD_NONE until made, or not to be made */
	int context_fd;                             /* of an overlay's superblock */
	int lower_fd,
		upper_fd; /* an overlay's layers, else FD_NONE; to be looked at, not written to */
	enum overlay_marks marks; /* of its upper layer */
	bool notes_origins;       /* an ordinary user's resource: helper/origin.h */
};

struct views {
	struct view *v; /* shorter targets first: what holds another comes before it */
	size_t n;
};
#define VIEWS_INIT ((struct views){ 0 })

/* -EPROTO: fields missing, a target not in its shortest form, "/" or given twice. */
int views_read(struct views *views, const struct request *q);
struct views_how {
	bool user_xattrs; /* see overlay.h */
	bool strict;      /* nothing may be left out */
};
/* Makes all the mounts but those that only hide, attaches none. */
int views_make(struct views *views, const struct views_how *how, struct failure *f);
/*
 * Does the directory at FD (O_PATH, as seen by this process) have a part in the lower layer of one of the
 * overlays? The kernel moves no such directory. True also where that cannot be told of one in an overlay.
 */
bool views_has_lower(const struct views *views, int fd);
/* Is the entry at FD (O_PATH) one of an overlay that has not been copied up? */
bool views_is_lower(const struct views *views, int fd);
/* Would a new name for the file at FD (O_PATH) have another inode number than it has? In an overlay with user
 * attributes that is so for every file with an original: the kernel does not know that of the copy. */
bool views_link_differs(const struct views *views, int fd);
/* It covers what is there, and with it what is mounted there. */
bool view_covers(const struct view *v);
/* May the command write to it? */
bool view_is_writable(const struct view *v);
/* When SCRATCH has just been attached, and nothing below it: takes what is private in it, for later, and
 * attaches what is fixed. */
int views_take_parts(struct views *views, const struct view *scratch, struct failure *f);
/* Outside, while the command runs: what the kernel left beside the overlays' upper layers when it mounted
 * them, and would forbid the next mount. What fails here is done before that. */
void views_tidy(const struct request *q);
/* Nothing can be written to the overlays any more: 0; -EBUSY: one is still open for writing somewhere;
 * -errno. */
int views_freeze(struct views *views);
/* The innermost view that PATH is below of (not its target itself), or NULL. */
const struct view *views_around(const struct views *views, const char *path);
/* The one whose target is PATH, or NULL. */
struct view *views_find(const struct views *views, const char *path);
void views_close(struct views *views);

#endif
