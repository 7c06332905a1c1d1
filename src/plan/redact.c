/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command lines for lock records and history. What looks like a secret is left out: the value of
 * NAME=value, name:value and --name=value and the argument after --name, where the name has one of
 * the words below; a password in a URL, after "-u user:" or "-uuser:", and after "-p" of programs
 * that take it so; what follows "Bearer" and "Basic". An argument with several words is looked at word
 * by word, as a shell given it by -c would. A guess, not a guarantee; so lock records carry argv[0]
 * alone.
 */
#include "plan/plan.h"

#include <ctype.h>
#include <string.h>

#include "util/escape.h"
#include "util/strbuf.h"

#define LINE_MAX_LEN 2048
#define HIDDEN       "[hidden]"
/* What ends a word, for a shell and for whatever else may be in quotes. */
#define BREAKS " \t\n\r\"'`;|&()<>"

static const char *const secret_words[] = {
	"pass", "secret", "token", "key", "credential", "auth"
};
/* Not secret themselves, but what comes next is. */
static const char *const schemes[] = { "bearer", "basic" };
static const char *const user_options[] = { "-u", "-U", "--user", "--proxy-user" };
/* "-pPASSWORD"; of the last one "-p PASSWORD", too. */
static const char *const p_programs[] = { "mysql",   "mysqldump",    "mysqladmin",
	                                  "mariadb", "mariadb-dump", "sshpass" };
#define N(a) (sizeof(a) / sizeof((a)[0]))

/* What the words before say of the next. */
enum expect { EXPECT_ANYTHING = 0, EXPECT_SECRET, EXPECT_USER };

struct redaction {
	struct strbuf *out;
	enum expect expect;
	bool p_is_secret;
	bool p_takes_next;
};

static bool is_secret_name(const char *name, size_t len)
{
	for (size_t w = 0; w < N(secret_words); w++) {
		size_t n = strlen(secret_words[w]);

		for (size_t i = 0; i + n <= len; i++)
			if (strncasecmp(name + i, secret_words[w], n) == 0)
				return true;
	}
	return false;
}

static bool is_one_of(const char *const *words, size_t n, const char *s, size_t len)
{
	for (size_t i = 0; i < n; i++)
		if (strlen(words[i]) == len && strncasecmp(words[i], s, len) == 0)
			return true;
	return false;
}

static const char *find(const char *s, size_t len, const char *what)
{
	return memmem(s, len, what, strlen(what));
}

/* Length of "scheme://user:" when S is a URL with a password, else 0; *ret_end: the '@'. */
static size_t url_password(const char *s, size_t len, const char **ret_end)
{
	const char *host = find(s, len, "://");
	const char *at, *colon;
	size_t n;

	if (!host)
		return 0;
	host += 3;
	for (n = 0; host + n < s + len && host[n] != '/'; n++)
		;
	at = memrchr(host, '@', n);
	colon = memchr(host, ':', n);
	if (!at || !colon || colon > at)
		return 0;
	*ret_end = at;
	return (size_t)(colon + 1 - s);
}

static void keep(struct redaction *r, const char *s, size_t len)
{
	escape_add(r->out, s, len);
}

static void hide_after(struct redaction *r, const char *s, size_t kept)
{
	keep(r, s, kept);
	strbuf_puts(r->out, HIDDEN);
}

/* Where the name in "name=value", "name:value" ends; LEN: there is no value. */
static size_t name_end(const char *s, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (s[i] == '=' || (s[i] == ':' && strncmp(s + i, "://", 3) != 0))
			return i;
	return len;
}

static void note_program(struct redaction *r, const char *s, size_t len)
{
	const char *slash = memrchr(s, '/', len);
	const char *base = slash ? slash + 1 : s;
	size_t n = len - (size_t)(base - s);

	if (!is_one_of(p_programs, N(p_programs), base, n))
		return;
	r->p_is_secret = true;
	r->p_takes_next = is_one_of(&p_programs[N(p_programs) - 1], 1, base, n);
}

/* What the word leads to expect; *ret_kept: how much of it may be seen. */
static enum expect read_word(const struct redaction *r, const char *s, size_t len, size_t *ret_kept)
{
	size_t end = name_end(s, len);

