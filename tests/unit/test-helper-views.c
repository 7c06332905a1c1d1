/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_run() with views: real namespaces, real overlays. Every test runs twice, as root and as an
 * ordinary user; only exec_run() itself is called as that user, in a process of its own.
 */
#include "exec/exec.h"

#include "fs/remove.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <poll.h>
#include <pty.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define NOBODY    65534u
#define VIEWS_MAX 4
#define PATH_LEN  512
#define WAIT_MS   60000

/* What a call of exec_run() or exec_probe() in another process came to. */
struct outcome {
	int r;
	struct exec_usage usage;
	enum exec_tier tier;
	char msg[1024], hint[256];
};

struct fix {
	bool user; /* as NOBODY */
	char dir[PATH_LEN];
	char res[PATH_LEN]; /* the resource: "a" with "one\n", "b", "sub/c" */
	char tmp[PATH_LEN];
	char helper[PATH_LEN];
	char paths[VIEWS_MAX][3][PATH_LEN];
	struct exec_view views[VIEWS_MAX];
	struct exec_options opt;
	struct outcome *out;          /* shared */
	int (*before)(struct fix *f); /* in the process, still as root */
};

/* ---- fixture ---- */

__attribute__((__format__(__printf__, 2, 3))) static void path_set(char *out, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	assert_in_range(vsnprintf(out, PATH_LEN, fmt, ap), 1, PATH_LEN - 1);
	va_end(ap);
}

static void own(const struct fix *f, const char *path)
{
	if (f->user && geteuid() == 0)
		assert_int_equal(lchown(path, NOBODY, NOBODY), 0);
}

static void make_dir(const struct fix *f, const char *path, mode_t mode)
{
	assert_int_equal(mkdir(path, mode), 0);
	assert_int_equal(chmod(path, mode), 0);
	own(f, path);
}

static void make_file(const struct fix *f, const char *dir, const char *name, const char *text)
{
	char path[PATH_LEN];
	FILE *file;

	path_set(path, "%s/%s", dir, name);
	file = fopen(path, "w");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
	own(f, path);
}

static void make_resource(const struct fix *f, const char *path)
{
	char sub[PATH_LEN];

	make_dir(f, path, 0755);
	make_file(f, path, "a", "one\n");
	make_file(f, path, "b", "b\n");
	path_set(sub, "%s/sub", path);
	make_dir(f, sub, 0755);
	make_file(f, sub, "c", "c\n");
}

/* An overlay over SOURCE at its own path, with new layers. */
static struct exec_view *add_overlay(struct fix *f, const char *source)
{
	unsigned i = f->opt.n_views++;
	char(*p)[PATH_LEN] = f->paths[i];

	path_set(p[0], "%s", source);
	path_set(p[1], "%s/upper-%u", f->dir, i);
	path_set(p[2], "%s/work-%u", f->dir, i);
	make_dir(f, p[1], 0755);
	make_dir(f, p[2], 0700);
	f->views[i] = (struct exec_view){ EXEC_VIEW_OVERLAY, p[0], p[0], p[1], p[2], false };
	return &f->views[i];
}

static void copy_helper(struct fix *f)
{
	const char *from = getenv("ATOLL_HELPER");
	char command[3 * PATH_LEN];

	assert_non_null(from);
	path_set(f->helper, "%s/atoll-helper", f->dir);
	(void)snprintf(command, sizeof(command), "cp '%s' '%s' && chmod 755 '%s'", from, f->helper,
	               f->helper);
	assert_int_equal(system(command), 0);
}

static int setup(void **state)
{
	struct fix *f = calloc(1, sizeof(*f));

	f->user = *state != NULL;
	umask(022);
	path_set(f->dir, "/var/tmp/atoll-views-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	assert_int_equal(chmod(f->dir, 0755), 0);
	own(f, f->dir);
	copy_helper(f);
	path_set(f->res, "%s/res", f->dir);
	make_resource(f, f->res);
	path_set(f->tmp, "%s/tmp", f->dir);
	make_dir(f, f->tmp, 01777);
	f->opt = (struct exec_options){ .cwd = "/", .lock_fd = FD_NONE, .views = f->views };
	f->opt.tmp = f->tmp;
	f->out = mmap(NULL, sizeof(*f->out), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
	              0);
	assert_ptr_not_equal(f->out, MAP_FAILED);
	(void)add_overlay(f, f->res);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fix *f = *state;
	int r = remove_tree(f->dir);

	(void)munmap(f->out, sizeof(*f->out));
	free(f);
	return r;
}

static void only_if_possible(const struct fix *f)
{
	if (!f->user && geteuid() != 0)
		skip();
}

static void become(const struct fix *f)
{
	if (setenv("ATOLL_HELPER", f->helper, 1) < 0 || (f->before && f->before(NULL) < 0))
		_exit(99);
	if (f->user && geteuid() == 0 &&
	    (setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
	     setresuid(NOBODY, NOBODY, NOBODY) < 0))
		_exit(99);
}

static void note_error(struct outcome *out, struct error *err)
{
	(void)snprintf(out->msg, sizeof(out->msg), "%s", err->msg ? err->msg : "");
	(void)snprintf(out->hint, sizeof(out->hint), "%s", err->hint ? err->hint : "");
	error_done(err);
}

static void call(struct fix *f, const char *script)
{
	const char *const argv[] = { "/bin/sh", "-c", script, NULL };
	struct error err = ERROR_INIT;
	struct exec_options opt = f->opt;

	opt.argv = argv;
	f->out->r = exec_run(&opt, &f->out->usage, &err);
	note_error(f->out, &err);
}

/* A process that runs SCRIPT with the views. */
static pid_t start(struct fix *f, const char *script)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		become(f);
		call(f, script);
		_exit(0);
	}
	return pid;
}

