#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Real tools that write below the home, on a fresh account and on a used one: what they do in a plan is what they do
# outside, and nothing real has changed before the commit. From local files alone.

load cli

need() {
	type -P "$1" >/dev/null || skip "no $1"
}

# a_home DIR KIND: with a project ~/work/app; a used one has what tools and people leave.
a_home() {
	mkdir -p "$1/work/app" "$1/Documents"
	cp -R "$elsewhere/given" "$1/Documents/given"
	[ "$2" = used ] || return 0
	mkdir -p "$1"/{.cache,.config,.local/bin,.npm,go/bin,go/pkg,dev/tools,Downloads}
	printf '[user]\n\tname = me\n' >"$1/.gitconfig"
	echo 'export X=1' >"$1/.profile"
}

# what_is DIR: its files, without those that tools name by time.
what_is() {
	(cd "$1" && find . \( -type f -o -type l \) -printf '%P %y %l\n' | sort && find . -type f -name '*.json' -exec md5sum {} + | sort -k 2)
}

# same_in_a_plan WORDS: run in ~/work/app of a fresh and of a used home, outside and in a plan, it has the same status, says
# the same last line and leaves the same in the project; of the rest of the home nothing is changed for real.
same_in_a_plan() {
	local kind before outside_status outside_last
	outside_tmp
	unset TMPDIR XDG_CONFIG_HOME XDG_STATE_HOME XDG_CACHE_HOME XDG_DATA_HOME NODE_PATH GOPATH GOFLAGS CARGO_HOME
	mkdir -p "$elsewhere/given"
	(cd "$elsewhere/given" && HOME=$elsewhere give)
	for kind in fresh used; do
		a_home "$elsewhere/$kind-out" "$kind"
		a_home "$elsewhere/$kind-in" "$kind"
		cd "$elsewhere/$kind-out/work/app"
		HOME=$elsewhere/$kind-out run sh -c "$1"
		outside_status=$status outside_last=${lines[-1]}
		[ "$outside_status" -eq 0 ] || { echo "outside, $kind: $output"; return 1; }
		cd "$elsewhere/$kind-in/work/app"
		export HOME=$elsewhere/$kind-in ATOLL_HOME=$elsewhere/store
		before=$(what_is "$HOME")
		"$ATOLL" start p --dir . >/dev/null 2>&1
		run --separate-stderr "$ATOLL" exec p -- sh -c "$1"
		[ "$status" -eq "$outside_status" ] || { echo "in a plan, $kind: $output $stderr"; return 1; }
		[ "${lines[-1]}" = "$outside_last" ]
		[ "$(what_is "$HOME")" = "$before" ]
		if [ -n "${2:-}" ]; then
			[[ $stderr == *"private to the plan, not committed: "*"$2"* ]] || { echo "$stderr"; return 1; }
		fi
		"$ATOLL" commit p --yes >/dev/null 2>&1
		[ "$(what_is .)" = "$(what_is "$elsewhere/$kind-out/work/app")" ]
		"$ATOLL" stop p --force --yes >/dev/null 2>&1
	done
}

@test "tools npm ci and npm install -g" {
	need npm
	give() {
		mkdir lib app
		echo '{"name":"lib","version":"1.0.0","main":"i.js","bin":{"say-lib":"i.js"}}' >lib/package.json
		printf '#!/usr/bin/env node\nconsole.log("lib says so")\n' >lib/i.js
		chmod +x lib/i.js
		(cd lib && npm pack --silent >/dev/null && mv lib-1.0.0.tgz ..)
		rm -r lib
		echo '{"name":"app","version":"1.0.0","dependencies":{"lib":"file:../../Documents/given/lib-1.0.0.tgz"}}' >app/package.json
		mkdir -p t/work/app t/Documents/given
		cp lib-1.0.0.tgz t/Documents/given
		cp app/package.json t/work/app
		(cd t/work/app && npm install --offline --no-audit --no-fund --silent --package-lock-only)
		cp t/work/app/package-lock.json app
		rm -r t
	}
	same_in_a_plan 'set -e; cp ~/Documents/given/app/* .
		npm ci --offline --no-audit --no-fund --silent
		export NPM_CONFIG_PREFIX=$HOME/.npm-global
		npm install -g --offline --no-audit --no-fund --silent ~/Documents/given/lib-1.0.0.tgz
		~/.npm-global/bin/say-lib; npm run env --silent >/dev/null; node node_modules/lib' '~/.npm-global/'
}

@test "tools pip install --user" {
	/usr/bin/python3 -m pip --version >/dev/null 2>&1 || skip 'no pip'
	give() {
		/usr/bin/python3 - <<-'EOF'
			import zipfile
			with zipfile.ZipFile('given_lib-1.0-py3-none-any.whl', 'w') as z:
			    z.writestr('given_lib.py', 'said = "lib says so"\n')
			    z.writestr('given_lib-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\nName: given-lib\nVersion: 1.0\n')
			    z.writestr('given_lib-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n')
			    z.writestr('given_lib-1.0.dist-info/RECORD', 'given_lib.py,,\ngiven_lib-1.0.dist-info/METADATA,,\n'
			               'given_lib-1.0.dist-info/WHEEL,,\ngiven_lib-1.0.dist-info/RECORD,,\n')
		EOF
	}
	same_in_a_plan 'set -e; export PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_WARN_SCRIPT_LOCATION=1
		/usr/bin/python3 -m pip install -q --user --no-index --find-links ~/Documents/given given-lib
		/usr/bin/python3 -c "import given_lib; print(given_lib.said)"' '~/.local/lib/'
}

@test "tools go build and go install" {
	need go
	give() {
		/usr/bin/python3 - <<-'EOF'
			import os, zipfile
			at = 'proxy/example.org/lib/@v'
			os.makedirs(at)
			mod = 'module example.org/lib\n\ngo 1.16\n'
			open(f'{at}/list', 'w').write('v1.0.0\n')
			open(f'{at}/v1.0.0.info', 'w').write('{"Version":"v1.0.0","Time":"2020-01-01T00:00:00Z"}')
			open(f'{at}/v1.0.0.mod', 'w').write(mod)
			with zipfile.ZipFile(f'{at}/v1.0.0.zip', 'w') as z:
			    z.writestr('example.org/lib@v1.0.0/go.mod', mod)
			    z.writestr('example.org/lib@v1.0.0/lib.go', 'package lib\n\nconst Said = "lib says so"\n')
		EOF
		mkdir app
		printf 'module example.org/app\n\ngo 1.16\n\nrequire example.org/lib v1.0.0\n' >app/go.mod
		printf 'package main\n\nimport "example.org/lib"\n\nfunc main() { println(lib.Said) }\n' >app/main.go
	}
	same_in_a_plan 'set -e; cp ~/Documents/given/app/* .
		export GOPROXY=file://$HOME/Documents/given/proxy GOSUMDB=off GOFLAGS=-mod=mod\ -modcacherw GOTOOLCHAIN=local
		go build -o tool .
		go install .
		./tool; ~/go/bin/app; echo done' '~/go/bin/app'
}

@test "tools git config --global, and a build beside the project fails loudly" {
	give() {
		echo x >x
	}
	same_in_a_plan 'set -e; git config --global user.email me@example.org
		git init -q -b main repo 2>/dev/null; git -C repo config user.name me; rm -r repo
		git config --global user.email' '~/.gitconfig'
	cd "$elsewhere/used-in/work/app"
	"$ATOLL" start p --dir . >/dev/null 2>&1
	run ! "$ATOLL" exec p -- mkdir ../build
	says 'Read-only file system'
	[ ! -e ../build ]
}
