package skills_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rouse/internal/contract"
	"rouse/skills"
)

// goodManifest is a valid manifest. Tests change single fields of it.
const goodManifest = `{
  "name": "sums",
  "description": "Adds columns up.",
  "version": "1.2.0",
  "author": "somebody",
  "schemaVersion": "2.0",
  "capabilities": ["sums"],
  "requiredBindings": [{"name": "bank", "scope": "read", "description": "The token of the bank", "required": true}],
  "permissions": [{"kind": "network", "scope": "bank", "description": "Asks for statements"}],
  "inputSchema": {"type": "object", "properties": {"year": {"type": "integer"}}},
  "outputSchema": {"type": "object"},
  "compatibilityRequirements": ["fetch"],
  "llmUsage": [{"purposeId": "label", "kind": "classification", "description": "Labels rows", "estimatedTokenBudget": 500, "modelPreference": null, "temperatureHint": 0.1}],
  "tools": [{"name": "add", "description": "Adds", "inputSchema": {}, "outputSchema": {}, "handlerExport": "add"}],
  "lifecycleHooks": ["onInstall"],
  "sandbox": {"isolation": "strict", "maxExecutionMs": 1000, "maxMemoryMB": 64, "allowedGlobals": [], "networkRules": [{"urlPattern": "https://bank.example/*", "methods": ["GET"], "description": "Statements"}]},
  "supportedPlatforms": [],
  "bridgeRequirement": "never",
  "workspaceSupport": "none",
  "workspaceSchemaVersion": null,
  "longRunningSupport": "none",
  "userInputSupport": false,
  "artifactVersioningSupport": false,
  "executionMode": "declarative",
  "agenticConfig": {"enabled": false, "requiresWorkspace": false, "supportsBackgroundExecution": false, "supportsRoleBasedExecution": false, "maxStepsPerRun": null, "defaultStepBudget": null}
}
`

const goodModule = "export async function execute(args, host) {\n  return {};\n}\n"

// with returns goodManifest with changed fields. Keys are field names, values are JSON; "" removes
// the field. The order of the other fields stays, so that lines of problems are predictable.
func with(t testing.TB, changes map[string]string) string {
	t.Helper()
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(goodManifest), &fields); err != nil {
		t.Fatal(err)
	}

	for key, text := range changes {
		if text == "" {
			delete(fields, key)
		} else {
			fields[key] = json.RawMessage(text)
		}
	}
	text, err := json.MarshalIndent(fields, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// manifestField returns the JSON of a field of the good manifest.
func manifestField(t testing.TB, name string) json.RawMessage {
	t.Helper()
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(goodManifest), &fields); err != nil {
		t.Fatal(err)
	}
	return fields[name]
}

