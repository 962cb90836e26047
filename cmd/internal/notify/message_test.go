package notify

import (
	"testing"

	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// OSA-80: a body that begins with its title loses that line; a body that only starts similarly is
// unchanged.
func TestNoTitleTwice(t *testing.T) {
	for _, c := range []struct{ title, body, want string }{
		{"clerk: 5 expenses", "5 expenses\nMost went to food", "Most went to food"},
		{"clerk: 5 expenses", "clerk: 5 expenses\n\nMost", "Most"},
		{"clerk: 5 Expenses", "5  expenses.\nMost", "Most"},
		{"clerk: 5 expenses", "5 expenses", ""},
		{"clerk: 5 expenses", "5 expenses more\nMost", "5 expenses more\nMost"},
		{"clerk: 5 expenses", "Most\n5 expenses", "Most\n5 expenses"},
		{"inbox: error", "no\nrouse show 7", "no\nrouse show 7"},
		{"", "\nx", "\nx"}, {"clerk: ", "x", "x"}, {"x", "", ""},
	} {
		if got := newMessage(ledger.Notice{Agent: "clerk", Title: c.title, Body: c.body}, "link"); got.Body != c.want || got.Link != "link" || got.Title != c.title {
			t.Errorf("%q and %q: %+v, want %q", c.title, c.body, got, c.want)
		}
	}
}

// OSA-80: the line below the text names the job and its outcome, or the agent, unless the title
// already does.
func TestSignature(t *testing.T) {
	for _, c := range []struct {
		n    ledger.Notice
		want string
	}{
		{ledger.Notice{Agent: "clerk", Job: "inbox", Outcome: domain.OutcomeSuccess, Title: "clerk: 5 expenses"}, "inbox: success"},
		{ledger.Notice{Agent: "clerk", Job: "inbox", Outcome: domain.OutcomeBudget, Title: "inbox: budget exceeded (3 times)"}, "agent clerk"},
		{ledger.Notice{Agent: "clerk", Job: "inbox", Title: "inbox is paused"}, "agent clerk"},
		{ledger.Notice{Agent: "clerk", Job: "clerk", Title: "clerk is paused"}, ""},
		{ledger.Notice{Agent: "clerk", Job: "inbox", Title: "5 expenses"}, "inbox"},
		{ledger.Notice{Agent: "clerk", Title: "clerk (wake): success"}, ""},
	} {
		if got := signature(c.n); got != c.want {
			t.Errorf("%+v: %q, want %q", c.n, got, c.want)
		}
	}
}
