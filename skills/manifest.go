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

// Manifest is the manifest.json of an executable skill: what it is, what it takes and returns, and all
// that it asks its host for (OSL-03). What it does not declare it does not get.
type Manifest struct {
	Name        string `json:"name"` // its slug
	Description string `json:"description"`
	Version     string `json:"version"` // semver
	Author      string `json:"author"`

	SchemaVersion    string          `json:"schemaVersion"`
	Capabilities     []string        `json:"capabilities"`
	RequiredBindings []Binding       `json:"requiredBindings"`
	Permissions      []Permission    `json:"permissions"`
	InputSchema      json.RawMessage `json:"inputSchema"`  // JSON Schema of an object
	OutputSchema     json.RawMessage `json:"outputSchema"` // JSON Schema of an object
	// CompatibilityRequirements are names of features: see Features. Unknown ones are kept.
	CompatibilityRequirements []string `json:"compatibilityRequirements"`

	OAuth              []OAuth           `json:"oauth,omitempty"`
	LLMUsage           []LLMUsage        `json:"llmUsage,omitempty"`
	WASM               []WASM            `json:"wasm,omitempty"`
	Views              []ViewDeclaration `json:"views,omitempty"`
	Tools              []ToolDeclaration `json:"tools,omitempty"`
	LifecycleHooks     []string          `json:"lifecycleHooks,omitempty"` // names of exports, like "onInstall"
	Sandbox            SandboxRules      `json:"sandbox"`
	RequiredMCPServers []MCPServer       `json:"requiredMcpServers,omitempty"`
	RequiredMCPTools   []MCPTool         `json:"requiredMcpTools,omitempty"`

	SupportedPlatforms []Platform `json:"supportedPlatforms"` // none: all
	BridgeRequirement  Bridge     `json:"bridgeRequirement"`
	WorkspaceSupport   Support    `json:"workspaceSupport"`
	// WorkspaceSchemaVersion is that of its workspaces' state; nil where it has none.
	WorkspaceSchemaVersion    *string        `json:"workspaceSchemaVersion" jsonschema:"nullable"`
	LongRunningSupport        Support        `json:"longRunningSupport"`
	UserInputSupport          bool           `json:"userInputSupport"`
	ArtifactVersioningSupport bool           `json:"artifactVersioningSupport"`
	ExecutionMode             Mode           `json:"executionMode"`
	AgenticConfig             *AgenticConfig `json:"agenticConfig" jsonschema:"nullable"` // nil, as null, is one that is not enabled
}

// Mode is how a program runs (OSL-12).
type Mode string

// The modes.
const (
	ModeDeclarative Mode = "declarative" // one call, without host.run
	ModeFlow        Mode = "flow"        // steps that may pause, ask and make checkpoints
	ModeAgentic     Mode = "agentic"     // phases and roles within a budget of steps
)

var modes = []Mode{ModeDeclarative, ModeFlow, ModeAgentic}

// Support says how a program stands to workspaces, or to runs that outlive their process (OSL-28, OSL-37).
type Support string

// The kinds of support.
const (
	SupportNone     Support = "none"
	SupportOptional Support = "optional"
	SupportRequired Support = "required"
)

var supports = []Support{SupportNone, SupportOptional, SupportRequired}

// Bridge says whether a program has to run others on this machine.
type Bridge string

// The kinds of need.
const (
	BridgeNever    Bridge = "never"
	BridgeOptional Bridge = "optional"
	BridgeRequired Bridge = "required"
)

var bridges = []Bridge{BridgeNever, BridgeOptional, BridgeRequired}

// Platform is an operating system, as manifests call it.
type Platform string

// The platforms.
const (
	PlatformMacOS   Platform = "macos"
	PlatformWindows Platform = "windows"
	PlatformLinux   Platform = "linux"
)

var platforms = []Platform{PlatformMacOS, PlatformWindows, PlatformLinux}

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

var permissionKinds = []PermissionKind{PermissionNetwork, PermissionStorage, PermissionVault, PermissionConversation, PermissionLLM, PermissionBrowser, PermissionWASM, PermissionFilesystem}

// browserPermissions are the permissions of a browser that a permission may name.
var browserPermissions = []string{"clipboard-read", "clipboard-write", "notifications", "geolocation", "camera", "microphone", "storage-persistent"}

// Permission is one that a program asks for.
type Permission struct {
	Kind               PermissionKind `json:"kind"`
	Scope              string         `json:"scope"`
	Description        string         `json:"description"`
	BrowserPermissions []string       `json:"browserPermissions,omitempty"`
}

// Binding is a secret that a program needs, by the name that it calls it.
type Binding struct {
	Name            string `json:"name"`
	Scope           string `json:"scope"`
	Description     string `json:"description"`
	Required        bool   `json:"required"` // it does not run without
	OAuthProviderID string `json:"oauthProviderId,omitempty"`
}

// LLMUsage is a purpose for which a program asks a model; for no other it may.
type LLMUsage struct {
	PurposeID            string  `json:"purposeId"`
	Kind                 string  `json:"kind"` // as llmKinds
	Description          string  `json:"description"`
	EstimatedTokenBudget int     `json:"estimatedTokenBudget,omitempty"` // tokens; 0 where it is not said
	ModelPreference      *string `json:"modelPreference" jsonschema:"nullable"`
	TemperatureHint      float64 `json:"temperatureHint,omitempty"`
}

var llmKinds = []string{"classification", "generation", "extraction", "summarization", "analysis", "structured-output", "custom"}