static void join(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static int run(struct fix *f, const char *script)
{
	*f->out = (struct outcome){ 0 };
	join(start(f, script));
	return f->out->r;
}

/* The exit code of SCRIPT, in which $R is the resource and $D the scratch directory. */
__attribute__((__format__(__printf__, 2, 3))) static int exit_of(struct fix *f, const char *fmt,
                                                                 ...)
{
	char script[4096];
	va_list ap;
	int n = snprintf(script, sizeof(script), "R='%s' D='%s'; ", f->res, f->dir);

	va_start(ap, fmt);
	(void)vsnprintf(script + n, sizeof(script) - (size_t)n, fmt, ap);
	va_end(ap);
	if (run(f, script) < 0)
		print_message("# %s\n", f->out->msg);
	assert_int_equal(f->out->r, 0);
	return f->out->usage.exit_code;
}

__attribute__((__format__(__printf__, 1, 2))) static bool exists(const char *fmt, ...)
{
	char path[PATH_LEN];
	struct stat st;
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(path, sizeof(path), fmt, ap);
	va_end(ap);
	return lstat(path, &st) == 0;
}

static bool is_there(const char *dir, const char *name)
{
	char path[PATH_LEN];

	path_set(path, "%s/%s", dir, name);
	return access(path, F_OK) == 0;
}

static void expect_text(const char *dir, const char *name, const char *want)
{
	char path[PATH_LEN], text[1024];
	FILE *file;
	size_t n;

	path_set(path, "%s/%s", dir, name);
	file = fopen(path, "r");
	assert_non_null(file);
	n = fread(text, 1, sizeof(text) - 1, file);
	text[n] = '\0';
	assert_int_equal(fclose(file), 0);
	assert_string_equal(text, want);
}

/* A pipe whose write end the next command gets as its standard output. */
struct watch {
	int read_fd, saved;
};

static struct watch watch_begin(void)
{
	struct watch w;
	int ends[2];

	(void)fflush(stdout);
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	w = (struct watch){ ends[0], fcntl(1, F_DUPFD_CLOEXEC, 10) };
	assert_int_equal(dup2(ends[1], 1), 1);
	assert_int_equal(close(ends[1]), 0);
	return w;
}

static void watch_close_ours(const struct watch *w)
{
	assert_int_equal(dup2(w->saved, 1), 1);
	assert_int_equal(close(w->saved), 0);
}

/* Next line, or "" when no process has the other end any more. */
static void watch_line(const struct watch *w, char *out, size_t size)
{
	struct pollfd pfd = { .fd = w->read_fd, .events = POLLIN };
	size_t n = 0;

	while (n < size - 1) {
		assert_int_equal(poll(&pfd, 1, WAIT_MS), 1);
		if (read(w->read_fd, out + n, 1) != 1 || out[n] == '\n')
			break;
		n++;
	}
	out[n] = '\0';
}

static void watch_end(const struct watch *w)
{
	char line[64];

	watch_line(w, line, sizeof(line));
	assert_string_equal(line, "");
	assert_int_equal(close(w->read_fd), 0);
}

/* ---- the command ---- */

static void views_exit_codes(void **state)
{
	struct fix *f = *state;

	only_if_possible(f);
	assert_int_equal(exit_of(f, "exit 0"), 0);
	assert_int_equal(exit_of(f, "exit 255"), 255);
	assert_int_equal(exit_of(f, "kill -SEGV $$; sleep 9"), 128 + SIGSEGV);
	assert_int_equal(f->out->usage.term_signal, SIGSEGV);
	assert_int_equal(exit_of(f, "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"), 0);
	assert_true(f->out->usage.user_us + f->out->usage.system_us > 0);
	assert_true(f->out->usage.max_rss_kb > 0);
}

static void views_time_limit(void **state)
{
	struct fix *f = *state;

	only_if_possible(f);
	/* Time enough for the shell to read its first command; more of it if that was not enough. */
	for (f->opt.timeout_ms = 1000; f->opt.timeout_ms < 64000; f->opt.timeout_ms *= 2) {
		assert_int_equal(
			exit_of(f, "trap 'echo asked >$R/term; exit 3' TERM; sleep 60 & wait"),
			124);
		assert_true(f->out->usage.timed_out);
		if (is_there(f->paths[0][1], "term"))
			break;
	}
	expect_text(f->paths[0][1], "term", "asked\n");
	for (f->opt.timeout_ms = 1000; f->opt.timeout_ms < 64000; f->opt.timeout_ms *= 2) {
		assert_int_equal(exit_of(f, "trap '' TERM; while :; do sleep 0.1; done"), 124);
		if (f->out->usage.term_signal == SIGKILL)
			break;
	}
	assert_int_equal(f->out->usage.term_signal, SIGKILL);
}

static void views_cannot_start(void **state)
{
	struct fix *f = *state;

	only_if_possible(f);
	f->opt.cwd = "/nonexistent";
	assert_int_equal(run(f, "true"), -ATOLL_E_NOT_FOUND);
	f->opt.cwd = f->res;
	assert_int_equal(exit_of(f, "test \"$(pwd)\" = $R && test -e a && echo x >here"), 0);
	expect_text(f->paths[0][1], "here", "x\n");
}

static void views_same_user(void **state)
{
	struct fix *f = *state;
	unsigned uid = f->user && geteuid() == 0 ? NOBODY : geteuid();

	only_if_possible(f);
	assert_int_equal(
		exit_of(f, "test $(id -u) = %u && test $(stat -c %%u $R/a) = %u", uid, uid), 0);
}

/* ---- what it sees ---- */

static void check_overlay(struct fix *f)
{
	struct stat st;
	char path[PATH_LEN];

	assert_int_equal(exit_of(f, "echo two >>$R/a && echo n >$R/new && rm $R/b &&"
	                            " rm -r $R/sub && mkdir $R/sub"),
	                 0);
	expect_text(f->res, "a", "one\n");
	assert_true(exists("%s/b", f->res) && exists("%s/sub/c", f->res));
	assert_false(exists("%s/new", f->res));
	expect_text(f->views[0].upper, "a", "one\ntwo\n");
	expect_text(f->views[0].upper, "new", "n\n");
	path_set(path, "%s/b", f->views[0].upper);
	assert_int_equal(lstat(path, &st), 0);
	assert_true(S_ISCHR(st.st_mode) && st.st_rdev == 0);
	assert_false(f->out->usage.still_written);

	/* Again, over what the first one left. */
	assert_int_equal(exit_of(f, "test -e $R/new && test ! -e $R/b && test ! -e $R/sub/c &&"
	                            " test \"$(cat $R/a)\" = \"$(printf 'one\\ntwo')\""),
	                 0);
}

static void views_overlay_at_its_path(void **state)
{
	struct fix *f = *state;

	only_if_possible(f);
	check_overlay(f);
}

static void views_overlay_layers_by_name(void **state)
{
	struct fix *f = *state;

	only_if_possible(f);
	assert_int_equal(setenv("ATOLL_OVERLAY_STRINGS", "1", 1), 0);
	check_overlay(f);
	assert_int_equal(exit_of(f, "grep -q ' - overlay .*lowerdir=/proc/self/fd/'"
	                            " /proc/self/mountinfo"),
	                 0);
	assert_int_equal(unsetenv("ATOLL_OVERLAY_STRINGS"), 0);
}

static void views_overlay_options(void **state)
{
	struct fix *f = *state;

	only_if_possible(f);
	assert_int_equal(exit_of(f, "grep ' - overlay ' /proc/self/mountinfo >$R/options"), 0);
	assert_int_equal(exit_of(f,
	                         "grep -q volatile $R/options && grep -q nofollow $R/options &&"
	                         " %s grep -q userxattr $R/options",
	                         f->user ? "" : "!"),
	                 0);
	/* What can be renamed is, by copying: no entry of the upper points elsewhere. */
	assert_int_equal(exit_of(f, "mv $R/sub $R/moved && test -e $R/moved/c"), 0);
	assert_true(exists("%s/moved/c", f->views[0].upper));
}

static void views_bind(void **state)
{
	struct fix *f = *state;
	char copy[PATH_LEN];

	only_if_possible(f);
	path_set(copy, "%s/copy", f->dir);
	make_resource(f, copy);
	f->views[0] =
		(struct exec_view){ .kind = EXEC_VIEW_BIND, .target = f->res, .source = copy };
	assert_int_equal(exit_of(f, "echo two >>$R/a && rm $R/b && ! touch $D/copy/x 2>/dev/null"),
	                 0);
	expect_text(f->res, "a", "one\n");
	expect_text(copy, "a", "one\ntwo\n");
	assert_false(exists("%s/b", copy));
}

/* Of what else lies where a view covers it: seen inside the view, and not to be changed. */
static void views_show(void **state)
{
	struct fix *f = *state;
	char copy[PATH_LEN], inner[PATH_LEN], source[PATH_LEN];

	only_if_possible(f);
	path_set(copy, "%s/copy", f->dir);
	path_set(inner, "%s/sub/shown", f->res);
	path_set(source, "%s/sub", f->res);
	make_resource(f, copy);
	path_set(f->paths[1][0], "%s/sub/shown", copy);
	make_dir(f, f->paths[1][0], 0755);
	f->views[0] =
		(struct exec_view){ .kind = EXEC_VIEW_BIND, .target = f->res, .source = copy };
	f->views[1] =
		(struct exec_view){ .kind = EXEC_VIEW_SHOW, .target = inner, .source = source };
	f->opt.n_views = 2;
	assert_int_equal(exit_of(f, "test -e $R/sub/shown/c && touch $R/sub/c && "
	                            "! touch $R/sub/shown/c 2>/dev/null && "
	                            "! rm -f $R/sub/shown/c 2>/dev/null && "
	                            "! mount -o remount,bind,rw $R/sub/shown 2>/dev/null && "
	                            "! umount $R/sub/shown 2>/dev/null"),
	                 0);
}

static void views_rest_is_read_only(void **state)
{
	struct fix *f = *state;
	static const char *const scripts[] = {
		"touch $D/atoll-test-x",
		"touch /var/tmp/atoll-test-x",
		"touch /etc/atoll-test-x",
		"touch /dev/atoll-test-x",
		"echo 1 >/proc/sys/vm/drop_caches",
		"echo h >/proc/sysrq-trigger",
		"mount -o remount,rw /",
		"mount -o remount,bind,rw /",
		"umount $R",
		"umount /tmp",
		"mount -t tmpfs x $R/sub",
		"unshare -Urm sh -c \"mount -o remount,bind,rw / && touch $D/x\"",
		"unshare -Urm umount /tmp",
	};

	only_if_possible(f);
	for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++)
		if (exit_of(f, "(%s) 2>/dev/null", scripts[i]) == 0)
			fail_msg("allowed: %s", scripts[i]);
	assert_int_equal(exit_of(f, "echo x >/dev/null && : </dev/zero && ls / >/dev/null"), 0);
}