// rules formats problems as "field rule", sorted, with a ? after warnings.
func rules(problems []skills.Problem) string {
	var out []string
	for _, p := range problems {
		mark := ""
		if p.Warning {
			mark = "?"
		}
		out = append(out, strings.TrimSpace(p.Field+" "+string(p.Rule)+mark))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

const agentic = `{"enabled": true, "requiresWorkspace": true, "supportsBackgroundExecution": false, "supportsRoleBasedExecution": true, "maxStepsPerRun": 50, "defaultStepBudget": 20}`

// TestManifestRules violates each manifest rule with one fixture (OSL-03, OSL-04, OSL-05).
func TestManifestRules(t *testing.T) {
	oauth := `[{"providerId": "p", "displayName": "P", "grantType": "authorization_code", "authorizationUrl": "https://p.example/a", "tokenUrl": "https://p.example/t", "scopes": [], "pkceRequired": true, "clientIdBinding": "bank", "redirectPath": "/", "redirectMode": "popup", "supportedEnvironments": [], "responseMode": "query", "clientAuthenticationMethod": "none"}]`
	wasm := `[{"moduleId": "m", "sourceKind": "url", "sourceUrl": "https://m.example", "sourceLanguage": "rust", "exports": [], "memoryLimitMB": 64, "auditHash": null}]`
	for name, c := range map[string]struct {
		change map[string]string
		want   string
	}{
		"good":            {nil, ""},
		"all optional":    {map[string]string{"oauth": oauth, "wasm": wasm, "views": `[{"viewId": "v", "kind": "card", "entryComponent": "V", "description": "x"}]`, "requiredMcpServers": `[{"name": "s", "description": "x"}]`, "requiredMcpTools": `[{"serverName": "s", "toolName": "t", "description": "x"}]`}, ""},
		"optional: null":  {map[string]string{"oauth": "null", "wasm": "null", "llmUsage": "null", "tools": "null", "sandbox": "null", "lifecycleHooks": "null"}, ""},
		"hooks: objects":  {map[string]string{"lifecycleHooks": `[{"name": "onUpgrade"}]`}, ""},
		"pre-release":     {map[string]string{"version": `"1.0.0-rc.1+build"`}, ""},
		"a null setting":  {map[string]string{"agenticConfig": "null"}, ""},
		"flow that asks":  {map[string]string{"executionMode": `"flow"`, "userInputSupport": "true", "longRunningSupport": `"optional"`}, ""},
		"agentic":         {map[string]string{"executionMode": `"agentic"`, "agenticConfig": agentic, "workspaceSupport": `"required"`, "workspaceSchemaVersion": `"1.0.0"`, "longRunningSupport": `"required"`}, ""},
		"no slug":         {map[string]string{"name": `"Sums"`}, "name slug"},
		"an empty name":   {map[string]string{"name": `" "`}, "name field-missing, name slug"},
		"no semver":       {map[string]string{"version": `"1.2"`}, "version semver"},
		"another version": {map[string]string{"schemaVersion": `"1.0"`}, "schemaVersion schema-version"},

		"no root object":      {map[string]string{"inputSchema": `{"type": "array"}`}, "inputSchema schema-root"},
		"no root at all":      {map[string]string{"outputSchema": `{}`}, "outputSchema schema-root"},
		"no schema":           {map[string]string{"inputSchema": `{"type": "object", "properties": []}`}, "inputSchema schema"},
		"a schema elsewhere":  {map[string]string{"inputSchema": `{"type": "object", "$ref": "https://x.example/s"}`}, "inputSchema schema"},
		"a schema in itself":  {map[string]string{"outputSchema": `{"type": "object", "$ref": "#"}`}, "outputSchema schema"},
		"a schema of a tool":  {map[string]string{"tools": `[{"name": "a", "description": "x", "inputSchema": {"type": 1}, "outputSchema": {}, "handlerExport": "a"}]`}, "tools[0].inputSchema schema"},
		"a tool without code": {map[string]string{"tools": `[{"name": "a", "description": "x", "inputSchema": {}, "outputSchema": {}}]`}, "tools[0].handlerExport field-missing"},

		"a platform":     {map[string]string{"supportedPlatforms": `["linux", "beos"]`}, "supportedPlatforms[1] field-value"},
		"a bridge":       {map[string]string{"bridgeRequirement": `"maybe"`}, "bridgeRequirement field-value"},
		"a workspace":    {map[string]string{"workspaceSupport": `"always"`}, "workspaceSupport field-value"},
		"long runs":      {map[string]string{"longRunningSupport": `"always"`}, "longRunningSupport field-value"},
		"a mode":         {map[string]string{"executionMode": `"agent"`}, "executionMode field-value"},
		"a permission":   {map[string]string{"permissions": `[{"kind": "netwrk", "scope": "x", "description": "x"}]`}, "permissions[0].kind field-value"},
		"a purpose":      {map[string]string{"llmUsage": `[{"purposeId": "x", "kind": "thinking", "description": "x"}]`}, "llmUsage[0].kind field-value"},
		"a method":       {map[string]string{"sandbox": `{"networkRules": [{"urlPattern": "*", "methods": ["get"], "description": "x"}]}`}, "sandbox.networkRules[0].methods[0] field-value"},
		"isolation":      {map[string]string{"sandbox": `{"isolation": "none"}`}, "sandbox.isolation field-value"},
		"no time at all": {map[string]string{"sandbox": `{"maxExecutionMs": 0, "maxMemoryMB": -1}`}, "sandbox.maxExecutionMs field-value, sandbox.maxMemoryMB field-value"},
		"half a step":    {map[string]string{"agenticConfig": strings.Replace(agentic, "50", "1.5", 1)}, "agenticConfig agentic-config, agenticConfig.maxStepsPerRun field-value"},
		"a grant":        {map[string]string{"oauth": strings.Replace(oauth, "authorization_code", "implicit", 1)}, "oauth[0].grantType field-value"},
		"a redirection":  {map[string]string{"oauth": strings.Replace(oauth, "popup", "tab", 1)}, "oauth[0].redirectMode field-value"},
		"a response":     {map[string]string{"oauth": strings.Replace(oauth, `"query"`, `"body"`, 1)}, "oauth[0].responseMode field-value"},
		"a sign-in":      {map[string]string{"oauth": strings.Replace(oauth, `"none"`, `"magic"`, 1)}, "oauth[0].clientAuthenticationMethod field-value"},
		"an environment": {map[string]string{"oauth": strings.Replace(oauth, `"supportedEnvironments": []`, `"supportedEnvironments": ["desktop"]`, 1)}, "oauth[0].supportedEnvironments[0] field-value"},
		"a clipboard":    {map[string]string{"permissions": `[{"kind": "browser", "scope": "x", "description": "x", "browserPermissions": ["clipboard-read", "clipboard"]}]`}, "permissions[0].browserPermissions[1] field-value"},
		"a view":         {map[string]string{"views": `[{"viewId": "v", "kind": "tab", "entryComponent": "V", "description": "x"}]`}, "views[0].kind field-value"},
		"a language":     {map[string]string{"wasm": strings.Replace(wasm, "rust", "cobol", 1)}, "wasm[0].sourceLanguage field-value"},
		"a source":       {map[string]string{"wasm": strings.Replace(wasm, `"url"`, `"file"`, 1)}, "wasm[0].sourceKind field-value"},
		"no source":      {map[string]string{"wasm": strings.Replace(wasm, `"sourceUrl": "https://m.example", `, "", 1)}, "wasm[0].sourceUrl field-missing"},
		"no audit":       {map[string]string{"wasm": strings.Replace(wasm, `, "auditHash": null`, "", 1)}, "wasm[0].auditHash field-missing"},
		"a purpose twice": {map[string]string{"llmUsage": `[{"purposeId": "x", "kind": "custom", "description": "x"}, {"purposeId": "x", "kind": "custom", "description": "y"}]`},
			"llmUsage[1].purposeId name-twice"},

		"declarative that is agentic": {map[string]string{"agenticConfig": strings.Replace(agentic, `"requiresWorkspace": true`, `"requiresWorkspace": false`, 1)}, "agenticConfig agentic-config"},
		"flow that is agentic":        {map[string]string{"executionMode": `"flow"`, "agenticConfig": agentic}, "agenticConfig agentic-config"},
		"agentic without settings":    {map[string]string{"executionMode": `"agentic"`, "agenticConfig": "null"}, "agenticConfig agentic-config"},
		"agentic, not enabled":        {map[string]string{"executionMode": `"agentic"`, "longRunningSupport": `"optional"`, "workspaceSupport": `"optional"`, "workspaceSchemaVersion": `"1.0.0"`}, "agenticConfig agentic-config"},
		"a workspace that it lacks": {map[string]string{"executionMode": `"agentic"`, "agenticConfig": agentic, "workspaceSupport": `"optional"`, "workspaceSchemaVersion": `"1.0.0"`, "longRunningSupport": `"optional"`},
			"workspaceSupport workspace-required"},

		"unknown field":          {map[string]string{"licence": `"MIT"`}, "licence field-unknown?"},
		"unknown field within":   {map[string]string{"sandbox": `{"maxMemory": 1}`}, "sandbox.maxMemory field-unknown?"},
		"unknown feature":        {map[string]string{"compatibilityRequirements": `["fetch", "teleport"]`}, "compatibilityRequirements[1] compatibility-unknown?"},
		"a feature not here":     {map[string]string{"compatibilityRequirements": `["indexeddb", "fetch"]`}, "compatibilityRequirements[0] compatibility-missing?"},
		"unknown hook":           {map[string]string{"lifecycleHooks": `["onFire"]`}, "lifecycleHooks[0] field-value?"},
		"bridge without tools":   {map[string]string{"bridgeRequirement": `"required"`, "supportedPlatforms": `["linux"]`}, "compatibilityRequirements bridge-system-tools?"},
		"bridge for nobody":      {map[string]string{"bridgeRequirement": `"required"`, "compatibilityRequirements": `["system_tools"]`}, "supportedPlatforms bridge-platforms?"},
		"workspace, no version":  {map[string]string{"workspaceSupport": `"optional"`}, "workspaceSchemaVersion workspace-version?"},
		"workspace, odd version": {map[string]string{"workspaceSupport": `"optional"`, "workspaceSchemaVersion": `"two"`}, "workspaceSchemaVersion workspace-version?"},
		"no limits": {map[string]string{"executionMode": `"agentic"`, "agenticConfig": strings.NewReplacer("50", "null", "20", "null").Replace(agentic), "workspaceSupport": `"required"`, "workspaceSchemaVersion": `"1.0.0"`, "longRunningSupport": `"optional"`},
			"agenticConfig.defaultStepBudget step-limit?, agenticConfig.maxStepsPerRun step-limit?"},
		"a soft limit behind the hard one": {map[string]string{"executionMode": `"agentic"`, "agenticConfig": strings.Replace(agentic, "20", "60", 1), "workspaceSupport": `"required"`, "workspaceSchemaVersion": `"1.0.0"`, "longRunningSupport": `"optional"`},
			"agenticConfig.defaultStepBudget step-limit?"},
		"agentic that keeps nothing": {map[string]string{"executionMode": `"agentic"`, "agenticConfig": strings.Replace(agentic, `"requiresWorkspace": true`, `"requiresWorkspace": false`, 1)},
			"longRunningSupport agentic-support?, workspaceSupport agentic-support?"},
		"declarative that asks": {map[string]string{"userInputSupport": "true"}, "userInputSupport declarative?"},
		"declarative and long":  {map[string]string{"longRunningSupport": `"optional"`}, "longRunningSupport declarative?"},
		"long without workspace": {map[string]string{"executionMode": `"flow"`, "longRunningSupport": `"required"`},
			"workspaceSupport long-running-workspace?"},
		"a binding that is not there":  {map[string]string{"oauth": strings.Replace(oauth, `"bank"`, `"bnak"`, 1)}, "oauth[0].clientIdBinding reference?"},
		"a provider that is not there": {map[string]string{"requiredBindings": `[{"name": "x", "scope": "x", "description": "x", "required": false, "oauthProviderId": "q"}]`}, "requiredBindings[0].oauthProviderId reference?"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tree(t, map[string]string{"sums/manifest.json": with(t, c.change), "sums/module.ts": goodModule})
			m, problems := skills.ReadManifest(filepath.Join(dir, "sums"))
			if got := rules(problems); got != c.want {
				t.Errorf("%s, want %s\n%v", got, c.want, problems)
			}
			refused := c.want != "" && slices.ContainsFunc(strings.Split(c.want, ", "), func(rule string) bool { return !strings.HasSuffix(rule, "?") })
			if (m == nil) != refused {
				t.Errorf("manifest %v, with %v", m, problems)
			}
			for _, p := range problems {
				if p.Line < 1 || p.Column < 1 || p.Message == "" || filepath.Base(p.File) != "manifest.json" {
					t.Errorf("%+v does not say where or what", p)
				}
			}
		})
	}
}

// A missing required field is reported by name, with a description of a valid value. All required
// fields must be in the manifest, even those that a README calls optional (OSL-03, C-12).
func TestManifestFieldsMissing(t *testing.T) {
	row, decides := contract.Of(t, "OSL-03"), contract.Of(t, "C-12")
	missing := decides.Quote("field-missing")
	for field, text := range map[string]string{"schemaVersion": row.Quote("2.0"), "inputSchema": row.Quote("object")} {
		if !strings.Contains(with(t, nil), text) {
			t.Errorf("the valid manifest has no %s", text)
		}
		broken := with(t, map[string]string{field: strings.Replace(string(manifestField(t, field)), text, "array", 1)})
		dir := tree(t, map[string]string{"sums/manifest.json": broken, "sums/module.ts": goodModule})
		if _, problems := skills.ReadManifest(filepath.Join(dir, "sums")); len(problems) != 1 || problems[0].Field != field {
			t.Errorf("%s without %s: %v", field, text, problems)
		}
	}

	for _, field := range append(row.Between("all of ", ". The schema"), decides.Between("manifest without ", " is refused")...) {
		dir := tree(t, map[string]string{"sums/manifest.json": with(t, map[string]string{field: ""}), "sums/module.ts": goodModule})
		m, problems := skills.ReadManifest(filepath.Join(dir, "sums"))
		if m != nil || rules(problems) != field+" "+missing || !strings.Contains(problems[0].Message, "write") {
			t.Errorf("%s: %v", field, problems)
		}
	}
}

// If every field is wrong, every field is reported (OSL-05).
func TestEveryFieldWrong(t *testing.T) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(goodManifest), &fields); err != nil {
		t.Fatal(err)
	}
	for _, more := range []string{"oauth", "wasm", "views", "requiredMcpServers", "requiredMcpTools"} {
		fields[more] = nil
	}

	for _, value := range []string{"7", `{"a": []}`, `[[7], 7, {"kind": 7}]`} {
		wrong := map[string]string{}
		for key := range fields {
			wrong[key] = value
		}

		dir := tree(t, map[string]string{"sums/manifest.json": with(t, wrong), "sums/module.ts": goodModule})
		m, problems := skills.ReadManifest(filepath.Join(dir, "sums"))
		if m != nil {
			t.Fatalf("%s: it was taken: %+v", value, m)
		}

		last := 0
		for key := range fields {
			accepted := value[0] == '{' && key == "sandbox" // an object with an unknown field
			if !accepted && !slices.ContainsFunc(problems, func(p skills.Problem) bool {
				return !p.Warning && (p.Field == key || strings.HasPrefix(p.Field, key+"[") || strings.HasPrefix(p.Field, key+"."))
			}) {
				t.Errorf("%s: nothing is said of %s: %v", value, key, problems)
			}
		}
		for _, p := range problems {
			if p.Line < last {
				t.Errorf("%s: not in the order of the file: %v", value, problems)
			}
			last = p.Line
		}
	}
}

