/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The request from the library to atoll-helper: one message of length-prefixed fields on a
 * descriptor, little-endian, checked against limits on both sides. Fields a helper does not know
 * are an error, so that nothing asked for is silently left out (fences will be added here).
 */
#ifndef EXEC_REQUEST_H
#define EXEC_REQUEST_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define REQUEST_MAGIC 0x514c5441u /* "ATLQ" */
#define REQUEST_MAX   (4u << 20)
#define REPLY_FD      4 /* the helper writes its reply here; closed when it is done */
/* A byte, the last one: there is nothing any more that the end of the helper would have to be waited for. */
#define REPLY_LEFT 'e'
/* A socket. First, REQUEST_SLOTS bytes that name the descriptors sent with them: the request and,
 * where there is one, the lock; then 'g': the command may begin; from then on any byte that is the
 * number of a signal: it is for the command; 's': what the caller adds to the workspaces is written,
 * they may be synced; 'n': they need not be. EOF: the caller is gone. */
#define LIFELINE_FD 5
/* Where the helper puts what it receives, each by the letter of its slot. */
#define REQUEST_FD    3 /* 'r' */
#define LOCK_FD       6 /* 'l', only when REQUEST_HAS_LOCK */
#define LIMIT_FD      7 /* 'm', 'c', 'p': where a process enters the group with that limit (limit.h) */
#define OUTPUT_FD     10 /* 'o': instead of standard output, 'e', the next: of standard error */
#define STOPPED_FD    12 /* 'n': a byte for each time the command stops or goes on (terminal.h) */
#define JOBSERVER_FD  13 /* 'j', 'w' the next: for the command, as REQUEST_JOBSERVER says */
#define REQUEST_SLOTS 10 /* bytes; unused ones are 0 */

enum request_field {
	REQUEST_ARG = 1, /* one per argument, in order */
	REQUEST_CWD,
	REQUEST_ENV, /* NAME=value to set */
	REQUEST_HAS_LOCK,
	REQUEST_TIMEOUT_MS, /* decimal */
	/* Views: the I-th values of these five belong together. With one or more of them the
	 * command runs in namespaces of its own, and REQUEST_CWD is needed. */
	REQUEST_VIEW_KIND,
	REQUEST_VIEW_TARGET,
	REQUEST_VIEW_SOURCE,
	REQUEST_VIEW_UPPER, /* "" for a bind */
	REQUEST_VIEW_WORK,  /* "" for a bind */
	REQUEST_MOVED,   /* the target of a view that is shown elsewhere than at its own place: made
	                       where it is not there, and nothing that is mounted below it is seen */
	REQUEST_TMP,     /* the directory shown as /tmp; else one that goes with the command */
	REQUEST_VAR_TMP, /* the same of /var/tmp; else the host's, read-only */
	REQUEST_RECORD,  /* the directory for EXEC_RUNNING */
	/* Workspaces to be synced in the background after the answer: the I-th values of these
	 * three belong together. */
	REQUEST_SYNC_WORK,
	REQUEST_SYNC_AREA,
	REQUEST_SYNC_NUMBER, /* written to the area when all is on disk */
	REQUEST_STRICT,      /* all of the fence, or no command */
	REQUEST_NET,         /* REQUEST_NET_*: a network of its own (helper/net.h) */
	REQUEST_LISTEN, /* "PORT WORD PATH", with that: the process at the socket PATH is sent the
	                            line WORD, with a socket that listens at PORT of the command's loopback */
	/* Numbers, decimal: bytes, thousandths of a processor, processes (helper/limit.h). */
	REQUEST_MEMORY,
	REQUEST_CPUS,
	REQUEST_PIDS,
	REQUEST_TELL, /* "1": a reply REPLY_RUNNING comes first, when the command runs */
	REQUEST_JOIN, /* "PID START": the command joins the namespaces of that one (helper/join.h) */
	REQUEST_TERMINAL, /* "1": it has a terminal of its own (helper/terminal.h) */
	REQUEST_JOBSERVER, /* twice, decimal: the numbers of 'j' and 'w' in the command (exec/jobserver.h) */
	/* A field given to a helper that does not know it is an error, never left out. */
	REQUEST_FIELD_END_
};
/* Parts of what a command printed, kept in a directory: each is named by the place of its first
 * byte (helper/keep.h). */
