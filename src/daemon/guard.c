/* SPDX-License-Identifier: Apache-2.0 */
/* The guard: one pass over a head, in which every field is looked at and the telling ones counted. */
#include "daemon/guard.h"

#include "daemon/call.h"
#include "daemon/peer.h"
#include "util/cleanup.h"
#include "util/mem.h"

#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define LENGTH_DIGITS 18 /* fits 64 bits */

/*
 * The library shows fields and hides the lines they came in: a line may have ended in a bare LF, a NUL
 * may have cut a value short, a field without a name is dropped, and a folded line is joined to the
 * name before it. But it works where the bytes were received: names and values point into the head, and
 * each CR LF has become two NULs. So what was between them shows in the distances. Later versions work in
 * another way, and refuse such lines by themselves when asked.
 */
#define LAYOUT_IS_KNOWN (MHD_VERSION < 0x00097700)

struct MHD_OptionItem *guard_options(void)
{
	static struct MHD_OptionItem options[] = {
#if MHD_VERSION >= 0x00097701
		{ MHD_OPTION_CLIENT_DISCIPLINE_LVL, 1, NULL },
#endif
		{ MHD_OPTION_END, 0, NULL },
	};

	return options;
}

struct scan {
	const char *next; /* where the name of the next field must be */
	const char *host, *origin, *length, *encoding;
	size_t hosts, origins, lengths, encodings, expects;
	size_t n, bytes;
	const char *expect, *authorization, *key;
	size_t authorizations, keys;
	const char *bad; /* what is wrong with a field, or NULL */
};

static bool is_token(const char *s, size_t len)
{
	static const char marks[] = "!#$%&'*+-.^_`|~";

	for (size_t i = 0; i < len; i++) {
		char c = s[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		      (c && strchr(marks, c))))
			return false;
	}
	return len > 0;
}

/* Bytes above 0x7f are obsolete text, and of no use to anything here. */
static bool is_value(const char *s, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)s[i] < 0x20 ? s[i] != '\t' : (unsigned char)s[i] > 0x7e)
			return false;
	return true;
}

static void note_telling(struct scan *s, const char *name, const char *value)
{
	const struct {
		const char *name;
		const char **value;
		size_t *count;
	} telling[] = {
		{ "Host", &s->host, &s->hosts },
		{ "Origin", &s->origin, &s->origins },
		{ "Content-Length", &s->length, &s->lengths },
		{ "Transfer-Encoding", &s->encoding, &s->encodings },
		{ "Expect", &s->expect, &s->expects },
		{ "Authorization", &s->authorization, &s->authorizations },
		{ "Idempotency-Key", &s->key, &s->keys },
	};

	for (size_t i = 0; i < sizeof(telling) / sizeof(telling[0]); i++) {
		if (strcasecmp(telling[i].name, name) != 0)
			continue;
		*telling[i].value = value;
		(*telling[i].count)++;
	}
}

/* "NAME:", blanks, VALUE, CR LF, and nothing else. */
static bool is_whole_line(struct scan *s, const char *name, size_t name_len, const char *value,
                          size_t value_len)
{
	const char *at = name + name_len + 1;

	if (!LAYOUT_IS_KNOWN)
		return true;
	if (name != s->next || value < at || value[value_len] != '\0' ||
	    value[value_len + 1] != '\0')
		return false;
	s->next = value + value_len + 2;
	return strspn(at, " \t") >= (size_t)(value - at);
}

static enum MHD_Result scan_field(void *cls, enum MHD_ValueKind kind, const char *name,
                                  size_t name_len, const char *value, size_t value_len)
{
	struct scan *s = cls;

	(void)kind;
	s->n++;
	s->bytes += name_len + value_len + 4; /* ": " and the end of the line */
	if (!is_token(name, name_len))
		s->bad = "a field's name is no token";
	else if (!is_value(value, value_len))
		s->bad = "a field's value has a byte that has no business there";
	else if (!is_whole_line(s, name, name_len, value, value_len))
		s->bad = "a line of the head is not as the standard has it";
	if (s->bad || s->n > GUARD_HEADERS_MAX)
		return MHD_NO;
	note_telling(s, name, value);
	return MHD_YES;
}

