package skills

import "encoding/json"

// The files of a program (OSL-01). The first two have to be there.
const (
	manifestFile = "manifest.json"
	moduleFile   = "module.ts"
	docsFile     = "docs.md"
	configFile   = "config-schema.json"
)

// SchemaVersion is the version of manifests that is understood (OSL-03).
const SchemaVersion = "2.0"

// Manifest is the manifest.json of an executable skill: its description, its input and output, and all
// that it asks its host for (OSL-03). A program gets only what it declares.
// The tags write, of and root are read by decode.
type Manifest struct {
	Name        string `json:"name" write:"the slug of its folder, like my-skill"` // its slug
	Description string `json:"description" write:"what it does"`
	Version     string `json:"version" write:"a version, like 1.0.0"` // semver
	Author      string `json:"author" write:"who wrote it"`

	SchemaVersion    string          `json:"schemaVersion" write:"2.0"`
	Capabilities     []string        `json:"capabilities" write:"a list, like []"`
	RequiredBindings []Binding       `json:"requiredBindings" write:"a list, like []"`
	Permissions      []Permission    `json:"permissions" write:"a list, like []"`
	InputSchema      json.RawMessage `json:"inputSchema" root:"object" write:"a JSON Schema with type: object"`  // JSON Schema of an object
	OutputSchema     json.RawMessage `json:"outputSchema" root:"object" write:"a JSON Schema with type: object"` // JSON Schema of an object
	// CompatibilityRequirements are names of features: see Features. Unknown ones are kept.
	CompatibilityRequirements []string `json:"compatibilityRequirements" write:"a list, like []"`

	OAuth              []OAuth           `json:"oauth,omitempty"`
	LLMUsage           []LLMUsage        `json:"llmUsage,omitempty"`
	WASM               []WASM            `json:"wasm,omitempty"`
	Views              []ViewDeclaration `json:"views,omitempty"`
	Tools              []ToolDeclaration `json:"tools,omitempty"`
	LifecycleHooks     []string          `json:"lifecycleHooks,omitempty"` // names of exports, like "onInstall"
	Sandbox            SandboxRules      `json:"sandbox"`
	RequiredMCPServers []MCPServer       `json:"requiredMcpServers,omitempty"`
	RequiredMCPTools   []MCPTool         `json:"requiredMcpTools,omitempty"`

	SupportedPlatforms []Platform `json:"supportedPlatforms" of:"macos windows linux" write:"a list; [] is all of them"` // none: all
	BridgeRequirement  Bridge     `json:"bridgeRequirement" of:"never optional required" write:""`
	WorkspaceSupport   Support    `json:"workspaceSupport" of:"none optional required" write:""`
	// WorkspaceSchemaVersion is that of its workspaces' state; nil where it has none.
	WorkspaceSchemaVersion    *string        `json:"workspaceSchemaVersion" jsonschema:"nullable" write:"null, or a version like 1.0.0"`
	LongRunningSupport        Support        `json:"longRunningSupport" of:"none optional required" write:""`
	UserInputSupport          bool           `json:"userInputSupport" write:"false, or true if it asks people"`
	ArtifactVersioningSupport bool           `json:"artifactVersioningSupport" write:"false, or true if it makes versions of artifacts"`
	ExecutionMode             Mode           `json:"executionMode" of:"declarative flow agentic" write:""`
	AgenticConfig             *AgenticConfig `json:"agenticConfig" jsonschema:"nullable" write:"null, or an object"` // nil: not enabled
}

// Mode is how a program runs (OSL-12).
type Mode string

// The modes.
const (
	ModeDeclarative Mode = "declarative" // one call, without host.run
	ModeFlow        Mode = "flow"        // steps that may pause, ask and make checkpoints
	ModeAgentic     Mode = "agentic"     // phases and roles within a budget of steps
)

// Support says how a program stands to workspaces, or to runs that outlive their process (OSL-28, OSL-37).
type Support string

// The kinds of support.
const (
	SupportNone     Support = "none"
	SupportOptional Support = "optional"
	SupportRequired Support = "required"
)

// Bridge says whether a program has to run others on this machine.
type Bridge string

// The kinds of need.
const (
	BridgeNever    Bridge = "never"
	BridgeOptional Bridge = "optional"
	BridgeRequired Bridge = "required"
)

// Platform is an operating system, as manifests call it.
type Platform string

