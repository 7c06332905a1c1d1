#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# diff, commit, rollback, reset.

load cli

# plan_with_work: p over a and b; three files differ.
plan_with_work() {
	two_dirs
	atoll start p --dir a --dir b >/dev/null 2>&1
	atoll exec p -- sh -c '
		cd "$ATOLL_RESOURCE_1" && echo changed >one && rm two &&
		cd "$ATOLL_RESOURCE_2" && echo four >four'
}

committed() {
	[ "$(cat a/one)" = changed ]
	[ ! -e a/two ]
	[ "$(cat b/four)" = four ]
}

@test "cli diff in its forms" {
	plan_with_work
	run atoll diff p
	status_is 0
	[ "${lines[0]}" = "M  $work/a/one" ]
	[ "${lines[1]}" = "D  $work/a/two" ]
	[ "${lines[2]}" = "A  $work/b/four" ]
	run atoll diff p --name-status
	[ "${lines[2]}" = "A  $work/b/four" ]
	run atoll diff p --stat
	says '3 files changed, 2 insertions(+), 2 deletions(-)'
	run atoll diff p --exit-code
	status_is 1
	run atoll diff p --json
	status_is 0
	[ "$(jq -r '[.format, .added, .changed, .deleted, .conflicts] | join(" ")' <<<"$output")" = 'atoll.diff/1 1 1 1 0' ]
	[ "$(jq -r '.changes[0] | [.root, .path, .kind, .new_size] | join(" ")' <<<"$output")" = "$work/a one changed 8" ]
	atoll reset p
	run atoll diff p --exit-code
	status_is 0
	says 'p: no changes'
}

@test "cli diff of some paths" {
	plan_with_work
	only() {
		run atoll diff p "$@"
		status_is 0
		[ "$(grep -c '^[AMD]  ' <<<"$output")" -eq 1 ]
	}
	only "$work/a/one"
	only a/one
	only "$work/b"
	only b
	(cd a && only one)
	(cd a/sub && only ../two)
	only four
	only ./four
	only sub/../two
	(cd a/sub && only ../../b/./four)
	run atoll diff p "$work/a/nothing"
	status_is 1
	says "'$work/a/nothing' names nothing in the plan"
	run atoll diff p ../../../../../../../etc/passwd
	status_is 1
	run atoll diff p a b
	[ "$(grep -c '^[AMD]  ' <<<"$output")" -eq 3 ]
	run atoll diff p nothing
	status_is 1
	run atoll diff p /etc
	status_is 1
	atoll exec p -- sh -c 'echo x >"$ATOLL_RESOURCE_1/both"; echo x >"$ATOLL_RESOURCE_2/both"'
	run atoll diff p both
	status_is 1
	says "$work/a/both"
	says "$work/b/both"
}

@test "cli commit says what it did and how to undo it" {
	plan_with_work
	run at_terminal commit p
	status_is 0
	says 'committed p: 3 changes in 2 directories; undo until '
	says ': atoll undo p'
	says 'next: atoll rm p'
	committed
	run atoll commit p
	status_is 0
	says 'p: no changes'
	[ "$(atoll show p --json | jq -r .state)" = COMMITTED ]
}

@test "cli commit of one file is not one files" {
	two_dirs
	atoll start p --dir a
	cd a
	atoll exec p -- sh -c 'echo x >one'
	run atoll commit p
	says 'committed p: 1 change in 1 directory;'
}

@test "cli rollback brings back the very files" {
	two_dirs
	before=$(tree a b)
	cd a
	atoll start p --dir "$work/a" --dir "$work/b"
	atoll exec p -- sh -c 'echo changed >one; rm -r sub; echo new >new; echo >>"$ATOLL_RESOURCE_2/three"'
	atoll commit p
	[ ! -e sub ]
	run atoll rollback p
	status_is 0
	says 'rolled back p: 2 directories are as before'
	cd "$work"
	[ "$(tree a b)" = "$before" ]
	run atoll diff p
	says 'p: no changes'
	run atoll rollback p
	status_is 0
}

@test "cli rollback before a commit drops the work" {
	plan_with_work
	before=$(untouched a b)
	run atoll rollback p
	status_is 0
	says 'work is dropped'
	[ "$(untouched a b)" = "$before" ]
	run atoll diff p
	says 'p: no changes'
	atoll exec p -- sh -c 'echo again >"$ATOLL_RESOURCE_1/one"'
	atoll commit p
	[ "$(cat a/one)" = again ]
}

@test "cli reset drops the work and goes on from what is there now" {
	plan_with_work
	echo theirs >a/two
	run atoll reset p
	status_is 0
	says 'discarded 3 uncommitted changes of plan p; it goes on from what is there now'
	[ "$(cat "$(atoll path p a 2>/dev/null)/two")" = theirs ]
	atoll exec p -- sh -c 'echo mine >"$ATOLL_RESOURCE_1/one"'
	run atoll commit p
	status_is 0
	[ "$(cat a/one a/two)" = "$(printf 'mine\ntheirs')" ]
}

@test "cli after a reset nothing counts as undoable whose undo data is lost" {
	plan_with_work
	atoll commit p
	before=$(untouched a b)
	[ "$(atoll show p --json | jq .undoable_commits)" -eq 1 ]
	rm -r "$(atoll show p --json | jq -r '.sandboxes[0].area')"/b1
	run atoll rollback p
	status_is 1
	says 'nothing was undone'
	says 'what is left lies in'
	[ "$(atoll show p --json | jq .undoable_commits)" -eq 0 ]
	atoll reset p
	[ "$(atoll show p --json | jq .undoable_commits)" -eq 0 ]
	run atoll show p
	[[ $output != *$'\n'undo\ * ]]
	run atoll rollback p
	status_is 1
	says 'nothing was changed'
	[ "$(untouched a b)" = "$before" ]
	atoll exec p -- sh -c 'echo again >"$ATOLL_RESOURCE_1/one"'
	atoll commit p
	[ "$(cat a/one)" = again ]
}

@test "cli commit --dry-run changes nothing" {
	plan_with_work
	before=$(untouched a b)
	run atoll commit p --dry-run
	status_is 0
	says 'p can be committed: 3 changes in 2 directories'
	[ "$(untouched a b)" = "$before" ]
	run atoll commit p --dry-run --json
	jq -e .dry_run <<<"$output"
	[ "$(atoll show p --json | jq -r .state)" = OPEN ]
	atoll commit p
	committed
}

