/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the administrator allows an agent's key or token at most. Two tables say it:
 *
 *   the members of a command   each row of exec-request.c has its ceiling: one of those below
 *   the resources of a plan    ceiling_resource(), which the library asks for every resource that is about to join
 *                              a plan through an agent's handle, whichever request it comes from
 *
 * Nothing is lowered silently: what is above its ceiling is refused (-ATOLL_E_DENIED), with the setting that says so.
 */
#ifndef DAEMON_CEILING_H
#define DAEMON_CEILING_H

#include <atoll.h>
#include "plan/settings.h"
#include "util/error.h"

/* 0 is none of them: a row that says nothing is a defect. */
enum ceiling {
	CEILING_NONE = 1, /* changes nothing outside the plan */
	CEILING_ADMIN,    /* would reach outside the plan: for admins */
	CEILING_AMOUNT,   /* of a setting: as much at most; its 0 or "never" is no limit */
	CEILING_CHOICE,   /* of a setting: in the order of its words */
	CEILING_SWITCH,   /* of a setting: only while it is true */
};

/* MEMBER of a command is TEXT (a number's digits, a text, "true"). */
int ceiling_member(enum ceiling ceiling, const struct settings *settings, enum setting setting,
                   const char *member, const char *text, struct error *err);

/* For store_set_resource(): DAEMON is a struct daemon. Files and directories lie below one of --root, where any was
 * given; not in a place of secrets, and neither in the mirrors of remote clients nor around them. What is no file is a
 * URL of --database, letter by letter. */
int ceiling_resource(void *daemon, const struct atoll_resource *given, const char *path,
                     struct error *err);

/* Makes the paths of --root canonical, in D. */
struct daemon;
int ceiling_open(struct daemon *d, struct error *err);

#endif
