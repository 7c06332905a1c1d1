/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open stores for requests: one handle per running request, a few kept for the next. A handle's
 * settings (how long it waits) are the request's; they are set anew each time.
 */
#ifndef DAEMON_STORES_H
#define DAEMON_STORES_H

#include <stdint.h>
#include <atoll.h>
#include "util/error.h"

struct stores;

/* Opens the store once, so that what is wrong with it is said at the start. */
int stores_open(struct stores **ret, struct error *err);
void stores_close(struct stores *s); /* none may be out */

/* WAIT_MS: as atoll_set_wait(). */
int stores_take(struct stores *s, int64_t wait_ms, struct atoll **ret, struct error *err);
void stores_give(struct stores *s, struct atoll *a);

/* A number that is another one after any change of the registry, by whatever process. Cheap. */
int stores_version(struct stores *s, uint64_t *ret, struct error *err);
/* Could anything be written there now? */
int stores_writable(const struct stores *s, struct error *err);
/* ATOLL_DENY_* that the settings ask for. */
unsigned stores_policy(const struct stores *s);
const char *stores_home(const struct stores *s);

#endif
