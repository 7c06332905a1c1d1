#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What is different on a terminal: the pager, colours, progress.

load cli

# tty COMMAND: its output and its exit status, on a terminal of its own.
tty() {
	script -qec "$1" /dev/null </dev/null | tr -d '\r'
	return "${PIPESTATUS[0]}"
}

paged() {
	[[ $output == *PAGED* ]] || { printf 'no pager:\n%s\n' "$output"; return 1; }
}

not_paged() {
	[[ $output != *PAGED* ]] || { printf 'a pager:\n%s\n' "$output"; return 1; }
}

@test "tty looking goes through the pager, on a terminal only" {
	two_dirs
	atoll start p --dir a
	atoll exec p -- sh -c 'echo x >"$ATOLL_RESOURCE_1/one"'
	export ATOLL_PAGER='sed s/^/PAGED:/'
	for words in help 'help diff' list 'show p' 'diff p' log 'log p'; do
		run -0 tty "$ATOLL $words"
		paged
		# shellcheck disable=SC2086 # words
		run -0 atoll $words
		not_paged
		run -0 tty "$ATOLL --no-pager $words"
		not_paged
		run -0 tty "$ATOLL $words --json"
		not_paged
	done
	run -0 tty "$ATOLL commit p"
	not_paged
	run -0 tty "$ATOLL version"
	not_paged
}

@test "tty which pager: ATOLL_PAGER, core.pager, PAGER, less" {
	atoll config set core.pager 'sed s/^/PAGED-SET:/'
	export PAGER='sed s/^/PAGED-ENV:/'
	ATOLL_PAGER='sed s/^/PAGED-OWN:/' run -0 tty "$ATOLL help"
	says PAGED-OWN
	run -0 tty "$ATOLL help"
	says PAGED-SET
	atoll config unset core.pager
	run -0 tty "$ATOLL help"
	says PAGED-ENV
	PAGER=cat run -0 tty "$ATOLL help"
	not_paged
	ATOLL_PAGER='' run -0 tty "$ATOLL help"
	not_paged
	unset PAGER
	mkdir bin
	printf '#!/bin/sh\necho "PAGED $LESS"\ncat\n' >bin/less
	chmod +x bin/less
	PATH=$work/bin:$PATH run -0 tty "$ATOLL help"
	says 'PAGED FRX'
	LESS=S PATH=$work/bin:$PATH run -0 tty "$ATOLL help"
	says 'PAGED S'
}

@test "tty git's pager is used where no other is set" {
	export HOME=$work/me
	mkdir -p "$HOME" repo
	unset XDG_CONFIG_HOME
	git config --global core.pager 'sed s/^/PAGED-GIT:/'
	run -0 tty "$ATOLL help"
	says PAGED-GIT
	PAGER='sed s/^/PAGED-ENV:/' run -0 tty "$ATOLL help"
	says PAGED-ENV
	ATOLL_PAGER='sed s/^/PAGED-OWN:/' run -0 tty "$ATOLL help"
	says PAGED-OWN
	# A repository's own setting can come from anywhere.
	git init -q repo
	git -C repo config core.pager 'sed s/^/PAGED-REPO:/'
	cd repo
	run -0 tty "$ATOLL help"
	says PAGED-GIT
	GIT_DIR=$work/repo/.git run -0 tty "$ATOLL help"
	says PAGED-GIT
	git config --global core.pager cat
	run -0 tty "$ATOLL help"
	not_paged
}

@test "tty what could be typed next is said to people only, and not with --quiet" {
	two_dirs
	run at_terminal start p --dir a
	says 'next: atoll exec p'
	for words in 'list' 'status p' 'exec p -- true' 'diff p'; do
		# shellcheck disable=SC2086 # words
		run -0 at_terminal $words
		says 'next: atoll '
		for quiet in "-q $words" "--quiet $words"; do
			# shellcheck disable=SC2086 # words
			run -0 at_terminal $quiet
			[[ $output != *next:* ]]
		done
		# Both streams in a pipe; and, at a terminal, standard output alone: in a pipeline, in $(...).
		# shellcheck disable=SC2086 # words
		run -0 atoll $words
		[[ $output != *next:* ]]
		run -0 tty "$ATOLL $words | cat"
		[[ $output != *next:* ]]
		run -0 tty "x=\$($ATOLL $words); echo got \"\$x\""
		[[ $output != *next:* ]]
		says got
	done
	run -0 tty "$ATOLL list >/dev/null"
	says 'next: atoll '
	run -2 atoll list --quiet=yes
}

@test "tty times are the user's own at a terminal, and as in JSON elsewhere" {
	two_dirs
	atoll start p --dir a
	atoll exec p --background j -- true
	export TZ=UTC-5:30
	for words in 'status p' 'log p' 'job list'; do
		# shellcheck disable=SC2086 # words
		run -0 at_terminal $words
		[[ $output =~ [0-9]{4}-[0-9]{2}-[0-9]{2}\ [0-9]{2}:[0-9]{2}:[0-9]{2} ]]
		[[ ! $output =~ [0-9]T[0-9]{2}: ]]
		# shellcheck disable=SC2086 # words
		run -0 atoll $words
		[[ $output =~ [0-9]T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z ]]
	done
	at=$(atoll show p --json | jq -r '.created')
	run -0 at_terminal status p
	says "created  $(date -d "$at" '+%Y-%m-%d %H:%M:%S')"
	atoll job wait p j
}

