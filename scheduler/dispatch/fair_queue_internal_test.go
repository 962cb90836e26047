package dispatch

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/node"
	"rouse/internal/ledger/pause"
)

// plainQueue is a FairQueue that checks all runs each time.
type plainQueue struct {
	lanes, perAgent int
	policy          map[string]Policy
	queued          map[int64]ledger.Run
	running         map[int64]ledger.Run
}

// free returns the number of free lanes.
func (p *plainQueue) free() int { return p.lanes - len(p.running) }

// blocked reports whether a run waits for the end of a pause, or for lanes of its agent or its job.
func (p *plainQueue) blocked(r ledger.Run, now time.Time, pauses []pause.Pause) bool {
	if _, paused := pause.Paused(pauses, r.Job, r.Agent, now); paused && r.Trigger != domain.TriggerManual {
		return true
	}

	agent, job := 0, 0
	for _, on := range p.running {
		if on.Agent == r.Agent {
			agent++
		}
		if on.Job == r.Job {
			job++
		}
	}
	most := p.policy[r.Job].Concurrency
	return agent >= p.perAgent || r.Job != "" && most >= 0 && job >= max(most, 1)
}

// next returns the queued run that has waited longest of those that may start. Runs of a backfill
// come after all others.
func (p *plainQueue) next(now time.Time, pauses []pause.Pause) (ledger.Run, bool) {
	order := slices.SortedFunc(maps.Values(p.queued), func(a, b ledger.Run) int {
		if backfill := a.Trigger == domain.TriggerBackfill; backfill != (b.Trigger == domain.TriggerBackfill) {
			if backfill {
				return 1
			}
			return -1
		}
		return cmp.Compare(a.ID, b.ID)
	})
	i := slices.IndexFunc(order, func(r ledger.Run) bool { return !p.blocked(r, now, pauses) })
	if i < 0 || p.free() <= 0 {
		return ledger.Run{}, false
	}
	return order[i], true
}

// deadline returns the time at which a queued run is late, or false if it has no deadline.
func (p *plainQueue) deadline(r ledger.Run) (since, until time.Time, ok bool) {
	most := p.policy[r.Job].StartDeadline
	if most <= 0 || r.State != domain.StateQueued || r.Attempt > 0 || r.Trigger == domain.TriggerBackfill {
		return since, until, false
	}
	since = r.QueuedAt
	if r.NotBefore.After(since) {
		since = r.NotBefore
	}
	return since, since.Add(most), true
}

func (p *plainQueue) dequeue(now time.Time, pauses []pause.Pause) (starting []int64, late []Late) {
	for id, r := range p.queued {
		if since, until, ok := p.deadline(r); ok && now.After(until) {
			late = append(late, Late{id, now.Sub(since)})
			delete(p.queued, id)
		}
	}
	slices.SortFunc(late, func(a, b Late) int { return cmp.Compare(a.Run, b.Run) })

	for {
		r, ok := p.next(now, pauses)
		if !ok {
			return starting, late
		}
		delete(p.queued, r.ID)
		if _, on := p.running[r.ID]; !on { // a ledger that was read before its start may queue it again
			p.running[r.ID] = r
			starting = append(starting, r.ID)
		}
	}
}

// nextLate returns the time at which the next queued run is late, or the zero time.
func (p *plainQueue) nextLate() (first time.Time) {
	for _, r := range p.queued {
		if _, until, ok := p.deadline(r); ok && (first.IsZero() || until.Before(first)) {
			first = until
		}
	}
	if !first.IsZero() {
		first = first.Add(time.Millisecond)
	}
	return first
}

func ids(runs []node.RunFor) (all []int64) {
	for _, r := range runs {
		all = append(all, r.Run)
	}
	return all
}

