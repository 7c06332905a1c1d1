/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables. States and answers are stored as the numbers of their enumerators, so these are
 * only ever appended to. Times are UTC milliseconds; paths are bytes, whatever their encoding.
 */
#include "registry/schema.h"

#include "registry/ask.h"
#include "registry/credential.h"
#include "registry/request.h"
#include "registry/session.h"

_Static_assert(ATOLL_PLAN_OPEN == 0 && ATOLL_PLAN_CLOSED == 7, "plan states are on disk");
_Static_assert(ATOLL_SANDBOX_PENDING == 0 && ATOLL_SANDBOX_CLEANED_UP == 7,
               "sandbox states are on disk");
_Static_assert(BATCH_PREPARING == 0 && BATCH_WITHDRAWN == 7, "batch states are on disk");
_Static_assert(PART_PENDING == 0 && PART_NO_CHANGE == 2, "answers are on disk");

static const char version_1[] =
	"CREATE TABLE meta ("
	"  key TEXT PRIMARY KEY,"
	"  value TEXT NOT NULL"
	") STRICT, WITHOUT ROWID;"

	"CREATE TABLE plan ("
	"  seq INTEGER PRIMARY KEY,"
	"  id TEXT NOT NULL UNIQUE CHECK (length(id) = 16),"
	"  name TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 64),"
	"  state INTEGER NOT NULL CHECK (state BETWEEN 0 AND 7),"
	"  owned INTEGER NOT NULL CHECK (owned IN (0, 1)),"
	"  abandoned INTEGER NOT NULL CHECK (abandoned IN (0, 1)),"
	"  epoch INTEGER NOT NULL,"
	"  batch INTEGER NOT NULL,"
	"  created_ms INTEGER NOT NULL,"
	"  retry_at_ms INTEGER NOT NULL,"
	"  attempts INTEGER NOT NULL"
	") STRICT;"
	/* A closed plan (7) does not keep its name. */
	"CREATE UNIQUE INDEX plan_name ON plan (name) WHERE state <> 7;"

	"CREATE TABLE sandbox ("
	"  seq INTEGER PRIMARY KEY,"
	"  id TEXT NOT NULL UNIQUE CHECK (length(id) BETWEEN 18 AND 21),"
	"  plan TEXT NOT NULL REFERENCES plan (id) ON DELETE CASCADE,"
	"  strategy TEXT NOT NULL,"
	"  root TEXT NOT NULL,"
	"  root_id TEXT NOT NULL,"
	"  area TEXT NOT NULL,"
	"  work TEXT NOT NULL,"
	"  parent TEXT NOT NULL,"
	"  state INTEGER NOT NULL CHECK (state BETWEEN 0 AND 7),"
	"  stale INTEGER NOT NULL CHECK (stale IN (0, 1)),"
	"  error TEXT NOT NULL,"
	"  boot_id TEXT NOT NULL,"
	"  exec_n INTEGER NOT NULL,"
	"  generation INTEGER NOT NULL,"
	"  t0_ns INTEGER NOT NULL"
	") STRICT;"
	"CREATE INDEX sandbox_plan ON sandbox (plan);"

	"CREATE TABLE batch ("
	"  plan TEXT NOT NULL REFERENCES plan (id) ON DELETE CASCADE,"
	"  number INTEGER NOT NULL CHECK (number > 0),"
	"  state INTEGER NOT NULL CHECK (state BETWEEN 0 AND 7),"
	"  flags INTEGER NOT NULL,"
	"  created_ms INTEGER NOT NULL,"
	"  retain_until_ms INTEGER NOT NULL,"
	"  released INTEGER NOT NULL CHECK (released IN (0, 1)),"
	"  PRIMARY KEY (plan, number)"
	") STRICT, WITHOUT ROWID;"

	"CREATE TABLE part ("
	"  plan TEXT NOT NULL,"
	"  batch INTEGER NOT NULL,"
	"  sandbox TEXT NOT NULL,"
	"  position INTEGER NOT NULL,"
	"  answer INTEGER NOT NULL CHECK (answer BETWEEN 0 AND 2),"
	"  manifest TEXT NOT NULL,"
	"  irrevocable INTEGER NOT NULL CHECK (irrevocable IN (0, 1)),"
	"  changes INTEGER NOT NULL,"
	"  PRIMARY KEY (plan, batch, sandbox),"
	"  FOREIGN KEY (plan, batch) REFERENCES batch (plan, number) ON DELETE CASCADE"
	") STRICT, WITHOUT ROWID;"

	/* What we made on disk, so that whoever comes after a crash can find and remove it. */
	"CREATE TABLE path ("
	"  path TEXT PRIMARY KEY,"
	"  plan TEXT NOT NULL REFERENCES plan (id) ON DELETE CASCADE,"
	"  sandbox TEXT NOT NULL"
	") STRICT, WITHOUT ROWID;"
	"CREATE INDEX path_plan ON path (plan);"

	/* No reference to plan: history outlives it. */
	"CREATE TABLE event ("
	"  seq INTEGER PRIMARY KEY,"
	"  plan TEXT NOT NULL,"
	"  at_ms INTEGER NOT NULL,"
	"  what TEXT NOT NULL,"
	"  code INTEGER NOT NULL,"
	"  message TEXT NOT NULL"
	") STRICT;"
	"CREATE INDEX event_plan ON event (plan);"

	"CREATE TABLE exec ("
	"  seq INTEGER PRIMARY KEY,"
	"  plan TEXT NOT NULL,"
	"  argv TEXT NOT NULL,"
	"  started_ms INTEGER NOT NULL,"
	"  ended_ms INTEGER NOT NULL,"
	"  exit_code INTEGER NOT NULL,"
	"  user_us INTEGER NOT NULL,"
	"  system_us INTEGER NOT NULL,"
	"  max_rss_kb INTEGER NOT NULL"
	") STRICT;"
	"CREATE INDEX exec_plan ON exec (plan);"

	"CREATE TABLE highwater ("
	"  fsid TEXT PRIMARY KEY,"
	"  ctime_ns INTEGER NOT NULL"
	") STRICT, WITHOUT ROWID;";

