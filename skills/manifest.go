package skills

import "encoding/json"

// The files of a program. manifest.json and module.ts are required.
const (
	manifestFile = "manifest.json"
	moduleFile   = "module.ts"
	docsFile     = "docs.md"
	configFile   = "config-schema.json"
)

// SchemaVersion is the supported manifest version.
const SchemaVersion = "2.0"

// Manifest is the manifest.json of an executable skill: its description, its input and output, and
// its requirements. A program gets only what it declares. The decode function reads the struct tags
// write, of and root.
type Manifest struct {
	Name        string `json:"name" write:"the slug of its folder, like my-skill"` // a slug
	Description string `json:"description" write:"what it does"`
	Version     string `json:"version" write:"a version, like 1.0.0"` // a semantic version
	Author      string `json:"author" write:"who wrote it"`

	SchemaVersion    string       `json:"schemaVersion" write:"2.0"`
	Capabilities     []string     `json:"capabilities" write:"a list, like []"`
	RequiredBindings []Binding    `json:"requiredBindings" write:"a list, like []"`
	Permissions      []Permission `json:"permissions" write:"a list, like []"`
	// JSON Schema of an object.
	InputSchema json.RawMessage `json:"inputSchema" root:"object" write:"a JSON Schema with type: object"`
	// JSON Schema of an object.
	OutputSchema json.RawMessage `json:"outputSchema" root:"object" write:"a JSON Schema with type: object"`
	// CompatibilityRequirements are names of features, see Features. Unknown names are kept.
	CompatibilityRequirements []string `json:"compatibilityRequirements" write:"a list, like []"`

	OAuth    []OAuth           `json:"oauth,omitempty"`
	LLMUsage []LLMUsage        `json:"llmUsage,omitempty"`
	WASM     []WASM            `json:"wasm,omitempty"`
	Views    []ViewDeclaration `json:"views,omitempty"`
	Tools    []ToolDeclaration `json:"tools,omitempty"`
	// LifecycleHooks are names of exports, like "onInstall".
	LifecycleHooks     []string     `json:"lifecycleHooks,omitempty"`
	Sandbox            SandboxRules `json:"sandbox"`
	RequiredMCPServers []MCPServer  `json:"requiredMcpServers,omitempty"`
	RequiredMCPTools   []MCPTool    `json:"requiredMcpTools,omitempty"`

	// SupportedPlatforms is empty if the program supports all platforms.
	SupportedPlatforms []Platform `json:"supportedPlatforms" of:"macos windows linux" write:"a list; [] is all of them"`
	BridgeRequirement  Bridge     `json:"bridgeRequirement" of:"never optional required" write:""`
	WorkspaceSupport   Support    `json:"workspaceSupport" of:"none optional required" write:""`
	// WorkspaceSchemaVersion is the version of the state in workspaces. Nil if there is none.
	WorkspaceSchemaVersion    *string `json:"workspaceSchemaVersion" jsonschema:"nullable" write:"null, or a version like 1.0.0"`
	LongRunningSupport        Support `json:"longRunningSupport" of:"none optional required" write:""`
	UserInputSupport          bool    `json:"userInputSupport" write:"false, or true if it asks people"`
	ArtifactVersioningSupport bool    `json:"artifactVersioningSupport" write:"false, or true if it makes versions of artifacts"`
	ExecutionMode             Mode    `json:"executionMode" of:"declarative flow agentic" write:""`
	// AgenticConfig configures agentic execution. Nil means it is disabled.
	AgenticConfig *AgenticConfig `json:"agenticConfig" jsonschema:"nullable" write:"null, or an object"`
}

// Mode is the execution mode of a program.
type Mode string

// The execution modes.
const (
	ModeDeclarative Mode = "declarative" // a single call, without host.run
	ModeFlow        Mode = "flow"        // steps that can pause, ask and write checkpoints
	ModeAgentic     Mode = "agentic"     // phases and roles within a step budget
)

// Support is a program's support for workspaces or for long runs, which outlive their process.
type Support string

// The levels of support.
const (
	SupportNone     Support = "none"
	SupportOptional Support = "optional"
	SupportRequired Support = "required"
)

// Bridge is a program's need to run other programs on this machine.
type Bridge string

