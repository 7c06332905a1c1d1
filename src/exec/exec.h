/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running a command: a request is built here and carried out by atoll-helper, a single-threaded
 * program (a process with threads must not fork and go on). The helper holds the plan's lock
 * descriptor, starts the command, passes signals on, and when the command ends kills whatever it
 * left running: nothing outlives its command. If the caller dies, a lifeline pipe ends it all.
 */
#ifndef EXEC_EXEC_H
#define EXEC_EXEC_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "exec/control.h"
#include "exec/request.h"
#include "util/error.h"

/* Where atoll-helper is; program.h says how it is found. Caller frees. */
char *exec_helper_path(void);

/* What a command sees at a path, in its own mount namespace. */
enum exec_view_kind {
	EXEC_VIEW_BIND = 0, /* SOURCE, writable */
	EXEC_VIEW_OVERLAY,  /* an overlay of UPPER over SOURCE */
	EXEC_VIEW_SHOW,     /* SOURCE, only to be read */
	/* The rest is no resource's: what it comes to is kept or dropped, and not committed. */
	EXEC_VIEW_SCRATCH, /* an overlay; where it cannot be, SOURCE, read-only */
	EXEC_VIEW_FIXED, /* a directory in a scratch view, only to be read; nothing when it is gone */
	EXEC_VIEW_PRIVATE, /* one in that, as the scratch view has it; the same */
	EXEC_VIEW_EMPTY,   /* a directory with nothing in it, writable, gone with the command */
	EXEC_VIEW_HIDDEN,  /* nothing: an empty directory or file; nothing happens where none is */
	EXEC_VIEW_CLOSED,  /* the same, and nobody but root may look */
	EXEC_VIEW_KIND_END_
};
struct exec_view {
	enum exec_view_kind kind;
	const char *target; /* absolute; the resource's own path */
	const char *source;
	const char *upper; /* overlays only */
	const char
		*work; /* overlays only; on the upper's mount, empty or of a mount in this boot */
	bool moved;    /* not at its own path: that may be missing, nothing else in it is seen */
};

/* What this host can do for us; asked once with the helper and kept by the caller. */
enum exec_tier {
	EXEC_TIER_NONE = 0, /* no namespaces: a command sees the system as it is */
	EXEC_TIER_BIND,     /* namespaces, but no overlay there */
	EXEC_TIER_OVERLAY,
	EXEC_TIER_END_
};
/* Can an overlay with its upper layer below AREA (a directory of ours) be mounted over ROOT?
 * *ret_why: what is in the way when the answer is less than OVERLAY, owned by the caller. */
int exec_probe(const char *root, const char *area, enum exec_tier *ret, char **ret_why,
               struct error *err);

#define EXEC_END     (-1)
#define EXEC_END_NOW (-2)
/* A workspace to be made durable when the command has ended and nobody waits any more. Then NUMBER
 * is durably put into AREA/durable; never before the data. */
struct exec_sync {
	const char *work, *area, *number;
};

/* What the command prints is kept, no more than the last MAX bytes or half of that, in DIR, which is
 * there and empty: segments as EXEC_SEGMENT names them. */
struct exec_output {
	const char *dir;
	uint64_t max;
	/* And goes to standard output and error, ours or those given. Where our standard input and output are
	 * the terminal of our session, and neither descriptors nor a control are given, the command has a
	 * terminal of its own in its place, and all goes from there to ours, which is raw meanwhile, and
	 * back (helper/relay.h). Standard error that is something else stays as it is, then, and is not
	 * kept. One relay at a time for a process group: others of it have pipes. */
	bool pass;
};

/* For a program that runs one command at a time: whether the last one had a terminal of its own in place
 * of the caller's, and so never could read the caller's, write to it later or change its modes. */
bool exec_was_relayed(void);

