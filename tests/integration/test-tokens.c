/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The token cache of one process: what it keeps on disk, what it makes of a bad answer, how tokens
 * end. Rules AUT-06 and 08 to 10, DER-16, DER-17; those about crowds are in tests/concurrency/test-aut.c.
 */
#include "lib/atest.h"
#include "lib/token-server.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct server server;
static atomic_int notices;
static char last_notice[512];

static int start_server(void **state)
{
	server_start(&server);
	atomic_store(&notices, 0);
	return atest_setup(state);
}

static int stop_server(void **state)
{
	server_stop(&server);
	return atest_teardown(state);
}

#define tok(test) cmocka_unit_test_setup_teardown(test, start_server, stop_server)

static void take_notice(void *user, const char *path, const char *text)
{
	(void)user;
	snprintf(last_notice, sizeof(last_notice), "%s %s", path, text);
	atomic_fetch_add(&notices, 1);
}

static struct atoll_tokens *open_tokens(const char *dir)
{
	const struct atoll_tokens_config config = { .endpoint = server.url,
		                                    .principal = "tester",
		                                    .key = SERVER_KEY,
		                                    .dir = dir,
		                                    .notice = take_notice,
		                                    .request_ms = 60000 };
	struct atoll_tokens *t = NULL;

	expect_eq(atoll_tokens_open(&config, &t, NULL), 0);
	return t;
}

static struct atoll_token_handle *handle_of(struct atoll_tokens *t, const char *id)
{
	struct atoll_token_handle *h = NULL;

	expect_eq(atoll_tokens_handle(t, id, &h, NULL), 0);
	return h;
}

static void get_ok(struct atoll_tokens *t, const char *id, const char *text)
{
	struct atoll_token *token = NULL;

	expect_eq(atoll_tokens_get(t, id, 20000, 0, &token, NULL), 0);
	if (token && text)
		expect_str(atoll_token_text(token), text);
}

static int requests(void)
{
	return atomic_load(&server.requests);
}

/* The n-th name in DIR that ends in END, or NULL. */
static char *name_in(struct fix *f, const char *dir, const char *end, int n)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	char *found = NULL;

	while (d && !found && (e = readdir(d)) != NULL) {
		size_t len = strlen(e->d_name);

		if (len > strlen(end) && strcmp(e->d_name + len - strlen(end), end) == 0 &&
		    n-- == 0)
			found = fix_path(f, "%s/%s", dir, e->d_name);
	}
	if (d)
		closedir(d);
	return found;
}

static int count_in(struct fix *f, const char *dir, const char *end)
{
	int n = 0;

	while (name_in(f, dir, end, n))
		n++;
	return n;
}

static int count_bad(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	int n = 0;

	while (d && (e = readdir(d)) != NULL)
		n += strncmp(e->d_name, ".bad-", 5) == 0;
	if (d)
		closedir(d);
	return n;
}

/* A directory with one token in it, of "sb-1"; its file. */
static char *with_token(struct fix *f, const char *dir)
{
	struct atoll_tokens *t = open_tokens(dir);

	get_ok(t, "sb-1", NULL);
	atoll_tokens_close(t);
	expect_eq(count_in(f, dir, ".tok"), 1);
	return name_in(f, dir, ".tok", 0);
}

/* ---- on disk ---- */

