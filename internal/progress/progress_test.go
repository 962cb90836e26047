package progress_test

import (
	"strings"
	"testing"

	"rouse/internal/progress"
)

// whole is a Cleaner that returns the whole text.
type whole struct{}

func (whole) Begun(text string) string { return text }

// TestBoard: the newest state of each run, with limits, and no state of a finished run (OSA-26).
func TestBoard(t *testing.T) {
	t.Parallel()
	var b progress.Tracker
	r := b.Begin(7, "report", whole{})
	b.Begin(8, "other", whole{})
	one := func() progress.State {
		t.Helper()
		states := b.States(7, "report")
		if len(states) != 1 {
			t.Fatalf("%+v", states)
		}
		return states[0]
	}

	changed := b.Changed()
	r.Ask(1)
	select {
	case <-changed:
	default:
		t.Error("nobody is told of a change")
	}
	r.Text(1, "All ")
	r.Text(2, "of another step")
	r.Text(1, "is well.")
	r.Arrived(12)
	first := one()
	if first.Text != "All is well." || first.Step != 1 || first.Bytes != 12 || first.Tool != "" {
		t.Errorf("%+v", first)
	}

	r.Ask(1) // again, because the first response was cut off
	r.Text(1, "Some")
	if s := one(); s.Text != "Some" || s.Try == first.Try {
		t.Errorf("%+v", s)
	}
	r.Answered(1)
	r.Call(1, "shell_run")
	if s := one(); s.Text != "" || s.Tool != "shell_run" {
		t.Errorf("%+v", s)
	}

	r.Ask(2)
	r.Text(2, strings.Repeat("x", progress.MaxText))
	r.Text(2, "y")
	r.Text(2, "z")
	if s := one(); len(s.Text) != progress.MaxText || !s.Cut {
		t.Errorf("%d bytes are held, cut: %v", len(s.Text), s.Cut)
	}

	if all := b.States(0, ""); len(all) != 2 || all[0].Run != 7 || all[1].Run != 8 {
		t.Errorf("%+v", all)
	}
	again := b.Begin(7, "report", whole{}) // the next attempt
	r.End()
	if one(); len(b.States(0, "")) != 2 {
		t.Error("the end of an attempt took the next one off")
	}
	again.End()
	if left := b.States(0, ""); len(left) != 1 {
		t.Errorf("%+v", left)
	}
}

// A nil Run does nothing.
func TestNobodyLooks(t *testing.T) {
	t.Parallel()
	var none *progress.Tracker
	r := none.Begin(1, "", nil)
	r.Ask(1)
	r.Text(1, "a")
	r.Arrived(1)
	progress.From(r.With(t.Context())).End()
	progress.From(t.Context()).Call(1, "x")
}
