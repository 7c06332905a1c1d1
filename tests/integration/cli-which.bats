#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Names: of commands, and which plan a command means when none is named. In a real directory, with real commands.

load cli

# plan NAME DIR: a plan of `start` over DIR.
plan() {
	atoll start "$1" --dir "$2" >/dev/null 2>&1
}

# change NAME DIR: the plan has first uncommitted change.
change() {
	atoll exec "$1" --cwd "$2" -- sh -c "echo $1 >new-$1"
}

# picked: the plan that the status of this directory is of.
picked() {
	atoll status --json | jq -r .plan.name
}

@test "cli which the last used plan of the directory is looked at" {
	two_dirs
	mkdir a/deep
	plan first a
	plan second a
	plan other b
	cd a/deep
	[ "$(picked)" = second ]
	change first "$work/a"
	[ "$(picked)" = first ]
	run --separate-stderr atoll status
	status_is 0
	[[ $stderr == 'plan first, the last used of 2 here ('*' ago: sh -c echo first >new-first)'* ]]
	run --separate-stderr atoll diff
	status_is 0
	[ "$output" = "A  $work/a/new-first" ]
	[[ $stderr == 'plan first, '* ]]
	run atoll diff second
	status_is 0
	says 'second: no changes'
	# A sister directory and first above it hold neither.
	cd "$work/b"
	[ "$(picked)" = other ]
	cd "$work"
	run atoll status
	status_is 1
	says "there is no plan for '$work'"
	says 'hint: atoll run -- COMMAND makes one; atoll list shows those elsewhere'
}

@test "cli sto_06 what changes something takes the only plan at work, never one of several" {
	two_dirs
	plan first a
	plan second a
	cd a
	for command in 'exec -- true' shell commit 'commit new-first' refresh open 'add --dir ../b'; do
		# shellcheck disable=SC2086 # words
		run atoll $command </dev/null
		[ "$status" -ne 0 ]
		says 'no plan here has uncommitted changes or a running command: first ('
		says 'second ('
	done
	# What has nothing to decide about is not told to name a plan, in which there is nothing, either.
	run atoll commit
	says 'hint: atoll run -- COMMAND, or atoll exec PLAN -- COMMAND, makes changes'
	run at_terminal discard
	says 'hint: what was committed is taken back with atoll undo'
	change first "$work/a"
	run --separate-stderr atoll open
	status_is 0
	[ "$output" = "$(atoll path first)" ]
	[ "$(atoll exec -- cat new-first)" = first ]
	change second "$work/a"
	for command in 'exec -- true' shell commit 'commit new-first' refresh open 'add --dir ../b'; do
		# shellcheck disable=SC2086 # words
		run atoll $command </dev/null
		[ "$status" -ne 0 ]
		says 'several plans here have uncommitted changes or a running command: first ('
		[[ $output =~ second\ \([0-9]+\ s\ ago:\ sh\ -c\ echo\ second\ \>new-second,\ [0-9.]+\ (bytes|[KM]iB)\) ]]
		says "hint: name the plan: atoll ${command%% *} second"
	done
	[ ! -e new-first ] && [ ! -e new-second ]
	atoll commit first
	[ "$(cat new-first)" = first ]
	# Of the two only the other has uncommitted changes.
	run atoll commit
	status_is 0
	says 'committed second'
	[ "$(cat new-second)" = second ]
	atoll stop first
	atoll stop second
}

@test "cli sto_06 a plan in which a command runs is at work" {
	two_dirs
	plan first a
	plan second a
	cd a
	mkfifo "$BATS_TEST_TMPDIR/gate"
	"$ATOLL" exec second -- sh -c 'echo runs; read -r line' <"$BATS_TEST_TMPDIR/gate" >"$BATS_TEST_TMPDIR/said" 3>&- &
	pid=$!
	started_here+=("$pid")
	exec 9>"$BATS_TEST_TMPDIR/gate"
	until [ -s "$BATS_TEST_TMPDIR/said" ]; do sleep 0.02; done
	[ "$(atoll exec --shared -- echo in)" = in ]
	[ "$(atoll list --json | jq -r '.plans[] | select(.running) | .name + ": " + .running')" = \
		'second: sh -c echo runs; read -r line' ]
	echo >&9
	exec 9>&-
	wait "$pid"
	atoll stop first
	atoll stop second --force --yes
}

@test "cli which a first word is the plan of that name, else a path" {
	two_dirs
	plan first a
	cd a
	change first "$work/a"
	run --separate-stderr atoll diff new-first
	status_is 0
	[ "$output" = "A  $work/a/new-first" ]
	run --separate-stderr atoll diff first new-first
	[ "$output" = "A  $work/a/new-first" ]
	# It can be both: then it is neither.
	mkdir first
	for command in diff commit open; do
		run atoll "$command" first
		status_is 1
		says "'first' is a plan and a path"
		says "hint: atoll $command ./first for the path, atoll $command $(atoll list --json | jq -r '.plans[0].id') for the plan"
	done
	run atoll diff "$(atoll list --json | jq -r '.plans[0].id')"
	status_is 0
	run atoll diff ./first
	status_is 0
	[ ! -e new-first ]
	run atoll commit new-first
	status_is 0
	[ "$(cat new-first)" = first ]
	# Not the beginning of a name: a path that is not there.
	run atoll diff on
	status_is 1
	says "'on' is no plan, and names nothing in plan first"
	atoll stop first
}

