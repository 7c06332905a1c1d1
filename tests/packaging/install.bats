#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What `meson install` makes: whole, hardened, usable from its place and from any other, and by
# programs that know nothing but pkg-config.

bats_require_minimum_version 1.5.0

setup_file() {
	export stage=$BATS_FILE_TMPDIR/stage
	meson install -C "$ATOLL_BUILD_ROOT" --no-rebuild --quiet --destdir "$stage" >/dev/null
}

setup() {
	export LC_ALL=C.UTF-8 NO_COLOR=1
	unset LD_LIBRARY_PATH ATOLL ATOLL_HELPER ATOLL_POSTGRES ATOLL_SYNC ATOLL_PLAN ATOLL_PLAN_ID
	top=$stage$ATOLL_PREFIX
	libs=$top/$ATOLL_LIB_DIR
	# Not below /tmp, which a command of a plan has to itself.
	work=$(mktemp -d /var/tmp/atoll-install.XXXXXX)
	export ATOLL_HOME=$work/home
	mkdir "$work/0" "$work/1"
	cd "$work" || return 1
}

teardown() {
	rm -rf "$work"
}

# installed COMMAND...: where the stage is in its place, for this command only.
installed() {
	local user=()
	[ "$(id -u)" -eq 0 ] || user=(--user --map-root-user)
	[ -d "$ATOLL_PREFIX" ] || skip "no directory $ATOLL_PREFIX"
	unshare "${user[@]}" --mount --propagation private true 2>/dev/null ||
		skip 'no mount namespaces'
	unshare "${user[@]}" --mount --propagation private sh -c \
		'mount --bind "$1" "$2" && shift 2 && exec "$@"' sh "$top" "$ATOLL_PREFIX" "$@"
}

# a_plan PROGRAM: through a whole plan; every step must succeed.
a_plan() {
	echo old >0/file
	"$@" start p --dir 0
	"$@" exec p -- sh -c 'echo new >0/file'
	[ "$(cat 0/file)" = old ]
	"$@" commit p
	[ "$(cat 0/file)" = new ]
	"$@" rollback p
	[ "$(cat 0/file)" = old ]
	"$@" stop p
}

# compile_and_run COMPILER FLAG... SOURCE: against what is installed, as anybody would.
compile_and_run() {
	cat >build.sh <<-'SCRIPT'
		set -eu
		export PKG_CONFIG_PATH=$1
		shift
		"$@" -o consumer $(pkg-config --cflags --libs atoll)
		LD_LIBRARY_PATH=$(pkg-config --variable=libdir atoll) ./consumer "$PWD"
	SCRIPT
	run installed sh build.sh "$ATOLL_PREFIX/$ATOLL_LIB_DIR/pkgconfig" "$@"
	[ "$status" -eq 0 ] || {
		echo "$output"
		return 1
	}
	[[ $output == *"works"* ]]
	rm -rf home store consumer
}

@test "install puts everything in its place and nothing anywhere else" {
	for file in bin/atoll "$ATOLL_HELPER_DIR/atoll-helper" "$ATOLL_HELPER_DIR/atoll-postgres" \
		"$ATOLL_HELPER_DIR/atoll-sync" \
		"$ATOLL_HELPER_DIR/atolld" lib/systemd/system/atolld.service lib/systemd/user/atolld.socket \
		include/atoll.h \
		"$ATOLL_LIB_DIR/libatoll.so" "$ATOLL_LIB_DIR/libatoll.so.0" \
		"$ATOLL_LIB_DIR/pkgconfig/atoll.pc" share/man/man1/atoll.1 \
		share/doc/atoll/README.md share/doc/atoll/docs/design/commit-protocol.md; do
		[ -s "$top/$file" ] || {
			echo "$file is missing"
			return 1
		}
	done
	run bash -c "find '$stage' ! -type d | grep -Ev '/(bin/atoll|atoll-(helper|postgres|sync)|atolld|systemd/(system|user)/atolld\.(service|socket)|atoll\.h|atoll\.pc|libatoll\.so[.0-9]*)$|/share/(man|doc/atoll|atoll|bash-completion|zsh|fish)/'"
	echo "$output"
	[ -z "$output" ]
	# Modes for everybody, set-id for nobody.
	[ -z "$(find "$stage" -perm /7022 ! -type l)" ]
}

