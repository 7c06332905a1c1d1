/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's side of SCRAM-SHA-256 (RFC 5802, RFC 7677), for one password that was made at random. Neither
 * side shows the password to the other: a program of another user that listens at a port that the holder had
 * before learns nothing by it, and cannot pass for the plan's database. Every driver speaks it: libpq, psycopg,
 * asyncpg, node-postgres, JDBC.
 *
 * No channel binding: it needs TLS, and the connection does not leave the machine.
 */
#ifndef POSTGRES_SCRAM_H
#define POSTGRES_SCRAM_H

#include <stdbool.h>
#include <stddef.h>

#include "util/strbuf.h"

#define SCRAM_MECHANISM "SCRAM-SHA-256"

/* A password and what is derived from it. */
struct scram;
struct scram *scram_new(void); /* NULL: no memory, or libcrypto refuses */
void scram_free(struct scram *s);
const char *scram_password(const struct scram *s);

/* One client's proof, message by message. */
struct scram_proof {
	char *client_first; /* without its header */
	char *header;       /* of the first message, which the last one repeats */
	char *server_first;
};
#define SCRAM_PROOF_INIT ((struct scram_proof){ 0 })
void scram_proof_done(struct scram_proof *p);
/* Both take what the client sent, terminated, and append the answer to OUT. False: it is refused. */
bool scram_begin(const struct scram *s, struct scram_proof *p, const char *said,
                 struct strbuf *out);
bool scram_end(const struct scram *s, struct scram_proof *p, const char *said, struct strbuf *out);

#endif