@test "cli commit --no-undo cannot be undone" {
	plan_with_work
	run atoll commit p --no-undo
	status_is 0
	says 'it cannot be undone (--no-undo)'
	committed
	run atoll rollback p
	status_is 1
	committed
}

@test "cln_04 cli commit --retain says how long it can be undone" {
	plan_with_work
	atoll commit p a/one --retain never
	ends() {
		python3 -c 'import sqlite3, sys
print(*sqlite3.connect(sys.argv[1]).execute(
    "SELECT (retain_until_ms - created_ms + 500) / 60000 FROM batch ORDER BY number DESC LIMIT 1").fetchone())' \
			"$ATOLL_HOME/atoll.db"
	}
	[ "$(ends)" -lt 0 ]
	run atoll commit p a --retain 2h --json
	status_is 0
	[ "$(jq -r '[.format, .participants[0].outcome] | join(" ")' <<<"$output")" = 'atoll.commit/1 committed' ]
	[ "$(ends)" -eq 120 ]
	atoll rollback p
	atoll exec p -- sh -c 'echo again >"$ATOLL_RESOURCE_1/one"'
	run atoll commit p --retain 0
	status_is 0
	# Work that is not committed keeps the plan when the undo data goes.
	atoll exec p -- sh -c 'echo more >"$ATOLL_RESOURCE_1/two"'
	atoll recover
	run atoll rollback p
	status_is 1
	says 'was released'
	[ "$(cat a/one)" = again ]
}

@test "cli commit --retain takes a time, and not with --no-undo" {
	plan_with_work
	for bad in soon -1 1.5h ''; do
		run atoll commit p --retain="$bad"
		status_is 2
		says "option '--retain': '$bad' is not a time"
	done
	run atoll commit p --retain 1h --no-undo --json
	status_is 2
	[ "$(jq -r .message <<<"$output")" = 'commit: --retain and --no-undo exclude each other' ]
	run atoll commit p --retain
	status_is 2
	[ "$(cat a/one)" = one ]
}

@test "der_03 cli a conflict is named path by path and changes nothing" {
	plan_with_work
	echo theirs >a/one
	echo theirs >b/four
	before=$(untouched a b)
	run atoll commit p
	status_is 3
	says "conflict: $work/a/one"
	says "conflict: $work/b/four"
	says 'hint: '
	[ "$(untouched a b)" = "$before" ]
	run atoll commit p --json
	status_is 3
	[ "$(jq -r '[.format, .code, .exit] | join(" ")' <<<"$output")" = 'atoll.error/1 conflict 3' ]
	[ "$(jq -r '[.notes[] | select(.kind == "conflict").path] | sort | join(" ")' <<<"$output")" = 'four one' ]
	run atoll diff p
	says 'conflict'
	# The work is still there; made equal on both sides it is no conflict.
	[ "$(cat "$(atoll path p a 2>/dev/null)/one")" = changed ]
	echo changed >a/one
	echo four >b/four
	run atoll commit p
	status_is 0
	committed
}

@test "der_04 cli rollback does not destroy what came later" {
	plan_with_work
	atoll commit p
	echo later >a/one
	before=$(untouched a b)
	run atoll rollback p
	status_is 3
	says 'atoll: nothing was undone: '
	says "$work/a/one"
	says 'atoll rollback p --keep-theirs'
	[ "$(untouched a b)" = "$before" ]
	run atoll rollback p --keep-theirs
	status_is 0
	[ "$(cat a/one a/two)" = "$(printf 'later\ntwo')" ]
	[ ! -e b/four ]
}

@test "bkp_06 cli a new FIFO is refused by policy" {
	two_dirs
	atoll start p --dir a --dir b
	atoll exec p -- sh -c 'mkfifo "$ATOLL_RESOURCE_1/pipe"; echo x >"$ATOLL_RESOURCE_2/three"'
	before=$(untouched a b)
	run atoll commit p
	status_is 4
	says "$work/a/pipe"
	says '--allow special'
	[ "$(untouched a b)" = "$before" ]
	run atoll commit p --allow special
	status_is 0
	[ -p a/pipe ]
	[ "$(cat b/three)" = x ]
}

@test "sec_05 cli new set-id bits are stripped and named" {
	two_dirs
	atoll start p --dir a
	atoll exec p -- sh -c 'echo x >"$ATOLL_RESOURCE_1/tool"; chmod 4755 "$ATOLL_RESOURCE_1/tool"'
	run atoll commit p
	status_is 0
	says "$work/a/tool"
	[ "$(stat -c %a a/tool)" = 755 ]
	atoll start q --dir b
	atoll exec q -- sh -c 'echo x >"$ATOLL_RESOURCE_1/tool"; chmod 4755 "$ATOLL_RESOURCE_1/tool"'
	atoll commit q --allow setuid
	[ "$(stat -c %a b/tool)" = 4755 ]
}

@test "sec_04 cli links that leave the tree are named, and refused when asked" {
	two_dirs
	atoll start p --dir a
	atoll exec p -- sh -c 'ln -s /etc/passwd "$ATOLL_RESOURCE_1/link"'
	run atoll diff p
	says 'escaping-link'
	before=$(untouched a)
	run atoll commit p --deny escaping-links
	status_is 4
	says "$work/a/link"
	[ "$(untouched a)" = "$before" ]
	run atoll commit p
	status_is 0
	says "$work/a/link"
	[ "$(readlink a/link)" = /etc/passwd ]
}

@test "atm_09 cli what cannot be undone commits beside others only when allowed" {
	two_dirs
	atoll start p --dir a --none b
	atoll exec p -- sh -c 'echo x >"$ATOLL_RESOURCE_1/one"'
	before=$(untouched a)
	run atoll commit p
	status_is 4
	says '--allow partial'
	[ "$(untouched a)" = "$before" ]
	run atoll commit p --allow partial --json
	status_is 0
	[ "$(jq -r .atomicity <<<"$output")" = none ]
	[ "$(cat a/one)" = x ]
}

