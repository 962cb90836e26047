// Package failover asks the model of a run and, when it fails, its fallbacks. It knows which models
// must not be asked now: their quota is spent, their server refuses them, or they have just failed.
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
	circuitOpen    = 5 * time.Minute // how long a model that failed is left alone, where another can answer
	firstPause     = time.Hour       // of a model whose provider does not say when there is more
	longestPause   = 24 * time.Hour
	maxPauseReason = 300 // characters
)

// Health knows which models not to ask now. It may be used by many goroutines.
type Health struct {
	ledger *ledger.Ledger
	log    *slog.Logger
	plan   *plan.Current

	mu       sync.Mutex
	circuits map[string]circuit          // open ones, by the name of the model
	down     map[string]time.Time        // since when a model has not answered, by name
	pauses   map[string]pause.ModelPause // of models that have not answered since, by name
	refusals map[string]*refusal         // of models that their servers refuse, by name
}

// circuit is open: a model has failed, and is not asked for circuitOpen if another model can answer.
type circuit struct {
	model  *plan.Model // as it was configured; another configuration starts over
	opened time.Time
	why    string
}

// NewHealth returns the health of all models. pauses are those on record.
func NewHealth(l *ledger.Ledger, log *slog.Logger, p *plan.Current, pauses []pause.ModelPause) *Health {
	h := &Health{ledger: l, log: log, plan: p, circuits: map[string]circuit{}, down: map[string]time.Time{}, pauses: map[string]pause.ModelPause{}, refusals: map[string]*refusal{}}
	for _, p := range pauses {
		h.pauses[p.Model] = p
	}
	return h
}

// AllPaused returns the pause that ends first if all of these models are paused.
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

// open returns why a model is not asked if another model can answer, or "".
func (h *Health) open(m *plan.Model) (why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.circuits[m.Name]; c.model == m && time.Since(c.opened) < circuitOpen {
		return c.why
	}
	return ""
}

// trip opens the circuit of a model that failed for good.
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

// pause pauses a model whose provider's quota is spent: until the time that the server names, or
// for an hour, doubled each time in a row. set is false if it is paused already.
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

// quotaSpent says whether a failure means that the model is not to be asked for longer than a run waits.
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

// ModelFailed notes that the model of a run has failed for good. The owner is told of the first
// pause in a row.
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

// Postponement lets an unattended run wait for its model, or returns nil. e is the failure of a run
// in which no model has answered yet, or nil.
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
		return &ledger.Postponement{Until: pause.Until} // its owner was told when the pause began
	}

	since := h.downSince(m.Name, now)
	out := &ledger.Postponement{}
	if t.Run.Postponements == 0 {
		out.Notices = notice.Unreachable(t, m, since, res.Error, time.Time{})
	}
	return out
}

// JobPaused is the pause that keeps the model of a job, and its fallbacks, from being asked now.
func (h *Health) JobPaused(job string, now time.Time) (pause.ModelPause, bool) {
	t, err := h.plan.Resolve(ledger.Run{Job: job})
	if err != nil || len(t.Models) == 0 || !t.AsksModel() {
		return pause.ModelPause{}, false
	}
	return h.AllPaused(t.Models, now)
}

// Paused returns the models that are not asked now because their provider's quota is spent.
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

// refusalRests are the pauses before the server of a model that refused it is asked again; the last one is that of all further ones.
var refusalRests = []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour}

// nearbyRest is that of a server on this machine, which costs nothing to ask.
const nearbyRest = 5 * time.Second

// askWithin is how long a server may take to say which models it has.
const askWithin = 2 * time.Second

// refusal is a model that its server does not let be asked: it does not take the key, or has no such model.
type refusal struct {
	model *plan.Model // as it is configured now
	why   string      // as its owner is told
	again time.Time   // when its server is asked the next time
	tries int
	// listed: its server says that it does not have the model. That is asked again so often that nobody need try.
	listed bool
}

// refuses says whether a failure means that no other request would fare better before somebody has mended something.
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

// Refusal says why a model is not asked, if its server has refused it. Whoever ignorePause asks all the same, unless the server lists others.
func (h *Health) Refusal(m *plan.Model, ignorePause bool) (why string) {
	h.mu.Lock()
	defer h.mu.Unlock()

	r, refused := h.refusals[m.Name]
	if !refused || ignorePause && !r.listed {
		return ""
	}
	return r.why
}

// Reconsider has those that were refused asked again at once, with another key perhaps, and forgets those that are gone.
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

// RestoreRefusals are those that were on record when the last process ended, as obstacles: what each model was refused for, by name.
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

// ProbeLocal asks the servers on this machine whether they have the models of the plan, before a run finds out.
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

// RetryRefused asks the servers again that refused a model, those for which it is time; it says whether one takes it now.
func (h *Health) RetryRefused(ctx context.Context) (cleared bool) {
	for _, m := range h.toAsk(time.Now()) {
		why, _ := askFor(ctx, m)
		if ctx.Err() != nil {
			return cleared
		}
		// A server that lists nothing is not known to refuse it any more: the next run shows.
		if why == "" {
			h.forgive(m)
			cleared = true
		}
	}
	return cleared
}

// toAsk are the refused models whose servers are to be asked now, each once until it is time again.
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

// listModels asks the server of a model for its list, and notes the size of the context. Nothing is known without a server.
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

// askContexts asks the servers of models once for the sizes of their contexts.
func askContexts(ctx context.Context, models []*plan.Model) {
	var all sync.WaitGroup
	for _, m := range models {
		if m.AsksWindow && atomic.LoadInt32(&m.Asked) == 0 {
			all.Go(func() { _, _ = listModels(ctx, m) }) // the run itself finds out what is wrong
		}
	}
	all.Wait()
}

// askFor asks the server of a model for its list, which costs nothing. It returns why the server
// refuses the model, and whether the server has it. An unreachable server gives neither.
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