static bool is_same_file(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
	       a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static int set_field(struct atoll_token_handle *h, const char *name, const char *json, bool poll_it)
{
	const struct atoll_token_call call = { .wait_ms = -1 };
	struct pollfd p = { .events = POLLIN };
	struct atoll_token_wait *w;
	int r;

	if (!poll_it)
		return atoll_token_set_field(h, name, json, NULL);
	r = atoll_token_start_set_field(h, name, json, &call, &w, NULL);
	if (r < 0)
		return r;
	p.fd = atoll_token_wait_fd(w);
	expect_eq(poll(&p, 1, 60000), 1);
	r = atoll_token_wait_result(w, NULL, NULL);
	atoll_token_wait_free(w);
	return r;
}

static void aut_06_written_only_when_changed(void **state)
{
	struct fix *f = *state;
	const char *dir = fix_path(f, "%s/tokens", f->dir);
	struct atoll_tokens *t;
	struct atoll_token_handle *h;
	struct atoll_token *token;
	struct stat before, after;
	const char *file;

	atomic_store(&server.fields, ", \"is_gpu\": true, \"zone\": {\"a\": [1, 2]}");
	file = with_token(f, dir);
	t = open_tokens(dir);
	h = handle_of(t, "sb-1");
	for (int form = 0; form < 2; form++) {
		expect_eq(stat(file, &before), 0);
		expect_eq(before.st_mode & 07777, 0600);
		expect_eq(set_field(h, "is_gpu", "true", form), 0);
		expect_eq(set_field(handle_of(t, "unknown"), "is_gpu", "true", form), 0);
		expect_eq(stat(file, &after), 0);
		expect(is_same_file(&before, &after));
		expect_eq(count_in(f, dir, ".tok"), 1);
		expect_eq(set_field(h, "is_gpu", "false", form), 1);
		expect_eq(stat(file, &after), 0);
		expect(!is_same_file(&before, &after));
		expect_eq(set_field(h, "is_gpu", " true ", form), 1);
	}
	expect_eq(set_field(h, "mine", "[ 1, \"a b\" ]", false), 1);
	expect_eq(set_field(h, "mine", "{", false), -ATOLL_E_INVALID);
	expect_eq(set_field(h, "token", "1", false), -ATOLL_E_INVALID);
	expect_eq(atoll_token_get(h, 0, 0, &token, NULL), 0);
	expect_str(atoll_token_field(token, "is_gpu"), "true");
	expect_str(atoll_token_field(token, "zone"), "{\"a\":[1,2]}");
	expect_str(atoll_token_field(token, "mine"), "[1,\"a b\"]");
	expect(atoll_token_field(token, "none") == NULL);
	/* Over a renewal the answer's own win, the others stay. */
	atomic_store(&server.fields, ", \"is_gpu\": 7");
	expect_eq(set_field(h, "n", "\"other\"", false), 1);
	expect_eq(atoll_token_get(h, 0, 0, &token, NULL), 0);
	expect_eq(requests(), 1);
	atoll_tokens_close(t);
	t = open_tokens(dir);
	expect_eq(atoll_tokens_get(t, "sb-1", -1, 0, &token, NULL), 0);
	expect_str(atoll_token_field(token, "mine"), "[1,\"a b\"]");
	expect_str(atoll_token_field(token, "n"), "\"other\"");
	expect_eq(requests(), 1);
	atoll_tokens_close(t);
}

static void aut_09_expired_ones_are_dropped_at_load(void **state)
{
	struct fix *f = *state;
	const char *dir = fix_path(f, "%s/tokens", f->dir);
	struct atoll_tokens *t = open_tokens(dir);
	struct stat before[2], after[2];

	atomic_store(&server.expires_in, 1);
	for (int i = 0; i < 3; i++)
		get_ok(t, fix_path(f, "old-%d", i), NULL);
	atomic_store(&server.expires_in, 3600);
	get_ok(t, "new-0", NULL);
	get_ok(t, "new-1", NULL);
	atoll_tokens_close(t);
	expect_eq(count_in(f, dir, ".tok"), 5);
	expect_eq(requests(), 5);
	usleep(1100000);

	t = open_tokens(dir);
	get_ok(t, "new-0", "tok-4");
	expect_eq(count_in(f, dir, ".tok"), 2);
	expect_eq(requests(), 5);
	for (int i = 0; i < 2; i++)
		expect_eq(stat(name_in(f, dir, ".tok", i), &before[i]), 0);
	get_ok(t, "old-1", "tok-6");
	atoll_tokens_close(t);
	expect_eq(count_in(f, dir, ".tok"), 3);

	t = open_tokens(dir);
	get_ok(t, "new-1", "tok-5");
	atoll_tokens_close(t);
	expect_eq(requests(), 6);
	for (int i = 0; i < 2; i++) {
		bool is_there = false;

		for (int k = 0; k < 3; k++) {
			expect_eq(stat(name_in(f, dir, ".tok", k), &after[0]), 0);
			is_there = is_there || is_same_file(&before[i], &after[0]);
		}
		expect(is_there);
	}
}

static void aut_09_a_token_that_ends_is_renewed(void **state)
{
	struct atoll_tokens *t = open_tokens(NULL);
	struct atoll_token_handle *h = handle_of(t, "sb-1");
	struct atoll_token *token;
	int64_t began = now_ms();

	(void)state;
	atomic_store(&server.expires_in, 1);
	while (now_ms() - began < 2500 || (requests() < 3 && now_ms() - began < 60000)) {
		int64_t asked = time(NULL) * (int64_t)1000;

		expect_eq(atoll_token_get(h, -1, 0, &token, NULL), 0);
		/* Not one that was over, by the clock that says so. */
		expect(atoll_token_expires_ms(token) > asked - 1000);
		usleep(1000);
	}
	expect(requests() >= 3 && requests() <= 3 + 2 * (now_ms() - began) / 1000);
	atoll_tokens_close(t);
}

static void token_renewed_in_passing_before_it_ends(void **state)
{
	struct atoll_tokens *t = open_tokens(NULL);
	struct atoll_token *token;

	(void)state;
	/* Its last half is the soft window of so short a life, a tenth more or less. */
	atomic_store(&server.expires_in, 16);
	get_ok(t, "sb-1", "tok-1");
	usleep(9500000);
	atomic_store(&server.gated, true);
	expect_eq(atoll_tokens_get(t, "sb-1", 0, 0, &token, NULL), 0);
	expect_str(atoll_token_text(token), "tok-1");
	server_wait_gate(&server, 1);
	expect_eq(atoll_tokens_get(t, "sb-1", 0, 0, &token, NULL), 0);
	atomic_store(&server.gated, false);
	for (int i = 0; i < 60000 && strcmp(atoll_token_text(token), "tok-2") != 0; i++) {
		usleep(1000);
		expect_eq(atoll_tokens_get(t, "sb-1", 0, 0, &token, NULL), 0);
	}
	expect_str(atoll_token_text(token), "tok-2");
	expect_eq(requests(), 2);
	atoll_tokens_close(t);
}

static void token_valid_is_served_while_the_service_fails(void **state)
{
	struct atoll_tokens *t = open_tokens(NULL);
	struct atoll_token *token;
	int64_t began = now_ms(), ended;

	(void)state;
	/* In its last half it is asked for anew. */
	atomic_store(&server.expires_in, 8);
	get_ok(t, "sb-1", "tok-1");
	ended = now_ms() + 8000;
	atomic_store(&server.mode, SERVER_STATUS);
	while (requests() < 2 && now_ms() - began < 60000) {
		get_ok(t, "sb-1", "tok-1");
		usleep(20000);
	}
	expect(requests() >= 2);
	while (now_ms() <= ended + 100)
		usleep(20000);
	expect_eq(atoll_tokens_get(t, "sb-1", -1, 0, &token, NULL), -EREMOTEIO);
	atoll_tokens_close(t);
}

/* Counts the openings of token files that strace saw in LOG. */
static int opened(const char *log)
{
	char line[1024];
	FILE *in = fopen(log, "r");
	int n = 0;

	while (in && fgets(line, sizeof(line), in))
		n += strstr(line, ".tok\"") != NULL && strstr(line, "open") != NULL;
	if (in)
		fclose(in);
	return n;
}

static void *get_once(void *arg)
{
	struct atoll_token *token;

	expect_eq(atoll_tokens_get(arg, "sb-1", 20000, 0, &token, NULL), 0);
	return NULL;
}

static int first_use(const char *dir, const char *arg)
{
	struct atoll_tokens *t;
	pthread_t threads[50];

	(void)dir;
	(void)snprintf(server.url, sizeof(server.url), "%s", getenv("TOKEN_TEST_URL"));
	t = open_tokens(arg);
	(void)handle_of(t, "sb-1");
	/* Seen in the log: nothing was opened before this. */
	(void)access("/before-the-first-get", F_OK);
	for (int i = 0; i < 50; i++)
		expect_eq(pthread_create(&threads[i], NULL, get_once, t), 0);
	for (int i = 0; i < 50; i++)
		expect_eq(pthread_join(threads[i], NULL), 0);
	atoll_tokens_close(t);
	return 0;
}

static int opened_before_first_get(const char *log)
{
	char line[1024];
	FILE *in = fopen(log, "r");
	int n = 0;

	while (in && fgets(line, sizeof(line), in) && !strstr(line, "/before-the-first-get"))
		n += strstr(line, "/tokens-kept") != NULL;
	if (in)
		fclose(in);
	return n;
}

static void aut_10_loaded_once_and_on_first_use(void **state)
{
	struct fix *f = *state;
	const char *dir = fix_path(f, "%s/tokens-kept", f->dir);
	const char *log = fix_path(f, "%s/strace.log", f->dir);
	char self[PATH_MAX] = "";
	char *line;

	if (getenv("ASAN_OPTIONS") && readlink("/proc/self/exe", self, sizeof(self) - 1) > 0 &&
	    strstr(self, "build-asan")) {
		atest_skip("strace and the leak check do not go together");
		return;
	}
	(void)with_token(f, dir);
	expect(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	line = fix_path(
		f,
		"TOKEN_TEST_URL=%s strace -f -qq -e trace=openat,open,openat2,access,faccessat,faccessat2 "
		"-o %s %s --child first_use %s %s",
		server.url, log, self, f->dir, dir);
	expect_eq(setenv("TOKEN_TEST_URL", server.url, 1), 0);
	expect_msg(system(line) == 0, "%s", line);
	expect_eq(opened_before_first_get(log), 0);
	expect_eq(opened(log), 1);
	expect_eq(requests(), 1);
}

/* ---- a filesystem that stands still ---- */

static pid_t start_fuse(struct fix *f, const char *dir)
{
	const char *ready = fix_path(f, "%s/fuse-ready", f->dir);
	char *program = fix_path(f, "%s/../integration/tiny-fuse.py", getenv("ATOLL_TEST_LIB"));
	pid_t pid = fork();

	if (pid == 0) {
		execl("/usr/bin/python3", "python3", program, dir, ready, (char *)NULL);
		_exit(127);
	}
	for (int i = 0; i < 60000 && access(ready, F_OK) < 0; i++)
		usleep(1000);
	expect_eq(access(ready, F_OK), 0);
	return pid;
}

static void aut_08_a_disk_that_stands_still_stops_no_hit(void **state)
{
	struct fix *f = *state;
	const char *dir = fix_dir(f, "mnt");
	const struct atoll_token_call call = { .wait_ms = -1 };
	struct atoll_tokens *t;
	struct atoll_token_wait *w;
	struct atoll_token *token;
	int64_t worst = 0, began;
	pid_t fuse;

	need_root();
	if (access("/dev/fuse", R_OK | W_OK) < 0) {
		atest_skip("no /dev/fuse");
		return;
	}
	expect_eq(chmod(dir, 0700), 0);
	fuse = start_fuse(f, dir);
	t = open_tokens(dir);
	get_ok(t, "known", "tok-1");
	expect_eq(kill(fuse, SIGSTOP), 0);
	/* aut_11: the asynchronous form does not stand still, either. */
	began = now_ms();
	expect_eq(atoll_token_start(handle_of(t, "other"), &call, &token, &w, NULL), 0);
	expect(now_ms() - began < 10000); /* or as long as the disk stands still */
	for (int i = 0; i < 300; i++) {
		began = now_ms();
		get_ok(t, "known", "tok-1");
		usleep(1000);
		worst = now_ms() - began > worst ? now_ms() - began : worst;
	}
	expect_msg(worst < 10000, "%d ms", (int)worst);
	expect_eq(atoll_tokens_get(t, "third", 100, 0, &token, NULL), -ATOLL_E_TIMEOUT);
	expect_eq(atoll_token_wait_result(w, &token, NULL), -EAGAIN);
	expect_eq(kill(fuse, SIGCONT), 0);
	get_ok(t, "other", NULL);
	get_ok(t, "third", NULL);
	atoll_token_wait_free(w);
	atoll_tokens_close(t);
	expect_eq(system(fix_path(f, "umount %s", dir)), 0);
	expect_eq(waitpid(fuse, NULL, 0), fuse);
}

/* ---- DER-16 ---- */

struct updater {
	struct atoll_token_handle *h;
	char name[16];
	int n;
};

static void *update(void *arg)
{
	struct updater *u = arg;
	char value[16];

	for (int i = 1; i <= u->n; i++) {
		snprintf(value, sizeof(value), "%d", i);
		if (atoll_token_set_field(u->h, u->name, value, NULL) != 1)
			_exit(3);
	}
	return NULL;
}

static pid_t start_updates(const char *dir, int process, int n)
{
	pid_t pid = fork();

	if (pid == 0) {
		struct atoll_tokens *t = open_tokens(dir);
		struct updater u[16];
		pthread_t threads[16];

		for (int i = 0; i < 16; i++) {
			u[i] = (struct updater){ handle_of(t, "sb-1"), "", n };
			snprintf(u[i].name, sizeof(u[i].name), "p%dt%d", process, i);
			if (pthread_create(&threads[i], NULL, update, &u[i]) != 0)
				_exit(2);
		}
		for (int i = 0; i < 16; i++)
			pthread_join(threads[i], NULL);
		atoll_tokens_close(t);
		_exit(0);
	}
	expect(pid > 0);
	return pid;
}

static void der_16_updates_of_processes_are_merged(void **state)
{
	struct fix *f = *state;
	const char *dir = fix_path(f, "%s/tokens", f->dir);
	const int n = atest_long() ? 500 : 20;
	struct atoll_token *token;
	struct atoll_tokens *t;
	pid_t pids[4];
	struct stat st;

	(void)with_token(f, dir);
	for (int i = 0; i < 4; i++)
		pids[i] = start_updates(dir, i, n);
	for (int i = 0; i < 4; i++) {
		int s;

		expect_eq(waitpid(pids[i], &s, 0), pids[i]);
		expect_eq(s, 0);
	}
	t = open_tokens(dir);
	expect_eq(atoll_tokens_get(t, "sb-1", 0, 0, &token, NULL) == 0 ? 0 : 1,
	          1); /* not read yet */
	expect_eq(atoll_tokens_get(t, "sb-1", -1, 0, &token, NULL), 0);
	for (int i = 0; i < 64; i++) {
		const char *value = atoll_token_field(token, fix_path(f, "p%dt%d", i / 16, i % 16));

		expect(value && atoi(value) == n);
	}
	expect_eq(stat(name_in(f, dir, ".tok", 0), &st), 0);
	expect_eq(st.st_mode & 07777, 0600);
	expect_eq(requests(), 1);
	expect_eq(atomic_load(&notices), 0);
	atoll_tokens_close(t);
}

static void der_16_killed_while_saving(void **state)
{
	struct fix *f = *state;
	const char *dir = fix_path(f, "%s/tokens", f->dir);
	const int kills = atest_long() ? 200 : 20;
	unsigned seed = 3;

	(void)with_token(f, dir);
	for (int i = 0; i < kills; i++) {
		struct atoll_tokens *t;
		struct atoll_token *token;
		pid_t pid = start_updates(dir, i % 4, 100000);
		int s;

		usleep(5000 + (unsigned)rand_r(&seed) % 20000);
		expect_eq(kill(pid, SIGKILL), 0);
		expect_eq(waitpid(pid, &s, 0), pid);
		t = open_tokens(dir);
		expect_eq(atoll_tokens_get(t, "sb-1", 60000, 0, &token, NULL), 0);
		expect_str(atoll_token_text(token), "tok-1");
		atoll_tokens_close(t);
	}
	expect_eq(requests(), 1);
	expect_eq(atomic_load(&notices), 0);
}

/* ---- DER-17 ---- */

static void spoil(struct fix *f, const char *file, int how)
{
	struct stat st;
	int fd;

	expect_eq(stat(file, &st), 0);
	switch (how) {
	case 0: /* torn */
		expect_eq(truncate(file, st.st_size / 2), 0);
		break;
	case 1:
		expect_eq(truncate(file, 0), 0);
		break;
	case 2: /* one bit */
		fd = open(file, O_RDWR | O_CLOEXEC);
		expect_eq(pwrite(fd, "#", 1, st.st_size / 2), 1);
		close(fd);
		break;
	case 3:
		fd = open(file, O_RDWR | O_TRUNC | O_CLOEXEC);
		for (int i = 0; i < 300; i++) {
			unsigned char c = (unsigned char)(i * 37);

			expect_eq(write(fd, &c, 1), 1);
		}
		close(fd);
		break;
	case 4:
		expect_eq(chmod(file, 0644), 0);
		break;
	case 5:
		expect_eq(chmod(file, 0), 0);
		break;
	case 6:
		expect_eq(rename(file, fix_path(f, "%s/elsewhere", f->dir)), 0);
		expect_eq(symlink(fix_path(f, "%s/elsewhere", f->dir), file), 0);
		break;
	case 7:
		expect_eq(unlink(file), 0);
		expect_eq(mkdir(file, 0700), 0);
		expect_eq(mkdir(fix_path(f, "%s/in it", file), 0700), 0);
		break;
	case 8:
		expect_eq(unlink(file), 0);
		expect_eq(mkfifo(file, 0600), 0);
		break;
	case 9: /* somebody else's */
		expect_eq(chown(file, 1234, 1234), 0);
		break;
	default:
		break;
	}
}

static void der_17_what_is_no_token_is_set_aside(void **state)
{
	struct fix *f = *state;

	for (int how = 0; how < 10; how++) {
		const char *dir = fix_path(f, "%s/tokens-%d", f->dir, how);
		struct atoll_tokens *t;
		const char *file = with_token(f, dir);
		int before = requests();

		/* Mode 000 stops root from nothing; giving away is for root only. */
		if ((how == 5 && geteuid() == 0) || (how == 9 && geteuid() != 0))
			continue;
		atomic_store(&notices, 0);
		spoil(f, file, how);
		t = open_tokens(dir);
		get_ok(t, "sb-1", NULL);
		expect_eq(requests(), before + 1);
		atoll_tokens_close(t);
		expect_msg(atomic_load(&notices) == 1, "%d: %d notices: %s", how,
		           atomic_load(&notices), last_notice);
		expect(strstr(last_notice, "set aside") != NULL &&
		       strstr(last_notice, "tok-") == NULL);
		expect_eq(count_bad(dir), 1);
		t = open_tokens(dir);
		get_ok(t, "sb-1", NULL);
		atoll_tokens_close(t);
		expect_eq(requests(), before + 1);
		expect_eq(atomic_load(&notices), 1);
	}
}

static void der_17_a_directory_that_cannot_be_used(void **state)
{
	struct fix *f = *state;
	const char *open_to_all = fix_dir(f, "open"), *file = fix_path(f, "%s/file", f->dir);
	const char *dirs[] = { open_to_all, file, fix_path(f, "%s/not/there", f->dir) };
	int fd = open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

	close(fd);
	expect_eq(chmod(open_to_all, 0755), 0);
	for (int i = 0; i < 3; i++) {
		struct atoll_tokens *t = open_tokens(dirs[i]);

		atomic_store(&notices, 0);
		get_ok(t, "sb-1", NULL);
		get_ok(t, "sb-2", NULL);
		atoll_tokens_close(t);
		expect_eq(atomic_load(&notices), 1);
		expect(strstr(last_notice, "in memory only") != NULL);
	}
	expect_eq(requests(), 6);
}

static void token_others_are_not_mixed_up(void **state)
{
	struct fix *f = *state;
	const char *dir = fix_path(f, "%s/tokens", f->dir);
	struct atoll_tokens_config config = { .endpoint = server.url,
		                              .principal = "another",
		                              .key = SERVER_KEY,
		                              .dir = dir };
	const char *mine = with_token(f, dir), *theirs;
	struct atoll_tokens *t;

	expect_eq(atoll_tokens_open(&config, &t, NULL), 0);
	get_ok(t, "sb-1", "tok-2");
	atoll_tokens_close(t);
	expect_eq(count_in(f, dir, ".tok"), 2);
	theirs = name_in(f, dir, ".tok", strcmp(name_in(f, dir, ".tok", 0), mine) == 0 ? 1 : 0);
	/* Whole, but in another's place. */
	expect_eq(rename(theirs, mine), 0);
	t = open_tokens(dir);
	get_ok(t, "sb-1", "tok-3");
	atoll_tokens_close(t);
	expect_eq(count_bad(dir), 1);
}

static void token_clear_of_another_process_wins(void **state)
{
	struct fix *f = *state;
	const char *dir = fix_path(f, "%s/tokens", f->dir);
	struct atoll_tokens *t = open_tokens(dir), *other = open_tokens(dir);
	const struct atoll_token_call call = { .wait_ms = -1 };
	struct atoll_token_wait *w;
	struct atoll_token *token;

	atomic_store(&server.gated, true);
	expect_eq(atoll_token_start(handle_of(t, "sb-1"), &call, &token, &w, NULL), 0);
	server_wait_gate(&server, 1);
	expect_eq(atoll_tokens_clear(other, "sb-1", NULL), 0);
	atomic_store(&server.gated, false);
	get_ok(t, "sb-1", "tok-1");
	atoll_token_wait_free(w);
	atoll_tokens_close(t);
	atoll_tokens_close(other);
	expect_eq(count_in(f, dir, ".tok"), 0);
}

/* ---- answers ---- */

static void token_bad_answers(void **state)
{
	static const struct {
		enum server_mode mode;
		int status;
		const char *body;
		int code;
		const char *says;
	} rows[] = {
		{ SERVER_STATUS, 401, NULL, -ATOLL_E_DENIED, "401" },
		{ SERVER_STATUS, 403, NULL, -ATOLL_E_DENIED, "403" },
		{ SERVER_STATUS, 404, NULL, -ATOLL_E_NOT_FOUND, "404" },
		{ SERVER_STATUS, 429, NULL, -EREMOTEIO, "429, not now" },
		{ SERVER_STATUS, 500, "<html>", -EREMOTEIO, "500" },
		{ SERVER_STATUS, 302, NULL, -EREMOTEIO, "302" },
		{ SERVER_STATUS, 503, "{\"title\": \"Bearer " SERVER_KEY " is odd\"}", -EREMOTEIO,
		  "503" },
		{ SERVER_STATUS, 503, "{\"title\": \"tok-1234567890123456789012345678\"}",
		  -EREMOTEIO, "503" },
		{ SERVER_BODY, 200, "", -EPROTO, "JSON" },
		{ SERVER_BODY, 200, "[]", -EPROTO, "JSON" },
		{ SERVER_BODY, 200, "{\"token\": \"tok-x\"", -EPROTO, "JSON" },
		{ SERVER_BODY, 200, "{\"token\": \"tok-x\"}", -EPROTO, "expires_in" },
		{ SERVER_BODY, 200, "{\"expires_in\": 60}", -EPROTO, "token" },
		{ SERVER_BODY, 200, "{\"token\": \"tok-x\", \"expires_in\": 0}", -EPROTO,
		  "expires_in" },
		{ SERVER_BODY, 200, "{\"token\": \"tok-x\", \"expires_in\": -5}", -EPROTO,
		  "expires_in" },
		{ SERVER_BODY, 200, "{\"token\": \"tok-x\", \"expires_in\": 9223372036854775808}",
		  -EPROTO, "expires_in" },
		{ SERVER_BODY, 200, "{\"token\": \"tok-x\", \"expires_in\": 1e3}", -EPROTO,
		  "expires_in" },
		{ SERVER_BODY, 200, "{\"token\": \"tok-x\", \"expires_in\": \"60\"}", -EPROTO,
		  "expires_in" },
		{ SERVER_BODY, 200, "{\"token\": \"tok x\", \"expires_in\": 60}", -EPROTO,
		  "token" },
		{ SERVER_BODY, 200, "{\"token\": \"tok\\r\\nX: y\", \"expires_in\": 60}", -EPROTO,
		  "token" },
		{ SERVER_BODY, 200, "{\"token\": \"\", \"expires_in\": 60}", -EPROTO, "token" },
		{ SERVER_BODY, 200, "{\"token\": 5, \"expires_in\": 60}", -EPROTO, "token" },
		{ SERVER_BODY, 200,
		  "{\"token\": \"tok-x\", \"token\": \"tok-y\", \"expires_in\": 60}", -EPROTO,
		  "JSON" },
		{ SERVER_BODY, 200, "{\"a\":[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]}", -EPROTO,
		  "JSON" },
		{ SERVER_HALF, 200, NULL, -EPROTO, "no answer" },
		{ SERVER_CLOSE, 0, NULL, -EPROTO, "no answer" },
	};
	struct fix *f = *state;
	struct atoll_tokens *t = open_tokens(fix_path(f, "%s/tokens", f->dir));
	struct atoll_result *res = atoll_result_new();
	struct atoll_token *token;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const char *says, *hint, *detail;

		atomic_store(&server.mode, rows[i].mode);
		atomic_store(&server.status, rows[i].status);
		atomic_store(&server.body, rows[i].body);
		expect_msg(atoll_tokens_get(t, fix_path(f, "sb-%zu", i), 20000, 0, &token, res) ==
		                   rows[i].code,
		           "%zu: %s", i, atoll_result_message(res));
		says = atoll_result_message(res);
		hint = atoll_result_hint(res);
		detail = atoll_result_cause_detail(res);
		expect_msg(strstr(says, rows[i].says) != NULL, "row %zu", i);
		expect(!strstr(says, "tok-") && !strstr(hint, "tok-") && !strstr(detail, "tok-"));
		expect(!strstr(says, SERVER_KEY) && !strstr(detail, SERVER_KEY));
	}
	atoll_result_free(res);
	atoll_tokens_close(t); /* so nothing is being written now */
	expect_eq(count_in(f, fix_path(f, "%s/tokens", f->dir), ".tok"), 0);
	expect_eq(system(fix_path(f, "grep -rqe tok-x -e %s %s/tokens", SERVER_KEY, f->dir)), 256);
}

static void token_a_server_that_hangs_or_is_gone(void **state)
{
	struct atoll_tokens_config config = { .endpoint = server.url, .request_ms = 300 };
	struct atoll_tokens *t;
	struct atoll_token *token;
	int64_t began = now_ms();

	(void)state;
	atomic_store(&server.mode, SERVER_HANG);
	expect_eq(atoll_tokens_open(&config, &t, NULL), 0);
	expect_eq(atoll_tokens_get(t, "sb-1", -1, 0, &token, NULL), -ETIMEDOUT);
	expect(now_ms() - began >= 300);
	for (int i = 0; i < 60000 && requests() < 1; i++)
		usleep(1000); /* the server may be slower than the time allowed */
	expect_eq(requests(), 1);
	expect_eq(atomic_load(&server.unauthorized), 1); /* there was no key to send */
	atoll_tokens_close(t);
	config.endpoint = "http://127.0.0.1:1";
	expect_eq(atoll_tokens_open(&config, &t, NULL), 0);
	expect_eq(atoll_tokens_get(t, "sb-1", -1, 0, &token, NULL), -ECONNREFUSED);
	atoll_tokens_close(t);
}

static void token_retry_after_wins_and_retry_overrides(void **state)
{
	struct fix *f = *state;
	struct atoll_tokens *t = open_tokens(fix_path(f, "%s/tokens", f->dir)), *other;
	struct atoll_result *res = atoll_result_new();
	struct atoll_token *token;

	atomic_store(&server.mode, SERVER_STATUS);
	atomic_store(&server.retry_after, "200");
	expect_eq(atoll_tokens_get(t, "sb-1", -1, 0, &token, res), -EREMOTEIO);
	usleep(1300000); /* longer than a pause without it */
	expect_eq(atoll_tokens_get(t, "sb-1", -1, 0, &token, res), -EREMOTEIO);
	expect(strstr(atoll_result_message(res), "next try in") != NULL);
	expect_eq(requests(), 1);
	/* Nor does another process ask. */
	other = open_tokens(fix_path(f, "%s/tokens", f->dir));
	expect_eq(atoll_tokens_get(other, "sb-1", -1, 0, &token, res), -EREMOTEIO);
	expect_eq(requests(), 1);
	expect_eq(atoll_tokens_get(t, "sb-1", -1, ATOLL_TOKEN_RETRY, &token, res), -EREMOTEIO);
	expect_eq(requests(), 2);
	atomic_store(&server.mode, SERVER_TOKENS);
	/* Another key ends the pause; the other process then finds the token. */
	expect_eq(atoll_tokens_set_key(t, SERVER_KEY, NULL), 0);
	get_ok(t, "sb-1", "tok-3");
	atoll_tokens_close(t);
	expect_eq(atoll_tokens_get(other, "sb-1", -1, ATOLL_TOKEN_RETRY, &token, res), 0);
	expect_eq(requests(), 3);
	atoll_tokens_close(other);
	atoll_result_free(res);
}

static void token_404_removes_it(void **state)
{
	struct fix *f = *state;
	const char *dir = fix_path(f, "%s/tokens", f->dir);
	struct atoll_tokens *t;
	struct atoll_token *token;

	(void)with_token(f, dir);
	t = open_tokens(dir);
	expect_eq(atoll_tokens_get(t, "sb-1", -1, 0, &token, NULL), 0);
	expect_eq(atoll_token_invalidate(handle_of(t, "sb-1"), atoll_token_version(token) + 1), 0);
	expect_eq(atoll_token_invalidate(handle_of(t, "sb-1"), atoll_token_version(token)), 1);
	atomic_store(&server.mode, SERVER_STATUS);
	atomic_store(&server.status, 404);
	expect_eq(atoll_tokens_get(t, "sb-1", -1, 0, &token, NULL), -ATOLL_E_NOT_FOUND);
	expect_eq(requests(), 2); /* the refused one was not taken from the file again */
	atoll_tokens_close(t);
	expect_eq(count_in(f, dir, ".tok"), 0);
}

/* ---- a transport of one's own ---- */

static int own_send(void *user, const struct atoll_token_request *request,
                    struct atoll_token_reply *reply)
{
	static const char body[] = "{\"token\":\"own\",\"expires_in\":60}";
	int *calls = user;

	(*calls)++;
	if (strcmp(request->url, "any:thing/v1/sandboxes/sb-1/auth") != 0 ||
	    strcmp(request->sandbox, "sb-1") != 0 || strcmp(request->key, "k") != 0)
		return -EINVAL;
	atoll_token_reply_status(reply, 200);
	return atoll_token_reply_body(reply, body, strlen(body));
}

static void token_own_transport_and_bad_arguments(void **state)
{
	static const char *const endpoints[] = { "http://example.org",
		                                 "http://127.example.org",
		                                 "http://localhost.example.org",
		                                 "ftp://localhost",
		                                 "https://user@host",
		                                 "http://127.0.0.1\n",
		                                 "" };
	static const char *const ids[] = {
		"", ".", "../x", "a/b", "a b", "-x", "a%2f", "\xc3\xa4"
	};
	int calls = 0;
	struct atoll_tokens_config config = { .endpoint = "any:thing/",
		                              .key = "k",
		                              .send = own_send,
		                              .user = &calls };
	struct atoll_tokens *t = NULL;
	struct atoll_token_handle *h;
	struct atoll_token *token;

	(void)state;
	expect_eq(atoll_tokens_open(&config, &t, NULL), 0);
	expect_eq(atoll_tokens_get(t, "sb-1", 0, 0, &token, NULL), -ATOLL_E_BUSY);
	get_ok(t, "sb-1", "own");
	expect_eq(atoll_tokens_get(t, "sb-1", -1, 0x80, &token, NULL), -ATOLL_E_INVALID);
	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++)
		expect_eq(atoll_tokens_handle(t, ids[i], &h, NULL), -ATOLL_E_INVALID);
	expect_eq(atoll_tokens_set_key(t, "a\nb", NULL), -ATOLL_E_INVALID);
	atoll_tokens_close(t);
	expect_eq(calls, 1);
	config.send = NULL;
	for (size_t i = 0; i < sizeof(endpoints) / sizeof(endpoints[0]); i++) {
		config.endpoint = endpoints[i];
		expect_msg(atoll_tokens_open(&config, &t, NULL) < 0, "%s", endpoints[i]);
	}
}

