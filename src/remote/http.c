/* SPDX-License-Identifier: Apache-2.0 */
/* Requests and their answers. One connection for each: they are few, and far apart. */
#include "remote/http-impl.h"

#include "util/cleanup.h"
#include "util/clock.h"
#include "util/json-read.h"
#include "util/mem.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>

#define CONNECT_MS   10000L
#define TIMEOUT_MS   60000L
#define TRIES        2 /* of connecting */
#define TRY_AGAIN_NS INT64_C(50000000)
#define HEADER_MAX   256

/* ---- where to ---- */

static int wrong_url(const char *url, struct error *err)
{
	(void)error_set(err, -ATOLL_E_INVALID, "'%s' is not the address of a daemon", url);
	error_hint(err, "https://HOST:PORT, http://127.0.0.1:PORT or unix:/PATH");
	return -ATOLL_E_INVALID;
}

static int take_socket(struct http_target *t, const char *path, struct error *err)
{
	if (path[0] != '/')
		return wrong_url(t->shown, err);
	if (strlen(path) >= sizeof(((struct sockaddr_un *)NULL)->sun_path)) {
		(void)error_set(err, -ATOLL_E_INVALID, "the socket's path is too long: '%s'", path);
		error_hint(err, "have atolld listen at a shorter one: atoll serve --socket PATH");
		return -ATOLL_E_INVALID;
	}
	t->unix_socket = xstrdup(path);
	t->base = xstrdup("http://localhost");
	return 0;
}

int http_target_init(struct http_target *t, const char *url, const char *ca_file, struct error *err)
{
	static const char by_socket[] = "unix:";
	const char *host = strstr(url, "://");
	size_t n;
	int r;

	*t = (struct http_target){ .shown = xstrdup(url), .ca_file = xstrdup(ca_file) };
	if (strncmp(url, by_socket, strlen(by_socket)) == 0) {
		r = take_socket(t, url + strlen(by_socket), err);
	} else if (!host || host[3] == '\0' || strchr("/:", host[3])) {
		r = wrong_url(url, err);
	} else {
		n = strcspn(host + 3, "/");
		if (host[3 + n] == '/' && host[3 + n + 1] != '\0')
			r = wrong_url(url, err);
		else
			r = curl_check_endpoint(url, false, err);
		t->base = xstrndup(url, (size_t)(host - url) + 3 + n);
	}
	if (r < 0)
		http_target_done(t);
	return r;
}

void http_target_done(struct http_target *t)
{
	free(t->base);
	free(t->unix_socket);
	free(t->ca_file);
	free(t->shown);
	*t = (struct http_target){ 0 };
}

/* ---- what all transfers have ---- */

