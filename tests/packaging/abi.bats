#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The interface of libatoll.so is the recorded one, or one that old programs cannot tell from it.

setup() {
	check=$ATOLL_SOURCE_ROOT/tools/abi-update
	record=$ATOLL_SOURCE_ROOT/packaging/abi/libatoll.abi
	library=$ATOLL_BUILD_ROOT/src/libatoll.so.0
	export ATOLL_ABI_RECORD=$BATS_TEST_TMPDIR/libatoll.abi TMPDIR=$BATS_TEST_TMPDIR
	export ATOLL_ABI_SYMBOLS=$BATS_TEST_TMPDIR/symbols
	cp "$ATOLL_SOURCE_ROOT/packaging/debian/libatoll0.symbols" "$ATOLL_ABI_SYMBOLS"
}

# compare: with what the record became by a sed script.
compare() {
	sed "$1" "$record" >"$ATOLL_ABI_RECORD"
	run "$check" --check "$library"
	echo "$output"
	[ "$status" -ne 77 ] || skip "$output"
}

@test "the interface of libatoll is the recorded one" {
	compare ''
	[ "$status" -eq 0 ]
}

@test "the check of the interface notices what old programs would" {
	compare '/atoll_plan_diff/s/atoll_plan_diff/atoll_plan_gone/g'
	[ "$status" -eq 1 ]
	[[ $output == *"'function int64_t atoll_plan_gone"* ]]
	compare "s/class-decl name='atoll_resource' size-in-bits='256'/class-decl name='atoll_resource' size-in-bits='192'/"
	[ "$status" -eq 1 ]
	[[ $output == *"type size changed from 192 to"* ]]
	compare "s/enumerator name='ATOLL_PLAN_DECIDED' value='2'/enumerator name='ATOLL_PLAN_DECIDED' value='7'/"
	[ "$status" -eq 1 ]
	[[ $output == *"ATOLL_PLAN_DECIDED"* ]]
}

@test "the check of the interface lets new functions pass" {
	compare "/elf-symbol name='atoll_scan'/d; /function-decl name='atoll_scan'/,/<\/function-decl>/d"
	[ "$status" -eq 0 ]
}

@test "functions keep the version that first had them, and new ones are to be recorded" {
	sed -i 's/^ atoll_open@ATOLL_0 .*/ atoll_open@ATOLL_0 0.0.1/; /^ atoll_scan@/d' \
		"$ATOLL_ABI_SYMBOLS"
	compare ''
	[ "$status" -eq 1 ]
	[[ $output == *'>  atoll_scan@'*'Type: tools/abi-update' ]]
	"$check" "$library"
	grep -q '^ atoll_scan@ATOLL_0 ' "$ATOLL_ABI_SYMBOLS"
	grep -q '^ atoll_open@ATOLL_0 0.0.1$' "$ATOLL_ABI_SYMBOLS"
}

@test "abi-update records what was built" {
	rm "$ATOLL_ABI_SYMBOLS"
	"$check" "$library"
	run "$check" --check "$library"
	[ "$status" -eq 0 ]
}