@test "atm_01 cli one that fails leaves all as they were" {
	is_root || skip 'needs root for chattr'
	plan_with_work
	before=$(tree a b)
	chattr +i b || skip 'no immutable flag here'
	run atoll commit p
	chattr -i b
	[ "$status" -ne 0 ]
	[ "$(tree a b)" = "$before" ]
	run atoll commit p
	status_is 0
	committed
}

@test "cli commit of some paths" {
	plan_with_work
	run at_terminal commit p a/one
	status_is 0
	says 'committed p: 1 change in 1 directory; undo until '
	says 'the other changes stay in the plan'
	says 'next: atoll diff p shows what is left'
	[ "$(cat a/one)" = changed ]
	[ -e a/two ]
	[ ! -e b/four ]
	run atoll diff p
	[ "$(grep -c '^[AMD]  ' <<<"$output")" -eq 2 ]
	run atoll commit p a/one
	status_is 0
	says 'p: nothing changed there'
	run atoll commit p four --json
	status_is 0
	[ "$(jq -r '[.participants[] | .outcome, .state, .changes] | join(" ")' <<<"$output")" = \
		'not attempted ACTIVE 0 committed COMMITTED 1' ] || { echo "$output"; false; }
	atoll commit p a
	committed
	run atoll show p
	says 'state    COMMITTED'
	[ "$(grep -c '^undo     the commit of ' <<<"$output")" -eq 3 ]
	atoll rollback p
	[ "$(cat a/one)" != changed ]
	[ ! -e b/four ]
}

@test "cli commit without what is excluded" {
	plan_with_work
	run atoll commit p --exclude four --exclude '/sub/**' --dry-run
	status_is 0
	says 'p can be committed: 2 changes in 1 directory'
	says "  $work/a (copy): 2 changes"
	atoll commit p --exclude four
	[ ! -e b/four ]
	[ "$(cat a/one)" = changed ]
	run atoll commit p --exclude /
	status_is 2
	run atoll commit p
	says 'committed p: 1 change in 1 directory;'
	committed
}

@test "cli commit of paths that name nothing" {
	plan_with_work
	run atoll commit p nothing
	status_is 1
	says "'nothing' names nothing in the plan"
	run atoll commit p "$work/a/nothing"
	status_is 1
	run atoll commit p /etc --json
	status_is 1
	[ "$(jq -r '[.format, .code] | join(" ")' <<<"$output")" = 'atoll.error/1 not-found' ]
	run atoll diff p
	[ "$(grep -c '^[AMD]  ' <<<"$output")" -eq 3 ]
}

@test "cli conflicts are settled by path" {
	plan_with_work
	echo theirs >a/one
	echo theirs >b/four
	run atoll commit p
	status_is 3
	says "conflict: $work/a/one: changed by somebody else, changed in the plan"
	says "conflict: $work/b/four: created by somebody else, created in the plan"
	says 'atoll commit p --ours PATH'
	says '--theirs PATH'
	says 'atoll refresh p'
	run atoll commit p --ours a/one
	status_is 3
	[ "$(cat a/one)" = theirs ]
	run atoll commit p --ours 'a/*'
	status_is 1
	run atoll commit p --ours a/one --theirs b --json
	status_is 0
	[ "$(jq -r '.notes[] | [.kind, .path] | join(" ")' <<<"$output")" = 'kept four' ]
	[ "$(cat a/one)" = changed ]
	[ "$(cat b/four)" = theirs ]
	kept=$(jq -r '.notes[0].text' <<<"$output" | sed 's/.* kept at \(.*\) as long as .*/\1/')
	[ "$(cat "$kept")" = four ]
	atoll rollback p
	[ "$(cat a/one)" = theirs ]
	[ "$(cat b/four)" = theirs ]
}

@test "cli nothing is said to be kept by a commit that did not happen" {
	for strategy in copy overlay; do
		two_dirs
		atoll start p --dir a --dir b --strategy "$strategy"
		atoll exec p -- sh -c 'echo plan | tee "$ATOLL_RESOURCE_1/one" >"$ATOLL_RESOURCE_2/three"'
		echo theirs | tee a/one >b/three
		run atoll commit p --theirs a/one
		status_is 3
		says "conflict: $work/b/three: "
		[[ $output != *kept:* ]]
		[ "$(atoll commit p --theirs a/one --json | jq '[.notes[] | select(.kind == "kept")] | length')" -eq 0 ]
		# Of one that recovery carries out it is said by that.
		ATOLL_CRASHPOINT=dir.apply.op:1 run atoll commit p --theirs a/one --ours b
		status_is 137
		run atoll recover
		status_is 0
		says "$work/a/one: the plan's version is kept at "
		[ "$(cat "$(sed -n 's/.* kept at \(.*\) as long as .*/\1/p' <<<"$output")")" = plan ]
		[ "$(cat a/one b/three)" = $'theirs\nplan' ]
		atoll stop --force p
	done
}

@test "cli the nearest path says for whom a conflict is settled" {
	plan_with_work
	echo theirs >a/one
	echo theirs >b/four
	run atoll commit p --ours a/one --theirs a/one --theirs b
	status_is 2
	says "'$work/a/one' cannot be settled for both sides"
	atoll commit p --theirs . --ours a/one
	[ "$(cat a/one)" = changed ]
	[ "$(cat b/four)" = theirs ]
	atoll rollback p
	[ "$(cat a/one)" = theirs ]
}

@test "cli attributes of the root itself are given up, and the rest can be taken back" {
	for strategy in copy overlay; do
		mkdir -m 0755 a
		atoll start p --dir a --strategy $strategy >/dev/null 2>&1
		atoll exec p -- sh -c 'cd "$ATOLL_RESOURCE_1" && chmod 0750 . && echo new >new'
		chmod 0711 a
		run atoll commit p
		status_is 3
		run atoll commit p --theirs a
		status_is 0
		[ "$(stat -c %a a)" = 711 ]
		[ "$(cat a/new)" = new ]
		run atoll rollback p
		status_is 0
		[ "$(stat -c %a a)" = 711 ]
		[ ! -e a/new ]
		atoll stop --force p
		rm -r a
	done
}

