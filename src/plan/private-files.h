/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What commands of a plan left in the private layer over the home directory (plan/home.h): it stays with the
 * plan and is never committed. What tools keep for themselves (caches, histories, locks) is left out, by a table.
 */
#ifndef PLAN_PRIVATE_FILES_H
#define PLAN_PRIVATE_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "plan/plan.h"
#include "strategy/result.h"
#include "util/error.h"

#define PRIVATE_FILES_MAX 10000 /* entries looked at, those of caches too */

enum private_kind { PRIVATE_ADDED = 0, PRIVATE_CHANGED, PRIVATE_DELETED, PRIVATE_KIND_END_ };
struct private_file {
	char *path; /* below the home */
	enum private_kind kind;
	uint64_t sum; /* another one when it was written to since */
};
struct private_files {
	struct private_file *v; /* in the order of paths */
	size_t n, cap;
	bool cut; /* there may be more: PRIVATE_FILES_MAX, or a directory that could not be read */
};
#define PRIVATE_FILES_INIT ((struct private_files){ 0 })
void private_files_done(struct private_files *f);
#define cleanup_private_files __attribute__((__cleanup__(private_files_done)))

/* A note in RES of those that are new or were changed since the last such note of the plan; PLAN: its name.
 * Locking: the plan's. Crash: the next note may say them again. */
void private_files_report(const char *area, const char *plan, struct atoll_result *res);
/* 1: the layer in AREA has work in the directory ROOT (canonical), which is NAME in *RET_PARENT_FD of its upper
 * directory; the caller closes that and frees the name. 0: none. */
int private_files_find(const char *area, const char *root, int *ret_parent_fd, char **ret_name);
/* All of them, without a lock: a command may run meanwhile. *ret_home: the directory, owned by the caller; or
 * NULL. */
int plan_private_files(struct atoll_plan *p, char **ret_home, struct private_files *ret,
                       struct error *err);

#endif
