/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading an index, as git's Documentation/gitformat-index.txt describes it: a header, entries, extensions,
 * and the hash of all that. How long object names are (20 or 32 bytes) it does not say, so both are tried:
 * only one of them makes the file end where it should.
 */
#include "util/git-index.h"

#include "util/strbuf.h"

#include <stdint.h>
#include <string.h>

#define HEADER_LEN      12u
#define STAT_LEN        40u /* of an entry: times, device, inode, mode, owner, group, size */
#define MODE_AT         24u
#define MODE_LEN        4u
#define MODE_TYPE       0170000u
#define MODE_GITLINK    0160000u
#define FLAG_EXTENDED   0x4000u /* two more bytes of flags follow */
#define EXTENSION_HEAD  8u      /* name and length */
#define VERSION_OLDEST  2u
#define VERSION_NEWEST  4u
#define VERSION_NO_PADS 4u /* paths are compressed, and entries not padded */

struct index {
	const unsigned char *p;
	size_t len; /* without the hash at the end */
	size_t name_len;
	uint32_t version, n;
	struct hash *h;  /* NULL: only looked at */
	git_index_fn fn; /* NULL: nobody asks */
	void *user;
	struct strbuf *path; /* of the entry at hand, for FN */
};

static uint32_t number(const unsigned char *at)
{
	return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void say(const struct index *x, size_t from, size_t len)
{
	if (x->h)
		hash_add(x->h, x->p + from, len);
}

/* The path at AT, with what it shares with the one before and its NUL. Its length, 0 when there is no end. */
static size_t path_length(const struct index *x, size_t at)
{
	size_t from = at;
	const unsigned char *end;

	if (x->version >= VERSION_NO_PADS) {
		while (at < x->len && x->p[at] & 0x80)
			at++;
		at++;
	}
	end = at < x->len ? memchr(x->p + at, '\0', x->len - at) : NULL;
	return end ? (size_t)(end - x->p) - from + 1 : 0;
}

/* How many bytes of the path before are not in this one. */
static size_t read_varint(const unsigned char **at)
{
	size_t n = **at & 0x7f;

	while (*(*at)++ & 0x80)
		n = ((n + 1) << 7) + (**at & 0x7f);
	return n;
}

/* The path at AT, which is valid. */
static void read_path(const struct index *x, size_t at)
{
	const unsigned char *p = x->p + at;
	size_t dropped = x->version >= VERSION_NO_PADS ? read_varint(&p) : x->path->len;

	strbuf_truncate(x->path, dropped < x->path->len ? x->path->len - dropped : 0);
	strbuf_puts(x->path, (const char *)p);
}

static bool is_gitlink(const struct index *x, size_t at)
{
	return (number(x->p + at + MODE_AT) & MODE_TYPE) == MODE_GITLINK;
}

/* The entry at AT; where the next one is, 0 when it is not valid. *RET_FOUND: FN has answered true. */
static size_t read_entry(const struct index *x, size_t at, bool *ret_found)
{
	size_t from = at, rest = STAT_LEN + x->name_len + 2, path;

	if (x->len - at < rest)
		return 0;
	say(x, at + MODE_AT, MODE_LEN);
	at += STAT_LEN;
	if (x->p[at + x->name_len] & (FLAG_EXTENDED >> 8))
		rest += 2;
	if (x->len - from < rest)
		return 0;
	path = path_length(x, from + rest);
	if (!path)
		return 0;
	say(x, at, rest - STAT_LEN + path);
	if (x->fn)
		read_path(x, from + rest);
	*ret_found = x->fn && is_gitlink(x, from) && x->fn(x->user, strbuf_str(x->path));
	at = from + rest + path;
	/* One to eight NULs end it, of which one was counted. */
	if (x->version < VERSION_NO_PADS)
		at = from + (at - from + 7) / 8 * 8;
	return at <= x->len ? at : 0;
}

/* One that git may ignore, and that is not what the user did (REUC: conflicts that were resolved). */
static bool is_cache(const unsigned char *name)
{
	return name[0] >= 'A' && name[0] <= 'Z' && memcmp(name, "REUC", 4) != 0;
}

static bool find_gitlink(const struct index *x)
{
	bool found = false;

	for (size_t i = 0, at = HEADER_LEN; i < x->n && !found; i++)
		at = read_entry(x, at, &found);
	return found;
}

static bool read_all(const struct index *x)
{
	size_t at = HEADER_LEN;
	bool found;

	say(x, 0, HEADER_LEN);
	for (uint32_t i = 0; i < x->n; i++) {
		at = read_entry(x, at, &found);
		if (!at)
			return false;
	}
	while (at < x->len) {
		size_t len;

		if (x->len - at < EXTENSION_HEAD)
			return false;
		len = number(x->p + at + 4);
		if (len > x->len - at - EXTENSION_HEAD)
			return false;
		if (!is_cache(x->p + at))
			say(x, at, EXTENSION_HEAD + len);
		at += EXTENSION_HEAD + len;
	}
	return true;
}

/* False: it is none. */
static bool open_index(struct index *x, const void *data, size_t len)
{
	static const size_t name_lens[] = { 20, 32 };

	*x = (struct index){ .p = data };
	if (len < HEADER_LEN || memcmp(data, GIT_INDEX_MAGIC, GIT_INDEX_MAGIC_LEN) != 0)
		return false;
	x->version = number(x->p + 4);
	x->n = number(x->p + 8);
	if (x->version < VERSION_OLDEST || x->version > VERSION_NEWEST)
		return false;
	for (size_t i = 0; i < sizeof(name_lens) / sizeof(name_lens[0]); i++) {
		x->name_len = name_lens[i];
		if (len < HEADER_LEN + x->name_len)
			continue;
		x->len = len - x->name_len;
		if (read_all(x))
			return true;
	}
	return false;
}

bool git_index_add(const void *data, size_t len, struct hash *h)
{
	struct index x;

	if (!open_index(&x, data, len))
		return false;
	x.h = h;
	return read_all(&x);
}

bool git_index_find_gitlink(const void *data, size_t len, git_index_fn fn, void *user)
{
	cleanup_strbuf struct strbuf path = STRBUF_INIT;
	struct index x;

	if (!open_index(&x, data, len))
		return false;
	x.fn = fn;
	x.user = user;
	x.path = &path;
	return find_gitlink(&x);
}
