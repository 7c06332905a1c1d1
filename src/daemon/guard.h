/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a request must look like before anything else looks at it. libmicrohttpd takes more than the
 * standard allows, and two readers of one request who disagree are how requests are smuggled; so
 * whatever could be read in two ways is refused, and the connection closed (docs/design/daemon.md).
 */
#ifndef DAEMON_GUARD_H
#define DAEMON_GUARD_H

#include <stddef.h>
#include <stdint.h>
#include "util/error.h"
#include "util/list.h"

struct call;
struct MHD_OptionItem;

#define GUARD_HEADERS_MAX      64          /* fields of a head */
#define GUARD_HEAD_MAX         (16u << 10) /* bytes of one */
#define GUARD_TARGET_MAX       (8u << 10)  /* bytes of a request target */
#define GUARD_CONNECTION_BYTES (32u << 10) /* memory for a connection; cleared after each request */

struct guard {
	struct strlist hosts; /* names for Host, without port; of a Unix socket any name will do */
	struct strlist origins; /* that may be in Origin; none at first */
};

struct guard_head {
	uint64_t length; /* of the body; 0: none */
};

/* For MHD_OPTION_ARRAY: what the library must refuse by itself, since the guard cannot see it. */
struct MHD_OptionItem *guard_options(void);
/* Looks at the head of C, whose method and VERSION are as the library has them. 0 and *ret: path and
 * query of C are set. Else the HTTP status to refuse with, and the reason in ERR. */
int guard_check(const struct guard *g, struct call *c, const char *version, struct guard_head *ret,
                struct error *err);

#endif
