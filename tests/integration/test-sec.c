/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Security (rules SEC): planted links, races for names, files swapped under our hands, links and
 * bits that leave a workspace, resources that must not be one.
 */
#include "lib/more.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define NOBODY 65534

static const char *put_precious(struct fix *f)
{
	const char *dir = fix_dir(f, "precious");

	put_text(fix_path(f, "%s/jewel", dir), "precious\n");
	put_dir(fix_path(f, "%s/box", dir), 0755);
	put_text(fix_path(f, "%s/box/ring", dir), "ring\n");
	return dir;
}

static const char *put_root(struct fix *f, const char *dir)
{
	const char *root = fix_path(f, "%s/root", dir);

	put_dir(root, 0755);
	put_text(fix_path(f, "%s/file", root), "old\n");
	put_text(fix_path(f, "%s/gone", root), "gone\n");
	return root;
}

static void edit(struct fix *f, struct atoll_plan *p)
{
	const char *work = fix_work(f, p, NULL);

	put_text(fix_path(f, "%s/file", work), "new\n");
	put_text(fix_path(f, "%s/added", work), "added\n");
	remove_entry(fix_path(f, "%s/gone", work));
}

static void expect_edited(struct fix *f, const char *root)
{
	expect_text(fix_path(f, "%s/file", root), "new\n");
	expect_text(fix_path(f, "%s/added", root), "added\n");
	expect(!exists(fix_path(f, "%s/gone", root)));
}

/* ---- SEC-01 ---- */

static void sec_01_names_beside_the_root_are_not_used(void **state)
{
	static const char *const guesses[] = { ".bak", ".backup", ".tmp", ".old", "~", ".atoll" };
	struct fix *f = *state;
	const char *root = put_root(f, other_mount(f)), *precious = put_precious(f);
	char *before = man_take(root), *jewels = man_take(precious);
	struct atoll_plan *p;

	for (size_t i = 0; i < sizeof(guesses) / sizeof(guesses[0]); i++)
		put_link(fix_path(f, "%s%s", root, guesses[i]), precious);
	p = plan_over(f, root);
	edit(f, p);
	expect_commit(f, p);
	expect_edited(f, root);
	expect_rollback(f, p);
	expect_stop(f, p);
	expect_man(root, before);
	expect_man(precious, jewels);
	for (size_t i = 0; i < sizeof(guesses) / sizeof(guesses[0]); i++)
		expect(exists(fix_path(f, "%s%s", root, guesses[i])));
	free(before);
	free(jewels);
}

/* The one name that is not random is never entered when somebody else made it. */
static void sec_01_link_planted_at_the_name_around_areas(void **state)
{
	struct fix *f = *state;
	const char *mount, *root, *precious, *planted;
	char *before, *jewels;
	struct atoll_plan *p;

	need_root(); /* an ordinary user's second mount is shared with others */
	precious = put_precious(f);
	jewels = man_take(precious);
	mount = other_mount(f);
	root = put_root(f, mount);
	before = man_take(root);
	planted = fix_path(f, "%s/.atoll-%u", mount, (unsigned)geteuid());
	put_link(planted, precious);
	p = plan_over(f, root);
	edit(f, p);
	expect_commit(f, p);
	expect_edited(f, root);
	expect_rollback(f, p);
	expect_man(precious, jewels);
	expect_stop(f, p);
	expect_man(precious, jewels);
	expect_man(root, before);
	expect_msg(exists(planted), "somebody else's link was removed");
	remove_entry(planted);
	free(before);
	free(jewels);
}

static void sec_01_areas_are_private_and_unguessable(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, other_mount(f));
	const char *one, *two;
	struct atoll_plan *p;
	char *dir;

	p = plan_over(f, root);
	one = fix_area(f, p, root);
	two = fix_area(f, plan_over(f, root), root);
	expect(strcmp(one, two) != 0);
	expect(strlen(strrchr(one, '/') + 1) >= 16);
	expect_eq(mode_of(one), 0700);
	dir = strdup(one);
	*strrchr(dir, '/') = '\0';
	expect_eq(mode_of(dir), 0700);
	expect_eq(mode_of(f->home), 0700);
	free(dir);
	/* The record may be read by its owner only, whatever the umask says. */
	expect_eq(mode_of(fix_path(f, "%s/atoll.db", f->home)) & 077, 0);
}

static void sec_01_a_sandbox_replaced_by_a_link(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, f->dir), *precious = put_precious(f), *area;
	char *before = man_take(root), *jewels = man_take(precious);
	pid_t owner = owner_start(f, "owned", "root", false);

	area = fix_area(f, fix_find(f, "owned"), root);
	owner_kill(f, owner, "owned");
	remove_entry(area);
	put_link(area, precious);
	expect_ok(f, atoll_purge(f->a, ATOLL_FORCE, f->res));
	expect_man(precious, jewels);
	expect(!exists(area));
	expect_man(root, before);
	free(before);
	free(jewels);
}

