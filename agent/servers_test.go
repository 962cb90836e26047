package agent_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"rouse/agent/model/modeltest"
	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/agent/servers"
	"rouse/agent/tool/mcp"
	"rouse/agent/tool/shell"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/event"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/label"
	"rouse/internal/noexec"
)

// mcpKey is the environment variable that makes this binary an MCP server.
const mcpKey = "ROUSE_TEST_MCP"

// serveMCP runs a server that records its start and each call in its working folder.
func serveMCP(says string) {
	note := func(name string) {
		f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err == nil {
			fmt.Fprint(f, "x")
			f.Close()
		}
	}
	note("starts")

	s := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	add := func(name string, do func()) {
		sdk.AddTool(s, &sdk.Tool{Name: name, Description: says}, func(ctx context.Context, r *sdk.CallToolRequest, _ struct{}) (*sdk.CallToolResult, any, error) {
			note(name)
			do()
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "done " + name}}}, nil, nil
		})
	}
	add("work", func() {})
	add("other", func() {})
	add("die", func() { os.Exit(1) })
	add("ask", func() { // without the library, which would notice that no client offers this
		fmt.Println(`{"jsonrpc":"2.0","id":"roots","method":"roots/list"}`)
	})
	sdk.AddTool(s, &sdk.Tool{Name: "file", Description: says}, func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, any, error) {
		file := func(uri, data string) sdk.Content {
			return &sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: uri, MIMEType: "application/octet-stream", Blob: []byte(data)}}
		}
		return &sdk.CallToolResult{Content: []sdk.Content{file("x://a/table.csv", "a,b\n1,sk-canary"), file("x://b/table.csv", "c\n2"), file("x://a/table.csv", "a,b\n1,sk-canary"), file("x://../../etc/.x", "\x00\x01")}}, nil, nil
	})
	_ = s.Run(context.Background(), &sdk.StdioTransport{})
}

// served gives the agents an MCP server with approved tools.
func (b *bench) served() mcp.Server {
	b.t.Helper()
	me, err := os.Executable()
	if err != nil {
		b.t.Fatal(err)
	}
	s := mcp.Server{Name: "srv", Argv: []string{me}, Read: []string{me}, Env: []string{mcpKey + "=Does something."}, Files: shell.ExposeWriting, Start: 3 * time.Minute}
	b.plan.Servers = []mcp.Server{s}
	for name, a := range b.plan.Agents {
		a.Servers, a.MinTier = []mcp.Server{s}, "B"
		b.plan.Agents[name] = a
	}
	b.runner.Set(b.plan)
	if _, err := b.runner.Servers.Look(b.t.Context(), "srv", ""); err != nil {
		b.t.Fatal(err)
	}
	if _, _, err := b.runner.Servers.Approve(b.t.Context(), "srv", nil, nil); err != nil {
		b.t.Fatal(err)
	}
	for _, name := range []string{"starts"} {
		_ = os.Remove(filepath.Join(b.plan.Agents["clerk"].Workdir, name))
		_ = os.Remove(filepath.Join(b.plan.Agents["plain"].Workdir, name))
	}
	return s
}

// TestLookAtServer checks that a server is started without the folders of its agents and without a
// network to list its tools. If the owner names an agent, the server gets that agent's access, and
// the places that it may write to are labelled. Both are recorded. A request that must not start
// programs starts no server.
func TestLookAtServer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.served() // also lists the tools without folders
	work := b.plan.Agents["clerk"].Workdir
	started := func() bool {
		_, err := os.Stat(filepath.Join(work, "starts"))
		return err == nil
	}
	labelled := func() bool {
		all, err := b.ledger.Labels.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(all, func(l label.Label) bool { return l.Letter == "A" && l.Kind == label.PlaceFile })
	}

	if _, err := b.runner.Servers.Look(t.Context(), "srv", ""); err != nil || started() || labelled() {
		t.Errorf("looked at without folders: %v, it wrote into the workdir: %t, labelled: %t", err, started(), labelled())
	}
	if _, err := b.runner.Servers.Look(noexec.With(t.Context()), "srv", "clerk"); !errors.Is(err, noexec.Err) || started() {
		t.Errorf("a request that looks: %v, it wrote into the workdir: %t", err, started())
	}
	if _, err := b.runner.Servers.Look(t.Context(), "srv", "nobody"); err == nil {
		t.Error("it was given the folders of an agent that does not have it")
	}
	if _, err := b.runner.Servers.Look(t.Context(), "srv", "clerk"); err != nil || !started() || !labelled() {
		t.Errorf("looked at as an agent: %v, it wrote into the workdir: %t, labelled: %t", err, started(), labelled())
	}

	var looks []string
	for _, e := range events(t, b, 0) {
		if e.Kind == "mcp.looked" {
			looks = append(looks, string(e.Data))
		}
	}
	if len(looks) != 3 || !strings.Contains(looks[1], `"files":"none"`) || !strings.Contains(looks[2], `"agent":"clerk","files":"write"`) {
		t.Errorf("on record is %q", looks)
	}
}

