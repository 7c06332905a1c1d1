/* SPDX-License-Identifier: Apache-2.0 */
/* Connections whose credential is revoked are shut down; others are not. */
#include "daemon/bond.h"

#include "auth/credential.h"
#include "fs/remove.h"
#include "util/cleanup.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static char home[64];
static struct atoll *store;
static struct auth *auth;

static int setup(void **state)
{
	(void)state;
	(void)snprintf(home, sizeof(home), "/tmp/atoll-bond-XXXXXX");
	if (!mkdtemp(home) || store_open(home, &store, NULL) < 0)
		return -1;
	return auth_open(home, &auth, NULL);
}

static int teardown(void **state)
{
	cleanup_close int tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	(void)state;
	auth_close(auth);
	store_close(store);
	return remove_tree_at(tmp, home + strlen("/tmp/"));
}

/* Somebody with a new key. */
static struct identity somebody(const char *name, int64_t life_s)
{
	const struct key_wish wish = { .name = name,
		                       .scope = SCOPE_AGENT,
		                       .life_s = life_s,
		                       .request = "" };
	struct identity who = { .scope = SCOPE_AGENT };
	struct secret secret;

	assert_int_equal(credential_new_key(store, &wish, &secret, &who.credential, NULL), 0);
	return who;
}

static bool is_shut(int fd, int wait_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLRDHUP };

	return poll(&p, 1, wait_ms) > 0;
}

static void bond_ends_what_was_revoked_and_nothing_else(void **state)
{
	struct identity a = somebody("a", 0), b = somebody("b", 1), owner = { .by_socket = true };
	struct bonds *w = NULL;
	struct bond *one, *two;
	int x[2], y[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, x), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, y), 0);
	assert_int_equal(bonds_open(auth, &w, NULL), 0);
	assert_null(bond_add(w, &owner, x[0]));
	one = bond_add(w, &a, x[0]);
	two = bond_add(w, &b, y[0]);
	/* Long enough for the second to be over. */
	assert_false(is_shut(x[1], 2500));
	assert_int_equal(credential_left_ms(&b.credential), 0);
	assert_false(is_shut(y[1], 0));
	assert_int_equal(credential_revoke(store, a.credential.id, NULL), 1);
	assert_true(is_shut(x[1], 60000));
	assert_false(is_shut(y[1], 0));
	/* What is over can still be revoked. */
	assert_int_equal(credential_revoke(store, b.credential.id, NULL), 1);
	assert_true(is_shut(y[1], 60000));
	bond_remove(w, one);
	bond_remove(w, two);
	bond_remove(w, NULL);
	bonds_close(w);
	for (int i = 0; i < 2; i++) {
		(void)close(x[i]);
		(void)close(y[i]);
	}
}

static void bond_closes_at_once(void **state)
{
	(void)state;
	for (int i = 0; i < 50; i++) {
		struct identity a = { .scope = SCOPE_AGENT };
		struct bonds *w = NULL;
		struct bond *all[20];

		assert_int_equal(bonds_open(auth, &w, NULL), 0);
		for (size_t k = 0; k < 20; k++)
			all[k] = bond_add(w, &a, -1);
		for (size_t k = 0; k < 20; k++)
			bond_remove(w, all[(k * 7) % 20]);
		bonds_close(w);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(bond_ends_what_was_revoked_and_nothing_else, setup,
		                                teardown),
		cmocka_unit_test_setup_teardown(bond_closes_at_once, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