static void sec_01_a_workspace_replaced_by_a_link(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, f->dir), *precious = put_precious(f), *work;
	char *before = man_take(root), *jewels = man_take(precious);
	struct atoll_plan *p = plan_over(f, root);

	work = fix_work(f, p, NULL);
	remove_entry(work);
	put_link(work, precious);
	/* Neither compared nor committed through the link. */
	expect(atoll_plan_diff(p, NULL, NULL, f->res) < 0);
	expect(atoll_plan_commit(p, 0, f->res) < 0);
	expect_man(root, before);
	expect_stop(f, p);
	expect_man(precious, jewels);
	expect(!exists(work));
	free(before);
	free(jewels);
}

static void sec_01_removal_does_not_cross_mounts(void **state)
{
	struct fix *f = *state;
	const char *root, *inside;
	struct atoll_plan *p;

	need_root();
	root = put_root(f, f->dir);
	p = plan_over(f, root);
	inside = fix_path(f, "%s/mounted", fix_work(f, p, NULL));
	put_dir(inside, 0755);
	expect(mount("none", inside, "tmpfs", 0, "size=64k") == 0);
	put_text(fix_path(f, "%s/kept", inside), "kept\n");
	{
		int r = atoll_plan_stop(p, ATOLL_FORCE, f->res);
		char *text = get_text(fix_path(f, "%s/kept", inside));

		expect(umount2(inside, MNT_DETACH) == 0);
		expect_msg(r < 0, "the plan went although something was mounted in it");
		expect_msg(text && strcmp(text, "kept\n") == 0, "deleted across a mount");
		free(text);
	}
	expect_stop(f, p);
}

/* ---- SEC-02 ---- */

#define ATTACK_NAMES 8

static int plant(int dir_fd, const char *name, const char *precious, unsigned how)
{
	switch (how % 3) {
	case 0:
		return symlinkat(precious, dir_fd, name);
	case 1:
		return mkdirat(dir_fd, name, 0777);
	default: {
		int fd = openat(dir_fd, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);

		return fd < 0 ? -1 : close(fd);
	}
	}
}

/* Whatever vanishes from DIR is made again, as something else, for a moment. Never returns. */
static void attack(const char *dir, const char *precious)
{
	char names[ATTACK_NAMES][256];
	size_t n = 0;
	unsigned how = 0;
	char buf[4096] __attribute__((__aligned__(__alignof__(struct inotify_event))));
	int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	(void)inotify_add_watch(fd, dir, IN_DELETE | IN_MOVED_FROM);
	for (;;) {
		ssize_t len = read(fd, buf, sizeof(buf));

		for (ssize_t i = 0; i < len;) {
			const struct inotify_event *e = (const void *)(buf + i);
			bool known = false;

			for (size_t k = 0; k < n; k++)
				known |= strcmp(names[k], e->name) == 0;
			if (!known && n < ATTACK_NAMES && e->len > 0)
				(void)snprintf(names[n++], sizeof(names[0]), "%s", e->name);
			i += (ssize_t)(sizeof(*e) + e->len);
		}
		for (size_t k = 0; k < n; k++, how++) {
			if (plant(dir_fd, names[k], precious, how) < 0)
				continue;
			sleep_ms(1);
			if (unlinkat(dir_fd, names[k], 0) < 0)
				(void)unlinkat(dir_fd, names[k], AT_REMOVEDIR);
		}
		sleep_ms(1);
	}
}

static pid_t attacker_start(const char *dir, const char *precious)
{
	pid_t pid = fork();

	if (pid == 0) {
		if (setgid(NOBODY) < 0 || setuid(NOBODY) < 0)
			_exit(1);
		attack(dir, precious);
	}
	expect(pid > 0);
	return pid;
}

/* One life of a plan beside the attacker: every step works or fails cleanly. True: all worked. */
static bool live_under_attack(struct fix *f, const char *root, const char *before)
{
	struct atoll_plan *p = fix_plan(f, NULL);
	const struct atoll_resource r = { .root = root, .strategy = "copy" };
	bool worked = false;

	if (atoll_plan_add(p, &r, f->res) == 0) {
		for (int i = 0; i < 5; i++) {
			edit(f, p);
			if (atoll_plan_commit(p, 0, f->res) < 0) {
				expect_man(root, before);
				continue;
			}
			expect_edited(f, root);
			expect_ok(f, atoll_plan_rollback(p, 0, f->res));
			worked = true;
		}
	} else {
		expect(*atoll_result_message(f->res) != '\0');
	}
	expect_stop(f, p);
	fix_forget(f, p);
	expect_man(root, before);
	return worked;
}

