/* SPDX-License-Identifier: Apache-2.0 */
/* Showing what a command printed. */
#include "cli/output.h"

#include <inttypes.h>

/* Colours and moves of the cursor were for the command's own terminal. */
static void put_visible(const char *s, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		unsigned char ch = (unsigned char)s[i];

		if (ch == '\n' || ch == '\t' || (ch >= ' ' && ch != 0x7f))
			(void)putchar(ch);
		else if (ch != '\r')
			(void)printf("\\x%02x", ch);
	}
}

int output_print(void *user, uint64_t at, const void *data, size_t len)
{
	struct output_view *v = user;

	if (!v->begun && at > 0)
		cli_say(v->c, "the first %" PRIu64 " bytes were not kept", at);
	v->begun = true;
	if (cli_is_terminal(v->c, stdout))
		put_visible(data, len);
	else
		(void)fwrite(data, 1, len, stdout);
	return 0;
}
