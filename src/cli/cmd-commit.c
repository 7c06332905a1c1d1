/* SPDX-License-Identifier: Apache-2.0 */
/* atoll commit: every resource of the plan gets its changes, or none does. */
#include "cli/decide.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/names.h"
#include "cli/there.h"
#include "util/cleanup.h"
#include "util/mem.h"
#include "util/strbuf.h"

static const struct decide_flag flag_table[] = {
	{ "allow", "special", ATOLL_ALLOW_SPECIAL },
	{ "allow", "setuid", ATOLL_ALLOW_SETUID },
	{ "allow", "partial", ATOLL_ALLOW_PARTIAL },
	{ "allow", "git-programs", ATOLL_ALLOW_GIT_PROGRAMS },
	{ "allow", "open-database", ATOLL_ALLOW_OPEN_DATABASE },
	{ "deny", "escaping-links", ATOLL_DENY_ESCAPING_LINKS },
	{ "no-undo", NULL, ATOLL_NO_UNDO },
	{ "dry-run", NULL, ATOLL_DRY_RUN },
	{ "ff-only", NULL, ATOLL_FF_ONLY },
	{ NULL, NULL, 0 },
};

/* Changes of participants that were ready, which a dry run then let go. */
static size_t count_ready(const struct cli *c, uint64_t *ret_changes)
{
	size_t n = 0;

	*ret_changes = 0;
	for (size_t i = 0; i < atoll_result_participants(c->res); i++) {
		const struct atoll_participant_result *p = atoll_result_participant(c->res, i);

		*ret_changes += p->changes;
		n += p->changes > 0;
	}
	return n;
}

static void put_ready(const struct cli *c)
{
	for (size_t i = 0; i < atoll_result_participants(c->res); i++) {
		const struct atoll_participant_result *p = atoll_result_participant(c->res, i);

		if (p->changes > 0)
			cli_say(c, "  %s (%s): %" PRIu64 " %s%s", p->root, p->strategy, p->changes,
			        cli_plural(p->changes, "change", "changes"),
			        p->final ? ", cannot be undone" : "");
	}
}

/* Some of the plan's changes were not asked for. */
static bool leaves_work(const struct cli *c)
{
	for (size_t i = 0; i < atoll_result_participants(c->res); i++) {
		const struct atoll_participant_result *p = atoll_result_participant(c->res, i);

		if (p->outcome == ATOLL_OUTCOME_COMMITTED && p->state == ATOLL_SANDBOX_ACTIVE)
			return true;
	}
	return false;
}

static bool is_part(const struct cli *c)
{
	size_t at = 0;

	return c->args.n_words > 0 || args_next(&c->args, "exclude", &at);
}

static void say_what(const struct cli *c, unsigned flags)
{
	const char *name = atoll_plan_name(c->plan);
	bool dry = flags & ATOLL_DRY_RUN;
	uint64_t n_changes;
	size_t n = dry ? count_ready(c, &n_changes)
	               : decide_count(c, ATOLL_OUTCOME_COMMITTED, &n_changes);
	const char *changes = cli_plural(n_changes, "change", "changes");
	const char *dirs = decide_noun(c, n);
	cleanup_free char *undo = decide_undo_words(c, flags);

	if (n == 0)
		cli_say(c, "%s: %s", name,
		        c->args.n_words > 0 ? "nothing changed there" : "no changes");
	else if (dry)
		cli_say(c, "%s can be committed: %" PRIu64 " %s in %zu %s", name, n_changes,
		        changes, n, dirs);
	else
		cli_say(c, "committed %s: %" PRIu64 " %s in %zu %s; %s", name, n_changes, changes,
		        n, dirs, undo);
	if (dry && n > 0)
		put_ready(c);
	if (leaves_work(c))
		cli_say(c, "the other changes stay in the plan");
	if (atoll_result_atomicity(c->res) == ATOLL_ATOMICITY_NONE)
		cli_say(c, "not every part of it could have been taken back (--allow partial)");
}

static void say_next(const struct cli *c, unsigned flags)
{
	const char *name = atoll_plan_name(c->plan);

	/* Not the bare command: that would commit what was left out here. */
	if (flags & ATOLL_DRY_RUN && is_part(c))
		cli_next(c, "the same without --dry-run");
	else if (flags & ATOLL_DRY_RUN)
		cli_next(c, "atoll commit %s", name);
	else if (is_part(c) || leaves_work(c))
		cli_next(c, "atoll diff %s shows what is left", name);
	else
		cli_next(c, "atoll rm %s when it is no longer needed", name);
}

/* The values of option NAME, as a list that ends with NULL. */
static const char **values_of(const struct cli *c, const char *name)
{
	const char **v = xcalloc(c->args.n_given + 1, sizeof(*v));
	const char *value;
	size_t at = 0, n = 0;

	while ((value = args_next(&c->args, name, &at)))
		v[n++] = value;
	return v;
}

/* --retain, as struct atoll_commit has it: 0 is as the settings say. */
static int read_retain(struct cli *c, unsigned flags, int64_t *ret)
{
	const char *text = args_value(&c->args, "retain");
	struct error err = ERROR_INIT;

	*ret = 0;
	if (!text)
		return 0;
	if (flags & ATOLL_NO_UNDO)
		return cli_fail_usage(c, "commit: --retain and --no-undo exclude each other");
	if (setting_parse(SETTING_UNDO_RETENTION, text, ret, NULL) < 0) {
		(void)error_set(
			&err, -ATOLL_E_INVALID,
			"option '--retain': '%s' is not a time, such as 15m, 24h or 7d, or never",
			text);
		error_hint(&err, "atoll commit%s%s --retain 24h", c->args.n_words ? " " : "",
		           c->args.n_words ? c->args.words[0] : "");
		return cli_fail_error(c, &err);
	}
	if (*ret == 0)
		*ret = 1; /* as good as not at all */
	return 0;
}