static void sec_02_names_recreated_by_an_attacker(void **state)
{
	struct fix *f = *state;
	unsigned lives = atest_long() ? 400 : 60, worked = 0; /* five cycles each */
	const char *mount, *root, *precious;
	char *before, *jewels;
	pid_t attacker;

	need_root(); /* the attacker is another user */
	precious = put_precious(f);
	jewels = man_take(precious);
	mount = other_mount(f);
	set_mode(mount, 0777);
	root = put_root(f, mount);
	before = man_take(root);
	attacker = attacker_start(mount, precious);
	for (unsigned i = 0; i < lives; i++)
		worked += live_under_attack(f, root, before);
	kill_child(attacker);
	expect_msg(worked > lives / 2, "only %u of %u lives worked", worked, lives);
	expect_man(precious, jewels);
	free(before);
	free(jewels);
}

/* ---- SEC-03 ---- */

#define SECRET  "top-secret-2f7c1b"
#define TARGETS 32

struct flipper {
	pthread_t thread;
	pthread_mutex_t lock;
	char dir[PATH_MAX]; /* where to flip; "" nowhere */
	atomic_ulong flips;
	atomic_bool stop;
};

/* DIR/tN changes places with DIR/.flip/N, which is a link to the secret, or back. */
static void flip(struct flipper *fl, const char *dir, unsigned n)
{
	char name[PATH_MAX + 32], link[PATH_MAX + 32];

	(void)snprintf(name, sizeof(name), "%s/t%u", dir, n);
	(void)snprintf(link, sizeof(link), "%s/.flip/%u", dir, n);
	if (renameat2(AT_FDCWD, name, AT_FDCWD, link, RENAME_EXCHANGE) == 0)
		atomic_fetch_add(&fl->flips, 1);
}

static void *flip_on(void *arg)
{
	struct flipper *fl = arg;

	for (unsigned n = 0; !atomic_load(&fl->stop); n = (n + 1) % TARGETS) {
		pthread_mutex_lock(&fl->lock);
		if (*fl->dir)
			flip(fl, fl->dir, n);
		pthread_mutex_unlock(&fl->lock);
	}
	return NULL;
}

static void flip_at(struct flipper *fl, const char *dir)
{
	pthread_mutex_lock(&fl->lock);
	(void)snprintf(fl->dir, sizeof(fl->dir), "%s", dir);
	pthread_mutex_unlock(&fl->lock);
}

/* What is flipped, in DIR: files of the secret's length, and links to it out of the way. */
static void put_targets(struct fix *f, const char *dir, const char *secret)
{
	const char *aside = fix_path(f, "%s/.flip", dir);
	char name[PATH_MAX + 32];

	if (!exists(aside))
		put_dir(aside, 0700);
	for (unsigned i = 0; i < TARGETS; i++) {
		(void)snprintf(name, sizeof(name), "%s/%u", aside, i);
		if (exists(name))
			remove_entry(name);
		put_link(name, secret);
		(void)snprintf(name, sizeof(name), "%s/t%u", dir, i);
		if (exists(name))
			remove_entry(name);
		put_text(name, "in-no-way-secret-\n");
	}
}

static const char *put_secret(struct fix *f)
{
	const char *secret = fix_path(f, "%s/secret", fix_dir(f, "vault"));

	put_text(secret, SECRET "\n");
	set_mode(secret, 0600);
	return secret;
}

static void flipper_start(struct flipper *fl)
{
	expect(pthread_mutex_init(&fl->lock, NULL) == 0);
	expect(pthread_create(&fl->thread, NULL, flip_on, fl) == 0);
}

static void flipper_stop(struct flipper *fl)
{
	atomic_store(&fl->stop, true);
	expect(pthread_join(fl->thread, NULL) == 0);
}

static void commit_while_flipping(struct fix *f, const char *dir,
                                  struct atoll_plan *(*make)(struct fix *, const char *))
{
	unsigned long flips = atest_long() ? 20000 : 3000;
	unsigned rounds = atest_long() ? 400 : 40;
	struct flipper fl = { .dir = "" };
	const char *root = put_root(f, dir), *secret = put_secret(f);
	struct atoll_plan *p = make(f, root);

