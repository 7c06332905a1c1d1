/* SPDX-License-Identifier: Apache-2.0 */
/* The lexical rules of PostgreSQL 15, as far as they decide where a statement ends. */
#include "postgres/sql.h"

#include "util/mem.h"
#include "util/strbuf.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define N_WORDS 24 /* the first words of a statement that are looked at */

struct word {
	size_t start, end;
};

struct lexer {
	const char *text;
	size_t len;
	size_t at;
	bool backslashes;
	/* of the statement at hand */
	struct word words[N_WORDS];
	size_t n_words;
	size_t others; /* tokens that are no words, and words that found no room; no commas */
	size_t start;  /* of its first token; LEN: none yet */
	size_t end;    /* of its last token */
	size_t parens;
	size_t bodies; /* BEGIN ATOMIC ... END, and CASE inside */
	bool begun;    /* the last token was BEGIN */
	bool routine;  /* CREATE [OR REPLACE] FUNCTION or PROCEDURE */
	unsigned flags;
	bool snapshot; /* pg_export_snapshot is in it */
	enum {
		AS_NONE,
		AS_NOW,
		AS_EXECUTE,
		AS_DONE
	} as;                 /* CREATE TABLE ... AS EXECUTE name: how far */
	struct word executed; /* the name */
};

static bool is_ident_start(char c)
{
	return isalpha((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80;
}

static bool is_ident(char c)
{
	return is_ident_start(c) || isdigit((unsigned char)c) || c == '$';
}

static char peek(const struct lexer *x, size_t ahead)
{
	return x->at + ahead < x->len ? x->text[x->at + ahead] : '\0';
}

static bool word_is(const struct lexer *x, struct word w, const char *is)
{
	return w.end - w.start == strlen(is) &&
	       strncasecmp(x->text + w.start, is, w.end - w.start) == 0;
}

/* ---- tokens: each leaves AT behind what it passed ---- */

static void skip_line(struct lexer *x)
{
	while (x->at < x->len && x->text[x->at] != '\n' && x->text[x->at] != '\r')
		x->at++;
}

static void skip_comment(struct lexer *x)
{
	size_t depth = 0;

	while (x->at < x->len) {
		if (peek(x, 0) == '/' && peek(x, 1) == '*') {
			depth++;
			x->at += 2;
		} else if (peek(x, 0) == '*' && peek(x, 1) == '/') {
			x->at += 2;
			if (--depth == 0)
				return;
		} else {
			x->at++;
		}
	}
}

/* White space and line comments with a newline among them, then a quote: the same string. */
static bool continues(struct lexer *x)
{
	size_t before = x->at;
	bool newline = false;

	while (x->at < x->len) {
		char c = x->text[x->at];

		if (c == '-' && peek(x, 1) == '-') {
			skip_line(x);
			continue;
		}
		if (!isspace((unsigned char)c))
			break;
		newline |= c == '\n' || c == '\r';
		x->at++;
	}
	if (newline && peek(x, 0) == '\'')
		return true;
	x->at = before;
	return false;
}

static void skip_quoted(struct lexer *x, char quote, bool backslashes)
{
	do {
		x->at++;
		while (x->at < x->len) {
			char c = x->text[x->at++];

			if (c == '\\' && backslashes && x->at < x->len)
				x->at++;
			else if (c == quote && peek(x, 0) == quote)
				x->at++;
			else if (c == quote)
				break;
		}
	} while (quote == '\'' && continues(x));
}

/* $tag$ ... $tag$, or something else that begins with a dollar sign. */
static void skip_dollar(struct lexer *x)
{
	size_t tag = x->at++;
	size_t len;

	if (is_ident_start(peek(x, 0)))
		while (is_ident(peek(x, 0)) && peek(x, 0) != '$')
			x->at++;
	if (peek(x, 0) != '$')
		return;
	len = ++x->at - tag;
	for (; x->at + len <= x->len; x->at++) {
		if (memcmp(x->text + x->at, x->text + tag, len) == 0) {
			x->at += len;
			return;
		}
	}
	x->at = x->len;
}

/* ---- what a statement is ---- */

static void note_word(struct lexer *x, struct word w)
{
	size_t bare = w.start + (x->text[w.start] == '"');

	if (word_is(x, w, "set_config") || word_is(x, w, "\"set_config\""))
		x->flags |= SQL_SETS | SQL_CONFIG;
	if (word_is(x, w, "pg_notify"))
		x->flags |= SQL_NOTIFIES;
	x->snapshot |= word_is(x, w, "pg_export_snapshot");
	if (w.end - bare >= strlen(SQL_OURS) &&
	    strncasecmp(x->text + bare, SQL_OURS, strlen(SQL_OURS)) == 0)
		x->flags |= SQL_RESERVED;
	if (x->n_words < N_WORDS)
		x->words[x->n_words++] = w;
	else
		x->others++;
}

/* CREATE [OR REPLACE] FUNCTION f() BEGIN ATOMIC ...; ... END: its semicolons end nothing. */
static void note_body(struct lexer *x, struct word w)
{
	size_t what = 1;

	if (x->n_words > 3 && word_is(x, x->words[1], "or"))
		what = 3;
	if (x->n_words > what && word_is(x, x->words[0], "create"))
		x->routine = word_is(x, x->words[what], "function") ||
		             word_is(x, x->words[what], "procedure");
	if (!x->routine || x->parens > 0)
		return;
	if (x->bodies == 0)
		x->bodies = x->begun && word_is(x, w, "atomic");
	else if (word_is(x, w, "case"))
		x->bodies++;
	else if (word_is(x, w, "end"))
		x->bodies--;
}

/* The first AS outside of parentheses: is EXECUTE behind it, and a name? */
static void note_as(struct lexer *x, struct word w)
{
	if (x->parens > 0)
		return;
	if (x->as == AS_NONE && word_is(x, w, "as")) {
		x->as = AS_NOW;
	} else if (x->as == AS_NOW) {
		x->as = word_is(x, w, "execute") ? AS_EXECUTE : AS_DONE;
	} else if (x->as == AS_EXECUTE) {
		x->executed = w;
		x->as = AS_DONE;
	}
}

static struct word word_at(const struct lexer *x, size_t i)
{
	return i < x->n_words ? x->words[i] : (struct word){ 0 };
}

static bool nth_is(const struct lexer *x, size_t i, const char *is)
{
	return i < x->n_words && word_is(x, x->words[i], is);
}

static bool any_is(const struct lexer *x, const char *first, const char *second)
{
	for (size_t i = 0; i + 1 < x->n_words; i++)
		if (word_is(x, x->words[i], first) && word_is(x, x->words[i + 1], second))
			return true;
	return false;
}

/* Nothing follows the first N words. What is not wholly understood is no statement of these kinds. */
static void must_end(const struct lexer *x, struct sql_statement *s, size_t n)
{
	if (x->n_words != n || x->others > 0)
		s->kind = SQL_ODD;
}

/* Words after COMMIT, ROLLBACK and their like that mean nothing. */
static size_t after_noise(const struct lexer *x)
{
	return nth_is(x, 1, "work") || nth_is(x, 1, "transaction") ? 2 : 1;
}

/* ISOLATION LEVEL ..., READ ONLY and the like, from the word I on; the word behind them. */
static size_t take_modes(const struct lexer *x, size_t i, struct sql_statement *s)
{
	static const struct {
		const char *words[4];
		unsigned flag;
	} modes[] = {
		{ { "isolation", "level", "serializable" }, SQL_SERIALIZABLE },
		{ { "isolation", "level", "repeatable", "read" }, 0 },
		{ { "isolation", "level", "read", "committed" }, 0 },
		{ { "isolation", "level", "read", "uncommitted" }, 0 },
		{ { "read", "only" }, SQL_READ_ONLY },
		{ { "read", "write" }, SQL_READ_WRITE },
		{ { "not", "deferrable" }, 0 },
		{ { "deferrable" }, 0 },
	};
	size_t m = 0;

	while (m < sizeof(modes) / sizeof(modes[0])) {
		size_t n = 0;

		while (n < 4 && modes[m].words[n] && nth_is(x, i + n, modes[m].words[n]))
			n++;
		if (n < 4 && modes[m].words[n]) {
			m++;
			continue;
		}
		if (modes[m].flag & (SQL_READ_ONLY | SQL_READ_WRITE))
			s->flags &= ~(SQL_READ_ONLY | SQL_READ_WRITE);
		s->flags |= modes[m].flag;
		i += n;
		m = 0;
	}
	return i;
}

/* What SET or RESET is about, from the word I on. */
static void classify_setting(const struct lexer *x, struct sql_statement *s, size_t i)
{
	struct word w;

	i += nth_is(x, i, "time");
	w = word_at(x, i);
	s->name_start = w.start;
	s->name_end = w.end;
	/* a.b is one name */
	if (w.end < x->len && x->text[w.end] == '.' && x->n_words > i + 1)
		s->name_end = x->words[i + 1].end;
}

static void classify_set(const struct lexer *x, struct sql_statement *s)
{
	s->flags |= SQL_SETS;
	if (nth_is(x, 1, "transaction") && nth_is(x, 2, "snapshot")) {
		s->kind = SQL_SNAPSHOT;
	} else if (nth_is(x, 1, "transaction")) {
		s->kind = SQL_SET_TRANSACTION;
		must_end(x, s, take_modes(x, 2, s));
	} else if (nth_is(x, 1, "session") && nth_is(x, 2, "characteristics")) {
		(void)take_modes(x, 5, s);
	} else if (nth_is(x, 1, "constraints")) {
		s->kind = SQL_SET_CONSTRAINTS;
	} else if (nth_is(x, 1, "local")) {
		s->kind = SQL_SET_LOCAL;
		classify_setting(x, s, 2);
	} else {
		classify_setting(x, s, nth_is(x, 1, "session") && x->n_words > 2 ? 2 : 1);
	}
}

/* A name, the word I, perhaps after SAVEPOINT. One with escapes is no word: it could be ours. */
static void classify_savepoint(const struct lexer *x, struct sql_statement *s, size_t i)
{
	i += nth_is(x, i, "savepoint") && x->n_words > i + 1;
	s->kind = SQL_SAVEPOINT;
	s->name_start = word_at(x, i).start;
	s->name_end = word_at(x, i).end;
	must_end(x, s, i + 1);
}

static void classify_end(const struct lexer *x, struct sql_statement *s, enum sql_kind kind)
{
	size_t next = after_noise(x);

	s->kind = kind;
	if (nth_is(x, 1, "prepared")) {
		s->kind = SQL_TWO_PHASE;
	} else if (kind == SQL_ROLLBACK && nth_is(x, next, "to")) {
		classify_savepoint(x, s, next + 1);
	} else if (nth_is(x, next, "and") && nth_is(x, next + 1, "chain")) {
		s->flags |= SQL_CHAIN;
		must_end(x, s, next + 2);
	} else if (nth_is(x, next, "and") && nth_is(x, next + 1, "no") &&
	           nth_is(x, next + 2, "chain")) {
		must_end(x, s, next + 3);
	} else {
		must_end(x, s, next);
	}
}

static void classify_named(const struct lexer *x, struct sql_statement *s)
{
	size_t name = 1;

	if (nth_is(x, 0, "prepare") && nth_is(x, 1, "transaction")) {
		s->kind = SQL_TWO_PHASE;
		return;
	}
	if (nth_is(x, 0, "deallocate")) {
		s->kind = SQL_DEALLOCATE;
		name = nth_is(x, 1, "prepare") && x->n_words > 2 ? 2 : 1;
		s->flags |= nth_is(x, name, "all") ? SQL_ALL : 0;
		must_end(x, s, name + 1);
	} else {
		s->flags |= nth_is(x, 0, "prepare") ? SQL_PREPARES : SQL_EXECUTES;
	}
	s->name_start = word_at(x, name).start;
	s->name_end = word_at(x, name).end;
}

static void classify_begin(const struct lexer *x, struct sql_statement *s)
{
	size_t next = nth_is(x, 0, "start") ? 2 : after_noise(x);

	s->kind = SQL_BEGIN;
	s->flags |= nth_is(x, 0, "start") ? SQL_START : 0;
	must_end(x, s, take_modes(x, next, s));
}

static void classify_declare(const struct lexer *x, struct sql_statement *s)
{
	s->flags |= SQL_CURSOR | SQL_EARLY;
	s->name_start = word_at(x, 1).start;
	s->name_end = word_at(x, 1).end;
	if (any_is(x, "with", "hold"))
		s->flags |= SQL_HOLD;
	else
		s->kind = SQL_DECLARE;
}

static void classify_table(const struct lexer *x, struct sql_statement *s)
{
	if (x->executed.end == 0)
		return;
	s->flags |= SQL_EXPLAINS;
	s->name_start = x->executed.start;
	s->name_end = x->executed.end;
}

/* EXPLAIN [(options)] or [ANALYZE] [VERBOSE], then EXECUTE. */
static void classify_explain(const struct lexer *x, struct sql_statement *s)
{
	size_t open = x->words[0].end, i = 1;

	while (open < s->end && isspace((unsigned char)x->text[open]))
		open++;
	if (open < s->end && x->text[open] == '(') {
		while (open < s->end && x->text[open] != ')')
			open++;
		while (i < x->n_words && x->words[i].start < open)
			i++;
	}
	while (nth_is(x, i, "analyze") || nth_is(x, i, "analyse") || nth_is(x, i, "verbose"))
		i++;
	if (nth_is(x, i, "create")) {
		classify_table(x, s);
	} else if (nth_is(x, i, "execute") && i + 1 < x->n_words) {
		s->flags |= SQL_EXPLAINS;
		s->name_start = x->words[i + 1].start;
		s->name_end = x->words[i + 1].end;
	}
}

/* The first of VACUUM's words, from I on, that is none of its options. */
static size_t after_options(const struct lexer *x, size_t i, size_t end, bool *full,
                            struct sql_statement *s)
{
	for (; i < x->n_words && x->words[i].start < end; i++) {
		*full |= nth_is(x, i, "full");
		s->flags |= nth_is(x, i, "verbose") ? SQL_VERBOSE : 0;
		if (end == x->len && !nth_is(x, i, "full") && !nth_is(x, i, "freeze") &&
		    !nth_is(x, i, "verbose") && !nth_is(x, i, "analyze") &&
		    !nth_is(x, i, "analyse"))
			break;
	}
	return i;
}

/* VACUUM [(options)] or [FULL] [FREEZE] [VERBOSE] [ANALYZE], then tables. */
static void classify_vacuum(const struct lexer *x, struct sql_statement *s)
{
	size_t open = x->words[0].end, close, next;
	bool full = false;

	while (open < s->end && isspace((unsigned char)x->text[open]))
		open++;
	if (open < s->end && x->text[open] == '(') {
		for (close = open; close < s->end && x->text[close] != ')'; close++)
			;
		(void)after_options(x, 1, close, &full, s);
		s->name_start = close < s->end ? close + 1 : s->end;
	} else {
		next = after_options(x, 1, x->len, &full, s);
		s->name_start = next < x->n_words ? x->words[next].start : s->end;
	}
	s->name_end = s->end;
	if (!full)
		s->kind = SQL_VACUUM;
}

static bool changes_rows(const struct lexer *x)
{
	for (size_t i = 0; i < x->n_words; i++)
		if (nth_is(x, i, "insert") || nth_is(x, i, "update") || nth_is(x, i, "delete"))
			return true;
	return false;
}

static void classify(const struct lexer *x, struct sql_statement *s)
{
	static const struct {
		const char *word;
		unsigned flag;
		enum sql_kind kind;
	} first[] = {
		{ "reset", SQL_SETS, SQL_RESET },
		{ "discard", SQL_SETS, SQL_PLAIN },
		{ "listen", 0, SQL_LISTEN },
		{ "unlisten", 0, SQL_UNLISTEN },
		{ "notify", SQL_NOTIFIES, SQL_PLAIN },
		{ "create", SQL_DEFINES, SQL_PLAIN },
		{ "alter", SQL_DEFINES, SQL_PLAIN },
		{ "do", SQL_DEFINES, SQL_PLAIN },
		{ "call", SQL_DEFINES | SQL_EARLY, SQL_PLAIN },
		{ "lock", 0, SQL_LOCK },
		{ "copy", SQL_COPY, SQL_PLAIN },
		{ "select", SQL_QUERY | SQL_PREPARABLE, SQL_PLAIN },
		{ "values", SQL_QUERY | SQL_PREPARABLE, SQL_PLAIN },
		{ "table", SQL_QUERY | SQL_PREPARABLE, SQL_PLAIN },
		{ "with", SQL_QUERY | SQL_PREPARABLE, SQL_PLAIN },
		{ "insert", SQL_PREPARABLE, SQL_PLAIN },
		{ "update", SQL_PREPARABLE, SQL_PLAIN },
		{ "delete", SQL_PREPARABLE, SQL_PLAIN },
		{ "merge", SQL_PREPARABLE, SQL_PLAIN },
		{ "explain", SQL_EARLY, SQL_PLAIN },
	};

	if (x->snapshot)
		s->kind = SQL_SNAPSHOT;
	for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++) {
		if (!nth_is(x, 0, first[i].word) || x->words[0].start != s->start)
			continue;
		s->flags |= first[i].flag;
		s->kind = first[i].kind ? first[i].kind : s->kind;
	}
	if (x->n_words == 0 || x->words[0].start != s->start)
		s->flags |= x->text[s->start] == '(' ? SQL_QUERY | SQL_PREPARABLE : 0;
	else if (nth_is(x, 0, "begin") || (nth_is(x, 0, "start") && nth_is(x, 1, "transaction")))
		classify_begin(x, s);
	else if (nth_is(x, 0, "commit") || nth_is(x, 0, "end"))
		classify_end(x, s, SQL_COMMIT);
	else if (nth_is(x, 0, "rollback") || nth_is(x, 0, "abort"))
		classify_end(x, s, SQL_ROLLBACK);
	else if (nth_is(x, 0, "savepoint") || nth_is(x, 0, "release"))
		classify_savepoint(x, s, 1);
	else if (nth_is(x, 0, "set"))
		classify_set(x, s);
	else if (nth_is(x, 0, "discard") && nth_is(x, 1, "all"))
		s->kind = SQL_DISCARD_ALL;
	else if (nth_is(x, 0, "prepare") || nth_is(x, 0, "execute") || nth_is(x, 0, "deallocate"))
		classify_named(x, s);
	else if (nth_is(x, 0, "declare"))
		classify_declare(x, s);
	else if (nth_is(x, 0, "vacuum"))
		classify_vacuum(x, s);
	else if (nth_is(x, 0, "explain"))
		classify_explain(x, s);
	else if (nth_is(x, 0, "create"))
		classify_table(x, s);
	/* CREATE TABLE ... AS, behind a list of columns of any length. */
	for (size_t i = 1; nth_is(x, 0, "create") && i < x->n_words; i++)
		s->flags |= nth_is(x, i, "as") || i + 1 == N_WORDS ? SQL_EARLY : 0;
	/* WITH that changes rows is carried out before its rows are described. */
	if (nth_is(x, 0, "with") && changes_rows(x))
		s->flags &= ~SQL_QUERY;
	if (s->kind == SQL_RESET)
		classify_setting(x, s, 1);
	if (s->kind == SQL_DISCARD_ALL)
		must_end(x, s, 2);
}

/* ---- the text ---- */

/* Anywhere in the statement: in a string (set_config()), in the body of a DO. */
static bool names_time_limit(const char *text, size_t len)
{
	static const char *const names[] = { "transaction_session_timeout", "transaction_timeout" };

	for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
		size_t n = strlen(names[k]);

		for (size_t i = 0; i + n <= len; i++)
			if ((text[i] | 0x20) == 't' && strncasecmp(text + i, names[k], n) == 0)
				return true;
	}
	return false;
}

