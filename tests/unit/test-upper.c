/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Upper directories, made by hand: what the kernel leaves in them, and what a hostile command could
 * forge. Scripts see the lower as $O, the upper as $W (and are in it), our family of marks as $M
 * and the other one as $F.
 */
#include "diff/upper.h"

#include "unit/tree-fixture.h"

#include <sys/sysmacros.h>
#include <sys/xattr.h>

#define LOWER                                                                                  \
	"cd $O; mkdir -p d/sub e/f; echo x > d/x; echo y > d/y; echo deep > d/sub/z; "         \
	"echo one > one; echo two > two; ln -s one link; ln -s d to-d; mkfifo fifo; "          \
	"touch -d '2001-01-01 01:01:01.123456789' one two d/x d/y d/sub/z d/sub d e/f e fifo;" \
	"touch -h -d '2002-02-02' link to-d; touch -d 2003-03-03 .; touch -r $O $W; cd $W; "

/* A merged directory as copy-up leaves it. */
#define UP(dir) "mkdir -p " dir "; touch -r $O/" dir " " dir "; "

enum who { ANY = 0, ROOT_ONLY };

struct row {
	const char *script;
	const char *changes;  /* as tree-fixture.h writes them */
	const char *expanded; /* entry by entry, the same letters; NULL: the same as CHANGES */
	enum who who;
};