@test "cli which exec without a plan needs the dashes" {
	two_dirs
	plan first a
	cd a
	change first "$work/a"
	run atoll exec make it
	status_is 125
	says "there is no plan 'make'"
	says 'hint: a command without a plan is behind --: atoll exec -- make'
	run atoll exec make
	status_is 125
	says 'missing argument'
	run atoll exec -- sh -c 'exit 3' -- more
	status_is 3
	[ "$(atoll exec -- echo first -- second)" = 'first -- second' ]
	[ "$(atoll exec first -- echo a)" = a ]
	[ "$(atoll exec first echo -n b)" = b ]
	atoll stop first --force --yes
}

@test "cli which discard takes whole names, and in a script a name" {
	two_dirs
	plan plan-a a
	cd a
	change plan-a "$work/a"
	for words in '' --yes --json; do
		# shellcheck disable=SC2086 # words
		run atoll discard $words
		status_is 2
		says 'needs the name of the plan'
	done
	for command in discard rollback; do
		run atoll "$command" plan-
		status_is 1
		says "'plan-' is not the whole name of a plan; nothing was changed"
		says "hint: atoll $command plan-a"
	done
	[ "$(atoll diff --json plan-a | jq .added)" -eq 1 ]
	run atoll discard plan-a
	status_is 0
	says 'discarded 1 uncommitted change of plan plan-a; it goes on from what is there now'
	[ "$(atoll diff --json plan-a | jq .added)" -eq 0 ]
	change plan-a "$work/a"
	[ "$(atoll discard plan-a --json | jq -r '.format + " " + .plan.name')" = 'atoll.reset/1 plan-a' ]
	atoll stop plan-a
}

@test "cli which a discarded plan of run ends, unless a commit of it can be undone" {
	two_dirs
	cd a
	atoll run --here --keep -- sh -c 'echo 1 >x; echo 2 >y' 2>/dev/null
	name=$(picked)
	run atoll discard "$name"
	status_is 0
	says "discarded 2 uncommitted changes; plan $name has ended"
	[ "$(atoll list --json | jq '.plans | length')" -eq 0 ]
	atoll run --here --keep -- sh -c 'echo 1 >x; echo 2 >y' 2>/dev/null
	name=$(picked)
	atoll commit x
	run atoll discard "$name"
	status_is 0
	says "discarded 1 uncommitted change of plan $name; it goes on"
	[ -e x ] && [ ! -e y ]
	atoll rollback "$name"
	[ ! -e x ]
	atoll stop "$name"
}

# state_of NAME: as list has it.
state_of() {
	atoll list 2>/dev/null | sed -nE "s/^$1 .* [0-9]+ (s|min|h|d)  (.*[^ ])  +[0-9.]+ (bytes|[KM]iB)\$/\\2/p"
}

@test "cli list says in words how each plan stands" {
	outside_tmp
	two_dirs
	plan first a
	[ "$(state_of first)" = 'no changes' ]
	"$ATOLL" start over --dir a >/dev/null 2>&1
	atoll exec over --cwd "$work/a" -- sh -c $'echo 1 >x\n\techo 2 >y'
	[ "$(state_of over)" = '2 changes' ]
	grep -qE "^over +$work/a +sh -c echo 1 >x echo \.\.\. +[0-9]" <(atoll list)
	atoll commit over "$work/a/x"
	[ "$(state_of over)" = 'may have changes' ]
	atoll commit over --retain 7d
	until=$(atoll list --json | jq -r '.plans[] | select(.name == "over").undo_until')
	[ "$(TZ=UTC state_of over)" = "committed, undo until ${until:0:10} ${until:11:5}" ]
	atoll rollback over
	[ "$(state_of over)" = undone ]
	atoll exec over --cwd "$work/a" -- sh -c 'echo 1 >x'
	atoll commit over --retain never
	[ "$(state_of over)" = 'committed, can be undone' ]
	[ "$(atoll list --json | jq -c '.plans[] | select(.name == "over") | [.undo_until, .undoable_commits]')" = '[null,1]' ]
	plan other b
	[ "$(cd a && atoll list --here --json | jq -r '.plans | map(.name) | join(" ")')" = 'first over' ]
	[ "$(cd b && atoll ls --here | sed 1d | cut -d ' ' -f 1)" = other ]
	[ "$(atoll list --all --json | jq '.plans | length')" -eq 3 ]
	run atoll list --here
	says 'no plans here'
	run atoll list --here --all
	status_is 2
	atoll stop first
	atoll stop over
	atoll stop other
}

