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

# interfere: another process writes to each kind of thing that p's commit by `touches` changed.
interfere() {
	echo edited >>p/f
	echo mine >p/gone
	echo foreign >p/new/foreign
	rm p/made
	chmod 711 p/dir
}

# touches NAME: a plan over p that commits one change of each kind.
touches() {
	mkdir -p p/dir
	echo old >p/f
	echo old >p/gone
	atoll start "$1" --dir p >/dev/null 2>&1
	atoll exec "$1" -- sh -c "cd '$work/p' && echo new >f && rm gone && mkdir new && echo n >new/n && echo m >made && chmod 700 dir"
	atoll commit "$1"
}

# refutes TEXT: the last command did not say it.
refutes() {
	[[ $output != *"$1"* ]]
}

# kept PATH: where the version of p/PATH was kept that the last command moved away.
kept() {
	sed -n "s|^  kept: $work/p/$1: the version that was there is kept at \(.*\); atoll .* brings it back\$|\1|p" <<<"$output"
}

@test "der_04 cli undo --ours keeps what is there, says where, and redo brings it back" {
	touches one
	interfere
	cd p
	run atoll undo
	status_is 3
	says '--ours PATH puts back what was there before, and keeps the version that is there now'
	# One that is not named still is a conflict, and nothing is changed.
	run atoll undo --ours f --ours gone --ours dir
	status_is 3
	says "$work/p/new: holds 'new/foreign', which is not ours"
	refutes "$work/p/f"
	[ "$(cat f gone new/foreign; stat -c %a dir)" = $'new\nedited\nmine\nforeign\n711' ]
	# What was given up binds no other undo.
	run atoll undo
	status_is 3
	says "$work/p/f: was changed since"
	run atoll undo --ours f gone new/foreign dir made
	status_is 0
	[ "$(cat "$(kept f)")" = $'new\nedited' ]
	[ "$(cat "$(kept gone)" "$(kept new/foreign)")" = $'mine\nforeign' ]
	says "$work/p/dir: it had mode 0711, owner $(id -u), group $(id -g); atoll redo one brings them back"
	[ "$(cat f gone; ls; stat -c %a dir)" = $'old\nold\ndir\nf\ngone\n755' ]
	for _ in 1 2; do
		atoll redo
		[ "$(cat f gone new/foreign new/n; ls; stat -c %a dir)" = $'new\nedited\nmine\nforeign\nn\ndir\nf\ngone\nnew\n711' ]
		atoll undo
		[ "$(cat f gone; ls; stat -c %a dir)" = $'old\nold\ndir\nf\ngone\n755' ]
	done
}

@test "der_04 cli redo --ours keeps what is there, says where, and undo brings it back" {
	touches one
	atoll undo one
	echo edited >>p/f
	rm p/gone
	echo mine >p/new
	chmod 711 p/dir
	cd p
	run atoll redo
	status_is 3
	says 'atoll redo one --ours PATH'
	run atoll redo --ours f gone new dir
	status_is 0
	[ "$(cat "$(kept f)" "$(kept new)")" = $'old\nedited\nmine' ]
	[ "$(cat f new/n made; ls; stat -c %a dir)" = $'new\nn\nm\ndir\nf\nmade\nnew\n700' ]
	for _ in 1 2; do
		atoll undo
		[ "$(cat f new; ls; stat -c %a dir)" = $'old\nedited\nmine\ndir\nf\nnew\n711' ]
		atoll redo
		[ "$(cat f new/n made; ls; stat -c %a dir)" = $'new\nn\nm\ndir\nf\nmade\nnew\n700' ]
	done
	atoll undo
	touch f
	atoll redo
	[ "$(cat f)" = new ]
}

@test "der_04 cli undo --keep-theirs PATH leaves that path, and its attributes, and undoes the rest" {
	touches one
	interfere
	cd p
	run atoll undo --keep-theirs f dir
	status_is 3
	says "$work/p/f: was changed since; left as it is"
	says "$work/p/gone: was created since"
	refutes "$work/p/gone: was created since;"
	says '2 entries were changed'
	run atoll undo one --ours f --keep-theirs f
	status_is 2
	says 'cannot be settled for both sides'
	run atoll undo one --ours gone --keep-theirs f dir new
	status_is 0
	says '3 entries were left as they are'
	[ "$(cat f gone new/foreign; ls; stat -c %a dir)" = $'new\nedited\nold\nforeign\ndir\nf\ngone\nnew\n711' ]
	[ "$(cat "$(kept gone)")" = mine ]
}

@test "der_04 cli what --ours moved away is not dropped unasked" {
	commits one f 1
	echo edited >>p/f
	(cd p && atoll undo --ours f)
	run atoll rm one
	status_is 1
	says "versions of '$work/p' that are nowhere else are kept in"
	area=$(sed -n "s/.* are kept in '\(.*\)'\$/\1/p" <<<"$output" | head -1)
	[ "$(cat "$area"/*)" = $'1\nedited' ]
	atoll rm --force one
	rm -r p
	commits two f 2
	atoll undo two
	echo edited >>p/f
	(cd p && atoll redo --ours f)
	run atoll rm two
	status_is 1
	area=$(sed -n "s/.* are kept in '\(.*\)'\$/\1/p" <<<"$output" | head -1)
	[ "$(cat "$area"/*)" = $'first\nedited' ]
	atoll rm --force two
}

@test "der_04 cli undo --ours of two plans: the later commit goes first, and a name that is both is asked for" {
	commits one f 1
	commits two f 2
	(cd p && run atoll undo one --ours f && status_is 3 && says "plan 'two' committed later")
	cd p
	echo x >two
	run atoll undo two --ours f
	status_is 1
	says "'two' is a plan and a path"
	rm two
	run atoll undo one f
	status_is 2
	says "undo: unexpected argument 'f'"
	run atoll redo one --ours nowhere/at/all
	status_is 1
	says "plan 'one' has no undone commit to redo"
}

@test "cli nothing of what an undo or redo set aside on the disk is left behind" {
	commits one f 1
	no_ballast() { [ -z "$(find "$ATOLL_HOME" p -name ballast)" ]; }
	no_ballast
	atoll undo one
	no_ballast
	atoll redo one
	no_ballast
	atoll start both --dir p --dir q >/dev/null 2>&1 || { mkdir q && atoll start both --dir p --dir q; }
	atoll exec both -- sh -c "echo 1 >'$work/p/g'; echo 1 >'$work/q/g'"
	atoll commit both
	echo theirs >p/g
	run atoll undo both
	status_is 3
	no_ballast
	rm p/g
	echo 1 >p/g
	atoll undo both
	echo theirs >p/g
	run atoll redo both
	status_is 3
	no_ballast
}
