package watcher

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"rouse/internal/ledger"
	"rouse/watcher/fsys"
	"rouse/watcher/settle"
)

// readOnce returns the hash of a named file. It returns a settle.NotReadyError if the file is not
// ready.
func readOnce(ctx context.Context, w *Watch, path string, now fsys.Stamp) (string, error) {
	file, err := fsys.OpenHandle(w.Boundary, path)
	if err != nil {
		return "", err
	}
	defer file.Root.Close()

	if err := settle.CheckReady(file, now, w.OwnFolder, w.TakeOpen); err != nil {
		return "", err
	}
	if now.Size == 0 {
		if err := settle.CheckEmpty(file, settle.PartialNames{}); err != nil {
			return "", err
		}
	}
	return fsys.NewHashes().Of(ctx, file, now)
}

// EnqueueFile queues a run for a named file. It makes the same claim as for a dropped file. If the
// content already had a run, it gets another one only if again is set. EnqueueFile returns an error
// if the file is not ready.
func EnqueueFile(ctx context.Context, l *ledger.Ledger, w Watch, path string, again bool) (ledger.Accepted, error) {
	// Claims use real paths. A scan resolves links as well.
	abs, err := w.Boundary.Resolve(path)
	if err != nil {
		return ledger.Accepted{}, fmt.Errorf("the file cannot be read: %w", err)
	}

	info, err := w.Boundary.Stat(abs)
	if err != nil {
		return ledger.Accepted{}, fmt.Errorf("the file cannot be read: %w", err)
	}
	if !info.Mode().IsRegular() {
		return ledger.Accepted{}, fmt.Errorf("%s is not a file", path)
	}
	if !utf8.ValidString(abs) {
		return ledger.Accepted{}, fmt.Errorf("the name of %q is not UTF-8; rename it", path)
	}

	now := fsys.StampOf(info)
	hash, err := readOnce(ctx, &w, abs, now)
	if _, held := errors.AsType[*settle.NotReadyError](err); held {
		return ledger.Accepted{}, fmt.Errorf("%s is not taken: %w", path, err)
	}
	if errors.Is(err, fsys.ErrChanged) {
		return ledger.Accepted{}, fmt.Errorf("%s is still being written; try again once it is complete", path)
	}
	if err != nil {
		return ledger.Accepted{}, fmt.Errorf("the file cannot be read: %w", err)
	}

	r := request(w, abs, now, hash)
	r.Named, r.Again = true, again
	accepted, err := l.Enqueue(ctx, r)
	if err != nil {
		return ledger.Accepted{}, err
	}

	return accepted[0], nil
}
