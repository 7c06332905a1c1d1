/* SPDX-License-Identifier: Apache-2.0 */
/* What a request and a connection of one's own share. */
#ifndef REMOTE_HTTP_IMPL_H
#define REMOTE_HTTP_IMPL_H

#include "remote/http.h"
#include "token/curl.h"

/* One transfer of libcurl's, with the words of its last failure. */
struct transfer {
	const struct curl_library *lib;
	CURL *curl;
	char words[CURL_ERROR_SIZE];
};
/* Where to, whom to trust, sockets that nobody inherits. The transfer must not move in memory. */
int transfer_init(struct transfer *x, const struct http_target *t, const char *path,
                  struct error *err);
void transfer_done(struct transfer *x);
#define cleanup_transfer __attribute__((__cleanup__(transfer_done)))
/* Why C happened, as -ATOLL_E_UNREACHABLE (or -ETIMEDOUT's cause, or -ATOLL_E_TOO_BIG). */
int transfer_failed(const struct transfer *x, const struct http_target *t, CURLcode c,
                    struct error *err);

/* "Authorization: Bearer ..."; for http_wipe_data(). */
char *http_bearer_line(const char *bearer);

#endif
