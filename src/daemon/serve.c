/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests. libmicrohttpd calls on_uri() when the request line is there, on_request() when the head
 * is, again for each piece of the body and once more at its end, and on_completed() at last.
 *
 * What is refused for its head or for want of credentials is answered at the first on_request(), before
 * the body is read, and the library closes the connection then. All else is answered at the last, so
 * that connections live on.
 */
#include "daemon/serve.h"

#include "daemon/audit.h"
#include "daemon/bond.h"
#include "daemon/call.h"
#include "daemon/log.h"
#include "daemon/reply.h"
#include "plan/plan.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"

#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define STOP_LOOK_NS INT64_C(5000000)
#define STOP_LAST_MS 1000 /* for threads whose connection was shut down */

static void call_free(struct call *c)
{
	if (c->atoll)
		stores_give(c->d->stores, c->atoll);
	atoll_result_free(c->res);
	route_match_done(&c->match);
	for (size_t i = 0; i < c->n_headers; i++)
		free(c->headers[i].value);
	free(c->target);
	free(c->path);
	free(c->body);
	error_done(&c->err);
	free(c);
}

/* ---- the head ---- */

static void *on_uri(void *cls, const char *uri, struct MHD_Connection *connection)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	struct call *c = xcalloc(1, sizeof(*c));

	c->d = cls;
	c->connection = connection;
	c->peer = info->socket_context;
	c->target = xstrdup(uri ? uri : "");
	c->raw_target = uri;
	c->began_ns = clock_boot_ns();
	(void)snprintf(c->id, sizeof(c->id), "%s-%u", c->d->id_head,
	               atomic_fetch_add(&c->d->next_id, 1));
	atomic_fetch_add(&c->d->metrics.running, 1);
	peer_enter(c->d->peers, c->peer, PEER_HEAD);
	return c;
}

/* Answers at once and ends the connection. */
static enum MHD_Result refuse(struct call *c, unsigned status)
{
	c->close = true;
	return reply_error_as(c, status, &c->err) < 0 ? MHD_NO : MHD_YES;
}

static int identify(struct call *c, unsigned *ret_retry_s)
{
	const struct auth_request q = {
		.fd = c->peer->fd,
		.is_unix = c->peer->is_unix,
		.authorization = call_header(c, "Authorization"),
		.peer = c->peer->address,
	};

	return auth_check(c->d->auth, &q, &c->who, ret_retry_s, &c->err);
}

/* 0, or the status to refuse with. */
static unsigned check_identity(struct call *c)
{
	unsigned retry_s = 1;
	char text[16];
	int r;

	if (c->route && (c->route->flags & ROUTE_OPEN))
		return 0;
	r = identify(c, &retry_s);
	if (r == -EAGAIN) {
		(void)snprintf(text, sizeof(text), "%u", retry_s);
		reply_header(c, "Retry-After", text);
		return MHD_HTTP_TOO_MANY_REQUESTS;
	}
	if (r == -ATOLL_E_DENIED) {
		reply_header(c, "WWW-Authenticate",
		             call_header(c, "Authorization")
		                     ? "Bearer realm=\"atoll\", error=\"invalid_token\""
		                     : "Bearer realm=\"atoll\"");
		return MHD_HTTP_UNAUTHORIZED;
	}
	return r < 0 ? MHD_HTTP_INTERNAL_SERVER_ERROR : 0;
}

