#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What a command is given and held to: environment, directory, network, limits.

load cli

# plan_o: an overlay, which is nowhere but in namespaces.
plan_o() {
	outside_tmp
	mkdir a
	echo one >a/one
	run atoll start p --strategy overlay --dir a
	[ "$status" -eq 0 ] || skip 'no overlay here'
}

# groups: control groups of Atoll's, whoever made them.
groups() {
	find /sys/fs/cgroup -maxdepth 6 -name 'atoll-????????????????' 2>/dev/null | sort || true
}

# groups_left: those that are there and stay, with nobody in them.
groups_left() {
	local before
	before=$(groups)
	[ -n "$before" ] || return 0
	sleep 1
	comm -12 <(echo "$before") <(groups) | while read -r group; do
		[ -n "$(cat "$group/cgroup.procs" 2>/dev/null)" ] || echo "$group"
	done
}

@test "cli exec --env and --unset change the command's environment and nobody else's" {
	plan_o
	export HANDED=on GONE=yes
	run -0 atoll exec p --env A=1 --env B='two words' --env EMPTY= --env HANDED --unset GONE \
		-- sh -c 'echo "$A|$B|${EMPTY-unset}|$HANDED|${GONE-unset}"'
	[ "$output" = '1|two words||on|unset' ]
	# The later one wins, and PATH is for finding the command, too.
	mkdir bin
	printf '#!/bin/sh\necho found\n' >bin/only-there
	chmod +x bin/only-there
	run -0 atoll exec --ro bin --env A=1 --env A=2 --env "PATH=$work/bin:$PATH" p -- sh -c 'echo $A; only-there'
	[ "$output" = $'2\nfound' ]
	run -0 atoll exec --ro bin --env "PATH=$work/bin:$PATH" p only-there
	[ "$output" = found ]
	for wrong in =x ATOLL_PLAN=q ATOLL_HOME; do
		run -125 atoll exec --env "$wrong" p true
		says "option '--env'"
	done
	run -125 atoll exec --unset A=b p true
	says "'A=b' is no name"
	[ "$(atoll exec --env ATOLLX=1 p -- sh -c 'echo $ATOLL_PLAN $ATOLLX')" = 'p 1' ]
}

@test "cli exec --cwd begins where it says, as the command sees it" {
	plan_o
	[ "$(atoll exec --cwd a p pwd)" = "$work/a" ]
	[ "$(atoll exec --cwd "$work/a" p pwd)" = "$work/a" ]
	atoll exec p -- mkdir a/inside-only
	[ "$(atoll exec --cwd a/inside-only p pwd)" = "$work/a/inside-only" ]
	[ ! -e a/inside-only ]
	run -125 atoll exec --cwd nowhere p true
	says "cannot enter '$work/nowhere'"
	[ "$(atoll run --cwd a --dir a --rollback -- pwd 2>/dev/null)" = "$work/a" ]
}

# reaches WHERE: of the networks a command has: "lo" it can talk to itself, "host" to us.
reaches='
import socket, sys
def reach(address):
    try:
        socket.create_connection(address, 2).close()
        return "yes"
    except OSError:
        return "no"
own = socket.socket()
own.bind(("127.0.0.1", 0))
own.listen()
print(reach(own.getsockname()), reach(("127.0.0.1", int(sys.argv[1]))))
'

@test "cli exec --net: the host's network, its own loopback, none" {
	plan_o
	/usr/bin/python3 -c '
import socket, time
s = socket.socket()
s.bind(("127.0.0.1", 0))
s.listen(50)
print(s.getsockname()[1], flush=True)
time.sleep(60)' >port 3>&- 4>&- 5>&- 6>&- &
	started_here+=("$!")
	for _ in $(seq 6000); do [ ! -s port ] || break; sleep 0.01; done
	net() {
		atoll exec "$@" p -- /usr/bin/python3 -c "$reaches" "$(cat port)"
	}
	[ "$(net)" = 'yes yes' ]
	[ "$(net --net host)" = 'yes yes' ]
	[ "$(net --net loopback)" = 'yes no' ]
	[ "$(net --net none)" = 'no no' ]
	atoll config set exec.net loopback
	[ "$(net)" = 'yes no' ]
	[ "$(net --net host)" = 'yes yes' ]
	run -125 atoll exec --net some p true
	says 'none of: none, loopback, host'
	run atoll config set exec.net some
	says 'not none, loopback or host'
	kill "${started_here[@]}"
}

