/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of atolld. `atoll serve` hands its own on as it is. */
#ifndef DAEMON_OPTIONS_H
#define DAEMON_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include "daemon/log.h"
#include "daemon/peer.h"
#include "util/error.h"
#include "util/list.h"

struct daemon_options {
	const char *socket;             /* path; NULL: none was given */
	struct strlist listen;          /* HOST:PORT */
	const char *tls_cert, *tls_key; /* files; both or neither */
	struct strlist hosts, origins;  /* for the guard */
	unsigned connections; /* at most, of one listener: TCP cannot lock the Unix socket out */
	unsigned per_address;
	int64_t limits_ms[PEER_STAGE_END_];
	int64_t stop_ms;     /* for requests under way when the daemon stops */
	int64_t wait_ms;     /* for locks, where a request does not say; */
	int64_t wait_max_ms; /* and at most */
	const char *mirrors; /* directory of what remote clients push; NULL: the usual one */
	struct strlist roots, databases; /* that agents may use (ceiling.h) */
	bool unserialized;               /* their sessions hold no lock */
	enum log_level log;
	bool version; /* only print it */
};

/* Strings are argv's. -ATOLL_E_INVALID. */
int options_parse(struct daemon_options *o, int argc, char **argv, struct error *err);
void options_done(struct daemon_options *o);

#endif