/* 0, or the status to refuse with; what is there is told to those only who may know it. */
static unsigned check_route(struct call *c)
{
	/* The library leaves the body of an answer to HEAD out. */
	bool head = strcmp(c->method, "HEAD") == 0;
	int r = route_find(head ? "GET" : c->method, c->path, &c->match);
	unsigned status;

	c->route = c->match.route;
	c->args = c->match.args;
	status = check_identity(c);
	if (status)
		return status;
	if (r == -ATOLL_E_INVALID) {
		(void)error_set(&c->err, r, "the path is not well encoded");
		return MHD_HTTP_BAD_REQUEST;
	}
	if (c->match.known_path && !c->route) {
		(void)error_set(&c->err, -ATOLL_E_INVALID, "not with this method");
		reply_header(c, "Allow", c->match.allow);
		return MHD_HTTP_METHOD_NOT_ALLOWED;
	}
	if (r < 0) {
		(void)error_set(&c->err, r, "there is nothing at this path");
		return MHD_HTTP_NOT_FOUND;
	}
	if (!(c->route->flags & ROUTE_OPEN) && route_allows(&c->match, &c->who, &c->err) < 0)
		return MHD_HTTP_FORBIDDEN;
	return route_knows(c->route, c->query, &c->err) < 0 ? MHD_HTTP_BAD_REQUEST : 0;
}

static unsigned check_length(struct call *c, const struct guard_head *head)
{
	if (head->length <= c->route->body_max) {
		c->body_size = (size_t)head->length;
		return 0;
	}
	(void)error_set(&c->err, -ATOLL_E_TOO_BIG, "the body is larger than %zu bytes",
	                c->route->body_max);
	return MHD_HTTP_CONTENT_TOO_LARGE;
}

static enum MHD_Result begin(struct call *c, const char *method, const char *version)
{
	struct guard_head head;
	unsigned status;

	c->seen = true;
	c->method = method;
	status = (unsigned)guard_check(&c->d->guard, c, version, &head, &c->err);
	if (status) {
		atomic_fetch_add(&c->d->metrics.refused, 1);
		return refuse(c, status);
	}
	status = check_route(c);
	if (status == MHD_HTTP_UNAUTHORIZED || status == MHD_HTTP_FORBIDDEN)
		atomic_fetch_add(&c->d->metrics.denied, 1);
	if (!status)
		status = check_length(c, &head);
	if (status)
		return refuse(c, status);
	peer_enter(c->d->peers, c->peer, c->body_size ? PEER_BODY : PEER_WORKING);
	return MHD_YES;
}

/* ---- the body ---- */

/* The length was announced and found good: there is never more than that. */
static enum MHD_Result add_body(struct call *c, const char *data, size_t len)
{
	if (!c->body)
		c->body = malloc(c->body_size + 1);
	if (!c->body || len > c->body_size - c->body_len)
		return MHD_NO;
	memcpy(c->body + c->body_len, data, len);
	c->body_len += len;
	c->body[c->body_len] = '\0';
	return MHD_YES;
}

/* ---- the answer ---- */

/* Nobody waits for a lock on behalf of a client that is gone, or while the daemon stops. */
static bool is_over(void *ctx)
{
	const struct call *c = ctx;
	struct pollfd client = { .fd = c->peer->fd, .events = POLLRDHUP };

	return atomic_load(&c->d->stopping) || poll(&client, 1, 0) > 0;
}

static int withdrawn(struct call *c)
{
	error_done(&c->err);
	(void)error_set(&c->err, -ECANCELED, "the daemon stops; nothing was changed");
	error_hint(&c->err, "ask again when it has been started");
	return reply_error_as(c, MHD_HTTP_SERVICE_UNAVAILABLE, &c->err);
}

static int run_handler(struct call *c)
{
	cleanup_lock_cancel struct lock_cancel cancel = { 0 };
	int r = 0;

	lock_cancel_begin(&cancel, is_over, c);

	if (!c->body)
		c->body = xstrdup("");
	if (c->route->flags & ROUTE_STORE)
		r = call_store(c);
	if (r >= 0)
		r = audit_asked(c);
	if (r >= 0)
		r = c->route->handle(c);
	if (c->answered || r >= 0)
		return r;
	if (r == -ECANCELED)
		return withdrawn(c);
	if (c->err.code)
		return reply_error(c, &c->err);
	if (c->res)
		return reply_result(c, r);
	(void)error_set(&c->err, r, "%s %s failed", c->route->method, c->route->path);
	return reply_error(c, &c->err);
}