static void views_private_places(void **state)
{
	struct fix *f = *state;

	only_if_possible(f);
	assert_int_equal(exit_of(f, "test -z \"$(ls -A /tmp)\" && echo kept >/tmp/f"), 0);
	assert_int_equal(exit_of(f, "test \"$(cat /tmp/f)\" = kept && touch /dev/shm/x"), 0);
	expect_text(f->tmp, "f", "kept\n");
	assert_false(exists("/dev/shm/x"));
	assert_int_equal(exit_of(f, "test -z \"$(ls -A /dev/shm)\""), 0);
	assert_int_equal(exit_of(f, "test -z \"$(ls -A /run | grep -v -e systemd -e resolvconf)\""),
	                 0);
	f->opt.tmp = NULL;
	assert_int_equal(exit_of(f, "test -z \"$(ls -A /tmp)\" && touch /tmp/gone"), 0);
	assert_int_equal(exit_of(f, "test ! -e /tmp/gone"), 0);
}

/* Everything a program counts on, none of the host's hardware; nothing of it can be changed. */
static void views_dev_is_minimal(void **state)
{
	struct fix *f = *state;

	only_if_possible(f);
	assert_int_equal(exit_of(f, "test \"$(ls /dev | grep -vx -e console -e mqueue | xargs)\" ="
	                            " 'fd full null ptmx pts random shm stderr stdin stdout tty"
	                            " urandom zero'"),
	                 0);
	assert_int_equal(exit_of(f,
	                         "echo x >/dev/null && ! echo x 2>/dev/null >/dev/full &&"
	                         " test $(head -c 9 /dev/zero | wc -c) = 9 &&"
	                         " test $(cat /dev/random /dev/urandom | head -c 9 | wc -c) = 9 &&"
	                         " echo via 2>$R/said >/dev/stderr && echo in | grep -q in"
	                         " /dev/stdin"),
	                 0);
	/* Nothing here would harm the host if it were allowed. */
	assert_int_equal(exit_of(f, "chmod 666 /dev/null || touch -c -a /dev/zero ||"
	                            " touch /dev/atoll-test-x || mkdir /dev/pts/x"),
	                 1);
	assert_false(exists("/dev/atoll-test-x"));
}

/* A terminal made in there is the only one there. */
static void views_own_terminals(void **state)
{
	struct fix *f = *state;

	only_if_possible(f);
	assert_int_equal(
		exit_of(f, "test \"$(ls /dev/pts)\" = ptmx && exec python3 -c \"import os, pty;"
	                   " a, b = pty.openpty(); c, d = os.openpty();"
	                   " assert os.ttyname(b) == '/dev/pts/0', os.ttyname(b);"
	                   " assert os.ttyname(d) == '/dev/pts/1';"
	                   " os.write(b, b'x'); assert os.read(a, 1) == b'x'\""),
		0);
	assert_int_equal(exit_of(f, "script -qec 'tty >$0' /dev/null >/dev/null </dev/null;"
	                            " script -qec 'tty; : >/dev/tty' /dev/null </dev/null"
	                            " | grep -q /dev/pts/0"),
	                 0);
}

