package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/a-h/templ"

	"rouse/cmd/internal/api"
	"rouse/internal/domain"
	"rouse/internal/folderzip"
	"rouse/internal/ledger"
	"rouse/internal/ledger/artifact"
	"rouse/internal/ledger/inbox"
	"rouse/internal/text"
)

// stepsOnPage is the number of steps per page.
const stepsOnPage = 30

// run is the page of a run.
type run struct {
	page
	api.RunDetail
	Mark     mark
	Cause    string      // trigger, in words
	Pending  api.Pending // why the run is not running
	Shown    []shownStep
	From, Of int       // index of the first step shown, and number of steps
	Failing  *callPart // failing call of a failed run
	Waiting  []api.Item
	Changes  changes
}

// cost returns the cost of the run. If an agent program reported the cost, its name is included.
func (v run) cost() string {
	if program := v.Program(); program != "" && v.CostUSD > 0 {
		return costText(v.Run) + ", as " + program + " says"
	}
	return costText(v.Run)
}

// shownStep is a step with its number within the run and its calls.
type shownStep struct {
	api.Step
	Number int
	Calls  []callPart
	Depth  int // nesting depth
}

// callPart is a call with its number and its nested steps.
type callPart struct {
	api.Call
	Number int
	Within []shownStep
	Fails  bool // the call at which the run failed
}

func (s *site) runRoutes(mux *http.ServeMux) {
	mux.Handle("GET /runs/{id}", s.show(s.run))
	mux.Handle("GET /runs/{id}/text", s.text(s.runText))
	mux.Handle("GET /runs/{id}/artifacts/{artifact}", s.checked(s.artifact))
	mux.Handle("GET /runs/{id}/artifacts/{artifact}/files", s.text(s.artifactFiles))
	mux.Handle("GET /runs/{id}/undo", s.show(s.undoPage))
	mux.Handle("GET /runs/{id}/replay", s.show(s.replayPage))
	mux.Handle("POST /runs/{id}/undo", s.do(s.undo))
	mux.Handle("POST /runs/{id}/cancel", doRun(s, s.answers.Runs.Cancel))
	mux.Handle("POST /runs/{id}/retry", doRun(s, s.answers.Runs.Retry))
	mux.Handle("POST /runs/{id}/apply", s.do(s.apply))
	mux.Handle("POST /runs/{id}/discard", doRun(s, s.answers.Runs.Discard))
}

func (s *site) run(r *http.Request, p page) (templ.Component, error) {
	id, ctx := pathID(r, "id"), r.Context()
	v := run{page: p.titled(fmt.Sprintf("Run %d", id), "Runs")}
	var err error
	if v.RunDetail, err = s.answers.Runs.Run(ctx, id); err != nil {
		return nil, err
	}
	if v.Checkout != nil && v.State == domain.StateFinished {
		c, err := s.answers.Runs.Checkout(ctx, id)
		if err != nil {
			return nil, err
		}
		v.Checkout = &c // including its diff
	}
	v.Mark, v.Cause = runMark(v.Run), cause(v.Run)
	if v.State != domain.StateFinished {
		if v.Pending, err = s.answers.Runs.Pending(ctx, id); err != nil {
			return nil, err
		}
	}
	for _, item := range v.Inbox {
		if item.State == inbox.ItemOpen {
			v.Waiting = append(v.Waiting, item)
		}
	}

	all := numbered(v.StepsDetail)
	v.Failing = failing(v.Run, all)
	v.From, v.Of = window(r.URL.Query().Get("step"), all, v.Run), len(all)
	v.Shown = all[v.From:min(v.From+stepsOnPage, len(all))]

	v.Changes, err = s.changesOf(ctx, id, v.RunDetail)
	return runPage(v), err
}

// numbered numbers the steps and calls of a run in the order in which they are shown.
func numbered(steps []api.Step) []shownStep {
	var stepNumber, callNumber int
	var walk func([]api.Step, int) []shownStep
	walk = func(steps []api.Step, depth int) []shownStep {
		out := make([]shownStep, len(steps))
		for i, st := range steps {
			stepNumber++
			out[i] = shownStep{Step: st, Number: stepNumber, Depth: depth}
			for _, c := range st.Calls {
				callNumber++
				number := callNumber
				out[i].Calls = append(out[i].Calls, callPart{Call: c, Number: number, Within: walk(c.StepsDetail, depth+1)})
			}
		}
		return out
	}
	return walk(steps, 0)
}

