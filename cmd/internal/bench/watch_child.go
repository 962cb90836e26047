package bench

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"rouse/agentdb/ledger"
	"rouse/watcher"
)

// observed is what a process that watches a folder reports about itself.
type observed struct {
	Accepted  int64     `json:"accepted"` // runs
	Started   int64     `json:"started"`
	Waiting   int       `json:"waiting"`   // files that have not settled
	Scans     int64     `json:"scans"`     // that lost events made necessary
	Rescanned time.Time `json:"rescanned"` // the end of the latest scan
	Peak      float64   `json:"peak"`      // MB of memory at most
	Walk      float64   `json:"walk"`      // ms for a bare walk of the folder, when it was asked for
	Files     int       `json:"files"`     // that the walk met
	Lost      []string  `json:"lost"`      // files of the folder that have not exactly one run, when it was asked for
}

// observedOptions say how a folder is watched that is observed.
type observedOptions struct {
	rescan time.Duration // how often the folder is scanned
	noRuns bool          // the runs are queued alone
}

// serveObserved watches DIR/inbox and answers each line it reads with what it is about. A measurement
// wants a process of its own for it: for its memory, and to suspend it.
func serveObserved(ctx context.Context, dir string, o observedOptions, in io.Reader, out io.Writer) (err error) {
	c := &observedFolder{dir: dir, inbox: filepath.Join(dir, "inbox")}
	count := func(ledger.Run) { c.started.Add(1) }
	if o.noRuns {
		count = nil
	}
	if c.watching, err = startWatching(ctx, filepath.Join(c.dir, "ledger.db"), watcher.Options{Logger: slog.New(&c.scans), Rescan: o.rescan},
		watcher.Watch{Job: "in", Agent: "a", Path: c.inbox, Settle: fastSettle}, count); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.halt()) }()

	if c.db, err = sql.Open("sqlite", filepath.Join(c.dir, "ledger.db")+"?_pragma=query_only(1)"); err != nil {
		return err
	}
	defer c.db.Close()

	answers := json.NewEncoder(out)
	for lines := bufio.NewScanner(in); ; {
		// The first answer comes before the first line: it says that the folder is watched.
		now, err := c.answer(ctx, lines.Text())
		if err != nil {
			return err
		}
		if err := answers.Encode(now); err != nil {
			return err
		}
		if !lines.Scan() {
			return lines.Err()
		}
	}
}

// observedFolder is such a process from within.
type observedFolder struct {
	*watching
	dir, inbox string
	db         *sql.DB
	started    atomic.Int64
	scans      scanLog
}

func (c *observedFolder) answer(ctx context.Context, what string) (now observed, err error) {
	st := c.watcher.Status(ctx)[0]
	now = observed{Started: c.started.Load(), Waiting: st.Waiting, Scans: c.scans.n.Load(), Rescanned: st.LastScan, Peak: peakMemory("self")}

	// Runs are never removed here, so the latest number is how many there are.
	if err := c.db.QueryRowContext(ctx, `select coalesce(max(id), 0) from runs`).Scan(&now.Accepted); err != nil {
		return now, err
	}

	switch what {
	case "walk":
		var took time.Duration
		took, now.Files, err = walkBare(c.inbox)
		now.Walk = milliseconds(took)
	case "lost":
		now.Lost, err = withoutRun(ctx, c.db, c.inbox)
	}

	return now, err
}

