/* SPDX-License-Identifier: Apache-2.0 */
#include "strategy/git-run.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/clock.h"
#include "util/git-env.h"
#include "util/list.h"
#include "util/mem.h"
#include "util/run.h"

#define DEFAULT_TIMEOUT 600          /* seconds */
#define OUTPUT_MAX      (1ull << 30) /* the index of some million files */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct strlist base_env; /* immutable after ONCE */
static char *program;           /* NULL: there is no git */

static void make_env(void)
{
	git_env_base(&base_env);
	program = git_env_program();
}

static int64_t time_limit(void)
{
	const char *text = getenv("ATOLL_GIT_TIMEOUT");
	long seconds = text ? strtol(text, NULL, 10) : 0;

	return clock_deadline((seconds > 0 ? seconds : DEFAULT_TIMEOUT) * 1000);
}

static void add_env(struct strlist *env, const char *name, const char *value)
{
	cleanup_free char *pair = value ? xasprintf("%s=%s", name, value) : NULL;

	if (pair)
		strlist_add(env, pair);
}

static void add_setting(struct strlist *env, size_t n, const char *key, const char *value)
{
	cleanup_free char *key_name = xasprintf("GIT_CONFIG_KEY_%zu", n);
	cleanup_free char *value_name = xasprintf("GIT_CONFIG_VALUE_%zu", n);

	add_env(env, key_name, key);
	add_env(env, value_name, value);
}

static void call_env(const struct git *g, struct strlist *env)
{
	size_t n = GIT_ENV_CONFIGS;
	cleanup_free char *count = NULL;

	add_setting(env, n++, "core.fsync", g->durable ? "all" : "none");
	for (size_t i = 0; g->settings && i + 1 < g->settings->n; i += 2)
		add_setting(env, n++, g->settings->v[i], g->settings->v[i + 1]);
	count = xasprintf("%zu", n);
	add_env(env, "GIT_CONFIG_COUNT", count);
	add_env(env, "GIT_DIR", g->dir);
	add_env(env, "GIT_INDEX_FILE", g->index);
	add_env(env, "GIT_OBJECT_DIRECTORY", g->objects);
	add_env(env, "GIT_ALTERNATE_OBJECT_DIRECTORIES", g->alternates);
	add_env(env, "GIT_WORK_TREE", g->work_tree);
	for (const char *const *e = g->env; e && *e; e++)
		strlist_add(env, *e);
}

/* The first line that says what is wrong. */
static char *complaint(const struct strbuf *err)
{
	const char *text = strbuf_str(err);
	const char *at = strstr(text, "fatal: ");

	if (!at)
		at = strstr(text, "error: ");
	at = at ? at + 7 : text;
	return xstrndup(at, strcspn(at, "\n"));
}

static int fail(const char *command, const char *cwd, const char *how,
                const struct strbuf *said_all, struct error *err)
{
	cleanup_free char *said = complaint(said_all);

	(void)error_set(err, -ATOLL_E_CANNOT_PREPARE, "git %s %s%s%s", command, how,
	                *said ? ": " : "", said);
	error_cause(err, command, cwd, 0, strbuf_str(said_all));
	return -ATOLL_E_CANNOT_PREPARE;
}

static int run_git(const struct git *g, const struct git_call *call, struct strbuf *err,
                   int *status)
{
	const char *const *args = call->args;
	const struct strbuf *in = call->in;
	cleanup_strlist struct strlist env = STRLIST_INIT;
	cleanup_free const char **argv = NULL;
	cleanup_free const char **envp = NULL;
	size_t n = 0;

	while (args[n])
		n++;
	argv = xcalloc(n + 2, sizeof(*argv));
	argv[0] = "git";
	for (size_t i = 0; i < n; i++)
		argv[i + 1] = args[i];
	call_env(g, &env);
	envp = xcalloc(base_env.n + env.n + 1, sizeof(*envp));
	for (size_t i = 0; i < base_env.n; i++)
		envp[i] = base_env.v[i];
	for (size_t i = 0; i < env.n; i++)
		envp[base_env.n + i] = env.v[i];
	return run_program(&(struct run){ .file = program,
	                                  .argv = argv,
	                                  .envp = envp,
	                                  .cwd = g->work_tree ? g->work_tree : call->cwd,
	                                  .in = in ? in->buf : NULL,
	                                  .in_len = in ? in->len : 0,
	                                  .in_fd = g->in_fd,
	                                  .out_fd = g->out_fd,
	                                  .held_fd = g->held_fd,
	                                  .max = OUTPUT_MAX,
	                                  .deadline = time_limit() },
	                   call->out, err, status);
}

