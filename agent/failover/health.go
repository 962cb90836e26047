// Package failover calls the model of a run and, if it fails, its fallbacks. It tracks the models
// that must not be called now: models with an exhausted quota, models that their server refuses,
// and models that have just failed.
package failover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/notice"
	"rouse/agent/plan"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/pause"
	"rouse/internal/text"
)

const (
	circuitOpen    = 5 * time.Minute // how long a failed model is skipped if a fallback can answer
	firstPause     = time.Hour       // first pause if the provider does not report when the quota resets
	longestPause   = 24 * time.Hour
	maxPauseReason = 300 // characters
)

// Health tracks the models that must not be called now. It is safe for concurrent use.
type Health struct {
	ledger *ledger.Ledger
	log    *slog.Logger
	plan   *plan.Current

	mu       sync.Mutex
	circuits map[string]circuit          // open circuits by model name
	down     map[string]time.Time        // start of a model's outage, by model name
	pauses   map[string]pause.ModelPause // pauses of models that have not answered since, by model name
	refusals map[string]*refusal         // refusals by the server, by model name
}

// circuit is the open circuit of a model that has failed. For the time circuitOpen, the model is
// skipped if another model can answer.
type circuit struct {
	model  *plan.Model // configuration that failed; a changed configuration closes the circuit
	opened time.Time
	why    string
}

// NewHealth returns the health of all models. pauses are the recorded pauses.
func NewHealth(l *ledger.Ledger, log *slog.Logger, p *plan.Current, pauses []pause.ModelPause) *Health {
	h := &Health{ledger: l, log: log, plan: p, circuits: map[string]circuit{}, down: map[string]time.Time{}, pauses: map[string]pause.ModelPause{}, refusals: map[string]*refusal{}}
	for _, p := range pauses {
		h.pauses[p.Model] = p
	}
	return h
}

// AllPaused reports whether all models are paused. It returns the pause that ends first.
func (h *Health) AllPaused(models []*plan.Model, now time.Time) (first pause.ModelPause, paused bool) {
	h.mu.Lock()
	defer h.mu.Unlock()

	for _, m := range models {
		p, ok := h.pauses[m.Name]
		if !ok || !now.Before(p.Until) {
			return pause.ModelPause{}, false
		}
		if !paused || p.Until.Before(first.Until) {
			first, paused = p, true
		}
	}
	return first, paused
}

// open returns why a model is skipped if another model can answer, or "".
func (h *Health) open(m *plan.Model) (why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.circuits[m.Name]; c.model == m && time.Since(c.opened) < circuitOpen {
		return c.why
	}
	return ""
}

// trip opens the circuit of a model that failed permanently.
func (h *Health) trip(m *plan.Model, failure error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.circuits[m.Name] = circuit{m, time.Now(), text.Truncate(failure.Error(), maxPauseReason)}
}

func (h *Health) answered(name string) (paused bool) {
	h.mu.Lock()
	defer h.mu.Unlock()

	delete(h.circuits, name)
	delete(h.down, name)
	delete(h.refusals, name)
	_, paused = h.pauses[name]
	delete(h.pauses, name)
	return paused
}

func (h *Health) downSince(name string, now time.Time) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()

	if h.down[name].IsZero() {
		h.down[name] = now
	}
	return h.down[name]
}

// pause pauses a model after its provider's quota is exhausted. The pause lasts until the time that
// the server reports, or one hour, doubled with each further pause. set is false if the model is
// already paused.
func (h *Health) pause(name string, e *model.Error, now time.Time) (p pause.ModelPause, set bool) {
	h.mu.Lock()
	defer h.mu.Unlock()

	before := h.pauses[name]
	if now.Before(before.Until) {
		return before, false
	}

	long := e.RetryAfter
	if long <= 0 {
		long = min(firstPause<<min(before.Tries, 5), longestPause)
	}

	p = pause.ModelPause{Model: name, Since: before.Since, Until: now.Add(long), Tries: before.Tries + 1, Reason: text.Truncate(e.Error(), maxPauseReason)}
	if p.Since.IsZero() {
		p.Since = now
	}
	h.pauses[name] = p
	return p, true
}

// quotaSpent reports whether a failure means that the model must not be called for longer than a
// run waits.
func quotaSpent(e *model.Error) bool {
	return e.Kind == model.KindQuota || e.Kind == model.KindRateLimited && e.RetryAfter > loop.MaxRetryWait
}

// ModelAnswered ends the pause and the outage of a model.
func (h *Health) ModelAnswered(ctx context.Context, m *plan.Model) {
	if !h.answered(m.Name) {
		return
	}
	if err := h.ledger.Pauses.ResumeModel(context.WithoutCancel(ctx), m.Name); err != nil {
		h.log.Warn("that a model answers again could not be recorded", "model", m.Name, "error", err)
	}
}