// TestLookNeedsFolders checks that a server that does not start without its folders reports how to
// grant them.
func TestLookNeedsFolders(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.served()
	s.Argv = []string{"sh", "-c", "exit 3"}
	b.plan.Servers = []mcp.Server{s}
	b.runner.Set(b.plan)
	_, err := b.runner.Servers.Look(t.Context(), "srv", "")
	if !errors.As(err, new(*servers.BareError)) || !strings.Contains(err.Error(), "rouse mcp-servers show srv --as ") {
		t.Errorf("%v", err)
	}
}

// TestServerInRuns checks that a model calls the tools of its agent's MCP server, which is started
// once, when the run needs it. Requests of the server are recorded. A replay uses the recording and
// starts no server.
func TestServerInRuns(t *testing.T) {
	t.Parallel()
	b := setup(t, callOf("srv__work", `{}`), callOf("srv__ask", `{}`), modeltest.Turn{Text: "It is done."}, modeltest.Turn{Text: "Nothing to do."})
	b.plan.Jobs["ask"] = plan.Job{Name: "ask", Agent: "clerk", Prompt: "Do it."}
	b.record()
	b.served()
	work := b.plan.Agents["clerk"].Workdir
	read := func(name string) string {
		text, _ := os.ReadFile(filepath.Join(work, name))
		return string(text)
	}

	id, res := b.asks()
	if res.Summary != "It is done." || read("work") != "x" || read("starts") != "x" {
		t.Errorf("%+v; work %q, starts %q", res, read("work"), read("starts"))
	}
	run, err := b.ledger.Runs.Get(t.Context(), id)
	if err != nil || !strings.Contains(run.Taint, "A") {
		t.Errorf("the run carries %q (%v)", run.Taint, err)
	}
	var declined bool
	for _, e := range events(t, b, id) {
		declined = declined || e.Kind == "mcp.declined" && strings.Contains(string(e.Data), "roots/list")
	}
	if !declined {
		t.Error("what the server asked for is not on record")
	}

	b.end(id, res)
	b.same(id)
	if read("starts") != "x" {
		t.Error("the replay started the server")
	}

	if _, res := b.asks(); res.Summary != "Nothing to do." || read("starts") != "x" {
		t.Errorf("a run that calls no tool of it started the server: %+v", res)
	}
}

