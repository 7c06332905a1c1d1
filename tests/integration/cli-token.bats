#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Keys: made, listed, revoked; and the audit log of that.

load cli

@test "token new prints the key once and alone" {
	run -0 --separate-stderr atoll token new ci --scope agent --expires 30d
	[[ $output =~ ^atk_[0-9A-Za-z]{49}$ ]]
	[ "${#lines[@]}" -eq 1 ]
	secret=$output
	[[ $stderr == *'made key ci'*'scope agent, in force until 20'* ]]
	[[ $stderr != *"$secret"* ]]
	# Nowhere in the store, nor in what is said later.
	run -1 grep -rF -- "${secret:4:20}" "$ATOLL_HOME"
	run -0 atoll token list
	[[ $output == *'key    agent   in force  ci'* ]]
	[[ $output != *"${secret:4:20}"* ]]
	# Its SHA-256 is.
	sum=$(printf %s "$secret" | sha256sum | cut -d ' ' -f 1)
	[ "$(sqlite3 "$ATOLL_HOME/atoll.db" "SELECT name FROM credential WHERE sha256 = '$sum'")" = ci ]
}

@test "token new refuses what is no key" {
	run -2 atoll token new
	says 'which name?'
	run -2 atoll token new ci
	says 'which --scope'
	run -2 atoll token new ci --scope root
	says 'is none of: admin, agent, review'
	run -2 atoll token new 'a b' --scope agent
	says "cannot be called 'a b'"
	for time in 0 soon -1d 99999d; do
		run -2 atoll token new ci --scope agent "--expires=$time"
	done
	run -0 atoll token new ci --scope agent --expires never
	run -1 atoll token new ci --scope admin
	says "there is a key 'ci' already"
	run -2 atoll token list ci
	run -2 atoll token
}

@test "token revoke by name and by id, once" {
	atoll token new a --scope agent
	atoll token new b --scope review
	id=$(atoll token list --json | jq -r '.credentials[] | select(.name == "b").id')
	run -0 atoll token revoke a
	says 'revoked key a'
	run -1 atoll token revoke a
	says "there is no key 'a'"
	run -0 atoll token revoke "$id"
	run -0 atoll token revoke "$id"
	says 'was revoked before'
	[ "$(atoll token list --json | jq -c '[.credentials[] | .in_force]')" = '[false,false]' ]
	# The name is free again.
	run -0 atoll token new a --scope agent
}

@test "what is done to keys is in the audit log, and changes of it show" {
	run -0 atoll log --audit
	[ -z "$output" ]
	atoll token new a --scope agent
	run -1 atoll token new a --scope agent
	atoll token revoke a
	[ "$(atoll log --audit | jq -r '[.by, .what, .outcome] | join(" ")')" = \
		"cli token new a --scope agent asked
cli token new a --scope agent ok
cli token new a --scope agent asked
cli token new a --scope agent exists
cli token revoke a asked
cli token revoke a ok" ]
	[ "$(stat -c %a "$ATOLL_HOME/audit.log")" = 600 ]
	run -0 atoll log --audit --check
	[[ $output == '6 lines, 0 wrong, last '* ]]
	last=${output##* }
	[ "$last" = "$(tail -n 1 "$ATOLL_HOME/audit.log" | sha256sum | cut -d ' ' -f 1)" ]
	sed -i '4d' "$ATOLL_HOME/audit.log"
	run -1 atoll log --audit --check
	says 'audit.log:4: it does not follow the line before'
	run -2 atoll log --check
	run -2 atoll log --audit --limit 3
}

@test "no key is made that cannot be recorded" {
	atoll token new a --scope agent
	rm "$ATOLL_HOME/audit.log"
	mkdir "$ATOLL_HOME/audit.log"
	run -1 --separate-stderr atoll token new b --scope agent
	[ -z "$output" ]
	[[ $stderr == *'audit.log'* ]]
	run -1 atoll token revoke a
	[ "$(atoll token list --json | jq -c '[.credentials[] | [.name, .in_force]]')" = '[["a",true]]' ]
	rmdir "$ATOLL_HOME/audit.log"
}
