package skills

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"

	"rouse/internal/form"
)

// ReadManifest reads the manifest.json of a directory, and reports all that is wrong with it (OSL-03,
// OSL-04, OSL-05). It is strict: a program gets what its manifest declares, so that one with an error
// is not used, and the manifest is nil exactly if one of the problems is more than a warning. A field
// that nobody knows is a warning.
func ReadManifest(dir string) (*Manifest, []Problem) {
	real, problems := resolveDir(dir)
	if len(problems) > 0 {
		return nil, problems
	}

	root, err := os.OpenRoot(real)
	if err != nil {
		return nil, unreadable(real, err)
	}
	defer root.Close()
	return readManifest(root, real)
}

// readManifest is ReadManifest for a directory that is open.
func readManifest(root *os.Root, dir string) (*Manifest, []Problem) {
	if _, err := root.Lstat(manifestFile); err != nil {
		return nil, []Problem{{File: filepath.Join(dir, manifestFile), Rule: RuleManifestMissing, Message: "is missing; an executable skill declares its kind and its needs in it (rouse new skill writes one)"}}
	}

	source, problems := readFile(root, dir, manifestFile, MaxFile, "")
	if len(problems) > 0 {
		return nil, problems
	}
	return parseManifest(filepath.Join(dir, manifestFile), source)
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
	m := o.manifest()
	o.end()
	o.compare(m)

	if hasError(r.problems) {
		return nil, inOrder(r.problems)
	}
	return m, inOrder(r.problems)
}

// manifest reads each field by itself.
func (o *object) manifest() *Manifest {
	m := &Manifest{
		Name:             o.text("name", `"name": "my-skill", the slug of its folder`),
		Description:      o.text("description", `"description": what it does`),
		Version:          o.text("version", `"version": "1.0.0"`),
		Author:           o.text("author", `"author": who wrote it`),
		SchemaVersion:    o.text("schemaVersion", `"schemaVersion": "2.0"`),
		Capabilities:     o.texts("capabilities", `"capabilities": []`),
		RequiredBindings: each(o, "requiredBindings", `"requiredBindings": []`, (*object).binding),
		Permissions:      each(o, "permissions", `"permissions": []`, (*object).permission),
		InputSchema:      o.rootedSchema("inputSchema"),
		OutputSchema:     o.rootedSchema("outputSchema"),

		CompatibilityRequirements: o.texts("compatibilityRequirements", `"compatibilityRequirements": []`),

		OAuth:              each(o, "oauth", "", (*object).oauth),
		LLMUsage:           each(o, "llmUsage", "", (*object).llmUsage),
		WASM:               each(o, "wasm", "", (*object).wasm),
		Views:              each(o, "views", "", (*object).view),
		Tools:              each(o, "tools", "", (*object).tool),
		LifecycleHooks:     o.hooks("lifecycleHooks"),
		Sandbox:            o.sandbox(),
		RequiredMCPServers: each(o, "requiredMcpServers", "", (*object).mcpServer),
		RequiredMCPTools:   each(o, "requiredMcpTools", "", (*object).mcpTool),

		SupportedPlatforms:     manyOf(o, "supportedPlatforms", `"supportedPlatforms": [], which is all of them`, platforms),
		BridgeRequirement:      oneOf(o, "bridgeRequirement", `"bridgeRequirement": "never", or "optional" or "required" where it runs programs of this machine`, bridges),
		WorkspaceSupport:       oneOf(o, "workspaceSupport", `"workspaceSupport": "none", "optional" or "required"`, supports),
		WorkspaceSchemaVersion: o.nullableText("workspaceSchemaVersion", `"workspaceSchemaVersion": null, or a version like "1.0.0" where it has workspaces`),
		LongRunningSupport:     oneOf(o, "longRunningSupport", `"longRunningSupport": "none", "optional" or "required"`, supports),
		UserInputSupport:       o.flag("userInputSupport", `"userInputSupport": false, or true where it asks people`),

		ArtifactVersioningSupport: o.flag("artifactVersioningSupport", `"artifactVersioningSupport": false, or true where it makes versions of artifacts`),
		ExecutionMode:             oneOf(o, "executionMode", `"executionMode": "declarative", "flow" or "agentic"`, modes),
		AgenticConfig:             o.agenticConfig(),
	}

	if m.Name != "" && !slug.MatchString(m.Name) {
		o.fail("name", RuleSlug, "%q is no slug; write small letters, digits and hyphens, and begin with a letter", m.Name)
	}
	if m.Version != "" && !semver.MatchString(m.Version) {
		o.fail("version", RuleVersion, "%q is no semantic version; write three numbers, like 1.0.0", m.Version)
	}
	if m.SchemaVersion != "" && m.SchemaVersion != SchemaVersion {
		o.fail("schemaVersion", RuleSchemaVersion, "is %q, and %q is what can be read; write it in that version", m.SchemaVersion, SchemaVersion)
	}

	return m
}

