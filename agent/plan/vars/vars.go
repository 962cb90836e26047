// Package vars returns the variables of templates ({{ .Job }}) and expressions (Job) of a run, with
// their types and descriptions.
package vars

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"rouse/agent/plan"
	"rouse/internal/ledger"
	"rouse/internal/ledger/runs"
)

// instant is a time that is printed as RFC 3339 in UTC with milliseconds, like times in a database.
type instant struct{ time.Time }

func (s instant) String() string { return s.UTC().Format("2006-01-02T15:04:05.000Z") }

// MarshalJSON implements json.Marshaler. An expression thus yields the text that a template prints.
func (s instant) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// Of returns the variables of prompts, playbooks and notices. A variable that does not apply to the
// run is absent, so its use is an error.
func Of(run ledger.Run, attempt int, d ledger.TriggerDetail, lastSuccess, lastRun time.Time) map[string]any {
	scheduled := run.ScheduledAt
	if scheduled.IsZero() { // not started by a schedule: it was due when it was queued
		scheduled = run.QueuedAt
	}

	input := map[string]any{}
	for k, v := range d.Input {
		input[k] = v
	}

	data := map[string]any{
		"Job": run.Job, "Agent": run.Agent, "Run": fmt.Sprint(run.ID), "Attempt": attempt,
		"Scheduled": instant{scheduled}, "LastSuccess": instant{lastSuccess}, "LastRun": instant{lastRun},
		"Input": input,
	}
	switch {
	case d.File != nil:
		data["File"] = *d.File
	case len(d.Files) > 0:
		data["Files"], data["More"] = plan.BatchOf(d.Files), d.More
	case d.Webhook != nil:
		data["Delivery"] = *d.Webhook // the caller adds Body and Payload
	case d.After != nil:
		data["After"] = endedOf(*d.After)
	case d.Folder != "":
		data["Folder"], data["Round"], data["Changes"] = d.Folder, d.Round, Changes(d)
	}

	return data
}

// LastTimes returns the times of earlier runs of the job. It ignores skipped runs. Otherwise a job
// that must wait after its last run would be skipped forever.
func LastTimes(ctx context.Context, l *ledger.Ledger, run ledger.Run) (runs.LastTimes, error) {
	if run.Job == "" {
		return runs.LastTimes{}, nil
	}
	return l.Runs.LastTimes(ctx, run.Job, run.ID)
}

// DestinationNames returns the variables of on_success and on_failure. Their values are the same in
// each attempt.
func DestinationNames() []string {
	return []string{"Job", "Agent", "Run", "Scheduled", "Input", "File", "Outcome"}
}

// DestinationData returns the values of DestinationNames for a file of a finished run.
func DestinationData(j plan.Job, run ledger.Run, file ledger.File) (map[string]any, error) {
	d, err := plan.ParseDetail(run)
	if err != nil {
		return nil, err
	}
	data := Of(run, 0, j.TriggeredBy(d), time.Time{}, time.Time{})
	data["File"], data["Outcome"] = file, string(run.Outcome)
	maps.DeleteFunc(data, func(name string, _ any) bool { return !slices.Contains(DestinationNames(), name) })
	return data, nil
}

// ended describes the run that triggered another run. Its outcome is a plain string, so that
// templates and expressions can compare it.
type ended struct {
	Job                     string
	Run                     int64
	Outcome, Summary, Error string
	Finished                instant
	Artifacts               []ledger.EndedArtifact
}

func endedOf(e ledger.EndedRun) ended {
	return ended{Job: e.Job, Run: e.Run, Outcome: string(e.Outcome), Summary: e.Summary, Error: e.Error, Finished: instant{e.FinishedAt}, Artifacts: e.Artifacts}
}

// Types returns the types of all variables. A type is nil if it depends on the run.
func Types() map[string]reflect.Type {
	out := map[string]reflect.Type{"Manifest": reflect.TypeFor[string]()}
	for _, d := range []ledger.TriggerDetail{{File: &ledger.File{}}, {Files: make([]ledger.File, 1)}, {Folder: "."}, {Webhook: &ledger.Delivery{}}, {After: &ledger.EndedRun{}}} {
		for name, value := range Of(ledger.Run{}, 1, d, time.Time{}, time.Time{}) {
			out[name] = reflect.TypeOf(value)
		}
	}
	out["Body"], out["Payload"] = reflect.TypeFor[string](), nil // the sender decides on the type
	return out
}

