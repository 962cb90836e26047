package control

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"rouse/agent/tool/moduleapi"
	"rouse/cmd/internal/access"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/plan"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/text"
	"rouse/watcher"
)

// Fire queues a run and returns its ID.
func (x *Runs) Fire(ctx context.Context, f api.RunRequest) (int64, error) {
	now := x.Setup()
	if err := now.Known(f.Job, f.Agent); err != nil {
		return 0, err
	}
	if err := x.refuseSecrets(f); err != nil {
		return 0, err
	}

	req := ledger.Request{Job: f.Job, Agent: f.Agent, Trigger: cmp.Or(f.Trigger, domain.TriggerManual), Detail: ledger.TriggerDetail{
		Input: f.Input, Prompt: f.Prompt, Session: f.Session, NewSession: f.NewSession, Chat: f.Chat, Tool: f.Tool, Args: f.Args, FailOnExitCode: f.FailOnExitCode,
		Skill: f.Skill, SkillInput: f.SkillInput, DryRun: f.DryRun, Workspace: f.Workspace, Uninstall: f.Uninstall, Untrusted: f.Untrusted,
	}}
	if err := hasSession(now, f); err != nil {
		return 0, err
	}
	if err := setIdempotencyKey(&req, f); err != nil {
		return 0, err
	}
	if f.Key != "" { // first, because an accepted request stays accepted
		if run, known, err := x.findByKey(ctx, req); known || err != nil {
			return run, otherRequest(err, f.Key)
		}
	}

	if f.Job != "" {
		j := now.Job(f.Job)
		if !config.On(j.Enabled) {
			return 0, &api.Error{Status: 409, Message: fmt.Sprintf("the job %s is disabled (enabled: false at %s)", f.Job, j.At)}
		}

		req.Agent = j.Agent
		// Use the watch, so that the same content is not processed twice.
		if f.File != "" || converges(j) {
			if err := x.admit(ctx, access.Caller(ctx), req); err != nil {
				return 0, err
			}
			return x.fireWatch(ctx, j, f)
		}
	} else if f.Skill != "" {
		if err := runnable(now, f); err != nil {
			return 0, err
		}
	} else if s := x.Runner.Specs().Find(f.Tool); f.Tool != "" && (s.Name == "" || !s.Listed()) {
		return 0, &api.Error{Status: 404, Message: text.NoSuch("tool", f.Tool, x.Runner.Specs().Callable()), Usage: true}
	}

	if err := x.admit(ctx, access.Caller(ctx), req); err != nil {
		return 0, err
	}
	run, _, err := x.enqueueOnce(ctx, req)
	return run, otherRequest(err, f.Key)
}

// maxSessionKey is the maximum length of a session key, in characters.
const maxSessionKey = 200

// hasSession returns an error if a request names or restarts a session that its run cannot have.
func hasSession(s *plan.Setup, f api.RunRequest) error {
	refuse := func(format string, args ...any) error {
		return &api.Error{Status: 400, Message: fmt.Sprintf(format, args...), Usage: true}
	}
	switch {
	case f.Session != "" && f.Prompt == "":
		return refuse("a session is for an agent and a prompt; the runs of a job have one with session: keep in the configuration")
	case utf8.RuneCountInString(f.Session) > maxSessionKey:
		return refuse("the key of a session has up to %d characters, not %d", maxSessionKey, utf8.RuneCountInString(f.Session))
	case !f.NewSession || f.Session != "":
		return nil
	case f.Job == "":
		return refuse("there is no session that could begin again: name one, or a job that keeps one")
	}

	switch j := s.Job(f.Job); {
	case j.Session != config.SessionKeep:
		return refuse("the job %s keeps no session, so that each of its runs is fresh; session: keep (%s) would keep one", j.Name, j.At)
	case f.File != "" || converges(j):
		return refuse("a run of job %s that takes a file or a folder cannot begin its session again", j.Name)
	}
	return nil
}