@test "tty the pager takes nothing of the exit status" {
	two_dirs
	atoll start p --dir a
	atoll exec p -- sh -c 'echo x >"$ATOLL_RESOURCE_1/one"'
	ATOLL_PAGER='sed s/^/PAGED:/; exit 7' run -1 tty "$ATOLL diff --exit-code p"
	paged
	ATOLL_PAGER='sed s/^/PAGED:/' run -1 tty "$ATOLL show q"
	says 'PAGED:atoll: '
}

@test "tty a pager that is not there takes none of the output" {
	for pager in no-such-pager 'no-such-pager -R' 'LESS=FRX no-such-pager' ./no-such-pager \
		'no-such-pager | sed s/^/PAGED:/'; do
		ATOLL_PAGER=$pager run -0 tty "$ATOLL list"
		says "no-such-pager', so this is printed as it is"
		says '--no-pager'
		says 'no plans'
		not_paged
	done
	# What a shell knows is there, and what only a shell can tell is taken at its word.
	for pager in 'while read -r l; do echo "PAGED:$l"; done' 'A=b sed s/^/PAGED:/' \
		'"sed" s/^/PAGED:/' 'exec sed s/^/PAGED:/'; do
		ATOLL_PAGER=$pager run -0 tty "$ATOLL list"
		says 'PAGED:no plans'
	done
}

@test "tty whoever leaves the pager early hears nothing of it" {
	mkdir a
	atoll start p --dir a
	atoll exec p -- sh -c 'cd "$ATOLL_RESOURCE_1"; i=0; while [ $i -lt 4000 ]; do : >a-rather-long-name-of-a-file-$i; i=$((i+1)); done'
	ATOLL_PAGER='head -n 1' run tty "$ATOLL diff p"
	[ "$status" -eq 0 ] || [ "$status" -eq 141 ]
	[ "${#lines[@]}" -eq 1 ]
	none_run
	run -0 atoll rollback p
}

@test "tty colours: auto, NO_COLOR, color.ui, --color" {
	two_dirs
	atoll start p --dir a
	atoll exec p -- sh -c 'echo x >"$ATOLL_RESOURCE_1/one"'
	color=$'\033[33m'
	unset NO_COLOR
	export ATOLL_PAGER='sed s/^/PAGED:/'
	run -0 tty "$ATOLL diff p"
	says "PAGED:${color}M"
	run -0 tty "$ATOLL --no-pager diff p"
	says "${color}M"
	run -0 atoll diff p
	[[ $output != *"$color"* ]]
	run -0 atoll diff --color always p
	says "${color}M"
	NO_COLOR=1 run -0 tty "$ATOLL diff p"
	[[ $output != *"$color"* ]]
	atoll config set color.ui never
	run -0 tty "$ATOLL diff p"
	[[ $output != *"$color"* ]]
	atoll config set color.ui always
	run -0 atoll diff p
	says "${color}M"
	run -0 atoll diff --color never p
	[[ $output != *"$color"* ]]
}

# slowly SYSCALL COMMAND: on a terminal, and each call of SYSCALL takes 20 ms. Leaks cannot be looked
# for while somebody else traces.
slowly() {
	ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 TERM=xterm tty "strace -f -qq -o /dev/null -e trace=$1 -e inject=$1:delay_enter=20000 $2"
}

# shown WHAT: progress was, and at the end nothing is left of it.
shown() {
	[[ $output == *"$1: "* ]] || { printf 'no progress:\n%q\n' "$output"; return 1; }
	last=${output##*"$1: "}
	[[ $last == *$'\033[K'* ]] || { printf 'it stays:\n%q\n' "$output"; return 1; }
	[[ ${last%%$'\033[K'*} != *$'\n'* ]]
}

@test "tty long copies and commits say how far they are, on a terminal only" {
	mkdir a
	for i in $(seq 60); do
		echo "$i" >"a/$i"
	done
	run -0 slowly copy_file_range "$ATOLL start p --strategy copy --dir a"
	shown copying
	says 'files, 0 MiB'
	atoll exec p -- sh -c 'cd "$ATOLL_RESOURCE_1"; for i in *; do echo x >"$i"; done'
	run -0 slowly renameat2 "$ATOLL commit p"
	shown committing
	says ' of 60 files'
	run -0 slowly renameat2 "$ATOLL rollback p"
	shown undoing
	# A workspace made anew is copied first; the command has the terminal to itself.
	run -0 slowly copy_file_range "$ATOLL exec p -- echo mine"
	shown copying
	[[ ${output##*mine} != *copying* ]]
	atoll stop p
	run -0 slowly copy_file_range "$ATOLL start p --strategy copy --dir a --json"
	[[ $output != *copying* ]]
	atoll stop p
	ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 run -0 strace -f -qq -o /dev/null -e trace=copy_file_range \
		-e inject=copy_file_range:delay_enter=20000 "$ATOLL" start p --strategy copy --dir a
	[[ $output != *copying* ]]
	atoll stop p
	run -0 tty "TERM=xterm $ATOLL start p --strategy copy --dir a"
	[[ $output != *copying* ]]
}
