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

#define N_WORDS 10 /* the first words of a statement that are looked at */

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
	size_t start; /* of its first token; LEN: none yet */
	size_t end;   /* of its last token */
	size_t parens;
	size_t bodies; /* BEGIN ATOMIC ... END, and CASE inside */
	bool routine;  /* CREATE [OR REPLACE] FUNCTION or PROCEDURE */
	unsigned flags;
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
	static const struct {
		const char *word;
		unsigned flag;
	} telling[] = {
		{ "set_config", SQL_SETS },
		{ "pg_notify", SQL_NOTIFIES },
		{ "pg_export_snapshot", SQL_NOTIFIES },
	};
	size_t bare;

	for (size_t i = 0; i < sizeof(telling) / sizeof(telling[0]); i++)
		if (word_is(x, w, telling[i].word))
			x->flags |= telling[i].flag;
	bare = w.start + (x->text[w.start] == '"');
	if (w.end - bare >= strlen(SQL_OURS) &&
	    strncasecmp(x->text + bare, SQL_OURS, strlen(SQL_OURS)) == 0)
		x->flags |= SQL_RESERVED;
	if (x->n_words < N_WORDS)
		x->words[x->n_words++] = w;
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
	if (word_is(x, w, "begin") || (x->bodies > 0 && word_is(x, w, "case")))
		x->bodies++;
	else if (x->bodies > 0 && word_is(x, w, "end"))
		x->bodies--;
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

/* Words after COMMIT, ROLLBACK and their like that mean nothing. */
static size_t after_noise(const struct lexer *x)
{
	return nth_is(x, 1, "work") || nth_is(x, 1, "transaction") ? 2 : 1;
}

static void classify_set(const struct lexer *x, struct sql_statement *s)
{
	s->flags |= SQL_SETS;
	if (nth_is(x, 1, "transaction")) {
		s->kind = nth_is(x, 2, "snapshot") ? SQL_PLAIN : SQL_SET_TRANSACTION;
		s->flags |= any_is(x, "read", "only") ? SQL_READ_ONLY : 0;
	} else if (nth_is(x, 1, "constraints")) {
		s->kind = SQL_SET_CONSTRAINTS;
		s->flags |=
			nth_is(x, 2, "all") && nth_is(x, 3, "immediate") ? SQL_ALL_IMMEDIATE : 0;
	} else if (nth_is(x, 1, "local")) {
		struct word w = word_at(x, nth_is(x, 2, "time") ? 3 : 2);

		s->kind = SQL_SET_LOCAL;
		s->name_start = w.start;
		s->name_end = w.end;
		/* a.b is one name */
		if (w.end < x->len && x->text[w.end] == '.' && x->n_words > 3)
			s->name_end = x->words[3].end;
	}
}

static void classify_end(const struct lexer *x, struct sql_statement *s, enum sql_kind kind)
{
	size_t next = after_noise(x);

	if (nth_is(x, 1, "prepared"))
		s->kind = SQL_TWO_PHASE;
	else if (kind == SQL_ROLLBACK && nth_is(x, next, "to"))
		s->kind = SQL_SAVEPOINT;
	else
		s->kind = kind;
	if (nth_is(x, next, "and") && nth_is(x, next + 1, "chain"))
		s->flags |= SQL_CHAIN;
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
	} else {
		s->flags |= SQL_PREPARES;
	}
	s->name_start = word_at(x, name).start;
	s->name_end = word_at(x, name).end;
}

static void classify_begin(const struct lexer *x, struct sql_statement *s)
{
	s->kind = SQL_BEGIN;
	s->flags |= nth_is(x, 0, "start") ? SQL_START : 0;
	s->flags |= any_is(x, "read", "only") ? SQL_READ_ONLY : 0;
}

static void classify(const struct lexer *x, struct sql_statement *s)
{
	static const struct {
		const char *word;
		unsigned flag;
	} first[] = {
		{ "reset", SQL_SETS },      { "discard", SQL_SETS },
		{ "listen", SQL_NOTIFIES }, { "unlisten", SQL_NOTIFIES },
		{ "notify", SQL_NOTIFIES }, { "create", SQL_DEFINES },
		{ "alter", SQL_DEFINES },   { "do", SQL_DEFINES },
		{ "call", SQL_DEFINES },    { "declare", SQL_CURSOR },
	};

	for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++)
		if (nth_is(x, 0, first[i].word))
			s->flags |= first[i].flag;
	if (nth_is(x, 0, "declare") && any_is(x, "with", "hold"))
		s->flags |= SQL_HOLD;
	if (nth_is(x, 0, "begin") || (nth_is(x, 0, "start") && nth_is(x, 1, "transaction")))
		classify_begin(x, s);
	else if (nth_is(x, 0, "commit") || nth_is(x, 0, "end"))
		classify_end(x, s, SQL_COMMIT);
	else if (nth_is(x, 0, "rollback") || nth_is(x, 0, "abort"))
		classify_end(x, s, SQL_ROLLBACK);
	else if (nth_is(x, 0, "savepoint") || nth_is(x, 0, "release"))
		s->kind = SQL_SAVEPOINT;
	else if (nth_is(x, 0, "set"))
		classify_set(x, s);
	else if (nth_is(x, 0, "discard") && nth_is(x, 1, "all"))
		s->kind = SQL_DISCARD_ALL;
	else if (nth_is(x, 0, "prepare") || nth_is(x, 0, "execute") || nth_is(x, 0, "deallocate"))
		classify_named(x, s);
}

/* ---- the text ---- */

static int end_statement(struct lexer *x, struct sql *ret)
{
	struct sql_statement *s;

	if (x->start < x->len) {
		if (grow((void **)&ret->v, &ret->cap, ret->n + 1, sizeof(*ret->v)) < 0)
			return -ENOMEM;
		s = &ret->v[ret->n++];
		*s = (struct sql_statement){ .start = x->start, .end = x->end, .flags = x->flags };
		classify(x, s);
	}
	x->n_words = 0;
	x->start = x->len;
	x->parens = x->bodies = 0;
	x->routine = false;
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
	note_body(x, w);
}

static void take_token(struct lexer *x)
{
	size_t before = x->at;
	char c = x->text[x->at];

	if (x->start == x->len)
		x->start = x->at;
	if (is_ident_start(c)) {
		if (!skip_prefixed(x))
			take_ident(x);
	} else if (c == '"') {
		skip_quoted(x, '"', false);
		note_word(x, (struct word){ before, x->at });
	} else if (c == '\'') {
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
			r = end_statement(&x, ret);
			x.at++;
		} else {
			take_token(&x);
		}
	}
	return r < 0 ? r : end_statement(&x, ret);
}

void sql_done(struct sql *s)
{
	free(s->v);
	*s = SQL_INIT;
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
