package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// crowd is a job whose runs ask a model that keeps all of them waiting.
const crowd = `version: 1
home: ./home
dashboard: {listen: "127.0.0.1:0"}
limits: {runs: %[1]d, runs_per_agent: %[1]d}
models: [{name: stub, provider: openai, base_url: "%[2]s/v1", model: stub}]
agents: [{name: reader, model: stub}]
jobs:
  - name: inbox
    agent: reader
    overlap: allow
    watch: {path: ./inbox, responsiveness: fast}
    prompt: Say in a sentence what is in the file.
`

// most is how much memory a daemon may have at its peak while a hundred runs wait for their models.
const most = 60 // MiB

// daemonPeak starts a daemon as its owner does, and gives its peak until so many runs wait for their model at the same time.
// There is none where the system does not tell it.
func (b *loopBench) daemonPeak(ctx context.Context, self string, runs int) (_ []Figure, err error) {
	dir := filepath.Join(b.dir, "daemon")
	inbox, config := filepath.Join(dir, "inbox"), filepath.Join(dir, "rouse.yaml")
	if err := errors.Join(os.MkdirAll(inbox, 0o755), os.WriteFile(config, fmt.Appendf(nil, crowd, runs, b.base(0, true)), 0o600)); err != nil {
		return nil, err
	}

	process, err := startDaemon(ctx, self, config, filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, process.Process.Signal(os.Interrupt), process.Wait()) }()

	if err := createFiles(inbox, "f", runs); err != nil {
		return nil, err
	}
	if err := b.waitForHeld(ctx, runs); err != nil {
		return nil, fmt.Errorf("%w; the daemon's log is %s", err, logOf(filepath.Join(dir, "log")))
	}
	peak := peakMemory(fmt.Sprint(process.Process.Pid)) * 1e6 / (1 << 20)
	if err := b.release(ctx); err != nil {
		return nil, err
	}
	if peak == 0 {
		return nil, nil
	}
	return []Figure{{grouped(runs) + " model runs at once, peak", peak, 0, "MiB", 0, fmt.Sprintf("≤ %d MiB", most), peak <= most}}, nil
}

// waitForHeld waits until so many requests are kept waiting.
func (b *loopBench) waitForHeld(ctx context.Context, runs int) error {
	for begin := time.Now(); ; {
		held, err := b.held(ctx)
		switch {
		case err != nil || held >= runs:
			return err
		case time.Since(begin) > 2*time.Minute:
			return fmt.Errorf("of %d runs %d wait for their model after two minutes", runs, held)
		}

		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// held is how many requests the server keeps waiting.
func (b *loopBench) held(ctx context.Context) (n int, err error) {
	err = post(ctx, b.client, b.url+"/held", nil, func(answer io.Reader) error {
		_, err := fmt.Fscan(answer, &n)
		return err
	})
	return n, err
}

// release lets the server answer all of them.
func (b *loopBench) release(ctx context.Context) error {
	return post(ctx, b.client, b.url+"/release", nil, func(io.Reader) error { return nil })
}

// logOf is a log for an error; what cannot be read is left out.
func logOf(path string) string {
	text, _ := os.ReadFile(path)
	return string(text)
}
