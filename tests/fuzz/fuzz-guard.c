/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes sent to the daemon: through the HTTP library as it is used there, then the guard. What that
 * lets pass, a reader of our own, who knows only the strictest form, lets pass too, and understands the
 * same: so nobody in between can have taken it for something else.
 */
#include "daemon/guard.h"

#include <microhttpd.h>
#include <strings.h>
#include <sys/socket.h>

#include "daemon/call.h"
#include "daemon/peer.h"
#include "fuzz/fuzz.h"
#include "util/mem.h"

static struct {
	const char *data; /* as sent */
	size_t size;
	unsigned passed;
} input;

/* ---- the other reader ---- */

/* The library leaves NUL for each of these, and nothing to tell them apart by; of a ':', too, at the
 * beginning of a line. */
static bool is_gone(char c)
{
	return c == '\r' || c == '\n' || c == '\0';
}

/* Where CR LF is, or two that it could have been. */
static const char *line_end(const char *at, const char *end)
{
	while (at + 1 < end && !is_gone(*at))
		at++;
	return at + 1 < end && (is_gone(at[1]) || (*at == '\n' && at[1] == ':')) ? at : NULL;
}

static bool has_only(const char *at, const char *end, bool (*good)(char))
{
	for (; at < end; at++)
		if (!good(*at))
			return false;
	return true;
}

static bool in_token(char c)
{
	return c && strchr("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
	                   "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
	                   c);
}

static bool in_value(char c)
{
	return c == '\t' || (c >= 0x20 && c <= 0x7e);
}

static bool in_target(char c)
{
	return c > 0x20 && c <= 0x7e && c != '#' && c != '\\';
}

/* Empty lines before the first are skipped by everybody; what begins with NUL is an empty line to the
 * library, and lost before we are asked. */
static const char *first_line(const char *at, const char *end)
{
	while (at < end && (*at == '\r' || *at == '\n' || *at == '\0')) {
		const char *lf = memchr(at, '\n', (size_t)(end - at));

		if (*at == '\r' && lf != at + 1)
			break;
		at = lf ? lf + 1 : end;
	}
	return at;
}

struct head {
	unsigned hosts, lengths;
	uint64_t length;
};

static void take_field(const char *at, const char *end, struct head *h)
{
	const char *colon = memchr(at, ':', (size_t)(end - at)), *value;

	must(colon && colon > at && has_only(at, colon, in_token) &&
	     has_only(colon, end, in_value));
	for (value = colon + 1; value < end && (*value == ' ' || *value == '\t');)
		value++;
	must(colon - at != 17 || strncasecmp(at, "Transfer-Encoding", 17) != 0);
	h->hosts += colon - at == 4 && strncasecmp(at, "Host", 4) == 0;
	if (colon - at == 14 && strncasecmp(at, "Content-Length", 14) == 0) {
		h->lengths++;
		h->length = strtoull(value, NULL, 10);
	}
}

/* The head that begins at AT is in the strictest form; its path is that of C. */
static void strict(const char *at, const struct call *c, const struct guard_head *g)
{
	const char *end = input.data + input.size, *eol = line_end(at, end), *space = NULL;
	struct head h = { 0 };

	must(eol && (space = memchr(at, ' ', (size_t)(eol - at))) != NULL);
	must(space > at && has_only(at, space, in_token));
	must(strncmp(space + 1, c->target, strlen(c->target)) == 0 && *c->target == '/');
	at = space + 1 + strlen(c->target);
	must(has_only(space + 1, at, in_target));
	must(eol - at == 9 && memcmp(at, " HTTP/1.1", 9) == 0);
	for (at = eol + 2; (eol = line_end(at, end)) != NULL && eol > at; at = eol + 2) {
		if (end - at >= 2 && memcmp(at, ":\n", 2) == 0)
			break;
		take_field(at, eol, &h);
	}
	/* The same is to be said of ':' LF in the place of the empty line. */
	must(eol == at || (end - at >= 2 && memcmp(at, ":\n", 2) == 0));
	must(h.hosts == 1 && h.lengths <= 1 && h.length == g->length);
	must(!strstr(c->path, "/../") && !strstr(c->path, "//") && !strstr(c->path, "/./"));
}

/* ---- the library, as serve.c uses it ---- */

static void *on_uri(void *cls, const char *uri, struct MHD_Connection *connection)
{
	struct call *c = xcalloc(1, sizeof(*c));

	(void)cls;
	c->connection = connection;
	c->target = xstrdup(uri ? uri : "");
	c->raw_target = uri;
	return c;
}

static size_t on_unescape(void *cls, struct MHD_Connection *connection, char *s)
{
	(void)cls;
	(void)connection;
	return strlen(s);
}

/* Only the first request of a connection: where a second one begins is for the library to say. */
static enum MHD_Result on_request(void *cls, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *size, void **state)
{
	static struct peer peer = { .is_unix = true };
	struct guard guard = { .hosts = STRLIST_INIT };
	struct call *c = *state;
	struct guard_head head;
	const char *at = input.data;

	(void)cls;
	(void)connection;
	(void)url;
	(void)data;
	(void)size;
	c->method = method;
	c->peer = &peer;
	if (guard_check(&guard, c, version, &head, NULL) == 0 && input.passed++ == 0) {
		at = first_line(at, input.data + input.size);
		strict(at, c, &head);
	}
	return MHD_NO;
}

static void on_completed(void *cls, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode how)
{
	struct call *c = *state;

	(void)cls;
	(void)connection;
	(void)how;
	if (!c)
		return;
	free(c->target);
	free(c->path);
	free(c);
	*state = NULL;
}

static void on_log(void *cls, const char *fmt, va_list args)
{
	(void)cls;
	(void)fmt;
	(void)args;
}

static struct MHD_Daemon *start(void)
{
	struct MHD_Daemon *d = MHD_start_daemon(
		MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ERROR_LOG, 0, NULL, NULL, on_request, NULL,
		MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL, MHD_OPTION_URI_LOG_CALLBACK, on_uri, NULL,
		MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL, MHD_OPTION_UNESCAPE_CALLBACK,
		on_unescape, NULL, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
		(size_t)GUARD_CONNECTION_BYTES, MHD_OPTION_ARRAY, guard_options(), MHD_OPTION_END);

	must(d != NULL);
	return d;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct sockaddr address = { .sa_family = AF_UNIX };
	struct MHD_Daemon *d;
	char *text;
	int fds[2];

	if (size > GUARD_HEAD_MAX)
		return 0;
	d = start();
	text = malloc(size + 1);
	must(text && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
	(void)memcpy(text, data, size);
	text[size] = '\0';
	input.data = text;
	input.size = size;
	input.passed = 0;
	must(write(fds[1], data, size) == (ssize_t)size || size == 0);
	must(shutdown(fds[1], SHUT_WR) == 0);
	must(MHD_add_connection(d, fds[0], &address, sizeof(address)) == MHD_YES);
	for (int i = 0; i < 8; i++)
		(void)MHD_run(d);
	(void)close(fds[1]);
	MHD_stop_daemon(d);
	free(text);
	return 0;
}
