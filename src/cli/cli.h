/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the commands share. A command is one file, cmd-<x>.c, that ends with its row: name, function,
 * options, words; main.c lists the rows. Nothing is opened before a command asks for it.
 *
 * Data goes to standard output, everything said to the user to standard error. With --json one
 * object goes to standard output, on failure too.
 */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <atoll.h>
#include "answer/answer.h"
#include "answer/paint.h"
#include "cli/fence.h"
#include "cli/options.h"
#include "plan/settings.h"
#include "util/child.h"
#include "util/clock.h"
#include "util/json.h"
#include "util/list.h"

#define EXIT_USAGE     2
#define EXIT_OWN       125 /* of exec, whose other codes are the command's */
#define EXIT_NOT_RUN   126
#define EXIT_NOT_FOUND 127

struct cli;

/* Which plan is meant where none is named, of those with a resource that holds the current directory. */
enum pick {
	PICK_NONE = 0, /* it takes no plan, or finds it in its own way */
	PICK_LATEST,   /* the last used, and says so: for a command that only looks */
	PICK_AT_WORK,  /* the only one with uncommitted changes or a running command */
};

struct command {
	const char *name;
	const char *also;          /* other names, with blanks between them, or NULL */
	int (*run)(struct cli *c); /* exit status */
	const char *words;         /* what it takes besides options; see enum value_kind */
	const char *summary;
	const char *about; /* more, for help; may be NULL */
	const struct option_row *options;
	size_t min_words, max_words;
	size_t stop_at;     /* see args_parse() */
	bool reads;         /* it changes nothing in the store; see registry_program() */
	bool everyday;      /* shown by bare `atoll` */
	bool hidden;        /* not for people: no help, no manual page */
	bool pages;         /* its output may be long, and it changes nothing; see pager.h */
	bool decides;       /* about a plan's work: signals are its own, see interrupt.h */
	bool bare;          /* it works whatever the settings say */
	int own_exit;       /* of any failure that is not the command's; 0: by its code */
	const char *object; /* what its JSON is called; NULL: as the command */
	enum pick pick;
	bool paths_follow;    /* the first word is a plan only as a whole name, else a path */
	bool program_follows; /* a program's command line, behind "--" where no plan is named */
	bool whole_names;     /* it takes no beginning of a plan's name */
	const struct command *there; /* its row with --remote; NULL: it works only here, */
	bool here_only;              /* and does not do so while $ATOLL_REMOTE is set */
};

enum cli_color { COLOR_AUTO = 0, COLOR_ALWAYS, COLOR_NEVER };

struct cli {
	const struct command *command;
	char **argv; /* of main() */
	struct args args;
	struct atoll *atoll;
	struct atoll_plan *plan;
	bool is_picked;   /* the plan, which no word named */
	const char *verb; /* of job and lock: their first word, taken out of ARGS; else NULL */
	struct atoll_result *res;
	const char *remote; /* --remote, $ATOLL_REMOTE; NULL: here */
	bool json;
	bool yes;
	bool no_pager;
	bool quiet;        /* no line "next: ..." */
	bool paged;        /* standard output goes to a pager: */
	bool paged_errors; /* and so does standard error */
	struct child pager;
	enum cli_color color;
	int64_t wait_ms; /* -1: for ever */
	/* Of exec, run and shell: */
	const struct atoll_exec_status *ran; /* how the command ended, once it has */
	struct fence_args fence;
	struct strlist ran_notes; /* what the library said of it */
	FILE *status; /* --status-file: gets the object of --json, whatever happens; or NULL */
	struct settings settings;
	struct error settings_err; /* of reading them */
};

/* ---- cli.c: the store and the plan ---- */

/* 0, or an exit status: everything was said then. */
int cli_open(struct cli *c);
/* For commands that change something: settles first what dead processes left anywhere. */
int cli_open_settled(struct cli *c);
/* Opens the store and the plan that is meant (which.h). A word that named it is taken out of c->args:
 * what is left are the command's other words. */
int cli_open_plan(struct cli *c);
/* The same for a command that needs the plan's lock. */
int cli_open_plan_settled(struct cli *c);
/* Where FIND sets c->plan: 0, or an exit status after it said why not. */
int cli_open_plan_by(struct cli *c, int (*find)(struct cli *c));
/* ATOLL_DENY_* that the settings ask for. */
unsigned cli_policy(const struct cli *c);
/* True when it may be done: --yes, or no terminal to ask at, or the answer was yes. */
bool cli_confirm(const struct cli *c, const char *question);

/* ---- report.c: what is said ---- */

/* Each is a line on standard error; silent with --json. */
void cli_say(const struct cli *c, const char *fmt, ...)
	__attribute__((__format__(__printf__, 2, 3)));
/* "next: ...": on a terminal only, where standard output is no pipe, and not with --quiet. */
void cli_next(const struct cli *c, const char *fmt, ...)
	__attribute__((__format__(__printf__, 2, 3)));
