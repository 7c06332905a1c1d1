/* SPDX-License-Identifier: Apache-2.0 */
/* Counted assertions, and the fixture every test works in. */
#include "lib/atest.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/inventory.h"

static atomic_ulong assertions;
static atomic_ulong failed_elsewhere;
static bool skipped;
static pid_t main_pid;
static pthread_t main_thread;

/* ---- assertions ---- */

static bool in_main(void)
{
	return getpid() == main_pid && pthread_equal(pthread_self(), main_thread);
}

/* Only the main thread may jump back into cmocka. */
static void give_up(const char *file, int line, const char *text)
{
	if (in_main())
		_assert_true(0, text, file, line);
	fprintf(stderr, "%s:%d: in pid %d: %s\n", file, line, (int)getpid(), text);
	if (getpid() != main_pid)
		_exit(CHILD_FAILED);
	atomic_fetch_add(&failed_elsewhere, 1);
}

void atest_check(bool ok, const char *file, int line, const char *fmt, ...)
{
	char text[4096];
	va_list ap;

	atomic_fetch_add(&assertions, 1);
	if (ok)
		return;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	give_up(file, line, text);
}

void atest_check_eq(intmax_t a, intmax_t b, const char *file, int line, const char *a_text,
                    const char *b_text)
{
	atest_check(a == b, file, line, "%s is %jd, expected %s (%jd)", a_text, a, b_text, b);
}

void atest_check_str(const char *a, const char *b, const char *file, int line, const char *a_text,
                     const char *b_text)
{
	bool same = a && b ? strcmp(a, b) == 0 : a == b;

	atest_check(same, file, line, "%s is \"%s\", expected %s (\"%s\")", a_text,
	            a ? a : "(null)", b_text, b ? b : "(null)");
}

int atest_check_code(struct fix *f, int64_t r, int code, const char *file, int line,
                     const char *text)
{
	const char *said = f->res ? atoll_result_message(f->res) : "";

	if (code < 0)
		atest_check(r == code, file, line, "%s: %s, expected %s; \"%s\"", text,
		            atoll_code_name((int)r), atoll_code_name(code), said);
	else
		atest_check(r >= 0, file, line, "%s: %s, \"%s\"", text, atoll_code_name((int)r),
		            said);
	return (int)r;
}

/* ---- fixture ---- */

static int make_scratch(struct fix *f)
{
	const char *parent = getenv("ATOLL_TEST_DIR");
	char name[PATH_MAX];

	(void)snprintf(name, sizeof(name), "%s/atest-XXXXXX",
	               parent && *parent ? parent : "/var/tmp");
	if (!mkdtemp(name) || !realpath(name, f->dir)) {
		fprintf(stderr, "%s: %s\n", name, strerror(errno));
		return -1;
	}
	(void)snprintf(f->home, sizeof(f->home), "%.*s/home", (int)sizeof(f->home) - 8, f->dir);
	return setenv("ATOLL_HOME", f->home, 1);
}

int atest_setup(void **state)
{
	struct fix *f = calloc(1, sizeof(*f));

	if (!f)
		return -1;
	*state = f;
	main_pid = getpid();
	main_thread = pthread_self();
	atomic_store(&assertions, 0);
	atomic_store(&failed_elsewhere, 0);
	skipped = false;
	umask(022);
	/* Whoever loses his parent comes to us and is found. */
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	if (make_scratch(f) < 0)
		return -1;
	f->before = inventory_take(f->dir);
	faulty_register();
	phase_clear();
	effect_log(NULL);
	f->res = atoll_result_new();
	if (atoll_open(f->home, &f->a, f->res) < 0) {
		fprintf(stderr, "atoll_open: %s\n", atoll_result_message(f->res));
		return -1;
	}
	return 0;
}

static void free_plans(struct fix *f)
{
	for (size_t i = 0; i < f->n_plans; i++)
		atoll_plan_free(f->plans[i]);
	f->n_plans = 0;
}

struct ids {
	char *v[1024];
	size_t n;
};

static int note_id(void *user, const struct atoll_plan_info *info)
{
	struct ids *ids = user;

	if (ids->n < sizeof(ids->v) / sizeof(ids->v[0]))
		ids->v[ids->n++] = strdup(info->id);
	return 0;
}