/* Nodes that are in reach by name, wherever they lie: a harmless device of everybody. */
static void views_no_device_elsewhere(void **state)
{
	struct fix *f = *state;
	char copy[PATH_LEN], node[PATH_LEN];
	const char *dirs[] = { f->dir, f->res, f->tmp, copy };

	if (geteuid() != 0)
		skip();
	path_set(copy, "%s/copy", f->dir);
	make_resource(f, copy);
	umask(0);
	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		path_set(node, "%s/zero", dirs[i]);
		assert_int_equal(mknod(node, S_IFCHR | 0666, makedev(1, 5)), 0);
		own(f, node);
	}
	umask(022);
	path_set(f->paths[1][0], "%s/target", f->dir);
	make_dir(f, f->paths[1][0], 0755);
	f->views[f->opt.n_views++] = (struct exec_view){ .kind = EXEC_VIEW_BIND,
		                                         .target = f->paths[1][0],
		                                         .source = copy };
	assert_int_equal(exit_of(f, "head -c 1 /dev/zero >/dev/null &&"
	                            " for n in $D/zero $R/zero /tmp/zero $D/target/zero; do"
	                            " test -c $n || exit 9; ! head -c 1 $n >/dev/null 2>&1 ||"
	                            " exit 8; done"),
	                 0);
	/* It makes none itself; not that it could open them. */
	assert_int_equal(exit_of(f, "for d in $R /tmp /dev/shm /dev; do"
	                            " mknod $d/new c 1 5 2>/dev/null && exit 1; done; exit 0"),
	                 0);
}

static void views_own_namespaces(void **state)
{
	struct fix *f = *state;

	only_if_possible(f);
	/* Its own numbers, nobody else's processes: pid 1, the shell, ls. */
	assert_int_equal(exit_of(f, "test $$ -lt 10 && test $PPID = 1 &&"
	                            " test $(ls -d /proc/[0-9]* | wc -l) -lt 6"),
	                 0);
	/* No program makes it more than it is. */
	assert_int_equal(exit_of(f, "grep -q '^NoNewPrivs:.1$' /proc/self/status"), 0);
	/* Root's command too has no power over what made its namespaces. */
	assert_int_equal(exit_of(f, "! readlink /proc/1/fd/4 && ! readlink /proc/1/root &&"
	                            " ! cat /proc/1/mem 2>/dev/null"),
	                 0);
}

static void ovl_06_odd_names(void **state)
{
	static const char *const names[] = { "a,b:c\\d,volatile", "with space and\nnewline",
		                             "x\\054y", "upperdir=x,lowerdir=y" };
	struct fix *f = *state;

	only_if_possible(f);
	for (size_t i = 0; i < 2 * sizeof(names) / sizeof(names[0]); i++) {
		char base[PATH_LEN], path[PATH_LEN];
		struct exec_view *v;

		/* The layers too have that name in their path. Both forms. */
		path_set(base, "%s/%zu", f->dir, i);
		make_dir(f, base, 0755);
		path_set(path, "%s/%s", base, names[i / 2]);
		make_resource(f, path);
		v = &f->views[0];
		path_set(f->paths[0][0], "%s", path);
		path_set(f->paths[0][1], "%s/upper,%s", base, names[i / 2]);
		make_dir(f, v->upper, 0755);
		path_set(f->paths[0][2], "%s/work,%s", base, names[i / 2]);
		make_dir(f, v->work, 0755);
		f->views[0] = (struct exec_view){ EXEC_VIEW_OVERLAY, path,    path,
			                          v->upper,          v->work, false };
		f->opt.cwd = path;
		assert_int_equal(setenv("ATOLL_OVERLAY_STRINGS", i % 2 ? "1" : "0", 1), 0);
		assert_int_equal(exit_of(f, "echo two >>a; rm b; ls | grep -c . | grep -qx 2"), 0);
		expect_text(path, "a", "one\n");
		expect_text(v->upper, "a", "one\ntwo\n");
	}
	assert_int_equal(unsetenv("ATOLL_OVERLAY_STRINGS"), 0);
}

static void views_target_below_tmp(void **state)
{
	struct fix *f = *state;
	char top[] = "/tmp/atoll-views-XXXXXX", res[PATH_LEN];

	only_if_possible(f);
	assert_non_null(mkdtemp(top));
	assert_int_equal(chmod(top, 0755), 0);
	own(f, top);
	path_set(res, "%s/deep", top);
	make_dir(f, res, 0755);
	path_set(res, "%s/deep/res", top);
	make_resource(f, res);
	(void)add_overlay(f, res);
	f->opt.cwd = res;
	for (int i = 0; i < 2; i++)
		assert_int_equal(exit_of(f, "echo two >>a && test $(ls /tmp) = %s && ! test -e b%d",
		                         top + sizeof("/tmp/") - 1, i),
		                 0);
	expect_text(res, "a", "one\n");
	expect_text(f->paths[1][1], "a", "one\ntwo\ntwo\n");
	assert_int_equal(remove_tree(top), 0);
}

static void views_nested(void **state)
{
	struct fix *f = *state;
	char sub[PATH_LEN];
	struct exec_view first;

	only_if_possible(f);
	path_set(sub, "%s/sub", f->res);
	(void)add_overlay(f, sub);
	/* The order in which they are given does not matter. */
	first = f->views[0];
	f->views[0] = f->views[1];
	f->views[1] = first;
	assert_int_equal(exit_of(f, "echo in >$R/sub/in && echo out >$R/out && test -e $R/sub/c"),
	                 0);
	expect_text(f->paths[1][1], "in", "in\n");
	expect_text(f->paths[0][1], "out", "out\n");
	assert_false(exists("%s/out", f->paths[1][1]));
	assert_false(exists("%s/sub/in", f->paths[0][1]));
	assert_false(exists("%s/in", sub));
}

/* In a mount namespace of the caller's own: a filesystem below the resource, with a file in it. */
static char submount_path[PATH_LEN];
static int mount_below(struct fix *f)
{
	char file[PATH_LEN + 8];
	int fd;

	(void)f;
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("none", submount_path, "tmpfs", 0, "mode=777") < 0)
		return -1;
	(void)snprintf(file, sizeof(file), "%s/below", submount_path);
	fd = open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
	return fd < 0 ? -1 : close(fd);
}

