/* SPDX-License-Identifier: Apache-2.0 */
/* Which repositories can be worked with. What is refused is refused when the sandbox is made. */
#include "strategy/git.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/walk.h"
#include "strategy/git-whole.h"
#include "util/cleanup.h"
#include "util/mem.h"

static const struct {
	const char *name; /* in .git */
	const char *what;
} operations[] = {
	{ "MERGE_HEAD", "a merge" },
	{ "rebase-merge", "a rebase" },
	{ "rebase-apply", "a rebase or am" },
	{ "CHERRY_PICK_HEAD", "a cherry-pick" },
	{ "REVERT_HEAD", "a revert" },
	{ "BISECT_LOG", "a bisection" },
	{ "sequencer", "a series of commits" },
};

const char *git_operation(int git_fd)
{
	for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++) {
		struct fs_stat st;

		if (fs_stat_at(git_fd, operations[i].name, 0, &st) == 0 &&
		    !overlay_is_whiteout(&st))
			return operations[i].what;
	}
	return NULL;
}

static int refuse(struct atoll_participant *p, const char *what, const char *hint)
{
	(void)error_set(&p->err, -ATOLL_E_UNSUPPORTED, "'%s' %s", p->root, what);
	error_hint(&p->err, "%s; or atoll start --dir %s protects it as a directory", hint,
	           p->root);
	return -ATOLL_E_UNSUPPORTED;
}

/* `.git` itself, which is a directory when it is whole. */
static int check_place(struct atoll_participant *p)
{
	cleanup_close int root_fd = open(p->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct fs_stat st;
	int r = root_fd < 0 ? -errno : fs_stat_at(root_fd, ".git", 0, &st);

	if (r == 0)
		return git_check_whole(p->root, &p->err);
	if (r != -ENOENT)
		return error_sys(&p->err, r, "look at", p->root);
	if (fs_stat_at(root_fd, "HEAD", 0, &st) == 0 && fs_stat_at(root_fd, "objects", 0, &st) == 0)
		return refuse(p, "is a bare repository", "give a clone with a working tree");
	return refuse(p, "is not the root of a git repository", "git init");
}

/* What is in a repository can make git run programs. Git asks whose it is only where it has to look
 * for it, and later we always say where it is. */
static int check_owner(struct atoll_participant *p)
{
	cleanup_strbuf struct strbuf out = STRBUF_INIT;
	cleanup_free char *hint =
		xasprintf("git config --global --add safe.directory %s, if you trust it", p->root);
	const struct git g = GIT_AT(NULL);
	int r = git_ask(p, &g, GIT_ARGS("-C", p->root, "rev-parse", "--git-dir"), NULL, &out);

	if (r >= 0)
		return 0;
	if (p->err.msg && strstr(p->err.msg, "dubious ownership")) {
		error_done(&p->err);
		return refuse(p,
		              "belongs to somebody else, so that git would not work in it either",
		              hint);
	}
	(void)error_prefix(&p->err, r, "git cannot work in '%s'", p->root);
	error_hint(&p->err, "git -C %s status says more; who may read its .git does ls -l",
	           p->root);
	return r;
}

static const struct {
	const char *key;
	const char *value; /* NULL: any but false; "": true */
	const char *what, *hint;
} settings[] = {
	{ "core.bare", "", "is a bare repository", "give a clone with a working tree" },
	{ "core.worktree", NULL, "has its working tree elsewhere (core.worktree)",
	  "git config --unset core.worktree" },
	{ "core.sparsecheckout", "", "has a sparse checkout", "git sparse-checkout disable" },
	{ "extensions.partialclone", NULL, "is a partial clone: objects may be missing",
	  "give a full clone" },
	{ "extensions.refstorage", NULL, "keeps its refs in a reftable", "use refs in files" },
};

static bool is_set(const char *want, const char *value)
{
	if (want && !*want)
		return !*value || strcasecmp(value, "true") == 0 || strcasecmp(value, "yes") == 0 ||
		       strcasecmp(value, "on") == 0 || strcmp(value, "1") == 0;
	return true;
}

/* KEY\nVALUE\0 each. */
static int check_settings(struct atoll_participant *p, const struct git_state *st)
{
	cleanup_strbuf struct strbuf out = STRBUF_INIT;
	const struct git g = GIT_AT(st->dir);
	int r = git_ask(p, &g, GIT_ARGS("config", "--list", "-z"), NULL, &out);

	for (const char *at = out.buf; r == 0 && at && at < out.buf + out.len;
	     at += strlen(at) + 1) {
		const char *value = strchr(at, '\n');
		size_t len = value ? (size_t)(value - at) : strlen(at);

		for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
			if (strlen(settings[i].key) == len &&
			    strncmp(at, settings[i].key, len) == 0 &&
			    is_set(settings[i].value, value ? value + 1 : ""))
				return refuse(p, settings[i].what, settings[i].hint);
	}
	return r < 0 ? r : 0;
}

#define ODD_HINT "remove it, or put what it leads to in its place"

int git_refuse_ref(struct atoll_participant *p, const char *path)
{
	cleanup_free char *what = xasprintf("has '.git/%s' among its refs, which is no file", path);

	return refuse(p, what, ODD_HINT);
}

static int find_odd_ref(void *ctx, int dir_fd, const char *name, const char *path,
                        unsigned char type)
{
	struct fs_stat st;

	(void)type;
	if (git_is_lock(name) || fs_stat_at(dir_fd, name, 0, &st) < 0 || S_ISDIR(st.mode) ||
	    (S_ISREG(st.mode) && strchr(path, '/')))
		return 0;
	return git_refuse_ref(ctx, path);
}

static int check_for_odd_refs(struct atoll_participant *p, const struct git_state *st)
{
	int r = walk_tree(st->dir_fd, "refs", find_odd_ref, NULL, p);

	return r < 0 && !p->err.code ? error_sys(&p->err, r, "look at the refs of", p->root) : r;
}

/* Git would write to what a link leads to. We would not find it there. */
static int check_files(struct atoll_participant *p, const struct git_state *st)
{
	static const char *const names[] = { "HEAD", "index", "packed-refs" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		cleanup_free char *what = NULL;
		struct fs_stat file;

		if (fs_stat_at(st->dir_fd, names[i], 0, &file) < 0 || S_ISREG(file.mode))
			continue;
		what = xasprintf("has a '.git/%s' that is no file", names[i]);
		return refuse(p, what, ODD_HINT);
	}
	return 0;
}

int git_check_repository(struct atoll_participant *p)
{
	struct git_state *st;
	const char *what;
	int r = check_place(p);

	if (r >= 0)
		r = git_state(p, &st);
	if (r >= 0)
		r = check_owner(p);
	if (r >= 0)
		r = check_settings(p, st);
	if (r >= 0)
		r = check_files(p, st);
	if (r >= 0)
		r = check_for_odd_refs(p, st);
	if (r < 0)
		return r;
	what = git_operation(st->dir_fd);
	if (what) {
		cleanup_free char *text = xasprintf("has %s under way", what);

		return refuse(p, text, "end it first");
	}
	return 0;
}
