/* SPDX-License-Identifier: Apache-2.0 */
/* SCRAM-SHA-256 as the RFCs name its parts. */
#include "postgres/scram.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>

#include "util/cleanup.h"
#include "util/mem.h"
#include "util/random.h"

#define KEY_LEN      32
#define KEY_TEXT     44 /* in base64 */
#define SALT_LEN     16
#define NONCE_LEN    18
#define PASSWORD_LEN 32
/* What RFC 7677 asks for at least, and clients insist on. The password is random: more would protect nothing. */
#define ITERATIONS      4096
#define ITERATIONS_TEXT "4096"

struct scram {
	char password[PASSWORD_LEN + 1];
	char salt[4 * (SALT_LEN + 2) / 3 + 1]; /* base64 */
	unsigned char stored_key[KEY_LEN];
	unsigned char server_key[KEY_LEN];
};

static bool hmac(const unsigned char key[KEY_LEN], const char *text, unsigned char out[KEY_LEN])
{
	return HMAC(EVP_sha256(), key, KEY_LEN, (const unsigned char *)text, strlen(text), out,
	            NULL);
}

static bool derive(struct scram *s)
{
	unsigned char salt[SALT_LEN], salted[KEY_LEN], client_key[KEY_LEN];

	random_hex(s->password, PASSWORD_LEN);
	random_bytes(salt, sizeof(salt));
	(void)EVP_EncodeBlock((unsigned char *)s->salt, salt, sizeof(salt));
	return PKCS5_PBKDF2_HMAC(s->password, PASSWORD_LEN, salt, sizeof(salt), ITERATIONS,
	                         EVP_sha256(), sizeof(salted), salted) &&
	       hmac(salted, "Client Key", client_key) &&
	       hmac(salted, "Server Key", s->server_key) &&
	       EVP_Digest(client_key, KEY_LEN, s->stored_key, NULL, EVP_sha256(), NULL);
}

struct scram *scram_new(void)
{
	struct scram *s = xcalloc(1, sizeof(*s));

	if (derive(s))
		return s;
	free(s);
	return NULL;
}

void scram_free(struct scram *s)
{
	if (s)
		OPENSSL_cleanse(s, sizeof(*s));
	free(s);
}

const char *scram_password(const struct scram *s)
{
	return s->password;
}

void scram_proof_done(struct scram_proof *p)
{
	free(p->client_first);
	free(p->header);
	free(p->server_first);
	*p = SCRAM_PROOF_INIT;
}

/* "n,," and "n=NAME,r=NONCE": with "y" the client would have bound the channel, had it been offered. The name is
 * the one of the start-up message. */
bool scram_begin(const struct scram *s, struct scram_proof *p, const char *said, struct strbuf *out)
{
	const char *rest = said + 3;
	const char *nonce;
	unsigned char own[NONCE_LEN];
	char text[4 * NONCE_LEN / 3 + 1];

	if (strncmp(said, "n,,", 3) != 0 && strncmp(said, "y,,", 3) != 0)
		return false;
	nonce = strstr(rest, ",r=");
	if (strncmp(rest, "n=", 2) != 0 || !nonce || !nonce[3] || strchr(nonce + 3, ','))
		return false;
	random_bytes(own, sizeof(own));
	(void)EVP_EncodeBlock((unsigned char *)text, own, sizeof(own));
	scram_proof_done(p);
	p->header = xstrndup(said, 3);
	p->client_first = xstrdup(rest);
	p->server_first = xasprintf("r=%s%s,s=%s,i=" ITERATIONS_TEXT, nonce + 3, text, s->salt);
	strbuf_puts(out, p->server_first);
	return true;
}

/* What the last message must say before the proof: the header once more, and the nonce of both. */
static char *expected_start(const struct scram_proof *p)
{
	char header[4 * 3 / 3 + 1];

	(void)EVP_EncodeBlock((unsigned char *)header, (const unsigned char *)p->header, 3);
	return xasprintf("c=%s,%.*s", header, (int)strcspn(p->server_first, ","), p->server_first);
}

/* Is PROOF what only who has the password can say of TEXT? */
static bool is_proof(const struct scram *s, const char *proof, const char *text)
{
	unsigned char key[KEY_LEN + 2], signature[KEY_LEN], stored[KEY_LEN];

	if (strlen(proof) != KEY_TEXT ||
	    EVP_DecodeBlock(key, (const unsigned char *)proof, KEY_TEXT) != KEY_LEN + 1)
		return false;
	if (!hmac(s->stored_key, text, signature))
		return false;
	for (int i = 0; i < KEY_LEN; i++)
		key[i] ^= signature[i];
	return EVP_Digest(key, KEY_LEN, stored, NULL, EVP_sha256(), NULL) &&
	       CRYPTO_memcmp(stored, s->stored_key, KEY_LEN) == 0;
}

bool scram_end(const struct scram *s, struct scram_proof *p, const char *said, struct strbuf *out)
{
	cleanup_free char *start = p->server_first ? expected_start(p) : NULL;
	cleanup_free char *text = NULL;
	size_t len = start ? strlen(start) : 0;
	unsigned char signature[KEY_LEN];
	char own[KEY_TEXT + 1];

	if (!start || strncmp(said, start, len) != 0 || strncmp(said + len, ",p=", 3) != 0)
		return false;
	text = xasprintf("%s,%s,%s", p->client_first, p->server_first, start);
	if (!is_proof(s, said + len + 3, text) || !hmac(s->server_key, text, signature))
		return false;
	(void)EVP_EncodeBlock((unsigned char *)own, signature, KEY_LEN);
	strbuf_printf(out, "v=%s", own);
	return true;
}
