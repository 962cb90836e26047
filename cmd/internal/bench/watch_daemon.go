package bench

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const benchReader = `version: 1
home: ./home
dashboard: {listen: "127.0.0.1:0"}
limits: {runs: 16, runs_per_agent: 16}
agents: [{name: reader}]
jobs:
  - name: inbox
    agent: reader
    overlap: allow
    watch: {path: ./inbox, responsiveness: fast}
    playbook: [{call: file_read, with: {path: "{{ .File.Path }}"}}]
`

// daemon drops many files on a daemon, as its owner starts it, whose job reads each of them.
func (b *watchBench) daemon(ctx context.Context) (_ []Figure, err error) {
	files, dir := b.sizes.files, filepath.Join(b.base, "daemon")
	inbox, config := filepath.Join(dir, "inbox"), filepath.Join(dir, "rouse.yaml")
	if err := errors.Join(os.MkdirAll(inbox, 0o755), os.WriteFile(config, []byte(benchReader), 0o600)); err != nil {
		return nil, err
	}

	process, err := startDaemon(ctx, b.self, config, filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, process.Process.Signal(os.Interrupt), process.Wait()) }()

	pid := fmt.Sprint(process.Process.Pid)
	db, err := sql.Open("sqlite", filepath.Join(dir, "home", "ledger.db")+"?_pragma=query_only(1)")
	if err != nil {
		return nil, err
	}
	defer db.Close()

	b.report("%d files, each read by a run", files)
	begin := time.Now()
	if err := createFiles(inbox, "f", files); err != nil {
		return nil, err
	}
	if err := b.follow(ctx, db, pid, files, begin); err != nil {
		return nil, err
	}

	took := time.Since(begin).Seconds()
	var once int
	if err := db.QueryRowContext(ctx, `select count(*) from (select json_extract(detail, '$.file.path') path from runs
		group by path having count(*) = 1 and sum(outcome = 'success') = 1)`).Scan(&once); err != nil {
		return nil, err
	}

	what := grouped(files) + " files, each read by a run: "
	return withPeak(what, peakMemory(pid),
		Figure{what + "without exactly one success", float64(files - once), 0, "files", 0, "0", once == files},
		Figure{what + "runs", float64(files) / took, 0, "1/s", 0, "", true}), nil
}

// follow reports how far the daemon is until it has finished as many runs as there are files.
func (b *watchBench) follow(ctx context.Context, db *sql.DB, pid string, files int, begin time.Time) error {
	last, when := 0, begin
	for moved := begin; ; {
		var accepted, open int
		if err := db.QueryRowContext(ctx, `select coalesce(max(id), 0), (select count(*) from runs where state <> 'finished') from runs`).Scan(&accepted, &open); err != nil {
			return err
		}

		done, now := accepted-open, time.Now()
		if done != last {
			moved = now
		}

		if done >= files || now.Sub(when) > 5*time.Second {
			b.report("%7.1f s: %d accepted, %d finished, %.0f/s, %.0f MB at most", now.Sub(begin).Seconds(), accepted, done, float64(done)/now.Sub(begin).Seconds(), peakMemory(pid))
			when = now
		}

		last = done
		switch {
		case done >= files:
			return nil
		// No limit for the whole: how long so many files take is what is measured.
		case now.Sub(moved) > 2*time.Minute:
			return fmt.Errorf("of %d files %d were accepted and %d are done, and nothing moves", files, accepted, done)
		}

		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// startDaemon starts this program as its owner does, and returns once it is ready.
func startDaemon(ctx context.Context, self, config, log string) (*exec.Cmd, error) {
	messages, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer messages.Close()

	process := exec.CommandContext(ctx, self, "serve", "--config", config)
	process.Stderr = messages
	out, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := process.Start(); err != nil {
		return nil, err
	}

	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "ready") {
			// The daemon must never block on a full pipe.
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return process, nil
		}
	}

	text, _ := os.ReadFile(log)
	return nil, errors.Join(fmt.Errorf("the daemon did not get ready: %s", text), process.Wait())
}