static void token_through_a_unix_socket(void **state)
{
	struct fix *f = *state;
	const char *path = fix_path(f, "%s/socket", f->dir);
	struct server local;
	struct atoll_tokens_config config = { .endpoint = "http://atoll.example",
		                              .key = SERVER_KEY,
		                              .unix_socket = path };
	struct atoll_tokens *t;

	server_start_unix(&local, path);
	expect_eq(atoll_tokens_open(&config, &t, NULL), 0);
	get_ok(t, "sb-1", "tok-1");
	expect_eq(atomic_load(&local.requests), 1);
	expect_eq(atomic_load(&local.unauthorized), 0);
	atoll_tokens_close(t);
	server_stop(&local);
}

/* ---- secrets ---- */

#define SECRET_LEN 40

/* Made when it is needed, so that no other copy of it lies about. */
static void make_secret(char out[SECRET_LEN + 1], unsigned seed)
{
	for (int i = 0; i < SECRET_LEN; i++) {
		seed = seed * 1103515245u + 12345u;
		out[i] = (char)('a' + (seed >> 16) % 26);
	}
	out[SECRET_LEN] = '\0';
}

static int send_secret(void *user, const struct atoll_token_request *request,
                       struct atoll_token_reply *reply)
{
	char secret[SECRET_LEN + 1], body[256];
	int n;

