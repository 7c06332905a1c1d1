#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Names that could fool a terminal go in everywhere; nothing of them comes out as it is.

load cli

# Colour, a bell, a new line, C1's CSI, a right-to-left override, an isolate, half a character.
odd=$'x\033[31m\a\nBROKEN\302\233y\342\200\256z\342\201\246\303'

# on_terminal COMMAND...: its standard output and error on a terminal; what arrived in the file
# `shown`, its exit status in $status. Fails when there is anything in it that is no plain text.
on_terminal() {
	local words
	printf -v words '%q ' "$@"
	status=0
	# A pager would add what it does to the terminal itself.
	ATOLL_PAGER=cat script -qec "$words" /dev/null </dev/null >shown 2>&1 || status=$?
	/usr/bin/python3 - "$words" <<-'E'
		import sys, unicodedata
		data = open("shown", "rb").read()
		text = data.decode("utf-8", "surrogateescape")
		bidi = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
		bad = [c for c in text if "\udc80" <= c <= "\udcff" or c in bidi
		       or (unicodedata.category(c) == "Cc" and c not in "\r\n")]
		if bad:
		    sys.exit(f"{sys.argv[1]!r} lets {bad!r} through: {data!r}")
	E
	# One line each, whatever new lines were in a name.
	! grep -q '^BROKEN' shown
}

# shows TEXT: the last on_terminal did.
shows() {
	grep -qF -- "$1" shown || { echo "does not show '$1':"; cat -v shown; return 1; }
}

odd_plan() {
	mkdir "$odd" "$odd/dir$odd"
	echo one >"$odd/file$odd"
	echo two >"$odd/gone$odd"
	atoll start p --dir "$odd" >/dev/null 2>&1
	atoll exec p -- sh -c 'cd "$ATOLL_RESOURCE_1" && for f in file*; do echo new >"$f"; done; rm gone*; echo x >"new$1"; ln -s "/etc/$1" link' \
		sh "$odd" >/dev/null 2>&1
}

@test "cli odd names do not reach a terminal from commands that look" {
	on_terminal "$ATOLL" list
	odd_plan
	for command in 'show p' 'diff p' 'diff --stat p' 'path p' list 'clean --dry-run' 'diff p nowhere'; do
		# shellcheck disable=SC2086 # words
		on_terminal "$ATOLL" $command
	done
	on_terminal "$ATOLL" diff p
	[ "$status" -eq 0 ]
	shows 'file'
	shows '\x1b[31m'
	shows '\u{202e}'
	on_terminal "$ATOLL" diff p "$odd/file$odd"
	[ "$status" -eq 0 ]
	for command in show diff path; do
		on_terminal "$ATOLL" "$command" "$odd"
		[ "$status" -ne 0 ]
	done
	on_terminal "$ATOLL" diff p "$odd-nowhere"
	[ "$status" -ne 0 ]
	on_terminal "$ATOLL" path p "$odd-nowhere"
	[ "$status" -ne 0 ]
	on_terminal "$ATOLL" doctor "$odd"
	on_terminal "$ATOLL" doctor "$odd-nowhere"
}

@test "cli odd names do not reach a terminal from commands that decide" {
	odd_plan
	on_terminal "$ATOLL" commit --dry-run p
	shows 'link'
	on_terminal "$ATOLL" commit --deny escaping-links p
	[ "$status" -eq 4 ]
	echo theirs >"$odd/file$odd"
	on_terminal "$ATOLL" commit p
	[ "$status" -eq 3 ]
	shows 'conflict'
	on_terminal "$ATOLL" diff p
	atoll reset p
	atoll exec p -- sh -c 'echo again >"$ATOLL_RESOURCE_1/$1"' sh "$odd"
	on_terminal "$ATOLL" commit p
	[ "$status" -eq 0 ]
	echo theirs >"$odd/$odd"
	on_terminal "$ATOLL" rollback p
	[ "$status" -eq 3 ]
	on_terminal "$ATOLL" rollback --keep-theirs p
	[ "$status" -eq 0 ]
	on_terminal "$ATOLL" show p
	mv "$odd" elsewhere
	on_terminal "$ATOLL" commit p
	[ "$status" -ne 0 ]
	mv elsewhere "$odd"
	on_terminal "$ATOLL" stop --force --yes p
}

@test "cli odd names do not reach a terminal from commands that work" {
	odd_plan
	on_terminal "$ATOLL" start q --strategy copy --dir "$odd-nowhere"
	[ "$status" -ne 0 ]
	on_terminal "$ATOLL" start "$odd" --strategy copy --dir "$odd"
	[ "$status" -eq 2 ]
	on_terminal "$ATOLL" start q --strategy copy --dir "$odd" --dir "$odd/dir$odd"
	[ "$status" -eq 0 ]
	on_terminal "$ATOLL" start r --dir "$odd" --parent "$odd"
	[ "$status" -eq 2 ]
	on_terminal "$ATOLL" exec p -- "$odd"
	[ "$status" -eq 127 ]
	on_terminal "$ATOLL" exec --status-file "/nowhere/$odd" p -- true
	[ "$status" -eq 125 ]
	on_terminal "$ATOLL" run --strategy copy --keep --dir "$odd" -- touch "$odd/$odd"
	[ "$status" -eq 0 ]
	on_terminal "$ATOLL" show p
	for words in "$odd" "--$odd" "-$odd"; do
		on_terminal "$ATOLL" "$words"
		[ "$status" -eq 2 ]
		on_terminal "$ATOLL" commit "$words" p
		[ "$status" -ne 0 ]
	done
	on_terminal "$ATOLL" commit --allow "$odd" p
	[ "$status" -eq 2 ]
	on_terminal "$ATOLL" list --wait "$odd"
	[ "$status" -eq 2 ]
	on_terminal "$ATOLL" help "$odd"
	[ "$status" -eq 2 ]
	on_terminal "$ATOLL" completion "$odd"
	on_terminal "$ATOLL" __complete -- diff p ''
	# Who is waited for, and with which command.
	in_background "$ATOLL" exec p -- sh -c 'sleep 30' "$odd"
	wait_for_process 'sleep 30'
	on_terminal "$ATOLL" commit --wait 0.5 p
	[ "$status" -eq 5 ]
	kill -TERM "$background"
	ended "$background"
	# A store in an odd place.
	mkdir "store$odd"
	ATOLL_HOME=$work/store$odd on_terminal "$ATOLL" list
	[ "$status" -ne 0 ]
	ATOLL_HOME=$work/store$odd on_terminal "$ATOLL" doctor
}
