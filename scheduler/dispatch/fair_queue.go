package dispatch

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// FairQueue gives lanes to waiting runs. It has no clock and no database: the Dispatcher and a
// simulation hand it the time, and start what it chooses.
//
// Runs wait in job queues, in the order of their acceptance, and the job queues of an agent
// make up its agent queue. A heap of agent queues, each with a heap of its job queues, has the
// run that waits longest at its head. A queue that finds its agent's or its job's lanes full is
// removed from its heap and inserted again when one of them gets free, so that a lane finds its
// next run without a scan of all those that wait for other lanes.
type FairQueue struct {
	runs, perAgent int
	policy         func(job string) Policy
	jobQueues      map[jobKey]*jobQueue
	agentQueues    map[string]*agentQueue
	heads          queueHeap[*agentQueue] // agents that may have a free lane
	withDeadline   map[jobKey]*jobQueue
	waitingForJob  map[string][]*jobQueue // by job: queues that wait for its lanes
	paused         []*jobQueue            // queues of paused jobs and agents
	pausedBy       []ledger.Pause         // the pauses that stopped them

	running   map[int64]jobKey
	agents    map[string]int // how many of their runs are on
	jobs      map[string]int
	elsewhere ledger.Lanes // those that other nodes have taken
}

// jobKey names the queue for the lanes of one agent and one job. Manual runs have a queue of
// their own, because they do not wait for a pause to end, and so have those of a backfill, which
// yield to all others.
type jobKey struct {
	agent, job       string
	manual, backfill bool
}

// jobQueue holds the queued runs of one key, oldest first.
type jobQueue struct {
	jobKey
	runs  []queuedRun
	index int // in the heap of its agent queue; below 0: not in it
	// waiting are the runs whose start_deadline is going on, the one that has waited longest first; of a
	// job without one there are none. Those that have left the queue stay until they come up.
	waiting waitHeap
}

// longest is the run of the queue that has waited longest for its start; false when none has a deadline.
func (q *jobQueue) longest() (queuedRun, bool) {
	for len(q.waiting) > 0 {
		w := q.waiting[0]
		if i, found := slices.BinarySearchFunc(q.runs, w.id, func(r queuedRun, id int64) int { return cmp.Compare(r.id, id) }); found && q.runs[i] == w {
			return w, true
		}
		heap.Pop(&q.waiting)
	}
	return queuedRun{}, false
}

// queuedRun is a claimable run that has no lanes yet.
type queuedRun struct {
	id    int64
	since time.Time // when its start_deadline began to run; zero when it has begun before
}

// agentQueue holds the job queues of one agent.
type agentQueue struct {
	agent string
	jobs  queueHeap[*jobQueue]
	index int // in the heap of agent queues; below 0: its lanes are full, or nothing is queued
}

// Late is a run that has waited longer than its job's start_deadline.
type Late struct {
	Run    int64
	Waited time.Duration
}

// NewFairQueue has so many lanes, and of them so many for one agent; 0 means 4 and 1.
func NewFairQueue(runs, perAgent int, policy func(job string) Policy) *FairQueue {
	f := &FairQueue{policy: policy, running: map[int64]jobKey{}, agents: map[string]int{}, jobs: map[string]int{}}
	f.Clear()
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
	for _, c := range f.agentQueues {
		f.reorder(c)
	}
}

// SetElsewhere says which lanes of agents and jobs other nodes have taken. What waits for one has to be added again after
// Clear when there are fewer than before.
func (f *FairQueue) SetElsewhere(lanes ledger.Lanes) { f.elsewhere = lanes }

// agentFull reports whether all lanes of an agent are taken, here and elsewhere.
func (f *FairQueue) agentFull(agent string) bool {
	return f.agents[agent]+f.elsewhere.Agents[agent] >= f.perAgent
}

// Free is how many lanes are left.
func (f *FairQueue) Free() int { return f.runs - len(f.running) }

// Clear empties the queues; what runs keeps its lanes.
func (f *FairQueue) Clear() {
	f.jobQueues, f.agentQueues, f.withDeadline, f.waitingForJob = map[jobKey]*jobQueue{}, map[string]*agentQueue{}, map[jobKey]*jobQueue{}, map[string][]*jobQueue{}
	f.heads, f.paused = nil, nil
}

// Add queues a run, in front of younger ones that were added before it.
func (f *FairQueue) Add(r ledger.Run) {
	w := queuedRun{id: r.ID}
	// Hundreds of backfilled runs wait for as long as it takes.
	if r.State == domain.StateQueued && r.Attempt == 0 && !r.Yields() {
		w.since = r.QueuedAt
		if r.NotBefore.After(w.since) {
			w.since = r.NotBefore
		}
	}

	l := jobKeyOf(r)
	if q := f.jobQueues[l]; q != nil {
		place := len(q.runs)
		for place > 0 && q.runs[place-1].id > w.id {
			place--
		}

		if q.runs = slices.Insert(q.runs, place, w); place == 0 {
			f.headChanged(q)
		}
		f.watchDeadline(q, w)
		return
	}

	q := &jobQueue{jobKey: l, runs: []queuedRun{w}, index: -1}
	f.jobQueues[l] = q
	if f.policy(l.job).StartDeadline > 0 {
		f.withDeadline[l] = q
		f.watchDeadline(q, w)
	}

	f.insert(q)
}

