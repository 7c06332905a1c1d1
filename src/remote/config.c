/* SPDX-License-Identifier: Apache-2.0 */
/* Remotes in the settings: [remote "NAME"]. */
#include "remote/remote.h"

#include "plan/settings.h"
#include "util/cleanup.h"
#include "util/mem.h"
#include "util/strbuf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct configs {
	struct remote_config *v;
	size_t n, cap;
};

void remote_config_done(struct remote_config *c)
{
	free(c->name);
	free(c->url);
	free(c->key_file);
	free(c->ca_file);
	free(c->file);
	*c = (struct remote_config){ 0 };
}

static void configs_done(struct configs *all)
{
	for (size_t i = 0; i < all->n; i++)
		remote_config_done(&all->v[i]);
	free(all->v);
}
#define cleanup_configs __attribute__((__cleanup__(configs_done)))

int remote_check_name(const char *name, struct error *err)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
				    "._-";

	if (*name && !strchr("._-", *name) && name[strspn(name, plain)] == '\0' &&
	    strlen(name) <= LIMIT_NAME)
		return 0;
	(void)error_set(err, -ATOLL_E_INVALID, "'%s' cannot be the name of a remote", name);
	error_hint(err, "a letter or digit, then letters, digits, '.', '_' and '-', 64 at most");
	return -ATOLL_E_INVALID;
}

/* ---- reading ---- */

static struct remote_config *named(struct configs *all, const char *name, size_t len)
{
	void *v = all->v;

	for (size_t i = 0; i < all->n; i++)
		if (strlen(all->v[i].name) == len && strncmp(all->v[i].name, name, len) == 0)
			return &all->v[i];
	if (grow(&v, &all->cap, all->n + 1, sizeof(*all->v)) < 0)
		return NULL;
	all->v = v;
	all->v[all->n] = (struct remote_config){ .name = xstrndup(name, len) };
	return &all->v[all->n++];
}

static void set(char **field, const char *value)
{
	free(*field);
	*field = xstrdup(value);
}

static int take_entry(void *user, const char *path, const struct gitconfig_entry *e)
{
	size_t n = strlen(SETTINGS_REMOTE);
	const char *end = strrchr(e->key, '.');
	struct remote_config *c;

	if (strncmp(e->key, SETTINGS_REMOTE, n) != 0 || end <= e->key + n || !e->value)
		return 0;
	c = named(user, e->key + n, (size_t)(end - e->key) - n);
	if (!c)
		return -ENOMEM;
	set(&c->file, path);
	if (strcmp(end, ".url") == 0)
		set(&c->url, e->value);
	else if (strcmp(end, ".key-file") == 0)
		set(&c->key_file, e->value);
	else if (strcmp(end, ".ca-file") == 0)
		set(&c->ca_file, e->value);
	return 0;
}

static int load(struct configs *all, struct error *err)
{
	int r = settings_each(SETTINGS_SYSTEM, take_entry, all, err);

	return r < 0 ? r : settings_each(SETTINGS_USER, take_entry, all, err);
}

int remote_config_list(remote_config_fn fn, void *user, struct error *err)
{
	cleanup_configs struct configs all = { 0 };
	int r = load(&all, err);

	for (size_t i = 0; r >= 0 && i < all.n; i++)
		if (all.v[i].url)
			r = fn(user, &all.v[i]);
	return r < 0 ? r : 0;
}

static int unknown(const struct configs *all, const char *name, struct error *err)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;

	for (size_t i = 0; i < all->n; i++)
		if (all->v[i].url)
			strbuf_printf(&sb, "%s%s", sb.len ? ", " : "", all->v[i].name);
	(void)error_set(err, -ATOLL_E_NOT_FOUND, "there is no remote '%s'%s%s", name,
	                sb.len ? "; there are: " : "", strbuf_str(&sb));
	error_hint(err, "atoll remote add %s URL", name);
	return -ATOLL_E_NOT_FOUND;
}

int remote_config_find(const char *name, struct remote_config *ret, struct error *err)
{
	cleanup_configs struct configs all = { 0 };
	int r = remote_check_name(name, err);

	if (r == 0)
		r = load(&all, err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < all.n; i++) {
		if (!all.v[i].url || strcmp(all.v[i].name, name) != 0)
			continue;
		*ret = all.v[i];
		all.v[i] = (struct remote_config){ 0 };
		return 0;
	}
	return unknown(&all, name, err);
}

/* ---- writing ---- */

struct keys {
	char *url, *key_file, *ca_file;
};

static void keys_init(struct keys *k, const char *name)
{
	k->url = xasprintf("%s%s.url", SETTINGS_REMOTE, name);
	k->key_file = xasprintf("%s%s.key-file", SETTINGS_REMOTE, name);
	k->ca_file = xasprintf("%s%s.ca-file", SETTINGS_REMOTE, name);
}

static void keys_done(struct keys *k)
{
	free(k->url);
	free(k->key_file);
	free(k->ca_file);
}
#define cleanup_keys __attribute__((__cleanup__(keys_done)))

static int look_for(void *user, const char *path, const struct gitconfig_entry *e)
{
	(void)path;
	return strcmp(e->key, user) == 0 ? -EEXIST : 0;
}

int remote_config_add(const struct remote_config *c, struct error *err)
{
	cleanup_keys struct keys k = { 0 };
	int r = remote_check_name(c->name, err);

	if (r < 0)
		return r;
	keys_init(&k, c->name);
	r = settings_change(SETTINGS_USER,
	                    (const struct settings_change[]){ { k.url, c->url },
	                                                      { k.key_file, c->key_file },
	                                                      { k.ca_file, c->ca_file } },
	                    3, look_for, k.url, err);
	if (r != -EEXIST)
		return r;
	(void)error_set(err, -ATOLL_E_EXISTS, "there is a remote '%s'; nothing was changed",
	                c->name);
	error_hint(err, "atoll remote remove %s, or another name", c->name);
	return -ATOLL_E_EXISTS;
}

int remote_config_remove(const char *name, struct error *err)
{
	cleanup_remote_config struct remote_config c = { 0 };
	cleanup_free char *mine = settings_path(SETTINGS_USER);
	cleanup_keys struct keys k = { 0 };
	int r = remote_config_find(name, &c, err);

	if (r < 0)
		return r;
	if (!mine || strcmp(mine, c.file) != 0)
		return error_set(
			err, -ATOLL_E_DENIED,
			"remote '%s' is in '%s', which is the machine's; nothing was changed", name,
			c.file);
	keys_init(&k, name);
	return settings_change(SETTINGS_USER,
	                       (const struct settings_change[]){ { k.url, NULL },
	                                                         { k.key_file, NULL },
	                                                         { k.ca_file, NULL } },
	                       3, NULL, NULL, err);
}
