/* SPDX-License-Identifier: Apache-2.0 */
/* The two sides of a change, from within a diff; and changes that are no files. */
#include "lib/more.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct sides {
	const char *path;
	int code[2];
	char text[2][64];
	struct atoll_change seen;
	const char *swap_from, *swap_to; /* renamed and linked before anything is opened */
};

static void read_side(struct sides *s, const struct atoll_change *c, enum atoll_side side)
{
	int fd = -1;
	ssize_t n;

	s->code[side] = atoll_change_open(c, side, &fd);
	if (s->code[side] < 0) {
		expect_eq(fd, -1);
		return;
	}
	expect(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	n = fcntl(fd, F_GETFL) & O_PATH ? readlinkat(fd, "", s->text[side], 63)
	                                : read(fd, s->text[side], 63);
	expect(n >= 0);
	expect_eq(close(fd), 0);
}

static int take_sides(void *user, const struct atoll_change *c)
{
	struct sides *s = user;

	if (strcmp(c->path, s->path) != 0)
		return 0;
	if (s->swap_from) {
		expect_eq(rename(s->swap_from, s->swap_to), 0);
		put_link(s->swap_from, s->swap_to);
	}
	s->seen = *c;
	expect_eq(atoll_change_lines(c, NULL, NULL), 0);
	read_side(s, c, ATOLL_SIDE_OLD);
	read_side(s, c, ATOLL_SIDE_NEW);
	return 0;
}

static struct sides sides_of(struct fix *f, struct atoll_plan *p, const char *path)
{
	struct sides s = { .path = path };

	expect(atoll_plan_diff(p, take_sides, &s, f->res) > 0);
	expect_msg(s.seen.from != NULL, "'%s' is not listed", path);
	return s;
}

static void change_sides_are_what_was_and_what_will_be(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root"), *work;
	struct atoll_plan *p;
	struct sides s;

	put_text(fix_path(f, "%s/file", root), "old");
	put_text(fix_path(f, "%s/gone", root), "gone");
	put_dir(fix_path(f, "%s/dir", root), 0755);
	put_link(fix_path(f, "%s/link", root), "file");
	p = plan_over(f, root);
	work = fix_work(f, p, NULL);
	put_text(fix_path(f, "%s/file", work), "new");
	remove_entry(fix_path(f, "%s/gone", work));
	set_mode(fix_path(f, "%s/dir", work), 0700);
	remove_entry(fix_path(f, "%s/link", work));
	put_link(fix_path(f, "%s/link", work), "/etc/passwd");
	put_fifo(fix_path(f, "%s/pipe", work));

	s = sides_of(f, p, "file");
	expect_str(s.text[ATOLL_SIDE_OLD], "old");
	expect_str(s.text[ATOLL_SIDE_NEW], "new");
	s = sides_of(f, p, "gone");
	expect_str(s.text[ATOLL_SIDE_OLD], "gone");
	expect_eq(s.code[ATOLL_SIDE_NEW], -ENOENT);
	s = sides_of(f, p, "dir");
	expect_eq(s.code[ATOLL_SIDE_OLD], -EISDIR);
	expect_eq(s.seen.old_mode & 07777, 0755);
	expect_eq(s.seen.new_mode & 07777, 0700);
	s = sides_of(f, p, "link");
	expect_str(s.text[ATOLL_SIDE_OLD], "file");
	expect_str(s.text[ATOLL_SIDE_NEW], "/etc/passwd");
	s = sides_of(f, p, "pipe");
	expect_eq(s.code[ATOLL_SIDE_OLD], -ENOENT);
	expect_eq(s.code[ATOLL_SIDE_NEW], -ENXIO);
}

/* A directory on the way becomes a link between the listing and the opening. */
static void sec_change_is_opened_within_its_tree(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root"), *work;
	struct atoll_plan *p;
	struct sides s;

	put_dir(fix_path(f, "%s/dir", root), 0755);
	put_text(fix_path(f, "%s/dir/file", root), "old");
	p = plan_over(f, root);
	work = fix_work(f, p, NULL);
	put_text(fix_path(f, "%s/dir/file", work), "new");
	s = (struct sides){ .path = "dir/file",
		            .swap_from = fix_path(f, "%s/dir", work),
		            .swap_to = fix_path(f, "%s/elsewhere", f->dir) };
	expect(atoll_plan_diff(p, take_sides, &s, f->res) > 0);
	expect_str(s.text[ATOLL_SIDE_OLD], "old");
	expect_eq(s.code[ATOLL_SIDE_NEW], -ELOOP);
}

/* ---- a strategy whose changes are rows ---- */

static int nothing(struct atoll_participant *p)
{
	(void)p;
	return 0;
}

static int rows_diff(struct atoll_participant *p)
{
	const struct atoll_change c = { .path = "table", .kind = ATOLL_CHANGE_CHANGED };

	return atoll_participant_change(p, &c);
}

static int rows_lines(struct atoll_participant *p, const struct atoll_change *change,
                      atoll_line_fn fn, void *user)
{
	int r;

	expect_str(change->root, atoll_participant_root(p));
	r = fn(user, "-INSERT 1", 9);
	return r < 0 ? r : fn(user, "+INSERT 2", 9) < 0 ? -1 : 1;
}

static const struct atoll_strategy rows_strategy = {
	.api_version = ATOLL_STRATEGY_API_VERSION,
	.name = "rows",
	.kind = "database",
	.capabilities = ATOLL_CAP_DIFF,
	.create = nothing,
	.diff = rows_diff,
	.lines = rows_lines,
	.commit = nothing,
	.remove = nothing,
};

static int take_line(void *user, const char *line, size_t len)
{
	char *text = user;

	(void)strncat(text, line, len);
	(void)strcat(text, "\n");
	return 0;
}

static int take_lines(void *user, const struct atoll_change *c)
{
	int fd;

	expect_eq(atoll_change_open(c, ATOLL_SIDE_OLD, &fd), -ATOLL_E_UNSUPPORTED);
	expect_str(c->text, "");
	expect_str(c->conflict, "");
	return atoll_change_lines(c, take_line, user) == 1 ? 0 : -EPROTO;
}

static void change_that_is_no_file_gives_its_lines(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root");
	struct atoll_plan *p;
	char text[64] = "";
	int r = atoll_strategy_register(&rows_strategy, NULL);

	expect(r == 0 || r == -ATOLL_E_EXISTS);
	p = fix_plan(f, NULL);
	fix_add(f, p, root, "rows");
	expect_eq(atoll_plan_diff(p, take_lines, text, f->res), 1);
	expect_str(text, "-INSERT 1\n+INSERT 2\n");
}

int main(int argc, char **argv)
{
	static const struct atest_child children[] = { { NULL, NULL } };
	const struct CMUnitTest tests[] = {
		mtest(change_sides_are_what_was_and_what_will_be),
		mtest(sec_change_is_opened_within_its_tree),
		mtest(change_that_is_no_file_gives_its_lines),
	};

	return atest_main(argc, argv, tests, children);
}