	(void)request;
	make_secret(secret, *(unsigned *)user);
	n = snprintf(body, sizeof(body), "{\"token\":\"%s\",\"expires_in\":60,\"a\":\"b\"}",
	             secret);
	atoll_token_reply_status(reply, 200);
	n = atoll_token_reply_body(reply, body, (size_t)n);
	explicit_bzero(secret, sizeof(secret));
	explicit_bzero(body, sizeof(body));
	return n;
}

/* Looks for the secret in what this process can write to, but for its own copy of it. */
static int copies_of(unsigned seed)
{
	char line[512], secret[SECRET_LEN + 1];
	FILE *maps = fopen("/proc/self/maps", "re");
	int mem = open("/proc/self/mem", O_RDONLY | O_CLOEXEC), n = 0;
	size_t chunk = 1 << 20;
	char *buf = malloc(chunk);
	unsigned long from, to;

	while (maps && buf && fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx rw", &from, &to) != 2 || !strstr(line, " rw") ||
		    to - from > (1ul << 30))
			continue;
		for (; from < to; from += chunk - SECRET_LEN) {
			ssize_t got =
				pread(mem, buf, to - from < chunk ? to - from : chunk, (off_t)from);

			if (got <= 0)
				break;
			make_secret(secret, seed);
			for (char *p = buf;
			     (p = memmem(p, (size_t)(buf + got - p), secret, SECRET_LEN)) != NULL;
			     p++)
				n += (unsigned long)(p - buf) + from != (unsigned long)secret;
			explicit_bzero(secret, sizeof(secret));
			explicit_bzero(buf, (size_t)got);
		}
	}
	free(buf);
	fclose(maps);
	close(mem);
	return n;
}

