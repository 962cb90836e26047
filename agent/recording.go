package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/model/replay"
	"rouse/agent/redact"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// recordingPath returns the file of an attempt's recording. The id of the ledger is in it, so that
// it is never taken for that of another ledger's run.
func (r *Runner) recordingPath(run int64, attempt int) string {
	return filepath.Join(r.recordings, fmt.Sprintf("%d.%d.%s.jsonl", run, attempt, r.ledger.EpochOf(run).ID))
}

// startRecording records what the model of an attempt is asked and answers, if its job wants that.
// Errors are logged.
func (r *Runner) startRecording(ctx context.Context, o *loop.Options, t *attempt) (end func()) {
	if !t.GoverningJob().Record || !t.NeedsModel() || r.recordings == "" {
		return func() {}
	}

	rec := &exchangeRecorder{Recorder: o.Recorder, path: r.recordingPath(t.a.Run, t.a.Number), attempt: t.a, redact: t.redactor(), log: r.log}
	raw, err := json.Marshal(t.found)
	if err == nil {
		var line []byte
		line, err = replay.AttemptLine(replay.Attempt{Number: t.a.Number, State: domain.AttemptRunning, Snapshot: cleanRaw(raw, rec.redact)})
		rec.lines.Write(line)
	}

	if err != nil {
		rec.fail(err)
	}

	o.Provider, o.Recorder = &recordingProvider{o.Provider, t.relay, rec}, rec
	return func() { r.endRecording(context.WithoutCancel(ctx), rec, t.Agent.Name) } // however the attempt ends
}

// endRecording closes a recording, and has it be where other nodes find it.
func (r *Runner) endRecording(ctx context.Context, rec *exchangeRecorder, agent string) {
	written := rec.close()
	if !written || r.homes == nil {
		return
	}
	if err := r.homes.KeepRecording(ctx, agent, rec.path); err != nil {
		r.log.Warn("a recording is at this node alone, because it could not be shipped", "run", rec.attempt.Run, "attempt", rec.attempt.Number, "error", err)
	}
}

// exchangeRecorder writes the recording of one attempt. Exchanges reach the file before their step
// is in the ledger. They are not synced: a cut recording says so.
type exchangeRecorder struct {
	loop.Recorder
	path    string
	attempt ledger.Attempt
	redact  *redact.Redactor
	log     *slog.Logger

	mu      sync.Mutex
	step    int
	try     int
	encoder replay.Encoder
	lines   bytes.Buffer // to be written with the step
	file    *os.File
	broken  bool
	// The messages of the last request, and the same without secrets.
	lastMessages, lastCleaned []model.Message
}

func (p *exchangeRecorder) fail(err error) {
	if !p.broken {
		p.log.Warn("the run goes on without its recording, which could not be written", "run", p.attempt.Run, "attempt", p.attempt.Number, "error", err)
	}
	p.broken = true
	p.lines.Reset()
}

// StartStep implements loop.Recorder.
func (p *exchangeRecorder) StartStep(ctx context.Context, s loop.Step) error {
	p.mu.Lock()
	p.step, p.try = s.Number, 0
	p.mu.Unlock()
	return p.Recorder.StartStep(ctx, s)
}

// FinishStep implements loop.Recorder.
func (p *exchangeRecorder) FinishStep(ctx context.Context, s loop.Step) error {
	p.flush()
	return p.Recorder.FinishStep(ctx, s)
}

// Flush lets the record that is behind it write what it has held back.
func (p *exchangeRecorder) Flush(ctx context.Context) error {
	p.flush()
	return flushRecorder(ctx, p.Recorder)
}

func flushRecorder(ctx context.Context, r loop.Recorder) error {
	if held, ok := r.(interface{ Flush(context.Context) error }); ok {
		return held.Flush(ctx)
	}
	return nil
}

func (p *exchangeRecorder) flush() {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.broken || p.lines.Len() == 0 {
		return
	}

	err := p.open()
	if err == nil {
		_, err = p.file.Write(p.lines.Bytes())
	}

	if err != nil {
		p.fail(err)
	}

	p.lines.Reset()
}

