package simulate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/wake"
	"rouse/scheduler"
	"rouse/scheduler/dispatch"
)

// checkEvery is the interval in which the daemon checks the clock if nothing is due.
const checkEvery = 30 * time.Second

// world is the state of a simulated home and its daemon.
type world struct {
	o     Options
	now   time.Time // wall clock
	up    bool      // the daemon is running
	clock clock

	table     *scheduler.Timetable
	lanes     *dispatch.FairQueue
	startedAt time.Time            // start of the daemon
	events    []Event              // future events
	hasSteps  bool                 // there are clock steps, so clock checks matter
	lastWake  map[string]time.Time // by agent

	last    int64 // number of the latest run
	running map[int64]*run
	ready   map[int64]*run // waiting for a lane
	// delayed runs wait for their start time, or for an answer until a deadline.
	delayed []*run
	// behind are queued runs that start after a run of their job that waits for a person.
	behind []*run
	asking []*run            // waiting for a person when the simulation begins
	stale  bool              // the fair queue differs from ready
	byJob  map[string][]*run // unfinished runs
	record record
}

// clock holds the state of the daemon's clock.
type clock struct {
	nextCheck time.Time     // time of the next check
	lastCheck time.Time     // time of the last check
	stepped   time.Duration // clock steps since the last check
}

// record collects the occurrences of a simulation.
type record struct {
	kept    []*Occurrence  // see keep
	decided int            // number of occurrences
	byJob   map[string]int // number of occurrences by job
}

// run is a simulated run.
type run struct {
	ledger.Run
	left time.Duration // remaining runtime
	ends time.Time     // end, while running
	occ  *Occurrence   // nil if the run existed before the simulation
}

func newWorld(o Options) *world {
	w := &world{o: o, now: o.From.UTC().Truncate(time.Millisecond), table: scheduler.NewTimetable(), lanes: dispatch.NewFairQueue(o.Runs, o.RunsPerAgent, o.Policy),
		events: o.Events, hasSteps: slices.ContainsFunc(o.Events, func(e Event) bool { return e.Kind == Step }), lastWake: map[string]time.Time{},
		record: record{byJob: map[string]int{}}, byJob: map[string][]*run{}, running: map[int64]*run{}, ready: map[int64]*run{}}
	for _, j := range o.Jobs {
		st, ok := o.States[j.Name]
		if !ok {
			st = ledger.JobState{Anchor: w.now, Watermark: w.now}
		}

		if st.Watermark.After(w.now) {
			st.Watermark = w.now
		}

		w.table.Put(j, st.Anchor, st.Watermark)
	}

	w.table.PutWakes(o.Wakes)
	for _, r := range o.Open {
		w.last = max(w.last, r.ID)
		w.add(&run{Run: r, left: o.Runtime(r.Job, r.Agent)})
	}

	return w
}

// add adds an unfinished run.
func (w *world) add(r *run) {
	w.byJob[r.Job] = append(w.byJob[r.Job], r)
	if r.WaitsForPerson() {
		w.asking = append(w.asking, r)
	}
	switch {
	case r.State == domain.StateRunning:
		w.running[r.ID] = r // until the next daemon start, which interrupts it
	case w.o.Blocked(r.Job, r.Agent) == "":
		w.queue(r)
	}
}

// queue makes a run wait for its start time or for a lane.
func (w *world) queue(r *run) {
	switch before := w.waiting(r); {
	case r.WaitsForPerson() && r.NotBefore.IsZero(): // the pause of its skill has no end
		return
	case r.NotBefore.After(w.now):
		w.delayed = append(w.delayed, r)
		return
	case r.WaitsForPerson(): // a simulation never answers
		w.finish(r, domain.OutcomeTimeout, "")
		return
	case before != nil:
		w.behind = append(w.behind, r)
		return
	}

	w.ready[r.ID] = r
	if !w.stale {
		w.lanes.Add(r.Run)
	}
}

// waiting returns the run that must end before a queued run of the same job starts. That run waits
// for a person. It returns nil if there is no such run.
func (w *world) waiting(r *run) *run {
	if !r.Behind() || w.o.Policy(r.Job).Concurrency < 0 {
		return nil
	}
	for _, other := range w.asking {
		if other.Job == r.Job && other.WaitsForPerson() {
			return other
		}
	}
	return nil
}

