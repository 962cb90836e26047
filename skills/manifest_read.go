package skills

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"

	"rouse/internal/form"
)

// ReadManifest reads the manifest.json in dir and returns all of its problems. It is strict,
// because a program gets only what its manifest declares. The manifest is nil if a problem is not a
// warning. An unknown field is a warning.
func ReadManifest(dir string) (*Manifest, []Problem) {
	real, problems := resolveDir(dir)
	if len(problems) > 0 {
		return nil, problems
	}
	return readManifest(real)
}

// readManifest reads the manifest.json of a resolved directory.
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

// parseManifest parses and checks the content of a manifest.json.
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

// slug matches the name of an executable skill.
var slug = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// semver matches a semantic version as defined by semver.org.
var semver = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)

// hooks returns the names in a list of lifecycle hooks. An item is a string, or an object with a
// name.
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

// hookName returns the name of a lifecycle hook: the item itself, or a field of it if it is an
// object.
func hookName(item value) value {
	for _, key := range []string{"hook", "name", "event"} {
		if v, ok := item.lookup(key); ok {
			return v
		}
	}
	return item
}

// checkSchema reports an invalid JSON Schema, or a schema with a root type other than root. It
// returns true if the schema is valid. An empty root allows any type.
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

// schemaError returns an error if values cannot be validated with the schema. It does not follow
// references to other files.
func schemaError(raw json.RawMessage) (err error) {
	defer func() { // a hostile schema must not crash the daemon
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

// maxSteps is the default step limit of a run.
const maxSteps = 1000

// compare checks that the fields of a manifest are consistent. Fields that are invalid by
// themselves are empty in m and were already reported.
func (o *object) compare(m *Manifest) {
	o.compareMode(m)
	o.compareSupport(m)
	o.compareNames()

	o.features()
	if m.BridgeRequirement != BridgeRequired {
		return
	}
	if !slices.Contains(m.CompatibilityRequirements, FeatureSystemTools) {
		o.warn("compatibilityRequirements", RuleBridgeTools, "lacks system_tools, which bridgeRequirement: required stands for; add it")
	}
	if named, ok := o.value.lookup("supportedPlatforms"); ok && named.kind == kindList && len(named.items) == 0 {
		o.warn("supportedPlatforms", RuleBridgePlatforms, "is empty, and the skill runs programs of the machine; name the platforms that have them")
	}
}

// features warns about compatibilityRequirements that are unknown or not available on this host.
func (o *object) features() {
	required, _ := o.value.lookup("compatibilityRequirements")
	for i, item := range required.items {
		if item.kind != kindText {
			continue
		}
		at := join(o.path, fmt.Sprintf("compatibilityRequirements[%d]", i))
		if f, known := feature(item.text); !known {
			o.add(item, at, RuleCompatibility, true, "%s", noneOf(item.text, featureNames()))
		} else if !f.Here {
			o.add(item, at, RuleFeature, true, "is %s (%s), which is not available here; the skill is installed, and is not run", f.Name, f.What)
		}
	}
}

// compareMode checks that the execution mode matches the other settings.
func (o *object) compareMode(m *Manifest) {
	c := m.AgenticConfig
	switch m.ExecutionMode {
	case ModeDeclarative, ModeFlow:
		if c != nil && c.Enabled {
			o.fail("agenticConfig", RuleAgenticConfig, `is enabled, and the skill is %s; write "enabled": false, or "executionMode": "agentic"`, m.ExecutionMode)
		}
	case ModeAgentic:
		switch v, _ := o.value.lookup("agenticConfig"); {
		case v.kind == kindNull:
			o.fail("agenticConfig", RuleAgenticConfig, "is null, and the skill is agentic; say how it works, with \"enabled\": true")
		case c != nil && !c.Enabled:
			o.fail("agenticConfig", RuleAgenticConfig, `is not enabled, and the skill is agentic; write "enabled": true`)
		}
		if c != nil {
			o.compareAgentic(m, *c)
		}
	}

	if m.ExecutionMode != ModeDeclarative {
		return
	}
	if m.UserInputSupport {
		o.warn("userInputSupport", RuleDeclarative, "is true, and a declarative skill cannot ask anybody; write false, or the mode flow")
	}
	if m.LongRunningSupport == SupportOptional || m.LongRunningSupport == SupportRequired {
		o.warn("longRunningSupport", RuleDeclarative, "is %s, and a declarative skill is one call; write none, or the mode flow", m.LongRunningSupport)
	}
}

// compareAgentic checks the settings of an agentic skill against the rest of the manifest.
func (o *object) compareAgentic(m *Manifest, c AgenticConfig) {
	if c.RequiresWorkspace && m.WorkspaceSupport != SupportRequired {
		o.fail("workspaceSupport", RuleWorkspace, `is %q, and agenticConfig.requiresWorkspace is true; write "required"`, string(m.WorkspaceSupport))
	}
	if m.WorkspaceSupport == SupportNone {
		o.warn("workspaceSupport", RuleAgenticSupport, "is none; an agentic skill keeps what it knows in a workspace, so write optional or required")
	}
	if m.LongRunningSupport == SupportNone {
		o.warn("longRunningSupport", RuleAgenticSupport, "is none; an agentic skill pauses and continues, so write optional or required")
	}

	at := &object{report: o.report, value: o.at("agenticConfig"), path: "agenticConfig"}
	if !c.Enabled {
		return
	}
	for key, says := range map[string]string{"maxStepsPerRun": fmt.Sprintf("is null, so that %d steps are the most; write a limit of your own", maxSteps), "defaultStepBudget": "is null, so that no checkpoint comes by itself; write a number of steps"} {
		if v, ok := at.value.lookup(key); ok && v.kind == kindNull {
			at.warn(key, RuleStepLimit, "%s", says)
		}
	}
	if c.MaxStepsPerRun != nil && c.DefaultStepBudget != nil && *c.DefaultStepBudget > *c.MaxStepsPerRun {
		at.warn("defaultStepBudget", RuleStepLimit, "is %d, and the run ends at maxStepsPerRun: %d; write fewer", *c.DefaultStepBudget, *c.MaxStepsPerRun)
	}
}

// compareSupport checks the settings for workspaces and long runs.
func (o *object) compareSupport(m *Manifest) {
	v, there := o.value.lookup("workspaceSchemaVersion")
	switch workspaces := m.WorkspaceSupport == SupportOptional || m.WorkspaceSupport == SupportRequired; {
	case workspaces && there && v.kind == kindNull:
		o.warn("workspaceSchemaVersion", RuleWorkspaceVersion, "is null, and workspaceSupport is %s; write a version of its state, like 1.0.0", m.WorkspaceSupport)
	case m.WorkspaceSchemaVersion != nil && !semver.MatchString(*m.WorkspaceSchemaVersion):
		o.warn("workspaceSchemaVersion", RuleWorkspaceVersion, "%q is no semantic version; write three numbers, like 1.0.0", *m.WorkspaceSchemaVersion)
	}

	if m.LongRunningSupport == SupportRequired && m.WorkspaceSupport == SupportNone {
		o.warn("workspaceSupport", RuleLongRunning, "is none, and longRunningSupport is required; a run that outlives its process needs a workspace, so write optional or required")
	}
}

// compareNames reports duplicate names and references to undeclared names.
func (o *object) compareNames() {
	bindings := o.names("requiredBindings", "name")
	providers := o.names("oauth", "providerId")
	o.names("llmUsage", "purposeId")
	o.names("tools", "name")
	o.names("wasm", "moduleId")

	o.refer("requiredBindings", "oauthProviderId", providers, "oauth provider")
	o.refer("oauth", "clientIdBinding", bindings, "binding")
	o.refer("oauth", "clientSecretBinding", bindings, "binding")
}

// names returns the names of the objects in a list. It reports duplicates.
func (o *object) names(list, key string) (out []string) {
	for _, one := range o.objects(list) {
		v, _ := one.value.lookup(key)
		switch {
		case v.kind != kindText:
		case slices.Contains(out, v.text):
			one.fail(key, RuleNameTwice, "%q is there twice; give one another name", v.text)
		default:
			out = append(out, v.text)
		}
	}
	return out
}

// refer warns about objects in a list that refer to a name not in known.
func (o *object) refer(list, key string, known []string, what string) {
	for _, one := range o.objects(list) {
		if v, _ := one.value.lookup(key); v.kind == kindText && v.text != "" && !slices.Contains(known, v.text) {
			one.warn(key, RuleReference, "%q is no %s of this manifest; declare it%s", v.text, what, near(v.text, known))
		}
	}
}

// inOrder sorts problems by file and position.
func inOrder(problems []Problem) []Problem {
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Field, b.Field))
	})
	return problems
}
