package moduleapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/agent/tool/moduleapi/signin"
	"rouse/agent/tool/moduleapi/store"
	"rouse/agent/tool/web"
	"rouse/internal/ledger"
	"rouse/internal/ledger/label"
	"rouse/internal/ledger/workspace"
	"rouse/skills"
)

// Options configures the methods of one run.
type Options struct {
	Agent, Skill string // owners of the run, the storage and the sign-ins
	Run          int64
	Manifest     *skills.Manifest
	Exports      []string // exports of the module
	Capabilities Capabilities
	Roots        *tool.Roots
	WriteFile    *tool.Tool             // the agent's file_write, or nil
	Callable     func(name string) bool // reports whether the module may call a tool of its agent; nil means no tool
	File         string                 // file that started the run, or ""
	Network      web.Options
	Secrets      []tool.SecretGrant
	SignIns      *signin.Book // nil if sign-ins cannot be stored
	// Learn registers a token that the module may get, so that it is redacted in all records.
	// Required if SignIns is set.
	Learn func(secret string)
	// Storage is the path of the skill's database. Epoch is the id of the run's ledger. Call keys
	// are unique only together with the ledger and the run.
	Storage, Epoch string
	// Ledger stores checkpoints and workspaces. Workspace is the workspace of the run, or nil.
	Ledger    *ledger.Ledger
	Workspace *workspace.Workspace
	Redact    func(text string) string // removes secrets from stored content
	// Complete asks the agent's model. It is nil if the agent has no model.
	Complete func(ctx context.Context, in tool.Invocation, c Completion) (Completed, error)
}

// Completion is a request of a module to a model.
type Completion struct {
	System      string
	Messages    []model.Message
	Temperature *float64
	MaxTokens   int // 0 means the limit of the model
}

// Completed is the response to a Completion. Why is the reason why there is no text, or "".
type Completed struct {
	Text, Why     string
	Input, Output int64 // tokens
	// Retryable is true if a later try may succeed. Ended is true if the budget of the run is used
	// up.
	Retryable, Ended bool
}

// Host serves the methods of one attempt of a module.
type Host struct {
	o        Options
	requests *web.Requests // place of the storage file, once the file exists
	storage  *store.Store
	stored   atomic.Pointer[label.Place] // where its file is, once there is one
	methods  []string
	handles  []handle
	jobs     map[string]job // ended programs by the keys of their calls
	progress progress
	// version is the lock version of the workspace that the module has read, or 0.
	version int64
	// renewed maps ids of artifacts that the module has changed to the ids of the next versions.
	renewed map[string]string
	given   []given           // secret values that the module was given
	latest  map[string]string // latest given value of each secret, by name
}

// New returns a host. It does not open the storage yet.
func New(o Options) (*Host, error) {
	if o.Manifest == nil || o.Roots == nil {
		return nil, errors.New("host: a manifest and roots are needed")
	}

	h := &Host{o: o, methods: Methods(o.Manifest, o.Capabilities), storage: store.New(o.Storage, o.Epoch), jobs: map[string]job{}, latest: map[string]string{}, renewed: map[string]string{}}
	if h.o.Redact == nil {
		h.o.Redact = func(text string) string { return text }
	}
	if h.has("network.fetch") {
		network := o.Network
		if h.has("oauth.getToken") {
			network.Secrets = slices.Concat(o.Network.Secrets, h.tokenGrants())
			network.Tokens = web.Tokens{Value: h.tokenValue, Refuses: h.outsideTokenRules}
		}

		var err error
		if h.requests, err = web.NewRequests(network, h.outsideRules); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// Methods returns the names of the methods that the module has.
func (h *Host) Methods() []string { return h.methods }

// Blocking returns the names of the methods that block the module until they are answered.
func (h *Host) Blocking() (out []string) {
	for _, m := range methods {
		if m.blocks && h.has(m.name) {
			out = append(out, m.name)
		}
	}
	return out
}

func (h *Host) has(method string) bool { return slices.Contains(h.methods, method) }

// Begin resets the state that a hook, another export of the module, may have left.
func (h *Host) Begin() {
	h.handles, h.progress, h.version, h.renewed = nil, progress{}, 0, map[string]string{}
}

// Storage returns the storage of the skill for the agent.
func (h *Host) Storage() *store.Store { return h.storage }

// Close closes the storage if it was opened.
func (h *Host) Close() error { return h.storage.Close() }

// Tools returns the tools of the methods that the module has.
func (h *Host) Tools() ([]tool.Tool, error) {
	var out []tool.Tool
	for _, one := range members {
		if !slices.ContainsFunc(methods, func(m method) bool { return m.tool == one.spec.Name && h.has(m.name) }) {
			continue
		}
		t, err := one.define(h, one.spec)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", one.spec.Name, err)
		}
		out = append(out, t)
	}
	return out, nil
}

// value is the result of a method that returns a single value.
type value struct {
	Value any `json:"value"`
}
