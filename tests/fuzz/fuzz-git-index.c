/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any file as a git index: read without harm, and it says the same twice; one that is none adds nothing.
 */
#include "util/git-index.h"

#include <stdint.h>

#include "fuzz/fuzz.h"
#include "util/cleanup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup_hash struct hash *a = hash_new(), *b = hash_new(), *none = hash_new();
	char one[HASH_TEXT_LEN], other[HASH_TEXT_LEN], nothing[HASH_TEXT_LEN];
	bool is_index = git_index_add(data, size, a);

	must(git_index_add(data, size, b) == is_index);
	hash_text(a, one);
	hash_text(b, other);
	hash_text(none, nothing);
	must(strcmp(one, other) == 0);
	must(is_index != (strcmp(one, nothing) == 0));
	return 0;
}