static void *use_secret(void *arg)
{
	get_ok(arg, "sb-1", NULL);
	expect_eq(atoll_token_set_field(handle_of(arg, "sb-1"), "c", "1", NULL), 1);
	return NULL;
}

static void token_is_wiped_from_memory(void **state)
{
	struct fix *f = *state;
	unsigned seed = (unsigned)time(NULL);
	const struct atoll_tokens_config config = { .endpoint = "any:",
		                                    .dir = fix_path(f, "%s/tokens", f->dir),
		                                    .send = send_secret,
		                                    .user = &seed };
	struct atoll_tokens *t;
	pthread_t thread;

	for (int i = 0; i < 2; i++) { /* from the answer; from the file */
		expect_eq(atoll_tokens_open(&config, &t, NULL), 0);
		if (i == 0) {
			expect_eq(pthread_create(&thread, NULL, use_secret, t), 0);
			expect_eq(pthread_join(thread, NULL), 0);
		} else {
			expect_eq(atoll_token_set_field(handle_of(t, "sb-1"), "c", "2", NULL), 1);
		}
		expect(copies_of(seed) > 0);
		atoll_tokens_close(t);
		expect_eq(copies_of(seed), 0);
	}
}

static atomic_int threads_begun, threads_gone;

static void thread_gone(void *arg)
{
	(void)arg;
	usleep(20000); /* as a library that gives back what it kept for this thread */
	atomic_fetch_add(&threads_gone, 1);
}

