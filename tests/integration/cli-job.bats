#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Commands in the background, and commands that join them.

load cli

plan_o() {
	outside_tmp
	mkdir a
	echo one >a/one
	run atoll start p --strategy overlay --dir a
	[ "$status" -eq 0 ] || skip 'no overlay here'
}

# job FILTER: of the first job.
job() {
	atoll job list --json | jq -r ".jobs[0].$1"
}

# background COMMAND...: as job web, with nothing of bats' left open.
background() {
	atoll exec p --background web -- "$@" 3>&- 4>&- 5>&- 6>&-
}

# logged TEXT: the job has printed it; up to a minute.
logged() {
	for _ in $(seq 600); do
		! atoll job log p web 2>/dev/null | grep -q "$1" || return 0
		sleep 0.1
	done
	return 1
}

@test "job runs on when atoll has returned, holds the plan, and what it prints is kept" {
	plan_o
	run -0 atoll job list
	says 'no jobs'
	# Nobody waits for its output, not even who reads ours to the end.
	run -0 timeout 60 sh -c '"$ATOLL" exec p --background web -- sh -c "echo out; echo err >&2; cat; exec sleep 1000" 2>&1 3>&- 4>&- 5>&- 6>&-'
	says 'job web runs in plan p'
	logged err
	[ "$(atoll job log p web | sort | tr '\n' ' ')" = 'err out ' ]
	[ "$(job state)" = running ]
	[ "$(job exit_code)" = null ]
	[ "$(ps -o sess= -p "$(job pid)" | tr -d ' ')" = "$(job pid)" ]
	# It is in the way, and that is said; looking is not.
	run -125 atoll exec --wait 0.5 p true
	says "held by pid $(job pid)"
	run -0 atoll diff p
	run -0 atoll log p
	run -0 atoll job stop p web
	says 'was ended'
	[ "$(job state)" = ended ]
	[ "$(job exit_code)" = 143 ]
	run -0 atoll job stop p
	says 'did not run'
	run -0 atoll exec p true
	[ "$(atoll log p --json | jq -r 'select(.job == "web") | .exit_code')" = 143 ]
	none_run
}

@test "job that ends by itself: status, status file, waiting" {
	plan_o
	atoll exec p --background web --status-file st --json -- sh -c 'echo x >a/new; sleep 0.3; exit 7' >begun 3>&- 4>&- 5>&- 6>&-
	[ "$(jq -r .job begun)" = web ]
	run -7 atoll job wait p
	[ "$(job exit_code)" = 7 ]
	[ "$(jq .exit_code st)" = 7 ]
	run -0 atoll diff p
	says 'a/new'
	# One that cannot be started is told at once, and by its own exit status.
	run -127 background atoll-no-such-command
	says 'No such file'
	run -126 background ./a/one
	run -125 atoll exec p --background 'b d' -- true
	says 'is no name'
	run -125 atoll exec q --background web -- true
	# Under its name there is the last one only.
	background sh -c 'echo second'
	run -0 atoll job wait p web
	[ "$(atoll job log p web)" = second ]
	[ "$(atoll job list --json | jq '.jobs | length')" -eq 1 ]
	run -1 atoll job log p other
	says "has no job 'other'"
	run -5 sh -c '"$ATOLL" exec p --background web -- sleep 1000 3>&- 4>&- 5>&- 6>&- && "$ATOLL" job wait p --wait 0.2'
	atoll job stop p
}

@test "job and what follows it, killed: nothing of it lives, and it is called lost" {
	plan_o
	background sh -c 'sleep 1000 & sleep 2000'
	kill -KILL "$(job pid)"
	run -0 atoll exec --wait 20 p -- sh -c 'ls /proc | grep -c "^[0-9]"; pgrep sleep || echo none'
	says none
	[ "$(job state)" = lost ]
	[ "$(job exit_code)" = null ]
	[ "$(job pid)" = 0 ]
	run -1 atoll job wait p
	# Another boot would not take it for running either, whoever holds the lock.
	background sleep 1000
	[ "$(job state)" = running ]
	sqlite3 "$ATOLL_HOME/atoll.db" "UPDATE job SET boot = 'another'"
	[ "$(job state)" = lost ]
	sqlite3 "$ATOLL_HOME/atoll.db" "UPDATE job SET boot = '$(cat /proc/sys/kernel/random/boot_id)'"
	atoll job stop p
	none_run
}

@test "job is ended by stop, but not when stop is refused" {
	plan_o
	background sh -c 'trap "echo bye; exit 0" TERM; echo x >a/new; echo ready; while :; do sleep 0.1; done'
	logged ready
	run -1 atoll stop p
	says 'uncommitted change'
	says 'is running'
	[ "$(job state)" = running ]
	run -0 atoll stop --force p
	no_plans
	none_run
}

