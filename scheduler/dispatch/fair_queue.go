package dispatch

import (
	"container/heap"
	"slices"
	"time"

	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// FairQueue gives lanes to waiting runs. It has no clock and no database: the Dispatcher and a
// simulation hand it the time, and start what it chooses.
//
// Runs stand in lines, in the order of their acceptance, and the lines of an agent are its
// crew. A heap of crews, each with a heap of its lines, has the run that waits longest at
// its head. What finds its agent's or its job's lanes full is taken out and comes back when
// one of them gets free, so that a lane finds its next run without a look at all those that
// wait for other lanes.
type FairQueue struct {
	runs, perAgent int
	policy         func(job string) Policy
	jobQueues          map[jobKey]*jobQueue
	agentQueues          map[string]*agentQueue
	heads          agentHeap // crews whose agent may have a free lane
	withDeadline          map[jobKey]*jobQueue
	waitingForJob           map[string][]*jobQueue // by job: lines that wait for its lanes
	paused           []*jobQueue            // lines that are paused
	pausedBy         []ledger.Pause      // the pauses that they were held by

	running map[int64]jobKey
	agents  map[string]int // how many of their runs are on
	jobs    map[string]int
}

// jobKey is one queue in front of the same lanes: those of an agent and of a job. What a
// person asks for stands in a line of its own, because it does not wait for a pause to end.
type jobKey struct {
	agent, job string
	manual     bool
}

// jobQueue is a line with those who stand in it.
type jobQueue struct {
	jobKey
	runs  []queuedRun
	index int // in its crew's heap; below 0: taken out
}

// queuedRun is a claimable run that has not found its lanes yet.
type queuedRun struct {
	id    int64
	since time.Time // when its start_deadline began to run; zero when it has begun before
}

// agentQueue are the lines of one agent.
type agentQueue struct {
	agent string
	jobs jobHeap
	index int // in the heap of crews; below 0: its lanes are full, or nobody waits
}

// Late is a run that has waited longer than its job's start_deadline.
type Late struct {
	Run    int64
	Waited time.Duration
}

// NewFairQueue has so many lanes, and of them so many for one agent; 0 means 4 and 1.
func NewFairQueue(runs, perAgent int, policy func(job string) Policy) *FairQueue {
	k := &FairQueue{policy: policy, running: map[int64]jobKey{}, agents: map[string]int{}, jobs: map[string]int{}}
	k.Clear()
	k.SetLanes(runs, perAgent)
	return k
}

// SetLanes changes how many lanes there are; what runs keeps its own.
func (k *FairQueue) SetLanes(runs, perAgent int) {
	if runs <= 0 {
		runs = defaultRuns
	}

	if perAgent <= 0 {
		perAgent = defaultPerAgent
	}

	k.runs, k.perAgent = runs, perAgent
	for _, c := range k.agentQueues {
		k.reorder(c)
	}
}

// Free is how many lanes are left.
func (k *FairQueue) Free() int { return k.runs - len(k.running) }

// Clear empties the lines; what runs keeps its lanes.
func (k *FairQueue) Clear() {
	k.jobQueues, k.agentQueues, k.withDeadline, k.waitingForJob = map[jobKey]*jobQueue{}, map[string]*agentQueue{}, map[jobKey]*jobQueue{}, map[string][]*jobQueue{}
	k.heads, k.paused = nil, nil
}

// Add lets a run wait in its line, in front of younger ones that were added before it.
func (k *FairQueue) Add(r ledger.Run) {
	w := queuedRun{id: r.ID}
	if r.State == domain.StateQueued && r.Attempt == 0 {
		w.since = latest(r.QueuedAt, r.NotBefore)
	}

	l := jobKeyOf(r)
	if q := k.jobQueues[l]; q != nil {
		place := len(q.runs)
		for place > 0 && q.runs[place-1].id > w.id {
			place--
		}

		if q.runs = slices.Insert(q.runs, place, w); place == 0 {
			k.headChanged(q)
		}
		return
	}

	q := &jobQueue{jobKey: l, runs: []queuedRun{w}, index: -1}
	k.jobQueues[l] = q
	if k.policy(l.job).StartDeadline > 0 {
		k.withDeadline[l] = q
	}

	k.insert(q)
}

func jobKeyOf(r ledger.Run) jobKey { return jobKey{r.Agent, r.Job, r.Trigger == domain.TriggerManual} }

// Dequeue takes the runs out of their lines that have waited longest, are not paused, and
// find their lanes free, with their lanes; and those that have waited longer than they may.
func (k *FairQueue) Dequeue(now time.Time, pauses []ledger.Pause) (starting []int64, late []Late) {
	late = k.dequeueLate(now)
	k.requeuePaused(now, pauses)

	for k.Free() > 0 && len(k.heads) > 0 {
		c := k.heads[0]
		if k.agents[c.agent] >= k.perAgent {
			heap.Pop(&k.heads) // until one of them leaves
			continue
		}

		q := c.jobs[0]
		switch _, paused := ledger.Paused(pauses, q.job, q.agent, now); {
		case paused && !q.manual:
			k.remove(q)
			k.paused = append(k.paused, q)
		case k.jobFull(q.job):
			k.remove(q)
			k.waitingForJob[q.job] = append(k.waitingForJob[q.job], q)
		default:
			id := q.runs[0].id
			k.removeHead(q)
			if _, on := k.running[id]; on {
				continue // it was read again before its end was
			}

			k.running[id] = q.jobKey
			k.agents[q.agent]++
			k.jobs[q.job]++
			starting = append(starting, id)
		}
	}

	return starting, late
}

func (k *FairQueue) jobFull(job string) bool {
	p := k.policy(job)
	return job != "" && p.Concurrency >= 0 && k.jobs[job] >= max(p.Concurrency, 1)
}

// dequeueLate takes out who has waited too long.
func (k *FairQueue) dequeueLate(now time.Time) (late []Late) {
	for l, q := range k.withDeadline {
		most := k.policy(l.job).StartDeadline
		for len(q.runs) > 0 && most > 0 {
			w := q.runs[0]
			if w.since.IsZero() || now.Sub(w.since) <= most {
				break
			}
			late = append(late, Late{w.id, now.Sub(w.since)})
			k.removeHead(q)
		}
	}

	slices.SortFunc(late, func(a, b Late) int { return int(a.Run - b.Run) })
	return late
}

// requeuePaused brings the held lines back when other pauses are on than those that held them.
func (k *FairQueue) requeuePaused(now time.Time, pauses []ledger.Pause) {
	over := func(p ledger.Pause) bool { return p.Over(now) }
	if len(k.paused) == 0 || (slices.Equal(k.pausedBy, pauses) && !slices.ContainsFunc(pauses, over)) {
		k.pausedBy = pauses
		return
	}

	held := k.paused
	k.paused, k.pausedBy = nil, pauses
	for _, q := range held {
		k.insert(q)
	}
}

// NextLate is when the next waiting run will have waited too long; zero: never.
func (k *FairQueue) NextLate() time.Time {
	var first time.Time
	for l, q := range k.withDeadline {
		if most := k.policy(l.job).StartDeadline; most > 0 && !q.runs[0].since.IsZero() {
			first = earlier(first, q.runs[0].since.Add(most+time.Millisecond))
		}
	}
	return first
}

// Release gives the lanes of runs back.
func (k *FairQueue) Release(ids ...int64) {
	for _, id := range ids {
		l, ok := k.running[id]
		if !ok {
			continue
		}

		delete(k.running, id)
		decrement(k.agents, l.agent)
		decrement(k.jobs, l.job)
		waited := k.waitingForJob[l.job]
		delete(k.waitingForJob, l.job)
		for _, q := range waited {
			k.insert(q)
		}

		if c := k.agentQueues[l.agent]; c != nil {
			k.reorder(c)
		}
	}
}

// decrement counts down; names that nobody uses are not kept.
func decrement(count map[string]int, name string) {
	if count[name]--; count[name] == 0 {
		delete(count, name)
	}
}

// insert puts a line among those of its agent.
func (k *FairQueue) insert(q *jobQueue) {
	if len(q.runs) == 0 || q.index >= 0 || k.jobQueues[q.jobKey] != q {
		return
	}

	c := k.agentQueues[q.agent]
	if c == nil {
		c = &agentQueue{agent: q.agent, index: -1}
		k.agentQueues[q.agent] = c
	}

	heap.Push(&c.jobs, q)
	k.reorder(c)
}

// remove leaves a line out until something changes for it.
func (k *FairQueue) remove(q *jobQueue) {
	if q.index < 0 {
		return
	}
	c := k.agentQueues[q.agent]
	heap.Remove(&c.jobs, q.index)
	k.reorder(c)
}

// removeHead takes the first run out of a line.
func (k *FairQueue) removeHead(q *jobQueue) {
	if q.runs = q.runs[1:]; len(q.runs) == 0 {
		k.remove(q)
		delete(k.jobQueues, q.jobKey)
		delete(k.withDeadline, q.jobKey)
		return
	}
	k.headChanged(q)
}

// headChanged puts a line where it belongs after its head has changed.
func (k *FairQueue) headChanged(q *jobQueue) {
	if q.index >= 0 {
		c := k.agentQueues[q.agent]
		heap.Fix(&c.jobs, q.index)
		k.reorder(c)
	}
}

// reorder puts a crew where it belongs among the others after its head has changed.
func (k *FairQueue) reorder(c *agentQueue) {
	switch {
	case len(c.jobs) == 0:
		if c.index >= 0 {
			heap.Remove(&k.heads, c.index)
		}
		delete(k.agentQueues, c.agent)
	case c.index >= 0:
		heap.Fix(&k.heads, c.index)
	case k.agents[c.agent] < k.perAgent:
		heap.Push(&k.heads, c)
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// jobHeap is a heap of an agent's lines by the run that waits longest.
type jobHeap []*jobQueue

func (h jobHeap) Len() int           { return len(h) }
func (h jobHeap) Less(i, j int) bool { return h[i].runs[0].id < h[j].runs[0].id }
func (h jobHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *jobHeap) Push(x any) {
	q := x.(*jobQueue)
	q.index = len(*h)
	*h = append(*h, q)
}

// Pop implements heap.Interface.
func (h *jobHeap) Pop() any {
	old := *h
	q := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	q.index = -1
	return q
}

// agentHeap is a heap of crews by the run that waits longest.
type agentHeap []*agentQueue

func (h agentHeap) Len() int           { return len(h) }
func (h agentHeap) Less(i, j int) bool { return h[i].jobs[0].runs[0].id < h[j].jobs[0].runs[0].id }
func (h agentHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *agentHeap) Push(x any) {
	c := x.(*agentQueue)
	c.index = len(*h)
	*h = append(*h, c)
}

// Pop implements heap.Interface.
func (h *agentHeap) Pop() any {
	old := *h
	c := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	c.index = -1
	return c
}
