/* SPDX-License-Identifier: Apache-2.0 */
/*
 * atolld: the operations of the library over HTTP. It holds no truth: the store does, and any number
 * of commands work on it at the same time. What is here is gone when the process is, and that is fine.
 *
 * One thread per connection (libmicrohttpd's), one that ends late connections (peer.h), and the main
 * thread, which waits for a signal.
 *
 * Stop (SIGTERM, SIGINT): nothing new is accepted, idle connections are closed, streams end by
 * themselves as stop_fd becomes readable, running requests finish, for at most
 * options.stop_ms; then all that is left is shut down, and the process exits 0.
 */
#ifndef DAEMON_DAEMON_H
#define DAEMON_DAEMON_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "daemon/auth.h"
#include "daemon/guard.h"
#include "daemon/metrics.h"
#include "daemon/peer.h"
#include "daemon/stores.h"
#include "util/list.h"

struct MHD_Daemon;

#define DAEMON_LISTENERS 8

struct daemon_options {
	const char *socket; /* path; NULL: none, or the usual one when nothing else is asked for */
	struct strlist listen; /* HOST:PORT */
	const char *tls_cert, *tls_key;
	struct strlist hosts, origins;
	unsigned connections; /* at most, overall */
	unsigned per_address;
	int64_t limits_ms[PEER_STAGE_END_];
	int64_t stop_ms;
	int64_t wait_ms;     /* for locks, where a request does not say; */
	int64_t wait_max_ms; /* and at most */
};

struct listener {
	int fd;
	bool is_unix;
	bool tls;
	char name[128];    /* for the log: "unix:/run/...", "127.0.0.1:8080" */
	char *unlink_path; /* a socket of ours, removed at the end; or NULL */
	struct MHD_Daemon *mhd;
	struct daemon *d;
};

struct daemon {
	struct daemon_options options;
	struct guard guard;
	struct auth *auth;
	struct stores *stores;
	struct peers *peers;
	struct metrics metrics;
	struct listener listeners[DAEMON_LISTENERS];
	size_t n_listeners;
	int stop_fd; /* eventfd: readable once the daemon stops */
	atomic_bool stopping;
	atomic_uint next_id;
	char id_head[9]; /* of this process, in request ids */
};

#endif
