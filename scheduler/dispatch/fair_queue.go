package dispatch

import (
	"cmp"
	"slices"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/node"
	"rouse/internal/ledger/pause"
)

// FairQueue gives lanes to waiting runs. It has no clock and no database: the Dispatcher or a
// simulation passes the time and starts the returned runs.
//
// Runs wait in job queues, the oldest first. Of the runs at the heads of the job queues, the one
// that has waited longest is next. A run is skipped while it waits for a lane of its agent or job,
// or for the end of a pause.
type FairQueue struct {
	runs, perAgent int
	policy         func(job string) Policy
	queues         map[jobKey]*jobQueue
	waiting        map[string][]*jobQueue // queues of each agent, in the order of their turns
	deadlines      []queuedRun            // queued runs with a start_deadline, the earliest first
	running        map[int64]jobKey
	agents         map[string]int // running runs
	jobs           map[string]int
	nodes          *nodes // nil unless several nodes share the ledger
}

// jobKey identifies the queue for the lanes of one agent and one job. Manual runs have their own
// queue because pauses do not affect them. Backfills have their own queue because they yield to all
// other runs.
type jobKey struct {
	agent, job       string
	manual, backfill bool
}

// jobQueue holds the waiting runs of a job, the oldest first. It is never empty.
type jobQueue struct {
	jobKey
	runs []queuedRun
}

// byTurn orders job queues by the id of their first run. Queues of backfills come last.
func byTurn(a, b *jobQueue) int {
	switch {
	case a.backfill == b.backfill:
		return byID(a.runs[0], b.runs[0])
	case a.backfill:
		return 1
	}
	return -1
}

// queuedRun is a claimable run that has no lanes yet.
type queuedRun struct {
	id      int64
	attempt int // number of the last attempt, or 0
	key     jobKey
	since   time.Time // time at which it became ready to start
	until   time.Time // end of its start_deadline, or zero
}

func byID(a, b queuedRun) int { return cmp.Compare(a.id, b.id) }

func byDeadline(a, b queuedRun) int { return cmp.Or(a.until.Compare(b.until), byID(a, b)) }

// Late is a run that has waited longer than its job's start_deadline.
type Late struct {
	Run    int64
	Waited time.Duration
}

// NewFairQueue returns a queue with the given number of lanes, in total and per agent. Zero means 4
// and 1.
func NewFairQueue(runs, perAgent int, policy func(job string) Policy) *FairQueue {
	f := &FairQueue{policy: policy, queues: map[jobKey]*jobQueue{}, waiting: map[string][]*jobQueue{}, running: map[int64]jobKey{}, agents: map[string]int{}, jobs: map[string]int{}}
	f.SetLanes(runs, perAgent)
	return f
}

// SetLanes sets the number of lanes. Running runs keep their lanes.
func (f *FairQueue) SetLanes(runs, perAgent int) {
	f.runs, f.perAgent = defaultRuns, defaultPerAgent
	if runs > 0 {
		f.runs = runs
	}
	if perAgent > 0 {
		f.perAgent = perAgent
	}
}

// SetNodes replaces the lanes of this process by those of the nodes. It also sets the runs that
// occupy them.
func (f *FairQueue) SetNodes(n *nodes, sent []node.SentRun) {
	f.nodes = n
	clear(f.running)
	clear(f.agents)
	clear(f.jobs)
	for _, s := range sent {
		f.take(s.Run, jobKey{agent: s.Agent, job: s.Job})
	}
}

// take reserves the lanes of a run.
func (f *FairQueue) take(id int64, key jobKey) {
	f.running[id] = key
	f.agents[key.agent]++
	f.jobs[key.job]++
}

// Free returns the number of free lanes.
func (f *FairQueue) Free() int {
	if f.nodes != nil {
		return f.nodes.free
	}
	return f.runs - len(f.running)
}

// Clear empties the queues. Running runs keep their lanes.
func (f *FairQueue) Clear() {
	clear(f.queues)
	clear(f.waiting)
	f.deadlines = nil
}

// Add queues a run, in front of younger ones that were added earlier. Its start_deadline is taken
// from the current policy of its job.
func (f *FairQueue) Add(r ledger.Run) {
	q := queuedRun{id: r.ID, attempt: r.Attempt, key: jobKey{r.Agent, r.Job, r.Trigger == domain.TriggerManual, r.Trigger == domain.TriggerBackfill}, since: r.QueuedAt}
	if r.NotBefore.After(q.since) {
		q.since = r.NotBefore
	}
	// Backfilled runs have no deadline, because hundreds of them may wait for their turn.
	if most := f.policy(r.Job).StartDeadline; most > 0 && r.State == domain.StateQueued && r.Attempt == 0 && !r.Yields() {
		q.until = q.since.Add(most)
		f.deadlines = inserted(f.deadlines, q, byDeadline)
	}
	f.change(q.key, func(runs []queuedRun) []queuedRun { return inserted(runs, q, byID) })
}

