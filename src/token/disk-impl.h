/* SPDX-License-Identifier: Apache-2.0 */
/* The forms of files: text lines below a first line "KIND VERSION HASH", HASH being of the lines. */
#ifndef TOKEN_DISK_IMPL_H
#define TOKEN_DISK_IMPL_H

#include "token/disk.h"

#define FORM_MAX 65536

/* A block of memory that is wiped when it goes. */
struct form {
	char *data;
	size_t len;
	size_t cap;
};
void form_done(struct form *f);
#define cleanup_form __attribute__((__cleanup__(form_done)))
/* Room for all of it at once: growing would leave copies behind. */
void form_init(struct form *f, size_t room);
void form_line(struct form *f, const char *fmt, ...) __attribute__((__format__(__printf__, 2, 3)));
/* Puts the first line before the others. */
void form_seal(struct form *f, const char *kind);

/* Reads NAME in DIR_FD: a plain file of ours that nobody else may read. 0; -ENOENT; else *RET_WRONG says
 * what is wrong with it. */
int form_read(int dir_fd, const char *name, struct form *f, const char **ret_wrong);
/* 0, or -EBADMSG. *RET_LINES begins behind the first line. */
int form_open(struct form *f, const char *kind, char **ret_lines);
/* The value of the next line, which is "NAME\tVALUE"; NULL when it is another. */
char *form_next(char **lines, const char *name);

struct token_file {
	const char *endpoint;
	const char *principal;
	const char *sandbox;
	struct atoll_token *token; /* to be unref'ed */
};
void token_file_write(struct form *f, const struct token_file *file);
/* Its strings are F's. */
int token_file_read(struct form *f, struct token_file *ret);

#endif
