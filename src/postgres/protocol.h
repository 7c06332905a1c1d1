/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the strategy and the program atoll-postgres speak. The program does all that needs libpq; the
 * strategy never links it.
 *
 * The program, by its command line; the URL comes as the first line of standard input, since a command
 * line is for everybody to see. It answers in lines, of which the last begins with "ok", or with
 * "error CODE SQLSTATE WORDS" (CODE as in atoll.h, negative; SQLSTATE "-" when there is none), perhaps
 * after a line "hint WORDS":
 *
 *   identify               the server can be worked with. "name URL", with everything in it that the
 *                          environment would have said, and no password; "id WHO", the same for the
 *                          same database however it is reached; "user", "database", "version";
 *                          "final WHY" when nothing can be prepared there; "taken", places for
 *                          prepared transactions
 *   hold DIR               begins a transaction and keeps it; after "ok ready" it is reached only
 *                          through DIR
 *   finish commit|rollback|withdraw GID XID SERVER
 *                          ends a prepared transaction: "ok", also when that was done before.
 *                          -ATOLL_E_CONFLICT: somebody did the opposite. GID "-": it was never
 *                          prepared, and XID alone tells what became of it, as long as the server is
 *                          SERVER still
 *   rows DIR TABLE         how the rows of TABLE in DIR's transaction differ from the real ones, as
 *                          lines of a diff
 *
 * The holder, at a socket in its directory: one line in, lines out, the last of which is "ok WORDS" or
 * "error SQLSTATE WORDS".
 *
 *   ping              "ok", also while a client is inside a transaction
 *   status            "ok prepare XID SERVER", or "ok final XID SERVER WHY": it cannot be prepared.
 *                     SERVER is where that number means this transaction
 *   changes           a line for each changed table: KIND INSERTED UPDATED DELETED schema.table, with
 *                     KIND one of PROTOCOL_*; for what is no table: KIND 0 0 0 and words
 *   check             deferred constraints hold
 *   prepare GID       PREPARE TRANSACTION; the holder ends
 *   commit            a plain COMMIT; the holder ends
 *   rollback          the holder ends, whoever is inside a transaction
 *   tcp               "ok PORT PASSWORD": it listens at 127.0.0.1:PORT as well, from now on; also while a client is
 *                     inside a transaction
 *   listen            with a listening TCP socket (SCM_RIGHTS): it takes clients there, too, until the connection
 *                     over which it came ends. There is no answer
 *
 * Asked while a client is inside a transaction: "error 55006 ...".
 *
 * Below the holder's directory, which with PROTOCOL_CLIENTS_DIR is there before:
 *
 *   clients/.s.PGSQL.5432   for commands; libpq looks for a socket of this name (PGHOST, PGPORT=5432)
 *   manage                  for us; outside of what commands see
 *   gone                    why the transaction was lost; written before the holder ends
 *
 * The holder ends when the socket for us is removed: who takes the directory away wants that.
 */
#ifndef POSTGRES_PROTOCOL_H
#define POSTGRES_PROTOCOL_H

#define PROTOCOL_CLIENTS_DIR "clients"
#define PROTOCOL_CLIENTS     PROTOCOL_CLIENTS_DIR "/.s.PGSQL.5432"
#define PROTOCOL_PORT        "5432"
#define PROTOCOL_PORT_NUMBER 5432
#define PROTOCOL_LISTEN      "listen"
#define PROTOCOL_MANAGE      "manage"
#define PROTOCOL_GONE        "gone"

#define PROTOCOL_ADDED   'A' /* a new table, view or sequence */
#define PROTOCOL_DROPPED 'D'
#define PROTOCOL_ALTERED 'S' /* its definition; perhaps rows, too */
#define PROTOCOL_ROWS    'C' /* rows alone */
#define PROTOCOL_OTHER   'X' /* functions, types and the like */

#define PROTOCOL_BUSY "55006" /* SQLSTATE: a client is inside a transaction */

#endif
