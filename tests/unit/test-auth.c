/* SPDX-License-Identifier: Apache-2.0 */
/* Secrets, credentials and the audit log, on a real store. */
#include "auth/audit.h"
#include "auth/credential.h"
#include "auth/secret.h"

#include "fs/remove.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/random.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char home[64];
static struct atoll *store;

static void check(int code, const char *call, struct error *err)
{
	if (code < 0)
		fail_msg("%s: %s (%s)", call, error_code_name(code), err->msg ? err->msg : "");
	error_done(err);
}
/* CALL ends with `err`. */
#define check_ok(call)                               \
	do {                                         \
		struct error check_err = ERROR_INIT; \
		struct error *err = &check_err;      \
		check((call), #call, err);           \
	} while (0)

static int setup(void **state)
{
	(void)state;
	(void)snprintf(home, sizeof(home), "/tmp/atoll-auth-XXXXXX");
	if (!mkdtemp(home))
		return -1;
	return store_open(home, &store, NULL);
}

static int teardown(void **state)
{
	cleanup_close int tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	(void)state;
	store_close(store);
	return remove_tree_at(tmp, home + strlen("/tmp/"));
}

static void raw_sql(const char *sql)
{
	char path[128];
	sqlite3 *db = NULL;

	(void)snprintf(path, sizeof(path), "%s/atoll.db", home);
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static int write_plan(struct registry *reg, void *ctx, struct error *err)
{
	return registry_plan_insert(reg, ctx, err);
}

static struct plan_row add_plan(const char *name)
{
	struct plan_row row = { .created_ms = 1 };

	random_hex(row.id, PLAN_ID_LEN);
	(void)snprintf(row.name, sizeof(row.name), "%s", name);
	check_ok(store_write(store, REGISTRY_NORMAL, write_plan, &row, err));
	return row;
}

static int delete_plan(struct registry *reg, void *ctx, struct error *err)
{
	return registry_plan_delete(reg, ctx, err);
}

static struct credential_row add_key(const char *name, enum scope scope, int64_t life_s,
                                     struct secret *ret)
{
	const struct key_wish wish = { .name = name,
		                       .scope = scope,
		                       .life_s = life_s,
		                       .request = "" };
	struct credential_row row;

	check_ok(credential_new_key(store, &wish, ret, &row, err));
	return row;
}

static struct credential_row add_token(const char *plan, const struct credential_row *parent,
                                       const char *request, struct secret *ret)
{
	const struct token_wish wish = { .plan = plan,
		                         .name = "somebody",
		                         .parent = parent,
		                         .scope = SCOPE_AGENT,
		                         .life_s = 900,
		                         .request = request };
	struct credential_row row;

	check_ok(credential_new_token(store, &wish, ret, &row, err));
	return row;
}

static int found(const struct secret *s)
{
	struct credential_row row;

	return credential_find(store, s->text, strlen(s->text), &row, NULL);
}

/* ---- secrets ---- */

static void secret_has_prefix_length_and_checksum(void **state)
{
	char sha[SHA256_TEXT_LEN], other[SHA256_TEXT_LEN];
	struct secret a, b;

	(void)state;
	check_ok(secret_make(&a, CREDENTIAL_KEY, sha, err));
	check_ok(secret_make(&b, CREDENTIAL_TOKEN, other, err));
	assert_int_equal(strlen(a.text), SECRET_LEN);
	assert_memory_equal(a.text, "atk_", 4);
	assert_memory_equal(b.text, "ats_", 4);
	assert_int_equal(secret_kind(a.text, SECRET_LEN), CREDENTIAL_KEY);
	assert_int_equal(secret_kind(b.text, SECRET_LEN), CREDENTIAL_TOKEN);
	assert_string_not_equal(a.text + 4, b.text + 4);
	assert_string_not_equal(sha, other);
	check_ok(secret_digest(a.text, SECRET_LEN, other, err));
	assert_string_equal(sha, other);
	/* So that others can check it: CRC-32 of all before it, in base 62. */
	assert_int_equal(
		secret_kind("atk_000000000000000000000000000000000000000000000JPKp", SECRET_LEN),
		CREDENTIAL_KEY);
}

static void secret_every_mistyped_letter_is_noticed(void **state)
{
	char sha[SHA256_TEXT_LEN];
	struct secret s;

	(void)state;
	check_ok(secret_make(&s, CREDENTIAL_KEY, sha, err));
	for (size_t i = 0; i < SECRET_LEN; i++) {
		static const char wrong[] = "0aZ_- \n\x7f";

		for (size_t k = 0; k < sizeof(wrong); k++) { /* the NUL, too */
			struct secret t = s;

			t.text[i] = wrong[k];
			if (t.text[i] != s.text[i])
				assert_int_equal(secret_kind(t.text, SECRET_LEN), -EBADMSG);
		}
	}
	for (size_t len = 0; len < SECRET_LEN; len++)
		assert_int_equal(secret_kind(s.text, len), -EBADMSG);
	assert_int_equal(secret_kind(s.text, SECRET_LEN + 1), -EBADMSG);
}

/* ---- credentials ---- */

static void credential_is_found_until_revoked_by_another_process(void **state)
{
	struct secret key, token;
	struct credential_row row;
	struct plan_row plan = add_plan("p");
	struct atoll *other;
	int status;

	(void)state;
	row = add_key("ci", SCOPE_AGENT, 0, &key);
	(void)add_token(plan.id, &row, "", &token);
	assert_int_equal(found(&key), 1);
	assert_int_equal(found(&token), 1);
	assert_int_equal(credential_holds(store, row.sha256, NULL), 1);
	if (fork() == 0) {
		struct error err = ERROR_INIT;

		if (store_open(home, &other, &err) < 0 ||
		    credential_revoke(other, row.id, &err) != 2)
			_exit(1);
		_exit(0);
	}
	assert_true(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_int_equal(found(&key), 0);
	assert_int_equal(found(&token), 0); /* made for it */
	assert_int_equal(credential_holds(store, row.sha256, NULL), 0);
	/* The name is free again, and the old one stays refused. */
	(void)add_key("ci", SCOPE_AGENT, 0, &token);
	assert_int_equal(found(&token), 1);
	assert_int_equal(found(&key), 0);
}

static void credential_names_are_taken_once(void **state)
{
	const struct key_wish bad[] = { { .name = "ci", .request = "" },
		                        { .name = "", .request = "" },
		                        { .name = "a b", .request = "" },
		                        { .name = "x", .life_s = -1, .request = "" } };
	static const int codes[] = { -ATOLL_E_EXISTS, -ATOLL_E_INVALID, -ATOLL_E_INVALID,
		                     -ATOLL_E_INVALID };
	struct credential_row row;
	struct secret s;

	(void)state;
	(void)add_key("ci", SCOPE_ADMIN, 0, &s);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(credential_new_key(store, &bad[i], &s, &row, NULL), codes[i]);
}

static void credential_is_over_by_either_clock(void **state)
{
	static const struct {
		const char *sql; /* what happened */
		bool key, token; /* still in force */
	} cases[] = {
		{ "UPDATE credential SET expires_ms = expires_ms", true, true },
		{ "UPDATE credential SET expires_ms = 1000", false, false },
		{ "UPDATE credential SET expires_boot_ns = 1", false, false },
		{ "UPDATE credential SET boot = 'another', expires_boot_ns = 1", true, false },
		/* A clock that was set back, over a reboot. */
		{ "UPDATE credential SET boot = 'another', created_ms = created_ms + 3600000",
		  false, false },
	};
	struct plan_row plan = add_plan("p");

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct secret key, token;

		(void)add_key("ci", SCOPE_AGENT, 3600, &key);
		(void)add_token(plan.id, NULL, "", &token);
		raw_sql(cases[i].sql);
		assert_int_equal(found(&key), cases[i].key);
		assert_int_equal(found(&token), cases[i].token);
		raw_sql("DELETE FROM credential");
	}
}

static void credential_token_lives_no_longer_than_its_key(void **state)
{
	struct plan_row plan = add_plan("p");
	struct credential_row key, token;
	struct secret s;

	(void)state;
	key = add_key("short", SCOPE_AGENT, 120, &s);
	token = add_token(plan.id, &key, "", &s);
	assert_true(token.expires_ms <= key.expires_ms);
	assert_in_range(credential_left_s(&token), 110, 120);
	raw_sql("UPDATE credential SET revoked_ms = 1 WHERE kind = 0");
	{
		const struct token_wish wish = { .plan = plan.id,
			                         .name = "x",
			                         .parent = &key,
			                         .scope = SCOPE_AGENT,
			                         .life_s = 60,
			                         .request = "" };

		/* It was in force when the request came. */
		assert_int_equal(credential_new_token(store, &wish, &s, &token, NULL),
		                 -ATOLL_E_DENIED);
	}
}

static void credential_tokens_end_with_their_plan(void **state)
{
	struct plan_row plan = add_plan("p"), other = add_plan("q");
	struct secret a, b, c;

	(void)state;
	(void)add_token(plan.id, NULL, "", &a);
	(void)add_token(other.id, NULL, "", &b);
	(void)add_token(other.id, NULL, "", &c);
	check_ok(store_write(store, REGISTRY_DURABLE, delete_plan, plan.id, err));
	assert_int_equal(found(&a), 0);
	assert_int_equal(found(&b), 1);
	assert_int_equal(credential_revoke_plan(store, other.id, NULL), 2);
	assert_int_equal(found(&b), 0);
	assert_int_equal(found(&c), 0);
	assert_int_equal(credential_revoke_plan(store, other.id, NULL), 0);
}

static void credential_of_the_same_request_replaces_the_former(void **state)
{
	static const char request[] =
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
	struct plan_row plan = add_plan("p");
	struct secret first, second, other;

	(void)state;
	(void)add_token(plan.id, NULL, request, &first);
	(void)add_token(plan.id, NULL, "", &other);
	(void)add_token(plan.id, NULL, request, &second);
	assert_int_equal(found(&first), 0);
	assert_int_equal(found(&second), 1);
	assert_int_equal(found(&other), 1);
}

static void credential_tokens_of_a_plan_are_limited(void **state)
{
	struct plan_row plan = add_plan("p");
	const struct token_wish wish = { .plan = plan.id,
		                         .name = "x",
		                         .scope = SCOPE_AGENT,
		                         .life_s = 60,
		                         .request = "" };
	struct credential_row row;
	struct secret s;

	(void)state;
	(void)add_token(plan.id, NULL, "", &s);
	raw_sql("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 999) "
	        "INSERT INTO credential SELECT printf('%064x', i), printf('%016x', i), kind, scope, "
	        "name, plan, parent, request, created_ms, expires_ms, expires_boot_ns, boot, 0, 0 "
	        "FROM n, credential");
	assert_int_equal(credential_new_token(store, &wish, &s, &row, NULL), -ATOLL_E_POLICY);
	/* Those that are over do not count for long. */
	raw_sql("UPDATE credential SET expires_ms = 1");
	assert_int_equal(credential_new_token(store, &wish, &s, &row, NULL), 0);
}

static void credential_use_is_noted_coarsely(void **state)
{
	struct credential_row row;
	struct secret s;
	int64_t now = clock_real_ms();

	(void)state;
	(void)add_key("ci", SCOPE_AGENT, 0, &s);
	assert_int_equal(credential_find(store, s.text, SECRET_LEN, &row, NULL), 1);
	assert_int_equal(row.used_ms, 0);
	credential_note_use(store, &row);
	assert_int_equal(credential_find(store, s.text, SECRET_LEN, &row, NULL), 1);
	assert_int_equal(row.used_ms % 600000, 0);
	assert_in_range(row.used_ms, now - 600000, now + 600000);
}

struct race {
	struct secret s;
	atomic_bool revoked; /* credential_revoke() has returned */
	atomic_int wrong;
	atomic_int uses;
};

static void *use_it(void *arg)
{
	struct race *race = arg;
	bool over = false;

	while (!over) {
		bool revoked = atomic_load(&race->revoked);
		int r = found(&race->s);

		atomic_fetch_add(&race->uses, 1);
		/* What began after the answer to the revocation is refused. */
		if (r < 0 || (revoked && r != 0))
			atomic_fetch_add(&race->wrong, 1);
		over = revoked;
	}
	return NULL;
}

static void credential_revoked_while_in_use(void **state)
{
	(void)state;
	for (int round = 0; round < 20; round++) {
		struct race race = { .revoked = false };
		struct credential_row row = add_key("r", SCOPE_AGENT, 0, &race.s);
		pthread_t threads[4];

		for (size_t i = 0; i < 4; i++)
			assert_int_equal(pthread_create(&threads[i], NULL, use_it, &race), 0);
		while (atomic_load(&race.uses) < 50)
			(void)sched_yield();
		assert_int_equal(credential_revoke(store, row.id, NULL), 1);
		atomic_store(&race.revoked, true);
		for (size_t i = 0; i < 4; i++)
			assert_int_equal(pthread_join(threads[i], NULL), 0);
		assert_int_equal(atomic_load(&race.wrong), 0);
	}
}

/* ---- the audit log ---- */

static void write_entry(const char *what)
{
	const struct audit_entry e = { .by = AUDIT_HTTP,
		                       .who = "ci",
		                       .credential = "",
		                       .what = what,
		                       .plan = "p",
		                       .request = "r1",
		                       .outcome = "ok" };

	check_ok(audit_write(store, &e, err));
}

static struct audit_sum sum_up(void)
{
	struct audit_sum sum;

	check_ok(audit_read(store, NULL, NULL, &sum, err));
	return sum;
}

static char *slurp(const char *name, size_t *ret_len)
{
	char path[128], *text = calloc(1, 1 << 20);
	FILE *f;

	(void)snprintf(path, sizeof(path), "%s/%s", home, name);
	f = fopen(path, "r");
	assert_non_null(f);
	*ret_len = fread(text, 1, (1 << 20) - 1, f);
	(void)fclose(f);
	return text;
}

static void spill(const char *name, const char *text, size_t len)
{
	char path[128];
	FILE *f;

	(void)snprintf(path, sizeof(path), "%s/%s", home, name);
	f = fopen(path, "w");
	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, len, f), len);
	assert_int_equal(fclose(f), 0);
}

