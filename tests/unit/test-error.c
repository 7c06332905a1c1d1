/* SPDX-License-Identifier: Apache-2.0 */
/* Codes and their names, and the object that carries the words. */
#include "util/error.h"

#include "util/limits.h"
#include "util/utf8.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "unit/expect-abort.h"

static void codes_have_names_and_statuses(void **state)
{
	static const struct {
		int code;
		const char *name;
		int exit_status;
		int http_status;
	} rows[] = {
		{ ATOLL_OK, "ok", 0, 200 },
		{ ATOLL_E_INVALID, "invalid", 2, 400 },
		{ ATOLL_E_NOT_FOUND, "not-found", 1, 404 },
		{ ATOLL_E_CONFLICT, "conflict", 3, 409 },
		{ ATOLL_E_POLICY, "policy", 4, 422 },
		{ ATOLL_E_CANNOT_PREPARE, "cannot-prepare", 4, 409 },
		{ ATOLL_E_NOT_UNDOABLE, "not-undoable", 4, 409 },
		{ ATOLL_E_BUSY, "busy", 5, 423 },
		{ ATOLL_E_TIMEOUT, "timeout", 5, 423 },
		{ ATOLL_E_UNSUPPORTED, "unsupported", 6, 501 },
		{ ATOLL_E_LOCK_UNSUPPORTED, "lock-unsupported", 6, 501 },
		{ ATOLL_E_NEEDS_RECOVERY, "needs-recovery", 7, 503 },
		{ ATOLL_E_DAMAGED, "damaged", 7, 500 },
		{ ENOSPC, "ENOSPC", 1, 500 },
		{ ENOENT, "ENOENT", 1, 500 },
		{ 4000, "unknown", 1, 500 },
		{ ATOLL_E_END_, "unknown", 1, 500 },
		{ INT_MAX, "unknown", 1, 500 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_string_equal(error_code_name(rows[i].code), rows[i].name);
		assert_string_equal(error_code_name(-rows[i].code), rows[i].name);
		assert_int_equal(error_code_exit(-rows[i].code), rows[i].exit_status);
		assert_int_equal(error_code_http(-rows[i].code), rows[i].http_status);
	}
	assert_string_equal(error_code_name(INT_MIN), "unknown");
}

/* A row out of order is a BUG() in error.c; this walks over all of them. */
static void no_two_codes_share_a_name(void **state)
{
	(void)state;
	for (int a = ATOLL_E_INVALID; a < ATOLL_E_END_; a++) {
		assert_in_range(error_code_exit(a), 1, 7);
		assert_in_range(error_code_http(a), 400, 599);
		for (int b = ATOLL_E_INVALID; b < a; b++)
			assert_string_not_equal(error_code_name(a), error_code_name(b));
	}
}

static void set_then_prefix(void **state)
{
	cleanup_error struct error err = ERROR_INIT;
	int r;

	(void)state;
	r = error_set(&err, -ATOLL_E_CONFLICT, "base of '%s' moved", "x");
	assert_int_equal(r, -ATOLL_E_CONFLICT);
	assert_int_equal(error_prefix(&err, r, "prepare '%s'", "p"), r);
	assert_int_equal(err.code, -ATOLL_E_CONFLICT);
	assert_string_equal(err.msg, "prepare 'p': base of 'x' moved");
	assert_int_equal(error_prefix(&err, 0, "never"), 0);
	assert_int_equal(error_prefix(&err, 3, "never"), 3);
	assert_string_equal(err.msg, "prepare 'p': base of 'x' moved");
}

static void prefix_of_a_bare_code_says_it_in_words(void **state)
{
	cleanup_error struct error err = ERROR_INIT;

	(void)state;
	assert_int_equal(error_prefix(&err, -ENOSPC, "copy '%s'", "x"), -ENOSPC);
	assert_int_equal(err.code, -ENOSPC);
	assert_string_equal(err.msg, "copy 'x': No space left on device");
}

static void sys_records_the_cause(void **state)
{
	cleanup_error struct error err = ERROR_INIT;

	(void)state;
	assert_int_equal(error_sys(&err, -EACCES, "open", "a\033[2Jb"), -EACCES);
	assert_string_equal(err.msg, "cannot open 'a\\x1b[2Jb': Permission denied");
	assert_string_equal(err.op, "open");
	assert_string_equal(err.path, "a\033[2Jb");
	assert_int_equal(err.os_errno, EACCES);
	assert_null(err.detail);
	error_cause(&err, NULL, NULL, 0, "40001");
	assert_string_equal(err.op, "open");
	assert_int_equal(err.os_errno, EACCES);
	assert_string_equal(err.detail, "40001");
}

static void sys_with_an_own_code_has_no_errno(void **state)
{
	cleanup_error struct error err = ERROR_INIT;

	(void)state;
	assert_int_equal(error_sys(&err, -ATOLL_E_DAMAGED, "read", NULL), -ATOLL_E_DAMAGED);
	assert_string_equal(err.msg, "cannot read: not what was written");
	assert_int_equal(err.os_errno, 0);
	assert_null(err.path);
}

static void hint_is_replaced(void **state)
{
	cleanup_error struct error err = ERROR_INIT;

	(void)state;
	error_set(&err, -ATOLL_E_BUSY, "busy");
	error_hint(&err, "first");
	error_hint(&err, "atoll recover %s", "p");
	assert_string_equal(err.hint, "atoll recover p");
}

static void move_empties_the_source(void **state)
{
	cleanup_error struct error from = ERROR_INIT;
	cleanup_error struct error to = ERROR_INIT;

	(void)state;
	error_sys(&from, -EIO, "read", "p");
	error_move(&to, &from);
	assert_int_equal(from.code, 0);
	assert_null(from.msg);
	assert_int_equal(to.code, -EIO);
	assert_string_equal(to.path, "p");
	error_move(NULL, &to);
	assert_int_equal(to.code, 0);
}

static void nobody_listening(void **state)
{
	(void)state;
	assert_int_equal(error_set(NULL, -EIO, "x"), -EIO);
	assert_int_equal(error_sys(NULL, -EIO, "read", "p"), -EIO);
	assert_int_equal(error_prefix(NULL, -EIO, "x"), -EIO);
	error_hint(NULL, "x");
	error_cause(NULL, "x", "y", 1, "z");
}

static void long_messages_are_cut_between_characters(void **state)
{
	cleanup_error struct error err = ERROR_INIT;
	char text[3 * LIMIT_MESSAGE + 1];

	(void)state;
	for (size_t i = 0; i < LIMIT_MESSAGE; i++)
		memcpy(text + 3 * i, "\xe2\x82\xac", 3);
	text[3 * LIMIT_MESSAGE] = '\0';
	error_set(&err, -EIO, "%s", text);
	assert_true(strlen(err.msg) < LIMIT_MESSAGE);
	assert_true(strlen(err.msg) > LIMIT_MESSAGE - 8);
	assert_true(utf8_valid(err.msg, strlen(err.msg)));
	assert_string_equal(err.msg + strlen(err.msg) - 3, "...");
}

static void a_long_path_does_not_hide_the_reason(void **state)
{
	cleanup_error struct error err = ERROR_INIT;
	char path[100001];

	(void)state;
	memset(path, 'd', sizeof(path) - 1);
	memcpy(path + sizeof(path) - 6, "/last", 6);
	error_sys(&err, -ENOENT, "open", path);
	assert_memory_equal(err.msg, "cannot open '...ddd", 19);
	assert_non_null(strstr(err.msg, "/last': No such file or directory"));
	assert_string_equal(err.path, path);
}

static void done_keeps_errno(void **state)
{
	struct error err = ERROR_INIT;

	(void)state;
	error_sys(&err, -EIO, "read", "p");
	errno = EXDEV;
	error_done(&err);
	assert_int_equal(errno, EXDEV);
	assert_null(err.msg);
	error_done(&err);
}

static void misuse_set_twice(void *arg)
{
	struct error err = ERROR_INIT;

	(void)arg;
	error_set(&err, -EIO, "one");
	error_set(&err, -EIO, "two");
}

static void misuse_sys_after_set(void *arg)
{
	struct error err = ERROR_INIT;

	(void)arg;
	error_set(&err, -EIO, "one");
	error_sys(&err, -EIO, "read", "p");
}

static void misuse_success(void *arg)
{
	(void)arg;
	error_set(NULL, 0, "no failure");
}

static void misuse_positive(void *arg)
{
	struct error err = ERROR_INIT;

	(void)arg;
	error_sys(&err, EIO, "read", "p");
}

static void misuse_move(void *arg)
{
	struct error a = ERROR_INIT, b = ERROR_INIT;

	(void)arg;
	error_set(&a, -EIO, "one");
	error_set(&b, -EIO, "two");
	error_move(&a, &b);
}

static void error_misuse_aborts(void **state)
{
	(void)state;
	expect_abort(misuse_set_twice, NULL);
	expect_abort(misuse_sys_after_set, NULL);
	expect_abort(misuse_success, NULL);
	expect_abort(misuse_positive, NULL);
	expect_abort(misuse_move, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(codes_have_names_and_statuses),
		cmocka_unit_test(no_two_codes_share_a_name),
		cmocka_unit_test(set_then_prefix),
		cmocka_unit_test(prefix_of_a_bare_code_says_it_in_words),
		cmocka_unit_test(sys_records_the_cause),
		cmocka_unit_test(sys_with_an_own_code_has_no_errno),
		cmocka_unit_test(hint_is_replaced),
		cmocka_unit_test(move_empties_the_source),
		cmocka_unit_test(nobody_listening),
		cmocka_unit_test(long_messages_are_cut_between_characters),
		cmocka_unit_test(a_long_path_does_not_hide_the_reason),
		cmocka_unit_test(done_keeps_errno),
		cmocka_unit_test(error_misuse_aborts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