// open begins the file, which grows while its attempt is on: nobody needs it whole before that.
func (p *exchangeRecorder) open() (err error) {
	if p.file != nil {
		return nil
	}
	if err = os.MkdirAll(filepath.Dir(p.path), 0o700); err == nil {
		p.file, err = os.OpenFile(p.path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	}
	return err
}

// close ends the file; it says whether there is one.
func (p *exchangeRecorder) close() (written bool) {
	p.flush()
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.file == nil {
		return false
	}

	if err := p.file.Close(); err != nil {
		p.fail(err)
	}

	p.file = nil
	return true
}

func (p *exchangeRecorder) add(x replay.Exchange) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.broken {
		return
	}

	// A turn that is tried again is another exchange of the same step.
	x.Attempt, x.Step, x.Try = p.attempt.Number, p.step, p.try
	p.try++
	line, err := p.encoder.Exchange(x)
	if err != nil {
		p.fail(err)
		return
	}

	p.lines.Write(line)
}

type recordingProvider struct {
	model.Provider
	relay    *relay // knows who answers
	recorder *exchangeRecorder
}

// Stream implements model.Provider.
func (t *recordingProvider) Stream(ctx context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		x := replay.Exchange{Model: t.relay.model().Name, StartedAt: time.Now()}
		var text strings.Builder
		defer func() {
			x.TookMS = time.Since(x.StartedAt).Milliseconds()
			x.Text = text.String()
			// At the end: redaction takes time that would be counted as the model's.
			x.Request = t.recorder.cleanRequest(r)
			t.recorder.cleanAnswer(&x.Answer)
			t.recorder.add(x)
		}()

		for e, err := range t.Provider.Stream(ctx, r) {
			if x.FirstMS == 0 {
				x.FirstMS = time.Since(x.StartedAt).Milliseconds()
			}

			text.WriteString(e.Text)
			switch {
			case err != nil:
				x.Fault = t.recorder.fault(err)
			case e.Call != nil:
				x.Calls = append(x.Calls, *e.Call)
			case e.Usage != nil:
				x.Usage = e.Usage
			case e.Unreported != nil:
				x.Unreported = e.Unreported
			case e.Stop != "":
				x.Stop = e.Stop
			case e.Raw != nil:
				x.Raw = e.Raw
			}

			if !yield(e, err) {
				if err == nil {
					x.Fault = t.recorder.unread(ctx)
				}
				return
			}
		}

		if ctx.Err() != nil && x.Fault == nil {
			x.Fault = t.recorder.fault(context.Cause(ctx))
		}
	}
}

// unread is why an answer was not read to its end.
func (p *exchangeRecorder) unread(ctx context.Context) *replay.Fault {
	if ctx.Err() != nil {
		return p.fault(context.Cause(ctx))
	}
	return &replay.Fault{Message: "the run did not take the whole answer", Outcome: domain.OutcomeBudget}
}

func (p *exchangeRecorder) fault(err error) *replay.Fault {
	f := &replay.Fault{Message: p.redact.Replace(err.Error())}
	var e *model.Error
	var why interface{ Outcome() domain.Outcome }
	var dialled *net.OpError
	switch {
	case errors.As(err, &e):
		f.Kind, f.Retryable, f.Feedback = string(e.Kind), e.Retryable, p.redact.Replace(e.Feedback)
		f.Refused = e.Refused || errors.As(err, &dialled) && dialled.Op == "dial"
	case errors.As(err, &why):
		f.Outcome = why.Outcome()
	}

	return f
}

// cleanRequest returns a request without secrets. It cleans only messages that are new.
func (p *exchangeRecorder) cleanRequest(r model.Request) *model.Request {
	p.mu.Lock()
	defer p.mu.Unlock()

	known, clean := p.lastMessages, p.lastCleaned
	out := &model.Request{System: p.redact.Replace(r.System), Tools: r.Tools, MaxOutput: r.MaxOutput, Temperature: r.Temperature, NoTools: r.NoTools}
	out.Messages = make([]model.Message, len(r.Messages))
	for i, m := range r.Messages {
		if i < len(known) && replay.SameMessage(m, known[i]) {
			out.Messages[i] = clean[i]
		} else {
			known = nil // and nothing behind it
			out.Messages[i] = cleanMessage(m, p.redact)
		}
	}

	p.lastMessages, p.lastCleaned = r.Messages, out.Messages
	return out
}