static void audit_shows_every_changed_or_missing_line(void **state)
{
	char what[16], *text, *line;
	size_t len, n;

	(void)state;
	assert_int_equal(sum_up().lines, 0);
	for (int i = 0; i < 5; i++) {
		(void)snprintf(what, sizeof(what), "deed %d", i);
		write_entry(what);
	}
	assert_int_equal(sum_up().lines, 5);
	assert_int_equal(sum_up().wrong, 0);
	text = slurp("audit.log", &len);
	/* One byte changed, anywhere but in the last line. */
	line = strstr(text, "deed 3");
	line[5] = '7';
	spill("audit.log", text, len);
	assert_int_equal(sum_up().wrong, 1);
	line[5] = '3';
	spill("audit.log", text, len);
	assert_int_equal(sum_up().wrong, 0);
	/* A line taken out, the first one too. */
	n = strcspn(text, "\n") + 1;
	spill("audit.log", text + n, len - n);
	assert_int_equal(sum_up().wrong, 1);
	memmove(text + n, text + 2 * n, len - 2 * n);
	spill("audit.log", text, len - n);
	assert_int_equal(sum_up().wrong, 1);
	free(text);
}

static void audit_goes_on_after_a_line_cut_short(void **state)
{
	struct audit_sum sum;
	size_t len;
	char *text;

	(void)state;
	write_entry("one");
	write_entry("two");
	text = slurp("audit.log", &len);
	spill("audit.log", text, len - 30);
	free(text);
	write_entry("three");
	write_entry("four");
	sum = sum_up();
	assert_int_equal(sum.lines, 4);
	assert_int_equal(sum.wrong, 1); /* what is left of the second; the chain goes on over it */
}

