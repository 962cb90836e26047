package progress

import (
	"context"
	"slices"
	"sync"
	"time"
)

// MaxText is the maximum stored size of a response, in bytes. The beginning is kept: a text cut at
// the front could begin with a part of a secret, which cannot be recognized.
const MaxText = 64 << 10

// Cleaner removes secrets from shown text. It must be safe for concurrent use.
type Cleaner interface {
	// Begun returns the text without secrets, and without an end that may be the beginning of one.
	Begun(text string) string
}

// State is the current activity of a run.
type State struct {
	Run  int64
	Job  string
	Step int
	// Try counts the requests of the run. Text starts over when it changes.
	Try int
	// Text is the response received so far, without secrets. It is empty if no response is in
	// progress.
	Text string
	Cut  bool   // Text is truncated
	Tool string // last tool call of this step, "" while the model responds
	// Bytes is the number of bytes received since the step or the call began: of the response, or
	// of the output of a program.
	Bytes int64
	Since time.Time
	Model string // requested model with its address; "" once its response has begun
	Retry string // reason for a retry, "" in the first attempt
}

// Tracker holds the states of the runs of a process. The zero value is an empty board.
type Tracker struct {
	mu      sync.Mutex
	runs    map[int64]*Run
	changed chan struct{} // nil if there are no waiting readers
}

// Run is the state of one run on a Board. The methods of a nil Run do nothing.
type Run struct {
	board *Tracker
	clean Cleaner

	// Guarded by the mutex of the board.
	state State
	raw   []byte // response so far

	cleaning sync.Mutex
	// shown is the last cleaned text. of and try identify the length and the try it was made from.
	shown   string
	of, try int
}

// Begin adds a run to the board until End is called. It returns nil if the board is nil.
func (b *Tracker) Begin(run int64, job string, clean Cleaner) *Run {
	if b == nil {
		return nil
	}

	r := &Run{board: b, clean: clean, state: State{Run: run, Job: job}}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.runs == nil {
		b.runs = map[int64]*Run{}
	}
	b.runs[run] = r
	return r
}

// Changed returns a channel that is closed at the next change.
func (b *Tracker) Changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changed == nil {
		b.changed = make(chan struct{})
	}
	return b.changed
}

// States returns the states of the active runs, ordered by id. If run is not 0 or job is not "", it
// returns only the states of that run or job.
func (b *Tracker) States(run int64, job string) []State {
	b.mu.Lock()
	var runs []*Run
	for id, r := range b.runs {
		if (run == 0 || id == run) && (job == "" || r.state.Job == job) {
			runs = append(runs, r)
		}
	}
	b.mu.Unlock()

	slices.SortFunc(runs, func(x, y *Run) int { return int(x.state.Run - y.state.Run) })
	out := make([]State, len(runs))
	for i, r := range runs {
		out[i] = r.show()
	}
	return out
}

// show returns the state with cleaned text. It cleans without holding the board's lock, which the
// run needs.
func (r *Run) show() State {
	r.board.mu.Lock()
	state, raw := r.state, r.raw[:len(r.raw):len(r.raw)] // later appends do not change this slice
	r.board.mu.Unlock()
	if len(raw) == 0 {
		return state
	}

	r.cleaning.Lock()
	defer r.cleaning.Unlock()
	if r.of != len(raw) || r.try != state.Try {
		r.shown, r.of, r.try = r.clean.Begun(string(raw)), len(raw), state.Try
	}
	state.Text = r.shown
	return state
}

// change changes the state and wakes waiting readers.
func (r *Run) change(to func()) {
	if r == nil {
		return
	}

	r.board.mu.Lock()
	defer r.board.mu.Unlock()
	to()
	if r.board.changed != nil {
		close(r.board.changed)
		r.board.changed = nil
	}
}

// End removes the run from the board.
func (r *Run) End() {
	r.change(func() {
		if r.board.runs[r.state.Run] == r { // a later attempt may have replaced it
			delete(r.board.runs, r.state.Run)
		}
	})
}

// Ask records that a model is asked in a step, for the first time or again. It discards a partial
// response.
func (r *Run) Ask(step int) {
	r.change(func() {
		s := &r.state
		s.Step, s.Tool, s.Cut, s.Bytes, s.Since, s.Model, s.Retry = step, "", false, 0, time.Now(), "", ""
		s.Try++
		r.raw = nil // do not reuse the slice: a reader may still have it
	})
}

// Text adds a part of a step's response. It ignores parts of other steps than the last one: only
// one of several parallel steps can be shown.
func (r *Run) Text(step int, part string) {
	if part == "" {
		return
	}
	r.change(func() {
		switch {
		case step != r.state.Step || r.state.Cut:
		case len(r.raw)+len(part) > MaxText:
			r.state.Cut = true
		default:
			r.raw = append(r.raw, part...)
		}
	})
}

// Answered records that the response of a step is complete or useless. The ledger stores it from
// now on.
func (r *Run) Answered(step int) {
	r.change(func() {
		if step == r.state.Step {
			r.raw = nil
		}
	})
}

// Call records that a tool call begins.
func (r *Run) Call(step int, tool string) {
	r.change(func() {
		s := &r.state
		s.Step, s.Tool, s.Bytes, s.Since, s.Model, s.Retry = step, tool, 0, time.Now(), "", ""
	})
}

// Arrived counts received bytes of a response or of a program's output.
func (r *Run) Arrived(n int) {
	r.change(func() { r.state.Bytes, r.state.Model, r.state.Retry = r.state.Bytes+int64(n), "", "" })
}

// Waits records the requested model and the reason for a retry, if any.
func (r *Run) Waits(model, retry string) {
	r.change(func() { r.state.Model, r.state.Retry = model, retry })
}

type key struct{}

// With returns a context from which From returns the run.
func (r *Run) With(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, r) }

// From returns the run of a context, or nil if there is none.
func From(ctx context.Context) *Run {
	r, _ := ctx.Value(key{}).(*Run)
	return r
}
