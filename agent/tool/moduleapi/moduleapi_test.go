package moduleapi_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/tool"
	"rouse/agent/tool/moduleapi"
	"rouse/internal/contract"
	"rouse/skills"
)

// open returns the host of a module with storage, and the registry of its tools.
func open(t *testing.T, path string) (*moduleapi.Host, *tool.Registry) {
	t.Helper()
	roots, err := tool.NewRoots(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}

	m := &skills.Manifest{Permissions: []skills.Permission{{Kind: skills.PermissionStorage}}, BridgeRequirement: skills.BridgeNever}
	h, err := moduleapi.New(moduleapi.Options{Manifest: m, Roots: roots, Storage: path, Epoch: "e1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })

	tools, err := h.Tools()
	if err != nil {
		t.Fatal(err)
	}
	registry, err := tool.NewRegistry(tools...)
	if err != nil {
		t.Fatal(err)
	}
	return h, registry
}

// call makes a call as the loop does, and returns the value that the module gets.
func call(t *testing.T, h *moduleapi.Host, r *tool.Registry, run int64, key, method string, args ...any) (string, error) {
	t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	c, err := h.Translate(method, raw)
	if err != nil {
		return "", err
	}
	e, err := r.Call(t.Context(), tool.Invocation{Run: run, Key: key}, c.Tool, c.Args)
	if err != nil {
		t.Fatal(err)
	}
	value, err := h.Answer(t.Context(), c, key, e)
	return string(value), err
}

// A write that is repeated under the key of its call writes once, even after other writes and in
// another process. Each run has its own keys, and the stored values persist (UNI-13).
func TestStorageWritesOnce(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "UNI-13")
	set, get, remove := row.Quote("storage.set"), row.Quote("storage.get"), row.Quote("storage.delete")
	path := filepath.Join(t.TempDir(), "clerk", "sums.db")
	h, r := open(t, path)
	must := func(run int64, key, method string, args ...any) string {
		t.Helper()
		value, err := call(t, h, r, run, key, method, args...)
		if err != nil {
			t.Fatal(err)
		}
		return value
	}

	must(1, "a", set, "n", 1)
	must(1, "b", set, "n", 2)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}

	h, r = open(t, path)
	must(1, "a", set, "n", 1)
	if got := must(1, "c", get, "n"); got != "2" {
		t.Errorf("n is %s after a call that was made before", got)
	}

	must(2, "a", set, "n", 3)
	must(1, "d", remove, "n")
	must(2, "b", set, "n", 4)
	must(1, "d", remove, "n")
	if got := must(1, "e", get, "n"); got != "4" {
		t.Errorf("n is %s", got)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "sums.db") {
			t.Errorf("beside the file of the skill there is %s", e.Name())
		}
	}
}

