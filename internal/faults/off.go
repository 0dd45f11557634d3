//go:build !planted

package faults

// The bugs: see on.go.
const (
	AdaptNever             = false
	AptnessIgnored         = false
	AskIgnored             = false
	DrainIgnored           = false
	DrainUnbounded         = false
	ExpiryEarly            = false
	FenceOff               = false
	GenerationKept         = false
	LackingOwner           = false
	LeaderLockDelayIgnored = false
	LeaderLockIgnored      = false
	PreflightHasty         = false
	LostLeaseIgnored       = false
	MarkSkipped            = false
	PredecessorsIgnored    = false
	PreparedLeaked         = false
	RangeOffByOne          = false
	ReadyUnsaid            = false
	ReleaseBeforeStop      = false
	ReplanRestless         = false
	RingsIgnored           = false
	RunUnclaimed           = false
	ShutdownIgnored        = false
	StandbyStale           = false
	StrikeOutlived         = false
	StuckEarly             = false
	StuckUntold            = false
	SuccessionStale        = false
	TakenUnstruck          = false
	TermKept               = false
	TouchForever           = false
	UnansweredForgotten    = false
)

// DropEvent reports whether an informer should skip the current event.
func DropEvent() bool { return false }
