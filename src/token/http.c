/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transport by libcurl, which is opened with the first request, so that nobody pays who makes none.
 * One connection for each request: they are minutes apart.
 */
#include "token/cache-impl.h"

#include "util/cleanup.h"
#include "util/clock.h"
#include "util/library.h"
#include "util/mem.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define LIBRARY      "libcurl.so.4"
#define TRIES        2 /* of connecting; what was sent is never sent again */
#define TRY_AGAIN_NS INT64_C(50000000)
#define CONNECT_MS   5000L

static struct {
	pthread_once_t once;
	bool is_there;
	CURLcode (*global_init)(long flags);
	CURL *(*init)(void);
	CURLcode (*setopt)(CURL *curl, CURLoption option, ...);
	CURLcode (*perform)(CURL *curl);
	CURLcode (*getinfo)(CURL *curl, CURLINFO info, ...);
	void (*cleanup)(CURL *curl);
	struct curl_slist *(*append)(struct curl_slist *list, const char *text);
	void (*free_list)(struct curl_slist *list);
} lib = { .once = PTHREAD_ONCE_INIT };

static void open_library(void)
{
	void *h = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

	/* Never closed: threads may be in it until the process ends. */
	lib.is_there =
		h &&
		library_find(h, "curl_global_init", &lib.global_init, sizeof(lib.global_init)) &&
		library_find(h, "curl_easy_init", &lib.init, sizeof(lib.init)) &&
		library_find(h, "curl_easy_setopt", &lib.setopt, sizeof(lib.setopt)) &&
		library_find(h, "curl_easy_perform", &lib.perform, sizeof(lib.perform)) &&
		library_find(h, "curl_easy_getinfo", &lib.getinfo, sizeof(lib.getinfo)) &&
		library_find(h, "curl_easy_cleanup", &lib.cleanup, sizeof(lib.cleanup)) &&
		library_find(h, "curl_slist_append", &lib.append, sizeof(lib.append)) &&
		library_find(h, "curl_slist_free_all", &lib.free_list, sizeof(lib.free_list)) &&
		lib.global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
}

/* ---- where to ---- */

static bool is_this_machine(const char *host)
{
	static const char *const names[] = { "localhost", "127.", "[::1]" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		size_t n = strlen(names[i]);

		if (strncasecmp(host, names[i], n) == 0 &&
		    (i == 1 ? host[n + strspn(host + n, "0123456789.:")] == '\0' ||
		                      host[n + strspn(host + n, "0123456789.:")] == '/'
		            : host[n] == '\0' || host[n] == ':' || host[n] == '/'))
			return true;
	}
	return false;
}

int http_check_endpoint(const char *endpoint, bool by_socket, struct error *err)
{
	static const char secure[] = "https://", plain[] = "http://";

	if (strpbrk(endpoint, "@?# \"<>\\"))
		return error_set(err, -ATOLL_E_INVALID,
		                 "an endpoint is https://HOST[:PORT][/PATH] and nothing else");
	if (strncmp(endpoint, secure, strlen(secure)) == 0)
		return 0;
	if (strncmp(endpoint, plain, strlen(plain)) != 0)
		return error_set(err, -ATOLL_E_INVALID, "endpoint '%s' is not https://...",
		                 endpoint);
	if (by_socket || is_this_machine(endpoint + strlen(plain)))
		return 0;
	(void)error_set(err, -ATOLL_E_POLICY,
	                "endpoint '%s' would send the key for everybody to read", endpoint);
	error_hint(err, "use https://");
	return -ATOLL_E_POLICY;
}

/* ---- the answer ---- */

static size_t take_body(char *data, size_t size, size_t n, void *user)
{
	return atoll_token_reply_body(user, data, size * n) < 0 ? 0 : size * n;
}

static size_t take_header(char *data, size_t size, size_t n, void *user)
{
	static const char name[] = "retry-after:";
	size_t len = size * n;

	if (len > strlen(name) && len < 128 && strncasecmp(data, name, strlen(name)) == 0) {
		char value[128] = "";

		memcpy(value, data + strlen(name), len - strlen(name));
		value[strcspn(value, "\r\n")] = '\0';
		atoll_token_reply_retry_after(user, value);
	}
	return len;
}

static int stop_when_closing(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
	const struct atoll_tokens *t = user;

	(void)a, (void)b, (void)c, (void)d;
	return t->is_closing;
}

