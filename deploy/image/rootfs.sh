#!/bin/sh
# Lays out the image's file system: deploy/image/rootfs.sh BINARY FOLDER. The Dockerfile and test/deploy both run it.
set -eu

binary=$1 root=$2
mkdir -p "$root/usr/local/bin" "$root/etc/ssl/certs"
# The same file where that is possible.
ln -f "$binary" "$root/usr/local/bin/flotilla" 2>/dev/null || cp "$binary" "$root/usr/local/bin/flotilla"
# What kubeadm's manifests call it by.
ln -sf flotilla "$root/usr/local/bin/kube-controller-manager"
# For API servers whose certificates a public authority has signed, and kubeconfigs that name no other.
for bundle in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt; do
	[ ! -f "$bundle" ] || cp "$bundle" "$root/etc/ssl/certs/ca-certificates.crt"
done
