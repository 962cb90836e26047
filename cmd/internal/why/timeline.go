package why

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/webhook"
	"rouse/internal/ledger"
	"rouse/internal/ledger/claim"
	"rouse/internal/ledger/pause"
	"rouse/internal/text"
	"rouse/watcher"
)

// maxTimeline limits the events, because a daemon that restarts in a loop records many.
const maxTimeline = 500

// timeline returns the events from the first line to the last, except those of runs.
func (e *explanation) timeline(ctx context.Context) ([]api.TimelineEntry, error) {
	from, to := e.anchor, e.now
	if e.asked != nil {
		from, to = e.asked.At.Add(-time.Hour), e.asked.At.Add(e.asked.Precision+time.Hour)
	}
	if len(e.lines) > 0 {
		if first := e.lines[0].Nominal.Time; e.asked != nil || e.more || first.Before(from) {
			from = first
		}
		if last := e.lines[len(e.lines)-1].Nominal.Time; e.asked != nil {
			to = last
		}
	}
	if to.After(e.now) {
		to = e.now
	}

	events, err := e.Ledger.Events.Between(ctx, "", from, to, maxTimeline, "daemon.started", "daemon.stopped", "clock.stepped", "zone.changed", "config.reloaded", "config.refused")
	if err != nil {
		return nil, err
	}
	blocked, err := e.Ledger.Events.Between(ctx, e.name, from, to, maxTimeline, "file.blocked", claim.FileBack, watcher.WaitsEvent, webhook.RefusedEvent)
	if err != nil {
		return nil, err
	}
	last, err := e.daemonBefore(ctx, from, events)
	if err != nil {
		return nil, err
	}

	out := e.pauseEntries(from, to)
	for _, event := range slices.Concat(events, blocked) {
		entry := e.timelineEntry(event)
		// The previous daemon did not stop in order, because there is no stop between the two
		// starts.
		if event.Kind == "daemon.started" && last == event.Kind {
			entry.Text = "the one before it did not stop: it was killed, or the power went"
		}
		if entry.What == "daemon" {
			last = event.Kind
		}
		out = append(out, entry)
	}
	slices.SortStableFunc(out, func(x, y api.TimelineEntry) int { return x.At.Compare(y.At.Time) })
	return out, nil
}

// daemonBefore returns the kind of the last start or stop of a daemon before the shown events. It
// returns an empty string if there is no such event.
func (e *explanation) daemonBefore(ctx context.Context, from time.Time, shown []ledger.Event) (string, error) {
	if len(shown) == maxTimeline {
		from = shown[0].At // the window has more events than are shown
	}

	before, err := e.Ledger.Events.Between(ctx, "", time.Time{}, from.Add(-time.Millisecond), 1, "daemon.started", "daemon.stopped")
	if err != nil || len(before) == 0 {
		return "", err
	}
	return before[0].Kind, nil
}

func (e *explanation) timelineEntry(event ledger.Event) api.TimelineEntry {
	var data struct {
		Seconds float64 `json:"seconds"`
		Path    string  `json:"path"`
		Run     int64   `json:"run"`
		Summary string  `json:"summary"`
		Error   string  `json:"error"`
		Why     string  `json:"why"`
		More    int     `json:"more"`
	}

	_ = json.Unmarshal(event.Data, &data) // omit unreadable values
	what, did, _ := strings.Cut(event.Kind, ".")
	entry := api.TimelineEntry{At: api.At(event.At), What: what, Did: did, Text: data.Summary + text.Truncate(text.OneLine(data.Error), 200)}
	step := time.Duration(data.Seconds * float64(time.Second)).Round(time.Second)
	switch {
	case event.Kind == "clock.stepped" && step < 0:
		entry.Text = fmt.Sprintf("it was set back by %s", -step)
	case event.Kind == "clock.stepped":
		entry.Text = fmt.Sprintf("it was set forward by %s, or the machine slept", step)
	case event.Kind == webhook.RefusedEvent, event.Kind == watcher.WaitsEvent:
		entry.Text = fmt.Sprintf("%s: %s", data.Path, text.Truncate(text.OneLine(data.Why), 200))
		if data.More > 0 {
			entry.Text += fmt.Sprintf(" (and %d more before it)", data.More)
		}
	case event.Kind == claim.FileBack:
		entry.Text = fmt.Sprintf("%s: %s", data.Path, watcher.BackText(data.Run))
	case data.Path != "":
		entry.Text = fmt.Sprintf("%s: this content was processed before, by run %d", data.Path, data.Run)
	}

	return entry
}

// pauseEntries returns entries for the starts and ends of the pauses that cover the job.
func (e *explanation) pauseEntries(from, to time.Time) []api.TimelineEntry {
	out := []api.TimelineEntry{}
	add := func(at time.Time, did, text string) {
		if !at.IsZero() && !at.Before(from) && !at.After(to) {
			out = append(out, api.TimelineEntry{At: api.At(at), What: "pause", Did: did, Text: text})
		}
	}

	agent := ""
	if e.job != nil {
		agent = e.job.Agent
	}

	for _, p := range e.pauses {
		if !p.Covers(e.name, agent, p.Since) {
			continue
		}

		about := api.ScopeText(p.Scope, p.Name)
		add(p.Since, "begins", fmt.Sprintf("%s (by the %s)", api.NewPause(p).Text(e.zone), p.By))
		// If another pause replaced this one, the job stayed paused.
		replaced := slices.ContainsFunc(e.pauses, func(q pause.Pause) bool {
			return q.ID > p.ID && q.Scope == p.Scope && q.Name == p.Name && q.Since.Equal(p.EndedAt)
		})
		switch {
		case p.EndedAt.IsZero():
			add(p.Until, "ends", about+" goes on")
		case !replaced:
			add(p.EndedAt, "ends", about+" was resumed")
		}
	}

	return out
}
