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
	// maxDeliveries is the maximum number of queued runs of a webhook. The sender keeps further
	// deliveries.
	maxDeliveries = 1000
	// tryAgain is the default time after which a sender should retry.
	tryAgain = time.Minute
	// refusedEvery is the minimum time between two recorded refusals of a job. It keeps strangers
	// from filling the record.
	refusedEvery = time.Minute
)

// refusedWebhook is the data of the event for a refused webhook request.
type refusedWebhook struct {
	Path string `json:"path"`
	Why  string `json:"why"`
	More int    `json:"more,omitempty"` // requests refused since the last event
}

// refusals limits how often refusals are recorded.
type refusals struct {
	since time.Time // time of the last event
	more  int       // number of refusals since then
}

// deliveryKey returns the key of a delivery's run, so that a repeated delivery starts no second
// run.
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

// Deliver implements webhook.Engine. It looks for an earlier delivery first, so that a repeated
// delivery succeeds even during a pause.
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
	// The rate of deliveries is not limited, because many senders do not repeat a refused delivery.
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

// otherBody converts errOtherRequest to an error for webhook senders.
func otherBody(err error) error {
	if errors.Is(err, errOtherRequest) {
		return webhook.ErrOtherBody
	}
	return err
}

// busyFor returns an error if a job accepts no deliveries now, and nil otherwise.
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

// Refused implements webhook.Engine. It does not record each refusal, because strangers can send
// any number of requests.
func (x *Runs) Refused(ctx context.Context, h webhook.Hook, why string) {
	x.recordRefusal(ctx, h.Job, ledger.Event{Job: h.Job, Kind: webhook.RefusedEvent}, func(more int) any {
		x.Logger.Warn("a request to a webhook was refused", "job", h.Job, "path", h.Path, "why", why, "more_before", more)
		return refusedWebhook{Path: h.Path, Why: why, More: more}
	})
}

// countRefused reports whether to record a refusal, and the number of refusals since the last
// recorded one.
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

// Webhooks returns the webhooks of jobs, each with its last run.
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
