/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The name that a database goes by from then on has everything in it that was said by the environment or
 * by a service file: who finishes a commit may have another environment. But no password.
 */
#include "postgres/identify.h"

#include "postgres/backend.h"
#include "util/cleanup.h"
#include "util/mem.h"

#include <libpq-fe.h>
#include <stdlib.h>
#include <string.h>

#define OLDEST 120000 /* server version */

/* ---- what was given ---- */

static const char *value_of(const PQconninfoOption *options, const char *keyword)
{
	for (; options && options->keyword; options++)
		if (strcmp(options->keyword, keyword) == 0)
			return options->val && *options->val ? options->val : NULL;
	return NULL;
}

/* Libpq would not show it on a screen: passwords, for whatever. */
static bool is_secret(const PQconninfoOption *o)
{
	return strcmp(o->dispchar, "*") == 0;
}

static bool has_secret(const PQconninfoOption *options)
{
	for (; options->keyword; options++)
		if (is_secret(options) && options->val && *options->val)
			return true;
	return false;
}

/* Of the text only what is no secret is repeated: nothing. */
static int check_url(const char *url, struct error *err)
{
	char *why = NULL;
	PQconninfoOption *options;
	int r = 0;

	if (strncmp(url, "postgres://", 11) != 0 && strncmp(url, "postgresql://", 13) != 0) {
		r = error_set(err, -ATOLL_E_INVALID, "this is not the URL of a database");
		error_hint(err, "postgres://USER@HOST:PORT/DATABASE, or postgres:///DATABASE");
		return r;
	}
	options = PQconninfoParse(url, &why);
	if (!options)
		r = error_set(err, -ATOLL_E_INVALID,
		              "this is not the URL of a database that "
		              "libpq understands");
	else if (has_secret(options)) {
		r = error_set(err, -ATOLL_E_INVALID,
		              "the URL has a password in it, which others could read");
		error_hint(err, "put the password into ~/.pgpass (mode 0600), and give the URL "
		                "without it");
	}
	PQconninfoFree(options);
	PQfreemem(why);
	return r;
}

/* ---- what it means ---- */

static void add_escaped(struct strbuf *sb, const char *text)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789-._~,";

	for (; *text; text++) {
		if (strchr(plain, *text))
			strbuf_putc(sb, *text);
		else
			strbuf_printf(sb, "%%%02X", (unsigned char)*text);
	}
}

/* A path reads better as it is. */
static void add_parameter(struct strbuf *sb, const char *keyword, const char *value)
{
	strbuf_printf(sb, "%c%s=", strchr(strbuf_str(sb), '?') ? '&' : '?', keyword);
	for (; *value; value++) {
		const char one[2] = { *value, '\0' };

		if (*value == '/')
			strbuf_putc(sb, '/');
		else
			add_escaped(sb, one);
	}
}

/* What is in the URL by its place, what must not be, and what is ours. */
static bool has_its_place(const char *keyword)
{
	static const char *const names[] = {
		"user",
		"host",
		"port",
		"dbname",
		"options",
		"service",
		"fallback_application_name",
		"application_name",
		"client_encoding",
		"replication",
		"connect_timeout",
		"gssencmode",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(names[i], keyword) == 0)
			return true;
	return false;
}

/* Since version 16 libpq says "allow" where nothing was given, and knows no default of it. */
static bool is_default(const PQconninfoOption *o)
{
	if (strcmp(o->keyword, "sslcertmode") == 0)
		return strcmp(o->val, "allow") == 0;
	return o->compiled && strcmp(o->val, o->compiled) == 0;
}

