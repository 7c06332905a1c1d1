/* SPDX-License-Identifier: Apache-2.0 */
/* Output as it was kept, piece by piece. */
#include "daemon/output.h"

#include "daemon/daemon.h"
#include "daemon/feed.h"
#include "util/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct printing {
	struct stores *stores;
	struct output o;
	struct atoll_result *res;
};

static int put_piece(void *user, uint64_t at, const void *data, size_t len)
{
	(void)at;
	return fwrite(data, 1, len, user) == len ? 0 : -EPIPE;
}

static int write_output(void *arg, FILE *out)
{
	struct printing *p = arg;
	int64_t r = p->o.read(&p->o, put_piece, out, p->res);

	return r < 0 ? (int)r : 0;
}

static void output_failed(void *arg, struct call *c)
{
	struct printing *p = arg;
	struct atoll_result *res = c->res;

	c->res = p->res;
	p->res = res;
}

static void output_done(void *arg)
{
	struct printing *p = arg;

	atoll_plan_free(p->o.plan);
	atoll_result_free(p->res);
	if (p->o.atoll)
		stores_give(p->stores, p->o.atoll);
	free(p);
}

int output_reply(struct call *c, const struct atoll_plan *plan, const struct output *o)
{
	struct printing *p = xcalloc(1, sizeof(*p));
	struct feed_source source = { .type = "application/octet-stream",
		                      .write = write_output,
		                      .failed = output_failed,
		                      .done = output_done,
		                      .arg = p };
	int r;

	p->stores = c->d->stores;
	p->o = *o;
	p->res = atoll_result_new();
	r = stores_take(p->stores, c->d->options.wait_ms, &p->o.atoll, &c->err);
	if (r == 0)
		r = atoll_plan_find(p->o.atoll, atoll_plan_id(plan), &p->o.plan, c->res);
	if (r < 0) {
		output_done(p);
		return r;
	}
	return feed_reply(c, &source);
}
