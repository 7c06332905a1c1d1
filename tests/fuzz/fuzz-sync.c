/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes: as a stream, with the same outcome in pieces of any size; as records within a stream, for a
 * fuzzer finds no way through zstd; as a manifest. What is read is noted as if it had come from the other
 * side, and a manifest that is made so is one that can be read.
 */
#include "sync/manifest.h"
#include "sync/path.h"
#include "sync/pulled.h"
#include "sync/stream.h"

#include "util/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#define MAGIC     "ATSYNC\0\1"
#define MAGIC_LEN 8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool what)
{
	if (!what)
		abort();
}

struct outcome {
	uint64_t records;
	int r;
};

static int count(void *ctx, const struct sync_record *rec, struct error *err)
{
	struct outcome *o = ctx;

	(void)err;
	o->records++;
	must(!rec->path || sync_path_is_good(rec->path, strlen(rec->path)));
	must(rec->type != SYNC_DATA || (rec->len > 0 && rec->len <= SYNC_CHUNK));
	return 0;
}

static struct outcome read_pieces(const uint8_t *data, size_t size, size_t piece)
{
	cleanup_sync_reader struct sync_reader *r = NULL;
	struct outcome o = { 0 };

	must(sync_reader_new(count, &o, &r) == 0);
	for (size_t at = 0; o.r == 0 && at < size; at += piece)
		o.r = sync_reader_feed(r, data + at, piece < size - at ? piece : size - at, NULL);
	if (o.r == 0)
		o.r = sync_reader_finish(r, NULL);
	must(o.r == 0 || o.r == -EPROTO || o.r == -ENOMEM);
	return o;
}

static void note(const uint8_t *data, size_t size)
{
	cleanup_sync_pulled struct sync_pulled *p = NULL;
	cleanup_sync_manifest struct sync_manifest *m = NULL;
	uint64_t changes = 0;

	must(sync_pulled_new(NULL, &p) == 0);
	if (sync_pulled_feed(p, data, size, NULL) < 0 ||
	    sync_pulled_finish(p, &m, &changes, NULL) < 0)
		return;
	for (size_t i = 1; i < m->n; i++)
		must(sync_path_compare(sync_manifest_path(m, &m->v[i - 1]),
		                       sync_manifest_path(m, &m->v[i])) < 0);
}

static void try_stream(const uint8_t *data, size_t size)
{
	static const size_t pieces[] = { 1, 7, 4096 };
	struct outcome whole = read_pieces(data, size, SIZE_MAX);

	for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
		struct outcome o = read_pieces(data, size, pieces[i]);

		/* Before a fault, more may have been told where less was given at once. */
		must(o.r == whole.r && (o.r < 0 || o.records == whole.records));
	}
	/* Holes are hashed as the zeros they are, which takes as long as they are. */
	if (whole.r == 0 && size < 4096)
		note(data, size);
}

static void try_records(const uint8_t *data, size_t size)
{
	size_t room = ZSTD_compressBound(size);
	cleanup_free uint8_t *buf = malloc(MAGIC_LEN + room);
	size_t n = ZSTD_compress(buf + MAGIC_LEN, room, data, size, 1);

	must(!ZSTD_isError(n));
	memcpy(buf, MAGIC, MAGIC_LEN);
	(void)read_pieces(buf, MAGIC_LEN + n, SIZE_MAX);
	(void)read_pieces(buf, MAGIC_LEN + n, 5);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup_sync_manifest struct sync_manifest *m = NULL;

	try_stream(data, size);
	try_records(data, size);
	must(sync_manifest_parse(data, size, &m) >= 0);
	return 0;
}
