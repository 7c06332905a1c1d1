/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the C tests from outside share: a place to work in, trees, manifests, strategies that fail
 * or wait on demand, processes that die on demand. Sees the public header only (rule TST-07).
 *
 * A test takes a fixture from atest_setup() and gives it back to atest_teardown(), which fails the
 * test when it made no assertion (TST-04) or left anything behind (TST-06): mounts, processes,
 * descriptors, loop devices, areas, plans that cannot be stopped.
 *
 *   static void atm_01_x(void **state) { struct fix *f = *state; ... expect(...); }
 *   const struct CMUnitTest tests[] = { atest(atm_01_x), ... };
 *   int main(int argc, char **argv) { return atest_main(argc, argv, tests, children); }
 *
 * Assertions may be made in any thread and in forked children: elsewhere than in the main thread a
 * failed one is remembered and fails the test at its end (a child ends with status 98).
 */
#ifndef ATEST_H
#define ATEST_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>
#include <cmocka.h>

#include <atoll.h>

/* ---- assertions -------------------------------------------------------------------------- */

#define CHILD_FAILED 98 /* exit status of a child in which an assertion failed */

/* Counted. PRINTF-like text on failure. */
void atest_check(bool ok, const char *file, int line, const char *fmt, ...)
	__attribute__((__format__(__printf__, 4, 5)));
#define expect(cond)          atest_check((cond), __FILE__, __LINE__, "%s", #cond)
#define expect_msg(cond, ...) atest_check((cond), __FILE__, __LINE__, __VA_ARGS__)
/* Whole numbers of any type. */
#define expect_eq(a, b)  atest_check_eq((intmax_t)(a), (intmax_t)(b), __FILE__, __LINE__, #a, #b)
#define expect_str(a, b) atest_check_str((a), (b), __FILE__, __LINE__, #a, #b)
/* A call of the library: >= 0, or the result's message is shown. F->res is the last parameter's. */
#define expect_ok(f, call) atest_check_code((f), (call), 0, __FILE__, __LINE__, #call)
/* CODE negative: exactly this, and the result says so too. */
#define expect_code(f, call, code) atest_check_code((f), (call), (code), __FILE__, __LINE__, #call)
void atest_check_eq(intmax_t a, intmax_t b, const char *file, int line, const char *a_text,
                    const char *b_text);
void atest_check_str(const char *a, const char *b, const char *file, int line, const char *a_text,
                     const char *b_text);

/* ---- fixture ----------------------------------------------------------------------------- */

#define FIX_KEEP 320

struct fix {
	char dir[PATH_MAX]; /* scratch: below $ATOLL_TEST_DIR, or else /var/tmp; a real filesystem */
	char home[PATH_MAX]; /* the store, DIR/home; also in $ATOLL_HOME */
	struct atoll *a;
	struct atoll_result *res; /* for whoever wants one; expect_ok() and expect_code() read it */
	/* the rest is atest's own */
	struct atoll_plan *plans[FIX_KEEP];
	size_t n_plans;
	char *strings[FIX_KEEP * 24];
	size_t n_strings;
	char *mounts[16];
	size_t n_mounts;
	struct inventory *before;
};

int atest_check_code(struct fix *f, int64_t r, int code, const char *file, int line,
                     const char *text);

/* A cmocka row with setup and teardown. */
#define atest(test) cmocka_unit_test_setup_teardown(test, atest_setup, atest_teardown)
int atest_setup(void **state);
int atest_teardown(void **state);

/* Strings that live as long as the fixture. */
char *fix_path(struct fix *f, const char *fmt, ...) __attribute__((__format__(__printf__, 2, 3)));
char *fix_keep(struct fix *f, char *malloced);
/* A new directory DIR/NAME; its path. */
const char *fix_dir(struct fix *f, const char *name);
/* Closes the handle and opens a new one, as a new process would; plan handles are freed. */
void fix_reopen(struct fix *f);
/* The same store from another process: only dir, home, a and res are set. fix_detach() ends it. */
void fix_attach(struct fix *f, const char *dir);
void fix_detach(struct fix *f);
/* A plan (NULL: a made-up name) and its resources; freed and stopped at the end. Must succeed. */
struct atoll_plan *fix_plan(struct fix *f, const char *name);
struct atoll_plan *fix_find(struct fix *f, const char *ref);
/* Frees a plan handle of fix_plan() or fix_find() before the fixture ends. */
void fix_forget(struct fix *f, struct atoll_plan *p);
/* STRATEGY NULL: the default for ROOT. */
void fix_add(struct fix *f, struct atoll_plan *p, const char *root, const char *strategy);
void fix_add_child(struct fix *f, struct atoll_plan *p, const char *root, const char *strategy,
                   const char *parent);
