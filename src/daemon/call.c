/* SPDX-License-Identifier: Apache-2.0 */
/* What a handler may ask of its request. */
#include "daemon/call.h"

#include "daemon/audit.h"
#include "daemon/ceiling.h"
#include "daemon/daemon.h"
#include "plan/plan.h"
#include "util/cleanup.h"
#include "util/uri.h"

#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>

const char *call_header(const struct call *c, const char *name)
{
	return MHD_lookup_connection_value(c->connection, MHD_HEADER_KIND, name);
}

int call_fd(const struct call *c)
{
	return c->peer->fd;
}

int call_stop_fd(const struct call *c)
{
	return c->d->stop_fd;
}

/* Is the LEN bytes at PAIR "NAME=value" or "NAME"? Where the value begins. */
static const char *value_of(const char *pair, size_t len, const char *name)
{
	size_t name_len = strlen(name);

	if (len < name_len || memcmp(pair, name, name_len) != 0)
		return NULL;
	if (len == name_len)
		return pair + len;
	return pair[name_len] == '=' ? pair + name_len + 1 : NULL;
}

int call_query(struct call *c, const char *name, char **ret)
{
	cleanup_free char *found = NULL;

	for (const char *p = c->query; p && *p;) {
		size_t len = strcspn(p, "&");
		const char *value = value_of(p, len, name);

		if (value && found)
			return error_set(&c->err, -ATOLL_E_INVALID, "'%s' is given twice", name);
		if (value) {
			found = uri_decode(value, (size_t)(p + len - value));
			if (!found)
				return error_set(&c->err, -ATOLL_E_INVALID,
				                 "the value of '%s' is not well encoded", name);
		}
		p += len;
		p += *p == '&';
	}
	*ret = take_ptr(found);
	return 0;
}

int call_store(struct call *c)
{
	cleanup_free char *text = NULL;
	int64_t wait_ms = c->d->options.wait_ms;
	int r;

	if (c->atoll)
		return 0;
	r = call_query(c, "wait", &text);
	if (r < 0)
		return r;
	if (text) {
		char *end;
		double s = strtod(text, &end);

		if (end == text || *end || !(s >= 0))
			return error_set(&c->err, -ATOLL_E_INVALID,
			                 "'wait' is no number of seconds");
		wait_ms = s * 1000 < (double)c->d->options.wait_max_ms ? (int64_t)(s * 1000)
		                                                       : c->d->options.wait_max_ms;
	}
	c->res = atoll_result_new();
	r = stores_take(c->d->stores, wait_ms, &c->atoll, &c->err);
	if (r < 0)
		return r;
	audit_decisions(c);
	if (c->who.scope == SCOPE_AGENT)
		store_set_resource(c->atoll, ceiling_resource, c->d);
	return 0;
}

int call_plan(struct call *c, size_t i, struct atoll_plan **ret)
{
	const char *ref = c->args[i];
	int r = atoll_plan_find(c->atoll, ref, ret, c->res);

	if (r < 0 || strcmp(ref, atoll_plan_id(*ret)) == 0 ||
	    strcmp(ref, atoll_plan_name(*ret)) == 0)
		return r;
	(void)error_set(&c->err, -ATOLL_E_NOT_FOUND, "there is no plan '%s'", ref);
	error_hint(&c->err, "name the plan in full, by its id or its name");
	atoll_plan_free(*ret);
	*ret = NULL;
	return -ATOLL_E_NOT_FOUND;
}
