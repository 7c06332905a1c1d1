#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What becomes of plans that nothing needs any more: at the end of undo.retention, with clean, with rm.

load cli

# plan NAME: over a directory of that name.
plan() {
	mkdir "$1"
	echo one >"$1/file"
	atoll start "$1" --dir "$1"
}

# change NAME: a change of its directory that is not committed.
change() {
	atoll exec "$1" -- sh -c 'date +%N >"$ATOLL_RESOURCE_1/file"'
}

# committed NAME...: plans with a commit and nothing else.
committed() {
	for name; do
		plan "$name"
		change "$name"
		atoll commit "$name"
	done
}

# expire: the time in which commits can be undone has passed for all of them.
expire() {
	python3 -c 'import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("UPDATE batch SET retain_until_ms = 1 WHERE retain_until_ms > 0")
db.commit()' "$ATOLL_HOME/atoll.db"
}

# plans: the names of all, in order.
plans() {
	"$ATOLL" list --json | jq -r '[.plans[].name] | sort | join(" ")'
}

# kept_by NAME: what the store holds of it.
kept_by() {
	find "$ATOLL_HOME/plans" -mindepth 1 -maxdepth 1 -name "$("$ATOLL" list --json | jq -r --arg n "$1" '.plans[] | select(.name == $n).id')*"
}

# any_writing_command: one that has nothing to do with the plans that are there.
any_writing_command() {
	mkdir -p other
	atoll start other --dir other
	atoll stop other
}

@test "cln_04_expired_plan_goes: with the next command that writes to the store" {
	committed p q
	id=$("$ATOLL" list --json | jq -r '.plans[] | select(.name == "p").id')
	any_writing_command
	[ "$(plans)" = 'p q' ]
	expire
	# Those that only look change nothing.
	atoll list
	atoll show p
	atoll diff p
	[ "$(plans)" = 'p q' ]
	before=$(untouched p q)
	any_writing_command
	no_plans
	[ "$(untouched p q)" = "$before" ]
	[ -z "$(ls "$ATOLL_HOME/locks" | grep -F "$id")" ]
	# Its history is there and says why it went.
	run atoll log "$id"
	status_is 0
	says 'undo.retention'
}

@test "cln_04_expired_plan_goes: also one of run" {
	mkdir project
	cd project
	echo one >file
	atoll run --here --commit -- sh -c 'echo two >file'
	expire
	any_writing_command
	no_plans
	[ "$(cat file)" = two ]
}

@test "cln_04_expired_plan_stays: with uncommitted changes, and they are whole" {
	committed p
	change p
	diff=$("$ATOLL" diff --patch p)
	[ -n "$diff" ]
	expire
	any_writing_command
	any_writing_command
	[ "$(plans)" = p ]
	[ "$("$ATOLL" diff --patch p)" = "$diff" ]
	# The commit cannot be undone any more.
	[ "$("$ATOLL" show p --json | jq .undoable_commits)" -eq 0 ]
	run atoll log p
	says 'release   done: a commit cannot be undone any more (undo.retention)'
	run atoll rollback p
	status_is 1
	says 'was released'
	# The next commit has a time of its own.
	atoll commit p
	any_writing_command
	[ "$(plans)" = p ]
	expire
	any_writing_command
	no_plans
}

@test "cln_04_expired_plan_stays: while another of its commits can be undone" {
	committed p
	expire
	change p
	"$ATOLL" commit p --retain 1h
	any_writing_command
	[ "$(plans)" = p ]
	expire
	any_writing_command
	no_plans
	committed q
	change q
	"$ATOLL" commit q --retain never
	expire
	any_writing_command
	[ "$(plans)" = q ]
}

@test "cln_04_expired_plan_stays: while a command runs in it" {
	committed p
	expire
	# A command holds the lock of its plan.
	hold "$("$ATOLL" list --json | jq -r '.plans[0].id').plan"
	any_writing_command
	[ "$(plans)" = p ]
	kill -KILL "$background"
	wait "$background" || true
	any_writing_command
	no_plans
}

@test "cln_04_expired_plan_stays: for the command that names it" {
	committed p
	expire
	atoll exec p -- true
	[ "$(plans)" = p ]
	any_writing_command
	[ "$(plans)" = p ] || no_plans
}

@test "cln_04_expired_plan_stays: as long as it cannot be recovered" {
	committed p
	change p
	run env ATOLL_CRASHPOINT=txn.after-decision "$ATOLL" commit p
	status_is 137
	manifest=$(find "$ATOLL_HOME/plans" -type f -name '*manifest*' -newer p/file | sort | tail -n 1)
	cp -p "$manifest" saved
	printf 'X' | dd of="$manifest" bs=1 seek=20 conv=notrunc status=none
	expire
	any_writing_command
	[ "$(plans)" = p ]
	[ -n "$(kept_by p)" ]
	cat saved >"$manifest"
	run atoll recover p
	status_is 0
}

