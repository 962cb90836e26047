package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"rouse/cmd/internal/api"
	"rouse/internal/contract"
	"rouse/internal/domain"
	"rouse/internal/ledger/artifact"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/workspace"
)

// TestPrintWorkspace checks the run in a workspace, its progress, the reason for which it waits,
// and the possible commands (OSL-38). Texts of skills and models must not move the cursor or add
// lines.
func TestPrintWorkspace(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "OSL-38")
	d := api.WorkspaceDetail{
		Workspace: api.Workspace{ID: "3", Name: "ro\x1b[2Jme", Skill: "trips", Agent: "ann", Status: workspace.Active, Phase: "draft\n  review    none", LockVersion: 7},
		State:     json.RawMessage(`{"n":1}`),
		Active: []api.WorkspaceRun{
			{
				Run:  api.Run{ID: "12", State: domain.StateWaiting, WaitingFor: domain.WaitInput},
				Step: "book", Progress: json.RawMessage(`{"value":0.4,"text":"asking\n"}`),
				Inbox: []api.Item{{ID: "5", Kind: inbox.KindInput, Message: "Which train?", InputSchema: json.RawMessage(`{"type":"object"}`)}},
			},
			{Run: api.Run{ID: "13", State: domain.StateWaiting, WaitingFor: domain.WaitRetry}, Progress: json.RawMessage(`null`)},
		},
		Artifacts: []api.WorkspaceArtifact{
			{Artifact: api.Artifact{ID: "8", Version: 2, Size: 6}, Title: "Plan", Status: "approved", Approval: artifact.Approved},
			{Artifact: api.Artifact{ID: "9", Version: 1}, Title: "Bill\x1b[1A", Type: "pdf", Status: "approved"},
		},
		Events: []api.WorkspaceEvent{{Kind: workspace.JobEvent, Run: "12", Data: json.RawMessage(`{"state":"comp\u001bleted"}`)}, {Kind: "changed", Run: "12"}},
	}

	var b strings.Builder
	printWorkspace(&b, d, time.Now())
	if strings.Contains(b.String(), "\x1b") {
		t.Errorf("it moves the cursor: %q", b.String())
	}
	for _, want := range []string{
		"\n  works     run 12  ? waiting: input, at the step book, 40 %: asking\n            Which train?\n            " + row.Quote("rouse answer") + " 5 (asks for each value), or rouse answer 5 '{…}'\n            " + row.Quote("rouse stop") + " 12\n",
		"\n  works     run 13  ? waiting: retry\n            " + row.Quote("rouse retry") + " 13, or rouse stop 13\n",
		"\n  artifact  8  Plan (version 2, 6 B): approved\n",
		"\n  program   of run 12, –: comp�leted\n",
		"(pdf, version 1, 0 B): approved; nobody has approved it\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "\n  review") {
		t.Errorf("a phase looks like a line of its own:\n%s", b.String())
	}
}
