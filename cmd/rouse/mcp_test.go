package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
	"rouse/cmd/internal/homedir"
)

// bearer adds the token to each request.
type bearer struct{ token string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return http.DefaultTransport.RoundTrip(r)
}

// mcpClient is a client of the official SDK.
type mcpClient struct {
	t       *testing.T
	session *mcp.ClientSession
	updated chan string // URIs of updated resources
}

func newMCPClient(t *testing.T, over mcp.Transport) *mcpClient {
	t.Helper()
	c := &mcpClient{t: t, updated: make(chan string, 100)}
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) { c.updated <- r.Params.URI },
	})
	var err error
	if c.session, err = client.Connect(t.Context(), over, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.session.Close() })
	return c
}

// call calls a tool. ok is false if the call failed.
func (c *mcpClient) call(name string, args map[string]any) (text string, ok bool) {
	c.t.Helper()
	res, err := c.session.CallTool(c.t.Context(), &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		return err.Error(), false
	}
	for _, content := range res.Content {
		if t, is := content.(*mcp.TextContent); is {
			text += t.Text
		}
	}
	return text, !res.IsError
}

func (c *mcpClient) says(name string, args map[string]any, want string) {
	c.t.Helper()
	if text, ok := c.call(name, args); !ok || !strings.Contains(text, want) {
		c.t.Errorf("%s %v: %v %s, want %s", name, args, ok, text, want)
	}
}

func (c *mcpClient) refuses(name string, args map[string]any, want string) {
	c.t.Helper()
	if text, ok := c.call(name, args); ok || !strings.Contains(text, want) {
		c.t.Errorf("%s %v: %v %s, want a refusal: %s", name, args, ok, text, want)
	}
}

