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

// Options are what the methods of one run work with.
type Options struct {
	Agent, Skill string // whose runs, storage and sign-ins they are
	Run          int64
	Manifest     *skills.Manifest
	Exports      []string // of its module
	Capabilities Capabilities
	Roots        *tool.Roots
	WriteFile    *tool.Tool             // the agent's file_write; nil: it has none
	Callable     func(name string) bool // whether the module may call a tool of its agent; nil: none
	File         string                 // that started the run, for openFile; "" where none did
	Network      web.Options
	Secrets      []tool.SecretGrant
	SignIns      *signin.Book        // nil: none can be kept
	Learn        func(secret string) // has a token that the module may say kept out of what is recorded; needed with SignIns
	// Storage is the file of the skill's database, and Epoch the id of the ledger in which the run is: keys of calls are those of a run.
	Storage, Epoch string
	// Ledger keeps checkpoints and workspaces; Workspace is the one that the run works in, nil: none.
	Ledger    *ledger.Ledger
	Workspace *workspace.Workspace
	Redact    func(text string) string // removes secrets from what is stored
	// Complete asks the agent's model; nil: it has none.
	Complete func(ctx context.Context, in tool.Invocation, c Completion) (Completed, error)
}

// Completion is what a module asks a model.
type Completion struct {
	System      string
	Messages    []model.Message
	Temperature *float64
	MaxTokens   int // 0: as many as the model gives
}

// Completed is what came of it. Why is why there is no text, "" when there is one.
type Completed struct {
	Text, Why        string
	Input, Output    int64 // tokens
	Retryable, Ended bool  // a later try may succeed; the run has no budget to go on
}

// Host is the host of one attempt of a module.
type Host struct {
	o        Options
	requests *web.Requests // nil without a granted host
	storage  *store.Store
	stored   atomic.Pointer[label.Place] // where its file is, once there is one
	methods  []string
	handles  []handle
	jobs     map[string]job // programs that were run, by the keys of their calls
	progress progress
	version  int64             // the lock version at which the module has read its workspace, 0: it has not
	renewed  map[string]string // ids of artifacts that the module has given other contents, by those that it knows
	given    []given           // that the module has of secrets
	latest   map[string]string // of them, the latest value of each name
}

// New opens nothing yet.
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

// Methods lists the methods that the module has.
func (h *Host) Methods() []string { return h.methods }

// Blocking lists the methods at which the module stands still until they are answered.
func (h *Host) Blocking() (out []string) {
	for _, m := range methods {
		if m.blocks && h.has(m.name) {
			out = append(out, m.name)
		}
	}
	return out
}

func (h *Host) has(method string) bool { return slices.Contains(h.methods, method) }

// Begin forgets what another export of the module, a hook, has seen.
func (h *Host) Begin() {
	h.handles, h.progress, h.version, h.renewed = nil, progress{}, 0, map[string]string{}
}

// Storage is the database of the skill for the agent.
func (h *Host) Storage() *store.Store { return h.storage }

// Close closes what was opened.
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

// value is the result of a method that gives one thing.
type value struct {
	Value any `json:"value"`
}