/* The workspace of a sandbox (ROOT NULL: the only one), through atoll_sandbox_path(). */
const char *fix_work(struct fix *f, struct atoll_plan *p, const char *root);
enum atoll_sandbox_state fix_state(struct fix *f, struct atoll_plan *p, const char *root);
enum atoll_plan_state fix_plan_state(struct fix *f, struct atoll_plan *p);
/* The id or the area of a sandbox; the fixture's string. */
const char *fix_sandbox_id(struct fix *f, struct atoll_plan *p, const char *root);
const char *fix_area(struct fix *f, struct atoll_plan *p, const char *root);
/* The row of ROOT in F->res, NULL when there is none; and its outcome (-1 when there is none). */
const struct atoll_participant_result *fix_row(struct fix *f, const char *root);
int fix_outcome(struct fix *f, const char *root);
/* Notes of a kind in F->res. */
size_t fix_notes(struct fix *f, enum atoll_note_kind kind);
size_t fix_history(struct fix *f, struct atoll_plan *p, const char *what, int *ret_last_code);

/* Skips the test unless we are root. */
void need_root(void);
/* Skips the test, saying why; counts as neither passed nor empty. */
void atest_skip(const char *why);
bool atest_long(void); /* $ATOLL_LONG is set */

/* ---- trees ------------------------------------------------------------------------------- */

/* PATH is printf-like joined: at(f, "%s/x", root). All abort the test on failure. */
void put_text(const char *path, const char *text); /* a file holding TEXT, 0644, replaced */
void put_bytes(const char *path, size_t size, unsigned seed); /* SIZE bytes made from SEED */
void append_text(const char *path, const char *text);
void put_dir(const char *path, mode_t mode);
void put_link(const char *path, const char *target);
void put_hardlink(const char *path, const char *existing);
void put_fifo(const char *path);
void put_socket(const char *path); /* bound, then closed: the entry stays */
void put_device(const char *path); /* character device 1:3; root only */
void put_xattr(const char *path, const char *name, const char *value); /* follows no link */
void put_acl_user_read(const char *path, uid_t uid); /* POSIX ACL: u:UID:r-- beside the mode */
void set_mode(const char *path, mode_t mode);
void set_mtime(const char *path, int64_t sec, long nsec); /* of the entry itself */
void remove_entry(const char *path);                      /* file, link, or whole tree */
bool exists(const char *path);
char *get_text(const char *path); /* whole file, malloced; NULL when it is not there */
void expect_text(const char *path, const char *text); /* counted assertion */
/* A tree of about N entries with all ordinary kinds of entry, the same for the same SEED, times
 * in the year 2001. */
void put_random_tree(const char *root, unsigned n, unsigned seed);
/* Changes about a third of what put_random_tree() makes: edits, adds, deletes, replaces. */
void edit_random_tree(const char *root, unsigned seed);
/* N files ROOT/dNN/fNNN holding TEXT and their number. */
void put_files(const char *root, unsigned n, const char *text);

/* ---- MAN: manifests of trees ------------------------------------------------------------- */

/* One line per entry, sorted: path, type, mode, uid, gid, size, mtime, target, rdev, extended
 * attributes, content hash. Malloced. man_inodes(): with inode number and ctime besides. */
char *man_take(const char *root);
char *man_inodes(const char *root);
/* Counted; shows the first line that differs. */
#define man_assert_equal(a, b)     man_check((a), (b), true, __FILE__, __LINE__)
#define man_assert_not_equal(a, b) man_check((a), (b), false, __FILE__, __LINE__)
void man_check(const char *a, const char *b, bool equal, const char *file, int line);
/* Takes ROOT's manifest now and compares. */
#define expect_man(root, before)    man_check_now((root), (before), false, __FILE__, __LINE__)
#define expect_inodes(root, before) man_check_now((root), (before), true, __FILE__, __LINE__)
void man_check_now(const char *root, const char *before, bool inodes, const char *file, int line);

/* ---- FULL, IMM --------------------------------------------------------------------------- */

/* A tmpfs of SIZE bytes at DIR/NAME; unmounted at the end. Root only. */
const char *fix_tmpfs(struct fix *f, const char *name, size_t size);
/* Fills it up, leaving about LEAVE bytes; removing NAME frees it again. */
void fill_up(const char *dir, const char *name, size_t leave);
/* chattr +i, -i. Root only; lifted at the end below F->dir. */
void set_immutable(const char *path, bool on);

