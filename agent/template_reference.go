package agent

import (
	"reflect"
	"strings"
	"time"
)

// TemplateValue is a name that templates ({{ .Job }}) and expressions (Job) know.
type TemplateValue struct {
	Name string
	Type string // "text", "time", "{Path, Name, …}"
	In   string // which runs have it
	Says string
}

// templateValues are all names, in the order in which a person looks for them. Their types are those that the runs give (TemplateTypes).
var templateValues = []TemplateValue{
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

// noticeTypes are the types of what only notices know.
var noticeTypes = map[string]reflect.Type{"Outcome": reflect.TypeFor[string](), "Summary": reflect.TypeFor[string](), "Error": reflect.TypeFor[string]()}

// TemplateValues are the names that templates and expressions know, beside the results that a playbook has saved.
func TemplateValues() []TemplateValue {
	types := TemplateTypes()
	out := make([]TemplateValue, len(templateValues))
	for i, v := range templateValues {
		t, known := types[v.Name]
		if !known {
			t = noticeTypes[v.Name]
		}
		v.Type = templateType(t)
		out[i] = v
	}
	return out
}

// templateType is a type in words, with the fields of an object as templates name them.
func templateType(t reflect.Type) string {
	switch {
	case t == nil:
		return "any value"
	case t == reflect.TypeFor[templateTime](), t == reflect.TypeFor[time.Time]():
		return "time"
	}

	switch t.Kind() {
	case reflect.String:
		return "text"
	case reflect.Slice:
		return "list of " + templateType(t.Elem())
	case reflect.Struct:
		var fields []string
		for i := range t.NumField() {
			switch f := t.Field(i); {
			case f.Anonymous: // its fields are named as if they were those of the object
				fields = append(fields, strings.Trim(templateType(f.Type), "{}"))
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