static const struct {
	CURLcode from;
	int to;
} codes[] = {
	{ CURLE_OK, 0 },
	{ CURLE_COULDNT_CONNECT, -ECONNREFUSED },
	{ CURLE_COULDNT_RESOLVE_HOST, -EHOSTUNREACH },
	{ CURLE_COULDNT_RESOLVE_PROXY, -EHOSTUNREACH },
	{ CURLE_OPERATION_TIMEDOUT, -ETIMEDOUT },
	{ CURLE_ABORTED_BY_CALLBACK, -ECANCELED },
	{ CURLE_WRITE_ERROR, -ATOLL_E_TOO_BIG },
	{ CURLE_PEER_FAILED_VERIFICATION, -EKEYREJECTED },
	{ CURLE_OUT_OF_MEMORY, -ENOMEM },
};

static int code_of(CURLcode c)
{
	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		if (codes[i].from == c)
			return codes[i].to;
	}
	return -EPROTO;
}

/* ---- the request ---- */

static struct curl_slist *headers_of(const struct atoll_token_request *request)
{
	struct curl_slist *list = lib.append(NULL, "Accept: application/json");
	char *line;

	if (!list || request->key[0] == '\0')
		return list;
	line = xasprintf("Authorization: Bearer %s", request->key);
	(void)lib.append(list, line);
	wipe_free(line, strlen(line));
	return list;
}

static void free_headers(struct curl_slist *list)
{
	for (struct curl_slist *l = list; l; l = l->next)
		explicit_bzero(l->data, strlen(l->data));
	lib.free_list(list);
}

static void set_options(CURL *curl, const struct atoll_tokens *t,
                        const struct atoll_token_request *request, struct curl_slist *headers,
                        struct atoll_token_reply *reply)
{
	(void)lib.setopt(curl, CURLOPT_URL, request->url);
	(void)lib.setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
	(void)lib.setopt(curl, CURLOPT_PATH_AS_IS, 1L);
	(void)lib.setopt(curl, CURLOPT_NOSIGNAL, 1L);
	(void)lib.setopt(curl, CURLOPT_POST, 1L);
	(void)lib.setopt(curl, CURLOPT_POSTFIELDS, "");
	(void)lib.setopt(curl, CURLOPT_HTTPHEADER, headers);
	(void)lib.setopt(curl, CURLOPT_TIMEOUT_MS, (long)request->timeout_ms);
	(void)lib.setopt(curl, CURLOPT_CONNECTTIMEOUT_MS,
	                 request->timeout_ms < CONNECT_MS ? (long)request->timeout_ms : CONNECT_MS);
	(void)lib.setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
	(void)lib.setopt(curl, CURLOPT_WRITEDATA, reply);
	(void)lib.setopt(curl, CURLOPT_HEADERFUNCTION, take_header);
	(void)lib.setopt(curl, CURLOPT_HEADERDATA, reply);
	(void)lib.setopt(curl, CURLOPT_XFERINFOFUNCTION, stop_when_closing);
	(void)lib.setopt(curl, CURLOPT_XFERINFODATA, t);
	(void)lib.setopt(curl, CURLOPT_NOPROGRESS, 0L);
	if (t->unix_socket)
		(void)lib.setopt(curl, CURLOPT_UNIX_SOCKET_PATH, t->unix_socket);
	/* What stays on this machine goes through nobody's proxy. */
	if (strncmp(request->url, "http:", 5) == 0)
		(void)lib.setopt(curl, CURLOPT_PROXY, "");
}

int http_send(const struct atoll_tokens *t, const struct atoll_token_request *request,
              struct atoll_token_reply *reply)
{
	struct curl_slist *headers;
	long status = 0;
	CURL *curl;
	CURLcode c = CURLE_OUT_OF_MEMORY;

	(void)pthread_once(&lib.once, open_library);
	if (!lib.is_there)
		return -ATOLL_E_UNSUPPORTED;
	curl = lib.init();
	if (!curl)
		return -ENOMEM;
	headers = headers_of(request);
	set_options(curl, t, request, headers, reply);
	for (int i = 0; i < TRIES; i++) {
		if (i > 0)
			clock_sleep_ns(TRY_AGAIN_NS);
		c = lib.perform(curl);
		if (c != CURLE_COULDNT_CONNECT && c != CURLE_COULDNT_RESOLVE_HOST)
			break;
	}
	if (c == CURLE_OK)
		c = lib.getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
	atoll_token_reply_status(reply, (int)status);
	lib.cleanup(curl);
	free_headers(headers);
	return code_of(c);
}