/* A line on standard error that is wanted with --json, too. */
void cli_tell(const char *message);
/* A path or name on F, so that it can do no harm there. */
void cli_put_path(FILE *f, const char *path);
/* "1 file", "2 files". */
const char *cli_plural(uint64_t n, const char *one, const char *many);
/* For people: "7 bytes", "12 KiB", "3.4 MiB", in steps of 1024. */
#define CLI_SIZE_LEN 16
void cli_size(uint64_t bytes, char out[CLI_SIZE_LEN]);
/* A time as TEXT on standard output: the user's own on a terminal, else that of --json. */
void cli_time(const struct cli *c, int64_t real_ms, char out[CLOCK_TEXT_LEN]);
/* How long ago that was: "12 s", "5 min", "2 h", "3 d". */
#define CLI_AGE_LEN 24
void cli_age(int64_t real_ms, char out[CLI_AGE_LEN]);

/* Reports a failure with what c->res holds; returns the exit status for CODE (< 0). */
int cli_fail(struct cli *c, int code);
/* The same with another hint. */
int cli_fail_hint(struct cli *c, int code, const char *hint);
/* One with its own words. Frees ERR. */
int cli_fail_error(struct cli *c, struct error *err);
int cli_fail_usage(struct cli *c, const char *fmt, ...)
	__attribute__((__format__(__printf__, 2, 3)));
/* What to do about CODE when nobody else said; the caller frees. In hint.c. */
char *hint_for(const struct cli *c, int code, const char *op);
/* Notes of c->res, as lines on standard error. */
void cli_notes(const struct cli *c);
/* Those of RES, of something that was done besides, that say where something lies. */
void cli_kept(const struct cli *c, const struct atoll_result *res);

/* An object of format "atoll.<command>/1" on standard output, open until cli_json_end(). */
void cli_json_begin(const struct cli *c, struct json *j);
/* The same elsewhere. */
void cli_json_begin_on(const struct cli *c, struct json *j, FILE *f);
/* "exit_code", "term_signal" and "timed_out" of c->ran. */
void cli_json_ran(const struct cli *c, struct json *j);
void cli_json_plan(const struct cli *c, struct json *j);
/* "atomicity", "participants", "notes" of c->res. */
void cli_json_result(const struct cli *c, struct json *j);
void cli_json_end(struct json *j);
/* A command that lists. With --json: the object in J, what HEAD (or nobody, NULL) puts into it, and
 * its array NAME, open; returns J. Else NULL, for lines. */
struct json *cli_list_begin(const struct cli *c, struct json *j, const char *name,
                            void (*head)(const struct cli *c, struct json *j));
/* R: how the listing went. With J the object is ended, with R in it, and this is the exit status;
 * else an exit status after a failure, which was said. */
int cli_list_end(struct cli *c, struct json *j, int r);

bool cli_is_terminal(const struct cli *c, FILE *f);
/* Colour codes for F, or "" when it is to have none. */
const char *cli_paint(const struct cli *c, FILE *f, enum paint p);

/* ---- other-words.c ---- */

struct other_word {
	const char *word;    /* no command of Atoll */
	const char *purpose; /* what it is for elsewhere */
	const char *command; /* what is typed for that here, after "atoll" */
};
const struct other_word *other_word_at(size_t i); /* NULL after the last */
const struct other_word *other_word_find(const char *word);

/* ---- examples.c ---- */

struct example {
	const char *command; /* of which command it is one */
	bool remote;         /* with --remote */
	const char *typed, *does;
};
const struct example *example_at(size_t i); /* NULL after the last */

/* ---- main.c ---- */

const struct command *command_at(size_t i); /* NULL after the last */
/* By its name, or one of its other names. */
const struct command *command_find(const char *name, struct error *err);
extern const struct option_row common_options[];

/* ---- cmd-*.c ---- */

extern const struct command cmd_add;
extern const struct command cmd_clean;
extern const struct command cmd_commit;
extern const struct command cmd_complete;
extern const struct command cmd_completion;
extern const struct command cmd_config;
extern const struct command cmd_diff;
extern const struct command cmd_discard;
extern const struct command cmd_doctor;
extern const struct command cmd_exec;
extern const struct command cmd_help;
extern const struct command cmd_job;
extern const struct command cmd_list;
extern const struct command cmd_lock;
extern const struct command cmd_log;
extern const struct command cmd_open;
extern const struct command cmd_recover;
extern const struct command cmd_redo;
extern const struct command cmd_refresh;
extern const struct command cmd_remote;
extern const struct command cmd_rollback;
extern const struct command cmd_run;
extern const struct command cmd_serve;
extern const struct command cmd_shell;
extern const struct command cmd_start;
extern const struct command cmd_status;
extern const struct command cmd_rm;
extern const struct command cmd_token;
extern const struct command cmd_undo;
extern const struct command cmd_version;

/* What `atoll help CMD` prints; CMD may be NULL. Returns an exit status. */
int help_about(const struct cli *c, const struct command *cmd);
/* The everyday commands. */
void help_everyday(FILE *f);

#endif
