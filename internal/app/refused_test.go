package app

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	kcm "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"

	"github.com/flotilla-kube/flotilla/pkg/controllers"
)

// refusal parses and checks flags as a process does before it serves, and returns the error that
// would end it. The kubeconfig leads nowhere: flags and files are checked without a server.
func refusal(t *testing.T, flags []string) error {
	t.Helper()
	_, _, err := processOf(t, flags)
	return err
}

// processOf returns a process with the flags that has contacted nobody.
func processOf(t *testing.T, flags []string) (*Options, *controllers.Process, error) {
	t.Helper()
	o, err := NewOptions()
	if err != nil {
		t.Fatal(err)
	}
	all := pflag.NewFlagSet("flotilla", pflag.ContinueOnError)
	for _, section := range o.Flags().FlagSets {
		all.AddFlagSet(section)
	}
	common := []string{"--secure-port=0", "--member-name=m", "--kubeconfig=" + kubeconfig(t), "--use-service-account-credentials=true", "--service-account-private-key-file=" + key(t)}
	if err := all.Parse(append(common, flags...)); err != nil {
		return nil, nil, err
	}
	if err := o.ComponentGlobalsRegistry.Set(); err != nil {
		return nil, nil, err
	}
	c, err := o.complete(t.Context())
	if err != nil {
		return nil, nil, err
	}
	t.Cleanup(c.EventBroadcaster.Shutdown)
	process, _, err := newProcess(c, o, controllers.NewEndpoints())
	return o, process, err
}

