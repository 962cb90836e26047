// Package record keeps what the model of a run is asked and answers, and plays a run again from that recording: the
// recorded answers replace the model, the recorded results replace the tools, and every difference is reported.
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
	// KeepRecording uploads a recording.
	KeepRecording(ctx context.Context, agent, path string) error
	// Recording opens a recording by the name of its file. It returns fs.ErrNotExist if there is none.
	Recording(ctx context.Context, agent, name string) (io.ReadCloser, error)
	// SweepRecordings removes the uploaded recordings of the agents on this node for which gone returns true.
	SweepRecordings(ctx context.Context, gone func(name string) (bool, error)) error
}

// Store keeps the recordings of attempts as files in a folder.
type Store struct {
	dir       string // "" if nothing is recorded
	ledger    *ledger.Ledger
	placement Placement // nil unless several nodes share a ledger
	log       *slog.Logger
}

// NewStore returns the recordings in a folder. Without a folder, nothing is recorded. placement is nil unless several
// nodes share a ledger.
func NewStore(dir string, l *ledger.Ledger, placement Placement, log *slog.Logger) *Store {
	return &Store{dir: dir, ledger: l, placement: placement, log: log}
}

// path returns the file of an attempt's recording. It contains the id of the ledger, so that a run of another ledger
// never uses it.
func (s *Store) path(run int64, attempt int) string {
	return filepath.Join(s.dir, fmt.Sprintf("%d.%d.%s.jsonl", run, attempt, s.ledger.EpochOf(run).ID))
}

// Start records the exchanges of an attempt with its model, until end is called. snapshot is the JSON of what the
// attempt began with, and answering returns the name of the model that answers. Errors are logged.
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
	return func() { s.end(context.WithoutCancel(ctx), rec, agent) } // however the attempt ends
}

// end closes a recording and uploads it for other nodes.
func (s *Store) end(ctx context.Context, rec *Recorder, agent string) {
	if !rec.close() || s.placement == nil {
		return
	}
	if err := s.placement.KeepRecording(ctx, agent, rec.path); err != nil {
		s.log.Warn("a recording is at this node alone, because it could not be shipped", "run", rec.attempt.Run, "attempt", rec.attempt.Number, "error", err)
	}
}

// clockSkew is how far the clock of a node, with which exchanges are recorded, may be behind the clock of the ledger.
const clockSkew = time.Minute

// read returns the recording of an attempt, also from another node. A recording that is older than the attempt belongs
// to a ledger that was restored, and is ignored.
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

// readElsewhere reads the recording of an attempt on another node.
func (s *Store) readElsewhere(ctx context.Context, a ledger.Attempt) (replay.Recording, error) {
	run, err := s.ledger.Run(ctx, a.Run)
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

// Sweep removes the recordings of runs that the ledger no longer keeps.
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

		_, err := s.ledger.Run(ctx, id)
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

// recordedRun returns the run and the ledger of a recording by the name of its file, or 0 if the file is no recording.
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