static int send_and_keep(void *user, const struct atoll_token_request *request,
                         struct atoll_token_reply *reply)
{
	const pthread_key_t *key = user;

	(void)request;
	if (!pthread_getspecific(*key)) {
		atomic_fetch_add(&threads_begun, 1);
		expect_eq(pthread_setspecific(*key, reply), 0);
	}
	return -ECONNREFUSED;
}

/* Closed is closed: no thread of the cache runs any more, not even its last lines. */
static void token_close_waits_for_its_threads(void **state)
{
	struct fix *f = *state;
	pthread_key_t key;
	const struct atoll_tokens_config config = { .endpoint = "any:",
		                                    .dir = fix_path(f, "%s/tokens", f->dir),
		                                    .send = send_and_keep,
		                                    .user = &key };

	expect_eq(pthread_key_create(&key, thread_gone), 0);
	for (int round = 0; round < 5; round++) {
		struct atoll_tokens *t = NULL;

		expect_eq(atoll_tokens_open(&config, &t, NULL), 0);
		for (int i = 0; i < 3; i++) {
			const struct atoll_token_call call = { .wait_ms = -1 };
			struct atoll_token_handle *h = handle_of(t, fix_path(f, "sb-%d", i));
			struct atoll_token_wait *w = NULL;
			struct atoll_token *token;

			expect(atoll_token_start(h, &call, &token, &w, NULL) >= 0);
			while (w && atoll_token_wait_result(w, &token, NULL) == -EAGAIN)
				usleep(1000);
			atoll_token_wait_free(w);
		}
		atoll_tokens_close(t);
		expect_eq(atomic_load(&threads_gone), atomic_load(&threads_begun));
	}
	expect(atomic_load(&threads_begun) > 0);
	expect_eq(pthread_key_delete(key), 0);
}

static const struct atest_child children[] = {
	{ "first_use", first_use },
	{ NULL, NULL },
};

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		tok(aut_06_written_only_when_changed),
		tok(aut_08_a_disk_that_stands_still_stops_no_hit),
		tok(aut_09_expired_ones_are_dropped_at_load),
		tok(aut_09_a_token_that_ends_is_renewed),
		tok(aut_10_loaded_once_and_on_first_use),
		tok(der_16_updates_of_processes_are_merged),
		tok(der_16_killed_while_saving),
		tok(der_17_what_is_no_token_is_set_aside),
		tok(der_17_a_directory_that_cannot_be_used),
		tok(token_renewed_in_passing_before_it_ends),
		tok(token_valid_is_served_while_the_service_fails),
		tok(token_others_are_not_mixed_up),
		tok(token_clear_of_another_process_wins),
		tok(token_bad_answers),
		tok(token_a_server_that_hangs_or_is_gone),
		tok(token_retry_after_wins_and_retry_overrides),
		tok(token_404_removes_it),
		tok(token_own_transport_and_bad_arguments),
		tok(token_through_a_unix_socket),
		tok(token_is_wiped_from_memory),
		tok(token_close_waits_for_its_threads),
	};

	return atest_main(argc, argv, tests, children);
}