// failing returns the last failed call of a failed run and marks it.
func failing(r api.Run, steps []shownStep) *callPart {
	if !r.Outcome.Failed() {
		return nil
	}
	for i := len(steps) - 1; i >= 0; i-- {
		for j := len(steps[i].Calls) - 1; j >= 0; j-- {
			if c := &steps[i].Calls[j]; !c.OK {
				c.Fails = true
				return c
			}
		}
	}
	return nil
}

// window returns the index of the first step to show. That is the requested step, or the start of
// the page with the failing call. Otherwise it is the last page for a run that is not finished, and
// the first page for others.
func window(asked string, steps []shownStep, r api.Run) int {
	if n, err := strconv.Atoi(asked); err == nil && n >= 1 && n <= len(steps) {
		return n - 1
	}
	for i, st := range steps {
		for _, c := range st.Calls {
			if c.Fails {
				return i / stepsOnPage * stepsOnPage
			}
		}
	}
	if r.State != domain.StateFinished && len(steps) > 0 {
		return (len(steps) - 1) / stepsOnPage * stepsOnPage
	}
	return 0
}

// cause describes the trigger of a run.
func cause(r api.Run) string {
	var d ledger.TriggerDetail
	if json.Unmarshal(r.TriggerDetail, &d) != nil {
		return string(r.Trigger)
	}

	switch {
	case d.File != nil:
		return "the file " + d.File.Name + " (" + text.Size(d.File.Size) + ")"
	case len(d.Files) > 0:
		return text.Plural(len(d.Files), "file")
	case d.Folder != "" && d.Changes != nil:
		return "the folder " + d.Folder + ": " + d.Changes.Text()
	case d.Wake != nil:
		return "a wake that the agent planned"
	case d.Source != "" && !r.ScheduledAt.IsZero():
		return d.Source
	case d.Prompt != "":
		return "you asked: " + d.Prompt
	case d.Tool != "":
		return "you called " + d.Tool
	case d.Skill != "":
		return "you started the skill " + d.Skill
	}
	return string(r.Trigger)
}

// short formats the arguments of a call on one line.
func short(args json.RawMessage) string {
	var out bytes.Buffer
	if json.Compact(&out, args) != nil {
		return string(args)
	}
	return strings.Trim(out.String(), "{}")
}

// pretty formats JSON on several lines. A JSON string becomes plain text.
func pretty(raw json.RawMessage) string {
	var plain string
	if json.Unmarshal(raw, &plain) == nil {
		return plain
	}
	var out bytes.Buffer
	if json.Indent(&out, raw, "", "  ") != nil {
		return string(raw)
	}
	return out.String()
}

// callWord returns the result of a call in one word.
func callWord(c callPart) string {
	switch {
	case c.OK && c.Deduped:
		return "from the record"
	case c.OK:
		return "ok"
	case c.Kind != "":
		return c.Kind
	}
	return string(c.State)
}

// textPath returns the address of a full text of the run.
func (v run) textPath(of string, number int) string {
	return link([]string{"runs", v.ID, "text"}, "of", of, "n", strconv.Itoa(number))
}

// runText returns a full text of a run: its summary, its error, the text of a step, or the
// arguments or result of a call.
func (s *site) runText(r *http.Request) (string, error) {
	d, err := s.answers.Runs.Run(r.Context(), pathID(r, "id"))
	if err != nil {
		return "", err
	}
	found, ok := textOf(d, r.URL.Query().Get("of"), r.URL.Query().Get("n"))
	if !ok {
		return "", notFound("run %s has no such text", d.ID)
	}
	return found, nil
}

func textOf(d api.RunDetail, of, number string) (string, bool) {
	switch of {
	case "summary":
		return d.Summary, true
	case "error":
		return d.Error, true
	}
	n, _ := strconv.Atoi(number) // numbers start at 1
	return textWithin(numbered(d.StepsDetail), of, n)
}