#define EXEC_SEGMENT     "%020" PRIu64
#define EXEC_SEGMENT_LEN 21
/* File that says who pid 1 of a running command is: pid, start time, boot. */
#define EXEC_RUNNING         "running"
#define REQUEST_BIND         "bind"
#define REQUEST_SHOW         "show" /* a bind that is only to be read */
#define REQUEST_OVERLAY      "overlay"
#define REQUEST_SCRATCH      "scratch"
#define REQUEST_PRIVATE      "private" /* a directory in a scratch view, above what is fixed there */
#define REQUEST_FIXED        "fixed"   /* one that is only to be read */
#define REQUEST_EMPTY        "empty"
#define REQUEST_HIDDEN       "hidden"
#define REQUEST_CLOSED       "closed"
#define REQUEST_NET_NONE     "none"
#define REQUEST_NET_LOOPBACK "loopback"

/* What can be limited, and what holds a command to it. */
enum request_limit {
	REQUEST_LIMIT_MEMORY = 0,
	REQUEST_LIMIT_CPUS,
	REQUEST_LIMIT_PIDS,
	REQUEST_LIMIT_END_
};
enum reply_limit {
	REPLY_LIMIT_UNASKED = 0,
	REPLY_LIMIT_CGROUP2,
	REPLY_LIMIT_CGROUP1,
	REPLY_LIMIT_RLIMIT, /* each process for itself (memory), each user (processes) */
	REPLY_LIMIT_NOTHING,
	REPLY_LIMIT_END_
};

/* Where the start of a command failed. */
enum reply_stage {
	REPLY_STARTED = 0,
	REPLY_REQUEST,
	REPLY_NAMESPACE, /* no namespaces, or not what is needed in them */
	REPLY_VIEW,
	REPLY_CHDIR,
	REPLY_EXEC,
	REPLY_JOIN,    /* there was nothing (any more) that could be joined */
	REPLY_RUNNING, /* no failure, and not the end: the command runs now */
	REPLY_LOST,    /* it had begun, and was killed together with what watched over it */
	REPLY_STAGE_END_
};

/* What the helper has to say about a command that ran. */
enum reply_flag {
	REPLY_STILL_WRITTEN = 0x1, /* an overlay was open for writing when all had ended */
	REPLY_OLD_PROC = 0x2,      /* the host's /proc was kept: a fresh one is not allowed here */
	REPLY_NO_USER_NS = 0x4,    /* root's command ran in the helper's own user namespace */
	REPLY_SAYS_WHY = 0x8,      /* the text is complete: the number would mislead */
	REPLY_ALL_ENDED = 0x10,    /* pid 1 was alone, and the overlays could not be written to */
};
#define REPLY_TEXT 1024

/* The helper's answer. Both programs come from one build: the native layout is the format. */
struct reply {
	uint32_t magic;
	int32_t stage; /* enum reply_stage */
	int32_t error; /* 0, or errno: the command could not be started */
	int32_t exit_code;
	int32_t term_signal;
	int32_t timed_out;
	uint32_t flags; /* enum reply_flag */
	int64_t user_us, system_us;
	uint64_t max_rss_kb;
	int32_t limit_by[REQUEST_LIMIT_END_]; /* enum reply_limit */
	uint32_t memory_kills; /* processes that the kernel ended for want of memory in the group */
	char text[REPLY_TEXT]; /* what failed, after "cannot"; "" when the stage says it all */
};

/* Writes EXEC_RUNNING for PID (exec/bury.c), with GROUPS: a line each, paths of control groups that
 * go with it. 0 or -errno. */
int exec_write_running(int dir_fd, pid_t pid, const char *groups);
/* Adds to it that all is built: from now on others may join. */
int exec_mark_joinable(int dir_fd);

struct request;
/* Building (library) and reading (helper). */
struct request *request_new(void);
void request_free(struct request *r);
void cleanup_requestp(struct request **r);
#define cleanup_request __attribute__((__cleanup__(cleanup_requestp)))
int request_add(struct request *r, enum request_field f, const char *value); /* -ATOLL_E_TOO_BIG */
int request_send(const struct request *r, int fd);
int request_receive(int fd, struct request **ret); /* -EPROTO, -ATOLL_E_TOO_BIG */

/* Descriptors on their way through a socket, the I-th for the I-th letter of SLOTS. 0 or -errno. */
int request_give(int socket, const char *slots, const int *fds);
/* The same for all that are in their places. */
int request_hand_on(int socket);
/* Puts them in their places. 1; 0: the other side is gone; -errno. */
int request_take(int socket);
/* So that nothing else gets these numbers before they arrive. */
int request_reserve(void);
/* What is there: has one been put in its place, and putting a copy of another there. */
bool request_has(char slot);
int request_put(char slot, int fd); /* 0 or -errno */
/* Where a view can be: absolute, not "/", no empty component, no "." or "..". */
bool request_is_target(const char *path);
unsigned request_count(const struct request *r, enum request_field f);
/* The I-th value of a field, or NULL. */
const char *request_get(const struct request *r, enum request_field f, unsigned i);

#endif
