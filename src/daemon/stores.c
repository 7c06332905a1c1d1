/* SPDX-License-Identifier: Apache-2.0 */
/* A few open handles, and one more that only looks whether anything has changed. */
#include "daemon/stores.h"

#include "plan/plan.h"
#include "plan/settings.h"
#include "util/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define STORES_IDLE 4 /* kept for the next request: each is a connection with its cache */

struct stores {
	pthread_mutex_t mutex; /* guards idle and n_idle */
	struct atoll *idle[STORES_IDLE];
	size_t n_idle;
	struct atoll *watch; /* is used for nothing but its registry's version */
	struct settings settings;
};

int stores_open(struct stores **ret, struct error *err)
{
	struct stores *s;
	struct atoll *a;
	int r = store_open(NULL, &a, err);

	if (r < 0)
		return r;
	s = xcalloc(1, sizeof(*s));
	(void)pthread_mutex_init(&s->mutex, NULL);
	s->watch = a;
	r = settings_load(&s->settings, err);
	if (r < 0)
		stores_close(s);
	else
		*ret = s;
	return r;
}

void stores_close(struct stores *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->n_idle; i++)
		store_close(s->idle[i]);
	store_close(s->watch);
	settings_done(&s->settings);
	(void)pthread_mutex_destroy(&s->mutex);
	free(s);
}

int stores_take(struct stores *s, int64_t wait_ms, struct atoll **ret, struct error *err)
{
	struct atoll *a = NULL;
	int r = 0;

	(void)pthread_mutex_lock(&s->mutex);
	if (s->n_idle > 0)
		a = s->idle[--s->n_idle];
	(void)pthread_mutex_unlock(&s->mutex);
	if (!a)
		r = store_open(s->watch->home, &a, err);
	if (r < 0)
		return r;
	atoll_set_wait(a, wait_ms);
	atoll_set_retention(a, s->settings.v[SETTING_UNDO_RETENTION].number);
	atoll_set_min_free(a, s->settings.v[SETTING_EXEC_MIN_FREE].number);
	atoll_set_log_limits(a, s->settings.v[SETTING_LOG_MAX_AGE].number,
	                     s->settings.v[SETTING_LOG_MAX_ENTRIES].number);
	*ret = a;
	return 0;
}

void stores_give(struct stores *s, struct atoll *a)
{
	atoll_set_wait_notify(a, NULL, NULL);
	atoll_set_progress(a, NULL, NULL);
	atoll_set_interrupt(a, NULL, NULL);
	free(a->decision_ctx); /* audit_decisions() */
	store_set_decision(a, NULL, NULL);
	store_set_resource(a, NULL, NULL);
	(void)pthread_mutex_lock(&s->mutex);
	if (s->n_idle < STORES_IDLE) {
		s->idle[s->n_idle++] = a;
		a = NULL;
	}
	(void)pthread_mutex_unlock(&s->mutex);
	if (a)
		store_close(a);
}

int stores_version(struct stores *s, uint64_t *ret, struct error *err)
{
	return registry_version(s->watch->reg, ret, err);
}

int stores_writable(const struct stores *s, struct error *err)
{
	if (faccessat(AT_FDCWD, s->watch->home, W_OK | X_OK, AT_EACCESS) == 0)
		return 0;
	return error_sys(err, -errno, "write to the store", s->watch->home);
}

unsigned stores_policy(const struct stores *s)
{
	return s->settings.v[SETTING_POLICY_DENY_ESCAPING_LINKS].number ? ATOLL_DENY_ESCAPING_LINKS
	                                                                : 0;
}

const char *stores_home(const struct stores *s)
{
	return s->watch->home;
}
