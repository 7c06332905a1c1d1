/* SPDX-License-Identifier: Apache-2.0 */
/* atoll version. Opens nothing. */
#include "cli/cli.h"

#include <stdlib.h>

static int version_run(struct cli *c)
{
	struct json j;

	if (c->json) {
		cli_json_begin(c, &j);
		json_string(&j, "version", atoll_version());
		cli_json_end(&j);
	} else {
		(void)printf("atoll %s\n", atoll_version());
	}
	return EXIT_SUCCESS;
}

const struct command cmd_version = {
	.name = "version",
	.run = version_run,
	.words = "",
	.summary = "print the version",
	.bare = true,
};
