/* SPDX-License-Identifier: Apache-2.0 */
/* Times: deadlines on CLOCK_BOOTTIME (counts suspend, ignores clock steps), stamps in UTC. */
#ifndef UTIL_CLOCK_H
#define UTIL_CLOCK_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define CLOCK_NEVER INT64_MAX

int64_t clock_boot_ns(void);
/* How long the machine was suspended, all in all since it was started. */
int64_t clock_suspended_ns(void);
int64_t clock_real_ns(void);
int64_t clock_real_ms(void);
/* A deadline WAIT_MS from now; negative: CLOCK_NEVER; 0: already passed. */
int64_t clock_deadline(int64_t wait_ms);
/* ms left until DEADLINE, rounded up, 0 when passed, -1 for CLOCK_NEVER (as poll wants it). */
int clock_left_ms(int64_t deadline);
void clock_sleep_ns(int64_t ns);

#define CLOCK_TEXT_LEN 32
/* "2026-11-15T04:47:15.123Z" */
void clock_format(int64_t real_ms, char out[CLOCK_TEXT_LEN]);

/* /proc/sys/kernel/random/boot_id, 36 characters; "" when it cannot be read. */
const char *clock_boot_id(void);

int64_t timespec_ns(const struct timespec *ts);

#endif
