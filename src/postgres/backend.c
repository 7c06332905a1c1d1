/* SPDX-License-Identifier: Apache-2.0 */
/* The connection to the server, by libpq as long as it is not raw. */
#include "postgres/backend.h"

#include "util/cleanup.h"
#include "util/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <libpq-fe.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct backend {
	PGconn *conn;
	PGcancel *cancel;
	SSL *ssl; /* conn's, NULL when the connection is plain */
	char *tag;
};

static int fail(struct error *err, int code, const char *what, const PGresult *res, PGconn *conn)
{
	const char *state = res ? PQresultErrorField(res, PG_DIAG_SQLSTATE) : NULL;
	const char *primary = res ? PQresultErrorField(res, PG_DIAG_MESSAGE_PRIMARY) : NULL;
	const char *text = primary ? primary : PQerrorMessage(conn);
	cleanup_free char *line = xstrndup(text, strcspn(text, "\n"));

	(void)error_set(err, code, "%s: %s", what, *line ? line : "the server is gone");
	error_cause(err, "postgres", NULL, 0, state);
	return code;
}

/* What would end a transaction that waits is off, and stays off after RESET ALL: given at the start
 * they are the session's defaults. A server refuses to start with one it does not know. */
#define OLD_OPTIONS  "-c idle_in_transaction_session_timeout=0"
#define MORE_OPTIONS OLD_OPTIONS " -c idle_session_timeout=0"
#define NEW_OPTIONS  MORE_OPTIONS " -c transaction_timeout=0"
static const char *const session_options[] = { NEW_OPTIONS, MORE_OPTIONS, OLD_OPTIONS };
#define N_OPTIONS (sizeof(session_options) / sizeof(session_options[0]))

static PGconn *connect_with(const char *url, const char *options)
{
	const char *const keys[] = { "dbname",          "options",    "fallback_application_name",
		                     "connect_timeout", "gssencmode", NULL };
	const char *const values[] = { url, options, "atoll", "10", "disable", NULL };

	return PQconnectdbParams(keys, values, 1);
}

/* Servers of today know the second; a newer one is asked again, with the first. */
static PGconn *connect_fitting(const char *url)
{
	PGconn *conn = connect_with(url, session_options[1]);
	size_t again = N_OPTIONS;

	if (!conn)
		return NULL;
	if (PQstatus(conn) == CONNECTION_OK)
		again = PQserverVersion(conn) >= 170000 ? 0 : N_OPTIONS;
	else if (strstr(PQerrorMessage(conn), "idle_session_timeout"))
		again = 2;
	if (again == N_OPTIONS)
		return conn;
	PQfinish(conn);
	return connect_with(url, session_options[again]);
}

static int take_connection(PGconn *conn, struct backend **ret, struct error *err)
{
	cleanup_backend struct backend *b = xcalloc(1, sizeof(*b));

	b->conn = conn;
	if (!b->conn)
		return -ENOMEM;
	if (PQstatus(b->conn) != CONNECTION_OK) {
		bool no_password = PQconnectionNeedsPassword(b->conn);
		int r = fail(err, -ATOLL_E_UNSUPPORTED, "cannot connect to the server", NULL,
		             b->conn);

		if (no_password || PQconnectionUsedPassword(b->conn))
			error_hint(err, "put the password into ~/.pgpass (mode 0600)");
		else
			error_hint(err, "is the server running there, and the URL right?");
		return r;
	}
	b->cancel = PQgetCancel(b->conn);
	b->ssl = PQsslStruct(b->conn, "OpenSSL");
	*ret = take_ptr(b);
	return 0;
}

int backend_connect(const char *url, struct backend **ret, struct error *err)
{
	return take_connection(connect_fitting(url), ret, err);
}

int backend_connect_as(const char *info, const char *user, const char *database,
                       struct backend **ret, struct error *err)
{
	/* What is behind wins, but for a database that is a connection string: that is read first. */
	const char *const keys[] = { "dbname", "user", "dbname", NULL };
	const char *const values[] = { info, user, database, NULL };

	return take_connection(PQconnectdbParams(keys, values, 1), ret, err);
}

void backend_free(struct backend *b)
{
	if (!b)
		return;
	PQfreeCancel(b->cancel);
	if (b->conn)
		PQfinish(b->conn);
	free(b->tag);
	free(b);
}

void cleanup_backendp(struct backend **b)
{
	backend_free(*b);
}

static void no_notices(void *arg, const PGresult *res)
{
	(void)arg;
	(void)res;
}

