#!/bin/sh
# Stands for systemd in a node: kubeadm asks it for the kubelet, which init.sh runs as long as /run/want.kubelet is there.
command=$1
shift
[ "${1:-}" != --quiet ] || shift
unit=${1:-}
unit=${unit%.service}
end() { [ ! -f "/run/$unit.pid" ] || kill "$(cat "/run/$unit.pid")" 2>/dev/null; }
case $command in
start) : >"/run/want.$unit" ;;
stop) rm -f "/run/want.$unit"; end ;;
restart) : >"/run/want.$unit"; end ;;
is-active) [ -f "/run/$unit.pid" ] && echo active || { echo inactive; exit 3; } ;;
is-enabled) echo enabled ;;
esac
exit 0