// AddBody adds the body of a webhook request: Body as it was received, Payload as JSON or form
// fields.
func AddBody(data map[string]any, body string) {
	data["Body"], data["Payload"] = body, map[string]any{}

	var payload any
	if json.Unmarshal([]byte(body), &payload) == nil {
		data["Payload"] = payload
		return
	}
	// Some senders, such as Slack, send forms, and some of these forms contain JSON in one field.
	form, err := url.ParseQuery(body)
	if err != nil || !strings.Contains(body, "=") || strings.ContainsAny(body, " \n") {
		return
	}
	fields := map[string]any{}
	for name, values := range form {
		fields[name] = values[0]
	}
	var inner map[string]any
	if text, ok := fields["payload"].(string); ok && json.Unmarshal([]byte(text), &inner) == nil {
		fields["payload"] = inner
	}
	data["Payload"] = fields
}

// Changes returns the changes of a folder. They are empty for a manual run without changes.
func Changes(d ledger.TriggerDetail) ledger.Changes {
	if d.Changes == nil {
		return ledger.Changes{Added: []string{}, Removed: []string{}, Modified: []string{}}
	}
	return *d.Changes
}

// Value describes a variable of templates ({{ .Job }}) and expressions (Job).
type Value struct {
	Name string
	Type string // "text", "time", "{Path, Name, …}"
	In   string // runs that have the variable
	Says string
}

// values lists all variables in the order in which they are displayed. Values adds their types.
var values = []Value{
	{"Job", "", "every run", "name of the job, empty for an ad-hoc prompt"},
	{"Agent", "", "every run", "name of the agent"},
	{"Run", "", "every run", "number of the run"},
	{"Attempt", "", "every run", "1, and more after a retry or a crash"},
	{"Scheduled", "", "every run", "the instant that the run is for; when it was asked for, if no clock did"},
	{"LastSuccess", "", "every run", "start of the job's last successful run, for since of file_read and file_search; 0001-01-01 before the first"},
	{"LastRun", "", "every run", "when the job's last run ended; 0001-01-01 before the first"},
	{"Input", "", "every run", "what rouse run --input KEY=VALUE gave: .Input.KEY"},
	{"File", "", "watch, mode: per_file; on_success, on_failure", "the file"},
	{"Files", "", "watch, mode: batch", "the files, in the order of their paths"},
	{"More", "", "watch, mode: batch", "how many more were ready, for a later run"},
	{"Manifest", "", "watch, mode: batch", "path of a file that lists the files, a line each; it is gone after the run"},
	{"Folder", "", "watch, mode: converge", "path of the folder"},
	{"Round", "", "watch, mode: converge", "1 for the first run since the folder was the same as known"},
	{"Changes", "", "watch, mode: converge", "what is different, as paths below the folder"},
	{"Body", "", "webhook", "the body of the request, as it came"},
	{"Payload", "", "webhook", "the body as JSON, or as the fields of a form; empty where it is neither"},
	{"Delivery", "", "webhook", "the request"},
	{"After", "", "after", "the run that was followed"},
	{"Outcome", "", "notify: title, body; on_success, on_failure", "outcome of the run, or waiting"},
	{"Summary", "", "notify: title, body", "what it did, in its own words"},
	{"Error", "", "notify: title, body", "why it failed, empty where it did not"},
}

var noticeTypes = map[string]reflect.Type{"Outcome": reflect.TypeFor[string](), "Summary": reflect.TypeFor[string](), "Error": reflect.TypeFor[string]()}

// Values returns the variables of templates and expressions, without the saved results of a
// playbook.
func Values() []Value {
	types := Types()
	out := make([]Value, len(values))
	for i, v := range values {
		t, known := types[v.Name]
		if !known {
			t = noticeTypes[v.Name]
		}
		v.Type = typeName(t)
		out[i] = v
	}
	return out
}

func typeName(t reflect.Type) string {
	switch {
	case t == nil:
		return "any value"
	case t == reflect.TypeFor[instant](), t == reflect.TypeFor[time.Time]():
		return "time"
	}

	switch t.Kind() {
	case reflect.String:
		return "text"
	case reflect.Slice:
		return "list of " + typeName(t.Elem())
	case reflect.Struct:
		var fields []string
		for i := range t.NumField() {
			switch f := t.Field(i); {
			case f.Anonymous: // fields of an embedded struct belong to the outer struct
				fields = append(fields, strings.Trim(typeName(f.Type), "{}"))
			case f.IsExported():
				fields = append(fields, f.Name)
			}
		}
		return "{" + strings.Join(fields, ", ") + "}"
	case reflect.Map:
		return "mapping"
	}
	return "number"
}
