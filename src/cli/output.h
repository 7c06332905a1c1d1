/* SPDX-License-Identifier: Apache-2.0 */
/* Showing what a command printed. */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include "cli/cli.h"

struct output_view {
	const struct cli *c;
	bool begun;
};
/* For atoll_log_output() and atoll_job_output(): the bytes as they are; on a terminal, which they
 * could do something to, control characters are made visible. Says first what is not there. */
int output_print(void *user, uint64_t at, const void *data, size_t len);

#endif