// watchDeadline notes when the deadline of a run began to run.
func (f *FairQueue) watchDeadline(q *jobQueue, w queuedRun) {
	if f.withDeadline[q.jobKey] == q && !w.since.IsZero() {
		heap.Push(&q.waiting, w)
	}
}

func jobKeyOf(r ledger.Run) jobKey {
	return jobKey{r.Agent, r.Job, r.Trigger == domain.TriggerManual, r.Trigger == domain.TriggerBackfill}
}

// Dequeue removes and returns the runs that get a lane now: those that have waited longest, are
// not paused, and whose agent and job have lanes free. It also removes those that have waited
// longer than their job's start_deadline, for which late accounts.
func (f *FairQueue) Dequeue(now time.Time, pauses []ledger.Pause) (starting []int64, late []Late) {
	// First, so that a run past its deadline does not start because a lane happens to be free.
	late = f.dequeueLate(now)
	f.requeuePaused(now, pauses)

	for f.Free() > 0 && len(f.heads) > 0 {
		c := f.heads[0]
		if f.agentFull(c.agent) {
			heap.Pop(&f.heads) // until one of its runs ends
			continue
		}

		q := c.jobs[0]
		switch _, paused := ledger.Paused(pauses, q.job, q.agent, now); {
		case paused && !q.manual:
			f.remove(q)
			f.paused = append(f.paused, q)
		case f.jobFull(q.job):
			f.remove(q)
			f.waitingForJob[q.job] = append(f.waitingForJob[q.job], q)
		default:
			id := q.runs[0].id
			f.removeHead(q)
			if _, on := f.running[id]; on {
				continue // the ledger was read before its start, or before its end was written
			}

			f.take(id, q.jobKey)
			starting = append(starting, id)
		}
	}

	return starting, late
}

// take gives a run its lanes.
func (f *FairQueue) take(id int64, key jobKey) {
	f.running[id] = key
	f.agents[key.agent]++
	f.jobs[key.job]++
}

func (f *FairQueue) jobFull(job string) bool {
	most := jobLanes(f.policy(job))
	return job != "" && most > 0 && f.jobs[job]+f.elsewhere.Jobs[job] >= most
}

// jobLanes is how many runs of a job may be on at once; 0: any number.
func jobLanes(p Policy) int {
	if p.Concurrency < 0 {
		return 0
	}
	return max(p.Concurrency, 1)
}

// dequeueLate removes the runs that have waited too long, wherever in their queues they are: in front of
// them there may be runs that are tried again, or that came into the queue later.
func (f *FairQueue) dequeueLate(now time.Time) (late []Late) {
	for l, q := range f.withDeadline {
		most := f.policy(l.job).StartDeadline
		if most <= 0 {
			continue
		}

		gone := map[int64]bool{}
		for w, ok := q.longest(); ok && now.Sub(w.since) > most; w, ok = q.longest() {
			heap.Pop(&q.waiting)
			gone[w.id] = true
			late = append(late, Late{w.id, now.Sub(w.since)})
		}
		if len(gone) > 0 {
			f.setRuns(q, slices.DeleteFunc(q.runs, func(r queuedRun) bool { return gone[r.id] }))
		}
	}

	slices.SortFunc(late, func(a, b Late) int { return cmp.Compare(a.Run, b.Run) })
	return late
}

// requeuePaused brings paused queues back when the pauses are no longer those that stopped them.
func (f *FairQueue) requeuePaused(now time.Time, pauses []ledger.Pause) {
	over := func(p ledger.Pause) bool { return p.Over(now) }
	if len(f.paused) == 0 || (slices.Equal(f.pausedBy, pauses) && !slices.ContainsFunc(pauses, over)) {
		f.pausedBy = pauses
		return
	}

	held := f.paused
	f.paused, f.pausedBy = nil, pauses
	for _, q := range held {
		f.insert(q)
	}
}

// NextLate is when the next waiting run will have waited too long; zero: never.
func (f *FairQueue) NextLate() time.Time {
	var first time.Time
	for l, q := range f.withDeadline {
		most := f.policy(l.job).StartDeadline
		if w, ok := q.longest(); ok && most > 0 {
			first = domain.Earlier(first, w.since.Add(most+time.Millisecond))
		}
	}
	return first
}

