package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/control"
	"rouse/cmd/internal/why"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/runs"
	"rouse/internal/text"
)

// Runs lists, starts, cancels, retries and undoes runs, and applies their checkouts.
type Runs struct {
	*responder
	ledger    *ledger.Ledger
	actions   *control.Runs
	catalog   *control.Catalog
	checkouts *control.Checkouts
	explainer *why.Explainer
}

func (s *Runs) routes() []Route {
	artifact := Route{Method: http.MethodGet, Path: "/v1/runs/{id}/artifacts/{artifact}", Summary: "The bytes of a file that a run shared.", Answer: []Content{{Media: mediaBytes}}, handler: http.HandlerFunc(s.artifact)}
	return []Route{
		get[[]api.Run]("/v1/runs", "Runs, the newest first.", s.answer(s.list),
			Param{Name: "n", Kind: ParamCount, Most: maxRuns, Description: "how many, at most 1000"},
			Param{Name: "before", Kind: ParamCursor, Description: "those older than the run of this id: the last of the page before"},
			Param{Name: "since", Kind: ParamTime, Description: "asked for since then"},
			Param{Name: "job", Kind: ParamText, Description: "of one job, including wakes that it planned"}, Param{Name: "agent", Kind: ParamText, Description: "of one agent"},
			Param{Name: "trigger", Kind: ParamText, Values: text.Strings(domain.Triggers()), Description: "what asked for them"},
			Param{Name: "state", Kind: ParamText, Values: text.Strings(domain.States()), Description: "where they are"},
			Param{Name: "outcome", Kind: ParamText, Values: text.Strings(domain.Outcomes()), Description: "how they ended"},
			Param{Name: "text", Kind: ParamText, Description: "with this text in a summary, an error or the output of a model"}),
		post[api.RunRequest, api.Run]("/v1/runs", "Asks for a run of a job, or of an agent, a tool or a skill.", s.answer(withBody(s.fire))).once(),
		get[api.RunDetail]("/v1/runs/{id}", "A run with everything that happened in it.", s.answer(withRun(s.Run))),
		get[api.Pending]("/v1/runs/{id}/pending", "What a run waits for.", s.answer(withRun(s.Pending))),
		get[api.Recording]("/v1/runs/{id}/recording", "All that is kept of a finished run, as a file that can be played again.", s.answer(withRun(s.recording))),
		post[api.Nothing, api.Replay]("/v1/runs/{id}/replay", "Plays a finished run again without any effect, and says what is different now.", s.answer(withRun(s.actions.Replay))),
		artifact,
		get[api.ArtifactFiles]("/v1/runs/{id}/artifacts/{artifact}/files", "The files of a folder that a run shared.", s.answer(s.artifactFiles)),
		post[api.Nothing, api.Run]("/v1/runs/{id}/cancel", "Has a run stop.", s.answer(withRun(s.Cancel))),
		post[api.Nothing, api.Run]("/v1/runs/{id}/retry", "Has a run that failed, or waits to be tried, tried again.", s.answer(withRun(s.Retry))),
		work(s.responder, "/v1/runs/{id}/undo", "Undoes what a run wrote, or says what that would do.", s.undoRun),
	}
}

const (
	maxBody     = 1 << 20 // bytes of a JSON request
	defaultRuns = 20
	maxRuns     = 1000
)

func (s *Runs) list(r *http.Request) (any, error) {
	q := r.URL.Query()
	return s.List(r.Context(), runs.Filter{Job: q.Get("job"), Agent: q.Get("agent"), Trigger: domain.Trigger(q.Get("trigger")), Outcome: domain.Outcome(q.Get("outcome")),
		State: domain.State(q.Get("state")), Text: q.Get("text"), Since: since(r), Before: number(r, "before", 0), Limit: int(number(r, "n", defaultRuns))})
}

