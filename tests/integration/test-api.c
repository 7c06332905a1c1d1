/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A walk through the whole public interface, on real directories and with real processes: every
 * call once where it works and once where it must refuse. The rules have tests of their own.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atoll.h>
#include <cmocka.h>

#define PATH_LEN 512

struct fixture {
	char dir[64]; /* everything lies below */
	char home[PATH_LEN];
	char root[PATH_LEN];
	char mnt[PATH_LEN]; /* empty: nothing is mounted */
	struct atoll *a;
	struct atoll_plan *p;
	struct atoll_result *res;
};

/* ---- files ---- */

static void join(char out[PATH_LEN], const char *dir, const char *name)
{
	assert_true(snprintf(out, PATH_LEN, "%s/%s", dir, name) < PATH_LEN);
}

static void put(const char *dir, const char *name, const char *text)
{
	char path[PATH_LEN];
	FILE *f;

	join(path, dir, name);
	f = fopen(path, "we");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static bool holds(const char *dir, const char *name, const char *text)
{
	char path[PATH_LEN], buf[256];
	size_t n;
	FILE *f;

	join(path, dir, name);
	f = fopen(path, "re");
	if (!f)
		return false;
	n = fread(buf, 1, sizeof(buf) - 1, f);
	(void)fclose(f);
	buf[n] = '\0';
	return strcmp(buf, text) == 0;
}

static bool exists(const char *path)
{
	return access(path, F_OK) == 0;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	/* The kernel closes the directory that an overlay works in; the next attempt gets in. */
	if (type == FTW_DNR)
		return chmod(path, 0700) == 0 ? 1 : -1;
	return ftw->level == 0 ? 0 : remove(path);
}

/* The background writer of a plan that was not stopped may get in between. */
static void empty(const char *dir)
{
	for (int i = 0; i < 3000; i++) {
		if (i > 0)
			(void)usleep(20000);
		if (nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) == 0)
			return;
	}
	fail_msg("%s cannot be emptied", dir);
}

/* ---- fixture ---- */

static void say(const struct fixture *f, int r)
{
	if (r < 0)
		print_message("# %s: %s (%s)\n", atoll_code_name(r), atoll_result_message(f->res),
		              atoll_result_hint(f->res));
}

#define ok(f, call)                                               \
	do {                                                      \
		int ok_r = (int)(call);                           \
		say(f, ok_r);                                     \
		assert_true(ok_r >= 0);                           \
		assert_int_equal(atoll_result_code((f)->res), 0); \
	} while (0)
#define refused(f, code, call)                                               \
	do {                                                                 \
		assert_int_equal((int)(call), -(int)(code));                 \
		assert_int_equal(atoll_result_code((f)->res), -(int)(code)); \
		assert_string_not_equal(atoll_result_message((f)->res), ""); \
	} while (0)

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	(void)snprintf(f->dir, sizeof(f->dir), "/tmp/atoll-api.XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	join(f->home, f->dir, "home");
	join(f->root, f->dir, "tree");
	assert_int_equal(mkdir(f->root, 0755), 0);
	put(f->root, "a", "one");
	f->res = atoll_result_new();
	assert_non_null(f->res);
	ok(f, atoll_open(f->home, &f->a, f->res));
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	atoll_plan_free(f->p);
	atoll_close(f->a);
	atoll_result_free(f->res);
	if (*f->mnt)
		(void)umount2(f->mnt, MNT_DETACH);
	empty(f->dir);
	assert_int_equal(rmdir(f->dir), 0);
	free(f);
	return 0;
}

static struct atoll_resource tree(const struct fixture *f)
{
	/* A copy has a path to work at, whoever runs this. */
	return (struct atoll_resource){ .root = f->root, .strategy = "copy" };
}

/* A plan with the tree in it, and where to write. */
static char *begin(struct fixture *f, unsigned flags)
{
	struct atoll_resource resource = tree(f);
	char *path = NULL;

	ok(f, atoll_plan_start(f->a, NULL, flags, &f->p, f->res));
	ok(f, atoll_plan_add(f->p, &resource, f->res));
	ok(f, atoll_sandbox_path(f->p, NULL, &path, f->res));
	assert_non_null(path);
	assert_true(holds(path, "a", "one"));
	return path;
}

static int count_path(void *user, const char *plan_id, const char *path)
{
	assert_non_null(plan_id);
	assert_int_equal(path[0], '/');
	(*(int *)user)++;
	return 0;
}

static int scanned(struct fixture *f)
{
	int n = 0;

	ok(f, atoll_scan(f->a, count_path, &n, f->res));
	return n;
}

/* ---- store ---- */