static const struct row rows[] = {
	{ ":", "", NULL, ANY },
	/* whiteouts */
	{ "mknod one c 0 0", "- one\n", NULL, ANY },
	{ "mknod none c 0 0", "", NULL, ANY },
	{ "mknod one c 0 0; ln one two; ln one d", "- d\n- one\n- two\n",
	  "- d\n- d/sub\n- d/sub/z\n- d/x\n- d/y\n- one\n- two\n", ANY },
	{ UP("d") "mknod d/x c 0 0", "- d/x\n", NULL, ANY },
	{ "mknod link c 0 0; mknod to-d c 0 0; mknod fifo c 0 0", "- fifo\n- link\n- to-d\n", NULL,
	  ANY },
	/* in a new directory they delete nothing and are no entries */
	{ "mkdir n; mknod n/w c 0 0; echo f > n/f", "+ n\n", "+ n\n+ n/f\n", ANY },
	{ "mkdir -p n/m; mknod n/m/w c 0 0", "+ n\n", "+ n\n+ n/m\n", ANY },
	{ "mkdir d; setfattr -n $M.opaque -v y d; mknod d/x c 0 0; mknod d/new c 0 0", "~ d c\n",
	  "- d/sub\n- d/sub/z\n- d/x\n- d/y\n", ANY },
	/* other devices 0:0, and whiteouts that are none */
	{ "mknod one b 0 0", "~ one TP\n", NULL, ROOT_ONLY },
	{ "mknod dev c 1 3", "+ dev P\n", NULL, ROOT_ONLY },
	{ "mknod one c 0 1", "~ one TP\n", NULL, ROOT_ONLY },
	{ ": > one; setfattr -n $M.whiteout -v y one; touch -r $O/one one", "~ one c\n", NULL,
	  ANY },
	{ UP("d") "setfattr -n $M.opaque -v x d; : > d/x; setfattr -n $M.whiteout -v y d/x; "
	          "touch -r $O/d/x d/x",
	  "~ d/x c\n", NULL, ANY },
	/* opaque */
	{ "mkdir d; setfattr -n $M.opaque -v y d; echo z > d/z", "~ d c\n",
	  "- d/sub\n- d/sub/z\n- d/x\n- d/y\n+ d/z\n", ANY },
	{ "mkdir d; setfattr -n $M.opaque -v y d; cp -p $O/d/x d/x; echo y2 > d/y", "~ d c\n",
	  "- d/sub\n- d/sub/z\n~ d/y ct\n", ANY },
	{ "mkdir -m 700 d; setfattr -n $M.opaque -v y d; mkdir d/x; echo in > d/x/in", "~ d c\n",
	  "~ d m\n- d/sub\n- d/sub/z\n~ d/x T\n+ d/x/in\n- d/y\n", ANY },
	{ "mkdir n; setfattr -n $M.opaque -v y n", "+ n\n", NULL, ANY },
	{ UP("d") "mkdir d/sub; setfattr -n $M.opaque -v y d/sub", "~ d/sub c\n", "- d/sub/z\n",
	  ANY },
	/* marks that are none: another value, another place, another family */
	{ UP("d") "setfattr -n $M.opaque -v n d; echo z > d/z", "+ d/z\n", NULL, ANY },
	{ UP("d") "setfattr -n $M.opaque -v yy d; echo z > d/z", "+ d/z\n", NULL, ANY },
	{ UP("d") "setfattr -n $M.opaque -v yyyyyyyyyyyyyyyy d; echo z > d/z", "+ d/z\n", NULL,
	  ANY },
	{ UP("d") "setfattr -n $F.opaque -v y d; echo z > d/z", "+ d/z\n", NULL, ROOT_ONLY },
	{ UP("d") "setfattr -n $M.overlay.opaque -v y d; echo z > d/z", "+ d/z\n", NULL, ANY },
	{ "echo n > one; setfattr -n $M.opaque -v y one", "~ one ct\n", NULL, ANY },
	{ UP("d") "setfattr -n $M.origin d; setfattr -n $M.impure -v y d", "", NULL, ANY },
	/* a redirect is not followed, nor is data looked for below a metacopy */
	{ UP("d") "setfattr -n $M.redirect -v /e d", "", NULL, ANY },
	{ "mkdir n; setfattr -n $M.redirect -v /d n; setfattr -n $M.origin n", "+ n\n", NULL, ANY },
	{ ": > one; setfattr -n $M.metacopy one; setfattr -n $M.redirect -v /two one; "
	  "touch -r $O/one one",
	  "~ one c\n", NULL, ANY },
	/* copied up and not changed, or changed back */
	{ "cp -p $O/one one; setfattr -n $M.origin one", "", NULL, ANY },
	{ "cp -pP $O/link link", "", NULL, ANY },
	{ "mkfifo fifo; touch -r $O/fifo fifo", "", NULL, ANY },
	{ UP("d") UP("d/sub") "cp -p $O/d/sub/z d/sub", "", NULL, ANY },
	/* changed */
	{ "echo 2 > one", "~ one ct\n", NULL, ANY },
	{ "echo eno > one; touch -r $O/one one", "~ one c\n", NULL, ANY },
	{ "cp -p $O/one one; chmod 600 one", "~ one m\n", NULL, ANY },
	{ "cp -p $O/one one; setfattr -n user.mine -v 1 one", "~ one x\n", NULL, ANY },
	{ UP("d") "chmod 700 d", "@ d m\n", NULL, ANY },
	{ UP("d") "setfattr -n user.mine -v 1 d", "@ d x\n", NULL, ANY },
	{ "chmod 700 .", "@  m\n", NULL, ANY },
	{ "ln -s two link; touch -h -r $O/link link", "~ link c\n", NULL, ANY },
	/* type changes; links are neither followed nor entered */
	{ "mkdir one; echo in > one/in", "~ one T\n", "~ one T\n+ one/in\n", ANY },
	{ "echo f > d", "~ d T\n", "~ d T\n- d/sub\n- d/sub/z\n- d/x\n- d/y\n", ANY },
	{ "ln -s /etc d", "~ d TE\n", "~ d TE\n- d/sub\n- d/sub/z\n- d/x\n- d/y\n", ANY },
	{ "mkdir to-d; echo in > to-d/x", "~ to-d T\n", "~ to-d T\n+ to-d/x\n", ANY },
	{ "mkdir link", "~ link T\n", NULL, ANY },
	{ "echo f > link", "~ link T\n", NULL, ANY },
	{ "ln -s x one", "~ one T\n", NULL, ANY },
	{ "mkfifo one", "~ one TP\n", NULL, ANY },
	/* what policy wants to hear of, also deep in new directories */
	{ "mkfifo p", "+ p P\n", NULL, ANY },
	{ "/usr/bin/python3 -c 'import socket as s; s.socket(s.AF_UNIX).bind(\"sock\")'",
	  "+ sock P\n", NULL, ANY },
	{ "mkdir -p n/m; mkfifo n/m/p; ln -s /etc n/m/l; : > n/m/s; chmod u+s n/m/s", "+ n ESP\n",
	  "+ n\n+ n/m\n+ n/m/l E\n+ n/m/p P\n+ n/m/s S\n", ANY },
	{ "ln -s ../x l; ln -s d/../one k", "+ k\n+ l E\n", NULL, ANY },
	/* order is by bytes, component by component */
	{ "mkdir a; touch a/1 a.b a-b", "+ a\n+ a-b\n+ a.b\n", "+ a\n+ a/1\n+ a-b\n+ a.b\n", ANY },
	/* any name */
	{ "touch \"$(printf 'n\\nl')\" \"$(printf '\\377\\376')\" -- -rf '*' 'a,b:c\\d'",
	  "+ *\n+ -rf\n+ a,b:c\\\\d\n+ n\\x0al\n+ \\xff\\xfe\n", NULL, ANY },
};