// change replaces the runs of a job queue and moves the queue to its new turn.
func (f *FairQueue) change(key jobKey, change func([]queuedRun) []queuedRun) {
	q, waits := f.queues[key]
	if waits {
		f.waiting[key.agent] = removed(f.waiting[key.agent], q, byTurn)
	} else {
		q = &jobQueue{jobKey: key}
	}

	if q.runs = change(q.runs); len(q.runs) > 0 {
		f.queues[key] = q
		f.waiting[key.agent] = inserted(f.waiting[key.agent], q, byTurn)
		return
	}
	delete(f.queues, key)
	if len(f.waiting[key.agent]) == 0 {
		delete(f.waiting, key.agent)
	}
}

// remove removes a run from its queue.
func (f *FairQueue) remove(r queuedRun) {
	if !r.until.IsZero() {
		f.deadlines = removed(f.deadlines, r, byDeadline)
	}
	f.change(r.key, func(runs []queuedRun) []queuedRun { return removed(runs, r, byID) })
}

func inserted[T any](sorted []T, v T, order func(a, b T) int) []T {
	i, _ := slices.BinarySearchFunc(sorted, v, order)
	return slices.Insert(sorted, i, v)
}

func removed[T any](sorted []T, v T, order func(a, b T) int) []T {
	i, _ := slices.BinarySearchFunc(sorted, v, order)
	if i == 0 {
		return sorted[1:]
	}
	return slices.Delete(sorted, i, i+1)
}

// Dequeue removes and returns the runs that get a lane now. Those runs have waited longest, are not
// paused, and find free lanes of their agent and job. Dequeue also removes the runs that have
// waited longer than their job's start_deadline, and returns them in late.
func (f *FairQueue) Dequeue(now time.Time, pauses []pause.Pause) (starting []node.RunFor, late []Late) {
	// Late runs come first, so that a run does not start after its deadline because a lane is free.
	for len(f.deadlines) > 0 && now.After(f.deadlines[0].until) {
		r := f.deadlines[0]
		f.remove(r)
		late = append(late, Late{r.id, now.Sub(r.since)})
	}
	slices.SortFunc(late, func(a, b Late) int { return cmp.Compare(a.Run, b.Run) })

	for f.Free() > 0 {
		r, nodeName, ok := f.next(now, pauses)
		if !ok {
			break
		}

		f.remove(r)
		if _, on := f.running[r.id]; on {
			continue // the ledger was read before its start, or before its end was recorded
		}
		f.take(r.id, r.key)
		if f.nodes != nil {
			f.nodes.take(nodeName)
			f.nodes.send(r)
		}
		starting = append(starting, node.RunFor{Run: r.id, Job: r.key.job, Agent: r.key.agent, Node: nodeName})
	}
	return starting, late
}

// next returns the run that has waited longest of those that can start, and its node. It skips
// agents without a free lane.
func (f *FairQueue) next(now time.Time, pauses []pause.Pause) (run queuedRun, node string, ok bool) {
	var first *jobQueue
	for agent, queues := range f.waiting {
		if f.agents[agent] >= f.perAgent {
			continue
		}
		at := ""
		i := slices.IndexFunc(queues, func(q *jobQueue) bool {
			if _, paused := pause.Paused(pauses, q.job, q.agent, now); paused && !q.manual || f.full(q.job) {
				return false
			}
			there := f.nodes == nil
			if !there {
				at, there = f.nodes.place(q.runs[0], f.agents[agent] > 0)
			}
			return there
		})
		if i >= 0 && (first == nil || byTurn(queues[i], first) < 0) {
			first, node = queues[i], at
		}
	}
	if first == nil {
		return queuedRun{}, "", false
	}
	return first.runs[0], node, true
}

// full reports whether all lanes of a job are taken, on this node and on others.
func (f *FairQueue) full(job string) bool {
	most := jobLanes(f.policy(job))
	return job != "" && most > 0 && f.jobs[job] >= most
}

// jobLanes returns how many runs of a job may run at once. Zero means no limit.
func jobLanes(p Policy) int {
	if p.Concurrency < 0 {
		return 0
	}
	return max(p.Concurrency, 1)
}

// NextLate returns the time at which the next waiting run exceeds its start_deadline, or the zero
// time.
func (f *FairQueue) NextLate() time.Time {
	if len(f.deadlines) == 0 {
		return time.Time{}
	}
	return f.deadlines[0].until.Add(time.Millisecond)
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

// decrement decrements a counter and drops it at zero. Otherwise the map would grow with every
// agent and job the daemon has ever seen.
func decrement(count map[string]int, name string) {
	if count[name]--; count[name] == 0 {
		delete(count, name)
	}
}