static enum MHD_Result answer(struct call *c)
{
	peer_enter(c->d->peers, c->peer, PEER_WORKING);
	if (atomic_load(&c->d->stopping))
		c->close = true;
	if (c->route->flags & (ROUTE_STREAM | ROUTE_DATA))
		c->peer->bond = bond_add(auth_bonds(c->d->auth), &c->who, c->peer->fd);
	(void)run_handler(c);
	if (c->answered)
		return MHD_YES;
	log_failure("no answer", &c->err);
	return MHD_NO;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *len, void **context)
{
	struct call *c = *context;

	(void)cls;
	(void)connection;
	(void)url;
	if (!c->seen)
		return begin(c, method, version);
	if (*len > 0) {
		size_t n = *len;

		*len = 0;
		return add_body(c, data, n);
	}
	return c->answered ? MHD_YES : answer(c);
}

static void end_bond(struct daemon *d, struct peer *p)
{
	bond_remove(auth_bonds(d->auth), p->bond);
	p->bond = NULL;
}

static void on_completed(void *cls, struct MHD_Connection *connection, void **context,
                         enum MHD_RequestTerminationCode how)
{
	struct daemon *d = cls;
	struct call *c = *context;
	const union MHD_ConnectionInfo *info;
	int64_t took;

	if (!c)
		return;
	*context = NULL;
	/* What the library refuses by itself never comes to us. */
	info = c->status ? NULL
	                 : MHD_get_connection_info(connection, MHD_CONNECTION_INFO_HTTP_STATUS);
	if (info)
		c->status = info->http_status;
	/* A connection that was switched to another protocol lives on. */
	if (c->status != MHD_HTTP_SWITCHING_PROTOCOLS)
		end_bond(d, c->peer);
	took = clock_boot_ns() - c->began_ns;
	atomic_fetch_sub(&d->metrics.running, 1);
	metrics_request(&d->metrics, c->route, c->status, took);
	log_request(c, took, how == MHD_REQUEST_TERMINATED_COMPLETED_OK);
	peer_enter(d->peers, c->peer, PEER_IDLE);
	if (atomic_load(&d->stopping))
		(void)shutdown(c->peer->fd, SHUT_RDWR);
	call_free(c);
}

/* ---- connections ---- */

static void on_connection(void *cls, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
	const union MHD_ConnectionInfo *info;
	struct daemon *d = cls;
	const void *place;

	if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
		atomic_fetch_sub(&d->metrics.open, 1);
		end_bond(d, *context);
		peer_remove(d->peers, *context);
		return;
	}
	info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_DAEMON);
	place = info->daemon;
	info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	*context = peer_add(d->peers, info->connect_fd, place);
	atomic_fetch_add(&d->metrics.open, 1);
	atomic_fetch_add(&d->metrics.connections, 1);
}

/* The path and the query are decoded by us, piece by piece. */
static size_t on_unescape(void *cls, struct MHD_Connection *connection, char *text)
{
	(void)cls;
	(void)connection;
	return strlen(text);
}

/* When descriptors run out the library tries again at once and says so each time, without end: it would fill
 * the log and use up a processor. More than one line in LIBRARY_STEP is not heard, and whoever says this waits.
 * What it says of each connection that it refuses is no reason to let the others wait. */
#define LIBRARY_BURST 20
#define LIBRARY_STEP  INT64_C(200000000)
#define LIBRARY_PAUSE INT64_C(20000000)

static bool library_is_heard(void)
{
	static _Atomic int64_t silent_from; /* when all that was said would have been said slowly */
	int64_t now = clock_boot_ns(), at = atomic_load(&silent_from), next;

	do {
		next = (at > now ? at : now) + LIBRARY_STEP;
		if (next > now + LIBRARY_BURST * LIBRARY_STEP)
			return false;
	} while (!atomic_compare_exchange_weak(&silent_from, &at, next));
	return true;
}

static bool is_busy_waiting(const char *fmt)
{
	return strstr(fmt, "Error accepting") || strstr(fmt, "resource limit at");
}

