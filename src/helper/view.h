/* SPDX-License-Identifier: Apache-2.0 */
/* The views of a request, from their fields to detached mounts. */
#ifndef HELPER_VIEW_H
#define HELPER_VIEW_H

#include "helper/failure.h"

#include <stdbool.h>
#include <stddef.h>

struct view {
	bool is_overlay;
	bool is_fixed;                              /* only to be read */
	const char *target, *source, *upper, *work; /* the request's */
	int mount_fd;                               /* FD_NONE until made */
	int context_fd;                             /* of an overlay's superblock */
};

struct views {
	struct view *v; /* shorter targets first: what holds another comes before it */
	size_t n;
};
#define VIEWS_INIT ((struct views){ 0 })

/* -EPROTO: fields missing, a target not in its shortest form, "/" or given twice. */
int views_read(struct views *views, const struct request *q);
/* Makes all the mounts, attaches none. USER_XATTRS: see overlay.h. */
int views_make(struct views *views, bool user_xattrs, struct failure *f);
/* True when an overlay is still open for writing somewhere. */
bool views_freeze(struct views *views);
/* The innermost view that PATH is below of (not its target itself), or NULL. */
const struct view *views_around(const struct views *views, const char *path);
bool views_has_target(const struct views *views, const char *path);
void views_done(struct views *views);

#endif