func events(t *testing.T, b *bench, run int64) []ledger.Event {
	t.Helper()
	out, err := b.ledger.Events.List(t.Context(), event.Filter{Run: run, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestServerSendsFiles checks that content that is not text becomes an artifact of the run, and a
// file that its agent can read during the run.
func TestServerSendsFiles(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.plan.Secrets = append(b.plan.Secrets, "sk-canary")
	b.served()
	folder := filepath.Join(b.dir, "manifests", "1.files")
	b.plan.Jobs["calls"] = plan.Job{Name: "calls", Agent: "plain", Playbook: []playbook.Call{{Name: "srv__file"}, {Name: "file_read", With: map[string]any{"path": filepath.Join(folder, "table-2.csv")}}}}
	b.runner.Set(b.plan)
	id := b.enqueue(ledger.Request{Job: "calls", Agent: "plain"})
	if res := b.ends(id); id != 1 || res.Outcome != domain.OutcomeSuccess {
		t.Fatalf("run %d: %+v", id, res)
	}

	calls, err := b.ledger.Steps.Calls(t.Context(), id)
	if err != nil || len(calls) != 2 || !strings.Contains(string(calls[1].Envelope), "c") || calls[1].State != domain.CallDone {
		t.Fatalf("%+v (%v)", calls, err)
	}
	if envelope := string(calls[0].Envelope); !strings.Contains(envelope, fmt.Sprintf(`{"name":"table.csv","media_type":"application/octet-stream","size":15,"path":%q}`, filepath.Join(folder, "table.csv"))) || strings.Contains(envelope, "sk-canary") {
		t.Errorf("%s", envelope)
	}
	kept, err := b.ledger.Artifacts.List(t.Context(), id)
	if err != nil || len(kept) != 4 || kept[0].Name != "table.csv" || kept[0].Description != "application/octet-stream" || kept[3].Name != "x.bin" {
		t.Errorf("%+v (%v)", kept, err)
	}
	if _, data, err := b.ledger.Artifacts.Bytes(t.Context(), id, kept[0].ID); err != nil || strings.Contains(string(data), "sk-canary") {
		t.Errorf("the artifact is %q (%v)", data, err)
	}
	if found, err := os.ReadDir(folder); err != nil || len(found) != 3 {
		t.Errorf("%v (%v)", found, err)
	}
	if err := b.runner.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Errorf("the files are still there: %v", err)
	}
}

// TestServerDies checks that a call is uncertain if its server dies. A later attempt repeats
// neither this call nor earlier calls, and its owner decides.
func TestServerDies(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.served()
	b.plan.Jobs["calls"] = plan.Job{Name: "calls", Agent: "plain", Playbook: []playbook.Call{{Name: "srv__work"}, {Name: "srv__die"}, {Name: "srv__other"}}}
	b.runner.Set(b.plan)
	id := b.enqueue(ledger.Request{Job: "calls", Agent: "plain", Detail: ledger.TriggerDetail{}})
	if res := b.run(id); res.Outcome != domain.OutcomeError || !strings.Contains(res.Error, "Whether the call took effect is unknown") {
		t.Fatalf("%+v", res)
	}

	calls, err := b.ledger.Steps.Calls(t.Context(), id)
	if err != nil || len(calls) != 2 || calls[1].State != domain.CallUncertain || !strings.Contains(string(calls[1].Envelope), "exit code 1") {
		t.Fatalf("%+v (%v)", calls, err)
	}
	run, err := b.ledger.Runs.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.ledger.Interrupt(t.Context(), ledger.Attempt{Run: id, Number: run.Attempt}, "tried again", nil); err != nil {
		t.Fatal(err)
	}

	if res := b.ends(id); res.Wait == nil || res.Wait.Kind != inbox.KindRecovery {
		t.Fatalf("the second attempt: %+v", res)
	}
	b.say(inbox.RecoveryDone)
	if res := b.ends(id); res.Outcome != domain.OutcomeSuccess {
		t.Errorf("the third attempt: %+v", res)
	}
	for name, want := range map[string]string{"work": "x", "die": "x", "other": "x"} {
		if got := b.text("plain", name); got != want {
			t.Errorf("%s was called %q", name, got)
		}
	}
}

// TestServerChanges checks that a server with changed tools is refused, that its owner finds this
// in the inbox, and that the definitions of its agents name the server.
func TestServerChanges(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.served()
	s.Env = []string{mcpKey + "=Does something else."}
	b.plan.Servers = []mcp.Server{s}
	plain := b.plan.Agents["plain"]
	plain.Servers = []mcp.Server{s}
	b.plan.Agents["plain"] = plain
	b.plan.Jobs["calls"] = plan.Job{Name: "calls", Agent: "plain", Playbook: []playbook.Call{{Name: "srv__work"}}}
	b.runner.Set(b.plan)

	id := b.enqueue(ledger.Request{Job: "calls", Agent: "plain"})
	if res := b.ends(id); res.Outcome != domain.OutcomeError || !strings.Contains(res.Error, "has changed its tool work since it was approved") || b.text("plain", "work") != "" {
		t.Errorf("%+v", res)
	}
	if i := b.open(); i.Kind != inbox.KindInfo || !strings.Contains(i.Message, "changed: ask, die, file, other, work") {
		t.Errorf("%+v", i)
	}

	st, _ := b.runner.Servers.Get("srv")
	shown := map[string]string{}
	for _, one := range st.Tools {
		shown[one.Name] = one.Hash
	}
	shown["work"] = "another"
	if _, _, err := b.runner.Servers.Approve(t.Context(), "srv", nil, shown); err == nil {
		t.Error("what nobody was shown was approved")
	}
}

// TestModuleNeedsServer checks OSL-33: a skill that requires an MCP server runs if its agent has
// the server with the required tools approved. It can call only these tools.
func TestModuleNeedsServer(t *testing.T) {
	t.Parallel()
	const body = `return {said: (await host.tools.invoke("srv__work", {})).text};`
	needs := declares{"requiredMcpTools": []any{declares{"serverName": "srv", "toolName": "work", "description": "x"}}}
	for name, c := range map[string]struct {
		change func(*bench)
		says   string
	}{
		"has it":       {func(*bench) {}, ""},
		"has no":       {func(b *bench) { b.withoutServers() }, "the MCP server srv"},
		"not approved": {func(b *bench) { _, _ = b.runner.Servers.Revoke(b.t.Context(), "srv", []string{"work"}) }, "is not approved"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.served()
			c.change(b)
			_, res := b.runModule(body, nil, needs)
			if c.says == "" && res.Outcome != domain.OutcomeSuccess || c.says != "" && !strings.Contains(res.Error, c.says) {
				t.Errorf("%+v", res)
			}
		})
	}
}

func (b *bench) withoutServers() {
	for name, a := range b.plan.Agents {
		a.Servers = nil
		b.plan.Agents[name] = a
	}
}