	flipper_start(&fl);
	for (unsigned i = 0; i < rounds || (atomic_load(&fl.flips) < flips && i < rounds * 50);
	     i++) {
		const char *work = fix_work(f, p, NULL);

		put_targets(f, work, secret);
		flip_at(&fl, work);
		(void)atoll_plan_diff(p, NULL, NULL, f->res);
		(void)atoll_plan_commit(p, 0, f->res);
		flip_at(&fl, "");
		expect_msg(!tree_holds(root, SECRET), "the secret is in the resource");
		expect_msg(!tree_holds(f->home, SECRET), "the secret is in the store");
		expect_msg(!tree_holds(dir, SECRET), "the secret is in the area");
		expect_ok(f, atoll_plan_rollback(p, 0, f->res));
		expect_text(fix_path(f, "%s/file", root), "old\n");
	}
	flipper_stop(&fl);
	expect_msg(atomic_load(&fl.flips) >= flips, "%lu flips", atomic_load(&fl.flips));
	expect_text(secret, SECRET "\n");
	expect_stop(f, p);
}

static void sec_03_a_file_flipped_to_a_link(void **state)
{
	struct fix *f = *state;

	commit_while_flipping(f, fix_dir(f, "dir"), plan_over);
}

static void sec_03_a_file_flipped_while_it_is_copied(void **state)
{
	struct fix *f = *state;

	commit_while_flipping(f, other_mount(f), plan_in_store);
}

/* The other direction: the original is flipped while the workspace is made of it. */
static void sec_03_an_original_flipped_while_it_is_read(void **state)
{
	struct fix *f = *state;
	struct flipper fl = { .dir = "" };
	const char *root = put_root(f, f->dir), *secret = put_secret(f);
	unsigned rounds = atest_long() ? 400 : 40, made = 0;

	put_targets(f, root, secret);
	flip_at(&fl, root);
	flipper_start(&fl);
	for (unsigned i = 0; i < rounds; i++) {
		const struct atoll_resource r = { .root = root, .strategy = "copy" };
		struct atoll_plan *p = fix_plan(f, NULL);

		made += atoll_plan_add(p, &r, f->res) == 0;
		expect_msg(!tree_holds(f->home, SECRET), "the secret is in the store");
		expect_stop(f, p);
		fix_forget(f, p);
	}
	flipper_stop(&fl);
	expect_text(secret, SECRET "\n");
	print_message("# %u of %u workspaces could be made\n", made, rounds);
}

/* ---- SEC-04 ---- */

static void put_leaving_links(struct fix *f, const char *dir)
{
	put_link(fix_path(f, "%s/passwd", dir), "/etc/passwd");
	put_link(fix_path(f, "%s/up", dir), "../../x");
	put_dir(fix_path(f, "%s/d", dir), 0755);
	put_link(fix_path(f, "%s/d/up", dir), "../../x");
	put_link(fix_path(f, "%s/d/inside", dir), "../file");
}

static void expect_links_named(struct fix *f, struct atoll_plan *p)
{
	static const char *const leaving[] = { "passwd", "up", "d/up" };
	struct listing *l = diff_take(f, p);
	const struct listed *inside = diff_find(l, "d/inside");

	for (size_t i = 0; i < 3; i++) {
		const struct listed *c = diff_find(l, leaving[i]);

		expect_msg(c && c->what & ATOLL_CHANGE_ESCAPING_LINK, "'%s' is not named",
		           leaving[i]);
	}
	expect_str(diff_find(l, "passwd")->text, "/etc/passwd");
	expect(inside && !(inside->what & ATOLL_CHANGE_ESCAPING_LINK));
	diff_free(l);
}

static void sec_04_new_links_that_leave_are_named(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, f->dir), *work;
	char *before = man_take(root), *inodes = man_inodes(root), *view;
	struct atoll_plan *p = plan_over(f, root);

	work = fix_work(f, p, NULL);
	put_leaving_links(f, work);
	view = man_take(work);
	expect_links_named(f, p);
	expect_code(f, atoll_plan_commit(p, ATOLL_DENY_ESCAPING_LINKS, f->res), -ATOLL_E_POLICY);
	expect_inodes(root, inodes);
	expect_man(work, view);
	expect_eq(fix_notes(f, ATOLL_NOTE_ESCAPING_LINK), 3);
	expect_commit(f, p);
	expect(has_note(f, ATOLL_NOTE_ESCAPING_LINK, "passwd"));
	expect(has_note(f, ATOLL_NOTE_ESCAPING_LINK, "up"));
	expect(has_note(f, ATOLL_NOTE_ESCAPING_LINK, "d/up"));
	expect_eq(fix_notes(f, ATOLL_NOTE_ESCAPING_LINK), 3);
	expect_man(root, view);
	expect_rollback(f, p);
	expect_man(root, before);
	free(before);
	free(inodes);
	free(view);
}

