/* SPDX-License-Identifier: Apache-2.0 */
/* The digest of a diff: the same exactly as long as a commit would do the same, and nothing else is
 * committed with it. Other kinds of resources are in digest.py. */
#include "lib/more.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct digest {
	char text[ATOLL_DIGEST_LEN];
};

static struct digest digest_of(struct fix *f, struct atoll_plan *p)
{
	struct digest d = { "" };

	expect_ok(f, atoll_plan_digest(p, d.text, f->res));
	expect_eq(strlen(d.text), 64);
	expect_eq(strspn(d.text, "0123456789abcdef"), 64);
	return d;
}

static bool same(struct digest a, struct digest b)
{
	return strcmp(a.text, b.text) == 0;
}

static int commit_with(struct fix *f, struct atoll_plan *p, struct digest d)
{
	const struct atoll_commit c = { .digest = d.text };

	return atoll_plan_commit_with(p, &c, f->res);
}

/* Nothing but what a switch is about is another each time. */
static void pin(const char *path)
{
	struct stat st;

	if (lstat(path, &st) == 0 && !S_ISDIR(st.st_mode))
		set_mtime(path, 1500000000, 500);
}

/* ---- single things, each of which can be one way or the other ---- */

static void contents(const char *work, bool on)
{
	put_text(work, on ? "aB" : "ab");
}

static void length(const char *work, bool on)
{
	put_text(work, on ? "x" : "xx");
}

static void mode(const char *work, bool on)
{
	set_mode(work, on ? 0600 : 0640);
}

static void attribute(const char *work, bool on)
{
	put_xattr(work, "user.a", on ? "1" : "2");
}

static void link_target(const char *work, bool on)
{
	remove_entry(work);
	put_link(work, on ? "here" : "there");
}

static void presence(const char *work, bool on)
{
	if (on)
		put_text(work, "");
	else if (exists(work))
		remove_entry(work);
}

static void type(const char *work, bool on)
{
	remove_entry(work);
	if (on)
		put_dir(work, 0755);
	else
		put_text(work, "");
}

static void depth(const char *work, bool on)
{
	char below[PATH_MAX];

	(void)snprintf(below, sizeof(below), "%s/%s", work, on ? "ab" : "a");
	remove_entry(work);
	put_dir(work, 0755);
	put_text(below, on ? "" : "b");
	pin(below);
}

static void special(const char *work, bool on)
{
	remove_entry(work);
	if (on)
		put_fifo(work);
	else
		put_text(work, "");
}

static void deletion(const char *work, bool on)
{
	if (on && exists(work))
		remove_entry(work);
	else if (!on)
		put_text(work, "not what it was");
}

static void owner(const char *work, bool on)
{
	if (am_root())
		expect_eq(lchown(work, on ? 1 : 2, (gid_t)-1), 0);
	else
		set_mode(work, on ? 0711 : 0700);
}

static void group(const char *work, bool on)
{
	if (am_root())
		expect_eq(lchown(work, (uid_t)-1, on ? 1 : 2), 0);
	else
		set_mode(work, on ? 0711 : 0700);
}

/* Names and values must not run into one another. */
static void boundary(const char *work, bool on)
{
	remove_entry(work);
	put_text(work, "");
	put_xattr(work, on ? "user.a" : "user.ab", on ? "bc" : "c");
}

static void megabyte(const char *work, bool on)
{
	put_bytes(work, 1 << 20, on ? 1 : 2);
}

static void directory_attribute(const char *work, bool on)
{
	struct stat st;

	if (lstat(work, &st) < 0 || !S_ISDIR(st.st_mode)) {
		remove_entry(work);
		put_dir(work, 0755);
	}
	put_xattr(work, "user.a", on ? "1" : "2");
}

static void file_time(const char *work, bool on)
{
	put_text(work, "another");
	set_mtime(work, 1600000000, on);
}

static void link_time(const char *work, bool on)
{
	remove_entry(work);
	put_link(work, "there");
	set_mtime(work, 1600000000 + on, 0);
}

/* Exactly as long as what is read at once. */
static void chunk(const char *work, bool on)
{
	put_bytes(work, on ? 65536 : 65537, 1);
}

