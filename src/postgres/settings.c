/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings belong to a session, and all clients share one: when another client's turn comes, the
 * settings of the last one are read and kept, and its own are put in effect. Only clients that
 * used SET (or what looks like it), or brought settings at their start, cost anything.
 */
#include "postgres/client.h"

#include "util/cleanup.h"
#include "util/mem.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void settings_add(struct setting **list, const char *name, const char *value)
{
	struct setting *s;

	for (s = *list; s; s = s->next) {
		if (strcasecmp(s->name, name) == 0) {
			free(s->value);
			s->value = xstrdup(value);
			return;
		}
	}
	s = xcalloc(1, sizeof(*s));
	*s = (struct setting){ .next = *list, .name = xstrdup(name), .value = xstrdup(value) };
	*list = s;
}

const char *settings_get(const struct setting *list, const char *name)
{
	for (; list; list = list->next)
		if (strcasecmp(list->name, name) == 0)
			return list->value;
	return NULL;
}

void settings_clear(struct setting **list)
{
	while (*list) {
		struct setting *s = *list;

		*list = s->next;
		free(s->name);
		free(s->value);
		free(s);
	}
}

/* Good whatever standard_conforming_strings says, and in every encoding: in some a backslash may be the
 * end of a letter. */
void settings_add_literal(struct strbuf *sql, const char *text)
{
	bool ascii = true;

	for (const char *p = text; *p; p++)
		ascii &= (unsigned char)*p < 0x80;
	if (!ascii) {
		strbuf_puts(sql, "pg_catalog.convert_from(pg_catalog.decode('");
		for (; *text; text++)
			strbuf_printf(sql, "%02x", (unsigned char)*text);
		strbuf_puts(sql, "', 'hex'), pg_catalog.current_setting('client_encoding'))");
		return;
	}
	strbuf_puts(sql, strchr(text, '\\') ? " E'" : "'");
	for (; *text; text++) {
		if (*text == '\'' || *text == '\\')
			strbuf_putc(sql, *text);
		strbuf_putc(sql, *text);
	}
	strbuf_putc(sql, '\'');
}

void settings_add_name(struct strbuf *sql, const char *name)
{
	strbuf_putc(sql, '"');
	for (; *name; name++) {
		if (*name == '"')
			strbuf_putc(sql, '"');
		strbuf_putc(sql, *name);
	}
	strbuf_putc(sql, '"');
}

static void add_set(struct strbuf *sql, const struct setting *s, bool local)
{
	strbuf_puts(sql, "SELECT pg_catalog.set_config(");
	settings_add_literal(sql, s->name);
	strbuf_puts(sql, ", ");
	settings_add_literal(sql, s->value);
	strbuf_puts(sql, local ? ", true); " : ", false); ");
}

void settings_restore_locals(struct client *c, struct strbuf *sql)
{
	for (const struct setting *s = c->locals; s; s = s->next)
		add_set(sql, s, true);
}

void settings_add_startup(struct client *c, struct strbuf *sql, const char *name)
{
	for (const struct setting *s = c->startup; s; s = s->next)
		if (!name || strcasecmp(name, s->name) == 0)
			add_set(sql, s, false);
}

char *settings_name(const char *name)
{
	static const struct {
		const char *word;
		const char *setting;
	} words[] = {
		{ "zone", "timezone" },
		{ "schema", "search_path" },
		{ "names", "client_encoding" },
		{ "session", "session_authorization" },
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strcmp(name, words[i].word) == 0)
			return xstrdup(words[i].setting);
	return xstrdup(name);
}

/* ---- changing over ---- */

/* The settings of the client before are on record; nobody's are in effect. */
static void saved(struct client *c, const struct answer *a)
{
	struct client *before = c->h->settings;

	c->holds--;
	c->h->settings = NULL;
	if (!before || !a->ok || !a->value)
		return;
	settings_clear(&before->settings);
	before->settings_old = false;
	/* name, newline, length, newline, value: one after another */
	for (const char *p = a->value; *p;) {
		const char *eol = strchr(p, '\n');
		cleanup_free char *name = xstrndup(p, eol ? (size_t)(eol - p) : 0);
		char *end;
		size_t len = eol ? strtoul(eol + 1, &end, 10) : 0;
		cleanup_free char *value = NULL;

		if (!eol || strlen(end) < len + 1)
			return;
		value = xstrndup(end + 1, len);
		settings_add(&before->settings, name, value);
		p = end + 1 + len;
	}
}

static void save(struct client *c)
{
	c->holds++;
	holder_ask(
		c->h, c,
		"SELECT pg_catalog.string_agg(name || E'\\n' || pg_catalog.octet_length(setting) "
		"|| E'\\n' || setting, '') FROM (SELECT name, "
		"pg_catalog.current_setting(name) AS setting FROM pg_catalog.pg_settings WHERE "
		"source = 'session' AND name !~ '^(transaction_|atoll\\.|seed$)' UNION ALL "
		"SELECT 'role', pg_catalog.current_setting('role') WHERE "
		"pg_catalog.current_setting('role') <> 'none') s",
		saved);
}

static void applied(struct client *c, const struct answer *a)
{
	c->holds--;
	if (a->ok) {
		c->h->settings = c;
		return;
	}
	holder_rollback(c->h);
	c->h->settings = c; /* so that it hears this once */
	settings_clear(&c->settings);
	client_error(c, wire_error_field(a->error, 'C'), wire_error_field(a->error, 'M'));
	if (c->in_script)
		script_done(c);
	else
		batch_done(c);
}

bool settings_switch(struct client *c)
{
	cleanup_strbuf struct strbuf sql = STRBUF_INIT;
	struct holder *h = c->h;

	if (h->settings == c)
		return true;
	if (h->settings && h->settings->settings_old) {
		save(c);
		return false;
	}
	holder_savepoint(h);
	strbuf_puts(&sql, "SET SESSION AUTHORIZATION DEFAULT; RESET ROLE; RESET ALL; ");
	for (const struct setting *s = c->settings; s; s = s->next)
		add_set(&sql, s, false);
	c->holds++;
	h->fresh = false;
	holder_ask(h, c, strbuf_str(&sql), applied);
	return false;
}
