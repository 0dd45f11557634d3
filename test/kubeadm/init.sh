# The first process of a node: makes its file system and runs containerd and the kubelet as systemd would. It is started in
# mount, pid, net, uts and ipc namespaces of its own, as: bash init.sh enter, with these variables:
#
#   NODE     the node's name
#   ROOT     its root folder
#   BIN      bin/ of the repository, which is /opt/bin in the node
#   USR      folders whose content is /usr in the node, the first one on top
#   IMAGES   the folder of image archives
#   CGROUPS  the node's cgroups, a folder in each hierarchy
set -eu
if [ "$1" = enter ]; then
	for folder in $CGROUPS; do echo $$ >"$folder/cgroup.procs"; done
	exec unshare --cgroup bash "$0" live
fi

hostname "$NODE"
mount --make-rprivate /
mount --bind "$ROOT" "$ROOT"
mount -t overlay -o "ro,lowerdir=$USR" overlay "$ROOT/usr"
for part in bin:$BIN images:$IMAGES; do
	mount --bind -o ro "${part#*:}" "$ROOT/opt/${part%%:*}"
done
cd "$ROOT"
mkdir -p old
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup
while IFS=: read -r _ list _; do
	list=${list#name=}
	[ -n "$list" ] || continue
	mkdir "sys/fs/cgroup/$list"
	case $list in
	systemd) mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd ;;
	*) mount -t cgroup -o "$list" cgroup "sys/fs/cgroup/$list" ;;
	esac
done </proc/self/cgroup
mount --bind /dev dev
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
mount -t tmpfs tmpfs dev/shm
mount -t tmpfs -o mode=755 tmpfs run
# The kubelet sets these, which are the whole machine's: it gets files of its own in their place.
mkdir run/sysctl
for key in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
	cat "/proc/sys/$key" >"run/sysctl/${key//\//.}"
	mount --bind "run/sysctl/${key//\//.}" "proc/sys/$key"
done
pivot_root . old
exec </dev/null
cd /
mount --make-rshared /
umount -l /old
rmdir /old || :

ip link set lo up
sysctl -qw net.ipv4.ip_forward=1
export PATH=/opt/node:/opt/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin HOME=/root
ulimit -n "$(ulimit -Hn)"

kubelet() {
	KUBELET_KUBEADM_ARGS=
	[ ! -f /var/lib/kubelet/kubeadm-flags.env ] || . /var/lib/kubelet/kubeadm-flags.env
	# Words of their own, as systemd would make them.
	exec /opt/bin/kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf \
		--config=/var/lib/kubelet/config.yaml $KUBELET_KUBEADM_ARGS
}

# keep NAME COMMAND...: runs it again when it ends, as long as /run/want.NAME is there (see systemctl.sh).
keep() {
	name=$1
	shift
	while :; do
		if [ -f "/run/want.$name" ] && { [ "$name" != kubelet ] || [ -f /var/lib/kubelet/config.yaml ]; }; then
			"$@" >>"/var/log/$name.log" 2>&1 &
			echo $! >"/run/$name.pid"
			wait $! || :
			rm -f "/run/$name.pid"
		fi
		sleep 0.5
	done
}

: >/run/want.containerd
keep containerd containerd &
keep kubelet kubelet &
: >/run/booted
while :; do wait || :; done