@test "cli attributes that are given up beside a change in the same directory" {
	local way
	for way in copy overlay; do
		mkdir -p "$way/d"
		echo w >"$way/w"
		atoll start "$way" --dir "$way" --strategy "$way" >/dev/null 2>&1
		atoll exec "$way" --cwd "$way" -- sh -c 'chmod 700 d; echo n >d/n; echo W >w'
		chmod 711 "$way/d"
		run -0 atoll commit "$way" "$way/d" --theirs "$way/d" --yes
		[ "$(stat -c %a "$way/d"),$(cat "$way/d/n")" = 711,n ]
		run -0 --separate-stderr atoll diff "$way" --name-status
		echo "$way: $output"
		[ "$(wc -l <<<"$output")" -eq 1 ]
		[[ $output = M*"/$way/w" ]]
		atoll stop "$way" --force --yes >/dev/null 2>&1
	done
}

@test "cli what is given up below a directory that was replaced, and beside it" {
	local way
	for way in copy overlay; do
		mkdir -p "$way/a/sub"
		touch "$way"/{a/sub/f,z,w}
		atoll start "$way" --dir "$way" --strategy "$way" >/dev/null 2>&1
		atoll exec "$way" --cwd "$way" -- sh -c 'rm -r a/sub; echo Z >z; echo W >w'
		(cd "$way" && mv a old && mkdir a && mv old/sub a/sub && rmdir old && echo his >z)
		run -0 atoll commit "$way" "$way/a" "$way/z" --theirs "$way/a" --theirs "$way/z" --yes
		run -0 --separate-stderr atoll diff "$way" --name-status
		echo "$way: $output"
		[ "$(wc -l <<<"$output")" -eq 1 ]
		[[ $output = M*"/$way/w" ]]
		echo more >>"$way/z"
		run -0 atoll commit "$way" --yes
		atoll stop "$way" --yes >/dev/null 2>&1
	done
}

@test "cli attributes of a directory that a part of the plan made are not overwritten" {
	mkdir tree
	echo b >tree/b
	atoll start t --dir tree --strategy overlay >/dev/null 2>&1
	atoll exec t --cwd tree -- sh -c 'mkdir d; echo f >d/f; echo B >b'
	run -0 atoll commit t tree/d --yes
	atoll exec t --cwd tree -- setfattr -n user.mine -v 1 d
	setfattr -n user.his -v 1 tree/d
	run -3 atoll commit t --yes
	says tree/d
	[ "$(getfattr --absolute-names -d tree/d | grep -c user.his)" -eq 1 ]
}

@test "cli conflicts in a directory that somebody deleted or replaced have ways out" {
	for way in deleted replaced; do
		mkdir -p a/dir/sub
		touch a/dir/sub/old
		atoll start p --dir a >/dev/null 2>&1
		atoll exec p -- sh -c 'cd "$ATOLL_RESOURCE_1/dir/sub" && echo 1 >old && echo 2 >new'
		rm -r a/dir
		[ $way = deleted ] || mkdir -p a/dir/sub
		run atoll commit p
		status_is 3
		says "$work/a/dir/sub: $way by somebody else, the plan has changes in it"
		if [ $way = deleted ]; then
			run atoll diff p --conflicts
			says "$work/a/dir/sub/old"
			says "$work/a/dir/sub/new"
			run atoll commit p --ours a/dir
			status_is 3
			says "$work/a/dir/sub/new: there is no place for the plan's version"
		fi
		run atoll commit p --dry-run --theirs a/dir
		status_is 0
		if [ $way = deleted ]; then
			atoll commit p --theirs a/dir
			[ ! -e a/dir ]
			run atoll diff p
			says 'p: no changes'
		else
			atoll commit p --ours a/dir
			[ "$(cat a/dir/sub/old a/dir/sub/new)" = "$(printf '1\n2')" ]
		fi
		atoll rollback p
		[ -z "$(find a -type f)" ]
		atoll stop p
	done
}

