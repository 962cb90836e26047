package watcher

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"rouse/internal/ledger"
)

// BenchmarkDrop measures the time from a drop to its durable run, without the settle window.
// Compare it with BenchmarkFsnotify, which only receives the event.
func BenchmarkDrop(b *testing.B) {
	const window = 50 * time.Millisecond
	base := b.TempDir()
	l, err := ledger.Open(b.Context(), ledger.Options{Path: filepath.Join(base, "ledger.db")})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()

	w, err := New(Options{Ledger: l})
	if err != nil {
		b.Fatal(err)
	}

	inbox := filepath.Join(base, "inbox")
	if err := os.Mkdir(inbox, 0o755); err != nil {
		b.Fatal(err)
	}
	if err := w.Set(b.Context(), []Watch{{Job: "in", Path: inbox, Settle: window}}); err != nil {
		b.Fatal(err)
	}

	ctx, cancel := context.WithCancel(b.Context())
	over := make(chan error, 1)
	go func() { over <- w.Run(ctx) }()
	defer func() { cancel(); <-over }()

	<-w.Ready()
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		changed := l.Changed()
		began := time.Now()
		if err := os.WriteFile(filepath.Join(inbox, fmt.Sprint(i)), fmt.Append(nil, i), 0o644); err != nil {
			b.Fatal(err)
		}
		<-changed
		took = append(took, time.Since(began)-window)
	}

	reportSpeed(b, took)
}

// BenchmarkFsnotify measures the time until the event of a drop.
func BenchmarkFsnotify(b *testing.B) {
	dir := b.TempDir()
	w, err := fsnotify.NewWatcher()
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()

	if err := w.Add(dir); err != nil {
		b.Fatal(err)
	}

	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		name := filepath.Join(dir, fmt.Sprint(i))
		began := time.Now()
		if err := os.WriteFile(name, fmt.Append(nil, i), 0o644); err != nil {
			b.Fatal(err)
		}

		for e := range w.Events {
			if e.Name == name {
				break
			}
		}

		took = append(took, time.Since(began))
	}

	reportSpeed(b, took)
}

func reportSpeed(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkRescan scans a folder of 100,000 known files. Compare it with BenchmarkWalk, which only
// reads names and stamps with four goroutines.
func BenchmarkRescan(b *testing.B) {
	dir := manyFiles(b)
	f := newFolder(&Watcher{subs: newSubscriptions(nil, nil)}, Watch{Path: dir, Settle: time.Second})
	f.rootFound(dir)
	first := f.walk(b.Context(), dir, ".", nil)
	for _, s := range first.files {
		f.files.known.Put(f.files.stampHasher.Of(s.Path, s.Stamp), struct{}{})
	}

	for b.Loop() {
		if walk := f.walk(b.Context(), dir, ".", nil); len(walk.files) != 0 || len(first.files) != files {
			b.Fatalf("%d files, %d news", len(first.files), len(walk.files))
		}
	}
}

func BenchmarkWalk(b *testing.B) {
	dir := manyFiles(b)
	for b.Loop() {
		d, err := os.Open(dir)
		if err != nil {
			b.Fatal(err)
		}

		names, err := d.Readdirnames(-1)
		d.Close()
		if err != nil {
			b.Fatal(err)
		}

		var group sync.WaitGroup
		for i := range walkers {
			group.Go(func() {
				for j := i; j < len(names); j += walkers {
					if _, err := os.Lstat(filepath.Join(dir, names[j])); err != nil {
						b.Error(err)
					}
				}
			})
		}

		group.Wait()
	}
}

const files = 100_000

func manyFiles(b *testing.B) string {
	dir := b.TempDir()
	for i := range files {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%d.csv", i)), nil, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	return dir
}