@test "cln_04_expired_plan_killed: its removal goes on with the next command" {
	for point in plan.stop.after-mark plan.stop.after-remove plan.stop.before-delete plan.stop.after-delete; do
		committed p
		expire
		mkdir -p other
		run env ATOLL_CRASHPOINT="$point" "$ATOLL" start other --strategy copy --dir other
		status_is 137
		any_writing_command
		no_plans
		rm -r p
	done
}

@test "cli clean removes settled plans alone and says what that freed" {
	committed undoable final back
	plan fresh
	plan worked
	change worked
	plan nothing
	atoll rollback nothing # it begins again
	mkdir dropped
	(cd dropped && echo one >file && "$ATOLL" run --here --keep -- sh -c 'echo two >file')
	dropped=$("$ATOLL" list --json | jq -r '.plans[-1].name')
	atoll rollback "$dropped"
	atoll rollback back
	change final
	"$ATOLL" commit final --no-undo
	expire_final() {
		python3 -c 'import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("UPDATE batch SET released = 1 WHERE plan = (SELECT id FROM plan WHERE name = ?)", ("final",))
db.commit()' "$ATOLL_HOME/atoll.db"
	}
	expire_final
	before=$(untouched undoable final back fresh worked nothing)
	ids=$("$ATOLL" list --json | jq -c --arg n "$dropped" '[.plans[] | select(.name == "final" or .name == "back" or .name == $n).id] | sort')
	run atoll clean --dry-run --json
	status_is 0
	[ "$(jq -c '[.paths[].plan] | sort | unique' <<<"$output")" = "$ids" ]
	dry=$(jq '[.paths[].bytes] | add' <<<"$output")
	[ "$dry" -gt 0 ]
	[ "$(plans | wc -w)" -eq 7 ]
	run atoll clean --json
	status_is 0
	[ "$(jq -c --arg n "$dropped" '[.plans[].name] - [$n] | sort' <<<"$output")" = '["back","final"]' ]
	[ "$(jq .plans_removed <<<"$output")" -eq 3 ]
	[ "$(jq .bytes_freed <<<"$output")" -eq "$dry" ]
	[ "$(jq '[.plans[].bytes] | add' <<<"$output")" -eq "$dry" ]
	[ "$(plans)" = 'fresh nothing undoable worked' ]
	[ "$(untouched undoable final back fresh worked nothing)" = "$before" ]
	run atoll clean
	status_is 0
	says 'removed 0 plans'
	# What was left can be undone still.
	run atoll rollback undoable
	status_is 0
	[ "$(cat undoable/file)" = one ]
	run atoll clean
	status_is 0
	says 'removed 1 plan, freed'
}

@test "cln_04_private_files_stay: neither clean nor the end of the retention takes them" {
	outside_tmp
	export HOME=$elsewhere/person
	mkdir -p "$HOME/work/p"
	cd "$HOME/work"
	echo one >p/file
	atoll start p --dir p
	run atoll exec p -- sh -c 'echo two >p/file; mkdir -p ~/.config/tool && echo key >~/.config/tool/settings'
	status_is 0
	[[ $output == *'private to the plan'* ]] || skip 'no private home here'
	atoll commit p
	expire
	mkdir ../other
	atoll start other --dir ../other
	atoll stop other
	atoll clean
	[ "$(plans)" = p ]
	[[ "$("$ATOLL" diff --home p)" == *.config/tool/settings* ]]
	atoll stop p
}

@test "rm_several: each goes as a whole or stays, those that stay are named, the worst status counts" {
	committed a b
	plan changed
	change changed
	before=$(untouched a b changed)
	run atoll rm a nowhere changed b
	status_is 1
	says 'removed a'
	says 'removed b'
	says "there is no plan 'nowhere'"
	says "plan 'changed': 1 uncommitted change; nothing of it was removed"
	says 'hint: atoll rm --force changed drops the changes'
	says 'not removed: nowhere, changed'
	[ "$(plans)" = changed ]
	[ "$("$ATOLL" diff changed | wc -l)" -eq 1 ]
	[ "$(untouched a b changed)" = "$before" ]
	committed c
	run "$ATOLL" rm changed c nowhere --json
	status_is 1
	[ "$(jq -c '[.format, (.plans[] | [.name, .removed])]' <<<"$output")" = \
		'["atoll.stop/1",["changed",false],["c",true],["nowhere",false]]' ] || { echo "$output"; false; }
	jq -e '.plans[0].code == "state" and .plans[1].bytes > 0 and .plans[2].code == "not-found"' <<<"$output"
	# One alone, by either name, answers as ever.
	run atoll rm changed --json
	status_is 1
	[ "$(jq -r '[.format, .code] | join(" ")' <<<"$output")" = 'atoll.error/1 state' ]
	run atoll stop changed --force --json
	status_is 0
	[ "$(jq -r '[.format, .participants[0].outcome] | join(" ")' <<<"$output")" = 'atoll.stop/1 removed' ]
	no_plans
	[ "$(cat changed/file)" = one ]
}

