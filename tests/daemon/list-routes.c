/* SPDX-License-Identifier: Apache-2.0 */
/* Every route of the daemon's tables: method, path, and the scopes that may, or "open". */
#include "daemon/route.h"

#include "auth/credential.h"

#include <stdio.h>

int main(void)
{
	const struct route *r;

	for (size_t i = 0; (r = route_at(i)); i++) {
		(void)printf("%s %s", r->method, r->path);
		for (int s = 0; s < SCOPE_END_ && !(r->flags & ROUTE_OPEN); s++)
			if (s == SCOPE_ADMIN || r->scopes & (1u << s))
				(void)printf(" %s", scope_name((enum scope)s));
		(void)printf("%s\n", r->flags & ROUTE_OPEN ? " open" : "");
	}
	return 0;
}
