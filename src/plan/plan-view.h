/* SPDX-License-Identifier: Apache-2.0 */
/* What a command sees where, collected from the participants of its plan. */
#ifndef PLAN_PLAN_VIEW_H
#define PLAN_PLAN_VIEW_H

#include "exec/exec.h"
#include "plan/plan-op.h"
#include "util/list.h"

struct views {
	struct exec_view *v;
	size_t n, cap;
	struct strlist all;    /* owns the strings */
	struct strlist env;    /* NAME=VALUE, of the command */
	struct strlist listen; /* in its own network: exec/request.h */
	bool own_net;          /* it has one; to be set first */
	struct strlist shown;  /* where each resource is seen, "": nowhere */
	bool overlay;          /* cannot do without namespaces */
	const char *from, *to; /* what is shown elsewhere, and where; or NULL */
};
#define VIEWS_INIT ((struct views){ 0 })
void views_done(struct views *v);
#define cleanup_views __attribute__((__cleanup__(views_done)))

/* Adds what PART shows; CTX is the struct views. */
int views_give(struct atoll_participant *part, void *ctx, struct error *err);
/* One more; its strings are copied. */
int views_add(struct views *v, const struct exec_view *view);
/* What is shown at FROM and below is shown at TO and below; FROM itself is hidden. */
int views_move(struct views *v, const char *from, const char *to);
/* Where the command sees PATH of the host, and the other way round; the caller frees. */
char *views_seen(const struct views *v, const char *path);
char *views_meant(const struct views *v, const char *seen);
/* The plan's own /tmp or /var/tmp, as which it is given, made where it is not there yet. Empty at first, kept with
 * the first resource, and freed with that. Caller frees. */
int views_tmp(const struct plan_op *op, const char *path, char **ret, struct error *err);
/* Where PATH, below one of them, is in the area of the first resource; NULL: it is below none. Caller frees. */
char *views_in_tmp(const char *path);

#endif
