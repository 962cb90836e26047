package api

import (
	"fmt"
	"strings"
	"time"

	"rouse/internal/ledger/pause"
	"rouse/internal/text"
)

// maxListed is the maximum number of names in a list.
const maxListed = 20

// ScopeText returns the scope of a pause in words, such as "everything" or "job inbox".
func ScopeText(scope, name string) string {
	if scope == pause.All {
		return "everything"
	}
	return scope + " " + name
}

// ScopeArgs returns the scope of a pause as command-line arguments, such as "--all", "inbox" or
// "--agent clerk".
func ScopeArgs(scope, name string) string {
	switch scope {
	case pause.All:
		return "--all"
	case pause.Agent:
		return "--agent " + name
	}
	return name
}

// Text describes the pause in one sentence, such as "job inbox is paused until …: holidays".
func (p Pause) Text(zone *time.Location) string {
	said := ScopeText(p.Scope, p.Name) + " is paused"
	if p.Until.IsZero() {
		said += " until somebody resumes it"
	} else {
		said += " until " + LocalTime(p.Until.Time, zone)
	}

	if p.Reason != "" {
		said += ": " + text.OneLine(p.Reason)
	}
	return said
}

// LocalTime formats a time for a sentence, in the given time zone.
func LocalTime(t time.Time, zone *time.Location) string {
	if t = t.In(zone); t.Second() != 0 {
		return t.Format("Mon 2006-01-02 15:04:05 MST")
	}
	return t.Format("Mon 2006-01-02 15:04 MST")
}

// Text describes the state of the watch, such as "idle" or "processing, run 2 of the folder, 3
// waiting".
func (w Watch) Text() string {
	said := w.State
	if w.Round > 0 {
		said += fmt.Sprintf(", run %d of the folder", w.Round)
	}

	if w.Waiting > 0 {
		said += fmt.Sprintf(", %d waiting", w.Waiting)
	}
	back := 0
	for _, f := range w.Waits {
		if f.Run != "" {
			back++
		}
	}
	if back > 0 {
		said += fmt.Sprintf(", %d back after they failed", back)
	}
	return said
}

// Summary lists the changes of a reload. It returns "" for a reload without changes.
func (r Reload) Summary() string {
	var parts []string
	for _, group := range []struct {
		what  string
		names []string
	}{{"added", r.Added}, {"changed", r.Changed}, {"removed", r.Removed}, {"also", r.Others}} {
		if len(group.names) > 0 {
			parts = append(parts, group.what+" "+text.List(group.names, maxListed))
		}
	}

	return strings.Join(parts, "; ")
}
