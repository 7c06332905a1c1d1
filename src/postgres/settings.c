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
		strbuf_puts(sql, "', 'hex'), pg_catalog.getdatabaseencoding())");
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

void settings_add_all(struct strbuf *sql, const struct setting *list, bool local)
{
	for (; list; list = list->next)
		add_set(sql, list, local);
}

void settings_note_custom(struct client *c, const char *name)
{
	if (strchr(name, '.'))
		settings_add(&c->customs, name, "");
}

void settings_add_names(struct strbuf *sql, const struct setting *list)
{
	strbuf_puts(sql, "ARRAY[");
	for (; list; list = list->next) {
		settings_add_literal(sql, list->name);
		strbuf_puts(sql, list->next ? ", " : "");
	}
	strbuf_puts(sql, "]::pg_catalog.text[]");
}

/* Bytes from hexadecimal digits, up to something else; *AT is behind them. */
static char *read_hex(const char **at)
{
	struct strbuf sb = STRBUF_INIT;
	unsigned byte;

	for (; isxdigit((unsigned char)(*at)[0]) && isxdigit((unsigned char)(*at)[1]); *at += 2) {
		char digits[3] = { (*at)[0], (*at)[1], '\0' };

		byte = (unsigned)strtoul(digits, NULL, 16);
		strbuf_putc(&sb, (char)byte);
	}
	return strbuf_take(&sb);
}

void settings_read(const char *pairs,
                   void (*take)(struct client *c, const char *name, const char *value),
                   struct client *c)
{
	while (*pairs) {
		cleanup_free char *name = read_hex(&pairs), *value = NULL;

		pairs += *pairs == '=';
		value = read_hex(&pairs);
		take(c, name, value);
		if (*pairs++ != ',')
			return;
	}
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
		{ "authorization", "session_authorization" },
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strcmp(name, words[i].word) == 0)
			return xstrdup(words[i].setting);
	return xstrdup(name);
}

/* ---- changing over ---- */

static void keep(struct client *c, const char *name, const char *value)
{
	settings_add(&c->settings, name, value);
}

/* The settings of the client before are on record; nobody's are in effect. */
static void saved(struct client *c, const struct answer *a)
{
	struct client *before = c->h->settings;

	c->holds--;
	c->h->settings = NULL;
	if (!a->ok)
		holder_rollback(c->h);
	if (!before)
		return;
	if (!a->ok) {
		client_refuse(before, wire_error_field(a->error, 'C'),
		              "a plan could not keep the settings of this session",
		              wire_error_field(a->error, 'M'));
		return;
	}
	settings_clear(&before->settings);
	before->settings_old = false;
	settings_read(a->value ? a->value : "", keep, before);
}

/*
 * What comes first is set last (settings_add()): the encoding goes before strings, what only a superuser may set
 * before roles, and the session's role before that of SET ROLE. The server does not list the latter two, nor
 * settings of no module, of which it knows only those that it is asked for by name.
 */
static void save(struct client *c)
{
	cleanup_strbuf struct strbuf sql = STRBUF_INIT;

	c->holds++;
	strbuf_puts(&sql,
	            "SELECT pg_catalog.string_agg(" SETTINGS_PAIR(
			    "n",
			    "v") ", ',' ORDER BY o) "
	                         "FROM (SELECT 0, 'role', pg_catalog.current_setting('role') WHERE "
	                         "pg_catalog.current_setting('role') <> 'none' UNION ALL SELECT 1, "
	                         "'session_authorization', session_user WHERE session_user <> ");
	settings_add_literal(&sql, backend_user(c->h->b));
	strbuf_puts(&sql,
	            " UNION ALL SELECT CASE name WHEN 'client_encoding' THEN 3 ELSE 2 END, name, "
	            "pg_catalog.current_setting(name) FROM pg_catalog.pg_settings WHERE "
	            "source = 'session' AND name !~ '^(transaction_|seed$)' UNION ALL SELECT 2, "
	            "name, pg_catalog.current_setting(name, true) FROM pg_catalog.unnest(");
	settings_add_names(&sql, c->h->settings->customs);
	strbuf_puts(&sql,
	            ") name WHERE pg_catalog.current_setting(name, true) IS NOT NULL) s (o, n, v)");
	holder_ask(c->h, c, strbuf_str(&sql), saved);
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
	settings_add_all(&sql, c->settings, false);
	c->holds++;
	h->fresh = false;
	holder_ask(h, c, strbuf_str(&sql), applied);
	return false;
}
