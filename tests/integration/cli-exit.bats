#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The published exit codes, one by one, from their real causes; and after every failure what to do.

load cli

# fails STATUS COMMAND...: with that status, a hint for people, and the same status in JSON, where
# standard output of exec and run is the command's until the last line.
fails() {
	local want=$1
	shift
	# Said beforehand: bats has thoughts of its own about 127.
	run "-$want" atoll "$@"
	says 'hint: '
	run "-$want" --separate-stderr atoll "$1" --json "${@:2}"
	tail -n 1 <<<"$output" | jq -e --argjson want "$want" \
		'.format == "atoll.error/1" and .exit == $want and .message != "" and .hint != ""' >/dev/null || {
		printf 'no such object:\n%s\n' "$output"
		return 1
	}
}

# plan_at_work: plan p over a and b, with a change in each; $helped when commands see them in place.
plan_at_work() {
	two_dirs
	atoll start p --dir a --dir b
	atoll exec p -- sh -c 'echo new >"$ATOLL_RESOURCE_1/one"; echo new >"$ATOLL_RESOURCE_2/three"'
}

@test "exit 0 of every command, and what to do next" {
	two_dirs
	for command in 'start p --dir a' 'show p' 'list' 'diff p' 'path p' 'commit p' 'rollback p' 'reset p' \
		'recover' 'recover p' 'clean --dry-run' 'clean' 'stop p' 'doctor a'; do
		# shellcheck disable=SC2086 # words
		run at_terminal $command
		# What this host lacks is not the question here.
		[ "$command" = 'doctor a' ] && [ "$status" -eq 6 ] || status_is 0
		[[ $output == *'next: atoll '* || $output == *'fix: '* || $output == *'next: '*'atoll '* ]] || {
			printf '%s says nothing of what is next:\n%s\n' "$command" "$output"
			return 1
		}
	done
	for command in help version 'completion zsh' 'help commit'; do
		# shellcheck disable=SC2086 # words
		run atoll $command
		status_is 0
	done
	atoll start q --dir a
	run atoll exec q -- true
	status_is 0
	# Elsewhere than on a terminal all output is the command's.
	[ -z "$output" ]
	run atoll run --strategy copy --dir a -- true
	status_is 0
	SHELL=/bin/true run atoll shell q
	status_is 0
}

@test "exit 1 when it failed or differences were asked for" {
	plan_at_work
	run atoll diff --exit-code p
	status_is 1
	run atoll diff p
	status_is 0
	for command in show diff path commit rollback reset stop recover; do
		fails 1 "$command" nobody
	done
	fails 1 start p --dir b
	fails 1 path p
	fails 1 diff p /nowhere
	fails 1 stop p
	fails 125 exec nobody -- true
	fails 125 shell nobody
}

@test "exit 2 of every command that is used wrongly; 125 where the codes are the command's" {
	while read -r command own; do
		want=2
		[ "$own" = false ] || want=125
		fails "$want" "$command" --frobnicate
		fails "$want" "$command" --wait never
		# One word too many or too few.
		[[ $command =~ ^(exec|run|diff|commit|rm)$ ]] || fails "$want" "$command" a b c
	done < <(atoll help --json | jq -r '.commands[] | "\(.name) \(.command_exit)"')
	fails 2 rollback
	fails 125 exec p
	[ ! -e "$ATOLL_HOME" ]
	fails 2 start 'not a name' --dir .
}

@test "exit 3 of a conflict, which changes nothing" {
	plan_at_work
	echo theirs >a/one
	before=$(untouched a b)
	fails 3 commit p
	fails 3 commit --dry-run p
	[ "$(untouched a b)" = "$before" ]
	atoll reset p
	atoll exec p -- sh -c 'echo again >"$ATOLL_RESOURCE_1/one"'
	atoll commit p
	echo theirs >a/one
	before=$(untouched a b)
	fails 3 rollback p
	[ "$(untouched a b)" = "$before" ]
	echo again >a/one
	mv a elsewhere
	mkdir a
	fails 3 commit p
	fails 125 exec p -- true
	rmdir a
	mv elsewhere a
}