static int stop_one(struct fix *f, const char *id)
{
	struct atoll_plan *p = NULL;
	int r = atoll_plan_find(f->a, id, &p, f->res);

	if (r == -ATOLL_E_NOT_FOUND) /* closed already */
		return 0;
	if (r == 0)
		r = atoll_plan_stop(p, ATOLL_FORCE, f->res);
	atoll_plan_free(p);
	if (r == 0 || r == -ATOLL_E_NOT_FOUND)
		return 0;
	fprintf(stderr, "left behind: plan %s cannot be stopped: %s\n", id,
	        atoll_result_message(f->res));
	return 1;
}

/* Every plan of the store must be possible to stop, whatever the test did. */
static int stop_all(struct fix *f)
{
	struct ids ids = { .n = 0 };
	int left = 0;

	if (!f->a && atoll_open(f->home, &f->a, f->res) < 0) {
		fprintf(stderr, "left behind: the store: %s\n", atoll_result_message(f->res));
		return 1;
	}
	atoll_set_wait(f->a, 10000);
	(void)atoll_recover(f->a, NULL, true, f->res);
	if (atoll_plan_list(f->a, note_id, &ids, f->res) < 0)
		left++;
	for (size_t i = 0; i < ids.n; i++) {
		left += stop_one(f, ids.v[i]);
		free(ids.v[i]);
	}
	return left;
}

static void fix_free(struct fix *f)
{
	for (size_t i = 0; i < f->n_strings; i++)
		free(f->strings[i]);
	atoll_result_free(f->res);
	inventory_free(f->before);
	free(f);
}

int atest_teardown(void **state)
{
	struct fix *f = *state;
	int left;

	if (!f)
		return -1;
	phase_clear();
	inventory_lift(f->dir);
	free_plans(f);
	left = stop_all(f);
	atoll_close(f->a);
	f->a = NULL;
	/* Areas on mounts of ours are looked for before the mounts go. */
	left += inventory_areas(f->before, f->dir, f->home);
	for (size_t i = f->n_mounts; i > 0; i--)
		left += inventory_unmount(f->mounts[i - 1]);
	left += inventory_compare(f->before, f->dir);
	left += inventory_remove(f->dir);
	if (atomic_load(&failed_elsewhere)) {
		fprintf(stderr, "assertions failed in other threads: %lu\n",
		        atomic_load(&failed_elsewhere));
		left++;
	}
	if (!skipped && atomic_load(&assertions) == 0) {
		fprintf(stderr, "the test made no assertion\n");
		left++;
	}
	fix_free(f);
	return left ? -1 : 0;
}

char *fix_keep(struct fix *f, char *malloced)
{
	expect(malloced != NULL);
	expect(f->n_strings < sizeof(f->strings) / sizeof(f->strings[0]));
	f->strings[f->n_strings++] = malloced;
	return malloced;
}

char *fix_path(struct fix *f, const char *fmt, ...)
{
	char *s = NULL;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&s, fmt, ap) < 0)
		s = NULL;
	va_end(ap);
	return fix_keep(f, s);
}

const char *fix_dir(struct fix *f, const char *name)
{
	char *path = fix_path(f, "%s/%s", f->dir, name);

	put_dir(path, 0755);
	return path;
}

void fix_reopen(struct fix *f)
{
	free_plans(f);
	atoll_close(f->a);
	f->a = NULL;
	expect_ok(f, atoll_open(f->home, &f->a, f->res));
}

void fix_attach(struct fix *f, const char *dir)
{
	*f = (struct fix){ 0 };
	(void)snprintf(f->dir, sizeof(f->dir), "%s", dir);
	(void)snprintf(f->home, sizeof(f->home), "%.*s/home", (int)sizeof(f->home) - 8, dir);
	f->res = atoll_result_new();
	expect_ok(f, atoll_open(f->home, &f->a, f->res));
}

void fix_detach(struct fix *f)
{
	free_plans(f);
	atoll_close(f->a);
	for (size_t i = 0; i < f->n_strings; i++)
		free(f->strings[i]);
	atoll_result_free(f->res);
	*f = (struct fix){ 0 };
}

/* ---- plans ---- */

static struct atoll_plan *keep_plan(struct fix *f, struct atoll_plan *p)
{
	expect(f->n_plans < FIX_KEEP);
	f->plans[f->n_plans++] = p;
	return p;
}

struct atoll_plan *fix_plan(struct fix *f, const char *name)
{
	struct atoll_plan *p = NULL;

	expect_ok(f, atoll_plan_start(f->a, name, 0, &p, f->res));
	return keep_plan(f, p);
}

struct atoll_plan *fix_find(struct fix *f, const char *ref)
{
	struct atoll_plan *p = NULL;

	expect_ok(f, atoll_plan_find(f->a, ref, &p, f->res));
	return keep_plan(f, p);
}

