#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# A command must not run the filesystem full. Needs one of its own, so only root.

load cli

# small_disk: from here on store and directories are on a filesystem of 64 MiB.
small_disk() {
	is_root || skip 'only root mounts a filesystem of its own'
	mounted=$BATS_TEST_TMPDIR/small
	mkdir "$mounted"
	mount -t tmpfs -o size=64m,mode=700 none "$mounted"
	export ATOLL_HOME=$mounted/home
	work=$mounted/work
	mkdir -p "$work/a"
	cd "$work" || return 1
	atoll config set exec.min-free 24m 2>/dev/null
}

teardown() {
	cd /
	for pid in "${started_here[@]}"; do
		kill -KILL "$pid" 2>/dev/null || true
	done
	if [ -n "${mounted:-}" ]; then
		atoll stop --force --yes p >/dev/null 2>&1 || true
		unmount "$mounted"
	fi
	none_run
}

fill='cd "$ATOLL_RESOURCE_1"; echo here >first; while :; do head -c 1048576 /dev/zero >>big; sleep 0.02; done'

@test "space a command is ended before the filesystem is full, its work is kept" {
	small_disk
	atoll start p --dir a
	run -125 timeout 60 "$ATOLL" exec p -- sh -c "$fill"
	says 'MiB are free on the tmpfs of'
	says 'less than 24 MiB (exec.min-free); the command was ended, its work is kept'
	says 'atoll config set exec.min-free'
	[ "$(df --output=avail -k "$mounted" | tail -n 1)" -gt 16384 ]
	none_run
	run -0 atoll diff p
	says 'a/first'
	says 'a/big'
	run -125 atoll exec p -- true
	says 'the command was not started'
	[ "$(atoll exec p --json -- true | tail -n 1 | jq -r '[.code, .exit] | join(" ")')" = 'ENOSPC 125' ]
	# With a lower limit it goes on, and with none it is not looked at.
	atoll config set exec.min-free 1m
	run -0 atoll exec p -- true
	run -0 atoll log --limit 9 p
	says 'ENOSPC'
}

# The helper is let go of then, and cannot be told that the work is to be synced: it is all the same.
@test "space one that does not listen is killed, its work is synced" {
	small_disk
	atoll start p --dir a
	run -125 timeout 60 "$ATOLL" exec p -- sh -c "trap '' TERM; $fill"
	says 'the command was ended'
	area=("$ATOLL_HOME"/plans/*)
	for _ in $(seq 6000); do
		[ "$(cat "${area[0]}/durable" 2>/dev/null)" != 1 ] || break
		sleep 0.01
	done
	[ "$(cat "${area[0]}/durable")" = 1 ]
	none_run
	run -0 atoll diff p
	says 'a/big'
}

@test "space run keeps the plan of a command that was ended" {
	small_disk
	run -125 timeout 60 "$ATOLL" run --strategy copy --dir a --commit -- sh -c "$fill"
	says 'kept 2 changes in plan'
	[ ! -e a/big ]
	name=$(atoll list --json | jq -r '.plans[0].name')
	atoll stop --force --yes "$name"
}

@test "space the limit is small where the filesystem is" {
	small_disk
	atoll config unset exec.min-free
	atoll start p --dir a
	run -0 atoll exec p -- sh -c 'head -c 52428800 /dev/zero >"$ATOLL_RESOURCE_1/most"'
	atoll config set exec.min-free 0
	run -0 atoll exec p -- sh -c 'head -c 99999999 /dev/zero >"$ATOLL_RESOURCE_1/all" 2>/dev/null; true'
	atoll config unset exec.min-free
	run -125 atoll exec p -- true
	says 'less than 0 MiB' || says 'exec.min-free'
}