/* STOP: behind its semicolon. */
static int end_statement(struct lexer *x, struct sql *ret, size_t stop)
{
	struct sql_statement *s;

	if (x->start < x->len) {
		if (grow((void **)&ret->v, &ret->cap, ret->n + 1, sizeof(*ret->v)) < 0)
			return -ENOMEM;
		s = &ret->v[ret->n++];
		*s = (struct sql_statement){ .start = x->start,
			                     .end = x->end,
			                     .stop = stop,
			                     .flags = x->flags };
		classify(x, s);
		if (names_time_limit(x->text + s->start, s->end - s->start))
			s->flags |= SQL_ENDS_IDLE;
	}
	x->n_words = x->others = 0;
	x->start = x->len;
	x->parens = x->bodies = 0;
	x->begun = x->routine = x->snapshot = false;
	x->as = AS_NONE;
	x->executed = (struct word){ 0 };
	x->flags = 0;
	return 0;
}

/* E'', B'', X'', N'', U&'' and U&"": the quote belongs to the letter before it. */
static bool skip_prefixed(struct lexer *x)
{
	size_t n = 1;
	char c = (char)tolower((unsigned char)peek(x, 0));

	if (c == 'u' && peek(x, 1) == '&')
		n = 2;
	else if (!memchr("ebxn", c, 4))
		return false;
	if (peek(x, n) != '\'' && !(n == 2 && peek(x, n) == '"'))
		return false;
	x->at += n;
	x->others++;
	skip_quoted(x, peek(x, 0), c == 'e' || (c == 'n' && x->backslashes));
	return true;
}