	*ret_kept = len;
	if (r->expect == EXPECT_USER && end < len && s[end] == ':') {
		*ret_kept = end + 1;
	} else if (is_one_of(schemes, N(schemes), s, len)) {
		return EXPECT_SECRET;
	} else if (r->expect == EXPECT_SECRET) {
		*ret_kept = 0;
	} else if (is_one_of(user_options, N(user_options), s, len)) {
		return EXPECT_USER;
	} else if (len > 2 && s[0] == '-' && s[1] == 'u' && end < len && s[end] == ':') {
		*ret_kept = end + 1;
	} else if (r->p_is_secret && len >= 2 && s[0] == '-' && s[1] == 'p') {
		*ret_kept = 2;
		if (len == 2)
			return r->p_takes_next ? EXPECT_SECRET : EXPECT_ANYTHING;
	} else if (end < len && is_secret_name(s, end)) {
		if (is_one_of(schemes, N(schemes), s + end + 1, len - end - 1))
			return EXPECT_SECRET;
		*ret_kept = end + 1;
		/* "Authorization: Bearer x", NAME='quoted': the value is the next word. */
		if (*ret_kept == len)
			return EXPECT_SECRET;
	} else if (end == len && s[0] == '-' && is_secret_name(s, len)) {
		return EXPECT_SECRET;
	}
	return EXPECT_ANYTHING;
}

static void add_word(struct redaction *r, const char *s, size_t len)
{
	const char *at = NULL;
	size_t kept, url;
	enum expect next = read_word(r, s, len, &kept);

	note_program(r, s, len);
	r->expect = next;
	if (kept < len) {
		hide_after(r, s, kept);
		return;
	}
	url = url_password(s, len, &at);
	if (url) {
		hide_after(r, s, url);
		keep(r, at, len - (size_t)(at - s));
	} else {
		keep(r, s, len);
	}
}

/* Up to the quote that ends what begins with QUOTE; SIZE_MAX: none does. */
static size_t quoted(const char *s, char quote)
{
	for (size_t i = 0; s[i]; i++) {
		if (s[i] == quote)
			return i;
		if (s[i] == '\\' && quote == '"' && s[i + 1])
			i++;
	}
	return SIZE_MAX;
}

/* What was expected is all of S, whatever is in it, but for the first *ret_kept bytes. */
static bool hides_all(const struct redaction *r, const char *s, size_t len, size_t *ret_kept)
{
	const char *colon = memchr(s, ':', len);

	*ret_kept = r->expect == EXPECT_USER && colon ? (size_t)(colon + 1 - s) : 0;
	if (r->expect == EXPECT_USER)
		return colon != NULL;
	return r->expect == EXPECT_SECRET && !is_one_of(schemes, N(schemes), s, strcspn(s, BREAKS));
}

static void add_script(struct redaction *r, const char *s)
{
	while (*s) {
		size_t word = strcspn(s, BREAKS), n;

		if (word > 0) {
			add_word(r, s, word);
			s += word;
			continue;
		}
		n = *s == '"' || *s == '\'' ? quoted(s + 1, *s) : SIZE_MAX;
		if (n != SIZE_MAX && hides_all(r, s + 1, n, &word)) {
			hide_after(r, s, 1 + word);
			keep(r, s + 1 + n, 1);
			r->expect = EXPECT_ANYTHING;
			s += n + 2;
			continue;
		}
		/* A new command begins: what the last one wanted it did not get. */
		if (strchr(";|&\n", *s))
			r->expect = EXPECT_ANYTHING;
		keep(r, s++, 1);
	}
}

static void add_argument(struct redaction *r, const char *arg, bool is_script)
{
	size_t word = strcspn(arg, BREAKS);
	size_t end = name_end(arg, word), kept, url;
	const char *at = NULL;

	if (hides_all(r, arg, strlen(arg), &kept)) {
		hide_after(r, arg, kept);
		r->expect = EXPECT_ANYTHING;
	} else if (!is_script && (url = url_password(arg, strlen(arg), &at)) > 0) {
		hide_after(r, arg, url);
		keep(r, at, strlen(at));
		r->expect = EXPECT_ANYTHING;
	} else if (!is_script && end < word && arg[end] == '=' && is_secret_name(arg, end)) {
		hide_after(r, arg, end + 1);
	} else {
		add_script(r, arg);
	}
}

/* "-c", "-lc", as shells have it. */
static bool takes_script(const char *arg)
{
	return arg[0] == '-' && arg[1] != '-' && strlen(arg) >= 2 && arg[strlen(arg) - 1] == 'c';
}

char *redact_command(const char *const *argv)
{
	cleanup_strbuf struct strbuf sb = STRBUF_INIT;
	struct redaction r = { .out = &sb };

	for (size_t i = 0; argv[i] && sb.len < LINE_MAX_LEN; i++) {
		if (i > 0)
			strbuf_putc(&sb, ' ');
		add_argument(&r, argv[i], i > 0 && takes_script(argv[i - 1]));
	}
	if (sb.len > LINE_MAX_LEN) {
		strbuf_truncate(&sb, LINE_MAX_LEN);
		strbuf_puts(&sb, "...");
	}
	return strbuf_take(&sb);
}
