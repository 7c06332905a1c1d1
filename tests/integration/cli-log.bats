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
