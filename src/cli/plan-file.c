/* SPDX-License-Identifier: Apache-2.0 */
/* Plans written down. See plan-file.h. */
#include "cli/plan-file.h"

#include <errno.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <atoll.h>
#include "util/cleanup.h"
#include "util/gitconfig.h"
#include "util/mem.h"
#include "util/suggest.h"

#define FILE_MAX_LEN  ((size_t)1 << 20)
#define RESOURCES_MAX 1024 /* of a file; how many a plan may have, the library knows */

struct reading {
	struct plan_file *pf;
	const char *file;
	char *dir; /* of the file */
	struct error *err;
};

static int wrong(const struct reading *rd, unsigned line, const char *text)
{
	return error_set(rd->err, -ATOLL_E_INVALID, "%s:%u: %s", rd->file, line, text);
}

static int wrong_word(const struct reading *rd, unsigned line, const char *what, const char *word,
                      const struct suggestions *s)
{
	(void)error_set(rd->err, -ATOLL_E_INVALID, "%s:%u: %s '%s'", rd->file, line, what, word);
	suggest_hint(s, "", rd->err);
	return -ATOLL_E_INVALID;
}

/* ---- kinds ---- */

static const struct kind {
	const char *name;
	const char *strategy; /* NULL: what fits, or what the file says */
	const char *second;   /* another one that the file may name */
	bool is_url;
} kinds[] = {
	{ "dir", NULL, NULL, false },           { "none", "none", NULL, false },
	{ "git", "git", "worktree", false },    { "sqlite", "sqlite", NULL, false },
	{ "postgres", "postgres", NULL, true },
};

static int settle_kind(const struct reading *rd, struct plan_file_resource *res)
{
	struct suggestions s = { .wanted = res->kind };

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		const struct kind *k = &kinds[i];

		suggest_try(&s, k->name, strlen(k->name));
		if (strcmp(res->kind, k->name) != 0)
			continue;
		if (k->strategy && res->strategy && strcmp(res->strategy, k->strategy) != 0 &&
		    !(k->second && strcmp(res->strategy, k->second) == 0))
			return wrong(rd, res->kind_line, "the kind has a strategy of its own");
		if (k->strategy && !res->strategy)
			res->strategy = xstrdup(k->strategy);
		res->is_url = k->is_url;
		return 0;
	}
	return wrong_word(rd, res->kind_line, "unknown kind", res->kind, &s);
}

/* ---- keys ---- */

/* Of the resource a line belongs to; it is the last one unless its section is opened again. */
static struct plan_file_resource *find_resource(struct plan_file *pf, const char *label, size_t len)
{
	for (size_t i = 0; i < pf->n; i++)
		if (strlen(pf->v[i].label) == len && strncmp(pf->v[i].label, label, len) == 0)
			return &pf->v[i];
	return NULL;
}

static struct plan_file_resource *add_resource(struct plan_file *pf, const char *label, size_t len,
                                               unsigned line)
{
	struct plan_file_resource *res = find_resource(pf, label, len);

	if (res)
		return res;
	if (pf->n >= RESOURCES_MAX ||
	    grow((void **)&pf->v, &pf->cap, pf->n + 1, sizeof(*pf->v)) < 0)
		return NULL;
	res = &pf->v[pf->n++];
	*res = (struct plan_file_resource){ .label = xstrndup(label, len), .line = line };
	return res;
}

/* Each key once: of two paths one would go unprotected. */
static int take_text(const struct reading *rd, const struct gitconfig_entry *e, char **to)
{
	if (!e->value || !*e->value)
		return wrong(rd, e->line, "a value is missing");
	if (*to)
		return wrong(rd, e->line, "the key is there a second time");
	*to = xstrdup(e->value);
	return 0;
}

