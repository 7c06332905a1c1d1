/* SPDX-License-Identifier: Apache-2.0 */
/* One database, as a resource it could be. */
#include "plan/doctor-impl.h"

#include "strategy/database.h"

#define TOPIC "database"

static void say_prepared(struct doctor *d, const struct database_facts *f)
{
	if (f->final)
		doctor_say(d,
		           WARN("prepared", "set max_prepared_transactions in postgresql.conf (20 "
		                            "will do) and restart the server"),
		           "%s: it can be committed only by itself, or with --allow partial",
		           f->final);
	else
		doctor_say(d, GOOD("prepared"), "%s places for prepared transactions are taken",
		           f->taken ? f->taken : "no");
}

void doctor_database(struct doctor *d, const char *url)
{
	cleanup_database_facts struct database_facts f = DATABASE_FACTS_INIT;
	cleanup_error struct error e = ERROR_INIT;
	int r = database_look(url, &f, &e);

	if (r < 0) {
		doctor_say(d, BAD(TOPIC, r, e.hint), "%s", e.msg ? e.msg : "it cannot be used");
		return;
	}
	doctor_say(d, GOOD(TOPIC), "PostgreSQL %s, database '%s' as '%s'", f.version, f.database,
	           f.user);
	say_prepared(d, &f);
}
