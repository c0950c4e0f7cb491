#!/bin/sh
# Runs test binaries on a machine whose only cgroup hierarchy is v2, with all controllers:
# a virtual one with a Debian kernel, whose root file system holds the binaries and the
# programs that tests start. It needs no root but for the packages.
#
#   vm.sh DIR "BINARY ARGS..." ...
#
# DIR keeps the kernel for the next time. Each test runs in a group of its own that has
# been delegated to it, and alone in that group, as below a service manager.
set -eu

dir=$1
shift
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
programs="sh cat chmod chroot cp cut dd env false find grep head id kill ln ls mkdir mknod mount mv nohup nproc ps
	readlink rm rmdir sed seq setsid sleep sort stat tail tee timeout touch tr true umount unshare wc"

say() { echo "vm: $*" >&2; }

if ! ls "$dir"/vmlinuz-* >/dev/null 2>&1; then
	package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[^ ]*\)$/\1/p' | head -n 1)
	say "fetching $package"
	(cd "$dir" && rm -f ./*.deb && apt-get download "$package")
	dpkg-deb --fsys-tarfile "$dir"/linux-image-*.deb | tar -x -C "$dir" --strip-components=2 --wildcards './boot/vmlinuz-*'
	rm "$dir"/linux-image-*.deb
fi
kernel=$(ls "$dir"/vmlinuz-* | head -n 1)

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
for name in bin dev etc mnt proc run sys tmp tests usr/local var/lib var/tmp; do
	mkdir -p "$root/$name"
done
ln -s ../bin "$root/usr/bin"
for name in $programs; do
	file=$(command -v "$name")
	case $file in
	/*) ;;
	*) file=/bin/$name ;; # the shell has one of its own, too
	esac
	cp -L "$file" "$root/bin/$name"
	ldd "$file" 2>/dev/null | sed -n 's/.*[[:space:]]\(\/[^ ]*\) (.*/\1/p' | while read -r library; do
		mkdir -p "$root$(dirname "$library")"
		cp -L -n "$library" "$root$library" 2>/dev/null || true
	done
done

cat >"$root/init" <<'INIT'
#!/bin/sh
export PATH=/bin HOME=/tmp CI=1
if [ "${1-}" != again ]; then
	# A sandbox leaves its root with pivot_root, which an initramfs does not allow.
	mount -t tmpfs root /mnt
	for name in /*; do
		[ "$name" = /mnt ] || cp -a "$name" /mnt
	done
	cd /mnt
	mount --move . /
	exec chroot . /init again
fi
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm
mount -t tmpfs shm /dev/shm
mount -t cgroup2 cgroup /sys/fs/cgroup
echo "vm: Linux $(sed 's/Linux version \([^ ]*\).*/\1/' /proc/version), $(nproc) CPUs, controllers: $(cat /sys/fs/cgroup/cgroup.controllers)"
echo "+cpu +cpuset +memory +pids +io" >/sys/fs/cgroup/cgroup.subtree_control
failed=0
n=0
while read -r line; do
	n=$((n + 1))
	group=/sys/fs/cgroup/delegated-$n
	mkdir "$group"
	sh -c "echo \$\$ >$group/cgroup.procs && cd /tests && exec $line" </dev/null || failed=1
	rmdir "$group" || { failed=1; echo "vm: $group is left: $(ls "$group")"; }
done </tests/list
[ $failed = 0 ] && echo "vm: all tests passed"
echo b >/proc/sysrq-trigger
INIT
chmod +x "$root/init"

for test in "$@"; do
	binary=${test%% *}
	name=$(basename "$binary")
	cp "$binary" "$root/tests/$name"
	case $test in
	*' '*) echo "./$name ${test#* }" ;;
	*) echo "./$name" ;;
	esac
done >"$root/tests/list"

(cd "$root" && find . | cpio --quiet -o -H newc | gzip -1) >"$dir/initramfs.gz"
log=$dir/console.log
# Emulated, not accelerated: a few seconds more, and the same wherever this runs. Virtual
# machines in virtual machines hang too often.
timeout 900 qemu-system-x86_64 -accel tcg,thread=multi -smp 2 -m 1024 -nographic -no-reboot \
	-kernel "$kernel" -initrd "$dir/initramfs.gz" -append "console=ttyS0 quiet panic=-1 psi=1" </dev/null | tee "$log"
grep -q "^vm: all tests passed" "$log"
