package dispatch

import "time"

const (
	// shallowQueue is the length up to which the queue is read again on every pass.
	shallowQueue = 64
	// rereadRest is the minimum time between two reads of a deep queue, per run read. It is about
	// twenty times the cost of reading one run.
	rereadRest = 200 * time.Microsecond
)

// backlog records how far the ledger's queue has been read into the FairQueue. The ledger stays
// authoritative: Ledger.Start refuses runs that have changed in the meantime. Runs with an id above
// seen are read as they arrive. Runs with a lower id can become claimable later: retries, resumed
// runs and jittered runs. They are found when the queue is read again from its start: on every pass
// if the queue is shallow, at intervals if it is deep.
type backlog struct {
	seen  int64 // highest id read so far
	stale bool  // whether something changed since the last read from the start

	readFrom time.Time // time of the last read from the start
	read     int       // number of runs read since then
}

// rereadAt returns the earliest time at which the queue may be read from its start again.
func (b *backlog) rereadAt() time.Time {
	if b.read <= shallowQueue {
		return b.readFrom
	}
	return b.readFrom.Add(time.Duration(b.read) * rereadRest)
}
