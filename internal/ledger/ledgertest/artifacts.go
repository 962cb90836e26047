package ledgertest

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/artifact"
)

// artifacts tests that artifacts are stored unchanged until their run is deleted, once for each
// call. Each name has a chain of versions in its job.
func artifacts(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	first := start(t, l, enqueue(t, l, manual("j"))[0].Run)
	share := func(a ledger.Attempt, key, name string, content []byte) artifact.Artifact {
		t.Helper()
		return must[artifact.Artifact](t)(l.Artifacts.Add(ctx, a, artifact.Artifact{Agent: "clerk", Key: key, Name: name, Description: "of " + name}, content))
	}
	odd, large := []byte("a\x00\xff"), bytes.Repeat([]byte("0123456789"), 20_000)
	one := share(first, "k1", "report.md", odd)
	two := share(first, "k2", "report.md", large)
	other := share(first, "k3", "other.md", nil)
	if again := share(first, "k1", "report.md", large); fmt.Sprintf("%+v", again) != fmt.Sprintf("%+v", one) {
		t.Errorf("a call that was made again gave %+v, before %+v", again, one)
	}
	if one.Version != 1 || one.Parent != 0 || two.Version != 2 || two.Parent != one.ID || other.Version != 1 || one.Job != "j" {
		t.Errorf("%+v\n%+v\n%+v", one, two, other)
	}

	recorded(t, l, first.Run, "artifact.shared", `"name":"other.md"`)

	read := must[[]artifact.Artifact](t)(open(t).Artifacts.List(ctx, first.Run))
	if want := []artifact.Artifact{one, two, other}; fmt.Sprintf("%+v", read) != fmt.Sprintf("%+v", want) {
		t.Errorf("read\n%+v, want\n%+v", read, want)
	}

	for id, want := range map[int64][]byte{one.ID: odd, two.ID: large, other.ID: nil} {
		if a, got, err := open(t).Artifacts.Bytes(ctx, first.Run, id); err != nil || !bytes.Equal(got, want) || a.Size != int64(len(want)) {
			t.Errorf("artifact %d: %d bytes of %+v, want %d: %v", id, len(got), a, len(want), err)
		}
	}

	if _, _, err := l.Artifacts.Bytes(ctx, first.Run+1, one.ID); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("of a run that is not its own: %v", err)
	}

	ok(t, l.Finish(ctx, first, ledger.Result{Outcome: domain.OutcomeSuccess}))
	if _, err := l.Artifacts.Add(ctx, first, artifact.Artifact{Key: "k9", Name: "late"}, nil); !errors.Is(err, ledger.ErrFenced) {
		t.Errorf("of an attempt that is over: %v", err)
	}

	second := start(t, l, enqueue(t, l, manual("j"))[0].Run)
	if three := share(second, "k1", "report.md", odd); three.Version != 3 || three.Parent != two.ID {
		t.Errorf("the next run's: %+v", three)
	}
	third := start(t, l, enqueue(t, l, manual("k"))[0].Run)
	if foreign := share(third, "k1", "report.md", odd); foreign.Version != 1 {
		t.Errorf("another job's: %+v", foreign)
	}
	if all := must[[]artifact.Artifact](t)(l.Artifacts.List(ctx, first.Run, second.Run, third.Run)); len(all) != 5 || all[4].Run != third.Run {
		t.Errorf("of three runs: %+v", all)
	}

	must[int](t)(l.Maint.Prune(ctx, time.Now().Add(2*time.Hour), func(string) time.Duration { return time.Hour }))
	if left := must[[]artifact.Artifact](t)(l.Artifacts.List(ctx, first.Run, second.Run)); len(left) != 1 || left[0].Run != second.Run {
		t.Errorf("left after the first run is forgotten: %+v", left)
	}
	if four := share(second, "k2", "report.md", nil); four.Version != 4 {
		t.Errorf("after that: %+v", four)
	}
}
