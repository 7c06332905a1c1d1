#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What happened: recorded, shown, and let go of again.

load cli

# sqlite SQL...: on the store's registry, as nobody but a test may.
sqlite() {
	sqlite3 "$ATOLL_HOME/atoll.db" "$@"
}

@test "log shows commands, commits, rollbacks and failures, newest first" {
	outside_tmp
	two_dirs
	run -0 atoll log
	says 'nothing has happened yet'
	atoll start p --dir a --strategy overlay
	atoll exec p -- sh -c 'echo x >a/one; echo y >a/new'
	run atoll exec p -- sh -c 'exit 3'
	run atoll exec p -- /no/such/program
	echo theirs >a/one
	run -3 atoll commit p
	echo one >a/one
	touch -d '2001-02-03 04:05:06.123456789' a/one
	run atoll rollback p
	run -0 atoll log p
	says 'exit 0, '
	says 'exit 3, '
	says '2 changes: sh -c echo x >a/one; echo y >a/new'
	says 'ENOENT: /no/such/program'
	says 'conflict'
	[[ ${lines[0]} == *' rollback '* ]]
	[[ ${lines[-1]} == *' start '* ]]
	run -0 atoll log --json p
	[ "$(jq -r .format <<<"$output" | sort -u)" = atoll.log/1 ]
	[ "$(jq -r .what <<<"$output" | tr '\n' ' ')" = 'rollback commit exec exec exec start ' ]
	[ "$(jq -r 'select(.exit_code == 0) | .changes' <<<"$output")" = 2 ]
	jq -es '[.[] | select(.what == "exec" and .exit_code != null)] | length == 2 and
		all(.max_rss_kb > 0 and .user_us >= 0 and .system_us >= 0 and .started <= .at)' <<<"$output"
	[ "$(jq -rs 'map(.at) == (map(.at) | sort | reverse)' <<<"$output")" = true ]
	run -0 atoll log --limit 2 p
	[ "${#lines[@]}" -eq 2 ]
}

@test "log of all plans, and of those that are gone" {
	two_dirs
	atoll start p --dir a
	atoll start q --dir b
	id=$(atoll show p --json | jq -r .plan.id)
	atoll stop p
	run -0 atoll log
	says ' p '
	says ' q '
	run -0 atoll log p
	says ' stop '
	[[ $output != *' q '* ]]
	run -0 atoll log "$id"
	says ' stop '
	atoll start p --dir a
	run -0 atoll log p
	[[ $output != *' stop '* ]]
	run -1 atoll log nobody
	says "no plan 'nobody'"
	run -2 atoll log --limit 0
	run -2 atoll log --limit -3
	run -2 atoll log --limit many
}

@test "log has no secrets and no control characters" {
	two_dirs
	atoll start p --dir a
	run atoll exec p -- sh -c true --password hunter2 TOKEN=hunter2 $'\033]0;x\007'
	run -0 atoll log p
	[[ $output != *hunter2* ]]
	[[ $output != *$'\033]'* ]]
	run -0 atoll log p --json
	[[ $output != *hunter2* ]]
}

@test "log copies are not counted" {
	two_dirs
	atoll start p --dir a
	atoll exec p -- true
	[ "$(atoll log --json p | jq -r 'select(.what == "exec") | .changes')" = null ]
	run -0 atoll log p
	[[ $output != *' changes'* ]]
}

@test "log lets go of what is too old or too much" {
	two_dirs
	atoll config set log.max-entries 100
	atoll start p --dir a
	sqlite "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
		INSERT INTO event (plan, at_ms, what, code, message) SELECT '0123456789abcdef', 1, 'old', 0, i FROM n"
	for _ in $(seq 70); do
		atoll reset p 2>/dev/null
	done
	left=$(sqlite 'SELECT count(*) FROM event')
	[ "$left" -ge 70 ] && [ "$left" -le 600 ]
	[ "$(sqlite "SELECT count(*) FROM event WHERE what = 'reset'")" -eq 70 ]
	atoll config set log.max-entries 1g
	atoll config set log.max-age 1d
	for _ in $(seq 70); do
		atoll reset p 2>/dev/null
	done
	[ "$(sqlite "SELECT count(*) FROM event WHERE what = 'old'")" -eq 0 ]
	[ "$(sqlite "SELECT count(*) FROM event WHERE what = 'reset'")" -eq 140 ]
}

