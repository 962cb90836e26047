package host

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/agent/tool/web"
	"rouse/skills"
)

// Options are what the methods of one run work with.
type Options struct {
	Manifest     *skills.Manifest
	Capabilities Capabilities
	Roots        *tool.Roots
	WriteFile    *tool.Tool             // the agent's file_write; nil: it has none
	Callable     func(name string) bool // whether the module may call a tool of its agent; nil: none
	File         string                 // that started the run, for openFile; "" where none did
	Network      web.Options
	Secrets      []tool.SecretGrant
	// Storage is the file of the skill's database, and Epoch the id of the ledger in which the run is: keys of calls are those of a run.
	Storage, Epoch string
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
	storage  *storage
	methods  []string
	handles  []handle
	jobs     map[string]job    // programs that were run, by the keys of their calls
	given    map[string]string // values of secrets that the module has, by name
}

// New opens nothing yet.
func New(o Options) (*Host, error) {
	if o.Manifest == nil || o.Roots == nil {
		return nil, errors.New("host: a manifest and roots are needed")
	}

	h := &Host{o: o, methods: Methods(o.Manifest, o.Capabilities), storage: &storage{path: o.Storage, epoch: o.Epoch}, jobs: map[string]job{}, given: map[string]string{}}
	if h.has("network.fetch") {
		var err error
		if h.requests, err = web.NewRequests(o.Network, h.outsideRules); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// Methods are those that the module has.
func (h *Host) Methods() []string { return h.methods }

func (h *Host) has(method string) bool { return slices.Contains(h.methods, method) }

// Close closes what was opened.
func (h *Host) Close() error { return h.storage.close() }

// Tools are those of the methods that the module has.
func (h *Host) Tools() ([]tool.Tool, error) {
	all := map[string]func() (tool.Tool, error){
		storageGetSpec.Name:    h.storageGet,
		storageSetSpec.Name:    h.storageSet,
		storageDeleteSpec.Name: h.storageDelete,
		storageListSpec.Name:   h.storageList,
		fetchSpec.Name:         h.fetch,
		completeSpec.Name:      h.complete,
		resolveSpec.Name:       h.resolve,
		openFileSpec.Name:      h.openFile,
		openFolderSpec.Name:    h.openFolder,
		listSpec.Name:          h.listFolder,
		readSpec.Name:          h.readFile,
		writeSpec.Name:         h.writeFile,
		locateSpec.Name:        h.locate,
	}

	var out []tool.Tool
	for _, m := range methods {
		define, own := all[m.tool]
		if !own || !h.has(m.name) {
			continue
		}
		t, err := define()
		if err != nil {
			return nil, fmt.Errorf("host.%s: %w", m.name, err)
		}
		out = append(out, t)
	}
	return out, nil
}

// value is the result of a method that gives one thing.
type value struct {
	Value any `json:"value"`
}
