#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# ./setup and tools/sum-tests.py, as far as they can be tried without installing anything.

setup() {
	cd "$ATOLL_SOURCE_ROOT"
	stages=$BATS_TEST_TMPDIR/stages
	log=$BATS_TEST_TMPDIR/log.json
	unset CI
}

# as_user NAME=VALUE... COMMAND...: without root, and without sudo in PATH.
as_user() {
	local become=()
	mkdir -p "$BATS_TEST_TMPDIR/bin"
	for tool in sh cat dirname dpkg-query id sed tr; do
		ln -sf "$(command -v "$tool")" "$BATS_TEST_TMPDIR/bin/$tool"
	done
	if [ "$(id -u)" -eq 0 ]; then
		chmod 755 "$BATS_RUN_TMPDIR" "$BATS_RUN_TMPDIR/test" "$BATS_TEST_TMPDIR"
		become=(setpriv --reuid=65534 --regid=65534 --clear-groups)
	fi
	"${become[@]}" /usr/bin/env PATH="$BATS_TEST_TMPDIR/bin" "$@"
}

# log_run NAME RESULT STDOUT: one program in a Meson log.
log_run() {
	jq -nc --arg n "$1" --arg r "$2" --arg o "$3" \
		'{name: $n, result: $r, stdout: $o, returncode: 0}' >>"$log"
}

sum() {
	run /usr/bin/python3 tools/sum-tests.py "$stages"
	[ "${lines[-1]}" = "$1" ]
}

@test "setup names the missing packages and the command to type" {
	deps=$BATS_TEST_TMPDIR/deps.txt
	printf '# none of this\n[run]\nlibc6\natoll-no-such-package # really\n[test]\natoll-other\n' >"$deps"
	install -m 755 setup "$BATS_TEST_TMPDIR/setup"
	chmod 644 "$deps"
	run as_user ATOLL_SETUP_DEPS="$deps" sh "$BATS_TEST_TMPDIR/setup" </dev/null
	[ "$status" -eq 1 ]
	[[ $output == *"missing packages: atoll-no-such-package"* ]]
	[[ $output == *"apt-get install -y --no-install-recommends atoll-no-such-package"* ]]
	[[ $output != *"+ "* ]]
}

@test "setup wants the packages of what it is asked for, and takes a package for what it stands for" {
	deps=$BATS_TEST_TMPDIR/deps.txt
	awk=$(dpkg-query -W -f='${Provides}\n' | grep -ow awk | head -1)
	[ -n "$awk" ]
	printf '[run]\nlibc6\natoll-run\n[test]\n%s\natoll-test\n[check]\natoll-check\n' "$awk" >"$deps"
	install -m 755 setup "$BATS_TEST_TMPDIR/setup"
	chmod 644 "$deps"
	while read -r word packages; do
		run as_user ATOLL_SETUP_DEPS="$deps" sh "$BATS_TEST_TMPDIR/setup" "$word" </dev/null
		echo "$output"
		[ "$status" -eq 1 ]
		[[ ${lines[0]} == "missing packages: $packages" ]]
	done <<-'END'
		run atoll-run
		install atoll-run
		test atoll-run atoll-test
		check atoll-run atoll-test atoll-check
		coverage atoll-run atoll-test atoll-check
	END
}

@test "the list of packages has three sections and no package twice" {
	[ "$(grep '^\[' tools/deps-debian.txt | tr -d '\n')" = '[run][test][check]' ]
	[ -z "$(grep -v '^#' tools/deps-debian.txt | sed '/^$/d' | sort | uniq -d)" ]
}

@test "setup builds the tests only where they are asked for, and keeps them; setup install says where it is" {
	mkdir -p "$BATS_TEST_TMPDIR/bin" "$BATS_TEST_TMPDIR/tree/build"
	cp setup "$BATS_TEST_TMPDIR/tree/"
	cat >"$BATS_TEST_TMPDIR/bin/meson" <<-'EOF'
		#!/bin/sh
		[ "$1" != setup ] || : >build/build.ninja
	EOF
	printf '#!/bin/sh\nexec "$@"\n' >"$BATS_TEST_TMPDIR/bin/sudo"
	chmod 755 "$BATS_TEST_TMPDIR/bin/meson" "$BATS_TEST_TMPDIR/bin/sudo"
	PATH=$BATS_TEST_TMPDIR/bin:$PATH
	run "$BATS_TEST_TMPDIR/tree/setup" --no-deps install
	echo "$output"
	[ "$status" -eq 0 ]
	[[ ${lines[0]} == '+ meson setup '*' -Dtests=false build' ]]
	[[ $output == *'meson install -C build'* ]]
	[[ ${lines[-1]} == 'installed: /usr/local/bin/atoll; '* ]]
	mkdir "$BATS_TEST_TMPDIR/tree/build/tests"
	run "$BATS_TEST_TMPDIR/tree/setup" --no-deps build
	[ "$status" -eq 2 ]
	run "$BATS_TEST_TMPDIR/tree/setup" --no-deps
	echo "$output"
	[[ $output == *'-Dtests=true build'* ]]
}