# links DIRECTORY: each link of a page below it, to another page or a file there, leads somewhere.
links() {
	local page target n=0
	while read -r page; do
		while read -r target; do
			n=$((n + 1))
			[ -s "$(dirname "$page")/$target" ] || {
				echo "$page: link to $target leads nowhere"
				return 1
			}
		done < <(grep -oE '\]\([^)# ]+' "$page" | sed 's/^](//' | grep -v :)
	done < <(find -L "$1" -name '*.md')
	[ "$n" -ge 50 ]
}

@test "installed the links of the documentation lead somewhere" {
	links "$top/share/doc/atoll"
}

@test "installed the library has its name and its version, and exports no other" {
	readelf -d "$libs/libatoll.so.0" | grep -F 'soname: [libatoll.so.0]'
	nm -D --defined-only "$libs/libatoll.so.0" >symbols
	grep -q ' T atoll_open@@ATOLL_0$' symbols
	run ! grep -vE ' T atoll_[a-z_]+@@ATOLL_0$| A ATOLL_0$' symbols
	nm -D --undefined-only "$libs/libatoll.so.0" >wanted
	run ! grep -E '\bU (exit|_exit|abort_handler|printf|puts|sigaction|signal)(@|$)' wanted
}

@test "installed programs and library are hardened" {
	for file in "$top/bin/atoll" "$top/$ATOLL_HELPER_DIR"/atoll{-helper,-postgres,-sync,d} \
		"$libs/libatoll.so.0"; do
		echo "$file"
		readelf -hlWd "$file" >elf
		readelf -Ws --dyn-syms "$file" >symbols
		grep -qE 'Type: +DYN' elf
		grep -q 'GNU_RELRO' elf
		grep -qE 'FLAGS_1.*NOW' elf
		grep -qE 'GNU_STACK .* RW +0x' elf
		run ! grep -E 'TEXTREL|RPATH|RUNPATH' elf
		grep -q '__stack_chk_fail' symbols
		grep -qE '__(read|snprintf|vsnprintf|memcpy|fprintf|vasprintf|printf)_chk' symbols
		case $file in
		*.so.0) ;;
		*) grep -qE 'FLAGS_1.*PIE' elf ;;
		esac
	done
}

@test "installed atoll uses its own helper, whatever the environment says" {
	a_plan installed env ATOLL_HELPER=/nonexistent/helper "$ATOLL_PREFIX/bin/atoll"
}

@test "unpacked anywhere atoll finds the helper beside it, or the one that is named" {
	a_plan "$top/bin/atoll"
	"$top/bin/atoll" start p --dir 0
	ATOLL_HELPER=/nonexistent/helper run -125 "$top/bin/atoll" exec p -- true
	[[ $output == *"'/nonexistent/helper'"* ]]
	"$top/bin/atoll" stop p
}

@test "a helper in a directory for all is not trusted" {
	cp -a "$top" "$work/for-all"
	"$work/for-all/bin/atoll" run --rollback --dir 0 -- true
	chmod 1777 "$work/for-all"
	run -125 "$work/for-all/bin/atoll" run --rollback --dir 0 -- true
	[[ $output == *"'$ATOLL_PREFIX/$ATOLL_HELPER_DIR/atoll-helper'"* ]]
	# The code that exec runs is its own.
	"$top/bin/atoll" start p --dir 0
	"$work/for-all/bin/atoll" exec p -- true
	"$top/bin/atoll" list --json | jq -r '.plans[].name' | xargs -n 1 "$top/bin/atoll" stop --force
}

@test "a program in C uses the installed library" {
	for compiler in gcc clang; do
		for std in c99 c17; do
			compile_and_run "$compiler" "-std=$std" -D_POSIX_C_SOURCE=200809L -Wall -Wextra \
				-pedantic-errors -Werror "$ATOLL_CONSUMER_C"
		done
	done
}

@test "a program in C++ uses the installed library" {
	for compiler in g++ clang++; do
		for std in c++11 c++20; do
			compile_and_run "$compiler" "-std=$std" -Wall -Wextra -pedantic-errors -Werror \
				"$ATOLL_CONSUMER_CXX"
		done
	done
}