// withoutRun lists the files of a folder that have not exactly one run. A run of an empty file is
// not one of those: on a machine that holds the writer up, that is what there is for a while.
func withoutRun(ctx context.Context, db *sql.DB, inbox string) ([]string, error) {
	rows, err := db.QueryContext(ctx, `select c.path, count(r.id) from claims c left join runs r on r.id = c.run where c.size > 0 group by c.path`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()

	runs := map[string]int{}
	for rows.Next() {
		var path string
		var n int
		if err := rows.Scan(&path, &n); err != nil {
			return nil, err
		}
		runs[path] = n
	}

	if err := rows.Err(); err != nil {
		return nil, err
	}

	entries, err := os.ReadDir(inbox)
	if err != nil {
		return nil, err
	}

	var lost []string
	for _, e := range entries {
		if path := filepath.ToSlash(filepath.Join(inbox, e.Name())); runs[path] != 1 {
			lost = append(lost, path)
		}
	}

	return lost, nil
}

// scanLog counts the scans that a watcher logs because events were lost.
type scanLog struct{ n atomic.Int64 }

// Enabled implements slog.Handler.
func (s *scanLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle implements slog.Handler.
func (s *scanLog) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		// The watcher has no counter for it; its log is the only place that says so.
		if a.Key == "reason" && strings.HasPrefix(a.Value.String(), "events were lost") {
			s.n.Add(1)
		}
		return true
	})
	return nil
}

// WithAttrs implements slog.Handler.
func (s *scanLog) WithAttrs([]slog.Attr) slog.Handler { return s }

// WithGroup implements slog.Handler.
func (s *scanLog) WithGroup(string) slog.Handler { return s }

// watchChild is such a process, seen from the one that measures.
type watchChild struct {
	process *exec.Cmd
	dir     string
	inbox   string
	in      io.WriteCloser
	out     *json.Decoder
	errs    strings.Builder
}

// startChild starts a process that watches a folder.
func (b *watchBench) startChild(ctx context.Context, name string, args ...string) (_ *watchChild, err error) {
	c := &watchChild{dir: filepath.Join(b.base, name)}
	c.inbox = filepath.Join(c.dir, "inbox")
	if err := os.MkdirAll(c.inbox, 0o755); err != nil {
		return nil, err
	}

	c.process = exec.CommandContext(ctx, b.self, append(append([]string{"bench", ChildVerb, "observed"}, args...), c.dir)...)
	// Kept for the error message, which is where a crash of the child shows.
	c.process.Stderr = &c.errs
	if c.in, err = c.process.StdinPipe(); err != nil {
		return nil, err
	}

	out, err := c.process.StdoutPipe()
	if err != nil {
		return nil, err
	}

	c.out = json.NewDecoder(out)
	if err := c.process.Start(); err != nil {
		return nil, err
	}
	if _, err := c.answer(); err != nil {
		return nil, err
	}

	return c, nil
}

func (c *watchChild) answer() (observed, error) {
	var now observed
	if err := c.out.Decode(&now); err != nil {
		return now, errors.Join(fmt.Errorf("the process that watches does not answer: %w", err), c.stop())
	}
	return now, nil
}

func (c *watchChild) ask(what string) (observed, error) {
	if _, err := fmt.Fprintln(c.in, what); err != nil {
		return observed{}, err
	}
	return c.answer()
}

// until asks again and again until the answer is good.
func (c *watchChild) until(ctx context.Context, good func(observed) bool) (observed, error) {
	const patience = 5 * time.Minute
	deadline := time.Now().Add(patience)
	for {
		now, err := c.ask("")
		switch {
		case err != nil || good(now):
			return now, err
		case time.Now().After(deadline):
			return now, fmt.Errorf("after %s %d runs were accepted and %d started, and %d files wait", patience, now.Accepted, now.Started, now.Waiting)
		}

		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return now, ctx.Err()
		}
	}
}

func (c *watchChild) stop() error {
	if err := errors.Join(c.in.Close(), c.process.Wait()); err != nil {
		return fmt.Errorf("the process that watches failed: %w: %s", err, c.errs.String())
	}
	return nil
}

// peakMemory is the most memory that a process has had, in MB; only Linux tells.
func peakMemory(pid string) float64 {
	status, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return 0
	}

	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kB, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
			if err == nil {
				return kB * 1024 / 1e6
			}
		}
	}

	return 0
}