// A placeholder is found in every JSON spelling (OSL-22).
func TestHiddenPlaceholder(t *testing.T) {
	t.Parallel()
	h, _ := open(t, filepath.Join(t.TempDir(), "sums.db"))
	for _, args := range []string{`["k", "__OSL_SECRET[bank]__"]`, `["k", {"a": ["\u005f\u005fOSL_SECRET\u005bbank]__"]}]`, `["__OSL_SECRET[bank]\u005f_"]`} {
		if _, err := h.Translate("storage.set", json.RawMessage(args)); err == nil || !strings.Contains(err.Error(), `"bank" is not among the requiredBindings`) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// A full store refuses further values and keeps its content. It accepts the call again once there
// is room (UNI-13).
func TestStorageIsBounded(t *testing.T) {
	t.Parallel()
	h, r := open(t, filepath.Join(t.TempDir(), "sums.db"))
	large := strings.Repeat("x", 1<<20-2)
	for i := range 9 {
		if _, err := call(t, h, r, 1, fmt.Sprint("s", i), "storage.set", fmt.Sprint(i), large); err != nil {
			t.Fatal(err)
		}
	}

	_, err := call(t, h, r, 1, "over", "storage.set", "over", large)
	if err == nil || !strings.Contains(err.Error(), "10 MiB are the most") {
		t.Errorf("%v", err)
	}
	if _, err := call(t, h, r, 1, "d", "storage.delete", "0"); err != nil {
		t.Fatal(err)
	}
	if _, err := call(t, h, r, 1, "over", "storage.set", "over", large); err != nil {
		t.Errorf("%v", err)
	}
	if got, err := call(t, h, r, 1, "l", "storage.list", "o"); got != `["over"]` {
		t.Errorf("%s %v", got, err)
	}
}

// Methods that are not declared do not exist, for every way of calling them (OSL-07).
func TestUndeclared(t *testing.T) {
	t.Parallel()
	h, r := open(t, filepath.Join(t.TempDir(), "sums.db"))
	for _, method := range moduleapi.Names() {
		own := strings.HasPrefix(method, "storage.") || strings.HasPrefix(method, "events.")
		if own || method == "log" {
			continue
		}
		if _, err := h.Translate(method, json.RawMessage("[]")); err == nil || !strings.Contains(err.Error(), "is not there") {
			t.Errorf("%s: %v", method, err)
		}
	}

	for _, name := range r.Names() {
		if !strings.HasPrefix(name, "host_storage_") {
			t.Errorf("the tool %s is there", name)
		}
	}
}

// A run without a limit in its manifest may take a thousand steps. Automatic checkpoints and roles
// depend on the manifest (OSL-14).
func TestSteps(t *testing.T) {
	t.Parallel()
	step := func(h *moduleapi.Host) moduleapi.Call {
		t.Helper()
		c, err := h.Translate("run.reportStep", json.RawMessage(`["add", "clerk"]`))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	opened := func(c *skills.AgenticConfig) *moduleapi.Host {
		t.Helper()
		roots, err := tool.NewRoots(t.TempDir(), nil)
		if err != nil {
			t.Fatal(err)
		}
		h, err := moduleapi.New(moduleapi.Options{Manifest: &skills.Manifest{ExecutionMode: skills.ModeAgentic, BridgeRequirement: skills.BridgeNever, AgenticConfig: c}, Roots: roots})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}

	h := opened(&skills.AgenticConfig{Enabled: true})
	for n := range 1000 {
		if c := step(h); c.Over != "" || c.Tool != "" || c.Event.Data["role"] != "" {
			t.Fatalf("step %d: %+v", n+1, c)
		}
	}
	if c := step(h); !strings.Contains(c.Over, "the 1000 steps") {
		t.Errorf("one more: %+v", c)
	}

	soft := 2
	h = opened(&skills.AgenticConfig{Enabled: true, SupportsRoleBasedExecution: true, DefaultStepBudget: &soft})
	var marks []string
	for range 4 {
		c := step(h)
		marks = append(marks, c.Tool)
		if c.Event.Data["role"] != "clerk" {
			t.Errorf("%+v", c.Event)
		}
	}
	if got := strings.Join(marks, ","); got != ",host_run_checkpoint,," {
		t.Errorf("checkpoints: %s", got)
	}
}

// A schema with a reference is refused, because resolving it could crash the process.
func TestSchemasReferToNothing(t *testing.T) {
	for _, schema := range []string{`{"type": "object", "$ref": "#"}`, `{"$defs": {"a": {}}, "properties": {"a": {"$ref": "#/$defs/a"}}}`, `{"allOf": [{"$dynamicRef": "#"}]}`} {
		if err := moduleapi.CheckValue(json.RawMessage(schema), json.RawMessage(`{}`)); err == nil || !strings.Contains(err.Error(), "$ref") {
			t.Errorf("%s: %v", schema, err)
		}
	}
	if err := moduleapi.CheckValue(json.RawMessage(`{"type": "object"}`), json.RawMessage(`{}`)); err != nil {
		t.Error(err)
	}
}