static const struct toggle {
	const char *name;
	void (*set)(const char *work, bool on);
} toggles[] = {
	{ "contents", contents },   { "length", length },
	{ "mode", mode },           { "depth", depth },
	{ "link", link_target },    { "presence", presence },
	{ "type", type },           { "attribute", attribute },
	{ "special", special },     { "deletion", deletion },
	{ "owner", owner },         { "megabyte", megabyte },
	{ "chunk", chunk },         { "group", group },
	{ "boundary", boundary },   { "file-time", file_time },
	{ "link-time", link_time }, { "directory-attribute", directory_attribute },
};
#define N_TOGGLES (sizeof(toggles) / sizeof(toggles[0]))

struct switches {
	struct fix *f;
	struct atoll_plan *p;
	const char *work;
	unsigned state; /* a bit for each */
};

static void flip(struct switches *s, size_t i)
{
	const char *path = fix_path(s->f, "%s/%s", s->work, toggles[i].name);

	s->state ^= 1u << i;
	toggles[i].set(path, s->state >> i & 1);
	if (toggles[i].set != file_time && toggles[i].set != link_time)
		pin(path);
}

static struct switches switches_new(struct fix *f, const char *root)
{
	struct switches s = { .f = f };

	for (size_t i = 0; i < N_TOGGLES; i++)
		put_text(fix_path(f, "%s/%s", root, toggles[i].name), "base");
	s.p = plan_over(f, root);
	s.work = fix_work(f, s.p, NULL);
	/* All off, which is not as it was: then nothing but the switches says how it stands. */
	for (size_t i = 0; i < N_TOGGLES; i++) {
		flip(&s, i);
		flip(&s, i);
	}
	return s;
}

static void dig_every_single_thing_counts(void **state)
{
	struct fix *f = *state;
	struct switches s = switches_new(f, fix_dir(f, "root"));
	struct digest off = digest_of(f, s.p), on[N_TOGGLES];

	for (size_t i = 0; i < N_TOGGLES; i++) {
		flip(&s, i);
		on[i] = digest_of(f, s.p);
		expect_msg(!same(on[i], off), "%s is not noticed", toggles[i].name);
		for (size_t k = 0; k < i; k++)
			expect(!same(on[i], on[k]));
		flip(&s, i);
		expect_msg(same(digest_of(f, s.p), off), "%s: there and back", toggles[i].name);
	}
}

/* Equal exactly when all switches are as they were then. */
static void dig_random_walks_meet_only_where_they_are_equal(void **state)
{
	struct fix *f = *state;
	struct switches s = switches_new(f, fix_dir(f, "root"));
	struct {
		unsigned state;
		struct digest digest;
	} seen[400];
	size_t n = atest_long() ? 400 : 80, equal = 0;
	uint64_t seed = (uint64_t)now_ms();

	for (size_t i = 0; i < n; i++) {
		/* A few of them, so that they do meet. */
		flip(&s, atest_random(&seed) % 5);
		if (atest_random(&seed) % 16 == 0)
			flip(&s, atest_random(&seed) % N_TOGGLES);
		seen[i].state = s.state;
		seen[i].digest = digest_of(f, s.p);
		for (size_t k = 0; k < i; k++) {
			equal += seen[k].state == s.state;
			expect_msg(same(seen[k].digest, seen[i].digest) ==
			                   (seen[k].state == s.state),
			           "steps %zu (%x) and %zu (%x)", k, seen[k].state, i, s.state);
		}
	}
	expect(equal > 0);
}

static void dig_locks_and_times_of_directories_do_not_count(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root");
	struct switches s = switches_new(f, root);
	struct digest before = digest_of(f, s.p);
	struct held held;

	set_mtime(s.work, 1000000000, 0);
	expect(same(digest_of(f, s.p), before));
	held = hold_lock(f, fix_path(f, "%s.plan", atoll_plan_id(s.p)));
	expect(same(digest_of(f, s.p), before));
	let_go(&held);
	fix_reopen(f);
	s.p = fix_find(f, "-");
	expect(same(digest_of(f, s.p), before));
}