struct upper {
	struct tree t;
	struct upper_compare u;
};

static void setup(struct upper *up, int dir_fd, const char *script)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;
	bool root = geteuid() == 0;

	up->t = tree_start(dir_fd);
	REQUIRE(fchmodat(dir_fd, "work", 0755, 0) == 0);
	strbuf_printf(&sb, "M=%s F=%s; " LOWER, root ? "trusted.overlay" : "user.overlay",
	              root ? "user.overlay" : "trusted.overlay");
	strbuf_puts(&sb, script);
	tree_sh(&up->t, strbuf_str(&sb));
	up->u = (struct upper_compare){ .upper_fd = up->t.work_fd,
		                        .orig_fd = up->t.orig_fd,
		                        .marks = root ? OVERLAY_TRUSTED : OVERLAY_USER,
		                        .excludes = &up->t.excludes };
}

static void put_line(struct strbuf *sb, char kind, const char *path, unsigned what)
{
	strbuf_printf(sb, "%c ", kind);
	escape_add(sb, path, strlen(path));
	tree_put_bits(sb, what, 0);
	strbuf_putc(sb, '\n');
}

static int put_entry(void *ctx, const char *path, enum atoll_change_kind kind, unsigned what,
                     const struct fs_stat *old_stat, const struct fs_stat *new_stat,
                     const char *link_target)
{
	REQUIRE((kind == ATOLL_CHANGE_ADDED) == !old_stat);
	REQUIRE((kind == ATOLL_CHANGE_DELETED) == !new_stat);
	REQUIRE(!link_target || S_ISLNK(new_stat->mode));
	put_line(ctx, "+~-"[kind], path, what);
	return 0;
}

static bool is_text(const char *what, const char *script, const char *expected, const char *got)
{
	if (strcmp(expected, got) == 0)
		return true;
	fprintf(stderr, "# %s of: %s\n# expected:\n%s# got:\n%s", what, script, expected, got);
	return false;
}

/* The same but for the sign of attributes, which an expansion calls changed. */
static char *as_entries(const char *changes)
{
	char *text = strdup(changes);

	for (char *p = text; p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : p + strlen(p))
		if (*p == '@')
			*p = '~';
	return text;
}

static int check_row(int dir_fd, const struct row *row)
{
	cleanup_strbuf struct strbuf changes = STRBUF_INIT, entries = STRBUF_INIT;
	cleanup_free char *expanded = as_entries(row->expanded ? row->expanded : row->changes);
	struct upper up;
	bool ok;
	int r;

	setup(&up, dir_fd, row->script);
	r = upper_diff(&up.u, &up.t.cs, &up.t.err);
	for (size_t i = 0; i < up.t.cs.v.n; i++) {
		cleanup_change struct change c = CHANGE_INIT;

		assert_int_equal(changeset_get(&up.t.cs.v, i, &c), 0);
		put_line(&changes, "+~-@"[c.op], c.path, c.what);
	}
	if (r == 0)
		r = upper_expand(&up.u, &up.t.cs, put_entry, &entries, &up.t.err);
	if (r < 0)
		fprintf(stderr, "# %s: %s\n", row->script, up.t.err.msg);
	ok = is_text("changes", row->script, row->changes, strbuf_str(&changes)) && r == 0;
	ok = is_text("entries", row->script, expanded, strbuf_str(&entries)) && ok;
	tree_drop(&up.t);
	return ok ? 0 : 1;
}

static int check_rows(int dir_fd)
{
	int bad = 0;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].who == ANY || geteuid() == 0)
			bad += check_row(dir_fd, &rows[i]);
	return bad ? 1 : 0;
}

static void dif_upper_means_what_it_says(void **state)
{
	for_each_dir(d, state) assert_int_equal(check_rows(d->fd), 0);
}

static void dif_upper_of_an_ordinary_user(void **state)
{
	as_user_in_memory(state, check_rows);
}

/* ---- shapes a script cannot make ---- */