/* ---- FAILER, GATE: custom strategies ------------------------------------------------------ */

/*
 * The resource is a directory, what matters in it the file `value`; the workspace is a directory
 * with a file `value` as well (edit it through fix_work()). Commit replaces ROOT/value, undo puts
 * the former content back, and every effect is a line "VERB NAME" in the effect log (NAME: the
 * last part of ROOT). Registered as:
 *
 *   failer  prepare and undo      final   prepare, no undo
 *   gate    the same as failer    blunt   neither: as pass-through as `none`
 *
 * What a participant does besides in a phase is set per ROOT, or for all (ROOT NULL).
 */
enum phase {
	PHASE_CREATE = 0,
	PHASE_PATH,
	PHASE_DIFF,
	PHASE_PREPARE,
	PHASE_PREPARE_UNDO,
	PHASE_CHECK,
	PHASE_COMMIT,
	PHASE_ABORT,
	PHASE_UNDO,
	PHASE_FINISH,
	PHASE_RELEASE,
	PHASE_RESET,
	PHASE_REMOVE,
	PHASE_END_
};
void faulty_register(void);        /* repeatable; atest_setup() does it */
void effect_log(const char *path); /* NULL: none */
/* Runs FN at the start of the phase; anything but 0 is the phase's answer. */
typedef int (*phase_fn)(void *user, struct atoll_participant *p, enum phase phase);
void phase_hook(const char *root, enum phase phase, phase_fn fn, void *user);
void phase_clear(void); /* all hooks; atest_setup() does it */

enum fail_how {
	FAIL_CODE,  /* returns CODE */
	FAIL_NOMEM, /* runs into RLIMIT_AS: ENOMEM */
	FAIL_FSIZE  /* runs into RLIMIT_FSIZE: EFBIG */
};
void failer_set(const char *root, enum phase phase, enum fail_how how, int code);

/* A participant that reaches the phase says so and waits to be let through; the first time only.
 * Works between threads and, when set before fork(), between processes. */
struct gate;
struct gate *gate_set(const char *root, enum phase phase);
bool gate_wait(struct gate *g, int timeout_ms); /* until somebody stands at it */
void gate_open(struct gate *g);
void gate_free(struct gate *g);

/* ---- KILL: other processes ---------------------------------------------------------------- */

/* What a test program does when started again as a child; DIR is the fixture's, ARG free. The
 * answer is its exit status. */
struct atest_child {
	const char *name; /* NULL ends a table */
	int (*fn)(const char *dir, const char *arg);
};
/* Runs the child NAMEd on the command line, or the tests; of these, where $ATOLL_TEST_ONLY is set, the
 * ones it matches ("con_05*"). */
#define atest_main(argc, argv, tests, children)                                           \
	(atest_is_child(argc, argv) ? atest_child_run(argv, children)                     \
	                            : (cmocka_set_test_filter(getenv("ATOLL_TEST_ONLY")), \
	                               cmocka_run_group_tests((tests), NULL, NULL)))
bool atest_is_child(int argc, char **argv);
int atest_child_run(char **argv, const struct atest_child *children);

/* Starts this program again as the child NAME. ENV: "K=V" strings set for it, NULL-terminated, or
 * NULL ("ATOLL_CRASHPOINT=txn.after-decision:1" makes it die there). */
pid_t child_start(struct fix *f, const char *name, const char *arg, const char *const *env);
/* Exit status as a shell gives it: 0-255, 128+N. */
int child_wait(pid_t pid);
int child_run(struct fix *f, const char *name, const char *arg, const char *const *env);
/* Runs FN in a forked child and gives its status. */
int fork_run(struct fix *f, int (*fn)(struct fix *f, void *user), void *user);
/* A reader process: FN over and over until reader_stop(), which answers the number of rounds, or
 * -1 when FN once returned something but 0. */
struct reader;
struct reader *reader_start(int (*fn)(void *user), void *user);
long reader_stop(struct reader *r);

/* ---- odds -------------------------------------------------------------------------------- */

int64_t now_ms(void); /* monotonic */
void sleep_ms(int ms);
size_t count_entries(const char *dir); /* of one directory, dot entries too */
size_t count_fds(void);
/* A small generator with its own state, so that a failing run can be repeated. */
uint32_t atest_random(uint64_t *state);

#endif
