package dispatch

import (
	"time"

	"rouse/agentdb/ledger"
)

const (
	// shallow is a queue so short that it is simply read anew at each turn.
	shallow = 64
	// rereadRest is how long a deep queue is left alone after reading it, for each of its
	// runs: about twenty times what reading one takes.
	rereadRest = 200 * time.Microsecond
)

// line is one queue in front of the same lanes: those of an agent and of a job.
type line struct{ agent, job string }

// waiting is what the dispatcher keeps of a claimable run that found no lane.
type waiting struct {
	id    int64
	since time.Time // when its start_deadline began to run; zero when it has begun before
}

// backlog remembers which runs stand in which line, in the order of their acceptance, so
// that a lane that gets free finds its next run without a look at all those that wait for
// other lanes. The ledger stays the truth: StartAttempts refuses what changed meanwhile,
// runs above seen are read as they come, and what becomes claimable below it (a retry, a
// resumed or a jittered run) is found by reading the queue anew: at each turn while it is
// shallow, and within bounds when it is deep.
type backlog struct {
	lines map[line][]waiting
	seen  int64 // the highest id that was read
	stale bool  // something changed since the queue was read from its start

	began time.Time // when the queue was last read from its start
	read  int       // how many runs since then
}

// reread says from when on the queue may be read from its start.
func (b *backlog) reread() time.Time {
	if b.read <= shallow {
		return b.began
	}
	return b.began.Add(time.Duration(b.read) * rereadRest)
}

// forget makes the next read begin at the start of the queue.
func (b *backlog) forget(now time.Time) {
	*b = backlog{lines: make(map[line][]waiting, len(b.lines)), began: now}
}

func (b *backlog) add(r ledger.Run) {
	w := waiting{id: r.ID}
	if r.State == ledger.StateQueued && r.Attempt == 0 {
		w.since = latest(r.QueuedAt, r.NotBefore)
	}
	k := line{r.Agent, r.Job}
	b.lines[k] = append(b.lines[k], w)
}

// pop takes the first run of a line.
func (b *backlog) pop(k line) waiting {
	first := b.lines[k][0]
	if b.lines[k] = b.lines[k][1:]; len(b.lines[k]) == 0 {
		delete(b.lines, k)
	}
	return first
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