/* A plan is made with all its resources or not at all; and what `run` made is known by where. */
static const char version_2[] = "ALTER TABLE plan ADD COLUMN"
				"  starting INTEGER NOT NULL DEFAULT 0 CHECK (starting IN (0, 1));"

				"CREATE TABLE run ("
				"  plan TEXT PRIMARY KEY REFERENCES plan (id) ON DELETE CASCADE,"
				"  dir TEXT NOT NULL"
				") STRICT, WITHOUT ROWID;"
				"CREATE INDEX run_dir ON run (dir);";

/* What a command left changed; -1: nobody counted. */
static const char version_3[] = "ALTER TABLE exec ADD COLUMN changes INTEGER NOT NULL DEFAULT -1;";

/*
 * What every command asks before it begins must not cost more with every plan there is: plans that
 * a dead process left (PREPARING, DECIDED, REVOKED, UNDOING; a PENDING sandbox), roots around a
 * root, undo data that is kept for a time. All but the roots are few, so their indexes are, too.
 */
_Static_assert(ATOLL_PLAN_PREPARING == 1 && ATOLL_PLAN_DECIDED == 2 && ATOLL_PLAN_REVOKED == 3 &&
                       ATOLL_PLAN_UNDOING == 5 && BATCH_COMMITTED == 3,
               "the indexes name states by number");
static const char version_4[] =
	"CREATE INDEX plan_doubtful ON plan (seq) WHERE state IN (1, 2, 3, 5);"
	"CREATE INDEX plan_starting ON plan (seq) WHERE starting = 1;"
	"CREATE INDEX sandbox_pending ON sandbox (plan) WHERE state = 0;"
	"CREATE INDEX sandbox_root ON sandbox (root, root_id);"
	"CREATE INDEX batch_retained ON batch (retain_until_ms) "
	"WHERE state = 3 AND released = 0 AND retain_until_ms > 0;";

