/* SPDX-License-Identifier: Apache-2.0 */
/* atolld: starts, waits for a signal, stops. */
#include "daemon/ceiling.h"
#include "daemon/daemon.h"
#include "daemon/issued.h"
#include "daemon/job.h"
#include "daemon/listen.h"
#include "daemon/log.h"
#include "daemon/mirror.h"
#include "daemon/serve.h"
#include "daemon/systemd.h"
#include "daemon/tls.h"
#include "plan/plan.h"
#include "util/clock.h"
#include "util/random.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Blocked here and so in every thread that comes: only sigwait() gets them. SIGPIPE, too, is blocked and
 * not ignored: what the library runs begins with no signal blocked, but would inherit what is ignored. */
static void hold_signals(sigset_t *set)
{
	sigset_t held;

	(void)sigemptyset(set);
	(void)sigaddset(set, SIGTERM);
	(void)sigaddset(set, SIGINT);
	held = *set;
	(void)sigaddset(&held, SIGPIPE);
	(void)pthread_sigmask(SIG_BLOCK, &held, NULL);
}

/* For every thread an arena of its own would be kept after it is gone; two are enough for as many
 * processors, and the rest of the memory goes back when nobody asks any more. */
static void spare_memory(void)
{
	(void)mallopt(M_ARENA_MAX, 2);
	(void)mallopt(M_TRIM_THRESHOLD, 128 << 10);
	store_program(false);
}

/* What a daemon that died did not remove any more. What cannot be removed now stays on record. */
static int open_mirrors(struct daemon *d, struct error *err)
{
	struct error cause = ERROR_INIT;
	struct atoll *a = NULL;
	int r = mirrors_place(d->options.mirrors, &d->mirrors, err);

	if (r < 0)
		return r;
	r = stores_take(d->stores, d->options.wait_ms, &a, err);
	if (r < 0)
		return r;
	if (mirrors_sweep(a, &cause) < 0)
		log_failure("mirrors", &cause);
	error_done(&cause);
	stores_give(d->stores, a);
	return 0;
}

static int open_parts(struct daemon *d, struct error *err)
{
	struct peer_limits limits;
	int r;

	d->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (d->stop_fd < 0)
		return error_sys(err, -errno, "make", "an eventfd");
	random_hex(d->id_head, sizeof(d->id_head) - 1);
	d->metrics.started_ms = clock_real_ms();
	issued_open();
	r = ceiling_open(d, err);
	if (r >= 0)
		r = tls_open(d, err);
	if (r >= 0)
		r = stores_open(&d->stores, err);
	if (r >= 0)
		r = open_mirrors(d, err);
	if (r >= 0)
		r = auth_open(stores_home(d->stores), &d->auth, err);
	if (r >= 0)
		r = watch_open(&d->watch, err);
	if (r >= 0)
		r = listen_open(d, err);
	if (r < 0)
		return r;
	limits.place = d->options.connections;
	limits.address = d->options.per_address;
	memcpy(limits.ms, d->options.limits_ms, sizeof(limits.ms));
	r = peers_open(&limits, &d->peers);
	return r < 0 ? error_sys(err, r, "start", "a thread") : 0;
}

static void close_parts(struct daemon *d)
{
	listen_close(d);
	peers_close(d->peers);
	watch_close(d->watch);
	auth_close(d->auth);
	issued_close();
	stores_close(d->stores);
	tls_close(d);
	free(d->mirrors);
	strlist_done(&d->roots);
	if (d->stop_fd >= 0)
		(void)close(d->stop_fd);
	options_done(&d->options);
}

static void stop(struct daemon *d)
{
	const uint64_t one = 1;

	log_line(LOG_INFO, "stopping");
	systemd_notify("STOPPING=1");
	atomic_store(&d->stopping, true);
	(void)write(d->stop_fd, &one, sizeof(one));
	if (serve_stop(d))
		return;
	/* Whoever is still inside the library may be killed at any instant, as ever: the next command
	 * finishes or withdraws what he did. Joining him would take as long as he likes. */
	log_line(LOG_ERROR, "requests are still under way; not waiting for them");
	_exit(EXIT_SUCCESS);
}

static int run(struct daemon *d, const sigset_t *signals, struct error *err)
{
	int r = open_parts(d, err), sig;

	if (r >= 0)
		r = serve_start(d, err);
	if (r < 0) {
		(void)serve_stop(d);
		return r;
	}
	for (size_t i = 0; i < d->n_listeners; i++)
		log_line(LOG_INFO, "serving %s%s", d->listeners[i].name,
		         d->listeners[i].tls ? " with TLS" : "");
	systemd_notify("READY=1");
	while (sigwait(signals, &sig) != 0)
		;
	stop(d);
	return 0;
}

int main(int argc, char **argv)
{
	static struct daemon d = { .stop_fd = -1 };
	struct error err = ERROR_INIT;
	sigset_t signals;
	int r;

	if (argc == 2 && strcmp(argv[1], JOB_ARGUMENT) == 0)
		return job_main();
	r = options_parse(&d.options, argc, argv, &err);
	if (r >= 0 && d.options.version) {
		(void)printf("atolld %s\n", atoll_version());
		return EXIT_SUCCESS;
	}
	log_set_level(d.options.log);
	spare_memory();
	hold_signals(&signals);
	if (r >= 0)
		r = run(&d, &signals, &err);
	if (r < 0)
		log_failure("start", &err);
	close_parts(&d);
	error_done(&err);
	return r < 0 ? error_code_exit(r) : EXIT_SUCCESS;
}
