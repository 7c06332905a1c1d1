#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The Debian packages: built, clean for lintian, and working where they are unpacked or installed.
# The machine stays as it is: they are installed into a layer over it that vanishes with its mounts.

bats_require_minimum_version 1.5.0

setup_file() {
	export packages=$BATS_FILE_TMPDIR/packages
	command -v dpkg-buildpackage >/dev/null || skip 'not a Debian system'
	# How well it is optimized is told by nothing here, and takes most of the time.
	options=noopt
	[ -z "${ATOLL_LONG:-}" ] || options=
	DEB_BUILD_OPTIONS="nocheck parallel=2 $options" TMPDIR=$BATS_FILE_TMPDIR "$ATOLL_SOURCE_ROOT/tools/build-deb" "$packages" \
		>"$BATS_FILE_TMPDIR/log" 2>&1 3>&- || {
		tail -50 "$BATS_FILE_TMPDIR/log"
		return 1
	}
}

setup() {
	export LC_ALL=C.UTF-8 NO_COLOR=1
	unset LD_LIBRARY_PATH ATOLL ATOLL_HELPER ATOLL_POSTGRES ATOLL_SYNC ATOLL_PLAN ATOLL_PLAN_ID
}

# layered SCRIPT: run by sh with / being a layer over the real one, $1 the packages, $2 the source.
layered() {
	[ "$(id -u)" -eq 0 ] || skip 'needs root'
	mkdir "$BATS_TEST_TMPDIR/layer"
	cat >"$BATS_TEST_TMPDIR/script"
	unshare --mount --pid --fork --propagation private sh -eu -c '
		layer=$1
		mount -t tmpfs layer "$layer"
		mkdir "$layer/upper" "$layer/work" "$layer/root"
		mount -t overlay -o "lowerdir=/,upperdir=$layer/upper,workdir=$layer/work" \
			overlay "$layer/root"
		cd "$layer/root"
		mount -t proc proc proc
		mount --rbind /sys sys
		mount -t tmpfs dev dev
		for device in null zero full random urandom tty; do
			: >"dev/$device"
			mount --bind "/dev/$device" "dev/$device"
		done
		ln -s /proc/self/fd dev/fd
		mount -t tmpfs tmp var/tmp
		chmod 1777 var/tmp
		mkdir mnt/packages mnt/source
		mount --bind "$2" mnt/packages
		mount --bind "$3" mnt/source
		cp "$4" mnt/script
		exec chroot . sh -eu /mnt/script /mnt/packages /mnt/source
	' sh "$BATS_TEST_TMPDIR/layer" "$packages" "$ATOLL_SOURCE_ROOT" "$BATS_TEST_TMPDIR/script"
}

@test "the packages carry the version of the source" {
	version=$(sed -n "s/^  version: '\(.*\)',$/\1/p" "$ATOLL_SOURCE_ROOT/meson.build")
	for name in atoll atolld libatoll0 libatoll-dev; do
		run -0 dpkg-deb -f "$packages/${name}"_*.deb Version
		[[ $output == "$version"-* ]]
	done
}

@test "an unpacked package runs from where it is" {
	root=$BATS_TEST_TMPDIR/root
	for name in atoll libatoll0; do
		dpkg-deb -x "$packages/${name}"_*.deb "$root"
	done
	mkdir "$BATS_TEST_TMPDIR/bin"
	ln -s "$root/usr/bin/atoll" "$BATS_TEST_TMPDIR/bin/"
	run -0 env PATH="$BATS_TEST_TMPDIR/bin:$PATH" \
		"$ATOLL_SOURCE_ROOT/packaging/debian/tests/command"
	[[ $output == *'rolled back p'* ]]
	[ "$(readlink "$root"/usr/lib/*/libatoll.so.0)" = libatoll.so.0.1.0 ]
	# As the links in the pages want them; install.bats follows those.
	[ -s "$root/usr/share/doc/atoll/docs/schema/README.md" ]
	[ -z "$(find "$root/usr/share/doc/atoll" -name '*.md.gz')" ]
}

@test "installed packages work and leave nothing behind" {
	run layered <<-'SCRIPT'
		packages=$1
		cd "$2"
		of_atoll() {
			find /usr /etc /var/lib -xdev -path '*atoll*'
		}
		of_atoll >/mnt/before
		dpkg -i "$packages"/atoll_*.deb "$packages"/atolld_*.deb "$packages"/libatoll0_*.deb \
			"$packages"/libatoll-dev_*.deb
		find /etc/systemd -name 'atolld*' | sed 's/^/enabled: /'
		# As systemctl enable does it.
		for manager in system user; do
			mkdir -p /etc/systemd/$manager/sockets.target.wants
			ln -s /lib/systemd/$manager/atolld.socket /etc/systemd/$manager/sockets.target.wants/
		done
		find /etc/systemd -name 'atolld*' | sed 's/^/link: /'
		for test in packaging/debian/tests/command packaging/debian/tests/daemon \
			packaging/debian/tests/library; do
			env ATOLL_HELPER=/nonexistent/helper "$test"
		done
		man --version >/dev/null 2>&1 && man -w atoll || ls /usr/share/man/man1/atoll.1.gz
		dpkg --remove atolld
		find /etc/systemd -name 'atolld*' | sed 's/^/left: /'
		dpkg --purge atolld atoll libatoll-dev libatoll0
		of_atoll | diff /mnt/before -
	SCRIPT
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(grep -c 'consumer: atoll .* works' <<<"$output")" -eq 2 ]
	[[ $output == *'rolled back p'* ]]
	# Nothing is enabled by itself, and what the administrator enabled goes with the package.
	[[ $output != *'enabled: '* ]]
	[[ $output == *'link: /etc/systemd/system/'* && $output == *'link: /etc/systemd/user/'* ]]
	[[ $output != *'left: '* ]]
	! dpkg -s libatoll0 2>/dev/null
}
