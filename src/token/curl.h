/* SPDX-License-Identifier: Apache-2.0 */
/* libcurl, opened with the first request of a process, so that nobody pays who makes none. */
#ifndef TOKEN_CURL_H
#define TOKEN_CURL_H

#include <stdbool.h>
#include <curl/curl.h>
#include "util/error.h"

struct curl_library {
	CURLcode (*global_init)(long flags);
	CURL *(*init)(void);
	CURLcode (*setopt)(CURL *curl, CURLoption option, ...);
	CURLcode (*perform)(CURL *curl);
	CURLcode (*getinfo)(CURL *curl, CURLINFO info, ...);
	CURLcode (*send)(CURL *curl, const void *data, size_t len, size_t *ret_n);
	CURLcode (*recv)(CURL *curl, void *data, size_t len, size_t *ret_n);
	void (*cleanup)(CURL *curl);
	struct curl_slist *(*append)(struct curl_slist *list, const char *text);
	void (*free_list)(struct curl_slist *list);
};

/* NULL: it is not installed. Never closed: threads may be in it until the process ends. */
const struct curl_library *curl_library(void);

/* A negative code for C: an errno, or -ATOLL_E_TOO_BIG when the one who took the data refused it. */
int curl_code(CURLcode c);

/* 0, or why ENDPOINT (http://, https://) may not be sent a key. */
int curl_check_endpoint(const char *endpoint, bool by_socket, struct error *err);

#endif
