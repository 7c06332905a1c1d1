#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The guided tour: a scratch project of two directories, changed in a plan, committed, undone, and
# a commit that is killed in the middle; then a repository, two databases and a directory, all in one
# commit. Takes some seconds and cleans up after itself, a private PostgreSQL server included. $ATOLL is
# the program to show; without it, the one in build/ or in PATH.

set -u
# shellcheck disable=SC2016 # the commands shown expand their own variables

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [ -z "${ATOLL:-}" ]; then
	ATOLL=$here/build/src/cli/atoll
	[ -x "$ATOLL" ] || ATOLL=$(command -v atoll) || {
		echo 'tour: no atoll to show; try ./setup run' >&2
		exit 1
	}
fi

export ATOLL
scratch=$(mktemp -d "${TMPDIR:-/tmp}/atoll-tour.XXXXXX") || exit 1
export ATOLL_HOME=$scratch/store
unset ATOLL_PLAN ATOLL_PLAN_ID ATOLL_CRASHPOINT

# leave: ends whatever plan is still there, then removes everything.
leave() {
	"$ATOLL" stop --force --yes --wait 10 - >/dev/null 2>&1
	[ -z "${server:-}" ] || end_server
	rm -rf "$scratch"
}
trap leave EXIT
trap 'exit 130' INT TERM

tell() {
	printf '\n'
	printf '%s\n' "$@"
}

# ---- a PostgreSQL server of our own ----

# as_server COMMAND...: the server does not run as root.
as_server() {
	if [ "$(id -u)" -eq 0 ]; then
		(cd / && setpriv --reuid=postgres --regid=postgres --clear-groups "$@")
	else
		"$@"
	fi
}

