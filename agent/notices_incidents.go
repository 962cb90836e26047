package agent

import (
	"fmt"
	"strings"
	"time"

	"rouse/agentdb/ledger"
	"rouse/internal/domain"
	"rouse/internal/text"
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

// tells says whether a channel is told of the n-th failure.
func (g Group) tells(n int) bool { return n == 1 || g.Every > 0 && n%g.Every == 0 }

// Tells says what the owner is told of the end of a run. Of a failure that is known a channel hears now and then, and
// nothing once it is acknowledged; what succeeds again says so. The words are made here, before the transaction in which
// the ledger knows which failure it is.
func (r *Runner) Tells(run ledger.Run, res ledger.Result) func(ledger.IncidentChange) []ledger.Notice {
	// What keeps a task from being resolved is what the run ends with, and so in the notice.
	p := r.plan.Load()
	t, _ := r.task(run)
	if run.Job == "" && len(t.notify.Channels) == 0 {
		return nil // somebody waits for it
	}

	notices := r.notices(t, res)
	return func(c ledger.IncidentChange) []ledger.Notice {
		switch {
		case c.Failed != nil:
			return failureNotices(p, *c.Failed, notices, t)
		case len(c.Recovered) > 0:
			return recoveryNotices(p, t, res, c.Recovered, notices)
		}
		return notices
	}
}

// failureNotices are those of a failure that are told, with what is known of its incident.
func failureNotices(p *Plan, i ledger.Incident, notices []ledger.Notice, t *task) []ledger.Notice {
	if !i.AckedAt.IsZero() {
		return nil
	}

	var out []ledger.Notice
	for _, n := range notices {
		g := p.groupOf(n.Channel)
		if t.job.Seldom {
			g.Every = 1
		}
		if !g.tells(i.Failures) {
			continue
		}
		if i.Failures > 1 {
			n.Title += fmt.Sprintf(" (%d times)", i.Failures)
			n.Body += fmt.Sprintf("\n%s failed like this since %s", text.Plural(i.Failures, "run"), noticeTime(i.OpenedAt, t.zone))
		}
		n.Body += "\n" + g.next(i)
		out = append(out, n)
	}
	return out
}

// next says when the channel is told of the incident again, and how to have that stop.
func (g Group) next(i ledger.Incident) string {
	next := "Next message at each further failure."
	switch {
	case g.Every == 0:
		next = "No further message of such failures."
	case g.Every > 1:
		next = fmt.Sprintf("Next message at failure %d.", (i.Failures/g.Every+1)*g.Every)
	}
	return fmt.Sprintf("%s To hear no more until it recovers: rouse ack %d", next, i.ID)
}

// recoveryNotices tell of a success after failures: in the notice of the success where there is one, and else in one of
// its own, if anybody was told of the failures.
func recoveryNotices(p *Plan, t *task, res ledger.Result, closed []ledger.Incident, notices []ledger.Notice) []ledger.Notice {
	var was []string
	told := false
	for _, i := range closed {
		told = told || i.Told > 0
		was = append(was, fmt.Sprintf("incident %d is over: %s (%s), %s since %s", i.ID, i.Kind, text.Truncate(oneLine(i.Error), maxIncidentError), text.Plural(i.Failures, domain.IncidentUnit(i.Kind, "failed run")), noticeTime(i.OpenedAt, t.zone)))
	}
	words := strings.Join(was, "\n")

	if len(notices) > 0 {
		out := make([]ledger.Notice, len(notices))
		for i, n := range notices {
			n.Body += "\n" + words
			out[i] = n
		}
		return out
	}
	if !told {
		return nil
	}

	var channels []string
	for _, channel := range t.notify.Channels {
		if p.groupOf(channel).Recovery {
			channels = append(channels, channel)
		}
	}
	return address(ledger.Notice{
		Run: t.run.ID, Job: t.run.Job, Agent: t.run.Agent, Outcome: res.Outcome, Key: fmt.Sprintf("recovered:%d:%d", t.run.ID, t.run.Attempt),
		Title: nameInNotices(t.run) + " has recovered",
		Body:  words + fmt.Sprintf("\nrouse show %d", t.run.ID),
	}, channels)
}

// maxIncidentError is how much of the error of an incident a notice shows, in characters.
const maxIncidentError = 200

// noticeTime is an instant as notices show it.
func noticeTime(at time.Time, zone *time.Location) string {
	if zone == nil {
		zone = time.UTC
	}
	return at.In(zone).Format("2006-01-02 15:04 MST")
}