// next returns the time of the next change, or false if there is no further change.
func (w *world) next() (time.Time, bool) {
	var at time.Time
	if len(w.events) > 0 {
		at = w.events[0].At
	}

	if !w.up {
		return at, !at.IsZero()
	}

	at = domain.Earlier(at, w.clock.nextCheck)
	for _, r := range w.running {
		at = domain.Earlier(at, r.ends)
	}

	for _, r := range w.delayed {
		at = domain.Earlier(at, r.NotBefore)
	}

	if w.lanes.Free() > 0 {
		at = domain.Earlier(at, w.lanes.NextLate())
	}

	// The end of a pause can start queued runs. The timetable does not know pauses.
	for _, p := range w.o.Pauses {
		if len(w.ready) > 0 && p.Until.After(w.now) {
			at = domain.Earlier(at, p.Until)
		}
	}

	return at, !at.IsZero()
}

// advance moves the clock to a time and performs the due actions.
func (w *world) advance(at time.Time) {
	// A step forward may have skipped the time. Then the actions are late.
	if at.After(w.now) {
		w.now = at
	}

	if len(w.events) > 0 && !w.events[0].At.After(w.now) {
		e := w.events[0]
		w.events = w.events[1:]
		switch e.Kind {
		case Down:
			w.stopDaemon()
		case Up:
			w.startDaemon()
		default:
			w.step(e.By)
		}

		return
	}

	// End runs first, so that their lanes are free for others at the same instant.
	w.endRuns()
	if !w.clock.nextCheck.IsZero() && !w.clock.nextCheck.After(w.now) {
		w.schedule()
	}

	w.dispatch()
}

// step moves the wall clock. The ends of runs and the scheduler's timer move too.
func (w *world) step(by time.Duration) {
	w.now, w.clock.stepped = w.now.Add(by), w.clock.stepped+by
	if !w.clock.nextCheck.IsZero() {
		w.clock.nextCheck = w.clock.nextCheck.Add(by)
	}
	for _, r := range w.running {
		r.ends = r.ends.Add(by)
	}
}

// startDaemon interrupts runs of the previous daemon and checks the clock.
func (w *world) startDaemon() {
	w.up, w.startedAt, w.clock.lastCheck, w.clock.stepped = true, w.now, w.now, 0
	for _, r := range inOrder(w.running) {
		delete(w.running, r.ID)
		w.interrupt(r)
	}

	w.table.Start(w.now)
	w.schedule()
	w.dispatch()
}

func (w *world) stopDaemon() {
	w.up = false
	w.endRuns()
	for _, r := range w.running {
		r.left = r.ends.Sub(w.now)
		w.lanes.Release(r.ID)
	}
}

// inOrder returns runs in the order of acceptance.
func inOrder(runs map[int64]*run) []*run {
	return slices.SortedFunc(maps.Values(runs), func(a, b *run) int { return cmp.Compare(a.ID, b.ID) })
}

// interrupt queues an interrupted run for another attempt, or finishes it if its policy does not
// allow one.
func (w *world) interrupt(r *run) {
	if why := dispatch.GiveUp(w.o.Policy(r.Job), r.Interruptions); why != "" {
		w.finish(r, domain.OutcomeInterrupted, "")
		return
	}
	r.State, r.WaitingFor, r.Interruptions, r.NotBefore = domain.StateWaiting, domain.WaitResume, r.Interruptions+1, time.Time{}
	w.queue(r)
}

// endMissedHolds ends delayed runs whose start time passed during an outage or suspend, like the
// dispatcher.
func (w *world) endMissedHolds() {
	for _, r := range slices.Clone(w.delayed) {
		late := w.now.Sub(r.NotBefore)
		if r.Trigger != domain.TriggerSchedule || r.State != domain.StateQueued || late <= 0 {
			continue
		}
		cause := "the machine slept, or its clock was set forward"
		if r.NotBefore.Before(w.startedAt) {
			cause = "no daemon ran"
		}
		if why := dispatch.MissedHold(w.o.Policy(r.Job), late, cause); why != "" {
			w.finish(r, domain.OutcomeSkipped, why)
		}
	}
}

