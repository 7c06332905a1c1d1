/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stream: changes of a tree, or a list of what is in it, as bytes.
 *
 *   "ATSYNC" NUL, u8 version, then one zstd frame of records, then nothing
 *   record   u8 type, then the fields of its type (stream.c has the table), in the order of the struct
 *   number   LEB128, at most 64 bits; times are zigzag nanoseconds
 *   string   its length as a number, its bytes
 *
 * FILE and PACK are followed by their content: DATA (at most SYNC_CHUNK bytes) and HOLE (zeros), in
 * order, then DONE with the length of it all. Nothing else comes between. END is last, with the number
 * of records before it, content included, and XXH3-128 over every byte of the frame up to itself.
 *
 * Order, as the senders here keep it: DIR of what is moved into, MOVE; GONE, deepest first; then DIR, FILE,
 * LINK, META as a walk meets them; PACK, for which there must be a repository, and an ENTRY for each of its
 * objects where the other side is to note them.
 *
 * Strict: what is not so is refused (-EPROTO), as is a stream that is cut or goes on after its end. A
 * reader needs as much memory as its largest record and zstd's window, which it bounds.
 */
#ifndef SYNC_STREAM_H
#define SYNC_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "util/error.h"

#define SYNC_VERSION   1
#define SYNC_CHUNK     (64u << 10)
#define SYNC_HASH_SIZE 16

enum sync_type {
	SYNC_DIR = 1,     /* a directory with that mode; made when it is missing */
	SYNC_FILE = 2,    /* a file; its content follows */
	SYNC_LINK = 3,    /* a symbolic link to OTHER */
	SYNC_GONE = 4,    /* nothing is there; a directory that is not empty stays */
	SYNC_MOVE = 5,    /* the file or link PATH is at OTHER now */
	SYNC_META = 6,    /* the content of the file PATH stays, mode and time are these */
	SYNC_PACK = 7,    /* git objects of the repository in the root; a pack follows */
	SYNC_SKIPPED = 8, /* does not travel: what it is says MODE's type */
	SYNC_ENTRY = 9,   /* is there, and so: for lists */
	SYNC_DATA = 16,
	SYNC_HOLE = 17,
	SYNC_DONE = 18,
	SYNC_END = 31,
};

/* Which members mean something depends on the type. */
struct sync_record {
	enum sync_type type;
	const char *path;                   /* below the root, path.h */
	const char *other;                  /* MOVE: a path; LINK and ENTRY: where a link leads */
	uint32_t mode;                      /* permissions; ENTRY and SKIPPED: with the type */
	int64_t mtime_ns;                   /* 0 in ENTRYs of directories */
	uint64_t size;                      /* ENTRY, HOLE; DONE: of the content; END: records */
	unsigned char hash[SYNC_HASH_SIZE]; /* ENTRY: of a file's content, of a link's text; END */
	const void *data;                   /* DATA */
	size_t len;
};

/* ---- writing ---- */

/* Takes the next bytes: 0 or a negative code, which ends the writing and is handed on. */
typedef int (*sync_write_fn)(void *ctx, const void *data, size_t len);

struct sync_writer;
/* -ENOMEM. */
int sync_writer_new(sync_write_fn fn, void *ctx, struct sync_writer **ret);
void sync_writer_free(struct sync_writer *w);
void cleanup_sync_writerp(struct sync_writer **w);
#define cleanup_sync_writer __attribute__((__cleanup__(cleanup_sync_writerp)))

/* Any but DONE and END, of which the numbers are known here. What the format does not allow is a BUG(). */
int sync_write(struct sync_writer *w, const struct sync_record *rec);
int sync_write_done(struct sync_writer *w);
/* And everything is out. */
int sync_write_end(struct sync_writer *w);
/* What has been written so far goes out, so that a reader has it. */
int sync_write_flush(struct sync_writer *w);

/* ---- reading ---- */

/* For each record, DONE and END included; strings and data are good during the call. A negative answer
 * ends the reading and is handed on. */
typedef int (*sync_record_fn)(void *ctx, const struct sync_record *rec, struct error *err);

struct sync_reader;
int sync_reader_new(sync_record_fn fn, void *ctx, struct sync_reader **ret);
void sync_reader_free(struct sync_reader *r);
void cleanup_sync_readerp(struct sync_reader **r);
#define cleanup_sync_reader __attribute__((__cleanup__(cleanup_sync_readerp)))

/* The next bytes, of any number. After a failure nothing more may be fed. */
int sync_reader_feed(struct sync_reader *r, const void *data, size_t len, struct error *err);
/* There are no more: 0 when that was a whole stream. */
int sync_reader_finish(struct sync_reader *r, struct error *err);
/* All of a descriptor through the two. */
int sync_read_fd(int fd, sync_record_fn fn, void *ctx, struct error *err);

#endif
