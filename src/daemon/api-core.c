/* SPDX-License-Identifier: Apache-2.0 */
/* About the daemon itself: alive, ready, counted. */
#include "daemon/daemon.h"
#include "daemon/reply.h"
#include "daemon/route.h"

#include <stdlib.h>
#include <string.h>

static int healthz(struct call *c)
{
	static const char text[] = "{\"status\":\"ok\"}\n";

	return reply_static(c, 200, "application/json", text, sizeof(text) - 1);
}

static int readyz(struct call *c)
{
	uint64_t version;
	int r;

	if (atomic_load(&c->d->stopping)) {
		(void)error_set(&c->err, -ATOLL_E_STATE, "the daemon stops");
		return reply_error_as(c, 503, &c->err);
	}
	r = stores_version(c->d->stores, &version, &c->err);
	if (r == 0)
		r = stores_writable(c->d->stores, &c->err);
	return r < 0 ? reply_error_as(c, 503, &c->err) : healthz(c);
}

static int metrics(struct call *c)
{
	size_t len;
	char *text = metrics_text(&c->d->metrics, peers_late(c->d->peers), &len);

	return reply_text(c, 200, "text/plain; version=0.0.4", text, len);
}

const struct route core_routes[] = {
	{ "GET", "/healthz", MAY_ALL, ROUTE_OPEN, 0, healthz },
	{ "GET", "/readyz", MAY_ALL, ROUTE_OPEN, 0, readyz },
	{ "GET", "/metrics", MAY_ALL, 0, 0, metrics },
	{ NULL, NULL, 0, 0, 0, NULL },
};
