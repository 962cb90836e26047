package dispatch

import "time"

const (
	// shallowQueue is a queue so short that it is simply read again at each pass.
	shallowQueue = 64
	// rereadRest is how long a deep queue is left alone after reading it, for each of its
	// runs: about twenty times what reading one takes.
	rereadRest = 200 * time.Microsecond
)

// backlog is how far the ledger's queue has been read into the FairQueue. The ledger
// stays the truth: Ledger.Start refuses what changed meanwhile, runs above seen are read as
// they come, and what becomes claimable below it (a retry, a resumed or a jittered run) is
// found by reading the queue again: at each pass while it is shallow, and within bounds when
// it is deep.
type backlog struct {
	seen  int64 // the highest id that was read
	stale bool  // something changed since the queue was read from its start

	readFrom time.Time // when the queue was last read from its start
	read     int       // how many runs since then
}

// rereadAt says from when on the queue may be read from its start.
func (b *backlog) rereadAt() time.Time {
	if b.read <= shallowQueue {
		return b.readFrom
	}
	return b.readFrom.Add(time.Duration(b.read) * rereadRest)
}