// runnable returns an error if a request cannot run its skill.
func runnable(s *plan.Setup, f api.RunRequest) error {
	modules := s.Plan.Runner.Modules
	skill, ok := modules[f.Skill]
	if !ok {
		return &api.Error{Status: 404, Message: text.NoSuch("skill with a module", f.Skill, slices.Sorted(maps.Keys(modules))), Usage: true}
	}
	if lacks := moduleapi.Missing(skill.Manifest); len(lacks) > 0 {
		return &api.Error{Status: 400, Message: fmt.Sprintf("the skill %s asks for what is not available in this version: %s", f.Skill, strings.Join(lacks, ", "))}
	}
	switch keeps := moduleapi.KeepsWorkspace(skill.Manifest); {
	case f.Uninstall:
		return nil // uninstalling uses neither settings nor input
	case f.Workspace != "" && !keeps:
		return &api.Error{Status: 400, Message: fmt.Sprintf("the skill %s keeps no workspaces", f.Skill), Usage: true}
	case f.Workspace == "" && skill.Manifest.NeedsWorkspace():
		return &api.Error{Status: 400, Message: fmt.Sprintf("the skill %s works in a workspace: name one with --workspace", f.Skill), Usage: true}
	}
	if _, err := s.Config.ModuleConfig(skill); err != nil {
		return &api.Error{Status: 400, Message: fmt.Sprintf("the settings of the skill %s (skills.settings): %v", f.Skill, err)}
	}
	if err := moduleapi.CheckValue(skill.Manifest.InputSchema, f.SkillInput); err != nil {
		return &api.Error{Status: 400, Message: fmt.Sprintf("the input does not fit the inputSchema of the skill %s: %v", f.Skill, err), Usage: true}
	}
	return nil
}

// refuseSecrets returns an error if a request contains a secret of the configuration. The secret
// would be stored in the history.
func (x *Runs) refuseSecrets(f api.RunRequest) error {
	for what, value := range map[string]any{"prompt holds": f.Prompt, "input holds": f.Input, "session holds": f.Session, "arguments hold": f.Args, "input of the skill holds": f.SkillInput, "Idempotency-Key holds": f.Key} {
		// JSON includes values nested in the input or the arguments.
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		if x.Runner.Plan.Redact(string(text)) != string(text) {
			return &api.Error{Status: 400, Message: fmt.Sprintf("the %s the value of a secret of the configuration, and would stand in the history; leave it out: what needs a secret gets it from the configuration", what)}
		}
	}
	return nil
}

// converges reports whether a job's watch is about the state of a folder, not about single files.
func converges(j *config.Job) bool {
	return j.Watch != nil && j.Watch.Mode == watcher.ModeConverge
}

// fireWatch claims a file as if it had been dropped. Without a file, it starts a run as if the
// watched folder had changed.
func (x *Runs) fireWatch(ctx context.Context, j *config.Job, f api.RunRequest) (int64, error) {
	switch {
	case len(f.Input) > 0:
		return 0, &api.Error{Status: 400, Message: fmt.Sprintf("a run of job %s that takes a file or a folder takes no input", j.Name), Usage: true}
	case f.Key != "":
		return 0, &api.Error{Status: 400, Message: fmt.Sprintf("a run of job %s that takes a file or a folder takes no Idempotency-Key: the same content is taken once", j.Name), Usage: true}
	case f.File == "":
		return x.fireFolder(ctx, j)
	case converges(j):
		return 0, &api.Error{Status: 400, Message: fmt.Sprintf("job %s takes its folder as a whole, not a file (mode: converge); start it with: rouse run %s", j.Name, j.Name), Usage: true}
	}

	if err := x.RefuseElsewhere(string(j.Name)); err != nil {
		return 0, err
	}

	w := x.Setup().Plan.WatchOf(j)

	file, err := x.readable(ctx, j, f.File)
	if err != nil {
		return 0, err
	}
	a, err := watcher.EnqueueFile(ctx, x.Ledger, w, file, f.Again)
	if err != nil {
		return 0, &api.Error{Status: 400, Message: err.Error()}
	}

	switch {
	case a.Blocked && a.Outcome == "":
		return 0, &api.Error{Status: 409, Message: fmt.Sprintf("run %d has this file and is not finished yet; see: rouse show %[1]d", a.Run)}
	case a.Blocked:
		return 0, &api.Error{Status: 409, Message: fmt.Sprintf("this content at this path was processed before, by run %d (%s); see: rouse show %[1]d. To process it again: rouse run %[3]s --file %[4]s --again",
			a.Run, a.Outcome, j.Name, text.ShellWord(string(f.File)))}
	}

	return a.Run, nil
}