@test "cli exec --net is refused where there are no namespaces for it" {
	plan_o
	# In a user namespace of its own one may forbid oneself more.
	without() {
		unshare --user --map-root-user sh -c 'echo 0 >/proc/sys/user/max_net_namespaces && exec "$@"' - "$@"
	}
	without true || skip 'no user namespaces'
	run -0 without "$ATOLL" exec p -- true
	run -125 without "$ATOLL" exec p --net none -- true
	says 'cannot make a network namespace'
}

@test "cli exec --memory: what goes over it is killed, and that is told" {
	no_sanitizer
	plan_o
	run -0 atoll exec --memory 64m --status-file st p -- /usr/bin/python3 -c 'x = bytearray(8 << 20)'
	[ "$(jq '.notes | length' st)" -eq 1 ]
	run -0 atoll exec p -- /usr/bin/python3 -c 'x = bytearray(200 << 20)'
	run atoll exec --memory 64m --status-file st p -- /usr/bin/python3 -c 'x = bytearray(200 << 20)'
	if jq -e '.notes[0] | test("control group")' st >/dev/null &&
		! jq -e '.notes[0] | test("no control group")' st >/dev/null; then
		status_is 137
		says 'needed more than 64 MiB of memory: the kernel killed 1'
		# A child that is killed is not the command's end, but told all the same.
		run -0 atoll exec --memory 64m p -- sh -c '/usr/bin/python3 -c "x = bytearray(200 << 20)"; exit 0'
		says 'the kernel killed 1'
	else
		status_is 1
		says MemoryError
		says 'no control group can be made here'
	fi
	[ -z "$(groups_left)" ]
	atoll config set exec.memory 64m
	run atoll exec p -- /usr/bin/python3 -c 'x = bytearray(200 << 20)'
	[ "$status" -ne 0 ]
	run -0 atoll exec --memory 0 p -- /usr/bin/python3 -c 'x = bytearray(200 << 20)'
	run -125 atoll exec --memory lots p true
	says "'lots' is no number of bytes"
}

@test "cli exec --pids and --cpus hold, or it is said that they do not" {
	plan_o
	fork_five='i=0; while [ $i -lt 5 ]; do sleep 0.2 & i=$((i+1)); done; wait; echo all'
	[ "$(atoll exec --pids 20 p -- sh -c "$fork_five" 2>/dev/null)" = all ]
	run atoll exec --pids 3 --status-file st p -- sh -c "$fork_five"
	if ! jq -e '.notes[0] | test("not enforced")' st >/dev/null; then
		[[ $output != *all* ]]
		says fork
	fi
	run -0 atoll exec --cpus 0.2 --status-file st p -- /usr/bin/python3 -c '
import time
begin = time.monotonic()
while time.process_time() < 0.2:
    pass
print("slow" if time.monotonic() - begin > 0.6 else "fast")'
	if jq -e '.notes[0] | test("not enforced")' st >/dev/null; then
		says 'at most 0.2 processors: not enforced'
	else
		says slow
	fi
	[ -z "$(groups_left)" ]
	run -125 atoll exec --pids -1 p true
	run -125 atoll exec --cpus nan p true
}

@test "cli exec a control group does not outlive whoever was killed" {
	plan_o
	is_root || skip 'control groups are for root here'
	in_background atoll exec --pids 50 p -- sh -c 'echo >a/started; sleep 1000'
	wait_for_process 'sleep 1000'
	[ -n "$(groups)" ] || skip 'no control groups here'
	pid=$(atoll lock show p --json | jq '.locks[0].pid')
	helper=$(cat "/proc/$pid/task/$pid/children")
	# shellcheck disable=SC2086 # words
	kill -KILL $helper "$pid" || true # it may have noticed
	ended "$background"
	run -0 atoll exec p -- true
	[ -z "$(groups_left)" ]
	# The helper alone: whoever waits for it sees to it.
	in_background "$ATOLL" exec --pids 50 p -- sleep 1000
	wait_for_process 'sleep 1000'
	helper=$(cat "/proc/$background/task/$background/children")
	# shellcheck disable=SC2086 # words
	kill -KILL $helper
	ended "$background"
	[ "$code" -eq 125 ]
	[ -z "$(groups_left)" ]
	all_end
}