static void sec_04_links_that_were_there_are_not(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, f->dir);
	struct atoll_plan *p;
	struct listing *l;
	char *before, *links, *after, *links_after;

	put_leaving_links(f, root);
	before = man_take(root);
	links = man_without(before, "file");
	p = plan_over(f, root);
	put_text(fix_path(f, "%s/file", fix_work(f, p, NULL)), "new\n");
	l = diff_take(f, p);
	expect_eq(l->n, 1);
	expect_eq(l->v[0].what & ATOLL_CHANGE_ESCAPING_LINK, 0);
	diff_free(l);
	expect_ok(f, atoll_plan_commit(p, ATOLL_DENY_ESCAPING_LINKS, f->res));
	expect_eq(fix_notes(f, ATOLL_NOTE_ESCAPING_LINK), 0);
	after = man_take(root);
	links_after = man_without(after, "file");
	expect(strstr(links, "/etc/passwd") != NULL);
	expect(strstr(links_after, "/etc/passwd") != NULL);
	expect_rollback(f, p);
	expect_man(root, before);
	free(before);
	free(links);
	free(after);
	free(links_after);
}

/* One that is pointed elsewhere, outside too, is a new one. */
static void sec_04_a_link_pointed_elsewhere_is_new(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, f->dir), *work;
	char *inodes;
	struct atoll_plan *p;

	put_link(fix_path(f, "%s/link", root), "/etc/hostname");
	inodes = man_inodes(root);
	p = plan_over(f, root);
	work = fix_work(f, p, NULL);
	remove_entry(fix_path(f, "%s/link", work));
	put_link(fix_path(f, "%s/link", work), "/etc/passwd");
	expect_code(f, atoll_plan_commit(p, ATOLL_DENY_ESCAPING_LINKS, f->res), -ATOLL_E_POLICY);
	expect(has_note(f, ATOLL_NOTE_ESCAPING_LINK, "link"));
	expect_inodes(root, inodes);
	free(inodes);
}

/* ---- SEC-05 ---- */

static void sec_05_new_set_id_bits_are_stripped(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, f->dir), *work;
	struct atoll_plan *p = plan_over(f, root);
	char *before = man_take(root);

	work = fix_work(f, p, NULL);
	put_text(fix_path(f, "%s/suid", work), "#!\n");
	set_mode(fix_path(f, "%s/suid", work), 04755);
	put_dir(fix_path(f, "%s/d", work), 0755);
	put_text(fix_path(f, "%s/d/sgid", work), "#!\n");
	set_mode(fix_path(f, "%s/d/sgid", work), 02755);
	set_mode(fix_path(f, "%s/file", work), 06755);
	expect_commit(f, p);
	expect_eq(mode_of(fix_path(f, "%s/suid", root)), 0755);
	expect_eq(mode_of(fix_path(f, "%s/d/sgid", root)), 0755);
	expect_eq(mode_of(fix_path(f, "%s/file", root)), 0755);
	expect(has_note(f, ATOLL_NOTE_SETUID, "suid"));
	expect(has_note(f, ATOLL_NOTE_SETUID, "d/sgid"));
	expect(has_note(f, ATOLL_NOTE_SETUID, "file"));
	expect_rollback(f, p);
	expect_man(root, before);
	free(before);
}

static void sec_05_set_id_bits_when_allowed(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, f->dir);
	struct atoll_plan *p = plan_over(f, root);

	put_text(fix_path(f, "%s/suid", fix_work(f, p, NULL)), "#!\n");
	set_mode(fix_path(f, "%s/suid", fix_work(f, p, NULL)), 04755);
	expect_ok(f, atoll_plan_commit(p, ATOLL_ALLOW_SETUID, f->res));
	expect_eq(mode_of(fix_path(f, "%s/suid", root)), 04755);
	expect_eq(fix_notes(f, ATOLL_NOTE_SETUID), 0);
}

/* Staged by copying, too. */
static void sec_05_stripped_on_the_way_from_the_store(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, other_mount(f));
	struct atoll_plan *p = plan_in_store(f, root);

	put_text(fix_path(f, "%s/suid", fix_work(f, p, NULL)), "#!\n");
	set_mode(fix_path(f, "%s/suid", fix_work(f, p, NULL)), 06755);
	expect_commit(f, p);
	expect_eq(mode_of(fix_path(f, "%s/suid", root)), 0755);
	expect(has_note(f, ATOLL_NOTE_SETUID, "suid"));
}

