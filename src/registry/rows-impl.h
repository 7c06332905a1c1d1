/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the row functions and the back-end: running a statement in the right section, and
 * turning columns into structs without trusting them.
 */
#ifndef REGISTRY_ROWS_IMPL_H
#define REGISTRY_ROWS_IMPL_H

#include "registry/registry-impl.h"

/* Inside or outside a transaction. */
int registry_read(struct registry *r, const char *sql, struct args args, backend_row_fn fn,
                  void *ctx, struct error *err);
/* What will be run is prepared. A failure will show there. */
void registry_prepare(struct registry *r, const char *sql);
/* Inside one only, else BUG(). The number of rows changed. */
int registry_write(struct registry *r, const char *sql, struct args args, backend_row_fn fn,
                   void *ctx, struct error *err);
/* "the registry 'PATH' is damaged: WHAT", hint doctor; -ATOLL_E_DAMAGED. */
int registry_damaged(const struct registry *r, struct error *err, const char *what);

/* A row being read, column by column from the left. The first thing wrong stays in `code`. */
struct cols {
	const struct value *v;
	size_t n;
	size_t next;
	int code;
};
int64_t cols_int(struct cols *c, int64_t min, int64_t max); /* MIN when wrong */
uint64_t cols_u64(struct cols *c);
uint32_t cols_u32(struct cols *c);
bool cols_bool(struct cols *c);
void cols_text(struct cols *c, char *out, size_t size);
char *cols_dup(struct cols *c); /* caller frees; NULL when wrong */

/*
 * Rows copied out of a statement, so that a callback may do what it likes. Fill in size, read
 * and, where rows own memory, done.
 */
struct rows {
	size_t size; /* of one item */
	void (*read)(struct cols *c, void *item);
	void (*done)(void *item); /* or NULL */
	void *items;
	size_t n;
	size_t cap;
};
int rows_fetch(struct registry *r, const char *sql, struct args args, struct rows *rows,
               struct error *err);
void rows_done(struct rows *rows);
#define cleanup_rows __attribute__((__cleanup__(rows_done)))

/* Runs a statement whose answer is at most one number: 1 and *ret, 0 when there was no row. */
int rows_number(struct registry *r, const char *sql, struct args args, int64_t *ret,
                struct error *err);
int rows_write_number(struct registry *r, const char *sql, struct args args, int64_t *ret,
                      struct error *err);
/* The same of any number of rows. */
int rows_write_greatest(struct registry *r, const char *sql, struct args args, int64_t *ret,
                        struct error *err);

/* After line SEQ was written: lets the oldest ones go, now and then. */
int registry_log_trim(struct registry *r, int64_t seq, struct error *err);
void registry_log_limits(struct registry *r, int64_t *ret_max_age_ms, int64_t *ret_max_rows);

/* A line of the news (news.h). What has no sandbox leaves these two empty. */
struct news_item {
	const char *plan, *what;
	int code;
	const char *message;
	const char *sandbox;
	enum atoll_sandbox_state sandbox_state;
};
int news_add(struct registry *r, const struct news_item *item, struct error *err);

#define REGISTRY_STORE_LOCK "store.lk"

enum plan_key { PLAN_BY_ID = 0, PLAN_OPEN_BY_ID, PLAN_OPEN_BY_NAME, PLAN_LAST_RUN, PLAN_KEY_END_ };
/* 1 and *ret, 0 when there is none. */
int plan_find(struct registry *r, enum plan_key key, const char *value, struct plan_row *ret,
              struct error *err);

#endif