static void store_is_private_and_checked(void **state)
{
	struct fixture *f = *state;
	struct atoll *other = NULL;
	struct stat st;

	assert_int_equal(stat(f->home, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_string_equal(atoll_home(f->a), f->home);
	refused(f, ATOLL_E_INVALID, atoll_open("", &other, f->res));
	refused(f, ATOLL_E_INVALID, atoll_open(f->home, NULL, f->res));
	assert_int_equal(chmod(f->home, 0750), 0);
	refused(f, ATOLL_E_DENIED, atoll_open(f->home, &other, f->res));
	assert_non_null(strstr(atoll_result_hint(f->res), "chmod 700"));
	assert_int_equal(chmod(f->home, 0700), 0);
	put(f->dir, "file", "");
	{
		char path[PATH_LEN];

		join(path, f->dir, "file");
		assert_int_equal(atoll_open(path, &other, f->res), -ENOTDIR);
		join(path, f->dir, "deep/er/home");
		ok(f, atoll_open(path, &other, f->res));
		assert_int_equal(stat(path, &st), 0);
		assert_int_equal(st.st_mode & 07777, 0700);
		atoll_close(other);
	}
}

static void codes_have_names(void **state)
{
	(void)state;
	assert_string_equal(atoll_code_name(-ENOSPC), "ENOSPC");
	for (int c = ATOLL_E_INVALID; c < ATOLL_E_END_; c++)
		assert_string_not_equal(atoll_code_name(-c), "");
	assert_int_equal(atoll_code_exit(-ATOLL_E_CONFLICT), 3);
	assert_non_null(strchr(atoll_version(), '.'));
}

/* ---- plans ---- */

static int remember_plan(void *user, const struct atoll_plan_info *info)
{
	struct atoll_plan_info *ret = user;

	*ret = *info;
	ret->id = ret->name = NULL;
	return 0;
}

static void names_are_checked(void **state)
{
	static const char *const bad[] = {
		"", ".x", "-x", "a/b", "a b", "a\nb", "0123456789abcdef"
	};
	struct fixture *f = *state;
	struct atoll_plan *again = NULL;
	char long_name[66];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		refused(f, ATOLL_E_INVALID, atoll_plan_start(f->a, bad[i], 0, &f->p, f->res));
	memset(long_name, 'x', 65);
	long_name[65] = '\0';
	refused(f, ATOLL_E_INVALID, atoll_plan_start(f->a, long_name, 0, &f->p, f->res));
	long_name[64] = '\0';
	ok(f, atoll_plan_start(f->a, long_name, 0, &f->p, f->res));
	refused(f, ATOLL_E_EXISTS, atoll_plan_start(f->a, long_name, 0, &again, f->res));
	ok(f, atoll_plan_start(f->a, long_name, ATOLL_START_OR_OPEN, &again, f->res));
	assert_string_equal(atoll_plan_id(again), atoll_plan_id(f->p));
	atoll_plan_free(again);
	assert_int_equal(atoll_count_plans(f->a, f->res), 1);
}

static void plans_are_found(void **state)
{
	struct fixture *f = *state;
	struct atoll_plan *one = NULL, *two = NULL, *found = NULL;
	struct atoll_plan_info info = { 0 };

	ok(f, atoll_plan_start(f->a, "fix-42", 0, &one, f->res));
	ok(f, atoll_plan_find(f->a, "-", &found, f->res));
	atoll_plan_free(found);
	ok(f, atoll_plan_start(f->a, "fix-43", 0, &two, f->res));
	refused(f, ATOLL_E_AMBIGUOUS, atoll_plan_find(f->a, "fix", &found, f->res));
	refused(f, ATOLL_E_AMBIGUOUS, atoll_plan_find(f->a, "-", &found, f->res));
	refused(f, ATOLL_E_NOT_FOUND, atoll_plan_find(f->a, "other", &found, f->res));
	refused(f, ATOLL_E_INVALID, atoll_plan_find(f->a, "", &found, f->res));
	refused(f, ATOLL_E_INVALID, atoll_plan_find(f->a, NULL, &found, f->res));
	ok(f, atoll_plan_find(f->a, atoll_plan_id(two), &found, f->res));
	assert_string_equal(atoll_plan_name(found), "fix-43");
	ok(f, atoll_plan_show(found, remember_plan, &info, f->res));
	assert_int_equal(info.state, ATOLL_PLAN_OPEN);
	assert_false(info.owned || info.abandoned || info.in_doubt);
	assert_int_equal(info.sandboxes, 0);
	atoll_plan_free(found);
	ok(f, atoll_plan_stop(one, 0, f->res));
	ok(f, atoll_plan_stop(one, 0, f->res));
	refused(f, ATOLL_E_NOT_FOUND, atoll_plan_commit(one, 0, f->res));
	atoll_plan_free(one);
	atoll_plan_free(two);
}

static void missing_arguments_are_refused(void **state)
{
	struct fixture *f = *state;
	struct atoll_resource empty = { .root = "" };
	struct atoll_exec nothing = { 0 };

	refused(f, ATOLL_E_INVALID, atoll_plan_start(NULL, "x", 0, &f->p, f->res));
	refused(f, ATOLL_E_INVALID, atoll_plan_start(f->a, "x", 0x80, &f->p, f->res));
	refused(f, ATOLL_E_INVALID, atoll_plan_commit(NULL, 0, f->res));
	refused(f, ATOLL_E_INVALID, atoll_scan(f->a, NULL, NULL, f->res));
	ok(f, atoll_plan_start(f->a, "x", 0, &f->p, f->res));
	refused(f, ATOLL_E_INVALID, atoll_plan_add(f->p, &empty, f->res));
	refused(f, ATOLL_E_INVALID, atoll_plan_add(f->p, NULL, f->res));
	refused(f, ATOLL_E_INVALID, atoll_plan_exec(f->p, &nothing, NULL, f->res));
	refused(f, ATOLL_E_INVALID, atoll_plan_commit(f->p, 0x8000, f->res));
	refused(f, ATOLL_E_INVALID, atoll_sandbox_path(f->p, "", NULL, f->res));
	refused(f, ATOLL_E_INVALID, atoll_recover(f->a, "", false, f->res));
	assert_int_equal(atoll_plan_commit(NULL, 0, NULL), -ATOLL_E_INVALID);
	ok(f, atoll_plan_commit(f->p, 0, f->res)); /* a plan without resources */
}

static void nobody_to_tell_is_refused(void **state)
{
	struct fixture *f = *state;
	struct atoll_exec true_ = { .argv = (const char *const[]){ "true", NULL } };

	ok(f, atoll_plan_start(f->a, "x", 0, &f->p, f->res));
	refused(f, ATOLL_E_INVALID, atoll_plan_list(f->a, NULL, NULL, f->res));
	refused(f, ATOLL_E_INVALID, atoll_plan_show(f->p, NULL, NULL, f->res));
	refused(f, ATOLL_E_INVALID, atoll_plan_sandboxes(f->p, NULL, NULL, f->res));
	refused(f, ATOLL_E_INVALID, atoll_plan_history(f->p, NULL, NULL, f->res));
	refused(f, ATOLL_E_INVALID, atoll_log_output(f->a, 1, NULL, NULL, f->res));
	refused(f, ATOLL_E_INVALID, atoll_job_list(f->a, "", NULL, NULL, f->res));
	refused(f, ATOLL_E_INVALID, atoll_job_stop(f->p, NULL, f->res));
	refused(f, ATOLL_E_INVALID, atoll_lock_list(f->a, NULL, NULL, NULL, f->res));
	refused(f, ATOLL_E_INVALID, atoll_plan_find_run(f->a, "", &f->p, f->res));
	refused(f, ATOLL_E_INVALID, atoll_plan_exec_with(f->p, &true_, NULL, 1, NULL, f->res));
	refused(f, ATOLL_E_INVALID, atoll_plan_rollback(f->p, 0x8000, f->res));
	refused(f, ATOLL_E_INVALID, atoll_plan_stop(f->p, 0x8000, f->res));
	refused(f, ATOLL_E_INVALID, atoll_purge(f->a, 0x8000, f->res));
	/* Without a handle these do nothing. */
	atoll_set_wait(NULL, 1);
	atoll_set_wait_notify(NULL, NULL, NULL);
	atoll_set_retention(NULL, 1);
	atoll_set_min_free(NULL, 1);
	atoll_set_progress(NULL, NULL, NULL);
	atoll_set_interrupt(NULL, NULL, NULL);
}

static void options_of_commands_are_checked(void **state)
{
	static const struct atoll_exec_option bad[] = { { "net", "everywhere" },
		                                        { "transcript", "-1" },
		                                        { "no-such-option", "1" } };
	struct fixture *f = *state;
	struct atoll_resource resource = { .root = f->root };
	struct atoll_exec_status st;
	struct atoll_exec true_ = { .argv = (const char *const[]){ "true", NULL } };

	ok(f, atoll_plan_start(f->a, "x", 0, &f->p, f->res));
	refused(f, ATOLL_E_STATE, atoll_plan_exec(f->p, &true_, &st, f->res)); /* no resource */
	ok(f, atoll_plan_add(f->p, &resource, f->res));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		refused(f, ATOLL_E_INVALID,
		        atoll_plan_exec_with(f->p, &true_, &bad[i], 1, &st, f->res));
	refused(f, ATOLL_E_NOT_FOUND, atoll_job_stop(f->p, "none", f->res));
	true_.fence = &(struct atoll_fence){ .home = ATOLL_HOME_END_ };
	refused(f, ATOLL_E_INVALID, atoll_plan_exec(f->p, &true_, &st, f->res));
}

/* Its locks are its parent's, and would not keep the two apart. */
static void a_child_opens_its_own_handle(void **state)
{
	struct fixture *f = *state;
	int status;
	pid_t pid;

	ok(f, atoll_plan_start(f->a, "x", 0, &f->p, f->res));
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(atoll_plan_commit(f->p, 0, NULL) == -ATOLL_E_STATE ? 0 : 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- resources ---- */

static int add_root(struct fixture *f, const char *root, const char *parent)
{
	struct atoll_resource resource = { .root = root, .parent = parent };

	return atoll_plan_add(f->p, &resource, f->res);
}

static void bad_roots_are_refused(void **state)
{
	struct fixture *f = *state;
	char path[PATH_LEN];

	ok(f, atoll_plan_start(f->a, "x", 0, &f->p, f->res));
	refused(f, ATOLL_E_UNSUPPORTED, add_root(f, "/", NULL));
	refused(f, ATOLL_E_UNSUPPORTED, add_root(f, f->home, NULL));
	refused(f, ATOLL_E_UNSUPPORTED, add_root(f, f->dir, NULL));
	join(path, f->home, "plans");
	refused(f, ATOLL_E_UNSUPPORTED, add_root(f, path, NULL));
	join(path, f->root, "a");
	refused(f, ATOLL_E_UNSUPPORTED, add_root(f, path, NULL));
	join(path, f->dir, "absent");
	assert_int_equal(add_root(f, path, NULL), -ENOENT);
	join(path, f->dir, "link");
	assert_int_equal(symlink("home", path), 0);
	refused(f, ATOLL_E_UNSUPPORTED, add_root(f, path, NULL));
	assert_int_equal(atoll_count_paths(f->a, f->res), 0);
	assert_int_equal(scanned(f), 0);
}

/* What lies in another root has it for its parent. */
static int expect_nested(void *user, const struct atoll_sandbox_info *info)
{
	const struct fixture *f = user;

	assert_int_equal(*info->parent != '\0', strcmp(info->root, f->root) != 0);
	return 0;
}

static void roots_of_a_plan_do_not_overlap(void **state)
{
	struct fixture *f = *state;
	char sub[PATH_LEN], around[PATH_LEN];

	join(around, f->dir, "tree/./");
	join(sub, f->root, "sub");
	assert_int_equal(mkdir(sub, 0755), 0);
	put(sub, "b", "two");
	ok(f, atoll_plan_start(f->a, "x", 0, &f->p, f->res));
	ok(f, add_root(f, f->root, NULL));
	refused(f, ATOLL_E_EXISTS, add_root(f, f->root, NULL));
	refused(f, ATOLL_E_EXISTS, add_root(f, around, NULL));
	refused(f, ATOLL_E_NOT_FOUND, add_root(f, sub, "nobody"));
	refused(f, ATOLL_E_UNSUPPORTED, add_root(f, f->dir, NULL));
	ok(f, add_root(f, sub, NULL));
	assert_int_equal(atoll_result_notes(f->res), 1); /* whose child it is */
	assert_non_null(strstr(atoll_result_note(f->res, 0)->text, "lies in '"));
	assert_int_equal(atoll_count_paths(f->a, f->res), 2);
	assert_int_equal(atoll_plan_sandboxes(f->p, expect_nested, f, f->res), 0);
	ok(f, atoll_plan_stop(f->p, 0, f->res));
	assert_int_equal(atoll_count_paths(f->a, f->res), 0);
}

static int count_entries(const char *dir)
{
	char command[PATH_LEN + 32];
	int n = -1;
	FILE *pipe;

	(void)snprintf(command, sizeof(command), "ls -A '%s' | wc -l", dir);
	pipe = popen(command, "re");
	assert_non_null(pipe);
	assert_int_equal(fscanf(pipe, "%d", &n), 1);
	(void)pclose(pipe);
	return n;
}

/* ---- a strategy of our own ---- */

static struct atoll_plan *own_plan; /* the callback's */
static int callback_answer;
static bool create_fails;

static int own_create(struct atoll_participant *p)
{
	if (create_fails)
		return atoll_participant_fail(p, -7777, "create", atoll_participant_root(p), EIO);
	return 0;
}

static int own_prepare(struct atoll_participant *p)
{
	(void)p;
	callback_answer = atoll_plan_commit(own_plan, 0, NULL);
	return ATOLL_NO_CHANGE;
}

static int own_nothing(struct atoll_participant *p)
{
	(void)p;
	return 0;
}

static const struct atoll_strategy own_strategy = {
	.api_version = ATOLL_STRATEGY_API_VERSION,
	.name = "own",
	.kind = "directory",
	.capabilities = ATOLL_CAP_PREPARE | ATOLL_CAP_UNDO,
	.create = own_create,
	.prepare = own_prepare,
	.commit = own_nothing,
	.abort = own_nothing,
	.undo = own_nothing,
	.remove = own_nothing,
};

static void failed_add_leaves_nothing(void **state)
{
	struct fixture *f = *state;
	struct atoll_resource resource = { .root = f->root, .strategy = "own" };
	char plans[PATH_LEN];
	enum atoll_sandbox_state s;

	join(plans, f->home, "plans");
	ok(f, atoll_plan_start(f->a, "x", 0, &f->p, f->res));
	create_fails = true;
	assert_int_equal(atoll_plan_add(f->p, &resource, f->res), -7777);
	assert_string_equal(atoll_result_cause_op(f->res), "create");
	assert_int_equal(atoll_result_cause_errno(f->res), EIO);
	create_fails = false;
	assert_int_equal(count_entries(plans), 0);
	assert_int_equal(atoll_count_paths(f->a, f->res), 0);
	refused(f, ATOLL_E_NOT_FOUND, atoll_sandbox_state(f->p, NULL, &s, f->res));
	ok(f, atoll_plan_add(f->p, &resource, f->res));
	ok(f, atoll_sandbox_state(f->p, f->root, &s, f->res));
	assert_int_equal(s, ATOLL_SANDBOX_CREATED);
	resource.strategy = "unknown";
	refused(f, ATOLL_E_NOT_FOUND, atoll_plan_add(f->p, &resource, f->res));
}

static void calling_back_would_deadlock(void **state)
{
	struct fixture *f = *state;
	struct atoll_resource resource = { .root = f->root, .strategy = "own" };

	ok(f, atoll_plan_start(f->a, "x", 0, &f->p, f->res));
	ok(f, atoll_plan_add(f->p, &resource, f->res));
	own_plan = f->p;
	ok(f, atoll_plan_commit(f->p, 0, f->res));
	assert_int_equal(callback_answer, -ATOLL_E_WOULD_DEADLOCK);
}

/* ---- work ---- */

static int count_change(void *user, const struct atoll_change *change)
{
	assert_non_null(change->path);
	(*(int *)user)++;
	return 0;
}

static void commit_then_rollback(void **state)
{
	struct fixture *f = *state;
	char *path = begin(f, 0);
	struct atoll_plan_info info = { 0 };
	enum atoll_sandbox_state s;
	int seen = 0;

	put(path, "a", "changed");
	put(path, "b", "new");
	assert_true(holds(f->root, "a", "one"));
	assert_int_equal(atoll_plan_diff(f->p, count_change, &seen, f->res), 2);
	assert_int_equal(seen, 2);
	assert_int_equal(atoll_plan_diff(f->p, NULL, NULL, f->res), 2);
	ok(f, atoll_plan_commit(f->p, 0, f->res));
	assert_int_equal(atoll_result_participants(f->res), 1);
	assert_int_equal(atoll_result_participant(f->res, 0)->outcome, ATOLL_OUTCOME_COMMITTED);
	assert_true(holds(f->root, "a", "changed") && holds(f->root, "b", "new"));
	ok(f, atoll_plan_show(f->p, remember_plan, &info, f->res));
	assert_int_equal(info.state, ATOLL_PLAN_COMMITTED);
	assert_int_equal(info.batches, 1);
	ok(f, atoll_plan_commit(f->p, 0, f->res)); /* nothing left: success */
	assert_int_equal(atoll_result_participant(f->res, 0)->outcome, ATOLL_OUTCOME_SKIPPED);

	ok(f, atoll_plan_rollback(f->p, 0, f->res));
	assert_int_equal(atoll_result_participant(f->res, 0)->outcome, ATOLL_OUTCOME_ROLLED_BACK);
	assert_int_equal(atoll_result_participant(f->res, 0)->resource_restored, ATOLL_FACT_YES);
	assert_int_equal(atoll_result_participant(f->res, 0)->workspace_reset, ATOLL_FACT_YES);
	assert_true(holds(f->root, "a", "one") && !holds(f->root, "b", "new"));
	ok(f, atoll_sandbox_state(f->p, NULL, &s, f->res));
	assert_int_equal(s, ATOLL_SANDBOX_ROLLED_BACK);
	ok(f, atoll_plan_rollback(f->p, 0, f->res));
	assert_int_equal(atoll_plan_diff(f->p, NULL, NULL, f->res), 0);

	/* It can be worked in again, on what the resource is now. */
	free(path);
	path = NULL;
	ok(f, atoll_sandbox_path(f->p, f->root, &path, f->res));
	assert_true(holds(path, "a", "one") && !holds(path, "b", "new"));
	ok(f, atoll_sandbox_state(f->p, NULL, &s, f->res));
	assert_int_equal(s, ATOLL_SANDBOX_ACTIVE);
	put(path, "c", "again");
	ok(f, atoll_plan_commit(f->p, 0, f->res));
	assert_true(holds(f->root, "c", "again"));
	ok(f, atoll_plan_stop(f->p, 0, f->res));
	assert_true(holds(f->root, "c", "again"));
	free(path);
}

static void rollback_without_undo_data(void **state)
{
	struct fixture *f = *state;
	char *path = begin(f, 0);

	put(path, "a", "changed");
	ok(f, atoll_plan_commit(f->p, ATOLL_NO_UNDO, f->res));
	refused(f, ATOLL_E_RECOVERY_MISSING, atoll_plan_rollback(f->p, 0, f->res));
	assert_true(holds(f->root, "a", "changed"));
	ok(f, atoll_plan_stop(f->p, 0, f->res));
	free(path);
}

static void reset_drops_the_work(void **state)
{
	struct fixture *f = *state;
	char *path = begin(f, 0);
	struct atoll_plan_info info = { 0 };

	put(path, "a", "changed");
	ok(f, atoll_plan_reset(f->p, f->res));
	assert_int_equal(atoll_result_participant(f->res, 0)->workspace_reset, ATOLL_FACT_YES);
	assert_int_equal(atoll_plan_diff(f->p, NULL, NULL, f->res), 0);
	free(path);
	path = NULL;
	ok(f, atoll_sandbox_path(f->p, NULL, &path, f->res));
	assert_true(holds(path, "a", "one"));
	ok(f, atoll_plan_show(f->p, remember_plan, &info, f->res));
	assert_int_equal(info.state, ATOLL_PLAN_OPEN);
	put(path, "a", "changed");
	ok(f, atoll_plan_rollback(f->p, 0, f->res));
	assert_true(holds(f->root, "a", "one"));
	free(path);
}

static void stop_refuses_uncommitted_work(void **state)
{
	struct fixture *f = *state;
	char *path = begin(f, 0);

	put(path, "a", "changed");
	refused(f, ATOLL_E_STATE, atoll_plan_stop(f->p, 0, f->res));
	assert_true(holds(path, "a", "changed"));
	ok(f, atoll_plan_stop(f->p, ATOLL_FORCE, f->res));
	assert_int_equal(atoll_result_participant(f->res, 0)->outcome, ATOLL_OUTCOME_REMOVED);
	assert_false(exists(path));
	assert_true(holds(f->root, "a", "one"));
	free(path);
}

static void replaced_root_is_noticed(void **state)
{
	struct fixture *f = *state;
	char *path = begin(f, 0);
	char aside[PATH_LEN];

	put(path, "a", "changed");
	join(aside, f->dir, "aside");
	assert_int_equal(rename(f->root, aside), 0);
	assert_int_equal(mkdir(f->root, 0755), 0);
	refused(f, ATOLL_E_CONFLICT, atoll_plan_commit(f->p, 0, f->res));
	assert_int_equal(rmdir(f->root), 0);
	assert_int_equal(atoll_plan_commit(f->p, 0, f->res), -ENOENT);
	assert_int_equal(rename(aside, f->root), 0);
	ok(f, atoll_plan_commit(f->p, 0, f->res));
	assert_true(holds(f->root, "a", "changed"));
	free(path);
}

/* ---- commands ---- */

static int run(struct fixture *f, const char *script, const char *cwd,
               struct atoll_exec_status *ret)
{
	const char *const argv[] = { "sh", "-c", script, NULL };
	const struct atoll_exec exec = { .argv = argv, .cwd = cwd };

	return atoll_plan_exec(f->p, &exec, ret, f->res);
}

static void exec_works_in_the_view(void **state)
{
	struct fixture *f = *state;
	const char *const absent[] = { "/nonexistent/program", NULL };
	const struct atoll_exec no_such = { .argv = absent, .cwd = f->root };
	struct atoll_exec_status st = { .exit_code = -1 };
	struct atoll_resource resource = tree(f);

	ok(f, atoll_plan_start(f->a, "x", 0, &f->p, f->res));
	ok(f, atoll_plan_add(f->p, &resource, f->res));
	ok(f, run(f,
	          "test \"$ATOLL_PLAN\" = x && test \"$(pwd -P)\" = \"$ATOLL_RESOURCE_1\" && "
	          "echo -n done >b",
	          f->root, &st));
	assert_int_equal(st.exit_code, 0);
	ok(f, run(f, "exit 7", f->dir, &st));
	assert_int_equal(st.exit_code, 7);
	assert_int_equal(atoll_plan_exec(f->p, &no_such, &st, f->res), -ENOENT);
	assert_false(holds(f->root, "b", "done"));
	assert_int_equal(atoll_plan_diff(f->p, NULL, NULL, f->res), 1);
	ok(f, atoll_plan_commit(f->p, 0, f->res));
	assert_true(holds(f->root, "b", "done"));
}

static int remember_event(void *user, const struct atoll_event *event)
{
	size_t have = strlen(user);

	assert_true(event->at_ms > 1600000000000);
	(void)snprintf((char *)user + have, 256 - have, "%s%s ", event->what,
	               event->code ? "!" : "");
	return 0;
}

static void history_has_both(void **state)
{
	struct fixture *f = *state;
	char *path = begin(f, 0);
	char seen[256] = "";

	put(path, "a", "changed");
	refused(f, ATOLL_E_STATE, atoll_plan_stop(f->p, 0, f->res));
	ok(f, atoll_plan_commit(f->p, 0, f->res));
	ok(f, atoll_plan_stop(f->p, 0, f->res));
	ok(f, atoll_plan_history(f->p, remember_event, seen, f->res));
	assert_string_equal(seen, "start add path stop! commit stop ");
	free(path);
}

struct sleeper {
	struct fixture *f;
	int answer;
};

/* Says in `started` that it runs, and ends when it finds `go`. */
static void *sleep_in_plan(void *arg)
{
	struct sleeper *s = arg;
	const char *const argv[] = { "sh", "-c",
		                     "touch started; while [ ! -e go ]; do sleep 0.01; done",
		                     NULL };
	const struct atoll_exec exec = { .argv = argv, .cwd = s->f->root };

	s->answer = atoll_plan_exec(s->f->p, &exec, NULL, NULL);
	return NULL;
}

static void note_waiting(void *user, const char *message)
{
	assert_non_null(strstr(message, "waiting for plan"));
	(*(int *)user)++;
}

static void waits_are_bounded_and_named(void **state)
{
	struct fixture *f = *state;
	struct sleeper s = { .f = f };
	char *path = begin(f, 0), pid[32];
	pthread_t thread;
	int told = 0;

	atoll_set_wait_notify(f->a, note_waiting, &told);
	assert_int_equal(pthread_create(&thread, NULL, sleep_in_plan, &s), 0);
	for (int i = 0; i < 6000 && !holds(path, "started", ""); i++)
		(void)usleep(10000);
	atoll_set_wait(f->a, 500);
	refused(f, ATOLL_E_TIMEOUT, atoll_plan_commit(f->p, 0, f->res));
	(void)snprintf(pid, sizeof(pid), "pid %d", (int)getpid());
	assert_non_null(strstr(atoll_result_message(f->res), pid));
	assert_int_equal(told, 1);
	atoll_set_wait(f->a, 0);
	refused(f, ATOLL_E_BUSY, atoll_plan_commit(f->p, 0, f->res));
	assert_int_equal(atoll_plan_diff(f->p, NULL, NULL, f->res), 1); /* what it made */
	put(path, "go", "");
	atoll_set_wait(f->a, -1);
	ok(f, atoll_plan_commit(f->p, 0, f->res));
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(s.answer, 0);
	free(path);
}

/* ---- owned plans ---- */

static void close_cleans_owned_plans(void **state)
{
	struct fixture *f = *state;
	char *path = begin(f, ATOLL_START_OWNED);
	struct atoll_plan_info info = { 0 };
	char plans[PATH_LEN];

	ok(f, atoll_plan_show(f->p, remember_plan, &info, f->res));
	assert_true(info.owned);
	assert_int_equal(scanned(f), 0);
	atoll_plan_free(f->p);
	f->p = NULL;
	atoll_close(f->a);
	assert_false(exists(path));
	ok(f, atoll_open(f->home, &f->a, f->res));
	assert_int_equal(atoll_count_plans(f->a, f->res), 0);
	join(plans, f->home, "plans");
	assert_int_equal(count_entries(plans), 0);
	free(path);
}

static void close_keeps_uncommitted_work(void **state)
{
	struct fixture *f = *state;
	char *path = begin(f, ATOLL_START_OWNED);
	struct atoll_plan_info info = { 0 };

	put(path, "a", "precious");
	atoll_plan_free(f->p);
	f->p = NULL;
	atoll_close(f->a);
	ok(f, atoll_open(f->home, &f->a, f->res));
	ok(f, atoll_plan_list(f->a, remember_plan, &info, f->res));
	assert_true(info.abandoned && !info.owned);
	assert_true(holds(path, "a", "precious"));
	assert_int_equal(scanned(f), 0);
	assert_int_equal(atoll_purge(f->a, 0, f->res), 0);
	assert_int_equal(atoll_purge(f->a, ATOLL_FORCE, f->res), 1);
	assert_false(exists(path));
	free(path);
}

/* In a process of its own: makes an owned plan, then ends as told. */
static void child_main(const struct fixture *f, const char *end)
{
	struct atoll_resource resource = tree(f);
	struct atoll *a = NULL;
	struct atoll_plan *p = NULL;
	char *path = NULL;

	if (atoll_open(f->home, &a, NULL) < 0 ||
	    atoll_plan_start(a, NULL, ATOLL_START_OWNED, &p, NULL) < 0 ||
	    atoll_plan_add(p, &resource, NULL) < 0)
		_exit(1);
	if (strcmp(end, "work") == 0) {
		if (atoll_sandbox_path(p, NULL, &path, NULL) < 0)
			_exit(1);
		put(path, "a", "work");
	}
	if (strcmp(end, "exit") == 0)
		exit(0);
	(void)raise(SIGKILL);
}

static void in_child(const struct fixture *f, const char *end)
{
	int status = 0;
	pid_t pid;

	(void)fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		child_main(f, end);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(strcmp(end, "exit") == 0 ? WIFEXITED(status) && WEXITSTATUS(status) == 0
	                                     : WIFSIGNALED(status));
}

static void dead_owners_are_purged(void **state)
{
	struct fixture *f = *state;

	in_child(f, "exit");
	assert_int_equal(scanned(f), 0);
	assert_int_equal(atoll_count_plans(f->a, f->res), 0);
	in_child(f, "kill");
	in_child(f, "kill");
	in_child(f, "work");
	assert_int_equal(scanned(f), 3);
	assert_int_equal(atoll_purge(f->a, 0, f->res), 2);
	assert_int_equal(scanned(f), 0);
	assert_int_equal(atoll_count_plans(f->a, f->res), 1);
	assert_int_equal(atoll_purge(f->a, ATOLL_FORCE, f->res), 1);
	assert_int_equal(atoll_count_paths(f->a, f->res), 0);
	in_child(f, "kill");
	assert_int_equal(scanned(f), 1);
}

static void a_child_leaves_its_parents_plans_alone(void **state)
{
	struct fixture *f = *state;
	char *path = begin(f, ATOLL_START_OWNED);
	int status = 0;
	pid_t pid;

	(void)fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		if (atoll_plan_commit(f->p, 0, NULL) != -ATOLL_E_STATE)
			_exit(1);
		exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_true(holds(path, "a", "one"));
	ok(f, atoll_plan_commit(f->p, 0, f->res));
	free(path);
}

static void strays_are_found_on_disk(void **state)
{
	struct fixture *f = *state;
	char stray[PATH_LEN];

	join(stray, f->home, "plans/stray");
	assert_int_equal(mkdir(stray, 0700), 0);
	assert_int_equal(scanned(f), 1);
	assert_int_equal(atoll_purge(f->a, 0, f->res), 0);
	assert_false(exists(stray));
	in_child(f, "kill");
	assert_int_equal(scanned(f), 1);
	join(stray, f->home, "plans");
	empty(stray);
	assert_int_equal(scanned(f), 0);
}

/* ---- areas on another mount ---- */

static int remember_area(void *user, const struct atoll_sandbox_info *info)
{
	(void)snprintf(user, PATH_LEN, "%s", info->area);
	return 0;
}

/* For as long as the helper in the background may sync it. */
static void unmount(struct fixture *f)
{
	const struct timespec pause = { .tv_nsec = 10000000 };
	int r = -1;

	for (int i = 0; i < 6000 && r < 0; i++) {
		r = umount(f->mnt);
		if (r < 0 && errno != EBUSY)
			break;
		if (r < 0)
			(void)nanosleep(&pause, NULL);
	}
	assert_int_equal(r, 0);
	*f->mnt = '\0';
}

static void area_lies_on_the_mount_of_the_root(void **state)
{
	struct fixture *f = *state;
	char *mnt = f->mnt, root[PATH_LEN], area[PATH_LEN] = "", around[PATH_LEN];
	struct atoll_resource resource = { .root = root };
	char *path = NULL;
	struct stat st;

	if (geteuid() != 0) {
		print_message("# skipped: needs root\n");
		skip();
	}
	join(mnt, f->dir, "mnt");
	join(root, f->dir, "mnt/r");
	assert_int_equal(mkdir(mnt, 0755), 0);
	assert_int_equal(mount("none", mnt, "tmpfs", 0, NULL), 0);
	assert_int_equal(mkdir(root, 0755), 0);
	put(root, "a", "one");
	ok(f, atoll_plan_start(f->a, "x", 0, &f->p, f->res));
	ok(f, atoll_plan_add(f->p, &resource, f->res));
	ok(f, atoll_plan_sandboxes(f->p, remember_area, area, f->res));
	(void)snprintf(around, sizeof(around), "%.400s/.atoll-%u/", mnt, (unsigned)geteuid());
	assert_int_equal(strncmp(area, around, strlen(around)), 0);
	assert_int_equal(stat(area, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	ok(f, atoll_sandbox_path(f->p, NULL, &path, f->res));
	put(path, "a", "two");
	ok(f, atoll_plan_commit(f->p, 0, f->res));
	ok(f, atoll_plan_stop(f->p, 0, f->res));
	assert_true(holds(root, "a", "two"));
	assert_int_equal(count_entries(mnt), 1);

	/* The root is the mount itself: the area goes inside and shows nowhere. */
	atoll_plan_free(f->p);
	f->p = NULL;
	resource.root = mnt;
	assert_int_equal(stat(mnt, &st), 0);
	ok(f, atoll_plan_start(f->a, "y", 0, &f->p, f->res));
	ok(f, atoll_plan_add(f->p, &resource, f->res));
	{
		struct stat now;

		assert_int_equal(stat(mnt, &now), 0);
		assert_int_equal(st.st_mtim.tv_nsec, now.st_mtim.tv_nsec);
	}
	free(path);
	ok(f, atoll_sandbox_path(f->p, NULL, &path, f->res));
	assert_int_equal(count_entries(path), 1);
	assert_int_equal(atoll_plan_diff(f->p, NULL, NULL, f->res), 0);
	ok(f, atoll_plan_stop(f->p, 0, f->res));
	assert_int_equal(count_entries(mnt), 1);
	unmount(f);
	free(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(codes_have_names),
#define WITH_STORE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
		WITH_STORE(store_is_private_and_checked),
		WITH_STORE(names_are_checked),
		WITH_STORE(plans_are_found),
		WITH_STORE(missing_arguments_are_refused),
		WITH_STORE(nobody_to_tell_is_refused),
		WITH_STORE(options_of_commands_are_checked),
		WITH_STORE(a_child_opens_its_own_handle),
		WITH_STORE(bad_roots_are_refused),
		WITH_STORE(roots_of_a_plan_do_not_overlap),
		WITH_STORE(failed_add_leaves_nothing),
		WITH_STORE(calling_back_would_deadlock),
		WITH_STORE(commit_then_rollback),
		WITH_STORE(rollback_without_undo_data),
		WITH_STORE(reset_drops_the_work),
		WITH_STORE(stop_refuses_uncommitted_work),
		WITH_STORE(replaced_root_is_noticed),
		WITH_STORE(exec_works_in_the_view),
		WITH_STORE(history_has_both),
		WITH_STORE(waits_are_bounded_and_named),
		WITH_STORE(close_cleans_owned_plans),
		WITH_STORE(close_keeps_uncommitted_work),
		WITH_STORE(dead_owners_are_purged),
		WITH_STORE(a_child_leaves_its_parents_plans_alone),
		WITH_STORE(strays_are_found_on_disk),
		WITH_STORE(area_lies_on_the_mount_of_the_root),
	};

	if (atoll_strategy_register(&own_strategy, NULL) < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
