// Command scale runs fleets of up to 100 members with 1,000 shards on a real etcd and
// kube-apiserver, and measures what they cost and how long they take.
//
//	make long RUN=hundred
//	go run ./test/scale -members 3,10
//
// The members are the product's own ([fleet.Member], one heartbeat each), each with its own client,
// connection, User-Agent, watch of Leases and metrics. The work of a shard is a stub, which says
// when it begins and when it has ended: no controllers, and none of upstream's packages. Members
// share processes, ten to each, called crews; one member has a crew for itself.
//
// The scenario, in each size: all join and every shard has an owner; idle; one member is killed; a
// tenth of the members is killed at once; a rolling restart, crew by crew; all ranges are cut again,
// three for every four; the API server is restarted. After each step it waits until every part of
// the keyspace, and every group, has exactly one running owner and every member is ready, and
// prints how long that took.
//
// The judge is the [ledger]: crews stamp beginning and end of work with the machine's monotonic
// clock, which is the same for all processes. Two works that cover some of the same at the same
// time fail the run. A killed process's work ends when the process has been waited for.
//
// Results go to _output/scale: hundred.json, hundred.md, logs of the crews, and with -profiles CPU
// profiles.
//
// Not measured: controllers and what they cache, Events, the status page. Members that share a
// process share its garbage collector; the one in a crew of its own shows what that hides.
//
// Exit status: 0 if every condition came true and no work overlapped, 1 if not, 2 for wrong usage.
package main
