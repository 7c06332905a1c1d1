#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# undo, redo; and rollback beside them.

load cli

# commits NAME FILE TEXT: a plan over p, begun now, that commits TEXT to FILE.
commits() {
	[ -d p ] || { mkdir p && echo first >p/f; }
	atoll start "$1" --dir p >/dev/null 2>&1
	atoll exec "$1" -- sh -c "cd '$work/p' && echo $3 >$2"
	atoll commit "$1" >/dev/null 2>&1
}

@test "cli undo goes back commit by commit, over plans, and redo forward again" {
	commits one f 1
	commits two f 2
	commits three g 3
	[ "$(ls p; cat p/f)" = $'f\ng\n2' ]
	cd p
	for name in three two one; do
		run atoll undo
		status_is 0
		says "undone: the last commit of $name, 1 change in 1 directory"
	done
	[ "$(ls; cat f)" = $'f\nfirst' ]
	run atoll undo
	status_is 1
	says "nothing to undo in '$work/p'"
	says 'hint: atoll discard drops uncommitted changes'

	for name in one two three; do
		run atoll redo
		status_is 0
		says "redone: the last undone commit of $name, 1 change in 1 directory"
	done
	[ "$(ls; cat f)" = $'f\ng\n2' ]
	run atoll redo
	status_is 1
	says "nothing to redo in '$work/p'"
}

@test "cli undo takes one commit of a plan with several, and keeps what is uncommitted" {
	mkdir p
	atoll start many --dir p >/dev/null 2>&1
	for n in 1 2 3; do
		atoll exec many -- sh -c "echo $n >'$work/p/f$n'"
		atoll commit many >/dev/null 2>&1
	done
	atoll exec many -- sh -c "echo work >'$work/p/uncommitted'"
	run atoll undo many
	status_is 0
	[ "$(ls p)" = $'f1\nf2' ]
	run atoll diff many --name-status
	[ "${lines[0]}" = "A  $work/p/uncommitted" ]
	atoll undo many
	[ "$(ls p)" = f1 ]
	atoll redo many
	[ "$(ls p)" = $'f1\nf2' ]
	atoll commit many
	[ "$(ls p)" = $'f1\nf2\nuncommitted' ]
	atoll undo many
	[ "$(ls p)" = $'f1\nf2' ]
}

@test "cli undo of a commit under another plan's names that plan" {
	commits one f 1
	commits two f 2
	commits apart g 3
	run atoll undo one
	status_is 3
	says "plan 'two' committed later on the same entries; nothing was undone"
	says 'atoll undo two first'
	[ "$(cat p/f)" = 2 ]
	run atoll undo one --json
	status_is 3
	[ "$(jq -r .code <<<"$output")" = conflict ]
	atoll undo two
	atoll undo one
	[ "$(cat p/f p/g)" = $'first\n3' ]
}

@test "cli what another process changed is not undone, and not done again" {
	commits one f 1
	echo theirs >p/f
	run atoll undo one
	status_is 3
	says "$work/p/f: was changed since"
	says 'atoll undo one --keep-theirs leaves them and undoes the rest'
	[ "$(cat p/f)" = theirs ]
	commits two g 2
	atoll undo two
	run at_terminal status two
	status_is 0
	says 'redo     the commit of '
	says 'next: atoll redo two brings it back'
	echo theirs >p/g
	run atoll redo two
	status_is 3
	says "$work/p/g: was created since"
	[ "$(cat p/g)" = theirs ]
	rm p/g
	atoll redo two
	[ "$(cat p/g)" = 2 ]
}

@test "cli a plan's uncommitted change survives the undo and redo of what it was based on" {
	commits one f 1
	atoll start mine --dir p >/dev/null 2>&1
	atoll exec mine -- sh -c "echo mine >'$work/p/f'"
	atoll undo one
	run atoll commit mine
	status_is 3
	says "$work/p/f"
	[ "$(cat p/f)" = first ]
	atoll redo one
	run atoll commit mine
	status_is 0
	[ "$(cat p/f)" = mine ]
}

@test "cli undo says which other resources it was about" {
	mkdir p q
	atoll start both --dir p --dir q >/dev/null 2>&1
	atoll exec both -- sh -c "echo 1 >'$work/p/f'; echo 1 >'$work/q/f'"
	atoll commit both
	cd p
	run atoll undo
	status_is 0
	says "2 changes in 2 directories; also in $(from_home "$work/q")"
	[ "$(ls . ../q)" = $'.:\n\n../q:' ]
	run atoll redo
	says "also in $(from_home "$work/q")"
	run atoll undo --json
	status_is 0
	[ "$(jq -r '[.format, .plan.name, (.participants | length)] | join(" ")' <<<"$output")" = 'atoll.undo/1 both 2' ]
	run atoll redo --json
	[ "$(jq -r .format <<<"$output")" = atoll.redo/1 ]
}

@test "cli the log calls an undo, a redo and a dry run by their names" {
	commits one f 1
	atoll undo one
	atoll redo one
	atoll exec one -- sh -c "echo more >'$work/p/f'"
	atoll commit one --dry-run
	run atoll log one --json
	[ "$(jq -rs 'map(.what) | join(" ")' <<<"$output")" = 'dry-run exec redo undo commit exec start' ]
}

@test "cli what was committed without undo data, or rolled back, is not undone or redone" {
	commits one f 1
	atoll exec one -- sh -c "echo more >'$work/p/f'"
	atoll commit one --no-undo
	cd p
	run atoll undo
	status_is 1
	says "what is needed to undo the last commit of 'one' was released"
	cd ..
	commits two g 2
	atoll rollback two
	cd p
	run atoll redo
	status_is 1
	says 'nothing to redo'
	[ "$(ls; cat f)" = $'f\nmore' ]
}