@test "setup refuses an unknown word" {
	run ./setup --no-deps frobnicate
	[ "$status" -eq 2 ]
	run ./setup --no-deps test -- x
	[ "$status" -eq 2 ]
}

@test "setup --debian is for check, and for root" {
	for words in 'test --debian 13' 'check --debian' 'check --debian 11'; do
		run ./setup --no-deps $words
		echo "$output"
		[ "$status" -eq 1 ]
		[[ $output == 'setup: '*--debian* || $output == 'setup: '*'takes --debian' ]]
	done
	install -m 755 setup "$BATS_TEST_TMPDIR/setup"
	run as_user sh "$BATS_TEST_TMPDIR/setup" check --debian 13 </dev/null
	[ "$status" -eq 1 ]
	[ "$output" = 'setup: --debian needs root' ]
}

@test "setup tests a copy when others may not look where the tree lies" {
	[ "$(id -u)" -eq 0 ] || skip 'needs root'
	mkdir -p "$BATS_TEST_TMPDIR/bin" "$BATS_TEST_TMPDIR/closed/tools"
	cp setup "$BATS_TEST_TMPDIR/closed/"
	cp tools/sum-tests.py "$BATS_TEST_TMPDIR/closed/tools/"
	chmod -R go= "$BATS_TEST_TMPDIR/closed"
	printf '#!/bin/sh\necho "meson in $PWD"\nexit 1\n' >"$BATS_TEST_TMPDIR/bin/meson"
	chmod 755 "$BATS_TEST_TMPDIR/bin/meson"
	PATH=$BATS_TEST_TMPDIR/bin:$PATH run "$BATS_TEST_TMPDIR/closed/setup" --no-deps test
	echo "$output"
	[ "$status" -eq 1 ]
	[[ $output == *'meson in /var/tmp/atoll-setup.'* ]]
	[[ $output != *"meson in $BATS_TEST_TMPDIR"* ]]
	[[ ${lines[-1]} == '0 passed, '*' failed' ]]
	copy=$(sed -n 's/^meson in //p;T;q' <<<"$output")
	[ ! -e "$copy" ]
}

@test "setup test goes on where build was configured with other options" {
	mkdir -p "$BATS_TEST_TMPDIR/bin" "$BATS_TEST_TMPDIR/tree/tools" "$BATS_TEST_TMPDIR/tree/build"
	chmod 755 "$BATS_RUN_TMPDIR" "$BATS_RUN_TMPDIR/test" "$BATS_TEST_TMPDIR"
	cp setup "$BATS_TEST_TMPDIR/tree/"
	cp tools/sum-tests.py tools/in-memory "$BATS_TEST_TMPDIR/tree/tools/"
	echo others >"$BATS_TEST_TMPDIR/tree/build/.setup-options"
	printf '#!/bin/sh\nexit 1\n' >"$BATS_TEST_TMPDIR/bin/meson"
	chmod 755 "$BATS_TEST_TMPDIR/bin/meson"
	PATH=$BATS_TEST_TMPDIR/bin:$PATH run "$BATS_TEST_TMPDIR/tree/setup" --no-deps test
	echo "$output"
	[ "$status" -eq 1 ]
	[[ $output == *"rm -rf build"* ]]
	[[ ${lines[-1]} == '0 passed, '*' failed' ]]
	[ -z "$(ls -d "$BATS_TEST_TMPDIR"/tree/build-scratch.* 2>/dev/null)" ]
}

@test "sum-tests counts single results" {
	log_run a OK $'1..2\nok 1 - x\nok 2 - y'
	log_run b FAIL $'1..2\nok 1 - z\nnot ok 2 - w'
	printf 'one\t1\t%s\ntwo\t0\t-\n' "$log" >"$stages"
	sum '4 passed, 1 failed'
	[ "$status" -eq 1 ]
}

