/* SPDX-License-Identifier: Apache-2.0 */
#include "diff/git-program.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "diff/tree-impl.h"
#include "fs/atomic.h"
#include "fs/resolve.h"
#include "util/cleanup.h"
#include "util/gitconfig.h"
#include "util/list.h"
#include "util/mem.h"

#define CONFIG_MAX (1u << 20)
#define SMALL_MAX  4096u

/* ---- settings ---- */

enum rule { ANY = 0, BOOL, URL, UPDATE };

/* Keys that start nothing, whatever their value, or with such a value. "*" is any subsection or name. */
static const struct {
	const char *section;
	bool has_subsection;
	const char *name;
	enum rule rule;
} harmless[] = {
	{ "core", false, "repositoryformatversion", ANY },
	{ "core", false, "filemode", ANY },
	{ "core", false, "bare", ANY },
	{ "core", false, "logallrefupdates", ANY },
	{ "core", false, "ignorecase", ANY },
	{ "core", false, "precomposeunicode", ANY },
	{ "core", false, "symlinks", ANY },
	{ "core", false, "autocrlf", ANY },
	{ "core", false, "safecrlf", ANY },
	{ "core", false, "eol", ANY },
	{ "core", false, "whitespace", ANY },
	{ "core", false, "quotepath", ANY },
	{ "core", false, "abbrev", ANY },
	{ "core", false, "compression", ANY },
	{ "core", false, "worktree", ANY },
	{ "core", false, "sharedrepository", ANY },
	{ "core", false, "sparsecheckout", ANY },
	{ "core", false, "sparsecheckoutcone", ANY },
	{ "core", false, "untrackedcache", ANY },
	{ "core", false, "preloadindex", ANY },
	{ "core", false, "commitgraph", ANY },
	{ "core", false, "multipackindex", ANY },
	{ "core", false, "fsmonitor", BOOL },
	{ "extensions", false, "*", ANY },
	{ "remote", true, "url", URL },
	{ "remote", true, "pushurl", URL },
	{ "remote", true, "fetch", ANY },
	{ "remote", true, "push", ANY },
	{ "remote", true, "mirror", ANY },
	{ "remote", true, "tagopt", ANY },
	{ "remote", true, "prune", ANY },
	{ "remote", true, "promisor", ANY },
	{ "remote", true, "partialclonefilter", ANY },
	{ "remote", true, "gh-resolved", ANY },
	{ "remote", false, "pushdefault", ANY },
	{ "branch", true, "remote", ANY },
	{ "branch", true, "pushremote", ANY },
	{ "branch", true, "merge", ANY },
	{ "branch", true, "rebase", ANY },
	{ "branch", true, "description", ANY },
	{ "branch", true, "gh-merge-base", ANY },
	{ "branch", true, "vscode-merge-base", ANY },
	{ "branch", false, "autosetupmerge", ANY },
	{ "branch", false, "autosetuprebase", ANY },
	{ "submodule", true, "url", URL },
	{ "submodule", true, "active", ANY },
	{ "submodule", true, "branch", ANY },
	{ "submodule", true, "ignore", ANY },
	{ "submodule", true, "update", UPDATE },
	{ "submodule", false, "active", ANY },
	{ "submodule", false, "recurse", ANY },
	{ "user", false, "*", ANY },
	{ "author", false, "*", ANY },
	{ "committer", false, "*", ANY },
	{ "init", false, "defaultbranch", ANY },
	{ "pull", false, "rebase", ANY },
	{ "pull", false, "ff", ANY },
	{ "push", false, "default", ANY },
	{ "push", false, "autosetupremote", ANY },
	{ "push", false, "followtags", ANY },
	{ "fetch", false, "prune", ANY },
	{ "fetch", false, "parallel", ANY },
	{ "merge", false, "ff", ANY },
	{ "merge", false, "conflictstyle", ANY },
	{ "rebase", false, "autostash", ANY },
	{ "rebase", false, "autosquash", ANY },
	{ "rerere", false, "enabled", ANY },
	{ "commit", false, "gpgsign", BOOL },
	{ "tag", false, "gpgsign", BOOL },
	{ "gc", false, "auto", ANY },
	{ "gc", false, "autodetach", ANY },
	{ "maintenance", false, "auto", ANY },
	{ "maintenance", false, "strategy", ANY },
	{ "index", false, "version", ANY },
	{ "feature", false, "manyfiles", ANY },
	{ "lfs", false, "repositoryformatversion", ANY },
	{ "lfs", true, "access", ANY },
};

