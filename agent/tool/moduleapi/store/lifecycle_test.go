package store_test

import (
	"path/filepath"
	"testing"

	"rouse/agent/tool/moduleapi/store"
)

// Only the run that has claimed the hooks can record their calls. The record is available to the
// next run, also after a crash (OSL-06).
func TestLifecycle(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "clerk", "sums.db")
	h := store.New(path, "e1")
	goesOn := func(int64) (bool, error) { return false, nil }
	if l, err := h.Lifecycle(t.Context()); l != (store.Lifecycle{}) || err != nil {
		t.Errorf("%+v %v", l, err)
	}

	if _, by, err := h.ClaimHooks(t.Context(), 1, goesOn); by != 0 || err != nil {
		t.Fatal(by, err)
	}
	if _, by, err := h.ClaimHooks(t.Context(), 2, goesOn); by != 1 || err != nil {
		t.Errorf("claimed by %d, %v", by, err)
	}
	told := store.Lifecycle{Version: "1.0.0", Enabled: true, Config: "c"}
	if err := h.NoteHooks(t.Context(), 2, told, false); err == nil {
		t.Error("a run noted what another one has claimed")
	}
	if err := h.NoteHooks(t.Context(), 1, told, false); err != nil {
		t.Fatal(err)
	}

	// After a crash, the claim remains and the same run can continue.
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h = store.New(path, "e1")
	if l, by, err := h.ClaimHooks(t.Context(), 1, goesOn); l != told || by != 0 || err != nil {
		t.Errorf("%+v %d %v", l, by, err)
	}
	if err := h.NoteHooks(t.Context(), 1, told, true); err != nil {
		t.Fatal(err)
	}
	if l, by, err := h.ClaimHooks(t.Context(), 2, goesOn); l != told || by != 0 || err != nil {
		t.Errorf("%+v %d %v", l, by, err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}