// fireFolder starts a run for the folder of a converging watch.
func (x *Runs) fireFolder(ctx context.Context, j *config.Job) (int64, error) {
	if err := x.RefuseElsewhere(string(j.Name)); err != nil {
		return 0, err
	}

	var a ledger.Accepted
	var err error
	// A running watcher keeps the state of the folder, so it must start the run itself.
	if x.Explainer.Watcher != nil {
		a, err = x.Explainer.Watcher.Trigger(ctx, string(j.Name))
	} else if a, err = watcher.Trigger(ctx, x.Ledger, x.Setup().Plan.Watches, string(j.Name)); errors.Is(err, watcher.ErrBusy) {
		err = fmt.Errorf("%w, which takes a daemon: rouse serve", err)
	}
	switch {
	case errors.Is(err, watcher.ErrBusy):
		return 0, &api.Error{Status: 409, Message: err.Error()}
	case err != nil:
		return 0, &api.Error{Status: 400, Message: err.Error()}
	}
	return a.Run, nil
}

// errOtherRequest is returned if the key was used for a different request.
var errOtherRequest = errors.New("the key stands for another request")

// newOnce returns the idempotency key of a request, with the request's hash.
func newOnce(key string, request []byte) *ledger.IdempotencyKey {
	sum := sha256.Sum256(request)
	return &ledger.IdempotencyKey{Key: key, Request: hex.EncodeToString(sum[:])}
}

// setIdempotencyKey sets the key of a request. Each job, and each agent without a job, has its own
// keys.
func setIdempotencyKey(req *ledger.Request, f api.RunRequest) error {
	if f.Key == "" {
		return nil
	}

	asked, err := json.Marshal(f) // encodes maps in a fixed order
	if err != nil {
		return err
	}
	scope := "agent/" + f.Agent
	if f.Job != "" {
		scope = "job/" + f.Job
	}
	req.Key, req.Detail.IdempotencyKey = "asked/"+scope+"/"+f.Key, newOnce(f.Key, asked)
	return nil
}

// findByKey returns the run of an earlier request with the same key. It returns errOtherRequest if
// the requests differ.
func (x *Runs) findByKey(ctx context.Context, req ledger.Request) (id int64, known bool, err error) {
	run, known, err := x.Ledger.Runs.ByKey(ctx, req.Key)
	if !known || err != nil || req.Detail.IdempotencyKey == nil {
		return run.ID, known, err
	}

	var before ledger.TriggerDetail
	if err := json.Unmarshal(run.Detail, &before); err != nil {
		return 0, false, fmt.Errorf("what asked for run %d is damaged: %w", run.ID, err)
	}
	if before.IdempotencyKey != nil && before.IdempotencyKey.Request != req.Detail.IdempotencyKey.Request {
		return 0, false, errOtherRequest
	}
	return run.ID, true, nil
}

// enqueueOnce queues a run. If a request with the same key exists, even a concurrent one, it
// returns the run of that request.
func (x *Runs) enqueueOnce(ctx context.Context, req ledger.Request) (id int64, isNew bool, err error) {
	accepted, err := x.Ledger.Enqueue(ctx, req)
	if err != nil {
		return 0, false, err
	}
	if !accepted[0].New {
		if _, _, err := x.findByKey(ctx, req); err != nil {
			return 0, false, err
		}
	}
	return accepted[0].Run, accepted[0].New, nil
}

// otherRequest converts errOtherRequest to an error for API clients.
func otherRequest(err error, key string) error {
	if errors.Is(err, errOtherRequest) {
		return &api.Error{Status: http.StatusUnprocessableEntity, Message: fmt.Sprintf("something else was asked for before with the Idempotency-Key %q; a new request has a new one", key), Usage: true}
	}
	return err
}

// refusedEvent is the kind of event recorded for a refused run request.
const refusedEvent = "run.refused"

