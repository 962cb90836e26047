package domain

// Effect is the worst that a call can do; it decides what may be repeated after a crash.
type Effect string

// The effects, from harmless to irreversible.
const (
	EffectRead     Effect = "read"
	EffectDatabase Effect = "database" // happens once, by the journal of the agent's own database
	EffectWrite    Effect = "write"    // of files
	EffectExternal Effect = "external" // of anything else
)

// CallState is where a call of a tool stands.
type CallState string

// The states of a call. Only a running one moves: by its end, or when its attempt is found dead.
const (
	CallRunning     CallState = "running"
	CallDone        CallState = "done"
	CallFailed      CallState = "failed"
	CallDeduped     CallState = "deduped"     // the result of the same call earlier in the run still held, and was used
	CallReplayed    CallState = "replayed"    // the recorded result of an earlier attempt was used
	CallCancelled   CallState = "cancelled"   // never began
	CallInterrupted CallState = "interrupted" // was cut off, and may be repeated
	CallUncertain   CallState = "uncertain"   // was cut off, and may have changed the world; never repeated silently
)
