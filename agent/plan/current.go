package plan

import (
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"

	"rouse/agent/tool"
	"rouse/internal/ledger"
	"rouse/internal/ledger/store"
)

// Current holds the plan in force, and all secrets that this process has had. A run that has
// started keeps its plan. Current is safe for concurrent use.
type Current struct {
	ledger  *ledger.Ledger // nil if no record is kept
	active  atomic.Pointer[Active]
	mu      sync.Mutex // held while a plan is derived from the one in force
	secrets []string   // guarded by mu
}

// NewCurrent returns a Current with an empty plan. The ledger removes the secrets of each plan from
// its records. It may be nil if the process keeps no record.
func NewCurrent(l *ledger.Ledger) *Current {
	c := &Current{ledger: l}
	c.active.Store(NewActive(Plan{}, nil, nil, nil))
	return c
}

// Load returns the plan in force.
func (c *Current) Load() *Active { return c.active.Load() }

// Set puts a plan into force. specs are the specs of the built-in tools. hostTools are the specs of
// those that access files or start programs. desktop is Active.Desktop.
func (c *Current) Set(p Plan, specs, hostTools tool.Specs, desktop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	active := NewActive(p, specs, hostTools, c.remember(p.Secrets...))
	active.Desktop = desktop
	c.use(active)
}

// Resolve returns the task of a run by the plan in force. An attempt keeps the task with which it
// began.
func (c *Current) Resolve(run ledger.Run) (*Task, error) { return c.Load().Resolve(run) }

// Learn adds a secret, such as the token of a sign-in, that is removed from all later records. Runs
// that have started keep their redactor.
func (c *Current) Learn(secret string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := *c.Load()
	if slices.Contains(p.Secrets, secret) {
		return
	}
	p.Hide(c.remember(secret))
	c.use(&p)
}

// Redact removes secrets from a text that a user adds to the record.
func (c *Current) Redact(text string) string { return c.Load().Redactor.Replace(text) }

// RedactAnswer removes secrets from a response of the API. It keeps links, because a sign-in link
// contains a client ID, which may be a secret.
func (c *Current) RedactAnswer(document json.RawMessage) json.RawMessage {
	return c.Load().AnswerRedactor.JSONExcept(document, "link")
}

// remember adds secrets to all secrets that this process has had, and returns them. An old secret
// may still be in a transcript or a file. The caller holds mu.
func (c *Current) remember(secrets ...string) []string {
	for _, s := range secrets {
		if !slices.Contains(c.secrets, s) {
			c.secrets = append(c.secrets, s)
		}
	}
	return slices.Clone(c.secrets)
}

// use puts a plan into force and redacts its secrets from later records. The caller holds mu.
func (c *Current) use(p *Active) {
	c.active.Store(p)
	if c.ledger != nil {
		c.ledger.RedactWith(&store.Redaction{Text: p.Redactor.Replace, Document: p.Redactor.JSON})
	}
}