static void take_ident(struct lexer *x)
{
	struct word w = { .start = x->at };

	while (x->at < x->len && is_ident(x->text[x->at]))
		x->at++;
	w.end = x->at;
	note_word(x, w);
	note_as(x, w);
	note_body(x, w);
	x->begun = word_is(x, w, "begin");
}

static void take_token(struct lexer *x)
{
	size_t before = x->at;
	char c = x->text[x->at];

	if (x->start == x->len)
		x->start = x->at;
	if (is_ident_start(c)) {
		if (skip_prefixed(x))
			x->as = AS_DONE;
		else
			take_ident(x);
	} else if (c == '"') {
		skip_quoted(x, '"', false);
		note_word(x, (struct word){ before, x->at });
		note_as(x, (struct word){ before, x->at });
		x->begun = false;
	} else {
		x->others += c != ',';
		x->begun = false;
		if (x->as == AS_NOW || x->as == AS_EXECUTE)
			x->as = AS_DONE;
		if (c == '\'') {
			skip_quoted(x, '\'', x->backslashes);
		} else if (c == '$') {
			skip_dollar(x);
		} else if (isdigit((unsigned char)c)) {
			while (is_ident(peek(x, 0)) || peek(x, 0) == '.')
				x->at++;
		} else {
			x->parens += c == '(';
			x->parens -= c == ')' && x->parens > 0;
			x->at++;
		}
	}
	x->end = x->at;
}

