/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan written down, for `start --file`, in the syntax of git-config(1):
 *
 *   [plan]
 *           name = fix-42
 *   [resource "app"]
 *           path = ~/app
 *           strategy = overlay
 *   [resource "assets"]
 *           path = ../assets
 *           parent = app
 *
 * A path is relative to the file; `~/` is the user's home. The name in quotes is for `parent`
 * alone. Whatever is not understood is refused, with the line it stands in: a slip must not leave
 * a directory without protection.
 */
#ifndef CLI_PLAN_FILE_H
#define CLI_PLAN_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include "util/error.h"

struct plan_file_resource {
	char *label;
	char *path;     /* canonical; or a URL, as it stands there */
	char *strategy; /* NULL: not said */
	char *parent;   /* label of another, or NULL */
	char *kind;     /* NULL: a directory */
	bool work_in_store;
	bool is_url;
	unsigned line; /* where it begins */
	unsigned parent_line;
	unsigned kind_line;
	unsigned path_line;
};

struct plan_file {
	char *name; /* NULL: not said */
	struct plan_file_resource *v;
	size_t n, cap;
};
#define PLAN_FILE_INIT ((struct plan_file){ 0 })

/* Reads and checks all of it. Errors begin with "FILE:LINE: ". */
int plan_file_read(const char *file, struct plan_file *ret, struct error *err);
/* Root of the parent of RES, or NULL. */
const char *plan_file_parent(const struct plan_file *pf, const struct plan_file_resource *res);
void plan_file_done(struct plan_file *pf);
#define cleanup_plan_file __attribute__((__cleanup__(plan_file_done)))

#endif