// The platforms.
const (
	PlatformMacOS   Platform = "macos"
	PlatformWindows Platform = "windows"
	PlatformLinux   Platform = "linux"
)

// PermissionKind is what a permission is about.
type PermissionKind string

// The kinds of permissions.
const (
	PermissionNetwork      PermissionKind = "network"
	PermissionStorage      PermissionKind = "storage"
	PermissionVault        PermissionKind = "vault"
	PermissionConversation PermissionKind = "conversation"
	PermissionLLM          PermissionKind = "llm"
	PermissionBrowser      PermissionKind = "browser"
	PermissionWASM         PermissionKind = "wasm"
	PermissionFilesystem   PermissionKind = "filesystem"
)

// Permission is one that a program asks for.
type Permission struct {
	Kind               PermissionKind `json:"kind" of:"network storage vault conversation llm browser wasm filesystem" write:""`
	Scope              string         `json:"scope" write:"what it is about"`
	Description        string         `json:"description" write:"why the program needs it"`
	BrowserPermissions []string       `json:"browserPermissions,omitempty" of:"clipboard-read clipboard-write notifications geolocation camera microphone storage-persistent"`
}

// Binding is a secret that a program needs, by the name that it calls it.
type Binding struct {
	Name            string `json:"name" write:"the name by which the program asks for it"`
	Scope           string `json:"scope" write:"what it is for"`
	Description     string `json:"description" write:"what a person reads who sets it"`
	Required        bool   `json:"required" write:"true or false"` // it does not run without
	OAuthProviderID string `json:"oauthProviderId,omitempty"`
}

// LLMUsage is a purpose for which a program asks a model; for no other it may.
type LLMUsage struct {
	PurposeID            string  `json:"purposeId" write:"the id by which the program asks"`
	Kind                 string  `json:"kind" of:"classification generation extraction summarization analysis structured-output custom" write:""`
	Description          string  `json:"description" write:"what the model is asked"`
	EstimatedTokenBudget int     `json:"estimatedTokenBudget,omitempty"` // tokens; 0 where it is not said
	ModelPreference      *string `json:"modelPreference" jsonschema:"nullable"`
	TemperatureHint      float64 `json:"temperatureHint,omitempty"`
}

// ToolDeclaration is a tool that a program has for agents (OSL-32).
type ToolDeclaration struct {
	Name          string          `json:"name" write:"the name of the tool"`
	Description   string          `json:"description" write:"what a model reads of it"`
	InputSchema   json.RawMessage `json:"inputSchema" write:"a JSON Schema, like {}"`
	OutputSchema  json.RawMessage `json:"outputSchema" write:"a JSON Schema, like {}"`
	HandlerExport string          `json:"handlerExport" write:"the function of module.ts that answers"` // of module.ts
}

// ViewDeclaration is a part of a user interface. It is kept and not shown.
type ViewDeclaration struct {
	ViewID         string `json:"viewId" write:"an id"`
	Kind           string `json:"kind" of:"panel card dialog inline" write:""`
	EntryComponent string `json:"entryComponent" write:"the component that draws it"`
	Description    string `json:"description" write:"what it shows"`
}

// SandboxRules are the bounds of a program's machine, and the addresses that it may ask (OSL-09, OSL-10).
// What a manifest does not say has the default.
type SandboxRules struct {
	Isolation      string        `json:"isolation" of:"strict standard"` // strict or standard
	MaxExecutionMS int           `json:"maxExecutionMs"`                 // milliseconds of its own work
	MaxMemoryMB    int           `json:"maxMemoryMB"`                    // MiB
	AllowedGlobals []string      `json:"allowedGlobals"`
	NetworkRules   []NetworkRule `json:"networkRules"`
}

// The bounds of a program whose manifest has none.
const (
	DefaultMaxExecutionMS = 30_000
	DefaultMaxMemoryMB    = 128
	defaultIsolation      = "standard"
)

// NetworkRule is a set of addresses that a program may ask, with a * for any characters.
type NetworkRule struct {
	URLPattern  string   `json:"urlPattern" write:"an address, with a * for any characters"`
	Methods     []string `json:"methods" of:"GET HEAD POST PUT PATCH DELETE OPTIONS" write:"a list, like [GET]"` // in capitals
	Description string   `json:"description" write:"what is asked there"`
}

