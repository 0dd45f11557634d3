// Package audit judges a fleet by the API server's audit log: whether every write of a shard's
// controllers was within the shard's range, and was made by the holder of the shard's Lease.
// 'flotilla audit' is this package with files and flags; the tests on real control planes ask it
// the same. It is in pkg, and not internal, for who embeds package fleet with controllers of their
// own: they have the same question, and pass in who is behind their identities
// (Options.Controllers).
//
// It reads the log, and may be given a plan to begin with, so what it says does not rest on what
// the members say of themselves, but for one thing: the part " flotilla (member=…; shard=…;
// term=…)" that the fence adds to the User-Agent says which claim a write was made under. That the
// claim was in force is then looked up in the writes of the shard's Lease.
//
// # What is judged of writes
//
// A write is a request with a mutating verb that was not refused. An update that ended with a
// server's error counts as refused if a write to the same object, answered before it arrived, had
// replaced the version that it was for: it can have stored nothing. Any other that ended so counts
// as a write. Of those that carry the fence's part:
//
//   - Range, for shards of a namespaced ring: the hash of the object's namespace lies in the
//     shard's range. For Namespace objects and their subresources it is the hash of their name, for
//     PersistentVolumes that of the namespace of the claim that they are bound to. These the
//     persistentvolume-expander alone may write, among controllers with a range; any other
//     cluster-scoped object is none of theirs. Requests that were refused are judged by this as
//     well, because a controller that asks beyond its range is wrong whatever the answer.
//   - Controller: the one that sent it, by its identity, is among those that the Lease named in
//     that term; refused requests too. Identities that several controllers share stand for each of
//     them. ByController counts what was judged.
//   - Lease: (member, term) is what the shard's Lease said when the write took effect; see below.
//   - End: the writer was not listed as ended when the write took effect, where a fleet has one
//     heartbeat a member; see below.
//   - Leader lock: where the member said on its own Lease that it waits for a foreign Lease, such
//     as that of the stock controller manager's leader election (flotilla.dev/leader-locks), that
//     Lease named the fleet when the write took effect; see below.
//   - No overlap: a write under the claim of a shard does not take effect while another shard that
//     covers some of the same is held by a claim that has begun to work; see below.
//
// Of the Leases themselves: a new holder has a greater term than the one before, no term ends
// before the Lease was released or its spec had stood still for its duration by the API server's
// clock, no term goes on after another has begun, and no shard's Lease is deleted, unless it was
// retired, nor that of the plan. A fleet that has one heartbeat a member has other rules for the
// end of a term; see below. The fleet takes no leader lock from a holder whose hold has not run
// out. Overlaps lists the pairs of terms that these rules found in force at once.
//
// A write that arrived before the Lease write that ended its term was answered, and took effect
// after it, was on the wire already, where no Lease can call it back. InFlight lists such writes,
// and those without a version that may have been such; they are no violations. Two bounds hold for
// them, and what is beyond one is undecided: the API server ends every request at its
// --request-timeout; and a holder that is not released has stopped before its Lease has run out, so
// that what arrives later and takes effect under the next holder was held up by a network, a server
// or a clock that stood still. Before a release all work has returned, its requests answered or
// hung up on. So a log without faults of servers or members has none in flight, and Undisturbed
// returns an error if there is one. A write that arrived later and was accepted is a violation; one
// that was refused is counted in DeniedLate, by the code of the answer, which shows what a fence in
// the API server has done.
//
// Of writes by members without the fence's part: only the fleet's own requests are allowed, which
// are those for its Leases and its leader locks, Events, creating service accounts in kube-system,
// tokens, and reviews. Everything else went round the fence. A member's request is known by the id
// of its token, if that is on a member's Lease; else by its binary, whatever that is called: name,
// version, platform and commit in the User-Agent are those of requests with the fence's part, or of
// who writes members' Leases. A stock controller manager may be such a build too; if one has held a
// leader lock, only tokens tell the two apart, and Unnamed counts what came without one.
//
// # How a write is joined with its Lease
//
// By version, where the answer carries the object (audit level RequestResponse): resourceVersions
// of one etcd are one sequence, so the Lease in force is the newest one below the write's version.
// This is exact.
//
// An update that ended with a server's error, and a Lease write that did, may have taken effect.
// That a Lease write did is shown by the next one, by the version that it was made on. If no write
// in the log explains that version, the log has a hole, as when a server was killed before it
// logged: it is undecided, and so is all that depends on what the Lease said in it. A log may begin
// later than the fleet: then the first write of a Lease shows that there were others. Writes of its
// holder before it are within the term, those of others undecided. Partial counts such Leases.
//
// By time otherwise: a write took effect between the arrival of its request and its answer, as did
// the two Lease writes that began and ended the term. A write is acquitted if it could have been
// within the term. This is weaker: it misses what happened within the time of two requests,
// milliseconds as a rule. Writes are joined so when the log has no objects, when the answer is no
// object of the resource (most deletes, bindings, evictions), and when the version in the answer is
// older than the term, since an update that changes nothing is answered with the version of the
// last change.
//
// # One heartbeat a member
//
// A fleet follows one of two protocols. In the first, a holder renews each shard's Lease. In the
// second it renews its member's Lease alone (docs/design/heartbeat.md), and a shard's Lease is its
// holder's however long it stands still. The annotation flotilla.dev/protocol on the member's Lease
// tells which one an incarnation follows; one that no Lease in the log names does what any other
// member in the log does. With the second protocol these rules take the place of those on time:
//
//   - A term ends with the release of the shard's Lease, its next acquisition, or the first write
//     of the member's Lease that lists the holder as ended (flotilla.dev/ended), whichever comes
//     first. All three have a version. What is said of the end of a term elsewhere (in flight,
//     denied late, gaps, who ran what) counts by this. That an incarnation has ended stays true
//     when it leaves the list.
//   - Writer had ended: a write took effect after its writer was listed, and nobody had taken the
//     shard yet. After somebody had, the writer is not the holder.
//   - Holder had not ended: a shard's Lease goes to another incarnation only if it was released
//     (flotilla.dev/released names the term; what others write on the Lease after that does not
//     undo it), or if its holder is listed at a lower version. A Lease that somebody emptied, or
//     whose holder is no member's incarnation, has to stand still for the duration that the new
//     holder declares, and one that was deleted has to be absent for as long; else it was taken
//     early. An incarnation may take again what it holds.
//   - Ended too early: a member's Lease had to stand still for its duration before somebody else
//     listed an incarnation of it: since the fleet had created the Lease or changed its holder, and
//     since the incarnation's last heartbeat. The incarnation may list itself at any time as it
//     gives its Lease back. The User-Agent's "/fleet-member/<name>" tells the two apart; without
//     it, what comes before the Lease had stood still counts as the incarnation's own.
//   - Heartbeat after the end: an incarnation renewed its member's Lease, or acquired it, after it
//     was listed.
//   - Successors of a shard wait until it was released or its holder is listed. What a successor
//     writes before is an overlap of shards, even if the holder was silent for long.
//
// A heartbeat is a write by the member that changes the Lease's renewTime or makes itself its
// holder. A rival's request, an operator's drain, a member that writes the Lease of another again
// after its deletion, and whatever is sent by somebody who is not of the fleet are none. What
// somebody else lists as ended is convicted as any other is, and says so: the fleet acts by it.
//
// A write is late if it arrived when its writer's last heartbeat was longer ago than its Lease
// lasts. A gap counts from that heartbeat too, and a claim of which the log has no end has run out
// with it, though nobody else may have it then.
//
// That a holder had not ended needs a proof: a later write of its member's Lease with no hole
// between. A server that is killed may have stored a strike, and not have logged it. Without that
// proof, or if the log lacks the member's Lease, who took the shard is undecided (end of the holder
// not known). So is a hole in which the holder may have been listed.
//
// # Leader locks
//
// A leader lock is no claim of one member: all hold it under the fleet's identity, so no write says
// by which term of the leader lock it was made, and it is held against any. Somebody who clears or
// deletes the leader lock while the fleet runs convicts the members of what they write until they
// hear of it: that is what the rule is to show, and who did it must know. A write that was on the
// wire then is in flight. That a leader lock has run out while nobody else took it is not judged.
//
// # Changes of the plan
//
// What a shard covers (its extent: controllers, and a range or the whole keyspace) is what its
// Lease says in the term: labels and annotations that the holder writes with every acquisition and
// renewal. Where the Lease names no controllers it is what the plan given up front says, else a
// plan in the log; then the rule on controllers judges nothing. Shards need not be in the plan
// given up front: a Lease named like a shard's is one if it is labelled with the fleet's name and
// names its controllers, or if a plan has it.
//
// Layout. Such a Lease bears the name that its labels make, what it covers never changes, the plan
// generation that it names was on the plan's Lease before, and a plan in force up to that
// generation has the shard with that extent. A plan that the fleet's binary writes follows the last
// one: a greater generation, and no shard that keeps its name and covers something else; or it is
// one that was in force already, put back in the place of what could not be used. What others write
// is refused by the members if it cannot follow, so it is no violation and not in force;
// PlansRefused counts it. A log without the plan's Lease has the plan given up front for its
// generation, and other generations are not held against a plan.
//
// Overlap. Two shards whose extents overlap may be held at the same time: the successor is claimed
// first, and waits until its predecessors have been released or have run out (rule 6 of the
// design). They may not be worked at the same time. That a claim no longer waits is shown by its
// first write, so for each pair of terms: the one that wrote later may not write, in this or in
// another namespace and by whatever controller, while the other, having written, surely was in
// force: neither released nor run out by anybody's clock. This convicts the successor that began
// too early and the predecessor that went on, as one violation, at the first such write. A
// predecessor's writes while the successor waits are fine. A claim that runs and writes nothing
// cannot be seen. What a predecessor that has run out sent before the successor's first write was
// answered is in flight. Writes that change nothing, answered with the version of an earlier write,
// are joined by time.
//
// Successions lists what passed from shard to shard, with how long nobody ran it and nobody wrote
// in it. Interruptions lists when nobody ran what had been run before, whatever shards covered it;
// a holder that waits does not run. It runs from its acquisition or from when the last predecessor
// was free, whichever is later; where the Lease said that it waited (flotilla.dev/ready) not before
// it no longer says so; and from its first write in any case. Neither is a violation: a takeover
// takes its time. The function Successions does the same for Leases that were watched.
//
// # What is judged of objects
//
// With objects in the log, further rules look at what the writes of shards did. They read what
// everybody wrote, and convict shards of a fleet alone. Objects of Report counts what they had to
// judge, and by reason what they passed over. They acquit whenever something in the log could have
// been a reason, and they judge nothing whose beginning is not in the log.
//
//   - Duplicate pods. A pod created for a ReplicaSet, ReplicationController or Job is one too many
//     if as many pods surely were live as the owner has wanted at any time since the create before
//     it, or since the generation that the owner's status then said its controller had seen. Live
//     is who was not deleted, not terminating, not finished, and belonged to this owner; whoever
//     may have ended by then is not counted. A Job wants its parallelism, and no more than its
//     completions. A pod of a StatefulSet is one too many if its ordinal is beyond the end: there a
//     pod may be missing in the middle while one at the end has not gone yet. Each version is
//     exact.
//   - Duplicate ReplicaSets. A ReplicaSet created for a Deployment is one too many if another of
//     the same template, but for the hash, surely was there and the Deployment's.
//   - Duplicate Jobs. A Job created for a CronJob is one too many if there was one for the same
//     time, and the CronJob's status said so. What the same claim wrote there within 30 s may not
//     have reached its cache, and excuses it.
//   - Duplicate EndpointSlices. One that is created for a Service has no endpoint that surely is in
//     another of the same Service, manager, address type and ports; nor are there two without
//     endpoints. The controller moves no endpoint to a new slice.
//   - Wanted pods deleted. A pod of a ReplicaSet, ReplicationController, StatefulSet or DaemonSet
//     was deleted although it had not ended, its owner and its namespace were there and not being
//     deleted, its node was there and had no NoExecute taint, and the owner had not more than it
//     wanted: for ReplicaSets and ReplicationControllers by the count, for StatefulSets by the
//     ordinal, for DaemonSets one a node. Pods of a StatefulSet or DaemonSet that is rolling out a
//     change, or whose template is not the newest, are passed over; those of a DaemonSet also if
//     the labels or taints of the node, or the DaemonSet, have changed since they were made; those
//     of a StatefulSet that are pending; and all that use device claims. Controllers act by caches:
//     what was a reason within 30 s before the request arrived still is one. This is the one rule
//     about objects that compares times although there are versions.
//   - Owned objects deleted. The garbage collector deleted an object although one of its owners was
//     there, with the UID, kind, name and namespace that the reference says, and nobody had asked
//     for the owner's deletion. It asks the API server for each owner before it deletes, so there
//     is no allowance for caches.
//
// A write of which nobody knows whether it took effect makes undecidable what depends on it: of the
// object that it was for, or of the owner that it asked for, until an answer 30 s later or more
// shows the object as it is. A server that is killed may have carried out writes that it never
// logged. The log shows that there were such only if its policy keeps the stage RequestReceived: a
// request that arrived and never ended is such a write, and Lost counts these. Without that stage a
// pod that was deleted in the moment of the kill counts as one that is there, and convicts whoever
// replaces it.
//
// A duplicate may come from a create that was in flight, which Leases cannot prevent. It is
// convicted all the same: look among InFlight for its line, or for that of the pod before it.
//
// # What is not judged
//
//   - Who deletes pods of Jobs, or objects other than pods, if it is not the garbage collector; and
//     who deletes pods that no controller owns. Jobs end in too many ways to tell whether a pod was
//     wanted.
//   - The number of a DaemonSet's pods, two pods of one completion index, and duplicates of other
//     kinds.
//   - One single create after a scale-down that the owner's last create came before: it is excused
//     by what was wanted then.
//   - Custom resources as owners, once a definition of their group was deleted: they go without a
//     request.
//   - Events: they are recorded late and in batches, and those on cluster-scoped objects lie in
//     namespace "default". They are counted.
//   - Requests that store nothing: reviews and TokenRequests. They are counted.
//   - Whether the Lease had run out while nobody else took it: by the shard's last renewal, or the
//     member's last heartbeat. Such writes are counted as late: a server that stalls can make a
//     request late that left in time. Undisturbed returns an error if there are any.
//   - Reads.
//
// Updates that change nothing are answered with the version of the last change. One that comes
// after its term and is answered with a version from within it is acquitted; one that is answered
// with a successor's version is convicted. Both did no harm.
//
// With one heartbeat a member nothing is said of an incarnation that takes its member's Lease from
// another too early, and does not list it: that delays those who wait. Nor of writes of the plan's
// Lease under either protocol, but for the plans.
//
// A change of the Lease that leaves its spec alone, such as a rival's request, is no renewal. Who
// takes again, with the same term, what it had let run out cannot be told from who renewed it late.
//
// A log of several API servers whose clocks differ convicts the innocent. The resources of
// aggregated API servers have versions of their own; give their log without objects.
package audit