func (p *exchangeRecorder) cleanAnswer(a *replay.Answer) {
	a.Text = strings.ReplaceAll(strings.ToValidUTF8(p.redact.Replace(a.Text), "\ufffd"), "\x00", "")
	a.Raw = cleanRaw(a.Raw, p.redact)
	a.Calls = cleanCalls(a.Calls, p.redact)
}

// nodesClocks is how far the clock of a node, by which exchanges are recorded, may be behind that of the ledger.
const nodesClocks = time.Minute

// readRecording returns the recording of an attempt, also from another node. One that is older than
// the attempt belongs to a ledger that was restored.
func (r *Runner) readRecording(ctx context.Context, a ledger.Attempt) (replay.Recording, error) {
	begun := a.StartedAt
	out, err := readRecordingFile(r.recordingPath(a.Run, a.Number))
	if r.homes != nil {
		begun = begun.Add(-nodesClocks)
		if errors.Is(err, fs.ErrNotExist) {
			out, err = r.readRecordingElsewhere(ctx, a)
		}
	}

	older := func(x replay.Exchange) bool { return !x.StartedAt.IsZero() && x.StartedAt.Before(begun) }
	if errors.Is(err, fs.ErrNotExist) || err == nil && slices.ContainsFunc(out.Exchanges, older) {
		return replay.Recording{}, nil
	}
	return out, err
}

// readRecordingElsewhere reads what an attempt left that another node made.
func (r *Runner) readRecordingElsewhere(ctx context.Context, a ledger.Attempt) (replay.Recording, error) {
	run, err := r.ledger.Run(ctx, a.Run)
	if err != nil {
		return replay.Recording{}, err
	}
	name := filepath.Base(r.recordingPath(a.Run, a.Number))
	f, err := r.homes.Recording(ctx, run.Agent, name)
	if err != nil {
		return replay.Recording{}, fmt.Errorf("a recording cannot be read: %w", err)
	}
	defer f.Close()
	return readRecordingLines(f, name)
}

func readRecordingFile(path string) (replay.Recording, error) {
	f, err := os.Open(path)
	if err != nil {
		return replay.Recording{}, fmt.Errorf("a recording cannot be read: %w", err)
	}
	defer f.Close()
	return readRecordingLines(f, path)
}

func readRecordingLines(f io.Reader, name string) (replay.Recording, error) {
	out, err := replay.ReadLines(f)
	if err != nil {
		return out, fmt.Errorf("the recording %s is damaged: %w", name, err)
	}
	return out, nil
}

// sweepRecordings removes recordings of runs that this ledger no longer keeps.
func (r *Runner) sweepRecordings(ctx context.Context) error {
	if r.recordings == "" {
		return nil
	}

	newest, err := r.ledger.NewestRun(ctx)
	if err != nil {
		return err
	}
	known := map[int64]bool{}
	gone := func(name string) (bool, error) {
		id, epoch := recordedRun(name)
		if id == 0 || known[id] || id > newest || epoch != r.ledger.EpochOf(id).ID {
			return false, nil
		}

		_, err := r.ledger.Run(ctx, id)
		known[id] = err == nil
		if errors.Is(err, ledger.ErrNotFound) {
			return true, nil
		}
		return false, err
	}

	errs := []error{r.sweepRecordingFiles(gone)}
	if r.homes != nil {
		errs = append(errs, r.homes.SweepRecordings(ctx, gone))
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

func (r *Runner) sweepRecordingFiles(gone func(name string) (bool, error)) error {
	entries, err := os.ReadDir(r.recordings)
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
			errs = append(errs, os.Remove(filepath.Join(r.recordings, e.Name())))
		}
	}
	return errors.Join(errs...)
}
