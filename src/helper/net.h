/* SPDX-License-Identifier: Apache-2.0 */
/* The network of a command: the host's, one of its own with the loopback alone, or nothing. */
#ifndef HELPER_NET_H
#define HELPER_NET_H

#include "helper/failure.h"

/* To be called by pid 1 of new namespaces, before the tree is built. */
int net_enter(const struct request *q, struct failure *f);
/* Where a command has no namespaces it cannot have this one either. */
int net_refuse(const struct request *q, struct failure *f);

#endif
