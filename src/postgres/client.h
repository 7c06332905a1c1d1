/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client of the holder. Its messages are taken one after another; while something is under way
 * for it (HOLDS > 0), or another client owns the connection, they stay in its buffer.
 *
 *   client.c    connection, start-up, what comes in and what goes out
 *   unit.c      units: begin, commit, roll back
 *   verbs.c     statements that are answered here, or that leave something to do behind
 *   script.c    simple queries
 *   batch.c     the extended protocol
 *   names.c     its prepared statements and portals
 *   settings.c  what SET leaves behind, kept per client
 *   locals.c    what SET LOCAL hides, kept per transaction
 */
#ifndef POSTGRES_CLIENT_H
#define POSTGRES_CLIENT_H

#include "postgres/holder.h"
#include "postgres/names.h"
#include "postgres/scram.h"

enum unit {
	UNIT_NONE = 0,
	UNIT_IMPLICIT, /* ends with the query or the Sync */
	UNIT_BLOCK,    /* ends with COMMIT or ROLLBACK */
};

/* Is a statement one command, of a kind that may be carried out? The server is asked first; of a query of
 * several statements it is asked about all of them before the first is executed. */
enum check { CHECK_NONE = 0, CHECK_TEXT, CHECK_ASKED, CHECK_FINE };

struct setting {
	struct setting *next;
	char *name;
	char *value;
};

struct client {
	struct client *next;
	struct holder *h;
	int fd;
	struct wire_buf in, out;
	uint32_t pid, key; /* for cancel requests */
	bool started;
	int64_t prove_until; /* that it knows the password, until it has; 0: it need not */
	bool proving;        /* it was asked for that */
	struct scram_proof proof;
	bool closing; /* what is in OUT is the last */
	bool dead;    /* the connection has ended */
	bool deaf;    /* it reads no answers any more */
	bool left; /* it has closed the connection; what it sent up to its Terminate is carried out */
	bool cancel;    /* was asked for */
	bool cancelled; /* what it left running */
	unsigned holds;
	int64_t wait_until; /* for the connection; 0: not waiting */
	size_t stream_left; /* of a long message of its own */
	bool stream_pass;   /* which the server gets */
	bool throttled;     /* what it sent waits until the server has taken more */

	enum unit unit;
	bool failed;          /* the block: nothing but its end is allowed */
	bool errored;         /* something in the script or batch at hand failed */
	bool constraints;     /* SET CONSTRAINTS was used in the unit */
	bool sets;            /* SET was: a rollback changes settings back */
	bool read_only;       /* the block, by its own words */
	struct local *locals; /* what SET LOCAL hid (locals.c) */
	bool chain;           /* AND CHAIN */
	bool chain_read_only;
	bool chain_failed;
	bool chained; /* the block at hand has its mode from the one before */
	void (*then)(struct client *c, bool ok); /* after the end of the unit */
	const char *verb_tag; /* of the statement that is carried out as a question */

	/* a simple query */
	bool in_script;
	char *script;
	size_t script_len;
	struct sql sql;
	size_t at;
	size_t running;       /* statements before AT that the server is at */
	size_t checked;       /* statements that the server has parsed */
	bool from_start;      /* it was sent what stands before the first of them, too */
	bool text_checked;    /* all of them */
	enum check check;     /* of the statement at AT */
	struct wire_buf held; /* a message that counts only if no error follows */
	bool copying;         /* COPY ... FROM STDIN is open */

	/* an extended batch */
	bool in_batch;
	bool skip;      /* to the next Sync */
	bool forwarded; /* the server knows of the batch: it wants a Sync */
	bool effects;   /* something was bound or executed */
	bool in_part;   /* the last portal that was executed has more to give */
	bool executed; /* something was executed, in the unit; what follows in the batch is in a pipeline */
	bool syncing;   /* a Sync of ours is under way */
	bool flushed;   /* since the last message */
	size_t copies;  /* COPYs whose end is not known */
	bool copy_over; /* their data is */
	struct promises promises;
	struct named *statements, *portals;
	struct named *holdable;  /* cursors WITH HOLD that it has declared */
	struct named *mentioned; /* by the text of a statement that was parsed: EXECUTE name */

