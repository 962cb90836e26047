package domain

// Effect is the most severe possible effect of a tool call. It decides whether the call may be
// repeated after a crash.
type Effect string

// The effects, ordered by severity.
const (
	EffectRead     Effect = "read"
	EffectDatabase Effect = "database" // the agent's database; its journal runs the call once
	EffectWrite    Effect = "write"    // files
	EffectExternal Effect = "external" // anything else
)

// CallState is the state of a tool call.
type CallState string

// The states of a call. A running call changes when it ends, or when its attempt is found dead.
const (
	CallRunning     CallState = "running"
	CallDone        CallState = "done"
	CallFailed      CallState = "failed"
	CallDeduped     CallState = "deduped"     // the result of an equal, earlier call of the run was used
	CallReplayed    CallState = "replayed"    // the recorded result of an earlier attempt was used
	CallCancelled   CallState = "cancelled"   // not started
	CallInterrupted CallState = "interrupted" // interrupted, may be repeated
	CallUncertain   CallState = "uncertain"   // interrupted with a possible effect; never repeated silently
)
