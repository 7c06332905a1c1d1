#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Bad input: the right exit status, and nothing touched.

load cli

@test "cli refuses an unknown plan" {
	two_dirs
	atoll start fix-42 --dir a
	before=$(untouched a)
	for command in show diff path commit rollback reset stop recover; do
		run atoll "$command" fix-24
		status_is 1
		says fix-24
	done
	run atoll exec fix-24 -- touch "$work/a/ran"
	status_is 125
	run atoll commit fix-24 --json
	status_is 1
	[ "$(jq -r .code <<<"$output")" = not-found ]
	run atoll show fix-24
	says "did you mean 'fix-42'?"
	[ "$(untouched a)" = "$before" ]
}

@test "cli refuses a name that is taken" {
	two_dirs
	atoll start p --dir a
	before=$(atoll show p --json | jq -c '.plan, .sandboxes')
	run atoll start p --dir b
	status_is 1
	says '--or-open'
	[ "$(atoll show p --json | jq -c '.plan, .sandboxes')" = "$before" ]
	[ "$(atoll list --json | jq '.plans | length')" -eq 1 ]
}

@test "sec_06 cli refuses names that are none" {
	two_dirs
	before=$(untouched a)
	for name in '' 'a/b' '../x' '.hidden' $'new\nline' 'sp ace' "$(printf '%065d' 1)" $'\377'; do
		run atoll start --dir a -- "$name"
		status_is 2
		run atoll start --json --dir a -- "$name"
		status_is 2
		jq -e '.code == "invalid"' <<<"$output"
	done
	no_plans
	[ "$(untouched a)" = "$before" ]
	for name in '' 'a/b' $'new\nline'; do
		run atoll show -- "$name"
		[ "$status" -eq 1 ] || [ "$status" -eq 2 ]
	done
}

@test "cli refuses paths that are not there" {
	two_dirs
	for path in missing /nonexistent a/missing/deeper ''; do
		run atoll start p --dir "$path"
		[ "$status" -eq 1 ] || [ "$status" -eq 2 ]
		no_plans
	done
	run atoll start p --dir missing --json
	status_is 1
	[ "$(jq -r '[.code, .cause.errno_name] | join(" ")' <<<"$output")" = 'ENOENT ENOENT' ]
}

@test "sec_06 cli refuses the root directory, the store and what is around it" {
	two_dirs
	mkdir -p "$work/inner"
	export ATOLL_HOME=$work/inner/home
	run atoll start p --dir /
	status_is 6
	run atoll start p --dir "$ATOLL_HOME"
	status_is 6
	run atoll start p --dir "$ATOLL_HOME/plans"
	status_is 6
	run atoll start p --dir "$work/inner"
	status_is 6
	run atoll start p --dir "$work"
	status_is 6
	ln -s "$work/inner" link
	run atoll start p --dir link
	status_is 6
	run atoll start p --dir "$work/a/../inner"
	status_is 6
	no_plans
}

@test "cli refuses a file where a directory is due" {
	two_dirs
	before=$(untouched a)
	run atoll start p --dir a/one
	status_is 6
	says 'where a directory is due'
	run atoll start p --dir a/one/below
	status_is 1
	no_plans
	[ "$(untouched a)" = "$before" ]
}

@test "cli refuses the same root twice" {
	two_dirs
	ln -s a same
	for second in a "$work/a" ./a/ a/sub/.. same; do
		run atoll start p --dir a --dir "$second"
		status_is 1
		says 'already is in plan'
		no_plans
	done
}

@test "der_18 cli refuses parents in a circle" {
	two_dirs
	run atoll start p --dir a --dir b --parent a=b --parent b=a
	[ "$status" -ne 0 ]
	no_plans
}

@test "cli refuses an unknown strategy and names the known" {
	two_dirs
	run atoll start p --dir a --strategy magic
	[ "$status" -ne 0 ]
	says copy
	no_plans
}

@test "cli refuses a read-only filesystem" {
	is_root || skip 'needs root to mount'
	mkdir ro
	mount -t tmpfs -o ro none ro
	mounted=$work/ro
	run atoll start p --dir ro
	status_is 6
	says 'read-only'
	no_plans
	run atoll doctor ro
	status_is 6
	says 'remount,rw'
}

@test "cli refuses a network filesystem" {
	is_root || skip 'needs root to mount'
	mkdir net
	mount_fuse "$work/net"
	run atoll start p --dir net
	status_is 6
	says 'network filesystem'
	no_plans
	run atoll doctor net
	status_is 6
	says 'local disk'
	ATOLL_HOME=$work/net run atoll list
	status_is 6
	says 'ATOLL_HOME'
}

