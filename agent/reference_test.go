package agent_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"rouse/agent"
	"rouse/agent/plan/vars"
	"rouse/agent/tool"
)

// TestEveryToolHasAnExample checks that every tool has a valid example call, and that its
// documentation has the agents that have it and the arguments.
func TestEveryToolHasAnExample(t *testing.T) {
	for _, s := range agent.Specs() {
		if s.Listed() && s.Example == "" {
			t.Errorf("%s has no Example, which rouse tools and docs/reference show", s.Name)
		}
		if s.GivenTo() == "" {
			t.Errorf("%s: nobody knows which agents have it (%s)", s.Name, s.Requires)
		}

		raw, err := s.ExampleArgs()
		if err != nil {
			t.Fatal(err)
		}
		var given map[string]any
		dec := json.NewDecoder(strings.NewReader(string(raw)))
		dec.UseNumber()
		if err := dec.Decode(&given); err != nil {
			t.Errorf("%s: the example is not JSON: %v in %s", s.Name, err, raw)
			continue
		}

		a, err := s.Arguments()
		if err != nil {
			t.Fatal(err)
		}
		for _, wrong := range a.Check(given) {
			t.Errorf("%s: the example %s does not fit: %s %s", s.Name, raw, wrong.Field, wrong.Message)
		}
	}
}

// TestToolReference checks that the arguments of a tool are listed in the order of its type, with
// their values, and that the keys that grant its access are named.
func TestToolReference(t *testing.T) {
	specs := agent.Specs()
	list, err := specs.Find("file_write").ArgumentList()
	if err != nil {
		t.Fatal(err)
	}
	want := []tool.Argument{
		{Name: "path", Type: "text", Required: true},
		{Name: "content", Type: "text", Required: true, Description: "at most 30,000 characters"},
		{Name: "mode", Type: "text", Values: []string{"overwrite", "append"}},
		{Name: "dry_run", Type: "true or false"},
	}
	if !slices.EqualFunc(list, want, func(a, b tool.Argument) bool {
		return a.Name == b.Name && a.Type == b.Type && a.Required == b.Required && a.Description == b.Description && slices.Equal(a.Values, b.Values)
	}) {
		t.Errorf("file_write takes %+v", list)
	}

	for name, keys := range map[string]string{"file_read": "grants.read", "file_write": "grants.write", "shell_run": "grants.commands", "web_fetch": "grants.network", "db_export": "grants.write", "db_import": "grants.read", "db_query": "", "notify": ""} {
		if got := strings.Join(specs.Find(name).Grants(), " "); got != keys {
			t.Errorf("%s needs %q, want %q", name, got, keys)
		}
	}
	for name, by := range map[string]bool{"db_query": true, "clarify": false, "reduce": false, "agent_step": false} {
		if specs.Find(name).Callable() != by {
			t.Errorf("%s can be called by its owner: %v", name, !by)
		}
	}
}

// TestTemplateValues checks that exactly the variables of templates are described: those of every
// run and trigger, and those of notices.
func TestTemplateValues(t *testing.T) {
	types := vars.Types()
	seen := map[string]bool{}
	for _, v := range vars.Values() {
		if seen[v.Name] {
			t.Errorf("%s is described twice", v.Name)
		}
		seen[v.Name] = true
		if _, known := types[v.Name]; !known && !strings.HasPrefix(v.In, "notify: title, body") {
			t.Errorf("%s is described, and no run has it", v.Name)
		}
		if v.Says == "" || v.In == "" || v.Type == "" {
			t.Errorf("%+v", v)
		}
	}
	for name := range types {
		if !seen[name] {
			t.Errorf("%s is known to templates and not described", name)
		}
	}

	for name, want := range map[string]string{"File": "{Path, Name, Size, Hash, ModTime}", "Changes": "{Added, Removed, Modified, More}", "Attempt": "number", "Scheduled": "time", "Input": "mapping", "Payload": "any value", "Error": "text"} {
		i := slices.IndexFunc(vars.Values(), func(v vars.Value) bool { return v.Name == name })
		if got := vars.Values()[i].Type; got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}