static int refuse(unsigned status, struct error *err, const char *why)
{
	(void)error_set(err,
	                status == MHD_HTTP_CONTENT_TOO_LARGE ? -ATOLL_E_TOO_BIG : -ATOLL_E_INVALID,
	                "%s", why);
	return (int)status;
}

/* ---- the target ---- */

static bool is_dots(const char *segment, size_t len)
{
	size_t dots = 0;

	while (len > 0) {
		size_t step = *segment == '.' ? 1 : 3;

		if (step == 3 && (len < 3 || strncasecmp(segment, "%2e", 3) != 0))
			return false;
		dots++;
		segment += step;
		len -= step;
	}
	return dots == 1 || dots == 2;
}

static const char *bad_segment(const char *segment, size_t len)
{
	if (len == 0)
		return "the path has an empty segment";
	if (is_dots(segment, len))
		return "the path has a segment '.' or '..'";
	for (size_t i = 0; i + 2 < len; i++)
		if (strncasecmp(segment + i, "%2f", 3) == 0 ||
		    strncmp(segment + i, "%00", 3) == 0 || strncasecmp(segment + i, "%5c", 3) == 0)
			return "the path hides a separator or a NUL";
	return NULL;
}

static const char *bad_target(const char *target)
{
	for (const char *p = target; *p; p++)
		if ((unsigned char)*p <= 0x20 || (unsigned char)*p > 0x7e || *p == '#' ||
		    *p == '\\')
			return "the target has a byte that has no business there";
	if (*target != '/')
		return "the target is no path";
	return NULL;
}

static int check_target(struct call *c, struct error *err)
{
	const char *mark = strchr(c->target, '?'), *bad = bad_target(c->target);

	if (strlen(c->target) > GUARD_TARGET_MAX)
		return refuse(MHD_HTTP_URI_TOO_LONG, err, "the target is too long");
	if (bad)
		return refuse(MHD_HTTP_BAD_REQUEST, err, bad);
	c->path = mark ? xstrndup(c->target, (size_t)(mark - c->target)) : xstrdup(c->target);
	c->query = mark ? mark + 1 : NULL;
	for (const char *p = c->path; *p == '/' && !bad;) {
		size_t len = strcspn(++p, "/");

		bad = bad_segment(p, len);
		p += len;
	}
	return bad ? refuse(MHD_HTTP_BAD_REQUEST, err, bad) : 0;
}

/* ---- lines ---- */

/* "METHOD TARGET HTTP/1.1" and nothing else: where the first field must be, or NULL. */
static const char *after_request_line(const struct call *c, const char *version)
{
	const char *end = version + strlen(version);

	if (LAYOUT_IS_KNOWN && (c->raw_target != c->method + strlen(c->method) + 1 ||
	                        version != c->raw_target + strlen(c->target) + 1))
		return NULL;
	return end + 2;
}

/* The empty line after the last field ends the head. */
static bool is_whole_head(const struct call *c, const struct scan *s)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(c->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);

	if (!LAYOUT_IS_KNOWN)
		return true;
	/* A line that begins with NUL is the empty one to the library, whatever follows. */
	return c->method + info->header_size == s->next + 2 && s->next[0] == '\0' &&
	       s->next[1] == '\0';
}

/* ---- fields ---- */

/* HOST without its port: "[::1]:80" is "[::1]". */
static size_t host_len(const char *host)
{
	const char *end = *host == '[' ? strchr(host, ']') : NULL;

	return end ? (size_t)(end + 1 - host) : strcspn(host, ":");
}

static bool is_listed(const struct strlist *l, const char *s, size_t len)
{
	for (size_t i = 0; i < l->n; i++)
		if (strlen(l->v[i]) == len && strncasecmp(l->v[i], s, len) == 0)
			return true;
	return false;
}

static bool is_port(const char *s)
{
	size_t len = strspn(s, "0123456789");

	return *s == '\0' || (len > 0 && len <= 5 && s[len] == '\0');
}

static bool host_is_good(const struct guard *g, const struct call *c, const char *host)
{
	size_t len = host_len(host);
	const char *port = host + len;

	if (*port && (*port != ':' || !is_port(port + 1)))
		return false;
	if (c->peer->is_unix) /* who can open the socket needs no name for it */
		return len > 0;
	return is_listed(&g->hosts, host, len);
}

