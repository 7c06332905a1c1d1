/* SPDX-License-Identifier: Apache-2.0 */
#include "auth/secret.h"

#include "util/random.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define PREFIX_LEN   4
#define RANDOM_LEN   43 /* of 62 each: 256.03 bits */
#define CHECKSUM_LEN 6
#define BASE         62
_Static_assert(PREFIX_LEN + RANDOM_LEN + CHECKSUM_LEN == SECRET_LEN, "the parts are the whole");

static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
static const char *const prefixes[CREDENTIAL_KIND_END_] = {
	[CREDENTIAL_KEY] = "atk_",
	[CREDENTIAL_TOKEN] = "ats_",
};

/* CRC-32 as of zip files, in base 62. */
static void put_checksum(const char *text, char out[CHECKSUM_LEN])
{
	uint32_t crc = UINT32_MAX;

	for (size_t i = 0; i < PREFIX_LEN + RANDOM_LEN; i++) {
		crc ^= (unsigned char)text[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0xedb88320) : 0);
	}
	crc = ~crc;
	for (size_t i = CHECKSUM_LEN; i-- > 0; crc /= BASE)
		out[i] = digits[crc % BASE];
}

/* Bytes that would make some digits likelier than others are thrown away. */
static void put_random(char *out, size_t n)
{
	unsigned char bytes[64];

	while (n > 0) {
		random_bytes(bytes, sizeof(bytes));
		for (size_t i = 0; n > 0 && i < sizeof(bytes); i++) {
			if (bytes[i] < 256 / BASE * BASE) {
				*out++ = digits[bytes[i] % BASE];
				n--;
			}
		}
	}
	explicit_bzero(bytes, sizeof(bytes));
}

int secret_digest(const char *text, size_t len, char ret_sha256[SHA256_TEXT_LEN], struct error *err)
{
	int r = sha256_text(text, len, ret_sha256);

	if (r == 0)
		return 0;
	(void)error_set(err, r, "keys and tokens need libcrypto (%s)", ATOLL_LIBCRYPTO);
	error_hint(err, "install it: apt install libssl3");
	return r;
}

int secret_make(struct secret *s, enum credential_kind kind, char ret_sha256[SHA256_TEXT_LEN],
                struct error *err)
{
	int r;

	memcpy(s->text, prefixes[kind], PREFIX_LEN);
	put_random(s->text + PREFIX_LEN, RANDOM_LEN);
	put_checksum(s->text, s->text + PREFIX_LEN + RANDOM_LEN);
	s->text[SECRET_LEN] = '\0';
	r = secret_digest(s->text, SECRET_LEN, ret_sha256, err);
	if (r < 0)
		secret_wipe(s);
	return r;
}

void secret_wipe(struct secret *s)
{
	explicit_bzero(s, sizeof(*s));
}

static bool all_digits(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (text[i] == '\0' || !strchr(digits, text[i]))
			return false;
	return true;
}

int secret_kind(const char *text, size_t len)
{
	char checksum[CHECKSUM_LEN];

	if (len != SECRET_LEN || !all_digits(text + PREFIX_LEN, len - PREFIX_LEN))
		return -EBADMSG;
	put_checksum(text, checksum);
	if (memcmp(text + len - CHECKSUM_LEN, checksum, CHECKSUM_LEN) != 0)
		return -EBADMSG;
	for (int kind = 0; kind < CREDENTIAL_KIND_END_; kind++)
		if (memcmp(text, prefixes[kind], PREFIX_LEN) == 0)
			return kind;
	return -EBADMSG;
}