@test "log keeps what belongs to a batch that is not finished" {
	two_dirs
	atoll config set log.max-entries 5
	atoll start p --dir a
	atoll start q --dir b
	atoll exec p -- sh -c 'echo x >"$ATOLL_RESOURCE_1/one"'
	in_background env ATOLL_CRASHPOINT=txn.after-decision "$ATOLL" commit p
	ended "$background"
	[ "$(atoll list --json | jq -r '.plans[] | select(.in_doubt) | .name')" = p ]
	before=$(atoll log p --json | wc -l)
	# Nothing may settle p meanwhile, as every command that changes something would.
	id=$(atoll show p --json | jq -r .plan.id)
	hold "$id.plan"
	for _ in $(seq 70); do
		atoll reset q 2>/dev/null
	done
	[ "$(atoll log q --json | wc -l)" -lt 70 ]
	[ "$(atoll log p --json | wc -l)" -eq "$before" ]
}

@test "log keeps what a command printed, as it came out, and says where" {
	outside_tmp
	two_dirs
	atoll start p --dir a
	run -0 atoll log p --json
	[ "$(jq -c 'select(.what == "exec")' <<<"$output")" = '' ]
	# What goes through is the same, and the exit status is the command's.
	head -c 3000000 /dev/urandom >data
	code=0
	atoll exec --transcript p -- sh -c 'cat; exit 3' <data >back 2>err || code=$?
	[ "$code" -eq 3 ]
	cmp data back
	[ ! -s err ]
	atoll exec --transcript p -- sh -c 'echo one; echo two >&2; printf "\033[1m"' >/dev/null 2>&1
	atoll exec p -- echo not-kept >/dev/null
	run -0 atoll log p
	[[ ${lines[0]} != *printed* ]]
	[[ ${lines[1]} == *'printed 12 bytes (--output 2)'* ]]
	# The two streams are apart until they are kept: only within each there is an order.
	[ "$(atoll log --output 2 | grep -o -e one -e two | sort | tr '\n' ' ')" = 'one two ' ]
	# On a terminal it can do nothing to it.
	run -0 script -qec "$ATOLL log --no-pager --output 2" /dev/null </dev/null
	says '\x1b[1m'
	[[ $output != *$'\033[1m'* ]]
	# Of what is too long the end is there, and it is said how much is not.
	run -0 --separate-stderr sh -c '"$ATOLL" log --output 1 >/dev/null'
	[[ $stderr == *'bytes were not kept'* ]]
	atoll log --output 1 >kept 2>/dev/null
	size=$(stat -c %s kept)
	[ "$size" -ge 524288 ]
	[ "$size" -le 1048576 ]
	tail -c "$size" data | cmp - kept
	run -0 atoll log p --json
	jq -es --argjson size "$size" 'map(select(.output.id == 1)) | .[0].output |
		.bytes == $size and .bytes + .left_out == 3000000' <<<"$output"
	run -1 atoll log --output 3
	says 'not kept'
	run -1 atoll log --output 99
	says 'has no command 99'
	# It goes with the plan.
	atoll stop --force p
	run -1 atoll log --output 2
}

@test "log transcripts: a reader that goes, a command that is killed, many of them" {
	outside_tmp
	two_dirs
	atoll start p --dir a
	code=$(set +o pipefail; { atoll exec --transcript p -- yes; echo $? >code; } | head -n 1 >/dev/null; cat code)
	[ "$code" -eq 141 ]
	in_background "$ATOLL" exec --transcript p -- sh -c 'echo begun; exec sleep 1000'
	wait_for_process 'sleep 1000'
	kill -KILL "$background"
	ended "$background"
	run -0 atoll exec --transcript p -- echo next
	[ "$output" = next ]
	none_run
	# With a limit of its own, and no more of them than 64.
	atoll config set exec.transcript-max 64k
	atoll exec --transcript p -- head -c 1000000 /dev/zero >/dev/null
	[ "$(atoll log --output 3 2>/dev/null | wc -c)" -le 65536 ]
	for _ in $(seq 70); do
		atoll exec --transcript p -- true
	done
	area=$(atoll show p --json | jq -r '.sandboxes[0].area')
	[ "$(find "$area/output" -mindepth 1 -maxdepth 1 | wc -l)" -eq 64 ]
}