// ModelFailed records that a model failed permanently. The owner is notified of the first of
// several pauses in a row.
func (h *Health) ModelFailed(ctx context.Context, t *plan.Attempt, m *plan.Model, failure error) {
	var e *model.Error
	if !errors.As(failure, &e) {
		return
	}
	if refuses(e) {
		h.refuse(m, t.Redactor().Replace(e.Error()), time.Now(), false)
		return
	}
	if !quotaSpent(e) {
		return
	}

	clean := *e
	clean.Message = t.Redactor().Replace(e.Message)
	p, set := h.pause(m.Name, &clean, time.Now())
	if !set {
		return
	}

	ctx = context.WithoutCancel(ctx)
	var notices []ledger.Notice
	if p.Tries == 1 {
		notices = notice.QuotaSpent(ctx, h.ledger, &t.Task, p)
	}

	h.log.Warn("a model is paused", "model", m.Name, "until", p.Until, "reason", p.Reason)
	if err := h.ledger.Pauses.PauseModel(ctx, p, notices...); err != nil {
		h.log.Error("the pause of a model could not be recorded; it holds until the daemon ends", "model", m.Name, "error", err)
	}
}

// Postponement returns the postponement of an unattended run that waits for its model, or nil. e is
// the failure of a run in which no model has answered yet. It may be nil.
func (h *Health) Postponement(t *plan.Task, p *Provider, e *model.Error, res loop.Result) *ledger.Postponement {
	switch {
	case !t.Unattended || e == nil:
		return nil
	case res.Outcome != domain.OutcomeError && res.Outcome != domain.OutcomeTimeout:
		return nil
	case e.Kind != model.KindUnavailable && e.Kind != model.KindRateLimited && e.Kind != model.KindQuota:
		return nil
	}

	now, m := time.Now(), p.Model()
	if pause, paused := h.AllPaused(t.Models, now); paused {
		return &ledger.Postponement{Until: pause.Until} // the owner was notified when the pause began
	}

	since := h.downSince(m.Name, now)
	out := &ledger.Postponement{}
	if t.Run.Postponements == 0 {
		out.Notices = notice.Unreachable(t, m, since, res.Error, time.Time{})
	}
	return out
}

// JobPaused reports whether the model of a job and all its fallbacks are paused. It returns the
// pause that ends first.
func (h *Health) JobPaused(job string, now time.Time) (pause.ModelPause, bool) {
	t, err := h.plan.Resolve(ledger.Run{Job: job})
	if err != nil || len(t.Models) == 0 || !t.AsksModel() {
		return pause.ModelPause{}, false
	}
	return h.AllPaused(t.Models, now)
}

// Paused returns the pauses of models with an exhausted quota.
func (h *Health) Paused(now time.Time) []pause.ModelPause {
	h.mu.Lock()
	defer h.mu.Unlock()

	var out []pause.ModelPause
	for _, p := range h.pauses {
		if now.Before(p.Until) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b pause.ModelPause) int { return cmp.Compare(a.Model, b.Model) })
	return out
}

// PauseText describes the pause of a model for an obstacle.
func PauseText(p pause.ModelPause) string {
	return fmt.Sprintf("the model %s is not asked until %s, for its provider's quota is spent; a run that you start or retry asks it at once: %s",
		p.Model, p.Until.UTC().Format(time.RFC3339), p.Reason)
}

// refusalRests are the intervals at which a server that refused a model is asked again. The last
// interval repeats.
var refusalRests = []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour}

// nearbyRest is the interval for a server on this machine, where a request is free.
const nearbyRest = 5 * time.Second

// askWithin is the timeout of a request for the list of models.
const askWithin = 2 * time.Second

// refusal records that a server refuses a model, because the key is invalid or the model does not
// exist.
type refusal struct {
	model *plan.Model // current configuration
	why   string      // message for the owner
	again time.Time   // time of the next request to the server
	tries int
	// listed is true if the server's list does not contain the model. The list is requested so
	// often that a user's own run need not try the model.
	listed bool
}

// refuses reports whether every request will fail in the same way until the configuration or the
// account is fixed.
func refuses(e *model.Error) bool { return e.Kind == model.KindAuth || e.Missing }

func (h *Health) refuse(m *plan.Model, why string, now time.Time, listed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()

	why = text.Truncate(text.OneLine(why), maxPauseReason)
	if !listed {
		why = fmt.Sprintf("the model %s is not asked, for its server refused it (a run that you start asks it at once): %s", m.Name, why)
	}
	r := &refusal{model: m, why: why, again: now.Add(refusalRests[0]), listed: listed}
	if m.Nearby {
		r.again = now.Add(nearbyRest)
	}
	h.refusals[m.Name] = r
}

