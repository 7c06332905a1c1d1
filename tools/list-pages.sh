#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The manual pages there are: one for each command that is not hidden, and two more.
set -eu
cd "$(dirname "$0")/../src/cli"
for file in cmd-*.c; do
	name=${file#cmd-}
	grep -q '\.hidden = true' "$file" || echo "atoll-${name%.c}.1"
done
printf '%s\n' atoll.1 libatoll.3
