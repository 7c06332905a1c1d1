/* SPDX-License-Identifier: Apache-2.0 */
#include "sync/git-run.h"

#include "fs/atomic.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/git-env.h"
#include "util/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define END_WAIT (600 * 1000) /* ms from its last byte to its end */
#define ERR_MAX  4096u

static void add_pair(struct strlist *env, const char *name, const char *value)
{
	cleanup_free char *pair = xasprintf("%s=%s", name, value);

	strlist_add(env, pair);
}

static void add_config(struct strlist *env, size_t at, const char *key, const char *value)
{
	cleanup_free char *name = xasprintf("GIT_CONFIG_KEY_%zu", at);
	cleanup_free char *val = xasprintf("GIT_CONFIG_VALUE_%zu", at);

	add_pair(env, name, key);
	add_pair(env, val, value);
}

static void make_env(struct strlist *env, const char *root, const struct sync_git_how *how)
{
	static const char literal[] = "GIT_LITERAL_PATHSPECS=";
	cleanup_strlist struct strlist base = STRLIST_INIT;
	bool own = how->rules == SYNC_GIT_OWN;
	cleanup_free char *dir = xasprintf("%s/.git", root);
	cleanup_free char *count = xasprintf("%zu", GIT_ENV_CONFIGS + (own ? 2 : 1));

	git_env_base(&base);
	/* check-ignore refuses to run with it. */
	for (size_t i = 0; i < base.n; i++)
		if (strncmp(base.v[i], literal, strlen(literal)) != 0)
			strlist_add(env, base.v[i]);
	add_config(env, GIT_ENV_CONFIGS, "core.fsync", "none");
	if (own) {
		add_config(env, GIT_ENV_CONFIGS + 1, "core.excludesFile", "/dev/null");
		add_pair(env, "GIT_CONFIG_GLOBAL", "/dev/null");
	}
	add_pair(env, "GIT_CONFIG_COUNT", count);
	add_pair(env, "GIT_DIR", dir);
	add_pair(env, "GIT_WORK_TREE", root);
	if (how->objects)
		add_pair(env, "GIT_OBJECT_DIRECTORY", how->objects);
}

int sync_git_root(int root_fd, char out[PATH_MAX])
{
	char link[sizeof("/proc/self/fd/") + 3 * sizeof(int)];
	ssize_t n;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", root_fd);
	n = readlink(link, out, PATH_MAX);
	if (n < 0)
		return -errno;
	if (n == PATH_MAX)
		return -ENAMETOOLONG;
	out[n] = '\0';
	return 0;
}

/* A file in memory, to be read from its beginning. */
static int memory_file(const struct strbuf *content, int *ret_fd)
{
	cleanup_close int fd = memfd_create("atoll-sync", MFD_CLOEXEC);
	int r;

	if (fd < 0)
		return -errno;
	r = content ? fs_write_all(fd, content->buf, content->len) : 0;
	if (r == 0 && lseek(fd, 0, SEEK_SET) < 0)
		r = -errno;
	if (r == 0)
		*ret_fd = take_fd(&fd);
	return r;
}

static int spawn(struct sync_git *g, const struct sync_git_how *how, const char *root, int in_fd,
                 int out_fd)
{
	cleanup_strlist struct strlist env = STRLIST_INIT;
	cleanup_free char *program = git_env_program();
	cleanup_free const char **envp = NULL;
	cleanup_free const char **argv = NULL;
	const struct child_fd fds[] = { { in_fd, 0 }, { out_fd, 1 }, { g->err_fd, 2 } };
	size_t n = 0;

	if (!program)
		return -ATOLL_E_UNSUPPORTED;
	while (how->args[n])
		n++;
	argv = xcalloc(n + 2, sizeof(*argv));
	argv[0] = "git";
	for (size_t i = 0; i < n; i++)
		argv[i + 1] = how->args[i];
	make_env(&env, root, how);
	envp = xcalloc(env.n + 1, sizeof(*envp));
	for (size_t i = 0; i < env.n; i++)
		envp[i] = env.v[i];
	return child_spawn(&g->child, &(struct child_options){ .file = program,
	                                                       .argv = argv,
	                                                       .envp = envp,
	                                                       .fds = fds,
	                                                       .n_fds = 3,
	                                                       .cwd = root,
	                                                       .leads_group = true });
}

static int start(struct sync_git *g, const struct sync_git_how *how)
{
	cleanup_close int theirs = FD_NONE, other = FD_NONE;
	char root[PATH_MAX];
	int ends[2];
	int r = sync_git_root(how->root_fd, root);

	if (r == 0)
		r = memory_file(NULL, &g->err_fd);
	if (r == 0)
		r = memory_file(how->in, &other);
	if (r < 0)
		return r;
	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	g->pipe = ends[how->takes ? 1 : 0];
	theirs = ends[how->takes ? 0 : 1];
	return how->takes ? spawn(g, how, root, theirs, other) : spawn(g, how, root, other, theirs);
}

int sync_git_start(struct sync_git *g, const struct sync_git_how *how, struct error *err)
{
	int r;

	g->command = how->args[0];
	r = start(g, how);
	if (r == -ATOLL_E_UNSUPPORTED) {
		(void)error_set(err, r, "there is no git on this machine");
		error_hint(err, "a repository is brought over with it; install git");
		return r;
	}
	return r < 0 ? error_sys(err, r, "run git", how->args[0]) : 0;
}

/* The first line that says what is wrong; true: as an error. */
static bool read_complaint(const struct sync_git *g, char out[ERR_MAX])
{
	ssize_t n = pread(g->err_fd, out, ERR_MAX - 1, 0);
	char *at;

	out[n > 0 ? n : 0] = '\0';
	at = strstr(out, "fatal: ");
	if (!at)
		at = strstr(out, "error: ");
	if (at)
		memmove(out, at + 7, strlen(at + 7) + 1);
	out[strcspn(out, "\n")] = '\0';
	return at != NULL;
}

int sync_git_finish(struct sync_git *g, struct error *err)
{
	char said[ERR_MAX];
	bool is_error;
	int status = 0, r;

	close_fd(&g->pipe);
	r = child_wait(&g->child, clock_deadline(END_WAIT), &status);
	if (r < 0)
		return error_sys(err, r, "run git", g->command);
	is_error = read_complaint(g, said);
	if (WIFEXITED(status) && WEXITSTATUS(status) <= 1 &&
	    !(WEXITSTATUS(status) == 1 && is_error))
		return WEXITSTATUS(status);
	return error_set(err, -ATOLL_E_CANNOT_PREPARE, "git %s failed%s%s", g->command,
	                 said[0] ? ": " : "", said);
}

void sync_git_done(struct sync_git *g)
{
	close_fd(&g->pipe);
	close_fd(&g->err_fd);
	child_done(&g->child);
}
