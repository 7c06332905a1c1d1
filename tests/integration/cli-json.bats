#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Everything printed with --json follows its schema in docs/schema/: each command when it succeeds
# and when it fails.

load cli.bash

# checked [--last] STATUS FORMAT COMMAND...: exit STATUS, and one object of FORMAT.
checked() {
	local last=()
	if [ "$1" = --last ]; then
		last=(--last)
		shift
	fi
	local want=$1 format=$2 out=$BATS_TEST_TMPDIR/out code=0
	shift 2
	"$@" >"$out" </dev/null || code=$?
	if [ "$code" -ne "$want" ]; then
		printf 'exit %s, not %s: %s\n' "$code" "$want" "$*"
		cat "$out"
		return 1
	fi
	/usr/bin/python3 "$ATOLL_SOURCE_ROOT/tools/check-json.py" "${last[@]}" "$format" <"$out"
	# For the test that looks whether one was left out.
	[ "$want" -ne 0 ] || echo "${format%...}" >>"$BATS_FILE_TMPDIR/seen"
}

# member FILTER VALUE: of the object checked last.
member() {
	found=$(tail -n 1 "$BATS_TEST_TMPDIR/out" | jq -rc "$1")
	[ "$found" = "$2" ] || {
		printf '%s is %s, not %s\n' "$1" "$found" "$2"
		return 1
	}
}

@test "json of a plan's whole life follows the schemas" {
	outside_tmp
	two_dirs
	checked 0 start atoll start p --json --dir a --dir b
	member '.sandboxes | length' 2
	checked 0 start atoll start p --json --or-open --dir a --dir b
	member .opened true
	checked --last 0 exec atoll exec --json p -- sh -c 'echo new >a/one; rm a/two; echo said'
	member .exit_code 0
	checked 0 diff atoll diff p --json
	member '[.added, .changed, .deleted]' '[0,1,1]'
	echo old >"$elsewhere/before"
	HOME=$elsewhere checked --last 0 exec atoll exec --json p -- sh -c 'echo x >~/private; rm ~/before'
	HOME=$elsewhere checked 0 diff-home atoll diff p --home --json
	member '[.files[].kind]' '["deleted","added"]'
	checked 0 path atoll path p a --json
	echo theirs >b/three
	checked 0 refresh atoll refresh p --json
	member '[.participants[] | .changes]' '[0,1]'
	mkdir more
	checked 0 add atoll add p --dir more --json
	member '.participants[0].outcome' unchanged
	checked 0 commit atoll commit p --json --dry-run
	member .dry_run true
	checked 0 commit atoll commit p --json
	member '.participants[0].outcome' committed
	checked 0 show atoll show p --json
	member '[.state, .undoable_commits]' '["COMMITTED",1]'
	checked 0 list atoll list --json
	checked 0 log... atoll log --json
	checked 0 log atoll log --json --limit 1 p
	checked 0 exec atoll exec p --json --background web -- sleep 1000 3>&- 4>&- 5>&- 6>&-
	member .job web
	checked 0 job atoll job list --json
	member '.jobs[0].state' running
	checked 0 job atoll job stop p --json
	member '[.state,.exit_code]' '["ended",143]'
	checked 0 lock atoll lock show p --json
	checked 0 lock atoll lock break p --json --yes
	member .broken false
	checked 0 undo atoll undo p --json
	member '.participants[0].outcome' 'rolled back'
	checked 0 redo atoll redo p --json
	member '.participants[0].outcome' committed
	checked 0 rollback atoll rollback p --json
	checked 0 refresh atoll refresh p --json
	checked 0 reset atoll reset p --json
	checked 0 stop atoll stop p --json
}

@test "json of commands that need no plan follows the schemas" {
	checked 0 list atoll list --json
	member .plans '[]'
	checked 0 version atoll version --json
	checked 0 help atoll help --json
	checked 0 help atoll help commit --json
	member '.commands[0].name' commit
	checked 0 help atoll commit --json --help
	for shell in bash zsh fish; do
		checked 0 completion atoll completion "$shell" --json
	done
	checked 0 recover atoll recover --json
	checked 0 clean atoll clean --json
	checked 0 clean atoll clean --json --dry-run
	member .dry_run true
	checked 0 doctor atoll doctor --json "$work"
	checked 0 config atoll config --json
	key=$(tail -n 1 "$BATS_TEST_TMPDIR/out" | jq -r '.settings[0].key')
	value=$(tail -n 1 "$BATS_TEST_TMPDIR/out" | jq -r '.settings[0].default')
	checked 0 config atoll config get "$key" --json
	checked 0 config atoll config set "$key" "$value" --json
	member .setting.line 2
	checked 0 config atoll config unset "$key" --json
	checked 2 error atoll config get no.such --json
	checked 0 token atoll token new ci --scope agent --expires 1h --json
	member .in_force true
	checked 0 token atoll token list --json
	member '.credentials | length' 1
	checked 0 token atoll token revoke ci --json
	member .revoked 1
	checked 1 error atoll token revoke ci --json
	checked 0 remote atoll remote add big http://127.0.0.1:1 --no-check --json
	member .remote.key_file null
	checked 6 error atoll remote add small http://127.0.0.1:1 --json
	checked 1 error atoll remote add big http://127.0.0.1:1 --no-check --json
	checked 0 remote atoll remote list --json
	member '.remotes | length' 1
	checked 0 remote-session atoll --remote big list --json
	checked 0 remote atoll remote remove big --json
	member .done removed
	checked 0 audit... atoll log --audit --json
	checked 0 log atoll log --audit --check --json
	member '[.audit_lines, .wrong]' '[4,0]'
}