void fix_forget(struct fix *f, struct atoll_plan *p)
{
	for (size_t i = 0; i < f->n_plans; i++) {
		if (f->plans[i] != p)
			continue;
		f->plans[i] = f->plans[--f->n_plans];
		atoll_plan_free(p);
		return;
	}
}

void fix_add_child(struct fix *f, struct atoll_plan *p, const char *root, const char *strategy,
                   const char *parent)
{
	const struct atoll_resource resource = { .root = root,
		                                 .strategy = strategy,
		                                 .parent = parent };

	expect_ok(f, atoll_plan_add(p, &resource, f->res));
}

void fix_add(struct fix *f, struct atoll_plan *p, const char *root, const char *strategy)
{
	fix_add_child(f, p, root, strategy, NULL);
}

const char *fix_work(struct fix *f, struct atoll_plan *p, const char *root)
{
	char *path = NULL;

	expect_ok(f, atoll_sandbox_path(p, root, &path, f->res));
	return fix_keep(f, path);
}

enum atoll_sandbox_state fix_state(struct fix *f, struct atoll_plan *p, const char *root)
{
	enum atoll_sandbox_state s = ATOLL_SANDBOX_STATE_END_;

	expect_ok(f, atoll_sandbox_state(p, root, &s, f->res));
	return s;
}

static int take_state(void *user, const struct atoll_plan_info *info)
{
	*(enum atoll_plan_state *)user = info->state;
	return 0;
}

enum atoll_plan_state fix_plan_state(struct fix *f, struct atoll_plan *p)
{
	enum atoll_plan_state s = ATOLL_PLAN_STATE_END_;

	expect_ok(f, atoll_plan_show(p, take_state, &s, f->res));
	return s;
}

struct wanted {
	const char *root;
	char *id, *area;
};

static int take_sandbox(void *user, const struct atoll_sandbox_info *info)
{
	struct wanted *w = user;

	if (w->id || (w->root && strcmp(info->root, w->root) != 0))
		return 0;
	w->id = strdup(info->id);
	w->area = strdup(info->area);
	return 0;
}

static struct wanted find_sandbox(struct fix *f, struct atoll_plan *p, const char *root)
{
	struct wanted w = { .root = root };

	expect_ok(f, atoll_plan_sandboxes(p, take_sandbox, &w, f->res));
	(void)fix_keep(f, w.id);
	(void)fix_keep(f, w.area);
	return w;
}

const char *fix_sandbox_id(struct fix *f, struct atoll_plan *p, const char *root)
{
	return find_sandbox(f, p, root).id;
}

const char *fix_area(struct fix *f, struct atoll_plan *p, const char *root)
{
	return find_sandbox(f, p, root).area;
}

/* ---- results ---- */

const struct atoll_participant_result *fix_row(struct fix *f, const char *root)
{
	for (size_t i = 0; i < atoll_result_participants(f->res); i++) {
		const struct atoll_participant_result *row = atoll_result_participant(f->res, i);

		if (strcmp(row->root, root) == 0)
			return row;
	}
	return NULL;
}

int fix_outcome(struct fix *f, const char *root)
{
	const struct atoll_participant_result *row = fix_row(f, root);

	return row ? (int)row->outcome : -1;
}

size_t fix_notes(struct fix *f, enum atoll_note_kind kind)
{
	size_t n = 0;

	for (size_t i = 0; i < atoll_result_notes(f->res); i++)
		n += atoll_result_note(f->res, i)->kind == kind;
	return n;
}

struct counted {
	const char *what;
	size_t n;
	int last;
};

static int count_event(void *user, const struct atoll_event *event)
{
	struct counted *c = user;

	if (strcmp(event->what, c->what) != 0)
		return 0;
	c->n++;
	c->last = event->code;
	return 0;
}

size_t fix_history(struct fix *f, struct atoll_plan *p, const char *what, int *ret_last_code)
{
	struct counted c = { .what = what };

	expect_ok(f, atoll_plan_history(p, count_event, &c, f->res));
	if (ret_last_code)
		*ret_last_code = c.last;
	return c.n;
}

/* ---- what a test may need ---- */

void atest_skip(const char *why)
{
	skipped = true;
	print_message("# skipped: %s\n", why);
	skip();
}

void need_root(void)
{
	if (geteuid() != 0)
		atest_skip("needs root");
}

bool atest_long(void)
{
	const char *told = getenv("ATOLL_LONG");

	return told && *told && strcmp(told, "0") != 0;
}
