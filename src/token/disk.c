/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens and flight records in their directory. */
#include "token/disk-impl.h"

#include "fs/atomic.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/mem.h"
#include "util/random.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BAD_HEX   16
#define OLD_S     3600  /* strays and records */
#define OLDER_S   86400 /* locks nobody used */
#define TOKEN_END ".tok"

/* ---- names ---- */

void disk_key(const struct disk *d, const char *sandbox, struct disk_key *ret)
{
	struct hash *h = hash_new();

	hash_add(h, d->endpoint, strlen(d->endpoint) + 1);
	hash_add(h, d->principal, strlen(d->principal) + 1);
	hash_add(h, sandbox, strlen(sandbox) + 1);
	hash_text(h, ret->stem);
	hash_free(h);
	ret->sandbox = sandbox;
}

static void name_of(const char *stem, const char *end, char out[DISK_NAME_LEN])
{
	(void)snprintf(out, DISK_NAME_LEN, "%.32s%s", stem, end);
}

static void say(struct disk *d, const char *name, const char *text)
{
	cleanup_free char *path = xasprintf("%s%s%s", d->path, name[0] ? "/" : "", name);

	if (d->notice)
		d->notice(d->user, path, text);
}

/* ---- the directory ---- */

static int open_dir(struct disk *d)
{
	cleanup_free char *path = xstrdup(d->path);
	cleanup_close int parent = FD_NONE;
	char *slash;

	for (slash = path + strlen(path); slash > path + 1 && slash[-1] == '/';)
		*--slash = '\0';
	slash = strrchr(path, '/');
	if (slash)
		*slash = '\0';
	parent = open(!slash          ? "."
	              : slash == path ? "/"
	                              : path,
	              O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (parent < 0)
		return -errno;
	return fs_private_dir_at(parent, slash ? slash + 1 : path, &d->fd);
}

/* pthread_once() takes no argument. */
static _Thread_local struct disk *to_open;

static void open_once(void)
{
	struct disk *d = to_open;
	int r = d->path ? open_dir(d) : -ENOENT;

	if (r == 0 || !d->path)
		return;
	d->fd = FD_NONE;
	say(d, "",
	    r == -EPERM
	            ? "belongs to somebody else or is open to others: tokens are kept in memory only"
	            : "cannot be used: tokens are kept in memory only");
}

bool disk_ready(struct disk *d)
{
	to_open = d;
	(void)pthread_once(&d->once, open_once);
	return d->fd >= 0;
}

void disk_close(struct disk *d)
{
	close_fd(&d->fd);
	free(d->path);
	free(d->endpoint);
	free(d->principal);
}

/* ---- one token ---- */

static void set_aside(struct disk *d, const char *name, const char *wrong)
{
	char bad[sizeof(".bad-") + BAD_HEX] = ".bad-";
	cleanup_free char *text = NULL;
	int r;

	random_hex(bad + strlen(bad), BAD_HEX);
	r = fs_move(d->fd, name, d->fd, bad);
	/* Another process was quicker, and said so. */
	if (r == -ENOENT)
		return;
	if (r == 0)
		text = xasprintf("%s: set aside as '%s'", wrong, bad);
	else
		text = xasprintf("%s, and cannot be set aside: ignoring it", wrong);
	say(d, name, text);
}

enum found { FOUND_NONE, FOUND_BAD, FOUND_OVER, FOUND_TOKEN };

static enum found look(struct disk *d, const char *name, struct form *f, struct token_file *file,
                       const char **ret_wrong)
{
	int r = form_read(d->fd, name, f, ret_wrong);

	if (r == -ENOENT)
		return FOUND_NONE;
	if (r < 0)
		return FOUND_BAD;
	if (token_file_read(f, file) < 0)
		return FOUND_BAD;
	return token_left(file->token, token_now()) > 0 ? FOUND_TOKEN : FOUND_OVER;
}

static bool is_ours(const struct disk *d, const struct token_file *file)
{
	return strcmp(file->endpoint, d->endpoint) == 0 &&
	       strcmp(file->principal, d->principal) == 0;
}

/* Looks and tidies. Locking: the ticket is held. */
static enum found look_and_drop(struct disk *d, const char *name, struct form *f,
                                struct token_file *file)
{
	const char *wrong = NULL;
	enum found found = look(d, name, f, file, &wrong);

	if (found == FOUND_BAD)
		set_aside(d, name, wrong);
	if (found == FOUND_OVER)
		(void)fs_unlink_at(d->fd, name);
	return found;
}

int disk_read(struct disk *d, const struct disk_key *key, struct atoll_token **ret_token)
{
	cleanup_form struct form f = { 0 };
	cleanup_token struct atoll_token *token = NULL;
	struct token_file file = { 0 };
	char name[DISK_NAME_LEN];
	enum found found;

	name_of(key->stem, TOKEN_END, name);
	found = look_and_drop(d, name, &f, &file);
	token = file.token;
	if (found != FOUND_TOKEN)
		return 0;
	if (!is_ours(d, &file) || strcmp(file.sandbox, key->sandbox) != 0) {
		set_aside(d, name, "is the token of something else");
		return 0;
	}
	*ret_token = take_ptr(token);
	return 1;
}

int disk_write(struct disk *d, const struct disk_key *key, struct atoll_token *token)
{
	cleanup_form struct form f = { 0 };
	const struct token_file file = { d->endpoint, d->principal, key->sandbox, token };
	char name[DISK_NAME_LEN];
	int r;

	name_of(key->stem, TOKEN_END, name);
	token_file_write(&f, &file);
	r = fs_replace_file(d->fd, name, f.data, f.len, 0600);
	if (r == -EISDIR || r == -ENOTEMPTY || r == -EEXIST) {
		set_aside(d, name, "is not a plain file");
		r = fs_replace_file(d->fd, name, f.data, f.len, 0600);
	}
	if (r < 0 && !atomic_exchange(&d->write_told, true))
		say(d, name, "cannot be written: tokens are kept in memory");
	return r;
}

void disk_remove(struct disk *d, const struct disk_key *key)
{
	char name[DISK_NAME_LEN];

	name_of(key->stem, TOKEN_END, name);
	(void)fs_unlink_at(d->fd, name);
}

/* ---- records ---- */

static int parse_record(struct form *f, struct record *rec)
{
	static const char *const names[] = { "attempt", "kind", "code", "status", "until" };
	long long v[5];
	char *lines, *text;

	if (form_open(f, "atoll-flight", &lines) < 0)
		return -EBADMSG;
	for (size_t i = 0; i < 5; i++) {
		char *value = form_next(&lines, names[i]);

		if (!value)
			return -EBADMSG;
		v[i] = strtoll(value, NULL, 10);
	}
	text = form_next(&lines, "message");
	if (!text || v[1] <= RECORD_NONE || v[1] > RECORD_CLEARED || v[2] > 0 || v[2] < -65536)
		return -EBADMSG;
	rec->attempt = (uint64_t)v[0];
	rec->kind = (enum record_kind)v[1];
	rec->code = (int)v[2];
	rec->status = (int)v[3];
	rec->real_ns = v[4];
	(void)snprintf(rec->message, sizeof(rec->message), "%s", text);
	return 0;
}

void record_read(struct disk *d, const struct disk_key *key, struct record *ret)
{
	cleanup_form struct form f = { 0 };
	char name[DISK_NAME_LEN];
	const char *wrong;

	*ret = (struct record){ .kind = RECORD_NONE };
	name_of(key->stem, ".fl", name);
	if (form_read(d->fd, name, &f, &wrong) == 0 && parse_record(&f, ret) < 0)
		*ret = (struct record){ .kind = RECORD_NONE };
}

void record_write(struct disk *d, const struct disk_key *key, struct record *rec)
{
	cleanup_form struct form f = { 0 };
	char name[DISK_NAME_LEN];
	int r;

	random_bytes(&rec->attempt, sizeof(rec->attempt));
	rec->attempt >>= 1;
	name_of(key->stem, ".fl", name);
	form_init(&f, sizeof(rec->message) + 256);
	form_line(&f, "attempt\t%" PRIu64, rec->attempt);
	form_line(&f, "kind\t%d", (int)rec->kind);
	form_line(&f, "code\t%d", rec->code);
	form_line(&f, "status\t%d", rec->status);
	form_line(&f, "until\t%" PRId64, rec->real_ns);
	form_line(&f, "message\t%s", rec->message);
	form_seal(&f, "atoll-flight");
	r = fs_replace_file(d->fd, name, f.data, f.len, 0600);
	if (r == -EISDIR || r == -ENOTEMPTY || r == -EEXIST) {
		set_aside(d, name, "is not a plain file");
		(void)fs_replace_file(d->fd, name, f.data, f.len, 0600);
	}
}

void record_remove(struct disk *d, const struct disk_key *key)
{
	char name[DISK_NAME_LEN];

	name_of(key->stem, ".fl", name);
	(void)fs_unlink_at(d->fd, name);
}

/* ---- all of them ---- */

static bool older_than(int dir_fd, const char *name, int64_t seconds)
{
	struct stat st;

	return fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       clock_real_ns() / 1000000000 - st.st_mtime > seconds;
}

static bool try_lock(struct disk *d, const char *stem, struct ticket *t)
{
	const struct ticket_options now = { .command = "tokens" };
	char name[DISK_NAME_LEN];
	int r;

	name_of(stem, ".lk", name);
	r = ticket_acquire(t, d->fd, name, &now);
	return r == 0 || r == -ATOLL_E_LOCK_UNSUPPORTED;
}

/* With its lock, which goes, too: nobody holds it, and who waits begins again. */
static void unlock_gone(struct disk *d, const char *stem, struct ticket *t)
{
	char name[DISK_NAME_LEN];

	name_of(stem, ".lk", name);
	if (t->fd >= 0)
		(void)fs_unlink_at(d->fd, name);
	ticket_release(t);
}

/* Once more under the lock: meanwhile somebody may have put a good one there. */
static void drop_one(struct disk *d, const char *name)
{
	cleanup_form struct form f = { 0 };
	struct ticket t = TICKET_INIT;
	struct token_file file = { 0 };

	if (!try_lock(d, name, &t))
		return;
	if (look_and_drop(d, name, &f, &file) == FOUND_OVER)
		unlock_gone(d, name, &t);
	else
		ticket_release(&t);
	atoll_token_unref(file.token);
}

static void clear_one(struct disk *d, const char *sandbox)
{
	struct record rec = { .kind = RECORD_CLEARED };
	struct disk_key key;

	disk_key(d, sandbox, &key);
	record_write(d, &key, &rec);
	disk_remove(d, &key);
}

static void sweep_token(struct disk *d, const char *name, disk_fn fn, void *user)
{
	cleanup_form struct form f = { 0 };
	struct token_file file = { 0 };
	const char *wrong;
	enum found found = look(d, name, &f, &file, &wrong);

	if (found == FOUND_BAD || found == FOUND_OVER)
		drop_one(d, name);
	else if (found == FOUND_TOKEN && is_ours(d, &file) && fn(user, file.sandbox, file.token))
		clear_one(d, file.sandbox);
	atoll_token_unref(file.token);
}

static void sweep_lock(struct disk *d, const char *name)
{
	struct ticket t = TICKET_INIT;

	if (older_than(d->fd, name, OLDER_S) && try_lock(d, name, &t))
		unlock_gone(d, name, &t);
}

static bool ends_with(const char *name, const char *end)
{
	size_t n = strlen(name), m = strlen(end);

	return n == HASH_TEXT_LEN - 1 + m && strcmp(name + n - m, end) == 0;
}

static void sweep_one(struct disk *d, const char *name, disk_fn fn, void *user)
{
	if (ends_with(name, TOKEN_END))
		sweep_token(d, name, fn, user);
	else if (ends_with(name, ".lk"))
		sweep_lock(d, name);
	else if ((ends_with(name, ".fl") || strncmp(name, ".tmp-", 5) == 0) &&
	         older_than(d->fd, name, OLD_S))
		(void)fs_unlink_at(d->fd, name);
}

void disk_sweep(struct disk *d, disk_fn fn, void *user)
{
	int fd = openat(d->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!dir) {
		close_fd(&fd);
		return;
	}
	while ((e = readdir(dir)) != NULL)
		sweep_one(d, e->d_name, fn, user);
	(void)closedir(dir);
}
