package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// creators are the goroutines that create files at once.
const creators = 4

// createFiles makes small files of different contents as fast as it can.
func createFiles(dir, prefix string, n int) error {
	errs := make([]error, creators)
	var group sync.WaitGroup
	for i := range errs {
		group.Go(func() {
			for j := i; j < n && errs[i] == nil; j += creators {
				name := fmt.Sprint(prefix, j, ".csv")
				errs[i] = os.WriteFile(filepath.Join(dir, name), fmt.Append(nil, "name\n", name, "\n"), 0o644)
			}
		})
	}

	group.Wait()
	return errors.Join(errs...)
}

// burst creates many files at once and waits for the runs of all of them, which do nothing.
func (b *watchBench) burst(ctx context.Context) ([]Figure, error) {
	n, lost := b.sizes.burst, 0
	var took, created, peaks []float64
	for pass := range b.passes {
		b.report("%d files at once: pass %d of %d", n, pass+1, b.passes)
		c, err := b.startChild(ctx, fmt.Sprint("burst", pass))
		if err != nil {
			return nil, err
		}

		begin := time.Now()
		err = createFiles(c.inbox, "f", n)
		made := time.Since(begin).Seconds()
		var now observed
		if err == nil {
			_, err = c.until(ctx, func(now observed) bool {
				// There may be more runs than files: one that was seen while it was empty has a second.
				return now.Started >= int64(n) && now.Started == now.Accepted && now.Waiting == 0
			})
		}

		all := time.Since(begin).Seconds()
		if err == nil {
			now, err = c.ask("lost")
		}
		if err := errors.Join(err, c.stop(), os.RemoveAll(c.dir)); err != nil {
			return nil, err
		}

		lost += len(now.Lost)
		took, created, peaks = append(took, all), append(created, made), append(peaks, now.Peak)
	}

	what := "burst of " + grouped(n) + " files: "
	return withPeak(what, median(peaks),
		Figure{what + "without exactly one run", float64(lost), 0, "files", 0, "0", lost == 0},
		Figure{what + "all runs started", median(took), median(created), "s, of creating", median(ratios(took, created)), "", true}), nil
}

// withPeak adds how much memory a process took at most, where the system tells.
func withPeak(what string, peak float64, figures ...Figure) []Figure {
	if peak == 0 {
		return figures
	}
	return append(figures, Figure{what + "memory at its peak", peak, 0, "MB", 0, "< 200 MB", peak < 200})
}

// overflow suspends a process while more files come than its queue of events holds. When it
// goes on it has to find them by a scan of the folder.
func (b *watchBench) overflow(ctx context.Context) (_ []Figure, err error) {
	defer os.RemoveAll(filepath.Join(b.base, "overflow"))
	found, err := b.surprises(ctx)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}

	scanned, err := b.rescans(ctx)
	return append(found, scanned...), err
}

func (b *watchBench) surprises(ctx context.Context) (_ []Figure, err error) {
	c, err := b.startChild(ctx, "overflow", "--no-runs")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()

	b.report("%d files while events are lost", b.sizes.scan)
	now, err := c.surprise(ctx, "f", b.sizes.scan)
	if err != nil {
		return nil, err
	}

	lost, old := len(now.Lost), "f"
	for pass := range b.passes {
		b.report("%d of %d files while events are lost: pass %d of %d", b.sizes.lost, b.sizes.scan, pass+1, b.passes)
		// The folder keeps its size: as many go as come.
		for i := range b.sizes.lost {
			if err := os.Remove(filepath.Join(c.inbox, fmt.Sprint(old, i, ".csv"))); err != nil {
				return nil, err
			}
		}

		old = fmt.Sprint("more", pass, "-")
		before := now
		if now, err = c.surprise(ctx, old, b.sizes.lost); err != nil {
			return nil, err
		}

		lost += len(now.Lost)
		// Otherwise all events arrived and the scan, which this is about, was never needed.
		if now.Scans == before.Scans {
			return nil, errors.New("no events were lost; is fs.inotify.max_queued_events raised?")
		}
	}

	// Runs of files that were removed again count too: each pass removes as many as it creates.
	lost += int(now.Accepted) - b.sizes.scan - b.passes*b.sizes.lost
	return []Figure{{"lost events: files without exactly one run", float64(lost), 0, "files", 0, "0", lost == 0}}, nil
}

// rescans measures how long a scan of a folder takes whose files are all known.
func (b *watchBench) rescans(ctx context.Context) (_ []Figure, err error) {
	const every = 2 * time.Second // after the end of the scan before
	c, err := b.startChild(ctx, "overflow", "--no-runs", "--rescan", every.String())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()

	if _, err := c.until(ctx, func(now observed) bool { return now.Waiting == 0 }); err != nil {
		return nil, err
	}

	before, err := c.rescan(ctx, time.Time{})
	var scans, walks []float64
	for pass := 0; pass < b.passes && err == nil; pass++ {
		b.report("scan of %d files: pass %d of %d", b.sizes.scan, pass+1, b.passes)
		var end time.Time
		if end, err = c.rescan(ctx, before); err != nil {
			break
		}

		var walk observed
		if walk, err = c.ask("walk"); err == nil && walk.Files != b.sizes.scan {
			err = fmt.Errorf("the walk met %d of %d files", walk.Files, b.sizes.scan)
		}

		scans, walks = append(scans, milliseconds(end.Sub(before)-every)), append(walks, walk.Walk)
		before = end
	}
	if err != nil {
		return nil, err
	}

	r := median(ratios(scans, walks))
	return []Figure{{"scan of " + grouped(b.sizes.scan) + " files that are known", median(scans), median(walks), "ms", r, "≤ 2× a bare walk", r <= 2}}, nil
}

// rescan waits for the end of the first scan after one.
func (c *watchChild) rescan(ctx context.Context, before time.Time) (time.Time, error) {
	if before.IsZero() {
		now, err := c.ask("")
		if err != nil {
			return before, err
		}
		before = now.Rescanned
	}

	now, err := c.until(ctx, func(now observed) bool { return now.Rescanned.After(before) })
	return now.Rescanned, err
}

// surprise creates files while the process is suspended, and waits until all were accepted.
func (c *watchChild) surprise(ctx context.Context, prefix string, n int) (observed, error) {
	before, err := c.ask("")
	if err != nil {
		return before, err
	}
	if err := suspend(c.process.Process); err != nil {
		return before, err
	}

	err = createFiles(c.inbox, prefix, n)
	if err := errors.Join(err, goOn(c.process.Process)); err != nil {
		return before, err
	}
	if now, err := c.until(ctx, func(now observed) bool { return now.Accepted >= before.Accepted+int64(n) }); err != nil {
		return now, err
	}

	return c.ask("lost")
}