@test "sum-tests says again what a program said of a failure" {
	log_run a FAIL $'1..2\nnot ok 1 - x\n# 1 != 2\n# here\nok 2 - y\n# and so on'
	printf 'one\t1\t%s\n' "$log" >"$stages"
	sum '1 passed, 1 failed'
	[[ $output == *$'failed: one: a: x\n    # 1 != 2\n    # here\n1 passed'* ]]
}

@test "sum-tests counts what broke without saying not ok" {
	log_run crash ERROR $'1..2\nok 1 - x'
	log_run silent OK ''
	log_run short OK $'1..3\nok 1 - y'
	log_run empty SKIP '1..0'
	printf 'one\t1\t%s\nbuild\t1\t-\nnothing\t7\t/nonexistent.json\n' "$log" >"$stages"
	sum '2 passed, 6 failed'
	[ "$status" -eq 1 ]
}

@test "tst_09 skipped is not passed" {
	log_run a OK $'1..2\nok 1 - x # SKIP needs root\nok 2 - y'
	log_run b SKIP '1..0 # SKIP no overlayfs'
	printf 'one\t0\t%s\n' "$log" >"$stages"
	sum '1 passed, 0 failed, 2 skipped'
	[ "$status" -eq 0 ]
	CI=true sum '1 passed, 2 failed'
	[ "$status" -eq 1 ]
}

@test "tst_09 cmocka's skips are skips, with their names" {
	log_run a OK $'1..2\nnot ok 1 # SKIP x\nok 2 - y'
	printf 'user\t0\t%s\n' "$log" >"$stages"
	sum '1 passed, 0 failed, 1 skipped'
	log_run a OK $'1..2\nok 1 - x\nok 2 - y'
	sum '3 passed, 0 failed'

	printf '#!/bin/sh\nprintf "1..2\\n# skipped: no disk\\nnot ok 1 # SKIP x\\nnot ok 2 - y\\n"\nexit 1\n' \
		>"$BATS_TEST_TMPDIR/program"
	run /usr/bin/python3 tests/lib/run-cmocka.py sh "$BATS_TEST_TMPDIR/program"
	[ "$status" -eq 1 ]
	[ "${lines[2]}" = 'ok 1 - x # SKIP no disk' ]
	[ "${lines[3]}" = 'not ok 2 - y' ]
	run /usr/bin/python3 tests/lib/run-cmocka.py sh -c 'kill -SEGV $$'
	[ "$status" -eq 139 ]
}

@test "sum-tests forgives a skip that another stage made good" {
	log_run a OK $'1..2\nok 1 - x # SKIP needs root\nok 2 - y'
	printf 'user\t0\t%s\n' "$log" >"$stages"
	log=$BATS_TEST_TMPDIR/root.json
	log_run a OK $'1..2\nok 1 - x\nok 2 - y'
	printf 'root\t0\t%s\n' "$log" >>"$stages"
	CI=true sum '3 passed, 0 failed'
	[ "$status" -eq 0 ]
}

@test "sum-tests knows a program under the name of its run as a user, but no program for another" {
	log_run 's+both / a-user' OK $'1..2\nok 1 - x # SKIP needs root\nok 2 - y'
	log_run 's / a' OK $'1..2\nok 1 - x\nok 2 - y # SKIP needs a user'
	printf 'one\t0\t%s\n' "$log" >"$stages"
	CI=true sum '2 passed, 0 failed'
	log_run 's / b-user' OK $'1..1\nok 1 - z'
	log_run 's / b' SKIP '1..0 # SKIP needs root'
	CI=true sum '3 passed, 1 failed'
	log_run 's / c-strings' OK $'1..1\nok 1 - u # SKIP is about ordinary users'
	CI=true sum '3 passed, 2 failed'
	log_run 's / c' OK $'1..1\nok 1 - u'
	CI=true sum '4 passed, 1 failed'
	log_run 's / d' OK $'1..2\nok 1 - v, root\nok 2 - v, user # SKIP needs root'
	CI=true sum '5 passed, 1 failed'
}

@test "sum-tests counts what was unsteady as it was alone, and names it" {
	log_run 's / a' FAIL $'1..1\nnot ok 1 - x'
	log_run 's / b' OK $'1..1\nok 1 - y'
	printf 'one\t0\t%s\ta\n' "$log" >"$stages"
	log=$log.again
	log_run 's / a' OK $'1..1\nok 1 - x'
	sum '2 passed, 0 failed'
	[ "$status" -eq 0 ]
	[[ $output == *'unsteady: one: a'* ]]
}