static void sec_05_new_capabilities_are_stripped(void **state)
{
	/* Version 2, effective, CAP_NET_RAW permitted. */
	static const unsigned char cap[20] = { 0x01, 0, 0, 0x02, 0, 0x20 };
	static const unsigned char more[20] = { 0x01, 0, 0, 0x02, 0xff, 0xff };
	struct fix *f = *state;
	const char *root, *file;
	struct atoll_plan *p;
	char buf[64];

	need_root();
	root = put_root(f, f->dir);
	file = fix_path(f, "%s/had-some", root);
	put_text(file, "#!\n");
	expect(lsetxattr(file, "security.capability", cap, sizeof(cap), 0) == 0);
	p = plan_over(f, root);
	/* More than it had. */
	file = fix_path(f, "%s/had-some", fix_work(f, p, NULL));
	expect(lsetxattr(file, "security.capability", more, sizeof(more), 0) == 0);
	file = fix_path(f, "%s/capable", fix_work(f, p, NULL));
	put_text(file, "#!\n");
	expect(lsetxattr(file, "security.capability", cap, sizeof(cap), 0) == 0);
	file = fix_path(f, "%s/file", fix_work(f, p, NULL));
	expect(lsetxattr(file, "security.capability", cap, sizeof(cap), 0) == 0);
	expect_commit(f, p);
	expect(lgetxattr(fix_path(f, "%s/capable", root), "security.capability", buf, sizeof(buf)) <
	       0);
	expect(lgetxattr(fix_path(f, "%s/file", root), "security.capability", buf, sizeof(buf)) <
	       0);
	expect(lgetxattr(fix_path(f, "%s/had-some", root), "security.capability", buf,
	                 sizeof(buf)) < 0);
	expect(has_note(f, ATOLL_NOTE_SETUID, "had-some"));
	expect(has_note(f, ATOLL_NOTE_SETUID, "capable"));
	expect(has_note(f, ATOLL_NOTE_SETUID, "file"));
}

/* The bits of one file are not those of another that takes its place. */
static void sec_05_set_id_bits_of_another_file_are_new(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, f->dir), *work;
	struct atoll_plan *p;

	for (int i = 0; i < 4; i++) {
		put_text(fix_path(f, "%s/suid%d", root, i), "#!\n");
		set_mode(fix_path(f, "%s/suid%d", root, i), i == 3 ? 04700 : 06755);
	}
	p = plan_over(f, root);
	work = fix_work(f, p, NULL);
	put_text(fix_path(f, "%s/suid0", work), "other\n");
	set_mode(fix_path(f, "%s/suid0", work), 06755);
	set_mode(fix_path(f, "%s/suid1", work), 06777); /* others may write to it */
	set_mode(fix_path(f, "%s/suid2", work), 06700); /* less than before */
	set_mode(fix_path(f, "%s/suid3", work), 04755); /* more may run it */
	expect_commit(f, p);
	expect_eq(mode_of(fix_path(f, "%s/suid0", root)), 0755);
	expect_eq(mode_of(fix_path(f, "%s/suid1", root)), 0777);
	expect_eq(mode_of(fix_path(f, "%s/suid2", root)), 06700);
	expect_eq(mode_of(fix_path(f, "%s/suid3", root)), 0755);
	expect(has_note(f, ATOLL_NOTE_SETUID, "suid0"));
	expect(has_note(f, ATOLL_NOTE_SETUID, "suid1"));
	expect(!has_note(f, ATOLL_NOTE_SETUID, "suid2"));
	expect(has_note(f, ATOLL_NOTE_SETUID, "suid3"));
}

static void sec_05_set_id_bits_of_another_owner_are_new(void **state)
{
	struct fix *f = *state;
	const char *root, *file;
	struct atoll_plan *p;

	need_root();
	root = put_root(f, f->dir);
	for (int i = 0; i < 2; i++) {
		file = fix_path(f, "%s/suid%d", root, i);
		put_text(file, "#!\n");
		expect(lchown(file, NOBODY, NOBODY) == 0);
		set_mode(file, 06755);
	}
	p = plan_over(f, root);
	for (int i = 0; i < 2; i++) {
		file = fix_path(f, "%s/suid%d", fix_work(f, p, NULL), i);
		expect(lchown(file, i ? NOBODY : 0, i ? 0 : NOBODY) == 0);
		set_mode(file, 06755);
	}
	expect_commit(f, p);
	for (int i = 0; i < 2; i++)
		expect_eq(mode_of(fix_path(f, "%s/suid%d", root, i)), 0755);
	expect(has_note(f, ATOLL_NOTE_SETUID, "suid0"));
	expect(has_note(f, ATOLL_NOTE_SETUID, "suid1"));
}

