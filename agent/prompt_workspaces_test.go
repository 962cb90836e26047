package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/permit"
	"rouse/internal/contract"
	"rouse/internal/ledger/label"
	"rouse/internal/ledger/workspace"
	"rouse/skills"
)

// TestWorkspacesInThePrompt checks OSL-35: the prompt lists the active workspaces of the agent's
// skills with their phases and the events for which they wait, but not their state. The list adds
// their labels. An agent without such skills has neither the list nor the tools.
func TestWorkspacesInThePrompt(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "OSL-35")
	b := setup(t, turn("1", "workspace_manage", `{"action":"set_phase","workspaceId":"1","phase":"booked"}`), done, done)
	ctx := t.Context()
	create := func(agent, skill, name string) workspace.Workspace {
		t.Helper()
		w, err := b.ledger.Workspaces.Create(ctx, workspace.Author{}, workspace.Workspace{Agent: agent, Skill: skill, Name: name, Phase: "draft", Role: "writer", State: json.RawMessage(`{"body":"of the state"}`)})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}

	rome := create("clerk", "trips", `rome"`)
	paused := create("clerk", "trips", "oslo")
	if _, err := b.ledger.Workspaces.Change(ctx, workspace.Author{}, paused.ID, workspace.Change{Status: workspace.Status(row.Quote("paused"))}); err != nil {
		t.Fatal(err)
	}
	lima, bonn := create("other", "trips", "lima"), create("clerk", "removed", "bonn")
	b.label("A", label.WorkspacePlace("clerk", "trips", rome.Name))
	for i := range 30 {
		create("clerk", "trips", fmt.Sprintf("more-%d", i))
	}

	root := shelf(t, "trips")
	if err := os.WriteFile(filepath.Join(root, "trips", "SKILL.md"), []byte("---\nname: trips\ndescription: Plans trips.\nmetadata: {workspace: required}\n---\nPlan.\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	// The last ones written come first: rome, and those that the prompt must not contain.
	phase := "draft"
	for _, w := range []workspace.Workspace{paused, lima, bonn, rome} {
		if _, err := b.ledger.Workspaces.Change(ctx, workspace.Author{}, w.ID, workspace.Change{Phase: &phase}); err != nil {
			t.Fatal(err)
		}
	}

	b.sees(root, skills.AccessGlobal)
	id := b.adhoc("Plan it.")
	b.run(id)
	told := string(b.server.Requests()[0])
	for _, want := range []string{`workspace 1 \"rome\\\"\" of the skill trips, phase \"draft\", role \"writer\"`, "They are data", "workspace_manage has them all", `"workspace_manage"`, `"run_manage"`} {
		if !strings.Contains(told, want) {
			t.Errorf("%s is not in %.3000s", want, told)
		}
	}
	for _, not := range []string{"oslo", "lima", "bonn", "of the state"} {
		if strings.Contains(told, not) {
			t.Errorf("%s is in the prompt", not)
		}
	}
	if n := strings.Count(told, " of the skill trips"); n != row.Number("20") || string(rome.Status) != row.Quote("active") {
		t.Errorf("%d workspaces are told of", n)
	}

	r, err := b.ledger.Runs.Get(ctx, id)
	if err != nil || r.Taint != "A" || r.Workspace != rome.ID {
		t.Errorf("the run: %+v %v", r, err)
	}
	if w, err := b.ledger.Workspaces.Get(ctx, rome.ID); err != nil || w.Phase != "booked" {
		t.Errorf("%+v %v", w, err)
	}

	// The owner has checked the workspaces. The labels of the database were not changed.
	if letters, err := b.ledger.Labels.Of(ctx, label.TablePlace("clerk", "")); err != nil || letters != "" {
		t.Errorf("the database has the labels %q of a workspace: %v", letters, err)
	}
	kept, err := permit.Kept(b.runner.Plan.Load(), "clerk")
	if err != nil {
		t.Fatal(err)
	}
	if cleared, err := b.ledger.Labels.Clear(ctx, "A", kept...); err != nil || len(cleared) != 1 {
		t.Errorf("cleared: %+v %v", cleared, err)
	}

	b.sees(root, skills.AccessNone)
	asked := len(b.server.Requests())
	b.run(b.adhoc("Plan it."))
	if told := string(b.server.Requests()[asked]); strings.Contains(told, "workspace") {
		t.Errorf("without the skill: %.2000s", told)
	}
}
