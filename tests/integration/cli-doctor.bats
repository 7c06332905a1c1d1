#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The doctor: what is wrong is found, and what it says to type helps.

load cli

# finding TOPIC: "level text fix" of each finding of that topic.
finding() {
	jq -r --arg t "$1" '.findings[] | select(.topic == $t) | [.level, .text, .fix] | join(" | ")' <<<"$output"
}

# has TOPIC TEXT
has() {
	[[ $(finding "$1") == *"$2"* ]] || { printf '%s: not "%s":\n%s\n' "$1" "$2" "$output"; return 1; }
}

# elsewhere_run SCRIPT: in a user and mount namespace where SCRIPT may change /proc, then the doctor.
elsewhere_run() {
	run unshare --user --map-root-user --mount sh -c "$1 && exec \"\$ATOLL\" doctor --json ."
}

@test "doctor all is well" {
	two_dirs
	run -0 atoll doctor --json a
	[ "$(jq -r .healthy <<<"$output")" = true ]
	for topic in kernel mounts sqlite helper 'user namespaces' overlay 'system calls' landlock git psql libgit2 settings space \
		store modes registry plans 'left over' directory 'strategy copy' entries; do
		[ -n "$(finding "$topic")" ] || { echo "nothing about $topic"; return 1; }
	done
	has entries 'ok | 4 |'
	# The distribution's SQLite is not for the user to replace.
	has sqlite 'ok | 3.'
	run -0 atoll doctor a
	says 'the store is yours alone'
}

@test "doctor in a directory around the store finds the host in order" {
	cd "$BATS_TEST_TMPDIR"
	run -0 atoll doctor --json
	[ "$(jq -r .healthy <<<"$output")" = true ]
	has 'strategy copy' 'warning | not possible: the store lies inside, around or at it | name a directory'
	# Asked for, it is what start would say.
	run -6 atoll doctor --json .
	has 'strategy copy' 'bad | not possible: the store lies'
}

@test "doctor misses the helper, and says so about everything that needs it" {
	two_dirs
	ATOLL_HELPER=$work/no-helper run -6 atoll doctor --json a
	has helper 'install atoll again'
	has 'strategy overlay' "no-helper' cannot be started: No such file or directory | atoll-helper belongs there"
}

@test "doctor finds a store that cannot be written" {
	is_root || skip 'only root mounts a filesystem of its own'
	two_dirs
	mounted=$BATS_TEST_TMPDIR/disk
	mkdir "$mounted"
	mount -t tmpfs -o mode=700 none "$mounted"
	export ATOLL_HOME=$mounted/home
	atoll list
	mount -o remount,ro "$mounted"
	run -1 atoll doctor --json a
	has store 'bad | '
	has store 'mount -o remount,rw'
	mount -o remount,rw "$mounted"
	run -0 atoll doctor a
}

@test "doctor knows the switches that keep user namespaces from people" {
	elsewhere_run 'echo 0 >/proc/sys/user/max_user_namespaces'
	has 'user namespaces' 'warning | switched off (user.max_user_namespaces is 0) | as root: sysctl -w user.max_user_namespaces=15000'
	has isolation 'no command of an ordinary user is run without them'
	elsewhere_run 'mount -t tmpfs none /proc/sys/kernel && echo 0 >/proc/sys/kernel/unprivileged_userns_clone &&
		echo 1 >/proc/sys/kernel/apparmor_restrict_unprivileged_userns'
	has 'user namespaces' 'as root: sysctl -w kernel.unprivileged_userns_clone=1'
	has 'user namespaces' 'as root: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0'
}

@test "doctor misses overlay" {
	printf 'nodev\ttmpfs\n\text4\n' >filesystems
	elsewhere_run "mount --bind '$work/filesystems' /proc/filesystems"
	has overlay 'as root: modprobe overlay'
}