// List returns runs, newest first.
func (s *Runs) List(ctx context.Context, f runs.Filter) ([]api.Run, error) {
	found, err := s.ledger.Runs.List(ctx, f)
	if err != nil {
		return nil, err
	}

	if f.Job != "" && !f.Brief { // include the wakes that the job planned
		f.Woken = true
		woken, err := s.ledger.Runs.List(ctx, f)
		if err != nil {
			return nil, err
		}
		found = append(found, woken...)
		slices.SortFunc(found, func(a, b ledger.Run) int { return cmp.Compare(b.ID, a.ID) })
		found = found[:min(len(found), cmp.Or(f.Limit, len(found)))]
	}

	// Only an empty list may result from a typing error. Runs of a removed job can still be
	// listed, and their last page may be empty.
	if len(found) == 0 && f.Before == 0 {
		if err := s.catalog.Known(f.Job, f.Agent); err != nil {
			return nil, err
		}
	}

	if f.Brief { // without the artifacts
		out := make([]api.Run, len(found))
		for i, run := range found {
			out[i] = newRun(run, nil)
		}
		return out, nil
	}
	return s.withArtifacts(ctx, found...)
}

// Pending returns what a run waits for.
func (s *Runs) Pending(ctx context.Context, id int64) (api.Pending, error) {
	run, err := s.ledger.Runs.Get(ctx, id)
	if err != nil {
		return api.Pending{}, err
	}
	return s.explainer.Pending(ctx, run)
}

func (s *Runs) fire(r *http.Request, in api.RunRequest) (any, error) {
	if err := readKey(r, &in); err != nil {
		return nil, err
	}
	return s.Fire(r.Context(), in)
}

// Fire starts a run.
func (s *Runs) Fire(ctx context.Context, in api.RunRequest) (api.Run, error) {
	id, err := s.actions.Fire(ctx, in)
	if err != nil {
		return api.Run{}, err
	}

	run, err := s.ledger.Runs.Get(ctx, id)
	return s.oneWithArtifacts(ctx, run, err)
}

// Cancel cancels a run that is not over.
func (s *Runs) Cancel(ctx context.Context, id int64) (api.Run, error) {
	run, err := s.ledger.Runs.Get(ctx, id)
	if err != nil {
		return api.Run{}, err
	}
	if run.State == domain.StateFinished {
		return api.Run{}, conflict("run %d has already finished (%s)", id, run.Outcome)
	}

	run, err = s.ledger.RequestCancel(ctx, id, "cancelled by its owner")
	// A running attempt finalizes itself. Here the ledger ended the run at once, so finalize it.
	if err == nil && run.State == domain.StateFinished && run.Outcome == domain.OutcomeCancelled {
		s.actions.Cancelled(ctx, run)
	}

	return s.oneWithArtifacts(ctx, run, err)
}

// Retry starts another attempt of a run.
func (s *Runs) Retry(ctx context.Context, id int64) (api.Run, error) {
	run, err := s.ledger.Runs.Get(ctx, id)
	if err != nil {
		return api.Run{}, err
	}
	if run.State != domain.StateFinished && !run.WaitsForRetry() {
		return api.Run{}, conflict("run %d has not finished (%s); cancel it first, or wait", id, run.State)
	}

	if run.Outcome == domain.OutcomeSuccess || run.Outcome == domain.OutcomeNothing {
		// Another attempt would reuse the recorded results of its calls and have no effect.
		return api.Run{}, conflict("run %d ended in %s, so there is nothing to try again; to do the work once more: rouse run %s", id, run.Outcome, run.Job)
	}

	run, err = s.ledger.Retry(ctx, id)
	return s.oneWithArtifacts(ctx, run, err)
}

// withRun passes the number of the run in a request to answer.
func withRun[T any](answer func(ctx context.Context, run int64) (T, error)) func(*http.Request) (any, error) {
	return withID("a run", "rouse runs", answer)
}

func runID(written string) (int64, error) { return parseID(written, "a run", "rouse runs") }

