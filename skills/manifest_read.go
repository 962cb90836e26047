package skills

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"

	"rouse/internal/form"
)

// ReadManifest reads the manifest.json of a directory, and reports all of its problems (OSL-03, OSL-04,
// OSL-05). It is strict, because a program gets what its manifest declares: the manifest is nil if one of
// the problems is more than a warning. An unknown field is a warning.
func ReadManifest(dir string) (*Manifest, []Problem) {
	real, problems := resolveDir(dir)
	if len(problems) > 0 {
		return nil, problems
	}
	return readManifest(real)
}

// readManifest is ReadManifest for a resolved directory.
func readManifest(dir string) (*Manifest, []Problem) {
	file := filepath.Join(dir, manifestFile)
	if !hasFiles(dir, manifestFile) {
		return nil, problem(file, RuleManifestMissing, "is missing; an executable skill declares its kind and its needs in it (rouse new skill writes one)")
	}
	source, problems := readFile(dir, manifestFile, MaxFile, "")
	if len(problems) > 0 {
		return nil, problems
	}
	return parseManifest(file, source)
}

// parseManifest is ReadManifest for the content of a file.
func parseManifest(file string, source []byte) (*Manifest, []Problem) {
	v, problems := parseJSON(file, source)
	if v.kind == "" {
		return nil, problems
	}

	r := &report{file: file, problems: problems}
	if v.kind != kindObject {
		r.add(v, "", RuleFieldType, false, "is %s, and must be an object with the fields of a manifest", v.kind)
		return nil, r.problems
	}

	o := &object{report: r, value: v}
	m := &Manifest{Sandbox: SandboxRules{Isolation: defaultIsolation, MaxExecutionMS: DefaultMaxExecutionMS, MaxMemoryMB: DefaultMaxMemoryMB}}
	o.decode(m)
	o.checkValues(m)
	o.compare(m)

	if hasError(r.problems) {
		return nil, inOrder(r.problems)
	}
	return m, inOrder(r.problems)
}

// checkValues checks single fields beyond their types.
func (o *object) checkValues(m *Manifest) {
	if m.Name != "" && !slug.MatchString(m.Name) {
		o.fail("name", RuleSlug, "%q is no slug; write small letters, digits and hyphens, and begin with a letter", m.Name)
	}
	if m.Version != "" && !semver.MatchString(m.Version) {
		o.fail("version", RuleVersion, "%q is no semantic version; write three numbers, like 1.0.0", m.Version)
	}
	if m.SchemaVersion != "" && m.SchemaVersion != SchemaVersion {
		o.fail("schemaVersion", RuleSchemaVersion, "is %q, and %q is what can be read; write it in that version", m.SchemaVersion, SchemaVersion)
	}
	for _, w := range o.objects("wasm") {
		if w.at("sourceKind").text == "url" && w.at("sourceUrl").text == "" {
			w.fail("sourceUrl", RuleFieldMissing, "is missing, and sourceKind is url; write the address of the module")
		}
	}
}

// slug is the name of an executable skill (OSL-01).
var slug = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// semver is a semantic version, as semver.org has it.
var semver = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)

// hooks returns the names in a list of lifecycle hooks, which are texts, or objects with a name.
func (o *object) hooks(list value) []string {
	if list.kind != kindList {
		o.fail("lifecycleHooks", RuleFieldType, "is %s, and must be %s", said(list), kindList)
		return nil
	}

	out := []string{}
	for i, item := range list.items {
		field, name := fmt.Sprintf("lifecycleHooks[%d]", i), hookName(item)
		switch {
		case name.kind != kindText:
			o.add(item, field, RuleFieldType, false, "is %s, and must be the name of a hook, like onInstall", said(item))
		case !slices.Contains(lifecycleHooks, name.text):
			o.add(item, field, RuleFieldValue, true, "%s; it is never called", noneOf(name.text, lifecycleHooks))
		default:
			out = append(out, name.text)
		}
	}

	return out
}

// hookName is the name of a lifecycle hook, which is a text or a field of an object.
func hookName(item value) value {
	for _, key := range []string{"hook", "name", "event"} {
		if v, ok := item.lookup(key); ok {
			return v
		}
	}
	return item
}

// checkSchema reports a JSON Schema that values cannot be checked by, or whose root is of another type.
func (r *report) checkSchema(v value, path, root string) bool {
	err := schemaError(v.raw)
	if err != nil {
		r.add(v, path, RuleSchema, false, "is not a JSON Schema that can be checked by: %v", err)
	}
	kind, _ := v.lookup("type")
	rooted := root == "" || kind.text == root
	if !rooted {
		r.add(v, path, RuleSchemaRoot, false, `must have "type": %q at its root`, root)
	}
	return err == nil && rooted
}

// schemaError returns why values cannot be checked by a schema. It does not follow references to other files.
func schemaError(raw json.RawMessage) (err error) {
	defer func() { // a stranger's schema must not end the daemon
		if p := recover(); p != nil {
			err = fmt.Errorf("it cannot be read (%v)", p)
		}
	}()

	if err := form.SelfContained(raw); err != nil {
		return err
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	_, err = s.Resolve(nil)
	return err
}
