/* SPDX-License-Identifier: Apache-2.0 */
/* The meter of a long piece of work. */
#include "util/progress.h"

#include "util/clock.h"

#include <errno.h>
#include <stddef.h>

#define EACH_NS (PROGRESS_EACH_MS * INT64_C(1000000))

static _Thread_local struct progress *current;

struct progress *progress_current(void)
{
	return current;
}

void progress_attach(struct progress *p)
{
	current = p;
}

void progress_begin(struct progress *p, progress_fn fn, void *user)
{
	if (!fn)
		return;
	*p = (struct progress){ .fn = fn, .user = user, .outer = current };
	atomic_store(&p->what, "working");
	pthread_mutex_init(&p->telling, NULL);
	current = p;
}

/* With the lock held. */
static int tell(struct progress *p, bool asked, bool done)
{
	const struct progress_state state = { .what = atomic_load(&p->what),
		                              .files = atomic_load(&p->files),
		                              .bytes = atomic_load(&p->bytes),
		                              .total = atomic_load(&p->total),
		                              .stage = (enum progress_stage)atomic_load(&p->stage),
		                              .asked = asked,
		                              .done = done };
	int r;

	p->told |= !asked;
	r = p->fn(p->user, &state);
	if (r != 0 && state.stage != PROGRESS_BEGUN)
		atomic_store(&p->stops, true);
	return r;
}

void progress_end(struct progress *p)
{
	if (!p->fn)
		return;
	current = p->outer;
	if (p->told || atomic_load(&p->entered))
		(void)tell(p, !p->told, true);
	pthread_mutex_destroy(&p->telling);
	p->fn = NULL;
}

void progress_phase(const char *what, uint64_t total)
{
	struct progress *p = current;

	if (!p)
		return;
	atomic_store(&p->what, what);
	atomic_store(&p->files, 0);
	atomic_store(&p->bytes, 0);
	atomic_store(&p->total, total);
}

void progress_add(uint64_t files, uint64_t bytes)
{
	struct progress *p = current;
	int64_t now;

	if (!p)
		return;
	atomic_fetch_add(&p->files, files);
	atomic_fetch_add(&p->bytes, bytes);
	now = clock_boot_ns();
	if (now < atomic_load(&p->next_ns) || pthread_mutex_trylock(&p->telling) != 0)
		return; /* too early, or another thread is telling it */
	atomic_store(&p->next_ns, now + EACH_NS);
	(void)tell(p, false, false);
	pthread_mutex_unlock(&p->telling);
}

int progress_enter(enum progress_stage stage)
{
	struct progress *p = current;
	int before, r = 0;

	if (!p)
		return 0;
	before = atomic_exchange(&p->stage, stage);
	atomic_store(&p->stops, false);
	atomic_store(&p->entered, true);
	pthread_mutex_lock(&p->telling);
	if (stage != PROGRESS_BEGUN)
		r = tell(p, true, false);
	pthread_mutex_unlock(&p->telling);
	if (r == 0)
		return 0;
	atomic_store(&p->stage, before);
	return -ECANCELED;
}

int progress_check(void)
{
	struct progress *p = current;

	if (!p || atomic_load(&p->stage) == PROGRESS_BEGUN)
		return 0;
	pthread_mutex_lock(&p->telling);
	(void)tell(p, true, false);
	pthread_mutex_unlock(&p->telling);
	return atomic_load(&p->stops) ? -ECANCELED : 0;
}

int progress_check_look(void)
{
	struct progress *p = current;

	return p && atomic_load(&p->stage) == PROGRESS_PREPARING ? progress_check() : 0;
}

void progress_count(uint64_t *ret_files, uint64_t *ret_total)
{
	struct progress *p = current;

	*ret_files = p ? atomic_load(&p->files) : 0;
	*ret_total = p ? atomic_load(&p->total) : 0;
}