// The levels of need.
const (
	BridgeNever    Bridge = "never"
	BridgeOptional Bridge = "optional"
	BridgeRequired Bridge = "required"
)

// Platform is an operating system, as named in manifests.
type Platform string

// The platforms.
const (
	PlatformMacOS   Platform = "macos"
	PlatformWindows Platform = "windows"
	PlatformLinux   Platform = "linux"
)

// PermissionKind is the kind of resource that a permission covers.
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

// Permission is a permission that a program requests.
type Permission struct {
	Kind               PermissionKind `json:"kind" of:"network storage vault conversation llm browser wasm filesystem" write:""`
	Scope              string         `json:"scope" write:"what it is about"`
	Description        string         `json:"description" write:"why the program needs it"`
	BrowserPermissions []string       `json:"browserPermissions,omitempty" of:"clipboard-read clipboard-write notifications geolocation camera microphone storage-persistent"`
}

// Binding is a secret that a program needs, identified by the program's name for it.
type Binding struct {
	Name        string `json:"name" write:"the name by which the program asks for it"`
	Scope       string `json:"scope" write:"what it is for"`
	Description string `json:"description" write:"what a person reads who sets it"`
	// Required prevents the program from running without the secret.
	Required        bool   `json:"required" write:"true or false"`
	OAuthProviderID string `json:"oauthProviderId,omitempty"`
}

// LLMUsage is a purpose for which a program may call a model. Calls for undeclared purposes are
// denied.
type LLMUsage struct {
	PurposeID            string  `json:"purposeId" write:"the id by which the program asks"`
	Kind                 string  `json:"kind" of:"classification generation extraction summarization analysis structured-output custom" write:""`
	Description          string  `json:"description" write:"what the model is asked"`
	EstimatedTokenBudget int     `json:"estimatedTokenBudget,omitempty"` // zero if not declared
	ModelPreference      *string `json:"modelPreference" jsonschema:"nullable"`
	TemperatureHint      float64 `json:"temperatureHint,omitempty"`
}

// ToolDeclaration is a tool that a program offers to agents.
type ToolDeclaration struct {
	Name         string          `json:"name" write:"the name of the tool"`
	Description  string          `json:"description" write:"what a model reads of it"`
	InputSchema  json.RawMessage `json:"inputSchema" write:"a JSON Schema, like {}"`
	OutputSchema json.RawMessage `json:"outputSchema" write:"a JSON Schema, like {}"`
	// HandlerExport is an export of module.ts.
	HandlerExport string `json:"handlerExport" write:"the function of module.ts that answers"`
}

// ViewDeclaration is a user interface component. It is parsed but not displayed.
type ViewDeclaration struct {
	ViewID         string `json:"viewId" write:"an id"`
	Kind           string `json:"kind" of:"panel card dialog inline" write:""`
	EntryComponent string `json:"entryComponent" write:"the component that draws it"`
	Description    string `json:"description" write:"what it shows"`
}

// SandboxRules are the limits of a program's sandbox and the URLs that it may request. Missing
// fields have defaults.
type SandboxRules struct {
	Isolation string `json:"isolation" of:"strict standard"` // strict or standard
	// MaxExecutionMS limits the execution time of the program, without waiting for the host.
	MaxExecutionMS int           `json:"maxExecutionMs"`
	MaxMemoryMB    int           `json:"maxMemoryMB"` // memory limit in MiB
	AllowedGlobals []string      `json:"allowedGlobals"`
	NetworkRules   []NetworkRule `json:"networkRules"`
}

// Default limits.
const (
	DefaultMaxExecutionMS = 30_000
	DefaultMaxMemoryMB    = 128
	defaultIsolation      = "standard"
)

// NetworkRule is a set of URLs that a program may request. A * matches any characters.
type NetworkRule struct {
	URLPattern string `json:"urlPattern" write:"an address, with a * for any characters"`
	// Methods are in upper case.
	Methods     []string `json:"methods" of:"GET HEAD POST PUT PATCH DELETE OPTIONS" write:"a list, like [GET]"`
	Description string   `json:"description" write:"what is asked there"`
}