// slug is the name of an executable skill (OSL-01).
var slug = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// semver is a semantic version, as semver.org has it.
var semver = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)

// agenticConfig has to be there. null stands for one that is not enabled.
func (o *object) agenticConfig() *AgenticConfig {
	const need = `"agenticConfig": {"enabled": false, "requiresWorkspace": false, "supportsBackgroundExecution": false, "supportsRoleBasedExecution": false, "maxStepsPerRun": null, "defaultStepBudget": null}`
	if v, ok := o.value.lookup("agenticConfig"); ok && v.kind == kindNull {
		o.asked = append(o.asked, "agenticConfig")
		return nil
	}

	c := o.child("agenticConfig", need)
	if c == nil {
		return nil
	}
	defer c.end()

	return &AgenticConfig{
		Enabled:                     c.flag("enabled", "true or false"),
		RequiresWorkspace:           c.flag("requiresWorkspace", "true or false"),
		SupportsBackgroundExecution: c.flag("supportsBackgroundExecution", "true or false"),
		SupportsRoleBasedExecution:  c.flag("supportsRoleBasedExecution", "true or false"),
		MaxStepsPerRun:              c.nullableWhole("maxStepsPerRun", "a number of steps, or null for 1000"),
		DefaultStepBudget:           c.nullableWhole("defaultStepBudget", "a number of steps, or null for none"),
	}
}

func (o *object) binding() Binding {
	return Binding{
		Name:            o.text("name", "the name by which the program asks for it"),
		Scope:           o.text("scope", "what it is for"),
		Description:     o.text("description", "what a person reads who sets it"),
		Required:        o.flag("required", "true or false"),
		OAuthProviderID: o.text("oauthProviderId", ""),
	}
}

func (o *object) permission() Permission {
	return Permission{
		Kind:               oneOf(o, "kind", "the kind of permission, like network", permissionKinds),
		Scope:              o.text("scope", "what it is about"),
		Description:        o.text("description", "why the program needs it"),
		BrowserPermissions: manyOf(o, "browserPermissions", "", browserPermissions),
	}
}

func (o *object) llmUsage() LLMUsage {
	u := LLMUsage{
		PurposeID:       o.text("purposeId", "the id by which the program asks"),
		Kind:            oneOf(o, "kind", "the kind of use, like summarization", llmKinds),
		Description:     o.text("description", "what the model is asked"),
		TemperatureHint: o.number("temperatureHint"),
	}
	u.EstimatedTokenBudget, _ = o.whole("estimatedTokenBudget", "")
	if v, ok := o.get("modelPreference", kindText, ""); ok {
		u.ModelPreference = &v.text
	}
	return u
}

func (o *object) tool() ToolDeclaration {
	t := ToolDeclaration{
		Name:          o.text("name", "the name of the tool"),
		Description:   o.text("description", "what a model reads of it"),
		HandlerExport: o.text("handlerExport", "the function of module.ts that answers"),
	}
	t.InputSchema, _, _ = o.schema("inputSchema", "a JSON Schema, like {}")
	t.OutputSchema, _, _ = o.schema("outputSchema", "a JSON Schema, like {}")
	return t
}

func (o *object) view() ViewDeclaration {
	return ViewDeclaration{
		ViewID:         o.text("viewId", "an id"),
		Kind:           oneOf(o, "kind", "the kind of view, like panel", viewKinds),
		EntryComponent: o.text("entryComponent", "the component that draws it"),
		Description:    o.text("description", "what it shows"),
	}
}

