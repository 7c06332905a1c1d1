/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the strategy `overlay` share (overlay.c says what lies where). */
#ifndef STRATEGY_OVERLAY_IMPL_H
#define STRATEGY_OVERLAY_IMPL_H

#include "fs/overlayfs.h"
#include "strategy/strategy-impl.h"

enum overlay_marks overlay_our_marks(void);
/* 'u' the upper, 'k' the kernel's; caller frees. */
char *overlay_layer_path(const struct atoll_participant *p, char layer);
int overlay_open_dir(struct atoll_participant *p, const char *path, int *ret_fd);

/* Makes whiteouts in an upper directory that has none of them. 0 or -errno. */
int overlay_cover_areas(const struct atoll_participant *p, int upper_fd);

/* Verbs. */
int overlay_create(struct atoll_participant *p);
int overlay_path(struct atoll_participant *p, char **ret_path);
int overlay_mounts(struct atoll_participant *p);

/* Makes the next generation when this one is used up. */
int overlay_renew(struct atoll_participant *p);
/* Root's mount outside any namespace, if there is one: none of its writers may change the upper while
 * it is read. */
int overlay_stop_writers(struct atoll_participant *p);
void overlay_let_write(struct atoll_participant *p);
int overlay_unmount(struct atoll_participant *p);

#endif