static void audit_chain_goes_on_in_the_next_file(void **state)
{
	char path[128], moved[128];
	struct audit_sum sum;

	(void)state;
	write_entry("one");
	(void)snprintf(path, sizeof(path), "%s/audit.log", home);
	(void)snprintf(moved, sizeof(moved), "%s/audit.1.log", home);
	/* As a crash between the move and the first line leaves it. */
	assert_int_equal(rename(path, moved), 0);
	write_entry("two");
	sum = sum_up();
	assert_int_equal(sum.lines, 2);
	assert_int_equal(sum.wrong, 0);
	/* A file that is gone. */
	(void)snprintf(path, sizeof(path), "%s/audit.2.log", home);
	assert_int_equal(rename(moved, path), 0);
	sum = sum_up();
	assert_int_equal(sum.missing, 1);
	assert_int_equal(sum.wrong, 0);
}

static void audit_full_file_is_moved(void **state)
{
	char path[128], name[32];
	struct stat st;
	FILE *f;

	(void)state;
	write_entry("one");
	(void)snprintf(path, sizeof(path), "%s/audit.log", home);
	f = fopen(path, "a");
	assert_non_null(f);
	for (int64_t i = 0; i < AUDIT_FILE_MAX / 1024 + 1; i++)
		(void)fprintf(f, "%1023s\n", "x");
	(void)fclose(f);
	write_entry("two");
	assert_int_equal(stat(path, &st), 0);
	assert_true(st.st_size < 1024);
	assert_int_equal(st.st_mode & 07777, 0600);
	(void)snprintf(name, sizeof(name), "audit.1.log");
	(void)snprintf(path, sizeof(path), "%s/%s", home, name);
	assert_int_equal(stat(path, &st), 0);
	assert_true(st.st_size > AUDIT_FILE_MAX);
	assert_int_equal(sum_up().lines, AUDIT_FILE_MAX / 1024 + 1 + 2);
}

