#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# exec: the command is as if it had been called directly.

load cli

plan_p() {
	two_dirs
	atoll start p --dir a --dir b >/dev/null 2>&1
}

# in_a_background COMMAND...: in plan p, begun in its resource a. What the command writes there
# appears in $view.
in_a_background() {
	view=$(atoll path p a 2>/dev/null)
	cd a
	in_background "$@"
	cd ..
}

# until_told: a command for it, which says in `started` that it runs and waits for `ended`.
until_told='echo >started; while [ ! -e ended ]; do sleep 0.01; done'

@test "cli exec passes the exit status through" {
	plan_p
	for code in 0 1 2 3 7 42 255; do
		run atoll exec p -- sh -c "exit $code"
		status_is "$code"
	done
	run atoll exec p -- sh -c 'kill -TERM $$'
	status_is 143
	run atoll exec p -- sh -c 'kill -KILL $$'
	status_is 137
	run -127 atoll exec p -- atoll-no-such-command
	status_is 127
	run atoll exec p -- "$work/a/one"
	status_is 126
	run atoll exec p sh -c 'exit 9'
	status_is 9
}

@test "cli exec changes the copy, not the original" {
	plan_p
	before=$(untouched a b)
	atoll exec p -- sh -c 'cd "$ATOLL_RESOURCE_1" && echo x >one && rm -r sub && mkdir new'
	[ "$(untouched a b)" = "$before" ]
	run atoll diff p
	says "M  $work/a/one"
	says "D  $work/a/sub"
	says "A  $work/a/new"
}

@test "cli exec runs in the current directory, and what it does there is done to the copy" {
	plan_p
	cd a/sub
	run atoll exec p -- sh -c 'cat deep; echo changed >deep; pwd'
	status_is 0
	[ "${lines[0]}" = deep ]
	[ "${lines[1]}" = "$work/a/sub" ]
	[ "$(cat deep)" = deep ]
	[ "$(cat "$(atoll path p "$work/a" 2>/dev/null)/sub/deep")" = changed ]
	[ "$(atoll exec p -- sh -c 'echo "$ATOLL_RESOURCE_1"')" = "$work/a" ]
	[ "$(ATOLL_X=1 atoll exec p -- sh -c 'echo $ATOLL_PLAN')" = p ]
}

@test "cli exec leaves input and output alone" {
	plan_p
	head -c 300000 /dev/urandom >data
	atoll exec p -- cat <data >back
	cmp data back
	atoll exec p -- sh -c 'echo out; echo err >&2' >out 2>err
	[ "$(cat out)" = out ]
	[ "$(cat err)" = err ]
	[ "$(atoll exec p -- sh -c 'test -t 0; echo $?' </dev/null)" = 1 ]
}

@test "cli exec on a terminal keeps it one" {
	plan_p
	run script -qec "'$ATOLL' exec p -- sh -c 'test -t 0 && test -t 1 && test -t 2 && stty -a >/dev/null; echo tty=\$?'" /dev/null </dev/null
	says 'tty=0'
	says 'next: atoll diff p'
}

@test "cli exec ends after its time with 124" {
	plan_p
	run atoll exec p --timeout 0.2 -- sh -c 'sleep 611'
	status_is 124
	run atoll exec p --timeout=0.2 -- sh -c 'trap "exit 0" TERM; sleep 611 & wait'
	status_is 124
	run atoll exec p --timeout 60 -- true
	status_is 0
	# Less than it takes to begin.
	for _ in 1 2 3 4 5; do
		run atoll exec p --timeout 0.001 -- sleep 611
		status_is 124
	done
	run atoll exec p -- true
	status_is 0
}

@test "cli exec --json ends with one object" {
	plan_p
	run atoll exec p --json -- sh -c 'printf "no newline"; exit 3'
	status_is 3
	[ "${lines[0]}" = 'no newline' ]
	[ "$(tail -n 1 <<<"$output" | jq -r '[.format, .exit_code, .timed_out] | join(" ")')" = 'atoll.exec/1 3 false' ]
	run -127 atoll exec p --json -- atoll-no-such-command
	status_is 127
	[ "$(jq -r '[.format, .code, .exit, .cause.errno_name] | join(" ")' <<<"$output")" = 'atoll.error/1 ENOENT 127 ENOENT' ]
}

