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
#include <sys/types.h>
#include "daemon/auth.h"
#include "daemon/guard.h"
#include "daemon/metrics.h"
#include "daemon/options.h"
#include "daemon/peer.h"
#include "daemon/stores.h"
#include "daemon/watch.h"

struct MHD_Daemon;

#define DAEMON_LISTENERS  8
#define LISTENER_NAME_LEN 160

struct listener {
	int fd;
	bool is_unix;
	bool tls;
	char name[LISTENER_NAME_LEN]; /* for the log: "unix:/run/...", "127.0.0.1:8080" */
	char *path;                   /* of a Unix socket that we made, and remove; or NULL */
	dev_t dev;                    /* of it */
	ino_t ino;
	struct MHD_Daemon *mhd;
};

struct daemon {
	struct daemon_options options;
	struct guard guard;
	struct auth *auth;
	struct stores *stores;
	struct peers *peers;
	struct watch *watch;
	struct metrics metrics;
	struct listener listeners[DAEMON_LISTENERS];
	size_t n_listeners;
	struct strlist roots;     /* --root, canonical */
	char *mirrors;            /* where they go, or NULL: nobody knows */
	char *tls_cert, *tls_key; /* texts of the files, or NULL */
	int stop_fd;              /* eventfd: readable once the daemon stops */
	atomic_bool stopping;
	atomic_uint next_id;
	char id_head[9]; /* of this process, in request ids */
};

#endif
