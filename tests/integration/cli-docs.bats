#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What the documentation shows is tried.

load cli

@test "doc the session in the README runs as shown" {
	session=$(sed -n '/^```console$/,/^```$/p' "$ATOLL_SOURCE_ROOT/README.md" | grep -v '^```')
	[ "$(grep -c '^\$ ' <<<"$session")" -ge 10 ]
	# Beside each command, what it is said to print; paths are those of whoever wrote it.
	mkdir bin
	ln -s "$ATOLL" bin/atoll
	PATH=$work/bin:$PATH
	while IFS= read -r line; do
		if [[ $line == '$ '* ]]; then
			bash -e -c "${line#'$ '}" >said 2>&1 3>&-
			continue
		fi
		grep -qxF -- "${line//\/home\/you/$work}" said || {
			echo "does not say '$line':"
			cat said
			return 1
		}
	done <<<"$session"
	no_plans
}

@test "doc the tour ends well and leaves nothing" {
	mkdir tmp
	TMPDIR=$work/tmp run "$ATOLL_SOURCE_ROOT/tools/tour.sh"
	status_is 0
	says 'recovered plan tour'
	says 'That was the tour.'
	[ -z "$(ls -A tmp)" ]
}

@test "doc the manual page is clean and knows every command and option" {
	command -v mandoc >/dev/null
	run mandoc -T lint -W warning "$ATOLL_SOURCE_ROOT/man/atoll.1"
	status_is 0
	[ -z "$output" ]
	page=$(mandoc -T ascii "$ATOLL_SOURCE_ROOT/man/atoll.1" | sed 's/.\x08//g')
	for command in $(atoll help --json | jq -r '.commands[].name'); do
		grep -qE "^ +$command( |\$)" <<<"$page" || { echo "no $command"; return 1; }
	done
	for option in $(atoll help --json | jq -r '[.commands[].options[].name, .options[].name] | unique[]'); do
		grep -qF -- "--$option" <<<"$page" || { echo "no --$option"; return 1; }
	done
}

@test "doc the exit codes of the README are those of the program" {
	two_dirs
	grep -q '^| 5 | waited for a lock' "$ATOLL_SOURCE_ROOT/README.md"
	run atoll list --frobnicate
	status_is 2
	run atoll start p --dir /
	status_is 6
	atoll start p --dir a
	atoll exec p -- sh -c 'echo x >"$ATOLL_RESOURCE_1/one"'
	echo theirs >a/one
	run atoll commit p
	status_is 3
}
