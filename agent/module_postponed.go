package agent

import (
	"errors"
	"sync"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/tool/host"
	"rouse/internal/domain"
)

// moduleOutage says whether a run of a module may wait for its model: as long as nothing of it has begun that another try would do
// again, as with a prompt.
type moduleOutage struct {
	mu    sync.Mutex   // a module may ask several questions at a time
	why   *model.Error // the model gave no answer
	begun bool         // it gave one, or a call was made that may have changed something
}

// heard notes what came of a question to the model.
func (o *moduleOutage) heard(res loop.Result) {
	o.mu.Lock()
	defer o.mu.Unlock()

	var e *model.Error
	if errors.As(res.Failure, &e) {
		o.why = e
	} else {
		o.begun = true
	}
}

// made notes a call, with the effect of its tool. known says that an earlier attempt has its result.
func (o *moduleOutage) made(c host.Call, effect domain.Effect, known bool) {
	if c.Asks() && !known || c.Looks() || effect == domain.EffectRead {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.begun = true
}

// failure is that of the model, in a run in which nothing has begun; nil: there is none, or it is too late to begin again.
func (o *moduleOutage) failure() *model.Error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.begun {
		return nil
	}
	return o.why
}