func kubeconfig(t *testing.T) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["nowhere"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
	config.Contexts["nowhere"] = &clientcmdapi.Context{Cluster: "nowhere"}
	config.CurrentContext = "nowhere"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// key returns the file of a private key for service account tokens.
func key(t *testing.T) string {
	t.Helper()
	text, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	return write(t, "sa.key", string(text))
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// bad has flags that cannot work, and what the error must contain: the field, the value and what is
// allowed.
type bad struct {
	name  string
	flags []string
	want  []string
}

func requireRefusals(t *testing.T, all []bad) {
	t.Helper()
	for _, test := range all {
		t.Run(test.name, func(t *testing.T) {
			err := refusal(t, test.flags)
			if err == nil {
				t.Fatalf("%q: accepted, want an error with %q", test.flags, test.want)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q: got %v, want %q in it", test.flags, err, want)
				}
			}
		})
	}
}

// TestGoodInputIsAccepted checks that the flags that the tests of refusals start from are accepted.
func TestGoodInputIsAccepted(t *testing.T) {
	for _, flags := range [][]string{
		nil, {"--leader-lock=none"}, {"--leader-elect=false"}, {"--share-kube-api-limits"},
		{"--allocate-node-cidrs", "--cluster-cidr=10.0.0.0/16,fd00::/48"},
		{"--enable-garbage-collector=false", "--controllers=*,-storage-version-migrator-controller"},
		{"--cluster-cidr=garbage"}, // nothing reads it
	} {
		if err := refusal(t, flags); err != nil {
			t.Errorf("%q: %v", flags, err)
		}
	}
}

func TestBadInputIsRefused(t *testing.T) {
	garbage := write(t, "garbage.pem", "no PEM at all\n")
	requireRefusals(t, []bad{
		{"unknown flag", []string{"--sharts=3"}, []string{"unknown flag: --sharts"}},
		{"unknown controller", []string{"--controllers=*,replicaste-controller"}, []string{"replicaste-controller", "not in the list of known controllers"}},
		{"no shards", []string{"--shards=0"}, []string{"--shards 0: must be from 1 to"}},
		{"negative shards", []string{"--shards=-1"}, []string{"--shards -1: must be from 1 to"}},
		{"absurd shards", []string{"--shards=1000000"}, []string{"--shards 1000000: must be from 1 to"}},
		{"shards not a number", []string{"--shards=many"}, []string{"many", "--shards"}},
		{"fleet name", []string{"--fleet-name=My_Fleet"}, []string{"--fleet-name", "My_Fleet", "DNS label"}},
		{"member name", []string{"--member-name=a/b"}, []string{"--member-name", "a/b", "DNS subdomain"}},
		{"node name", []string{"--node-name=Node_1"}, []string{"--node-name (or NODE_NAME)", "Node_1", "name of a node"}},
		{"zone", []string{"--zone=eu/1"}, []string{"--zone (or ZONE)", "eu/1", "value of a label"}},
		{"rebalance delay", []string{"--rebalance-delay=-1s"}, []string{"--rebalance-delay -1s: must be from 0s to"}},
		{"lease timings", []string{"--leader-elect-lease-duration=5s", "--leader-elect-renew-deadline=10s"}, []string{"--leader-elect-renew-deadline 10s", "5s"}},
		{"resource namespace", []string{"--leader-elect-resource-namespace=Kube/System"}, []string{"--leader-elect-resource-namespace", "Kube/System", "name of a namespace"}},
		{"resource lock", []string{"--leader-elect-resource-lock=endpoints"}, []string{`--leader-elect-resource-lock "endpoints": must be "leases"`}},
		{"leader migration", []string{"--enable-leader-migration", "--leader-migration-config=" + garbage}, []string{"couldn't get version/kind"}},
		{"missing key", []string{"--service-account-private-key-file=/nowhere/sa.key"}, []string{"--service-account-private-key-file", "/nowhere/sa.key", "PEM"}},
		{"unreadable key", []string{"--service-account-private-key-file=" + t.TempDir()}, []string{"--service-account-private-key-file", "is a directory"}},
		{"garbage key", []string{"--service-account-private-key-file=" + garbage}, []string{"--service-account-private-key-file", garbage, "PEM"}},
		{"missing CA", []string{"--root-ca-file=/nowhere/ca.crt"}, []string{"--root-ca-file", "/nowhere/ca.crt", "certificate"}},
		{"garbage CA", []string{"--root-ca-file=" + garbage}, []string{"--root-ca-file", garbage, "certificate"}},
		{"missing CA without a key", []string{"--service-account-private-key-file=", "--root-ca-file=/nowhere/ca.crt"}, []string{"--root-ca-file", "/nowhere/ca.crt", "certificate"}},
		{"missing recycler", []string{"--pv-recycler-pod-template-filepath-nfs=/nowhere/pod.yaml"}, []string{"--pv-recycler-pod-template-filepath-nfs", "/nowhere/pod.yaml", "manifest of a pod"}},
		{"garbage recycler", []string{"--pv-recycler-pod-template-filepath-hostpath=" + garbage}, []string{"--pv-recycler-pod-template-filepath-hostpath", garbage, "manifest of a pod"}},
		{"no CIDR", []string{"--allocate-node-cidrs"}, []string{"--cluster-cidr", "node-ipam-controller does not accept"}},
		{"garbage CIDR", []string{"--allocate-node-cidrs", "--cluster-cidr=10.0.0.0/8000"}, []string{"node-ipam-controller", "10.0.0.0/8000"}},
		{"two CIDRs of a family", []string{"--allocate-node-cidrs", "--cluster-cidr=10.0.0.0/16,10.1.0.0/16"}, []string{"node-ipam-controller", "--cluster-cidr"}},
		{"small CIDR", []string{"--allocate-node-cidrs", "--cluster-cidr=10.0.0.0/26"}, []string{"node-ipam-controller", "--cluster-cidr", "--node-cidr-mask-size"}},
		{"mask for two families", []string{"--allocate-node-cidrs", "--cluster-cidr=10.0.0.0/16,fd00::/48", "--node-cidr-mask-size=24"}, []string{"node-ipam-controller", "node-cidr-mask-size"}},
		{"migrator without garbage collector", []string{"--enable-garbage-collector=false"}, []string{"--enable-garbage-collector", "storage-version-migrator-controller does not accept", "garbage collector"}},
		{"missing kubeconfig", []string{"--kubeconfig=/nowhere/kubeconfig"}, []string{"/nowhere/kubeconfig"}},
		{"garbage kubeconfig", []string{"--kubeconfig=" + garbage}, []string{"error loading config"}},
	})
}

// TestBadSignersAreRefused checks that files with which certificates cannot be signed are found
// before a member claims a shard that needs them.
func TestBadSignersAreRefused(t *testing.T) {
	signer := func(name string) (cert, key string) {
		private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		ca, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: name}, private)
		if err != nil {
			t.Fatal(err)
		}
		pem, err := keyutil.MarshalPrivateKeyToPEM(private)
		if err != nil {
			t.Fatal(err)
		}
		encoded, err := certutil.EncodeCertificates(ca)
		if err != nil {
			t.Fatal(err)
		}
		return write(t, name+".crt", string(encoded)), write(t, name+".key", string(pem))
	}
	cert, key := signer("one")
	_, other := signer("other")
	pem, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	garbage, two := write(t, "garbage.pem", "no PEM at all\n"), write(t, "two.crt", string(pem)+string(pem))
	flags := func(signer, cert, key string) []string {
		return []string{"--cluster-signing" + signer + "-cert-file=" + cert, "--cluster-signing" + signer + "-key-file=" + key}
	}
	elsewhere := write(t, "migration.yaml", "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\nleaderName: migration\n"+
		"controllerLeaders: [{name: certificatesigningrequest-signing-controller, component: other}]\n")
	for _, accepted := range [][]string{
		append(flags("", garbage, key), "--enable-leader-migration", "--leader-migration-config="+elsewhere),
		flags("", cert, key), flags("-kubelet-client", cert, key), flags("", cert, ""),
		append(flags("", garbage, key), "--controllers=*,-certificatesigningrequest-signing-controller"),
	} {
		if err := refusal(t, accepted); err != nil {
			t.Errorf("%q: %v", accepted, err)
		}
	}
	requireRefusals(t, []bad{
		{"missing certificate", flags("", "/nowhere/ca.crt", key), []string{"--cluster-signing-cert-file", "/nowhere/ca.crt", "one certificate"}},
		{"garbage certificate", flags("", garbage, key), []string{"--cluster-signing-cert-file", garbage, "one certificate"}},
		{"two certificates", flags("", two, key), []string{"--cluster-signing-cert-file", two, "one certificate: it has 2"}},
		{"missing key", flags("", cert, "/nowhere/ca.key"), []string{"--cluster-signing-key-file", "/nowhere/ca.key", "private key"}},
		{"another key", flags("", cert, other), []string{"--cluster-signing-key-file", other, "--cluster-signing-cert-file", cert}},
		{"kubelet serving", flags("-kubelet-serving", garbage, key), []string{"--cluster-signing-kubelet-serving-cert-file", garbage}},
		{"kubelet client", flags("-kubelet-client", garbage, key), []string{"--cluster-signing-kubelet-client-cert-file", garbage}},
		{"client", flags("-kube-apiserver-client", garbage, key), []string{"--cluster-signing-kube-apiserver-client-cert-file", garbage}},
		{"legacy", flags("-legacy-unknown", garbage, key), []string{"--cluster-signing-legacy-unknown-cert-file", garbage}},
	})
}

