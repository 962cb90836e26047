package notify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/incident"
	"rouse/internal/ledger/pause"
	"rouse/internal/ledger/runs"
	"rouse/internal/text"
)

// digestKey is the prefix of a digest's key.
const digestKey = "digest:"

// IsDigest reports whether a notice is a daily summary.
func IsDigest(n ledger.Notice) bool { return strings.HasPrefix(n.Key, digestKey) }

// clockAhead is the maximum time by which the end of the last digest may be in the future. If it is
// further ahead, the clock was wrong.
const clockAhead = 24 * time.Hour

// appendDigests adds the digests that are due to the outbox. It returns the time of the next
// digest, or the zero time if there is none.
//
// A digest starts at the end of the previous digest and ends when it is made. After the machine was
// off or asleep, one digest covers the whole gap. The ledger stores the end together with the
// notice in one transaction, so a crash cannot duplicate a digest.
func (n *Notifier) appendDigests(ctx context.Context) (time.Time, error) {
	now := n.now()
	n.mu.Lock()
	rules, next := n.rules, n.nextDigest
	n.mu.Unlock()
	if now.Before(next) && next.Sub(now) <= clockAhead+time.Hour { // a day with a clock change has 25 hours
		return next, nil
	}

	channels := map[string]bool{}
	for channel, r := range rules {
		channels[channel] = r.Digest != nil
	}
	err := n.ledger.Outbox.KeepDigests(ctx, channels)

	next = time.Time{}
	for channel, r := range rules {
		if r.Digest == nil {
			continue
		}
		if r.Session != nil && !r.Session.Exists() {
			next = domain.Earlier(next, now.Add(time.Hour))
			continue
		}
		at, failure := n.appendDigest(ctx, channel, r, now)
		next, err = domain.Earlier(next, at), errors.Join(err, failure)
	}
	if err != nil {
		return time.Time{}, err
	}

	n.mu.Lock()
	defer n.mu.Unlock()
	n.nextDigest = next
	return next, nil
}

// appendDigest adds the digest of a channel to the outbox if it is due. It returns the time of the
// channel's next digest.
func (n *Notifier) appendDigest(ctx context.Context, channel string, r Rules, now time.Time) (time.Time, error) {
	from, err := n.ledger.Outbox.DigestThrough(ctx, channel, now)
	if err != nil {
		return time.Time{}, err
	}
	if from.Sub(now) > clockAhead {
		n.log.Warn("the clock was ahead when the last digest was made; the next one begins now", "channel", channel, "last", from)
		from = now
		if err := n.ledger.Outbox.RestartDigest(ctx, channel, now); err != nil {
			return time.Time{}, err
		}
	}

	due := r.Digest.Next(from, r.zone())
	if due.After(now) {
		return due, nil
	}

	s, err := n.summarize(ctx, from, now)
	if err != nil {
		return time.Time{}, fmt.Errorf("channel %s: %w", channel, err)
	}
	notice := ledger.Notice{Channel: channel, Key: fmt.Sprintf("%s%s:%d", digestKey, channel, from.UnixMilli()), Title: s.title(), Body: s.body(r.zone())}
	if _, err := n.ledger.Outbox.AppendDigest(ctx, from, now, notice); err != nil {
		return time.Time{}, fmt.Errorf("channel %s: %w", channel, err)
	}
	return r.Digest.Next(now, r.zone()), nil
}

// Limits of a digest. Chats accept few characters.
const (
	maxDigestJobs      = 8
	maxDigestIncidents = 5
	maxDigestItems     = 5
	maxDigestError     = 100 // characters
	maxDigestRead      = 500 // rows per query
)

// summary holds the contents of a digest.
type summary struct {
	from, to  time.Time
	jobs      []jobSummary
	runs      int
	failed    int
	tokens    int64
	cost      int64               // in millionths of a US dollar
	open      []incident.Incident // at the time of the digest
	recovered []incident.Incident
	notRun    map[domain.Decision]int
	waiting   []inbox.Item
	queued    int
	pauses    []pause.Pause
	lost      int // notices that could not be delivered
}

// jobSummary counts the runs of a job. Runs without a job are counted per agent.
type jobSummary struct {
	name     string
	failed   int
	outcomes []string // such as "2 success"
}

// summarize reads the contents of a digest from the ledger.
func (n *Notifier) summarize(ctx context.Context, from, to time.Time) (summary, error) {
	s := summary{from: from, to: to, notRun: map[domain.Decision]int{}}
	within := func(t time.Time) bool { return !t.Before(from) && t.Before(to) }

	ended, err := n.ledger.Runs.EndedBetween(ctx, from, to)
	if err != nil {
		return s, err
	}
	s.count(ended)

	if s.open, err = n.ledger.Incidents.List(ctx, incident.Filter{Limit: maxDigestRead}); err != nil {
		return s, err
	}
	all, err := n.ledger.Incidents.List(ctx, incident.Filter{Closed: true, Limit: maxDigestRead})
	if err != nil {
		return s, err
	}
	s.recovered = slices.DeleteFunc(all, func(i incident.Incident) bool { return !within(i.ClosedAt) })

	instants, err := n.ledger.Occurrences.NotRun(ctx, from, to, maxDigestRead)
	if err != nil {
		return s, err
	}
	for _, o := range instants {
		if o.Decision != domain.DecisionRun && o.Decision != "" {
			s.notRun[o.Decision] += max(o.Instants, 1)
		}
	}

	if s.waiting, err = n.ledger.Inbox.List(ctx); err != nil {
		return s, err
	}
	counts, err := n.ledger.Runs.Counts(ctx)
	if err != nil {
		return s, err
	}
	s.queued = counts.Queued
	if s.pauses, err = n.ledger.Pauses.List(ctx, to); err != nil {
		return s, err
	}

	undelivered, err := n.ledger.Outbox.Undelivered(ctx, maxDigestRead)
	for _, u := range undelivered {
		if u.State == ledger.NoticeFailed && within(u.NextAt) { // NextAt of a failed notice is the time it failed
			s.lost++
		}
	}
	return s, err
}

