# Boots systemd in FOLDER/root: what this machine has, beneath changes that are kept in FOLDER/upper alone. It runs in namespaces of
# its own; the kernel's settings and modules are out of its reach.
set -e
folder=$1 root=$1/root
mount --make-rprivate /
umask 022 # that of the caller may hide the folders of the machine from its services
mkdir -p "$folder/upper" "$folder/work" "$root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/upper,workdir=$folder/work" "$root"
mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
mount --rbind /dev "$root/dev"
for empty in run tmp var/tmp root; do mount -t tmpfs tmpfs "$root/$empty"; done
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
	mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
else
	mount -t tmpfs tmpfs "$root/sys/fs/cgroup"
	for parent in /sys/fs/cgroup/*/; do
		name=$(basename "$parent")
		case $name in
		unified) kind=cgroup2 options=rw ;;
		systemd) kind=cgroup options=none,name=systemd ;;
		*) kind=cgroup options=$name ;;
		esac
		mkdir "$root/sys/fs/cgroup/$name"
		mount -t "$kind" -o "$options" cgroup "$root/sys/fs/cgroup/$name" || rmdir "$root/sys/fs/cgroup/$name"
	done
fi
mkdir -p "$root/run/systemd/system"
# Nothing but what units of the package want.
for unit in systemd-udevd systemd-binfmt systemd-modules-load systemd-remount-fs systemd-networkd apparmor; do
	ln -s /dev/null "$root/run/systemd/system/$unit.service"
done
ip link set lo up
exec chroot "$root" /usr/bin/env -i container=forerunner PATH=/usr/sbin:/usr/bin:/sbin:/bin \
	/lib/systemd/systemd --system --unit=basic.target --log-target=journal --show-status=no
