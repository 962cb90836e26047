package file_test

import (
	"os"
	"path/filepath"
	"testing"

	"rouse/agent/tool"
	"rouse/internal/ledger/fileop"
)

// TestFolderGoneWhileWriting checks a write if the folder disappears right before the rename. The
// call must fail and no change may be recorded.
func TestFolderGoneWhileWriting(t *testing.T) {
	t.Parallel()
	b := newBench(t, writeFiles(t, map[string]string{"out/a.txt": "old"}))
	out := filepath.Join(b.dir, "out")
	b.onWrite = func() error {
		if err := os.RemoveAll(out); err != nil {
			return err
		}
		_, err := os.Lstat(out)
		return err
	}

	e, _ := b.run(t)("file_write", map[string]any{"path": "out/a.txt", "content": "new"})
	if e.OK || e.Kind != tool.KindNotFound || e.Uncertain {
		t.Errorf("%+v", e)
	}
	ops, err := b.ledger.FileOps.List(t.Context(), fileop.Filter{Run: b.last})
	if err != nil || len(ops) != 0 {
		t.Errorf("%+v, %v", ops, err)
	}
}
