/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Profiles: which directories of a tool stay real for a command, by the tool's name. A profile is a
 * file in the syntax of git-config(1):
 *
 *   [profile]
 *           rw = ~/.tool
 *           ro = ~/.toolrc
 *           hide = ~/.tool/keys
 *
 * The first of these that there is counts, whole:
 *
 *   atoll/profiles/NAME beside the user's settings   $XDG_CONFIG_HOME, else ~/.config
 *   /etc/atoll/profiles/NAME
 *   where Atoll was installed                         share/atoll/profiles; $ATOLL_PROFILES
 *
 * It is trusted as settings are (plan/settings.h). A path begins with `~/` or `/`; what is not there
 * is left out. No file inside a resource is looked for.
 */
#ifndef PLAN_PROFILE_H
#define PLAN_PROFILE_H

#include "util/error.h"
#include "util/list.h"

struct profile {
	struct strlist rw, ro, hide; /* absolute; all there */
};
#define PROFILE_INIT ((struct profile){ 0 })

/* -ATOLL_E_NOT_FOUND: there is none, or none to be trusted; -ATOLL_E_INVALID: file and line. HOME may
 * be NULL. */
int profile_read(const char *name, const char *home, struct profile *ret, struct error *err);
/* Of all that there are, sorted, each once. */
void profile_names(struct strlist *ret);
void profile_done(struct profile *p);
#define cleanup_profile __attribute__((__cleanup__(profile_done)))

#endif
