/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `postgres`: a database whose sandbox is one open transaction.
 *
 * A process of its own, the holder, keeps the transaction open between commands; commands reach it
 * through a socket that their libpq finds by PGHOST. It is a program that alone links libpq
 * (postgres/protocol.h). In the area lie
 *
 *   t/       the holder's directory, made anew for each transaction: its sockets, and "gone", which
 *            says why there is no transaction any more
 *   batch    the last batch that was prepared: its number, the name under which the server has the
 *            transaction ("-": it cannot be prepared), the transaction's number. Durable before the
 *            decision; the name is sent to the server only after that
 *
 * What becomes of the transaction:
 *
 *   create, or the first use after a commit, reset or rollback   begun; the holder has it
 *   prepare   all is checked that can be; `batch` is written
 *   check     PREPARE TRANSACTION, the last thing before the decision, for it cannot be resumed: to
 *             take it back is to lose the work. The holder ends; the server has it, whatever dies
 *   commit    COMMIT PREPARED, over another connection, as often as it takes. A name that the server
 *             does not know was committed already; the transaction's number proves it
 *   abort     nothing while the holder has it; else ROLLBACK PREPARED
 *
 * Where nothing can be prepared (the server is set up so, temporary tables were used) prepare answers
 * ATOLL_FINAL, and commit is a plain COMMIT by the holder.
 *
 * The holder's pulse is its socket: where nobody listens, the transaction is gone, and so it is when
 * somebody removes the directory.
 */
#ifndef STRATEGY_POSTGRES_H
#define STRATEGY_POSTGRES_H

#include <stdint.h>
#include "strategy/strategy-impl.h"
#include "util/strbuf.h"

/* ---- postgres-program.c ---- */

/* Runs the program with ARGV (its name is put before) and URL; what it said before "ok" goes into OUT
 * (may be NULL). */
int pg_call(const char *const *argv, const char *url, struct strbuf *out, struct error *err);
/* Each line to FN; its negative answer ends the program. */
int pg_call_lines(const char *const *argv, const char *url, atoll_line_fn fn, void *user,
                  struct error *err);
/* Starts the holder at DIR; it lives on. */
int pg_start(const char *dir, const char *url, struct error *err);

/* ---- postgres-look.c ---- */

/* The rest of the line that begins with WORD, or NULL. Caller frees. */
char *pg_line_of(const struct strbuf *text, const char *word);

/* ---- postgres-holder.c ---- */

/* Asks the holder of AREA. 1: its answer without "ok" is in OUT (may be NULL); 0: there is none; or
 * negative: it refused, or was silent until DEADLINE. */
int pg_ask(const char *area, const char *line, int64_t deadline, struct strbuf *out,
           struct error *err);
/* Begins a transaction in AREA. Nothing is left when it fails. */
int pg_begin(const char *area, const char *url, struct error *err);
/* Rolls back whatever the holder has, and waits for its end. */
int pg_end(const char *area, struct error *err);
/* Where commands find it, below the area. */
#define PG_DIR     "t"
#define PG_CLIENTS PG_DIR "/clients"
/* Why there is no transaction, for the user. Returns CODE. */
int pg_gone(struct atoll_participant *p, int code);
/* Leaves word of it; what the holder itself said stays. */
void pg_leave_word(const char *area, const char *why);

/* ---- postgres-batch.c ---- */

struct pg_batch {
	uint64_t number;
	char *gid; /* "-": it was not to be prepared */
	char *xid;
	char *server; /* where that is its number */
};
void pg_batch_done(struct pg_batch *b);
#define cleanup_pg_batch __attribute__((__cleanup__(pg_batch_done)))
#define PG_BATCH_INIT    ((struct pg_batch){ 0 })
/* Writes it for the batch at hand, durably; p->manifest is its hash. */
int pg_batch_write(struct atoll_participant *p, const struct pg_batch *b);
/* 1: there is one for the batch at hand; 0: none. -ATOLL_E_DAMAGED */
int pg_batch_read(struct atoll_participant *p, struct pg_batch *ret);
/* It is settled. */
void pg_batch_drop(struct atoll_participant *p);
/* The last one, whatever its number. */
int pg_batch_last(struct atoll_participant *p, struct pg_batch *ret);

#endif
