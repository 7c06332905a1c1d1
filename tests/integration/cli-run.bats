#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# run and shell: the whole way in one command.

load cli

one_dir() {
	mkdir a
	echo old >a/file
	touch -d '2001-02-03 04:05:06.123456789' a/file a
	cd a || return 1
	before=$(untouched .)
}

the_plan() {
	atoll list --json | jq -r '.plans[0].name'
}

@test "cli run without a terminal keeps the plan and says how to decide" {
	one_dir
	run atoll run -- sh -c 'echo new >file; cat file'
	status_is 0
	[ "${lines[0]}" = new ]
	says 'kept 1 change in plan'
	[ "${lines[-1]}" = "NOT committed: atoll commit $(the_plan)" ]
	[ "$(untouched .)" = "$before" ]
	atoll commit "$(the_plan)"
	[ "$(cat file)" = new ]
}

@test "cli run --commit commits when the command succeeds, and can be undone" {
	one_dir
	run atoll run --commit -- sh -c 'echo new >file'
	status_is 0
	says 'committed '
	[ "$(cat file)" = new ]
	atoll rollback "$(the_plan)"
	[ "$(cat file)" = old ]
}

@test "cli run without a command runs the shell" {
	one_dir
	SHELL=/bin/sh run atoll run --keep <<<'echo new >file; exit 3'
	status_is 3
	says 'kept 1 change in plan'
	[ "$(cat file)" = old ]
	[ "$(atoll list --json | jq -r '.plans[0].command')" = /bin/sh ]
	SHELL=relative run atoll run --rollback --json <<<'echo new >file'
	status_is 0
	[ "$(tail -n 1 <<<"$output" | jq -r '.decision + " " + (.changes | tostring)')" = 'rolled back 1' ]
}

@test "cli rollback needs the name of the plan" {
	one_dir
	atoll run --keep -- sh -c 'echo new >file'
	run atoll rollback
	status_is 2
	run atoll rollback "$(the_plan)" two
	status_is 2
	run atoll rollback "$(the_plan)" --keep-work
	status_is 0
	says "$(the_plan): nothing was committed, its work is kept"
	run atoll rollback "$(the_plan)"
	status_is 0
	says "rolled back $(the_plan): its work is dropped"
	[ "$(untouched .)" = "$before" ]
	[ -z "$(atoll diff "$(the_plan)" 2>/dev/null)" ]
}

@test "cli which plan is not asked where the directory is gone" {
	mkdir gone
	cd gone
	rmdir "$work/gone"
	run "$ATOLL" commit
	cd "$work"
	status_is 1
	says 'name the plan: atoll commit PLAN'
}

@test "cli run --commit keeps the plan when the command fails, with its exit code" {
	one_dir
	run atoll run --commit -- sh -c 'echo new >file; exit 9'
	status_is 9
	says 'nothing is committed'
	[ "$(untouched .)" = "$before" ]
	[ "$(atoll diff "$(the_plan)" 2>/dev/null)" = "M  $PWD/file" ]
}

@test "cli run --rollback drops the changes and leaves no plan" {
	one_dir
	run atoll run --rollback -- rm file
	status_is 0
	[ "$(untouched .)" = "$before" ]
	no_plans
}

@test "cli run that changes nothing leaves no plan" {
	one_dir
	run atoll run -- false
	status_is 1
	no_plans
	run atoll run -- /does/not/exist
	status_is 127
	no_plans
}

@test "cli run over two directories with a refused commit exits 125 and keeps the work" {
	two_dirs
	run atoll run --dir a --dir b --commit -- sh -c 'echo x >a/one; mkfifo b/pipe'
	status_is 125
	[ "$(cat a/one)" = one ]
	[ ! -e b/pipe ]
	says 'kept '
}

@test "cli run refuses two decisions at once" {
	one_dir
	run atoll run --commit --keep -- true
	status_is 125
	says 'exclude each other'
	no_plans
}

@test "cli run --json ends with one object" {
	one_dir
	run --separate-stderr atoll run --json --keep -- sh -c 'echo said; echo new >file'
	status_is 0
	[ "${lines[0]}" = said ]
	[ "$(jq -r '[.format, .decision, .exit_code, .changes] | join(" ")' <<<"${lines[-1]}")" = 'atoll.run/1 kept 0 1' ]
}

@test "cln_05 cli a run killed before its decision is found by clean" {
	one_dir
	"$ATOLL" run -- sh -c 'echo new >file; sleep 60' >/dev/null 2>&1 3>&- 4>&- &
	pid=$!
	for _ in $(seq 3000); do
		name=$(the_plan)
		[ "$name" != null ] && [ -n "$(atoll diff "$name" 2>/dev/null)" ] && break
		sleep 0.02
	done
	kill -KILL "$pid"
	wait "$pid" || true
	# The plan is busy until the last of its processes is gone; that is waited for.
	run atoll clean
	status_is 0
	# There is work in it: it stays, as nobody's.
	[ "$(atoll list --json | jq -r '.plans[0].abandoned')" = true ]
	[ "$(untouched .)" = "$before" ]
}

@test "cli shell runs the user's shell in the plan" {
	one_dir
	atoll start p
	run env SHELL=/bin/sh "$ATOLL" shell p <<<'echo new >file; exit 3'
	status_is 3
	[ "$(cat file)" = old ]
	[ "$(atoll diff p 2>/dev/null)" = "M  $PWD/file" ]
	run atoll shell nobody
	status_is 125
}

@test "cmd_02 cli after a killed helper no process of its command is alive when the next one begins" {
	one_dir
	"$ATOLL" start --dir . p >/dev/null
	mark=1000.$$
	for _ in 1 2 3 4 5; do
		"$ATOLL" exec p -- sh -c "for i in \$(seq 40); do sleep $mark & done; sleep $mark" >/dev/null 2>&1 3>&- 4>&- &
		pid=$!
		for _ in $(seq 3000); do
			[ "$(pgrep -c -f "sleep $mark")" -ge 41 ] && break
			sleep 0.02
		done
		[ "$(pgrep -c -f "sleep $mark")" -ge 41 ]
		kill -KILL "$(pgrep -P "$pid" -x atoll-helper)"
		# Inside a pid namespace it would not see them: the look is taken from outside.
		"$ATOLL" exec p -- true
		[ "$(pgrep -c -f "sleep $mark")" -eq 0 ]
		wait "$pid" || true
	done
}