@test "exit 4 of what policy refuses, which changes nothing" {
	plan_at_work
	atoll exec p -- sh -c 'mkfifo "$ATOLL_RESOURCE_1/pipe"; ln -s /etc/passwd "$ATOLL_RESOURCE_2/link"'
	before=$(untouched a b)
	fails 4 commit p
	fails 4 commit --allow special --deny escaping-links p
	[ "$(untouched a b)" = "$before" ]
	run atoll commit --allow special p
	status_is 0
	mkdir c
	atoll start q --dir c --none b
	atoll exec q -- sh -c 'echo x >"$ATOLL_RESOURCE_1/x"'
	fails 4 commit q
	run atoll run --strategy copy --commit --dir a --none b -- sh -c 'echo x >>"$ATOLL_RESOURCE_1/one"'
	status_is 125
}

@test "exit 5 of a lock waited for in vain, whose holder is named" {
	two_dirs
	atoll start p --dir a
	in_background "$ATOLL" exec p -- sh -c 'touch "$ATOLL_RESOURCE_1/up"; sleep 30'
	wait_for_process 'sleep 30'
	for command in commit rollback reset path recover; do
		fails 5 "$command" p --wait 0
		run atoll "$command" --wait 0.1 p
		status_is 5
		says 'atoll exec p'
		says "$background"
	done
	run atoll exec --wait 0 p -- true
	status_is 125
	says "$background"
	# Looking waits for nobody.
	for command in 'show p' 'diff p' list; do
		# shellcheck disable=SC2086 # words
		run atoll $command --wait 0
		status_is 0
	done
	kill -TERM "$background"
	ended "$background"
	[ "$code" -eq 143 ]
}

@test "exit 6 of what this host cannot do" {
	two_dirs
	for dir in / /proc /sys; do
		fails 6 start p --dir "$dir"
	done
	run atoll doctor /proc
	status_is 6
	no_plans
	atoll start p --dir a
	ATOLL_HELPER=/nonexistent fails 125 exec p -- true
	ATOLL_HELPER=/nonexistent run atoll doctor a
	status_is 6
	is_root || return 0
	mkdir ro
	mount -t tmpfs none ro
	mounted=$work/ro
	mkdir ro/dir
	atoll start q --dir ro/dir
	atoll exec q -- sh -c 'echo x >"$ATOLL_RESOURCE_1/x"'
	mount -o remount,ro ro
	fails 125 exec q -- true
	run atoll exec q -- true
	says 'read-only'
	says 'remount,rw'
	fails 6 commit q
	fails 6 start r --dir ro/dir
	run atoll diff q
	status_is 0
	mount -o remount,rw ro
	run atoll commit q
	status_is 0
	[ "$(cat ro/dir/x)" = x ]
	atoll stop q
}

@test "exit 7 of what needs recovery, and nothing more is touched" {
	plan_at_work
	ATOLL_CRASHPOINT=txn.after-decision run atoll commit p
	[ "$status" -ne 0 ]
	manifest=$(find "$ATOLL_HOME/plans" -type f -name '*manifest*' | sort | head -n 1)
	[ -n "$manifest" ] || skip 'no crash points in this build'
	cp -p "$manifest" saved
	printf 'X' | dd of="$manifest" bs=1 seek=20 conv=notrunc status=none
	before=$(untouched a b)
	for command in commit rollback reset stop; do
		fails 7 "$command" p
	done
	run atoll recover
	status_is 7
	says 'hint: '
	run --separate-stderr atoll recover --json
	status_is 7
	jq -e '.left == ["p"]' <<<"$output"
	fails 125 exec p -- true
	[ "$(untouched a b)" = "$before" ]
	cat saved >"$manifest"
	run atoll recover
	status_is 0
	atoll stop p
	# A registry that cannot be read.
	rm -f "$ATOLL_HOME"/atoll.db-*
	head -c 8192 /dev/zero >"$ATOLL_HOME/atoll.db"
	store_is_broken=1
	for command in list 'show p' 'diff p' 'commit p' 'start q --dir a' clean recover; do
		# shellcheck disable=SC2086 # words
		fails 7 $command
	done
	fails 125 run --strategy copy --dir a -- true
}

@test "exit 124 when the command's time was up" {
	two_dirs
	atoll start p --dir a
	run atoll exec --timeout 0.2 p -- sleep 30
	status_is 124
	says 'time was up'
	run atoll run --strategy copy --timeout 0.2 --rollback --dir a -- sh -c 'echo x >"$ATOLL_RESOURCE_1/one"; sleep 30'
	status_is 124
	run atoll run --strategy copy --timeout 0.2 --commit --dir a -- sh -c 'echo x >"$ATOLL_RESOURCE_1/one"; sleep 30'
	status_is 124
	says 'nothing is committed'
	[ "$(cat a/one)" = one ]
}

