/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client with a token cache, told what to do by lines: "get" answers with a code, the token, its scope
 * and its seconds; "invalidate" with whether it was dropped.
 *
 * usage: token-client ENDPOINT SOCKET KEY-FILE SANDBOX DIRECTORY
 */
#include <atoll.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct atoll_token_handle *handle;
static uint64_t version;

static void get(void)
{
	struct atoll_token *token = NULL;
	int r = atoll_token_get(handle, 30000, ATOLL_TOKEN_RETRY, &token, NULL);

	if (r < 0) {
		(void)printf("%s\n", atoll_code_name(r));
		return;
	}
	version = atoll_token_version(token);
	(void)printf("0 %s %s %" PRId64 "\n", atoll_token_text(token),
	             atoll_token_field(token, "scope"),
	             atoll_token_expires_ms(token) / 1000 - (int64_t)time(NULL));
}

int main(int argc, char **argv)
{
	struct atoll_tokens_config config = { 0 };
	struct atoll_tokens *tokens;
	char key[128] = "", word[32];
	FILE *f = argc == 6 ? fopen(argv[3], "r") : NULL;

	if (!f || !fgets(key, sizeof(key), f))
		return 2;
	(void)fclose(f);
	config.endpoint = argv[1];
	config.unix_socket = *argv[2] ? argv[2] : NULL;
	config.key = key;
	config.dir = argv[5];
	if (atoll_tokens_open(&config, &tokens, NULL) < 0 ||
	    atoll_tokens_handle(tokens, argv[4], &handle, NULL) < 0)
		return 3;
	while (fgets(word, sizeof(word), stdin)) {
		if (strcmp(word, "get\n") == 0)
			get();
		else
			(void)printf("%d\n", atoll_token_invalidate(handle, version));
		(void)fflush(stdout);
	}
	atoll_tokens_close(tokens);
	return 0;
}