// Refusal returns why a model is not called after its server refused it, or "". With ignorePause,
// the model is called anyway, unless the server's list does not contain it.
func (h *Health) Refusal(m *plan.Model, ignorePause bool) (why string) {
	h.mu.Lock()
	defer h.mu.Unlock()

	r, refused := h.refusals[m.Name]
	if !refused || ignorePause && !r.listed {
		return ""
	}
	return r.why
}

// Reconsider adapts the refusals to a new plan. Models with a changed configuration are tried again
// at once. Refusals of removed models are deleted.
func (h *Health) Reconsider(p plan.Plan) {
	models := plan.Models(p)
	h.mu.Lock()
	defer h.mu.Unlock()

	for name, r := range h.refusals {
		m, ok := models[name]
		if !ok {
			delete(h.refusals, name)
			continue
		}
		if r.model != m {
			r.model, r.again, r.tries = m, time.Time{}, 0
		}
	}
}

// RestoreRefusals restores refusals that a previous process recorded as obstacles. why holds the
// reasons by model name.
func (h *Health) RestoreRefusals(why map[string]string) {
	models := plan.Models(h.plan.Load().Plan)
	h.mu.Lock()
	defer h.mu.Unlock()

	for name, reason := range why {
		if m := models[name]; m != nil && h.refusals[name] == nil {
			h.refusals[name] = &refusal{model: m, why: reason}
		}
	}
}

// ProbeLocal asks the servers on this machine whether they have the models of the plan. So a
// missing model is reported before a run starts.
func (h *Health) ProbeLocal(ctx context.Context) {
	var all sync.WaitGroup
	for _, m := range plan.Models(h.plan.Load().Plan) {
		if !m.Nearby || len(m.Obstacles) > 0 {
			continue
		}
		all.Go(func() {
			if why, known := askFor(ctx, m); why != "" {
				h.refuse(m, why, time.Now(), true)
			} else if known {
				h.forgive(m)
			}
		})
	}
	all.Wait()
}

// RetryRefused asks the servers of refused models again if their interval has passed. It reports
// whether a model may be usable again.
func (h *Health) RetryRefused(ctx context.Context) (cleared bool) {
	for _, m := range h.toAsk(time.Now()) {
		why, _ := askFor(ctx, m)
		if ctx.Err() != nil {
			return cleared
		}
		// A server without a list may accept the model again. The next run will show it.
		if why == "" {
			h.forgive(m)
			cleared = true
		}
	}
	return cleared
}

// toAsk returns the refused models that are due for a request to their server. It sets the time of
// their next request.
func (h *Health) toAsk(now time.Time) (out []*plan.Model) {
	h.mu.Lock()
	defer h.mu.Unlock()

	for _, r := range h.refusals {
		if now.Before(r.again) {
			continue
		}
		if r.again = now.Add(refusalRests[min(r.tries, len(refusalRests)-1)]); r.model.Nearby {
			r.again = now.Add(nearbyRest)
		}
		r.tries++
		out = append(out, r.model)
	}
	return out
}

func (h *Health) forgive(m *plan.Model) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.refusals, m.Name)
}

// listModels requests the list of models from the server of a model, and stores the context size.
// The list is empty if the provider cannot list models.
func listModels(ctx context.Context, m *plan.Model) (model.Listing, error) {
	lister, ok := m.Provider.(model.Lister)
	if !ok {
		atomic.StoreInt32(&m.Asked, 1)
		return model.Listing{}, nil
	}

	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	l, err := lister.List(ctx)
	if err == nil {
		m.LearnContext(l.Window)
		atomic.StoreInt32(&m.Asked, 1)
	}
	return l, err
}

// askContexts asks the servers of models once for their context sizes.
func askContexts(ctx context.Context, models []*plan.Model) {
	var all sync.WaitGroup
	for _, m := range models {
		if m.AsksWindow && atomic.LoadInt32(&m.Asked) == 0 {
			all.Go(func() { _, _ = listModels(ctx, m) }) // the run itself reports a failure
		}
	}
	all.Wait()
}

// askFor requests the list of models, which is free. It returns why the server refuses the model,
// or "", and reports whether the server has the model. If the server is unreachable, it returns
// neither.
func askFor(ctx context.Context, m *plan.Model) (why string, known bool) {
	l, err := listModels(ctx, m)
	var e *model.Error
	switch {
	case errors.As(err, &e) && refuses(e):
		return e.Error(), false
	case err != nil || !l.Known:
		return "", false
	case l.Has:
		return "", true
	case m.Nearby:
		return fmt.Sprintf("%s does not have the model; get it with: ollama pull (its name stands under model: at %s)", l.Server, m.Where), false
	}
	return fmt.Sprintf("%s does not have the model that is configured at %s; correct model:, or ask for access to it", l.Server, m.Where), false
}
