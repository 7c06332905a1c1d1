#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# start, list, show, path, stop, clean: the life of a plan.

load cli

@test "cli start prints the name, says the rest" {
	two_dirs
	name=$(atoll start fix-42 --dir a --dir b 2>said)
	[ "$name" = fix-42 ]
	grep -q 'started fix-42' said
	run at_terminal start fix-43 --dir a
	says 'next: atoll exec fix-43 -- COMMAND'
}

@test "cli start takes the current directory and makes a name up" {
	two_dirs
	cd a
	name=$(atoll start 2>/dev/null)
	[ -n "$name" ]
	[ "$(atoll show --json "$name" | jq -r '.sandboxes[].root')" = "$work/a" ]
}

@test "cli start takes a prefix, an id, or a dash for the plan later" {
	two_dirs
	atoll start fix-42 --dir a
	id=$(atoll show fix-42 --json | jq -r .plan.id)
	for ref in fix-42 fix "$id" "${id:0:6}" -; do
		run atoll show --json "$ref"
		status_is 0
		[ "$(jq -r .plan.name <<<"$output")" = fix-42 ]
	done
	atoll start fix-43 --dir b
	run atoll show fix
	status_is 1
	says fix-42
	says fix-43
	run atoll show -
	status_is 1
}

@test "cli start leaves no plan when a resource cannot be added" {
	two_dirs
	before=$(untouched a)
	run atoll start p --dir a --dir missing
	status_is 1
	says missing
	no_plans
	[ "$(untouched a)" = "$before" ]
	run atoll start p --dir a
	status_is 0
}

@test "cli start --or-open opens what is there" {
	two_dirs
	atoll start p --or-open --dir a
	id=$(atoll show p --json | jq -r .plan.id)
	run atoll start p --or-open --dir a --dir b --json
	status_is 0
	[ "$(jq -r '[.format, .opened, .plan.id] | join(" ")' <<<"$output")" = "atoll.start/1 true $id" ]
	[ "$(jq '.sandboxes | length' <<<"$output")" -eq 2 ]
	run atoll start p --or-open
	status_is 0
}

@test "sto_01 cli start --or-open by many at once makes one plan" {
	two_dirs
	for i in $(seq 12); do
		atoll start same --or-open --dir a >"$BATS_TEST_TMPDIR/out.$i" 2>&1 3>&- &
	done
	wait
	[ "$(cat "$BATS_TEST_TMPDIR"/out.* | grep -cx same)" -eq 12 ] || { cat "$BATS_TEST_TMPDIR"/out.*; return 1; }
	[ "$(atoll list --json | jq '.plans | length')" -eq 1 ]
	[ "$(atoll show --json same | jq '.sandboxes | length')" -eq 1 ]
}

@test "cli start knows a resource inside another as its child" {
	two_dirs
	run atoll start p --dir a/sub --dir a
	status_is 0
	says "$work/a/sub: lies in '$work/a'"
	outer=$(atoll show p --json | jq -r --arg r "$work/a" '.sandboxes[] | select(.root == $r).id')
	inner=$(atoll show p --json | jq -r --arg r "$work/a/sub" '.sandboxes[] | select(.root == $r).parent')
	[ "$inner" = "$outer" ]
}

@test "cli start --parent names a relation" {
	two_dirs
	atoll start p --dir a --dir b --parent "a=$work/b"
	b=$(atoll show p --json | jq -r --arg r "$work/b" '.sandboxes[] | select(.root == $r).id')
	[ "$(atoll show p --json | jq -r --arg r "$work/a" '.sandboxes[] | select(.root == $r).parent')" = "$b" ]
}

