package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/plan"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/text"
)

const (
	circuitOpen    = 5 * time.Minute // how long a model that failed is left alone, where another can answer
	firstPause     = time.Hour       // of a model whose provider does not say when there is more
	longestPause   = 24 * time.Hour
	maxPauseReason = 300 // characters
)

// modelHealth knows which models not to ask now. It may be used by many goroutines.
type modelHealth struct {
	mu       sync.Mutex
	circuits map[string]circuit           // open ones, by the name of the model
	down     map[string]time.Time         // since when a model has not answered, by name
	pauses   map[string]ledger.ModelPause // of models that have not answered since, by name
	refusals map[string]*modelRefusal     // of models that their servers refuse, by name
}

// circuit is open: a model has failed, and is not asked for circuitOpen if another model can answer.
type circuit struct {
	model  *plan.Model // as it was configured; another configuration starts over
	opened time.Time
	why    string
}

func newModelHealth(pauses []ledger.ModelPause) *modelHealth {
	h := &modelHealth{circuits: map[string]circuit{}, down: map[string]time.Time{}, pauses: map[string]ledger.ModelPause{}, refusals: map[string]*modelRefusal{}}
	for _, p := range pauses {
		h.pauses[p.Model] = p
	}
	return h
}

// pausedModel returns the pause that ends first if all of these models are paused.
func (h *modelHealth) pausedModel(models []*plan.Model, now time.Time) (first ledger.ModelPause, paused bool) {
	h.mu.Lock()
	defer h.mu.Unlock()

	for _, m := range models {
		p, ok := h.pauses[m.Name]
		if !ok || !now.Before(p.Until) {
			return ledger.ModelPause{}, false
		}
		if !paused || p.Until.Before(first.Until) {
			first, paused = p, true
		}
	}
	return first, paused
}

// open returns why a model is not asked if another model can answer, or "".
func (h *modelHealth) open(m *plan.Model) (why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.circuits[m.Name]; c.model == m && time.Since(c.opened) < circuitOpen {
		return c.why
	}
	return ""
}

// trip opens the circuit of a model that failed for good.
func (h *modelHealth) trip(m *plan.Model, failure error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.circuits[m.Name] = circuit{m, time.Now(), text.Truncate(failure.Error(), maxPauseReason)}
}

func (h *modelHealth) answered(name string) (paused bool) {
	h.mu.Lock()
	defer h.mu.Unlock()

	delete(h.circuits, name)
	delete(h.down, name)
	delete(h.refusals, name)
	_, paused = h.pauses[name]
	delete(h.pauses, name)
	return paused
}

func (h *modelHealth) downSince(name string, now time.Time) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()

	if h.down[name].IsZero() {
		h.down[name] = now
	}
	return h.down[name]
}

// pause pauses a model whose provider's quota is spent: until the time that the server names, or
// for an hour, doubled each time in a row. set is false if it is paused already.
func (h *modelHealth) pause(name string, e *model.Error, now time.Time) (p ledger.ModelPause, set bool) {
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

	p = ledger.ModelPause{Model: name, Since: before.Since, Until: now.Add(long), Tries: before.Tries + 1, Reason: text.Truncate(e.Error(), maxPauseReason)}
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

func (r *Runner) modelAnswered(ctx context.Context, m *plan.Model) {
	if !r.health.answered(m.Name) {
		return
	}
	if err := r.ledger.ResumeModel(context.WithoutCancel(ctx), m.Name); err != nil {
		r.log.Warn("that a model answers again could not be recorded", "model", m.Name, "error", err)
	}
}

// modelFailed notes that the model of a run has failed for good. The owner is told of the first
// pause in a row.
func (r *Runner) modelFailed(ctx context.Context, t *attempt, m *plan.Model, failure error) {
	var e *model.Error
	if !errors.As(failure, &e) {
		return
	}
	if refuses(e) {
		r.health.refuse(m, t.redactor().Replace(e.Error()), time.Now(), false)
		return
	}
	if !quotaSpent(e) {
		return
	}

	clean := *e
	clean.Message = t.redactor().Replace(e.Message)
	p, set := r.health.pause(m.Name, &clean, time.Now())
	if !set {
		return
	}

	ctx = context.WithoutCancel(ctx)
	var notices []ledger.Notice
	if p.Tries == 1 {
		notices = r.quotaSpentNotices(ctx, t, p)
	}

	r.log.Warn("a model is paused", "model", m.Name, "until", p.Until, "reason", p.Reason)
	if err := r.ledger.PauseModel(ctx, p, notices...); err != nil {
		r.log.Error("the pause of a model could not be recorded; it holds until the daemon ends", "model", m.Name, "error", err)
	}
}

// postponement lets an unattended run wait for its model if no model has answered yet, or returns
// nil.
func (r *Runner) postponement(t *attempt, res loop.Result) *ledger.Postponement {
	var e *model.Error
	if t.module != nil { // whose steps are answers of its own
		e = t.module.outage.failure()
	} else if !t.past.answered && res.Answered == 0 {
		_ = errors.As(res.Failure, &e) // nil where it has none, or another one
	}
	switch {
	case !t.Unattended || e == nil:
		return nil
	case res.Outcome != domain.OutcomeError && res.Outcome != domain.OutcomeTimeout:
		return nil
	case e.Kind != model.KindUnavailable && e.Kind != model.KindRateLimited && e.Kind != model.KindQuota:
		return nil
	}

	now, m := time.Now(), t.relay.model()
	if p, paused := r.health.pausedModel(t.Models, now); paused {
		return &ledger.Postponement{Until: p.Until} // its owner was told when the pause began
	}

	since := r.health.downSince(m.Name, now)
	out := &ledger.Postponement{}
	if t.Run.Postponements == 0 {
		out.Notices = unreachableNotices(t, m, since, res.Error, time.Time{})
	}
	return out
}

// PausedModels are the models that nobody asks now, because their provider's quota is spent.
func (r *Runner) PausedModels(now time.Time) []ledger.ModelPause { return r.health.current(now) }

// PausedModel is the pause that keeps the model of a job, and its fallbacks, from being asked now.
func (r *Runner) PausedModel(job string, now time.Time) (ledger.ModelPause, bool) {
	t, err := r.Plan.Resolve(ledger.Run{Job: job})
	if err != nil || len(t.Models) == 0 || !t.AsksModel() {
		return ledger.ModelPause{}, false
	}
	return r.health.pausedModel(t.Models, now)
}

func (h *modelHealth) current(now time.Time) []ledger.ModelPause {
	h.mu.Lock()
	defer h.mu.Unlock()

	var out []ledger.ModelPause
	for _, p := range h.pauses {
		if now.Before(p.Until) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b ledger.ModelPause) int { return cmp.Compare(a.Model, b.Model) })
	return out
}

