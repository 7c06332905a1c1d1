#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# help, version, options and words: what is answered without looking at any store.

load cli

@test "cli version and help open no store" {
	run atoll version
	status_is 0
	[[ $output =~ ^atoll\ [0-9]+\.[0-9]+\.[0-9]+$ ]]
	run atoll --version
	status_is 0
	run atoll help
	status_is 0
	says 'usage: atoll COMMAND'
	run atoll --help
	status_is 0
	run atoll -h
	status_is 0
	[ ! -e "$ATOLL_HOME" ]
}

@test "cli every command explains itself" {
	commands=$(atoll help --json | jq -r '.commands[].name')
	[ "$(wc -w <<<"$commands")" -ge 15 ]
	for command in start exec open diff status list commit rollback discard rm clean recover \
		doctor help version; do
		grep -qx "$command" <<<"$commands"
	done
	for command in $commands; do
		run atoll help "$command"
		status_is 0
		says "usage: atoll $command"
		run atoll "$command" --help
		status_is 0
		says "usage: atoll $command"
	done
	[ ! -e "$ATOLL_HOME" ]
}

@test "cli a slip is answered with what was perhaps meant" {
	run atoll lsit
	status_is 2
	says "did you mean 'list'?"
	run atoll roll
	status_is 2
	says "did you mean 'rollback'?"
	run atoll commit p --dryrun
	status_is 2
	says "did you mean '--dry-run'?"
	run atoll diff p --jsno
	status_is 2
	says "did you mean '--json'?"
	run atoll commit p --allow specal
	status_is 2
	says "did you mean 'special'?"
	run atoll co
	status_is 2
	says "hint: atoll help"
	run atoll comp
	says "did you mean 'completion'?"
	run atoll __comple
	[[ $output != *__complete* ]]
	run atoll frobnicate
	status_is 2
	says 'hint: atoll help; to run a program: atoll run -- COMMAND'
	run atoll exec make
	status_is 125
	says 'where no plan is named, -- stands before the command: atoll exec -- make'
	[ ! -e "$ATOLL_HOME" ]
}

@test "cli letters stand for options, alone and together" {
	two_dirs
	atoll start p --dir a
	run atoll commit -n p
	status_is 0
	says 'no changes'
	run atoll commit -yn p
	status_is 0
	run atoll stop -fy p
	status_is 0
	run atoll list -f
	status_is 2
	says "unknown option '-f'"
	run atoll rm -yx p
	status_is 2
	says "unknown option '-x' in '-yx'"
	says 'hint: atoll help rm'
	run atoll help rm
	says '-f, --force'
	# One letter, one meaning.
	letters=$(atoll help --json | jq -r '[.commands[].options[], .options[]] | map(select(.letter) | .letter + " " + .name) | unique[]')
	[ "$(cut -d ' ' -f 1 <<<"$letters" | uniq -d)" = '' ]
	[ "$(wc -l <<<"$letters")" -ge 4 ]
}

@test "cli wrong usage is exit 2" {
	run atoll
	status_is 2
	run atoll rollback
	status_is 2
	run atoll discard a b
	status_is 2
	says "unexpected argument 'b'"
	run atoll commit p --allow everything
	status_is 2
	says 'special, setuid, partial'
	run atoll commit p --allow
	status_is 2
	says 'needs a value'
	run atoll commit p --dry-run=yes
	status_is 2
	says 'takes no value'
	run atoll list --wait soon
	status_is 2
	run atoll list --wait -1
	status_is 2
	run atoll list --color purple
	status_is 2
	run atoll list -x
	status_is 2
	run atoll start p --dir . --parent nonsense
	status_is 2
	run atoll start p --dir . --parent /no=/where
	status_is 2
	[ ! -e "$ATOLL_HOME" ]
}

@test "cli of exec wrong usage is exit 125: the others are the command's" {
	run atoll exec
	status_is 125
	run atoll exec p
	status_is 125
	run atoll exec --timeout soon p true
	status_is 125
	run atoll exec --frobnicate p true
	status_is 125
}

@test "cli usage errors are JSON too" {
	for words in 'lsit --json' '--json lsit' 'rollback --json' 'commit p --frobnicate --json' '--json'; do
		# shellcheck disable=SC2086 # words
		run atoll $words
		status_is 2
		[ "$(jq -r '[.format, .code, .exit] | join(" ")' <<<"$output")" = 'atoll.error/1 invalid 2' ]
	done
}

@test "cli options may stand before the command and with an equals sign" {
	run atoll --json list
	status_is 0
	[ "$(jq -r .format <<<"$output")" = atoll.list/1 ]
	run atoll --wait=0.5 --color=never list
	status_is 0
}

@test "cli a full standard output is a failure" {
	[ -c /dev/full ]
	run bash -c '"$ATOLL" help >/dev/full'
	status_is 1
	says 'standard output'
	# What failed while it was printed is not blamed on what came later.
	mkdir a
	atoll start p --dir a >/dev/null 2>&1
	atoll exec p -- sh -c 'echo x >"$ATOLL_RESOURCE_1/new"'
	run bash -c '"$ATOLL" diff p --exclude nothing >/dev/full'
	status_is 1
	says 'cannot write to standard output, not all of it'
}

@test "cli help shows examples first, and with --remote the other half alone" {
	for command in $(atoll help --json | jq -r '.commands[].name'); do
		run -0 atoll help "$command"
		[[ ${lines[2]} == examples: ]] || { echo "$output"; return 1; }
		says "  $(atoll help --json | jq -r --arg c "$command" '.commands[] | select(.name == $c).examples[0].typed')"
		[[ $output != *'--remote NAME '"$command"* ]]
	done
	run -0 atoll help exec
	[[ $output != *--session* && $output != *unserialized* ]]
	says 'on another machine: atoll help exec --remote NAME'
	run -0 atoll help exec --remote big
	[ "${lines[0]}" = 'usage: atoll --remote NAME exec [OPTION]... [--] COMMAND [ARGUMENT]...' ]
	says '--session'
	says 'atoll --remote big exec -- make'
	half=$output
	for words in '--remote big help exec' 'exec --remote big --help' '--remote big exec -h'; do
		# shellcheck disable=SC2086 # words
		run -0 atoll $words
		[ "$output" = "$half" ]
	done
	# What has no other half is shown as it is.
	run -0 atoll help run --remote big
	[ "${lines[0]}" = 'usage: atoll run [OPTION]... [--] [COMMAND] [ARGUMENT]...' ]
	# Every example is a command line that is understood so far.
	atoll help --json | jq -r '.commands[].examples[] | select(.typed | startswith("atoll ")) | .typed' | while read -r line; do
		[[ $line =~ ^atoll\ (--remote\ big\ )?([a-z]+) ]]
		run -0 atoll help "${BASH_REMATCH[2]}"
	done
}