static void pass_rows(const PGresult *res, backend_row_fn fn, void *user)
{
	size_t n = (size_t)PQnfields(res);
	const char **columns = xcalloc(n + 1, sizeof(*columns));

	for (int row = 0; row < PQntuples(res); row++) {
		for (size_t i = 0; i < n; i++)
			columns[i] = PQgetvalue(res, row, (int)i);
		fn(user, n, columns);
	}
	free(columns);
}

int backend_rows(struct backend *b, const char *sql, backend_row_fn fn, void *user,
                 struct error *err)
{
	PGresult *res;
	ExecStatusType status;
	int r = 0;

	(void)PQsetNoticeReceiver(b->conn, no_notices, NULL);
	res = PQexec(b->conn, sql);
	status = PQresultStatus(res);
	free(b->tag);
	b->tag = xstrdup(res ? PQcmdStatus(res) : "");
	if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
		r = fail(err, PQstatus(b->conn) == CONNECTION_OK ? -ATOLL_E_CANNOT_PREPARE : -EPIPE,
		         "the server refused", res, b->conn);
	else if (fn)
		pass_rows(res, fn, user);
	PQclear(res);
	return r;
}

static void take_value(void *user, size_t n, const char *const *columns)
{
	char **value = user;

	if (n > 0 && !*value)
		*value = xstrdup(columns[0]);
}

int backend_run(struct backend *b, const char *sql, char **ret_value, struct error *err)
{
	char *value = NULL;
	int r = backend_rows(b, sql, take_value, &value, err);

	if (ret_value && r == 0)
		*ret_value = value;
	else
		free(value);
	return r;
}

const char *backend_tag(const struct backend *b)
{
	return b->tag ? b->tag : "";
}

char backend_status(const struct backend *b)
{
	switch (PQtransactionStatus(b->conn)) {
	case PQTRANS_IDLE:
		return 'I';
	case PQTRANS_ACTIVE:
	case PQTRANS_INTRANS:
		return 'T';
	case PQTRANS_INERROR:
	case PQTRANS_UNKNOWN:
		break;
	}
	return 'E';
}

int backend_version(const struct backend *b)
{
	return PQserverVersion(b->conn);
}

PQconninfoOption *backend_options(const struct backend *b)
{
	return PQconninfo(b->conn);
}

const char *backend_user(const struct backend *b)
{
	return PQuser(b->conn);
}

const char *backend_database(const struct backend *b)
{
	return PQdb(b->conn);
}

const char *backend_parameter(const struct backend *b, const char *name)
{
	return PQparameterStatus(b->conn, name);
}

char *backend_literal(struct backend *b, const char *text)
{
	char *quoted = PQescapeLiteral(b->conn, text, strlen(text));
	char *copy = xstrdup(quoted ? quoted : "NULL");

	PQfreemem(quoted);
	return copy;
}

/* ---- raw ---- */

void backend_raw(struct backend *b)
{
	int fd = PQsocket(b->conn);
	int flags = fcntl(fd, F_GETFL);

	(void)fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

int backend_fd(const struct backend *b)
{
	return PQsocket(b->conn);
}

static ssize_t ssl_answer(SSL *ssl, int n)
{
	switch (SSL_get_error(ssl, n)) {
	case SSL_ERROR_WANT_READ:
	case SSL_ERROR_WANT_WRITE:
		return -EAGAIN;
	case SSL_ERROR_ZERO_RETURN:
		return 0;
	default:
		return -EPIPE;
	}
}

ssize_t backend_read(struct backend *b, void *buf, size_t len)
{
	ssize_t n;

	if (b->ssl) {
		int got = SSL_read(b->ssl, buf, len > INT32_MAX ? INT32_MAX : (int)len);

		return got > 0 ? got : ssl_answer(b->ssl, got);
	}
	do
		n = read(PQsocket(b->conn), buf, len);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

ssize_t backend_write(struct backend *b, const void *buf, size_t len)
{
	ssize_t n;

	if (b->ssl) {
		int put = SSL_write(b->ssl, buf, len > INT32_MAX ? INT32_MAX : (int)len);

		return put > 0 ? put : ssl_answer(b->ssl, put);
	}
	do
		n = write(PQsocket(b->conn), buf, len);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

bool backend_has_more(const struct backend *b)
{
	return b->ssl && SSL_pending(b->ssl) > 0;
}

void backend_cancel(struct backend *b)
{
	char why[256];

	if (b->cancel)
		(void)PQcancel(b->cancel, why, sizeof(why));
}