func pausedText(p ledger.ModelPause) string {
	return fmt.Sprintf("the model %s is not asked until %s, for its provider's quota is spent; a run that you start or retry asks it at once: %s",
		p.Model, p.Until.UTC().Format(time.RFC3339), p.Reason)
}

// refusalRests are the pauses before the server of a model that refused it is asked again; the last one is that of all further ones.
var refusalRests = []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour}

// nearbyRest is that of a server on this machine, which costs nothing to ask.
const nearbyRest = 5 * time.Second

// askWithin is how long a server may take to say which models it has.
const askWithin = 2 * time.Second

// modelRefusal is a model that its server does not let be asked: it does not take the key, or has no such model.
type modelRefusal struct {
	model *plan.Model // as it is configured now
	why   string      // as its owner is told
	again time.Time   // when its server is asked the next time
	tries int
	// listed: its server says that it does not have the model. That is asked again so often that nobody need try.
	listed bool
}

// refuses says whether a failure means that no other request would fare better before somebody has mended something.
func refuses(e *model.Error) bool { return e.Kind == model.KindAuth || e.Missing }

func (h *modelHealth) refuse(m *plan.Model, why string, now time.Time, listed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()

	why = text.Truncate(text.OneLine(why), maxPauseReason)
	if !listed {
		why = fmt.Sprintf("the model %s is not asked, for its server refused it (a run that you start asks it at once): %s", m.Name, why)
	}
	r := &modelRefusal{model: m, why: why, again: now.Add(refusalRests[0]), listed: listed}
	if m.Nearby {
		r.again = now.Add(nearbyRest)
	}
	h.refusals[m.Name] = r
}

// refusal says why a model is not asked, if its server has refused it. Whoever insists asks all the same, unless the server lists others.
func (h *modelHealth) refusal(m *plan.Model, insists bool) (why string) {
	h.mu.Lock()
	defer h.mu.Unlock()

	r, refused := h.refusals[m.Name]
	if !refused || insists && !r.listed {
		return ""
	}
	return r.why
}

// reconsider has those that were refused asked again at once, with another key perhaps, and forgets those that are gone.
func (h *modelHealth) reconsider(p plan.Plan) {
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
func (r *Runner) RestoreRefusals(why map[string]string) {
	models := plan.Models(r.Plan.Load().Plan)
	r.health.mu.Lock()
	defer r.health.mu.Unlock()

	for name, reason := range why {
		if m := models[name]; m != nil && r.health.refusals[name] == nil {
			r.health.refusals[name] = &modelRefusal{model: m, why: reason}
		}
	}
}

// AskNearby asks the servers on this machine whether they have the models of the plan, before a run finds out.
func (r *Runner) AskNearby(ctx context.Context) {
	var all sync.WaitGroup
	for _, m := range plan.Models(r.Plan.Load().Plan) {
		if !m.Nearby || len(m.Obstacles) > 0 {
			continue
		}
		all.Go(func() {
			if why, known := askFor(ctx, m); why != "" {
				r.health.refuse(m, why, time.Now(), true)
			} else if known {
				r.health.forgive(m)
			}
		})
	}
	all.Wait()
}

// askRefusing asks the servers again that refused a model, those for which it is time; it says whether one takes it now.
func (r *Runner) askRefusing(ctx context.Context) (cleared bool) {
	for _, m := range r.health.toAsk(time.Now()) {
		why, _ := askFor(ctx, m)
		if ctx.Err() != nil {
			return cleared
		}
		// A server that lists nothing is not known to refuse it any more: the next run shows.
		if why == "" {
			r.health.forgive(m)
			cleared = true
		}
	}
	return cleared
}

// toAsk are the refused models whose servers are to be asked now, each once until it is time again.
func (h *modelHealth) toAsk(now time.Time) (out []*plan.Model) {
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

func (h *modelHealth) forgive(m *plan.Model) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.refusals, m.Name)
}

// list asks the server of a model for its list, and notes the size of the context. Nothing is known without a server.
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
