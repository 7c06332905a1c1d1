/* SPDX-License-Identifier: Apache-2.0 */
/* How a plan stands, for people. */
#ifndef CLI_PLAN_WORDS_H
#define CLI_PLAN_WORDS_H

#include "cli/cli.h"

/* "12 changes", "committed, undo until 18:04", "running: npm test", "interrupted: atoll recover": what of it
 * is the most pressing. The caller frees. */
char *plan_state_words(const struct atoll_plan_info *info);
/* A time to come, in local form: "18:04", "tomorrow 14:05", "2026-11-25 14:05". */
#define PLAN_UNTIL_LEN 32
void plan_until_words(int64_t real_ms, char out[PLAN_UNTIL_LEN]);
/* TEXT, a command line as it is recorded (redact_command(): nothing in it can harm a terminal), in at most
 * MAX bytes, and with one blank for escaped line ends and tabs. The caller frees. */
char *plan_short_command(const char *text, size_t max);
/* PATH as people write it: "~/work" for what is below the home. The caller frees. */
char *plan_short_path(const char *path);

#endif