@test "rm_whole_names: no beginning of a name, no --yes in place of --force" {
	committed fix-42
	run atoll rm fix
	status_is 1
	says "'fix' is not the whole name of a plan"
	says 'atoll rm fix-42'
	[ "$(plans)" = fix-42 ]
	change fix-42
	run atoll rm --yes fix-42
	status_is 1
	says 'atoll rm --force fix-42'
	[ "$(plans)" = fix-42 ]
	run atoll rm
	status_is 2
	run atoll rm --all fix-42
	status_is 2
	run atoll rm --force "$("$ATOLL" list --json | jq -r '.plans[0].id')"
	status_is 0
	no_plans
}

@test "rm_commits_stay: and cannot be undone any more" {
	committed p
	now=$(untouched p)
	run atoll rm p
	status_is 0
	[ "$(untouched p)" = "$now" ]
	[ "$(cat p/file)" != one ]
	run atoll rollback p
	status_is 1
	[ "$(untouched p)" = "$now" ]
	no_plans
}

@test "rm_running: a command is ended by --force only" {
	committed p
	atoll exec p --background web -- sleep 1000 3>&- 4>&- 5>&- 6>&-
	run atoll rm p
	status_is 1
	says "'sleep 1000' is running"
	says 'atoll rm --force p ends the command'
	[ "$("$ATOLL" job list --json | jq -r '.jobs[0].state')" = running ]
	run atoll rm --committed --yes
	status_is 0
	[ "$(plans)" = p ]
	run atoll rm --force p
	status_is 0
	no_plans
	none_run
}

@test "rm_chosen: --all, --committed and --here choose, list, and want --yes in a script" {
	committed a b
	plan fresh
	plan changed
	change changed
	run atoll rm --all
	status_is 1
	says 'changed                   1 uncommitted change'
	says 'without a question it needs --yes'
	[ "$(plans)" = 'a b changed fresh' ]
	cd b
	run atoll rm --here --committed --yes
	status_is 0
	says 'removed b'
	cd ..
	[ "$(plans)" = 'a changed fresh' ]
	run atoll rm --here --yes
	status_is 0
	says 'no such plans'
	run atoll rm --committed --yes
	status_is 0
	[ "$(plans)" = 'changed fresh' ]
	run "$ATOLL" rm --all --yes --json
	status_is 1
	[ "$(jq -c '[.plans[] | [.name, .removed]] | sort' <<<"$output")" = '[["changed",false],["fresh",true]]' ]
	[ "$(plans)" = changed ]
	run atoll rm --all --force
	status_is 0
	no_plans
	[ "$(cat changed/file)" = one ]
}

@test "commit_says_until_when: in local time, and when there is no undo" {
	plan p
	# It is about noon here.
	export TZ=XXX$((10#$(date -u +%H) - 12))
	while read -r retain form; do
		change p
		run atoll commit p --retain "$retain"
		status_is 0
		until=$("$ATOLL" list --json | jq -r '.plans[0].undo_until')
		says "; undo until $(date -d "$until" "+$form"): atoll undo p"
	done <<-'ROWS'
		1h %H:%M
		24h tomorrow %H:%M
		7d %Y-%m-%d %H:%M
	ROWS
	change p
	run "$ATOLL" commit p --json
	[ "$(jq -r .undo_until <<<"$output")" = "$("$ATOLL" list --json | jq -r '.plans[0].undo_until')" ]
	jq -e .can_undo <<<"$output"
	change p
	run "$ATOLL" commit p --dry-run --json
	[ "$(jq 'has("undo_until")' <<<"$output")" = false ]
	run atoll commit p --retain never
	says '; undo: atoll undo p'
	change p
	run "$ATOLL" commit p --no-undo --json
	jq -e '.undo_until == null and .can_undo == false' <<<"$output"
	run atoll status p
	says 'commits  cannot be undone any more'
	change p
	run atoll commit p
	says '; it cannot be undone, since an earlier commit of the plan cannot'
	mkdir project
	cd project
	run atoll run --here --commit -- sh -c 'echo new >file'
	says ': 1 change; undo until tomorrow '
}