static void add_name(struct strbuf *sb, const PQconninfoOption *o)
{
	const char *host = value_of(o, "host"), *port = value_of(o, "port");
	bool local = !host || *host == '/' || *host == '@';

	strbuf_puts(sb, "postgres://");
	add_escaped(sb, value_of(o, "user"));
	strbuf_putc(sb, '@');
	if (!local) {
		bool v6 = strchr(host, ':') != NULL;

		strbuf_puts(sb, v6 ? "[" : "");
		if (v6)
			strbuf_puts(sb, host);
		else
			add_escaped(sb, host);
		strbuf_puts(sb, v6 ? "]" : "");
		if (port)
			strbuf_printf(sb, ":%s", port);
	}
	strbuf_putc(sb, '/');
	add_escaped(sb, value_of(o, "dbname"));
	if (local && host)
		add_parameter(sb, "host", host);
	if (local && port)
		add_parameter(sb, "port", port);
	for (; o->keyword; o++)
		if (o->val && *o->val && !has_its_place(o->keyword) && !is_secret(o) &&
		    !is_default(o))
			add_parameter(sb, o->keyword, o->val);
}

/* Not where it would be looked for again anyway. Libpq does not look at all when the environment has
 * the password. */
static void forget_default(PQconninfoOption *options)
{
	for (; options->keyword; options++)
		if (strcmp(options->keyword, "passfile") == 0 && options->val &&
		    !getenv("PGPASSFILE"))
			options->val[0] = '\0';
}

/* ---- the server ---- */

static int check_server(struct backend *b, struct error *err)
{
	cleanup_free char *recovering = NULL;
	int r;

	if (backend_version(b) < OLDEST)
		return error_set(err, -ATOLL_E_UNSUPPORTED,
		                 "the server is version %d, and 12 is the oldest that will do",
		                 backend_version(b) / 10000);
	r = backend_run(b, "SELECT pg_catalog.pg_is_in_recovery()", &recovering, err);
	if (r == 0 && recovering && strcmp(recovering, "t") == 0) {
		r = error_set(err, -ATOLL_E_UNSUPPORTED,
		              "the server is in recovery, where nothing can be written");
		error_hint(err, "give the URL of its primary");
	}
	return r;
}

/* A line, if there is an answer. */
static int add_setting(struct backend *b, struct strbuf *out, const char *word, const char *sql,
                       struct error *err)
{
	cleanup_free char *value = NULL;
	int r = backend_run(b, sql, &value, err);

	if (r == 0 && value && *value)
		strbuf_printf(out, "%s %s\n", word, value);
	return r;
}

static int add_facts(struct backend *b, struct strbuf *out, struct error *err)
{
	cleanup_free char *id = NULL, *prepared = NULL;
	int r = backend_run(b,
	                    "SELECT pg_catalog.format('%s/%s', system_identifier, (SELECT oid FROM "
	                    "pg_catalog.pg_database WHERE datname = "
	                    "pg_catalog.current_database())) FROM pg_catalog.pg_control_system()",
	                    &id, err);

	if (r == 0)
		r = backend_run(b, "SHOW max_prepared_transactions", &prepared, err);
	if (r < 0)
		return r;
	strbuf_printf(out, "id %s\nuser %s\ndatabase %s\nversion %s\n", id, backend_user(b),
	              backend_database(b), backend_parameter(b, "server_version"));
	r = add_setting(b, out, "taken",
	                "SELECT pg_catalog.format('%s of %s', count(*), "
	                "pg_catalog.current_setting('max_prepared_transactions')) FROM "
	                "pg_catalog.pg_prepared_xacts",
	                err);
	if (r < 0)
		return r;
	if (strcmp(prepared, "0") == 0)
		strbuf_puts(out, "final the server has max_prepared_transactions = 0\n");
	return 0;
}

int identify(const char *url, struct strbuf *out, struct error *err)
{
	cleanup_backend struct backend *b = NULL;
	cleanup_strbuf struct strbuf name = STRBUF_INIT;
	PQconninfoOption *options;
	int r = check_url(url, err);

	if (r == 0)
		r = backend_connect(url, &b, err);
	if (r == 0)
		r = check_server(b, err);
	if (r < 0)
		return r;
	options = backend_options(b);
	if (options) {
		forget_default(options);
		add_name(&name, options);
	}
	PQconninfoFree(options);
	strbuf_printf(out, "name %s\n", strbuf_str(&name));
	return add_facts(b, out, err);
}
