/* SPDX-License-Identifier: Apache-2.0 */
/* Following a store: what atoll_events() and its descriptor do, and how an event looks in JSON. */
#ifndef PLAN_NEWS_H
#define PLAN_NEWS_H

#include "plan/plan.h"
#include "util/json.h"

int64_t news_tell(struct atoll *a, int64_t after, size_t limit, atoll_news_fn fn, void *user,
                  struct error *err);
/* The handle's, made with the first call. */
int news_fd(struct atoll *a, struct error *err);
/* 1: there is something after AFTER; 0: there was not in time. One thread of a handle at a time. */
int news_wait(struct atoll *a, int64_t after, int64_t timeout_ms, struct error *err);

/* An event as an object, by docs/schema/event.schema.json. */
void news_json(struct json *j, const struct atoll_news *n);

#endif
