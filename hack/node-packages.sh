#!/bin/sh
# Unpacks runc and nft, with the libraries that they load, into bin/debian: the two programs of a node (test/kubeadm) that are not
# built from Go modules. runc wants cgo and libseccomp, nft is C. On a machine that has both installed there is nothing to do; on
# another it takes Debian's packages, which are unpacked and not installed.
set -eu
cd "$(dirname "$0")/.."
to=$PWD/bin/debian

PATH=$PATH:/usr/sbin:/sbin
if command -v runc >/dev/null && command -v nft >/dev/null; then
	rm -rf "$to"
	exit 0
fi
[ ! -x "$to/usr/sbin/runc" ] || [ ! -x "$to/usr/sbin/nft" ] || exit 0
for tool in apt-get dpkg-deb; do
	command -v "$tool" >/dev/null || {
		echo "node-packages: nodes need runc and nft: install them (there is no $tool here to unpack Debian's packages with)" >&2
		exit 1
	}
done
packages="runc nftables libnftables1 libnftnl11 libmnl0 libjansson4 libgmp10 libedit2 libbsd0 libmd0 libtinfo6 libxtables12 libseccomp2"
echo "node-packages: unpacking $packages"
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
# As root apt-get downloads as another user, who must be able to write here.
chmod 755 "$temporary"
download() { (cd "$temporary" && apt-get download -qq -o APT::Sandbox::User=root $packages >/dev/null); }
download 2>/dev/null || { apt-get update -qq && download; }
mkdir -p "$temporary/root"
for package in "$temporary"/*.deb; do
	dpkg-deb -x "$package" "$temporary/root"
done
rm -rf "$to"
mkdir -p "$to/usr"
cp -a "$temporary/root/usr/." "$to/usr/"
# Packages from before /usr was merged have libraries and programs beside it.
for folder in bin sbin lib; do
	[ ! -d "$temporary/root/$folder" ] || cp -a "$temporary/root/$folder/." "$to/usr/$folder/"
done
rm -rf "$to/usr/share"
