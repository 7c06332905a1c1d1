#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Who holds what, who waits, and ending a holder that is stuck.

load cli

plan_id() {
	atoll show "$1" --json | jq -r .plan.id
}

# waiting N: so many wait for plan p.
waiting() {
	for _ in $(seq 3000); do
		[ "$(atoll lock show p --json | jq '[.locks[] | select(.waiting)] | length')" -eq "$1" ] && return 0
		sleep 0.02
	done
	atoll lock show p
	return 1
}

@test "lock show names the holder and who waits, in order" {
	two_dirs
	atoll start p --dir a
	atoll start q --dir b
	run -0 atoll lock show
	says 'no lock is held'
	run -0 atoll lock
	says 'no lock is held'
	hold "$(plan_id p).plan"
	holder=$background
	in_background "$ATOLL" reset p
	first=$background
	waiting 1
	in_background "$ATOLL" commit p
	second=$background
	waiting 2
	run -0 --separate-stderr atoll lock show
	[[ ${lines[0]} == "plan     p  held by pid $holder \"hold-lock\" since 20"* ]]
	[[ ${lines[1]} == "plan     p  1. waiting: pid $first \"atoll reset p\""* ]]
	[[ ${lines[2]} == "plan     p  2. waiting: pid $second \"atoll commit p\""* ]]
	[ "${#lines[@]}" -eq 3 ]
	run -0 atoll lock show p --json
	[ "$(jq -r .format <<<"$output")" = atoll.lock/1 ]
	[ "$(jq -r '.locks[] | [.kind, .plan_name, .ahead, .pid, .alive, .waiting] | join(" ")' <<<"$output")" = \
		"plan p 0 $holder true false
plan p 1 $first true true
plan p 2 $second true true" ]
	run -0 atoll lock show q
	says 'no lock is held'
	kill "$holder"
	ended "$first"
	ended "$second"
}

@test "lock show knows the resource a commit holds, and the store" {
	two_dirs
	atoll start p --dir a
	atoll exec p -- sh -c 'echo x >"$ATOLL_RESOURCE_1/one"'
	hold store.lk
	holder=$background
	in_background "$ATOLL" commit p
	committing=$background
	for _ in $(seq 3000); do
		run -0 atoll lock show
		[[ $output != *"resource $work/a  held by pid $committing"* ]] || break
		sleep 0.02
	done
	# Now it waits for the store. The look before may have been at the plan before it was held.
	run -0 atoll lock show
	says "resource $work/a  held by pid $committing \"atoll commit p\""
	says "plan     p  held by pid $committing"
	says "store    $ATOLL_HOME  held by pid $holder \"hold-lock\""
	kill "$holder"
	ended "$committing"
	[ "$code" -eq 0 ]
}

@test "lock break ends the holder, and only after asking" {
	two_dirs
	atoll start p --dir a
	hold "$(plan_id p).plan"
	run -2 atoll lock break p
	says 'say --yes'
	run -2 atoll lock break p --json
	run -2 atoll lock break
	says 'say --yes'
	run -2 atoll lock brake p
	kill -0 "$background"
	run /usr/bin/python3 "$ATOLL_TEST_LIB/type-at.py" --after '[y/N] ' 'n\n' "$ATOLL" lock break p
	says 'end it?'
	kill -0 "$background"
	run -0 /usr/bin/python3 "$ATOLL_TEST_LIB/type-at.py" --after '[y/N] ' 'y\n' "$ATOLL" lock break p
	says "ended pid $background \"hold-lock\" with SIGTERM; plan p is free"
	ended "$background"
	run -0 atoll lock break --yes p
	says 'plan p is not locked; nothing was done'
	[ "$(atoll lock break --yes p --json | jq -r .broken)" = false ]
	run -1 atoll lock break --yes nobody
	run -0 atoll reset p
	run -0 atoll log p
	says ' break '
}

@test "lock break without PLAN is about the plan of this directory" {
	outside_tmp
	two_dirs
	atoll start p --dir a
	atoll start q --dir b
	in_background "$ATOLL" exec p -- sh -c ': >a/ready; exec sleep 1000'
	for _ in $(seq 3000); do
		[[ $(atoll diff p 2>/dev/null) != *ready* ]] || break
		sleep 0.02
	done
	cd b
	run atoll lock break --yes
	says 'no plan here has uncommitted changes or a running command: q'
	says 'hint: name the plan: atoll lock break q'
	cd ../a
	run -0 atoll lock break --yes
	says 'plan p is free'
	ended "$background"
	atoll stop --force p q
}

@test "lock break kills a holder that does not listen" {
	two_dirs
	atoll start p --dir a
	hold "$(plan_id p).plan"
	kill -STOP "$background"
	run -0 atoll lock break --yes --json p
	[ "$(jq -r '[.broken, .signal, .pid] | join(" ")' <<<"$output")" = "true KILL $background" ]
	run -0 atoll reset p
}

@test "lock break ends a command and what it started, and keeps the work" {
	outside_tmp
	two_dirs
	for strategy in overlay copy; do
		atoll start p --strategy "$strategy" --dir a
		in_background "$ATOLL" exec p -- sh -c 'trap "" TERM; echo x >a/one; sleep 61 & : >a/ready; while :; do sleep 61; done'
		for _ in $(seq 3000); do
			[[ $(atoll diff p 2>/dev/null) != *ready* ]] || break
			sleep 0.02
		done
		run -0 atoll lock show p
		says 'atoll exec p -- sh'
		run -0 atoll lock break --yes p
		says 'plan p is free'
		ended "$background"
		none_run
		run -0 atoll diff p
		says 'a/one'
		run -0 atoll commit p
		[ "$(cat a/one)" = x ]
		run -0 atoll rollback p
		atoll stop p
	done
}

@test "lock break in the middle of a commit: the next command settles it" {
	two_dirs
	atoll start p --dir a
	atoll exec p -- sh -c 'echo x >"$ATOLL_RESOURCE_1/one"'
	before=$(untouched a)
	hold store.lk
	holder=$background
	in_background "$ATOLL" commit p
	for _ in $(seq 3000); do
		[[ $(atoll lock show p) != *'held by'* ]] || break
		sleep 0.02
	done
	in_background "$ATOLL" lock break --yes p
	breaking=$background
	sleep 0.3
	kill "$holder"
	ended "$breaking"
	[ "$code" -eq 0 ]
	run -0 atoll recover p
	[ "$(atoll show p --json | jq -r .in_doubt)" = false ]
	[ "$(untouched a)" = "$before" ] || [ "$(cat a/one)" = x ]
}
