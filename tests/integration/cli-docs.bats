#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What the documentation shows is tried.

load cli

# commands_in FILE...: what is shown as a command of ours: in sessions, in text, in examples.
commands_in() {
	{
		grep -hoE '^\$ atoll .*' "$@" | sed 's/^\$ //'
		grep -hoE '`atoll (--remote [a-zA-Z]+ )?[a-z][^`]*`' "$@" | tr -d '`'
	} | sed -E 's/^atoll --remote [a-zA-Z]+ /atoll /; s/ -- .*//; s/[;|&)(].*//; s/"[^"]*$//'
}

@test "doc the sessions in the README and on their own page are what is printed" {
	outside_tmp
	mkdir bin
	ln -s "$ATOLL" bin/atoll
	for page in README.md docs/session.md; do
		rm -rf you
		mkdir you
		PATH=$work/bin:$PATH run /usr/bin/python3 "$ATOLL_SOURCE_ROOT/tools/session.py" \
			"$ATOLL_SOURCE_ROOT/$page" "$work/you"
		status_is 0
		[ -z "$(ls "$work/you/.local/state/atoll/plans")" ]
	done
}

@test "doc every command that is shown anywhere exists, and so do its options" {
	help=$(atoll help --json)
	n=0
	while read -r _ command words; do
		[ -n "$command" ] || continue
		jq -e --arg c "$command" 'any(.commands[]; .name == $c or any(.also[]; . == $c))' <<<"$help" >/dev/null || {
			# Slips are shown, too, as slips.
			[[ $command =~ ^(comit|ps)$ ]] && continue
			echo "no command: atoll $command $words"
			return 1
		}
		for option in $(grep -oE -- '(^| )--[a-z-]+' <<<"$words" | tr -d ' '); do
			[ "$option" != --dryrun ] || continue
			jq -e --arg c "$command" --arg o "${option#--}" \
				'any(.options[], (.commands[] | select(.name == $c).options[]); .name == $o)' \
				<<<"$help" >/dev/null || { echo "no such option: atoll $command $words"; return 1; }
		done
		n=$((n + 1))
	done < <(cd "$ATOLL_SOURCE_ROOT" &&
		commands_in README.md NEWS.md SECURITY.md CONTRIBUTING.md docs/*.md docs/design/*.md man/*.mdoc)
	[ "$n" -ge 60 ]
}

@test "doc ./setup knows what the README has it do" {
	"$ATOLL_SOURCE_ROOT/setup" --help >usage
	grep -oE '^\./setup [a-z]+' "$ATOLL_SOURCE_ROOT/README.md" | sort -u >shown
	[ -s shown ]
	while read -r line; do
		grep -q "^$line " usage
	done <shown
}

@test "doc the tour ends well and leaves nothing" {
	mkdir tmp
	TMPDIR=$work/tmp run "$ATOLL_SOURCE_ROOT/tools/tour.sh"
	status_is 0
	says 'recovered plan tour'
	says 'That was the tour.'
	# The command that it ends with runs as it stands.
	command=$(sed -n 's/^  \(\/.* run\)$/\1/p' <<<"$output")
	mkdir mine
	run bash -c "cd mine && $command </dev/null"
	status_is 0
	[ -z "$(ls -A tmp)" ]
}

# page NAME: as people see it.
page() {
	mandoc -T ascii "$ATOLL_BUILD_ROOT/man/$1" | sed 's/.\x08//g'
}

@test "doc the manual pages are clean and there is one for each command" {
	for file in "$ATOLL_BUILD_ROOT"/man/*.[13]; do
		run mandoc -T lint -W warning "$file"
		status_is 0
		[ -z "$output" ]
	done
	# As they read: quotes are closed before others are opened, and none holds a list.
	for file in "$ATOLL_BUILD_ROOT"/man/*.[13]; do
		page "$(basename "$file")" | tr -s ' \n' ' ' >text
		run ! grep -oE "\`[^' ]*(,|\`|'')|\ba atoll[a-z-]*\(" text
	done
	(cd "$ATOLL_BUILD_ROOT/man" && ls atoll-*.1) | sort >have
	atoll help --json | jq -r '"atoll-" + .commands[].name + ".1"' | sort >want
	diff want have
	# No prose for a page that is none.
	for file in "$ATOLL_SOURCE_ROOT"/man/*.mdoc; do
		name=$(basename "$file" .mdoc)
		[ -e "$ATOLL_BUILD_ROOT/man/$name.1" ] || [ -e "$ATOLL_BUILD_ROOT/man/$name.3" ]
	done
}

@test "doc each manual page has the options its command has, and no other" {
	help=$(atoll help --json)
	jq -r '[.commands[].options[].name, .options[].name] | unique[]' <<<"$help" | sort >all
	for command in $(jq -r '.commands[].name' <<<"$help"); do
		page "atoll-$command.1" >text
		sed -n '/^OPTIONS/,/^EXIT STATUS/p' text | grep -oE '^ +(-., )?--[a-z-]+' |
			sed 's/.*--//' | sort >have
		jq -r --arg c "$command" '.commands[] | select(.name == $c).options[].name' <<<"$help" |
			sort >want
		diff want have
		# Wherever a page, or help, names an option, there is one of that name.
		{
			cat text
			atoll help "$command"
		} | grep -oE '(^|[^a-z-])--[a-z][a-z-]*' | sed 's/.*--//' | sort -u | comm -23 - all >unknown
		[ ! -s unknown ] || { echo "atoll-$command:"; cat unknown; return 1; }
	done
	page atoll.1 >text
	for option in $(jq -r '.options[].name' <<<"$help"); do
		grep -qE -- "^ +(-., )?--$option" text
	done
	for command in $(jq -r '.commands[].name' <<<"$help"); do
		grep -qF "atoll-$command(1)" text
	done
}

@test "doc the manual page of the library names every function, and its example compiles" {
	page libatoll.3 | grep -oE 'atoll_[a-z_]+\(' | tr -d '(' | sort -u >have
	sed 's,/\*.*\*/,,' "$ATOLL_SOURCE_ROOT/include/atoll.h" | grep '^ATOLL_API\|^atoll_' |
		grep -oE 'atoll_[a-z_]+\(' | tr -d '(' | sort -u >want
	diff want have
	sed -n '/^\.Bd -literal/,/^\.Ed/p' "$ATOLL_SOURCE_ROOT/man/libatoll.mdoc" | sed '/^\./d; s/\\e/\\/g' >example.c
	cc -std=c11 -Wall -Wextra -Werror -I"$ATOLL_SOURCE_ROOT/include" -fsyntax-only example.c
}

@test "doc the exit codes of the README are those the program publishes" {
	sed -n '/^## Exit status/,/^## /p' "$ATOLL_SOURCE_ROOT/README.md" | grep '^| [0-9]' >have
	atoll help --json | jq -r '.exit_status[] | "| \(.status) | \(.others // "") | \(.command) |"' |
		sed 's/|  |/| |/' >want
	diff want have
}