int sql_split(struct sql *ret, const char *text, size_t len, bool backslashes)
{
	struct lexer x = { .text = text, .len = len, .start = len, .backslashes = backslashes };
	int r = 0;

	while (r == 0 && x.at < len) {
		char c = text[x.at];

		if (isspace((unsigned char)c)) {
			x.at++;
		} else if (c == '-' && peek(&x, 1) == '-') {
			skip_line(&x);
		} else if (c == '/' && peek(&x, 1) == '*') {
			skip_comment(&x);
		} else if (c == ';' && x.parens == 0 && x.bodies == 0) {
			x.at++;
			r = end_statement(&x, ret, x.at);
		} else {
			take_token(&x);
		}
	}
	return r < 0 ? r : end_statement(&x, ret, len);
}

void sql_done(struct sql *s)
{
	free(s->v);
	*s = SQL_INIT;
}

bool sql_may_be_several(const char *text, size_t len)
{
	while (len > 0 && (text[len - 1] == ';' || isspace((unsigned char)text[len - 1])))
		len--;
	return memchr(text, ';', len) != NULL;
}

char *sql_name(const char *text, size_t len)
{
	struct strbuf sb = STRBUF_INIT;
	bool quoted = len >= 2 && text[0] == '"';

	for (size_t i = quoted ? 1 : 0; i < (quoted ? len - 1 : len); i++) {
		if (quoted && text[i] == '"')
			i++;
		strbuf_putc(&sb, quoted ? text[i] : (char)tolower((unsigned char)text[i]));
	}
	return strbuf_take(&sb);
}
