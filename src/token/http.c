/* SPDX-License-Identifier: Apache-2.0 */
/* The transport by libcurl. One connection for each request: they are minutes apart. */
#include "token/cache-impl.h"

#include "token/curl.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define TRIES        2 /* of connecting; what was sent is never sent again */
#define TRY_AGAIN_NS INT64_C(50000000)
#define CONNECT_MS   5000L

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

/* ---- the request ---- */

static struct curl_slist *headers_of(const struct curl_library *lib,
                                     const struct atoll_token_request *request)
{
	struct curl_slist *list = lib->append(NULL, "Accept: application/json");
	char *line;

	if (!list || request->key[0] == '\0')
		return list;
	line = xasprintf("Authorization: Bearer %s", request->key);
	(void)lib->append(list, line);
	wipe_free(line, strlen(line));
	return list;
}

static void free_headers(const struct curl_library *lib, struct curl_slist *list)
{
	for (struct curl_slist *l = list; l; l = l->next)
		explicit_bzero(l->data, strlen(l->data));
	lib->free_list(list);
}

static void set_options(const struct curl_library *lib, CURL *curl, const struct atoll_tokens *t,
                        const struct atoll_token_request *request, struct curl_slist *headers,
                        struct atoll_token_reply *reply)
{
	(void)lib->setopt(curl, CURLOPT_URL, request->url);
	(void)lib->setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
	(void)lib->setopt(curl, CURLOPT_PATH_AS_IS, 1L);
	(void)lib->setopt(curl, CURLOPT_NOSIGNAL, 1L);
	(void)lib->setopt(curl, CURLOPT_POST, 1L);
	(void)lib->setopt(curl, CURLOPT_POSTFIELDS, "");
	(void)lib->setopt(curl, CURLOPT_HTTPHEADER, headers);
	(void)lib->setopt(curl, CURLOPT_TIMEOUT_MS, (long)request->timeout_ms);
	(void)lib->setopt(curl, CURLOPT_CONNECTTIMEOUT_MS,
	                  request->timeout_ms < CONNECT_MS ? (long)request->timeout_ms
	                                                   : CONNECT_MS);
	(void)lib->setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
	(void)lib->setopt(curl, CURLOPT_WRITEDATA, reply);
	(void)lib->setopt(curl, CURLOPT_HEADERFUNCTION, take_header);
	(void)lib->setopt(curl, CURLOPT_HEADERDATA, reply);
	(void)lib->setopt(curl, CURLOPT_XFERINFOFUNCTION, stop_when_closing);
	(void)lib->setopt(curl, CURLOPT_XFERINFODATA, t);
	(void)lib->setopt(curl, CURLOPT_NOPROGRESS, 0L);
	if (t->unix_socket)
		(void)lib->setopt(curl, CURLOPT_UNIX_SOCKET_PATH, t->unix_socket);
	/* What stays on this machine goes through nobody's proxy. */
	if (strncmp(request->url, "http:", 5) == 0)
		(void)lib->setopt(curl, CURLOPT_PROXY, "");
}

int http_send(const struct atoll_tokens *t, const struct atoll_token_request *request,
              struct atoll_token_reply *reply)
{
	const struct curl_library *lib = curl_library();
	struct curl_slist *headers;
	long status = 0;
	CURL *curl;
	CURLcode c = CURLE_OUT_OF_MEMORY;

	if (!lib)
		return -ATOLL_E_UNSUPPORTED;
	curl = lib->init();
	if (!curl)
		return -ENOMEM;
	headers = headers_of(lib, request);
	set_options(lib, curl, t, request, headers, reply);
	for (int i = 0; i < TRIES; i++) {
		if (i > 0)
			clock_sleep_ns(TRY_AGAIN_NS);
		c = lib->perform(curl);
		if (c != CURLE_COULDNT_CONNECT && c != CURLE_COULDNT_RESOLVE_HOST)
			break;
	}
	if (c == CURLE_OK)
		c = lib->getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
	atoll_token_reply_status(reply, (int)status);
	lib->cleanup(curl);
	free_headers(lib, headers);
	return curl_code(c);
}
