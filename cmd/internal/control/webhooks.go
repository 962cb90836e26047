package control

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/plan"
	"rouse/cmd/internal/webhook"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/pause"
	"rouse/internal/ledger/runs"
)

const (
	// maxDeliveries is how many runs of a webhook may wait in the queue; a sender keeps the others.
	maxDeliveries = 1000
	// tryAgain is when a sender may try again where nobody knows better.
	tryAgain = time.Minute
	// refusedEvery is how often requests that were refused are put on record, for each job: strangers must not fill it.
	refusedEvery = time.Minute
)

// refusedWebhook is the event of a request that started no run.
type refusedWebhook struct {
	Path string `json:"path"`
	Why  string `json:"why"`
	More int    `json:"more,omitempty"` // that were refused since the last event
}

// refusals bounds how often they are put on record.
type refusals struct {
	since time.Time // of the last event
	more  int       // since then
}

// deliveryKey is the key of the run of a delivery: its sender may try as often as they like.
func deliveryKey(job string, d webhook.Delivery) string { return "webhook/" + job + "/" + d.ID }

// Webhook implements webhook.Engine.
func (x *Runs) Webhook(path string) (webhook.Hook, bool) {
	now := x.Setup()
	if now.Usable() != nil || !x.TakesTriggers {
		return webhook.Hook{}, false
	}

	for i := range now.Config.Jobs {
		j := &now.Config.Jobs[i]
		if w := j.Webhook; w != nil && w.Path == path && config.On(j.Enabled) {
			return webhook.Hook{Job: string(j.Name), Path: path, Scheme: webhook.Scheme(w.Scheme), Secret: w.Secret, MaxBody: int64(w.MaxBody)}, true
		}
	}
	return webhook.Hook{}, false
}

// Deliver implements webhook.Engine. What was kept before is found first: its sender need not wait for a pause to end.
func (x *Runs) Deliver(ctx context.Context, h webhook.Hook, got webhook.Delivery, body string) (webhook.Accepted, error) {
	req := ledger.Request{
		Key: deliveryKey(h.Job, got), Job: h.Job, Trigger: domain.TriggerWebhook, Body: body,
		Detail: ledger.TriggerDetail{Webhook: &ledger.Delivery{Path: h.Path, ID: got.ID, Event: got.Event, Bytes: int64(len(body))}},
	}
	if got.Keyed {
		req.Detail.IdempotencyKey = newOnce(got.ID, []byte(body))
	}
	if run, known, err := x.findByKey(ctx, req); known || err != nil {
		return webhook.Accepted{Run: run, Repeated: known}, otherBody(err)
	}

	j := x.Setup().Job(h.Job)
	if j == nil { // removed meanwhile
		return webhook.Accepted{}, &webhook.BusyError{Why: "the job of this webhook is not configured any more", After: tryAgain}
	}
	busy, err := x.busyFor(ctx, j)
	if err != nil {
		return webhook.Accepted{}, err
	}
	if busy != nil {
		x.Refused(ctx, h, busy.Why)
		return webhook.Accepted{}, busy
	}

	req.Agent = j.Agent
	// How often a sender sends is not counted: many do not send again what was refused.
	if err := x.admit(ctx, "", req); err != nil {
		var refused *api.Error
		if errors.As(err, &refused) {
			return webhook.Accepted{}, &webhook.BusyError{Why: refused.Message, After: refused.RetryAfter}
		}
		return webhook.Accepted{}, err
	}
	run, isNew, err := x.enqueueOnce(ctx, req)
	return webhook.Accepted{Run: run, Repeated: !isNew}, otherBody(err)
}

// otherBody is what a sender is told of a key that stands for another request.
func otherBody(err error) error {
	if errors.Is(err, errOtherRequest) {
		return webhook.ErrOtherBody
	}
	return err
}

// busyFor is why a job takes no delivery now, nil if it does.
func (x *Runs) busyFor(ctx context.Context, j *config.Job) (*webhook.BusyError, error) {
	now := x.Ledger.Now()
	pauses, err := x.Ledger.Pauses.List(ctx, now)
	if err != nil {
		return nil, err
	}
	if p, paused := pause.Paused(pauses, string(j.Name), j.Agent, now); paused {
		after := tryAgain
		if !p.Until.IsZero() {
			after = p.Until.Sub(now)
		}
		return &webhook.BusyError{Why: "the job of this webhook is paused", After: after}, nil
	}

	n, err := x.Ledger.Runs.QueuedOf(ctx, string(j.Name), maxDeliveries)
	if err != nil || n < maxDeliveries {
		return nil, err
	}
	return &webhook.BusyError{Why: fmt.Sprintf("%d runs of this webhook wait already", n), After: tryAgain}, nil
}

// Refused implements webhook.Engine. Strangers can send any number of requests, so not all of them are recorded.
func (x *Runs) Refused(ctx context.Context, h webhook.Hook, why string) {
	x.recordRefusal(ctx, h.Job, ledger.Event{Job: h.Job, Kind: webhook.RefusedEvent}, func(more int) any {
		x.Logger.Warn("a request to a webhook was refused", "job", h.Job, "path", h.Path, "why", why, "more_before", more)
		return refusedWebhook{Path: h.Path, Why: why, More: more}
	})
}

// countRefused says whether a refusal goes on record, with how many others since the last one that did.
func (x *Runs) countRefused(job string, now time.Time) (more int, record bool) {
	x.refusedMu.Lock()
	defer x.refusedMu.Unlock()

	r := x.refused[job]
	if now.Sub(r.since) < refusedEvery {
		r.more++
		x.refused[job] = r
		return 0, false
	}
	x.refused[job] = refusals{since: now}
	return r.more, true
}

// Webhooks returns the webhooks of jobs, with the last run of each.
func (x *Runs) Webhooks(ctx context.Context) ([]api.Webhook, error) {
	now := x.Setup()
	if err := now.Usable(); err != nil {
		return nil, err
	}

	out := []api.Webhook{}
	for i := range now.Config.Jobs {
		j := &now.Config.Jobs[i]
		if j.Webhook == nil {
			continue
		}

		w := api.Webhook{Job: string(j.Name), Path: j.Webhook.Path, Scheme: j.Webhook.Scheme, MaxBody: int64(j.Webhook.MaxBody), Enabled: config.On(j.Enabled), URL: x.URL(j.Webhook.Path)}
		if w.Enabled {
			busy, err := x.busyFor(ctx, j)
			if err != nil {
				return nil, err
			}
			if busy != nil {
				w.Refuses = busy.Why
			}
			if lacks := plan.SecretObstacles(now.Config, fmt.Sprintf("jobs[%d].webhook.", i)); len(lacks) > 0 {
				w.Refuses = lacks[0].Text
			} else if err := webhook.Scheme(w.Scheme).CheckSecret(j.Webhook.Secret); err != nil {
				w.Refuses = err.Error()
			}
		}

		last, err := x.Ledger.Runs.List(ctx, runs.Filter{Job: w.Job, Trigger: domain.TriggerWebhook, Limit: 1})
		if err != nil {
			return nil, err
		}
		for _, r := range last {
			w.LastRun, w.LastAt, w.LastOutcome = strconv.FormatInt(r.ID, 10), api.At(r.QueuedAt), string(r.Outcome)
		}
		out = append(out, w)
	}
	return out, nil
}
