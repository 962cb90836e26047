package ledgertest

import (
	"errors"
	"testing"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/label"
)

// labels tests that written data gets the labels of its run until the owner clears them. Labels are
// found by path, by identity, and from parents and contents, also after a restart.
func labels(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	file := func(path string, inode uint64) label.Place {
		p := label.Place{Kind: label.PlaceFile, Name: path}
		if inode != 0 {
			p.ID = label.FileID{Device: 1, Inode: inode, Born: 7}
		}
		return p
	}
	of := func(p ...label.Place) string {
		t.Helper()
		return must[string](t)(l.Labels.Of(ctx, p...))
	}

	run := enqueue(t, l, manual("j"))[0].Run
	a := start(t, l, run)
	if got := of(file("/", 0)); got != "" { // from here on, lookups use the cache
		t.Errorf("an empty ledger has the labels %q", got)
	}
	ok(t, l.Labels.RecordTaint(ctx, a, label.TaintUpdate{Taint: "C", Writes: []label.Place{file("/w/clean", 0)}}))
	ok(t, l.Labels.RecordTaint(ctx, a, label.TaintUpdate{Taint: "A", Writes: []label.Place{file("/w/in/note", 11), label.TablePlace("a", "t"), label.WorkspacePlace("a", "s", "n")}}))
	ok(t, l.Labels.RecordTaint(ctx, a, label.TaintUpdate{Taint: "B", Writes: []label.Place{file("/p", 0)}}))
	later := enqueue(t, l, manual("j"))[0].Run
	b := start(t, l, later)
	ok(t, l.Labels.RecordTaint(ctx, b, label.TaintUpdate{Taint: "A", Writes: []label.Place{file("/w/in/note", 12)}}))
	// An unknown identity does not replace a known one.
	ok(t, l.Labels.RecordTaint(ctx, b, label.TaintUpdate{Taint: "A", Writes: []label.Place{file("/w/in/note", 0)}}))

	for range 2 {
		through := file("/mount/note", 99)
		through.Above = []label.FileID{{Device: 1, Inode: 12, Born: 7}}
		for _, c := range []struct {
			place label.Place
			want  string
		}{
			{file("/w/clean", 0), ""}, {file("/w/in/note", 0), "A"}, {file("/w/in", 0), "A"}, {file("/", 0), "AB"}, {file("/w/in/note/x", 0), "A"},
			{file("/w/in/notes", 0), ""}, {file("/elsewhere", 12), "A"}, {file("/elsewhere", 0), ""}, {through, "A"},
			{label.Place{Kind: label.PlaceFile, Name: "/x", ID: label.FileID{Device: 1, Inode: 12, Born: 8}}, ""}, // inode reused by another file
			{file("/p/x/y", 0), "AB"}, {label.TablePlace("a", ""), "A"}, {label.TablePlace("a", "t"), "A"}, {label.TablePlace("a", "u"), ""}, {label.TablePlace("a", "t/x"), ""}, {label.TablePlace("b", ""), ""},
			{label.WorkspacePlace("a", "s", "n"), "A"}, {label.WorkspacePlace("a", "s", "m"), ""}, {label.WorkspacePlace("a", "", ""), "A"}, {label.WorkspacePlace("b", "", ""), ""},
		} {
			if got := of(c.place); got != c.want {
				t.Errorf("%+v has the labels %q, want %q", c.place, got, c.want)
			}
		}
		if lacks := must[[]label.Place](t)(l.Labels.Unlabelled(ctx, "A", []label.Place{file("/w/in/note", 12), file("/w/in/note", 13)})); len(lacks) != 1 || lacks[0].ID.Inode != 13 {
			t.Errorf("labels are missing at %+v", lacks)
		}
		l = open(t)
	}

	if lacks := must[[]label.Place](t)(l.Labels.Unlabelled(ctx, "ABC", []label.Place{file("/p", 0), file("/p", 5), file("/w/clean", 0)})); len(lacks) != 2 {
		t.Errorf("labels are missing at %+v", lacks)
	}
	if lacks := must[[]label.Place](t)(l.Labels.Unlabelled(ctx, "C", []label.Place{file("/new", 0)})); len(lacks) != 0 {
		t.Errorf("labels are missing at %+v", lacks)
	}
	if all := must[[]label.Label](t)(l.Labels.List(ctx)); len(all) != 5 || all[1].Name != "/p" || all[1].Run != run || all[3].Name != "a/t" {
		t.Errorf("%+v", all)
	}

	if _, err := l.Labels.Clear(ctx, "B", file("/w", 0)); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("there was no such label: %v", err)
	}
	if gone := must[[]label.Label](t)(l.Labels.Clear(ctx, "A", file("/w", 0), label.TablePlace("a", ""))); len(gone) != 2 || of(file("/", 0)) != "AB" || of(file("/w", 0), label.TablePlace("a", "")) != "" {
		t.Errorf("cleared %+v", gone)
	}

	ok(t, l.Labels.RecordTaint(ctx, a, label.TaintUpdate{Taint: "A", Writes: []label.Place{file("/w/before", 33)}}))
	if gone := must[[]label.Label](t)(l.Labels.Clear(ctx, "A", file("/w/renamed", 33))); len(gone) != 1 || gone[0].Name != "/w/before" {
		t.Errorf("of a file that was renamed there were cleared %+v", gone)
	}

	ok(t, l.Finish(ctx, a, ledger.Result{Outcome: domain.OutcomeSuccess}))
	if err := l.Labels.RecordTaint(ctx, a, label.TaintUpdate{Taint: "A", Writes: []label.Place{file("/late", 0)}}); !errors.Is(err, ledger.ErrFenced) || of(file("/late", 0)) != "" {
		t.Errorf("a label of an attempt that is over: %v", err)
	}
}