/* "ext::sh -c ..." names a program that speaks the protocol; an option is no address. */
static bool is_address(const char *value)
{
	size_t len = 0;

	while (isalnum((unsigned char)value[len]) ||
	       (len && strchr("+-._", value[len]) && value[len]))
		len++;
	return *value != '-' && strncmp(value + len, "::", 2) != 0;
}

static bool value_allowed(enum rule rule, const char *value)
{
	static const char *const updates[] = { "checkout", "rebase", "merge", "none" };
	bool is_true;

	if (rule == ANY || !value)
		return true;
	if (rule == BOOL)
		return gitconfig_bool(value, &is_true) == 0;
	if (rule == URL)
		return is_address(value);
	for (size_t i = 0; i < sizeof(updates) / sizeof(updates[0]); i++)
		if (strcmp(value, updates[i]) == 0)
			return true;
	return false;
}

static bool is_harmless(const char *key, const char *value)
{
	size_t section = strcspn(key, ".");
	const char *name = strrchr(key, '.');
	bool has_subsection = name && name > key + section;

	for (size_t i = 0; name && i < sizeof(harmless) / sizeof(harmless[0]); i++)
		if (strlen(harmless[i].section) == section &&
		    strncmp(key, harmless[i].section, section) == 0 &&
		    harmless[i].has_subsection == has_subsection &&
		    (strcmp(harmless[i].name, "*") == 0 || strcmp(harmless[i].name, name + 1) == 0))
			return value_allowed(harmless[i].rule, value);
	return false;
}

/* The others of a file, as "key=value". */
static int collect(void *user, const struct gitconfig_entry *entry)
{
	if (!is_harmless(entry->key, entry->value)) {
		cleanup_free char *line =
			xasprintf("%s=%s", entry->key, entry->value ? entry->value : "true");

		strlist_add(user, line);
	}
	return 0;
}

/* A ref or its log may have such a name, too. Git cannot read it as settings. */
static bool is_ref(const char *text)
{
	return strspn(text, "0123456789abcdef") >= 40 || strncmp(text, "ref: ", 5) == 0;
}

static bool replaces_file(const struct tree_new *e)
{
	return e->orig_fd != FD_NONE && S_ISREG(e->base_mode);
}

/* -EINVAL: nobody can say what is in it. */
static int read_settings(int dir_fd, const char *name, struct strlist *ret)
{
	cleanup_close int fd = FD_NONE;
	cleanup_free char *text = NULL;
	size_t len = 0;
	int r = resolve_file(dir_fd, name, &fd);

	if (r >= 0)
		r = fs_read_all(fd, CONFIG_MAX, &text, &len);
	if (r == -ATOLL_E_TOO_BIG || r == -EACCES)
		return -EINVAL;
	if (r < 0 || is_ref(text))
		return r;
	return gitconfig_read(text, len, collect, ret, NULL);
}

static int judge_config(const struct tree_new *e, bool *ret)
{
	cleanup_strlist struct strlist now = STRLIST_INIT, before = STRLIST_INIT;
	int r = S_ISREG(e->st->mode) ? read_settings(e->dir_fd, e->name, &now) : -EINVAL;

	*ret = r == -EINVAL;
	if (r < 0)
		return r == -EINVAL ? 0 : r;
	if (now.n && replaces_file(e))
		(void)read_settings(e->orig_fd, e->name, &before); /* what is not known is new */
	for (size_t i = 0; i < now.n; i++)
		*ret = *ret || !strlist_has(&before, now.v[i]);
	return 0;
}

/* ---- the rest ---- */

static bool is_there(int dir_fd, const char *name)
{
	struct fs_stat st;

	return fs_stat_at(dir_fd, name, 0, &st) == 0;
}

/* ".git", or a name that ends so, as on filesystems that take no notice of case. */
static bool ends_git(const char *name, size_t len)
{
	return len >= 4 && strncasecmp(name + len - 4, ".git", 4) == 0;
}

/* Does one of the directories around PATH have such a name? */
static bool below_git(const char *path)
{
	for (const char *slash; (slash = strchr(path, '/')); path = slash + 1)
		if (ends_git(path, (size_t)(slash - path)))
			return true;
	return false;
}

/* In the workspace, or where it is from: of an overlay only what was changed lies there. */
static bool is_beside(const struct tree_new *e, const char *name)
{
	return is_there(e->dir_fd, name) || (e->orig_fd != FD_NONE && is_there(e->orig_fd, name));
}

