#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Settings: where they are read from, who may write them, and that they count.

load cli

file=config/atoll/config

user_file() {
	mkdir -p "$BATS_TEST_TMPDIR/config/atoll"
	cat >"$BATS_TEST_TMPDIR/$file"
}

system_file() {
	cat >"$ATOLL_CONFIG_SYSTEM"
}

@test "cfg list, get, set and unset, for people and for programs" {
	run -0 atoll config
	says 'undo.retention=24h'
	run -0 --separate-stderr atoll config set core.pager 'less -S'
	[ -z "$output" ]
	[[ $stderr == "core.pager is less -S now ($BATS_TEST_TMPDIR/$file)" ]]
	[ "$(git config -f "$BATS_TEST_TMPDIR/$file" core.pager)" = 'less -S' ]
	[ "$(atoll config get Core.Pager)" = 'less -S' ]
	[ "$(atoll config get --show-origin core.pager)" = "$BATS_TEST_TMPDIR/$file:2	less -S" ]
	[ "$(atoll config get --show-origin color.ui)" = "default	auto" ]
	[ "$(atoll config get core.pager --json | jq -r '[.format, .setting.value, .setting.origin, .setting.line] | join(" ")')" = \
		"atoll.config/1 less -S $BATS_TEST_TMPDIR/$file 2" ]
	[ "$(atoll config list --json | jq -r '.settings[] | select(.key == "log.max-age") | .value, .origin')" = $'90d\ndefault' ]
	[ "$(atoll config set exec.timeout 15m --json | jq -r '.setting.value')" = 15m ]
	run -0 atoll config unset core.pager
	[ -z "$(atoll config get core.pager)" ]
	run -1 atoll config unset core.pager
	says 'does not set core.pager'
	[ ! -e "$ATOLL_HOME" ]
}