// refusedRun is the data of a refused event.
type refusedRun struct {
	Trigger domain.Trigger `json:"trigger"`
	Agent   string         `json:"agent,omitempty"`
	Reason  string         `json:"reason"`
	More    int            `json:"more,omitempty"` // requests refused since the last event
}

// throttle limits the rate of requests of each caller. Each caller has an allowance per minute,
// which refills evenly.
type throttle struct {
	mu      sync.Mutex
	callers map[string]allowance
}

// allowance is the number of requests that a caller had left at a time.
type allowance struct {
	left float64
	at   time.Time
}

// maxCallers is the number of callers at which the throttle forgets idle ones.
const maxCallers = 1000

// take counts one request of a caller. It returns 0 if the request is allowed, or else the time
// until the next request is allowed.
func (t *throttle) take(caller string, perMinute int, now time.Time) (wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.callers == nil {
		t.callers = map[string]allowance{}
	}
	if len(t.callers) >= maxCallers { // forget callers with a full allowance
		maps.DeleteFunc(t.callers, func(_ string, a allowance) bool { return now.Sub(a.at) >= time.Minute })
	}

	a, known := t.callers[caller]
	most := float64(perMinute)
	if !known {
		a = allowance{left: most, at: now}
	}
	a.left = min(most, a.left+max(0, now.Sub(a.at).Minutes())*most) // a clock that was set back adds no allowance
	a.at = now
	if a.left < 1 {
		wait = time.Duration((1 - a.left) / most * float64(time.Minute))
	} else {
		a.left--
	}

	t.callers[caller] = a
	return wait
}

// admit checks the limits for a new run. It returns an *api.Error of kind task_limit_reached if the
// caller has sent too many requests or too many runs are queued. Concurrent requests may exceed the
// queue limit slightly.
func (x *Runs) admit(ctx context.Context, caller string, req ledger.Request) error {
	limits := x.Setup().Config.Limits
	if caller != "" && limits.AskedPerMinute > 0 {
		if wait := x.throttle.take(caller, limits.AskedPerMinute, time.Now()); wait > 0 {
			return x.refuse(ctx, req, http.StatusTooManyRequests, wait,
				fmt.Sprintf("more was asked for than %s in a minute (limits.asked_per_minute)", text.Plural(limits.AskedPerMinute, "run")))
		}
	}

	n, err := x.Ledger.Runs.Queued(ctx, limits.Queued)
	if err != nil || n < limits.Queued || limits.Queued == 0 { // 0 if the configuration was not loaded from a file
		return err
	}
	return x.refuse(ctx, req, http.StatusServiceUnavailable, tryAgain,
		fmt.Sprintf("as many runs wait for their turn as may: %d (limits.queued)", n))
}

// refuse records a refused request and returns its error.
func (x *Runs) refuse(ctx context.Context, req ledger.Request, status int, after time.Duration, why string) error {
	x.recordRefusal(ctx, fmt.Sprint(refusedEvent, status, req.Job, req.Agent), ledger.Event{Job: req.Job, Kind: refusedEvent}, func(more int) any {
		x.Logger.Warn("a run was asked for and refused", "job", req.Job, "agent", req.Agent, "why", why, "more_before", more)
		return refusedRun{Trigger: req.Trigger, Agent: req.Agent, Reason: why, More: more}
	})
	return &api.Error{Status: status, Kind: api.KindLimit, RetryAfter: after, Message: why + "; ask again in " + api.RetryAfter(after) + " s"}
}

// recordRefusal records the event of a refused request, at most once per refusedEvery for each key.
// The function data gets the number of refusals since the last event.
func (x *Runs) recordRefusal(ctx context.Context, key string, event ledger.Event, data func(more int) any) {
	more, record := x.countRefused(key, time.Now())
	if !record {
		return
	}
	var err error
	if event.Data, err = json.Marshal(data(more)); err == nil {
		err = x.Ledger.Events.Append(context.WithoutCancel(ctx), event)
	}
	if err != nil {
		x.Logger.Error("that a request was refused is not on record", "job", event.Job, "error", err)
	}
}
