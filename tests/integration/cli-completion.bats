#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Completion in real shells on a terminal: keys go in, and what the shell then runs is looked at.

load cli

# A stand-in that is asked to complete asks the real one; called with anything else it notes what
# was typed.
setup_shells() {
	two_dirs
	mkdir -p bin shell-home
	cat >bin/atoll <<-EOF
		#!/bin/sh
		case \$1 in __complete | completion) exec "$ATOLL" "\$@" ;; esac
		printf '%s|' "\$@" >>"$work/typed"
		echo >>"$work/typed"
	EOF
	chmod +x bin/atoll
	export PATH=$work/bin:$PATH HOME=$work/shell-home TERM=dumb INPUTRC=/dev/null
	unset BASH_ENV ENV ZDOTDIR XDG_CONFIG_HOME XDG_DATA_HOME
	mkdir profiles
	touch profiles/claude profiles/npm
	export ATOLL_PROFILES=$work/profiles
	atoll start fix-42 --dir a
	atoll start fix-43 --dir b
	atoll start other --dir b
}

# type_in SHELL KEYS: the screen in $output, the lines that were run in the file `typed`.
type_in() {
	rm -f typed
	case $1 in
	bash) shell=(bash --norc --noprofile -i) ;;
	bash-completion) shell=(bash --rcfile "$work/rc" -i) ;;
	zsh) shell=(zsh -f -i) ;;
	fish) shell=(fish --no-config --private -i) ;;
	esac
	case $1 in
	bash) init='PS1="> "; eval "$(atoll completion bash)"\n' ;;
	bash-completion)
		printf 'PS1="> "; . /usr/share/bash-completion/bash_completion; . %s\n' \
			"$ATOLL_SOURCE_ROOT/completions/atoll.bash" >rc
		init='\n'
		;;
	zsh) init='PS1="> "; autoload -Uz compinit; compinit -u -D; eval "$(atoll completion zsh)"\n' ;;
	fish) init='atoll completion fish | source\n' ;;
	esac
	run /usr/bin/python3 "$ATOLL_TEST_LIB/type-at.py" "$init$2exit\\n" "${shell[@]}"
}

# completes SHELL: what every shell has to do, in one session.
completes() {
	mkdir -p 'a/with space'
	type_in "$1" 'atoll comm\tot\t--dry\t\n\
atoll show fi\t2\n\
atoll commit --allow sp\tother\n\
atoll --color=alw\tlist\n\
atoll diff fix-42 su\tde\t\n\
atoll path other '"$work"'/\t\n\
atoll exec other -- mkfi\ta/on\t\n\
atoll start --dir a/wi\t\n\
atoll exec --profile cla\tother -- x\n\
atoll start --strategy ov\t--dir b\n'
	# Whether a directory ends with a slash is each shell's own affair.
	sed -i 's,/|$,|,' typed
	cat >expected <<-EOF
		commit|other|--dry-run|
		show|fix-42|
		commit|--allow|special|other|
		--color=always|list|
		diff|fix-42|sub/deep|
		path|other|$work/b|
		exec|other|--|mkfifo|a/one|
		start|--dir|a/with space|
		exec|--profile|claude|other|--|x|
		start|--strategy|overlay|--dir|b|
	EOF
	diff expected typed || { echo "$output"; return 1; }
}

# describes SHELL TABS: how plans are told apart.
describes() {
	type_in "$1" "atoll show fix-4$2"'\n'
	says 'OPEN, 1 resource'
}

@test "cli completion in bash" {
	setup_shells
	completes bash
	describes bash '\t\t'
}

@test "cli completion in bash with bash-completion" {
	[ -e /usr/share/bash-completion/bash_completion ]
	setup_shells
	completes bash-completion
	# And inside another program's line what that program completes.
	type_in bash-completion 'atoll exec other -- chmod --refer\t\n'
	[[ $(cat typed) == 'exec|other|--|chmod|--reference='* ]]
}

@test "cli completion in zsh" {
	command -v zsh >/dev/null
	setup_shells
	completes zsh
	describes zsh '\t'
}

@test "cli completion in fish" {
	command -v fish >/dev/null
	setup_shells
	completes fish
	run fish --no-config -c 'atoll completion fish | source; complete -C "atoll show fi"'
	status_is 0
	says $'fix-42\tOPEN, 1 resource'
	says $'fix-43\tOPEN, 1 resource'
	[[ $output != *other* ]]
}

@test "cli completion knows every command and every option" {
	help=$(atoll help --json)
	for command in $(jq -r '.commands[].name' <<<"$help"); do
		atoll __complete -- "$command" | grep -q "^$command"$'\t'
		for option in $(jq -r --arg c "$command" \
			'(.commands[] | select(.name == $c).options[].name), .options[].name' <<<"$help"); do
			atoll __complete -- "$command" "--$option" | grep -q "^--$option"$'\t' ||
				{ echo "$command does not complete --$option"; return 1; }
		done
	done
	# A value or word whose name is in no table would be completed as nothing.
	[ "$(jq -r '[.. | .kind? // empty, (.word_kinds? // [])[]] | index("unknown")' <<<"$help")" = null ]
	[ ! -e "$ATOLL_HOME" ]
}

@test "cli completion makes no store, changes none and is silent about a broken one" {
	run atoll __complete -- show ''
	status_is 0
	[ "$output" = none ]
	[ ! -e "$ATOLL_HOME" ]
	two_dirs
	atoll start p --dir a
	# The program that syncs in the background has its say first.
	all_end
	before=$(find "$ATOLL_HOME" -printf '%p %s %T@\n' | sort)
	atoll __complete -- show '' | grep -q '^p'
	atoll __complete -- diff p '' | grep -q '^sub/'
	[ "$(find "$ATOLL_HOME" -printf '%p %s %T@\n' | sort)" = "$before" ]
	atoll stop p
	echo nonsense >"$ATOLL_HOME/atoll.db"
	store_is_broken=1
	run atoll __complete -- show ''
	status_is 0
	[ "$output" = none ]
}

@test "cli completion offers nothing that could fool a terminal" {
	mkdir -p "$(printf 'd/x\033[31my')" "$(printf 'd/x\342\200\256y')" d/xyz
	atoll start p --dir d
	run atoll __complete -- diff p x
	status_is 0
	says xyz/
	[[ $output != *$'\033'* ]]
	[[ $output != *$'\342\200\256'* ]]
}

@test "cli completion is what is installed, and says so in JSON too" {
	for shell in bash zsh fish; do
		atoll completion $shell | cmp - "$ATOLL_SOURCE_ROOT/completions/atoll.$shell"
		atoll completion $shell --json | jq -j .script | cmp - "$ATOLL_SOURCE_ROOT/completions/atoll.$shell"
	done
	run atoll completion tcsh
	status_is 2
	says 'bash, zsh, fish'
}
