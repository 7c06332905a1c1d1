/* SPDX-License-Identifier: Apache-2.0 */
/* What the files that implement overlay-base.h share. */
#ifndef STRATEGY_OVERLAY_BASE_IMPL_H
#define STRATEGY_OVERLAY_BASE_IMPL_H

#include "strategy/overlay-base.h"

#define OVERLAY_BASE_NAME_LEN 48
/* Of this generation: "t1", "records1". */
void overlay_base_file_name(const struct atoll_participant *p, const char *what,
                            char out[OVERLAY_BASE_NAME_LEN]);
/* Content of the stamp's file; caller frees. */
char *overlay_base_stamp_text(int64_t t0_ns, bool multigrain);

/* BASE of mode 0: nothing is there. Unsorted until overlay_base_save_whole(). */
int overlay_base_record(struct overlay_base *b, const char *path, const struct fs_stat *base,
                        bool suspect);
/* The same for a directory that is shared; FLAGS: MANIFEST_SUSPECT, _SUSPECT_ATTR; XATTRS: xattrs_hash(). */
int overlay_base_record_dir(struct overlay_base *b, const char *path, const struct fs_stat *base,
                            unsigned flags, uint64_t xattrs);
/* Of the directory PATH below ORIG_FD, as it is now; *ret_now may be NULL. */
int overlay_base_xattrs(int orig_fd, const char *path, uint64_t *ret, struct fs_stat *ret_now);
/* Sorts and writes them: what has their name is whole, also after a power cut. */
int overlay_base_save_whole(struct atoll_participant *p, int area_fd, struct overlay_base *b);
/* Read, but none of them kept: b->at is the next one. */
int overlay_base_next_record(struct atoll_participant *p, struct overlay_base *b);
bool overlay_base_changed_since(const struct overlay_base *b, int64_t ctime_ns);

#endif
