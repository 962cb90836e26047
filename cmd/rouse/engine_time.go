package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/web"
)

// sourceRetry is the source of an attempt after the first.
const sourceRetry = "retry"

// Next implements web.Engine.
func (d *daemon) Next(ctx context.Context, job string, n int) ([]web.Occurrence, error) {
	if err := d.current().usable(); err != nil {
		return nil, err
	}
	now := time.Now()
	out := []web.Occurrence{}
	for _, u := range d.scheduler.Next(job, n, now) {
		out = append(out, web.Occurrence{Job: u.Job, Agent: u.Agent, Source: u.Source, Nominal: web.Time{Time: u.Nominal}, Actual: web.Time{Time: u.Actual},
			Decision: u.Decision, Reason: u.Reason})
	}
	delayed, err := d.ledger.Delayed(ctx, job, now, n)
	if err != nil {
		return nil, err
	}
	pauses, err := d.ledger.Pauses(ctx, now)
	if err != nil {
		return nil, err
	}
	for _, r := range delayed {
		out = append(out, delayedRun(r, pauses))
	}
	slices.SortStableFunc(out, func(a, b web.Occurrence) int { return a.Actual.Compare(b.Actual.Time) })
	return out[:min(n, len(out))], nil
}

// delayedRun is a run that has been accepted and waits for its time.
func delayedRun(r ledger.Run, pauses []ledger.Pause) web.Occurrence {
	o := web.Occurrence{Job: r.Job, Agent: r.Agent, Source: string(r.Trigger), Nominal: web.Time{Time: r.ScheduledAt}, Actual: web.Time{Time: r.NotBefore},
		Decision: ledger.DecisionRun, Run: fmt.Sprint(r.ID)}
	if r.ScheduledAt.IsZero() {
		o.Nominal.Time = r.QueuedAt
	}
	var detail ledger.Detail
	if json.Unmarshal(r.Detail, &detail) == nil && detail.Source != "" {
		o.Source = detail.Source
	}
	if r.State == ledger.StateWaiting {
		o.Source, o.Reason = sourceRetry, fmt.Sprintf("attempt %d of run %d", r.Attempt+1, r.ID)
	} else {
		o.Reason = fmt.Sprintf("run %d, held back for %s by jitter", r.ID, r.NotBefore.Sub(o.Nominal.Time))
	}
	if p, ok := ledger.Paused(pauses, r.Job, r.Agent, r.NotBefore); ok && r.Trigger != ledger.TriggerManual {
		o.Reason += "; waits for the end of the pause: " + p.String()
	}
	return o
}

// Pause implements web.TimeEngine.
func (d *daemon) Pause(ctx context.Context, ask web.PauseAsk) (web.Paused, error) {
	s, now := d.current(), time.Now()
	out := web.Paused{Zone: s.config.Zone().String(), Running: []string{}, Held: []web.Pause{}}
	// Everything can be paused whatever is wrong with the configuration; but a local time
	// has to be read in its zone.
	if ask.Scope != ledger.PauseAll || ask.Until != "" {
		if err := s.usable(); err != nil {
			return out, err
		}
	}
	if err := s.knownScope(ask.Scope, ask.Name); err != nil {
		return out, err
	}
	until, err := pauseEnd(ask, now, s.config.Zone())
	if err != nil {
		return out, &web.Error{Message: err.Error(), Usage: true}
	}
	p, err := d.ledger.SetPause(ctx, ledger.Pause{Scope: ask.Scope, Name: ask.Name, Until: until, Reason: d.runner.Redact(strings.TrimSpace(ask.Reason)), Paused: ledger.ByUser})
	if err != nil {
		return out, err
	}
	out.Pause = web.NewPause(p)
	running, err := d.ledger.Running(ctx)
	if err != nil {
		return out, err
	}
	for _, r := range running {
		if _, about := ledger.Paused([]ledger.Pause{p}, r.Job, r.Agent, p.Since); about {
			out.Running = append(out.Running, fmt.Sprint(r.ID))
		}
	}
	out.Held, err = d.heldToo(ctx, s, ask.Scope, ask.Name)
	return out, err
}

// pauseEnd is when a pause ends; zero when nobody said so.
func pauseEnd(ask web.PauseAsk, now time.Time, zone *time.Location) (time.Time, error) {
	switch {
	case ask.For != "" && ask.Until != "":
		return time.Time{}, fmt.Errorf("give a length of time or an end, not both")
	case ask.For != "":
		length, err := config.ParseDuration(ask.For)
		if err == nil && length <= 0 {
			err = fmt.Errorf("a pause of %q would be none", ask.For)
		}
		if end := now.Add(length); err == nil && end.Year() > 9999 {
			err = fmt.Errorf("%q is too long; without a length of time the pause lasts until somebody resumes", ask.For)
		}
		return now.Add(length), err
	case ask.Until != "":
		w, err := parseWhen(ask.Until, now, zone, true)
		if err != nil {
			return w.at, err
		}
		if !w.at.After(now) {
			hint := ""
			if w.span > 12*time.Hour && now.Before(w.at.Add(w.span)) {
				hint = "; for the rest of today write tomorrow"
			}
			return w.at, fmt.Errorf("%s has passed: it is %s%s", stamp(w.at, zone), stamp(now, zone), hint)
		}
		return w.at, nil
	}
	return time.Time{}, nil
}