@test "cfg a change keeps comments, order and all other lines" {
	printf '# mine\n[exec]\n\ttimeout = 15m ; long enough\n[other "thing"]\n\tx = 1\n' | user_file
	atoll config set exec.timeout 20m
	atoll config set exec.min-free 32m
	[ "$(cat "$BATS_TEST_TMPDIR/$file")" = '# mine
[exec]
	timeout = 20m ; long enough
	min-free = 32m
[other "thing"]
	x = 1' ]
	chmod 600 "$BATS_TEST_TMPDIR/$file"
	atoll config unset exec.timeout
	[ "$(stat -c %a "$BATS_TEST_TMPDIR/$file")" = 600 ]
	run -0 atoll config list
	says "unknown, so without effect: $BATS_TEST_TMPDIR/$file:5: other.thing.x"
	[ "$(atoll config list --json | jq -r '.unknown[0]')" = "$BATS_TEST_TMPDIR/$file:5: other.thing.x" ]
}

@test "cfg a link to the file stays one" {
	echo '[color]' >"$BATS_TEST_TMPDIR/mine"
	mkdir -p "$BATS_TEST_TMPDIR/config/atoll"
	ln -s ../../mine "$BATS_TEST_TMPDIR/$file"
	atoll config set color.ui never
	[ -L "$BATS_TEST_TMPDIR/$file" ]
	grep -q 'ui = never' "$BATS_TEST_TMPDIR/mine"
}

@test "cfg unknown keys and wrong values are refused" {
	run -2 atoll config get core.paer
	says "did you mean 'core.pager'?"
	run -2 atoll config set policy.allow-special true
	says "there is no setting 'policy.allow-special'"
	for pair in 'exec.timeout soon' 'color.ui purple' 'exec.min-free lots' \
		'log.max-entries many' 'policy.deny-escaping-links perhaps' 'log.max-age 3y'; do
		# shellcheck disable=SC2086 # words
		run -2 atoll config set $pair
		says 'is not'
		# shellcheck disable=SC2086
		[ "$(atoll config set $pair --json | jq -r .code)" = invalid ]
	done
	run -2 atoll config lsit
	says "did you mean 'list'?"
	run -2 atoll config get
	run -2 atoll config set core.pager
	run -2 atoll config unset core.pager x
	[ ! -e "$BATS_TEST_TMPDIR/config" ]
}

@test "cfg the user's file wins over the machine's, an option over both" {
	system_file <<<'[color] ui = always'
	[ "$(atoll config get color.ui)" = always ]
	[[ $(atoll doctor .) == *$'\033['* ]]
	user_file <<<'[color] ui = never'
	[ "$(atoll config get color.ui)" = never ]
	[[ $(atoll doctor .) != *$'\033['* ]]
	[[ $(atoll doctor --color always .) == *$'\033['* ]]
	atoll config --system set color.ui auto
	grep -q 'ui = auto' "$ATOLL_CONFIG_SYSTEM"
	[ "$(atoll config get color.ui)" = never ]
}

@test "cfg what narrows counts wherever it stands" {
	two_dirs
	atoll start p --dir a
	atoll exec p -- sh -c 'ln -s /etc/passwd "$ATOLL_RESOURCE_1/out"'
	system_file <<<'[policy] deny-escaping-links'
	user_file <<<'[policy] deny-escaping-links = false'
	[ "$(atoll config get policy.deny-escaping-links)" = true ]
	run -4 atoll commit p
	[ ! -e a/out ] && [ ! -L a/out ]
	rm "$ATOLL_CONFIG_SYSTEM"
	run -0 atoll commit p
	[ -L a/out ]
}

@test "cfg a file inside a resource is never read" {
	two_dirs
	for where in a .; do
		mkdir -p "$where/.atoll" "$where/.config/atoll" "$where/atoll"
		for name in .atoll/config .config/atoll/config atoll/config .atollconfig; do
			printf '[color] ui = always\n[core] pager = touch %s/ran\n[exec\n' "$work" >"$where/$name"
		done
	done
	atoll start p --dir a
	[ "$(cd a && atoll config get --show-origin color.ui)" = 'default	auto' ]
	(cd a && atoll list)
	# Leaks cannot be looked for while somebody else traces.
	ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 run -0 strace -f -e trace=openat,openat2,open -o "$BATS_TEST_TMPDIR/opened" "$ATOLL" diff p
	! grep -E "$work/(a/)?(\.atoll|\.config|atoll)/" "$BATS_TEST_TMPDIR/opened"
	[ ! -e ran ]
	rm -r a/.atoll a/.atollconfig .atoll .atollconfig
}

@test "cfg a file that others could have written is left out, and said so" {
	user_file <<<'[color] ui = always'
	chmod 666 "$BATS_TEST_TMPDIR/$file"
	run -0 atoll config get color.ui
	says 'is not used: it can be written to by others'
	says auto
	run -1 atoll config set color.ui never
	says 'nothing was changed'
	chmod 644 "$BATS_TEST_TMPDIR/$file"
	[ "$(atoll config get color.ui)" = always ]
	rm "$BATS_TEST_TMPDIR/$file"
	mkfifo "$BATS_TEST_TMPDIR/$file"
	run -0 timeout 60 "$ATOLL" config get color.ui
	says 'is no regular file'
	rm "$BATS_TEST_TMPDIR/$file"
	if is_root; then
		user_file <<<'[color] ui = always'
		chown 12345 "$BATS_TEST_TMPDIR/$file"
		run -0 atoll config get color.ui
		says 'belongs to somebody else'
		rm "$BATS_TEST_TMPDIR/$file"
		chmod 755 "$BATS_TEST_TMPDIR"
		system_file <<<'[color] ui = always'
		chown 12345 "$ATOLL_CONFIG_SYSTEM"
		run -0 atoll config get color.ui
		says 'belongs to somebody else'
	fi
}

@test "cfg a line that cannot be understood stops everything but help" {
	user_file <<<$'[exec]\ntimeout = "15m'
	run -2 atoll list
	says "$BATS_TEST_TMPDIR/$file:2: this is no line of a config file"
	run -2 atoll config set color.ui never
	says 'nothing was changed'
	run -0 atoll help
	run -0 atoll version
	user_file <<<$'[exec]\ntimeout = soon'
	run -2 atoll list
	says "$BATS_TEST_TMPDIR/$file:2: exec.timeout: 'soon' is not a time"
	says 'atoll config unset exec.timeout'
	run -2 atoll config list
	run -0 atoll config unset exec.timeout
	run -0 atoll list
}

@test "cfg a file that is no such file, a time that no clock has, and nobody's home" {
	printf '[core\n' | user_file
	run -2 atoll config list
	says "$BATS_TEST_TMPDIR/$file:1"
	says 'hint: '
	printf '' | user_file
	run -2 atoll config set undo.retention 9223372036854775807w
	run -2 atoll config set undo.retention 99999999999999w
	says 'undo.retention'
	[ ! -s "$BATS_TEST_TMPDIR/$file" ]
	# A user that the machine does not know, and whose environment names no place.
	if is_root; then
		run -1 setpriv --reuid=4242 --regid=4242 --clear-groups env -u HOME -u XDG_CONFIG_HOME \
			"$ATOLL" config set core.pager less
	else
		run -1 unshare --map-user=4242 env -u HOME -u XDG_CONFIG_HOME "$ATOLL" config set core.pager less
	fi
	says 'there is no home directory'
	says 'XDG_CONFIG_HOME'
}

@test "cfg the settings count" {
	two_dirs
	user_file <<-'END'
		[exec] timeout = 1s
		[start] strategy = none
		[lock] wait = 0
	END
	"$ATOLL" start p --dir a
	[ "$(atoll show p --json | jq -r '.sandboxes[0].strategy')" = none ]
	run -124 atoll exec p -- sleep 20
	run -0 atoll exec --timeout 20 p -- sleep 1.2
	id=$(atoll show p --json | jq -r .plan.id)
	hold "$id.plan"
	run -5 atoll reset p
	says hold-lock
}

@test "cfg many changes at once are all made" {
	in_background bash -c 'for i in $(seq 20); do "$ATOLL" config set exec.timeout ${i}s; done'
	for i in $(seq 20); do
		"$ATOLL" config set log.max-age "${i}d" 2>/dev/null
	done
	ended "$background"
	[ "$code" -eq 0 ]
	[ "$(atoll config get exec.timeout)" = 20s ]
	[ "$(atoll config get log.max-age)" = 20d ]
	[ "$(find "$BATS_TEST_TMPDIR/config/atoll" -type f | wc -l)" -eq 1 ]
}

@test "cfg undo.retention says how long a commit can be undone" {
	two_dirs
	atoll start p --dir a
	atoll start q --dir b
	for value in 'p 1s' 'p never' 'q 1h' 'q never'; do
		plan=${value% *}
		atoll config set undo.retention "${value#* }"
		atoll exec "$plan" -- sh -c "echo $value >\"\$ATOLL_RESOURCE_1/new\""
		atoll commit "$plan"
	done
	sleep 1.1
	atoll clean
	[ "$(atoll show q --json | jq .undoable_commits)" -eq 2 ]
	# The second could still be; but a rollback undoes all that a plan committed, or nothing.
	[ "$(atoll show p --json | jq .undoable_commits)" -eq 0 ]
	[ "$(atoll log p --json | jq -r .what | grep -c '^release$')" -eq 1 ]
}