@test "der_14 cli exec leaves no process behind and no lock" {
	plan_p
	in_a_background "$ATOLL" exec p -- sh -c "setsid sh -c 'trap \"\" HUP TERM; echo >daemon; sleep 612' </dev/null >/dev/null 2>&1 & $until_told"
	wait_for "$view/started"
	wait_for "$view/daemon"
	wait_for_process 'sleep 612'
	touch "$view/ended"
	ended "$background"
	[ "$code" -eq 0 ]
	run ! grep 'sleep 612' <<<"$(processes)"
	run atoll exec p --wait 0 -- true
	status_is 0
}

@test "cli exec leaves nothing of the kernel's own beside what was written" {
	plan_p
	run atoll exec p -- sh -c 'echo x >>"$0"' "$work/a/one"
	status_is 0
	# Directories that nobody may look into would be of the kernel, too.
	run find "$ATOLL_HOME/plans" -name incompat
	status_is 0
	! grep -E ' ([3-9]|1[1-9]) -> ' <<<"$output"
	run atoll exec p -- cat "$work/a/one"
	status_is 0
}

@test "der_14 cli exec gives the command none of its descriptors" {
	plan_p
	# The listing has a descriptor of its own for the directory; bats adds some from outside.
	atoll exec p -- ls -l /proc/self/fd >fds 3>&- 4>&- 5>&- 6>&-
	run ! grep -e "$ATOLL_HOME" -e memfd -e atoll.db fds
	[ "$(grep -c -e '->' fds)" -eq 4 ]
}

@test "cmd_01 cli two commands run one after the other and say for whom they wait" {
	plan_p
	in_a_background "$ATOLL" exec p -- sh -c "$until_told"
	wait_for "$view/started"
	run atoll exec p --wait 0 -- true
	status_is 125
	says "$background"
	run atoll exec p --wait 0.4 -- true
	status_is 125
	says 'waiting for plan'
	run atoll commit p --wait 0.1
	status_is 5
	says "$background"
	run atoll commit p --wait 0.1 --json
	status_is 5
	jq -e '.format == "atoll.error/1" and .exit == 5' <<<"$(grep format <<<"$output")"
	# Looking takes no lock.
	run atoll diff p
	status_is 0
	run atoll show p
	status_is 0
	touch "$view/ended"
	ended "$background"
	run atoll exec p --wait 0 -- true
	status_is 0
}

@test "cmd_05 cli a plan does not wait for another" {
	plan_p
	mkdir c
	atoll start q --dir c
	in_a_background "$ATOLL" exec p -- sh -c "$until_told"
	wait_for "$view/started"
	run atoll exec q --wait 0 -- true
	status_is 0
	touch "$view/ended"
	ended "$background"
}

@test "der_10 cli exec killed takes its command along" {
	plan_p
	in_a_background "$ATOLL" exec p -- sh -c 'trap "" TERM HUP INT; sleep 613'
	wait_for_process 'sleep 613'
	kill -KILL "$background"
	ended "$background"
	# The lock is free again only when nothing of it is left.
	run atoll exec p --wait 60 -- true
	status_is 0
	run ! grep 'sleep 613' <<<"$(processes)"
}

@test "cli exec passes signals on" {
	plan_p
	for signal in TERM HUP INT USR1; do
		in_a_background env --default-signal=INT,QUIT "$ATOLL" exec p -- sh -c \
			"trap 'exit 40' $signal; echo >ready.$signal; while :; do sleep 0.02; done"
		wait_for "$view/ready.$signal"
		kill "-$signal" "$background"
		ended "$background"
		[ "$code" -eq 40 ]
	done
}

@test "cli exec that waits ends when it is told to" {
	plan_p
	in_a_background "$ATOLL" exec p -- sh -c "$until_told"
	holder=$background
	wait_for "$view/started"
	in_background "$ATOLL" exec p -- true
	for _ in $(seq 3000); do
		grep -q 'waiting for plan' "$BATS_TEST_TMPDIR/background.out" && break
		sleep 0.01
	done
	kill -TERM "$background"
	ended "$background"
	[ "$code" -eq 143 ]
	touch "$view/ended"
	ended "$holder"
}

