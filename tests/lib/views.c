/* SPDX-License-Identifier: Apache-2.0 */
/* Commands in the views of a plan; see views.h. */
#include "lib/views.h"

#include <grp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534

void become_user(int argc, char **argv)
{
	char *const again[] = { argv[0], NULL };

	if (argc != 2 || strcmp(argv[1], "as-user") != 0 || geteuid() != 0)
		return;
	if (setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
	    setresuid(NOBODY, NOBODY, NOBODY) < 0)
		abort();
	/* Started again: /proc/self belongs to root as long as this program runs. */
	execv("/proc/self/exe", again);
	execv(argv[0], again);
	abort();
}

struct atoll_plan *plan_overlay(struct fix *f, const char *root)
{
	struct atoll_plan *p = fix_plan(f, NULL);

	fix_add(f, p, root, "overlay");
	return p;
}

int run_script(struct fix *f, struct atoll_plan *p, const char *cwd, const char *script)
{
	const char *const argv[] = { "/bin/sh", "-c", script, NULL };
	const struct atoll_exec e = { .argv = argv, .cwd = cwd, .timeout_ms = 60000 };
	struct atoll_exec_status status = { 0 };

	expect_ok(f, atoll_plan_exec(p, &e, &status, f->res));
	return status.exit_code;
}

void run_ok(struct fix *f, struct atoll_plan *p, const char *cwd, const char *script)
{
	int status = run_script(f, p, cwd, script);

	expect_msg(status == 0, "exit %d of: %s", status, script);
}

#define LISTING                                                                          \
	"{ LC_ALL=C find . -printf '%%p %%y %%#m %%U %%G %%T@ %%l\\n' | LC_ALL=C sort; " \
	"find . -type f -exec md5sum {} + | LC_ALL=C sort; } > '%s'"

char *list_plain(struct fix *f, const char *root)
{
	char *out = fix_path(f, "%s/listing", f->dir);

	run_plain(root, fix_path(f, LISTING, out));
	return get_text(out);
}

char *list_view(struct fix *f, struct atoll_plan *p, const char *root)
{
	run_ok(f, p, root, fix_path(f, LISTING, "/tmp/listing"));
	return get_text(fix_path(f, "%s/listing", view_tmp(f, p)));
}

static int first_area(void *user, const struct atoll_sandbox_info *info)
{
	char **area = user;

	if (!*area)
		*area = strdup(info->area);
	return 0;
}

const char *view_tmp(struct fix *f, struct atoll_plan *p)
{
	char *area = NULL;

	expect_ok(f, atoll_plan_sandboxes(p, first_area, &area, f->res));
	expect(area != NULL);
	return fix_path(f, "%s/tmp", fix_keep(f, area));
}

void run_plain(const char *cwd, const char *script)
{
	pid_t pid = fork();
	int status = -1;

	if (pid == 0) {
		if (chdir(cwd) == 0)
			execl("/bin/sh", "sh", "-ec", script, (char *)NULL);
		_exit(127);
	}
	expect(waitpid(pid, &status, 0) == pid);
	expect_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "outside: %s", script);
}

struct meanwhile {
	char go[PATH_MAX], done[PATH_MAX];
	const char *cwd, *script;
};

static void *do_meanwhile(void *user)
{
	const struct meanwhile *m = user;

	wait_for_file(m->go);
	run_plain(m->cwd, m->script);
	put_text(m->done, "");
	return NULL;
}

void run_meanwhile(struct fix *f, struct atoll_plan *p, const char *cwd, const char *script,
                   const char *plain_script)
{
	struct meanwhile m = { .cwd = cwd, .script = plain_script };
	const char *tmp;
	pthread_t thread;

	run_ok(f, p, cwd, "rm -f /tmp/go /tmp/done"); /* makes the plan's /tmp as well */
	tmp = view_tmp(f, p);
	(void)snprintf(m.go, sizeof(m.go), "%s/go", tmp);
	(void)snprintf(m.done, sizeof(m.done), "%s/done", tmp);
	expect(pthread_create(&thread, NULL, do_meanwhile, &m) == 0);
	run_ok(f, p, cwd, script);
	expect(pthread_join(thread, NULL) == 0);
}
