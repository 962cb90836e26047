package cases

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"rouse/agent/tool/moduleapi"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/artifact"
	"rouse/internal/ledger/event"
	"rouse/internal/text"
)

// maxShown is the maximum number of characters of a value in a problem.
const maxShown = 200

func (p *played) compare(ctx context.Context, run ledger.Run) error {
	outcome, want := string(run.Outcome), cmp.Or(p.Expect.Outcome, string(domain.OutcomeSuccess))
	if run.State != domain.StateFinished {
		outcome = string(run.State)
	}
	said := strings.TrimSpace(run.Error + " " + run.Summary)
	if outcome != want {
		p.problem("the outcome is %s, wanted %s: %s", outcome, want, said)
	}
	if !strings.Contains(said, p.Expect.Message) {
		p.problem("it says %q, wanted something with %q", said, p.Expect.Message)
	}
	for _, r := range p.replies {
		p.problem("nothing in the inbox had the title %q", r.Title)
	}

	if err := p.compareOutput(ctx, run); err != nil {
		return err
	}
	wrong, err := p.CompareFiles(p.Expect.Files)
	if err != nil {
		return err
	}
	p.problems = append(p.problems, wrong...)
	return p.compareWorkspace(ctx, run)
}

func (p *played) compareOutput(ctx context.Context, run ledger.Run) error {
	if len(p.Expect.Output) == 0 {
		return nil
	}

	events, err := p.Ledger.Events.List(ctx, event.Filter{Run: run.ID, Limit: -1})
	if err != nil {
		return err
	}
	var last json.RawMessage
	for _, e := range events {
		if e.Kind == moduleapi.EventResult {
			last = e.Data
		}
	}

	if last == nil {
		p.problem("it returned nothing, wanted %s", p.Expect.Output)
		return nil
	}
	var said struct {
		Value json.RawMessage
		Text  string // replaces a value that is not kept
	}
	if err := json.Unmarshal(last, &said); err != nil {
		return err
	}
	if said.Value == nil {
		p.problem("what it returned is too large to be compared: %s", said.Text)
		return nil
	}
	return p.contains("output", said.Value, p.Expect.Output)
}

func (p *played) compareWorkspace(ctx context.Context, run ledger.Run) error {
	if len(p.Expect.State) == 0 && len(p.Expect.Artifacts) == 0 {
		return nil
	}
	if run.Workspace == 0 {
		p.problem("it worked in no workspace; name one: workspace")
		return nil
	}

	w, err := p.Ledger.Workspaces.Get(ctx, run.Workspace)
	if err != nil {
		return err
	}
	if len(p.Expect.State) > 0 {
		if err := p.contains("state", w.State, p.Expect.State); err != nil {
			return err
		}
	}

	all, err := p.Ledger.Workspaces.Artifacts(ctx, w.ID, false)
	if err != nil {
		return err
	}
	for _, want := range p.Expect.Artifacts {
		found, err := p.hasArtifact(ctx, all, want)
		if err != nil {
			return err
		}
		if !found {
			p.problem("no artifact is %s; there are: %s", want, strings.Join(described(all), "; "))
		}
	}
	return nil
}

// hasArtifact reports whether an artifact matches the expectation.
func (p *played) hasArtifact(ctx context.Context, all []artifact.Artifact, want Artifact) (bool, error) {
	for _, a := range all {
		if want.Title != "" && a.Title != want.Title || want.Type != "" && a.Type != want.Type || want.Status != "" && a.Status != want.Status || want.Version != 0 && a.Version != want.Version {
			continue
		}
		_, content, err := p.Ledger.Artifacts.Bytes(ctx, a.Run, a.ID)
		if err != nil || strings.Contains(string(content), want.Contains) {
			return err == nil, err
		}
	}
	return false, nil
}

// String returns the expectation as JSON.
func (a Artifact) String() string {
	raw, err := json.Marshal(map[string]any{"title": a.Title, "type": a.Type, "status": a.Status, "version": a.Version, "contains": a.Contains})
	if err != nil {
		return a.Title
	}
	return string(raw)
}

func described(all []artifact.Artifact) (out []string) {
	for _, a := range all {
		out = append(out, fmt.Sprintf("%q (%s, %s, version %d)", a.Title, a.Type, a.Status, a.Version))
	}
	if len(out) == 0 {
		return []string{"none"}
	}
	return out
}

func (p *played) contains(what string, got, want json.RawMessage) error {
	var g, w any
	if err := json.Unmarshal(got, &g); err != nil {
		return fmt.Errorf("the %s of the run cannot be read: %w", what, err)
	}
	if err := json.Unmarshal(want, &w); err != nil {
		return err
	}
	for _, d := range differences(what, g, w) {
		p.problem("%s", d)
	}
	return nil
}

// differences returns the differences between a value and the expected value. An object may have
// additional keys. A list may not have additional items.
func differences(at string, got, want any) (out []string) {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			break
		}
		for _, key := range slices.Sorted(maps.Keys(w)) {
			value, there := g[key]
			if !there {
				out = append(out, fmt.Sprintf("%s.%s is missing, wanted %s", at, key, shown(w[key])))
				continue
			}
			out = append(out, differences(at+"."+key, value, w[key])...)
		}
		return out
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			break
		}
		for i := range w {
			out = append(out, differences(fmt.Sprintf("%s[%d]", at, i), g[i], w[i])...)
		}
		return out
	}

	if reflect.DeepEqual(got, want) {
		return nil
	}
	return []string{fmt.Sprintf("%s is %s, wanted %s", at, shown(got), shown(want))}
}

func shown(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return text.Truncate(string(raw), maxShown)
}
