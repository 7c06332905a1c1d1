/* SPDX-License-Identifier: Apache-2.0 */
/* Asks for a commit, and their ends. */
#include "plan/ask.h"

#include <stdio.h>
#include <string.h>

#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"

const char *ask_state_name(enum ask_state s)
{
	static const char *const names[] = {
		[ASK_OPEN] = "open",       [ASK_WITHDRAWN] = "withdrawn",
		[ASK_CHANGED] = "changed", [ASK_DECLINED] = "declined",
		[ASK_DECIDED] = "decided",
	};
	_Static_assert(sizeof(names) / sizeof(names[0]) == ASK_STATE_END_, "every state has one");

	return s < ASK_STATE_END_ ? names[s] : "unknown";
}

struct asking {
	struct ask_row *row;
	struct request_row *request;
};

static int write_ask(struct registry *reg, void *ctx, struct error *err)
{
	const struct asking *q = ctx;
	cleanup_free char *text = xasprintf("%s: %s", q->row->who, q->row->message);
	int r = registry_ask_insert(reg, q->row, err);

	if (r == 0)
		r = registry_event_add(reg, q->row->plan, "ask", 0, text, err);
	if (r < 0 || !q->request)
		return r;
	(void)snprintf(q->request->name, sizeof(q->request->name), "%lld", (long long)q->row->id);
	q->request->made = true;
	return registry_request_insert(reg, q->request, err);
}

int plan_ask(struct atoll_plan *p, struct ask_row *row, struct request_row *request,
             struct error *err)
{
	struct asking q = { row, request };

	memcpy(row->plan, p->id, sizeof(row->plan));
	row->at_ms = clock_real_ms();
	return store_write(p->a, REGISTRY_DURABLE, write_ask, &q, err);
}

int plan_ask_list(struct atoll *a, const char *plan_id, bool open_only, registry_ask_fn fn,
                  void *user, struct error *err)
{
	return registry_ask_list(a->reg, plan_id, open_only, fn, user, err);
}

struct ending {
	const char *plan;
	int64_t id;
	enum ask_state to;
	const char *by;
	int n;
};

static int write_end(struct registry *reg, void *ctx, struct error *err)
{
	struct ending *e = ctx;
	cleanup_free char *text = xasprintf("%s by %s", ask_state_name(e->to), e->by);
	int r = registry_ask_end(reg, e->plan, e->id, e->to, e->by, err);

	e->n = r;
	if (r > 0 && e->to != ASK_CHANGED)
		r = registry_event_add(reg, e->plan, "ask", 0, text, err);
	return r < 0 ? r : 0;
}

int plan_ask_end(struct atoll_plan *p, int64_t id, enum ask_state to, const char *by,
                 struct error *err)
{
	struct ending e = { .plan = p->id, .id = id, .to = to, .by = by };
	int r = store_write(p->a, REGISTRY_DURABLE, write_end, &e, err);

	return r < 0 ? r : e.n;
}
