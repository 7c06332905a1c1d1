/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/follow.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plan/news.h"
#include "util/clock.h"

#define AT_ONCE       256   /* events read in one go */
#define LOOK_EVERY_MS 10000 /* even if nobody says that there is something */

struct follow {
	struct cli *c;
	const char *plan; /* id, or NULL */
};

static void put_json(const struct atoll_news *n)
{
	struct json j;

	json_init(&j, stdout);
	news_json(&j, n);
	json_end(&j);
}

static void put_line(const struct cli *c, const struct atoll_news *n)
{
	const char *state = *n->sandbox ? atoll_sandbox_state_name(n->sandbox_state)
	                                : atoll_plan_state_name(n->state);
	char at[CLOCK_TEXT_LEN];

	clock_format(n->at_ms, at);
	(void)printf("%s%s%s  %-16s  %-10s  ", cli_paint(c, stdout, PAINT_DIM), at,
	             cli_paint(c, stdout, PAINT_NONE), *n->plan_name ? n->plan_name : n->plan_id,
	             n->what);
	if (n->code < 0)
		(void)printf("%s%s%s", cli_paint(c, stdout, PAINT_BAD), atoll_code_name(n->code),
		             cli_paint(c, stdout, PAINT_NONE));
	else if (*n->plan_id)
		(void)printf("%s%s%s", *n->sandbox ? n->sandbox : "", *n->sandbox ? " " : "",
		             state);
	if (*n->message) {
		(void)fputs(*n->plan_id ? ": " : "", stdout);
		cli_put_path(stdout, n->message);
	}
	(void)putchar('\n');
}

static int show(void *user, const struct atoll_news *n)
{
	const struct follow *f = user;

	if (f->plan && *n->plan_id && strcmp(f->plan, n->plan_id) != 0)
		return 0;
	if (f->c->json)
		put_json(n);
	else
		put_line(f->c, n);
	return 0;
}

/* False: whoever read it is gone. */
static bool wait_for_more(int fd)
{
	struct pollfd fds[] = { { .fd = fd, .events = POLLIN }, { .fd = STDOUT_FILENO } };

	(void)fflush(stdout);
	(void)poll(fds, 2, LOOK_EVERY_MS);
	return !(fds[1].revents & POLLERR) && !ferror(stdout);
}

static int follow(struct follow *f, int64_t after)
{
	struct cli *c = f->c;
	int fd = atoll_events_fd(c->atoll, c->res), r;

	if (fd < 0)
		return cli_fail(c, fd);
	after = after < 0 ? atoll_events(c->atoll, -1, 0, NULL, NULL, c->res) : after;
	if (after < 0)
		return cli_fail(c, (int)after);
	for (;;) {
		while ((r = atoll_events_wait(c->atoll, after, 0, c->res)) > 0) {
			after = atoll_events(c->atoll, after, AT_ONCE, show, f, c->res);
			if (after < 0)
				return cli_fail(c, (int)after);
		}
		if (r < 0)
			return cli_fail(c, r);
		if (!wait_for_more(fd))
			return EXIT_SUCCESS;
	}
}

int follow_run(struct cli *c, const char *plan, int64_t after)
{
	struct follow f = { .c = c };
	int r;

	if (plan) {
		r = atoll_plan_find(c->atoll, plan, &c->plan, c->res);
		if (r < 0)
			return cli_fail(c, r);
		f.plan = atoll_plan_id(c->plan);
	}
	return follow(&f, after);
}