static void views_submount_is_read_only(void **state)
{
	struct fix *f = *state;
	char copy[PATH_LEN];

	if (geteuid() != 0)
		skip();
	path_set(submount_path, "%s/m \n\\x", f->res);
	make_dir(f, submount_path, 0755);
	f->before = mount_below;
	f->opt.cwd = f->res;
	if (!f->user) {
		assert_int_equal(exit_of(f, "cd m*x && test -e below && ! touch more 2>/dev/null &&"
		                            " ! rm -f below 2>/dev/null && touch ../a"),
		                 0);
	} else {
		/* The kernel does not let an ordinary user lay an overlay over mounts. */
		assert_int_equal(run(f, "true"), -ATOLL_E_UNSUPPORTED);
		assert_non_null(strstr(f->out->msg, "over the mount point '"));
	}
	path_set(copy, "%s/copy", f->dir);
	make_resource(f, copy);
	path_set(f->paths[1][0], "%s/m \n\\x", copy);
	make_dir(f, f->paths[1][0], 0755);
	f->views[0] =
		(struct exec_view){ .kind = EXEC_VIEW_BIND, .target = f->res, .source = copy };
	assert_int_equal(exit_of(f, "cd m*x && test -e below && ! touch more 2>/dev/null &&"
	                            " touch ../new"),
	                 0);
	assert_true(exists("%s/new", copy));
}

/* The files that /etc/resolv.conf may lead to are all that is left in /run. */
static const char *resolver_file;
static int make_resolver(struct fix *f)
{
	char command[1024];

	(void)f;
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -1;
	(void)snprintf(
		command, sizeof(command),
		"F=%s; mount -t tmpfs -o mode=755 x /run && mount -t tmpfs x /mnt &&"
		" mkdir -p /mnt/u /mnt/w $(dirname $F) && ln -s ..$F /mnt/u/resolv.conf &&"
		" mount -t overlay -o lowerdir=/etc,upperdir=/mnt/u,workdir=/mnt/w x /etc &&"
		" chmod 755 /etc && echo nameserver 192.0.2.1 >$F && echo secret >/run/other",
		resolver_file);
	return system(command) == 0 ? 0 : -1;
}

static void views_names_are_found(void **state)
{
	static const char *const files[] = { "/run/systemd/resolve/stub-resolv.conf",
		                             "/run/resolvconf/resolv.conf",
		                             "/run/NetworkManager/resolv.conf",
		                             "/run/resolv.conf" };
	struct fix *f = *state;

	if (geteuid() != 0)
		skip();
	f->before = make_resolver;
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		resolver_file = files[i];
		assert_int_equal(exit_of(f,
		                         "grep -qx 'nameserver 192.0.2.1' /etc/resolv.conf &&"
		                         " test ! -e /run/other && ! touch %s 2>/dev/null",
		                         files[i]),
		                 0);
	}
}

/* ---- its end ---- */

static void der_14_views_daemons_end(void **state)
{
	struct fix *f = *state;
	struct watch w;
	char line[64];

	only_if_possible(f);
	w = watch_begin();
	assert_int_equal(exit_of(f,
	                         "setsid sh -c 'trap \"\" TERM HUP INT; echo up; touch $1/up;"
	                         " sleep 600' sh $R & while [ ! -e $R/up ]; do sleep 0.01; done"),
	                 0);
	watch_close_ours(&w);
	watch_line(&w, line, sizeof(line));
	assert_string_equal(line, "up");
	watch_end(&w);
}

/* The process that CALLER has started; of the helper: pid 1. */
static pid_t helper_of(pid_t caller)
{
	char path[64];
	int pid = -1;
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", caller, caller);
	file = fopen(path, "r");
	assert_non_null(file);
	assert_int_equal(fscanf(file, "%d", &pid), 1);
	assert_int_equal(fclose(file), 0);
	return pid;
}

static pid_t start_watched(struct fix *f, struct watch *w, const char *script)
{
	char line[64];
	pid_t pid;

	*f->out = (struct outcome){ 0 };
	*w = watch_begin();
	pid = start(f, script);
	watch_close_ours(w);
	watch_line(w, line, sizeof(line));
	assert_string_equal(line, "up");
	return pid;
}

static void der_10_views_caller_killed(void **state)
{
	struct fix *f = *state;
	struct watch w;
	pid_t pid;

	only_if_possible(f);
	pid = start_watched(f, &w, "trap '' TERM HUP; setsid sleep 600 & echo up; sleep 600");
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	watch_end(&w);
}

/* Within the time allowed; whoever is to reap it may be slow. */
static bool has_ended(pid_t pid)
{
	char path[64], state = 'Z';

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	for (unsigned i = 0; i < WAIT_MS; i++) {
		FILE *file = fopen(path, "r");

		if (!file)
			return true;
		if (fscanf(file, "%*d %*s %c", &state) != 1)
			state = 'Z';
		(void)fclose(file);
		if (state == 'Z')
			return true;
		clock_sleep_ns(1000000);
	}
	return false;
}

static void views_helper_killed(void **state)
{
	struct fix *f = *state;
	struct watch w;
	pid_t pid, helper, one;
	bool ended;

	only_if_possible(f);
	pid = start_watched(f, &w, "trap '' TERM HUP; setsid sleep 600 & echo up; sleep 600");
	/* The caller does not notice yet, so its lifeline is not what ends the command. */
	helper = helper_of(pid);
	one = helper_of(helper);
	assert_int_equal(kill(pid, SIGSTOP), 0);
	assert_int_equal(kill(helper, SIGKILL), 0);
	ended = has_ended(one);
	assert_int_equal(kill(pid, SIGCONT), 0);
	join(pid);
	assert_int_equal(f->out->r, -EIO);
	assert_non_null(strstr(f->out->msg, "(signal 9)"));
	assert_true(ended);
	watch_end(&w);
}

static void views_signals_are_passed_on(void **state)
{
	struct fix *f = *state;
	struct watch w;
	pid_t pid;

	only_if_possible(f);
	pid = start_watched(f, &w, "trap 'exit 42' USR1; echo up; while :; do sleep 0.05; done");
	assert_int_equal(kill(helper_of(pid), SIGUSR1), 0);
	join(pid);
	assert_int_equal(f->out->usage.exit_code, 42);
	watch_end(&w);
}

