# The control plane of the hosted cluster, on a node beside the node's own: bash hosted.sh start or stop. PORT is its API server's.
set -eu
home=/var/lib/hosted
if [ "$1" = stop ]; then
	for name in kube-apiserver etcd; do
		pid=$(cat "$home/$name.pid")
		kill "$pid"
		timeout 60 tail -f --pid="$pid" /dev/null || { echo "$name has not ended within a minute" >&2; exit 1; }
	done
	exit
fi

mkdir -p "$home"
cat >"$home/kubeadm.yaml" <<EOF
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: $IP, bindPort: $PORT}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: $VERSION
controlPlaneEndpoint: $IP:$PORT
certificatesDir: $home/pki
networking: {serviceSubnet: 10.97.0.0/16}
EOF
kubeadm init phase certs all --config "$home/kubeadm.yaml"
kubeadm init phase kubeconfig super-admin --config "$home/kubeadm.yaml" --kubeconfig-dir "$home"

# run NAME FLAGS...
run() {
	name=$1
	shift
	setsid "$name" "$@" </dev/null >>"/var/log/hosted-$name.log" 2>&1 &
	echo $! >"$home/$name.pid"
}
run etcd --data-dir="$home/etcd" --listen-client-urls=http://127.0.0.1:23790 --advertise-client-urls=http://127.0.0.1:23790 \
	--listen-peer-urls=http://127.0.0.1:23800 --initial-advertise-peer-urls=http://127.0.0.1:23800 --initial-cluster=default=http://127.0.0.1:23800
run kube-apiserver --etcd-servers=http://127.0.0.1:23790 --advertise-address="$IP" --secure-port="$PORT" --service-cluster-ip-range=10.97.0.0/16 \
	--client-ca-file="$home/pki/ca.crt" --tls-cert-file="$home/pki/apiserver.crt" --tls-private-key-file="$home/pki/apiserver.key" \
	--service-account-issuer=https://kubernetes.default.svc.cluster.local --service-account-key-file="$home/pki/sa.pub" \
	--service-account-signing-key-file="$home/pki/sa.key" --authorization-mode=Node,RBAC --enable-bootstrap-token-auth \
	--audit-policy-file=/etc/kubernetes/audit-policy.yaml --audit-log-path=/var/log/kubernetes/hosted-audit.log --audit-log-maxsize=100000