static void sec_05_capabilities_of_another_file_are_new(void **state)
{
	static const unsigned char cap[20] = { 0x01, 0, 0, 0x02, 0, 0x20 };
	struct fix *f = *state;
	const char *root, *file;
	struct atoll_plan *p;
	char buf[64];

	need_root();
	root = put_root(f, f->dir);
	file = fix_path(f, "%s/capable", root);
	put_text(file, "#!\n");
	expect(lsetxattr(file, "security.capability", cap, sizeof(cap), 0) == 0);
	p = plan_over(f, root);
	file = fix_path(f, "%s/capable", fix_work(f, p, NULL));
	put_text(file, "other\n");
	expect(lsetxattr(file, "security.capability", cap, sizeof(cap), 0) == 0);
	expect_commit(f, p);
	expect(lgetxattr(fix_path(f, "%s/capable", root), "security.capability", buf, sizeof(buf)) <
	       0);
	expect(has_note(f, ATOLL_NOTE_SETUID, "capable"));
}

static void sec_05_old_set_id_files_keep_their_inode(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, f->dir), *suid;
	struct atoll_plan *p;
	uint64_t ino;

	suid = fix_path(f, "%s/suid", root);
	put_text(suid, "#!\n");
	set_mode(suid, 04755);
	ino = inode_of(suid);
	p = plan_over(f, root);
	put_text(fix_path(f, "%s/file", fix_work(f, p, NULL)), "new\n");
	expect_commit(f, p);
	expect_eq(inode_of(suid), ino);
	expect_eq(mode_of(suid), 04755);
	expect_rollback(f, p);
	expect_eq(inode_of(suid), ino);
	expect_eq(mode_of(suid), 04755);

	/* Deleted and given back: the same inode again. */
	remove_entry(fix_path(f, "%s/suid", fix_work(f, p, NULL)));
	expect_commit(f, p);
	expect(!exists(suid));
	expect_rollback(f, p);
	expect_eq(inode_of(suid), ino);
	expect_eq(mode_of(suid), 04755);
}

static int look_as_nobody(struct fix *f, void *area)
{
	if (setgid(NOBODY) < 0 || setuid(NOBODY) < 0)
		return 2;
	if (access(fix_path(f, "%s/plans", f->home), F_OK) == 0)
		return 1;
	return access(fix_path(f, "%s/w1", (const char *)area), F_OK) == 0;
}

static void sec_05_copies_are_out_of_reach(void **state)
{
	struct fix *f = *state;
	const char *root, *area;

	need_root();
	root = put_root(f, other_mount(f));
	area = fix_area(f, plan_over(f, root), root);
	expect(exists(fix_path(f, "%s/w1", area)));
	expect_eq(fork_run(f, look_as_nobody, fix_path(f, "%s", area)), 0);
}

/* ---- SEC-06 ---- */

static void expect_refused(struct fix *f, struct atoll_plan *p, const char *root)
{
	const struct atoll_resource r = { .root = root, .strategy = "copy" };
	int paths = atoll_count_paths(f->a, f->res);

	expect_msg(atoll_plan_add(p, &r, f->res) < 0, "'%s' was accepted", root);
	expect_eq(atoll_count_paths(f->a, f->res), paths);
}

static void sec_06_what_must_not_be_a_resource(void **state)
{
	struct fix *f = *state;
	struct atoll_plan *p = fix_plan(f, "p");
	char *before;

	put_text(fix_path(f, "%s/file", f->dir), "file\n");
	put_fifo(fix_path(f, "%s/fifo", f->dir));
	put_link(fix_path(f, "%s/to-store", f->dir), f->home);
	put_link(fix_path(f, "%s/to-file", f->dir), "file");
	put_link(fix_path(f, "%s/to-root", f->dir), "/");
	put_link(fix_path(f, "%s/dangling", f->dir), "nothing");
	(void)fix_dir(f, "sub");
	before = man_take(fix_path(f, "%s/sub", f->dir));
	expect_refused(f, p, "/");
	expect_refused(f, p, "//");
	expect_refused(f, p, "/.");
	expect_refused(f, p, f->home);
	expect_refused(f, p, fix_path(f, "%s/plans", f->home));
	expect_refused(f, p, f->dir); /* the store's parent */
	expect_refused(f, p, fix_path(f, "%s/sub/..", f->dir));
	expect_refused(f, p, fix_path(f, "%s/sub/../home", f->dir));
	expect_refused(f, p, fix_path(f, "%s/to-store", f->dir));
	expect_refused(f, p, fix_path(f, "%s/to-store/locks", f->dir));
	expect_refused(f, p, fix_path(f, "%s/to-root", f->dir));
	expect_refused(f, p, fix_path(f, "%s/file", f->dir));
	expect_refused(f, p, fix_path(f, "%s/fifo", f->dir));
	expect_refused(f, p, fix_path(f, "%s/to-file", f->dir));
	expect_refused(f, p, fix_path(f, "%s/dangling", f->dir));
	expect_refused(f, p, fix_path(f, "%s/nothing", f->dir));
	expect_refused(f, p, fix_path(f, "%s/file/x", f->dir));
	expect_refused(f, p, "/proc/self");
	expect_man(fix_path(f, "%s/sub", f->dir), before);
	free(before);
}