	struct setting *settings;
	struct setting *startup;  /* what it came with: for it, these are the defaults */
	struct setting *reported; /* what it was told of them */
	struct setting *changed;  /* what it is to be told when it is ready */
	struct setting
		*customs;  /* names of settings of no module, which the server does not list */
	bool settings_old; /* the server knows better */
	bool backslashes;
};

struct client *client_new(struct holder *h, int fd);
void client_free(struct client *c);
struct client *client_next(const struct client *c);
/* Takes as many of its messages as can be taken now. */
void client_pump(struct client *c);
void client_read(struct client *c);
void client_write(struct client *c);
/* True when it is gone and nothing of it is under way: it was freed. */
bool client_reap(struct client *c);
/* Passes a cancel request on as soon as that is safe. */
void client_cancel(struct holder *h);
/* It has waited long enough for the connection. */
void client_expire(struct client *c, int64_t now);

/* ---- from the server ---- */

void client_answer(struct client *c, const struct wire_message *m);
void client_stream(struct client *c, const void *data, size_t len);
void client_parameter(struct client *c, const struct wire_message *m);
void client_lost(struct client *c, const char *why);
/* Nothing more is done for it. */
void client_refuse(struct client *c, const char *sqlstate, const char *message, const char *hint);

/* ---- what is said to it ---- */

void client_put(struct client *c, char type, const void *body, size_t len);
void client_tag(struct client *c, const char *tag);
void client_error(struct client *c, const char *sqlstate, const char *message);
void client_warn(struct client *c, const char *sqlstate, const char *message);
void client_pass(struct client *c, const struct wire_message *m);
/* An error or a notice; a position in it is SHIFT characters further on for the client. */
void client_pass_error(struct client *c, const struct wire_message *m, long shift);
void client_ready(struct client *c);

/* ---- unit.c ---- */

/* True when the connection is its own and a unit is open; else it waits or something is done
 * first, and the caller is called again. */
bool unit_begin(struct client *c);
/* Ends the implicit unit of a script or batch; client_ready() follows, by itself. */
void unit_end(struct client *c);
/* Lets an implicit unit go in which nothing happened. */
void unit_yield(struct client *c);
void unit_close(struct client *c); /* the client is gone */
/* Ends the unit; THEN is called, perhaps later. What fails to commit is rolled back, and said. */
void unit_commit(struct client *c, void (*then)(struct client *c, bool ok));
void unit_roll_back(struct client *c, void (*then)(struct client *c, bool ok));
/* Is it inside a transaction block, for the server that it takes us for? */
bool unit_in_block(const struct client *c);
void unit_read_only(struct client *c);
/* The same back; false: not allowed any more. */
bool unit_read_write(struct client *c);
/* Fails, and a block with it. */
#define UNIT_FAIL "RELEASE " SQL_OURS "_nothing"
/* An error of ours: inside a block the server thinks so, too. */
void unit_fail(struct client *c, const char *sqlstate, const char *message);

/* ---- verbs.c ---- */

/* Notes what the words of a statement that is executed mean for the unit. */
void verb_note(struct client *c, const struct verb *v);
/* Never reaches the server, not even to be prepared. */
bool verb_is_ours(enum sql_kind kind);
/* Is it executed by us, here and now? */
bool verb_is_run_here(const struct client *c, enum sql_kind kind, unsigned flags);
/* Executed by the server, but something comes first. */
bool verb_has_prelude(enum sql_kind kind, unsigned flags);
void verb_prelude(struct client *c, const struct verb *v);
/* Is it allowed in a block that has failed? */
bool verb_is_exit(enum sql_kind kind);
/* True, and said, when the block has failed and this is not its end. */
bool verb_refuse_failed(struct client *c, enum sql_kind kind);
/* Carries it out, in a unit: a tag or an error goes to the client, c->errored says which. */
void verb_run(struct client *c, const struct verb *v);
/* A transaction that waits for its next client must not end because of that. What may have set a limit to it is
 * followed by these statements at once, before the server has nothing else to do. How many they are. */