static void der_14_views_no_descriptor_reaches_the_command(void **state)
{
	struct fix *f = *state;

	only_if_possible(f);
	f->opt.lock_fd = open(f->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(f->opt.lock_fd >= 0);
	assert_int_equal(exit_of(f, "exec 2>&1 >$R/fds; exec ls -l /proc/self/fd"), 0);
	assert_int_equal(exit_of(f,
	                         "! grep -e ' [4-9] -> ' -e memfd $R/fds && grep -q ' 3 -> /proc'"
	                         " $R/fds"),
	                 0);
	(void)close(f->opt.lock_fd);
}

/* What Python's OPEN opened in the view leaves through a socket. The socket's other end. */
static int hand_out(struct fix *f, const char *open)
{
	cleanup_free char *script =
		xasprintf("exec python3 -c 'import os,socket,sys; f=%s;"
	                  " socket.send_fds(socket.socket(fileno=0),[b\"x\"],[f])' $R",
	                  open);
	int pair[2], saved;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	saved = fcntl(0, F_DUPFD_CLOEXEC, 10);
	assert_int_equal(dup2(pair[1], 0), 0);
	(void)close(pair[1]);
	assert_int_equal(exit_of(f, script), 0);
	assert_int_equal(dup2(saved, 0), 0);
	(void)close(saved);
	return pair[0];
}

static int take_out(int socket_fd)
{
	char byte, control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov,
		              .msg_iovlen = 1,
		              .msg_control = control,
		              .msg_controllen = sizeof(control) };
	int fd;

	assert_int_equal(recvmsg(socket_fd, &msg, MSG_CMSG_CLOEXEC), 1);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	return fd;
}

static void views_still_written(void **state)
{
	struct fix *f = *state;
	int fd;

	only_if_possible(f);
	fd = hand_out(f, "os.open(sys.argv[1]+\"/held\",os.O_WRONLY|os.O_CREAT)");
	assert_true(f->out->usage.still_written);
	(void)close(fd);
	assert_int_equal(exit_of(f, "echo x >$R/held"), 0);
	assert_false(f->out->usage.still_written);
}

/* By a directory, or a file that was open for reading, nothing is written when the command has ended. */
static void views_are_frozen_for_what_was_handed_out(void **state)
{
	struct fix *f = *state;
	char path[64];
	int socket_fd, fd;

	only_if_possible(f);
	socket_fd = hand_out(f, "os.open(sys.argv[1],os.O_RDONLY)");
	assert_false(f->out->usage.still_written);
	fd = take_out(socket_fd);
	assert_int_equal(openat(fd, "late", O_WRONLY | O_CREAT | O_CLOEXEC, 0600), -1);
	assert_int_equal(errno, EROFS);
	(void)close(fd);
	(void)close(socket_fd);
	assert_int_equal(exit_of(f, "echo x >$R/file"), 0);
	socket_fd = hand_out(f, "os.open(sys.argv[1]+\"/file\",os.O_RDONLY)");
	fd = take_out(socket_fd);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	assert_int_equal(open(path, O_WRONLY | O_CLOEXEC), -1);
	assert_int_equal(errno, EROFS);
	(void)close(fd);
	(void)close(socket_fd);
}

/* ---- a terminal ---- */

/* Reads from the terminal until WANT has been seen. */
static void expect_on(int fd, const char *want)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	char seen[4096] = "";
	size_t n = 0;

	while (!strstr(seen, want)) {
		ssize_t got;

		if (poll(&pfd, 1, WAIT_MS) != 1)
			fail_msg("'%s' did not come, only '%s'", want, seen);
		got = read(fd, seen + n, sizeof(seen) - 1 - n);
		if (got <= 0)
			fail_msg("'%s' did not come, only '%s'", want, seen);
		n += (size_t)got;
		seen[n] = '\0';
	}
}

/* A caller that lives on when the terminal interrupts. Not SIG_IGN: that the command would keep. */
static void on_interrupt(int sig)
{
	(void)sig;
}

static void views_terminal(void **state)
{
	struct winsize size = { .ws_row = 33, .ws_col = 77 };
	struct fix *f = *state;
	int fd, status;
	pid_t shell;

	only_if_possible(f);
	shell = forkpty(&fd, NULL, NULL, &size);
	assert_true(shell >= 0);
	if (shell == 0) {
		/* A session leader, as a shell is; its job in a process group of its own. */
		pid_t job = fork();

		if (job == 0) {
			(void)setpgid(0, 0);
			(void)signal(SIGTTOU, SIG_IGN);
			(void)tcsetpgrp(0, getpid());
			(void)signal(SIGTTOU, SIG_DFL);
			(void)signal(SIGINT, on_interrupt);
			become(f);
			call(f, "test -t 0 && echo name $(tty) && echo by name >/dev/tty &&"
			        " echo size $(stty size); trap 'echo got int' INT;"
			        " trap 'echo got winch; w=1' WINCH; echo ready;"
			        " while [ -z \"$w\" ]; do sleep 0.02; done;"
			        " kill -STOP $$; echo on again; exit 7");
			_exit(f->out->r < 0 ? 99 : f->out->usage.exit_code);
		}
		for (;;) {
			if (waitpid(job, &status, WUNTRACED) != job)
				_exit(98);
			if (WIFEXITED(status))
				_exit(WEXITSTATUS(status));
			/* Say so, wait for a word, put it into the foreground again. */
			(void)signal(SIGTTOU, SIG_IGN);
			(void)tcsetpgrp(0, getpid());
			(void)!write(1, "stopped\n", 8);
			(void)!read(0, (char[16]){ 0 }, 16);
			(void)tcsetpgrp(0, job);
			(void)kill(-job, SIGCONT);
			(void)!write(1, "continued\n", 10);
		}
	}
	expect_on(fd, "name /dev/console\r\nby name\r\nsize 33 77\r\nready");
	assert_int_equal(write(fd, "\003", 1), 1);
	expect_on(fd, "got int");
	assert_int_equal(write(fd, "\032", 1), 1);
	expect_on(fd, "stopped");
	assert_int_equal(write(fd, "fg\n", 3), 3);
	expect_on(fd, "continued");
	size.ws_col = 78;
	assert_int_equal(ioctl(fd, TIOCSWINSZ, &size), 0);
	/* It stops itself alone: the job stops all the same. */
	expect_on(fd, "got winch\r\nstopped");
	assert_int_equal(write(fd, "fg\n", 3), 3);
	expect_on(fd, "on again");
	assert_int_equal(waitpid(shell, &status, 0), shell);
	assert_int_equal(WEXITSTATUS(status), 7);
	(void)close(fd);
}

/* ---- failures, and the probe ---- */

