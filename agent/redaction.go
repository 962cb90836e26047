package agent

import (
	"encoding/json"
	"slices"

	"rouse/agent/plan"
	"rouse/agent/redact"
	"rouse/agent/tool"
	"rouse/internal/ledger"
	"rouse/internal/ledger/store"
)

// RedactAnswer removes secrets from an answer of the API. A link stays: one for signing in names its client, which may be a secret.
func (r *Runner) RedactAnswer(document json.RawMessage) json.RawMessage {
	return r.plan.Load().AnswerRedactor.JSONExcept(document, "link")
}

// Redact blacks secrets out of what an owner writes into the record.
func (r *Runner) Redact(text string) string { return r.plan.Load().Redactor.Replace(text) }

// remember adds secrets to those that this process ever had, and returns all: an old secret may
// still stand in a transcript or a file. The caller holds planMu.
func (r *Runner) remember(secrets ...string) []string {
	for _, s := range secrets {
		if !slices.Contains(r.secrets, s) {
			r.secrets = append(r.secrets, s)
		}
	}
	return slices.Clone(r.secrets)
}

// learn has a token of a sign-in kept out of every record from now on. Runs that are on keep the redactor that they began with.
func (r *Runner) learn(token string) {
	r.planMu.Lock()
	defer r.planMu.Unlock()
	p := *r.plan.Load()
	if slices.Contains(p.Secrets, token) {
		return
	}
	p.Hide(r.remember(token))
	r.use(&p)
}

// use puts a plan into force. What is written to the ledger lacks its secrets from then on.
func (r *Runner) use(p *plan.Active) {
	r.plan.Store(p)
	if r.ledger != nil { // one that only looks at a plan has none
		r.ledger.RedactWith(&store.Redaction{Text: p.Redactor.Replace, Document: p.Redactor.JSON})
	}
}

// redactor is that of the task. That of a module learns the tokens that it is given.
func (t *attempt) redactor() *redact.Redactor {
	if t.module != nil {
		return t.module.redact
	}
	return t.Redactor()
}

func redactor(secrets []string) *redact.Redactor { return redact.New(secrets) }

func cleanResult(res ledger.Result, redact *redact.Redactor) ledger.Result {
	res.Summary, res.Error = redact.Replace(res.Summary), redact.Replace(res.Error)
	if res.Wait != nil {
		q := *res.Wait
		q.Title, q.Message, q.Options = redact.Replace(q.Title), redact.Replace(q.Message), slices.Clone(q.Options)
		for i, o := range q.Options {
			q.Options[i] = redact.Replace(o)
		}
		q.InputSchema = redact.Document(q.InputSchema)
		res.Wait = &q
	}

	return res
}

// redactingTools are tools whose answers lack the secrets: what a model has read, it can repeat.
func redactingTools(tools []tool.Tool, redact *redact.Redactor) []tool.Tool {
	out := make([]tool.Tool, len(tools))
	for i, t := range tools {
		out[i] = t.MapResult(func(e tool.Envelope) tool.Envelope {
			e.Message, e.Result, e.Warnings = redact.Replace(e.Message), redact.JSON(e.Result), slices.Clone(e.Warnings)
			for i, w := range e.Warnings {
				e.Warnings[i] = redact.Replace(w)
			}
			return e
		})
	}

	return out
}
