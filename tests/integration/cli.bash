# SPDX-License-Identifier: Apache-2.0
# What the tests of the command line share. Each test has its own store and its own directories,
# and must leave nothing behind (rule TST-06): teardown looks for it.

bats_require_minimum_version 1.5.0

setup() {
	umask 022
	export LC_ALL=C.UTF-8 NO_COLOR=1
	unset ATOLL_CRASHPOINT ATOLL_SABOTAGE ATOLL_PLAN ATOLL_PLAN_ID ATOLL_REMOTE
	unset ATOLL_PAGER PAGER LESS
	export ATOLL_HOME=$BATS_TEST_TMPDIR/home
	# Nobody's own settings count.
	export XDG_CONFIG_HOME=$BATS_TEST_TMPDIR/config
	export ATOLL_CONFIG_SYSTEM=$BATS_TEST_TMPDIR/etc-config
	work=$BATS_TEST_TMPDIR/work
	mkdir -p "$work"
	started_here=()
	cd "$work" || return 1
}

# outside_tmp: from here on this test works on a real filesystem. A command of a plan has /var/tmp to itself, like
# /tmp: of what is there it sees the resources and what is given to it.
outside_tmp() {
	elsewhere=$(mktemp -d /var/tmp/atoll-bats.XXXXXX)
	export ATOLL_HOME=$elsewhere/home
	work=$elsewhere/work
	mkdir "$work"
	cd "$work" || return 1
}

teardown() {
	# After a failure something may still run, and hold what is to be removed.
	for pid in "${started_here[@]}"; do
		kill -KILL "$pid" 2>/dev/null || true
	done
	[ -z "${fuse_pid:-}" ] || end_fuse
	[ -z "${mounted:-}" ] || unmount "$mounted"
	left=$(left_behind)
	if [ -n "${elsewhere:-}" ]; then
		# Overlays of an ordinary user close a directory that they work in.
		rm -rf "$elsewhere" 2>/dev/null || { chmod -R u+rwX "$elsewhere" && rm -rf "$elsewhere"; }
	fi
	if [ -n "$left" ]; then
		printf 'left behind:\n%s\n' "$left"
		return 1
	fi
}

# without_namespaces COMMAND...: where the kernel makes none, for root neither.
without_namespaces() {
	unshare --map-current-user --keep-caps sh -ec '
		echo 0 >/proc/sys/user/max_mnt_namespaces
		echo 0 >/proc/sys/user/max_user_namespaces
		exec setpriv --inh-caps=-all --ambient-caps=-all --bounding-set=-all "$@"' sh "$@"
}

# no_sanitizer: skips where memory is measured or limited.
no_sanitizer() {
	! grep -qE '__(asan|tsan)_init' "$ATOLL" || skip 'a sanitizer takes memory of its own'
}

is_root() {
	[ "$(id -u)" -eq 0 ]
}

# These tests are about the command line; start gets the strategy that works everywhere and whose
# work can be looked at, unless a test names another.
atoll() {
	if [ "$1" = start ] && [[ " $* " != *' --strategy '* ]]; then
		"$ATOLL" start --strategy copy "${@:2}"
	else
		"$ATOLL" "$@"
	fi
}

# at_terminal WORDS: the same on a terminal of its own, where it also says what could be typed next.
at_terminal() {
	if [ "$1" = start ] && [[ " $* " != *' --strategy '* ]]; then
		set -- start --strategy copy "${@:2}"
	fi
	ATOLL_PAGER=cat script -qec "$(printf '%q ' "$ATOLL" "$@")" /dev/null </dev/null | tr -d '\r'
	return "${PIPESTATUS[0]}"
}

mounts() {
	cut -d ' ' -f 5 /proc/self/mountinfo | grep -F -e "$BATS_TEST_TMPDIR" -e "$work" || true
}

# Programs that work for this test: its settings or, but for commands of a plan, its store are in their
# environment. Zombies have none.
processes() {
	grep -lzsF -e "ATOLL_HOME=${elsewhere:-$BATS_TEST_TMPDIR}/" -e "XDG_CONFIG_HOME=$BATS_TEST_TMPDIR/" /proc/[0-9]*/environ | while IFS=/ read -r _ _ pid _; do
		case $(cat "/proc/$pid/comm" 2>/dev/null) in
		atoll | atoll-helper | sh | sleep)
			printf '%s %s\n' "$pid" "$(tr '\0' ' ' <"/proc/$pid/cmdline")"
			;;
		esac
	done 2>/dev/null
}

# all_end: whatever works for this test does, within a minute; what does not is named.
all_end() {
	for _ in $(seq 3000); do
		[ -n "$(processes)" ] || return 0
		sleep 0.02
	done
	processes
	return 1
}

# none_run: no command does, and what syncs in the background after it will end. What is ending has
# no words any more.
none_run() {
	! processes | grep -v -e '^[0-9]* atoll-helper ' -e '^[0-9]* $' || return 1
	all_end
}

