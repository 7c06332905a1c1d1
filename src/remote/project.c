/* SPDX-License-Identifier: Apache-2.0 */
/* The project that a directory belongs to, and how near its HEAD is to a session's. */
#include "remote/session.h"

#include "fs/resolve.h"
#include "plan/project-root.h"
#include "strategy/git-call.h"
#include "util/cleanup.h"
#include "util/mem.h"
#include "util/strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void project_done(struct project *p)
{
	free(p->root);
	free(p->branch);
	free(p->head);
	*p = (struct project){ 0 };
}

/* ---- its root ---- */

static int refuse(const char *path, const char *why, struct error *err)
{
	(void)error_set(err, -ATOLL_E_UNSUPPORTED,
	                "'%s' %s, and that would be missing on the other machine", path, why);
	error_hint(err, "use a clone of its own: git clone --no-local");
	return -ATOLL_E_UNSUPPORTED;
}

static bool exists(const char *git_dir, const char *name)
{
	cleanup_free char *path = xasprintf("%s/%s", git_dir, name);

	return access(path, F_OK) == 0;
}

/* 1: GIT_DIR is a repository that is here as a whole. */
static int check_git(const char *git_dir, struct error *err)
{
	struct stat st;

	if (lstat(git_dir, &st) < 0)
		return errno == ENOENT || errno == ENOTDIR
		               ? 0
		               : error_sys(err, -errno, "stat", git_dir);
	if (S_ISREG(st.st_mode))
		return refuse(
			git_dir,
			"says that the repository is elsewhere (a linked worktree or a submodule)",
			err);
	if (S_ISLNK(st.st_mode))
		return refuse(git_dir, "is a link to a repository elsewhere", err);
	if (!S_ISDIR(st.st_mode) || !exists(git_dir, "HEAD"))
		return 0; /* as git sees it */
	if (exists(git_dir, "commondir"))
		return refuse(git_dir, "is a part of a repository elsewhere", err);
	if (exists(git_dir, "objects/info/alternates"))
		return refuse(git_dir, "borrows objects from another repository", err);
	return 1;
}

static int find_root(const char *dir, struct project *p, struct error *err)
{
	cleanup_free char *git_dir = NULL;
	struct project_root root;
	int r = project_root_find(dir, PROJECT_AUTO, &root);

	if (r < 0)
		return error_sys(err, r, "look at", dir);
	p->root = root.path;
	git_dir = root.is_git ? xasprintf("%s/.git", root.path) : NULL;
	r = git_dir ? check_git(git_dir, err) : 0;
	p->is_git = r > 0;
	return r < 0 ? r : 0;
}

/* ---- HEAD ---- */

/* 1 and the first line; 0: git says no. */
static int ask_git(const struct project *p, const char *const *args, char **ret, struct error *err)
{
	cleanup_free char *git_dir = xasprintf("%s/.git", p->root);
	cleanup_strbuf struct strbuf out = STRBUF_INIT;
	const struct git g = GIT_AT(git_dir);
	int r = git_call(&g, &(struct git_call){ .cwd = p->root, .args = args, .out = &out }, err);

	if (r < 0)
		return r;
	if (r > 0)
		return 0;
	*ret = xstrndup(strbuf_str(&out), strcspn(strbuf_str(&out), "\n"));
	return 1;
}

static int read_head(struct project *p, struct error *err)
{
	int r = ask_git(p, GIT_ARGS("symbolic-ref", "-q", "HEAD"), &p->branch, err);

	if (r >= 0)
		r = ask_git(p, GIT_ARGS("rev-parse", "-q", "--verify", "HEAD^{commit}"), &p->head,
		            err);
	return r < 0 ? r : 0;
}

int project_find(const char *dir, struct project *ret, struct error *err)
{
	cleanup_project struct project p = { 0 };
	cleanup_free char *canonical = NULL;
	struct stat st;
	int r = resolve_canonical(dir ? dir : ".", &canonical);

	if (r < 0)
		return error_sys(err, r, "find the directory", dir ? dir : ".");
	if (stat(canonical, &st) < 0 || !S_ISDIR(st.st_mode))
		return error_set(err, -ATOLL_E_INVALID, "'%s' is no directory", canonical);
	r = find_root(canonical, &p, err);
	if (r == 0 && p.is_git)
		r = read_head(&p, err);
	if (r < 0)
		return r;
	if (!p.branch)
		p.branch = xstrdup("");
	if (!p.head)
		p.head = xstrdup("");
	*ret = p;
	p = (struct project){ 0 };
	return 0;
}

int project_distance(const struct project *p, const char *from, int64_t *ret, struct error *err)
{
	cleanup_free char *range = NULL;
	cleanup_free char *text = NULL;
	cleanup_error struct error ignored = ERROR_INIT;
	int r;

	if (from[0] == '\0' || p->head[0] == '\0')
		return 0;
	/* A commit that is not here any more is nobody's ancestor. */
	r = ask_git(p, GIT_ARGS("merge-base", "--is-ancestor", from, p->head), &text, &ignored);
	if (r <= 0)
		return 0;
	free(take_ptr(text));
	range = xasprintf("%s..%s", from, p->head);
	r = ask_git(p, GIT_ARGS("rev-list", "--count", range), &text, err);
	if (r > 0)
		*ret = strtoll(text, NULL, 10);
	return r;
}
