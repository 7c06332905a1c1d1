/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command lines, driven by tables: each command says which options it has, and the parser says
 * which were given. "--name value" and "--name=value" are the same; "--" ends the options; "-" is
 * a word. Nothing is copied: all strings are argv's.
 *
 * The same tables make the help, the manual pages and the completion. What a value or a word is
 * called says what it is (enum value_kind): "SECONDS" is a number, "DIR" a directory,
 * "auto|always|never" one of three words. So there is nothing beside the table to forget.
 */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include "util/error.h"

/* What stands for a value or a word, by the name it has in a table. */
enum value_kind {
	VALUE_NONE = 0, /* no value */
	VALUE_CHOICE,   /* "a|b|c", "a": one of these words; the parser refuses others */
	VALUE_PLAN,     /* PLAN: a plan that is there */
	VALUE_RESOURCE, /* RESOURCE: a root of the plan */
	VALUE_PATH,     /* PATH: something inside the plan's resources, or anywhere */
	VALUE_DIR,      /* DIR */
	VALUE_FILE,     /* FILE */
	VALUE_COMMAND, /* COMMAND: a command of ours; where words are taken as they are, a program */
	VALUE_SECONDS, /* SECONDS: a number, with decimals */
	VALUE_FREE,    /* NAME, TIME, GLOB, N, CHILD=PARENT, ARGUMENT: nothing is known of it */
	VALUE_UNKNOWN, /* a name that is in no table: a test refuses it */
	VALUE_KIND_END_
};
enum value_kind value_kind(const char *name);
const char *value_kind_name(enum value_kind kind); /* "plan", "seconds"; for programs */
/* The word after *AT of the choice NAME, and its length; NULL after the last. *AT begins as NULL. */
const char *value_choice(const char *name, const char **at, size_t *ret_len);

/* -ATOLL_E_INVALID, beginning with WHAT, when NAME is a choice and VALUE is none of its words. */
int value_check(const char *what, const char *name, const char *value, struct error *err);

/* The Ith name in WORDS ("PLAN [PATH]..."), without brackets; the last stands for all that follow
 * when it has dots. NULL: there is none. */
const char *words_at(const char *words, size_t i, size_t *ret_len);

struct option_row {
	const char *name;  /* without the dashes; NULL ends a table */
	const char *value; /* what its value is called, or NULL: it has none */
	const char *help;
};

/* The letter of an option, which is the same in every command that has it; 0: it has none. */
char option_letter(const char *name);

struct option_given {
	const struct option_row *row;
	const char *value; /* NULL for one without */
};

struct args {
	struct option_given *given; /* in the order given */
	size_t n_given;
	char **words; /* what is no option; ends with NULL */
	size_t n_words;
	size_t n_before_dashes; /* words before "--"; SIZE_MAX: there was none */
};
#define ARGS_INIT ((struct args){ 0 })

/* Words after the first STOP_AT are taken as they are, options or not; 0: never. OWN and COMMON are
 * tables, either may be NULL. -ATOLL_E_INVALID, with the option that was perhaps meant. */
int args_parse(struct args *a, char **argv, const struct option_row *own,
               const struct option_row *common, size_t stop_at, struct error *err);
void args_done(struct args *a);

bool args_has(const struct args *a, const char *name);
/* The last value given, or NULL. */
const char *args_value(const struct args *a, const char *name);
/* The value of the first NAME at or after *AT, which then is one past it; NULL: no more. */
const char *args_next(const struct args *a, const char *name, size_t *at);

/* The last value of option NAME that args_parse() would find by these TABLES, any of which may be NULL;
 * or NULL. For options that decide which table is the right one. */
const char *args_peek(char **argv, const char *name, const struct option_row *const *tables,
                      size_t n, size_t stop_at);

/* A number of seconds, with decimals, as milliseconds. */
int args_seconds(const struct args *a, const char *name, int64_t *ret_ms, struct error *err);

#endif
