/* SPDX-License-Identifier: Apache-2.0 */
/* What is on its way from one descriptor to another, for those who pass on what a command prints. */
#ifndef HELPER_FLOW_H
#define HELPER_FLOW_H

#include <stdbool.h>
#include <stddef.h>

#define FLOW_MAX (64u << 10)

struct flow {
	char data[FLOW_MAX];
	size_t begin, end; /* of what is to be passed on */
};

bool flow_has_more(const struct flow *f);
/* What ends the command must not end us before it has said its last words. No signal is blocked then. */
void flow_ignore_signals(void);

#endif