// AgenticConfig holds the settings of an agentic program.
type AgenticConfig struct {
	Enabled                     bool `json:"enabled" write:"true or false"`
	RequiresWorkspace           bool `json:"requiresWorkspace" write:"true or false"`
	SupportsBackgroundExecution bool `json:"supportsBackgroundExecution" write:"true or false"`
	SupportsRoleBasedExecution  bool `json:"supportsRoleBasedExecution" write:"true or false"`
	// MaxStepsPerRun is the step limit of a run. Nil means 1000.
	MaxStepsPerRun *int `json:"maxStepsPerRun" jsonschema:"nullable" write:"a number, or null for 1000"`
	// DefaultStepBudget is the step at which a run writes a checkpoint. Nil means no automatic
	// checkpoint.
	DefaultStepBudget *int `json:"defaultStepBudget" jsonschema:"nullable" write:"a number, or null"`
}

// MCPServer is an MCP server that a program requires.
type MCPServer struct {
	Name        string `json:"name" write:"the name of the server"`
	Description string `json:"description" write:"what it is needed for"`
	URLPattern  string `json:"urlPattern,omitempty"`
}

// MCPTool is a tool of an MCP server that a program requires.
type MCPTool struct {
	ServerName  string `json:"serverName" write:"the name of the server"`
	ToolName    string `json:"toolName" write:"the name of the tool"`
	Description string `json:"description" write:"what it is needed for"`
}

// OAuth is a service that a program signs in to.
type OAuth struct {
	ProviderID       string   `json:"providerId" write:"an id"`
	DisplayName      string   `json:"displayName" write:"the name of the service for people"`
	GrantType        string   `json:"grantType" of:"authorization_code client_credentials" write:""`
	AuthorizationURL string   `json:"authorizationUrl" write:"an https address"`
	TokenURL         string   `json:"tokenUrl" write:"an https address"`
	Scopes           []string `json:"scopes" write:"a list, like []"`
	PKCERequired     bool     `json:"pkceRequired" write:"true or false"`
	// ClientIDBinding is the name of a Binding.
	ClientIDBinding            string   `json:"clientIdBinding" write:"the name of a required binding"`
	ClientSecretBinding        string   `json:"clientSecretBinding,omitempty"`
	RedirectPath               string   `json:"redirectPath" write:"a path"`
	RedirectMode               string   `json:"redirectMode" of:"popup same-window" write:""`
	SupportedEnvironments      []string `json:"supportedEnvironments" of:"browser-production browser-development" write:"a list, like []"`
	ResponseMode               string   `json:"responseMode" of:"query fragment" write:""`
	ClientAuthenticationMethod string   `json:"clientAuthenticationMethod" of:"client_secret_post client_secret_basic none" write:""`
}

// The values of OAuth.GrantType.
const (
	GrantAuthorizationCode = "authorization_code" // the owner signs in with a browser
	GrantClientCredentials = "client_credentials" // the program signs in by itself
)

// The values of OAuth.ClientAuthenticationMethod.
const (
	AuthenticationPost  = "client_secret_post"
	AuthenticationBasic = "client_secret_basic"
	AuthenticationNone  = "none"
)

// WASM is a WebAssembly module of a program.
type WASM struct {
	ModuleID   string `json:"moduleId" write:"the id by which the program asks for it"`
	SourceKind string `json:"sourceKind" of:"inline_base64 url build_from_source" write:""`
	// SourceURL is a file in the skill's folder, or Base64 if SourceKind is inline_base64.
	SourceURL        string `json:"sourceUrl,omitempty"`
	SourceLanguage   string `json:"sourceLanguage" of:"rust c cpp assemblyscript" write:""`
	SourceRepository string `json:"sourceRepository,omitempty"`
	BuildCommand     string `json:"buildCommand,omitempty"`
	// Exports are the functions that the program may call.
	Exports []string `json:"exports" write:"a list, like []"`
	// MemoryLimitMB is the memory limit of one instance in MiB.
	MemoryLimitMB int `json:"memoryLimitMB" write:"a number of MiB"`
	// AuditHash is the SHA-256 of the audited bytes. Nil if the module was not audited.
	AuditHash *string `json:"auditHash" jsonschema:"nullable" write:"a hash, or null"`
}

// wasmInline is the SourceKind of a module that is embedded in the manifest.
const wasmInline = "inline_base64"

// lifecycleHooks are the exports, besides execute, that the host calls.
var lifecycleHooks = []string{"onInstall", "onUninstall", "onEnable", "onDisable", "onConfigure", "onUpgrade"}