static void audit_refuses_what_is_not_its_file(void **state)
{
	const struct audit_entry e = { .who = "x",
		                       .credential = "",
		                       .what = "y",
		                       .plan = "",
		                       .request = "",
		                       .outcome = "ok" };
	char path[128];

	(void)state;
	(void)snprintf(path, sizeof(path), "%s/audit.log", home);
	assert_int_equal(symlink("/dev/null", path), 0);
	assert_int_equal(audit_write(store, &e, NULL), -EPERM);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(audit_write(store, &e, NULL), -EPERM);
	assert_int_equal(unlink(path), 0);
	spill("audit.log", "", 0);
	assert_int_equal(chmod(path, 0644), 0);
	assert_int_equal(audit_write(store, &e, NULL), -EPERM);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(audit_write(store, &e, NULL), 0);
}

static void audit_of_processes_is_one_chain(void **state)
{
	struct audit_sum sum;
	int status;

	(void)state;
	for (int i = 0; i < 4; i++) {
		if (fork() == 0) {
			const struct audit_entry e = { .who = "x",
				                       .credential = "",
				                       .what = "y",
				                       .plan = "",
				                       .request = "",
				                       .outcome = "ok" };
			struct atoll *own;

			if (store_open(home, &own, NULL) < 0)
				_exit(1);
			for (int k = 0; k < 25; k++)
				if (audit_write(own, &e, NULL) < 0)
					_exit(2);
			_exit(0);
		}
	}
	while (wait(&status) > 0)
		assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	sum = sum_up();
	assert_int_equal(sum.lines, 100);
	assert_int_equal(sum.wrong, 0);
}

#define auth_test(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(secret_has_prefix_length_and_checksum),
		cmocka_unit_test(secret_every_mistyped_letter_is_noticed),
		auth_test(credential_is_found_until_revoked_by_another_process),
		auth_test(credential_names_are_taken_once),
		auth_test(credential_is_over_by_either_clock),
		auth_test(credential_token_lives_no_longer_than_its_key),
		auth_test(credential_tokens_end_with_their_plan),
		auth_test(credential_of_the_same_request_replaces_the_former),
		auth_test(credential_tokens_of_a_plan_are_limited),
		auth_test(credential_use_is_noted_coarsely),
		auth_test(credential_revoked_while_in_use),
		auth_test(audit_shows_every_changed_or_missing_line),
		auth_test(audit_goes_on_after_a_line_cut_short),
		auth_test(audit_chain_goes_on_in_the_next_file),
		auth_test(audit_full_file_is_moved),
		auth_test(audit_refuses_what_is_not_its_file),
		auth_test(audit_of_processes_is_one_chain),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
