/* SPDX-License-Identifier: Apache-2.0 */
/* Asking what this host can do: only trying tells, and only the helper may try. */
#include "exec/exec.h"

#include "exec/exec-impl.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"

static int take_tier(const struct reply *reply, enum exec_tier *ret, struct error *err)
{
	switch ((enum reply_stage)reply->stage) {
	case REPLY_STARTED:
		*ret = EXEC_TIER_OVERLAY;
		return 0;
	case REPLY_VIEW:
		*ret = EXEC_TIER_BIND;
		return 0;
	case REPLY_NAMESPACE:
		*ret = EXEC_TIER_NONE;
		return 0;
	case REPLY_REQUEST:
	case REPLY_CHDIR:
	case REPLY_EXEC:
	case REPLY_JOIN:
	case REPLY_RUNNING:
	case REPLY_LOST:
	case REPLY_STAGE_END_:
		break;
	}
	return exec_reply_error(reply, -reply->error, "probe", err);
}

int exec_probe(const char *root, const char *area, enum exec_tier *ret, char **ret_why,
               struct error *err)
{
	const char *const argv[] = { "atoll-helper", "--probe", root, area, NULL };
	cleanup_channels struct channels ch = CHANNELS_INIT;
	struct child c = CHILD_INIT;
	struct reply reply = { 0 };
	int r;

	r = helper_spawn(&c, &ch, argv, NULL, err);
	if (r < 0)
		return r;
	r = helper_reply(&c, &ch, &reply, err);
	(void)child_wait(&c, CLOCK_NEVER, NULL);
	child_done(&c);
	if (r == 0)
		r = take_tier(&reply, ret, err);
	if (r == 0)
		*ret_why = *ret == EXEC_TIER_OVERLAY ? NULL : xstrdup(reply.text);
	return r;
}