struct exec_options {
	const char *const *argv;
	const char *cwd;           /* absolute */
	const char *const *setenv; /* NULL-terminated: "NAME=value" is added, "NAME" taken away */
	int lock_fd;               /* held by the helper as long as the command lives; FD_NONE */
	int64_t timeout_ms;        /* <= 0: none */
	/* Asked while the command runs, first when it has just begun: ms until it wants to be asked
	 * again; EXEC_END: the command is ended, as when its time is up; EXEC_END_NOW: without
	 * SIGTERM and time to obey it. NULL: nobody asks. */
	int (*watch)(void *ctx);
	void *watch_ctx;
	/* None: the command sees the system as it is. Else it runs in namespaces of its own: these
	 * at their targets, private /tmp, /var/tmp, /run and /dev, everything else read-only. */
	const struct exec_view *views;
	unsigned n_views;
	bool strict;         /* rather not run than with less of a fence than there can be */
	const char *tmp;     /* shown as /tmp, mode 1777; NULL: one that goes with the command */
	const char *var_tmp; /* the same of /var/tmp; NULL: the host's, read-only */
	const char *record;  /* directory where the helper writes who pid 1 is, for exec_bury() */
	const struct exec_sync *syncs; /* after the command */
	unsigned n_syncs;
	const char *net;           /* REQUEST_NET_*; NULL: the host's. Only with views */
	const char *const *listen; /* REQUEST_LISTEN; NULL-terminated, or NULL. Only with NET */
	/* Bytes, thousandths of a processor, processes; <= 0: no limit. What holds the command to
	 * them is in struct exec_usage. */
	int64_t limits[REQUEST_LIMIT_END_];
	const struct exec_output *output; /* NULL: it is not kept */
	bool detached; /* no input, and nothing of ours to print to: what it prints is kept or lost */
	/* Instead of our standard descriptors: three of the caller's, FD_NONE where ours is meant. NULL:
	 * all are ours. */
	const int *stdio;
	/* Signals for the command, and the word that it must end (SIGTERM, and SIGKILL half a second
	 * later). It has a session of its own then, without our terminal. NULL: nobody. */
	struct control *control;
	/* A session of its own, whose terminal is the one at its standard input. */
	bool terminal;
	/* The same with a terminal that is made for it, in place of the caller's (helper/relay.h): where the caller's
	 * standard input, and its standard output or error, are the terminal of its session, and neither descriptors nor a
	 * control are given. What of the three is something else stays as it is, and is not kept. One relay at a
	 * time for a process group. Whether there was one: exec_was_relayed(). */
	bool own_terminal;
	void (*began)(void *ctx); /* told once the command runs; or NULL */
	void *began_ctx;
	/* From exec_joinable(): it joins that one's namespaces. No views then, and no lock. NULL: none. */
	const char *join;
};
struct exec_usage {
	int exit_code; /* as a shell gives it; 124 timed out */
	int term_signal;
	bool timed_out;
	bool stopped; /* WATCH had it ended */
	int64_t user_us, system_us;
	uint64_t max_rss_kb;
	bool isolated;      /* it ran in namespaces of its own */
	bool still_written; /* something outside kept a view open for writing */
	enum reply_limit limit_by[REQUEST_LIMIT_END_];
	unsigned memory_kills; /* processes that went over the limit and were killed */
};

/*
 * A command in steps, so that the caller's own work is done while the helper does its:
 *
 *   exec_start()  the helper begins to build namespaces and views
 *   exec_go()     the command begins; until then nothing is written to a workspace
 *   exec_wait()   until all of the command has ended
 *   exec_note()   the caller has written what it adds to the workspaces: they may be synced, or need
 *                 not be. Only after a wait that succeeded, and not a must: without it there is no sync.
 *                 False: the helper cannot be told any more, it was let go of or is gone
 *   exec_close()  until the helper, and its descriptor of the lock, are gone. Without a wait the
 *                 command is ended, or never begins
 *
 * OPT must live until the wait. exec_wait(): 0 and *ret; -ENOENT, -EACCES: the command could not be
 * started (named); -ATOLL_E_UNSUPPORTED, also from exec_start(): no helper program found, or the host
 * does not let it make the namespaces or views.
 */
struct exec;
int exec_start(const struct exec_options *opt, struct exec **ret, struct error *err);
void exec_go(struct exec *e);
int exec_wait(struct exec *e, struct exec_usage *ret, struct error *err);
bool exec_note(struct exec *e, bool sync);
void exec_close(struct exec *e);
void cleanup_execp(struct exec **e);
#define cleanup_exec __attribute__((__cleanup__(cleanup_execp)))
/* For a program that owns its process, and has one thread: starts a helper for the next exec_start(),
 * so that it is there when the request is; nobody waits for it until then. HELPER is what atoll-helper
 * does, in a copy of this process, which should be small still: nothing has to be loaded. What is
 * passed to the command (environment, working directory, standard descriptors, ignored signals) is as
 * now. Harmless if it is never used: it ends with us. Used, it may still be ending when its command
 * has. */
void exec_ahead(int (*helper)(void *ctx), void *ctx);
/* The last that such a program does: waits for that. */
void exec_end(void);
/* Who passes signals on to the command, from exec_go() until exec_close(): a process, or 0 for nobody. For
 * handlers of a program that runs one command at a time. */
pid_t exec_listener(void);
/* The same for when the command has ended: true from then until exec_close(). The listener is then the relay of its
 * terminal, where there is one, while what was printed is on its way; a signal makes it leave that. */
bool exec_has_ended(void);
/* All of it in one. */
int exec_run(const struct exec_options *opt, struct exec_usage *ret, struct error *err);

/* Who runs on record in DIR, in a form for exec_options.join; the caller frees. 1, or 0: nobody, or
 * what runs there has no namespaces of its own; -EAGAIN: it has just begun, and will be. */
int exec_joinable(const char *dir, char **ret);
/* After a dead holder of the plan's lock: ends the command recorded in DIR, if it still lives, and
 * waits until all of its namespace is gone. */
int exec_bury(const char *dir, struct error *err);

#endif
