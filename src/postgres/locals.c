/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a transaction sets for itself (SET LOCAL, set_config(name, value, true)) ends with it. The release of a
 * savepoint does not end it, so the value before is kept, and set again at the end. What counts are the statements
 * that were carried out, in their order: a SET behind a SET LOCAL stays, unless a savepoint takes it back.
 */
#include "postgres/client.h"

#include "util/cleanup.h"
#include "util/mem.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum local_kind {
	LOCAL_HID, /* SET LOCAL has hidden VALUE */
	LOCAL_SET, /* SET, which stays */
	LOCAL_ALL, /* RESET ALL */
	LOCAL_MARK /* SAVEPOINT */
};

struct local {
	struct local *next; /* the one before */
	enum local_kind kind;
	char *name, *value;
};

static void push(struct client *c, enum local_kind kind, char *name, const char *value)
{
	struct local *l = xcalloc(1, sizeof(*l));

	*l = (struct local){ .next = c->locals,
		             .kind = kind,
		             .name = name,
		             .value = value ? xstrdup(value) : NULL };
	c->locals = l;
}

static void pop(struct client *c)
{
	struct local *l = c->locals;

	c->locals = l->next;
	free(l->name);
	free(l->value);
	free(l);
}

void locals_clear(struct client *c)
{
	while (c->locals)
		pop(c);
}

void locals_hide(struct client *c, const char *name, const char *value)
{
	push(c, LOCAL_HID, xstrdup(name), value);
}

/* ---- savepoints ---- */

static bool begins_with(const char *text, const char *word)
{
	return strncasecmp(text, word, strlen(word)) == 0;
}

static bool is_mark(const struct local *l, const char *name)
{
	return l->kind == LOCAL_MARK && strcmp(l->name, name) == 0;
}

const char *locals_savepoint(const struct client *c)
{
	const struct local *l = c->locals;

	while (l && l->kind != LOCAL_MARK)
		l = l->next;
	return l ? l->name : NULL;
}

/* All that came behind the savepoint. */
static void roll_back_to(struct client *c, const char *name)
{
	while (c->locals && !is_mark(c->locals, name))
		pop(c);
}

/* The savepoint and those behind it; what was set stays. */
static void release(struct client *c, const char *name)
{
	const struct local *found = c->locals;
	bool last = false;

	while (found && !is_mark(found, name))
		found = found->next;
	for (struct local **at = &c->locals; found && !last;) {
		struct local *l = *at;

		last = l == found;
		if (l->kind != LOCAL_MARK) {
			at = &l->next;
			continue;
		}
		*at = l->next;
		free(l->name);
		free(l);
	}
}

static void note_config(void *user, const char *name, bool local)
{
	if (!local)
		push(user, LOCAL_SET, xstrdup(name), NULL);
}

void locals_note_done(struct client *c, const struct verb *v)
{
	if (!c->locals && v->kind != SQL_SAVEPOINT)
		return;
	if (v->kind == SQL_PLAIN && v->flags & SQL_CONFIG)
		locals_read(v->text, note_config, c);
	if (v->kind == SQL_RESET && strcasecmp(v->name, "all") == 0)
		push(c, LOCAL_ALL, NULL, NULL);
	else if (v->kind == SQL_RESET)
		push(c, LOCAL_SET, settings_name(v->name), NULL);
	else if (v->kind == SQL_PLAIN && v->flags & SQL_SETS && v->name && *v->name)
		push(c, LOCAL_SET, settings_name(v->name), NULL);
	else if (v->kind != SQL_SAVEPOINT)
		return;
	else if (begins_with(v->text, "savepoint"))
		push(c, LOCAL_MARK, xstrdup(v->name), NULL);
	else if (begins_with(v->text, "release"))
		release(c, v->name);
	else
		roll_back_to(c, v->name);
}

/* ---- at the end ---- */

void locals_add_restore(const struct client *c, struct strbuf *sql)
{
	struct setting *hidden = NULL, *stays = NULL;

	for (const struct local *l = c->locals; l && l->kind != LOCAL_ALL; l = l->next) {
		if (l->kind == LOCAL_SET)
			settings_add(&stays, l->name, "");
		else if (l->kind == LOCAL_HID && !settings_get(stays, l->name))
			settings_add(&hidden, l->name, l->value);
	}
	settings_add_all(sql, hidden, true);
	settings_clear(&hidden);
	settings_clear(&stays);
}

/* ---- set_config() in the text of a statement ---- */

static const char *skip_space(const char *at)
{
	while (isspace((unsigned char)*at))
		at++;
	return at;
}

/* Behind the next comma that is in no parentheses and no string; NULL: there is none. */
static const char *next_argument(const char *at)
{
	size_t depth = 0;
	char quote = '\0';

	for (; *at; at++) {
		if (quote || *at == '\'' || *at == '"')
			quote = !quote ? *at : quote == *at ? '\0' : quote;
		else if (*at == '(')
			depth++;
		else if (*at == ')' && depth-- == 0)
			return NULL;
		else if (*at == ',' && depth == 0)
			return at + 1;
	}
	return NULL;
}

static bool says_local(const char *arguments)
{
	static const char *const words[] = { "true", "'t", "'on'", "'1'", "'yes'" };
	const char *value = next_argument(arguments);
	const char *local = value ? next_argument(value) : NULL;

	if (!local)
		return false;
	local = skip_space(local);
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (begins_with(local, words[i]))
			return true;
	return false;
}

/* The setting that the call at TEXT names in so many words, or NULL. */
static char *named_there(const char *text)
{
	const char *at = skip_space(text);
	const char *end;

	if (*at == '"')
		at = skip_space(at + 1);
	if (*at != '(')
		return NULL;
	at = skip_space(at + 1);
	end = *at == '\'' ? strchr(at + 1, '\'') : NULL;
	return end ? xstrndup(at + 1, (size_t)(end - at - 1)) : NULL;
}

void locals_read(const char *text, void (*take)(void *user, const char *name, bool local),
                 void *user)
{
	static const char word[] = "set_config";

	for (const char *at = text; *at; at++) {
		cleanup_free char *name = NULL;

		if (!begins_with(at, word))
			continue;
		at += strlen(word) - 1;
		name = named_there(at + 1);
		if (name && *name)
			take(user, name, says_local(strchr(at, '(') + 1));
	}
}
