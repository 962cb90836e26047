package record

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"log/slog"
	"net"
	"os"
	"path/filepath"
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

// Recorder writes the recording of one attempt. It passes each step to the wrapped loop.Recorder
// after it has written the exchanges of the step. The file is not synced, but a reader detects a
// truncated recording.
type Recorder struct {
	loop.Recorder
	path    string
	attempt ledger.Attempt
	redact  *redact.Redactor
	log     *slog.Logger

	mu      sync.Mutex
	step    int
	try     int
	encoder replay.Encoder
	lines   bytes.Buffer // written with the step
	file    *os.File
	broken  bool
	// lastMessages and lastCleaned hold the messages of the last request, with and without secrets.
	lastMessages, lastCleaned []model.Message
}

func (p *Recorder) fail(err error) {
	if !p.broken {
		p.log.Warn("the run goes on without its recording, which could not be written", "run", p.attempt.Run, "attempt", p.attempt.Number, "error", err)
	}
	p.broken = true
	p.lines.Reset()
}

// StartStep implements loop.Recorder.
func (p *Recorder) StartStep(ctx context.Context, s loop.Step) error {
	p.mu.Lock()
	p.step, p.try = s.Number, 0
	p.mu.Unlock()
	return p.Recorder.StartStep(ctx, s)
}

// FinishStep implements loop.Recorder.
func (p *Recorder) FinishStep(ctx context.Context, s loop.Step) error {
	p.flush()
	return p.Recorder.FinishStep(ctx, s)
}

// Flush writes the exchanges so far, and makes the wrapped recorder write its buffer.
func (p *Recorder) Flush(ctx context.Context) error {
	p.flush()
	return p.Recorder.Flush(ctx)
}

func (p *Recorder) flush() {
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

// open creates the file, which grows until the attempt ends.
func (p *Recorder) open() (err error) {
	if p.file != nil {
		return nil
	}
	if err = os.MkdirAll(filepath.Dir(p.path), 0o700); err == nil {
		p.file, err = os.OpenFile(p.path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	}
	return err
}

// close closes the file. It reports whether a recording was written.
func (p *Recorder) close() (written bool) {
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

func (p *Recorder) add(x replay.Exchange) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.broken {
		return
	}

	// A retried turn is another exchange of the same step.
	x.Attempt, x.Step, x.Try = p.attempt.Number, p.step, p.try
	p.try++
	line, err := p.encoder.Exchange(x)
	if err != nil {
		p.fail(err)
		return
	}

	p.lines.Write(line)
}

// unread returns the reason for which an answer was not read to its end.
func (p *Recorder) unread(ctx context.Context) *replay.Fault {
	if ctx.Err() != nil {
		return p.fault(context.Cause(ctx))
	}
	return &replay.Fault{Message: "the run did not take the whole answer", Outcome: domain.OutcomeBudget}
}

func (p *Recorder) fault(err error) *replay.Fault {
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

// cleanRequest returns a request without secrets. It processes only new messages.
func (p *Recorder) cleanRequest(r model.Request) *model.Request {
	p.mu.Lock()
	defer p.mu.Unlock()

	known, clean := p.lastMessages, p.lastCleaned
	out := &model.Request{System: p.redact.Replace(r.System), Tools: r.Tools, MaxOutput: r.MaxOutput, Temperature: r.Temperature, NoTools: r.NoTools}
	out.Messages = make([]model.Message, len(r.Messages))
	for i, m := range r.Messages {
		if i < len(known) && replay.SameMessage(m, known[i]) {
			out.Messages[i] = clean[i]
		} else {
			known = nil // no later message is known either
			out.Messages[i] = cleanMessage(m, p.redact)
		}
	}

	p.lastMessages, p.lastCleaned = r.Messages, out.Messages
	return out
}

func (p *Recorder) cleanAnswer(a *replay.Answer) {
	a.Text = strings.ReplaceAll(strings.ToValidUTF8(p.redact.Replace(a.Text), "\ufffd"), "\x00", "")
	a.Raw = p.redact.Document(a.Raw)
	a.Calls = cleanCalls(a.Calls, p.redact)
}

func cleanRequest(r model.Request, redact *redact.Redactor) model.Request {
	p := Recorder{redact: redact}
	return *p.cleanRequest(r)
}

// cleanMessage removes secrets from texts before the texts are encoded, because encoding changes
// the form of a secret.
func cleanMessage(m model.Message, redact *redact.Redactor) model.Message {
	m.Text = redact.Replace(m.Text)
	m.Raw = redact.Document(m.Raw)
	m.Calls = cleanCalls(m.Calls, redact)
	return m
}

func cleanCalls(calls []model.Call, redact *redact.Redactor) []model.Call {
	var out []model.Call
	for _, c := range calls {
		c.Args = redact.Document(c.Args)
		out = append(out, c)
	}
	return out
}

type provider struct {
	model.Provider
	answering func() string // returns the name of the current model
	recorder  *Recorder
}

// Stream implements model.Provider.
func (p *provider) Stream(ctx context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		x := replay.Exchange{Model: p.answering(), StartedAt: time.Now()}
		var text strings.Builder
		defer func() {
			x.TookMS = time.Since(x.StartedAt).Milliseconds()
			x.Text = text.String()
			// Redact at the end, so that the time it takes is not counted as the model's.
			x.Request = p.recorder.cleanRequest(r)
			p.recorder.cleanAnswer(&x.Answer)
			p.recorder.add(x)
		}()

		for e, err := range p.Provider.Stream(ctx, r) {
			if x.FirstMS == 0 {
				x.FirstMS = time.Since(x.StartedAt).Milliseconds()
			}

			text.WriteString(e.Text)
			switch {
			case err != nil:
				x.Fault = p.recorder.fault(err)
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
					x.Fault = p.recorder.unread(ctx)
				}
				return
			}
		}

		if ctx.Err() != nil && x.Fault == nil {
			x.Fault = p.recorder.fault(context.Cause(ctx))
		}
	}
}
