/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs one fuzz target over the files of its corpus, so that what a fuzzer once found is tried
 * in every ordinary test run. One TAP result per file; a crash is the failure.
 */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int is_visible(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

/* The whole file in memory of exactly its size, so that a sanitizer sees reads past its end. */
static uint8_t *read_file(const char *path, size_t *ret_size)
{
	FILE *f = fopen(path, "re");
	if (!f)
		return NULL;

	uint8_t *data = NULL;
	long size = -1;
	if (fseek(f, 0, SEEK_END) == 0)
		size = ftell(f);
	if (size >= 0 && fseek(f, 0, SEEK_SET) == 0)
		data = malloc(size > 0 ? (size_t)size : 1);
	if (data && fread(data, 1, (size_t)size, f) != (size_t)size) {
		free(data);
		data = NULL;
	}
	fclose(f);
	*ret_size = (size_t)size;
	return data;
}

static int replay(const char *dir, const char *name, int number)
{
	char path[4096];
	size_t size = 0;
	int n = snprintf(path, sizeof(path), "%s/%s", dir, name);
	uint8_t *data = n > 0 && (size_t)n < sizeof(path) ? read_file(path, &size) : NULL;

	if (!data) {
		printf("not ok %d - %s\n# cannot read: %s\n", number, name, strerror(errno));
		return 1;
	}
	LLVMFuzzerTestOneInput(data, size);
	free(data);
	printf("ok %d - %s\n", number, name);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: %s CORPUS-DIRECTORY\n", argv[0]);
		return 2;
	}

	/* A crash must not take the results before it along. */
	setvbuf(stdout, NULL, _IOLBF, 0);

	struct dirent **entries = NULL;
	int count = scandir(argv[1], &entries, is_visible, alphasort);
	if (count <= 0) {
		printf("Bail out! no corpus in %s\n", argv[1]);
		return 1;
	}

	int failed = 0;
	printf("1..%d\n", count);
	for (int i = 0; i < count; i++) {
		failed |= replay(argv[1], entries[i]->d_name, i + 1);
		free(entries[i]);
	}
	free(entries);
	return failed;
}