@test "cli an empty path or pattern does not mean everything" {
	plan_with_work
	echo theirs >a/one
	for words in commit 'commit --ours' 'commit --theirs' diff; do
		# shellcheck disable=SC2086 # an option is a word of its own
		run atoll ${words%% *} p ${words#"${words%% *}"} ''
		status_is 1
		says "'' names nothing in the plan"
	done
	for pattern in '' / ./one ../a/one . a//one a/..; do
		run atoll commit p --exclude "$pattern"
		status_is 2
		says "the pattern '$pattern' can match nothing; nothing was changed"
		says "hint: a name ('*.log')"
		run atoll diff p --exclude "$pattern"
		status_is 2
		says "the pattern '$pattern' can match nothing"
	done
	[ "$(cat a/one)" = theirs ]
	[ ! -e b/four ]
}

@test "cli a pattern or a path that has nothing to say is not passed over in silence" {
	plan_with_work
	run atoll commit p --dry-run --exclude '*.log' --exclude o* --exclude one
	status_is 0
	says "warning: nothing that changed matches '*.log', so it left nothing out"
	[[ $output != *"matches 'o*'"* ]]
	[[ $output != *"matches 'one'"* ]]
	run atoll commit p b --dry-run --exclude one
	says "warning: nothing that changed matches 'one', so it left nothing out"
	run atoll commit p --dry-run --json --exclude '*.log'
	[ "$(jq -r '.notes[0] | [.kind, .text] | join(" ")' <<<"$output")" = \
		"warning nothing that changed matches '*.log', so it left nothing out" ]
	run atoll diff p --exclude '*.log' --exclude o* --exclude one
	status_is 0
	says "warning: nothing that changed matches '*.log', so it left nothing out"
	[[ $output != *"matches 'o"* ]]
	run atoll diff p b --exclude one
	says "warning: nothing that changed matches 'one'"
	# Nothing to settle there, and not asked for there.
	for side in ours theirs; do
		run atoll commit p --dry-run --$side a/one
		status_is 0
		says "warning: $work/a/one: no conflict there"
		run atoll commit p a --dry-run --$side b/four --$side b/three
		status_is 0
		says "warning: $work/b/four: nothing was settled there: it is not among what is committed"
		says "warning: $work/b/three: nothing was settled there"
	done
}

@test "cli a commit of a part does not propose to commit or to end the rest" {
	plan_with_work
	run at_terminal commit p b --dry-run
	says 'next: the same without --dry-run'
	run at_terminal commit p --exclude one --dry-run
	says 'next: the same without --dry-run'
	run at_terminal commit p --dry-run
	says 'next: atoll commit p'
	run at_terminal commit p b
	says 'next: atoll diff p shows what is left'
}

@test "cli hints about a part name that part, and not the rest" {
	plan_with_work
	run at_terminal diff p a/one
	says 'next: atoll commit p a/one commits these alone'
	[[ $output != *discard* ]]
	run at_terminal diff p --exclude 't*' a
	says "next: atoll commit p a --exclude 't*' commits these alone"
	run at_terminal diff p
	says 'next: atoll commit p, or atoll discard p'
	echo theirs >a/one
	run at_terminal diff p a/one --conflicts
	says 'next: atoll commit p a/one --ours PATH'
	run atoll commit p a/one
	status_is 3
	says 'hint: atoll diff p --conflicts shows them; atoll commit p a/one --ours PATH takes'
	run atoll commit p --exclude 't*' --json
	status_is 3
	[[ $(jq -r .hint <<<"$output") == *"atoll commit p --exclude 't*' --ours PATH takes"* ]]
	run atoll commit p
	status_is 3
	says '; atoll commit p --ours PATH takes'
}

@test "cli diff and commit mean the same by the name of a link" {
	mkdir a
	echo 1 >a/one
	ln -s one a/link
	atoll start p --dir a >/dev/null 2>&1
	atoll exec p -- sh -c 'cd "$ATOLL_RESOURCE_1" && echo 2 >one && ln -sfn two link'
	run atoll diff p a/link
	says "M  $work/a/link"
	[[ $output != *"$work/a/one"* ]]
	atoll commit p a/link
	[ "$(readlink a/link)" = two ]
	[ "$(cat a/one)" = 1 ]
	run atoll diff p a/link
	[ "$(grep -c '^[AMD]  ' <<<"$output")" -eq 0 ]
}

@test "cli rollback that keeps the work" {
	plan_with_work
	run atoll rollback p --keep-work
	status_is 0
	says 'p: nothing was committed, its work is kept'
	atoll commit p a/one
	atoll commit p
	committed
	run atoll rollback p --keep-work
	status_is 0
	says 'rolled back p: 2 directories are as before'
	says 'p: what was committed is work of the plan again'
	[ "$(cat a/one)" = one ]
	[ ! -e b/four ]
	run atoll diff p
	[ "$(grep -c '^[AMD]  ' <<<"$output")" -eq 3 ]
	run atoll rollback p --keep-work --json
	[ "$(jq -r '.participants | length' <<<"$output")" = 0 ]
	atoll commit p
	committed
}

@test "cli rollback that keeps the work keeps a directory's mode, too" {
	local strategy

	for strategy in copy overlay; do
		mkdir -p "$strategy/dir"
		chmod 700 "$strategy/dir"
		atoll start "$strategy" --dir "$strategy" --strategy "$strategy"
		atoll exec "$strategy" -- chmod 755 "$strategy/dir"
		atoll commit "$strategy"
		atoll exec "$strategy" -- touch "$strategy/new"
		atoll rollback "$strategy" --keep-work
		[ "$(stat -c %a "$strategy/dir")" = 700 ]
		run atoll diff "$strategy"
		says '(mode 0700 -> 0755)'
	done
}

@test "cli rollback of two commits leaves what somebody changed between them" {
	local strategy

	for strategy in copy overlay; do
		mkdir "$strategy"
		echo first >"$strategy/file"
		atoll start "$strategy" --dir "$strategy" --strategy "$strategy"
		atoll exec "$strategy" -- sh -c "echo ours >$strategy/file; mkdir $strategy/dir"
		atoll commit "$strategy"
		atoll exec "$strategy" -- true
		echo theirs >"$strategy/file"
		echo theirs >"$strategy/dir/new"
		atoll exec "$strategy" -- sh -c "echo again >$strategy/file; rm -f $strategy/dir/new"
		atoll commit "$strategy" --ours "$strategy"
		run atoll rollback "$strategy"
		status_is 3
		says "conflict: $work/$strategy/file: was changed since"
		[ "$(cat "$strategy/file")" = again ]
		run atoll rollback "$strategy" --keep-theirs
		status_is 0
		[ "$(cat "$strategy/file")" = theirs ]
		[ "$(cat "$strategy/dir/new")" = theirs ]
	done
}

@test "cli refresh takes over what somebody else changed" {
	plan_with_work
	echo theirs >a/one
	echo theirs >b/three
	run at_terminal refresh p
	status_is 0
	says 'refreshed p: 1 change from outside came in'
	says '1 conflict is left'
	says "conflict: $work/a/one"
	says 'next: atoll commit p --ours PATH'
	[ "$(atoll exec p -- sh -c 'cat "$ATOLL_RESOURCE_2/three"')" = theirs ]
	run atoll refresh p --json
	[ "$(jq -r '[.format, .notes[0].kind, .notes[0].path] | join(" ")' <<<"$output")" = 'atoll.refresh/1 conflict one' ]
	run atoll refresh nosuch
	status_is 1
	atoll commit p --ours a
	committed
	[ "$(cat b/three)" = theirs ]
}

# undoable N: show and list both say that N commits can be undone.
undoable() {
	[ "$(atoll show p --json | jq .undoable_commits)" -eq "$1" ]
	[ "$(atoll list --json | jq '.plans[] | select(.name == "p").undoable_commits')" -eq "$1" ]
	run atoll show p
	if [ "$1" -eq 0 ]; then
		[[ $output != *$'\n'undo\ * && $output != *'atoll rollback p undoes it'* ]]
	else
		[ "$(grep -c '^undo     the commit of .*, until tomorrow ' <<<"$output")" -eq "$1" ]
	fi
}

@test "cli show says what can be undone, which is all that was committed or nothing" {
	plan_with_work
	undoable 0
	atoll commit p a/one
	undoable 1
	atoll commit p a
	undoable 2
	# Refused, so nothing is gone.
	run atoll stop p
	status_is 1
	undoable 2
	atoll commit p --no-undo
	undoable 0
	run atoll rollback p
	status_is 1
	says 'was released'
	committed
	[ "$(at_terminal show p | tail -n 1)" = 'next: atoll rm p when it is no longer needed' ]
}

@test "cli show says of a commit whose originals are gone that it cannot be undone" {
	plan_with_work
	atoll commit p
	undoable 1
	area=$(atoll show p --json | jq -r '.sandboxes[0].area')
	find "$area/b1" -type f ! -name manifest ! -name installed ! -name used -delete
	run atoll rollback p
	status_is 1
	says 'is gone'
	[ "$(atoll show p --json | jq -r '.sandboxes[0].state')" = ERRORED ]
	undoable 0
	committed
}

@test "cli show says of a plan that a stop removed half that it cannot be undone" {
	plan_with_work
	atoll commit p
	ATOLL_CRASHPOINT=plan.stop.after-remove run atoll stop p
	status_is 137
	undoable 0
	atoll stop p
	committed
}

# error_is CODE EXIT: the last `run`, with --json, printed an error object.
error_is() {
	status_is "$2"
	[ "$(jq -r '[.format, .code, .exit] | join(" ")' <<<"$output")" = "atoll.error/1 $1 $2" ] || {
		echo "$output"
		return 1
	}
}

@test "cli commit says of every --allow and --deny what it is for, and knows no others" {
	two_dirs
	atoll start p --dir a
	atoll exec p -- sh -c 'cd "$ATOLL_RESOURCE_1" && mkfifo pipe && ln -s /etc/passwd out && cp one tool && chmod 4755 tool'
	for bad in --allow=everything --deny=special --allow; do
		run atoll commit p "$bad"
		status_is 2
		run atoll commit p --json "$bad"
		error_is invalid 2
	done
	run atoll commit p --json
	error_is policy 4
	[ "$(jq -r '[.notes[] | select(.path == "pipe").kind] | join(" ")' <<<"$output")" = 'special file' ]
	run atoll commit p --json --allow special --deny escaping-links
	error_is policy 4
	run atoll commit p --json --allow special --allow setuid
	status_is 0
	[ "$(jq -r '.participants[0] | [.outcome, .changes] | join(" ")' <<<"$output")" = 'committed 3' ]
	[ -p a/pipe ]
	[ "$(stat -c %a a/tool)" = 4755 ]
}

@test "cli commit --exclude and --no-undo in --json" {
	plan_with_work
	run atoll commit p --json --exclude four --no-undo
	status_is 0
	[ "$(jq -r '[.participants[] | .outcome, .changes] | join(" ")' <<<"$output")" = \
		'committed 2 unchanged 0' ] || { echo "$output"; false; }
	[ "$(atoll show p --json | jq -r '[.state, .undoable_commits] | join(" ")')" = 'OPEN 0' ]
	run atoll commit p --json --exclude /
	error_is invalid 2
	run atoll commit p --json --dry-run --exclude '*'
	status_is 0
	[ "$(jq '[.participants[].changes] | add' <<<"$output")" -eq 0 ]
	[ ! -e b/four ]
}

@test "cli commit --ours and --theirs say what they did, and what they cannot" {
	plan_with_work
	echo theirs >a/one
	for side in ours theirs; do
		run atoll commit p "--$side" nothing
		status_is 1
		says "'nothing' names nothing in the plan"
		run atoll commit p --json "--$side" /etc
		error_is not-found 1
		run atoll commit p "--$side"
		status_is 2
	done
	run atoll commit p --ours a/one --theirs a/one --json
	error_is invalid 2
	[ "$(jq -r .message <<<"$output")" = "'$work/a/one' cannot be settled for both sides; nothing was changed" ]
	[ "$(cat a/one)" = theirs ]
	run atoll commit p --dry-run --ours a/one
	status_is 0
	says 'p can be committed: 3 changes in 2 directories'
	[ "$(cat a/one)" = theirs ]
	run atoll commit p --theirs a/one --ours b
	status_is 0
	says 'committed p: 2 changes in 2 directories'
	says "kept: $work/a/one: the plan's version is kept at "
	says "$work/b: no conflict there"
	[ "$(cat a/one)" = theirs ]
	[ ! -e a/two ]
}

@test "cli of --ours and --theirs the one nearer to a path counts" {
	for nearer in ours theirs; do
		rm -rf a b
		plan_with_work
		echo theirs >a/one
		echo theirs >a/two
		if [ "$nearer" = ours ]; then
			atoll commit p --theirs a --ours a/one
			[ "$(cat a/one a/two)" = "$(printf 'changed\ntheirs')" ]
		else
			atoll commit p --ours a --theirs a/one
			[ "$(cat a/one)" = theirs ]
			[ ! -e a/two ]
		fi
		atoll rollback p
		[ "$(cat a/one a/two)" = "$(printf 'theirs\ntheirs')" ]
		atoll stop --force p
	done
}

@test "der_04 cli rollback --keep-theirs names what it left" {
	plan_with_work
	atoll commit p
	echo later >a/one
	run atoll rollback p --json
	error_is conflict 3
	[ "$(jq -r '.notes[0] | [.kind, .path] | join(" ")' <<<"$output")" = 'conflict one' ]
	run atoll rollback p --keep-theirs
	status_is 0
	says 'rolled back p: 2 directories were put back but for 1 entry, left as it is'
	says "conflict: $work/a/one"
	says "kept: $work/a/one: the original"
	[ "$(cat a/one)" = later ]
}

@test "der_04 cli rollback --keep-theirs in --json" {
	plan_with_work
	atoll commit p
	echo later >a/one
	run atoll rollback p --keep-theirs --json
	status_is 0
	[ "$(jq -r '[.format, (.participants[] | .outcome)] | join(" ")' <<<"$output")" = \
		'atoll.rollback/1 rolled back rolled back' ]
	[ "$(jq -r '[.notes[].kind] | sort | join(" ")' <<<"$output")" = 'conflict kept' ]
	kept=$(jq -r '.notes[] | select(.kind == "kept").text' <<<"$output" | sed 's/.* kept at //')
	[ "$(cat "$kept")" = one ]
}

@test "atm_09 cli rollback --allow partial undoes what can be" {
	two_dirs
	atoll start p --dir a --none b
	atoll exec p -- sh -c 'echo x >"$ATOLL_RESOURCE_1/one"; echo y >"$ATOLL_RESOURCE_2/three"'
	atoll commit p --allow partial
	run atoll rollback p
	status_is 4
	says '--allow partial undoes the others'
	[ "$(cat a/one b/three)" = "$(printf 'x\ny')" ]
	run atoll rollback p --json
	error_is not-undoable 4
	run atoll rollback p --allow special
	status_is 2
	run atoll rollback p --allow partial --json
	status_is 0
	[ "$(jq -r '[.participants[] | .outcome] | sort | join(", ")' <<<"$output")" = \
		'not undoable, rolled back' ] || { echo "$output"; false; }
	[ "$(cat a/one b/three)" = "$(printf 'one\ny')" ]
}

@test "cli rollback, reset, refresh and stop of what is not there or used wrongly" {
	two_dirs
	atoll start p --dir a
	for command in rollback reset refresh; do
		run atoll "$command" nobody
		status_is 1
		says 'nobody'
		run atoll "$command" nobody --json
		error_is not-found 1
		run atoll "$command" p more
		status_is 2
		run atoll "$command" p --nonsense --json
		error_is invalid 2
	done
	run atoll stop nobody more
	status_is 1
	says 'not removed: nobody, more'
	for command in reset rollback stop; do
		run atoll "$command" --json
		error_is invalid 2
	done
}

@test "cli reset in --json" {
	plan_with_work
	run atoll reset p --json
	status_is 0
	[ "$(jq -r '[.format, .plan.name, (.participants[] | .workspace_reset)] | join(" ")' <<<"$output")" = \
		'atoll.reset/1 p true true' ] || { echo "$output"; false; }
	[ -z "$(atoll diff p 2>/dev/null)" ]
}

@test "cli refresh where there is nothing to take over" {
	plan_with_work
	run at_terminal refresh p
	status_is 0
	says 'refreshed p'
	[[ $output != *'came in'* && $output != *'conflict'* ]]
	says 'next: atoll diff p'
	run atoll refresh p --json
	status_is 0
	[ "$(jq -c '[.format, .notes, [.participants[].changes]]' <<<"$output")" = '["atoll.refresh/1",[],[0,0]]' ]
	[ "$(atoll diff p 2>/dev/null | wc -l)" -eq 3 ]
}

@test "cli refresh brings in what is in a directory whose mode the plan changed" {
	local strategy

	for strategy in copy overlay; do
		mkdir -p "$strategy/dir"
		chmod 755 "$strategy/dir"
		echo file >"$strategy/dir/file"
		atoll start "$strategy" --dir "$strategy" --strategy "$strategy"
		atoll exec "$strategy" -- chmod 700 "$strategy/dir"
		echo theirs >"$strategy/dir/file"
		echo theirs >"$strategy/dir/made"
		run atoll refresh "$strategy"
		status_is 0
		# Nobody else changed the mode: it is no conflict, and it stays changed.
		[[ $output != *conflict* ]] || { echo "$output"; false; }
		[ "$(atoll diff "$strategy" 2>/dev/null)" = "M  $work/$strategy/dir/  (mode 0755 -> 0700)" ]
		[ "$(atoll exec "$strategy" -- cat "$strategy/dir/file" "$strategy/dir/made")" = $'theirs\ntheirs' ]
		atoll commit "$strategy"
		[ "$(stat -c %a "$strategy/dir") $(cat "$strategy/dir/file")" = '700 theirs' ]
	done
	# Who did change it is in the way.
	atoll exec copy -- chmod 711 copy/dir
	chmod 750 copy/dir
	run atoll refresh copy
	says "conflict: $work/copy/dir: changed by somebody else and in the plan"
	run atoll commit copy
	status_is 3
	[ "$(stat -c %a copy/dir)" = 750 ]
}

# conflicts WORDS...: the paths that it names, as "a b". What only lies in a directory that moved has its own name.
conflicts() {
	run "$@"
	grep -v 'the plan has changes in it' <<<"$output" | sed -n "s|^  conflict: $work/t/\([^:]*\): .*|\1|p" | xargs
}

@test "cli refresh names what the commit would, and drops nothing that the plan did" {
	local strategy inside outside names before

	while IFS='|' read -r inside outside names; do
		for strategy in copy overlay; do
			mkdir -p t/d/e t/d/g
			echo a >t/d/a
			echo b >t/d/e/b
			atoll start p --dir t --strategy "$strategy"
			atoll exec p -- sh -c "cd t; $inside"
			(cd t && eval "$outside")
			before=$(atoll diff p 2>/dev/null | cut -d '(' -f 1)
			echo "$strategy: $inside, meanwhile $outside"
			# An overlay shows what is left of a directory that is gone as one that is new.
			[ "$strategy" = copy ] || [[ $outside != 'rm -r d' || -z $names ]] || names=d
			[ "$(conflicts atoll commit p --dry-run)" = "$names" ]
			[ "$(conflicts atoll refresh p)" = "$names" ]
			[ -z "$names" ] || [ "$(atoll diff p 2>/dev/null | cut -d '(' -f 1)" = "$before" ]
			[ "$(conflicts atoll commit p)" = "$names" ]
			atoll stop p --force
			rm -r t
		done
	done <<-E
		chmod 700 d|rm -r d|d
		chmod 700 d|mv d moved|d
		chmod 700 d|rm -r d; echo x >d|d
		chmod 700 d/e d/g|rm -r d|d/e d/g
		chmod 600 d/a; chmod 700 d/e|rm -r d|d/a d/e
		rm d/a; chmod 700 d/e|rm -r d|d/e
		chmod 700 d d/e|rm -r d; mkdir d|d d/e
		chmod 600 d/a|rm d/a|d/a
		rm -r d|chmod 711 d|d
		rm -r d|chmod 711 d/e|d
		rm -r d|echo x >>d/a; echo x >>d/e/b; echo x >d/new|d
		rm -r d; mkdir d; chmod 700 d; echo m >d/m|chmod 711 d|d
		rm -r d|rm -r d|
	E
	# What went on both sides is no work any more.
	mkdir -p t/d
	echo a >t/d/a
	atoll start p --dir t
	atoll exec p -- rm t/d/a
	rm -r t/d
	run atoll refresh p
	says 'refreshed p: 1 change from outside came in'
	[ -z "$(atoll diff p 2>/dev/null)" ]
}

@test "cli refresh of an overlay has nothing against a directory that a command looked into and left" {
	mkdir -p o/a o/b
	echo one | tee o/a/x o/b/y >/dev/null
	atoll start p --dir o --strategy overlay
	# The directory has a place of its own in the plan, without a change in it; a change comes after it.
	atoll exec p -- sh -c 'cd o; touch a/t; rm a/t; echo plan >b/y'
	mkdir o/new
	echo theirs >o/new/x
	mv o/a gone
	mv o/new o/a
	run atoll refresh p
	status_is 0
	[[ $output != *conflict* ]] || { echo "$output"; false; }
	[ "$(atoll diff p 2>/dev/null)" = "M  $work/o/b/y" ]
	[ "$(atoll exec p -- cat o/a/x o/b/y)" = $'theirs\nplan' ]
	# With a change in it, it is one.
	atoll exec p -- sh -c 'echo plan >o/a/z'
	mkdir o/new
	mv o/a gone2
	mv o/new o/a
	run atoll refresh p
	status_is 0
	says "conflict: $work/o/a: replaced or changed by somebody else"
	run atoll commit p
	status_is 3
	[ "$(cat o/b/y)" = one ]
}

@test "cli rollback that keeps the work puts it where nothing is any more" {
	local strategy

	for strategy in copy overlay; do
		mkdir "$strategy"
		echo old >"$strategy/file"
		atoll start "$strategy" --dir "$strategy" --strategy "$strategy"
		atoll exec "$strategy" -- sh -c "cd $strategy; echo first >file; echo first >made"
		atoll commit "$strategy"
		# Work of its own came after it, and was dropped.
		atoll exec "$strategy" -- sh -c "cd $strategy; echo second >file; echo second >more"
		atoll reset "$strategy"
		run atoll rollback "$strategy" --keep-work
		status_is 0
		says "$strategy: what was committed is work of the plan again"
		[ "$(cat "$strategy/file") $(ls "$strategy")" = 'old file' ]
		[ "$(atoll diff "$strategy" 2>/dev/null)" = "M  $work/$strategy/file
A  $work/$strategy/made" ]
		[ "$(atoll exec "$strategy" -- sh -c "cat $strategy/*")" = $'first\nfirst' ]
		atoll commit "$strategy"
		[ "$(cat "$strategy/file" "$strategy/made")" = $'first\nfirst' ]
	done
}

@test "cli stop refuses to drop work unless it is forced" {
	plan_with_work
	before=$(untouched a b)
	run atoll stop p
	status_is 1
	says "3 uncommitted changes; nothing of it was removed"
	says 'atoll rm --force p'
	run atoll stop p --json
	error_is state 1
	[ "$(atoll diff p 2>/dev/null | wc -l)" -eq 3 ]
	run atoll stop p --force --json
	status_is 0
	[ "$(jq -r '[.format, (.participants[] | .outcome)] | join(" ")' <<<"$output")" = \
		'atoll.stop/1 removed removed' ] || { echo "$output"; false; }
	[ "$(untouched a b)" = "$before" ]
	no_plans
}

@test "cli stop makes a commit final" {
	plan_with_work
	atoll commit p
	run atoll stop p
	status_is 0
	says 'removed p'
	committed
	no_plans
	run atoll rollback p
	status_is 1
}

@test "atm_12 what was given up for somebody else's version stays so when the work is kept" {
	for strategy in copy overlay; do
		mkdir -p "$strategy/dir/sub"
		echo x >"$strategy/dir/sub/x"
		echo z >"$strategy/z"
		atoll start "$strategy" --dir "$strategy" --strategy "$strategy"
		atoll exec "$strategy" -- sh -c "cd $strategy; rm -r dir; echo file >dir; echo plan >z; echo new >new"
		echo theirs >"$strategy/dir/sub/x"
		echo theirs >"$strategy/z"
		atoll commit "$strategy" --theirs "$strategy/dir" --theirs "$strategy/z"
		atoll rollback "$strategy" --keep-work
		[ "$(atoll diff "$strategy")" = "A  $work/$strategy/new" ]
		[ "$(atoll exec "$strategy" -- cat "$strategy/z" "$strategy/dir/sub/x")" = $'theirs\ntheirs' ]
	done
}

@test "cli rollback that keeps the work of several commits does not bring back what a later one deleted" {
	local strategy

	for strategy in copy overlay; do
		mkdir "$strategy"
		echo old >"$strategy/old"
		atoll start "$strategy" --dir "$strategy" --strategy "$strategy"
		atoll exec "$strategy" -- sh -c "cd $strategy; echo f >f; mkdir d; echo x >d/x; echo y >d/y; echo more >>old"
		atoll commit "$strategy"
		atoll exec "$strategy" -- sh -c "cd $strategy; rm f d/x old"
		atoll commit "$strategy"
		atoll exec "$strategy" -- touch "$strategy/new"
		atoll rollback "$strategy" --keep-work
		[ "$(cd "$strategy" && echo *)" = old ]
		[ "$(atoll diff "$strategy")" = "A  $work/$strategy/d/
A  $work/$strategy/d/y
A  $work/$strategy/new
D  $work/$strategy/old" ]
		[ "$(atoll exec "$strategy" -- sh -c "cd $strategy; echo * d/*")" = "d new d/y" ]
		atoll commit "$strategy"
		[ "$(cd "$strategy" && echo * d/*)" = "d new d/y" ]
	done
}

@test "der_03 cli work that was kept is no conflict with somebody else's beside it" {
	local strategy

	for strategy in copy overlay; do
		mkdir -p "$strategy/d"
		echo x >"$strategy/d/x"
		atoll start "$strategy" --dir "$strategy" --strategy "$strategy"
		atoll exec "$strategy" -- sh -c "echo q >$strategy/d/q"
		atoll commit "$strategy"
		atoll exec "$strategy" -- sh -c "echo r >$strategy/r"
		atoll rollback "$strategy" --keep-work
		echo z >"$strategy/d/z"
		atoll commit "$strategy"
		[ "$(cd "$strategy" && echo * d/*)" = "d r d/q d/x d/z" ]
	done
}
