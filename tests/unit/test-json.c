/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON writer: what comes out, byte by byte, and that misuse aborts. */
#include "util/json.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "unit/expect-abort.h"

struct output {
	struct json json;
	FILE *file;
	char *text;
	size_t len;
};

static struct json *output_open(struct output *o)
{
	o->text = NULL;
	o->file = open_memstream(&o->text, &o->len);
	assert_non_null(o->file);
	json_init(&o->json, o->file);
	return &o->json;
}

static void output_expect(struct output *o, const char *want)
{
	assert_int_equal(fclose(o->file), 0);
	assert_string_equal(o->text, want);
	free(o->text);
}

static void members_and_elements(void **state)
{
	struct output o;
	struct json *j = output_open(&o);

	(void)state;
	json_open_object(j, NULL);
	json_string(j, "s", "x");
	json_string(j, "n", NULL);
	json_int(j, "min", INT64_MIN);
	json_uint(j, "max", UINT64_MAX);
	json_open_array(j, "a");
	json_bool(j, NULL, true);
	json_bool(j, NULL, false);
	json_null(j, NULL);
	json_open_object(j, NULL);
	json_close(j);
	json_open_array(j, NULL);
	json_close(j);
	json_close(j);
	json_open_object(j, "o");
	json_int(j, "k", 0);
	json_close(j);
	json_int(j, "last", 1);
	json_close(j);
	json_end(j);
	output_expect(&o, "{\"s\":\"x\",\"n\":null,\"min\":-9223372036854775808,"
	                  "\"max\":18446744073709551615,\"a\":[true,false,null,{},[]],"
	                  "\"o\":{\"k\":0},\"last\":1}\n");
}

static void lines(void **state)
{
	struct output o;
	struct json *j = output_open(&o);

	(void)state;
	for (int i = 0; i < 3; i++) {
		json_open_object(j, NULL);
		json_int(j, "i", i);
		json_close(j);
		json_end(j);
	}
	json_string(j, NULL, "top");
	json_end(j);
	output_expect(&o, "{\"i\":0}\n{\"i\":1}\n{\"i\":2}\n\"top\"\n");
}

static void strings_are_quoted(void **state)
{
	static const struct {
		const char *in;
		const char *out;
	} rows[] = {
		{ "", "\"\"\n" },
		{ "a\"b\\c/d", "\"a\\\"b\\\\c/d\"\n" },
		{ "\n\t\r\b\f", "\"\\n\\t\\u000d\\u0008\\u000c\"\n" },
		{ "\001\033\037\177", "\"\\u0001\\u001b\\u001f\\u007f\"\n" },
		{ "gr\xc3\xbc\xc3\x9f \xf0\x9f\x90\x9a",
		  "\"gr\xc3\xbc\xc3\x9f \xf0\x9f\x90\x9a\"\n" },
		{ "\xe2\x80\xae", "\"\\u202e\"\n" },
		{ "\xf3\xa0\x81\xa1", "\"\\udb40\\udc61\"\n" },
		{ "a\xff"
		  "b",
		  "\"a\xef\xbf\xbd"
		  "b\"\n" },
		{ "\xe2\x82", "\"\xef\xbf\xbd\xef\xbf\xbd\"\n" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct output o;
		struct json *j = output_open(&o);

		json_string(j, NULL, rows[i].in);
		json_end(j);
		output_expect(&o, rows[i].out);
	}
}

static void keys_are_quoted(void **state)
{
	struct output o;
	struct json *j = output_open(&o);

	(void)state;
	json_open_object(j, NULL);
	json_int(j, "a\"\n", 1);
	json_close(j);
	json_end(j);
	output_expect(&o, "{\"a\\\"\\n\":1}\n");
}

static void bytes_come_with_base64_when_needed(void **state)
{
	static const struct {
		const char *in;
		const char *out;
	} rows[] = {
		{ NULL, "{\"p\":null}\n" },
		{ "ok", "{\"p\":\"ok\"}\n" },
		{ "\xff", "{\"p\":\"\xef\xbf\xbd\",\"p_b64\":\"/w==\"}\n" },
		{ "a\xff", "{\"p\":\"a\xef\xbf\xbd\",\"p_b64\":\"Yf8=\"}\n" },
		{ "ab\xff", "{\"p\":\"ab\xef\xbf\xbd\",\"p_b64\":\"YWL/\"}\n" },
		{ "abc\xff", "{\"p\":\"abc\xef\xbf\xbd\",\"p_b64\":\"YWJj/w==\"}\n" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct output o;
		struct json *j = output_open(&o);

		json_open_object(j, NULL);
		json_bytes(j, "p", rows[i].in);
		json_close(j);
		json_end(j);
		output_expect(&o, rows[i].out);
	}
}

static void deepest_level(void **state)
{
	struct output o;
	struct json *j = output_open(&o);
	char want[2 * JSON_MAX_DEPTH];

	(void)state;
	for (int i = 0; i < JSON_MAX_DEPTH - 1; i++) {
		json_open_array(j, NULL);
		want[i] = '[';
		want[2 * (JSON_MAX_DEPTH - 1) - 1 - i] = ']';
	}
	for (int i = 0; i < JSON_MAX_DEPTH - 1; i++)
		json_close(j);
	json_end(j);
	want[2 * (JSON_MAX_DEPTH - 1)] = '\n';
	want[2 * (JSON_MAX_DEPTH - 1) + 1] = '\0';
	output_expect(&o, want);
}

/* Each letter is a call: { [ with a key, ( < without, } close, i int with a key, I without,
 * b bytes without, e end. */
static void misuse(void *arg)
{
	struct json j;

	json_init(&j, stderr);
	for (const char *c = arg; *c; c++) {
		if (*c == '{' || *c == '(')
			json_open_object(&j, *c == '{' ? "k" : NULL);
		else if (*c == '[' || *c == '<')
			json_open_array(&j, *c == '[' ? "k" : NULL);
		else if (*c == '}')
			json_close(&j);
		else if (*c == 'b')
			json_bytes(&j, NULL, "x");
		else if (*c == 'e')
			json_end(&j);
		else
			json_int(&j, *c == 'i' ? "k" : NULL, 1);
	}
}

static void json_misuse_aborts(void **state)
{
	char calls[][JSON_MAX_DEPTH + 1] = {
		"i", "{", "(I", "<i", "(}}", "}", "(e", "II", "b", "<b", "<<<<<<<<<<<<<<<<",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		expect_abort(misuse, calls[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(members_and_elements),
		cmocka_unit_test(lines),
		cmocka_unit_test(strings_are_quoted),
		cmocka_unit_test(keys_are_quoted),
		cmocka_unit_test(bytes_come_with_base64_when_needed),
		cmocka_unit_test(deepest_level),
		cmocka_unit_test(json_misuse_aborts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