left_behind() {
	all_end || true
	mounts
	# Whatever plans are still there go, and everything of theirs with them.
	if [ -e "$ATOLL_HOME/atoll.db" ] && [ -z "${store_is_broken:-}" ]; then
		atoll list --json | jq -r '.plans[].id' | while read -r id; do
			atoll stop --force --yes --wait 10 "$id" >/dev/null 2>&1 || echo "plan $id"
		done
		find "$ATOLL_HOME/plans" -mindepth 1 2>/dev/null
	fi
	find "${elsewhere:-$BATS_TEST_TMPDIR}" -name '.atoll*' 2>/dev/null
}

# two_dirs: a project of two directories, a and b.
two_dirs() {
	mkdir -p a/sub b
	echo one >a/one
	echo two >a/two
	echo deep >a/sub/deep
	echo three >b/three
	chmod 640 a/two
	touch -d '2001-02-03 04:05:06.123456789' a/one a/sub/deep b/three a/sub b
}

# tree DIR...: everything an undo has to bring back, inode numbers included.
tree() {
	find "$@" -printf '%p %y %m %U %G %s %T@ %i %l\n' | sort
	find "$@" -type f -exec sha256sum {} + | sort
}

# untouched DIR...: the same and the time of the last change: nobody laid a hand on it.
untouched() {
	find "$@" -printf '%p %y %m %U %G %s %T@ %C@ %i %l\n' | sort
}

# no_plans: the store, if there is one, knows of no plan and holds nothing.
no_plans() {
	[ "$(atoll list --json | jq '.plans | length')" -eq 0 ]
	[ -z "$(find "$ATOLL_HOME/plans" -mindepth 1)" ]
}

# status_is N: of the last `run`, with what it said when it is another.
status_is() {
	if [ "$status" -ne "$1" ]; then
		printf 'exit %s, not %s:\n%s\n' "$status" "$1" "$output"
		return 1
	fi
}

# says TEXT: the last `run` said it.
says() {
	if [[ $output != *"$1"* ]]; then
		printf 'does not say "%s":\n%s\n' "$1" "$output"
		return 1
	fi
}

# in_background COMMAND...: a program, so that $background is its pid; without bats' descriptors,
# which would keep bats waiting.
in_background() {
	"$@" >"$BATS_TEST_TMPDIR/background.out" 2>&1 3>&- 4>&- 5>&- 6>&- &
	background=$!
	started_here+=("$background")
}

# hold FILE: the lock FILE of the store is held by $background until it is killed.
hold() {
	local fifo=$BATS_TEST_TMPDIR/hold.$1
	mkfifo "$fifo"
	# Read and write, so that it is open at once and never ends.
	"$ATOLL_TEST_HOLD_LOCK" "$ATOLL_HOME/locks" "$1" wait <>"$fifo" >"$fifo.held" 2>/dev/null \
		3>&- 4>&- 5>&- 6>&- &
	background=$!
	started_here+=("$background")
	for _ in $(seq 6000); do
		[ -s "$fifo.held" ] && return 0
		sleep 0.01
	done
	echo "$1 could not be held"
	return 1
}

# ended PID: its exit status in $code; fails when it has not ended within a minute.
ended() {
	for _ in $(seq 6000); do
		if ! kill -0 "$1" 2>/dev/null; then
			code=0
			wait "$1" || code=$?
			return 0
		fi
		sleep 0.01
	done
	echo "$1 does not end"
	return 1
}

# wait_for FILE: up to a minute.
wait_for() {
	for _ in $(seq 6000); do
		[ -e "$1" ] && return 0
		sleep 0.01
	done
	echo "$1 did not appear"
	return 1
}

# wait_for_process TEXT: one of this test's has it in its command line; up to a minute. Numbers
# of processes are of no use: a command has its own. The atoll that is told to start it does not
# count: it has the same words and may not even have a plan yet.
wait_for_process() {
	for _ in $(seq 1200); do
		processes | grep -v "^[0-9]* $ATOLL " | grep -q "$1" && return 0
		sleep 0.05
	done
	echo "no process $1"
	return 1
}

# mount_fuse DIR: an empty filesystem that answers, as a network filesystem does.
mount_fuse() {
	[ -e /dev/fuse ] || mknod /dev/fuse c 10 229 || skip 'no FUSE'
	rm -f "$BATS_TEST_TMPDIR/fuse-ready"
	/usr/bin/python3 "$BATS_TEST_DIRNAME/tiny-fuse.py" "$1" "$BATS_TEST_TMPDIR/fuse-ready" \
		>/dev/null 2>&1 3>&- 4>&- 5>&- 6>&- &
	fuse_pid=$!
	fuse_dir=$1
	wait_for "$BATS_TEST_TMPDIR/fuse-ready"
}

# unmount DIR: as soon as the program that syncs in the background lets it go.
unmount() {
	for _ in $(seq 3000); do
		! umount "$1" 2>/dev/null || return 0
		sleep 0.02
	done
	umount "$1"
}

end_fuse() {
	unmount "$fuse_dir"
	wait "$fuse_pid" || true
	fuse_pid=
}

# from_home PATH: as lists show it.
from_home() {
	case $1 in
	"$HOME"/*) printf '~%s\n' "${1#"$HOME"}" ;;
	*) printf '%s\n' "$1" ;;
	esac
}
