#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Strategies that come as modules: the one in the manual, and ones that must not be opened.

load cli

manual=$ATOLL_SOURCE_ROOT/docs/design/strategies.md

# part NAME: the code below the line that names it.
part() {
	sed -n "/^<!-- $1 -->/,/^\`\`\`\$/p" "$manual" | sed '1,2d;$d'
}

build() {
	part onefile.c >onefile.c
	mkdir -p strategies
	cc -Wall -Wextra -Werror -shared -fPIC -o strategies/onefile.so onefile.c \
		-I"$ATOLL_SOURCE_ROOT/include" 2>cc.log || { cat cc.log; return 1; }
	export ATOLL_STRATEGIES=$PWD/strategies
	echo 'workers = 1' >app.conf
}

@test "example of the manual is built and used" {
	build
	mkdir bin
	ln -s "$ATOLL" bin/atoll
	# The flags are those of an installed library.
	printf '#!/bin/sh\necho -I%s/include\n' "$ATOLL_SOURCE_ROOT" >bin/pkg-config
	chmod +x bin/pkg-config
	part onefile.sh | sed '/^atoll rollback/i [ "$(cat app.conf)" = "workers = 8" ]' >onefile.sh
	run env PATH="$PWD/bin:$PATH" sh -e onefile.sh
	status_is 0
	says 'committed tune'
	[ "$(cat app.conf)" = 'workers = 1' ]
}

@test "module beside a directory: both or none, and a conflict of either" {
	outside_tmp
	build
	mkdir d
	echo one >d/f
	atoll start p --dir d
	atoll start p --or-open --strategy onefile --dir app.conf
	echo 'workers = 2' >"$(atoll path p app.conf)"
	atoll exec p -- sh -c 'echo two >d/f'
	echo 'workers = 9' >app.conf
	run atoll commit p
	status_is 3
	[ "$(cat d/f)" = one ]
	echo 'workers = 1' >app.conf
	atoll commit p
	[ "$(cat d/f) $(cat app.conf)" = 'two workers = 2' ]
	atoll rollback p
	[ "$(cat d/f) $(cat app.conf)" = 'one workers = 1' ]
}

@test "module that does not fit is refused by name" {
	build
	run atoll start p --strategy nosuch --dir app.conf
	status_is 1
	says "there is no strategy 'nosuch'"
	says 'use one of: overlay, copy,'
	says onefile
	cp strategies/onefile.so strategies/other.so
	run atoll start p --strategy other --dir app.conf
	says "holds the strategy 'onefile', not 'other'"
	echo junk >strategies/junk.so
	run atoll start p --strategy junk --dir app.conf
	says 'cannot be opened'
	echo 'int x;' | cc -shared -fPIC -o strategies/empty.so -xc -
	run atoll start p --strategy empty --dir app.conf
	says 'lacks the function atoll_strategy_module()'
	run atoll start p --strategy ../strategies/onefile --dir app.conf
	says 'there is no strategy'
	run atoll list
	! grep -q '^p' <<<"$output"
}

@test "module of somebody else's is not opened" {
	build
	chmod g+w strategies/onefile.so
	run atoll start p --strategy onefile --dir app.conf
	says 'may be written by others'
	chmod g-w strategies/onefile.so
	chmod o+w strategies
	run atoll start p --strategy onefile --dir app.conf
	says 'may be written by others'
	chmod o-w strategies
	mv strategies/onefile.so elsewhere.so
	ln -s ../elsewhere.so strategies/onefile.so
	run atoll start p --strategy onefile --dir app.conf
	[ "$status" -ne 0 ]
	rm strategies/onefile.so
	mv elsewhere.so strategies/onefile.so
	if [ "$(id -u)" -eq 0 ]; then
		chown 65534 strategies/onefile.so
		run atoll start p --strategy onefile --dir app.conf
		says 'belongs to user 65534'
		chown 0 strategies/onefile.so
	fi
	atoll start p --strategy onefile --dir app.conf
}