static void on_log(void *cls, const char *fmt, va_list ap)
{
	char text[512];

	(void)cls;
	if (!library_is_heard()) {
		if (is_busy_waiting(fmt))
			clock_sleep_ns(LIBRARY_PAUSE);
		return;
	}
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	text[strcspn(text, "\n")] = '\0';
	log_line(LOG_INFO, "libmicrohttpd: %s", text);
}

/* TLS 1.2 only with forward secrecy and authenticated encryption, as 1.3 has them always. Not const only because the
 * option takes any pointer. */
static char tls_priorities[] =
	"NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-KX-ALL:+ECDHE-ECDSA:+ECDHE-RSA:"
	"-CIPHER-ALL:+AES-256-GCM:+CHACHA20-POLY1305:+AES-128-GCM:"
	"-MAC-ALL:+AEAD";

/* Connections of one place that are shut down already, and not gone yet: at so many more than the limit (peer.h) the
 * library takes no new ones. */
#define DISPLACED_MAX 64

static int start_one(struct daemon *d, struct listener *l, struct error *err)
{
	unsigned flags = MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD |
	                 MHD_USE_POLL | MHD_USE_ITC | MHD_USE_ERROR_LOG | MHD_ALLOW_UPGRADE;
	struct MHD_OptionItem tls[] = {
		{ MHD_OPTION_HTTPS_MEM_CERT, 0, d->tls_cert },
		{ MHD_OPTION_HTTPS_MEM_KEY, 0, d->tls_key },
		{ MHD_OPTION_HTTPS_PRIORITIES, 0, tls_priorities },
		{ MHD_OPTION_END, 0, NULL },
	};

	if (l->tls)
		flags |= MHD_USE_TLS;
	else
		tls[0].option = MHD_OPTION_END;
	l->mhd = MHD_start_daemon(
		flags, 0, NULL, NULL, on_request, d, MHD_OPTION_EXTERNAL_LOGGER, on_log, d,
		MHD_OPTION_LISTEN_SOCKET, l->fd, MHD_OPTION_URI_LOG_CALLBACK, on_uri, d,
		MHD_OPTION_NOTIFY_COMPLETED, on_completed, d, MHD_OPTION_NOTIFY_CONNECTION,
		on_connection, d, MHD_OPTION_UNESCAPE_CALLBACK, on_unescape, d,
		MHD_OPTION_CONNECTION_LIMIT, d->options.connections + DISPLACED_MAX,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)GUARD_CONNECTION_BYTES,
		MHD_OPTION_ARRAY, guard_options(), MHD_OPTION_ARRAY, tls, MHD_OPTION_END);
	if (l->mhd)
		return 0;
	return error_set(err, -EIO, "cannot serve %s", l->name);
}

int serve_start(struct daemon *d, struct error *err)
{
	if (route_at(ROUTES_MAX))
		BUG("more than %d routes", ROUTES_MAX);
	for (size_t i = 0; i < d->n_listeners; i++) {
		int r = start_one(d, &d->listeners[i], err);

		if (r < 0)
			return r;
	}
	return 0;
}

static bool wait_for_requests(struct daemon *d, int64_t ms)
{
	int64_t deadline = clock_deadline(ms);

	while (atomic_load(&d->metrics.running) > 0) {
		if (clock_boot_ns() >= deadline)
			return false;
		clock_sleep_ns(STOP_LOOK_NS);
	}
	return true;
}

bool serve_stop(struct daemon *d)
{
	for (size_t i = 0; i < d->n_listeners; i++)
		if (d->listeners[i].mhd)
			(void)MHD_quiesce_daemon(d->listeners[i].mhd);
	if (d->peers) {
		peers_end(d->peers, true);
		if (!wait_for_requests(d, d->options.stop_ms)) {
			peers_end(d->peers, false);
			if (!wait_for_requests(d, STOP_LAST_MS))
				return false;
		}
	}
	for (size_t i = 0; i < d->n_listeners; i++) {
		if (d->listeners[i].mhd)
			MHD_stop_daemon(d->listeners[i].mhd);
		d->listeners[i].mhd = NULL;
	}
	return true;
}
