package agent

import (
	"fmt"
	"time"

	"rouse/agentdb/ledger"
)

// Group says which failures of an incident a channel is told of: the first, and every so many-th.
type Group struct {
	Every    int  // 1: each; 0: the first alone
	Recovery bool // and that the job succeeds again
}

// usualGroup is that of a channel of which nothing else is said.
var usualGroup = Group{Every: 10, Recovery: true}

// groupOf is how a channel gathers failures.
func (p *Plan) groupOf(channel string) Group {
	if g, ok := p.Groups[channel]; ok {
		return g
	}
	return usualGroup
}

// Tells returns the notices of the end of a run, or nil if the caller waits for the run. Of an incident a channel gets only
// some of the failures, and none after it was acknowledged; a success after failures is told too.
func (r *Runner) Tells(run ledger.Run, res ledger.Result) *ledger.EndNotices {
	// What keeps a task from being resolved is what the run ends with, and so in the notice.
	p := r.plan.Load()
	t, _ := r.task(run)
	if run.Job == "" && len(t.notify.Channels) == 0 {
		return nil
	}

	out := &ledger.EndNotices{Zone: t.zone}
	for _, n := range r.notices(t, res) {
		every := p.groupOf(n.Channel).Every
		if t.job.Seldom {
			every = 1
		}
		out.Notices = append(out.Notices, ledger.EndNotice{Notice: n, Every: every})
	}

	var channels []string
	for _, channel := range t.notify.Channels {
		if p.groupOf(channel).Recovery {
			channels = append(channels, channel)
		}
	}
	out.Recovery = address(ledger.Notice{
		Run: run.ID, Job: run.Job, Agent: run.Agent, Outcome: res.Outcome, Key: fmt.Sprintf("recovered:%d:%d", run.ID, run.Attempt),
		Title: nameInNotices(run) + " has recovered",
		Body:  fmt.Sprintf("\nrouse show %d", run.ID),
	}, channels)
	return out
}

// noticeTime is an instant as notices show it.
func noticeTime(at time.Time, zone *time.Location) string {
	return at.In(zone).Format("2006-01-02 15:04 MST")
}
