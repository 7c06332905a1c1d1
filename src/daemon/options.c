/* SPDX-License-Identifier: Apache-2.0 */
/* One table: each option says where its value goes. */
#include "daemon/options.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define MS_PER_S        1000
#define SECONDS_MAX     86400.0
#define CONNECTIONS_MAX 10000

enum option_kind {
	OPTION_TEXT = 0,
	OPTION_LIST,
	OPTION_SECONDS,
	OPTION_COUNT,
	OPTION_LOG,
	OPTION_FLAG
};

static const struct row {
	const char *name;
	enum option_kind kind;
	size_t at; /* in struct daemon_options */
} rows[] = {
	{ "socket", OPTION_TEXT, offsetof(struct daemon_options, socket) },
	{ "listen", OPTION_LIST, offsetof(struct daemon_options, listen) },
	{ "tls-cert", OPTION_TEXT, offsetof(struct daemon_options, tls_cert) },
	{ "tls-key", OPTION_TEXT, offsetof(struct daemon_options, tls_key) },
	{ "host", OPTION_LIST, offsetof(struct daemon_options, hosts) },
	{ "origin", OPTION_LIST, offsetof(struct daemon_options, origins) },
	{ "max-connections", OPTION_COUNT, offsetof(struct daemon_options, connections) },
	{ "max-per-address", OPTION_COUNT, offsetof(struct daemon_options, per_address) },
	{ "head-timeout", OPTION_SECONDS, offsetof(struct daemon_options, limits_ms[PEER_HEAD]) },
	{ "body-timeout", OPTION_SECONDS, offsetof(struct daemon_options, limits_ms[PEER_BODY]) },
	{ "send-timeout", OPTION_SECONDS,
	  offsetof(struct daemon_options, limits_ms[PEER_SENDING]) },
	{ "idle-timeout", OPTION_SECONDS, offsetof(struct daemon_options, limits_ms[PEER_IDLE]) },
	{ "stop-timeout", OPTION_SECONDS, offsetof(struct daemon_options, stop_ms) },
	{ "wait", OPTION_SECONDS, offsetof(struct daemon_options, wait_ms) },
	{ "mirrors", OPTION_TEXT, offsetof(struct daemon_options, mirrors) },
	{ "root", OPTION_LIST, offsetof(struct daemon_options, roots) },
	{ "database", OPTION_LIST, offsetof(struct daemon_options, databases) },
	{ "unserialized", OPTION_FLAG, offsetof(struct daemon_options, unserialized) },
	{ "log", OPTION_LOG, offsetof(struct daemon_options, log) },
	{ "version", OPTION_FLAG, offsetof(struct daemon_options, version) },
};

static const struct daemon_options usual = {
	.connections = 256,
	.per_address = 64,
	.limits_ms = { [PEER_HEAD] = 10000,
	               [PEER_BODY] = 60000,
	               [PEER_SENDING] = 60000,
	               [PEER_IDLE] = 75000 },
	.stop_ms = 30000,
	.wait_ms = 10000,
	.wait_max_ms = 3600000,
	.log = LOG_REQUEST,
};

static const struct row *row_of(const char *arg, const char **ret_value)
{
	size_t len = strcspn(arg, "=");

	*ret_value = arg[len] ? arg + len + 1 : NULL;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (strlen(rows[i].name) == len && strncmp(rows[i].name, arg, len) == 0)
			return &rows[i];
	return NULL;
}

static int take_seconds(int64_t *to, const struct row *row, const char *value, struct error *err)
{
	char *end;
	double s = strtod(value, &end);

	if (end == value || *end || !(s >= 0 && s <= SECONDS_MAX))
		return error_set(err, -ATOLL_E_INVALID, "--%s: '%s' is no number of seconds",
		                 row->name, value);
	*to = (int64_t)(s * MS_PER_S);
	return 0;
}

static int take_count(unsigned *to, const struct row *row, const char *value, struct error *err)
{
	char *end;
	unsigned long n = strtoul(value, &end, 10);

	if (*value < '0' || *value > '9' || *end || n == 0 || n > CONNECTIONS_MAX)
		return error_set(err, -ATOLL_E_INVALID, "--%s: '%s' is no number from 1 to %d",
		                 row->name, value, CONNECTIONS_MAX);
	*to = (unsigned)n;
	return 0;
}

static int take_log(enum log_level *to, const char *value, struct error *err)
{
	static const char *const names
		[] = { [LOG_ERROR] = "errors", [LOG_INFO] = "info", [LOG_REQUEST] = "requests" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(names[i], value) != 0)
			continue;
		*to = (enum log_level)i;
		return 0;
	}
	return error_set(err, -ATOLL_E_INVALID, "--log: '%s' is none of errors, info, requests",
	                 value);
}

static int take(struct daemon_options *o, const struct row *row, const char *value,
                struct error *err)
{
	void *to = (char *)o + row->at;

	switch (row->kind) {
	case OPTION_TEXT:
		*(const char **)to = value;
		return 0;
	case OPTION_LIST:
		strlist_add(to, value);
		return 0;
	case OPTION_SECONDS:
		return take_seconds(to, row, value, err);
	case OPTION_COUNT:
		return take_count(to, row, value, err);
	case OPTION_LOG:
		return take_log(to, value, err);
	case OPTION_FLAG:
		*(bool *)to = true;
		return 0;
	}
	BUG("--%s has no kind", row->name);
}

static int check(const struct daemon_options *o, struct error *err)
{
	if (!o->tls_cert == !o->tls_key)
		return 0;
	return error_set(err, -ATOLL_E_INVALID, "--tls-cert and --tls-key go together");
}

int options_parse(struct daemon_options *o, int argc, char **argv, struct error *err)
{
	*o = usual;
	for (int i = 1; i < argc; i++) {
		const char *value = NULL;
		const struct row *row =
			strncmp(argv[i], "--", 2) == 0 ? row_of(argv[i] + 2, &value) : NULL;
		int r;

		if (!row || (row->kind == OPTION_FLAG && value)) {
			(void)error_set(err, -ATOLL_E_INVALID, "'%s' is no option", argv[i]);
			error_hint(err, "man atoll-serve");
			return -ATOLL_E_INVALID;
		}
		if (row->kind != OPTION_FLAG && !value)
			value = argv[++i];
		if (row->kind != OPTION_FLAG && !value)
			return error_set(err, -ATOLL_E_INVALID, "--%s wants a value", row->name);
		r = take(o, row, value, err);
		if (r < 0)
			return r;
	}
	return check(o, err);
}

void options_done(struct daemon_options *o)
{
	strlist_done(&o->listen);
	strlist_done(&o->hosts);
	strlist_done(&o->origins);
	strlist_done(&o->roots);
	strlist_done(&o->databases);
}