// Invalid or ambiguous JSON is reported with its position (OSL-05).
func TestManifestJSON(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "1:json",
		"{":                                "1:json",
		"[]":                               "1:field-type",
		"{\n  \"name\": \"a\",\n}":         "3:json",
		"{\n  // what\n  \"name\": \"a\"}": "2:json",
		"{}{}":                             "1:json",
		"\ufeff{}":                         "1:encoding",
		"{\"name\": \"\xff\"}":             "1:encoding",
		strings.Repeat(`{"a":`, 70):        "1:json",
		strings.Repeat("[", 20_000):        "1:json",
		`{"a":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + "}": "1:json",
	} {
		dir := tree(t, map[string]string{"sums/manifest.json": text})
		if m, problems := skills.ReadManifest(filepath.Join(dir, "sums")); m != nil || describe(problems) != want {
			t.Errorf("%.40q: %s, want %s", text, describe(problems), want)
		}
	}

	twice := strings.Replace(goodManifest, `"author"`, `"permissions": [], "author"`, 1)
	dir := tree(t, map[string]string{"sums/manifest.json": twice})
	if m, problems := skills.ReadManifest(filepath.Join(dir, "sums")); m != nil || rules(problems) != "permissions field-twice" || problems[0].Line != 9 {
		t.Errorf("a key twice: %v", problems)
	}
}

// A huge hostile manifest is read quickly, and the number of problems is limited.
func TestFilledManifest(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"permissions": [`)
	for b.Len() < 900_000 {
		b.WriteString(`7,`)
	}
	fmt.Fprint(&b, "7]")
	for i := range 10_000 {
		fmt.Fprintf(&b, `,"%d":1`, i)
	}
	b.WriteString("}")

	m, problems := skills.ReadManifest(filepath.Join(tree(t, map[string]string{"sums/manifest.json": b.String()}), "sums"))
	if m != nil || len(problems) != 501 || !slices.ContainsFunc(problems, func(p skills.Problem) bool { return p.Rule == skills.RuleLimit && !p.Warning }) {
		t.Errorf("%d problems", len(problems))
	}
}

