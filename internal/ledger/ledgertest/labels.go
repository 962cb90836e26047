package ledgertest

import (
	"errors"
	"testing"

	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// labels: what a run writes has its labels from then on, by path, by identity and for what lies above and
// below, in every ledger that is opened later, until its owner takes them away.
func labels(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	file := func(path string, inode uint64) ledger.Place {
		p := ledger.Place{Kind: ledger.PlaceFile, Name: path}
		if inode != 0 {
			p.ID = ledger.FileID{Device: 1, Inode: inode, Born: 7}
		}
		return p
	}
	of := func(p ...ledger.Place) string {
		t.Helper()
		return must[string](t)(l.LabelsOf(ctx, p...))
	}

	run := enqueue(t, l, manual("j"))[0].Run
	a := start(t, l, run)
	if got := of(file("/", 0)); got != "" { // from here on the answers are remembered
		t.Errorf("an empty ledger has the labels %q", got)
	}
	ok(t, l.RecordTaint(ctx, a, ledger.TaintUpdate{Taint: "C", Writes: []ledger.Place{file("/w/clean", 0)}}))
	ok(t, l.RecordTaint(ctx, a, ledger.TaintUpdate{Taint: "A", Writes: []ledger.Place{file("/w/in/note", 11), ledger.TablePlace("a", "t"), ledger.WorkspacePlace("a", "s", "n")}}))
	ok(t, l.RecordTaint(ctx, a, ledger.TaintUpdate{Taint: "B", Writes: []ledger.Place{file("/p", 0)}}))
	later := enqueue(t, l, manual("j"))[0].Run
	b := start(t, l, later)
	ok(t, l.RecordTaint(ctx, b, ledger.TaintUpdate{Taint: "A", Writes: []ledger.Place{file("/w/in/note", 12)}}))
	ok(t, l.RecordTaint(ctx, b, ledger.TaintUpdate{Taint: "A", Writes: []ledger.Place{file("/w/in/note", 0)}})) // what is not known takes nothing away

	for range 2 {
		through := file("/mount/note", 99)
		through.Above = []ledger.FileID{{Device: 1, Inode: 12, Born: 7}}
		for _, c := range []struct {
			place ledger.Place
			want  string
		}{
			{file("/w/clean", 0), ""}, {file("/w/in/note", 0), "A"}, {file("/w/in", 0), "A"}, {file("/", 0), "AB"}, {file("/w/in/note/x", 0), "A"},
			{file("/w/in/notes", 0), ""}, {file("/elsewhere", 12), "A"}, {file("/elsewhere", 0), ""}, {through, "A"},
			{ledger.Place{Kind: ledger.PlaceFile, Name: "/x", ID: ledger.FileID{Device: 1, Inode: 12, Born: 8}}, ""}, // used again
			{file("/p/x/y", 0), "AB"}, {ledger.TablePlace("a", ""), "A"}, {ledger.TablePlace("a", "t"), "A"}, {ledger.TablePlace("a", "u"), ""}, {ledger.TablePlace("a", "t/x"), ""}, {ledger.TablePlace("b", ""), ""},
			{ledger.WorkspacePlace("a", "s", "n"), "A"}, {ledger.WorkspacePlace("a", "s", "m"), ""}, {ledger.WorkspacePlace("a", "", ""), "A"}, {ledger.WorkspacePlace("b", "", ""), ""},
		} {
			if got := of(c.place); got != c.want {
				t.Errorf("%+v has the labels %q, want %q", c.place, got, c.want)
			}
		}
		if lacks := must[[]ledger.Place](t)(l.Unlabelled(ctx, "A", []ledger.Place{file("/w/in/note", 12), file("/w/in/note", 13)})); len(lacks) != 1 || lacks[0].ID.Inode != 13 {
			t.Errorf("labels are missing at %+v", lacks)
		}
		l = open(t)
	}

	if lacks := must[[]ledger.Place](t)(l.Unlabelled(ctx, "ABC", []ledger.Place{file("/p", 0), file("/p", 5), file("/w/clean", 0)})); len(lacks) != 2 {
		t.Errorf("labels are missing at %+v", lacks)
	}
	if lacks := must[[]ledger.Place](t)(l.Unlabelled(ctx, "C", []ledger.Place{file("/new", 0)})); len(lacks) != 0 {
		t.Errorf("labels are missing at %+v", lacks)
	}
	if all := must[[]ledger.Label](t)(l.Labels(ctx)); len(all) != 5 || all[1].Name != "/p" || all[1].Run != run || all[3].Name != "a/t" {
		t.Errorf("%+v", all)
	}

	if _, err := l.ClearLabel(ctx, "B", file("/w", 0)); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("there was no such label: %v", err)
	}
	if gone := must[[]ledger.Label](t)(l.ClearLabel(ctx, "A", file("/w", 0), ledger.TablePlace("a", ""))); len(gone) != 2 || of(file("/", 0)) != "AB" || of(file("/w", 0), ledger.TablePlace("a", "")) != "" {
		t.Errorf("cleared %+v", gone)
	}

	ok(t, l.RecordTaint(ctx, a, ledger.TaintUpdate{Taint: "A", Writes: []ledger.Place{file("/w/before", 33)}}))
	if gone := must[[]ledger.Label](t)(l.ClearLabel(ctx, "A", file("/w/renamed", 33))); len(gone) != 1 || gone[0].Name != "/w/before" {
		t.Errorf("of a file that was renamed there were cleared %+v", gone)
	}

	ok(t, l.Finish(ctx, a, ledger.Result{Outcome: domain.OutcomeSuccess}))
	if err := l.RecordTaint(ctx, a, ledger.TaintUpdate{Taint: "A", Writes: []ledger.Place{file("/late", 0)}}); !errors.Is(err, ledger.ErrFenced) || of(file("/late", 0)) != "" {
		t.Errorf("a label of an attempt that is over: %v", err)
	}
}
