/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a cache of tokens reads: files (those whose first line fits, too, as who writes them could make it)
 * and answers of a service. Any bytes: without harm; what is taken for a token is one.
 */
#include "token/answer.h"
#include "token/disk-impl.h"
#include "token/token.h"

#include "fuzz/fuzz.h"
#include "util/cleanup.h"

static void good(const struct atoll_token *t)
{
	must(t->text_len == strlen(t->text) && token_text_ok(t->text, t->text_len));
	must(t->life_ns > 0 && t->version > 0);
}

static void look_at_file(const uint8_t *data, size_t size)
{
	cleanup_close int dir_fd = open(fuzz_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cleanup_form struct form f = { 0 };
	struct token_file file = { 0 };
	const char *wrong = NULL;

	fuzz_put("token", data, size);
	if (form_read(dir_fd, "token", &f, &wrong) < 0) {
		must(wrong != NULL);
		return;
	}
	if (token_file_read(&f, &file) == 0) {
		good(file.token);
		atoll_token_unref(file.token);
	}
}

static void look_at_sealed(const uint8_t *data, size_t size)
{
	cleanup_form struct form f = { 0 };
	const char *text = (const char *)data;

	if (size == 0 || size > FORM_MAX / 2 || memchr(data, '\0', size))
		return;
	form_init(&f, size + 512);
	form_line(&f, "%.*s", (int)size, text);
	form_seal(&f, "atoll-token");
	look_at_file((const uint8_t *)f.data, f.len);
}

static void look_at_answer(const uint8_t *data, size_t size)
{
	cleanup_answer struct atoll_token_reply *a = answer_new();
	const struct answer_to to = { .sandbox = "s", .url = "https://example.org", .key = "k" };
	struct token_failure *failure = NULL;
	struct atoll_token *t;

	if (size < 1 || size > ANSWER_MAX)
		return;
	a->status = data[0] & 1 ? 200 : data[0] & 2 ? 401 : 503;
	a->pause_ns = -1;
	a->len = size - 1;
	(void)memcpy(a->body, data + 1, a->len);
	t = answer_token(a, &to, &failure);
	must((t != NULL) != (failure != NULL));
	if (t) {
		good(t);
		atoll_token_unref(t);
	} else {
		token_failure_unref(failure);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	look_at_file(data, size);
	look_at_sealed(data, size);
	look_at_answer(data, size);
	return 0;
}
