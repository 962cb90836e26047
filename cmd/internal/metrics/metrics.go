// Package metrics exports Prometheus metrics.
//
// Counters are derived from the events in the ledger, starting when the process starts. Current
// values (queues, lanes, watches) are collected on each request. Jobs are labels because their
// number is limited by the configuration. Runs, files and texts are not.
package metrics

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"rouse/cmd/internal/api"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/event"
)

// readEvery is the minimum time between two reads of a busy ledger.
const readEvery = time.Second

// Snapshot holds the current values that are not in the ledger's events.
type Snapshot struct {
	Queued, Running, Waiting int
	Blocked                  int // queued runs that cannot start because of an obstacle
	Lanes                    int // maximum number of concurrent runs
	Inbox                    int // items waiting for a person
	Outbox                   int // undelivered notices
	Ready                    bool
	Watches                  map[string]api.Watch // by job
	Replica                  *api.Replica         // nil if there are no continuous copies
	Nodes                    []api.Node           // nodes that share the ledger; empty if the ledger is a file
}

// Options holds the settings of a Metrics.
type Options struct {
	Ledger  *ledger.Ledger
	Now     func(context.Context) (Snapshot, error)
	Version string
	Logger  *slog.Logger
}

// Metrics is a handler for GET /metrics.
type Metrics struct {
	o       Options
	handler http.Handler

	runs                   *prometheus.CounterVec
	duration, late, queued *prometheus.HistogramVec
	steps, cost            *prometheus.CounterVec
	tokens                 *prometheus.CounterVec

	mu    sync.Mutex
	after int64 // ID of the last counted event
	known bool  // after is set
}

// New returns the metrics. Call Run to count continuously.
func New(o Options) (*Metrics, error) {
	// Seconds, from a scheduler tick to one day.
	spans := []float64{.01, .05, .1, .5, 1, 5, 15, 60, 300, 900, 3600, 14400, 86400}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	spread := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: spans}, []string{"job"})
	}

	m := &Metrics{
		o:        o,
		runs:     counter("rouse_runs_total", "Runs that ended, by job and outcome; the job of ad-hoc runs is empty.", "job", "outcome"),
		duration: spread("rouse_run_duration_seconds", "From the start of a run to its end."),
		late:     spread("rouse_run_lateness_seconds", "From the instant of a schedule to the start of its run."),
		queued:   spread("rouse_run_queue_seconds", "From the request of a run to its first start."),
		steps:    counter("rouse_steps_total", "Turns of models, by job.", "job"),
		cost:     counter("rouse_cost_usd_total", "What models cost in USD, by job.", "job"),
		tokens:   counter("rouse_tokens_total", "Tokens of models, by job and direction (in, out).", "job", "direction"),
	}

	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "rouse_build_info", Help: "1, with the version.", ConstLabels: prometheus.Labels{"version": o.Version}})
	build.Set(1)
	registry := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{m.runs, m.duration, m.late, m.queued, m.steps, m.cost, m.tokens, build, now{m},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}

	m.handler = promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	return m, nil
}

// ServeHTTP implements http.Handler.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Count the events up to now, so that the response is current.
	if err := m.read(r.Context()); err != nil {
		http.Error(w, fmt.Sprintf("the record cannot be read: %v", err), http.StatusServiceUnavailable)
		return
	}
	m.handler.ServeHTTP(w, r)
}

// Run counts events until ctx is done.
func (m *Metrics) Run(ctx context.Context) error {
	event.Poll(ctx, m.o.Ledger.DB, readEvery, func() {
		if err := m.read(ctx); err != nil && ctx.Err() == nil {
			m.o.Logger.Debug("the record could not be counted", "error", err) // reported by the next request
		}
	})
	return nil
}

// read counts the events since the last call. The first call only records the newest event.
func (m *Metrics) read(ctx context.Context) (err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.known {
		if m.after, err = m.o.Ledger.Events.Newest(ctx); err != nil {
			return err
		}
		m.known = true
	}
	return event.Each(ctx, m.o.Ledger.Events, event.Filter{After: m.after}, func(e ledger.Event) error {
		if err := m.count(ctx, e); err != nil {
			return err
		}
		m.after = e.ID
		return nil
	})
}

