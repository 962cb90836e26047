package ledgertest

import (
	"testing"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/event"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/label"
)

// identity tests that a ledger has an ID from its first opening. A new epoch gets a new ID, and its
// run IDs are above all known ones. Existing runs keep their epoch.
func identity(t *testing.T, open Open) {
	l := open(t)
	first := l.ID()
	if again := open(t).ID(); len(first) != 32 || again != first {
		t.Fatalf("the id is %q, and %q when it is opened again", first, again)
	}
	if n := must[int64](t)(l.NewestRun(t.Context())); n != 0 {
		t.Errorf("a new ledger has given the run id %d", n)
	}

	old := enqueue(t, l, manual("j"), manual("j"))[1].Run
	if n := must[int64](t)(l.NewestRun(t.Context())); n != old {
		t.Errorf("the newest run is %d, not %d", n, old)
	}

	ok(t, l.BeginEpoch(t.Context(), old+5))
	for _, l := range []*ledger.Ledger{l, open(t)} {
		second := l.ID()
		if second == first || len(l.Epochs()) != 2 || l.EpochOf(old).ID != first || l.EpochOf(old+6).ID != second {
			t.Errorf("epochs: %+v", l.Epochs())
		}
		if e, known := l.Epoch(first); !known || e != (domain.Epoch{ID: first, First: 1, Last: old}) {
			t.Errorf("the first epoch: %+v, %v", e, known)
		}
	}
	if next := enqueue(t, l, manual("j"))[0].Run; next != old+6 {
		t.Errorf("the first run of the new epoch is %d, not %d", next, old+6)
	}

	// If the ledger knows the highest run ID, it continues with the next one.
	ok(t, l.BeginEpoch(t.Context(), 1))
	if next := enqueue(t, l, manual("j"))[0].Run; next != old+7 || l.EpochOf(next).ID != l.ID() {
		t.Errorf("the run after it is %d: %+v", next, l.Epochs())
	}
}

// touch tests that Touch proves that the ledger accepts writes, without changing data or waking
// waiters.
func touch(t *testing.T, open Open) {
	l := open(t)
	run := enqueue(t, l, manual("j"))[0].Run
	before, events := l.ID(), must[int64](t)(l.Events.Newest(t.Context()))
	changed := l.Changed()

	ok(t, l.Touch(t.Context()))
	select {
	case <-changed:
		t.Error("somebody is told of a change")
	default:
	}
	if l.ID() != before || must[int64](t)(l.Events.Newest(t.Context())) != events || l.EpochOf(run).ID != before || open(t).ID() != before {
		t.Errorf("it changed something: %+v", l.Epochs())
	}

	ok(t, l.Close())
	if err := l.Touch(t.Context()); err == nil {
		t.Error("a ledger that is closed takes what is written")
	}
}

// databaseItems tests that the owner of an agent is asked about its database once until the item is
// closed.
func databaseItems(t *testing.T, open Open) {
	l := open(t)
	for range 2 {
		ok(t, l.Inbox.AskAboutDatabase(t.Context(), "a", "title", "text"))
	}
	ok(t, l.Inbox.AskAboutDatabase(t.Context(), "b", "title", "text"))

	items := must[[]inbox.Item](t)(l.Inbox.List(t.Context()))
	if len(items) != 2 || items[0].Kind != inbox.KindDatabase || items[0].Agent != "a" || items[0].Run != 0 {
		t.Fatalf("%+v", items)
	}
	if due := must[[]inbox.Item](t)(l.Inbox.Overdue(t.Context(), items[0].CreatedAt.AddDate(1, 0, 0))); len(due) != 0 {
		t.Errorf("it expires: %+v", due)
	}

	if got := kinds(t, l, event.Filter{}); got != "database.asked database.asked" {
		t.Errorf("events: %s", got)
	}

	for _, want := range []string{"", "AB"} { // the second look comes after the labels are cached
		if got := must[string](t)(l.Labels.Of(t.Context(), label.TablePlace("a", "t"))); got != want {
			t.Errorf("the database has the labels %q, want %q", got, want)
		}
		ok(t, l.Labels.Adopted(t.Context(), "a"))
	}
	ok(t, l.Labels.Adopted(t.Context(), "nobody asks"))
	if labels := must[[]label.Label](t)(l.Labels.List(t.Context())); len(labels) != 2 || labels[0].Name != "a" || labels[0].Letter+labels[1].Letter != "AB" || labels[0].Run != 0 {
		t.Errorf("the adopted database has the labels %+v", labels)
	}

	ok(t, l.Inbox.CloseDatabaseItems(t.Context(), "a", inbox.DatabaseAdopt))
	ok(t, l.Inbox.CloseDatabaseItems(t.Context(), "b", ""))
	for i, want := range []string{inbox.ItemAnswered, inbox.ItemWithdrawn} {
		if got := must[inbox.Item](t)(l.Inbox.Get(t.Context(), items[i].ID)); got.State != want {
			t.Errorf("item %d is %s, not %s", got.ID, got.State, want)
		}
	}

	ok(t, l.Inbox.AskAboutDatabase(t.Context(), "a", "title", "text"))
	if items = must[[]inbox.Item](t)(l.Inbox.List(t.Context())); len(items) != 1 {
		t.Errorf("it is not asked again: %+v", items)
	}
}
