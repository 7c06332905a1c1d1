/* SPDX-License-Identifier: Apache-2.0 */
/* Finding and reading profiles. */
#include "plan/profile.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plan/settings-impl.h"
#include "util/cleanup.h"
#include "util/gitconfig.h"
#include "util/mem.h"
#include "util/strbuf.h"
#include "util/suggest.h"

#define MACHINE_DIR "/etc/atoll/profiles"
#define NAMES_MAX   500 /* entries of a directory that are looked at */

struct reading {
	struct profile *p;
	const char *home, *file;
	struct error *err;
};

void profile_done(struct profile *p)
{
	strlist_done(&p->rw);
	strlist_done(&p->ro);
	strlist_done(&p->hide);
}

static int wrong(const struct reading *rd, const struct gitconfig_entry *e, const char *why)
{
	return error_set(rd->err, -ATOLL_E_INVALID, "%s:%u: %s: %s", rd->file, e->line, e->key,
	                 why);
}

static int take_entry(void *user, const struct gitconfig_entry *e)
{
	const struct reading *rd = user;
	const struct {
		const char *key;
		struct strlist *list;
	} keys[] = {
		{ "profile.rw", &rd->p->rw },
		{ "profile.ro", &rd->p->ro },
		{ "profile.hide", &rd->p->hide },
	};
	cleanup_free char *path = NULL;
	size_t i = 0;

	while (i < sizeof(keys) / sizeof(keys[0]) && strcmp(keys[i].key, e->key) != 0)
		i++;
	if (i == sizeof(keys) / sizeof(keys[0]))
		return wrong(rd, e, "there is no such key; rw, ro and hide are known");
	if (!e->value || (e->value[0] != '/' && strncmp(e->value, "~/", 2) != 0))
		return wrong(rd, e, "a path begins with '/' or '~/'");
	if (e->value[0] == '~' && !rd->home)
		return 0;
	path = e->value[0] == '/' ? xstrdup(e->value) : xasprintf("%s%s", rd->home, e->value + 1);
	if (access(path, F_OK) == 0)
		strlist_add(keys[i].list, path);
	return 0;
}

/* The file of the profile in the Ith place, or NULL after the last. */
static char *place(const char *name, unsigned i)
{
	const char *named = secure_getenv("ATOLL_PROFILES");
	cleanup_free char *settings = i == 0 ? settings_path(SETTINGS_USER) : NULL;
	char *slash = settings ? strrchr(settings, '/') : NULL;

	switch (i) {
	case 0: /* beside the settings */
		return slash ? xasprintf("%.*s/profiles/%s", (int)(slash - settings), settings,
		                         name)
		             : xstrdup("");
	case 1:
		return xasprintf(MACHINE_DIR "/%s", name);
	case 2:
		return xasprintf("%s/%s", named && *named ? named : ATOLL_PROFILE_PATH, name);
	default:
		return NULL;
	}
}

static int find_file(const char *name, char **ret_file, char **ret_text, size_t *ret_len,
                     struct strlist *remarks)
{
	char *file;

	for (unsigned i = 0; (file = place(name, i)); i++) {
		if (settings_read_file(SETTINGS_USER, file, ret_text, ret_len, remarks) > 0) {
			*ret_file = file;
			return 0;
		}
		free(file);
	}
	return -ENOENT;
}

static void add_names(DIR *dir, struct strlist *ret)
{
	struct dirent *entry;

	for (size_t n = 0; n < NAMES_MAX && (entry = readdir(dir)); n++)
		if (entry->d_name[0] != '.' && entry->d_type != DT_DIR &&
		    !strlist_has(ret, entry->d_name))
			strlist_add(ret, entry->d_name);
}

void profile_names(struct strlist *ret)
{
	char *path;

	for (unsigned i = 0; (path = place("", i)); i++) {
		DIR *dir = *path ? opendir(path) : NULL;

		free(path);
		if (!dir)
			continue;
		add_names(dir, ret);
		(void)closedir(dir);
	}
	strlist_sort(ret);
}

static int none(const char *name, const struct strlist *remarks, struct error *err)
{
	cleanup_strlist struct strlist known = STRLIST_INIT;
	cleanup_strbuf struct strbuf list = STRBUF_INIT;
	struct suggestions s = { .wanted = name };

	profile_names(&known);
	for (size_t i = 0; i < known.n; i++) {
		strbuf_printf(&list, "%s%s", i ? ", " : "; there are: ", known.v[i]);
		suggest_try(&s, known.v[i], strlen(known.v[i]));
	}
	(void)error_set(err, -ATOLL_E_NOT_FOUND, "there is no profile '%s'%s%s%s; nothing was run",
	                name, remarks->n ? ": " : "", remarks->n ? remarks->v[0] : "",
	                strbuf_str(&list));
	error_hint(err, "profiles are files in ~/.config/atoll/profiles, " MACHINE_DIR
	                " and " ATOLL_PROFILE_PATH);
	suggest_hint(&s, "", err);
	return -ATOLL_E_NOT_FOUND;
}

int profile_read(const char *name, const char *home, struct profile *ret, struct error *err)
{
	cleanup_strlist struct strlist remarks = STRLIST_INIT;
	cleanup_free char *file = NULL;
	cleanup_free char *text = NULL;
	struct reading rd = { .p = ret, .home = home, .err = err };
	unsigned line = 0;
	size_t len = 0;
	int r;

	if (!*name || name[0] == '.' || strchr(name, '/') ||
	    find_file(name, &file, &text, &len, &remarks) < 0)
		return none(name, &remarks, err);
	rd.file = file;
	r = gitconfig_read(text, len, take_entry, &rd, &line);
	if (r == -EINVAL)
		return error_set(err, -ATOLL_E_INVALID,
		                 "%s:%u: this cannot be read: the syntax is that of git-config",
		                 file, line);
	return r;
}
