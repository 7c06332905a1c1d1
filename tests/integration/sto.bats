#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Storage locking (rules STO) from the command line: many commands at once, and a store whose
# lock somebody holds.

load cli

rounds() {
	if [ -n "${ATOLL_LONG:-}" ]; then echo 100; else echo 20; fi
}

# hold_store: a program holds the store's lock until let_go.
hold_store() {
	mkfifo "$BATS_TEST_TMPDIR/hold"
	"$ATOLL_TEST_HOLD_LOCK" "$ATOLL_HOME/locks" store.lk wait <"$BATS_TEST_TMPDIR/hold" \
		>"$BATS_TEST_TMPDIR/held" 2>/dev/null 3>&- 4>&- 5>&- 6>&- &
	holder=$!
	exec 9>"$BATS_TEST_TMPDIR/hold"
	for _ in $(seq 6000); do
		[ ! -s "$BATS_TEST_TMPDIR/held" ] || return 0
		sleep 0.01
	done
	return 1
}

let_go() {
	exec 9>&-
	wait "$holder"
	rm "$BATS_TEST_TMPDIR/hold" "$BATS_TEST_TMPDIR/held"
}

store_is_free() {
	"$ATOLL_TEST_HOLD_LOCK" "$ATOLL_HOME/locks" store.lk try </dev/null >/dev/null
}

# at_once N COMMAND...: N of them, begun together; fails if one does.
at_once() {
	local n=$1 pids=() pid failed=0
	shift
	for _ in $(seq "$n"); do
		"$@" >>"$BATS_TEST_TMPDIR/at-once" 2>&1 3>&- 4>&- 5>&- 6>&- 9>&- &
		pids+=($!)
	done
	for pid in "${pids[@]}"; do
		wait "$pid" || failed=1
	done
	[ "$failed" -eq 0 ] || cat "$BATS_TEST_TMPDIR/at-once"
	return "$failed"
}

# one_sandbox NAME: the store knows one plan with one sandbox, and holds one directory.
one_sandbox() {
	[ "$(atoll list --json | jq '.plans | length')" -eq 1 ]
	[ "$(atoll show --json "$1" | jq '.sandboxes | length')" -eq 1 ]
	[ "$(find "$ATOLL_HOME/plans" -mindepth 1 -maxdepth 1 | wc -l)" -eq 1 ]
}

@test "sto_01 thirty starts on an empty store make one sandbox" {
	two_dirs
	before=$(tree a)
	for i in $(seq "$(rounds)"); do
		export ATOLL_HOME=$BATS_TEST_TMPDIR/store-$i
		at_once 30 "$ATOLL" start shared --or-open --dir a
		one_sandbox shared
		# Every one of them was told the same name, and nothing else.
		[ "$(atoll list --json | jq -r '.plans[].name')" = shared ]
		atoll stop --force --yes shared
		no_plans
	done
	[ "$(tree a)" = "$before" ]
	export ATOLL_HOME=$BATS_TEST_TMPDIR/home
}

start_and_exec() {
	"$ATOLL" start shared --or-open --dir a && "$ATOLL" exec shared -- true
}

@test "sto_01 thirty starts, each with a command after it" {
	two_dirs
	before=$(tree a)
	at_once 30 start_and_exec
	one_sandbox shared
	[ "$(tree a)" = "$before" ]
}

@test "sto_02 nobody waits for a running command" {
	two_dirs
	atoll start busy --dir a
	cd a
	in_background "$ATOLL" exec busy -- sh -c 'touch started; while [ ! -e go ]; do sleep 0.01; done; touch ended'
	view=$(atoll show --json busy | jq -r '.sandboxes[0].area')
	for _ in $(seq 6000); do
		[ -z "$(find "$view" -name started)" ] || break
		sleep 0.01
	done
	run atoll list
	status_is 0
	says busy
	run atoll show busy
	status_is 0
	run atoll diff busy
	status_is 0
	run atoll --wait 0 exec busy -- true
	status_is 125
	says "pid $background"
	atoll start other --dir ../b
	[ -z "$(find "$view" -name ended)" ]
	touch "$(dirname "$(find "$view" -name started)")/go"
	wait "$background"
	[ -n "$(find "$view" -name ended)" ]
	[ ! -e started ]
}

@test "sto_03 every writing command waits for the store, readers do not" {
	two_dirs
	atoll start p --dir a
	(cd a && atoll exec p -- sh -c 'echo new >one')
	before=$(untouched a)
	hold_store
	for command in 'start q --dir b' 'commit --yes p' 'reset --yes p' 'rollback --yes p' \
		'stop --force --yes p'; do
		# shellcheck disable=SC2086
		run "$ATOLL" --wait 0.2 $command 9>&-
		status_is 5
		says "pid $holder"
	done
	run "$ATOLL" --wait 0.2 exec p -- true 9>&-
	status_is 125
	says "pid $holder"
	for command in list 'list --json' 'show p' 'diff p'; do
		# shellcheck disable=SC2086
		run "$ATOLL" --wait 0.2 $command 9>&-
		status_is 0
	done
	[ "$(untouched a)" = "$before" ]
	let_go
	atoll commit --yes p
	[ "$(cat a/one)" = new ]
}

@test "sto_03 a waiting command goes on when the store is free" {
	two_dirs
	atoll start p --dir a
	hold_store
	in_background "$ATOLL" start q --dir b 9>&-
	sleep 0.5
	kill -0 "$background"
	[ "$(atoll list --json 9>&- | jq '.plans | length')" -eq 1 ]
	let_go
	wait "$background"
	[ "$(atoll list --json | jq '.plans | length')" -eq 2 ]
	[ "$(cat b/three)" = three ]
}

@test "sto_04 start and exec on an empty store end" {
	two_dirs
	before=$(tree a)
	run timeout 60 "$ATOLL" start p --or-open --dir a
	status_is 0
	run timeout 60 "$ATOLL" exec p -- true
	status_is 0
	[ "$(tree a)" = "$before" ]
}

@test "sto_05 every error exit leaves the store free" {
	two_dirs
	atoll start fix-1 --dir a
	atoll start fix-2 --dir b
	before=$(untouched a b)
	for command in 'exec fix -- true' 'start fix-1' 'start ../x' 'start q --dir /nonexistent' \
		'start q --dir /' 'commit none' 'stop none' 'frobnicate'; do
		# shellcheck disable=SC2086
		run "$ATOLL" $command
		[ "$status" -ne 0 ]
		store_is_free
	done
	[ "$(atoll list --json | jq '.plans | length')" -eq 2 ]
	[ "$(untouched a b)" = "$before" ]
}
