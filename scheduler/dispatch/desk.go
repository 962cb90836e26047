package dispatch

import (
	"container/heap"
	"slices"
	"time"

	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// Desk gives lanes to waiting runs. It has no clock and no database: the Dispatcher and a
// simulation hand it the time, and start what it chooses.
//
// Runs stand in lines, in the order of their acceptance, and the lines of an agent are its
// crew. A heap of crews, each with a heap of its lines, has the run that waits longest at
// its head. What finds its agent's or its job's lanes full is taken out and comes back when
// one of them gets free, so that a lane finds its next run without a look at all those that
// wait for other lanes.
type Desk struct {
	runs, perAgent int
	policy         func(job string) Policy
	lines          map[line]*queue
	crews          map[string]*crew
	heads          crewHeap // crews whose agent may have a free lane
	timed          map[line]*queue
	full           map[string][]*queue // by job: lines that wait for its lanes
	held           []*queue            // lines that are paused
	heldBy         []ledger.Pause      // the pauses that they were held by

	running map[int64]line
	agents  map[string]int // how many of their runs are on
	jobs    map[string]int
}

// line is one queue in front of the same lanes: those of an agent and of a job. What a
// person asks for stands in a line of its own, because it does not wait for a pause to end.
type line struct {
	agent, job string
	byHand     bool
}

// queue is a line with those who stand in it.
type queue struct {
	line
	runs  []waiting
	index int // in its crew's heap; below 0: taken out
}

// waiting is a claimable run that has not found its lanes yet.
type waiting struct {
	id    int64
	since time.Time // when its start_deadline began to run; zero when it has begun before
}

// crew are the lines of one agent.
type crew struct {
	agent string
	lines lineHeap
	index int // in the heap of crews; below 0: its lanes are full, or nobody waits
}

// Late is a run that has waited longer than its job's start_deadline.
type Late struct {
	Run    int64
	Waited time.Duration
}

// NewDesk has so many lanes, and of them so many for one agent; 0 means 4 and 1.
func NewDesk(runs, perAgent int, policy func(job string) Policy) *Desk {
	k := &Desk{policy: policy, running: map[int64]line{}, agents: map[string]int{}, jobs: map[string]int{}}
	k.Forget()
	k.SetLanes(runs, perAgent)
	return k
}

// SetLanes changes how many lanes there are; what runs keeps its own.
func (k *Desk) SetLanes(runs, perAgent int) {
	if runs <= 0 {
		runs = defaultRuns
	}

	if perAgent <= 0 {
		perAgent = defaultPerAgent
	}

	k.runs, k.perAgent = runs, perAgent
	for _, c := range k.crews {
		k.settle(c)
	}
}

// Free is how many lanes are left.
func (k *Desk) Free() int { return k.runs - len(k.running) }

// Forget empties the lines; what runs keeps its lanes.
func (k *Desk) Forget() {
	k.lines, k.crews, k.timed, k.full = map[line]*queue{}, map[string]*crew{}, map[line]*queue{}, map[string][]*queue{}
	k.heads, k.held = nil, nil
}

// Add lets a run wait in its line, in front of younger ones that were added before it.
func (k *Desk) Add(r ledger.Run) {
	w := waiting{id: r.ID}
	if r.State == domain.StateQueued && r.Attempt == 0 {
		w.since = latest(r.QueuedAt, r.NotBefore)
	}

	l := lineOf(r)
	if q := k.lines[l]; q != nil {
		place := len(q.runs)
		for place > 0 && q.runs[place-1].id > w.id {
			place--
		}

		if q.runs = slices.Insert(q.runs, place, w); place == 0 {
			k.moved(q)
		}
		return
	}

	q := &queue{line: l, runs: []waiting{w}, index: -1}
	k.lines[l] = q
	if k.policy(l.job).StartDeadline > 0 {
		k.timed[l] = q
	}

	k.enter(q)
}

func lineOf(r ledger.Run) line { return line{r.Agent, r.Job, r.Trigger == domain.TriggerManual} }

// Choose takes the runs out of their lines that have waited longest, are not paused, and
// find their lanes free, with their lanes; and those that have waited longer than they may.
func (k *Desk) Choose(now time.Time, pauses []ledger.Pause) (starting []int64, late []Late) {
	late = k.takeLate(now)
	k.resume(now, pauses)

	for k.Free() > 0 && len(k.heads) > 0 {
		c := k.heads[0]
		if k.agents[c.agent] >= k.perAgent {
			heap.Pop(&k.heads) // until one of them leaves
			continue
		}

		q := c.lines[0]
		switch _, paused := ledger.Paused(pauses, q.job, q.agent, now); {
		case paused && !q.byHand:
			k.takeOut(q)
			k.held = append(k.held, q)
		case k.jobFull(q.job):
			k.takeOut(q)
			k.full[q.job] = append(k.full[q.job], q)
		default:
			id := q.runs[0].id
			k.pop(q)
			if _, on := k.running[id]; on {
				continue // it was read again before its end was
			}

			k.running[id] = q.line
			k.agents[q.agent]++
			k.jobs[q.job]++
			starting = append(starting, id)
		}
	}

	return starting, late
}

func (k *Desk) jobFull(job string) bool {
	p := k.policy(job)
	return job != "" && p.Concurrency >= 0 && k.jobs[job] >= max(p.Concurrency, 1)
}

// takeLate takes out who has waited too long.
func (k *Desk) takeLate(now time.Time) (late []Late) {
	for l, q := range k.timed {
		most := k.policy(l.job).StartDeadline
		for len(q.runs) > 0 && most > 0 {
			w := q.runs[0]
			if w.since.IsZero() || now.Sub(w.since) <= most {
				break
			}
			late = append(late, Late{w.id, now.Sub(w.since)})
			k.pop(q)
		}
	}

	slices.SortFunc(late, func(a, b Late) int { return int(a.Run - b.Run) })
	return late
}

// resume brings the held lines back when other pauses are on than those that held them.
func (k *Desk) resume(now time.Time, pauses []ledger.Pause) {
	over := func(p ledger.Pause) bool { return p.Over(now) }
	if len(k.held) == 0 || (slices.Equal(k.heldBy, pauses) && !slices.ContainsFunc(pauses, over)) {
		k.heldBy = pauses
		return
	}

	held := k.held
	k.held, k.heldBy = nil, pauses
	for _, q := range held {
		k.enter(q)
	}
}

// NextLate is when the next waiting run will have waited too long; zero: never.
func (k *Desk) NextLate() time.Time {
	var first time.Time
	for l, q := range k.timed {
		if most := k.policy(l.job).StartDeadline; most > 0 && !q.runs[0].since.IsZero() {
			first = earlier(first, q.runs[0].since.Add(most+time.Millisecond))
		}
	}
	return first
}

// Leave gives the lanes of runs back.
func (k *Desk) Leave(ids ...int64) {
	for _, id := range ids {
		l, ok := k.running[id]
		if !ok {
			continue
		}

		delete(k.running, id)
		leave(k.agents, l.agent)
		leave(k.jobs, l.job)
		waited := k.full[l.job]
		delete(k.full, l.job)
		for _, q := range waited {
			k.enter(q)
		}

		if c := k.crews[l.agent]; c != nil {
			k.settle(c)
		}
	}
}

// leave counts down; names that nobody uses are not kept.
func leave(count map[string]int, name string) {
	if count[name]--; count[name] == 0 {
		delete(count, name)
	}
}

// enter puts a line among those of its agent.
func (k *Desk) enter(q *queue) {
	if len(q.runs) == 0 || q.index >= 0 || k.lines[q.line] != q {
		return
	}

	c := k.crews[q.agent]
	if c == nil {
		c = &crew{agent: q.agent, index: -1}
		k.crews[q.agent] = c
	}

	heap.Push(&c.lines, q)
	k.settle(c)
}

// takeOut leaves a line out until something changes for it.
func (k *Desk) takeOut(q *queue) {
	if q.index < 0 {
		return
	}
	c := k.crews[q.agent]
	heap.Remove(&c.lines, q.index)
	k.settle(c)
}

// pop takes the first run out of a line.
func (k *Desk) pop(q *queue) {
	if q.runs = q.runs[1:]; len(q.runs) == 0 {
		k.takeOut(q)
		delete(k.lines, q.line)
		delete(k.timed, q.line)
		return
	}
	k.moved(q)
}

// moved puts a line where it belongs after its head has changed.
func (k *Desk) moved(q *queue) {
	if q.index >= 0 {
		c := k.crews[q.agent]
		heap.Fix(&c.lines, q.index)
		k.settle(c)
	}
}

// settle puts a crew where it belongs among the others after its head has changed.
func (k *Desk) settle(c *crew) {
	switch {
	case len(c.lines) == 0:
		if c.index >= 0 {
			heap.Remove(&k.heads, c.index)
		}
		delete(k.crews, c.agent)
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

// lineHeap is a heap of an agent's lines by the run that waits longest.
type lineHeap []*queue

func (h lineHeap) Len() int           { return len(h) }
func (h lineHeap) Less(i, j int) bool { return h[i].runs[0].id < h[j].runs[0].id }
func (h lineHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *lineHeap) Push(x any) {
	q := x.(*queue)
	q.index = len(*h)
	*h = append(*h, q)
}

// Pop implements heap.Interface.
func (h *lineHeap) Pop() any {
	old := *h
	q := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	q.index = -1
	return q
}

// crewHeap is a heap of crews by the run that waits longest.
type crewHeap []*crew

func (h crewHeap) Len() int           { return len(h) }
func (h crewHeap) Less(i, j int) bool { return h[i].lines[0].runs[0].id < h[j].lines[0].runs[0].id }
func (h crewHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *crewHeap) Push(x any) {
	c := x.(*crew)
	c.index = len(*h)
	*h = append(*h, c)
}

// Pop implements heap.Interface.
func (h *crewHeap) Pop() any {
	old := *h
	c := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	c.index = -1
	return c
}
