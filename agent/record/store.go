// Package record records the requests and answers of a run's model, and replays a run from that
// recording. The recorded answers replace the model and the recorded results replace the tools. The
// replay reports every difference.
package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"rouse/agent/loop"
	"rouse/agent/model/replay"
	"rouse/agent/redact"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// Placement makes recordings available on other nodes.
type Placement interface {
	// UploadRecording uploads a recording.
	UploadRecording(ctx context.Context, agent, path string) error
	// Recording opens a recording by its file name. It returns fs.ErrNotExist if there is no such
	// recording.
	Recording(ctx context.Context, agent, name string) (io.ReadCloser, error)
	// SweepRecordings removes uploaded recordings of the agents on this node if gone returns true.
	SweepRecordings(ctx context.Context, gone func(name string) (bool, error)) error
}

// Store keeps the recordings of attempts as files in a folder.
type Store struct {
	dir       string // "" disables recording
	ledger    *ledger.Ledger
	placement Placement // nil unless several nodes share a ledger
	log       *slog.Logger
}

// NewStore returns a store in the given folder. If dir is "", runs are not recorded. placement is
// nil unless several nodes share a ledger.
func NewStore(dir string, l *ledger.Ledger, placement Placement, log *slog.Logger) *Store {
	return &Store{dir: dir, ledger: l, placement: placement, log: log}
}

// path returns the file of an attempt's recording. Its name contains the ID of the ledger, so that
// runs of other ledgers never use it.
func (s *Store) path(run int64, attempt int) string {
	return filepath.Join(s.dir, fmt.Sprintf("%d.%d.%s.jsonl", run, attempt, s.ledger.EpochOf(run).ID))
}

// Start records the exchanges between an attempt and its model until end is called. snapshot is the
// initial state of the attempt. answering returns the name of the current model. Errors are logged.
func (s *Store) Start(ctx context.Context, o *loop.Options, agent string, a ledger.Attempt, snapshot any, redact *redact.Redactor, answering func() string) (end func()) {
	if s.dir == "" {
		return func() {}
	}

	rec := &Recorder{Recorder: o.Recorder, path: s.path(a.Run, a.Number), attempt: a, redact: redact, log: s.log}
	raw, err := json.Marshal(snapshot)
	if err == nil {
		var line []byte
		line, err = replay.AttemptLine(replay.Attempt{Number: a.Number, State: domain.AttemptRunning, Snapshot: redact.Document(raw)})
		rec.lines.Write(line)
	}
	if err != nil {
		rec.fail(err)
	}

	o.Provider, o.Recorder = &provider{o.Provider, answering, rec}, rec
	return func() { s.end(context.WithoutCancel(ctx), rec, agent) } // also if the attempt was cancelled
}

// end closes a recording and uploads it for other nodes.
func (s *Store) end(ctx context.Context, rec *Recorder, agent string) {
	if !rec.close() || s.placement == nil {
		return
	}
	if err := s.placement.UploadRecording(ctx, agent, rec.path); err != nil {
		s.log.Warn("a recording is at this node alone, because it could not be shipped", "run", rec.attempt.Run, "attempt", rec.attempt.Number, "error", err)
	}
}

// clockSkew is the maximum delay of a node's clock behind the clock of the ledger. Exchanges are
// recorded with the clock of the node.
const clockSkew = time.Minute

// read returns the recording of an attempt, even from another node. It ignores a recording that is
// older than the attempt: the ledger was restored since then.
func (s *Store) read(ctx context.Context, a ledger.Attempt) (replay.Recording, error) {
	begun := a.StartedAt
	out, err := readFile(s.path(a.Run, a.Number))
	if s.placement != nil {
		begun = begun.Add(-clockSkew)
		if errors.Is(err, fs.ErrNotExist) {
			out, err = s.readElsewhere(ctx, a)
		}
	}

	older := func(x replay.Exchange) bool { return !x.StartedAt.IsZero() && x.StartedAt.Before(begun) }
	if errors.Is(err, fs.ErrNotExist) || err == nil && slices.ContainsFunc(out.Exchanges, older) {
		return replay.Recording{}, nil
	}
	return out, err
}

// readElsewhere reads the recording of an attempt from another node.
func (s *Store) readElsewhere(ctx context.Context, a ledger.Attempt) (replay.Recording, error) {
	run, err := s.ledger.Runs.Get(ctx, a.Run)
	if err != nil {
		return replay.Recording{}, err
	}
	name := filepath.Base(s.path(a.Run, a.Number))
	f, err := s.placement.Recording(ctx, run.Agent, name)
	if err != nil {
		return replay.Recording{}, fmt.Errorf("a recording cannot be read: %w", err)
	}
	defer f.Close()
	return readLines(f, name)
}

func readFile(path string) (replay.Recording, error) {
	f, err := os.Open(path)
	if err != nil {
		return replay.Recording{}, fmt.Errorf("a recording cannot be read: %w", err)
	}
	defer f.Close()
	return readLines(f, path)
}

func readLines(f io.Reader, name string) (replay.Recording, error) {
	out, err := replay.ReadLines(f)
	if err != nil {
		return out, fmt.Errorf("the recording %s is damaged: %w", name, err)
	}
	return out, nil
}

// Sweep removes the recordings of runs that are no longer in the ledger.
func (s *Store) Sweep(ctx context.Context) error {
	if s.dir == "" {
		return nil
	}

	newest, err := s.ledger.NewestRun(ctx)
	if err != nil {
		return err
	}
	known := map[int64]bool{}
	gone := func(name string) (bool, error) {
		id, epoch := recordedRun(name)
		if id == 0 || known[id] || id > newest || epoch != s.ledger.EpochOf(id).ID {
			return false, nil
		}

		_, err := s.ledger.Runs.Get(ctx, id)
		known[id] = err == nil
		if errors.Is(err, ledger.ErrNotFound) {
			return true, nil
		}
		return false, err
	}

	errs := []error{s.sweepFiles(gone)}
	if s.placement != nil {
		errs = append(errs, s.placement.SweepRecordings(ctx, gone))
	}
	return errors.Join(errs...)
}

// recordedRun returns the run and the ledger in the file name of a recording. It returns 0 if the
// file is not a recording.
func recordedRun(name string) (id int64, epoch string) {
	parts := strings.Split(name, ".")
	if len(parts) != 4 {
		return 0, ""
	}
	id, err := strconv.ParseInt(parts[0], 10, 64)
	if err != nil {
		return 0, ""
	}
	return id, parts[2]
}

func (s *Store) sweepFiles(gone func(name string) (bool, error)) error {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	errs := []error{err}
	for _, e := range entries {
		remove, err := gone(e.Name())
		if err != nil {
			return err
		}
		if remove {
			errs = append(errs, os.Remove(filepath.Join(s.dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}
