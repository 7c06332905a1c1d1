#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What is said after a failure: what failed and where, what is unchanged, what to type next.

load cli

# advises STATUS TEXT HINT COMMAND...: it ends with STATUS, says TEXT, and its hint says HINT.
advises() {
	run atoll "${@:4}"
	status_is "$1"
	says "$2"
	[[ $(grep '^hint: ' <<<"$output") == *"$3"* ]] || { printf 'no hint "%s":\n%s\n' "$3" "$output"; return 1; }
}

@test "advice for slips on the command line leads on" {
	two_dirs
	atoll start p --dir a --dir b
	advises 2 "unknown command 'nothing'" 'atoll help' help nothing
	[[ $output != *'atoll help help'* ]]
	advises 2 "unexpected argument 'x': atoll list" 'atoll help list' list x
	[[ ${lines[0]} != *' ' ]]
	advises 1 'does not set core.pager; nothing was changed' 'atoll config list --show-origin' config unset core.pager
	advises 1 "there is no strategy 'overlya'" "did you mean 'overlay'?" config set start.strategy overlya
	advises 1 "there is no strategy 'magic'" 'use one of: overlay, copy,' config set start.strategy magic
	[ ! -e "$XDG_CONFIG_HOME/atoll/config" ]
	printf '[plan]\n\tname = q\n[resource "a"]\n\tpath = a\n\tstrategy = magic\n' >plan.conf
	advises 1 "there is no strategy 'magic'" 'use one of: overlay, copy,' start --file plan.conf
	advises 1 "'nowhere'" 'name one that is there' start q --dir nowhere
	advises 6 'is a file where a directory is due' 'the directory around it' start q --dir a/one
	advises 1 "'$work/a' already is in plan 'q'" 'name every resource once' start q --dir a --dir a
	advises 1 'several resources, say which' "behind the plan's name" path p
	advises 1 "'nothing' names nothing in the plan" 'atoll diff p shows what changed' commit p nothing
	advises 2 'cannot be settled for both sides' 'in --ours' commit p --ours a --theirs a
	advises 2 "'soon' is not a time" 'atoll commit p --retain 24h' commit p --retain soon
	run -0 atoll help commit
	says 'undo.retention'
	[[ $output != *'24 hours'* ]]
}

@test "advice for a store that cannot be there names the way out" {
	for home in /proc/nowhere /dev/null/store /etc/passwd; do
		ATOLL_HOME=$home advises 1 "the store '$home'" 'or set ATOLL_HOME to a directory of yours' list
	done
}

@test "advice for the home directory as a resource" {
	export HOME=$work/me
	mkdir -p "$HOME/project"
	export ATOLL_HOME=$HOME/.local/state/atoll
	cd "$HOME"
	advises 6 'the home directory cannot be a resource' 'cd into a project, or name one with --dir DIR' start p --dir .
	run atoll run -- true
	status_is 125
	says 'atoll: the home directory cannot be a resource'
	advises 6 "'$HOME/.local' cannot be a resource: the store '$ATOLL_HOME' lies in it" 'cd into a project' start p --dir .local
	advises 6 "'$ATOLL_HOME/plans' cannot be a resource: it lies in the store '$ATOLL_HOME'" 'cd into a project' start p --dir "$ATOLL_HOME/plans"
	cd project
	run -0 atoll start p
	run -0 atoll rm p
}

@test "advice where the current directory was deleted" {
	two_dirs
	atoll start p --dir a
	mkdir gone
	cd gone
	rmdir ../gone
	for words in 'list --here' 'start q --dir .' 'start q --dir x'; do
		# shellcheck disable=SC2086 # words
		advises 1 'the current directory was deleted' 'cd to a directory that is there' $words
	done
	for command in status diff log commit undo redo; do
		[ "$command" = log ] || advises 1 'the current directory was deleted' "or name the plan: atoll $command PLAN" "$command"
	done
	advises 125 'the current directory was deleted' 'cd to a directory that is there' run -- true
	advises 125 'the current directory was deleted' 'cd to a directory that is there' exec p -- true
	run -0 atoll status p
	cd "$work"
}

@test "advice for a profile that there is not names those that there are" {
	two_dirs
	atoll start p --dir a
	export ATOLL_PROFILES=$work/profiles
	mkdir -p profiles "$XDG_CONFIG_HOME/atoll/profiles"
	: >profiles/claude
	: >profiles/cargo
	: >"$XDG_CONFIG_HOME/atoll/profiles/own"
	advises 125 "there is no profile 'clade'; there are: cargo, claude, own; nothing was run" "did you mean 'claude'?" exec p --profile clade -- true
	advises 125 "there are: cargo, claude, own" 'profiles are files in ~/.config/atoll/profiles' exec p --profile something-else -- true
	run -0 atoll exec p --profile own -- true
}

@test "advice of a list behind sudo names the store" {
	is_root || skip 'only root is behind sudo'
	SUDO_USER=nobody run -0 atoll list
	says "this is the store of root, $ATOLL_HOME; atoll list without sudo shows the plans of nobody"
	SUDO_USER=root run -0 atoll list
	[[ $output != *'the store of'* ]]
	SUDO_USER=nobody run -0 --separate-stderr atoll list --json
	[ -z "$stderr" ]
}

