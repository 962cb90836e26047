package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"rouse/agent/model"
	"rouse/internal/text"
)

// refusalRests are the pauses before the server of a model that refused it is asked again; the last one is that of all further ones.
var refusalRests = []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour}

// nearbyRest is that of a server on this machine, which costs nothing to ask.
const nearbyRest = 5 * time.Second

// askWithin is how long a server may take to say which models it has.
const askWithin = 2 * time.Second

// modelRefusal is a model that its server does not let be asked: it does not take the key, or has no such model.
type modelRefusal struct {
	model *Model    // as it is configured now
	why   string    // as its owner is told
	again time.Time // when its server is asked the next time
	tries int
	// listed: its server says that it does not have the model. That is asked again so often that nobody need try.
	listed bool
}

// refuses says whether a failure means that no other request would fare better before somebody has mended something.
func refuses(e *model.Error) bool { return e.Kind == model.KindAuth || e.Missing }

// refuse notes that a model was refused.
func (h *modelHealth) refuse(m *Model, why string, now time.Time, listed bool) {
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
func (h *modelHealth) refusal(m *Model, insists bool) (why string, refused bool) {
	h.mu.Lock()
	defer h.mu.Unlock()

	r, refused := h.refusals[m.Name]
	if !refused || insists && !r.listed {
		return "", false
	}
	return r.why, true
}

// reconsider has those that were refused asked again at once, with another key perhaps, and forgets those that are gone.
func (h *modelHealth) reconsider(p Plan) {
	models := configuredModels(p)
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

// configuredModels are all that somebody may ask, by name.
func configuredModels(p Plan) map[string]*Model {
	out := map[string]*Model{}
	add := func(m *Model) {
		for ; m != nil && out[m.Name] == nil; m = m.Fallback {
			out[m.Name] = m
		}
	}
	for _, a := range p.Agents {
		add(a.Model)
	}
	for _, j := range p.Jobs {
		add(j.Model)
	}
	return out
}

// RestoreRefusals are those that were on record when the last process ended, as obstacles: what each model was refused for, by name.
func (r *Runner) RestoreRefusals(why map[string]string) {
	models := configuredModels(*r.plan.Load())
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
	for _, m := range configuredModels(*r.plan.Load()) {
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
func (h *modelHealth) toAsk(now time.Time) (out []*Model) {
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

// forgive ends the refusal of a model.
func (h *modelHealth) forgive(m *Model) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.refusals, m.Name)
}

// list asks the server of a model for its list, and notes the size of the context. Nothing is known without a server.
func (m *Model) list(ctx context.Context) (model.Listing, error) {
	lister, ok := m.Provider.(model.Lister)
	if !ok {
		atomic.StoreInt32(&m.asked, 1)
		return model.Listing{}, nil
	}

	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	l, err := lister.List(ctx)
	if err == nil {
		m.LearnContext(l.Window)
		atomic.StoreInt32(&m.asked, 1)
	}
	return l, err
}

// askContexts asks the servers of models for the sizes of their contexts, each once. One that cannot be reached is asked again by the
// next run: the request of this one waits for it.
func askContexts(ctx context.Context, models []*Model) {
	var all sync.WaitGroup
	for _, m := range models {
		if m.AsksWindow && atomic.LoadInt32(&m.asked) == 0 {
			all.Go(func() { _, _ = m.list(ctx) }) // the run itself finds out what is wrong
		}
	}
	all.Wait()
}

// askFor asks the server of a model for its list, which runs no model and costs nothing. why says that it refuses the model; known, that
// it has it. A server that cannot be reached says neither: runs wait for that in their own way.
func askFor(ctx context.Context, m *Model) (why string, known bool) {
	l, err := m.list(ctx)
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