// Manifest values are read from the file; missing values have defaults (OSL-03, OSL-10).
func TestManifestValues(t *testing.T) {
	read := func(changes map[string]string) *skills.Manifest {
		t.Helper()
		m, problems := skills.ReadManifest(filepath.Join(tree(t, map[string]string{"sums/manifest.json": with(t, changes)}), "sums"))
		if m == nil {
			t.Fatal(problems)
		}
		return m
	}

	m := read(nil)
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := errors.Join(json.Unmarshal(text, &got), json.Unmarshal([]byte(goodManifest), &want)); err != nil {
		t.Fatal(err)
	}
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Errorf("%s\nwant\n%s", g, w)
	}

	row := contract.Of(t, "OSL-10")
	sandbox := fmt.Sprintf(`{%q: %q, %q: 7, %q: 9, %q: ["fetch"]}`, row.Quote("isolation"), row.Quote("strict"), row.Quote("maxExecutionMs"), row.Quote("maxMemoryMB"), row.Quote("allowedGlobals"))
	if s := read(map[string]string{"sandbox": sandbox}).Sandbox; s.Isolation != "strict" || s.MaxExecutionMS != 7 || s.MaxMemoryMB != 9 || !slices.Equal(s.AllowedGlobals, []string{"fetch"}) {
		t.Errorf("%+v", s)
	}

	m = read(map[string]string{"sandbox": "", "workspaceSupport": `"optional"`, "workspaceSchemaVersion": `"2.0.0"`})
	if s := m.Sandbox; s.Isolation != row.Quote("standard") || s.MaxExecutionMS != row.Number("30000") || s.MaxMemoryMB != row.Number("128") || len(s.NetworkRules) > 0 {
		t.Errorf("%+v", s)
	}
	if v := m.WorkspaceSchemaVersion; v == nil || *v != "2.0.0" {
		t.Errorf("%v", v)
	}
}

