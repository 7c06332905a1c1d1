/* SPDX-License-Identifier: Apache-2.0 */
/* Answers to the strategy, as protocol.h has them. */
#ifndef POSTGRES_MANAGE_H
#define POSTGRES_MANAGE_H

#include "postgres/holder.h"

#define MANAGE_LINE 512

/* Answers the line that FD sends. FD is blocking, with a time limit of its own. True: FD belongs to a listener now
 * (listener.h), else the caller closes it. */
bool manage_serve(struct holder *h, int fd);

#endif
