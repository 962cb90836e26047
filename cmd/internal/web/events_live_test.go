package web

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rouse/cmd/internal/api"
	"rouse/internal/progress"
)

// TestLiveEvent checks the live event for a client with an older state: the added text, the whole
// text, or only activity. Events are limited to two per second.
func TestLiveEvent(t *testing.T) {
	t.Parallel()
	at := func(try int, text string, bytes int64) progress.State {
		return progress.State{Run: 1, Step: 2, Try: try, Text: text, Bytes: bytes}
	}
	cut := at(1, "All", 9)
	cut.Cut = true
	calls := progress.State{Run: 1, Step: 2, Try: 1, Tool: "shell_run"}

	for name, c := range map[string]struct {
		was, is    progress.State
		kind, text string
	}{
		"nothing yet":             {progress.State{}, progress.State{}, "", "-"},
		"asked":                   {progress.State{}, at(1, "", 0), api.EventProgress, "-"},
		"something that is hid":   {at(1, "", 0), at(1, "", 5), api.EventProgress, "-"},
		"the same":                {at(1, "All", 5), at(1, "All", 5), "", "-"},
		"no more to read":         {at(1, "All", 5), at(1, "All", 9), api.EventProgress, "-"},
		"the first part":          {at(1, "", 5), at(1, "All", 9), api.EventDraft, "All"},
		"another part":            {at(1, "All", 5), at(1, "All is well", 9), api.EventOutput, " is well"},
		"begun again":             {at(1, "All", 5), at(2, "No", 2), api.EventDraft, "No"},
		"begun again in the same": {at(1, "All", 5), at(2, "All is", 6), api.EventDraft, "All is"},
		"broken off":              {at(1, "All", 5), at(2, "", 0), api.EventDraft, ""},
		"seen otherwise":          {at(1, "All sk", 5), at(1, "All [secret]", 9), api.EventDraft, "All [secret]"},
		"no more is kept":         {at(1, "All", 5), cut, api.EventDraft, "All"},
		"whole":                   {at(1, "All", 5), at(1, "", 5), "", "-"},
		"a call":                  {at(1, "", 5), calls, api.EventProgress, "-"},
	} {
		kind, data := liveEvent(c.was, c.is)
		text := "-"
		if data.Text != nil {
			text = *data.Text
		}
		if kind != c.kind || text != c.text {
			t.Errorf("%s: %q %q, want %q %q", strings.TrimSpace(name), kind, text, c.kind, c.text)
		}
	}

	synctest.Test(t, func(t *testing.T) {
		l := newLiveEvents(&progress.Tracker{})
		for _, want := range []time.Duration{0, 500 * time.Millisecond} {
			began := time.Now()
			if <-l.due(); time.Since(began) != want {
				t.Errorf("the next is due after %s, want %s", time.Since(began), want)
			}
			l.last = time.Now()
			l.wait()
		}
	})
}

// TestLiveChangesAreNotMissed checks that a stream does not miss a change if it wakes for another
// reason at the same time.
func TestLiveChangesAreNotMissed(t *testing.T) {
	t.Parallel()
	var board progress.Tracker
	run := board.Begin(1, "j", nil)
	defer run.End()

	l := newLiveEvents(&board)
	if l.changed() != nil {
		t.Error("what is to be sent at once is waited for")
	}
	if got := l.states(0, ""); len(got) != 1 {
		t.Fatalf("%d runs", len(got))
	}

	run.Ask(1)
	for range 2 { // the stream asks in each round
		select {
		case <-l.changed():
		default:
			t.Fatal("the change is not heard of")
		}
	}

	l.wait()
	if l.changed() != nil {
		t.Error("what is to be sent soon is waited for again")
	}
	if got := l.states(0, ""); got[0].Step != 1 {
		t.Errorf("%+v", got)
	}
	select {
	case <-l.changed():
		t.Error("what was read is told again")
	default:
	}
}
