/* SPDX-License-Identifier: Apache-2.0 */
/* Opening libcurl, and what its codes are here. */
#include "token/curl.h"

#include "util/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <strings.h>

#define LIBRARY "libcurl.so.4"

static struct {
	pthread_once_t once;
	bool is_there;
	struct curl_library f;
} lib = { .once = PTHREAD_ONCE_INIT };

static void open_library(void)
{
	const struct {
		const char *name;
		void *to;
		size_t size;
	} wanted[] = {
		{ "curl_global_init", &lib.f.global_init, sizeof(lib.f.global_init) },
		{ "curl_easy_init", &lib.f.init, sizeof(lib.f.init) },
		{ "curl_easy_setopt", &lib.f.setopt, sizeof(lib.f.setopt) },
		{ "curl_easy_perform", &lib.f.perform, sizeof(lib.f.perform) },
		{ "curl_easy_getinfo", &lib.f.getinfo, sizeof(lib.f.getinfo) },
		{ "curl_easy_send", &lib.f.send, sizeof(lib.f.send) },
		{ "curl_easy_recv", &lib.f.recv, sizeof(lib.f.recv) },
		{ "curl_easy_cleanup", &lib.f.cleanup, sizeof(lib.f.cleanup) },
		{ "curl_slist_append", &lib.f.append, sizeof(lib.f.append) },
		{ "curl_slist_free_all", &lib.f.free_list, sizeof(lib.f.free_list) },
	};
	void *h = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

	lib.is_there = h != NULL;
	for (size_t i = 0; lib.is_there && i < sizeof(wanted) / sizeof(wanted[0]); i++)
		lib.is_there = library_find(h, wanted[i].name, wanted[i].to, wanted[i].size);
	if (lib.is_there)
		lib.is_there = lib.f.global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
}

const struct curl_library *curl_library(void)
{
	(void)pthread_once(&lib.once, open_library);
	return lib.is_there ? &lib.f : NULL;
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
	{ CURLE_AGAIN, -EAGAIN },
};

int curl_code(CURLcode c)
{
	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		if (codes[i].from == c)
			return codes[i].to;
	}
	return -EPROTO;
}

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

int curl_check_endpoint(const char *endpoint, bool by_socket, struct error *err)
{
	static const char secure[] = "https://", plain[] = "http://";

	if (strpbrk(endpoint, "@?# \"<>\\"))
		return error_set(err, -ATOLL_E_INVALID,
		                 "an endpoint is https://HOST[:PORT][/PATH] and nothing else");
	if (strncmp(endpoint, secure, strlen(secure)) == 0)
		return 0;
	if (strncmp(endpoint, plain, strlen(plain)) != 0)
		return error_set(
			err, -ATOLL_E_INVALID,
			"endpoint '%s' is not https://HOST[:PORT], nor http:// of this machine",
			endpoint);
	if (by_socket || is_this_machine(endpoint + strlen(plain)))
		return 0;
	(void)error_set(err, -ATOLL_E_POLICY,
	                "endpoint '%s' would send the key for everybody to read", endpoint);
	error_hint(err, "use https://");
	return -ATOLL_E_POLICY;
}
