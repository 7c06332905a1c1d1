/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The base record on disk, shared by its writer and its reader. All numbers little-endian:
 *
 *   header    magic, version
 *   block...  hash of the rest, directory number, entries, bytes; then the entries
 *   index     per directory number the offset of its block (0: none)
 *   links     per copied inode with several names: inode number, ctime; sorted
 *   trailer   where the index is, counts, the root's own entry, hash of index and links, hash
 *
 * An entry is a fixed part, its name and a NUL, so that a block read into memory can be used in
 * place. Directory numbers grow from parent to child, so no record can lead in a circle.
 */
#ifndef DIFF_BASE_IMPL_H
#define DIFF_BASE_IMPL_H

#include "diff/base.h"

#include <string.h>

#define BASE_MAGIC        "atollbas"
#define BASE_MAGIC_LEN    8
#define BASE_VERSION      2u
#define BASE_VERSION_OLD  1u
#define BASE_HEADER_LEN   16u
#define BASE_BLOCK_HEAD   24u
#define BASE_HASH_LEN     8u
#define BASE_ENTRY_FIXED  112u
#define BASE_LINK_LEN     16u
#define BASE_TRAILER_HEAD 40u
#define BASE_TRAILER_LEN  (BASE_TRAILER_HEAD + BASE_ENTRY_FIXED + 2 * BASE_HASH_LEN)
#define BASE_NAME_MAX     4096u /* NAME_MAX is 255 bytes, on some filesystems characters */
#define BASE_FLAGS        (BASE_UNREADABLE | BASE_SKIPPED)
#define BASE_CONTENT      0x4u /* in the file only: src.content is known */

static inline void base_put(unsigned char *at, uint64_t value, size_t len)
{
	for (size_t i = 0; i < len; i++)
		at[i] = (unsigned char)(value >> (8 * i));
}

static inline uint64_t base_get(const unsigned char *at, size_t len)
{
	uint64_t value = 0;

	for (size_t i = 0; i < len; i++)
		value |= (uint64_t)at[i] << (8 * i);
	return value;
}

/* The fixed part of an entry. NAME and name length are the caller's. */
void base_encode(unsigned char at[BASE_ENTRY_FIXED], const struct base_entry *e, size_t name_len);
size_t base_decode(const unsigned char at[BASE_ENTRY_FIXED], struct base_entry *ret);

#endif
