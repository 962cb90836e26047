package crash

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
	"rouse/internal/domain"
)

// tallyServer is an MCP server in shell. Each call of a tool appends a line to FOLDER/calls. A call
// of "slow" ends only when FOLDER/go exists.
const tallyServer = `#!/bin/sh
say() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case $line in
  *'"initialize"'*) say '{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"tally","version":"1"}}' ;;
  *'"tools/list"'*) say '{"tools":[{"name":"quick","description":"Counts.","inputSchema":{"type":"object"}},{"name":"slow","description":"Counts slowly.","inputSchema":{"type":"object"}}]}' ;;
  *'"tools/call"'*'"quick"'*) echo quick >>FOLDER/calls; say '{"content":[{"type":"text","text":"counted"}]}' ;;
  *'"tools/call"'*'"slow"'*) echo slow >>FOLDER/calls; while ! test -e FOLDER/go; do sleep 0.1; done; say '{"content":[{"type":"text","text":"counted"}]}' ;;
  *'"id":'*) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"unknown"}}\n' "$id" ;;
  esac
done
`

// tally writes that server and a configuration of an agent that uses it.
func tally(t *testing.T, jobs string) (dir, config string) {
	t.Helper()
	dir = cmdtest.Write(t, map[string]string{"work/empty": ""})
	write(t, filepath.Join(dir, "server/tally.sh"), strings.ReplaceAll(tallyServer, "FOLDER", filepath.Join(dir, "work")), 0o755)
	config = filepath.Join(dir, "rouse.yaml")
	write(t, config, fmt.Sprintf(`version: 1
home: ./home
mcp: [{name: tally, argv: [sh, %[1]s/server/tally.sh], read: [%[1]s/server], files: write}]
agents: [{name: clerk, workdir: ./work, min_tier: B, mcp: [tally], database: {enabled: false}, on_denied: continue, private: {workdir: false}}]
jobs:
%[2]s`, dir, jobs), 0o600)
	return dir, config
}

// TestMCPCallIsCutOff kills the daemon during a call to an MCP server. The daemon cannot know
// whether the call took effect, so it must ask the owner. It must not repeat that call or earlier
// calls.
func TestMCPCallIsCutOff(t *testing.T) {
	t.Parallel()
	dir, config := tally(t, `  - name: count
    agent: clerk
    playbook:
      - {call: tally__quick}
      - {call: tally__slow}
      - {call: complete, with: {summary: "what there was to count was counted, each thing once"}}
`)
	endtoend.RunJSON(t, nil, "mcp-servers", "approve", "tally", "--yes", "--json", "--config", config)
	calls := func() string {
		text, err := os.ReadFile(filepath.Join(dir, "work/calls"))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(string(text)), " ")
	}

	p := endtoend.Serve(t, config)
	endtoend.RunJSON(t, nil, "run", "count", "--json", "--config", config)
	var d api.RunDetail
	cmdtest.Until(t, "the slow call", func() bool {
		if calls() == "quick slow" {
			return true
		}
		endtoend.RunJSON(t, &d, "show", "1", "--json", "--config", config)
		if d.Outcome != "" {
			t.Fatalf("%s %s%s", d.Outcome, d.Summary, d.Error)
		}
		return false
	})
	p.Kill(t)
	p = endtoend.Serve(t, config)

	var items []api.Item
	cmdtest.Until(t, "a question", func() bool {
		endtoend.RunJSON(t, &items, "inbox", "--json", "--config", config)
		return len(items) > 0
	})
	if len(items) != 1 || items[0].Kind != "recovery" || !strings.Contains(items[0].Message, "tally__slow") {
		t.Fatalf("%+v", items)
	}
	endtoend.RunJSON(t, nil, "answer", items[0].ID, "done", "--config", config)
	cmdtest.Until(t, "the end of the run", func() bool {
		endtoend.RunJSON(t, &d, "show", "1", "--json", "--config", config)
		return d.State == domain.StateFinished
	})
	p.Stop(t)
	endtoend.AuditClean(t, config)
	if d.Outcome != domain.OutcomeSuccess || calls() != "quick slow" {
		t.Errorf("%s %s%s; calls: %s", d.Outcome, d.Summary, d.Error, calls())
	}
}

// TestPreflightOfMCPTools checks a playbook that calls an unapproved tool. Its run is blocked
// before it causes costs, and runs once after the approval.
func TestPreflightOfMCPTools(t *testing.T) {
	t.Parallel()
	dir, config := tally(t, `  - name: count
    agent: clerk
    playbook: [{call: tally__quick}, {call: complete, with: {summary: "what there was to count was counted, each thing once"}}]
`)
	p := endtoend.Serve(t, config)
	endtoend.RunJSON(t, nil, "run", "count", "--json", "--config", config)
	preflightSays(t, config, map[string]obstacle{"count": {kind: "mcp", text: "the tool quick of the MCP server tally is not approved"}}, map[string]string{"count": "1"})

	endtoend.RunJSON(t, nil, "mcp-servers", "approve", "tally", "quick", "--yes", "--json", "--config", config)
	var d api.RunDetail
	cmdtest.Until(t, "the end of the run", func() bool {
		endtoend.RunJSON(t, &d, "show", "1", "--json", "--config", config)
		return d.State == domain.StateFinished
	})
	p.Stop(t)
	text, err := os.ReadFile(filepath.Join(dir, "work/calls"))
	if d.Outcome != domain.OutcomeSuccess || d.Attempt != 1 || string(text) != "quick\n" {
		t.Errorf("%+v, calls %q (%v)", d.Run, text, err)
	}
}