@test "cli refuses a store of somebody else" {
	two_dirs
	if is_root; then
		mkdir -m 700 theirs
		chown 65534:65534 theirs
		theirs=$work/theirs
	else
		theirs=/usr
	fi
	before=$(untouched a)
	for command in 'list' 'start p --dir a' 'commit p' 'clean'; do
		# shellcheck disable=SC2086 # words
		ATOLL_HOME=$theirs run atoll $command
		status_is 1
		says 'ATOLL_HOME'
	done
	[ -z "$(find "$theirs" -maxdepth 1 -name 'atoll.db*')" ]
	[ "$(untouched a)" = "$before" ]
}

@test "sec_05 cli refuses a store that others can read" {
	two_dirs
	mkdir -m 755 open
	ATOLL_HOME=$work/open run atoll list
	status_is 1
	says 'chmod 700'
	[ -z "$(ls -A open)" ]
}

@test "cli refuses a registry from a newer version and leaves it alone" {
	two_dirs
	atoll start p --dir a
	/usr/bin/python3 - "$ATOLL_HOME/atoll.db" <<-'E'
		import sqlite3, sys
		db = sqlite3.connect(sys.argv[1])
		version = db.execute('PRAGMA user_version').fetchone()[0]
		db.execute(f'PRAGMA user_version = {version + 1000}')
		db.commit()
		db.execute('PRAGMA wal_checkpoint(TRUNCATE)')
	E
	sum=$(sha256sum "$ATOLL_HOME/atoll.db")
	before=$(untouched a "$ATOLL_HOME/plans")
	for command in list 'show p' 'commit p' 'stop p --force' clean recover; do
		# shellcheck disable=SC2086 # words
		run atoll $command
		status_is 1
		says 'newer'
	done
	run atoll list --json
	[ "$(jq -r .code <<<"$output")" = newer ]
	run atoll doctor a
	[ "$status" -ne 0 ]
	says 'newer'
	[ "$(sha256sum "$ATOLL_HOME/atoll.db")" = "$sum" ]
	[ "$(untouched a "$ATOLL_HOME/plans")" = "$before" ]
	store_is_broken=1
}

@test "cli refuses a damaged registry and leaves it alone" {
	two_dirs
	atoll start p --dir a
	# What makes a copy durable goes on in the background, and ends by writing that down.
	for _ in {1..20}; do
		[ -z "$(find "$ATOLL_HOME/plans" -name durable)" ] || break
		sleep 0.1
	done
	rm -f "$ATOLL_HOME"/atoll.db-*
	head -c 8192 /dev/urandom >"$ATOLL_HOME/atoll.db"
	sum=$(sha256sum "$ATOLL_HOME/atoll.db")
	before=$(untouched a "$ATOLL_HOME/plans")
	for command in list 'show p' 'commit p' 'rollback p' 'stop p --force' 'clean --force' recover 'start q --dir a'; do
		# shellcheck disable=SC2086 # words
		run atoll $command
		status_is 7
		says 'atoll doctor'
	done
	run atoll doctor a
	status_is 7
	[ "$(sha256sum "$ATOLL_HOME/atoll.db")" = "$sum" ]
	[ "$(untouched a "$ATOLL_HOME/plans")" = "$before" ]
	store_is_broken=1
}

@test "atm_01 cli what could not be listed once it is installed is refused before the decision" {
	[ "$ATOLL_TEST_SABOTAGE" = 1 ] || skip 'a build without -Dsabotage=true has no shorter lists'
	for strategy in copy overlay; do
		mkdir a
		echo old >a/old
		old=$(tree a)
		atoll start p --dir a --strategy $strategy
		atoll exec p -- sh -c 'mkdir "$ATOLL_RESOURCE_1/new" && cd "$ATOLL_RESOURCE_1/new" &&
			long=$(head -c 100 /dev/zero | tr "\0" x) && for n in $(seq 700); do echo >"$long$n"; done'
		ATOLL_CRASHPOINT=txn.after-decision ATOLL_SABOTAGE=manifest-limit run atoll commit p
		status_is 1
		says 'cannot list all that would be new in'
		[ "$(tree a)" = "$old" ]
		run -0 atoll commit p
		[ "$(find a/new -type f | wc -l)" -eq 700 ]
		atoll rollback p
		[ "$(tree a)" = "$old" ]
		atoll stop p
		rm -r a
	done
}