@test "cli inside a plan its own commands are refused, not waited for" {
	# The command sees neither a store nor a program that lies below /tmp.
	outside_tmp
	two_dirs
	cp "$ATOLL" a/atoll
	atoll start p --dir a >/dev/null 2>&1
	run atoll exec p -- "$work/a/atoll" exec p --wait 5 -- true
	status_is 125
	says 'atoll: atoll cannot be used inside a plan (p): run it outside'
	says 'hint: leave the plan'
	run atoll exec p -- "$work/a/atoll" commit p --wait 5
	status_is 1
	run atoll exec p -- "$work/a/atoll" show p
	status_is 1
	says 'atoll cannot be used inside a plan (p): run it outside'
	# A store of its own is another matter.
	run atoll exec p -- env ATOLL_HOME="$work/a/own" "$work/a/atoll" list
	status_is 0
}

@test "cli exec leads to no agent, no bus, no store" {
	plan_p
	export SSH_AUTH_SOCK=/tmp/agent DBUS_SESSION_BUS_ADDRESS=unix:path=/x XDG_RUNTIME_DIR=/run/x
	run atoll exec p -- env
	status_is 0
	for name in ATOLL_HOME SSH_AUTH_SOCK DBUS_SESSION_BUS_ADDRESS XDG_RUNTIME_DIR; do
		[[ "$output" != *"$name="* ]]
	done
	says 'ATOLL_PLAN=p'
}

fail() {
	echo "$*"
	return 1
}

# The four sorts of place: there already, missing in what can be written to by nobody, in the root, and in
# what is private to the plan.
@test "cli exec hands the pipe of make's jobserver on, and no other descriptor" {
	two_dirs
	echo 'ls -l /proc/$$/fd' >a/open
	printf 'all:\n\t+@"$(ATOLL)" exec p -- sh a/open\n\t+@"$(ATOLL)" exec p -- $(MAKE) -C a -f inner\n' >makefile
	printf 'all: x y z\n%%:\n\t@echo $@\n' >a/inner
	atoll start p --dir a --dir b >/dev/null 2>&1
	exec 8<a/one
	# Since 4.4 it is a FIFO, which is another test's, unless it is asked for.
	pipe=$(make --help | grep -o -- '--jobserver-style=' || true)
	run env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make --no-print-directory -j3 ${pipe:+"${pipe}pipe"}
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" != *"jobserver unavailable"* ]]
	[ "$(grep -Ec ' ([3-9]|1[1-9]) -> pipe:' <<<"$output")" -eq 2 ]
	[ "$(grep -Ec ' ([3-9]|1[1-9]) -> ' <<<"$output")" -eq 2 ]
	[ "$(grep -c '^[xyz]$' <<<"$output")" -eq 3 ]
	# Numbers that make closed, or that are no pipe, are nobody's.
	run -0 env MAKEFLAGS='-j --jobserver-auth=8,9' "$ATOLL" exec p -- sh a/open
	! grep -E ' ([3-9]|1[1-9]) -> ' <<<"$output"
	# High ones, where the helper has its own.
	mkfifo tokens
	exec 7<>tokens
	printf + >&7
	for numbers in 3,4 5,6 13,14 14,13 20,21 21,40; do
		run -0 --separate-stderr bash -c "exec ${numbers%,*}<>tokens ${numbers#*,}>&7 7>&-
			MAKEFLAGS='x --jobserver-auth=1,1 --jobserver-auth=$numbers' exec '$ATOLL' exec p -- \
			bash -c 'read -rN1 -u ${numbers%,*} t; printf \$t >&${numbers#*,}; echo got \$t'"
		[ "$output" = 'got +' ] || fail "$numbers: $output $stderr"
		run ! bash -c "exec ${numbers%,*}<>tokens ${numbers#*,}>&7 7>&-
			MAKEFLAGS='x --jobserver-auth=$numbers' exec '$ATOLL' exec p -- atoll-no-such-command"
		[ "$status" -eq 127 ]
	done
}