// Release frees the lanes of runs.
func (f *FairQueue) Release(ids ...int64) {
	for _, id := range ids {
		l, ok := f.running[id]
		if !ok {
			continue
		}

		delete(f.running, id)
		decrement(f.agents, l.agent)
		decrement(f.jobs, l.job)
		// All of the job's queues come back, though one lane is free: which of them has the
		// oldest run only the heap knows, and the others are removed again at no great cost.
		waited := f.waitingForJob[l.job]
		delete(f.waitingForJob, l.job)
		for _, q := range waited {
			f.insert(q)
		}

		if c := f.agentQueues[l.agent]; c != nil {
			f.reorder(c)
		}
	}
}

// decrement counts down, and drops names at zero: agents and jobs come and go for as long as the daemon lives.
func decrement(count map[string]int, name string) {
	if count[name]--; count[name] == 0 {
		delete(count, name)
	}
}

// insert puts a job queue into its agent's heap, unless it is empty, in it, or was replaced by Clear.
func (f *FairQueue) insert(q *jobQueue) {
	if len(q.runs) == 0 || q.index >= 0 || f.jobQueues[q.jobKey] != q {
		return
	}

	c := f.agentQueues[q.agent]
	if c == nil {
		c = &agentQueue{agent: q.agent, index: -1}
		f.agentQueues[q.agent] = c
	}

	heap.Push(&c.jobs, q)
	f.reorder(c)
}

// remove takes a job queue out of its agent's heap until something changes for it.
func (f *FairQueue) remove(q *jobQueue) {
	if q.index < 0 {
		return
	}
	c := f.agentQueues[q.agent]
	heap.Remove(&c.jobs, q.index)
	f.reorder(c)
}

// removeHead drops the first run of a job queue.
func (f *FairQueue) removeHead(q *jobQueue) { f.setRuns(q, q.runs[1:]) }

// setRuns replaces the runs of a job queue, which goes when none is left.
func (f *FairQueue) setRuns(q *jobQueue, runs []queuedRun) {
	if q.runs = runs; len(q.runs) == 0 {
		f.remove(q)
		delete(f.jobQueues, q.jobKey)
		delete(f.withDeadline, q.jobKey)
		return
	}
	f.headChanged(q)
}

// headChanged restores the heaps after the first run of a job queue has changed.
func (f *FairQueue) headChanged(q *jobQueue) {
	if q.index >= 0 {
		c := f.agentQueues[q.agent]
		heap.Fix(&c.jobs, q.index)
		f.reorder(c)
	}
}

// reorder restores the heap of agents after an agent's first run, or its free lanes, have changed.
func (f *FairQueue) reorder(c *agentQueue) {
	switch {
	case len(c.jobs) == 0:
		if c.index >= 0 {
			heap.Remove(&f.heads, c.index)
		}
		delete(f.agentQueues, c.agent)
	case c.index >= 0:
		heap.Fix(&f.heads, c.index)
	case !f.agentFull(c.agent):
		heap.Push(&f.heads, c)
	}
}

// waitHeap is a heap of runs by when their deadlines began to run.
type waitHeap []queuedRun

func (h waitHeap) Len() int           { return len(h) }
func (h waitHeap) Less(i, j int) bool { return h[i].since.Before(h[j].since) }
func (h waitHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *waitHeap) Push(x any) { *h = append(*h, x.(queuedRun)) }

// Pop implements heap.Interface.
func (h *waitHeap) Pop() any {
	old := *h
	w := old[len(old)-1]
	*h = old[:len(old)-1]
	return w
}

// behindAll is added to the numbers of backfilled runs where queues are compared: no run has such a number.
const behindAll = 1 << 62

// oldest is the number of the run that is next, which is the one that waits longest; indexed notes the
// place in the heap, -1 for none.
func (q *jobQueue) oldest() int64 {
	if q.backfill {
		return behindAll + q.runs[0].id
	}
	return q.runs[0].id
}
func (q *jobQueue) indexed(at int) { q.index = at }

func (c *agentQueue) oldest() int64  { return c.jobs[0].oldest() }
func (c *agentQueue) indexed(at int) { c.index = at }

// queueHeap is a heap of queues by the run that waits longest. Each queue knows its place in it, so that
// it can be moved when its first run changes.
type queueHeap[Q interface {
	oldest() int64
	indexed(at int)
}] []Q

func (h queueHeap[Q]) Len() int           { return len(h) }
func (h queueHeap[Q]) Less(i, j int) bool { return h[i].oldest() < h[j].oldest() }
func (h queueHeap[Q]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].indexed(i)
	h[j].indexed(j)
}

// Push implements heap.Interface.
func (h *queueHeap[Q]) Push(x any) {
	q := x.(Q)
	q.indexed(len(*h))
	*h = append(*h, q)
}

// Pop implements heap.Interface.
func (h *queueHeap[Q]) Pop() any {
	old := *h
	q := old[len(old)-1]
	clear(old[len(old)-1:]) // so that the queue can be collected
	*h = old[:len(old)-1]
	q.indexed(-1)
	return q
}