/* What it takes the place of is part of what was looked at. */
static void dig_another_original_is_another_change(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root");
	struct atoll_plan *p;
	struct digest before, after;

	put_text(fix_path(f, "%s/file", root), "one");
	p = plan_over(f, root);
	put_text(fix_path(f, "%s/file", fix_work(f, p, NULL)), "new");
	before = digest_of(f, p);
	put_text(fix_path(f, "%s/file", root), "two");
	after = digest_of(f, p);
	expect(!same(before, after));
	expect_code(f, commit_with(f, p, before), -ATOLL_E_STALE);
	expect_code(f, commit_with(f, p, after), -ATOLL_E_CONFLICT);
}

static int find_conflict(void *user, const struct atoll_change *c)
{
	*(bool *)user |= (c->what & ATOLL_CHANGE_CONFLICT) != 0;
	return 0;
}

/* That somebody else was at it is said by the commit, and can be settled there. */
static void dig_conflict_alone_does_not_count(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root"), *file = fix_path(f, "%s/file", root);
	const char *ours[] = { file, NULL };
	struct atoll_plan *p;
	struct digest before;
	struct atoll_commit c = { .ours = ours, .digest = before.text };
	bool found = false;

	put_text(file, "one");
	p = plan_over(f, root);
	put_text(fix_path(f, "%s/file", fix_work(f, p, NULL)), "new");
	before = digest_of(f, p);
	put_xattr(file, "user.theirs", "x");
	expect(atoll_plan_diff(p, find_conflict, &found, f->res) > 0);
	expect(found);
	expect(same(digest_of(f, p), before));
	expect_code(f, commit_with(f, p, before), -ATOLL_E_CONFLICT);
	expect_ok(f, atoll_plan_commit_with(p, &c, f->res));
	expect_text(file, "new");
}

static void dig_unreadable_has_none(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root"), *file;
	struct atoll_plan *p = plan_over(f, root);
	char out[ATOLL_DIGEST_LEN];

	if (am_root())
		atest_skip("root reads everything");
	file = fix_path(f, "%s/file", fix_work(f, p, NULL));
	put_text(file, "secret");
	set_mode(file, 0);
	expect_code(f, atoll_plan_digest(p, out, f->res), -EACCES);
	expect(strstr(atoll_result_message(f->res), "root/file") != NULL);
	set_mode(file, 0600);
	(void)digest_of(f, p);
}

/* ---- commits ---- */

static void dig_stale_commit_changes_nothing(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root"), *work;
	char *man, *plain, *work_man;
	struct atoll_plan *p;
	struct digest before;
	int last = 0;

	put_random_tree(root, 60, 5);
	p = plan_over(f, root);
	work = fix_work(f, p, NULL);
	edit_random_tree(work, 6);
	before = digest_of(f, p);
	put_text(fix_path(f, "%s/one-more", work), "");
	plain = fix_keep(f, man_take(root));
	man = fix_keep(f, man_inodes(root));
	work_man = fix_keep(f, man_inodes(work));
	expect_code(f, commit_with(f, p, before), -ATOLL_E_STALE);
	expect_eq(atoll_code_exit(-ATOLL_E_STALE), 3);
	expect(strstr(atoll_result_hint(f->res), "atoll diff") != NULL);
	expect_inodes(root, man);
	expect_inodes(work, work_man);
	expect_eq(fix_plan_state(f, p), ATOLL_PLAN_OPEN);
	expect_eq(fix_history(f, p, "commit", &last), 1);
	expect_eq(last, -ATOLL_E_STALE);
	/* With the digest of now it goes, and then there is nothing left. */
	expect_ok(f, commit_with(f, p, digest_of(f, p)));
	expect_text(fix_path(f, "%s/one-more", root), "");
	expect_code(f, commit_with(f, p, before), -ATOLL_E_STALE);
	expect_rollback(f, p);
	expect_man(root, plain);
}