@test "cli start --none works in place, --work-in-store keeps the work in the store" {
	two_dirs
	atoll start p --none a
	[ "$(atoll path p)" = "$work/a" ]
	atoll start q --dir b --work-in-store
	[[ $(atoll path q) == "$ATOLL_HOME"/* ]]
}

@test "cli list and show tell people and programs the same" {
	two_dirs
	run atoll list
	status_is 0
	says 'no plans'
	atoll start p --dir a --dir b
	run atoll list
	status_is 0
	shown=$(from_home "$work/a")
	[[ ${lines[1]} =~ ^p\ +"$shown"\ \+1\ +-\ +[0-9]+\ s\ +no\ changes\ +[0-9.]+\ (bytes|KiB)$ ]]
	run atoll list --json
	status_is 0
	[ "$(jq -r '[.format, .plans[0].name, .plans[0].state, .plans[0].sandboxes] | join(" ")' <<<"$output")" = \
		'atoll.list/1 p OPEN 2' ]
	[[ $(jq -r '.plans[0].created' <<<"$output") == *Z ]]
	atoll exec p -- true
	run atoll show p
	status_is 0
	says "resource $work/a"
	says 'exec: true: exit 0'
	run atoll show p --json
	status_is 0
	[ "$(jq -r '[.format, .state, (.sandboxes | length), .history[-1].what] | join(" ")' <<<"$output")" = \
		'atoll.show/1 OPEN 2 exec' ]
}

@test "cli path is where the work lies" {
	two_dirs
	atoll start p --dir a --dir b
	run atoll path p
	status_is 1
	says "$work/a"
	says "$work/b"
	path=$(atoll path p a 2>/dev/null)
	[ "$(cat "$path/one")" = one ]
	echo changed >"$path/one"
	[ "$(cat a/one)" = one ]
	[ "$(atoll path p "$work/a" --json | jq -r '[.format, .path] | join(" ")')" = "atoll.path/1 $path" ]
	run atoll diff p
	says "M  $work/a/one"
}

@test "cli stop keeps uncommitted work unless forced" {
	two_dirs
	before=$(untouched a b)
	atoll start p --dir a --dir b
	atoll exec p -- sh -c 'echo x >"$ATOLL_RESOURCE_1/one"'
	run atoll stop p
	status_is 1
	says 'uncommitted'
	[ "$(cat "$(atoll path p a)/one")" = x ]
	run atoll stop --force p
	status_is 0
	says 'removed p'
	no_plans
	[ "$(untouched a b)" = "$before" ]
	run atoll stop p
	status_is 1
}

@test "cli stop and the rest answer in JSON" {
	two_dirs
	atoll start p --dir a --json | jq -e '.format == "atoll.start/1"'
	atoll reset p --json | jq -e '.format == "atoll.reset/1"'
	atoll commit p --json | jq -e '.format == "atoll.commit/1" and .atomicity == "full"'
	atoll rollback p --json | jq -e '.format == "atoll.rollback/1"'
	atoll recover --json | jq -e '.format == "atoll.recover/1" and .left == []'
	atoll clean --json | jq -e '.format == "atoll.clean/1" and .plans_removed == 0 and .plans == []'
	atoll clean --json --dry-run | jq -e '.format == "atoll.clean/1" and .paths == []'
	atoll doctor --json a | jq -e '.format == "atoll.doctor/1" and .healthy'
	atoll version --json | jq -e '.format == "atoll.version/1"'
	atoll help --json | jq -e '.format == "atoll.help/1"'
	atoll stop p --json | jq -e '.format == "atoll.stop/1" and .participants[0].outcome == "removed"'
}

# bytes PLAN: as list says.
bytes() {
	atoll list --json | jq ".plans[] | select(.name == \"$1\") | .bytes"
}

@test "cli list and show say what a plan takes on disk" {
	two_dirs
	for strategy in overlay copy; do
		head -c 300000 /dev/urandom >a/big
		atoll start p --dir a --strategy "$strategy"
		[ "$strategy" = overlay ] || [ "$(bytes p)" -ge 300000 ]
		atoll exec p -- sh -c "head -c 500000 /dev/urandom >'$work/a/new'"
		[ "$strategy" = copy ] || { [ "$(bytes p)" -ge 500000 ] && [ "$(bytes p)" -lt 700000 ]; }
		[ "$(atoll show p --json | jq .bytes)" = "$(bytes p)" ]
		[ "$(atoll show p --json | jq '.sandboxes[0].bytes')" = "$(bytes p)" ]
		atoll commit p --yes
		[ "$strategy" = copy ] || [ "$(bytes p)" -lt 300000 ]
		atoll rollback p --yes
		atoll exec p -- sh -c "head -c 700000 /dev/urandom >'$work/a/new'"
		[ "$strategy" = copy ] || [ "$(bytes p)" -ge 700000 ]
		# The old workspace goes when the new one is made.
		atoll reset p --yes
		atoll exec p -- true
		[ "$strategy" = copy ] || [ "$(bytes p)" -lt 300000 ]
		run atoll list
		says '  SIZE'
		run atoll show p
		says 'size '
		atoll stop p --yes --force
	done
}

@test "cli clean leaves plans made with start alone and takes strays" {
	two_dirs
	atoll start p --dir a
	atoll exec p -- touch "$work/a/new"
	mkdir -m 700 "$ATOLL_HOME/plans/stray"
	echo x >"$ATOLL_HOME/plans/stray/file"
	run atoll clean --dry-run
	status_is 0
	says "$ATOLL_HOME/plans/stray"
	says '1 path would be removed, '
	[ -e "$ATOLL_HOME/plans/stray/file" ]
	run atoll clean
	status_is 0
	says 'removed 0 plans, freed '
	[[ $output != *'freed 0'* ]]
	[ ! -e "$ATOLL_HOME/plans/stray" ]
	run atoll clean --force --yes
	status_is 0
	run atoll diff p
	says "A  $work/a/new"
}

@test "cli doctor says what works here and what does not" {
	two_dirs
	run atoll doctor a
	status_is 0
	says "$work/a on "
	says 'strategy copy'
	says 'atoll-helper runs commands'
	run atoll doctor missing
	status_is 1
	run atoll doctor "$ATOLL_HOME"
	status_is 6
	says 'or move the store: ATOLL_HOME'
	ATOLL_HELPER=/nonexistent run atoll doctor a
	status_is 6
	says '/nonexistent'
}

@test "cli names and paths cannot fool a terminal" {
	mkdir "$(printf 'bad\033[31m\nname')"
	touch "$(printf 'bad\033[31m\nname')/$(printf 'x\342\200\256y')"
	atoll start p --dir "$(printf 'bad\033[31m\nname')"
	atoll exec p -- sh -c 'rm "$ATOLL_RESOURCE_1"/*; touch "$ATOLL_RESOURCE_1/$(printf "a\tb\377")"'
	run atoll diff p
	status_is 0
	says 'bad\x1b[31m\x0aname/a\x09b\xff'
	says 'bad\x1b[31m\x0aname/x\u{202e}y'
	[[ $output != *$'\033'* ]]
	run atoll diff p --json
	[ "$(jq -r '.changes[] | select(.kind == "added").path_b64' <<<"$output" | base64 -d | od -An -tx1)" = ' 61 09 62 ff' ]
}