@test "sum-tests gives no second look to what a sanitizer found, nor to many" {
	again() {
		run /usr/bin/python3 tools/sum-tests.py --again "$log"
		[ "$status" -eq 0 ] && [ "$output" = "$1" ]
	}
	log_run 's / a' FAIL $'1..1\nnot ok 1 - x'
	log_run 's / b' OK $'1..1\nok 1 - y'
	log_run 's / c' TIMEOUT ''
	again $'a\nc'
	cp "$log" "$log.two"
	log_run 's / d' ERROR 'WARNING: ThreadSanitizer: data race'
	again ''
	cp "$log.two" "$log"
	log_run 'p:integration+order / d' FAIL ''
	again ''
	mv "$log.two" "$log"
	log_run 'p:integration+words / e' FAIL ''
	again $'a\nc\ne'
	log_run 's / f' FAIL ''
	again ''
}

@test "setup looks again, twice, at what failed beside others, but never at a kill" {
	tree=$BATS_TEST_TMPDIR/tree
	mkdir -p "$BATS_TEST_TMPDIR/bin" "$tree/tools"
	chmod 755 "$BATS_RUN_TMPDIR" "$BATS_RUN_TMPDIR/test" "$BATS_TEST_TMPDIR" "$tree"
	cp setup "$tree/"
	cp tools/sum-tests.py "$tree/tools/"
	# Program "shaky" fails the first time in each build, "wrong" always does; both run in each stage.
	cat >"$BATS_TEST_TMPDIR/bin/meson" <<-'EOF'
		#!/bin/bash
		[ "$1" = setup ] && exec mkdir -p "${@: -1}"
		[ "$1" = test ] || exit 0
		suite=words
		[[ $* == *'--suite kill '* ]] && suite=crash+kill
		base=$(sed -n 's/.*--logbase \([a-z]*\).*/\1/p' <<<"$*")
		[[ $* == *--wrapper* ]] && base=$base-setpriv
		mkdir -p "$3/meson-logs"
		log=$3/meson-logs/$base.json
		: >"$log"
		failed=0
		for program in $PROGRAMS; do
			[[ $* != *' --num-processes 1 '* || $* == *" $program"* ]] || continue
			result=OK ok=ok
			if [ $program = wrong ] || { [ $program = shaky ] && [ ! -e "$log.once" ]; }; then
				result=FAIL ok='not ok' failed=1
			fi
			printf '{"name": "p:%s / %s", "result": "%s", "returncode": %d, "stdout": "1..1\\n%s 1 - x\\n"}\n' \
				$suite $program $result $failed "$ok" >>"$log"
		done
		: >"$log.once"
		exit $failed
	EOF
	chmod 755 "$BATS_TEST_TMPDIR/bin/meson"
	PATH=$BATS_TEST_TMPDIR/bin:$PATH PROGRAMS='good shaky' run "$tree/setup" --no-deps test
	echo "$output"
	[[ $output == *'unsteady: style, command line, packages: shaky'* ]]
	[[ $output == *'unsteady: concurrency with thread sanitizer: shaky'* ]]
	[[ $output == *'failed: kills and rounds: p:crash+kill / shaky: x'* ]]
	[[ ${lines[-1]} == *' passed, 1 failed' ]]
	rm -rf "$tree"/build*
	PATH=$BATS_TEST_TMPDIR/bin:$PATH PROGRAMS='good wrong' run "$tree/setup" --no-deps test
	[[ $output != *'unsteady: '* ]]
	[[ $output == *'failed: style, command line, packages: p:words / wrong: x'* ]]
	[ "$status" -eq 1 ]
}

@test "coverage wants a reason for what is not reached, and so much of each directory" {
	trace=$BATS_TEST_TMPDIR/trace
	printf 'SF:src/lock/range.c\nFN:11,no_such_function\nDA:12,7\nDA:13,0\nend_of_record\n' >"$trace"
	run /usr/bin/python3 tools/coverage.py --check "$trace"
	[ "$status" -eq 1 ]
	[[ $output == *'src/lock/range.c: no_such_function: 13'* ]]
	[[ $output == *'src/lock            2        1     50.0'* ]]
	[[ $output == *'src/lock: less than 95 percent'* ]]
	[[ $output == *'no_such_function: not reached, and docs/coverage.md has no reason'* ]]
	sed -i s/13,0/13,1/ "$trace"
	run /usr/bin/python3 tools/coverage.py --check "$trace"
	[ "$status" -eq 0 ]
}