static void start_bare(struct upper *up, int dir_fd)
{
	up->t = tree_start(dir_fd);
	up->u = (struct upper_compare){ .upper_fd = up->t.work_fd,
		                        .orig_fd = up->t.orig_fd,
		                        .marks = OVERLAY_USER };
	REQUIRE(fchmodat(dir_fd, "work", 0755, 0) == 0);
}

static int count_entry(void *ctx, const char *path, enum atoll_change_kind kind, unsigned what,
                       const struct fs_stat *old_stat, const struct fs_stat *new_stat,
                       const char *link_target)
{
	size_t *n = ctx;

	(void)path;
	(void)kind;
	(void)what;
	(void)old_stat;
	(void)new_stat;
	(void)link_target;
	(*n)++;
	return 0;
}

/* Both trees deeper than a path may be long, and a new one beside. */
static void dif_upper_deeper_than_a_path(void **state)
{
	char name[201];

	memset(name, 'n', 200);
	name[200] = '\0';
	for_each_dir(d, state)
	{
		struct upper up;
		size_t n = 0;

		start_bare(&up, d->fd);
		make_chain(up.t.orig_fd, name, 40);
		make_chain(up.t.work_fd, name, 40);
		make_chain(up.t.work_fd, "new", 1500);
		assert_int_equal(upper_diff(&up.u, &up.t.cs, &up.t.err), 0);
		assert_true(up.t.cs.v.n >= 1 &&
		            up.t.cs.v.n <= 2); /* the leaf's mtime may be equal */
		assert_string_equal(tree_change(&up.t, 0)->path, "new");
		assert_int_equal(tree_change(&up.t, 0)->op, CHANGE_CREATE);
		assert_int_equal(upper_expand(&up.u, &up.t.cs, count_entry, &n, &up.t.err), 0);
		assert_true(n >= 1501);
		tree_drop(&up.t);
	}
}

static void dif_upper_longest_names(void **state)
{
	char name[256];

	memset(name, '\n', 255);
	name[255] = '\0';
	for_each_dir(d, state)
	{
		struct upper up;

		start_bare(&up, d->fd);
		make_dir(up.t.orig_fd, name);
		make_dir(up.t.work_fd, name);
		int below = open_dir(up.t.work_fd, name);
		write_file(below, name, "text");
		close(below);
		assert_int_equal(upper_diff(&up.u, &up.t.cs, &up.t.err), 0);
		assert_int_equal(up.t.cs.v.n, 1);
		assert_int_equal(strlen(tree_change(&up.t, 0)->path), 511);
		tree_drop(&up.t);
	}
}

/* The area inside the root is whited out of the view; that is nobody's deletion. */
static void dif_upper_leaves_excluded_paths_alone(void **state)
{
	for_each_dir(d, state)
	{
		struct upper up;

		start_bare(&up, d->fd);
		strlist_add(&up.t.excludes, ".area");
		up.u.excludes = &up.t.excludes;
		make_dir(up.t.orig_fd, ".area");
		write_file(up.t.orig_fd, "gone", "gone");
		assert_int_equal(overlay_make_whiteout(up.t.work_fd, ".area"), 0);
		assert_int_equal(overlay_make_whiteout(up.t.work_fd, "gone"), 0);
		assert_int_equal(upper_diff(&up.u, &up.t.cs, &up.t.err), 0);
		assert_int_equal(up.t.cs.v.n, 1);
		assert_string_equal(tree_change(&up.t, 0)->path, "gone");
		tree_drop(&up.t);
	}
}

static int note_dir(void *ctx, const char *path, const struct fs_stat *base)
{
	REQUIRE(S_ISDIR(base->mode) && base->id.ino != 0);
	strbuf_printf(ctx, "%s ", *path ? path : ".");
	return 0;
}

/* Merged directories only: neither new nor opaque ones, nor what a link leads to. */
static void dif_upper_names_merged_directories(void **state)
{
	for_each_dir(d, state)
	{
		cleanup_strbuf struct strbuf sb = STRBUF_INIT;
		struct upper up;

		setup(&up, d->fd,
		      UP("d") UP("d/sub") "mkdir -p n/d to-d e; setfattr -n $M.opaque -v y e; "
		                          "mkdir e/f");
		assert_int_equal(upper_merged(&up.u, note_dir, &sb, &up.t.err), 0);
		assert_string_equal(strbuf_str(&sb), ". d d/sub ");
		tree_drop(&up.t);
	}
}

/* ---- taking marks off ---- */