@test "job whoever interrupts the waiting for the plan gets none" {
	plan_o
	in_background "$ATOLL" exec p -- sleep 1000
	wait_for_process 'sleep 1000'
	first=$background
	"$ATOLL" exec p --background web -- sleep 2000 >/dev/null 2>&1 3>&- 4>&- 5>&- 6>&- &
	second=$!
	started_here+=("$second")
	for _ in $(seq 600); do
		[ "$(atoll lock show p --json | jq '.locks | length')" -lt 2 ] || break
		sleep 0.05
	done
	kill -INT "$second" || kill -TERM "$second"
	kill -TERM "$second" 2>/dev/null || true
	ended "$second"
	for _ in $(seq 600); do
		[ "$(atoll lock show p --json | jq '.locks | length')" -ne 1 ] || break
		sleep 0.05
	done
	[ "$(atoll lock show p --json | jq '.locks | length')" -eq 1 ]
	kill "$first"
	ended "$first"
	[ "$(atoll job list --json | jq '.jobs | length')" -eq 0 ]
}

@test "exec --shared is in the same namespaces, at once, and its work is the plan's" {
	plan_o
	run -125 atoll exec --shared p true
	says 'nothing runs in plan'
	spaces='for n in user mnt pid ipc uts net; do readlink /proc/self/ns/$n; done'
	background sh -c "$spaces; echo >a/job-was-here; exec sleep 1000"
	logged net:
	run -0 timeout 20 "$ATOLL" exec --shared p -- sh -c "$spaces"
	[ "$output" = "$(atoll job log p)" ]
	run -0 atoll exec --shared --cwd a --env X=y p -- sh -c 'ls; echo $X; echo mine >shared-was-here; touch /etc/passwd 2>/dev/null || echo read-only'
	says job-was-here
	says y
	says read-only
	run atoll exec --shared p -- sh -c 'exit 9'
	status_is 9
	run atoll exec --shared p -- sh -c 'kill -TERM $$'
	status_is 143
	run -127 atoll exec --shared p -- atoll-no-such-command
	run -124 atoll exec --shared --timeout 0.2 p -- sleep 1000
	head -c 300000 /dev/urandom >data
	atoll exec --shared p -- cat <data | cmp - data
	run -125 atoll exec --shared --net none p true
	run -0 atoll exec --shared --transcript p -- echo kept
	[[ $output == kept ]]
	[ ! -e a/shared-was-here ]
	run -0 atoll job stop p
	run -0 atoll diff p
	says 'a/job-was-here'
	says 'a/shared-was-here'
	atoll commit p
	[ "$(cat a/shared-was-here)" = mine ]
}

@test "exec --shared ends with what it joined, and leaves the other alone when it is killed" {
	plan_o
	background sleep 1000
	in_background "$ATOLL" exec --shared p -- sleep 2000
	wait_for_process 'sleep 2000'
	first=$background
	in_background "$ATOLL" exec --shared p -- sleep 3000
	wait_for_process 'sleep 3000'
	kill -KILL "$background"
	ended "$background"
	for _ in $(seq 600); do
		processes | grep -q 'sleep 3000' || break
		sleep 0.05
	done
	! processes | grep 'sleep 3000'
	[ "$(job state)" = running ]
	atoll job stop p
	ended "$first"
	[ "$code" -eq 137 ]
	none_run
	# A command in the foreground can be joined, too.
	in_background "$ATOLL" exec p -- sleep 1000
	wait_for_process 'sleep 1000'
	for _ in $(seq 100); do
		code=0
		atoll exec --shared p -- true || code=$?
		[ "$code" -ne 0 ] || break
		sleep 0.05
	done
	[ "$code" -eq 0 ]
	kill "$background"
	ended "$background"
}

@test "job errors name the option and the plan, and whoever looks stops nothing" {
	mkdir a
	atoll start p --dir a
	run atoll exec p --background a/b -- true
	status_is 125
	says "option '--background': 'a/b' is no name"
	for verb in log stop wait; do
		run atoll job $verb p
		status_is 1
		says "plan 'p' has no job"
		says 'atoll exec p --background NAME'
	done
	run atoll exec p --rw "$work/nowhere" -- true
	status_is 125
	says 'nothing was run: '
	says 'give a path that is there'
}

@test "job without PLAN is of the plan of this directory, and a word that names no plan is the job" {
	plan_o
	background sh -c 'echo hello; exec sleep 1000'
	logged hello
	cd a
	run -0 --separate-stderr atoll job log
	[ "$output" = hello ]
	[[ $stderr == *'plan p ('* ]]
	run -0 --separate-stderr atoll job log web
	[ "$output" = hello ]
	run -1 atoll job log other
	says "has no job 'other'"
	run -0 atoll job stop
	says 'job web of plan p was ended'
	run -143 atoll job wait web
	# Of several the one at work; else they are named, with the command to type.
	atoll start q --dir . >/dev/null 2>&1
	run -1 --separate-stderr atoll job stop
	[[ $stderr == *'hint: name the plan: atoll job stop '* ]]
	cd "$work"
	run -1 atoll job stop
	says "there is no plan for '$work'"
	says 'atoll job stop PLAN takes one of them'
	atoll stop --force q
}