// schedule simulates a clock check of the scheduler.
func (w *world) schedule() {
	w.endMissedHolds()
	c := scheduler.DueContext{Pauses: w.o.Pauses, StartedAt: w.startedAt, ClockStep: w.clock.stepped, LastCheck: w.clock.lastCheck}
	if w.clock.stepped <= -scheduler.MinClockStep {
		w.table.Rewind(w.now)
	}

	w.clock.lastCheck, w.clock.stepped = w.now, 0
	batch := w.table.PopDue(w.now, c)
	for _, d := range batch.Due {
		w.decide(d)
	}

	w.table.Advance(batch)
	for _, id := range batch.Wakes {
		w.fireWake(id)
	}

	w.clock.nextCheck = w.table.Head()
	if most := w.now.Add(checkEvery); w.hasSteps && (w.clock.nextCheck.IsZero() || w.clock.nextCheck.After(most)) {
		w.clock.nextCheck = most // the time at which a step is noticed matters
	}
}

// decide decides about a due instant and queues its run if it has one.
func (w *world) decide(d ledger.Due) {
	if w.alreadyRecorded(d) {
		return
	}

	o := &Occurrence{Job: d.Job, Agent: d.Agent, Source: d.Source, Nominal: d.Nominal, Actual: d.Actual, Decision: d.Decision, Reason: d.Reason,
		Through: d.Through, Instants: d.Instants}
	w.keep(o)
	if d.Decision != domain.DecisionRun {
		return
	}

	var replace bool
	if o.Decision, o.Reason, replace = ledger.DecideDue(d, w.overlapping(d), w.o.Pauses); o.Decision != domain.DecisionRun {
		return
	}

	if replace {
		for _, r := range slices.Clone(w.byJob[d.Job]) {
			w.finish(r, domain.OutcomeCancelled, "")
		}
	}

	w.accept(o, domain.TriggerSchedule, d.Actual)
}

// keep stores an occurrence of the selected job. If there are clock steps, it stores all
// occurrences, to detect instants that were already decided.
func (w *world) keep(o *Occurrence) {
	w.record.decided++
	w.record.byJob[o.Job]++
	if w.o.Job == "" || o.Job == w.o.Job || w.hasSteps {
		w.record.kept = append(w.record.kept, o)
	}
}

// tooMany returns an error that names the job with the most occurrences.
func (w *world) tooMany() error {
	most := ""
	for _, name := range slices.Sorted(maps.Keys(w.record.byJob)) {
		if w.record.byJob[name] > w.record.byJob[most] {
			most = name
		}
	}
	return fmt.Errorf("more than %d occurrences up to %s, %d of them of the job %s: choose a shorter time", w.record.decided-1, w.now.Format(time.RFC3339), w.record.byJob[most], most)
}

// overlapping returns the runs that the overlap policy applies to.
func (w *world) overlapping(d ledger.Due) []ledger.Run {
	var out []ledger.Run
	begun, most := ledger.OverlapCandidates(d.Overlap)
	for _, r := range w.byJob[d.Job] {
		if len(out) >= most {
			break
		}
		if r.Overlaps(begun) {
			out = append(out, r.Run)
		}
	}

	return out
}

// alreadyRecorded reports whether an instant was already decided.
func (w *world) alreadyRecorded(d ledger.Due) bool {
	if !w.hasSteps {
		return false // watermarks never go back, so no instant is due twice
	}

	for i, o := range w.record.kept {
		if o.Job == d.Job && o.Nominal.Equal(d.Nominal) && o.Source != scheduler.SourceWake {
			if o.Decision == domain.DecisionMissed && d.Decision == domain.DecisionRun {
				// The instant was missed while the clock was ahead. Now it can run.
				w.record.kept = slices.Delete(w.record.kept, i, i+1)
				return false
			}
			return true
		}
	}

	return false
}

// accept queues a run.
func (w *world) accept(o *Occurrence, trigger domain.Trigger, notBefore time.Time) {
	w.last++
	o.Run = w.last
	r := &run{occ: o, left: w.o.Runtime(o.Job, o.Agent), Run: ledger.Run{ID: w.last, Job: o.Job, Agent: o.Agent, Trigger: trigger,
		State: domain.StateQueued, QueuedAt: w.now, NotBefore: notBefore, ScheduledAt: o.Nominal}}
	w.add(r)
	if why := w.o.Blocked(o.Job, o.Agent); why != "" {
		o.Reason = why
	}
}

