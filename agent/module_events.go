package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"rouse/agent/redact"
	"rouse/agent/tool/moduleapi"
	"rouse/internal/ledger"
	"rouse/internal/text"
	"rouse/skills/module"
)

const (
	eventLog = "skill.log"
	// maxModuleEvents is the maximum number of events per attempt. One last event notes the
	// omission.
	maxModuleEvents = 1000
	maxLogText      = 500      // characters
	maxResult       = 16 << 10 // bytes of JSON
	// progressEvery is the minimum time between two recorded progress events.
	progressEvery = 500 * time.Millisecond
)

// moduleEvents records the events of a module. It ignores events while the module repeats an
// earlier attempt, because that attempt has recorded them.
type moduleEvents struct {
	ledger *ledger.Ledger
	run    ledger.Run
	redact *redact.Redactor
	live   bool // the module has passed the work of earlier attempts

	said     int            // number of events
	progress time.Time      // time of the last recorded progress
	late     map[string]any // latest progress, held back by progressEvery; nil if recorded
	waiting  []ledger.Event // events for the next flush
}

func newModuleEvents(l *ledger.Ledger, run ledger.Run, r *redact.Redactor) *moduleEvents {
	return &moduleEvents{ledger: l, run: run, redact: r, live: run.Attempt <= 1}
}

func (m *moduleEvents) logs(lines []module.Log) {
	for _, l := range lines {
		m.add(eventLog, map[string]any{"level": l.Level, "text": text.Truncate(m.redact.Replace(l.Text), maxLogText)})
	}
}

func (m *moduleEvents) add(kind string, data map[string]any) {
	if !m.live {
		return
	}
	if kind == moduleapi.EventProgress {
		now := time.Now()
		if now.Sub(m.progress) < progressEvery {
			m.late = data
			return
		}
		m.progress, m.late = now, nil
	}

	m.said++
	switch {
	case m.said > maxModuleEvents:
		return
	case m.said == maxModuleEvents:
		kind, data = eventLog, map[string]any{"level": "warn", "text": fmt.Sprintf("it said more than %d lines and events; the rest is left out", maxModuleEvents)}
	}

	m.put(kind, data)
}

// settle adds the progress event that progressEvery held back. People see this event while the run
// waits and after its end.
func (m *moduleEvents) settle() {
	if m.late != nil {
		m.put(moduleapi.EventProgress, m.late)
		m.late = nil
	}
}

// result adds the value that the module returned, if any. It is added even after maxModuleEvents
// events and even if an earlier attempt has recorded a result.
func (m *moduleEvents) result(e *module.End) {
	if e == nil || e.Status != module.Returned || len(e.Value) == 0 {
		return
	}

	data := map[string]any{"value": e.Value}
	if len(e.Value) > maxResult {
		data = map[string]any{"text": text.Size(int64(len(e.Value))) + " of JSON, of which nothing is kept"}
	}
	m.put(moduleapi.EventResult, data)
}

func (m *moduleEvents) put(kind string, data map[string]any) {
	raw, err := json.Marshal(data)
	if err != nil {
		return // cannot happen: the data was decoded from JSON
	}
	m.waiting = append(m.waiting, ledger.Event{Run: m.run.ID, Job: m.run.Job, Kind: kind, Data: m.redact.JSON(raw)})
}

func (m *moduleEvents) flush(ctx context.Context) error {
	if len(m.waiting) == 0 {
		return nil
	}
	events := m.waiting
	m.waiting = nil
	return m.ledger.Events.Append(context.WithoutCancel(ctx), events...)
}
