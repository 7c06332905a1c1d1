/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many wrong credentials are answered 401, and from when on it is 429 and when to come again: from
 * each address (of IPv6 each network of 64 bits), and overall.
 *
 * Secrets cannot be guessed, so this is about load and noise; and nobody is to lock others out. So it
 * counts failures only, and what is right passes whatever others at its address do.
 */
#ifndef DAEMON_RATE_H
#define DAEMON_RATE_H

#include <stdbool.h>
#include <stdint.h>

#define RATE_BURST       30 /* of one address, at once; then one in */
#define RATE_STEP_MS     2000
#define RATE_ALL_BURST   300 /* overall; then one in */
#define RATE_ALL_STEP_MS 200

struct rate;

struct rate *rate_new(void);
void rate_free(struct rate *r);
/* Somebody at ADDRESS (or with any other name) failed at NOW_NS of CLOCK_BOOTTIME. False: too often, and
 * *RET_RETRY_S says when to come again. */
bool rate_failed(struct rate *r, const char *address, int64_t now_ns, unsigned *ret_retry_s);

#endif