// count adds up the runs by job. Jobs with the most failures come first.
func (s *summary) count(ended []runs.Ended) {
	at := map[string]int{}
	for _, e := range ended {
		name := e.Job
		if name == "" {
			name = e.Agent + " (no job)"
		}
		i, ok := at[name]
		if !ok {
			i = len(s.jobs)
			at[name] = i
			s.jobs = append(s.jobs, jobSummary{name: name})
		}

		j := &s.jobs[i]
		j.outcomes = append(j.outcomes, fmt.Sprintf("%d %s", e.Runs, strings.ReplaceAll(string(e.Outcome), "_", " ")))
		if e.Outcome.OpensIncident() {
			j.failed += e.Runs
		}
		s.runs, s.tokens, s.cost = s.runs+e.Runs, s.tokens+e.Tokens, s.cost+e.Cost
	}

	for _, j := range s.jobs {
		s.failed += j.failed
	}
	slices.SortStableFunc(s.jobs, func(a, b jobSummary) int { return cmp.Compare(b.failed, a.failed) })
}

// title returns the title: the number of runs, failures and waiting items.
func (s *summary) title() string {
	out := "rouse: nothing ran"
	if s.runs > 0 {
		out = fmt.Sprintf("rouse: %s, %d failed", text.Plural(s.runs, "run"), s.failed)
	}
	if len(s.waiting) > 0 {
		out += fmt.Sprintf(", %d waiting for you", len(s.waiting))
	}
	return out
}

// body returns the text, one line per job, incident or item. Each list is limited.
func (s *summary) body(zone *time.Location) string {
	const layout = "2006-01-02 15:04"
	out := []string{fmt.Sprintf("%s to %s", s.from.In(zone).Format(layout), s.to.In(zone).Format(layout+" MST"))}
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }

	for i, j := range s.jobs {
		if i == maxDigestJobs {
			add("and %d more: rouse runs", len(s.jobs)-i)
			break
		}
		add("%s: %s", j.name, strings.Join(j.outcomes, ", "))
	}

	out = append(out, s.incidents()...)
	out = append(out, s.standing()...)
	if s.runs > 0 {
		add("cost: $%.4f, %s", float64(s.cost)/1e6, text.Plural(s.tokens, "token"))
	}
	if s.lost > 0 {
		add("%s could not be delivered: rouse doctor", text.Plural(s.lost, "notice"))
	}
	return strings.Join(out, "\n")
}

// incidents returns one line per open incident and one for the incidents that have recovered.
func (s *summary) incidents() []string {
	var out []string
	for n, i := range s.open {
		if n == maxDigestIncidents {
			out = append(out, fmt.Sprintf("and %d more incidents: rouse incidents", len(s.open)-n))
			break
		}
		known := fmt.Sprintf("rouse ack %d", i.ID)
		if !i.AckedAt.IsZero() {
			known = "acknowledged"
		}
		out = append(out, fmt.Sprintf("incident %d, %s: %s, %s (%s): %s", i.ID, i.Of(), i.Kind, text.Plural(i.Failures, domain.IncidentUnit(i.Kind, "failure")), known, text.Truncate(text.OneLine(i.Error), maxDigestError)))
	}

	var over []string
	for _, i := range s.recovered {
		over = append(over, fmt.Sprintf("%s (%s)", i.Of(), i.Kind))
	}
	if len(over) > 0 {
		out = append(out, "recovered: "+text.List(over, maxDigestIncidents))
	}
	return out
}

// standing returns the lines about skipped runs, waiting items, the queue and pauses.
func (s *summary) standing() []string {
	var out []string
	for _, d := range []domain.Decision{domain.DecisionMissed, domain.DecisionRefused, domain.DecisionSkipped} {
		if n := s.notRun[d]; n > 0 {
			out = append(out, fmt.Sprintf("%s %s: rouse why JOB", text.Plural(n, "instant"), d))
		}
	}

	for n, i := range s.waiting {
		if n == maxDigestItems {
			out = append(out, fmt.Sprintf("and %d more wait for you: rouse inbox", len(s.waiting)-n))
			break
		}
		out = append(out, fmt.Sprintf("waits for you (item %d): %s", i.ID, text.OneLine(i.Title)))
	}
	if s.queued > 0 {
		out = append(out, fmt.Sprintf("%s queued", text.Plural(s.queued, "run")))
	}
	for _, p := range s.pauses {
		name := p.Name
		if p.Scope == pause.All {
			name = "everything"
		}
		out = append(out, "paused: "+cmp.Or(name, p.Scope))
	}
	return out
}
