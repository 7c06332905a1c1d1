/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the crash tests run and kill: `scenario BASE VERB...` does the verbs one after another on
 * plan "p" of the store BASE/store, through the public interface alone. Trees are made, edited
 * and compared by the Python that runs it.
 *
 *   start[=DIR:STRATEGY,...]  add=DIR[:STRATEGY[+store]]  path  exec[=SHELL COMMAND]  diff
 *   commit[=no-undo|dry-run|partial|part]  rollback[=keep-theirs|keep-work]  undo[=keep-theirs|sides]
 *   redo[=sides]
 *   refresh  reset
 *   stop[=force]  recover[=all]  purge
 *
 * `commit=part` takes of every tree the paths of $SCENARIO_PART, one per line, and of the others all;
 * without it everything. Conflicts at the paths of $SCENARIO_OURS and $SCENARIO_THEIRS it settles, and so do
 * `undo=sides` and `redo=sides`.
 * `path` prints "path ROOT WORKSPACE" for every resource of strategy copy or sqlite. The first verb that fails
 * ends it: the code's name goes to stderr, the exit status is the command's (atoll_code_exit).
 *
 * Strategy "value" swaps the content of the file `value` in its directory and can be told by
 * $SCENARIO_FAIL (prepare, commit or undo) to refuse for good, and by "conflict" to refuse to commit
 * because of somebody else; "late" is the same and comes after databases, "final" cannot go back. $SCENARIO_SYNC (1: syncfs,
 * 2: each) picks the barrier's way.
 */
#include <atoll.h>

#include "fs/sync.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PLAN          "p"
#define RESOURCES_MAX 4

struct run {
	const char *base;
	struct atoll *atoll;
	struct atoll_plan *plan;
	struct atoll_result *res;
};

/* ---- the strategy ---- */

static bool told_to_fail(const char *verb)
{
	const char *told = getenv("SCENARIO_FAIL");

	return told && strcmp(told, verb) == 0;
}

static int refuse(struct atoll_participant *p)
{
	return atoll_participant_fail(p, -EIO, "refuse", atoll_participant_root(p), EIO);
}

/* Replaces the file by one with TEXT, its times and its directory's fixed: a tree that went back
 * and forth cannot be told from one that did not. Repeatable. */