// count updates the counters for one event.
func (m *Metrics) count(ctx context.Context, e ledger.Event) error {
	var data struct {
		Attempt   int            `json:"attempt"`
		Outcome   domain.Outcome `json:"outcome"`
		TokensIn  float64        `json:"tokens_in"`
		TokensOut float64        `json:"tokens_out"`
		CostUSD   float64        `json:"cost_usd"`
	}
	if e.Kind != "run.started" && e.Kind != "run.finished" && e.Kind != "step.finished" {
		return nil
	}
	if err := json.Unmarshal(e.Data, &data); err != nil {
		return nil //nolint:nilerr // an event without valid data is not counted
	}

	switch e.Kind {
	case "step.finished":
		m.steps.WithLabelValues(e.Job).Inc()
		m.tokens.WithLabelValues(e.Job, "in").Add(data.TokensIn)
		m.tokens.WithLabelValues(e.Job, "out").Add(data.TokensOut)
		m.cost.WithLabelValues(e.Job).Add(data.CostUSD)
		return nil
	case "run.finished":
		m.runs.WithLabelValues(e.Job, string(data.Outcome)).Inc()
	}

	run, err := m.o.Ledger.Runs.Get(ctx, e.Run)
	if errors.Is(err, ledger.ErrNotFound) {
		return nil // the run was removed in the meantime
	}
	if err != nil {
		return err
	}
	if e.Kind == "run.finished" {
		if !run.StartedAt.IsZero() {
			m.duration.WithLabelValues(e.Job).Observe(e.At.Sub(run.StartedAt).Seconds())
		}
		return nil
	}

	if data.Attempt == 1 {
		m.queued.WithLabelValues(e.Job).Observe(max(0, e.At.Sub(run.QueuedAt).Seconds()))
		if run.Trigger == domain.TriggerSchedule && !run.ScheduledAt.IsZero() {
			m.late.WithLabelValues(e.Job).Observe(max(0, e.At.Sub(run.ScheduledAt).Seconds()))
		}
	}
	return nil
}

// now is a collector of the current values.
type now struct{ m *Metrics }

// Describe implements prometheus.Collector. It sends no descriptions, so the registry does not
// check the gauges in advance.
func (now) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (n now) Collect(to chan<- prometheus.Metric) {
	// labels holds the name and the value of one label.
	gauge := func(name, help string, value float64, labels ...string) {
		var label []string
		if len(labels) > 0 {
			label, labels = labels[:1], labels[1:]
		}
		to <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, label, nil), prometheus.GaugeValue, value, labels...)
	}
	s, err := n.m.o.Now(context.Background())
	if err != nil {
		to <- prometheus.NewInvalidMetric(prometheus.NewDesc("rouse_ready", "1 while every trigger is armed.", nil, nil), err)
		return
	}

	for state, runs := range map[domain.State]int{domain.StateQueued: s.Queued, domain.StateRunning: s.Running, domain.StateWaiting: s.Waiting} {
		gauge("rouse_runs", "Runs that are not over, by state.", float64(runs), "state", string(state))
	}
	gauge("rouse_runs_blocked", "Runs that something keeps from starting.", float64(s.Blocked))
	gauge("rouse_lanes", "Runs that may be on at once.", float64(s.Lanes))
	gauge("rouse_lanes_used", "Runs that are on.", float64(s.Running))
	gauge("rouse_inbox_open", "Items that wait for a person.", float64(s.Inbox))
	gauge("rouse_outbox_undelivered", "Notices that are not delivered.", float64(s.Outbox))
	gauge("rouse_ready", "1 while every trigger is armed.", one(s.Ready))

	// Several nodes, old and new, can have the same name.
	up, leads := map[string]bool{}, map[string]bool{}
	for _, n := range s.Nodes {
		up[n.Name], leads[n.Name] = up[n.Name] || n.Alive, leads[n.Name] || n.Leads
	}
	for name := range up {
		gauge("rouse_node_up", "1 while a node holds its lease on the ledger that several share.", one(up[name]), "node", name)
		gauge("rouse_node_leads", "1 for the node that does what one does for all: schedules, wakes, notices, retention.", one(leads[name]), "node", name)
	}
	for job, w := range s.Watches {
		lag := 0.0
		if !w.Rescanned.IsZero() {
			lag = time.Since(w.Rescanned.Time).Seconds()
		}
		gauge("rouse_watch_waiting_files", "Files that a watch waits to hold still.", float64(w.Waiting), "job", job)
		gauge("rouse_watch_lag_seconds", "Since the folder of a watch was last looked at.", lag, "job", job)
		gauge("rouse_watch_works", "1 while a watch sees its folder.", one(w.Problem == ""), "job", job)
	}
	if c := s.Replica; c != nil {
		gauge("rouse_replica_behind_seconds", "Since the oldest write that the continuous copies lack; 0 when they lack none.", c.BehindSeconds)
		gauge("rouse_replica_works", "1 while the place of the continuous copies takes them.", one(c.Problem == ""))
		if !c.LastSuccess.IsZero() {
			gauge("rouse_replica_last_success_timestamp_seconds", "When the home was last copied.", float64(c.LastSuccess.UnixMilli())/1000)
		}
	}
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