// ToolDeclaration is a tool that a program has for agents (OSL-32).
type ToolDeclaration struct {
	Name          string          `json:"name"`
	Description   string          `json:"description"`
	InputSchema   json.RawMessage `json:"inputSchema"`
	OutputSchema  json.RawMessage `json:"outputSchema"`
	HandlerExport string          `json:"handlerExport"` // of module.ts
}

// ViewDeclaration is a part of a user interface. It is kept and not shown.
type ViewDeclaration struct {
	ViewID         string `json:"viewId"`
	Kind           string `json:"kind"` // as viewKinds
	EntryComponent string `json:"entryComponent"`
	Description    string `json:"description"`
}

var viewKinds = []string{"panel", "card", "dialog", "inline"}

// SandboxRules are the bounds of a program's machine, and the addresses that it may ask (OSL-09, OSL-10).
// What a manifest does not say has the default.
type SandboxRules struct {
	Isolation      string        `json:"isolation"`      // strict or standard
	MaxExecutionMS int           `json:"maxExecutionMs"` // milliseconds of its own work
	MaxMemoryMB    int           `json:"maxMemoryMB"`    // MiB
	AllowedGlobals []string      `json:"allowedGlobals"`
	NetworkRules   []NetworkRule `json:"networkRules"`
}

// The bounds of a program whose manifest has none.
const (
	DefaultMaxExecutionMS = 30_000
	DefaultMaxMemoryMB    = 128
	defaultIsolation      = "standard"
)

var isolations = []string{"strict", defaultIsolation}

// NetworkRule is a set of addresses that a program may ask, with a * for any characters.
type NetworkRule struct {
	URLPattern  string   `json:"urlPattern"`
	Methods     []string `json:"methods"` // in capitals
	Description string   `json:"description"`
}

var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

// AgenticConfig bounds a program of the mode agentic (OSL-14).
type AgenticConfig struct {
	Enabled                     bool `json:"enabled"`
	RequiresWorkspace           bool `json:"requiresWorkspace"`
	SupportsBackgroundExecution bool `json:"supportsBackgroundExecution"`
	SupportsRoleBasedExecution  bool `json:"supportsRoleBasedExecution"`
	MaxStepsPerRun              *int `json:"maxStepsPerRun" jsonschema:"nullable"`    // nil: 1000
	DefaultStepBudget           *int `json:"defaultStepBudget" jsonschema:"nullable"` // nil: no checkpoint by itself
}

// MCPServer is an MCP server that a program cannot do without.
type MCPServer struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	URLPattern  string `json:"urlPattern,omitempty"`
}

// MCPTool is a tool of an MCP server that a program cannot do without.
type MCPTool struct {
	ServerName  string `json:"serverName"`
	ToolName    string `json:"toolName"`
	Description string `json:"description"`
}

// OAuth is a service that a program signs in to (OSL-33).
type OAuth struct {
	ProviderID                 string   `json:"providerId"`
	DisplayName                string   `json:"displayName"`
	GrantType                  string   `json:"grantType"`
	AuthorizationURL           string   `json:"authorizationUrl"`
	TokenURL                   string   `json:"tokenUrl"`
	Scopes                     []string `json:"scopes"`
	PKCERequired               bool     `json:"pkceRequired"`
	ClientIDBinding            string   `json:"clientIdBinding"` // the name of a Binding
	ClientSecretBinding        string   `json:"clientSecretBinding,omitempty"`
	RedirectPath               string   `json:"redirectPath"`
	RedirectMode               string   `json:"redirectMode"`
	SupportedEnvironments      []string `json:"supportedEnvironments"`
	ResponseMode               string   `json:"responseMode"`
	ClientAuthenticationMethod string   `json:"clientAuthenticationMethod"`
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

var (
	grantTypes      = []string{GrantAuthorizationCode, GrantClientCredentials}
	redirectModes   = []string{"popup", "same-window"}
	environments    = []string{"browser-production", "browser-development"}
	responseModes   = []string{"query", "fragment"}
	authentications = []string{AuthenticationPost, AuthenticationBasic, AuthenticationNone}
)

// WASM is a WebAssembly module of a program (OSL-33).
type WASM struct {
	ModuleID         string   `json:"moduleId"`
	SourceKind       string   `json:"sourceKind"`          // as wasmSources
	SourceURL        string   `json:"sourceUrl,omitempty"` // a file below the folder of the skill, or its Base64
	SourceLanguage   string   `json:"sourceLanguage"`
	SourceRepository string   `json:"sourceRepository,omitempty"`
	BuildCommand     string   `json:"buildCommand,omitempty"`
	Exports          []string `json:"exports"`                         // the functions that the program may call
	MemoryLimitMB    int      `json:"memoryLimitMB"`                   // MiB of the memory of one instance
	AuditHash        *string  `json:"auditHash" jsonschema:"nullable"` // the SHA-256 of its bytes; nil: nobody has audited it
}

// wasmInline is the kind of source that stands in the manifest itself.
const wasmInline = "inline_base64"

var (
	wasmSources   = []string{wasmInline, "url", "build_from_source"}
	wasmLanguages = []string{"rust", "c", "cpp", "assemblyscript"}
)

// lifecycleHooks are the exports that a host calls beside execute (OSL-06).
var lifecycleHooks = []string{"onInstall", "onUninstall", "onEnable", "onDisable", "onConfigure", "onUpgrade"}
