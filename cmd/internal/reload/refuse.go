package reload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"rouse/agent/redact"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/plan"
	"rouse/internal/ledger"
)

// refuse reports why the configuration on disk is not active. It reports each problem once.
func (r *Reloader) refuse(ctx context.Context, next *plan.Setup, err error) api.Reload {
	// At shutdown the parts fail because they stop, not because of the configuration.
	if ctx.Err() != nil {
		return refusal([]api.Problem{{Message: "the daemon stops"}})
	}

	found, wanted := r.redactProblems(next, asProblems(r.Started.Files[0], err)), []config.SecretRef(nil)
	if next != nil && next.Config != nil {
		wanted = next.Config.Secrets.Refs
	}
	r.mu.Lock()
	r.problems, r.wanted = found, wanted
	r.mu.Unlock()

	// The same problems are found at every check until they are fixed.
	text, held := formatProblems(found, len(found)), api.LocalTime(r.Setup.Load().At, r.Setup.Load().Config.Zone())
	if r.reported[text] == 0 {
		r.reported[text] = 1
		r.logProblems(found, held)
	}

	// A part that fails once or twice is probably busy.
	if r.reported[text] == 1 && (r.refused == 0 || r.refused > 2) && r.notify(ctx, found, held) {
		r.reported[text] = 2
	}
	return refusal(found)
}

func (r *Reloader) logProblems(found []api.Problem, held string) {
	for i, p := range found {
		if i == maxLogged {
			r.Logger.Error("the configuration has more problems", "number", len(found)-i)
			return
		}
		r.Logger.Error("the configuration on disk cannot be used; the last good one holds", "since", held,
			"file", p.File, "line", p.Line, "column", p.Column, "key", p.Path, "problem", p.Message, "hint", p.Hint)
	}
}

// notify sends a notice to the owner on every channel and records an event.
func (r *Reloader) notify(ctx context.Context, found []api.Problem, held string) bool {
	r.record(ctx, "config.refused", map[string]any{"error": formatProblems(found, maxNotified)})
	var notices []ledger.Notice
	cfg := r.Setup.Load().Config
	for _, channel := range r.Setup.Load().Plan.Runner.Channels {
		if channel == config.DefaultChannel && !cfg.Names(channel) && !r.Session.Exists() {
			continue
		}
		notices = append(notices, ledger.Notice{Channel: channel, Title: "rouse: the configuration cannot be used",
			Body: formatProblems(found, maxNotified) + "\nThat of " + held + " holds."})
	}

	err := r.Ledger.Outbox.Append(ctx, notices...)
	if err != nil && ctx.Err() == nil {
		r.Logger.Error("the owner could not be notified of the problem with the configuration", "error", err)
	}
	return err == nil
}

func (r *Reloader) record(ctx context.Context, kind string, data map[string]any) {
	text, err := json.Marshal(data)
	if err == nil {
		err = r.Ledger.Events.Append(ctx, ledger.Event{Kind: kind, At: time.Now(), Data: text})
	}
	if err != nil && ctx.Err() == nil {
		r.Logger.Error("an event could not be recorded", "event", kind, "error", err)
	}
}

// redactProblems removes the secrets of both configurations from problems.
func (r *Reloader) redactProblems(next *plan.Setup, found []api.Problem) []api.Problem {
	secrets := r.Setup.Load().Plan.Runner.Secrets
	if next != nil && next.Config != nil {
		secrets = union(next.Config.Secrets.Values, secrets)
	}

	redactor := redact.New(secrets)
	for i, p := range found {
		found[i].Message, found[i].Hint, found[i].Name = redactor.Replace(p.Message), redactor.Replace(p.Hint), redactor.Replace(p.Name)
	}

	return found
}

// refusal returns the result of a reload without changes.
func refusal(found []api.Problem) api.Reload {
	return api.Reload{Problems: found, Added: []string{}, Changed: []string{}, Removed: []string{}, Others: []string{}, Restart: []string{}}
}

// list returns an empty list for nil, because nil is null in JSON.
func list(names []string) []string {
	if names == nil {
		return []string{}
	}
	return names
}

// asProblems splits an error into its problems.
func asProblems(file string, err error) []api.Problem {
	var all *config.Errors
	if errors.As(err, &all) {
		return problems(all.Problems)
	}
	return []api.Problem{{File: file, Message: err.Error()}}
}

func problems(found []config.Problem) []api.Problem {
	out := make([]api.Problem, len(found))
	for i, p := range found {
		out[i] = api.Problem(p)
	}
	return out
}

// formatProblems formats the first problems as lines.
func formatProblems(found []api.Problem, most int) string {
	var lines []string
	for i, p := range found {
		if i == most {
			lines = append(lines, fmt.Sprintf("… and %d more", len(found)-i))
			break
		}
		lines = append(lines, config.Problem(p).String())
	}

	return strings.Join(lines, "\n")
}