func TestBadLeaderLocksAreRefused(t *testing.T) {
	migration := func(version, text string) []string {
		file := write(t, "migration.yaml", "apiVersion: controllermanager.config.k8s.io/"+version+"\nkind: LeaderMigrationConfiguration\n"+text)
		return []string{"--enable-leader-migration", "--leader-migration-config=" + file}
	}
	jobs := "controllerLeaders: [{name: job-controller, component: '*'}]\n"
	requireRefusals(t, []bad{
		{"empty", []string{"--leader-lock="}, []string{`--leader-lock ""`, "must be the name of a Lease"}},
		{"junk name", []string{"--leader-lock=Kube_Controller Manager"}, []string{`--leader-lock "Kube_Controller Manager"`, "must be the name of a Lease", "RFC 1123"}},
		{"no name", []string{"--leader-lock==job-controller"}, []string{`--leader-lock "=job-controller"`, "must be the name of a Lease"}},
		{"path", []string{"--leader-lock=kube-system/kube-controller-manager"}, []string{`--leader-lock "kube-system/kube-controller-manager"`, "must be the name of a Lease"}},
		{"no controllers", []string{"--leader-lock=kcm-jobs="}, []string{`--leader-lock "kcm-jobs="`, `"" is no controller`}},
		{"unknown controller", []string{"--leader-lock=kcm-jobs=jobs-controller"}, []string{`--leader-lock "kcm-jobs=jobs-controller"`, `"jobs-controller" is no controller`, "flotilla controllers"}},
		{"second is bad", []string{"--leader-lock=kube-controller-manager", "--leader-lock=*"}, []string{`--leader-lock "*"`, "must be the name of a Lease"}},
		{"not covered", []string{"--controllers=job-controller,cronjob-controller", "--leader-lock=kcm-jobs=job-controller"}, []string{"--controllers enables cronjob-controller", "no --leader-lock covers"}},
		{"all but one", []string{"--leader-lock=kcm-jobs=job-controller"}, []string{"--controllers enables", "deployment-controller", "no --leader-lock covers"}},
		{"own Lease", []string{"--leader-lock=flotilla-plan"}, []string{`--leader-lock "flotilla-plan"`, "the fleet's own Leases", "--fleet-name"}},
		{"own Lease by default", []string{"--fleet-name=kube"}, []string{`--leader-elect-resource-name "kube-controller-manager"`, "the fleet's own Leases"}},
		{"none and another", []string{"--leader-lock=none", "--leader-lock=x"}, []string{`--leader-lock "none": must be the only one`}},
		{"without election", []string{"--leader-lock=kube-controller-manager", "--leader-elect=false"}, []string{`--leader-lock "kube-controller-manager"`, "--leader-elect"}},
		{"unreadable migration", []string{"--enable-leader-migration", "--leader-migration-config=/nowhere/m.yaml"}, []string{"leader migration configuration", "/nowhere/m.yaml"}},
		{"migration by endpoints", migration("v1beta1", "leaderName: kcm-jobs\nresourceLock: endpoints\n"+jobs), []string{"--leader-migration-config", `resourceLock "endpoints"`, "leases"}},
		{"migration by own Lease", migration("v1", "leaderName: flotilla-plan\n"+jobs), []string{"--leader-migration-config", `leaderName "flotilla-plan"`, "the fleet's own Leases"}},
		{"migration not covered", append(migration("v1", "leaderName: kcm-jobs\n"+jobs), "--leader-lock=kcm-cronjobs=cronjob-controller"), []string{"--controllers enables", "deployment-controller", "no --leader-lock covers"}},
	})
}

// TestStockRefusesOtherLocks checks that the stock controller manager refuses a lock that is not a
// Lease, as the fleet does. So no stock leader can hold a lock that a fleet beside it does not see.
func TestStockRefusesOtherLocks(t *testing.T) {
	for lock, want := range map[string]string{"leases": "", "endpoints": `resourceLock value must be "leases"`} {
		stock, err := options.NewKubeControllerManagerOptions()
		if err != nil {
			t.Fatal(err)
		}
		all := pflag.NewFlagSet("kube-controller-manager", pflag.ContinueOnError)
		known, disabled, aliases := kcm.KnownControllers(), kcm.ControllersDisabledByDefault(), kcm.ControllerAliases()
		for _, section := range stock.Flags(known, disabled, aliases).FlagSets {
			all.AddFlagSet(section)
		}
		if err := all.Parse([]string{"--leader-elect-resource-lock=" + lock}); err != nil {
			t.Fatal(err)
		}
		err = stock.Validate(known, disabled, aliases)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", lock, err, want)
		}
	}
}
