/* SPDX-License-Identifier: Apache-2.0 */
/* Identities: by the kernel's word (whoever has our uid on the Unix socket is us), or by a secret. */
#include "daemon/auth.h"

#include "auth/credential.h"
#include "daemon/bond.h"
#include "daemon/rate.h"
#include "util/clock.h"
#include "util/mem.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

struct auth {
	uid_t uid; /* ours */
	struct atoll *store;
	struct rate *rate;
	struct bonds *bonds;
	pthread_mutex_t noting; /* somebody writes when a credential was used */
};

int auth_open(const char *home, struct auth **ret, struct error *err)
{
	struct atoll *store;
	struct auth *a;
	int r = store_open(home, &store, err);

	if (r < 0)
		return r;
	atoll_set_wait(store, 0);
	a = xcalloc(1, sizeof(*a));
	a->uid = geteuid();
	a->store = store;
	a->rate = rate_new();
	(void)pthread_mutex_init(&a->noting, NULL);
	r = bonds_open(a, &a->bonds, err);
	if (r < 0) {
		auth_close(a);
		return r;
	}
	*ret = a;
	return 0;
}

void auth_close(struct auth *a)
{
	if (!a)
		return;
	bonds_close(a->bonds);
	store_close(a->store);
	rate_free(a->rate);
	(void)pthread_mutex_destroy(&a->noting);
	free(a);
}

struct atoll *auth_store(struct auth *a)
{
	return a->store;
}

struct bonds *auth_bonds(struct auth *a)
{
	return a->bonds;
}

static int denied(struct error *err, const char *why)
{
	(void)error_set(err, -ATOLL_E_DENIED, "%s", why);
	error_hint(err, "send 'Authorization: Bearer KEY', with a key of atoll token new; or use "
	                "the Unix socket as the user who runs the daemon");
	return -ATOLL_E_DENIED;
}

/* ---- the socket ---- */

static bool is_own(const struct auth *a, const struct auth_request *q)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	return q->is_unix && getsockopt(q->fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 &&
	       peer.uid == a->uid;
}

static int by_socket(const struct auth *a, const struct auth_request *q, struct identity *ret,
                     struct error *err)
{
	if (!is_own(a, q))
		return denied(err, "no credentials");
	*ret = (struct identity){ .scope = SCOPE_ADMIN, .by_socket = true };
	(void)snprintf(ret->name, sizeof(ret->name), "uid %u", (unsigned)a->uid);
	return 0;
}

/* ---- a secret ---- */

/* What is behind "Bearer", which is known in any case, and at least one blank. NULL: another scheme. */
static const char *bearer(const char *authorization)
{
	static const char scheme[] = "Bearer";
	size_t len = strlen(scheme);

	if (strncasecmp(authorization, scheme, len) != 0 || authorization[len] != ' ')
		return NULL;
	return authorization + len + strspn(authorization + len, " ");
}

/* Seldom, and only by one thread at a time: the others have better things to do. */
static void note_use(struct auth *a, const struct credential_row *row)
{
	if (pthread_mutex_trylock(&a->noting) != 0)
		return;
	credential_note_use(a->store, row);
	(void)pthread_mutex_unlock(&a->noting);
}

static void become(struct identity *ret, const struct credential_row *row)
{
	*ret = (struct identity){ .scope = row->scope, .credential = *row };
	(void)snprintf(ret->plan, sizeof(ret->plan), "%s", row->plan);
	if (row->kind == CREDENTIAL_KEY)
		(void)snprintf(ret->name, sizeof(ret->name), "key %s", row->name);
	else
		(void)snprintf(ret->name, sizeof(ret->name), "token %s of %s", row->id, row->plan);
}

/* 1 and *RET, or 0 and *RET_ROW as credential_find() has it. */
static int by_secret(struct auth *a, const char *authorization, struct identity *ret,
                     struct credential_row *ret_row, struct error *err)
{
	const char *text = bearer(authorization);
	size_t len = text ? strcspn(text, " ") : 0;
	int r;

	ret_row->id[0] = '\0';
	/* Blanks behind it are none of the value's. */
	if (len == 0 || text[len + strspn(text + len, " \t")] != '\0')
		return 0;
	r = credential_find(a->store, text, len, ret_row, err);
	if (r <= 0)
		return r;
	note_use(a, ret_row);
	become(ret, ret_row);
	return 1;
}

/* Whoever has the secret may know what became of it, and by which clock. */
static int no_more(const struct credential_row *row, struct error *err)
{
	const char *kind = row->kind == CREDENTIAL_KEY ? "key" : "token";
	char at[CLOCK_TEXT_LEN], now[CLOCK_TEXT_LEN];
	char why[4 * CLOCK_TEXT_LEN + LIMIT_NAME];

	clock_format(row->revoked_ms ? row->revoked_ms : row->expires_ms, at);
	clock_format(clock_real_ms(), now);
	if (!*row->id)
		return denied(err, "the credential is unknown, revoked or over");
	if (row->revoked_ms)
		(void)snprintf(why, sizeof(why), "%s '%s' was revoked at %s", kind, row->name, at);
	else if (row->expires_ms <= clock_real_ms())
		(void)snprintf(why, sizeof(why),
		               "%s '%s' is over since %s by the daemon's clock, which says %s",
		               kind, row->name, at, now);
	else
		(void)snprintf(why, sizeof(why), "%s '%s' is over", kind, row->name);
	return denied(err, why);
}

int auth_check(struct auth *a, const struct auth_request *q, struct identity *ret,
               unsigned *ret_retry_s, struct error *err)
{
	struct credential_row row;
	int r;

	if (!q->authorization)
		return by_socket(a, q, ret, err);
	r = by_secret(a, q->authorization, ret, &row, err);
	if (r != 0)
		return r < 0 ? r : 0;
	if (!is_own(a, q) && !rate_failed(a->rate, q->peer, clock_boot_ns(), ret_retry_s))
		return error_set(err, -EAGAIN, "too many wrong credentials from this address");
	return no_more(&row, err);
}

bool auth_holds(struct auth *a, const struct identity *who)
{
	return who->by_socket || credential_is_revoked(a->store, who->credential.sha256, NULL) == 0;
}

bool auth_notes_refusal(struct auth *a, const struct identity *who)
{
	unsigned retry_s;

	return rate_failed(a->rate, who->name, clock_boot_ns(), &retry_s);
}