// TestMCP checks rouse as an MCP server, over standard input and output and over the network. A
// client asks why a job did not run, starts a run, answers a question, reads a database, and is
// notified about the end of a run. It can neither approve actions nor change rows.
func TestMCP(t *testing.T) {
	t.Parallel()
	s := modeltest.New(t,
		modeltest.Turn{Calls: []model.Call{{ID: "1", Name: "clarify", Args: json.RawMessage(`{"question":"Which account?"}`)}}},
		modeltest.Turn{Calls: []model.Call{{ID: "2", Name: "complete", Args: json.RawMessage(`{"summary":"Booked on the account that was named."}`)}}})
	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
home: ./home
models: [{name: scripted, provider: openai, model: scripted, base_url: "` + s.URL + `/v1", api_key: none}]
agents: [{name: clerk, workdir: ./work, grants: {commands: [{argv: [echo]}]}}]
jobs:
  - {name: books, agent: clerk, prompt: Do the books.}
  - {name: risky, agent: clerk, min_tier: B, playbook: [{call: shell_run, with: {command: "touch x"}}]}
  - {name: note, agent: clerk, playbook: [{call: share_artifact, with: {content: "<b>hello</b> {{ .Input.who }}", filename: note.txt}}, {call: complete, with: {summary: "wrote a note for {{ .Input.who }}, as it was asked for"}}]}
  - {name: nightly, agent: clerk, schedule: "0 8 * * *", playbook: [{call: complete, with: {summary: "looked at everything that there is to see"}}]}
`})
	config := filepath.Join(dir, "rouse.yaml")

	// Without a daemon a client can read the history, but cannot start a run.
	stdio := newMCPClient(t, &mcp.CommandTransport{Command: mcpCommand(t, config)})
	stdio.says("list_jobs", nil, `"nightly"`)
	stdio.refuses("run_job", map[string]any{"job": "note"}, "rouse serve")

	p := endtoend.Serve(t, config)
	defer p.Stop(t)
	if out, err := endtoend.Rouse(t, "call", "clerk", "db_create_table", `{"name": "log", "purpose": "What happened", "columns": [{"name": "what", "type": "TEXT"}]}`, "--config", config).Quietly(); err != nil {
		t.Fatal(out)
	}
	endtoend.RunJSON(t, nil, "pause", "nightly", "--for", "2h", "--json", "--config", config)

	client, st, err := homedir.Connect(t.Context(), filepath.Join(dir, "home"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	token, err := os.ReadFile(filepath.Join(dir, "home", "dashboard", "token"))
	if err != nil {
		t.Fatal(err)
	}
	endpoint := strings.TrimSuffix(st.Dashboard, "/") + "/mcp"
	if resp, err := http.Post(endpoint, "application/json", strings.NewReader("{}")); err != nil || resp.StatusCode != http.StatusUnauthorized { //nolint:noctx,bodyclose // the request is refused
		t.Errorf("without a token: %v, %v", resp, err)
	}
	network := newMCPClient(t, &mcp.StreamableClientTransport{Endpoint: endpoint, HTTPClient: &http.Client{Transport: bearer{strings.TrimSpace(string(token))}}})

	for name, c := range map[string]*mcpClient{"stdio": stdio, "network": network} {
		if err := c.session.Ping(t.Context(), nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		tools, err := c.session.ListTools(t.Context(), nil)
		if err != nil || len(tools.Tools) != 10 {
			t.Errorf("%s: %d tools (%v)", name, len(tools.Tools), err)
		}
		c.says("why", map[string]any{"job": "nightly"}, "paused until")
		c.refuses("why", map[string]any{"job": "nightl"}, "did you mean")
		c.refuses("nothing", nil, "nothing")
		c.refuses("why", map[string]any{"jobb": "nightly"}, "jobb")
		c.refuses("query_database", map[string]any{"agent": "clerk", "sql": "insert into log (what) values ('x')"}, "")
		c.says("query_database", map[string]any{"agent": "clerk", "sql": "select count(*) as n from log"}, `0`)
		c.says("database_schema", map[string]any{"agent": "clerk"}, "What happened")
		c.says("run_job", map[string]any{"job": "note", "input": map[string]string{"who": name}, "wait_seconds": 60}, "wrote a note for "+name)
		c.refuses("show_run", map[string]any{"run": "4711"}, "4711")
		if _, err := c.session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "rouse://nothing"}); err == nil {
			t.Errorf("%s: a resource that is not there", name)
		}
	}

	// It is unknown which content the models of these clients have read, so the runs are tainted.
	for _, r := range endtoend.RunsOf(t, config, "note") {
		if !slices.Contains(r.Taint, "A") {
			t.Errorf("run %s has the labels %v", r.ID, r.Taint)
		}
	}

	network.resources()
	network.answers(client)
}

// mcpCommand returns the MCP server as a command that a transport starts.
func mcpCommand(t *testing.T, config string) *exec.Cmd {
	p := endtoend.Rouse(t, "mcp", "--config", config)
	p.Stdout = nil
	return p.Cmd
}

// resources reads the resources and waits for the notification about the end of a run.
func (c *mcpClient) resources() {
	c.t.Helper()
	ctx := c.t.Context()
	read := func(uri string) string {
		c.t.Helper()
		res, err := c.session.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri})
		if err != nil || len(res.Contents) != 1 {
			c.t.Errorf("%s: %+v (%v)", uri, res, err)
			return ""
		}
		return res.Contents[0].Text
	}
	if text, _ := c.call("list_runs", map[string]any{"job": "note", "outcome": "success", "text": "in no run"}); text != "[]" {
		c.t.Errorf("runs with a text that no run has: %s", text)
	}
	text, _ := c.call("list_runs", map[string]any{"job": "note", "limit": 1})
	var runs []struct{ ID, URI string }
	if err := json.Unmarshal([]byte(text), &runs); err != nil || len(runs) != 1 {
		c.t.Fatalf("%s (%v)", text, err)
	}
	var run struct{ Artifacts []struct{ ID string } }
	if err := json.Unmarshal([]byte(read(runs[0].URI)), &run); err != nil || len(run.Artifacts) != 1 {
		c.t.Fatalf("%+v (%v)", run, err)
	}
	if got := read(runs[0].URI + "/artifacts/" + run.Artifacts[0].ID); !strings.HasPrefix(got, "<b>hello</b> ") {
		c.t.Errorf("the artifact reads %q", got)
	}

	if err := c.session.Subscribe(ctx, &mcp.SubscribeParams{URI: "rouse://runs"}); err != nil {
		c.t.Fatal(err)
	}
	cmdtest.Until(c.t, "word of a run that has ended", func() bool {
		c.says("run_job", map[string]any{"job": "note", "input": map[string]string{"who": "me"}, "wait_seconds": 60}, "wrote a note")
		select {
		case uri := <-c.updated:
			return uri == "rouse://runs"
		default:
			return false
		}
	})
}

// answers answers a question, and checks that a client cannot approve.
func (c *mcpClient) answers(client *api.Client) {
	c.t.Helper()
	c.says("run_job", map[string]any{"job": "books", "wait_seconds": 60}, "Which account?")
	c.says("run_job", map[string]any{"job": "risky", "wait_seconds": 60}, `"approval"`)

	var items []api.Item
	if err := client.Get(c.t.Context(), "/v1/inbox", nil, &items); err != nil || len(items) != 2 {
		c.t.Fatalf("%+v (%v)", items, err)
	}
	item := func(kind string) string {
		return items[slices.IndexFunc(items, func(i api.Item) bool { return i.Kind == kind })].ID
	}
	c.says("inbox", nil, "touch x")
	c.refuses("answer", map[string]any{"item": item("approval"), "text": "once"}, "approval")
	c.says("answer", map[string]any{"item": item("input"), "text": "Girokonto"}, `"books"`)
	cmdtest.Until(c.t, "the end of the run that asked", func() bool {
		text, _ := c.call("list_runs", map[string]any{"job": "books"})
		return strings.Contains(text, "Booked on the account")
	})
	if err := client.Get(c.t.Context(), "/v1/inbox", nil, &items); err != nil || len(items) != 1 || items[0].Kind != "approval" {
		c.t.Errorf("%+v (%v)", items, err)
	}
}
