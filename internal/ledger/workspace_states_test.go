package ledger_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rouse/internal/contract"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/artifact"
	"rouse/internal/ledger/steps"
	"rouse/internal/ledger/workspace"
)

// workspaceModel is the expected state of a workspace.
type workspaceModel struct {
	status  workspace.Status
	version int64
	// n counts the changes of its state, and kept is n at the run's last checkpoint.
	n, kept   int
	review    int64           // run under review
	artifacts []int64         // valid artifacts, oldest first
	keptThen  []int64         // artifacts of the checkpoint
	first     map[int64]int64 // first version of each artifact
	versions  map[int64]int   // number of versions of each first version, including discarded ones
	run       *ledger.Attempt
	partial   bool
	calls     int
}

// TestWorkspaceStates applies random work of runs, crashes and decisions of an owner to a
// workspace. The state must always match the rules, and a repeated call must change no state. No
// run works in the workspace during a review, discarded artifacts do not count, and only the owner
// approves artifacts (OSL-25, OSL-27, OSL-28, OSL-29, OSL-30, UNI-12, C-6).
func TestWorkspaceStates(t *testing.T) {
	t.Parallel()
	statuses := contract.Of(t, "C-6").Between("such as ", ". Only")
	base, folders := t.TempDir(), 0
	rapid.Check(t, func(t *rapid.T) {
		folders++
		dir := filepath.Join(base, fmt.Sprint(folders))
		l := openIn(t, dir)
		defer func() { l.Close() }()

		w, err := l.Workspaces.Create(noCancel, workspace.Author{}, workspace.Workspace{Agent: "a", Skill: "s", Name: "w", SchemaVersion: "3", State: json.RawMessage(`{"n":0}`)})
		if err != nil {
			t.Fatal(err)
		}

		m := workspaceModel{status: workspace.Active, version: 1, first: map[int64]int64{}, versions: map[int64]int{}}
		var blocked *workspace.BlockedError
		var wrong *workspace.Error
		var conflict *workspace.ConflictError
		open := func() bool { return m.status == workspace.Active && m.review == 0 }
		key := func() workspace.Author {
			m.calls++
			return workspace.Author{Attempt: *m.run, Key: fmt.Sprintf("k%d", m.calls)}
		}
		// expect checks that an error is returned exactly if runs are blocked.
		expect := func(t *rapid.T, what string, err error) bool {
			if open() != (err == nil) || err != nil && !errors.As(err, &blocked) {
				t.Fatalf("%s: %v, with %+v", what, err, m)
			}
			return err == nil
		}
		// begin starts a run in the workspace if that is allowed.
		begin := func(t *rapid.T) bool {
			if m.run != nil {
				return true
			}
			accepted, err := l.Enqueue(noCancel, ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerAPI})
			if err != nil {
				t.Fatal(err)
			}
			_, attempt, err := l.StartAttempt(noCancel, accepted[0].Run)
			if err != nil {
				t.Fatal(err)
			}

			_, err = l.Workspaces.Enter(noCancel, attempt, w.ID)
			if !expect(t, "entered", err) {
				if err := l.Finish(noCancel, attempt, ledger.Result{Outcome: domain.OutcomeError}); err != nil {
					t.Fatal(err)
				}
				return false
			}
			m.run, m.calls, m.partial, m.kept, m.keptThen = &attempt, 0, false, m.n, slices.Clone(m.artifacts)
			return true
		}

		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) {
				if !begin(t) {
					return
				}
				by, given := key(), m.version
				stale := rapid.Bool().Draw(t, "stale")
				switch {
				case stale && given > 1: // 0 would mean any version
					given--
				case stale:
					given++
				}

				c := workspace.Change{LockVersion: given, State: fmt.Appendf(nil, `{"n":%d}`, m.n+1)}
				_, err := l.Workspaces.Change(noCancel, by, w.ID, c)
				if stale && open() {
					if !errors.As(err, &conflict) {
						t.Fatalf("a stale write: %v", err)
					}
					return
				}
				if !expect(t, "written", err) {
					return
				}
				m.n++
				m.version++
				m.partial = true

				// Repeat the call, as after a crash.
				again, err := l.Workspaces.Change(noCancel, by, w.ID, c)
				if err != nil || again.LockVersion != m.version {
					t.Fatalf("the repeated call: %+v %v", again, err)
				}
			},
			"artifact": func(t *rapid.T) {
				if !begin(t) {
					return
				}
				by, parent := key(), int64(0)
				if n := len(m.artifacts); n > 0 && rapid.Bool().Draw(t, "newer") {
					parent = m.artifacts[n-1]
				}
				a, err := l.Workspaces.AddArtifact(noCancel, by, artifact.Artifact{Workspace: w.ID, Title: "t", Status: rapid.SampledFrom(statuses).Draw(t, "status"), Role: "writer", Parent: parent}, []byte(by.Key))
				if !expect(t, "added", err) {
					return
				}

				m.first[a.ID] = a.ID
				if parent != 0 {
					m.first[a.ID] = m.first[parent]
					m.artifacts = m.artifacts[:len(m.artifacts)-1]
				}
				m.versions[m.first[a.ID]]++
				if a.Version != m.versions[m.first[a.ID]] || a.Parent != parent || a.Run != m.run.Run || a.Role != "writer" {
					t.Fatalf("of %d it is %+v, and should be version %d", parent, a, m.versions[m.first[a.ID]])
				}
				m.version++
				m.partial, m.artifacts = true, append(m.artifacts, a.ID)
			},
			"checkpoint": func(t *rapid.T) {
				if !begin(t) {
					return
				}
				_, err := l.Workspaces.AddCheckpoint(noCancel, key(), workspace.Checkpoint{Workspace: w.ID})
				if expect(t, "checkpoint", err) {
					m.partial, m.kept, m.keptThen = false, m.n, slices.Clone(m.artifacts)
				}
			},
			"crash": func(t *rapid.T) {
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				l = openIn(t, dir)
				if m.run == nil {
					return
				}

				if err := l.Interrupt(noCancel, *m.run, "crash", nil); err != nil {
					t.Fatal(err)
				}
				_, next, err := l.StartAttempt(noCancel, m.run.Run)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := l.Workspaces.Change(noCancel, workspace.Author{Attempt: *m.run, Key: "late"}, w.ID, workspace.Change{State: json.RawMessage(`{}`)}); !errors.Is(err, ledger.ErrFenced) {
					t.Fatalf("a late write: %v", err)
				}
				m.run = &next
			},
			"end": func(t *rapid.T) {
				if m.run == nil {
					return
				}

				outcome := rapid.SampledFrom([]domain.Outcome{domain.OutcomeSuccess, domain.OutcomeError, domain.OutcomeInterrupted}).Draw(t, "outcome")
				var err error
				if outcome == domain.OutcomeInterrupted {
					err = l.Interrupt(noCancel, *m.run, "killed", &ledger.Result{Outcome: outcome})
				} else {
					err = l.Finish(noCancel, *m.run, ledger.Result{Outcome: outcome})
				}
				if err != nil {
					t.Fatal(err)
				}

				if m.partial && outcome != domain.OutcomeSuccess {
					m.review = m.run.Run
				}
				m.run = nil
			},
			"move": func(t *rapid.T) {
				to := rapid.SampledFrom([]workspace.Status{workspace.Active, workspace.Active, workspace.Paused, workspace.Archived}).Draw(t, "status")
				_, err := l.Workspaces.Change(noCancel, workspace.Author{}, w.ID, workspace.Change{Status: to})
				refused := to == workspace.Paused && m.status == workspace.Archived ||
					to == workspace.Archived && m.status != to && m.run != nil
				if refused != (err != nil) || err != nil && !errors.As(err, &wrong) {
					t.Fatalf("from %s to %s: %v", m.status, to, err)
				}
				if err == nil {
					m.status = to
					m.version++
				}
			},
			"decide": func(t *rapid.T) {
				back := rapid.Bool().Draw(t, "discard")
				decide := l.Workspaces.AcknowledgeReview
				if back {
					decide = l.Workspaces.DiscardReview
				}

				_, err := decide(noCancel, w.ID)
				if (m.review == 0) != (err != nil) || err != nil && !errors.As(err, &wrong) {
					t.Fatalf("decided: %v, with %+v", err, m)
				}
				if err != nil {
					return
				}
				m.review = 0
				m.version++
				if back {
					m.n, m.artifacts = m.kept, slices.Clone(m.keptThen)
				}
			},
			"": func(t *rapid.T) {
				got, err := l.Workspaces.Get(noCancel, w.ID)
				if err != nil {
					t.Fatal(err)
				}
				if got.SchemaVersion != "3" || got.Status != m.status || got.Review != m.review || got.LockVersion != m.version || string(got.State) != fmt.Sprintf(`{"n":%d}`, m.n) {
					t.Fatalf("it is %+v, and should be %+v", got, m)
				}

				latest, err := l.Workspaces.Artifacts(noCancel, w.ID, false)
				for _, a := range latest {
					if !slices.Contains(statuses, a.Status) || a.Approval != "" {
						t.Fatalf("a skill has approved %+v", a)
					}
				}
				if err != nil || len(latest) != len(m.artifacts) {
					t.Fatalf("%d artifacts count, and should %d: %v", len(latest), len(m.artifacts), err)
				}
			},
		})
	})
}