// AgenticConfig bounds a program of the mode agentic (OSL-14).
type AgenticConfig struct {
	Enabled                     bool `json:"enabled" write:"true or false"`
	RequiresWorkspace           bool `json:"requiresWorkspace" write:"true or false"`
	SupportsBackgroundExecution bool `json:"supportsBackgroundExecution" write:"true or false"`
	SupportsRoleBasedExecution  bool `json:"supportsRoleBasedExecution" write:"true or false"`
	MaxStepsPerRun              *int `json:"maxStepsPerRun" jsonschema:"nullable" write:"a number, or null for 1000"` // nil: 1000
	DefaultStepBudget           *int `json:"defaultStepBudget" jsonschema:"nullable" write:"a number, or null"`       // nil: no checkpoint by itself
}

// MCPServer is an MCP server that a program cannot do without.
type MCPServer struct {
	Name        string `json:"name" write:"the name of the server"`
	Description string `json:"description" write:"what it is needed for"`
	URLPattern  string `json:"urlPattern,omitempty"`
}

// MCPTool is a tool of an MCP server that a program cannot do without.
type MCPTool struct {
	ServerName  string `json:"serverName" write:"the name of the server"`
	ToolName    string `json:"toolName" write:"the name of the tool"`
	Description string `json:"description" write:"what it is needed for"`
}

// OAuth is a service that a program signs in to (OSL-33).
type OAuth struct {
	ProviderID                 string   `json:"providerId" write:"an id"`
	DisplayName                string   `json:"displayName" write:"the name of the service for people"`
	GrantType                  string   `json:"grantType" of:"authorization_code client_credentials" write:""`
	AuthorizationURL           string   `json:"authorizationUrl" write:"an https address"`
	TokenURL                   string   `json:"tokenUrl" write:"an https address"`
	Scopes                     []string `json:"scopes" write:"a list, like []"`
	PKCERequired               bool     `json:"pkceRequired" write:"true or false"`
	ClientIDBinding            string   `json:"clientIdBinding" write:"the name of a required binding"` // the name of a Binding
	ClientSecretBinding        string   `json:"clientSecretBinding,omitempty"`
	RedirectPath               string   `json:"redirectPath" write:"a path"`
	RedirectMode               string   `json:"redirectMode" of:"popup same-window" write:""`
	SupportedEnvironments      []string `json:"supportedEnvironments" of:"browser-production browser-development" write:"a list, like []"`
	ResponseMode               string   `json:"responseMode" of:"query fragment" write:""`
	ClientAuthenticationMethod string   `json:"clientAuthenticationMethod" of:"client_secret_post client_secret_basic none" write:""`
}

// The ways in which a program gets a token (OAuth.GrantType).
const (
	GrantAuthorizationCode = "authorization_code" // its owner signs in with a browser
	GrantClientCredentials = "client_credentials" // it signs in by itself
)

// How a client says who it is (OAuth.ClientAuthenticationMethod).
const (
	AuthenticationPost  = "client_secret_post"
	AuthenticationBasic = "client_secret_basic"
	AuthenticationNone  = "none"
)

// WASM is a WebAssembly module of a program (OSL-33).
type WASM struct {
	ModuleID         string   `json:"moduleId" write:"the id by which the program asks for it"`
	SourceKind       string   `json:"sourceKind" of:"inline_base64 url build_from_source" write:""`
	SourceURL        string   `json:"sourceUrl,omitempty"` // a file below the folder of the skill, or its Base64
	SourceLanguage   string   `json:"sourceLanguage" of:"rust c cpp assemblyscript" write:""`
	SourceRepository string   `json:"sourceRepository,omitempty"`
	BuildCommand     string   `json:"buildCommand,omitempty"`
	Exports          []string `json:"exports" write:"a list, like []"`                         // the functions that the program may call
	MemoryLimitMB    int      `json:"memoryLimitMB" write:"a number of MiB"`                   // MiB of the memory of one instance
	AuditHash        *string  `json:"auditHash" jsonschema:"nullable" write:"a hash, or null"` // SHA-256 of its bytes; nil: not audited
}

// wasmInline is the kind of source that stands in the manifest itself.
const wasmInline = "inline_base64"

// lifecycleHooks are the exports that a host calls beside execute (OSL-06).
var lifecycleHooks = []string{"onInstall", "onUninstall", "onEnable", "onDisable", "onConfigure", "onUpgrade"}