// TestUsualLanes checks the default lanes: four in total and one per agent.
func TestUsualLanes(t *testing.T) {
	q := NewFairQueue(1, 2, func(string) Policy { return Policy{Concurrency: -1} })
	q.SetLanes(0, 0)
	for id := range int64(12) {
		q.Add(ledger.Run{ID: id + 1, Agent: fmt.Sprint("a", id/2), Job: "j", State: domain.StateQueued})
	}
	if starting, _ := q.Dequeue(time.Now(), nil); !slices.Equal(ids(starting), []int64{1, 3, 5, 7}) {
		t.Errorf("%v start", starting)
	}
}

// TestDeadlineIsTakenAway checks that runs wait without a limit after the queue is read again, if
// the deadline of their job was removed from the configuration.
func TestDeadlineIsTakenAway(t *testing.T) {
	policy := Policy{StartDeadline: time.Minute}
	q := NewFairQueue(1, 1, func(string) Policy { return policy })
	now := time.Now()
	run := func(id int64) ledger.Run {
		return ledger.Run{ID: id, Agent: "a", Job: "j", State: domain.StateQueued, QueuedAt: now}
	}
	q.Add(run(1))
	q.Add(run(2))
	q.Dequeue(now, nil)
	policy.StartDeadline = 0
	q.Clear()
	q.Add(run(2))
	if _, late := q.Dequeue(now.Add(time.Hour), nil); len(late) > 0 || !q.NextLate().IsZero() {
		t.Errorf("%v are late, and the next one at %s", late, q.NextLate())
	}
}

// BenchmarkManyJobs starts one run after another while 10,000 jobs are due, with and without a
// start_deadline.
func BenchmarkManyJobs(b *testing.B) {
	for _, deadline := range []time.Duration{0, time.Hour} {
		b.Run(fmt.Sprint("deadline ", deadline), func(b *testing.B) {
			const jobs = 10_000
			q := NewFairQueue(4, 4, func(string) Policy { return Policy{StartDeadline: deadline} })
			now, last := time.Now(), int64(0)
			add := func() {
				last++
				q.Add(ledger.Run{ID: last, Agent: fmt.Sprint("a", last%10), Job: fmt.Sprint("j", last%jobs), State: domain.StateQueued, QueuedAt: now})
			}
			for range jobs {
				add()
			}
			on, _ := q.Dequeue(now, nil)
			for b.Loop() {
				q.Release(on[0].Run)
				add()
				starting, _ := q.Dequeue(now, nil)
				if len(starting) != 1 || q.NextLate().IsZero() != (deadline == 0) {
					b.Fatal(starting, q.NextLate())
				}
				on = append(on[1:], starting...)
			}
		})
	}
}