static int take_resource_key(const struct reading *rd, struct plan_file_resource *res,
                             const char *name, const struct gitconfig_entry *e)
{
	const struct {
		const char *name;
		char **to;
		unsigned *line;
	} texts[] = {
		{ "path", &res->path, &res->path_line },
		{ "kind", &res->kind, &res->kind_line },
		{ "strategy", &res->strategy, NULL },
		{ "parent", &res->parent, &res->parent_line },
	};
	struct suggestions s = { .wanted = name };

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		suggest_try(&s, texts[i].name, strlen(texts[i].name));
		if (strcmp(name, texts[i].name) != 0)
			continue;
		if (texts[i].line)
			*texts[i].line = e->line;
		return take_text(rd, e, texts[i].to);
	}
	suggest_try(&s, "work-in-store", strlen("work-in-store"));
	if (strcmp(name, "work-in-store") != 0)
		return wrong_word(rd, e->line, "unknown key", name, &s);
	if (gitconfig_bool(e->value ? e->value : "true", &res->work_in_store) < 0)
		return wrong(rd, e->line, "work-in-store is true or false");
	return 0;
}

static int take_plan_key(const struct reading *rd, const char *name,
                         const struct gitconfig_entry *e)
{
	struct suggestions s = { .wanted = name };

	suggest_try(&s, "name", strlen("name"));
	if (strcmp(name, "name") != 0)
		return wrong_word(rd, e->line, "unknown key", name, &s);
	return take_text(rd, e, &rd->pf->name);
}

/* "plan.name", "resource.LABEL.path"; the label may have dots. A header has no name: a resource of
 * which nothing is said must be missed, not overlooked. */
static int take_entry(void *user, const struct gitconfig_entry *e)
{
	const struct reading *rd = user;
	const char *first = strchr(e->key, '.'), *last = strrchr(e->key, '.');
	cleanup_free char *section = xstrndup(e->key, strcspn(e->key, "."));
	struct suggestions s = { .wanted = section };
	struct plan_file_resource *res;
	bool is_header;

	if (!last)
		return wrong(rd, e->line, "a key stands below [plan] or [resource \"NAME\"]");
	is_header = !last[1];
	suggest_try(&s, "plan", strlen("plan"));
	suggest_try(&s, "resource", strlen("resource"));
	if (strcmp(section, "plan") == 0 && first == last)
		return is_header ? 0 : take_plan_key(rd, last + 1, e);
	if (strcmp(section, "plan") == 0)
		return wrong(rd, e->line, "the section 'plan' has no name in quotes");
	if (strcmp(section, "resource") != 0)
		return wrong_word(rd, e->line, "unknown section", section, &s);
	if (first == last || first + 1 == last)
		return wrong(rd, e->line, "a resource has a name: [resource \"NAME\"]");
	res = add_resource(rd->pf, first + 1, (size_t)(last - first - 1), e->line);
	if (!res)
		return error_set(rd->err, -ATOLL_E_TOO_BIG, "%s:%u: too many resources", rd->file,
		                 e->line);
	return is_header ? 0 : take_resource_key(rd, res, last + 1, e);
}

/* ---- what the whole means ---- */

static const char *home_of_user(void)
{
	const char *home = getenv("HOME");
	const struct passwd *pw;

	if (home && *home == '/')
		return home;
	pw = getpwuid(geteuid());
	return pw ? pw->pw_dir : NULL;
}

static char *expand(const struct reading *rd, const char *path)
{
	if (path[0] == '~' && (path[1] == '/' || path[1] == '\0')) {
		const char *home = home_of_user();

		return home ? xasprintf("%s%s", home, path + 1) : NULL;
	}
	return path[0] == '/' ? xstrdup(path) : xasprintf("%s/%s", rd->dir, path);
}

static int settle_path(const struct reading *rd, struct plan_file_resource *res)
{
	cleanup_free char *full = NULL;
	char *canonical;

	if (!res->path)
		return error_set(rd->err, -ATOLL_E_INVALID, "%s:%u: resource '%s' has no path",
		                 rd->file, res->line, res->label);
	if (res->is_url)
		return 0;
	if (res->path[0] == '~' && res->path[1] && res->path[1] != '/')
		return wrong(rd, res->path_line, "of the paths with '~' only '~/...' is known");
	full = expand(rd, res->path);
	canonical = full ? realpath(full, NULL) : NULL;
	if (!canonical) {
		int r = full ? -errno : -ENOENT;

		return error_set(rd->err, r, "%s:%u: cannot open the resource '%s': %s", rd->file,
		                 res->path_line, full ? full : res->path, strerror(-r));
	}
	free(res->path);
	res->path = canonical;
	return 0;
}

