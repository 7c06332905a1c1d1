/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the strategy speaks to the holder: one line in, lines out, on a socket beside the one for
 * clients, which commands never see. The last line is "ok", "ok WORDS" or "error SQLSTATE WORDS".
 *
 *   status            ok prepare | ok final WHY       can the transaction be prepared?
 *   counts            a line per changed table: inserted updated deleted schema.table
 *   check             deferred constraints hold
 *   prepare GID       PREPARE TRANSACTION; the holder ends
 *   commit            a plain COMMIT; the holder ends
 *   rollback          the holder ends
 *
 * Asked while a client is inside a transaction: "error 55006 ...".
 */
#ifndef POSTGRES_MANAGE_H
#define POSTGRES_MANAGE_H

#include "postgres/holder.h"

#define MANAGE_LINE 512

/* Answers the line that FD sends. FD is blocking, with a time limit of its own. */
void manage_serve(struct holder *h, int fd);

#endif