/* What a failure proposes, for the part alone that was asked for: the bare command would commit the rest, too. The
 * caller frees. */
static char *narrow_hint(const struct cli *c)
{
	cleanup_free char *bare = xasprintf("atoll commit %s", atoll_plan_name(c->plan));
	cleanup_free char *whole = decide_commit_words(c);
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;
	const char *hint = atoll_result_hint(c->res), *found;

	while ((found = strstr(hint, bare))) {
		const char *rest = found + strlen(bare);
		bool is_bare = !*rest || strchr(",;", *rest) || strncmp(rest, " --", 3) == 0;

		strbuf_printf(&sb, "%.*s%s", (int)(found - hint), hint, is_bare ? whole : bare);
		hint = rest;
	}
	strbuf_puts(&sb, hint);
	return strbuf_take(&sb);
}

static int fail_commit(struct cli *c, int r)
{
	cleanup_free char *hint = is_part(c) ? narrow_hint(c) : NULL;

	return hint ? cli_fail_hint(c, r, hint) : cli_fail(c, r);
}

static int commit_plan(struct cli *c, unsigned flags, int64_t retain_ms)
{
	cleanup_names_lookup struct names_lookup look = NAMES_LOOKUP_INIT(c);
	cleanup_strlist struct strlist named = STRLIST_INIT, ours = STRLIST_INIT,
				       theirs = STRLIST_INIT;
	cleanup_free const char **paths = NULL, **our_paths = NULL, **their_paths = NULL;
	cleanup_free const char **excludes = values_of(c, "exclude");
	struct atoll_commit commit = { .flags = flags,
		                       .excludes = excludes,
		                       .retain_ms = retain_ms,
		                       .digest = args_value(&c->args, "if-digest") };
	struct error err = ERROR_INIT;
	int r = names_resolve(&look, c->args.words, c->args.n_words, &named, &err);

	if (r >= 0)
		r = names_of_option(&look, "ours", &ours, &err);
	if (r >= 0)
		r = names_of_option(&look, "theirs", &theirs, &err);
	if (r < 0)
		return cli_fail_error(c, &err);
	commit.paths = paths = names_array(&named);
	commit.ours = our_paths = names_array(&ours);
	commit.theirs = their_paths = names_array(&theirs);
	r = atoll_plan_commit_with(c->plan, &commit, c->res);
	return r < 0 ? fail_commit(c, r) : 0;
}

static int commit_json(const struct cli *c, unsigned flags)
{
	struct json j;

	cli_json_begin(c, &j);
	answer_committed(&j, c->plan, flags, c->res);
	cli_json_end(&j);
	return EXIT_SUCCESS;
}

static int commit_run(struct cli *c)
{
	unsigned flags;
	int64_t retain_ms = 0;
	int status;

	status = decide_flags(c, flag_table, &flags);
	if (status == 0)
		status = read_retain(c, flags, &retain_ms);
	if (status == 0)
		status = cli_open_plan_settled(c);
	if (status == 0)
		status = commit_plan(c, flags | cli_policy(c), retain_ms);
	if (status)
		return status;
	if (c->json)
		return commit_json(c, flags);
	say_what(c, flags);
	cli_notes(c);
	say_next(c, flags);
	return EXIT_SUCCESS;
}

static const struct option_row options[] = {
	{ "allow", "special|setuid|partial|git-programs|open-database",
	  "special: new devices, sockets, FIFOs; setuid: new set-id bits;\n"
	  "partial: resources that cannot be undone beside others;\n"
	  "git-programs: hooks and settings by which git runs programs;\n"
	  "open-database: replace SQLite files that a process has open" },
	{ "deny", "escaping-links", "refuse new links that leave their tree" },
	{ "exclude", "GLOB",
	  "leave out what matches: a name anywhere, or, with a slash in it, a\n"
	  "path from a resource's root on; ** is any number of directories" },
	{ "ours", "PATH", "settle conflicts at or below it for the plan's version" },
	{ "theirs", "PATH", "settle them for what is there now" },
	{ "retain", "TIME",
	  "how long it can be undone: 90s, 15m, 24h, 7d; never: until stop ends it\n"
	  "(default: undo.retention)" },
	{ "if-digest", "DIGEST", "only if it still is what atoll diff --digest said" },
	{ "ff-only", NULL, "merge no git branch that somebody else moved, too" },
	{ "no-undo", NULL, "keep nothing to undo it with" },
	{ "dry-run", NULL, "say whether it would work, change nothing" },
	{ NULL, NULL, NULL },
};

const struct command cmd_commit = {
	.name = "commit",
	.run = commit_run,
	.decides = true,
	.also = "apply",
	.words = "[PLAN] [PATH]...",
	.everyday = true,
	.summary = "bring a plan's changes into its resources: all of them or none",
	.about =
		"With PATHs only what lies at or below them is committed, all of it or nothing; the rest\n"
		"stays in the plan, and more commits may follow.\n"
		"What somebody else changed meanwhile is not overwritten: exit 3 names the paths, and\n"
		"nothing is changed. A commit can be undone with undo as long as undo.retention\n"
		"says (atoll config), or --retain.",
	.options = options,
	.pick = PICK_AT_WORK,
	.paths_follow = true,
	.max_words = SIZE_MAX,
	.there = &there_commit,
};