static void views_failure_says_where(void **state)
{
	struct fix *f = *state;
	char link[PATH_LEN];

	only_if_possible(f);
	path_set(link, "%s/link", f->dir);
	assert_int_equal(symlink(f->views[0].upper, link), 0);
	f->views[0].upper = link;
	assert_int_equal(run(f, "true"), -ATOLL_E_UNSUPPORTED);
	assert_non_null(strstr(f->out->msg, "open directory '"));
	assert_non_null(strstr(f->out->msg, link));
	assert_non_null(strstr(f->out->hint, "atoll doctor"));

	/* An upper layer in another filesystem than its work directory. */
	f->views[0].upper = "/dev/shm";
	assert_int_equal(run(f, "true"), -ATOLL_E_UNSUPPORTED);
	assert_non_null(strstr(f->out->msg, "mount overlay at '"));
	assert_non_null(strstr(f->out->msg, f->res));

	f->views[0].upper = f->paths[0][1];
	f->views[0].target = link;
	assert_int_equal(run(f, "true"), -ATOLL_E_UNSUPPORTED);
	f->views[0].target = "/nonexistent/x";
	assert_int_equal(run(f, "true"), -ATOLL_E_UNSUPPORTED);
	assert_non_null(strstr(f->out->msg, "/nonexistent/x"));
	assert_int_equal(rmdir(f->paths[0][2]) == 0 || exists("%s/work", f->paths[0][2]), 1);
}

/* exec_probe() as the fixture's user; its answer in F->out. */
static void probe(struct fix *f, const char *root, const char *area)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	*f->out = (struct outcome){ 0 };
	if (pid == 0) {
		struct error err = ERROR_INIT;
		char *why = NULL;

		become(f);
		f->out->r = exec_probe(root, area, &f->out->tier, &why, &err);
		note_error(f->out, &err);
		if (why)
			(void)snprintf(f->out->msg, sizeof(f->out->msg), "%s", why);
		free(why);
		_exit(0);
	}
	join(pid);
}

static unsigned entries_of(const char *path)
{
	unsigned n = 0;
	DIR *dir = opendir(path);

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	(void)closedir(dir);
	return n - 2;
}

static const char *namespace_limit;
static int forbid_namespaces(struct fix *f)
{
	cleanup_close int fd = FD_NONE;
	int ready[2], mapped[2];
	char c = 0;
	pid_t pid;

	(void)f;
	if (pipe2(ready, O_CLOEXEC) < 0 || pipe2(mapped, O_CLOEXEC) < 0)
		return -1;
	pid = getpid();
	if (fork() == 0) {
		char command[128];

		(void)snprintf(command, sizeof(command),
		               "echo 0 0 65535 >/proc/%d/uid_map; echo 0 0 65535 >/proc/%d/gid_map",
		               pid, pid);
		_exit(read(ready[0], &c, 1) == 1 && system(command) == 0 &&
		                      write(mapped[1], &c, 1) == 1
		              ? 0
		              : 1);
	}
	if (unshare(CLONE_NEWUSER) < 0 || write(ready[1], &c, 1) != 1 ||
	    read(mapped[0], &c, 1) != 1)
		return -1;
	(void)wait(NULL);
	fd = open(namespace_limit, O_WRONLY | O_CLOEXEC);
	return fd >= 0 && write(fd, "0\n", 2) == 2 ? 0 : -1;
}

/* The area's path becomes an overlay. */
static char overlay_path[PATH_LEN];
static int mount_overlay(struct fix *f)
{
	(void)f;
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -1;
	if (mount("none", "/mnt", "tmpfs", 0, NULL) < 0 || mkdir("/mnt/u", 0777) < 0 ||
	    mkdir("/mnt/w", 0777) < 0 || mkdir("/mnt/l", 0777) < 0)
		return -1;
	if (mount("none", overlay_path, "overlay", 0,
	          "lowerdir=/mnt/l,upperdir=/mnt/u,workdir=/mnt/w") < 0)
		return -1;
	return chmod(overlay_path, 0777);
}

static int forbid_user_namespaces(struct fix *f)
{
	namespace_limit = "/proc/sys/user/max_user_namespaces";
	return forbid_namespaces(f);
}

static int forbid_mount_namespaces(struct fix *f)
{
	namespace_limit = "/proc/sys/user/max_mnt_namespaces";
	return forbid_namespaces(f);
}

static void expect_failure(struct fix *f, int code, const char *what, const char *hint)
{
	int r = run(f, "true");

	if (r != code || !strstr(f->out->msg, what) || !strstr(f->out->hint, hint))
		fail_msg("%d '%s' '%s', not %d '%s' '%s'", r, f->out->msg, f->out->hint, code, what,
		         hint);
}

/* A directory on a filesystem that takes nothing more. */
static char record_path[PATH_LEN];
static int mount_record(const char *options, unsigned long flags)
{
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -1;
	return mount("none", record_path, "tmpfs", flags, options);
}

static int mount_read_only(struct fix *f)
{
	(void)f;
	return mount_record("mode=777", MS_RDONLY);
}

static int mount_full(struct fix *f)
{
	(void)f;
	return mount_record("mode=777,nr_inodes=1", 0);
}

static void err_views_area_takes_nothing(void **state)
{
	struct fix *f = *state;

	if (geteuid() != 0)
		skip();
	path_set(record_path, "%s/record", f->dir);
	f->opt.record = record_path;
	expect_failure(f, -ATOLL_E_UNSUPPORTED, "record': No such file", "atoll doctor");
	make_dir(f, record_path, 0755);
	f->before = mount_read_only;
	expect_failure(f, -EROFS, "record/running': Read-only", "remount,rw");
	f->before = mount_full;
	expect_failure(f, -ENOSPC, "record/running': No space", "df -i");
	f->before = NULL;
	assert_int_equal(exit_of(f, "test -s $D/record/running"), 0);
	assert_false(exists("%s/running", record_path));
}

static void err_views_no_namespaces(void **state)
{
	struct fix *f = *state;

	if (geteuid() != 0)
		skip();
	f->before = forbid_mount_namespaces;
	expect_failure(f, -ATOLL_E_UNSUPPORTED, "user.max_mnt_namespaces", "atoll doctor");
	assert_null(strstr(f->out->msg, "No space"));
	f->before = forbid_user_namespaces;
	if (f->user)
		expect_failure(f, -ATOLL_E_UNSUPPORTED,
		               "make namespaces: user namespaces are switched off", "doctor");
}

/* Wherever a limit strikes, it is named: never an end without a word. */
static rlim_t limit_value;
static int limit_files(struct fix *f)
{
	(void)f;
	return setrlimit(RLIMIT_NOFILE, &(struct rlimit){ limit_value, limit_value });
}

static int limit_processes(struct fix *f)
{
	(void)f;
	return setrlimit(RLIMIT_NPROC, &(struct rlimit){ limit_value, limit_value });
}

