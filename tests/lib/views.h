/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands in the views of a plan, and test programs that run again as an ordinary user. Sees the
 * public header only.
 */
#ifndef VIEWS_H
#define VIEWS_H

#include "lib/more.h"

/* With "as-user" as its only argument the program starts again as "nobody", when it is root. */
void become_user(int argc, char **argv);

/* A plan with one `overlay` of ROOT. */
struct atoll_plan *plan_overlay(struct fix *f, const char *root);
/* Runs a shell script in the plan, in CWD; its exit status. Must start. */
int run_script(struct fix *f, struct atoll_plan *p, const char *cwd, const char *script);
/* The same; must end with 0. */
void run_ok(struct fix *f, struct atoll_plan *p, const char *cwd, const char *script);
/* Everything find(1) and md5sum(1) tell of a tree: as the plan's commands see it, and as it is.
 * Malloced. */
char *list_view(struct fix *f, struct atoll_plan *p, const char *root);
char *list_plain(struct fix *f, const char *root);
/* The plan's /tmp, from outside. */
const char *view_tmp(struct fix *f, struct atoll_plan *p);
/* The same shell script outside of any plan. */
void run_plain(const char *cwd, const char *script);

/* While a script runs: FN is called when the script says `touch /tmp/go`, and the script goes on
 * after `until [ -e /tmp/done ]; do sleep 0.01; done`. */
#define MEANWHILE "touch /tmp/go; until [ -e /tmp/done ]; do sleep 0.01; done; "
void run_meanwhile(struct fix *f, struct atoll_plan *p, const char *cwd, const char *script,
                   const char *plain_script);

#endif
