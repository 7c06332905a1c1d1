#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# SQLite databases among the files of a directory: named, and not replaced while a process has one open.

load cli

# open_database FILE: a process opens the database, reads from it once, and then is idle until let_go.
open_database() {
	rm -f "$BATS_TEST_TMPDIR"/held.*
	mkfifo "$BATS_TEST_TMPDIR/held.to"
	in_background /usr/bin/python3 -c '
import sqlite3, sys
at = sys.argv[2]
c = sqlite3.connect(sys.argv[1])
c.execute("SELECT count(*) FROM t").fetchall()
open(at + ".ready", "w").close()
for line in open(at + ".to"):
    c.execute("INSERT INTO t VALUES (99)")
    c.commit()
c.close()
open(at + ".closed", "w").close()
' "$1" "$BATS_TEST_TMPDIR/held"
	exec 8>"$BATS_TEST_TMPDIR/held.to"
	wait_for "$BATS_TEST_TMPDIR/held.ready"
}

# let_go [write]: it writes a row first.
let_go() {
	[ -z "${1:-}" ] || echo "$1" >&8
	exec 8>&-
	wait_for "$BATS_TEST_TMPDIR/held.closed"
	ended "$background"
}

# database FILE MODE: one row in a table, in a journal mode.
database() {
	[ "$(sqlite3 "$1" "PRAGMA journal_mode=$2; CREATE TABLE t (x); INSERT INTO t VALUES (1)")" = "$2" ]
}

strategies='overlay copy git worktree'

# project STRATEGY: work/p with a database in each journal mode, in the plan p.
project() {
	rm -rf "$work/p"
	mkdir -p "$work/p/data/deep"
	cd "$work/p"
	git init -q
	database data/dev.db delete
	database data/deep/wal.db wal
	echo text >text
	git add . && git -c user.name=a -c user.email=a@example commit -qm one
	case $1 in
	git | worktree) "$ATOLL" start p --git . --strategy "$1" ;;
	*) "$ATOLL" start p --dir . --strategy "$1" ;;
	esac
}

inside() {
	"$ATOLL" exec p -- sh -ec "$1"
}

stopped() {
	"$ATOLL" stop --force --yes p
}