// TestFairQueueProperties checks that a queue and a plainQueue give the same lanes to the same runs
// at the same times, and report the same late runs.
func TestFairQueueProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		small := func(most int, what string) int { return rapid.IntRange(0, most).Draw(t, what) }
		began := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		now, last, pauses := began, int64(0), []pause.Pause(nil)
		p := &plainQueue{lanes: 1 + small(4, "lanes"), perAgent: 1 + small(2, "lanes of an agent"), policy: map[string]Policy{}, queued: map[int64]ledger.Run{}, running: map[int64]ledger.Run{}}
		for _, job := range []string{"j0", "j1", "j2"} {
			p.policy[job] = Policy{Concurrency: small(3, "concurrency") - 1, StartDeadline: time.Duration(max(0, small(4, "deadline")-1)) * time.Second}
		}
		q := NewFairQueue(p.lanes, p.perAgent, func(job string) Policy { return p.policy[job] })

		draw := func() ledger.Run {
			last++
			r := ledger.Run{ID: last, Agent: rapid.SampledFrom([]string{"a0", "a1", "a2"}).Draw(t, "agent"), Job: rapid.SampledFrom([]string{"j0", "j1", "j2", ""}).Draw(t, "job"), QueuedAt: now, State: domain.StateQueued,
				Trigger: rapid.SampledFrom([]domain.Trigger{domain.TriggerSchedule, domain.TriggerSchedule, domain.TriggerManual, domain.TriggerBackfill}).Draw(t, "trigger")}
			switch small(5, "kind") {
			case 0: // retried
				r.Attempt = 1
			case 1: // answered
				r.State = domain.StateWaiting
			case 2: // jitter that has ended by now
				r.NotBefore, r.QueuedAt = now, now.Add(-time.Duration(small(3, "jitter"))*time.Second)
			}
			return r
		}
		readAgain := func() {
			q.Clear()
			for _, id := range slices.Sorted(maps.Keys(p.queued)) {
				q.Add(p.queued[id])
			}
		}
		dequeue := func() {
			starting, late := q.Dequeue(now, pauses)
			wantStarting, wantLate := p.dequeue(now, pauses)
			if !slices.Equal(ids(starting), wantStarting) || !slices.Equal(late, wantLate) {
				t.Fatalf("%v start and %v are late; to be expected were %v and %v", starting, late, wantStarting, wantLate)
			}
		}

		t.Repeat(map[string]func(*rapid.T){
			"runs come": func(*rapid.T) {
				var come []ledger.Run
				for range 1 + small(3, "runs") {
					come = append(come, draw())
				}
				if small(2, "order") == 0 {
					slices.Reverse(come)
				}
				for _, r := range come {
					p.queued[r.ID] = r
					q.Add(r)
				}
			},
			"a run that is on is read once more": func(*rapid.T) {
				for _, id := range slices.Sorted(maps.Keys(p.running)) {
					if _, twice := p.queued[id]; !twice {
						p.queued[id] = p.running[id]
						q.Add(p.running[id])
						return
					}
				}
			},
			"runs end": func(*rapid.T) {
				on := slices.Sorted(maps.Keys(p.running))
				ended := on[:min(len(on), small(3, "ended"))]
				for _, id := range ended {
					delete(p.running, id)
				}
				q.Release(append(ended, -1000)...)
			},
			"time goes on": func(*rapid.T) { now = now.Add(time.Duration(small(4, "half seconds")) * 500 * time.Millisecond) },
			"pauses change": func(*rapid.T) {
				pauses = nil
				for range small(2, "pauses") {
					pause := rapid.SampledFrom([]pause.Pause{{Scope: pause.Job, Name: "j0"}, {Scope: pause.Job, Name: "j1"}, {Scope: pause.Agent, Name: "a0"}, {Scope: pause.All}}).Draw(t, "pause")
					pause.Since = now
					if n := small(3, "seconds"); n > 0 {
						pause.Until = now.Add(time.Duration(n) * time.Second)
					}
					pauses = append(pauses, pause)
				}
			},
			"lanes change": func(*rapid.T) {
				p.lanes, p.perAgent = 1+small(4, "lanes"), 1+small(2, "lanes of an agent")
				q.SetLanes(p.lanes, p.perAgent)
			},
			"a policy changes": func(*rapid.T) {
				p.policy["j2"] = Policy{Concurrency: small(3, "concurrency") - 1, StartDeadline: time.Duration(max(0, small(4, "deadline")-1)) * time.Second}
				readAgain()
			},
			"lanes are given": func(*rapid.T) { dequeue() },
			"": func(t *rapid.T) {
				if q.Free() != p.free() {
					t.Fatalf("%d lanes are free, of %d with %d taken", q.Free(), p.lanes, len(p.running))
				}
				if got, want := q.NextLate(), p.nextLate(); !got.Equal(want) {
					t.Fatalf("the next run is late at %s, and not at %s", got.Sub(began), want.Sub(began))
				}
			},
		})

		// All waiting runs start after their obstacles are gone.
		q.Release(slices.Collect(maps.Keys(p.running))...)
		clear(p.running)
		pauses, p.lanes, p.perAgent = nil, 1000, 1000
		q.SetLanes(p.lanes, p.perAgent)
		dequeue()
		if len(q.agents)+len(q.jobs) > 0 && len(p.running) == 0 {
			t.Fatalf("nothing runs, and is counted: %s", fmt.Sprint(q.agents, q.jobs))
		}
	})
}