@test "exit 126 and 127 of what cannot be run or found" {
	two_dirs
	echo text >a/plain
	atoll start p --dir a
	for command in 'exec p' 'run --strategy copy --dir a'; do
		# shellcheck disable=SC2086 # words
		{
			fails 127 $command -- atoll-no-such-program
			fails 127 $command -- /no/such/program
			fails 126 $command -- "$work/a/plain"
			fails 126 $command -- "$work/a"
		}
	done
	[ "$(atoll list --json | jq '.plans | length')" -eq 1 ]
}

@test "exit codes of the command are its own, signals included" {
	outside_tmp
	two_dirs
	atoll start p --dir a
	for code in 0 1 2 3 7 42 124 125 126 127 255; do
		run "-$code" atoll exec p -- sh -c "exit $code"
		run "-$code" atoll run --strategy copy --dir a -- sh -c "exit $code"
		printf '#!/bin/sh\nexit %s\n' "$code" >shell
		chmod +x shell
		SHELL=$work/shell run "-$code" atoll shell --ro "$work/shell" p
	done
	for signal in 1 6 9 11 15; do
		run atoll exec p -- sh -c "kill -$signal \$\$"
		status_is $((128 + signal))
		run atoll run --strategy copy --dir a -- sh -c "kill -$signal \$\$"
		status_is $((128 + signal))
	done
}

@test "exit 125 when the commit after a good command is refused, with its code where asked" {
	two_dirs
	run --separate-stderr atoll run --strategy copy --json --status-file status --commit --dir a -- \
		sh -c 'printf out; mkfifo "$ATOLL_RESOURCE_1/pipe"'
	status_is 125
	for object in "$(tail -n 1 <<<"$output")" "$(cat status)"; do
		jq -e '.format == "atoll.error/1" and .code == "policy" and .exit == 125 and .exit_code == 0' \
			<<<"$object"
		jq -e '.plan.name != ""' <<<"$object"
	done
	[ "$(head -n 1 <<<"$output")" = out ]
}

@test "cli the status file holds what --json says" {
	two_dirs
	atoll start p --dir a
	run atoll exec --status-file status p -- sh -c 'echo out; exit 9'
	status_is 9
	[ "$output" = out ]
	jq -e '.format == "atoll.exec/1" and .plan.name == "p" and .exit_code == 9 and .timed_out == false' status
	run atoll exec --status-file status --timeout 0.1 p -- sleep 20
	status_is 124
	jq -e '.exit_code == 124 and .timed_out' status
	run atoll exec --status-file status p -- sh -c 'kill -9 $$'
	jq -e '.exit_code == 137 and .term_signal == 9' status
	run atoll exec --status-file status p -- sh -c 'kill -INT $$'
	jq -e '.term_signal == 2' status
	run -127 atoll exec --status-file status p -- atoll-no-such-program
	jq -e '.format == "atoll.error/1" and .exit == 127' status
	run atoll exec --status-file status nobody -- true
	status_is 125
	jq -e '.code == "not-found"' status
	run atoll run --strategy copy --status-file status --commit --dir a -- sh -c 'echo x >"$ATOLL_RESOURCE_1/one"'
	status_is 0
	jq -e '.format == "atoll.run/1" and .decision == "committed" and .changes == 1 and .exit_code == 0' status
	SHELL=/bin/false run atoll shell --status-file status p
	status_is 1
	jq -e '.format == "atoll.shell/1" and .exit_code == 1' status
	# What cannot be written to is found out before anything is done.
	run atoll exec --status-file /nowhere/status p -- touch "$work/a/ran"
	status_is 125
	says '/nowhere/status'
	[ ! -e a/ran ]
	[ -z "$(atoll diff p)" ]
	run atoll exec --status-file /dev/full p -- true
	status_is 125
	says 'status file'
}

# lose_area: somebody tidies up where he should not.
lose_area() {
	area=$(atoll show p --json | jq -r '.sandboxes[0].area')
	chmod -R u+rwx "$area"
	rm -rf "$area"
}