static curl_socket_t open_socket(void *user, curlsocktype purpose, struct curl_sockaddr *a)
{
	(void)user, (void)purpose;
	return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

/* A peer that is gone is to be noticed, whether it owes us an answer or we wait for its next word. */
static int set_socket(void *user, curl_socket_t fd, curlsocktype purpose)
{
	static const struct {
		int level, name, value;
	} wanted[] = {
		{ SOL_SOCKET, SO_KEEPALIVE, 1 },   { IPPROTO_TCP, TCP_KEEPIDLE, 2 },
		{ IPPROTO_TCP, TCP_KEEPINTVL, 1 }, { IPPROTO_TCP, TCP_KEEPCNT, 3 },
		{ IPPROTO_TCP, TCP_NODELAY, 1 },   { IPPROTO_TCP, TCP_USER_TIMEOUT, 5000 },
	};

	(void)user, (void)purpose;
	/* A Unix socket has none of them, and needs none. */
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
		(void)setsockopt(fd, wanted[i].level, wanted[i].name, &wanted[i].value,
		                 sizeof(wanted[i].value));
	return CURL_SOCKOPT_OK;
}

int transfer_init(struct transfer *x, const struct http_target *t, const char *path,
                  struct error *err)
{
	cleanup_free char *url = xasprintf("%s%s", t->base, path);

	*x = (struct transfer){ .lib = curl_library() };
	if (!x->lib) {
		(void)error_set(err, -ATOLL_E_UNSUPPORTED,
		                "cannot talk to a daemon: libcurl is not installed");
		error_hint(err, "apt-get install libcurl4");
		return -ATOLL_E_UNSUPPORTED;
	}
	x->curl = x->lib->init();
	if (!x->curl)
		return error_set(err, -ENOMEM, "out of memory");
	(void)x->lib->setopt(x->curl, CURLOPT_URL, url);
	(void)x->lib->setopt(x->curl, CURLOPT_PROTOCOLS_STR, "http,https");
	(void)x->lib->setopt(x->curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	(void)x->lib->setopt(x->curl, CURLOPT_PATH_AS_IS, 1L);
	(void)x->lib->setopt(x->curl, CURLOPT_NOSIGNAL, 1L);
	(void)x->lib->setopt(x->curl, CURLOPT_ERRORBUFFER, x->words);
	(void)x->lib->setopt(x->curl, CURLOPT_OPENSOCKETFUNCTION, open_socket);
	(void)x->lib->setopt(x->curl, CURLOPT_SOCKOPTFUNCTION, set_socket);
	(void)x->lib->setopt(x->curl, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
	if (t->ca_file)
		(void)x->lib->setopt(x->curl, CURLOPT_CAINFO, t->ca_file);
	if (t->unix_socket)
		(void)x->lib->setopt(x->curl, CURLOPT_UNIX_SOCKET_PATH, t->unix_socket);
	/* What stays on this machine goes through nobody's proxy. */
	if (strncmp(t->base, "http:", 5) == 0)
		(void)x->lib->setopt(x->curl, CURLOPT_PROXY, "");
	return 0;
}

void transfer_done(struct transfer *x)
{
	if (x->curl)
		x->lib->cleanup(x->curl);
	x->curl = NULL;
}

static const struct {
	CURLcode code;
	const char *why;
	const char *hint;
} failures[] = {
	{ CURLE_COULDNT_RESOLVE_HOST, "its host is not known",
	  "look at the address: atoll remote list" },
	{ CURLE_COULDNT_RESOLVE_PROXY, "the proxy's host is not known", "look at $https_proxy" },
	{ CURLE_COULDNT_CONNECT, "nothing answers there",
	  "is it running, and is this its address? atoll remote list" },
	{ CURLE_OPERATION_TIMEDOUT, "it does not answer in time",
	  "look whether the machine and the way to it work, then do it again" },
	{ CURLE_PEER_FAILED_VERIFICATION, "its certificate is not trusted here",
	  "if you trust it: atoll remote add ... --ca-file FILE" },
	{ CURLE_SSL_CACERT_BADFILE, "the file with trusted certificates cannot be used",
	  "look at its --ca-file: atoll remote list" },
	{ CURLE_SSL_CONNECT_ERROR, "TLS does not work there", "is this its port for https?" },
	{ CURLE_GOT_NOTHING, "it closed the connection without an answer", "do it again" },
	{ CURLE_RECV_ERROR, "the connection broke before it answered", "do it again" },
	{ CURLE_SEND_ERROR, "the connection broke before it answered", "do it again" },
	{ CURLE_WEIRD_SERVER_REPLY, "what answers there does not speak HTTP",
	  "look at the address: atoll remote list" },
	{ CURLE_UNSUPPORTED_PROTOCOL, "what answers there does not speak HTTP/1.1",
	  "look at the address: atoll remote list" },
};

int transfer_failed(const struct transfer *x, const struct http_target *t, CURLcode c,
                    struct error *err)
{
	long os_errno = 0;
	size_t i = 0, n = sizeof(failures) / sizeof(failures[0]);

	if (c == CURLE_WRITE_ERROR)
		return error_set(err, -ATOLL_E_TOO_BIG, "the daemon at '%s' answered too much",
		                 t->shown);
	while (i < n && failures[i].code != c)
		i++;
	(void)x->lib->getinfo(x->curl, CURLINFO_OS_ERRNO, &os_errno);
	if (c != CURLE_COULDNT_CONNECT || os_errno < 0)
		os_errno = 0;
	(void)error_set(err, -ATOLL_E_UNREACHABLE, "cannot reach the daemon at '%s': %s%s%s",
	                t->shown, i < n ? failures[i].why : "the connection failed",
	                os_errno ? ": " : "", os_errno ? strerrordesc_np((int)os_errno) : "");
	error_cause(err, "connect", t->unix_socket, os_errno ? (int)os_errno : -curl_code(c),
	            x->words[0] ? x->words : NULL);
	error_hint(err, "%s", i < n ? failures[i].hint : "do it again");
	return -ATOLL_E_UNREACHABLE;
}

char *http_bearer_line(const char *bearer)
{
	return xasprintf("Authorization: Bearer %s", bearer);
}

void http_wipe_data(char *data, size_t len)
{
	if (data)
		explicit_bzero(data, len);
	free(data);
}

/* ---- the answer ---- */

void http_reply_done(struct http_reply *r)
{
	if (r->body)
		explicit_bzero(r->body, r->len);
	free(r->body);
	*r = HTTP_REPLY_INIT;
}

struct taking {
	struct http_reply *reply;
	size_t cap;
};

static size_t take_body(char *data, size_t size, size_t n, void *user)
{
	struct taking *k = user;
	struct http_reply *r = k->reply;
	size_t len = size * n;
	void *body = r->body;

	if (len > HTTP_BODY_MAX - r->len || grow(&body, &k->cap, r->len + len + 1, 1) < 0)
		return 0;
	r->body = body;
	memcpy(r->body + r->len, data, len);
	r->len += len;
	r->body[r->len] = '\0';
	return len;
}

static bool header_is(const char *line, const char *name, const char **ret_value)
{
	size_t n = strlen(name);

	if (strncasecmp(line, name, n) != 0 || line[n] != ':')
		return false;
	*ret_value = line + n + 1 + strspn(line + n + 1, " \t");
	return true;
}

static size_t take_header(char *data, size_t size, size_t n, void *user)
{
	struct http_reply *r = ((struct taking *)user)->reply;
	size_t len = size * n;
	char line[HEADER_MAX];
	const char *value;

	if (len >= sizeof(line))
		return len;
	memcpy(line, data, len);
	line[len] = '\0';
	line[strcspn(line, "\r\n")] = '\0';
	if (header_is(line, "ETag", &value) && strlen(value) < sizeof(r->etag))
		(void)strcpy(r->etag, value);
	else if (header_is(line, "Idempotency-Replayed", &value))
		r->replayed = strcasecmp(value, "true") == 0;
	else if (header_is(line, "Retry-After", &value) && *value >= '0' && *value <= '9')
		r->retry_after_ms = strtol(value, NULL, 10) * 1000;
	return len;
}

/* ---- members of its body ---- */

struct wanted {
	const char *name;
	char *text;
	int64_t number;
};

static int take_string(void *user, const char *key, const char *value, size_t len)
{
	struct wanted *w = user;
	char *text;

	if (strcmp(key, w->name) != 0)
		return 0;
	text = malloc(len + 1);
	if (!text)
		return -ENOMEM;
	if (json_decode_string(value, len, text, len + 1) < 0)
		free(text);
	else
		w->text = text;
	return 0;
}

char *http_reply_string(const struct http_reply *r, const char *name)
{
	struct wanted w = { .name = name };

	if (r->body)
		(void)json_members(r->body, r->len, take_string, &w);
	return w.text;
}

static int take_number(void *user, const char *key, const char *value, size_t len)
{
	struct wanted *w = user;
	int64_t number;

	if (strcmp(key, w->name) == 0 && json_decode_int(value, len, &number) == 0)
		w->number = number;
	return 0;
}

int64_t http_reply_int(const struct http_reply *r, const char *name, int64_t fallback)
{
	struct wanted w = { .name = name, .number = fallback };

	if (r->body)
		(void)json_members(r->body, r->len, take_number, &w);
	return w.number;
}

/* ---- the request ---- */

static struct curl_slist *headers_of(const struct curl_library *lib, const struct http_request *q)
{
	const struct {
		const char *name, *value;
	} rows[] = { { "Idempotency-Key", q->idempotency_key }, { "If-Match", q->if_match } };
	struct curl_slist *list = lib->append(NULL, "Accept: application/json");
	char *line;

	list = lib->append(list, q->body ? "Content-Type: application/json" : "Content-Type:");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (!rows[i].value)
			continue;
		line = xasprintf("%s: %s", rows[i].name, rows[i].value);
		list = lib->append(list, line);
		free(line);
	}
	if (q->bearer) {
		line = http_bearer_line(q->bearer);
		list = lib->append(list, line);
		http_wipe_data(line, strlen(line));
	}
	return list;
}

static void free_headers(const struct curl_library *lib, struct curl_slist *list)
{
	for (struct curl_slist *l = list; l; l = l->next)
		explicit_bzero(l->data, strlen(l->data));
	lib->free_list(list);
}

static void set_request(struct transfer *x, const struct http_request *q, struct taking *k)
{
	const struct curl_library *lib = x->lib;

	if (q->body || strcmp(q->method, "POST") == 0)
		(void)lib->setopt(x->curl, CURLOPT_POSTFIELDS, q->body ? q->body : "");
	(void)lib->setopt(x->curl, CURLOPT_CUSTOMREQUEST, q->method);
	if (q->timeout_ms >= 0)
		(void)lib->setopt(x->curl, CURLOPT_TIMEOUT_MS,
		                  q->timeout_ms ? (long)q->timeout_ms : TIMEOUT_MS);
	(void)lib->setopt(x->curl, CURLOPT_WRITEFUNCTION, take_body);
	(void)lib->setopt(x->curl, CURLOPT_WRITEDATA, k);
	(void)lib->setopt(x->curl, CURLOPT_HEADERFUNCTION, take_header);
	(void)lib->setopt(x->curl, CURLOPT_HEADERDATA, k);
}

int http_ask(const struct http_target *t, const struct http_request *q, struct http_reply *ret,
             struct error *err)
{
	cleanup_transfer struct transfer x = { 0 };
	struct taking k = { .reply = ret };
	struct curl_slist *headers;
	CURLcode c = CURLE_OK;
	long status = 0;
	int r;

	*ret = HTTP_REPLY_INIT;
	r = transfer_init(&x, t, q->path, err);
	if (r < 0)
		return r;
	headers = headers_of(x.lib, q);
	(void)x.lib->setopt(x.curl, CURLOPT_HTTPHEADER, headers);
	set_request(&x, q, &k);
	for (int i = 0; i < TRIES; i++) {
		if (i > 0)
			clock_sleep_ns(TRY_AGAIN_NS);
		c = x.lib->perform(x.curl);
		if (c != CURLE_COULDNT_CONNECT && c != CURLE_COULDNT_RESOLVE_HOST)
			break;
	}
	free_headers(x.lib, headers);
	if (c == CURLE_OK)
		(void)x.lib->getinfo(x.curl, CURLINFO_RESPONSE_CODE, &status);
	ret->status = (int)status;
	return c == CURLE_OK ? 0 : transfer_failed(&x, t, c, err);
}

int http_call(const struct http_target *t, const struct http_request *q, struct http_reply *ret,
              struct error *err)
{
	int r = http_ask(t, q, ret, err);

	if (r == 0 && (ret->status < 200 || ret->status > 299))
		r = http_problem(t, ret->status, ret->body, ret->len, err);
	return r;
}
