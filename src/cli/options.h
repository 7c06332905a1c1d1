/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command lines, driven by tables: each command says which options it has, and the parser says
 * which were given. "--name value" and "--name=value" are the same; "--" ends the options; "-h" is
 * "--help"; "-" is a word. Nothing is copied: all strings are argv's.
 */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include "util/error.h"

struct option_row {
	const char *name;  /* without the dashes; NULL ends a table */
	const char *value; /* what its value is called, or NULL: it has none */
	const char *help;
};

struct option_given {
	const struct option_row *row;
	const char *value; /* NULL for one without */
};

struct args {
	struct option_given *given; /* in the order given */
	size_t n_given;
	char **words; /* what is no option; ends with NULL */
	size_t n_words;
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

/* A number of seconds, with decimals, as milliseconds. */
int args_seconds(const struct args *a, const char *name, int64_t *ret_ms, struct error *err);

#endif