static bool in_git_directory(const struct tree_new *e)
{
	return below_git(e->path) || is_beside(e, "HEAD");
}

/* Text of a small file, or of a link, without what ends it; caller frees. NULL: neither. */
static char *read_small(const struct tree_new *e)
{
	cleanup_close int fd = FD_NONE;
	char *text = NULL;
	size_t len;

	if (S_ISLNK(e->st->mode))
		return tree_read_link(e->dir_fd, e->name, &text) < 0 ? NULL : text;
	if (resolve_file(e->dir_fd, e->name, &fd) < 0 ||
	    fs_read_all(fd, SMALL_MAX, &text, &len) < 0)
		return NULL;
	while (len && strchr("\r\n", text[len - 1]))
		text[--len] = '\0';
	return text;
}

/* What lies below a `.git` is judged there, or was there before; but "x.git/../y" does not. */
static int judge_leads(const struct tree_new *e, bool *ret)
{
	cleanup_free char *text = read_small(e);
	cleanup_free char *path = text ? xasprintf("%s/", text) : NULL;
	const char *last = path;

	for (const char *at = path; at && (at = strstr(at, "../")); at += 3)
		last = at + 3;
	*ret = !last || !below_git(last);
	return 0;
}

/* Two up from where it lies is a git directory still. */
static int judge_common(const struct tree_new *e, bool *ret)
{
	cleanup_free char *text = read_small(e), *up = xstrdup(e->path);
	char *slash = NULL;

	for (int i = 0; i < 3; i++) {
		slash = strrchr(up, '/');
		if (!slash)
			break;
		*slash = '\0';
	}
	if (slash)
		(void)strcat(up, "/"); /* shorter than it was */
	*ret = in_git_directory(e) &&
	       (!text || strcmp(text, "../..") != 0 || !slash || !below_git(up));
	return 0;
}

static int judge_link(const struct tree_new *e, bool *ret)
{
	*ret = S_ISLNK(e->st->mode) && in_git_directory(e);
	return 0;
}

static int judge_settings(const struct tree_new *e, bool *ret)
{
	return in_git_directory(e) ? judge_config(e, ret) : 0;
}

static int judge_head(const struct tree_new *e, bool *ret)
{
	cleanup_free char *text = NULL;

	/* Below `.git` the settings are judged when they come. */
	if (e->base_mode || below_git(e->path) || is_there(e->dir_fd, "config"))
		return 0;
	text = read_small(e);
	*ret = text && is_ref(text);
	return 0;
}

static int judge_hook(const struct tree_new *e, bool *ret)
{
	size_t len = strlen(e->name);
	bool is_sample = len > 7 && strcmp(e->name + len - 7, ".sample") == 0;

	*ret = !is_sample && (S_ISLNK(e->st->mode) || (e->st->mode & 0111)) &&
	       (below_git(e->path) || is_beside(e, "../HEAD"));
	return 0;
}

static const struct {
	const char *name;
	int (*judge)(const struct tree_new *e, bool *ret);
} judges[] = {
	{ "config", judge_settings }, { "config.worktree", judge_settings },
	{ ".git", judge_leads },      { "hooks", judge_link },
	{ "HEAD", judge_head },       { "commondir", judge_common },
};

static bool is_in_hooks(const char *path, const char *name)
{
	size_t len = strlen(path), part = strlen(name) + sizeof("hooks/") - 1;

	return len >= part && strncmp(path + len - part, "hooks/", 6) == 0 &&
	       (len == part || path[len - part - 1] == '/');
}

bool git_program_named(const char *name, const char *path)
{
	for (size_t i = 0; i < sizeof(judges) / sizeof(judges[0]); i++)
		if (strcasecmp(name, judges[i].name) == 0)
			return true;
	return is_in_hooks(path, name);
}

int git_program(const struct tree_new *e, bool *ret)
{
	int r = 0;

	*ret = false;
	if (!S_ISREG(e->st->mode) && !S_ISLNK(e->st->mode))
		return 0;
	for (size_t i = 0; i < sizeof(judges) / sizeof(judges[0]) && r >= 0 && !*ret; i++)
		if (strcasecmp(e->name, judges[i].name) == 0)
			r = judges[i].judge(e, ret);
	if (r >= 0 && !*ret && is_in_hooks(e->path, e->name))
		r = judge_hook(e, ret);
	return r;
}