// Supports, Lacks and Obstacles describe supported systems and missing features (OSL-04, OSL-21,
// OSL-33, OSL-37).
func TestObstacles(t *testing.T) {
	row := contract.Of(t, "OSL-21")
	for i, goos := range []string{"darwin", "windows", "linux"} {
		platform := []string{row.Quote("macos"), row.Quote("windows"), row.Quote("linux")}[i]
		for j, other := range []string{"darwin", "windows", "linux"} {
			dir := tree(t, map[string]string{"sums/manifest.json": with(t, map[string]string{"supportedPlatforms": `["` + platform + `"]`, "compatibilityRequirements": `["` + row.Quote("indexeddb") + `"]`})})
			m, problems := skills.ReadManifest(filepath.Join(dir, "sums"))
			if m == nil {
				t.Fatal(problems)
			}
			if refused := len(m.Refusals(other)) > 0; refused != (i != j) || m.Supports(other) == refused || len(m.Obstacles(other)) == 0 {
				t.Errorf("for %s, on %s: %q, %q", platform, goos, m.Refusals(other), m.Obstacles(other))
			}
		}
	}

	for _, c := range []struct {
		platforms, needs, goos string
		supports               bool
		says                   []string
	}{
		{"[]", "[]", "linux", true, nil},
		{"[]", "[]", "plan9", true, nil},
		{`["macos"]`, "[]", "darwin", true, nil},
		{`["macos", "windows"]`, "[]", "linux", false, []string{"it is for macos, windows, and this is linux"}},
		{`["linux"]`, "[]", "darwin", false, []string{"it is for linux, and this is macos"}},
		{`["windows"]`, "[]", "freebsd", false, []string{"it is for windows, and this is freebsd"}},
		{"[]", `["fetch", "system_tools", "filesystem"]`, "linux", true, nil},
		{"[]", `["indexeddb", "teleport"]`, "linux", true, []string{"it needs indexeddb (a database of its own, as a browser has it), which is not there", "it needs teleport (nobody here knows what that is), which is not there"}},
	} {
		dir := tree(t, map[string]string{"sums/manifest.json": with(t, map[string]string{"supportedPlatforms": c.platforms, "compatibilityRequirements": c.needs})})
		m, problems := skills.ReadManifest(filepath.Join(dir, "sums"))
		if m == nil {
			t.Fatal(problems)
		}
		if got := m.Supports(c.goos); got != c.supports {
			t.Errorf("%+v: %t", c, got)
		}
		if got := m.Obstacles(c.goos); !slices.Equal(got, c.says) {
			t.Errorf("%+v: %q", c, got)
		}
	}

	signIn := map[string]string{
		"requiredBindings":   `[{"name": "a", "scope": "x", "description": "x", "required": true, "oauthProviderId": "bank"}, {"name": "b", "scope": "x", "description": "x", "required": false, "oauthProviderId": "bank"}]`,
		"requiredMcpServers": `[{"name": "files", "description": "x"}]`,
		"supportedPlatforms": `["macos"]`, "compatibilityRequirements": `["indexeddb"]`,
	}
	m, problems := skills.ReadManifest(filepath.Join(tree(t, map[string]string{"sums/manifest.json": with(t, signIn)}), "sums"))
	if m == nil {
		t.Fatal(problems)
	}
	want := []string{"it is for macos, and this is linux"}
	if got := m.Refusals("linux"); !slices.Equal(got, want) || len(m.Obstacles("linux")) != 2 {
		t.Errorf("%q, %q", got, m.Obstacles("linux"))
	}

	long := contract.Of(t, "OSL-37")
	var named []string
	for _, c := range []struct {
		names []string
		here  bool
	}{{long.Between("Here:", ";"), true}, {long.Between("Not here:", ";"), false}} {
		for _, name := range c.names {
			named = append(named, name)
			if i := slices.IndexFunc(skills.Features(), func(f skills.Feature) bool { return f.Name == name }); i < 0 || skills.Features()[i].Here != c.here {
				t.Errorf("%s is here: %v", name, !c.here)
			}
		}
	}
	if n := len(skills.Features()); n != len(named) || n != 12 {
		t.Errorf("%d features are known, and the format has 7 of a host and 5 of a browser", n)
	}

	support, required := long.Quote("longRunningSupport"), long.Quote("required")
	for name, c := range map[string]struct {
		mode, workspace, says string
		needs                 bool
	}{
		"agentic":              {"agentic", "required", "", true},
		"flow":                 {"flow", "optional", "", true},
		"without a workspace":  {"flow", "none", "keeps no workspace", true},
		"without a checkpoint": {"declarative", "optional", "makes no checkpoints", true},
	} {
		settings := agentic
		if c.mode != "agentic" {
			settings = "null"
		}
		dir := tree(t, map[string]string{"sums/manifest.json": with(t, map[string]string{support: `"` + required + `"`, "executionMode": `"` + c.mode + `"`, "agenticConfig": settings, "workspaceSupport": `"` + c.workspace + `"`, "workspaceSchemaVersion": `"1.0.0"`})})
		m, problems := skills.ReadManifest(filepath.Join(dir, "sums"))
		if m == nil {
			t.Fatal(problems)
		}
		if got := strings.Join(m.Obstacles("linux"), "; "); (c.says == "") != (got == "") || !strings.Contains(got, c.says) || m.NeedsWorkspace() != c.needs {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// Compare returns exactly the added and removed terms.
func TestCompare(t *testing.T) {
	read := func(changes map[string]string) *skills.Manifest {
		t.Helper()
		m, problems := skills.ReadManifest(filepath.Join(tree(t, map[string]string{"sums/manifest.json": with(t, changes)}), "sums"))
		if m == nil {
			t.Fatal(problems)
		}
		return m
	}
	say := func(changes []skills.Change) string {
		var out []string
		for _, c := range changes {
			out = append(out, map[bool]string{true: "+", false: "-"}[c.Added]+c.What)
		}
		return strings.Join(out, " ")
	}

	old := read(nil)
	for want, now := range map[string]*skills.Manifest{
		"":                    read(map[string]string{"description": `"Other words."`}),
		"-version +version":   read(map[string]string{"version": `"1.3.0"`}),
		"+permission":         read(map[string]string{"permissions": `[{"kind": "network", "scope": "bank", "description": "Asks for statements"}, {"kind": "vault", "scope": "x", "description": "x"}]`}),
		"-network +network":   read(map[string]string{"sandbox": `{"isolation": "strict", "maxExecutionMs": 1000, "maxMemoryMB": 64, "networkRules": [{"urlPattern": "*", "methods": ["GET"], "description": "Statements"}]}`}),
		"-secret":             read(map[string]string{"requiredBindings": "[]"}),
		"-asks a model -tool": read(map[string]string{"llmUsage": "[]", "tools": "[]"}),
		"-bounds +bounds":     read(map[string]string{"sandbox": `{"isolation": "strict", "maxExecutionMs": 1000, "maxMemoryMB": 65, "networkRules": [{"urlPattern": "https://bank.example/*", "methods": ["GET"], "description": "Statements"}]}`}),
		"+asks people":        read(map[string]string{"userInputSupport": "true"}),
	} {
		if got := say(skills.Compare(old, now)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}

	if all := skills.Compare(nil, old); len(all) != len(old.Terms()) || skills.Compare(nil, nil) != nil {
		t.Errorf("of none: %v", all)
	}
}

// FuzzManifest checks that ReadManifest accepts any input and reports problems with valid
// positions. An accepted manifest has all required values.
func FuzzManifest(f *testing.F) {
	for _, seed := range []string{"", "{}", "[]", "null", `{"name": {}}`, goodManifest, strings.Replace(goodManifest, `"declarative"`, `"agentic"`, 1), `{"permissions": [{"kind": []}], "permissions": 1}`, `{"inputSchema": {"$ref": "#"}}`, `{"inputSchema": {"type": "object", "pattern": "("}}`, "{\"a\": \"\\ud800\"}"} {
		f.Add(seed)
	}

	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(filepath.Join(dir, "manifest.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}

		m, problems := skills.ReadManifest(dir)
		for _, p := range problems {
			if p.Rule == "" || p.Message == "" || p.File == "" || p.Line > strings.Count(text, "\n")+1 || p.Line < 1 {
				t.Errorf("%+v", p)
			}
		}
		if refused := slices.ContainsFunc(problems, func(p skills.Problem) bool { return !p.Warning }); (m == nil) != refused {
			t.Errorf("%+v, %v", m, problems)
		}
		if m == nil {
			return
		}
		if m.Name == "" || m.Version == "" || m.ExecutionMode == "" || len(m.InputSchema) == 0 || m.Sandbox.MaxMemoryMB < 1 || m.Sandbox.MaxExecutionMS < 1 || len(m.Terms()) == 0 {
			t.Errorf("%+v", m)
		}
	})
}

// TestManifestEnums checks that fields with a fixed set of values accept only those (OSL-04).
func TestManifestEnums(t *testing.T) {
	row := contract.Of(t, "OSL-04")
	wrong := func(field, value string) string {
		if field == "supportedPlatforms" {
			value = "[" + value + "]"
		}
		dir := tree(t, map[string]string{"sums/manifest.json": with(t, map[string]string{field: value}), "sums/module.ts": goodModule})
		_, problems := skills.ReadManifest(filepath.Join(dir, "sums"))
		return rules(problems)
	}
	unknown := row.Quote("field-value")
	for _, c := range []struct{ fields, values []string }{
		{row.Between("The values of ", " are `macos`"), row.Between("`supportedPlatforms` are ", "; of")},
		{[]string{row.Quote("bridgeRequirement")}, row.Between("`bridgeRequirement` ", "; of")},
		{[]string{row.Quote("workspaceSupport"), row.Quote("longRunningSupport")}, row.Between("`longRunningSupport` ", "; of")},
		{[]string{row.Quote("executionMode")}, row.Between("`executionMode` ", ". Another")},
	} {
		for _, field := range c.fields {
			for _, value := range c.values {
				if got := wrong(field, fmt.Sprintf("%q", value)); strings.Contains(got, field+" "+unknown) || strings.Contains(got, field+"[0] "+unknown) {
					t.Errorf("%s: %s gives %s", field, value, got)
				}
			}
			if got := wrong(field, `"other"`); !strings.Contains(got, field+" "+unknown) && !strings.Contains(got, field+"[0] "+unknown) {
				t.Errorf("%s: another value gives %s", field, got)
			}
		}
	}
	if got := wrong("compatibilityRequirements", `["teleport"]`); got != "compatibilityRequirements[0] "+row.Quote("compatibility-unknown")+"?" {
		t.Errorf("%s", got)
	}
}

// TestValidator checks the consistency rules of Validate (OSL-05).
func TestValidator(t *testing.T) {
	row := contract.Of(t, "OSL-05")
	agenticWith := func(more map[string]string) string {
		all := map[string]string{"executionMode": `"agentic"`, "agenticConfig": agentic, "workspaceSupport": `"required"`, "workspaceSchemaVersion": `"1.0.0"`, "longRunningSupport": `"optional"`}
		for k, v := range more {
			all[k] = v
		}
		return with(t, all)
	}
	for rule, files := range map[string]map[string]string{
		row.Quote("agentic-config"):              {"manifest.json": with(t, map[string]string{"executionMode": `"flow"`, "agenticConfig": agentic})},
		row.Quote("workspace-required"):          {"manifest.json": agenticWith(map[string]string{"workspaceSupport": `"optional"`})},
		row.Quote("compatibility-unknown") + "?": {"manifest.json": with(t, map[string]string{"compatibilityRequirements": `["teleport"]`})},
		row.Quote("workspace-version") + "?":     {"manifest.json": with(t, map[string]string{"workspaceSupport": `"optional"`})},
		row.Quote("step-limit") + "?":            {"manifest.json": agenticWith(map[string]string{"agenticConfig": strings.NewReplacer("50", "null", "20", "null").Replace(agentic)})},
		row.Quote("execute-missing") + "?":       {"module.ts": "function execute() {}\n"},
		row.Quote("placeholder") + "?":           {"manifest.json": with(t, map[string]string{"requiredBindings": "[]"}), "docs.md": "__OSL_SECRET[bank]__\n"},
	} {
		problems := skills.Validate(program(t, files))
		if got := places(problems); !strings.HasSuffix(got, ":"+rule) {
			t.Errorf("%s: %s", rule, got)
		}
	}
	for _, prefix := range row.Between("begins with ", ", `secret`") {
		if got := places(skills.Validate(program(t, map[string]string{"docs.md": prefix + strings.Repeat("Zz0", 12)[:36] + "\n"}))); got != "docs.md:1:"+row.Quote("secret") && prefix != "AKIA" {
			t.Errorf("%s: %s", prefix, got)
		} else if prefix == "AKIA" {
			if got := places(skills.Validate(program(t, map[string]string{"docs.md": prefix + strings.Repeat("Q", 16) + "\n"}))); got != "docs.md:1:secret" {
				t.Errorf("%s: %s", prefix, got)
			}
		}
	}
	if got := rules(skills.CheckExports(program(t, nil), []string{"execute", "onInstall"})); got != "tools[0].handlerExport "+row.Quote("export-missing") {
		t.Errorf("%s", got)
	}
}
