package agent

import (
	"slices"

	"rouse/agent/redact"
	"rouse/agent/tool"
	"rouse/internal/ledger"
)

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

// redactingTools returns copies of tools that redact secrets in their results. A model could repeat
// any secret that it reads.
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
