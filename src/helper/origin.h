/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the entries of an ordinary user's overlays were copied up from. The kernel does not note it there, as it
 * does for root; but while an overlay is mounted it shows each entry by the inode number of its original,
 * whatever somebody put in that one's place meanwhile. Pid 1 looks when the command has ended, and leaves what
 * it saw in a memory file; the helper, for whom the upper layers are not read-only, notes it there
 * (overlay_note_origin()), once for each entry, so that it also goes with what a later command renames.
 *
 * It is more than nothing, and not a must: what cannot be looked at is not noted, and then judged by its times.
 */
#ifndef HELPER_ORIGIN_H
#define HELPER_ORIGIN_H

#include "exec/request.h"
#include "helper/view.h"

/* Of the overlays among VIEWS, those of Q, still mounted: into FD. */
void origins_look(const struct views *views, const struct request *q, int fd);
/* In the helper: what is in FD. */
void origins_note(const struct request *q, int fd);

#endif
