package dispatch

import (
	"cmp"
	"slices"
	"time"

	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// FairQueue gives lanes to waiting runs. It has no clock and no database: the Dispatcher and a
// simulation hand it the time, and start the runs that it returns.
//
// Runs wait in job queues, the oldest first. The run that has waited longest of those at the head
// of a job queue is next, unless it waits for a lane of its agent or its job, or for the end of a
// pause.
type FairQueue struct {
	runs, perAgent int
	policy         func(job string) Policy
	queued         map[jobKey][]queuedRun
	running        map[int64]jobKey
	agents         map[string]int // running runs
	jobs           map[string]int
	elsewhere      ledger.Lanes // those that other nodes have taken
}

// jobKey names the queue for the lanes of one agent and one job. Manual runs have a queue of
// their own, because they do not wait for a pause to end, and so have those of a backfill, which
// yield to all others.
type jobKey struct {
	agent, job       string
	manual, backfill bool
}

// queuedRun is a claimable run that has no lanes yet.
type queuedRun struct {
	id    int64
	since time.Time // when its start_deadline began to run; zero if it has none
}

// Late is a run that has waited longer than its job's start_deadline.
type Late struct {
	Run    int64
	Waited time.Duration
}

// NewFairQueue has so many lanes, and of them so many for one agent; 0 means 4 and 1.
func NewFairQueue(runs, perAgent int, policy func(job string) Policy) *FairQueue {
	f := &FairQueue{policy: policy, queued: map[jobKey][]queuedRun{}, running: map[int64]jobKey{}, agents: map[string]int{}, jobs: map[string]int{}}
	f.SetLanes(runs, perAgent)
	return f
}

// SetLanes changes how many lanes there are; what runs keeps its own.
func (f *FairQueue) SetLanes(runs, perAgent int) {
	if runs <= 0 {
		runs = defaultRuns
	}

	if perAgent <= 0 {
		perAgent = defaultPerAgent
	}

	f.runs, f.perAgent = runs, perAgent
}

// SetElsewhere sets the lanes of agents and jobs that other nodes have taken.
func (f *FairQueue) SetElsewhere(lanes ledger.Lanes) { f.elsewhere = lanes }

// Free returns how many lanes are left.
func (f *FairQueue) Free() int { return f.runs - len(f.running) }

// Clear empties the queues; what runs keeps its lanes.
func (f *FairQueue) Clear() { clear(f.queued) }

// Add queues a run, in front of younger ones that were added before it.
func (f *FairQueue) Add(r ledger.Run) {
	q := queuedRun{id: r.ID}
	// Hundreds of backfilled runs wait for as long as it takes.
	if r.State == domain.StateQueued && r.Attempt == 0 && !r.Yields() {
		if q.since = r.QueuedAt; r.NotBefore.After(q.since) {
			q.since = r.NotBefore
		}
	}

	key := jobKey{r.Agent, r.Job, r.Trigger == domain.TriggerManual, r.Trigger == domain.TriggerBackfill}
	i, _ := slices.BinarySearchFunc(f.queued[key], q, func(a, b queuedRun) int { return cmp.Compare(a.id, b.id) })
	f.queued[key] = slices.Insert(f.queued[key], i, q)
}

// Dequeue removes and returns the runs that get a lane now: those that have waited longest, are
// not paused, and whose agent and job have lanes free. It also removes those that have waited
// longer than their job's start_deadline, for which late accounts.
func (f *FairQueue) Dequeue(now time.Time, pauses []ledger.Pause) (starting []int64, late []Late) {
	// First, so that a run past its deadline does not start because a lane happens to be free.
	late = f.dequeueLate(now)
	for f.Free() > 0 {
		key, ok := f.next(now, pauses)
		if !ok {
			break
		}

		id := f.queued[key][0].id
		f.setQueued(key, f.queued[key][1:])
		if _, on := f.running[id]; on {
			continue // the ledger was read before its start, or before its end was written
		}
		f.running[id] = key
		f.agents[key.agent]++
		f.jobs[key.job]++
		starting = append(starting, id)
	}
	return starting, late
}

// next returns the queue whose first run has waited longest of those that can start.
func (f *FairQueue) next(now time.Time, pauses []ledger.Pause) (first jobKey, ok bool) {
	for key, runs := range f.queued {
		if ok && (key.backfill && !first.backfill || key.backfill == first.backfill && runs[0].id > f.queued[first][0].id) {
			continue
		}
		if f.full(key) {
			continue
		}
		if _, paused := ledger.Paused(pauses, key.job, key.agent, now); !paused || key.manual {
			first, ok = key, true
		}
	}
	return first, ok
}

// setQueued replaces the runs of a job queue, which is removed when it is empty.
func (f *FairQueue) setQueued(key jobKey, runs []queuedRun) {
	if f.queued[key] = runs; len(runs) == 0 {
		delete(f.queued, key)
	}
}

// full reports whether all lanes of an agent or job are taken, here and elsewhere.
func (f *FairQueue) full(key jobKey) bool {
	if f.agents[key.agent]+f.elsewhere.Agents[key.agent] >= f.perAgent {
		return true
	}
	most := jobLanes(f.policy(key.job))
	return key.job != "" && most > 0 && f.jobs[key.job]+f.elsewhere.Jobs[key.job] >= most
}

// jobLanes returns how many runs of a job may run at once; 0 means any number.
func jobLanes(p Policy) int {
	if p.Concurrency < 0 {
		return 0
	}
	return max(p.Concurrency, 1)
}

// dequeueLate removes the runs that have waited too long, wherever in their queues they are: in front of
// them there may be runs that are tried again, or that came into the queue later.
func (f *FairQueue) dequeueLate(now time.Time) (late []Late) {
	for key, runs := range f.queued {
		most := f.policy(key.job).StartDeadline
		if most <= 0 {
			continue
		}
		f.setQueued(key, slices.DeleteFunc(runs, func(r queuedRun) bool {
			waited := now.Sub(r.since)
			if r.since.IsZero() || waited <= most {
				return false
			}
			late = append(late, Late{r.id, waited})
			return true
		}))
	}

	slices.SortFunc(late, func(a, b Late) int { return cmp.Compare(a.Run, b.Run) })
	return late
}

// NextLate returns when the next waiting run will have waited too long; zero means never.
func (f *FairQueue) NextLate() (first time.Time) {
	for key, runs := range f.queued {
		most := f.policy(key.job).StartDeadline
		if most <= 0 {
			continue
		}
		for _, r := range runs {
			if !r.since.IsZero() {
				first = domain.Earlier(first, r.since.Add(most+time.Millisecond))
			}
		}
	}
	return first
}

// Release frees the lanes of runs.
func (f *FairQueue) Release(ids ...int64) {
	for _, id := range ids {
		if key, ok := f.running[id]; ok {
			delete(f.running, id)
			decrement(f.agents, key.agent)
			decrement(f.jobs, key.job)
		}
	}
}

// decrement counts down, and drops names at zero: agents and jobs come and go for as long as the daemon lives.
func decrement(count map[string]int, name string) {
	if count[name]--; count[name] == 0 {
		delete(count, name)
	}
}