int git_call(const struct git *g, const struct git_call *call, struct error *err)
{
	cleanup_strbuf struct strbuf said = STRBUF_INIT;
	const char *command = call->args[0];
	int status = 0, r;

	(void)pthread_once(&once, make_env);
	if (!program)
		return error_set(err, -ATOLL_E_UNSUPPORTED, "there is no git on this machine");
	r = run_git(g, call, &said, &status);
	if (r == -ETIMEDOUT)
		return fail(command, g->dir, "took too long and was ended", &said, err);
	if (r < 0)
		return error_sys(err, r, "run git", command);
	if (WIFSIGNALED(status)) {
		cleanup_free char *how = xasprintf("was killed by signal %d", WTERMSIG(status));

		return fail(command, g->dir, how, &said, err);
	}
	return WEXITSTATUS(status) <= 1 && !(WEXITSTATUS(status) == 1 && said.len)
	               ? WEXITSTATUS(status)
	               : fail(command, g->dir, "failed", &said, err);
}

/* An empty command is none; one that is required would be missed. */
static int leave_filters_out(struct atoll_participant *p, const struct git *g,
                             struct strlist *settings)
{
	static const char required[] = ".required";
	cleanup_strbuf struct strbuf out = STRBUF_INIT;
	const struct git_call call = {
		.cwd = p->area,
		.args = GIT_ARGS("config", "--null", "--name-only", "--get-regexp", "^filter\\."),
		.out = &out,
	};
	struct git ask = *g;
	int r;

	ask.in_fd = ask.out_fd = FD_NONE;
	r = git_call(&ask, &call, &p->err);
	for (const char *key = out.buf; r == 0 && key && key < out.buf + out.len;
	     key += strlen(key) + 1) {
		size_t len = strlen(key), end = sizeof(required) - 1;
		bool is_required = len > end && strcmp(key + len - end, required) == 0;

		strlist_add(settings, key);
		strlist_add(settings, is_required ? "false" : "");
	}
	return r < 0 ? r : 0;
}

int git_ask(struct atoll_participant *p, const struct git *g, const char *const *args,
            const struct strbuf *in, struct strbuf *out)
{
	const struct git_call call = { .cwd = p->area, .args = args, .in = in, .out = out };
	cleanup_strlist struct strlist settings = STRLIST_INIT;
	struct git how = *g;
	int r = g->work_tree ? leave_filters_out(p, g, &settings) : 0;

	how.settings = &settings;
	return r < 0 ? r : git_call(&how, &call, &p->err);
}

int git_do(struct atoll_participant *p, const struct git *g, const char *const *args,
           const struct strbuf *in, struct strbuf *out)
{
	int r = git_ask(p, g, args, in, out);

	return r > 0 ? fail(args[0], g->dir, "ended with status 1", &STRBUF_INIT, &p->err) : r;
}

void git_path_list(struct strbuf *list, const char *path)
{
	if (list->len)
		strbuf_putc(list, ':');
	strbuf_putc(list, '"');
	for (const char *c = path; *c; c++) {
		if (*c == '"' || *c == '\\')
			strbuf_putc(list, '\\');
		if (*c == '\n')
			strbuf_puts(list, "\\n");
		else
			strbuf_putc(list, *c);
	}
	strbuf_putc(list, '"');
}