static int install(struct atoll_participant *p, const char *text, long when)
{
	const struct timespec file_times[2] = { { when, 1 }, { when, 2 } };
	const struct timespec dir_times[2] = { { 1000000003, 3 }, { 1000000003, 3 } };
	int area_fd = open(atoll_participant_area(p), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int root_fd = open(atoll_participant_root(p), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int fd = openat(area_fd, "value", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	ssize_t len = (ssize_t)strlen(text);
	int r = -EIO;

	if (fd >= 0 && write(fd, text, (size_t)len) == len && futimens(fd, file_times) == 0 &&
	    fsync(fd) == 0 && renameat(area_fd, "value", root_fd, "value") == 0 &&
	    futimens(root_fd, dir_times) == 0 && atoll_participant_sync(p, root_fd) == 0 &&
	    atoll_participant_sync(p, area_fd) == 0)
		r = 0;
	(void)close(fd);
	(void)close(root_fd);
	(void)close(area_fd);
	return r;
}

static bool is_new(struct atoll_participant *p)
{
	int root_fd = open(atoll_participant_root(p), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int fd = openat(root_fd, "value", O_RDONLY | O_CLOEXEC);
	char text[4] = "";
	bool same = fd >= 0 && read(fd, text, 3) == 3 && strcmp(text, "new") == 0;

	(void)close(fd);
	(void)close(root_fd);
	return same;
}

static int value_nothing(struct atoll_participant *p)
{
	(void)p;
	return 0;
}

static int value_prepare(struct atoll_participant *p)
{
	if (told_to_fail("prepare"))
		return refuse(p);
	atoll_participant_count(p, 1);
	return is_new(p) == atoll_participant_undoing(p) ? ATOLL_READY : ATOLL_NO_CHANGE;
}

static int value_commit(struct atoll_participant *p)
{
	if (told_to_fail("conflict"))
		return atoll_participant_fail(p, -ATOLL_E_CONFLICT, "commit",
		                              atoll_participant_root(p), 0);
	return told_to_fail("commit") ? refuse(p) : install(p, "new\n", 1000000002);
}

static int value_undo(struct atoll_participant *p)
{
	return told_to_fail("undo") ? refuse(p) : install(p, "old\n", 1000000001);
}

static const struct atoll_strategy value_strategy = {
	.api_version = ATOLL_STRATEGY_API_VERSION,
	.name = "value",
	.kind = "directory",
	.capabilities = ATOLL_CAP_PREPARE | ATOLL_CAP_UNDO,
	.create = value_nothing,
	.prepare = value_prepare,
	.check = value_nothing,
	.commit = value_commit,
	.abort = value_nothing,
	.undo = value_undo,
	.finish = value_nothing,
	.release = value_nothing,
	.reset = value_nothing,
	.remove = value_nothing,
};

static struct atoll_strategy late_strategy;  /* the same, committed after databases */
static struct atoll_strategy final_strategy; /* the same, and cannot go back */

/* ---- without undo: what was let go is not committed any more ---- */

#define LET_GO "let-go"

static int final_prepare(struct atoll_participant *p)
{
	int area_fd = open(atoll_participant_area(p), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = unlinkat(area_fd, LET_GO, 0) < 0 && errno != ENOENT ? -errno : 0;

	(void)close(area_fd);
	return r < 0 ? r : value_prepare(p);
}

static int final_commit(struct atoll_participant *p)
{
	int area_fd = open(atoll_participant_area(p), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool gone = faccessat(area_fd, LET_GO, F_OK, 0) == 0;

	(void)close(area_fd);
	return gone ? atoll_participant_fail(p, -ATOLL_E_CONFLICT, "commit what was let go,",
	                                     atoll_participant_root(p), 0)
	            : value_commit(p);
}

static int final_abort(struct atoll_participant *p)
{
	int area_fd, fd, r = 0;

	if (is_new(p))
		return atoll_participant_fail(p, -ATOLL_E_NOT_UNDOABLE, "take back",
		                              atoll_participant_root(p), 0);
	area_fd = open(atoll_participant_area(p), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fd = openat(area_fd, LET_GO, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || fsync(fd) < 0 || fsync(area_fd) < 0)
		r = -errno;
	(void)close(fd);
	(void)close(area_fd);
	return r;
}

/* ---- the verbs ---- */

/* "DIR[:STRATEGY[+store]]" as a resource, with `+store` its work in the store; *ret_root is to be freed. */
static int read_resource(const struct run *run, const char *arg, char **ret_root,
                         struct atoll_resource *ret)
{
	char *strategy, *store;

	if (asprintf(ret_root, "%s/%s", run->base, arg) < 0)
		return -ENOMEM;
	strategy = strrchr(*ret_root, ':');
	if (strategy)
		*strategy++ = '\0';
	store = strategy ? strstr(strategy, "+store") : NULL;
	if (store)
		*store = '\0';
	*ret = (struct atoll_resource){ .root = *ret_root,
		                        .strategy = strategy ? strategy : "copy",
		                        .work_in_store = store != NULL };
	return 0;
}

static int do_start(struct run *run, const char *arg)
{
	struct atoll_resource resources[RESOURCES_MAX];
	struct atoll_start start = { .name = PLAN,
		                     .flags = ATOLL_START_OR_OPEN,
		                     .resources = resources };
	char *roots[RESOURCES_MAX] = { NULL };
	char *words = strdup(arg);
	int r = words ? 0 : -ENOMEM;

	atoll_plan_free(run->plan);
	run->plan = NULL;
	for (char *word = words ? strtok(words, ",") : NULL; word && r == 0;
	     word = strtok(NULL, ",")) {
		size_t n = start.n_resources++;

		r = n < RESOURCES_MAX ? read_resource(run, word, &roots[n], &resources[n]) : -E2BIG;
	}
	if (r == 0)
		r = atoll_plan_start_with(run->atoll, &start, &run->plan, run->res);
	for (size_t i = 0; i < RESOURCES_MAX; i++)
		free(roots[i]);
	free(words);
	return r;
}

static int do_add(struct run *run, const char *arg)
{
	char *root = NULL;
	struct atoll_resource resource;
	int r = read_resource(run, arg, &root, &resource);

	if (r == 0)
		r = atoll_plan_add(run->plan, &resource, run->res);
	free(root);
	return r;
}

static int print_path(void *user, const struct atoll_sandbox_info *info)
{
	struct run *run = user;
	char *path = NULL;

	if (strcmp(info->strategy, "copy") != 0 && strcmp(info->strategy, "sqlite") != 0)
		return 0;
	if (atoll_sandbox_path(run->plan, info->id, &path, run->res) < 0)
		return atoll_result_code(run->res);
	printf("path %s %s\n", info->root, path);
	free(path);
	return 0;
}

static int do_path(struct run *run, const char *arg)
{
	(void)arg;
	return atoll_plan_sandboxes(run->plan, print_path, run, run->res);
}

static int do_exec(struct run *run, const char *arg)
{
	const char *const argv[] = { "/bin/sh", "-c", *arg ? arg : "true", NULL };
	const struct atoll_exec exec = { .argv = argv, .cwd = "/" };
	struct atoll_exec_status status;
	int r = atoll_plan_exec(run->plan, &exec, &status, run->res);

	return r < 0 ? r : status.exit_code == 0 ? 0 : -EIO;
}

static int print_change(void *user, const struct atoll_change *change)
{
	(void)user;
	printf("change %d %s\n", (int)change->kind, change->path);
	return 0;
}

static int do_diff(struct run *run, const char *arg)
{
	int64_t n = atoll_plan_diff(run->plan, print_change, NULL, run->res);

	(void)arg;
	return n < 0 ? (int)n : 0;
}

#define PATHS_MAX 64

struct paths {
	const char *list; /* from the environment: one per line; NULL: none */
	bool whole;       /* what is no tree is taken whole */
	char *v[PATHS_MAX + 1];
	size_t n;
};

static int add_paths(void *user, const struct atoll_sandbox_info *info)
{
	struct paths *p = user;
	bool is_tree = strcmp(info->strategy, "value") != 0;
	char *list = p->list && is_tree ? strdup(p->list) : NULL, *save = NULL;
	int r = 0;

	if (p->list && p->whole && !is_tree)
		r = asprintf(&p->v[p->n++], "%s", info->root);
	for (char *path = list ? strtok_r(list, "\n", &save) : NULL;
	     path && r >= 0 && p->n < PATHS_MAX; path = strtok_r(NULL, "\n", &save))
		r = asprintf(&p->v[p->n++], "%s/%s", info->root, path);
	free(list);
	return r < 0 ? -ENOMEM : 0;
}

static int commit_part(struct run *run)
{
	struct paths lists[] = { { .list = getenv("SCENARIO_PART"), .whole = true },
		                 { .list = getenv("SCENARIO_OURS") },
		                 { .list = getenv("SCENARIO_THEIRS") } };
	const struct atoll_commit commit = { .paths = (const char *const *)lists[0].v,
		                             .ours = (const char *const *)lists[1].v,
		                             .theirs = (const char *const *)lists[2].v };
	int r = 0;

	for (size_t i = 0; i < 3 && r >= 0; i++)
		r = atoll_plan_sandboxes(run->plan, add_paths, &lists[i], run->res);
	if (r >= 0)
		r = atoll_plan_commit_with(run->plan, &commit, run->res);
	for (size_t i = 0; i < 3; i++)
		while (lists[i].n)
			free(lists[i].v[--lists[i].n]);
	return r;
}

static int do_commit(struct run *run, const char *arg)
{
	static const struct {
		const char *name;
		unsigned flag;
	} flags[] = { { "no-undo", ATOLL_NO_UNDO },
		      { "dry-run", ATOLL_DRY_RUN },
		      { "partial", ATOLL_ALLOW_PARTIAL } };
	unsigned flag = 0;

	if (strcmp(arg, "part") == 0)
		return commit_part(run);
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
		if (strcmp(arg, flags[i].name) == 0)
			flag = flags[i].flag;
	return atoll_plan_commit(run->plan, flag, run->res);
}

static int do_rollback(struct run *run, const char *arg)
{
	return atoll_plan_rollback(run->plan,
	                           strcmp(arg, "keep-theirs") == 0 ? ATOLL_KEEP_THEIRS
	                           : strcmp(arg, "keep-work") == 0 ? ATOLL_KEEP_WORK
	                                                           : 0,
	                           run->res);
}

static int with_sides(struct run *run, int (*verb)(struct atoll_plan *, const struct atoll_undo *,
                                                   struct atoll_result *))
{
	struct paths ours = { .list = getenv("SCENARIO_OURS") };
	struct paths theirs = { .list = getenv("SCENARIO_THEIRS") };
	const struct atoll_undo how = { .ours = (const char *const *)ours.v,
		                        .theirs = (const char *const *)theirs.v };
	int r = atoll_plan_sandboxes(run->plan, add_paths, &ours, run->res);

	if (r >= 0)
		r = atoll_plan_sandboxes(run->plan, add_paths, &theirs, run->res);
	if (r >= 0)
		r = verb(run->plan, &how, run->res);
	while (ours.n)
		free(ours.v[--ours.n]);
	while (theirs.n)
		free(theirs.v[--theirs.n]);
	return r;
}

static int do_undo(struct run *run, const char *arg)
{
	if (strcmp(arg, "sides") == 0)
		return with_sides(run, atoll_plan_undo_with);
	return atoll_plan_undo(run->plan, strcmp(arg, "keep-theirs") == 0 ? ATOLL_KEEP_THEIRS : 0,
	                       run->res);
}

static int do_redo(struct run *run, const char *arg)
{
	return strcmp(arg, "sides") == 0 ? with_sides(run, atoll_plan_redo_with)
	                                 : atoll_plan_redo(run->plan, run->res);
}

static int do_refresh(struct run *run, const char *arg)
{
	(void)arg;
	return atoll_plan_refresh(run->plan, run->res);
}

static int do_reset(struct run *run, const char *arg)
{
	(void)arg;
	return atoll_plan_reset(run->plan, run->res);
}

static int do_stop(struct run *run, const char *arg)
{
	return atoll_plan_stop(run->plan, strcmp(arg, "force") == 0 ? ATOLL_FORCE : 0, run->res);
}

/* More than none left is a failure here. */
static int do_recover(struct run *run, const char *arg)
{
	int r = atoll_recover(run->atoll, strcmp(arg, "all") == 0 ? NULL : PLAN, false, run->res);

	return r > 0 ? -ATOLL_E_NEEDS_RECOVERY : r;
}

static int do_purge(struct run *run, const char *arg)
{
	int r = atoll_purge(run->atoll, 0, run->res);

	(void)arg;
	return r < 0 ? r : 0;
}

static const struct {
	const char *name;
	int (*fn)(struct run *run, const char *arg);
	bool alone; /* needs no plan */
} verbs[] = {
	{ "start", do_start, true },        { "add", do_add, false },
	{ "path", do_path, false },         { "exec", do_exec, false },
	{ "diff", do_diff, false },         { "commit", do_commit, false },
	{ "rollback", do_rollback, false }, { "reset", do_reset, false },
	{ "stop", do_stop, false },         { "recover", do_recover, true },
	{ "purge", do_purge, true },        { "refresh", do_refresh, false },
	{ "undo", do_undo, false },         { "redo", do_redo, false },
};

static int do_verb(struct run *run, const char *word)
{
	const char *arg = strchr(word, '=');
	size_t len = arg ? (size_t)(arg - word) : strlen(word);
	int r = -ATOLL_E_INVALID;

	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
		if (strlen(verbs[i].name) != len || memcmp(verbs[i].name, word, len) != 0)
			continue;
		r = 0;
		if (!verbs[i].alone && !run->plan)
			r = atoll_plan_find(run->atoll, PLAN, &run->plan, run->res);
		if (r >= 0)
			r = verbs[i].fn(run, arg ? arg + 1 : "");
		break;
	}
	if (r < 0)
		fprintf(stderr, "%s: %s: %s\n", word, atoll_code_name(r),
		        atoll_result_message(run->res));
	return r;
}

static void print_notes(const struct atoll_result *res)
{
	for (size_t i = 0; i < atoll_result_notes(res); i++) {
		const struct atoll_note *note = atoll_result_note(res, i);

		printf("note %s %s: %s\n", atoll_note_kind_name(note->kind), note->path,
		       note->text);
	}
}

int main(int argc, char **argv)
{
	struct run run = { .res = atoll_result_new() };
	const char *sync = getenv("SCENARIO_SYNC");
	char *home = NULL;
	int r;

	if (argc < 3)
		return 2;
	if (sync)
		syncset_force(atoi(sync));
	run.base = argv[1];
	if (asprintf(&home, "%s/store", run.base) < 0)
		return 2;
	late_strategy = value_strategy;
	late_strategy.name = "late";
	late_strategy.capabilities |= ATOLL_CAP_LATE;
	final_strategy = value_strategy;
	final_strategy.name = "final";
	final_strategy.capabilities = ATOLL_CAP_PREPARE;
	final_strategy.prepare = final_prepare;
	final_strategy.commit = final_commit;
	final_strategy.abort = final_abort;
	final_strategy.undo = NULL;
	r = atoll_strategy_register(&value_strategy, run.res);
	if (r >= 0)
		r = atoll_strategy_register(&late_strategy, run.res);
	if (r >= 0)
		r = atoll_strategy_register(&final_strategy, run.res);
	if (r >= 0)
		r = atoll_open(home, &run.atoll, run.res);
	if (r < 0)
		fprintf(stderr, "open: %s: %s\n", atoll_code_name(r),
		        atoll_result_message(run.res));
	for (int i = 2; i < argc && r >= 0; i++) {
		r = do_verb(&run, argv[i]);
		print_notes(run.res);
	}
	atoll_plan_free(run.plan);
	atoll_close(run.atoll);
	atoll_result_free(run.res);
	free(home);
	return atoll_code_exit(r < 0 ? r : 0);
}