static int check_parent(const struct reading *rd, const struct plan_file_resource *res)
{
	struct suggestions s = { .wanted = res->parent };

	for (size_t i = 0; res->parent && i < rd->pf->n; i++) {
		const struct plan_file_resource *other = &rd->pf->v[i];

		if (other == res)
			continue;
		suggest_try(&s, other->label, strlen(other->label));
		if (strcmp(other->label, res->parent) == 0)
			return 0;
	}
	return res->parent ? wrong_word(rd, res->parent_line, "no other resource is called",
	                                res->parent, &s)
	                   : 0;
}

static int settle(const struct reading *rd)
{
	int r = 0;

	if (rd->pf->n == 0)
		return error_set(rd->err, -ATOLL_E_INVALID, "%s: there is no resource in it",
		                 rd->file);
	for (size_t i = 0; r == 0 && i < rd->pf->n; i++) {
		struct plan_file_resource *res = &rd->pf->v[i];

		r = res->kind ? settle_kind(rd, res) : 0;
		if (r == 0)
			r = settle_path(rd, res);
		if (r == 0)
			r = check_parent(rd, res);
	}
	return r;
}

const char *plan_file_parent(const struct plan_file *pf, const struct plan_file_resource *res)
{
	for (size_t i = 0; res->parent && i < pf->n; i++)
		if (strcmp(pf->v[i].label, res->parent) == 0)
			return pf->v[i].path;
	return NULL;
}

/* ---- the file ---- */

static int read_text(const struct reading *rd, char **ret, size_t *ret_len)
{
	FILE *f = fopen(rd->file, "re");
	cleanup_free char *text = NULL;
	int failed = 0;

	if (!f)
		return error_sys(rd->err, -errno, "read", rd->file);
	text = malloc(FILE_MAX_LEN + 1);
	errno = 0;
	*ret_len = text ? fread(text, 1, FILE_MAX_LEN + 1, f) : 0;
	if (!text)
		failed = ENOMEM;
	else if (ferror(f))
		failed = errno ? errno : EIO;
	(void)fclose(f);
	if (failed)
		return error_sys(rd->err, -failed, "read", rd->file);
	if (*ret_len > FILE_MAX_LEN)
		return error_set(rd->err, -ATOLL_E_TOO_BIG, "'%s' is too long for a plan",
		                 rd->file);
	*ret = take_ptr(text);
	return 0;
}

static char *directory_of(const char *file)
{
	const char *slash = strrchr(file, '/');

	if (!slash)
		return xstrdup(".");
	return xstrndup(file, slash == file ? 1 : (size_t)(slash - file));
}

int plan_file_read(const char *file, struct plan_file *ret, struct error *err)
{
	struct reading rd = { .pf = ret, .file = file, .err = err };
	cleanup_free char *text = NULL;
	size_t len = 0;
	unsigned line = 0;
	int r = read_text(&rd, &text, &len);

	if (r < 0)
		return r;
	r = gitconfig_read_sections(text, len, take_entry, &rd, &line);
	if (r == -EINVAL)
		return wrong(&rd, line, "this cannot be read: the syntax is that of git-config");
	if (r < 0)
		return r;
	rd.dir = directory_of(file);
	r = settle(&rd);
	free(rd.dir);
	return r;
}

void plan_file_done(struct plan_file *pf)
{
	for (size_t i = 0; i < pf->n; i++) {
		struct plan_file_resource *res = &pf->v[i];
		char *const owned[] = { res->label, res->path, res->strategy, res->parent,
			                res->kind };

		for (size_t k = 0; k < sizeof(owned) / sizeof(owned[0]); k++)
			free(owned[k]);
	}
	free(pf->v);
	free(pf->name);
	*pf = PLAN_FILE_INIT;
}