@test "a database in a directory is named by diff when it changes, with the way out" {
	outside_tmp
	for strategy in $strategies; do
		project "$strategy"
		# An encrypted one has no header to be known by.
		head -c 4096 /dev/urandom >data/crypt
		touch data/crypt-wal
		stopped
		"$ATOLL" start p --dir .
		head -c 1024 text >data/big && truncate -s 1024 data/big
		inside 'sqlite3 data/dev.db "INSERT INTO t VALUES (2)"; sqlite3 data/deep/wal.db "INSERT INTO t VALUES (2)"
			echo x >>data/crypt; echo x >>text; sqlite3 data/new.db "CREATE TABLE t (x)"; touch text-wal; echo x >data/big'
		run -0 "$ATOLL" diff p
		for path in data/dev.db data/deep/wal.db data/crypt; do
			[ "$(grep -cF "M  $PWD/$path  (SQLite database: give it with --sqlite $PWD/$path" <<<"$output")" -eq 1 ] || {
				echo "$strategy $path: $output"
				false
			}
		done
		[ "$(grep -c SQLite <<<"$output")" -eq 3 ] || { echo "$output"; false; }
		"$ATOLL" diff p --json | jq -e '[.changes[] | select(.what | index("database")) | .path] == ["data/crypt", "data/deep/wal.db", "data/dev.db"]'
		stopped
	done
}

@test "a database that is deleted, moved or has only its companions changed is named" {
	outside_tmp
	for strategy in overlay copy; do
		project "$strategy"
		database gone.db delete
		open_database data/deep/wal.db
		stopped
		"$ATOLL" start p --dir . --strategy "$strategy"
		# Killed before it wrote the file itself: all of it is in the -wal.
		inside 'rm gone.db; mv data/dev.db data/moved.db
			sqlite3 data/deep/wal.db "PRAGMA wal_autocheckpoint=0; INSERT INTO t VALUES (2); .shell kill -KILL \$PPID" || :'
		run -0 "$ATOLL" diff p
		for line in "D  $PWD/gone.db" "D  $PWD/data/dev.db"; do
			says "$line  (SQLite database: give it with --sqlite ${line#D  })"
		done
		says "$PWD/data/deep/wal.db-wal  (SQLite database: give it with --sqlite $PWD/data/deep/wal.db)"
		run -4 "$ATOLL" commit p
		says "'data/deep/wal.db' is an SQLite database that a process has open"
		let_go
		stopped
	done
}

@test "a database that a process has open is not replaced, unless that is allowed" {
	outside_tmp
	# what a command does; each counts as the database going
	local ways=(
		'sqlite3 data/dev.db "INSERT INTO t VALUES (2)"'
		'rm data/dev.db'
		'mv data/dev.db other.db'
		'rm -r data'
		'mv data elsewhere'
		'rm -r data; mkdir data; echo x >data/dev.db'
		'cp data/dev.db x; mv x data/dev.db'
		'chmod 600 data/dev.db'
		'rm data/dev.db; mkdir data/dev.db'
	)
	for strategy in $strategies; do
		project "$strategy"
		open_database data/dev.db
		before=$(tree data text)
		for way in "${ways[@]}"; do
			"$ATOLL" reset p --yes 2>/dev/null
			inside "$way; echo x >>text"
			run "$ATOLL" commit p
			[ "$status" -eq 4 ] || { echo "$strategy, $way: $status $output"; false; }
			says "'data/dev.db' is an SQLite database that a process has open"
			says 'hint: end what has it open first;'
			says 'or atoll commit p --allow open-database'
			[ "$(tree data text)" = "$before" ]
			# One way is enough of what differs in nothing but git.
			[ "$strategy" != git ] && [ "$strategy" != worktree ] || break
		done
		run "$ATOLL" commit p --dry-run --json
		[ "$(jq -r '[.code, .notes[0].kind, .notes[0].path] | join(" ")' <<<"$output")" = 'policy open database data/dev.db' ]
		let_go
		"$ATOLL" commit p
		[ "$(cat text)" = $'text\nx' ]
		stopped
	done
	project overlay
	open_database data/dev.db
	inside 'sqlite3 data/dev.db "INSERT INTO t VALUES (2)"'
	run -0 "$ATOLL" commit p --allow open-database
	[ "$(sqlite3 data/dev.db 'SELECT group_concat(x) FROM t')" = 1,2 ]
	let_go
}

@test "open files that are no databases, and databases that nothing has open, are replaced as ever" {
	outside_tmp
	for strategy in overlay copy; do
		project "$strategy"
		exec 9<text
		inside 'sqlite3 data/dev.db "INSERT INTO t VALUES (2)"; sqlite3 data/deep/wal.db "INSERT INTO t VALUES (2)"; echo x >>text'
		"$ATOLL" commit p
		exec 9<&-
		[ "$(sqlite3 data/dev.db 'SELECT group_concat(x) FROM t')" = 1,2 ]
		[ "$(sqlite3 data/deep/wal.db 'SELECT group_concat(x) FROM t')" = 1,2 ]
		stopped
	done
	# Given with --sqlite it commits while it is open, and keeps what the process writes.
	project overlay
	stopped
	"$ATOLL" start p --dir . --sqlite data/dev.db
	open_database data/dev.db
	inside 'sqlite3 data/dev.db "INSERT INTO t VALUES (2)"; echo x >>text'
	! "$ATOLL" diff p | grep 'give it with'
	"$ATOLL" commit p
	let_go write
	[ "$(sqlite3 data/dev.db 'SELECT group_concat(x) FROM t')" = 1,2,99 ]
}