static unsigned sweep(struct fix *f, rlim_t last, const char *what, const char *hint)
{
	unsigned failed = 0;

	for (limit_value = 0; limit_value <= last; limit_value++) {
		/* What the command itself does with so little is its own affair. */
		if (run(f, "exit 0") == 0)
			continue;
		if (!strstr(f->out->msg, what) || !strstr(f->out->hint, hint))
			fail_msg("limit %u: '%s' '%s'", (unsigned)limit_value, f->out->msg,
			         f->out->hint);
		failed++;
	}
	return failed;
}

static void err_views_limits_are_named(void **state)
{
	struct fix *f = *state;

	only_if_possible(f);
	f->before = limit_files;
	assert_true(sweep(f, 48, "Too many open files", "ulimit -n") > 16);
	assert_int_equal(f->out->r, 0);
	/* Others' processes count too, so it may not get far; root is not limited. */
	if (geteuid() != 0 || !f->user)
		return;
	f->before = limit_processes;
	assert_true(sweep(f, 24, "Resource temporarily unavailable", "ulimit -u") > 0);
}

static void err_views_first_process_killed(void **state)
{
	struct fix *f = *state;
	struct watch w;
	pid_t pid;

	only_if_possible(f);
	pid = start_watched(f, &w, "echo up; sleep 600");
	assert_int_equal(kill(helper_of(helper_of(pid)), SIGKILL), 0);
	join(pid);
	assert_int_equal(f->out->r, -EIO);
	assert_non_null(strstr(f->out->msg, "was killed (signal 9)"));
	watch_end(&w);
}

static void err_views_directory_not_there(void **state)
{
	struct fix *f = *state;
	char top[] = "/tmp/atoll-views-XXXXXX", closed[PATH_LEN];

	only_if_possible(f);
	assert_non_null(mkdtemp(top));
	f->opt.cwd = top;
	expect_failure(f, -ATOLL_E_NOT_FOUND, top, "a '/tmp' of its own");
	assert_int_equal(rmdir(top), 0);
	path_set(closed, "%s/closed", f->dir);
	f->opt.cwd = closed;
	expect_failure(f, -ATOLL_E_NOT_FOUND, "in the plan's view: No such", "that is there");
	assert_int_equal(mkdir(closed, 0700), 0);
	if (f->user && geteuid() == 0) /* root's */
		expect_failure(f, -ATOLL_E_NOT_FOUND, "Permission denied", "may be entered");
}

/* Then root's command has no user namespace of its own, but no power over its mounts either. */
static void views_root_without_user_namespaces(void **state)
{
	static const char *const scripts[] = {
		"mount -o remount,bind,rw /",
		"umount /tmp",
		"umount $R",
		"mount -t tmpfs x $R/sub",
		"mknod $R/new c 1 5",
		"unshare -m :",
		"umount /dev",
		"chroot / umount /tmp",
	};
	struct fix *f = *state;

	if (geteuid() != 0 || f->user)
		skip();
	f->before = forbid_user_namespaces;
	for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++)
		if (exit_of(f, "(%s) 2>/dev/null", scripts[i]) == 0)
			fail_msg("allowed: %s", scripts[i]);
	assert_int_equal(exit_of(f, "! readlink /proc/1/root && ! cat /proc/1/mem 2>/dev/null &&"
	                            " chown 1:1 $R/a && chmod 0 $R/a && cat $R/a && rm $R/b"),
	                 0);
}

static void probe_tiers(void **state)
{
	struct fix *f = *state;
	char area[PATH_LEN];

	only_if_possible(f);
	path_set(area, "%s/area", f->dir);
	make_dir(f, area, 0700);
	probe(f, f->res, area);
	assert_int_equal(f->out->r, 0);
	assert_string_equal(f->out->msg, "");
	assert_int_equal(f->out->tier, EXEC_TIER_OVERLAY);
	assert_int_equal(entries_of(area), 0);
	assert_int_equal(entries_of(f->res), 3);

	probe(f, f->res, "/nonexistent");
	assert_int_equal(f->out->r, -ENOENT);
	assert_non_null(strstr(f->out->msg, "/nonexistent"));

	if (geteuid() != 0)
		return;
	path_set(overlay_path, "%s", area);
	f->before = mount_overlay;
	probe(f, f->res, area);
	assert_int_equal(f->out->r, 0);
	assert_int_equal(f->out->tier, EXEC_TIER_BIND);
	assert_non_null(strstr(f->out->msg, "is on overlay"));
	if (!f->user)
		return;
	f->before = forbid_user_namespaces;
	probe(f, f->res, area);
	assert_int_equal(f->out->r, 0);
	assert_int_equal(f->out->tier, EXEC_TIER_NONE);
	assert_non_null(strstr(f->out->msg, "user.max_user_namespaces=0"));

	f->before = NULL;
	probe(f, "/usr", area);
	assert_int_equal(f->out->tier, EXEC_TIER_BIND);
	assert_non_null(strstr(f->out->msg, "belongs to 0:0"));
}

static int user_mark;

/* clang-format off */
#define both(test) \
	{ #test, test, setup, teardown, NULL }, { #test "_user", test, setup, teardown, &user_mark }
/* clang-format on */

int main(void)
{
	static const struct CMUnitTest tests[] = {
		both(views_exit_codes),
		both(views_time_limit),
		both(views_cannot_start),
		both(views_same_user),
		both(views_overlay_at_its_path),
		both(views_overlay_layers_by_name),
		both(views_overlay_options),
		both(views_bind),
		both(views_show),
		both(views_rest_is_read_only),
		both(views_private_places),
		both(views_dev_is_minimal),
		both(views_own_terminals),
		both(views_no_device_elsewhere),
		both(views_own_namespaces),
		both(ovl_06_odd_names),
		both(views_target_below_tmp),
		both(views_nested),
		both(views_submount_is_read_only),
		both(views_names_are_found),
		both(der_14_views_daemons_end),
		both(der_10_views_caller_killed),
		both(views_helper_killed),
		both(views_signals_are_passed_on),
		both(der_14_views_no_descriptor_reaches_the_command),
		both(views_still_written),
		both(views_are_frozen_for_what_was_handed_out),
		both(views_terminal),
		both(views_failure_says_where),
		{ "views_root_without_user_namespaces", views_root_without_user_namespaces, setup,
		  teardown, NULL },
		both(err_views_area_takes_nothing),
		both(err_views_no_namespaces),
		both(err_views_limits_are_named),
		both(err_views_first_process_killed),
		both(err_views_directory_not_there),
		both(probe_tiers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