@test "cli exec shows the FIFO of make's jobserver, and no other" {
	plan_p
	mkfifo tokens other
	exec 7<>tokens 8<>other
	printf + >&7
	export MAKEFLAGS="-j3 --jobserver-auth=fifo:$work/tokens"
	run -0 --separate-stderr atoll exec p -- bash -c 'exec 3<>"$1/tokens"; read -rN1 -u 3 t; printf "$t" >&3; echo "got $t"' - "$work"
	[ "$output" = 'got +' ]
	read -rN1 -t 5 -u 7 token
	[ "$token" = + ]
	run atoll exec p -- bash -c 'exec 3<>"$1/other" && echo x >&3' - "$work"
	run ! read -t 0 -u 8
	# In a resource it is a copy.
	mkfifo a/tokens
	MAKEFLAGS="--jobserver-auth=fifo:$work/a/tokens" run -0 --separate-stderr atoll exec p -- true
	MAKEFLAGS="--jobserver-auth=fifo:$work/nothing" run -0 --separate-stderr atoll exec p -- true
}

@test "cli exec --at shows the directory elsewhere, and what is done there is done to the copy" {
	plan_p
	export HOME=$work/own
	mkdir elsewhere "$HOME"
	echo foreign >elsewhere/theirs
	for place in "$work/elsewhere" /srv/atoll-no-such/x /atoll-no-such/deep/x /tmp/atoll-at/x "$HOME/at/x"; do
		cd a
		run -0 atoll exec p --at "$place" -- sh -c 'pwd; echo "$ATOLL_RESOURCE_1"; cat one; echo >>made'
		[ "$output" = "$place
$place
one" ] || fail "$place: $output"
		cd ..
		[ ! -e a/made ] || fail "$place: the original changed"
	done
	[ ! -e /atoll-no-such ] && [ ! -e /srv/atoll-no-such ] && [ ! -e /tmp/atoll-at ] && [ ! -e "$HOME/at" ]
	[ "$(ls elsewhere)" = theirs ]

	# A place inside of it, the rest of the system around it, its own path empty, and nothing to write to.
	run -0 atoll exec p --at /atoll-no-such/x --cwd "$work/a/sub" -- sh -c 'pwd; ls -A "$1" 2>/dev/null; ls /usr/bin/env /proc/self/fd/0 && [ -c /dev/null ] && [ -d /etc ]; (echo >/atoll-no-such/y) 2>/dev/null || echo refused' - "$work/a"
	[[ "$output" = "/atoll-no-such/x/sub
/proc/self/fd/0
/usr/bin/env"*refused ]] || fail "$output"

	atoll commit p --yes
	[ "$(wc -l <a/made)" = 5 ]
}

@test "cli exec --at does not cover what a command needs, and says so" {
	plan_p
	cd a
	for place in /home /usr /usr/bin /etc/x /proc/1/x /var "$work" "$work/a/in" "$work/b" "$ATOLL_HOME/x"; do
		run -0 --separate-stderr atoll exec p --at "$place" -- pwd
		[ "$output" = "$work/a" ] || fail "$place: $output"
		[[ "$stderr" = *"'$place' "*"; the directory is at its own path"* ]] || fail "$place: $stderr"
	done
	echo >"$work/file"
	ln -s nowhere "$work/dangling"
	for place in "$work/file" "$work/file/x" "$work/dangling/x" "$work/dangling"; do
		run -0 --separate-stderr atoll exec p --at "$place" -- pwd
		[[ "$stderr" = *"'$place' cannot be a directory here"* ]] || fail "$place: $stderr"
	done
	for place in '' / x ./x /x/ /x//y /x/./y /x/../y; do
		run -125 atoll exec p --at "$place" -- pwd
	done
	# What would have to be shown beside it, one by one, is more than that.
	[ "$(ls /var/lib/dpkg/info | wc -l)" -gt 520 ]
	run -0 --separate-stderr atoll exec p --at /var/lib/dpkg/info/x -- pwd
	[[ "$stderr" = *"cannot be made beside what is"* ]] || fail "$stderr"
	# In the real home nothing is made.
	export HOME=$work/own
	mkdir "$HOME"
	run -0 --separate-stderr atoll exec p --home real --at "$HOME/at/x" -- pwd
	[[ "$stderr" = *"what would hold it is shown as it is"* ]]
	[ ! -e "$HOME/at" ]
}

@test "cli exec --at a directory of the plan's own /tmp, and without a directory in the plan" {
	plan_p
	atoll exec p -- sh -c 'mkdir /tmp/there; echo hidden >/tmp/there/x'
	cd a
	run -0 atoll exec p --at /tmp/there -- sh -c 'pwd; cat one; ls'
	[ "$output" = "/tmp/there
one
one
sub
two" ] || fail "$output"
	cd ..
	[ "$(atoll exec p -- cat /tmp/there/x)" = hidden ]
	sqlite3 dev.db 'CREATE TABLE t(x)'
	"$ATOLL" start q --sqlite dev.db >/dev/null 2>&1
	run -0 --separate-stderr atoll exec q --at /atoll-no-such -- sh -c 'pwd; ls -d /atoll-no-such || true'
	[ "$output" = "$work" ] || fail "$output"
}

@test "cli exec --at hides what is hidden, under either name" {
	export HOME=$work/own
	mkdir -p "$HOME/.ssh" "$HOME/sec"
	echo secret | tee "$HOME/.ssh/id" "$HOME/key" "$HOME/sec/k" >/dev/null
	atoll start h --strategy overlay --dir "$HOME" >/dev/null 2>&1
	cd "$HOME"
	for place in "$work/elsewhere" /atoll-no-such/x; do
		run -0 atoll exec h --at "$place" --hide "$HOME/key" --hide "$place/sec" -- \
			sh -c 'pwd; cat .ssh/id key sec/k "$1/.ssh/id" "$1/key" 2>/dev/null || true' - "$HOME"
		if ! is_root; then
			[ "$output" = "$place" ] || fail "$output"
		fi
		[[ "$output" != *secret* ]] || fail "$place: $output"
	done
}

@test "cli exec --at stays away from mounts, given paths and what is in the plan's /tmp" {
	plan_p
	mkdir given
	for how in "--rw $work/given" "--ro $work/given"; do
		run -0 --separate-stderr atoll exec p $how --at "$work/given/new" -- true
		[[ "$stderr" = *"'$work/given/new' is not there, and what would hold it is shown"* ]] || fail "$stderr"
		[ ! -e given/new ]
	done
	atoll exec p -- sh -c 'ln -s /etc /tmp/atoll-link; mkdir /tmp/atoll-dir; : >/tmp/atoll-dir/x'
	for place in /tmp/atoll-link /tmp/atoll-link/x /tmp/atoll-dir/x; do
		run -0 --separate-stderr atoll exec p --at "$place" -- true
		[[ "$stderr" = *"'$place' is not there, and cannot be made"* ]] || fail "$place: $stderr"
	done
	# The first directory, whatever comes before it.
	printf 'create table t(a);' | sqlite3 first.db
	mkdir dir
	atoll start s --sqlite first.db --dir dir >/dev/null 2>&1
	run -0 atoll exec s --at /atoll-no-such/x --cwd "$work/dir" -- pwd
	[ "$output" = /atoll-no-such/x ] || fail "$output"
}

@test "cli exec --at the directory's own path, by any name, has it there without a word" {
	plan_p
	ln -s a link
	for place in "$work/a" "$work/link"; do
		cd a
		run -0 --separate-stderr atoll exec p --at "$place" -- sh -c 'pwd; echo "$ATOLL_RESOURCE_1"; echo >>made'
		cd ..
		[ "$output" = "$work/a
$work/a" ] || fail "$place: $output"
		[ -z "$stderr" ] || fail "$place: $stderr"
		[ ! -e a/made ] || fail "$place: the original changed"
	done
	# The other one is in its place, too.
	run -0 atoll exec p --at "$work/a" -- sh -c 'cd "$1/b" && cat three; echo >>four' - "$work"
	[ "$output" = three ] || fail "$output"
	atoll commit p --yes
	[ "$(wc -l <a/made) $(wc -l <b/four)" = '2 1' ]
}

@test "cli exec --at does not cover the home of whoever runs it" {
	plan_p
	export HOME=$work/people/me
	mkdir -p "$HOME"
	cd a
	run -0 --separate-stderr atoll exec p --at "$work/people" -- pwd
	[ "$output" = "$work/a" ] || fail "$output"
	[[ "$stderr" = *"'$work/people' holds the home directory; the directory is at its own path"* ]] || fail "$stderr"
	# The home itself is a place like others, and so is what lies beside it.
	for place in "$HOME" "$work/people/other"; do
		run -0 --separate-stderr atoll exec p --at "$place" -- pwd
		[ "$output" = "$place" ] || fail "$place: $output, $stderr"
		[ -z "$stderr" ] || fail "$place: $stderr"
	done
}

@test "cli exec --at leaves a directory in which something is mounted at its own path" {
	is_root || skip 'only root mounts a filesystem of its own'
	plan_p
	mounted=$work/a/sub
	mount -t tmpfs none "$mounted"
	cd a
	run -0 --separate-stderr atoll exec p --at /srv/atoll-no-such -- pwd
	[ "$output" = "$work/a" ] || fail "$output"
	[[ "$stderr" = *"'/srv/atoll-no-such' would lose what is mounted in the directory; the directory is at its own path"* ]] || fail "$stderr"
	cd ..
	unmount "$mounted"
	mounted=
	cd a
	run -0 --separate-stderr atoll exec p --at /srv/atoll-no-such -- pwd
	[ "$output" = /srv/atoll-no-such ] || fail "$output, $stderr"
}

@test "cli exec and path do without a mount of atoll path that was left read-only" {
	is_root || skip 'only root mounts a filesystem of its own'
	two_dirs
	atoll start p --strategy overlay --dir a
	for verb in exec path; do
		view=$(atoll path p 2>/dev/null)
		echo "before $verb" >>"$view/made"
		# As a commit does while it prepares, and takes back when it is given up: if that fails, it stays.
		# By mount(2): with fsconfig(2), which newer mount commands call, an overlay cannot be changed.
		LIBMOUNT_FORCE_MOUNT2=always mount -o remount,ro "$view"
		if (echo >>"$view/made") 2>/dev/null; then fail "$view is not read-only"; fi
		if [ $verb = exec ]; then
			cd a
			run -0 atoll exec p -- sh -c 'cat made; echo exec >>made'
			cd ..
			[ "$output" = 'before exec' ] || fail "$output"
			! mountpoint -q "$view" || fail "$view is still mounted"
		else
			[ "$(atoll path p 2>/dev/null)" = "$view" ]
			echo path >>"$view/made"
		fi
	done
	[ ! -e a/made ]
	atoll commit p
	[ "$(cat a/made)" = 'before exec
exec
before path
path' ] || fail "$(cat a/made)"
	atoll stop p
}

@test "cli exec where the command cannot see the current directory says why" {
	plan_p
	hidden=$(mktemp -d /tmp/atoll-bats.XXXXXX)
	cd "$hidden"
	run atoll exec p -- true
	rmdir "$hidden"
	status_is 125
	says "$hidden"
	says "a '/tmp' of its own"
}

@test "cli exec in a plan whose area is read-only says so, and works again afterwards" {
	is_root || skip 'needs root'
	outside_tmp
	two_dirs
	mkdir -p "$ATOLL_HOME/plans"
	chmod 700 "$ATOLL_HOME" "$ATOLL_HOME/plans"
	atoll start p --dir a >/dev/null 2>&1
	area=$(dirname "$(atoll path p a 2>/dev/null)")
	mount --bind "$area" "$area"
	mount -o remount,bind,ro "$area"
	run atoll exec p -- true
	umount "$area"
	status_is 125
	says 'has become read-only'
	says "$area"
	run atoll exec p -- true
	status_is 0
}

@test "cli diff and commit name a directory that the command locked, and what to do" {
	! is_root || skip 'root may look anywhere'
	outside_tmp
	two_dirs
	atoll start p --strategy overlay --dir a >/dev/null 2>&1
	atoll exec p -- sh -c 'mkdir a/new && echo x >a/new/f && chmod 0 a/new'
	run atoll diff p
	status_is 1
	says "'new': its mode keeps its owner out"
	run atoll commit p
	status_is 1
	says 'chmod u+rwX'
	[ ! -e a/new ]
	atoll exec p -- chmod u+rwX a/new
	atoll commit p
	[ "$(cat a/new/f)" = x ]
}

# Without the note that all is on disk the next boot doubts the work, however long ago it was done.
@test "cli exec syncs what it left also where no process can be started for that" {
	local calls=clone,clone3,fork,vfork n without=0

	mkdir a
	for n in {1..8}; do
		atoll start p --dir a
		ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 run strace -f -qq -o trace -e "trace=$calls" \
			-e "inject=$calls:error=EAGAIN:when=$n" "$ATOLL" exec p -- touch a/new
		# Where it failed the command itself needed that process.
		if [ "$status" -eq 0 ] && grep -q INJECTED trace; then
			without=$((without + 1))
			for _ in {1..50}; do
				[ "$(cat "$ATOLL_HOME"/plans/*/durable)" != 1 ] || break
				sleep 0.1
			done
			[ "$(cat "$ATOLL_HOME"/plans/*/durable)" = 1 ]
		fi
		atoll stop p --force
	done
	[ "$without" -gt 0 ]
}

@test "cli exec vim saves a file that has several names" {
	outside_tmp
	mkdir a
	echo old >a/f
	ln a/f a/g
	atoll start p --strategy overlay --dir a
	run -0 --separate-stderr atoll exec p -- vim.tiny -u NONE -n -es -c 's/old/new/' -c 'wq' a/f
	run -0 --separate-stderr atoll exec p -- cat a/f a/g
	[ "$output" = $'new\nold' ]
	# What only asks changes nothing.
	mkdir b
	echo old >b/f
	ln b/f b/g
	atoll start q --strategy overlay --dir b
	atoll exec q -- test -w b/f
	run -0 --separate-stderr atoll diff q --json
	[[ $output == *'"changes":[]'* ]]
}

# A limit of the kernel's overlay. When a kernel has it no longer, the caveat can go, and this test with it.
@test "cli exec a mapping of a file made before its first write shows the old content" {
	outside_tmp
	mkdir a
	echo old >a/f
	atoll start p --strategy overlay --dir a
	cat >a.py <<-'END'
		import mmap, os
		fd = os.open('a/f', os.O_RDONLY)
		before = mmap.mmap(fd, 3, mmap.MAP_SHARED, mmap.PROT_READ)
		with open('a/f', 'r+b') as file:
		    file.write(b'new')
		after = mmap.mmap(os.open('a/f', os.O_RDONLY), 3, mmap.MAP_SHARED, mmap.PROT_READ)
		print(before[:].decode(), os.pread(fd, 3, 0).decode(), after[:].decode())
	END
	run -0 --separate-stderr atoll exec p -- /usr/bin/python3 -c "$(cat a.py)"
	[ "$output" = "old new new" ]
}

@test "cli exec leaves the command all processors, or those that it was given" {
	plan_p
	allowed() {
		"$@" grep Cpus_allowed: /proc/self/status
	}
	mine=$(allowed)
	[ "$(allowed atoll exec p --)" = "$mine" ]
	one=$(allowed taskset 1)
	[ "$(allowed taskset 1 "$ATOLL" exec p --)" = "$one" ]
	# What runs while it gets ready and waits is not bound either.
	[ "$(atoll exec p -- grep Cpus_allowed: /proc/1/status)" = "$mine" ]
}

@test "cli exec without a helper is exit 125" {
	plan_p
	before=$(untouched a b)
	ATOLL_HELPER=/nonexistent/helper run atoll exec p -- true
	status_is 125
	says '/nonexistent/helper'
	[ "$(untouched a b)" = "$before" ]
}
