/* SPDX-License-Identifier: Apache-2.0 */
/* The description of it all, for programs. */
#include "daemon/reply.h"
#include "daemon/route.h"

#include "daemon/openapi-text.h"

static int spec(struct call *c)
{
	return reply_static(c, 200, "application/json", (const char *)openapi_json,
	                    sizeof(openapi_json));
}

const struct route spec_routes[] = {
	{ "GET", "/openapi.json", MAY_ALL, ROUTE_OPEN, 0, spec },
	{ NULL, NULL, 0, 0, 0, NULL },
};