@test "doctor finds a store open to others, and the fix fixes it" {
	two_dirs
	atoll list
	chmod 644 "$ATOLL_HOME/atoll.db"
	run -0 atoll doctor --json a
	has modes "atoll.db is open to others (mode 0644) | chmod -R go-rwx $ATOLL_HOME"
	eval "$(jq -r '.findings[] | select(.topic == "modes") | .fix' <<<"$output")"
	run -0 atoll doctor --json a
	has modes 'ok | the store is yours alone'
	chmod 755 "$ATOLL_HOME"
	run -1 atoll doctor --json a
	has store "chmod 700 $ATOLL_HOME"
	eval "$(jq -r '.findings[] | select(.topic == "store") | .fix' <<<"$output")"
	run -0 atoll doctor a
}

@test "doctor says what goes without the tools that are missing" {
	two_dirs
	mkdir none
	ln -s "$(type -P true)" none/true # what the helper is tried with
	run -0 env PATH="$PWD/none" "$ATOLL" doctor --json a
	has git 'ok | not there; '
	has psql 'ok | not there; '
}

@test "doctor finds what in the store belongs to somebody else" {
	[ "$(id -u)" -eq 0 ] || skip 'needs root'
	two_dirs
	atoll list
	touch "$ATOLL_HOME/strange"
	chown 65534 "$ATOLL_HOME/strange"
	run atoll doctor --json a
	[ "$status" -ne 0 ]
	has modes 'strange belongs to user 65534 | give it back to its owner'
}

@test "doctor finds what dead programs left, and the fix takes it" {
	two_dirs
	atoll list
	mkdir -m 700 "$ATOLL_HOME/plans/stray"
	run -0 atoll doctor --json a
	has 'left over' '1 directory of programs that died, or of no plan | atoll clean'
	atoll clean
	run -0 atoll doctor --json a
	has 'left over' 'ok | nothing'
}

@test "doctor finds settings that are wrong" {
	two_dirs
	mkdir -p "$XDG_CONFIG_HOME/atoll"
	printf '[exec]\ntimeot = 3s\n' >"$XDG_CONFIG_HOME/atoll/config"
	run -0 atoll doctor --json a
	has settings "without effect: $XDG_CONFIG_HOME/atoll/config:2: exec.timeot"
	printf '[exec]\ntimeout = soon\n' >"$XDG_CONFIG_HOME/atoll/config"
	run -2 atoll doctor --json a
	has settings 'bad | '
	has settings 'atoll config unset exec.timeout'
	chmod 666 "$XDG_CONFIG_HOME/atoll/config"
	run -0 atoll doctor --json a
	has settings 'is not used'
}

@test "doctor finds ACLs that an ordinary user's commands cannot set" {
	two_dirs
	setfacl -m "u:$(id -u):r" a/one
	run -0 atoll doctor --json a
	[ -z "$(finding ACLs)" ]
	setfacl -m u:1234:r a/one
	setfacl -m d:g:777:r a/sub
	run -0 atoll doctor --json a
	if is_root; then
		[ -z "$(finding ACLs)" ]
	else
		has ACLs '2 entries have ACLs that name other users or groups'
		has ACLs "a/one"
	fi
}

@test "doctor finds a store that is nearly full" {
	is_root || skip 'only root mounts a filesystem of its own'
	two_dirs
	mounted=$BATS_TEST_TMPDIR/small
	mkdir "$mounted"
	mount -t tmpfs -o size=16m,mode=700 none "$mounted"
	export ATOLL_HOME=$mounted/home
	atoll list
	dd if=/dev/zero of="$mounted/fill" bs=64k status=none 2>/dev/null || true
	run atoll doctor --json a
	rm "$mounted/fill"
	has space 'KiB are free on the store'
	has space 'make room there: atoll list, atoll rm, atoll clean'
	run -0 atoll doctor --json a
	has space 'ok | '
}

@test "doctor finds a store and a directory on a network filesystem" {
	is_root || skip 'only root mounts a filesystem of its own'
	two_dirs
	mkdir net
	mount_fuse "$work/net"
	run atoll doctor --json net
	has 'strategy copy' 'put the directory on a local disk'
	run -0 atoll doctor --json a
	home=$ATOLL_HOME
	ATOLL_HOME=$work/net run atoll doctor --json a
	[ "$status" -ne 0 ]
	has store 'bad | '
	ATOLL_HOME=$home
}