/* Also where a part is committed it is that of the whole plan. */
static void dig_part_commit_wants_the_whole(void **state)
{
	struct fix *f = *state;
	const char *root = fix_dir(f, "root"), *work;
	const char *paths[] = { fix_path(f, "%s/a", root), NULL };
	struct atoll_plan *p = plan_over(f, root);
	struct digest both;
	struct atoll_commit c = { .paths = paths, .digest = both.text };

	work = fix_work(f, p, NULL);
	put_text(fix_path(f, "%s/a", work), "a");
	put_text(fix_path(f, "%s/b", work), "b");
	pin(fix_path(f, "%s/b", work));
	both = digest_of(f, p);
	put_text(fix_path(f, "%s/b", work), "c");
	expect_code(f, atoll_plan_commit_with(p, &c, f->res), -ATOLL_E_STALE);
	expect(!exists(fix_path(f, "%s/a", root)));
	put_text(fix_path(f, "%s/b", work), "b");
	pin(fix_path(f, "%s/b", work));
	expect_ok(f, atoll_plan_commit_with(p, &c, f->res));
	expect_text(fix_path(f, "%s/a", root), "a");
	expect(!exists(fix_path(f, "%s/b", root)));
	expect(!same(digest_of(f, p), both));
}

static void dig_is_checked_as_text(void **state)
{
	static const char *const bad[] = {
		"",
		"0",
		"\"\"",
		"D6130D90A6EF8E4160D33F1125E41A189CA25F4EADF304B0801B549650221138",
		"d6130d90a6ef8e4160d33f1125e41a189ca25f4eadf304b0801b5496502211380",
		"d6130d90a6ef8e4160d33f1125e41a189ca25f4eadf304b0801b54965022113"
	};
	struct fix *f = *state;
	struct atoll_plan *p = plan_over(f, fix_dir(f, "root"));

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		const struct atoll_commit c = { .digest = bad[i] };

		expect_code(f, atoll_plan_commit_with(p, &c, f->res), -ATOLL_E_INVALID);
	}
	expect_code(f, atoll_plan_digest(p, NULL, f->res), -ATOLL_E_INVALID);
}

/* Somebody who has the path writes although the plan is being committed. */
static int write_late(void *user, struct atoll_participant *p, enum phase phase)
{
	(void)p;
	(void)phase;
	put_text(user, "late");
	return 0;
}

static void dig_late_writer_is_noticed(void **state)
{
	static const enum phase phases[] = { PHASE_PREPARE, PHASE_CHECK };
	struct fix *f = *state;

	for (size_t i = 0; i < 2; i++) {
		const char *root = fix_dir(f, fix_path(f, "root%zu", i));
		const char *other = fix_dir(f, fix_path(f, "other%zu", i));
		struct atoll_plan *p = plan_over(f, root);
		char *man = fix_keep(f, man_inodes(root)), *file;
		struct digest d;

		fix_add(f, p, other, "failer");
		put_text(fix_path(f, "%s/value", fix_work(f, p, other)), "new");
		file = fix_path(f, "%s/file", fix_work(f, p, root));
		put_text(file, "seen");
		d = digest_of(f, p);
		phase_hook(other, phases[i], write_late, file);
		expect_code(f, commit_with(f, p, d), -ATOLL_E_STALE);
		phase_clear();
		expect_inodes(root, man);
		expect(!exists(fix_path(f, "%s/value", other)));
		expect_text(file, "late");
		expect_eq(fix_plan_state(f, p), ATOLL_PLAN_OPEN);
		expect_ok(f, commit_with(f, p, digest_of(f, p)));
		expect_text(fix_path(f, "%s/file", root), "late");
	}
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		mtest(dig_every_single_thing_counts),
		mtest(dig_random_walks_meet_only_where_they_are_equal),
		mtest(dig_locks_and_times_of_directories_do_not_count),
		mtest(dig_another_original_is_another_change),
		mtest(dig_conflict_alone_does_not_count),
		mtest(dig_unreadable_has_none),
		mtest(dig_stale_commit_changes_nothing),
		mtest(dig_part_commit_wants_the_whole),
		mtest(dig_is_checked_as_text),
		mtest(dig_late_writer_is_noticed),
	};
	static const struct atest_child children[] = { { NULL, NULL } };

	return atest_main(argc, argv, tests, children);
}
