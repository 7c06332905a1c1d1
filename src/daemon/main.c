/* SPDX-License-Identifier: Apache-2.0 */
/* atolld: starts, waits for a signal, stops. */
#include "daemon/daemon.h"
#include "daemon/listen.h"
#include "daemon/log.h"
#include "daemon/serve.h"
#include "util/clock.h"
#include "util/random.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static const struct daemon_options usual = {
	.connections = 256,
	.per_address = 64,
	.limits_ms = { [PEER_HEAD] = 10000,
	               [PEER_BODY] = 60000,
	               [PEER_SENDING] = 60000,
	               [PEER_IDLE] = 75000 },
	.stop_ms = 30000,
	.wait_ms = 10000,
	.wait_max_ms = 3600000,
};

/* Blocked here and so in every thread that comes: only sigwait() gets them. */
static void hold_signals(sigset_t *set)
{
	struct sigaction ignore = { .sa_handler = SIG_IGN };

	(void)sigemptyset(set);
	(void)sigaddset(set, SIGTERM);
	(void)sigaddset(set, SIGINT);
	(void)pthread_sigmask(SIG_BLOCK, set, NULL);
	(void)sigaction(SIGPIPE, &ignore, NULL);
}

static int open_parts(struct daemon *d, struct error *err)
{
	int r;

	d->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (d->stop_fd < 0)
		return error_sys(err, -errno, "make", "an eventfd");
	random_hex(d->id_head, sizeof(d->id_head) - 1);
	d->metrics.started_ms = clock_real_ms();
	r = stores_open(&d->stores, err);
	if (r >= 0)
		r = auth_open(&d->auth, err);
	if (r < 0)
		return r;
	r = peers_open(d->options.limits_ms, &d->peers);
	if (r < 0)
		return error_sys(err, r, "start", "a thread");
	return listen_open(d, err);
}

static void close_parts(struct daemon *d)
{
	listen_close(d);
	peers_close(d->peers);
	auth_close(d->auth);
	stores_close(d->stores);
	if (d->stop_fd >= 0)
		(void)close(d->stop_fd);
}

static void stop(struct daemon *d)
{
	const uint64_t one = 1;

	atomic_store(&d->stopping, true);
	(void)write(d->stop_fd, &one, sizeof(one));
	serve_stop(d);
}

static int run(struct daemon *d, const sigset_t *signals, struct error *err)
{
	int r = open_parts(d, err), sig;

	if (r >= 0)
		r = serve_start(d, NULL, NULL, err);
	if (r < 0)
		return r;
	log_line(LOG_INFO, "serving %s", d->listeners[0].name);
	while (sigwait(signals, &sig) != 0)
		;
	log_line(LOG_INFO, "stopping");
	stop(d);
	return 0;
}

int main(int argc, char **argv)
{
	static struct daemon d;
	struct error err = ERROR_INIT;
	sigset_t signals;
	int r;

	d.options = usual;
	d.stop_fd = -1;
	if (argc != 3 || strcmp(argv[1], "--socket") != 0)
		return 2;
	d.options.socket = argv[2];
	hold_signals(&signals);
	r = run(&d, &signals, &err);
	if (r < 0)
		log_failure("start", &err);
	close_parts(&d);
	error_done(&err);
	return r < 0 ? error_code_exit(r) : 0;
}