// Resume implements web.TimeEngine. What is not configured any more can be resumed too.
func (d *daemon) Resume(ctx context.Context, scope, name string) (web.Resumed, error) {
	s := d.current()
	out := web.Resumed{Scope: scope, Name: name, Zone: s.config.Zone().String(), Held: []web.Pause{}}
	ended, err := d.ledger.EndPause(ctx, scope, name)
	if err != nil {
		return out, err
	}
	if !ended && scope != ledger.PauseAll {
		if err := s.usable(); err != nil {
			return out, err
		}
		if err := s.knownScope(scope, name); err != nil {
			return out, err
		}
	}
	out.Held, err = d.heldToo(ctx, s, scope, name)
	if err != nil || ended {
		return out, err
	}
	return out, &web.Error{Status: 409, Message: nothingToResume(scope, name, out.Held, s.config.Zone())}
}

// nothingToResume says so, and what holds the same thing by another pause.
func nothingToResume(scope, name string, held []web.Pause, zone *time.Location) string {
	text := fmt.Sprintf("nothing to resume: %s is not paused", scopeText(scope, name))
	switch {
	case scope == ledger.PauseAll && len(held) > 0:
		text = "nothing to resume: there is no pause of everything, only these"
	case scope == ledger.PauseAll:
		text = "nothing to resume: nothing is paused"
	case len(held) > 0:
		text += " by itself"
	}
	for _, p := range held {
		text += fmt.Sprintf("\n  %s; resume with: rouse resume %s", oneLine(pauseText(p, zone)), scopeArgs(p.Scope, p.Name))
	}
	return text
}

func (s *setup) knownScope(scope, name string) error {
	switch scope {
	case ledger.PauseJob:
		return s.known(name, "")
	case ledger.PauseAgent:
		return s.known("", name)
	}
	return nil
}

// heldToo lists the other pauses that are on and are about something that this one is about.
func (d *daemon) heldToo(ctx context.Context, s *setup, scope, name string) ([]web.Pause, error) {
	out := []web.Pause{}
	all, err := d.ledger.Pauses(ctx, time.Now())
	for _, p := range all {
		if (p.Scope != scope || p.Name != name) && s.meet(scope, name, p.Scope, p.Name) {
			out = append(out, web.NewPause(p))
		}
	}
	return out, err
}

// meet says whether two pauses have a job in common.
func (s *setup) meet(scopeA, nameA, scopeB, nameB string) bool {
	agentOf := func(scope, name string) string {
		if j := s.job(name); scope == ledger.PauseJob && j != nil {
			return j.Agent
		}
		return name
	}
	switch {
	case scopeA == ledger.PauseAll || scopeB == ledger.PauseAll:
		return true
	case scopeA == scopeB:
		return nameA == nameB
	}
	return agentOf(scopeA, nameA) == agentOf(scopeB, nameB)
}

// job is a configured job, nil when there is none of that name.
func (s *setup) job(name string) *config.Job {
	for i := range s.config.Jobs {
		if string(s.config.Jobs[i].Name) == name {
			return &s.config.Jobs[i]
		}
	}
	return nil
}

// pausedWhy is why a job is paused; of a pause that is not its own, also what is paused.
func pausedWhy(p ledger.Pause) string {
	if p.Scope == ledger.PauseJob {
		return p.Reason
	}
	return strings.TrimSuffix(scopeText(p.Scope, p.Name)+": "+p.Reason, ": ")
}

// scopeText says what a pause is about.
func scopeText(scope, name string) string {
	if scope == ledger.PauseAll {
		return "everything"
	}
	return scope + " " + name
}

// scopeArgs is how the same is said on the command line.
func scopeArgs(scope, name string) string {
	switch scope {
	case ledger.PauseAll:
		return "--all"
	case ledger.PauseAgent:
		return "--agent " + name
	}
	return name
}

// pauseText says a pause in words: "job inbox is paused until …: holidays".
func pauseText(p web.Pause, zone *time.Location) string {
	text := scopeText(p.Scope, p.Name) + " is paused"
	if p.Until.IsZero() {
		text += " until somebody resumes it"
	} else {
		text += " until " + stamp(p.Until.Time, zone)
	}
	if p.Reason != "" {
		text += ": " + oneLine(p.Reason)
	}
	return text
}

// stamp is an instant in a sentence, as the clocks of a zone show it.
func stamp(t time.Time, zone *time.Location) string {
	if t = t.In(zone); t.Second() != 0 {
		return t.Format("Mon 2006-01-02 15:04:05 MST")
	}
	return t.Format("Mon 2006-01-02 15:04 MST")
}
