/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The holder: one transaction on one connection, and any number of clients that each believe to
 * have a connection of their own.
 *
 * What a client does as a transaction is a *unit*: a simple query, an extended batch up to its
 * Sync, or a block from BEGIN to COMMIT. A unit lives between our savepoint and the next one:
 *
 *   begin      SAVEPOINT, unless there is a fresh one
 *   commit     what only a real COMMIT would have done (deferred constraints), if anything; then
 *              RELEASE and SAVEPOINT, for the next unit: it is done while the client thinks
 *   roll back  ROLLBACK TO SAVEPOINT
 *
 * One client at a time owns the connection, from the first message of its unit to the last; the
 * others wait, and give up with 55P03. BEGIN, COMMIT and their like never reach the server.
 *
 * Everything sent to the server that it answers with ReadyForQuery has an *item* in a queue that
 * says whose answer it is. A question of our own that fails where nothing may fail means that the
 * transaction is lost: every client hears it, and the holder ends.
 *
 * No client can end the transaction: what begins like COMMIT is not sent, and the server gets one
 * command at a time (script.c). That this is so is checked all the same: each ReadyForQuery must
 * say that a transaction is open, no tag may be that of a commit, and the savepoint of the unit
 * must exist at its end. Should that fail, the server is asked what became of the transaction, and
 * that is what is said.
 *
 * One thread; nothing blocks but cancel requests and the manager's questions (manage.h), which
 * are asked only while no unit is open.
 */
#ifndef POSTGRES_HOLDER_H
#define POSTGRES_HOLDER_H

#include <stdint.h>
#include "postgres/backend.h"
#include "postgres/changes.h"
#include "postgres/listener.h"
#include "postgres/sql.h"
#include "util/list.h"
#include "util/strbuf.h"

#define HOLDER_SAVEPOINT SQL_OURS "_unit"
#define HOLDER_ROLLBACK  "ROLLBACK TO " HOLDER_SAVEPOINT
#define HOLDER_WAIT_MS   30000 /* for another client's unit */

struct holder;
struct client;

/* What became of a question. */
struct answer {
	bool ok;
	const struct wire_message *error; /* the first one; NULL when ok */
	const char *value;                /* first column of the first row, or NULL */
};
typedef void (*answer_fn)(struct client *c, const struct answer *a);

struct item {
	struct item *next;
	struct client *c; /* NULL: nobody's, or somebody's who is gone */
	bool forward;     /* messages go to the client */
	answer_fn done;   /* NULL: must not fail */
	struct wire_buf error;
	bool has_row; /* the first one has come; VALUE is of that, and NULL if it was */
	char *value;
};

struct holder {
	struct backend *b;
	const char *url;
	char *xid; /* of the transaction */
	struct baseline before;
	struct listeners listeners;
	struct wire_buf in, out;
	struct item *first, **last;
	struct client *clients;
	struct client *owner;    /* of the unit under way */
	struct client *unnamed;  /* whose unnamed statement the server has */
	struct client *settings; /* whose settings are in effect */
	uint32_t next_pid;
	bool savepoint;     /* ours is set */
	bool fresh;         /* nothing was done since */
	bool status_bad;    /* the server's last word: the transaction has failed */
	size_t stream_left; /* bytes of a long message still to be passed on */
	bool deferrable;    /* there may be constraints that wait for a commit */
	bool held;          /* a cursor WITH HOLD was declared */
	bool notified;      /* LISTEN or NOTIFY: PREPARE would be refused */
	int64_t wait_ms;
	char *gone;    /* why the transaction is lost, or NULL */
	bool finished; /* the manager ended it */
};

/* ---- holder.c: the server's side ---- */

/* Connects and begins. URL must live as long as H. */
int holder_open(struct holder *h, const char *url, struct error *err);
void holder_done(struct holder *h);
/* Asks in C's name (or nobody's); DONE NULL: must not fail. */
void holder_ask(struct holder *h, struct client *c, const char *sql, answer_fn done);
/* The same, without touching the statement and the portal without a name; DONE is not NULL. */
void holder_ask_aside(struct holder *h, struct client *c, const char *sql, answer_fn done);
void holder_ignore(struct client *c, const struct answer *a); /* for DONE: whether it failed */
/* Sends a client's message; one that ends with ReadyForQuery has an item. */
void holder_send(struct holder *h, struct client *c, char type, const void *body, size_t len);
void holder_expect(struct holder *h, struct client *c);
/* The client's batch, the only thing under way, is answered, and ends without a Sync. */
void holder_expect_no_more(struct holder *h);
/* There is a fresh one. */
void holder_savepoint(struct holder *h);
void holder_rollback(struct holder *h); /* to it */
/* The transaction is lost. */
void holder_lose(struct holder *h, const char *why);
/* It may be: a question failed with WHY that cannot. Says what became of the transaction. */
void holder_check_lost(struct holder *h, const char *why);
/* Reads and writes what can be; calls back. */
void holder_read(struct holder *h);
void holder_write(struct holder *h);
/* The client leaves: nobody waits for its answers any more. */
void holder_forget(struct holder *h, struct client *c);
bool holder_idle(const struct holder *h);
/* Asks and waits. ERR has the server's words. ROWS may be NULL. */
int holder_ask_now(struct holder *h, const char *sql, backend_row_fn rows, void *user,
                   char **ret_tag, struct error *err);

#endif
