package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
	"rouse/internal/domain"
	"rouse/internal/text"
)

// refusedEvent is the kind of the event of a run that was asked for in vain.
const refusedEvent = "run.refused"

// refusedRun is its data.
type refusedRun struct {
	Trigger domain.Trigger `json:"trigger"`
	Agent   string         `json:"agent,omitempty"`
	Reason  string         `json:"reason"`
	More    int            `json:"more,omitempty"` // that were refused since the last event
}

// throttle counts what callers ask for. Each has an allowance for a minute, which comes back evenly.
type throttle struct {
	mu      sync.Mutex
	callers map[string]allowance
}

// allowance is what a caller had left at a time.
type allowance struct {
	left float64
	at   time.Time
}

// maxCallers is after how many the throttle forgets those who have asked for nothing lately.
const maxCallers = 1000

// take counts one request of a caller; wait is how long it is before there may be one more, 0 where this one is fine.
func (t *throttle) take(caller string, perMinute int, now time.Time) (wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if len(t.callers) >= maxCallers {
		for name, a := range t.callers {
			if now.Sub(a.at) >= time.Minute { // which has its whole allowance again
				delete(t.callers, name)
			}
		}
	}

	a, known := t.callers[caller]
	most := float64(perMinute)
	if !known {
		a = allowance{left: most, at: now}
	}
	a.left = min(most, a.left+max(0, now.Sub(a.at).Minutes())*most) // a clock that was set back gives nothing
	a.at = now
	if a.left < 1 {
		wait = time.Duration((1 - a.left) / most * float64(time.Minute))
	} else {
		a.left--
	}

	if t.callers == nil {
		t.callers = map[string]allowance{}
	}
	t.callers[caller] = a
	return wait
}

// admit refuses what comes when its caller has asked too often, or too many runs wait: an *api.Error of the kind
// task_limit_reached (OSA-26). Those that ask at the same moment may all be let in, so that a few more can wait than the limit says.
func (d *Daemon) admit(ctx context.Context, caller string, req ledger.Request) error {
	limits := d.Current().Config.Limits
	if caller != "" && limits.AskedPerMinute > 0 {
		if wait := d.throttle.take(caller, limits.AskedPerMinute, time.Now()); wait > 0 {
			return d.refuse(ctx, req, http.StatusTooManyRequests, wait,
				fmt.Sprintf("more was asked for than %s in a minute (limits.asked_per_minute)", text.Plural(limits.AskedPerMinute, "run")))
		}
	}

	n, err := d.ledger.Queued(ctx, limits.Queued)
	if err != nil || n < limits.Queued || limits.Queued == 0 { // which a configuration that was not read from a file has
		return err
	}
	return d.refuse(ctx, req, http.StatusServiceUnavailable, tryAgain,
		fmt.Sprintf("as many runs wait for their turn as may: %d (limits.queued)", n))
}

// refuse puts a refusal on record, and is its answer.
func (d *Daemon) refuse(ctx context.Context, req ledger.Request, status int, after time.Duration, why string) error {
	refused := &api.Error{Status: status, Kind: api.KindLimit, RetryAfter: after, Message: why + "; ask again in " + api.RetryAfter(after) + " s"}
	// A program that asks in a loop must not fill the record.
	more, now := d.countRefused(fmt.Sprint(refusedEvent, status, req.Job, req.Agent), time.Now())
	if !now {
		return refused
	}
	d.log.Warn("a run was asked for and refused", "job", req.Job, "agent", req.Agent, "why", why, "more_before", more)

	data, err := json.Marshal(refusedRun{Trigger: req.Trigger, Agent: req.Agent, Reason: why, More: more})
	if err == nil {
		err = d.ledger.AppendEvents(context.WithoutCancel(ctx), ledger.Event{Job: req.Job, Kind: refusedEvent, Data: data})
	}
	if err != nil {
		d.log.Error("that a run was refused is not on record", "job", req.Job, "error", err)
	}
	return refused
}
