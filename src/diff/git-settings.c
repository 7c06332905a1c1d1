/* SPDX-License-Identifier: Apache-2.0 */
#include "diff/git-settings.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "util/cleanup.h"
#include "util/gitconfig.h"
#include "util/mem.h"

enum rule { ANY = 0, BOOL, URL, UPDATE, WORKTREE };

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
	{ "core", false, "worktree", WORKTREE },
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
bool git_is_address(const char *value)
{
	size_t len = 0;

	while (isalnum((unsigned char)value[len]) ||
	       (len && strchr("+-._", value[len]) && value[len]))
		len++;
	return *value != '-' && strncmp(value + len, "::", 2) != 0;
}

static bool value_allowed(enum rule rule, const char *value, const struct git_settings_at *at)
{
	static const char *const updates[] = { "checkout", "rebase", "merge", "none" };
	bool is_true;

	if (rule == ANY || !value)
		return true;
	if (rule == BOOL)
		return gitconfig_bool(value, &is_true) == 0;
	if (rule == URL)
		return git_is_address(value);
	if (rule == WORKTREE)
		return at->is_worktree && at->is_worktree(at->ctx, value);
	for (size_t i = 0; i < sizeof(updates) / sizeof(updates[0]); i++)
		if (strcmp(value, updates[i]) == 0)
			return true;
	return false;
}

static bool is_harmless(const char *key, const char *value, const struct git_settings_at *at)
{
	size_t section = strcspn(key, ".");
	const char *name = strrchr(key, '.');
	bool has_subsection = name && name > key + section;

	for (size_t i = 0; name && i < sizeof(harmless) / sizeof(harmless[0]); i++)
		if (strlen(harmless[i].section) == section &&
		    strncmp(key, harmless[i].section, section) == 0 &&
		    harmless[i].has_subsection == has_subsection &&
		    (strcmp(harmless[i].name, "*") == 0 || strcmp(harmless[i].name, name + 1) == 0))
			return value_allowed(harmless[i].rule, value, at);
	return false;
}

struct collection {
	const struct git_settings_at *at;
	struct strlist *ret;
};

static int collect(void *user, const struct gitconfig_entry *entry)
{
	const struct collection *c = user;

	if (!is_harmless(entry->key, entry->value, c->at)) {
		cleanup_free char *line =
			xasprintf("%s=%s", entry->key, entry->value ? entry->value : "true");

		strlist_add(c->ret, line);
	}
	return 0;
}

int git_settings_programs(const char *text, size_t len, const struct git_settings_at *at,
                          struct strlist *ret)
{
	struct collection c = { at, ret };

	return gitconfig_read(text, len, collect, &c, NULL);
}