func (s *Runs) recording(ctx context.Context, run int64) (api.Recording, error) {
	text, err := s.actions.Recording(ctx, run)
	return api.Recording{File: string(text)}, err
}

func (s *Runs) undoRun(r *http.Request, ask api.UndoRequest, progress func(done, of int64)) (api.Undo, error) {
	id, err := runID(r.PathValue("id"))
	if err != nil {
		return api.Undo{}, err
	}
	return s.Undo(r.Context(), id, ask, progress)
}

// Undo undoes a run, or returns the effect of undoing it.
func (s *Runs) Undo(ctx context.Context, id int64, ask api.UndoRequest, progress func(done, of int64)) (out api.Undo, err error) {
	run, err := s.ledger.Runs.Get(ctx, id)
	if err != nil {
		return out, err
	}
	// rouse db undo names an agent. A run of another agent is probably a typing error.
	if ask.Agent != "" && !strings.EqualFold(ask.Agent, run.Agent) {
		return out, usage("run %d is one of agent %s, not of %s", id, run.Agent, ask.Agent)
	}
	if run.State != domain.StateFinished {
		return out, conflict("run %d has not finished (%s); cancel it first, or wait", id, run.State)
	}

	if ask.Only != "" && ask.Only != api.UndoFiles && ask.Only != api.UndoDatabase {
		return out, usage("%q is none of files and database", ask.Only)
	}
	// The database of a removed agent cannot be opened, but its files can be undone.
	if err := s.catalog.Known("", run.Agent); err != nil && ask.Only != api.UndoFiles {
		return out, err
	}

	return s.actions.Undo(ctx, run, ask, progress)
}

func (s *Runs) checkoutRoutes() []Route {
	return []Route{
		get[[]api.Checkout]("/v1/checkouts", "Branches of runs that wait to be applied or discarded.", s.answer(asked(s.checkouts.WaitingCheckouts))),
		get[api.Checkout]("/v1/runs/{id}/checkout", "The private clone of a run, its branch and its changes.", s.answer(withRun(s.Checkout))),
		post[api.ApplyRequest, api.Checkout]("/v1/runs/{id}/apply", "Puts the commits of a finished run on the branch that it began from.", s.answer(withIDBody("a run", "rouse runs", s.Apply))),
		post[api.Nothing, api.Checkout]("/v1/runs/{id}/discard", "Removes the clone and the branch of a finished run.", s.answer(withRun(s.Discard))),
	}
}

// Checkout returns the private clone of a run with its changes.
func (s *Runs) Checkout(ctx context.Context, id int64) (api.Checkout, error) {
	run, err := s.ledger.Runs.Get(ctx, id)
	if err != nil {
		return api.Checkout{}, err
	}
	c, err := s.checkouts.Checkout(ctx, run, true)
	if err == nil && c == nil {
		err = &api.Error{Status: http.StatusNotFound, Message: fmt.Sprintf("run %d has no checkout, or it was discarded", run.ID)}
	}
	if err != nil {
		return api.Checkout{}, err
	}
	return *c, nil
}

// Apply adds the commits of a run to the branch from which it started.
func (s *Runs) Apply(ctx context.Context, id int64, ask api.ApplyRequest) (api.Checkout, error) {
	run, err := s.finishedRun(ctx, id)
	if err != nil {
		return api.Checkout{}, err
	}
	return s.checkouts.Apply(ctx, run, ask)
}

// Discard removes the clone and the branch of a run.
func (s *Runs) Discard(ctx context.Context, id int64) (api.Checkout, error) {
	run, err := s.finishedRun(ctx, id)
	if err != nil {
		return api.Checkout{}, err
	}
	return s.checkouts.Discard(ctx, run)
}

func (s *Runs) finishedRun(ctx context.Context, id int64) (ledger.Run, error) {
	run, err := s.ledger.Runs.Get(ctx, id)
	if err == nil && run.State != domain.StateFinished {
		err = conflict("run %d has not finished (%s); cancel it first, or wait", id, run.State)
	}
	return run, err
}
