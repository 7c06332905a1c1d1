#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Real tools that write below the home, on a fresh account and on a used one: what they do in a plan is what they do
# outside, and nothing real has changed before the commit. From local files alone.

load cli

# need PROGRAM: it is there, and works with another home.
need() {
	type -P "$1" >/dev/null || skip "no $1"
	HOME=$BATS_TEST_TMPDIR "$1" "${2:---version}" >/dev/null 2>&1 || skip "$1 does not work here"
}

# a_home DIR KIND: with a project ~/work/app, which holds what give left in project; a used one has what tools and people leave.
a_home() {
	mkdir -p "$1/work/app" "$1/Documents"
	cp -R "$elsewhere/given" "$1/Documents/given"
	[ ! -d "$1/Documents/given/project" ] || cp -R "$1/Documents/given/project/." "$1/work/app"
	[ "$2" = used ] || return 0
	mkdir -p "$1"/{.cache,.config,.local/bin,.npm,go/bin,go/pkg,dev/tools,Downloads}
	printf '[user]\n\tname = me\n' >"$1/.gitconfig"
	echo 'export X=1' >"$1/.profile"
}

# A wheel of Python, without a network.
give_wheel() {
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
		give_wheel
	}
	same_in_a_plan 'set -e; export PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_WARN_SCRIPT_LOCATION=1
		/usr/bin/python3 -m pip install -q --user --no-index --find-links ~/Documents/given given-lib
		/usr/bin/python3 -c "import given_lib; print(given_lib.said)"' '~/.local/lib/'
}

@test "tools go build and go install" {
	need go version
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

@test "tools pip in a venv" {
	/usr/bin/python3 -m pip --version >/dev/null 2>&1 || skip 'no pip'
	give() {
		give_wheel
	}
	same_in_a_plan 'set -e; /usr/bin/python3 -m venv --without-pip .venv
		/usr/bin/python3 -m pip --python .venv/bin/python install -q --no-index --find-links ~/Documents/given given-lib
		find .venv -name __pycache__ -prune -exec rm -r {} +; .venv/bin/python -Bc "import given_lib; print(given_lib.said)"'
}

@test "tools pnpm i" {
	need pnpm
	give() {
		mkdir lib project
		echo '{"name":"lib","version":"1.0.0","main":"i.js"}' >lib/package.json
		echo 'console.log("lib says so")' >lib/i.js
		(cd lib && npm pack --silent >/dev/null && mv lib-1.0.0.tgz ..)
		rm -r lib
		echo '{"name":"app","version":"1.0.0","dependencies":{"lib":"file:../../Documents/given/lib-1.0.0.tgz"}}' >project/package.json
	}
	same_in_a_plan 'set -e; pnpm i --offline --silent; rm -f node_modules/.modules.yaml node_modules/.pnpm-workspace-state*; node node_modules/lib'
}

@test "tools cargo build and cargo install" {
	# That of rustup looks for its tools below the home.
	! type -P rustup >/dev/null || PATH=$(dirname "$(rustup which cargo)"):$PATH
	need cargo
	need rustc
	give() {
		mkdir -p project/src
		printf '[package]\nname = "app"\nversion = "1.0.0"\nedition = "2021"\n' >project/Cargo.toml
		printf 'fn main() { println!("app says so"); }\n' >project/src/main.rs
	}
	same_in_a_plan 'set -e; cargo build --offline -q; target/debug/app
		cargo install --offline -q --path .; rm -r target; ~/.cargo/bin/app' '~/.cargo/bin/app'
}

@test "tools cmake beside its source and in it" {
	need cmake
	give() {
		mkdir -p project/src
		printf 'cmake_minimum_required(VERSION 3.13)\nproject(app C)\nadd_executable(app app.c)\n' >project/src/CMakeLists.txt
		printf '#include <stdio.h>\nint main(void) { puts("app says so"); return 0; }\n' >project/src/app.c
	}
	same_in_a_plan 'set -e; cd src; cmake -S . -B ../build >/dev/null; cmake --build ../build >/dev/null; ../build/app; cmake -B . >/dev/null; cmake --build . >/dev/null; ./app'
}

@test "tools ccache" {
	need ccache
	give() {
		mkdir project
		echo 'int f(void) { return 7; }' >project/f.c
	}
	same_in_a_plan 'set -e; unset CCACHE_DIR; ccache -z >/dev/null; for i in 1 2; do ccache cc -c f.c -o f$i.o; done; ls; ccache -s | grep -c Hits'
}

@test "tools make -j" {
	need make
	give() {
		mkdir project
		printf 'all: $(patsubst %%,o/%%,1 2 3 4 5 6)\n\t+@$(MAKE) --no-print-directory sub\nsub: s1 s2\ns%%:\n\t@echo $@ >$@\no/%%:\n\t@mkdir -p o; sleep 0.01; echo $* >$@\n' >project/Makefile
	}
	same_in_a_plan 'set -e; make -s -j3; make -q -j3 o/1; cat o/* s1 | tr -d "\\n"; echo; ls o | wc -l'
}

@test "tools git clone, rebase and worktree of a repository that was there" {
	give() {
		export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z'
		git init -q -b main project
		git -C project config user.name me
		git -C project config user.email me@example.org
		echo one >project/one
		git -C project add one
		git -C project commit -q -m one
		git -C project checkout -q -b side
		echo side >project/side
		git -C project add side
		git -C project commit -q -m side
		git -C project checkout -q main
		echo two >project/two
		git -C project add two
		git -C project commit -q -m two
	}
	same_in_a_plan 'set -e; export GIT_AUTHOR_DATE="2020-01-02T00:00:00Z" GIT_COMMITTER_DATE="2020-01-02T00:00:00Z"
		git clone -q . copy; git -C copy fsck; git clone -q --bare . bare.git; git -C bare.git fsck
		git clone -q . ~/.private; git -C ~/.private log --oneline | wc -l
		git rebase -q main side; git log --oneline | wc -l; git checkout -q main
		git worktree add -q work side; ls work; git worktree remove work; rm -rf .git/worktrees
		git -C copy rev-parse HEAD; git rev-parse side'
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