// TestReviewOfCalls checks OSL-30: a failed run leaves a workspace under review if it may have
// changed anything outside since its last checkpoint. Interrupted calls count. Calls that failed or
// only read do not.
func TestReviewOfCalls(t *testing.T) {
	t.Parallel()
	var seconds atomic.Int64
	now := func() time.Time { return time.Unix(1_800_000_000+seconds.Add(1), 0) }
	l, err := ledger.Open(noCancel, ledger.Options{Path: filepath.Join(t.TempDir(), "ledger.db"), Now: now})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, c := range map[string]struct {
		effect     domain.Effect
		state      domain.CallState // empty if it is cut off
		checkpoint bool             // whether a checkpoint was made after it
		review     bool
	}{
		"done":             {effect: domain.EffectExternal, state: domain.CallDone, review: true},
		"cut off":          {effect: domain.EffectWrite, review: true},
		"failed":           {effect: domain.EffectWrite, state: domain.CallFailed},
		"read":             {effect: domain.EffectRead, state: domain.CallDone},
		"in a checkpoint":  {effect: domain.EffectWrite, state: domain.CallDone, checkpoint: true},
		"cut off, reading": {effect: domain.EffectRead},
	} {
		w, err := l.Workspaces.Create(noCancel, workspace.Author{}, workspace.Workspace{Agent: "a", Skill: "s", Name: name})
		if err != nil {
			t.Fatal(err)
		}
		accepted, err := l.Enqueue(noCancel, ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerAPI})
		if err != nil {
			t.Fatal(err)
		}
		_, a, err := l.StartAttempt(noCancel, accepted[0].Run)
		if err == nil {
			_, err = l.Workspaces.Enter(noCancel, a, w.ID)
		}
		if err == nil {
			err = l.Steps.StartStep(noCancel, a, steps.Step{Number: 1, StartedAt: now()})
		}
		call := ledger.Call{Step: 1, ID: "c", Key: "c", Tool: "t", Args: json.RawMessage(`{}`), Effect: c.effect, StartedAt: now()}
		if err == nil {
			err = l.Steps.StartCall(noCancel, a, call)
		}
		if err == nil && c.state != "" {
			call.State, call.Envelope, call.FinishedAt = c.state, json.RawMessage(`{"ok":true}`), now()
			err = l.Steps.FinishCall(noCancel, a, call)
		}
		if err == nil && c.checkpoint {
			_, err = l.Workspaces.AddCheckpoint(noCancel, workspace.Author{Attempt: a, Key: "k"}, workspace.Checkpoint{Workspace: w.ID})
		}
		if err == nil {
			err = l.Interrupt(noCancel, a, "killed", &ledger.Result{Outcome: domain.OutcomeInterrupted})
		}
		if err != nil {
			t.Fatal(name, err)
		}

		if w, err = l.Workspaces.Get(noCancel, w.ID); err != nil || (w.Review == a.Run) != c.review {
			t.Errorf("%s: %+v (%v)", name, w, err)
		}
	}
}
