package live

import (
	"context"
	"slices"
	"sync"
	"time"
)

// MaxText bounds what is held of an answer, in bytes. The beginning is kept: cut off at its front, the rest could begin
// with half a secret, which nobody would find.
const MaxText = 64 << 10

// Cleaner keeps secrets out of what is shown. It may be used by many at a time.
type Cleaner interface {
	// Begun is what is certain of a text that goes on: without its secrets, and without an end that may be the beginning of one.
	Begun(text string) string
}

// State is what a run is doing.
type State struct {
	Run   int64
	Job   string
	Step  int
	Try   int    // counts the requests of the run: with another one, Text begins again
	Text  string // of the answer that is being written, without secrets; "" when none is
	Cut   bool   // Text has no more than the beginning
	Tool  string // the call that was begun last in this step, "" while the model answers
	Bytes int64  // that have arrived since the step or the call began: of the answer, or of what a program printed
	Since time.Time
	Model string // requested model with its address; "" once its response has begun
	Retry string // reason for a retry, "" in the first attempt
}

// Board is what the runs of a process are doing. The zero value is one of none.
type Board struct {
	mu      sync.Mutex
	runs    map[int64]*Run
	changed chan struct{} // nil while nobody waits
}

// Run is what one run is doing. A nil one, as From returns where nobody looks, takes everything and does nothing.
type Run struct {
	board *Board
	clean Cleaner

	// Guarded by the mutex of the board.
	state State
	raw   []byte // of the answer

	cleaning sync.Mutex
	shown    string // what was shown last, of that many bytes of that try
	of, try  int
}

// Begin shows a run until its End. A nil board shows nothing.
func (b *Board) Begin(run int64, job string, clean Cleaner) *Run {
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

// Changed is closed with the next change.
func (b *Board) Changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changed == nil {
		b.changed = make(chan struct{})
	}
	return b.changed
}

// States are those of the runs that are on, by their ids: of one run, of one job, or with 0 and "" of all.
func (b *Board) States(run int64, job string) []State {
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

// show is the state with the text as it may be seen. The text is cleaned beside the lock that the run needs.
func (r *Run) show() State {
	r.board.mu.Lock()
	state, raw := r.state, r.raw[:len(r.raw):len(r.raw)] // what is appended later does not change these
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

// change changes the state, and tells whoever waits.
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

// End takes the run off the board.
func (r *Run) End() {
	r.change(func() {
		if r.board.runs[r.state.Run] == r { // a later attempt may have taken its place
			delete(r.board.runs, r.state.Run)
		}
	})
}

// Ask says that a model is asked in a step, for the first time or again: what had come of an answer counts no more.
func (r *Run) Ask(step int) {
	r.change(func() {
		s := &r.state
		s.Step, s.Tool, s.Cut, s.Bytes, s.Since, s.Model, s.Retry = step, "", false, 0, time.Now(), "", ""
		s.Try++
		r.raw = nil // not cut to zero: somebody may still read it
	})
}

// Text adds a part of the answer of a step. A part of another step than the one that was begun last is left out: steps within calls
// that are made at the same time cannot all be shown.
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

// Answered says that the answer of a step is whole, or of no use: from now on the record has it.
func (r *Run) Answered(step int) {
	r.change(func() {
		if step == r.state.Step {
			r.raw = nil
		}
	})
}

// Call says that a call of a tool begins.
func (r *Run) Call(step int, tool string) {
	r.change(func() {
		s := &r.state
		s.Step, s.Tool, s.Bytes, s.Since, s.Model, s.Retry = step, tool, 0, time.Now(), "", ""
	})
}

// Arrived counts bytes that a model or a program has sent, whatever they are.
func (r *Run) Arrived(n int) {
	r.change(func() { r.state.Bytes, r.state.Model, r.state.Retry = r.state.Bytes+int64(n), "", "" })
}

// Waits records the requested model and the reason for a retry, if any.
func (r *Run) Waits(model, retry string) {
	r.change(func() { r.state.Model, r.state.Retry = model, retry })
}

type key struct{}

// With has From find the run.
func (r *Run) With(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, r) }

// From is the run that a context belongs to, nil where nobody looks.
func From(ctx context.Context) *Run {
	r, _ := ctx.Value(key{}).(*Run)
	return r
}
