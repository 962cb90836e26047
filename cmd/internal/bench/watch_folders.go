package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"rouse/watcher"
)

// registration measures how long it takes until many folders are armed and read, against
// the bare system calls that find and arm them.
func (b *watchBench) registration(ctx context.Context) ([]Figure, error) {
	root := filepath.Join(b.base, "tree")
	dirs := []string{root}
	for i := range b.sizes.folders {
		above := root
		if i%100 > 0 { // each hundredth holds those that follow
			above = dirs[i-i%100+1]
		}
		dirs = append(dirs, filepath.Join(above, fmt.Sprint("d", i)))
	}

	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}

	defer os.RemoveAll(root)

	var ready, known, found []float64
	for pass := range b.passes {
		b.report("%d folders: pass %d of %d", b.sizes.folders, pass+1, b.passes)
		k, f, err := armBare(root, dirs)
		if err != nil {
			return nil, err
		}

		w, err := startWatching(ctx, filepath.Join(b.base, fmt.Sprint("tree", pass, ".db")), watcher.Options{},
			watcher.Watch{Job: "in", Agent: "a", Path: root, Recursive: true, Settle: fastSettle}, nil)
		if err != nil {
			return nil, err
		}
		if err := w.halt(); err != nil {
			return nil, err
		}

		ready, known, found = append(ready, milliseconds(w.ready)), append(known, milliseconds(k)), append(found, milliseconds(f))
	}

	// Only Linux has the baseline.
	out := Figure{Name: grouped(b.sizes.folders) + " folders: armed and read", Value: median(ready), Unit: "ms", Goal: "≤ 1.5× inotify", Met: true}
	if median(found) > 0 {
		b.report("%d folders: %.1f ms for the calls that arm them alone", b.sizes.folders, median(known))
		out.Baseline, out.Ratio = median(found), median(ratios(ready, found))
		out.Met = out.Ratio <= 1.5
	}

	return []Figure{out}, nil
}
