// Package audit judges a fleet by the API server's audit log: whether every write of a shard's
// controllers was within the shard's range, and was made by the holder of the shard's Lease.
// 'flotilla audit' is this package with files and flags; the tests on real control planes use it
// too. It is in pkg, and not internal, for programs that embed package fleet with controllers of
// their own: they have the same question, and say which controllers are behind their identities
// (Options.Controllers).
//
// It reads the log, and may be given a plan to begin with, so its verdict does not rest on what the
// members say about themselves, with one exception. The part " flotilla (member=…; shard=…;
// term=…)" that the fence adds to the User-Agent says which claim a write was made under. The
// writes of the shard's Lease then show whether that claim was in force.
//
// # What is judged of writes
//
// A write is a request with a mutating verb that was not refused. An update that ended with a
// server error counts as refused if a write to the same object, answered before the update arrived,
// had replaced the version that it was for: the update cannot have stored anything. Any other
// request that ended so counts as a write. For each write with the fence's part, these are judged:
//
//   - Range, for shards of a namespaced ring: the hash of the object's namespace lies in the
//     shard's range. For Namespace objects and their subresources it is the hash of their name, for
//     PersistentVolumes that of the namespace of the claim that they are bound to. Among
//     controllers with a range, only the persistentvolume-expander may write PersistentVolumes;
//     none may write any other cluster-scoped object. This rule also judges refused requests,
//     because a controller that asks beyond its range is wrong whatever the answer.
//   - Controller: the Lease named the sending controller, known by its identity, in that term;
//     refused requests too. An identity that several controllers share stands for each of them.
//     It is not judged if the identity of none of the Lease's controllers is known: these are
//     another program's. ByController counts what was judged.
//   - Lease: (member, term) is what the shard's Lease said when the write took effect; see below.
//   - End: the writer was not listed as ended when the write took effect, where a fleet has one
//     heartbeat a member; see below.
//   - Leader lock: if the member said on its own Lease that it waits for a foreign Lease, such as
//     that of the stock controller manager's leader election (flotilla.dev/leader-locks), that
//     Lease named the fleet when the write took effect; see below.
//   - No overlap: a write under the claim of a shard does not take effect while another shard that
//     overlaps with it is held by a claim that has begun to work; see below.
//
// For the Leases themselves these rules hold. A new holder has a greater term than the one before.
// No term ends before the Lease was released or its spec had stood still for its duration by the
// API server's clock. No term continues after another has begun. Nobody deletes the plan's Lease,
// or the Lease of a shard unless it was retired. For a fleet that has one heartbeat a member, other
// rules decide when a term ends; see below. The fleet takes no leader lock from a holder whose hold
// has not run out. Overlaps lists the pairs of terms that these rules found in force at once.
//
// A write may arrive before the Lease write that ended its term was answered, and take effect after
// it. It was already on the wire, and no Lease can call it back. InFlight lists such writes, and
// those without a version that may be such; they are not violations. Two bounds hold for them; a
// write beyond either is undecided. The API server ends every request at its --request-timeout. And
// a holder that is not released has stopped before its Lease has run out, so a network, a server or
// a clock that stood still has delayed a write that arrives later and takes effect under the next
// holder. Before a release all work has returned, its requests answered or, after a second, given
// up. So a log without faults of servers or members has none in flight, and Undisturbed returns an
// error if there is one. A write that arrived later and was accepted is a violation; DeniedLate
// counts those that were refused, by the code of the answer, which shows what a fence in the API
// server has done.
//
// Members may make writes without the fence's part only for the fleet's own requests: those for its
// Leases and its leader locks, Events, creating service accounts in kube-system, tokens, and
// reviews. Everything else went around the fence. A member's request is recognised by the id of its
// token, if that is on a member's Lease; otherwise by its binary, whatever the binary is called:
// name, version, platform and commit in the User-Agent are those of requests with the fence's part,
// or of requests that write members' Leases. Many programs are built without a commit and have the
// same User-Agent; for those the account counts too. A stock controller manager may be such a build
// too; if one has held a leader lock, only tokens distinguish the two, and Unnamed counts requests
// without a token.
//
// # How a write is matched with its Lease
//
// By version, if the answer carries the object (audit level RequestResponse): resourceVersions of
// one etcd are one sequence, so the Lease in force is the newest one below the write's version.
// This is exact.
//
// An update that ended with a server error may have taken effect, and so may a Lease write. The
// next Lease write shows whether it did, by the version that it was based on. If no write in the
// log explains that version, the log has a hole, as when a server was killed before it logged: the
// hole is undecided, and so is everything that depends on what the Lease said in it. If a log
// begins later than the fleet, the first write of a Lease shows that there were others. Writes of
// its holder before it are within the term, those of others undecided. Partial counts such Leases.
// If a log has no write of a Lease at all, each claim on its shard is undecided once.
//
// By time otherwise: a write took effect between the arrival of its request and its answer, and so
// did the two Lease writes that began and ended the term. A write is acquitted if it could have
// been within the term. This is weaker: it misses violations within the time of two requests,
// milliseconds as a rule. It is used when the log has no objects, when the answer is not an object
// of the resource (most deletes, bindings, evictions), and when the version in the answer is older
// than the term: an update that changes nothing is answered with the version of the last change.
//
// # One heartbeat a member
//
// A fleet follows one of two protocols. In the first, a holder renews each shard's Lease. In the
// second it renews only its member's Lease (docs/design/heartbeat.md), and keeps a shard's Lease
// however long it stands still. The annotation flotilla.dev/protocol on the member's Lease says
// which one an incarnation follows; an incarnation that no Lease in the log names counts as
// following what any other member in the log does. With the second protocol these rules replace
// those on time:
//
//   - A term ends with the release of the shard's Lease, its next acquisition, or the first write
//     of the member's Lease that lists the holder as ended (flotilla.dev/ended), whichever comes
//     first. All three have a version. Other rules about the end of a term (in flight, denied late,
//     gaps, who ran what) use this. An incarnation stays ended when it leaves the list.
//   - Writer had ended: a write took effect after its writer was listed, and before anybody had
//     taken the shard. After that, the writer is not the holder.
//   - Holder had not ended: a shard's Lease goes to another incarnation only if it was released
//     (flotilla.dev/released names the term, and no other member wrote that; whatever others write
//     on the Lease after that does not undo it), or if its holder is listed at a lower version. A
//     Lease that somebody emptied, or whose holder is no member's incarnation, has to stand still
//     for the duration that the new holder declares, and a Lease that was deleted has to be absent
//     for as long; otherwise it was taken early. An incarnation may take again what it holds.
//   - Ended too early: a member's Lease had to stand still for its duration before another member
//     listed an incarnation of it: since the fleet had created the Lease or changed its holder, and
//     since the incarnation's last heartbeat. The incarnation may list itself at any time as it
//     gives its Lease up. The User-Agent's "/fleet-member/<name>" distinguishes the two; without
//     it, a listing before the Lease had stood still counts as the incarnation's own.
//   - Heartbeat after the end: an incarnation renewed its member's Lease, or acquired it, after it
//     was listed.
//   - Successors of a shard wait until it was released or its holder is listed. If a successor
//     writes before that, shards overlap, even if the holder was silent for long.
//
// A heartbeat is a write by the member that changes the Lease's renewTime or makes the member its
// holder. These do not count: a rival's request, an operator's drain, a member that writes
// another's Lease again after its deletion, and anything from outside the fleet. If somebody
// outside lists an incarnation as ended, that is convicted like any other listing, and the finding
// says so: the fleet acts on it.
//
// A write is late if it arrived when its writer's last heartbeat was longer ago than its Lease
// lasts. A gap counts from that heartbeat too. If the log does not show the end of a claim, it
// ended with that heartbeat's Lease, even if nobody else could have the shard then.
//
// To convict of "holder had not ended" takes a proof: a later write of its member's Lease with no
// hole between. A server that is killed may have stored a strike without logging it. Without that
// proof, or if the log lacks the member's Lease, it is undecided who had the right to take the
// shard (end of the holder not known). So is a hole in which the holder may have been listed, and
// everything of that kind if the log has writes of members' Leases and none of what they became.
//
// # Leader locks
//
// A leader lock is not a claim of one member: all members hold it under the fleet's identity. So a
// write does not say by which term of the leader lock it was made, and may match any. If somebody
// clears or deletes the leader lock while the fleet runs, the members' writes are convicted until
// they hear of it: that is the purpose of the rule, and whoever did it must know. A write that was
// on the wire then is in flight. The rule does not judge whether a leader lock had run out while
// nobody else took it.
//
// # Changes of the plan
//
// What a shard covers (its extent: controllers, and a range or the whole keyspace) is what its
// Lease says in the term: labels and annotations that the holder writes with every acquisition and
// renewal. If the Lease names no controllers, the extent is that of the plan given up front, or
// else of a plan in the log; then the rule on controllers judges nothing. Shards need not be in the
// plan given up front: a Lease named like a shard's is one if it is labelled with the fleet's name
// and names its controllers, or if a plan has it.
//
// Layout. Such a Lease has the name that its labels make, its extent never changes, the plan
// generation that it names was on the plan's Lease before, and a plan in force up to that
// generation has the shard with that extent. A plan that the fleet's binary writes follows the
// last one: it has a greater generation, and no shard that keeps its name and covers something
// else; or it was in force already, and replaces one that could not be used. If others write a
// plan that cannot follow, the members refuse it, so it is not a violation and not in force;
// PlansRefused counts it. If the log lacks the plan's Lease, the plan given up front stands for
// its generation, and other generations are not compared with a plan. If a write of the plan was
// made on a version that the log does not have, a server that was killed may have written the
// plan with that version: it counts as in force since then.
//
// Overlap. Two shards whose extents overlap may be held at the same time: the successor is claimed
// first, and waits until its predecessors have been released or have run out (rule 6 of the
// design). They may not be worked at the same time. A claim's first write shows that it has stopped
// waiting. So for each pair of terms, the one that wrote later may not write, in this or in another
// namespace and by any controller, while the other, having written, was certainly in force: neither
// released nor run out by anybody's clock. This convicts the successor that began too early and the
// predecessor that went on, as one violation, at the first such write. A predecessor's writes while
// the successor waits are fine. A claim that runs and writes nothing cannot be seen. If a
// predecessor has run out, what it sent before the successor's first write was answered is in
// flight. Writes that change nothing, answered with the version of an earlier write, are matched by
// time.
//
// Successions lists what passed from shard to shard, with how long nobody ran it and nobody wrote
// in it. Interruptions lists when nobody ran what had been run before, whatever shards covered it;
// a holder that waits does not run. A holder runs from its acquisition, or from when the last
// predecessor was free, whichever is later. If the Lease said that it waited (flotilla.dev/ready),
// it runs only once the Lease no longer says so, and in any case from its first write. Neither list
// is of violations: a takeover takes its time. The function Successions does the same for Leases
// that were watched.
//
// # What is judged of objects
//
// With objects in the log, further rules judge the effects of shards' writes. They read everybody's
// writes, and convict only shards of a fleet. Report's Objects counts what they had to judge, and
// by reason what they passed over. They acquit whenever something in the log could have been a
// reason, and they judge nothing that began before the log.
//
//   - Duplicate pods. A pod created for a ReplicaSet, ReplicationController or Job is one too many
//     if as many pods were certainly live as the owner has wanted at any time since the create
//     before it, or since the generation that the owner's status then said its controller had seen.
//     A pod is live if it was not deleted, not terminating, not finished, and belonged to this
//     owner; a pod that may have ended by then does not count. A Job wants its parallelism, and no
//     more than its completions. A pod of a StatefulSet is one too many if its ordinal is beyond
//     the end: there a pod may be missing in the middle while one at the end has not gone yet. Each
//     version is exact.
//   - Duplicate ReplicaSets. A ReplicaSet created for a Deployment is one too many if another with
//     the same template, except for the hash, was certainly there and belonged to the Deployment.
//   - Duplicate Jobs. A Job created for a CronJob is one too many if there was one for the same
//     time, and the CronJob's status said so. A write by the same claim there within 30 s may not
//     have reached its cache, and excuses it.
//   - Duplicate EndpointSlices. A new EndpointSlice of a Service has no endpoint that is certainly
//     in another of the same Service, manager, address type and ports; nor are there two without
//     endpoints. The controller moves no endpoint to a new slice.
//   - Wanted pods deleted. A pod of a ReplicaSet, ReplicationController, StatefulSet or DaemonSet
//     was deleted although it had not ended, its owner and its namespace were there and not being
//     deleted, its node was there and had no NoExecute taint, and the owner had no more pods than
//     it wanted: for ReplicaSets and ReplicationControllers by the count, for StatefulSets by the
//     ordinal, for DaemonSets one a node. The rule passes over pods of a StatefulSet or DaemonSet
//     that is rolling out a change, or whose template is not the newest; pods of a DaemonSet if the
//     labels or taints of the node, or the DaemonSet, have changed since they were made; pending
//     pods of a StatefulSet; and all pods that use device claims. Controllers act by caches: a
//     reason from within 30 s before the request arrived still counts. This is the only rule about
//     objects that compares times although there are versions.
//   - Owned objects deleted. The garbage collector deleted an object although one of its owners was
//     there, with the UID, kind, name and namespace that the reference says, and nobody had asked
//     for the owner's deletion. It asks the API server for each owner before it deletes, so there
//     is no allowance for caches.
//
// If nobody knows whether a write took effect, everything that depends on it is undecided: the
// object that it was for, or the owner that it asked for, until an answer at least 30 s later shows
// the object as it is. A pod that may have been created counts as one that its owner had too many,
// or any owner in its namespace if the log lacks the request. It does so until a controller writes
// into the status of a ReplicaSet or ReplicationController, by a cache of at least 30 s later, that
// it has no more pods than the log shows. A server that is killed may have carried out writes that
// it never logged. The log shows that only if its policy keeps the stage RequestReceived: a request
// that arrived and never ended is such a write, and Lost counts these. Without that stage a pod
// that was deleted in the moment of the kill counts as still there, and convicts the controller
// that replaces it.
//
// If the log lacks a part (gap in the log), objects are not convicted by what it showed before
// that.
//
// A duplicate may come from a create that was in flight, which Leases cannot prevent. It is
// convicted all the same: look in InFlight for its line, or for that of the pod before it.
//
// # What is not judged
//
//   - Who deletes pods of Jobs, or objects other than pods, unless it is the garbage collector; and
//     who deletes pods that no controller owns. Jobs end in too many ways to know whether a pod was
//     wanted.
//   - The number of a DaemonSet's pods, two pods of one completion index, and duplicates of other
//     kinds.
//   - A single create after a scale-down, if the owner's last create came before the scale-down:
//     the number wanted then excuses it.
//   - Custom resources as owners, once a definition of their group was deleted: they go without a
//     request.
//   - Events: they are recorded late and in batches, and those on cluster-scoped objects lie in
//     namespace "default". They are counted.
//   - Requests that store nothing: reviews and TokenRequests. They are counted.
//   - Whether the Lease had run out while nobody else took it: by the shard's last renewal, or the
//     member's last heartbeat. Such writes are counted as late: if a server stalls, a request that
//     left in time can be late. Undisturbed returns an error if there are any.
//   - Reads.
//
// Updates that change nothing are answered with the version of the last change. One that comes
// after its term is acquitted if it is answered with a version from within the term, and convicted
// if it is answered with a successor's version. Both did no harm.
//
// With one heartbeat a member, the package does not judge an incarnation that takes its member's
// Lease from another too early and does not list it: that only delays those who wait. Nor does it
// judge writes of the plan's Lease under either protocol, except for the plans.
//
// A change of the Lease that leaves its spec alone, such as a rival's request, is not a renewal. If
// a holder lets its term run out and then takes the shard again with the same term, that looks the
// same as a late renewal.
//
// If several API servers' clocks differ, their joint log convicts the innocent. The resources of
// aggregated API servers have versions of their own; give their log without objects.
package audit