// fireWake decides about a planned wake that is due.
func (w *world) fireWake(id int64) {
	i := slices.IndexFunc(w.o.Wakes, func(s wake.Wake) bool { return s.ID == id })
	s := w.o.Wakes[i]
	d := wake.Decide(w.now, s, wake.State{Pauses: w.o.Pauses, Saturated: w.lanes.Free() <= 0, LastWake: w.lastWake[s.Agent]})
	w.table.SettleWake(d)

	if d.Decision == wake.Deferred {
		w.o.Wakes = slices.Clone(w.o.Wakes) // owned by the caller
		w.o.Wakes[i].At, w.o.Wakes[i].Deferred = d.At, true
		return
	}

	if d.Decision == wake.Paused {
		return
	}

	o := &Occurrence{Agent: s.Agent, Source: scheduler.SourceWake, Nominal: s.At, Actual: s.At, Decision: domain.DecisionRun, Reason: d.Reason}
	w.keep(o)
	if d.Decision == wake.Dropped {
		o.Decision = domain.DecisionSkipped
		return
	}

	w.lastWake[s.Agent] = w.now
	w.accept(o, domain.TriggerSelf, time.Time{})
}

// endRuns finishes the runs that have reached the end of their runtime.
func (w *world) endRuns() {
	for _, r := range inOrder(w.running) {
		if !r.ends.After(w.now) {
			w.finish(r, domain.OutcomeSuccess, "")
		}
	}
}

// finish sets the outcome of a run. For a skipped run, why becomes the reason of its occurrence.
func (w *world) finish(r *run, outcome domain.Outcome, why string) {
	gone := func(o *run) bool { return o == r }
	w.lanes.Release(r.ID)
	delete(w.running, r.ID)
	if _, waits := w.ready[r.ID]; waits {
		delete(w.ready, r.ID)
		w.stale = true
	}

	w.delayed, w.behind = slices.DeleteFunc(w.delayed, gone), slices.DeleteFunc(w.behind, gone)
	if w.byJob[r.Job] = slices.DeleteFunc(w.byJob[r.Job], gone); len(w.byJob[r.Job]) == 0 {
		delete(w.byJob, r.Job)
	}

	if r.State = domain.StateFinished; len(w.behind) > 0 {
		behind := w.behind
		w.behind = nil
		for _, next := range behind {
			w.queue(next)
		}
	}
	if r.occ == nil {
		return
	}

	r.occ.Outcome, r.occ.Finished = outcome, w.now
	if outcome == domain.OutcomeSkipped {
		r.occ.Decision, r.occ.Reason = domain.DecisionSkipped, why
	}
}

// dispatch starts waiting runs on free lanes, like the dispatcher.
func (w *world) dispatch() {
	w.endMissedHolds()
	var come []*run
	w.delayed = slices.DeleteFunc(w.delayed, func(r *run) bool {
		if r.NotBefore.After(w.now) {
			return false
		}
		come = append(come, r)
		return true
	})
	for _, r := range come {
		w.queue(r)
	}
	for len(w.ready) > 0 && w.lanes.Free() > 0 {
		if w.stale {
			w.lanes.Clear()
			for _, r := range inOrder(w.ready) {
				w.lanes.Add(r.Run)
			}
			w.stale = false
		}

		starting, late := w.lanes.Dequeue(w.now, w.o.Pauses)
		for _, l := range late {
			r := w.ready[l.Run]
			delete(w.ready, l.Run) // the fair queue has dropped it
			w.finish(r, domain.OutcomeSkipped, dispatch.LateReason(l.Waited))
		}

		for _, r := range starting {
			w.start(w.ready[r.Run])
		}

		if len(starting)+len(late) == 0 {
			return
		}
	}
}

func (w *world) start(r *run) {
	delete(w.ready, r.ID)
	w.running[r.ID] = r
	r.State, r.WaitingFor, r.NotBefore, r.Attempt, r.ends = domain.StateRunning, "", time.Time{}, r.Attempt+1, w.now.Add(r.left)
	if r.occ != nil && r.occ.Started.IsZero() {
		r.occ.Started = w.now
	}

	if r.left <= 0 {
		w.finish(r, domain.OutcomeSuccess, "")
	}
}
