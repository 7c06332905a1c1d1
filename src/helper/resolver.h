/* SPDX-License-Identifier: Apache-2.0 */
/* What finds hosts by name and lies in /run: the only things of the host's there that are shown. */
#ifndef HELPER_RESOLVER_H
#define HELPER_RESOLVER_H

#include "helper/failure.h"

#define RESOLVER_DIRS 2

struct resolvers {
	int dir_fd[RESOLVER_DIRS]; /* detached, read-only; FD_NONE: not there */
	int file_fd;               /* what /etc/resolv.conf leads to, if it is none of theirs */
	char *file;
};

void resolvers_init(struct resolvers *rs);
int resolvers_make(struct resolvers *rs, struct failure *f);
/* RUN_FD: the root of the new /run, attached already. */
int resolvers_attach(const struct resolvers *rs, int run_fd, struct failure *f);
void resolvers_done(struct resolvers *rs);

#endif