@test "cli status says what is pending, what runs, and what can be undone until when" {
	two_dirs
	plan first a
	change first "$work/a"
	run --separate-stderr atoll status first
	[[ $output == 'plan     first'$'\n''pending  1 change'$'\n''last     sh -c echo first >new-first'$'\n'* ]]
	[ -z "$stderr" ]
	[ "$(at_terminal status first | tail -n 1)" = 'next: atoll diff first, then atoll commit first or atoll discard first' ]
	atoll commit first
	until=$(atoll show first --json | jq -r '.undo_until')
	run --separate-stderr env TZ=UTC "$ATOLL" status first
	[[ $output == *$'\n''pending  nothing'$'\n'* ]]
	[[ $output =~ undo\ \ \ \ \ the\ commit\ of\ [0-9:]+,\ until\ (tomorrow\ )?${until:11:5} ]]
	mkfifo "$BATS_TEST_TMPDIR/gate"
	"$ATOLL" exec first -- sh -c 'echo runs; read -r line' <"$BATS_TEST_TMPDIR/gate" >"$BATS_TEST_TMPDIR/said" 3>&- &
	pid=$!
	started_here+=("$pid")
	exec 9>"$BATS_TEST_TMPDIR/gate"
	until [ -s "$BATS_TEST_TMPDIR/said" ]; do sleep 0.02; done
	run atoll show first
	says 'running  sh -c echo runs; read -r line'
	[ "$(state_of first)" = 'running: sh -c echo runs; read -r line' ]
	echo >&9
	exec 9>&-
	wait "$pid"
	atoll stop first --force --yes
}

@test "cli which log is of the last used plan of the directory, else of all" {
	two_dirs
	plan first a
	plan other b
	[ "$(atoll log --json | jq -r .plan.name | sort -u | paste -sd ' ')" = 'first other' ]
	cd a
	[ "$(atoll log --json | jq -r .plan.name | sort -u)" = first ]
	run --separate-stderr atoll log
	[[ $stderr == 'plan first ('* ]]
	[ "$(atoll log other --json | jq -r .plan.name | sort -u)" = other ]
	[ "$(atoll log --all --json | jq -r .plan.name | sort -u | paste -sd ' ')" = 'first other' ]
	run atoll log --all other
	status_is 2
	atoll stop first
	atoll stop other
}

@test "cli other names of a command are in its row, in help, and completed" {
	rows=0
	while read -r name also; do
		rows=$((rows + 1))
		run atoll help "$also"
		status_is 0
		says "usage: atoll $name"
		says 'also accepted: '
		[ "$(atoll __complete -- "$also" | cut -f 1 | grep -cx "$also")" -eq 1 ]
		[ "$(atoll help --json | jq --arg also "$also" '[.commands[] | select(.name == $also)] | length')" -eq 0 ]
		[ "$(atoll "$also" --help)" = "$(atoll "$name" --help)" ]
	done < <(atoll help --json | jq -r '.commands[] | .name as $n | .also[] | $n + " " + .')
	[ "$rows" -ge 5 ]
	for pair in status=show list=ls commit=apply discard=reset open=path; do
		[ "$(atoll help "${pair#*=}" | head -n 1)" = "$(atoll help "${pair%=*}" | head -n 1)" ]
	done
	[ ! -e "$ATOLL_HOME" ]
}

@test "cli words that are other programs' commands are answered and not run" {
	two_dirs
	plan first a
	change first "$work/a"
	rows=0
	while IFS='|' read -r word purpose command; do
		rows=$((rows + 1))
		run atoll "$word"
		status_is 2
		[ "${lines[0]}" = "atoll: no such command; to $purpose: atoll $command" ]
		run atoll "$word" first
		status_is 2
		run atoll help "${command%% *}"
		status_is 0
	done < <(atoll help --json | jq -r '.other_words[] | [.word, .purpose, .command] | join("|")')
	[ "$rows" -ge 8 ]
	for word in ps merge revert accept drop delete info pull; do
		run atoll "$word"
		status_is 2
		says 'no such command; to '
	done
	run atoll ps
	[ "${lines[0]}" = 'atoll: no such command; to list plans: atoll list' ]
	[ "$(atoll diff first --json | jq .added)" -eq 1 ]
	atoll stop first --force --yes
}

@test "cli bare atoll prints the everyday commands" {
	run --separate-stderr atoll
	status_is 2
	[ "$stderr" = '' ]
	[ "$(sed -n 's/^  \([a-z]*\) .*/\1/p' <<<"$output")" = \
		"$(atoll help --json | jq -r '.commands[] | select(.everyday) | .name')" ]
	[ "$(grep -c '^  [a-z]' <<<"$output")" -eq 10 ]
	for name in run status diff commit undo discard list; do
		grep -q "^  $name " <<<"$output"
	done
}
