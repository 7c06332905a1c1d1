/* SPDX-License-Identifier: Apache-2.0 */
/* What the plan layer does that cannot be seen, or not be provoked, through the public header. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "fs/atomic.h"
#include "fs/remove.h"
#include "plan/exec-option.h"
#include "plan/plan-op.h"
#include "plan/plan.h"
#include "plan/sandbox.h"
#include "plan/settings.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"

static const struct atoll_commit everything;

/* It syncs a whole filesystem, on which others may write. */
#define NOTE_PAUSES   6000
#define NOTE_PAUSE_NS 10000000

struct fixture {
	char dir[64];
	char *home;
	char *root;
	struct atoll *a;
	struct atoll_plan *p;
};

static void put(const char *dir, const char *name, const char *text)
{
	cleanup_close int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(fs_replace_file(fd, name, text, strlen(text), 0644), 0);
}

static int setup(void **state)
{
	struct fixture *f = xcalloc(1, sizeof(*f));
	struct atoll_resource resource = { 0 };

	(void)snprintf(f->dir, sizeof(f->dir), "/tmp/atoll-plan.XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	f->home = xasprintf("%s/home", f->dir);
	f->root = xasprintf("%s/tree", f->dir);
	assert_int_equal(mkdir(f->root, 0755), 0);
	put(f->root, "a", "one");
	resource.root = f->root;
	assert_int_equal(store_open(f->home, &f->a, NULL), 0);
	assert_int_equal(plan_start(f->a, &(struct atoll_start){ .name = "x" }, &f->p, NULL, NULL),
	                 0);
	assert_int_equal(plan_add(f->p, &resource, NULL, NULL), 0);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	int r = -1;

	/* Whatever it came to; but it may have a mount. */
	(void)plan_stop(f->p, ATOLL_FORCE, NULL, NULL);
	free(f->p);
	store_close(f->a);
	for (int i = 0; i < NOTE_PAUSES && r < 0; i++) {
		if (i > 0)
			clock_sleep_ns(NOTE_PAUSE_NS); /* the background writer may be at it */
		r = remove_tree(f->dir);
	}
	free(f->home);
	free(f->root);
	free(f);
	return r;
}

/* ---- names and command lines ---- */

static void plan_names(void **state)
{
	char name[LIMIT_NAME + 1];

	(void)state;
	assert_true(plan_name_valid("a"));
	assert_true(plan_name_valid("Fix_4.2-b"));
	assert_false(plan_name_valid(""));
	assert_false(plan_name_valid(".."));
	assert_false(plan_name_valid("-f"));
	assert_false(plan_name_valid("a/b"));
	assert_false(plan_name_valid("\xc3\xa4"));
	for (int i = 0; i < 1000; i++) {
		plan_name_make_up(name);
		assert_true(plan_name_valid(name));
	}
}

static void secrets_are_left_out_of_command_lines(void **state)
{
	static const struct {
		const char *argv[5];
		const char *line;
	} cases[] = {
		{ { "make", "-j2", "KEY=x" }, "make -j2 KEY=[hidden]" },
		{ { "curl", "--oauth-token", "abc", "u" }, "curl --oauth-token [hidden] u" },
		{ { "x", "--password=abc" }, "x --password=[hidden]" },
		{ { "psql", "postgres://me:pw@host/db" }, "psql postgres://me:[hidden]@host/db" },
		{ { "ls", "a@b:c", "A=1" }, "ls a@b:c A=1" },
		{ { "printf", "a\nb\033[1m" }, "printf a\\x0ab\\x1b[1m" },
		{ { "psql", "postgres://me:p,w@x@host/db" },
		  "psql postgres://me:[hidden]@host/db" },
		/* Inside a script. */
		{ { "sh", "-c", "PGPASSWORD=abc psql -h x; echo done" },
		  "sh -c PGPASSWORD=[hidden] psql -h x; echo done" },
		{ { "sh", "-c", "export API_TOKEN='a b' && ./run 'it is'" },
		  "sh -c export API_TOKEN='[hidden]' && ./run 'it is'" },
		{ { "bash", "-lc", "git clone https://me:pw@host/x.git; make KEY=1" },
		  "bash -lc git clone https://me:[hidden]@host/x.git; make KEY=[hidden]" },
		{ { "sh", "-c", "curl -H \"Authorization: Bearer abc.def\" https://x" },
		  "sh -c curl -H \"Authorization: Bearer [hidden]\" https://x" },
		{ { "sh", "-c", "x --password abc y; x --token; ls" },
		  "sh -c x --password [hidden] y; x --token; ls" },
		{ { "ssh", "host", "mysql -psecret db -p" }, "ssh host mysql -p[hidden] db -p" },
		/* Users with their passwords. */
		{ { "curl", "-u", "me:p w", "https://x" }, "curl -u me:[hidden] https://x" },
		{ { "curl", "-ume:pw", "https://x" }, "curl -ume:[hidden] https://x" },
		{ { "curl", "--user", "me", "https://x" }, "curl --user me https://x" },
		{ { "sh", "-c", "curl -u 'me:p w' --proxy-user a:b x" },
		  "sh -c curl -u 'me:[hidden]' --proxy-user a:[hidden] x" },
		{ { "curl", "-H", "X-Api-Key: abc" }, "curl -H X-Api-Key: [hidden]" },
		{ { "curl", "-H", "Authorization:Basic abc" },
		  "curl -H Authorization:Basic [hidden]" },
		{ { "sshpass", "-p", "pw", "ssh" }, "sshpass -p [hidden] ssh" },
		{ { "mysqldump", "-ppw", "db" }, "mysqldump -p[hidden] db" },
		{ { "docker", "run", "-u", "1000:1000" }, "docker run -u 1000:[hidden]" },
		{ { "tar", "-cf", "x:y", "-p" }, "tar -cf x:y -p" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		cleanup_free char *line = redact_command(cases[i].argv);

		assert_string_equal(line, cases[i].line);
	}
}

/* ---- another boot ---- */

/* As if the machine had gone down after command N, and the disk had another number since, of which some
 * filesystems make their identity. */
static int write_other_boot(struct registry *reg, void *ctx, struct error *err)
{
	struct sandbox_row *row = ctx;
	char *other = xasprintf("other%s", strchr(row->root_id, ':'));

	free(row->root_id);
	row->root_id = other;
	free(row->boot_id);
	row->boot_id = xstrdup("00000000-0000-0000-0000-000000000000");
	row->exec_n = 99;
	return registry_sandbox_update(reg, row, err);
}

/* The same before any command. */
static int write_boot_without_commands(struct registry *reg, void *ctx, struct error *err)
{
	struct sandbox_row *row = ctx;

	free(row->boot_id);
	row->boot_id = xstrdup("00000000-0000-0000-0000-000000000000");
	row->exec_n = 0;
	return registry_sandbox_update(reg, row, err);
}

static void the_only_box(struct fixture *f, struct sandboxes *ret)
{
	assert_int_equal(sandboxes_load(f->a->reg, f->p->id, ret, NULL), 0);
	assert_int_equal(ret->n, 1);
}

static void pretend_boot_without_commands(struct fixture *f)
{
	cleanup_sandboxes struct sandboxes boxes = SANDBOXES_INIT;

	the_only_box(f, &boxes);
	assert_int_equal(
		store_write(f->a, REGISTRY_DURABLE, write_boot_without_commands, &boxes.v[0], NULL),
		0);
}

/* The machine went down in peace. */
static int write_next_boot(struct registry *reg, void *ctx, struct error *err)
{
	struct sandbox_row *row = ctx;

	free(row->boot_id);
	row->boot_id = xstrdup("00000000-0000-0000-0000-000000000000");
	return registry_sandbox_update(reg, row, err);
}

static void pretend_next_boot(struct fixture *f)
{
	cleanup_sandboxes struct sandboxes boxes = SANDBOXES_INIT;

	the_only_box(f, &boxes);
	assert_int_equal(store_write(f->a, REGISTRY_DURABLE, write_next_boot, &boxes.v[0], NULL),
	                 0);
}

static void pretend_other_boot(struct fixture *f, const char *durable)
{
	cleanup_sandboxes struct sandboxes boxes = SANDBOXES_INIT;

	assert_int_equal(sandboxes_load(f->a->reg, f->p->id, &boxes, NULL), 0);
	assert_int_equal(boxes.n, 1);
	assert_int_equal(store_write(f->a, REGISTRY_DURABLE, write_other_boot, &boxes.v[0], NULL),
	                 0);
	if (durable)
		put(boxes.v[0].area, "durable", durable);
}

/* The background writer has written its note, so that it does not overwrite ours. */
static void wait_for_note(struct fixture *f)
{
	cleanup_sandboxes struct sandboxes boxes = SANDBOXES_INIT;

	assert_int_equal(sandboxes_load(f->a->reg, f->p->id, &boxes, NULL), 0);
	for (int i = 0; i < NOTE_PAUSES && !durable_noted(&boxes.v[0]); i++)
		clock_sleep_ns(NOTE_PAUSE_NS);
	assert_true(durable_noted(&boxes.v[0]));
}

static void work_that_reached_the_disk_survives_a_boot(void **state)
{
	struct fixture *f = *state;
	cleanup_free char *path = NULL;

	assert_int_equal(plan_path(f->p, NULL, &path, NULL), 0);
	put(path, "a", "two");
	pretend_other_boot(f, "99");
	assert_int_equal(plan_commit(f->p, &everything, NULL, NULL), 0);
}

static void work_that_may_be_lost_is_not_committed_unasked(void **state)
{
	struct fixture *f = *state;
	cleanup_error struct error err = ERROR_INIT;
	cleanup_free char *path = NULL;
	enum atoll_sandbox_state s;

	assert_int_equal(plan_path(f->p, NULL, &path, NULL), 0);
	put(path, "a", "two");
	pretend_other_boot(f, "98");
	assert_int_equal(plan_commit(f->p, &everything, NULL, &err), -ATOLL_E_STATE);
	assert_non_null(strstr(err.msg, "command 99"));
	assert_int_equal(plan_sandbox_state(f->p, NULL, &s, NULL), 0);
	assert_int_equal(s, ATOLL_SANDBOX_ERRORED);
	assert_int_equal(plan_diff(f->p, NULL, NULL, NULL), 1);
	assert_int_equal(plan_stop(f->p, 0, NULL, NULL), -ATOLL_E_STATE);
	assert_int_equal(plan_recover(f->a, "x", false, NULL, NULL), 0);
	assert_int_equal(plan_commit(f->p, &everything, NULL, NULL), -ATOLL_E_STATE);
	assert_int_equal(plan_recover(f->a, "x", true, NULL, NULL), 0);
	assert_int_equal(plan_commit(f->p, &everything, NULL, NULL), 0);
}

static void add_tree(struct fixture *f, const char *root)
{
	const struct atoll_resource resource = { .root = root };

	assert_int_equal(mkdir(root, 0755), 0);
	put(root, "a", "one");
	assert_int_equal(plan_add(f->p, &resource, NULL, NULL), 0);
}

static void work_in(struct fixture *f, const char *root)
{
	cleanup_free char *path = NULL;

	assert_int_equal(plan_path(f->p, root, &path, NULL), 0);
	put(path, "a", "two");
}

/* DURABLE: the number on disk after command 99; NULL: nobody used it. */
static void pretend_other_boot_of(struct fixture *f, const char *root, const char *durable)
{
	cleanup_sandboxes struct sandboxes boxes = SANDBOXES_INIT;
	size_t i = 0;

	assert_int_equal(sandboxes_load(f->a->reg, f->p->id, &boxes, NULL), 0);
	assert_int_equal(sandboxes_find(&boxes, root, &i, NULL), 0);
	assert_int_equal(store_write(f->a, REGISTRY_DURABLE,
	                             durable ? write_other_boot : write_boot_without_commands,
	                             &boxes.v[i], NULL),
	                 0);
	if (durable)
		put(boxes.v[i].area, "durable", durable);
}

static void state_is(struct fixture *f, const char *root, enum atoll_sandbox_state want)
{
	enum atoll_sandbox_state s;

	assert_int_equal(plan_sandbox_state(f->p, root, &s, NULL), 0);
	assert_int_equal(s, want);
}

static void expect_text(const char *root, const char *want)
{
	cleanup_free char *path = xasprintf("%s/a", root), *text = NULL;
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t len = 0;

	assert_true(fd >= 0);
	assert_int_equal(fs_read_all(fd, 64, &text, &len), 0);
	assert_string_equal(text, want);
}

/* On disk, perhaps not, and without anything: what holds for one is not said of another. */
static void each_resource_has_its_own_fate_in_another_boot(void **state)
{
	struct fixture *f = *state;
	cleanup_sandboxes struct sandboxes before = SANDBOXES_INIT, after = SANDBOXES_INIT;
	cleanup_free char *lost = xasprintf("%s/lost", f->dir);
	cleanup_free char *unused = xasprintf("%s/unused", f->dir);
	cleanup_error struct error err = ERROR_INIT;
	size_t i = 0;

	add_tree(f, lost);
	add_tree(f, unused);
	work_in(f, f->root);
	work_in(f, lost);
	assert_int_equal(sandboxes_load(f->a->reg, f->p->id, &before, NULL), 0);
	pretend_other_boot_of(f, f->root, "99");
	pretend_other_boot_of(f, lost, "98");
	pretend_other_boot_of(f, unused, NULL);

	assert_int_equal(plan_commit(f->p, &everything, NULL, &err), -ATOLL_E_STATE);
	assert_non_null(strstr(err.msg, "command 99"));
	assert_non_null(strstr(err.msg, lost));
	state_is(f, f->root, ATOLL_SANDBOX_ACTIVE);
	state_is(f, lost, ATOLL_SANDBOX_ERRORED);
	state_is(f, unused, ATOLL_SANDBOX_CREATED);
	expect_text(f->root, "one");
	expect_text(lost, "one");

	/* Only the last one is made anew, and none lost what it has. */
	assert_int_equal(sandboxes_load(f->a->reg, f->p->id, &after, NULL), 0);
	for (size_t k = 0; k < after.n; k++) {
		assert_string_equal(after.v[k].id, before.v[k].id);
		assert_int_equal(after.v[k].stale, strcmp(after.v[k].root, unused) == 0);
	}
	assert_int_equal(sandboxes_find(&after, unused, &i, NULL), 0);
	assert_string_equal(after.v[i].boot_id, clock_boot_id());
	assert_int_equal(plan_diff(f->p, NULL, NULL, NULL), 2);
	assert_int_equal(plan_recover(f->a, "x", true, NULL, NULL), 0);
	assert_int_equal(plan_commit(f->p, &everything, NULL, NULL), 0);
	expect_text(f->root, "two");
	expect_text(lost, "two");
	expect_text(unused, "one");
}

/* A refresh writes to the workspace as a command does. */
static void what_a_refresh_brought_in_may_be_lost(void **state)
{
	cleanup_sandboxes struct sandboxes before = SANDBOXES_INIT, after = SANDBOXES_INIT;
	struct fixture *f = *state;
	cleanup_free char *path = NULL;

	assert_int_equal(plan_path(f->p, NULL, &path, NULL), 0);
	put(path, "mine", "two");
	pretend_other_boot(f, "99");
	put(f->root, "theirs", "three");
	assert_int_equal(sandboxes_load(f->a->reg, f->p->id, &before, NULL), 0);
	assert_int_equal(plan_refresh(f->p, NULL, NULL), 0);
	assert_int_equal(sandboxes_load(f->a->reg, f->p->id, &after, NULL), 0);
	assert_int_equal(after.v[0].exec_n, before.v[0].exec_n + 1);
	assert_string_equal(after.v[0].boot_id, clock_boot_id());
	wait_for_note(f); /* it is made durable, too */
	assert_true(durable_noted(&after.v[0]));
	assert_int_equal(plan_commit(f->p, &everything, NULL, NULL), 0);
}

static void work_that_may_be_lost_can_be_dropped(void **state)
{
	struct fixture *f = *state;
	cleanup_free char *path = NULL;
	enum atoll_sandbox_state s;

	assert_int_equal(plan_path(f->p, NULL, &path, NULL), 0);
	put(path, "a", "two");
	pretend_other_boot(f, "98");
	assert_int_equal(plan_reset(f->p, NULL, NULL), 0);
	assert_int_equal(plan_sandbox_state(f->p, NULL, &s, NULL), 0);
	assert_int_equal(s, ATOLL_SANDBOX_ACTIVE);
	assert_int_equal(plan_diff(f->p, NULL, NULL, NULL), 0);
	assert_int_equal(plan_commit(f->p, &everything, NULL, NULL), 0);
}

/* Its directories may be half on disk, for nobody waited for them. */
static void an_unused_workspace_is_made_anew_in_another_boot(void **state)
{
	cleanup_sandboxes struct sandboxes before = SANDBOXES_INIT, after = SANDBOXES_INIT;
	struct fixture *f = *state;
	cleanup_free char *path = NULL, *upper = NULL;
	enum atoll_sandbox_state s;

	the_only_box(f, &before);
	upper = xasprintf("%s/u1", before.v[0].work);
	pretend_boot_without_commands(f);
	assert_int_equal(plan_diff(f->p, NULL, NULL, NULL), 0);
	assert_int_equal(remove_tree(upper), 0);
	assert_int_equal(plan_path(f->p, NULL, &path, NULL), 0);
	put(path, "a", "two");
	the_only_box(f, &after);
	assert_int_equal(after.v[0].generation, before.v[0].generation + 1);
	assert_false(after.v[0].stale);
	assert_int_equal(plan_sandbox_state(f->p, NULL, &s, NULL), 0);
	assert_int_equal(s, ATOLL_SANDBOX_ACTIVE);
	assert_int_equal(plan_diff(f->p, NULL, NULL, NULL), 1);
	assert_int_equal(plan_commit(f->p, &everything, NULL, NULL), 0);
}

/* Also when not even the directory around it is there. */
static void a_workspace_that_never_reached_the_disk_is_made_anew(void **state)
{
	cleanup_sandboxes struct sandboxes boxes = SANDBOXES_INIT;
	struct fixture *f = *state;
	cleanup_free char *path = NULL;

	the_only_box(f, &boxes);
	pretend_boot_without_commands(f);
	assert_int_equal(remove_tree(boxes.v[0].area), 0);
	assert_int_equal(plan_diff(f->p, NULL, NULL, NULL), 0);
	assert_int_equal(plan_path(f->p, NULL, &path, NULL), 0);
	put(path, "a", "two");
	assert_int_equal(plan_commit(f->p, &everything, NULL, NULL), 0);
}

/* A power cut between the beginning of a command and the record of it. */
static void work_that_nobody_recorded_is_kept_and_not_committed_unasked(void **state)
{
	cleanup_error struct error err = ERROR_INIT;
	struct fixture *f = *state;
	cleanup_free char *path = NULL;
	enum atoll_sandbox_state s;

	assert_int_equal(plan_path(f->p, NULL, &path, NULL), 0);
	put(path, "a", "two");
	pretend_boot_without_commands(f);
	assert_int_equal(plan_commit(f->p, &everything, NULL, &err), -ATOLL_E_STATE);
	assert_non_null(strstr(err.msg, "first command"));
	assert_int_equal(plan_sandbox_state(f->p, NULL, &s, NULL), 0);
	assert_int_equal(s, ATOLL_SANDBOX_ERRORED);
	assert_int_equal(plan_diff(f->p, NULL, NULL, NULL), 1);
	assert_int_equal(plan_stop(f->p, 0, NULL, NULL), -ATOLL_E_STATE);
	assert_int_equal(plan_recover(f->a, "x", true, NULL, NULL), 0);
	assert_int_equal(plan_commit(f->p, &everything, NULL, NULL), 0);
}

/* Mode bits of the root are no entry of the upper. */
static void a_late_mode_of_the_root_is_work_too(void **state)
{
	struct fixture *f = *state;
	cleanup_free char *path = NULL;

	assert_int_equal(plan_path(f->p, NULL, &path, NULL), 0);
	assert_int_equal(chmod(path, 0711), 0);
	pretend_boot_without_commands(f);
	assert_int_equal(plan_commit(f->p, &everything, NULL, NULL), -ATOLL_E_STATE);
}

/* As with a disk that is not mounted yet. */
static void nothing_is_dropped_while_the_resource_is_away(void **state)
{
	cleanup_sandboxes struct sandboxes boxes = SANDBOXES_INIT;
	struct fixture *f = *state;
	cleanup_free char *path = NULL, *again = NULL, *away = xasprintf("%s.away", f->root);

	assert_int_equal(plan_path(f->p, NULL, &path, NULL), 0);
	put(path, "a", "two");
	the_only_box(f, &boxes);
	pretend_boot_without_commands(f);
	assert_int_equal(rename(f->root, away), 0);
	assert_true(plan_path(f->p, NULL, &again, NULL) < 0);
	assert_true(plan_stop(f->p, 0, NULL, NULL) < 0);
	assert_int_equal(rename(away, f->root), 0);
	assert_int_equal(plan_commit(f->p, &everything, NULL, NULL), -ATOLL_E_STATE);
	assert_int_equal(plan_diff(f->p, NULL, NULL, NULL), 1);
}

static void accepted_work_is_not_asked_about_again(void **state)
{
	struct fixture *f = *state;
	cleanup_free char *path = NULL;

	assert_int_equal(plan_path(f->p, NULL, &path, NULL), 0);
	put(path, "a", "two");
	pretend_boot_without_commands(f);
	assert_int_equal(plan_commit(f->p, &everything, NULL, NULL), -ATOLL_E_STATE);
	assert_int_equal(plan_recover(f->a, "x", true, NULL, NULL), 0);
	wait_for_note(f);
	pretend_next_boot(f);
	assert_int_equal(plan_commit(f->p, &everything, NULL, NULL), 0);
}

static void run(struct fixture *f, const char *script)
{
	const char *const argv[] = { "sh", "-c", script, NULL };
	const struct atoll_exec exec = { .argv = argv, .cwd = f->root, .timeout_ms = -1 };
	const struct exec_wishes wishes = EXEC_WISHES_INIT;
	struct atoll_exec_status status = { 0 };
	struct plan_exec_result result = { .status = &status };

	assert_int_equal(plan_exec(f->p, &exec, &wishes, &result, NULL), 0);
	assert_int_equal(status.exit_code, 0);
}

static uint64_t commands(struct fixture *f)
{
	cleanup_sandboxes struct sandboxes boxes = SANDBOXES_INIT;

	the_only_box(f, &boxes);
	assert_int_equal(boxes.v[0].state, ATOLL_SANDBOX_ACTIVE);
	return boxes.v[0].exec_n;
}

/* Neither before nor after it does anybody wait for the disk; what it leaves is counted and noted. */
static void a_command_that_leaves_nothing_is_not_counted(void **state)
{
	cleanup_sandboxes struct sandboxes boxes = SANDBOXES_INIT;
	struct fixture *f = *state;

	run(f, "test \"$(cat a)\" = one; echo x > new; rm new");
	assert_int_equal(commands(f), 0);
	run(f, "true");
	assert_int_equal(commands(f), 0);
	/* Equal to the resource's, but there. */
	run(f, "cat a > b; cat b > a; rm b");
	assert_int_equal(commands(f), 1);
	wait_for_note(f);
	run(f, "true");
	assert_int_equal(commands(f), 2);
	wait_for_note(f);
	the_only_box(f, &boxes);
	pretend_other_boot(f, "99");
	assert_int_equal(plan_diff(f->p, NULL, NULL, NULL), 1); /* its mtime */
}

/* Nothing of it can be half on disk. */
static void a_command_that_could_not_be_run_puts_nothing_in_doubt(void **state)
{
	static const char *const argv[] = { "/there/is/none", NULL };
	const struct exec_wishes wishes = EXEC_WISHES_INIT;
	struct fixture *f = *state;
	const struct atoll_exec exec = { .argv = argv, .cwd = f->root };
	struct atoll_exec_status status = { 0 };
	struct plan_exec_result result = { .status = &status };

	assert_true(plan_exec(f->p, &exec, &wishes, &result, NULL) < 0);
	assert_int_equal(commands(f), 0);
	run(f, "echo two > a");
	wait_for_note(f);
	assert_true(plan_exec(f->p, &exec, &wishes, &result, NULL) < 0);
	wait_for_note(f);
	pretend_next_boot(f);
	assert_int_equal(plan_commit(f->p, &everything, NULL, NULL), 0);
}

/* ---- retention ---- */

static int expire(void *ctx, const struct batch_row *row)
{
	*(struct batch_row *)ctx = *row;
	return 0;
}

static int write_expired(struct registry *reg, void *ctx, struct error *err)
{
	struct batch_row *batch = ctx;

	batch->retain_until_ms = 1;
	return registry_batch_update(reg, batch, err);
}

static void cln_04_retention_is_enforced(void **state)
{
	struct fixture *f = *state;
	struct batch_row batch = { 0 };
	cleanup_free char *path = NULL;

	assert_int_equal(plan_path(f->p, NULL, &path, NULL), 0);
	put(path, "a", "two");
	assert_int_equal(plan_commit(f->p, &everything, NULL, NULL), 0);
	assert_int_equal(registry_batch_list(f->a->reg, f->p->id, expire, &batch, NULL), 0);
	assert_true(batch.retain_until_ms > clock_real_ms());
	assert_int_equal(store_write(f->a, REGISTRY_DURABLE, write_expired, &batch, NULL), 0);
	cleanup_retention(f->a, f->p->id); /* which works on it */
	assert_int_equal(plan_rollback(f->p, 0, NULL, NULL), -ATOLL_E_RECOVERY_MISSING);
}

static int write_owned(struct registry *reg, void *ctx, struct error *err)
{
	return registry_plan_update(reg, ctx, err);
}

static void cln_04_an_owned_plan_does_not_expire(void **state)
{
	struct fixture *f = *state;
	struct batch_row batch = { 0 };
	struct plan_row row;
	cleanup_free char *path = NULL;

	assert_int_equal(plan_path(f->p, NULL, &path, NULL), 0);
	put(path, "a", "two");
	assert_int_equal(plan_commit(f->p, &everything, NULL, NULL), 0);
	assert_int_equal(registry_batch_list(f->a->reg, f->p->id, expire, &batch, NULL), 0);
	assert_int_equal(store_write(f->a, REGISTRY_DURABLE, write_expired, &batch, NULL), 0);
	assert_int_equal(registry_plan_get(f->a->reg, f->p->id, &row, NULL), 0);
	row.owned = true;
	assert_int_equal(store_write(f->a, REGISTRY_DURABLE, write_owned, &row, NULL), 0);
	cleanup_retention(f->a, NULL);
	assert_int_equal(registry_plan_get(f->a->reg, f->p->id, &row, NULL), 0);
	/* The same without an owner goes. */
	row.owned = false;
	assert_int_equal(store_write(f->a, REGISTRY_DURABLE, write_owned, &row, NULL), 0);
	assert_int_equal(registry_batch_list(f->a->reg, f->p->id, expire, &batch, NULL), 0);
	batch.released = false;
	assert_int_equal(store_write(f->a, REGISTRY_DURABLE, write_expired, &batch, NULL), 0);
	cleanup_retention(f->a, NULL);
	assert_int_equal(registry_plan_get(f->a->reg, f->p->id, &row, NULL), -ATOLL_E_NOT_FOUND);
}

/* ---- resource locks ---- */

static void a_resource_held_from_outside_is_named(void **state)
{
	struct fixture *f = *state;
	cleanup_error struct error err = ERROR_INIT;
	cleanup_free char *pid_text = NULL;
	int ready[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		int fd = open(f->root, O_RDONLY | O_CLOEXEC);

		if (fd < 0 || flock(fd, LOCK_SH) < 0 || write(ready[1], "x", 1) != 1)
			_exit(1);
		(void)pause();
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	atoll_set_wait(f->a, 200);
	assert_int_equal(plan_commit(f->p, &everything, NULL, &err), -ATOLL_E_TIMEOUT);
	pid_text = xasprintf("pid %d", (int)pid);
	assert_non_null(strstr(err.msg, pid_text));
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(plan_commit(f->p, &everything, NULL, NULL), 0);
	assert_int_equal(close(ready[0]), 0);
	assert_int_equal(close(ready[1]), 0);
}

static void plans_share_a_resource_but_not_a_commit(void **state)
{
	struct fixture *f = *state;
	const struct atoll_resource resource = { .root = f->root };
	cleanup_resource_locks struct resource_locks *one = NULL, *two = NULL;
	cleanup_sandboxes struct sandboxes boxes = SANDBOXES_INIT;
	cleanup_free struct atoll_plan *other = NULL;
	cleanup_error struct error err = ERROR_INIT;

	assert_int_equal(plan_start(f->a, &(struct atoll_start){ .name = "y" }, &other, NULL, NULL),
	                 0);
	assert_int_equal(plan_add(other, &resource, NULL, NULL), 0);
	assert_int_equal(sandboxes_load(f->a->reg, f->p->id, &boxes, NULL), 0);
	assert_int_equal(
		resource_locks_acquire(f->a, boxes.v, 1, RESOURCE_SHARED, "one", 0, &one, NULL), 0);
	assert_int_equal(
		resource_locks_acquire(f->a, boxes.v, 1, RESOURCE_SHARED, "two", 0, &two, NULL), 0);
	resource_locks_release(two);
	two = NULL;
	assert_int_equal(
		resource_locks_acquire(f->a, boxes.v, 1, RESOURCE_EXCLUSIVE, "two", 0, &two, NULL),
		-ATOLL_E_BUSY);
	resource_locks_release(one);
	one = NULL;
	assert_int_equal(resource_locks_acquire(f->a, boxes.v, 1, RESOURCE_EXCLUSIVE,
	                                        "atoll test one", 0, &one, NULL),
	                 0);
	atoll_set_wait(f->a, 0);
	assert_int_equal(plan_commit(other, &everything, NULL, &err), -ATOLL_E_BUSY);
	assert_non_null(strstr(err.msg, "atoll test one"));
}

/* The interface refuses before; whoever comes by another way is refused all the same. */
static void a_child_does_not_work_through_its_parents_handle(void **state)
{
	struct fixture *f = *state;
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(plan_commit(f->p, &everything, NULL, NULL) == -ATOLL_E_STATE ? 0 : 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(plan_commit(f->p, &everything, NULL, NULL), 0);
}

static int count_setting(void *user, const char *path, const struct gitconfig_entry *e)
{
	(void)path;
	(void)e;
	++*(int *)user;
	return 0;
}

/* A file that became none since the settings were read. */
static void settings_that_cannot_be_read_are_told_by_line(void **state)
{
	struct fixture *f = *state;
	cleanup_free char *old =
		getenv("XDG_CONFIG_HOME") ? xstrdup(getenv("XDG_CONFIG_HOME")) : NULL;
	cleanup_free char *command = xasprintf(
		"mkdir -p %s/atoll && printf '[exec]\\n\\ttimeout = 1m\\n[cor\\n' >%s/atoll/config",
		f->dir, f->dir);
	const struct settings_change one = { .key = "exec.timeout", .value = "2m" };
	cleanup_error struct error err = ERROR_INIT, again = ERROR_INIT;
	int n = 0;

	assert_int_equal(system(command), 0);
	assert_int_equal(setenv("XDG_CONFIG_HOME", f->dir, 1), 0);
	assert_int_equal(settings_each(SETTINGS_USER, count_setting, &n, &err), -ATOLL_E_INVALID);
	assert_int_equal(n, 1);
	assert_non_null(strstr(err.msg, "config:3: this is no line of a config file"));
	assert_int_equal(settings_change(SETTINGS_USER, &one, 1, count_setting, &n, &again),
	                 -ATOLL_E_INVALID);
	assert_non_null(strstr(again.msg, "config:3: "));
	if (old)
		assert_int_equal(setenv("XDG_CONFIG_HOME", old, 1), 0);
	else
		assert_int_equal(unsetenv("XDG_CONFIG_HOME"), 0);
}

int main(void)
{
#define WITH_PLAN(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plan_names),
		cmocka_unit_test(secrets_are_left_out_of_command_lines),
		WITH_PLAN(work_that_reached_the_disk_survives_a_boot),
		WITH_PLAN(an_unused_workspace_is_made_anew_in_another_boot),
		WITH_PLAN(a_workspace_that_never_reached_the_disk_is_made_anew),
		WITH_PLAN(work_that_nobody_recorded_is_kept_and_not_committed_unasked),
		WITH_PLAN(a_late_mode_of_the_root_is_work_too),
		WITH_PLAN(a_command_that_leaves_nothing_is_not_counted),
		WITH_PLAN(nothing_is_dropped_while_the_resource_is_away),
		WITH_PLAN(accepted_work_is_not_asked_about_again),
		WITH_PLAN(a_command_that_could_not_be_run_puts_nothing_in_doubt),
		WITH_PLAN(work_that_may_be_lost_is_not_committed_unasked),
		WITH_PLAN(each_resource_has_its_own_fate_in_another_boot),
		WITH_PLAN(what_a_refresh_brought_in_may_be_lost),
		WITH_PLAN(work_that_may_be_lost_can_be_dropped),
		WITH_PLAN(cln_04_retention_is_enforced),
		WITH_PLAN(cln_04_an_owned_plan_does_not_expire),
		WITH_PLAN(a_resource_held_from_outside_is_named),
		WITH_PLAN(plans_share_a_resource_but_not_a_commit),
		WITH_PLAN(a_child_does_not_work_through_its_parents_handle),
		WITH_PLAN(settings_that_cannot_be_read_are_told_by_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