/* What a sandbox takes on disk, so that a listing need not look. */
static const char version_5[] =
	"ALTER TABLE sandbox ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0 CHECK (bytes >= 0);"
	"ALTER TABLE sandbox ADD COLUMN entries INTEGER NOT NULL DEFAULT 0 CHECK (entries >= 0);";

/* More of how a command ended, and where what it printed is kept; and commands in the background: one
 * runs as long as the grant of the plan's lock that its row names. */
static const char version_6[] =
	"ALTER TABLE exec ADD COLUMN term_signal INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE exec ADD COLUMN timed_out INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE exec ADD COLUMN memory_kills INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE exec ADD COLUMN output TEXT NOT NULL DEFAULT '';"
	"ALTER TABLE exec ADD COLUMN job TEXT NOT NULL DEFAULT '';"

	"CREATE TABLE job ("
	"  plan TEXT NOT NULL REFERENCES plan (id) ON DELETE CASCADE,"
	"  name TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 64),"
	"  argv TEXT NOT NULL,"
	"  boot TEXT NOT NULL,"
	"  epoch INTEGER NOT NULL,"
	"  output TEXT NOT NULL,"
	"  started_ms INTEGER NOT NULL,"
	"  ended_ms INTEGER NOT NULL,"
	"  exit_code INTEGER NOT NULL,"
	"  term_signal INTEGER NOT NULL,"
	"  PRIMARY KEY (plan, name)"
	") STRICT, WITHOUT ROWID;";

/*
 * What opens the daemon, and which key a plan was started with. A token goes with its plan; a key has
 * none. A name is taken as long as its key is not revoked. Each request looks one up by its digest; for
 * all else the few rows are read: every command, also one that needs none of it, pays for an index when
 * it reads the schema.
 */
_Static_assert(CREDENTIAL_KEY == 0 && CREDENTIAL_TOKEN == 1 && SCOPE_ADMIN == 0 &&
                       SCOPE_AGENT == 1 && SCOPE_REVIEW == 2,
               "kinds and scopes are on disk");
static const char version_7[] = "CREATE TABLE credential ("
				"  sha256 TEXT PRIMARY KEY,"
				"  id TEXT NOT NULL,"
				"  kind INTEGER NOT NULL,"
				"  scope INTEGER NOT NULL,"
				"  name TEXT NOT NULL,"
				"  plan TEXT REFERENCES plan (id) ON DELETE CASCADE,"
				"  parent TEXT NOT NULL,"
				"  request TEXT NOT NULL,"
				"  created_ms INTEGER NOT NULL,"
				"  expires_ms INTEGER NOT NULL,"
				"  expires_boot_ns INTEGER NOT NULL,"
				"  boot TEXT NOT NULL,"
				"  revoked_ms INTEGER NOT NULL,"
				"  used_ms INTEGER NOT NULL"
				") STRICT, WITHOUT ROWID;"
				"CREATE UNIQUE INDEX credential_name ON credential (name) "
				"WHERE kind = 0 AND revoked_ms = 0;"
				"ALTER TABLE plan ADD COLUMN starter TEXT NOT NULL DEFAULT '';";

/* Requests that make something, by the key of their sender; and asks for a commit. A request outlives
 * the plan that it made. */
