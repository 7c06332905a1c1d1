# SPDX-License-Identifier: Apache-2.0
"""Compilers and build tools."""

from row import Row

PROJECT = '''
mkdir -p lib; for i in 1 2 3 4 5 6; do echo "int f$i(int x) { return x + $i; }" >lib/f$i.c; done
printf 'int f1(int);int f6(int);\\n#include <stdio.h>\\nint main(void) { printf("%%d\\\\n", f1(f6(0))); return 0; }\\n' >main.c
'''

ROWS = [
    Row('gcc', 'gcc libc6-dev', short=True, begin=PROJECT, script='''
gcc -g -O2 -Wall -pipe -MMD -save-temps=obj -o prog main.c lib/*.c; ./prog; gcc -shared -fPIC -o libf.so lib/*.c; objdump -f prog | grep format
gcc -c -flto -frandom-seed=1 lib/f1.c -o f1.o; echo 'int x = ;' >bad.c; gcc -c bad.c
''', status=1),
    Row('gcc-coverage', 'gcc libc6-dev', begin=PROJECT, script='''
gcc --coverage -o prog main.c lib/*.c; ./prog; ./prog; gcov -n prog-main.gcda | head -4; gcov-tool merge . . -o merged 2>&1 | wc -l
''', varying='*.gcda *.gcno prog'),
    Row('make', 'make gcc libc6-dev', short=True, begin=PROJECT + r'''
printf 'OBJ = $(patsubst %%.c,%%.o,$(wildcard lib/*.c)) main.o\nprog: $(OBJ)\n\t$(CC) -o $@ $(OBJ)\nclean:\n\trm -f $(OBJ) prog\nsub:\n\t+$(MAKE) --no-print-directory prog\n.INTERMEDIATE: main.o\n' >Makefile
''', script='''
make -j4 -Otarget | sort; make -q prog; touch lib/f3.c; make -j4 | sort; make clean; make -j3 sub | sort; ./prog; make nothing || echo $?
''', hidden=r'jobserver-auth=\S+'),
    Row('cmake', 'cmake ninja-build g++ gcc libc6-dev', begin=PROJECT + '''
printf 'cmake_minimum_required(VERSION 3.20)\\nproject(p C CXX)\\nfile(GLOB s lib/*.c)\\nadd_library(f SHARED ${s})\\nadd_executable(prog main.c)
target_link_libraries(prog f)\\ninstall(TARGETS prog f)\\nenable_testing()\\nadd_test(run prog)\\n' >CMakeLists.txt
''', script='''
cmake -S . -B b -G Ninja -DCMAKE_INSTALL_PREFIX=$PWD/installed | sed 's/([0-9.]*s)//'; cmake --build b | tail -1; ctest --test-dir b | grep passed
cmake --install b >installed.log; touch main.c; ninja -C b -n | tail -1; cpack --version | head -1; LD_LIBRARY_PATH=installed/lib installed/bin/prog
''', varying='b/.ninja_log b/.ninja_deps b/CMakeFiles/*/*.log b/Testing/* b/CMakeFiles/*.log b/CMakeFiles/CMakeOutput.log b/CMakeFiles/CMakeConfigureLog.yaml',
        hidden=r'\d+\.\d+ ?s\w*|\[\d+/\d+\].*'),
    Row('meson', 'meson ninja-build gcc libc6-dev', short=True, begin=PROJECT + '''
printf "project('p', 'c')\\nf = library('f', run_command('sh', '-c', 'ls lib/*.c', check: true).stdout().split())
e = executable('prog', 'main.c', link_with: f, install: true)\\ntest('run', e)\\n" >meson.build
''', script='''
meson setup b --prefix=$PWD/installed | grep -v Version; meson compile -C b | grep -c Linking; meson test -C b | grep '^Ok'
meson install -C b | wc -l; touch lib/f1.c; ninja -C b -t targets all | wc -l
''', varying='b/.ninja_log b/.ninja_deps b/meson-logs/* b/meson-private/*.dat b/meson-private/*.pickle b/meson-info/*', hidden=r'[\d.]+s\b'),
    Row('ccache', 'ccache gcc libc6-dev', begin=PROJECT + 'mkdir cache', varying='cache/*', script='''
export CCACHE_DIR=$PWD/cache CCACHE_NOHASHDIR=1; for i in 1 2; do ccache gcc -c main.c -o main.o; ccache gcc -c lib/f1.c -o f1.o; done
CCACHE_HARDLINK=1 ccache gcc -c main.c -o hard.o; ccache -s | grep -E '^ +(Hits|Misses)'; ccache -C >cleared; ls | sort
find cache -type f -delete; find cache -mindepth 2 -depth -type d -delete
'''),
    Row('autoconf', 'autoconf automake make gcc libc6-dev', begin=PROJECT + '''
printf 'AC_INIT([p],[1])\\nAM_INIT_AUTOMAKE([foreign subdir-objects])\\nAC_PROG_CC\\nAC_CHECK_HEADERS([sys/mman.h])\\nAC_CONFIG_HEADERS([config.h])
AC_CONFIG_FILES([Makefile])\\nAC_OUTPUT\\n' >configure.ac
printf 'bin_PROGRAMS = prog\\nprog_SOURCES = main.c lib/f1.c lib/f2.c lib/f3.c lib/f4.c lib/f5.c lib/f6.c\\n' >Makefile.am
''', script='''
autoreconf -i 2>&1 | tail -2; mkdir b; cd b; ../configure -q --prefix=$PWD/../installed; make -s -j2; make -s install; ../installed/bin/prog
make -s dist; tar -tf p-1.tar.gz | sort | head -5; rm p-1.tar.gz
''', varying='autom4te.cache/* b/config.log configure~', hidden=r'cannot change modification time.*'),
    Row('go', 'golang-go', begin='''
mkdir -p dep; printf 'module example.com/p\\n\\ngo 1.19\\n\\nrequire example.com/dep v0.0.0\\n\\nreplace example.com/dep => ./dep\\n' >go.mod
printf 'module example.com/dep\\n\\ngo 1.19\\n' >dep/go.mod; printf 'package dep\\n\\nfunc F() int { return 7 }\\n' >dep/dep.go
printf 'package main\\n\\nimport "example.com/dep"\\n\\nfunc main() { println(dep.F()) }\\n' >main.go
printf 'package main\\n\\nimport "testing"\\n\\nfunc TestF(t *testing.T) {}\\n' >main_test.go
''', varying='cache/*', script='''
export GOCACHE=$PWD/cache GOPATH=$PWD/path GOFLAGS=-mod=mod GOPROXY=off GO111MODULE=on CGO_ENABLED=0 GOTMPDIR=$PWD
go vet ./...; go build -trimpath -o prog .; ./prog; go test ./... | cut -f1,2; gofmt -l .; go mod vendor; go clean -testcache; go list -m all
rm -rf cache path
'''),
    Row('cargo', 'cargo', begin='''
mkdir -p src dep/src; printf '[package]\\nname = "p"\\nversion = "1.0.0"\\nedition = "2021"\\n[dependencies]\\ndep = { path = "dep" }\\n' >Cargo.toml
printf '[package]\\nname = "dep"\\nversion = "1.0.0"\\nedition = "2021"\\n' >dep/Cargo.toml; echo 'pub fn f() -> i32 { 7 }' >dep/src/lib.rs
printf 'fn main() { println!("{}", dep::f()); }\\n#[test]\\nfn t() { assert_eq!(dep::f(), 7); }\\n' >src/main.rs
''', varying='target/*', script='''
export CARGO_HOME=$PWD/cargo; cargo build --offline -q; target/debug/p; cargo test --offline -q 2>&1 | grep passed; cargo run --offline -q
touch src/main.rs; cargo build --offline -q; find target -name 'p' -links +1 | wc -l; cargo clean; rm -rf cargo; cat Cargo.lock
''', hidden=r'finished in .*'),
    Row('javac', 'default-jdk-headless', begin='''
mkdir -p src/p; printf 'package p;\\npublic class Main { public static void main(String[] a) { System.out.println(new Main().f()); }
  int f() { return java.util.stream.IntStream.range(0, 5).map(x -> x * x).sum(); } }\\n' >src/p/Main.java
''', script='''
javac -d out src/p/Main.java; java -XX:-UsePerfData -cp out p.Main; jar --create --date=2001-01-01T00:00:00Z --file m.jar --main-class p.Main -C out .
java -jar m.jar; jar tf m.jar; javap -cp out p.Main; java -cp out Nothing 2>&1 | head -1
'''),
    Row('doxygen', 'doxygen graphviz', begin=PROJECT + 'doxygen -g >made; printf "QUIET=YES\\nGENERATE_LATEX=NO\\nTIMESTAMP=NO\\nHTML_TIMESTAMP=NO\\n" >>Doxyfile', script='''
doxygen 2>&1 | head -3; find html | wc -l; echo 'digraph { a -> b -> c; a -> c }' | dot -Tplain; echo 'graph { a -- b }' | neato -Tsvg -o g.svg
'''),
    Row('ninja', 'ninja-build gcc libc6-dev', short=True, begin=PROJECT + r'''
printf 'ninja_required_version = 1.5\nrule cc\n  command = gcc -MMD -MF $out.d -c $in -o $out\n  depfile = $out.d\n  deps = gcc\nrule link\n  command = gcc -o $out $in\n' >build.ninja
printf 'rule gen\n  command = cmp -s $in $out || cp $in $out\n  restat = 1\n' >>build.ninja; echo 'int f1(int);' >f.in; echo '#include "gen/f.h"' >>lib/f1.c
for f in lib/f1 lib/f2 lib/f6 main; do echo "build o/$f.o: cc $f.c | gen/f.h"; done >>build.ninja; echo 'build gen/f.h: gen f.in' >>build.ninja
printf 'build prog: link o/main.o o/lib/f1.o o/lib/f6.o\ndefault prog\n' >>build.ninja; sed -i 's,"gen/,"../gen/,' lib/f1.c
''', script='''
ninja -j2 | tail -1; ninja | tail -1; touch f.in; ninja -v | tail -1; echo 'int f6(int);' >>f.in; ninja | tail -1; ./prog
ninja -t deps o/lib/f1.o | tail -2; ninja -t query prog; mv o o2; ninja -j2 | tail -1; mv -T o2 lib/o2; ninja -t clean | tail -1; ninja -t cleandead; ninja nothing
''', status=1, varying='.ninja_log .ninja_deps'),
    Row('fortran', 'gfortran', begin='''
mkdir src; printf 'module m\\ncontains\\ninteger function f(x)\\ninteger :: x\\nf = x + 1\\nend function\\nend module\\n' >src/m.f90
printf 'program p\\nuse m\\nopen(unit=9, file="out")\\nwrite(9, *) f(6)\\nclose(9)\\nprint *, f(6)\\ncall execute_command_line("mv out src/out")\\nstop 4\\nend program\\n' >src/p.f90
''', script='''
mkdir mod; gfortran -Jmod -c src/m.f90 -o m.o; gfortran -Imod -o p src/p.f90 m.o; mv src source; mv mod source/; gfortran -Isource/mod -fsyntax-only source/p.f90
mkdir src; ./p
''', status=4),
    Row('pascal', 'fp-compiler', begin='''
mkdir src; printf 'unit u;\\ninterface\\nfunction f(x: integer): integer;\\nimplementation\\nfunction f(x: integer): integer; begin f := x + 1; end;\\nend.\\n' >src/u.pas
printf 'program p;\\nuses u;\\nvar t: text;\\nbegin\\nassign(t, %sout%s); rewrite(t); writeln(t, f(6)); close(t); rename(t, %ssrc/moved%s); writeln(f(6)); halt(5);\\nend.\\n' "'" "'" "'" "'" >src/p.pas
''', script='''
fpc -v0 -Fusrc -FUsrc -FE. src/p.pas >log 2>&1 || cat log; rm log; mv -T src lib; mkdir src; ./p
''', status=5),
    Row('clang', 'clang llvm', begin=PROJECT, script='''
mkdir o; for f in lib/*.c main.c; do clang -O1 -flto=thin -c "$f" -o "o/$(basename "$f" .c).o"; done; llvm-ar rcs libf.a o/f*.o; llvm-nm libf.a 2>/dev/null | grep -c ' T '
clang -g -fsanitize=address,undefined -o prog main.c lib/*.c; ./prog; clang -g -fprofile-instr-generate -fcoverage-mapping -o cov main.c lib/*.c; LLVM_PROFILE_FILE=raw/%m ./cov
llvm-profdata merge -o merged raw/*; llvm-cov report ./cov -instr-profile=merged 2>/dev/null | tail -1 | cut -c1-5; mv o raw lib/; rm -r lib/raw; echo 'int x = ;' >bad.c; clang --analyze bad.c 2>/dev/null
''', status=1),
    Row('makemaker', 'perl make', begin='''
mkdir -p lib/A t bin; printf 'package A::B;\\nour $VERSION = "1.0";\\nsub f { 7 }\\n1;\\n__END__\\n=head1 NAME\\n\\nA::B - none\\n' >lib/A/B.pm; printf '#!perl\\nuse A::B; print A::B::f(), "\\\\n";\\n' >bin/ab
printf 'use Test::More tests => 1;\\nuse A::B;\\nis A::B::f(), 7;\\n' >t/f.t; printf 'Makefile.PL\\nMANIFEST\\nlib/A/B.pm\\nt/f.t\\nbin/ab\\n' >MANIFEST
printf 'use ExtUtils::MakeMaker;\\nWriteMakefile(NAME => "A::B", VERSION_FROM => "lib/A/B.pm", EXE_FILES => ["bin/ab"], PREREQ_PM => {});\\n' >Makefile.PL
''', script='''
perl Makefile.PL INSTALL_BASE=$PWD/base | tail -1; make | sort | head -3; make test 2>&1 | grep -E '^(ok|Result)'; make install | grep -c base; perl -Ibase/lib/perl5 base/bin/ab
make distdir >/dev/null 2>&1; ls A-B-1.0; make distclean >/dev/null; ls; mv base lib/; find lib | wc -l
''', varying='lib/base/lib/perl5/*/perllocal.pod lib/base/lib/perl5/*/auto/A/B/.packlist'),
    Row('dpkg-buildpackage', 'dpkg-dev debhelper lintian', begin='''
mkdir -p own-1/debian/source; cd own-1; printf 'all:\\n\\techo x >out\\ninstall:\\n\\tinstall -D out $(DESTDIR)/usr/share/own/out\\nclean:\\n\\trm -f out\\n' >Makefile
printf 'Source: own\\nSection: misc\\nPriority: optional\\nMaintainer: A <a@b.example>\\nBuild-Depends: debhelper-compat (= 13)\\nStandards-Version: 4.6.2\\nRules-Requires-Root: no\\n\\nPackage: own\\nArchitecture: all\\nDepends: ${misc:Depends}\\nDescription: own\\n Own.\\n' >debian/control
printf '#!/usr/bin/make -f\\n%%:\\n\\tdh $@\\n' >debian/rules; chmod 755 debian/rules; echo '3.0 (native)' >debian/source/format
printf 'own (1) unstable; urgency=low\\n\\n  * First.\\n\\n -- A <a@b.example>  Tue, 14 Nov 2023 22:13:20 +0000\\n' >debian/changelog
''', script='''
cd own-1; dpkg-buildpackage -us -uc >log 2>&1 || cat log; rm log; cd ..; dpkg-deb -c own_1_all.deb | awk '{ print $1, $6 }'; mv own-1 own-2; dpkg-source -x own_1.dsc | tail -1
lintian --fail-on none own_1_all.deb | sort | head; ls; diff -r own-1 own-2 | sort | head -3; mv own-2/debian own-1/old; (cd own-1; debian/rules clean | tail -1)
''', varying='own_1_*.buildinfo own_1_*.changes own_1_all.deb own_1.tar.xz own_1.dsc'),
]
