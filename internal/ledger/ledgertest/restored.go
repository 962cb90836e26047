package ledgertest

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/internal/ledger"
	"rouse/internal/ledger/event"
	"rouse/internal/ledger/fileop"
	"rouse/internal/ledger/maint"
	"rouse/internal/ledger/pause"
)

// restored tests a ledger that was restored from a backup of its home. It sends no old notices,
// pauses everything and does not reuse run IDs. File paths change to the new location of the home.
func restored(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	run := enqueue(t, l, manual("j"))[0].Run
	a := start(t, l, run)
	home, elsewhere := filepath.FromSlash("/old/h"), filepath.FromSlash("/old/house/x")
	for _, path := range []string{filepath.Join(home, "agents", "ü", "x"), elsewhere} {
		must[fileop.Op](t)(l.FileOps.Add(ctx, a, fileop.Op{Agent: "a", Batch: path, Type: fileop.Create, Root: filepath.Dir(path), Path: path, AfterHash: "h"}, nil))
	}
	ok(t, l.Outbox.Append(ctx, ledger.Notice{Channel: "c", Title: "t"}))
	before := l.ID()

	done := must[maint.Restored](t)(l.Maint.Restored(ctx, maint.RestoreSpec{From: "b", TakenAt: time.Now(), NewestRun: 40, Home: home, At: filepath.FromSlash("/new/höme"), Pause: true}))
	if done.Notices != 1 || done.Queued != 1 || l.ID() == before {
		t.Errorf("%+v, ledger %s and then %s", done, before, l.ID())
	}
	left := must[[]ledger.Notice](t)(l.Outbox.Undelivered(ctx, 10))
	if len(left) != 1 || left[0].State != ledger.NoticeFailed || !strings.Contains(left[0].Error, "it may have been delivered") {
		t.Errorf("notices: %+v", left)
	}
	pauses := must[[]pause.Pause](t)(l.Pauses.List(ctx, time.Now().Add(time.Minute)))
	if _, paused := pause.Paused(pauses, "j", "a", time.Now().Add(time.Second)); !paused {
		t.Errorf("pauses: %+v", pauses)
	}
	if next := enqueue(t, l, manual("j"))[0].Run; next != 41 {
		t.Errorf("the next run is %d", next)
	}

	if got := kinds(t, l, event.Filter{}); strings.Count(got, "home.restored") != 1 {
		t.Errorf("events: %s", got)
	}

	files := func() {
		t.Helper()
		var paths []string
		for _, op := range must[[]fileop.Op](t)(l.FileOps.List(ctx, fileop.Filter{Run: run})) {
			paths = append(paths, filepath.ToSlash(op.Root)+" "+filepath.ToSlash(op.Path))
		}
		if got, want := strings.Join(paths, "\n"), "/old/house /old/house/x\n/new/höme/agents/ü /new/höme/agents/ü/x"; got != want {
			t.Errorf("files:\n%s\nwant\n%s", got, want)
		}
	}
	files()

	// Paths stay unchanged if the old location of the home is unknown. The pause is optional.
	must[bool](t)(l.Pauses.End(ctx, pause.All, ""))
	must[maint.Restored](t)(l.Maint.Restored(ctx, maint.RestoreSpec{From: "b", TakenAt: time.Now(), At: filepath.FromSlash("/third")}))
	files()
	if pauses := must[[]pause.Pause](t)(l.Pauses.List(ctx, time.Now().Add(time.Minute))); len(pauses) != 0 {
		t.Errorf("pauses: %+v", pauses)
	}
}