@test "cli a removed area is told, and reset begins again" {
	for strategy in copy overlay; do
		mkdir "$strategy"
		echo one >"$strategy/file"
		if ! atoll start p --strategy "$strategy" --dir "$strategy"; then
			[ "$strategy" = overlay ] && continue
			return 1
		fi
		atoll exec p -- sh -c 'echo lost >"$ATOLL_RESOURCE_1/file"' || [ "$strategy" = overlay ]
		lose_area
		for command in diff commit; do
			fails 1 "$command" p
			run atoll "$command" p
			says 'atoll discard p'
		done
		fails 125 exec p -- true
		[ "$(cat "$strategy/file")" = one ]
		run atoll reset p
		status_is 0
		run atoll exec p -- sh -c 'echo again >"$ATOLL_RESOURCE_1/file"'
		if [ "$strategy" = copy ]; then
			status_is 0
			run atoll commit p
			status_is 0
			[ "$(cat copy/file)" = again ]
			# Undo data is not made again.
			lose_area
			fails 1 rollback p
		fi
		atoll stop --force p
	done
}

@test "err_04 cli restored and reset are two facts of each resource" {
	plan_at_work
	atoll commit p
	run --separate-stderr atoll rollback --json p
	status_is 0
	jq -e '[.participants[] | .resource_restored == true and .workspace_reset == true] | all' <<<"$output"
	run --separate-stderr atoll reset --json p
	jq -e '[.participants[] | .resource_restored == null] | all' <<<"$output"
}

@test "err_05 cli a cause is told once" {
	two_dirs
	atoll start p --dir a
	atoll exec p -- sh -c 'echo new >"$ATOLL_RESOURCE_1/one"'
	atoll commit p
	lose_area
	run atoll rollback p
	status_is 1
	[ "$(grep -o 'gone or damaged' <<<"$output" | wc -l)" -eq 1 ]
	atoll stop --force p
}

@test "err_06 the public header alone is enough to tell all codes apart" {
	codes=$(grep -oE '^	ATOLL_(OK|E_[A-Z_]*[A-Z])\b' "$ATOLL_SOURCE_ROOT/include/atoll.h")
	[ "$(wc -w <<<"$codes")" -ge 20 ]
	{
		echo '#include <atoll.h>'
		echo 'int kind(enum atoll_code c); int kind(enum atoll_code c) { switch (c) {'
		# shellcheck disable=SC2086 # words
		printf 'case %s:\n' $codes ATOLL_E_END_
		echo 'return 1; } return 0; }'
	} >all.c
	for language in c c++; do
		cc -x "$language" -Wall -Wextra -Werror -Wswitch-enum -I"$ATOLL_SOURCE_ROOT/include" -fsyntax-only all.c
	done
	# One left out is missed.
	sed -i '/ATOLL_E_POLICY/d' all.c
	run cc -Werror -Wswitch-enum -I"$ATOLL_SOURCE_ROOT/include" -fsyntax-only all.c
	[ "$status" -ne 0 ]
}

@test "err_07 cli weakened atomicity is a field and one warning" {
	two_dirs
	atoll start p --dir a --none b
	atoll exec p -- sh -c 'echo new >"$ATOLL_RESOURCE_1/one"'
	run --separate-stderr atoll commit --allow partial --json p
	status_is 0
	jq -e '.atomicity == "none" and ([.notes[] | select(.kind == "warning")] | length) == 1' <<<"$output"
	atoll rollback --allow partial p
	atoll stop --force p
	atoll start p --dir a
	atoll exec p -- sh -c 'echo new >"$ATOLL_RESOURCE_1/one"'
	run --separate-stderr atoll commit --json p
	jq -e '.atomicity == "full" and (.notes | length) == 0' <<<"$output"
}

@test "err_08 cli a success after a failure is one, and times are UTC in every zone" {
	export TZ=Asia/Kolkata
	plan_at_work
	atoll exec p -- sh -c 'mkfifo "$ATOLL_RESOURCE_1/pipe"'
	run atoll commit p
	status_is 4
	atoll exec p -- sh -c 'rm "$ATOLL_RESOURCE_1/pipe"'
	run --separate-stderr atoll commit --json p
	status_is 0
	history=$(atoll show --json p | jq -c .history)
	jq -e '[.[] | select(.what == "commit").code] == ["policy", "ok"]' <<<"$history"
	jq -e '[.[].at | endswith("Z")] | all' <<<"$history"
	jq -e '[.[].at] | . == sort' <<<"$history"
	# Not the wall clock's five and a half hours.
	created=$(atoll list --json | jq -r '.plans[0].created')
	age=$(($(date +%s) - $(date -d "$created" +%s)))
	[ "$age" -ge -5 ] && [ "$age" -le 120 ]
}