func textWithin(steps []shownStep, of string, n int) (string, bool) {
	for _, st := range steps {
		if of == "step" && st.Number == n {
			return st.Text, true
		}
		for _, c := range st.Calls {
			switch {
			case of == "args" && c.Number == n:
				return pretty(c.Args), true
			case of == "result" && c.Number == n:
				return pretty(c.Result), true
			}
			if found, ok := textWithin(c.Within, of, n); ok {
				return found, true
			}
		}
	}
	return "", false
}

// artifact sends an artifact as a download, because its content is untrusted.
func (s *site) artifact(w http.ResponseWriter, r *http.Request) {
	a, content, err := s.artifactOf(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.download(w, r, a.Name, a.Size, bytes.NewReader(content))
}

// artifactFiles returns the file tree of a shared directory.
func (s *site) artifactFiles(r *http.Request) (string, error) {
	a, content, err := s.artifactOf(r)
	if err != nil {
		return "", err
	}
	files, more, err := folderzip.Files(content)
	if err != nil {
		return "", notFound("%s is no folder that was shared", line(a.Name))
	}

	var tree strings.Builder
	err = folderzip.Tree(&tree, files, more, text.OneLine, text.Size)
	return tree.String(), err
}

func (s *site) artifactOf(r *http.Request) (artifact.Artifact, []byte, error) {
	return s.ledger.Artifacts.Bytes(r.Context(), pathID(r, "id"), pathID(r, "artifact"))
}

// isArchive reports whether an artifact may be a shared directory.
func isArchive(a api.Artifact) bool { return strings.EqualFold(path.Ext(a.Name), ".zip") }

// download sends a file for the browser to save rather than show.
func (s *site) download(w http.ResponseWriter, r *http.Request, name string, size int64, content io.Reader) {
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Disposition", contentDisposition(name))
	h.Set("Content-Length", strconv.FormatInt(size, 10))
	if _, err := io.Copy(w, content); err != nil && r.Context().Err() == nil {
		s.log.Warn("a file could not be sent", "path", r.URL.Path, "error", err)
	}
}

// doRun returns a handler that performs an action on a run and returns to the page of the form.
func doRun[T any](s *site, do func(ctx context.Context, run int64) (T, error)) http.Handler {
	return s.do(func(r *http.Request) (string, error) {
		_, err := do(r.Context(), pathID(r, "id"))
		return back(r), err
	})
}

// undoPage shows the expected result of an undo.
func (s *site) undoPage(r *http.Request, p page) (templ.Component, error) {
	id := pathID(r, "id")
	would, err := s.answers.Runs.Undo(r.Context(), id, api.UndoRequest{DryRun: true}, func(int64, int64) {})
	return undoPage(p.titled(fmt.Sprintf("Undo run %d", id), "Runs"), would), err
}

// replayPage shows the differences found by replaying a run. A replay changes nothing.
func (s *site) replayPage(r *http.Request, p page) (templ.Component, error) {
	id := pathID(r, "id")
	played, err := s.control.Replay(r.Context(), id)
	var cannot *api.Error
	// A conflict means that the run cannot be replayed, which the page shows.
	if errors.As(err, &cannot) && cannot.Status == http.StatusConflict {
		played, err = api.Replay{Run: strconv.FormatInt(id, 10), Unknown: cannot.Message}, nil
	}
	return replayPage(p.titled(fmt.Sprintf("Replay of run %d", id), "Runs"), played), err
}

func (s *site) undo(r *http.Request) (string, error) {
	done, err := s.answers.Runs.Undo(r.Context(), pathID(r, "id"), api.UndoRequest{Force: r.PostFormValue("force") == "yes"}, func(int64, int64) {})
	if err == nil && !done.Done {
		err = &api.Error{Status: http.StatusConflict, Message: "nothing was undone: something came later that stands in the way. What it is, the page of the undo says; there you can also have it undone all the same."}
	}
	return runPath(r.PathValue("id")), err
}

// retryable reports whether a run can be retried.
func retryable(r api.Run) bool {
	return r.State == domain.StateFinished && r.Outcome != domain.OutcomeSuccess && r.Outcome != domain.OutcomeNothing
}

// apply applies the branch shown on the page. It fails if the branch has changed since.
func (s *site) apply(r *http.Request) (string, error) {
	_, err := s.answers.Runs.Apply(r.Context(), pathID(r, "id"), api.ApplyRequest{How: r.PostFormValue("how"), Head: r.PostFormValue("head")})
	return back(r), err
}