@test "json of run and shell is the last line of their output" {
	outside_tmp
	two_dirs
	for how in commit rollback keep; do
		checked --last 0 run atoll run --json --dir a "--$how" -- sh -c "printf $how >a/one"
	done
	member .decision kept
	checked --last 0 run atoll run --json --dir b -- true
	member .decision 'no changes'
	plan=$(atoll list --json | jq -r '.plans[] | select(.undoable_commits == 0).name')
	SHELL=/bin/true checked --last 0 shell atoll shell --json "$plan"
	SHELL=/bin/false checked --last 1 shell atoll shell --json "$plan"
	member .exit_code 1
	checked --last 143 exec atoll exec --json "$plan" -- sh -c 'kill -TERM $$'
	member .term_signal 15
	checked --last 124 exec atoll exec --json --timeout 0.1 "$plan" -- sleep 9
	member .timed_out true
}

@test "json of a lock that is held, waited for and broken follows the schema" {
	mkdir a
	atoll start p --dir a
	in_background "$ATOLL" exec p -- sleep 60
	wait_for_process 'sleep 60'
	checked 5 error atoll commit p --json --wait 0
	checked 0 lock atoll lock --json
	member '.locks[] | select(.kind == "plan") | .waiting' false
	checked 0 lock atoll lock break p --json --yes
	member .broken true
	ended "$background"
}

@test "json of what a dead owner left follows the schema" {
	mkdir a
	in_background "$ATOLL" run --dir a --strategy copy -- sleep 60
	wait_for_process 'sleep 60'
	kill -KILL "$background"
	ended "$background"
	checked 0 clean atoll clean --json --dry-run
	member '.paths | length > 0' true
	checked 0 clean atoll clean --json --yes
	member .plans_removed 1
}

@test "json of failures follows the schema" {
	two_dirs
	atoll start p --dir a --dir b
	mkfifo "$(atoll path p a)/fifo"
	checked 4 error atoll commit p --json
	member '[.code, .participants[0].outcome, .notes[0].kind]' '["policy","failed","special file"]'
	checked 1 error atoll start p --json --dir a
	member .code exists
	checked 1 error atoll stop p --json
	checked 1 error atoll show nobody --json
	checked 2 error atoll list --json --wait soon
	checked 2 error atoll --json frobnicate
	member .command null
	checked 2 error atoll --json
	checked 1 error atoll start q --json --dir "$work/none"
	member .cause.errno_name ENOENT
	checked --last 127 error atoll exec --json p -- "$work/none"
	rm "$(atoll path p a)/fifo"
	echo mine >"$(atoll path p a)/one"
	echo theirs >a/one
	checked 0 refresh atoll refresh p --json
	member '[.notes[0].kind, .notes[0].path]' '["conflict","one"]'
	checked 3 error atoll commit p --json
	member '[.code, .notes[0].path]' '["conflict","one"]'
	echo broken >"$BATS_TEST_TMPDIR/file"
	ATOLL_HOME=$BATS_TEST_TMPDIR/file checked 1 error atoll list --json
}

@test "json shows names that are not UTF-8, and their bytes" {
	mkdir a
	atoll start p --dir a
	touch "$(atoll path p)/"$'b\377d'
	checked 0 diff atoll diff p --json
	member '[.changes[0].path, .changes[0].path_b64]' $'["b\xef\xbf\xbdd","Yv9k"]'
}

@test "json of serve names the daemon that takes over" {
	checked 0 serve timeout --preserve-status 8 "$ATOLL" serve --json --log errors --socket "$PWD/sock"
	member .program "$ATOLL_DAEMON"
}

@test "json of every command that is used wrongly is an error object" {
	for name in $(atoll help --json | jq -r '.commands[].name'); do
		code=2
		case $name in exec | run | shell) code=125 ;; esac
		checked "$code" error atoll "$name" --json --no-such-option
		member .command "$name"
	done
}

@test "json of every command was seen by the tests above" {
	[ -z "${BATS_TEST_FILTER:-}" ] || skip 'only some of them ran'
	atoll help --json | jq -r '.commands[].object' | sort >names
	sort -u "$BATS_FILE_TMPDIR/seen" | comm -23 names - >unseen
	cat unseen
	[ ! -s unseen ]
}

@test "check-json notices what does not follow the schema" {
	check=(/usr/bin/python3 "$ATOLL_SOURCE_ROOT/tools/check-json.py")
	good=$(atoll version --json)
	"${check[@]}" version <<<"$good"
	for bad in "${good%\}},\"more\":1}" '{"format":"atoll.version/1"}' '{"format":"atoll.none/1"}' \
		"${good%\}},\"version\":\"1.2.3\"}" '{}' "$good$good" ''; do
		run "${check[@]}" <<<"$bad"
		[ "$status" -eq 1 ]
	done
	run "${check[@]}" error <<<"$good"
	[ "$status" -eq 1 ]
	run "${check[@]}" < <(printf %s "$good")
	[ "$status" -eq 1 ]
}
