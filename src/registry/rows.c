/* SPDX-License-Identifier: Apache-2.0 */
/* Columns into structs. A value outside its range is damage, found where it is read. */
#include "registry/rows-impl.h"

#include "util/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct value *cols_next(struct cols *c, enum value_type type)
{
	if (c->code < 0)
		return NULL;
	if (c->next >= c->n || c->v[c->next].type != type) {
		c->code = -ATOLL_E_DAMAGED;
		return NULL;
	}
	return &c->v[c->next++];
}

int64_t cols_int(struct cols *c, int64_t min, int64_t max)
{
	const struct value *v = cols_next(c, VALUE_INT);

	if (!v)
		return min;
	if (v->num < min || v->num > max) {
		c->code = -ATOLL_E_DAMAGED;
		return min;
	}
	return v->num;
}

uint64_t cols_u64(struct cols *c)
{
	return (uint64_t)cols_int(c, 0, INT64_MAX);
}

uint32_t cols_u32(struct cols *c)
{
	return (uint32_t)cols_int(c, 0, UINT32_MAX);
}

bool cols_bool(struct cols *c)
{
	return cols_int(c, 0, 1) == 1;
}

void cols_text(struct cols *c, char *out, size_t size)
{
	const struct value *v = cols_next(c, VALUE_TEXT);
	size_t len = v ? strlen(v->text) : 0;

	if (len >= size) {
		c->code = -ATOLL_E_DAMAGED;
		len = 0;
	}
	if (len > 0)
		memcpy(out, v->text, len);
	out[len] = '\0';
}

char *cols_dup(struct cols *c)
{
	const struct value *v = cols_next(c, VALUE_TEXT);
	char *copy;

	if (!v)
		return NULL;
	copy = strdup(v->text);
	if (!copy)
		c->code = -ENOMEM;
	return copy;
}

static int rows_add(void *ctx, const struct value *v, size_t count)
{
	struct rows *rows = ctx;
	struct cols c = { .v = v, .n = count };
	void *item;
	int r;

	r = grow(&rows->items, &rows->cap, rows->n + 1, rows->size);
	if (r < 0)
		return r;
	item = (char *)rows->items + rows->n * rows->size;
	memset(item, 0, rows->size);
	/* Counted before it is whole: rows_done() then frees what it got. */
	rows->n++;
	rows->read(&c, item);
	return c.code;
}

int rows_fetch(struct registry *r, const char *sql, struct args args, struct rows *rows,
               struct error *err)
{
	int k = registry_read(r, sql, args, rows_add, rows, err);

	return k < 0 ? k : 0;
}

void rows_done(struct rows *rows)
{
	int saved = errno;

	for (size_t i = 0; rows->done && i < rows->n; i++)
		rows->done((char *)rows->items + i * rows->size);
	free(rows->items);
	rows->items = NULL;
	rows->n = rows->cap = 0;
	errno = saved;
}

struct number {
	int64_t value;
	int found;
};

static int number_row(void *ctx, const struct value *v, size_t count)
{
	struct number *number = ctx;
	struct cols c = { .v = v, .n = count };

	number->value = cols_int(&c, INT64_MIN, INT64_MAX);
	number->found = 1;
	return c.code;
}

int rows_number(struct registry *r, const char *sql, struct args args, int64_t *ret,
                struct error *err)
{
	struct number number = { 0 };
	int k = registry_read(r, sql, args, number_row, &number, err);

	if (k < 0)
		return k;
	if (number.found)
		*ret = number.value;
	return number.found;
}

int rows_write_number(struct registry *r, const char *sql, struct args args, int64_t *ret,
                      struct error *err)
{
	struct number number = { 0 };
	int k = registry_write(r, sql, args, number_row, &number, err);

	if (k < 0)
		return k;
	if (number.found)
		*ret = number.value;
	return number.found;
}

static int greater_row(void *ctx, const struct value *v, size_t count)
{
	struct number *number = ctx;
	struct cols c = { .v = v, .n = count };
	int64_t value = cols_int(&c, INT64_MIN, INT64_MAX);

	if (!number->found || value > number->value)
		number->value = value;
	number->found = 1;
	return c.code;
}

int rows_write_greatest(struct registry *r, const char *sql, struct args args, int64_t *ret,
                        struct error *err)
{
	struct number number = { 0 };
	int k = registry_write(r, sql, args, greater_row, &number, err);

	if (k < 0)
		return k;
	if (number.found)
		*ret = number.value;
	return number.found;
}