/* Names that would be paths elsewhere stay in the store, or are refused. */
static void sec_06_names_cannot_leave_the_store(void **state)
{
	static const char *const names[] = { "..", ".",  "../x", "a/b", "/",    "",
		                             "-x", ".x", "a\nb", "a b", "\xff", "a\x01" };
	struct fix *f = *state;
	size_t beside = count_entries(f->dir);
	struct atoll_plan *p = NULL;
	char name[66];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		expect_code(f, atoll_plan_start(f->a, names[i], 0, &p, f->res), -ATOLL_E_INVALID);
	memset(name, 'n', 65);
	name[65] = '\0';
	expect_code(f, atoll_plan_start(f->a, name, 0, &p, f->res), -ATOLL_E_INVALID);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		expect(atoll_plan_find(f->a, names[i], &p, f->res) < 0);
	expect_eq(atoll_count_plans(f->a, f->res), 0);
	expect_eq(count_entries(f->dir), beside);
}

static void sec_06_roots_with_odd_names(void **state)
{
	static const char *const names[] = {
		"new\nline", "..x", "a b", "\xff\xfe", "%s%n", "'\"`$"
	};
	struct fix *f = *state;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *dir = fix_dir(f, names[i]), *root = put_root(f, dir);
		char *before = man_take(root);
		size_t beside = count_entries(f->dir);
		struct atoll_plan *p = plan_over(f, root);

		edit(f, p);
		expect_commit(f, p);
		expect_edited(f, root);
		expect_eq(count_entries(f->dir), beside);
		expect_rollback(f, p);
		expect_man(root, before);
		free(before);
	}
}

/* A strategy, a parent or a reference is a name, never a path. */
static void sec_06_references_are_not_paths(void **state)
{
	struct fix *f = *state;
	const char *root = put_root(f, f->dir);
	struct atoll_plan *p = fix_plan(f, "p");
	const struct atoll_resource strategy = { .root = root, .strategy = "../copy" };
	const struct atoll_resource parent = { .root = root,
		                               .strategy = "copy",
		                               .parent = "../.." };
	char *before = man_take(root);

	expect_code(f, atoll_plan_add(p, &strategy, f->res), -ATOLL_E_NOT_FOUND);
	expect_code(f, atoll_plan_add(p, &parent, f->res), -ATOLL_E_NOT_FOUND);
	expect_eq(atoll_count_paths(f->a, f->res), 0);
	expect_man(root, before);
	free(before);
}

int main(int argc, char **argv)
{
	static const struct atest_child children[] = { { "owner", child_owner }, { NULL, NULL } };
	const struct CMUnitTest tests[] = {
		mtest(sec_01_names_beside_the_root_are_not_used),
		mtest(sec_01_link_planted_at_the_name_around_areas),
		mtest(sec_01_areas_are_private_and_unguessable),
		mtest(sec_01_a_sandbox_replaced_by_a_link),
		mtest(sec_01_a_workspace_replaced_by_a_link),
		mtest(sec_01_removal_does_not_cross_mounts),
		mtest(sec_02_names_recreated_by_an_attacker),
		mtest(sec_03_a_file_flipped_to_a_link),
		mtest(sec_03_a_file_flipped_while_it_is_copied),
		mtest(sec_03_an_original_flipped_while_it_is_read),
		mtest(sec_04_new_links_that_leave_are_named),
		mtest(sec_04_links_that_were_there_are_not),
		mtest(sec_04_a_link_pointed_elsewhere_is_new),
		mtest(sec_05_new_set_id_bits_are_stripped),
		mtest(sec_05_set_id_bits_when_allowed),
		mtest(sec_05_stripped_on_the_way_from_the_store),
		mtest(sec_05_new_capabilities_are_stripped),
		mtest(sec_05_set_id_bits_of_another_file_are_new),
		mtest(sec_05_set_id_bits_of_another_owner_are_new),
		mtest(sec_05_capabilities_of_another_file_are_new),
		mtest(sec_05_old_set_id_files_keep_their_inode),
		mtest(sec_05_copies_are_out_of_reach),
		mtest(sec_06_what_must_not_be_a_resource),
		mtest(sec_06_names_cannot_leave_the_store),
		mtest(sec_06_roots_with_odd_names),
		mtest(sec_06_references_are_not_paths),
	};

	return atest_main(argc, argv, tests, children);
}
