/* SPDX-License-Identifier: Apache-2.0 */
/* Allocations, growing arrays, scope-bound ownership and string lists. */
#include "util/mem.h"

#include "util/cleanup.h"
#include "util/list.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "unit/expect-abort.h"

static void copies(void **state)
{
	cleanup_free char *a = xstrdup("abc");
	cleanup_free char *b = xstrndup("abcdef", 2);
	cleanup_free char *c = xasprintf("%d/%s", 7, "x");
	cleanup_free int *zero = xcalloc(0, sizeof(int));

	(void)state;
	assert_string_equal(a, "abc");
	assert_string_equal(b, "ab");
	assert_string_equal(c, "7/x");
	assert_non_null(zero);
	assert_null(xstrdup(NULL));
}

static void arrays_grow_and_keep_their_content(void **state)
{
	int *v = NULL;
	size_t cap = 0;

	(void)state;
	for (int i = 0; i < 1000; i++) {
		assert_int_equal(grow((void **)&v, &cap, (size_t)i + 1, sizeof(*v)), 0);
		assert_true(cap > (size_t)i);
		v[i] = i;
	}
	for (int i = 0; i < 1000; i++)
		assert_int_equal(v[i], i);
	free(v);
}

static void too_much_is_refused(void **state)
{
	char *v = xstrdup("x");
	char *before = v;
	size_t cap = 2;

	(void)state;
	assert_int_equal(grow((void **)&v, &cap, SIZE_MAX, 1), -ENOMEM);
	assert_int_equal(grow((void **)&v, &cap, SIZE_MAX / 8, 16), -ENOMEM);
	assert_ptr_equal(v, before);
	assert_int_equal(cap, 2);
	free(v);
}

static void misuse_calloc(void *arg)
{
	(void)arg;
	free(xcalloc(SIZE_MAX / 2, 4));
}

static void no_memory_aborts(void **state)
{
	(void)state;
	expect_abort(misuse_calloc, NULL);
}

static int open_and_forget(int *ret_fd)
{
	cleanup_close int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	cleanup_close int none = FD_NONE;

	(void)none;
	*ret_fd = fd;
	errno = EXDEV;
	return 0;
}

static void descriptors_end_with_their_scope(void **state)
{
	int fd = FD_NONE, kept;

	(void)state;
	assert_int_equal(open_and_forget(&fd), 0);
	assert_int_equal(errno, EXDEV);
	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_GETFD), -1);

	fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	kept = take_fd(&fd);
	assert_int_equal(fd, FD_NONE);
	close_fd(&fd);
	assert_true(fcntl(kept, F_GETFD) >= 0);
	errno = EXDEV;
	close_fd(&kept);
	assert_int_equal(errno, EXDEV);
	assert_int_equal(kept, FD_NONE);
}

static char *hand_over(void)
{
	cleanup_free char *s = xstrdup("mine");

	return take_ptr(s);
}

static void pointers_are_handed_over(void **state)
{
	cleanup_free char *s = hand_over();

	(void)state;
	assert_string_equal(s, "mine");
}

static void lists(void **state)
{
	cleanup_strlist struct strlist l = STRLIST_INIT;
	char text[] = "\xc3\xa9";
	static const char *const want[] = { "A", "a", "a-b", "a/b", "\xc3\xa9" };

	(void)state;
	strlist_sort(&l);
	assert_false(strlist_has(&l, "a"));
	strlist_add(&l, text);
	text[0] = '\0';
	strlist_add(&l, "a/b");
	strlist_add(&l, "a");
	strlist_add(&l, "A");
	strlist_add(&l, "a-b");
	assert_true(strlist_has(&l, "a"));
	assert_false(strlist_has(&l, "b"));
	strlist_sort(&l);
	assert_int_equal(l.n, 5);
	for (size_t i = 0; i < l.n; i++)
		assert_string_equal(l.v[i], want[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copies),
		cmocka_unit_test(arrays_grow_and_keep_their_content),
		cmocka_unit_test(too_much_is_refused),
		cmocka_unit_test(no_memory_aborts),
		cmocka_unit_test(descriptors_end_with_their_scope),
		cmocka_unit_test(pointers_are_handed_over),
		cmocka_unit_test(lists),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