size_t verb_stay(const struct client *c, unsigned flags, const char *const **ret_sql);
/* A limit that a client came with: not set at all. */
bool verb_is_limit(const char *setting);
/* Of the text that the statement is in. */
struct verb verb_read(const char *text, const struct sql_statement *s);

/* ---- script.c, batch.c ---- */

void script_start(struct client *c, const char *text);
/* A function call; 1: taken, 0: not now. */
int script_call(struct client *c, const struct wire_message *m);
void script_step(struct client *c);
void script_answer(struct client *c, const struct wire_message *m);
void script_done(struct client *c);
/* How many characters of the query stand before the text that the server has of it. */
long script_shift(const struct client *c);
/* A tag that counts only if the end of the unit does not fail: true when it was kept back. */
bool script_hold_tag(struct client *c, const char *tag);
/* 1: the message was taken; 0: not now. */
int batch_take(struct client *c, const struct wire_message *m);
void batch_answer(struct client *c, const struct wire_message *m);
void batch_done(struct client *c);
/* Before a simple query: false: not now. If it is still in a batch afterwards, the query is void. */
bool batch_leave(struct client *c);
void batch_hang_up(struct client *c);
/* Nothing more can be taken before the server has said more of a COPY. */
bool batch_must_wait(struct client *c);
/* What the server knows the statement or portal NAME of the client by. Caller frees. */
char *batch_name(const struct client *c, struct named *list, const char *name);
/* The statement, which ends at TO, with the name that PREPARE or EXECUTE has in it as the server knows it. */
void batch_add_text(const struct client *c, const char *text, const struct sql_statement *s,
                    size_t from, size_t to, struct strbuf *sb);
/* A statement was carried out: PREPARE gives a name, and DECLARE, too. */
void batch_note_done(struct client *c, const struct verb *v);

/* ---- settings.c ---- */

void settings_add(struct setting **list, const char *name, const char *value);
const char *settings_get(const struct setting *list, const char *name);
void settings_clear(struct setting **list);
/* True when C's settings are in effect; else they are being put so. */
bool settings_switch(struct client *c);
/* SQL that sets what the client came with; only NAME, unless that is NULL. */
void settings_add_startup(struct client *c, struct strbuf *sql, const char *name);
/* SQL that sets all of LIST. */
void settings_add_all(struct strbuf *sql, const struct setting *list, bool local);
/* SQL for an expression, as the server's own bytes; settings_read() has them back. */
#define SETTINGS_HEX(text)                              \
	"pg_catalog.encode(pg_catalog.convert_to(" text \
	", pg_catalog.getdatabaseencoding()), 'hex')"
/* A name and its value; joined by commas. */
#define SETTINGS_PAIR(name, value) SETTINGS_HEX(name) " || '=' || " SETTINGS_HEX(value)
void settings_read(const char *pairs,
                   void (*take)(struct client *c, const char *name, const char *value),
                   struct client *c);
/* A name that may be that of a setting of no module. */
void settings_note_custom(struct client *c, const char *name);
/* SQL for an array of the names in LIST. */
void settings_add_names(struct strbuf *sql, const struct setting *list);
/* The setting that the words of a SET name. Caller frees. */
char *settings_name(const char *name);
void settings_add_literal(struct strbuf *sql, const char *text);
void settings_add_name(struct strbuf *sql, const char *name);

/* ---- locals.c ---- */

/* The transaction at hand has set NAME for itself; VALUE is what it was. */
void locals_hide(struct client *c, const char *name, const char *value);
/* A statement was carried out: SET, RESET and savepoints count. */
void locals_note_done(struct client *c, const struct verb *v);
/* SQL that puts back what is hidden. */
void locals_add_restore(const struct client *c, struct strbuf *sql);
void locals_clear(struct client *c);
/* The newest savepoint of the transaction that is left, or NULL. */
const char *locals_savepoint(const struct client *c);
/* Each set_config() in TEXT that names its setting, and whether for the transaction. */
void locals_read(const char *text, void (*take)(void *user, const char *name, bool local),
                 void *user);

#endif