// sandbox reads the bounds of the program, with defaults for what is not said.
func (o *object) sandbox() SandboxRules {
	s := SandboxRules{Isolation: defaultIsolation, MaxExecutionMS: DefaultMaxExecutionMS, MaxMemoryMB: DefaultMaxMemoryMB}
	c := o.child("sandbox", "")
	if c == nil {
		return s
	}
	defer c.end()

	if v := oneOf(c, "isolation", "", isolations); v != "" {
		s.Isolation = v
	}
	if n, ok := c.whole("maxExecutionMs", ""); ok {
		s.MaxExecutionMS = n
	}
	if n, ok := c.whole("maxMemoryMB", ""); ok {
		s.MaxMemoryMB = n
	}
	s.AllowedGlobals = c.texts("allowedGlobals", "")
	s.NetworkRules = each(c, "networkRules", "", func(o *object) NetworkRule {
		return NetworkRule{
			URLPattern:  o.text("urlPattern", "an address, with a * for any characters"),
			Methods:     manyOf(o, "methods", `"methods": ["GET"]`, methods),
			Description: o.text("description", "what is asked there"),
		}
	})

	return s
}

func (o *object) mcpServer() MCPServer {
	return MCPServer{Name: o.text("name", "the name of the server"), Description: o.text("description", "what it is needed for"), URLPattern: o.text("urlPattern", "")}
}

func (o *object) mcpTool() MCPTool {
	return MCPTool{ServerName: o.text("serverName", "the name of the server"), ToolName: o.text("toolName", "the name of the tool"), Description: o.text("description", "what it is needed for")}
}

func (o *object) oauth() OAuth {
	a := OAuth{
		ProviderID:                 o.text("providerId", "an id"),
		DisplayName:                o.text("displayName", "the name of the service for people"),
		GrantType:                  oneOf(o, "grantType", "authorization_code or client_credentials", grantTypes),
		AuthorizationURL:           o.text("authorizationUrl", "an https address"),
		TokenURL:                   o.text("tokenUrl", "an https address"),
		Scopes:                     o.texts("scopes", `"scopes": []`),
		PKCERequired:               o.flag("pkceRequired", "true or false"),
		ClientIDBinding:            o.text("clientIdBinding", "the name of a required binding"),
		ClientSecretBinding:        o.text("clientSecretBinding", ""),
		RedirectPath:               o.text("redirectPath", "a path"),
		RedirectMode:               oneOf(o, "redirectMode", "popup or same-window", redirectModes),
		SupportedEnvironments:      manyOf(o, "supportedEnvironments", `"supportedEnvironments": []`, environments),
		ResponseMode:               oneOf(o, "responseMode", "query or fragment", responseModes),
		ClientAuthenticationMethod: oneOf(o, "clientAuthenticationMethod", "client_secret_post, client_secret_basic or none", authentications),
	}
	return a
}

func (o *object) wasm() WASM {
	w := WASM{
		ModuleID:         o.text("moduleId", "the id by which the program asks for it"),
		SourceKind:       oneOf(o, "sourceKind", "inline_base64, url or build_from_source", wasmSources),
		SourceURL:        o.text("sourceUrl", ""),
		SourceLanguage:   oneOf(o, "sourceLanguage", "rust, c, cpp or assemblyscript", wasmLanguages),
		SourceRepository: o.text("sourceRepository", ""),
		BuildCommand:     o.text("buildCommand", ""),
		Exports:          o.texts("exports", `"exports": []`),
		AuditHash:        o.nullableText("auditHash", "a hash, or null"),
	}
	w.MemoryLimitMB, _ = o.whole("memoryLimitMB", "a number of MiB")
	if w.SourceKind == "url" && w.SourceURL == "" {
		o.fail("sourceUrl", RuleFieldMissing, "is missing, and sourceKind is url; write the address of the module")
	}
	return w
}

// hooks are the names of the lifecycle hooks, which stand there as texts or as objects with a name.
func (o *object) hooks(key string) []string {
	list, ok := o.get(key, kindList, "")
	if !ok {
		return nil
	}

	out := []string{}
	for i, item := range list.items {
		field, name := fmt.Sprintf("%s[%d]", key, i), hookName(item)
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

// checkSchema says why values cannot be checked by a schema. References to other files are not followed.
func checkSchema(raw json.RawMessage) (err error) {
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
