package ledgertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/fileop"
)

// fileOps tests that file changes and previous contents are stored unchanged, whatever their bytes.
// They survive a restart and are deleted with their run.
func fileOps(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	run := enqueue(t, l, manual("j"))[0].Run
	a := start(t, l, run)
	// odd contains bytes that a text column cannot store. large is too large for the database and
	// goes to a file.
	odd, large := []byte("a\x00\xff"), bytes.Repeat([]byte("0123456789"), 20_000)
	var ids []int64
	for i, before := range [][]byte{nil, odd, large} {
		op := fileop.Op{Agent: "clerk", Batch: fmt.Sprint("k", i), Type: fileop.Write, Root: "/w", Path: fmt.Sprintf("/w/%d", i%2), Mode: 0o640, Size: int64(len(before)), AfterHash: "h"}
		if before == nil {
			op.Type, op.CreatedFolder = fileop.Create, "/w/new"
		} else {
			op.BeforeHash = "b"
		}

		added := must[fileop.Op](t)(l.FileOps.Add(ctx, a, op, before))
		ids = append(ids, added.ID)
		read := must[[]fileop.Op](t)(open(t).FileOps.List(ctx, fileop.Filter{ID: added.ID}))
		if len(read) != 1 || fmt.Sprintf("%+v", read[0]) != fmt.Sprintf("%+v", added) || read[0].Run != run || read[0].At.IsZero() {
			t.Errorf("added %+v, read %+v", added, read)
		}
		if kept := must[[]byte](t)(open(t).FileOps.Before(ctx, added.ID)); !bytes.Equal(kept, before) {
			t.Errorf("change %d: %d bytes became %d", i, len(before), len(kept))
		}
	}

	if n := must[int64](t)(l.FileOps.SavedBytes(ctx, run)); n != int64(len(odd)+len(large)) {
		t.Errorf("%d bytes are kept", n)
	}

	lost := must[fileop.Op](t)(l.FileOps.Add(ctx, a, fileop.Op{Agent: "clerk", Type: fileop.Write, Root: "/w", Path: "/w/9", Size: 1 << 40, BeforeHash: "b", AfterHash: "h", NoUndoReason: "too large"}, large))
	if kept := must[[]byte](t)(l.FileOps.Before(ctx, lost.ID)); len(kept) != 0 {
		t.Errorf("%d bytes are kept of a change that cannot be undone", len(kept))
	}
	if n := must[int64](t)(l.FileOps.SavedBytes(ctx, run)); n != int64(len(odd)+len(large)) {
		t.Errorf("with one that is not kept, %d bytes are", n)
	}

	filterFileOps(t, l, run, ids, lost.ID)
	ok(t, l.FileOps.MarkUndone(ctx, ids[1]))
	if op := must[[]fileop.Op](t)(l.FileOps.List(ctx, fileop.Filter{ID: ids[1]}))[0]; op.UndoneAt.IsZero() {
		t.Errorf("not undone: %+v", op)
	}
	if err := l.FileOps.MarkUndone(ctx, ids[1]); err == nil {
		t.Error("one change was undone twice")
	}

	ok(t, l.FileOps.Delete(ctx, lost.ID))
	if _, err := l.FileOps.Before(ctx, lost.ID); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("a change that was dropped: %v", err)
	}
	if _, err := l.FileOps.Add(ctx, ledger.Attempt{Run: run, Number: 7}, fileop.Op{Path: "/w/x"}, nil); !errors.Is(err, ledger.ErrFenced) {
		t.Errorf("an attempt that is not the running one: %v", err)
	}

	ok(t, l.Finish(ctx, a, ledger.Result{Outcome: domain.OutcomeSuccess}))
	must[int](t)(l.Maint.Prune(context.WithoutCancel(ctx), time.Now().Add(2*time.Hour), func(string) time.Duration { return time.Hour }))
	if left := must[[]fileop.Op](t)(l.FileOps.List(ctx, fileop.Filter{})); len(left) != 0 {
		t.Errorf("left of a run that is forgotten: %+v", left)
	}
}

// filterFileOps lists the three changes of fileOps and the one that cannot be undone, with
// different filters.
func filterFileOps(t *testing.T, l *ledger.Ledger, run int64, ids []int64, lost int64) {
	t.Helper()
	for _, c := range []struct {
		f    fileop.Filter
		want []int64
	}{
		{fileop.Filter{Run: run}, []int64{lost, ids[2], ids[1], ids[0]}},
		{fileop.Filter{Agent: "clerk", Path: "/w/0", Limit: -1}, []int64{ids[2], ids[0]}},
		{fileop.Filter{Run: run, Batch: "k1"}, []int64{ids[1]}},
		{fileop.Filter{Agent: "clerk", Limit: 1}, []int64{lost}},
		{fileop.Filter{Agent: "other"}, nil}, {fileop.Filter{Run: run + 1}, nil},
	} {
		var got []int64
		for _, op := range must[[]fileop.Op](t)(l.FileOps.List(t.Context(), c.f)) {
			got = append(got, op.ID)
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%+v gave %v, want %v", c.f, got, c.want)
		}
	}
}