static int check_names(const struct guard *g, const struct call *c, const struct scan *s,
                       struct error *err)
{
	if (s->hosts != 1)
		return refuse(MHD_HTTP_BAD_REQUEST, err, "there must be one Host");
	if (s->authorizations > 1 || s->keys > 1)
		return refuse(MHD_HTTP_BAD_REQUEST, err,
		              "Authorization or Idempotency-Key is there twice");
	if (!host_is_good(g, c, s->host)) {
		(void)refuse(MHD_HTTP_MISDIRECTED_REQUEST, err,
		             "Host is none of this daemon's names");
		error_hint(err, "start it with --host NAME to add one");
		return MHD_HTTP_MISDIRECTED_REQUEST;
	}
	if (s->origins > 1 || (s->origins == 1 && !strlist_has(&g->origins, s->origin))) {
		(void)error_set(err, -ATOLL_E_DENIED, "pages of this Origin may not ask here");
		error_hint(err, "start the daemon with --origin ORIGIN to allow one");
		return MHD_HTTP_FORBIDDEN;
	}
	return 0;
}

/* One way to say how long a body is: the library hides how chunks were framed. */
static int check_body(const struct scan *s, struct guard_head *ret, struct error *err)
{
	size_t digits = s->lengths == 1 ? strspn(s->length, "0123456789") : 0;

	if (s->lengths > 1 || (s->lengths == 1 && s->encodings > 0))
		return refuse(MHD_HTTP_BAD_REQUEST, err, "the length of the body is said twice");
	if (s->encodings > 0) {
		(void)refuse(MHD_HTTP_LENGTH_REQUIRED, err, "a body must have a Content-Length");
		error_hint(err, "send it without Transfer-Encoding");
		return MHD_HTTP_LENGTH_REQUIRED;
	}
	if (s->lengths == 1 && (digits == 0 || s->length[digits] != '\0'))
		return refuse(MHD_HTTP_BAD_REQUEST, err, "Content-Length is no number");
	if (digits > LENGTH_DIGITS)
		return refuse(MHD_HTTP_CONTENT_TOO_LARGE, err, "Content-Length is too large");
	if (s->lengths == 1)
		ret->length = strtoull(s->length, NULL, 10);
	if (s->expects > 1 || (s->expects == 1 && strcasecmp(s->expect, "100-continue") != 0))
		return refuse(MHD_HTTP_EXPECTATION_FAILED, err,
		              "of Expect only 100-continue is known");
	return 0;
}

static int check_lines(struct call *c, const char *version, struct scan *s, struct error *err)
{
	static const char not_standard[] = "a line of the head is not as the standard has it";

	s->next = after_request_line(c, version);
	if (!s->next)
		return refuse(MHD_HTTP_BAD_REQUEST, err, not_standard);
	(void)MHD_get_connection_values_n(c->connection, MHD_HEADER_KIND, scan_field, s);
	if (s->bad)
		return refuse(MHD_HTTP_BAD_REQUEST, err, s->bad);
	if (s->n > GUARD_HEADERS_MAX || s->bytes > GUARD_HEAD_MAX)
		return refuse(MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE, err,
		              "the head is too large");
	return is_whole_head(c, s) ? 0 : refuse(MHD_HTTP_BAD_REQUEST, err, not_standard);
}

int guard_check(const struct guard *g, struct call *c, const char *version, struct guard_head *ret,
                struct error *err)
{
	struct scan s = { 0 };
	int status;

	*ret = (struct guard_head){ 0 };
	if (strcmp(version, "HTTP/1.1") != 0)
		return refuse(MHD_HTTP_HTTP_VERSION_NOT_SUPPORTED, err,
		              "only HTTP/1.1 is spoken here");
	if (!is_token(c->method, strlen(c->method)))
		return refuse(MHD_HTTP_BAD_REQUEST, err, "the method is no token");
	status = check_target(c, err);
	if (!status)
		status = check_lines(c, version, &s, err);
	if (!status)
		status = check_names(g, c, &s, err);
	return status ? status : check_body(&s, ret, err);
}
