// Command scale runs fleets of up to 100 members with 1,000 shards on a real etcd and
// kube-apiserver, and measures their cost and speed.
//
//	make long RUN=hundred
//	go run ./test/scale -members 3,10
//
// The members are the product's own ([fleet.Member], one heartbeat each), each with its own client,
// connection, User-Agent, watch of Leases and metrics. A shard's work is a stub that reports its
// beginning and end: there are no controllers, and no packages of upstream's. Members share
// processes, ten to each, called crews; one member has a crew for itself. Crews run at a lower
// priority than the API server (nice): in a cluster it has machines of its own.
//
// The scenario, for each size: all members join and every shard gets an owner; the fleet is idle;
// one member is killed; a tenth of the members is killed at once; a rolling restart, crew by crew;
// a plan with three new ranges for every four; a restart of the API server. After each step it
// waits until exactly one owner runs every part of the keyspace, and every group, and every member
// is ready. It prints how long that took.
//
// The [ledger] is the judge. Crews stamp the beginning and end of work with the machine's monotonic
// clock, which all processes share. Overlapping work on the same part fails the run. A killed
// process's work ends when the process has been waited for.
//
// Results go to _output/scale: hundred.json, hundred.md, logs of the crews, and with -profiles CPU
// profiles.
//
// Not measured: controllers and their caches, Events, the status page. Members that share a process
// share its garbage collector; the member in a crew of its own shows what that hides.
//
// Exit status: 0 if every condition was reached and no work overlapped, 1 if not, 2 for wrong
// usage.
package main