@test "doctor PATH finds mounts below and entries that nobody can change" {
	is_root || skip 'only root mounts and makes immutable'
	outside_tmp
	two_dirs
	mkdir a/sub/mnt
	mounted=$work/a/sub/mnt
	mount -t tmpfs none "$mounted"
	run -0 atoll doctor --json a
	has 'mounts below' "1 mount point below it is shown read-only and not part of a plan, such as $work/a/sub/mnt"
	if chattr +i a/one 2>/dev/null; then
		run atoll doctor --json a
		chattr -i a/one
		has immutable "such as $work/a/one | as root: chattr -i -a on them"
	fi
}

@test "doctor PATH finds what belongs to others and what cannot be read" {
	two_dirs
	mkdir mine
	echo x >mine/locked
	if is_root; then
		chmod 755 "$BATS_RUN_TMPDIR" "$BATS_RUN_TMPDIR/test" "$BATS_TEST_TMPDIR" 2>/dev/null || true
		mkdir -m 700 "$BATS_TEST_TMPDIR/user-home"
		chown -R 65534:65534 mine "$BATS_TEST_TMPDIR/user-home"
		echo theirs >mine/theirs
		chmod 600 mine/theirs
		ATOLL_HOME=$BATS_TEST_TMPDIR/user-home/store run setpriv --reuid=65534 --regid=65534 --clear-groups \
			"$ATOLL" doctor --json mine
		has owners "1 entry belongs to somebody else: overlay cannot change it for you, such as $work/mine/theirs"
		has owners 'atoll start --strategy copy'
		has unreadable "such as $work/mine/theirs"
	else
		chmod 000 mine/locked
		run atoll doctor --json mine
		has unreadable "1 entry cannot be read by you and stays out of a copy, such as $work/mine/locked"
	fi
}

@test "doctor PATH says that nothing could be committed to where the user may not write" {
	two_dirs
	if is_root; then
		chmod 755 "$BATS_RUN_TMPDIR" "$BATS_RUN_TMPDIR/test" "$BATS_TEST_TMPDIR" 2>/dev/null || true
		mkdir -m 700 "$BATS_TEST_TMPDIR/user-home"
		chown 65534:65534 "$BATS_TEST_TMPDIR/user-home"
		ATOLL_HOME=$BATS_TEST_TMPDIR/user-home/store run setpriv --reuid=65534 --regid=65534 --clear-groups \
			"$ATOLL" doctor --json a
	else
		chmod 555 a
		run atoll doctor --json a
		chmod 755 a
	fi
	status_is 6
	[ "$(jq -r .healthy <<<"$output")" = false ]
	has 'strategy copy' 'bad | not possible: you may not write to it, so nothing could be committed | become its owner, or let him run atoll'
	# What is in it is told all the same, and nothing is tried out in it.
	has entries 'ok | 4 |'
	[ -z "$(finding 'strategy overlay')" ]
	run -0 atoll doctor --json a
	has 'strategy copy' 'ok | '
}

@test "doctor finds a registry that can be opened and is not sound" {
	two_dirs
	atoll list
	sqlite3 "$ATOLL_HOME/atoll.db" "INSERT INTO path VALUES ('/x', '0000000000000000', '')"
	run -7 atoll doctor --json a
	[ "$(jq -r .healthy <<<"$output")" = false ]
	has registry "bad | the registry '$ATOLL_HOME/atoll.db' is damaged: a row of path refers to a missing row of plan | leave it as it is; restore atoll.db, atoll.db-wal together from a backup"
	# The rest is looked at all the same.
	has plans 'ok | '
	has 'left over' 'ok | '
	sqlite3 "$ATOLL_HOME/atoll.db" 'DELETE FROM path'
	run -0 atoll doctor --json a
	has registry 'ok | sound'
}
