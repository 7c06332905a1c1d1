/* SPDX-License-Identifier: Apache-2.0 */
/* The holder as a process: sockets and the loop. */
#ifndef POSTGRES_HOLD_H
#define POSTGRES_HOLD_H

#include <stdbool.h>
#include <stdint.h>
#include "util/error.h"

struct holder;
struct hold_options {
	const char *url;
	const char *dir; /* for the sockets: 0700 */
	int64_t wait_ms; /* for another client's transaction; <= 0: as usual */
	/* Called once when clients can connect. */
	void (*ready)(void *user, const struct holder *h);
	void *user;
};
/* Serves until the transaction ends. 0, or why it was lost. */
int hold(const struct hold_options *opt, struct error *err);

#endif