# begin_server: false where there are no programs for it. Sets $server and $url.
begin_server() {
	local bin dir
	for bin in /usr/lib/postgresql/*/bin; do
		: # the last one
	done
	[ -x "$bin/initdb" ] || return 1
	dir=$(mktemp -d "${TMPDIR:-/tmp}/atoll-tour-pg.XXXXXX") || return 1
	server=$dir server_bin=$bin
	if [ "$(id -u)" -eq 0 ]; then
		id postgres >/dev/null 2>&1 || return 1
		chown postgres: "$dir"
	fi
	as_server "$bin/initdb" -D "$dir/data" -U tour -A trust -N >"$scratch/server.log" 2>&1 &&
		as_server "$bin/pg_ctl" -D "$dir/data" -w -l "$dir/log" \
			-o "-c listen_addresses='' -c unix_socket_directories='$dir' -c max_prepared_transactions=10 -F" \
			start >>"$scratch/server.log" 2>&1 &&
		psql -qX -h "$dir" -U tour -d postgres -c 'CREATE DATABASE shop' &&
		psql -qX -h "$dir" -U tour -d shop \
			-c "CREATE TABLE orders(id int PRIMARY KEY, what text); INSERT INTO orders VALUES (1, 'tea')" &&
		url="postgresql://tour@/shop?host=$dir"
}

end_server() {
	as_server "$server_bin/pg_ctl" -D "$server/data" -m immediate stop >/dev/null 2>&1
	rm -rf "$server"
}

# show COMMAND...: prints it as one would type it, then runs it.
show() {
	printf '\n  $ atoll'
	for word in "${@:2}"; do
		word=${word//"${server:-$scratch}"//run/shop}
		case $word in
		*[\ \&]*) printf " '%s'" "$word" ;;
		*) printf ' %s' "$word" ;;
		esac
	done
	printf '\n'
	"$@" 2>&1 | sed -e "s|$scratch/||g" -e "s|${server:-$scratch}|/run/shop|g" -e 's/^/    /'
	return "${PIPESTATUS[0]}"
}

# must COMMAND...: as show, and the tour ends if it fails.
must() {
	show "$@" || {
		printf '\ntour: that should have worked\n' >&2
		exit 1
	}
}

look() {
	printf '\n  %s\n' "$1"
	(cd "$scratch" && grep -r . app lib) | sort | sed 's/^/    /'
}

mkdir "$scratch/app" "$scratch/lib"
echo hello >"$scratch/app/settings"
echo 'to be removed' >"$scratch/app/old"
echo 'version 1' >"$scratch/lib/version"
cd "$scratch" || exit 1

tell 'A project of two directories that belong together, app and lib.'
look 'what is in them:'

tell '1. A plan: a private view of both.'
must "$ATOLL" start tour --dir app --dir lib

tell '2. Commands in the plan see their changes at the very paths they know; the originals stay.'
must "$ATOLL" exec tour -- sh -c 'echo bonjour >app/settings && rm app/old'
must "$ATOLL" exec tour -- sh -c 'echo version 2 >lib/version && cat app/settings lib/version'
look 'the originals, untouched:'

tell '3. What would change?'
must "$ATOLL" diff tour

tell '4. Commit: both directories change, or neither does.'
must "$ATOLL" commit tour
look 'now it is real:'

tell '5. Not what we wanted? The very files that were there before come back.'
must "$ATOLL" undo tour
look 'as before:'

tell '6. Once more, but this time the commit is killed (SIGKILL) after it has changed the first' \
	'   file: the worst moment there is.'
must "$ATOLL" exec tour -- sh -c 'echo hola >app/settings; echo version 3 >lib/version'
printf '\n  $ atoll commit tour        # and kill -9 in the middle\n'
# A shell in between, so that it is not this one that remarks on the killing.
ATOLL_CRASHPOINT=dir.apply.op sh -c '"$ATOLL" commit tour; exit $?' >/dev/null 2>&1
code=$?
printf '    exit status %s\n' "$code"
[ "$code" -eq 137 ] || {
	printf '\ntour: it should have been killed\n' >&2
	exit 1
}
look 'half old, half new:'

tell '   The decision had been recorded, so the next command finishes it before anything else.'
must "$ATOLL" recover
look 'all of it is new:'

tell '   And it can be undone like any other commit.'
must "$ATOLL" undo tour
look 'as before:'

tell '7. The end of the plan. Nothing of it is left.'
must "$ATOLL" rm tour

# ---- four kinds ----

look_four() {
	printf '\n  %s\n' "$1"
	{
		printf 'app:     %s\n' "$(cat app/settings)"
		printf 'service: %s\n' "$(git -C service log --oneline --format=%s | paste -sd' ')"
		printf 'dev.db:  %s\n' "$(sqlite3 dev.db "SELECT group_concat(name, ' ') FROM users")"
		[ -z "$url" ] || printf 'shop:    %s\n' \
			"$(psql -qtAX "$url" -c "SELECT string_agg(what, ' ' ORDER BY id) FROM orders")"
	} | sed 's/^/    /'
}

tell '8. Not only directories. A directory, a git repository, an SQLite database and a PostgreSQL' \
	'   database, each with its own idea of a change:'
git init -q service
git -C service config user.name you
git -C service config user.email you@example.org
echo one >service/file
git -C service add file
git -C service commit -qm first
sqlite3 dev.db "CREATE TABLE users(id INTEGER PRIMARY KEY, name TEXT); INSERT INTO users(name) VALUES ('ann')"
begin_server || {
	url=
	echo '   (without PostgreSQL here: its programs are not installed)'
}
look_four 'what is there:'
must "$ATOLL" start four --dir app --git service --sqlite dev.db ${url:+--postgres "$url"}
# shellcheck disable=SC2016 # the command's own
must "$ATOLL" exec four -- sh -c 'echo salut >app/settings
	cd service && echo two >file && git commit -qam second && cd ..
	sqlite3 dev.db "INSERT INTO users(name) VALUES (\"bob\")"
	[ -z "$DATABASE_URL" ] || psql -qX -c "INSERT INTO orders VALUES (2, \$\$cake\$\$)"'
look_four 'the originals, untouched:'
must "$ATOLL" diff four

tell '   One commit for all of them.'
must "$ATOLL" commit four
look_four 'all four are new:'

tell '   And back, but for PostgreSQL, whose commits are final and said to be so.'
must "$ATOLL" undo four --allow partial
look_four 'as before:'
must "$ATOLL" rm four

tell 'That was the tour. In a project of your own, this starts a shell in a plan, and at its end shows what changed' \
	'and asks whether to commit it:' \
	'' \
	"  $ATOLL run" \
	'' \
	"./setup install puts the program into /usr/local/bin. All commands: $ATOLL help"