static bool has_xattr(int dir_fd, const char *name, const char *attr)
{
	char path[PATH_MAX];

	REQUIRE(snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", dir_fd, name) < PATH_MAX);
	return lgetxattr(path, attr, NULL, 0) >= 0;
}

static void sec_marks_are_taken_off_everything(void **state)
{
	static const char *const names[] = { "dir", "file" };
	static const char *const marks[] = { "user.overlay.opaque",         "user.overlay.redirect",
		                             "user.overlay.metacopy",       "user.overlay.origin",
		                             "user.overlay.overlay.opaque", "user.overlay." };

	for_each_dir(d, state)
	{
		struct upper up;

		start_bare(&up, d->fd);
		tree_sh(&up.t, "cd $W; mkdir dir; : > file; ln -s file link; mkfifo fifo; "
		               "for e in dir file; do for a in opaque redirect metacopy origin "
		               "overlay.opaque; do setfattr -n user.overlay.$a -v y $e; done; "
		               "setfattr -n user.overlay -v kept $e; "
		               "setfattr -n user.overlays.x -v kept $e; done");
		for (size_t i = 0; i < 2; i++) {
			assert_int_equal(overlay_strip(up.t.work_fd, names[i]), 0);
			for (size_t k = 0; k < sizeof(marks) / sizeof(marks[0]); k++)
				assert_false(has_xattr(up.t.work_fd, names[i], marks[k]));
			assert_true(has_xattr(up.t.work_fd, names[i], "user.overlay"));
			assert_true(has_xattr(up.t.work_fd, names[i], "user.overlays.x"));
			assert_int_equal(overlay_strip(up.t.work_fd, names[i]), 0); /* again */
		}
		assert_int_equal(overlay_strip(up.t.work_fd, "link"), 0);
		assert_int_equal(overlay_strip(up.t.work_fd, "fifo"), 0);
		assert_int_equal(overlay_strip(up.t.work_fd, "none"), -ENOENT);
		tree_drop(&up.t);
	}
}

/* The marks of a link are its own, not those of what it points to. */
static void sec_marks_of_a_link_are_its_own(void **state)
{
	if (geteuid() != 0)
		skip();
	for_each_dir(d, state)
	{
		struct upper up;

		start_bare(&up, d->fd);
		tree_sh(&up.t, "cd $W; mkdir dir; ln -s dir link; "
		               "setfattr -h -n trusted.overlay.origin -v x link; "
		               "setfattr -n trusted.overlay.opaque -v y dir");
		assert_int_equal(overlay_is_opaque(up.t.work_fd, "link", OVERLAY_TRUSTED), 0);
		assert_int_equal(overlay_is_opaque(up.t.work_fd, "dir", OVERLAY_TRUSTED), 1);
		assert_int_equal(overlay_is_opaque(up.t.work_fd, "dir", OVERLAY_USER), 0);
		assert_int_equal(overlay_strip(up.t.work_fd, "link"), 0);
		assert_false(has_xattr(up.t.work_fd, "link", "trusted.overlay.origin"));
		assert_int_equal(overlay_is_opaque(up.t.work_fd, "dir", OVERLAY_TRUSTED), 1);
		tree_drop(&up.t);
	}
}

/* A directory its owner may not enter cannot be judged: that is said, and which one it is. */
static int check_locked(int dir_fd)
{
	struct upper up;

	start_bare(&up, dir_fd);
	tree_sh(&up.t, "mkdir $O/old; : > $O/old/in; chmod 0 $O/old; "
	               "mkdir $W/new; : > $W/new/in; chmod 0 $W/new; "
	               ": > $W/file; chmod 0 $W/file; mknod $W/old c 0 0");
	CHECK(upper_diff(&up.u, &up.t.cs, &up.t.err) == -EACCES);
	CHECK(strstr(up.t.err.msg, "'new'"));
	tree_sh(&up.t, "chmod 700 $O/old $W/new");
	tree_drop(&up.t);
	return 0;
}

static void dif_upper_with_locked_entries(void **state)
{
	as_user_in_memory(state, check_locked);
}

#define row(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(dif_upper_means_what_it_says),          row(dif_upper_of_an_ordinary_user),
		row(dif_upper_deeper_than_a_path),          row(dif_upper_longest_names),
		row(dif_upper_leaves_excluded_paths_alone), row(dif_upper_names_merged_directories),
		row(dif_upper_with_locked_entries),         row(sec_marks_are_taken_off_everything),
		row(sec_marks_of_a_link_are_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