_Static_assert(REQUEST_PLAN == 0 && REQUEST_ASK == 3, "kinds of requests are on disk");
_Static_assert(ASK_OPEN == 0 && ASK_DECIDED == 4, "states of asks are on disk");
static const char version_8[] = "CREATE TABLE request ("
				"  sender TEXT NOT NULL CHECK (length(sender) BETWEEN 1 AND 79),"
				"  key TEXT NOT NULL CHECK (length(key) BETWEEN 1 AND 128),"
				"  kind INTEGER NOT NULL CHECK (kind BETWEEN 0 AND 3),"
				"  digest TEXT NOT NULL CHECK (length(digest) = 32),"
				"  plan TEXT NOT NULL CHECK (length(plan) = 16),"
				"  name TEXT NOT NULL,"
				"  made INTEGER NOT NULL CHECK (made IN (0, 1)),"
				"  created_ms INTEGER NOT NULL,"
				"  PRIMARY KEY (sender, key)"
				") STRICT, WITHOUT ROWID;"
				"CREATE INDEX request_plan ON request (plan);"
				"CREATE INDEX request_created ON request (created_ms);"

				"CREATE TABLE ask ("
				"  seq INTEGER PRIMARY KEY AUTOINCREMENT,"
				"  plan TEXT NOT NULL REFERENCES plan (id) ON DELETE CASCADE,"
				"  who TEXT NOT NULL,"
				"  message TEXT NOT NULL,"
				"  digest TEXT NOT NULL,"
				"  at_ms INTEGER NOT NULL,"
				"  state INTEGER NOT NULL CHECK (state BETWEEN 0 AND 4),"
				"  ended_ms INTEGER NOT NULL,"
				"  ended_by TEXT NOT NULL"
				") STRICT;"
				"CREATE INDEX ask_plan ON ask (plan);"
				"CREATE UNIQUE INDEX ask_open ON ask (plan) WHERE state = 0;";

/* Every change of state, in order (news.h). There is no index but the number: whoever reads wants what is
 * new. */
static const char version_9[] =
	"CREATE TABLE news ("
	"  seq INTEGER PRIMARY KEY,"
	"  at_ms INTEGER NOT NULL,"
	"  plan TEXT NOT NULL,"
	"  name TEXT NOT NULL,"
	"  what TEXT NOT NULL,"
	"  code INTEGER NOT NULL,"
	"  message TEXT NOT NULL,"
	"  state INTEGER NOT NULL CHECK (state BETWEEN 0 AND 7),"
	"  sandbox TEXT NOT NULL,"
	"  sandbox_state INTEGER NOT NULL CHECK (sandbox_state BETWEEN 0 AND 7)"
	") STRICT;";

/* Sessions at remotes: what they are called here and there. */
_Static_assert(SESSION_CREATING == 0 && SESSION_ACTIVE == 1, "states of sessions are on disk");
static const char version_10[] = "CREATE TABLE session ("
				 "  seq INTEGER PRIMARY KEY,"
				 "  id TEXT NOT NULL UNIQUE CHECK (length(id) = 16),"
				 "  remote TEXT NOT NULL CHECK (length(remote) BETWEEN 1 AND 64),"
				 "  root TEXT NOT NULL,"
				 "  branch TEXT NOT NULL,"
				 "  name TEXT NOT NULL,"
				 "  state INTEGER NOT NULL CHECK (state BETWEEN 0 AND 1),"
				 "  key TEXT NOT NULL CHECK (length(key) = 32),"
				 "  plan TEXT NOT NULL,"
				 "  sandbox TEXT NOT NULL,"
				 "  head TEXT NOT NULL,"
				 "  generation INTEGER NOT NULL CHECK (generation >= 0),"
				 "  pull_plan TEXT NOT NULL,"
				 "  pull_run TEXT NOT NULL,"
				 "  pulled TEXT NOT NULL,"
				 "  created_ms INTEGER NOT NULL,"
				 "  used_ms INTEGER NOT NULL,"
				 "  UNIQUE (remote, root, branch)"
				 ") STRICT;";

/*
 * The order in which batches were committed, undone and done again, over all plans: undo takes the last
 * of those that are committed, redo the last of those that are undone, whose data is kept for a time, too.
 */
_Static_assert(BATCH_UNDONE == 6, "the index names states by number");
static const char version_11[] = "ALTER TABLE batch ADD COLUMN turn INTEGER NOT NULL DEFAULT 0;"
				 "UPDATE batch SET turn = created_ms;"
				 "CREATE INDEX batch_turn ON batch (turn);"
				 "DROP INDEX batch_retained;"
				 "CREATE INDEX batch_retained ON batch (retain_until_ms) "
				 "WHERE state IN (3, 6) AND released = 0 AND retain_until_ms > 0;";

const char *const schema_steps[SCHEMA_VERSION] = { version_1, version_2,  version_3, version_4,
	                                           version_5, version_6,  version_7, version_8,
	                                           version_9, version_10, version_11 };
