#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Remotes, and commands that work at one: what is said, and what is refused. What many do at once is in
# remote-sessions.py.

load cli

# As it is: cli.bash chooses a strategy for start, which is of no use there.
atoll() {
	"$ATOLL" "$@"
}

# say_all TEXT...: each of them.
say_all() {
	local text
	for text; do
		says "$text" || return 1
	done
}

# serve OPTION...: a daemon with a store of its own, until end_daemon.
serve() {
	ATOLL_HOME=$BATS_TEST_TMPDIR/there "$ATOLL_DAEMON" --socket "$BATS_TEST_TMPDIR/sock" --listen 127.0.0.1:0 \
		--mirrors "$BATS_TEST_TMPDIR/mirrors" "$@" >"$BATS_TEST_TMPDIR/log" 2>&1 3>&- 4>&- 5>&- 6>&- &
	daemon=$!
	started_here+=("$daemon")
	for _ in $(seq 3000); do
		[ "$(grep -c '"message":"serving ' "$BATS_TEST_TMPDIR/log")" -lt 2 ] || break
		sleep 0.01
	done
	port=$(grep -o 'serving 127.0.0.1:[0-9]*' "$BATS_TEST_TMPDIR/log" | sed 's/.*://')
	[ -n "$port" ]
}

end_daemon() {
	local plan
	for plan in $(there list --json | jq -r '.plans[].id'); do
		there stop --force --yes "$plan"
	done
	kill "$daemon"
	wait "$daemon" || true
	started_here=()
}

# key_file FILE SCOPE [OPTION]...
key_file() {
	(umask 077 && there token new "key-$RANDOM$RANDOM" --scope "$2" "${@:3}" >"$1" 2>/dev/null)
}

there() {
	ATOLL_HOME=$BATS_TEST_TMPDIR/there "$ATOLL" "$@"
}

git_project() {
	git init -q "$1"
	git -C "$1" -c user.name=a -c user.email=a@example commit -q --allow-empty -m one
}

certificate() {
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$1/key.pem" -out "$1/cert.pem" \
		-days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 2>/dev/null
	chmod 600 "$1/key.pem"
}

@test "remote add, list and remove" {
	run -0 atoll remote list
	says 'no remotes'
	run -0 atoll remote add big https://big.example:8443 --no-check
	says 'added remote big, unchecked'
	run -1 atoll remote add big https://other.example --no-check
	says "there is a remote 'big'; nothing was changed"
	run -0 atoll remote add local unix:/nowhere/sock --no-check
	run -0 atoll remote list
	say_all ' https://big.example:8443' ' unix:/nowhere/sock'
	# In the settings, as git would write it, and no unknown key there.
	[ "$(git config -f "$XDG_CONFIG_HOME/atoll/config" remote.big.url)" = https://big.example:8443 ]
	run -0 atoll config list
	[[ $output != *unknown* ]]
	run -0 atoll remote remove big
	run -1 atoll remote remove big
	says "there is no remote 'big'; there are: local"
	[ "$(atoll remote list --json | jq -c '[.remotes[].name]')" = '["local"]' ]
	for word in '' .x -- 'a b' 'a/b' $'a\nb'; do
		run ! atoll remote add "$word" https://big.example --no-check
	done
	for url in big.example ftp://big.example https:// https://a@b https://big.example/path unix:sock 'https://a b'; do
		run -2 atoll remote add odd "$url" --no-check
	done
	run -4 atoll remote add odd http://big.example --no-check
	says 'would send the key for everybody to read'
	[ "$(atoll remote list | wc -l)" -eq 1 ]
}

@test "remote add says exactly what is wrong, and adds nothing then" {
	certificate "$work"
	serve --tls-cert "$work/cert.pem" --tls-key "$work/key.pem"
	key_file key agent
	run -6 atoll remote add r "https://localhost:$port" --key-file key
	say_all 'its certificate is not trusted here' '--ca-file'
	run -0 atoll remote add r "https://localhost:$port" --key-file key --ca-file cert.pem
	run -1 atoll remote add s "https://localhost:$port" --ca-file cert.pem
	says 'the key was refused: no credentials'
	run -6 atoll remote add s "https://localhost:$port" --key-file key --ca-file nothing
	says 'the file with trusted certificates cannot be used'
	run -6 atoll remote add s https://nowhere.invalid
	says 'its host is not known'
	run -6 atoll remote add s http://127.0.0.1:1
	says 'nothing answers there: Connection refused'
	run -6 atoll remote add s "unix:$work/none"
	says 'nothing answers there: No such file or directory'
	run -0 atoll remote add s "unix:$BATS_TEST_TMPDIR/sock"
	[ "$(atoll remote list --json | jq -c '[.remotes[].name]')" = '["r","s"]' ]
	# All the way, over TLS and over the socket.
	mkdir p
	cd p
	run -0 atoll start --remote r
	run -0 atoll --remote s start
	run -0 atoll --remote s stop
	end_daemon
}

@test "sec_04 a key file is a file of ours that nobody else can read" {
	serve
	key_file key agent
	url=http://127.0.0.1:$port
	chmod 640 key
	run -1 atoll remote add r "$url" --key-file key
	say_all 'can be read by others' "chmod 600"
	chmod 600 key
	ln -s key link
	run -1 atoll remote add r "$url" --key-file link
	says 'is a link'
	mkdir dir
	run -1 atoll remote add r "$url" --key-file dir
	says 'is no regular file'
	mkfifo fifo
	run -1 atoll remote add r "$url" --key-file fifo
	says 'is no regular file'
	(umask 077 && printf 'two words\n' >words && : >empty)
	for file in words empty; do
		run -1 atoll remote add r "$url" --key-file $file
		says 'holds no key'
	done
	run -1 atoll remote add r "$url" --key-file nothing
	says 'No such file'
	if is_root; then
		cp -p key theirs
		chown 65534 theirs
		run -1 atoll remote add r "$url" --key-file theirs
		says 'belongs to somebody else'
	fi
	run -0 atoll remote add r "$url" --key-file key
	# Looked at each time, and shown nowhere.
	secret=$(cat key)
	chmod 644 key
	run -1 atoll --remote r start
	says 'can be read by others'
	[[ $output != *"$secret"* ]]
	chmod 600 key
	ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 run -0 strace -f -e trace=execve -s 4096 -o trace "$ATOLL" --remote r start
	run -1 grep -rF -- "${secret:4:30}" "$ATOLL_HOME" "$XDG_CONFIG_HOME" trace
	end_daemon
}

@test "sec_03 nothing inside a project defines a remote" {
	git_project p
	cd p
	git remote add origin https://evil.example
	mkdir -p .config/atoll
	printf '[remote "evil"]\n\turl = https://evil.example\n' | tee atoll.conf .config/atoll/config >config
	for name in origin evil; do
		run -1 atoll --remote $name start
		says "there is no remote '$name'"
	done
	# Nor does a file of settings that others can write to.
	mkdir -p "$XDG_CONFIG_HOME/atoll"
	cp config "$XDG_CONFIG_HOME/atoll/config"
	chmod 666 "$XDG_CONFIG_HOME/atoll/config"
	run -1 atoll --remote evil start
	says "there is no remote 'evil'"
}

@test "remote commands work in the session of the project" {
	serve
	key_file key admin
	atoll remote add big "http://127.0.0.1:$port" --key-file key
	git_project p
	mkdir p/below plain
	cd p/below
	run -1 atoll --remote big stop
	say_all 'has no session at remote' 'atoll --remote big exec'
	run -0 --separate-stderr atoll --remote big start
	[[ $output =~ ^[0-9a-f]{16}$ ]]
	id=$output
	[[ $stderr == *"made session $id of '$work/p' ("*") at remote 'big'"* ]]
	# The same wherever the option stands, from below and from outside.
	for words in 'start --remote big' '--remote=big start' 'start --remote=big --dir ..'; do
		# shellcheck disable=SC2086
		run -0 --separate-stderr atoll $words
		[ "$output" = "$id" ]
		[[ $stderr == *'opened session'* ]]
	done
	ATOLL_REMOTE=big run -0 --separate-stderr atoll start
	[ "$output" = "$id" ]
	cd "$work"
	run -0 --separate-stderr atoll --remote big start --dir p
	[ "$output" = "$id" ]
	# A plain directory, too.
	run -0 atoll --remote big start --dir plain named
	[ "$(atoll --remote big list --json | jq -c '[.sessions[] | .root]')" = "[\"$work/p\",\"$work/plain\"]" ]
	[ "$(there list --json | jq -r '.plans[].name' | grep -c '^named$')" -eq 1 ]
	# A workspace is one project with all that is in it.
	mkdir plain/member
	touch plain/go.work
	run -0 --separate-stderr atoll --remote big start --dir plain/member
	[[ $stderr == *"opened session $output of '$work/plain' "* ]]
	run -2 atoll --remote big stop --dir p --session "$(atoll --remote big list --json | jq -r '.sessions[1].id')"
	says "is of '$work/plain', not of '$work/p'"
	run -1 atoll remote remove big
	says "remote 'big' has 2 sessions"
	run -0 atoll --remote big stop --dir plain
	says "stopped session"
	run -0 atoll --remote big stop --dir p
	run -0 atoll remote remove big
	[ -z "$(ls "$BATS_TEST_TMPDIR/mirrors")" ]
	end_daemon
}

@test "remote diff, reset and stop say what is pending there and what they end" {
	outside_tmp
	serve --mirrors "$work/mirrors"
	atoll remote add big "unix:$BATS_TEST_TMPDIR/sock"
	mkdir p
	cd p
	atoll --remote big start
	plan=$(atoll --remote big list --json | jq -r '.sessions[0].plan')
	run -0 atoll --remote big diff
	says 'nothing is pending there'
	run -0 atoll --remote big diff --exit-code
	there exec "$plan" --cwd "$work/mirrors/$plan" -- sh -c 'echo one >new; mkdir d'
	run -0 --separate-stderr atoll --remote big diff
	[ "$output" = "A  $work/p/d
A  $work/p/new" ]
	run -1 atoll --remote big diff --exit-code
	run -0 atoll --remote big diff --patch
	says '+one'
	run -0 atoll --remote big diff --stat
	says '1 file changed'
	[ "$(atoll --remote big diff --json | jq -c '[.format, .added]')" = '["atoll.diff/1",2]' ]
	run -0 --separate-stderr atoll --remote big log --limit 1
	[[ $output == *'exec  exit 0: sh -c'* ]]
	[ "$(atoll --remote big log --json | head -n 1 | jq -r .format)" = atoll.log/1 ]
	run -1 atoll --remote big stop
	says '2 changes that are pending there would be lost; nothing was ended'
	run -0 atoll --remote big reset
	says '2 pending changes were dropped there; here nothing was changed'
	run -0 atoll --remote big diff
	says 'nothing is pending there'
	there exec "$plan" --cwd "$work/mirrors/$plan" -- touch again
	run -0 atoll --remote big stop --force
	says 'dropped 1 change that nobody had pulled'
	[ -z "$(ls)" ]
	end_daemon
}

@test "remote stop of a daemon that is gone, by force" {
	serve
	atoll remote add big "unix:$BATS_TEST_TMPDIR/sock"
	atoll --remote big start
	there stop --force --yes -
	end_daemon
	run -6 atoll --remote big stop
	says 'cannot reach the daemon'
	[ "$(atoll --remote big list --json | jq '.sessions | length')" -eq 1 ]
	run -0 atoll --remote big stop --force
	says 'may still be there'
	[ "$(atoll --remote big list --json | jq '.sessions | length')" -eq 0 ]
}

@test "commands that work only here refuse a remote, and say so" {
	atoll remote add big https://big.example --no-check
	for words in 'run -- true' 'show x' 'path x' 'job list x' 'refresh x' doctor clean recover version 'config list'; do
		# shellcheck disable=SC2086
		run atoll --remote big $words
		[ "$status" -eq 2 ] || [ "$status" -eq 125 ]
		says 'cannot be used with --remote'
	done
	# Said by the environment it is only held against what would take another plan for the one meant.
	export ATOLL_REMOTE=big
	run -125 atoll run -- true
	say_all 'ATOLL_REMOTE is set' "--remote ''"
	for words in version doctor 'config list' 'remote list' 'list --remote='; do
		# shellcheck disable=SC2086
		run -0 atoll $words
	done
	unset ATOLL_REMOTE
	run -1 atoll --remote other list
	says "there is no remote 'other'; there are: big"
}

@test "projects whose other half is elsewhere are refused with the reason" {
	atoll remote add big https://big.example --no-check
	git_project p
	git -C p worktree add -q ../linked
	git clone -q --shared p borrows
	git_project real
	mkdir behind
	ln -s ../real/.git behind/.git
	for row in 'linked:a linked worktree or a submodule' 'borrows:borrows objects' 'behind:is a link'; do
		run -6 atoll --remote big start --dir "${row%%:*}"
		say_all "${row#*:}" 'git clone'
	done
	[ "$(atoll --remote big list --json | jq '.sessions | length')" -eq 0 ]
}

@test "remote names are completed" {
	atoll remote add big https://big.example --no-check
	run -0 atoll __complete -- start --remote ''
	says 'big'
	run -0 atoll __complete -- --remote=b
	says '--remote=big'
	run -0 atoll __complete -- --remote big stop --
	says '--session'
}
