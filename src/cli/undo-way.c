/* SPDX-License-Identifier: Apache-2.0 */
/* What undo and redo have in common: which commit is meant, and where else it was. */
#include "cli/undo-way.h"

#include <errno.h>
#include <stdlib.h>

#include "cli/names.h"
#include "cli/plan-words.h"
#include "cli/which.h"
#include "plan/here.h"
#include "util/cleanup.h"
#include "util/escape.h"
#include "util/list.h"
#include "util/mem.h"
#include "util/strbuf.h"

static bool names_paths(const struct cli *c)
{
	return args_has(&c->args, "ours") || args_has(&c->args, "keep-theirs");
}

int undo_way_check(struct cli *c)
{
	if (!names_paths(c) && c->args.n_words > 1)
		return cli_fail_usage(c, "%s: unexpected argument '%s'", c->command->name,
		                      c->args.words[1]);
	return 0;
}

int undo_way_find(struct cli *c, enum undo_way way)
{
	cleanup_free char *here = NULL;
	struct error err = ERROR_INIT;
	int status, r;

	if (!names_paths(c) && c->args.n_words > 0) {
		r = atoll_plan_find(c->atoll, c->args.words[0], &c->plan, c->res);
		return r < 0 ? cli_fail(c, r) : 0;
	}
	if (c->args.n_words > 0) {
		status = which_plan_word(c);
		if (status || c->plan)
			return status;
	}
	here = realpath(".", NULL);
	if (!here) {
		(void)here_failed(-errno, &err);
		error_hint(&err, "cd to a directory that is there, or name the plan: atoll %s PLAN",
		           c->command->name);
		return cli_fail_error(c, &err);
	}
	r = plan_undo_next(c->atoll, here, way, &c->plan, &err);
	return r < 0 ? cli_fail_error(c, &err) : 0;
}

int undo_way_sides(struct cli *c, struct undo_way_sides *ret)
{
	cleanup_names_lookup struct names_lookup look = { .c = c, .may_be_gone = true };
	bool leaves = args_has(&c->args, "keep-theirs");
	struct error err = ERROR_INIT;
	int r = 0;

	if (leaves || args_has(&c->args, "ours"))
		r = names_resolve(&look, c->args.words, c->args.n_words,
		                  leaves ? &ret->theirs : &ret->ours, &err);
	if (r >= 0)
		r = names_of_option(&look, "ours", &ret->ours, &err);
	if (r < 0)
		return cli_fail_error(c, &err);
	ret->our_paths = names_array(&ret->ours);
	ret->their_paths = names_array(&ret->theirs);
	return 0;
}

void undo_way_sides_done(struct undo_way_sides *s)
{
	strlist_done(&s->ours);
	strlist_done(&s->theirs);
	free(s->our_paths);
	free(s->their_paths);
}

/* NULL where the current directory is not known, which holds nothing then. */
static bool holds(const struct atoll_participant_result *p, const char *here)
{
	return here && plan_undo_holds(p->root, here);
}

static char *shown_path(const char *path)
{
	cleanup_free char *text = plan_short_path(path);

	return escape_dup(text);
}

char *undo_way_also(const struct cli *c, enum atoll_outcome outcome)
{
	cleanup_free char *here = realpath(".", NULL);
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;
	cleanup_strlist struct strlist roots = STRLIST_INIT;
	bool any_holds = false;

	for (size_t i = 0; i < atoll_result_participants(c->res); i++)
		any_holds |= holds(atoll_result_participant(c->res, i), here);
	for (size_t i = 0; i < atoll_result_participants(c->res); i++) {
		const struct atoll_participant_result *p = atoll_result_participant(c->res, i);

		if (p->outcome == outcome && !holds(p, here))
			strlist_add(&roots, p->root);
	}
	strlist_sort(&roots);
	for (size_t i = 0; i < roots.n; i++) {
		cleanup_free char *root = shown_path(roots.v[i]);

		strbuf_printf(&sb, "%s%s", i ? ", " : any_holds ? "; also in " : ": ", root);
	}
	return xstrdup(strbuf_str(&sb));
}