@test "advice for a status file that cannot be written names it" {
	two_dirs
	atoll start p --dir a
	run -125 atoll exec p --status-file /dev/full -- sh -c 'exit 3'
	says "cannot write the status file '/dev/full': No space left on device; else the exit status would be 3"
	says 'hint: make room there (df, df -i; atoll discard and atoll rm free what plans keep)'
}

@test "advice for work that its owner locked away names the plan and the path" {
	! is_root || skip 'root may look anywhere'
	outside_tmp
	two_dirs
	atoll start p --strategy overlay --dir a >/dev/null 2>&1
	atoll exec p -- sh -c 'mkdir a/new && echo x >a/new/f && chmod 0 a/new'
	advises 1 "'new': its mode keeps its owner out" "atoll exec p -- chmod u+rwX '$work/a/new' opens it; atoll discard p drops" diff p
	advises 1 'nothing was changed' "atoll exec p -- chmod u+rwX '$work/a/new'" commit p
	eval "$(sed -n "s/^hint: \(.*\) opens it;.*/\1/p" <<<"$output")"
	run -0 atoll commit p
}

@test "advice for an undo that was refused says that all is as it was" {
	two_dirs
	atoll start p --dir a --dir b
	atoll exec p -- sh -c 'echo x >"$ATOLL_RESOURCE_1/one"; echo x >"$ATOLL_RESOURCE_2/three"'
	atoll commit p
	echo theirs >>a/one
	before=$(untouched a b)
	advises 3 'nothing was undone' 'atoll rollback p --keep-theirs' rollback p
	says "$work/a (copy): not undone"
	[[ $output != *'what is left'* ]]
	[[ $output != *'rollback failed'* ]]
	[ "$(untouched a b)" = "$before" ]
}

# full_disk: from here on directories are on a filesystem of their own, and `fill` leaves no room on it.
full_disk() {
	is_root || skip 'only root mounts a filesystem of its own'
	mounted=$BATS_TEST_TMPDIR/small
	mkdir "$mounted"
	mount -t tmpfs -o size=4m,mode=700 none "$mounted"
	work=$mounted/work
	mkdir -p "$work"
	cd "$work" || return 1
	two_dirs
}

fill() {
	dd if=/dev/zero of="$mounted/fill" bs=4k status=none 2>/dev/null || true
}

teardown() {
	cd /
	if [ -n "${mounted:-}" ]; then
		rm -f "$mounted/fill"
		atoll stop --force --yes p >/dev/null 2>&1 || true
		for _ in $(seq 500); do
			umount "$mounted" 2>/dev/null && break
			sleep 0.02
		done
	fi
	left=$(left_behind)
	[ -z "${elsewhere:-}" ] || rm -rf "$elsewhere"
	[ -z "$left" ] || { printf 'left behind:\n%s\n' "$left"; return 1; }
}

@test "advice on a full disk: the resource's" {
	full_disk
	atoll start p --dir a
	atoll exec p -- sh -c 'echo x >"$ATOLL_RESOURCE_1/one"; mkdir "$ATOLL_RESOURCE_1/new"'
	fill
	before=$(untouched a)
	advises 1 'No space left on device' 'make room there (df, df -i; atoll discard and atoll rm free what plans keep), then atoll commit p; the work is kept' commit p
	says 'nothing was changed: '
	says "'$work/a'"
	[ "$(untouched a)" = "$before" ]
	rm "$mounted/fill"
	run -0 atoll commit p
}

@test "advice on a full disk: the store's" {
	full_disk
	export ATOLL_HOME=$mounted/home
	atoll start p --dir a
	atoll exec p -- sh -c 'echo x >"$ATOLL_RESOURCE_1/one"; mkdir "$ATOLL_RESOURCE_1/new"'
	# What a write finds allocated already it may still use: so nothing is. Closed, the file would go.
	/usr/bin/python3 -c 'import os, sqlite3, sys
sqlite3.connect(sys.argv[1]).execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall(); os._exit(0)' "$ATOLL_HOME/atoll.db"
	fill
	before=$(untouched a)
	advises 1 "registry '$ATOLL_HOME/atoll.db': database or disk is full" \
		'make room there (df, df -i; atoll discard and atoll rm free what plans keep), then atoll reset p' reset p
	says 'the work is kept: '
	advises 1 'nothing was changed: ' 'then atoll commit p; the work is kept' commit p
	advises 1 "nothing was changed: cannot take the lock '$ATOLL_HOME/locks/" 'make room there' start q --dir b
	[ "$(untouched a)" = "$before" ]
	rm "$mounted/fill"
	run -0 atoll diff p
	says 'a/one'
	run -0 atoll commit p
	fill
	before=$(untouched a)
	advises 1 'nothing was undone: ' 'then atoll rollback p' rollback p
	[ "$(untouched a)" = "$before" ]
	rm "$mounted/fill"
	run -0 atoll rollback p
	fill
	# Which of its two records finds no room is the disk's business.
	advises 1 'removed' 'then atoll stop p' rm p --force --yes
	[[ $output == *'nothing was removed: '* || $output == *"the work is removed, but not the plan's record: "* ]]
	rm "$mounted/fill"
	run -0 atoll stop p
	no_plans
}
