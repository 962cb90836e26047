package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agent/tool/moduleapi/signin/signintest"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/homedir"
	"rouse/cmd/internal/web"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/artifact"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/label"
	"rouse/internal/ledger/workspace"
)

// apiFixture is a daemon with data for all routes of the API.
type apiFixture struct {
	*served
	base  string // base URL on the network
	token string
	done  *api.Run // run of the job report
}

const apiConfig = `
home: ./home
skills: {roots: [{path: ./team}]}
models:
  - {name: m, provider: openai, model: scripted, base_url: "DOES/v1", api_key: none, price: {input: 1, output: 1}}
  - {name: q, provider: openai, model: scripted, base_url: "ASKS/v1", api_key: none}
  - {name: b, provider: openai, model: scripted, base_url: "BREAKS/v1", api_key: none}
agents:
  - {name: ann, model: m, self_scheduling: {mode: ambient}, grants: {commands: [{argv: [echo, hi]}]}}
  - {name: quinn, model: q}
  - {name: away, enabled: false}
  - {name: breaks, model: b}
  - {name: clerk, grants: {network: [{host: "ACME", methods: [GET, POST]}], secrets: [{name: acme-id, only_to: "ACME", private: false}]}}
limits: {runs_per_agent: 4}
mcp:
  - {name: open, url: "SITE/open", private_network: true}
  - {name: guarded, url: "SITE/guarded", private_network: true}
jobs:
  - name: report
    agent: ann
    every: 1h
    record: true
    playbook:
      - {call: db_create_table, with: {name: sums, purpose: "sums of a day", if_not_exists: true, columns: [{name: n, type: integer}]}}
      - {call: db_insert, with: {table: sums, rows: [{n: 1}, {n: 2}]}}
      - {call: db_define_view, with: {name: all_sums, sql: "select n from sums", render_hint: table, refresh: manual}}
      - {call: share_artifact, with: {filename: report.md, content: "# Report\nAll of it.\n"}}
      - {call: file_write, with: {path: out.txt, content: "done"}}
  - {name: drops, agent: ann, watch: {path: ./inbox}, playbook: [{call: file_read, with: {path: "{{.File.Path}}"}}]}
  - {name: acme, agent: clerk, skill: acme}
  - {name: ask, agent: quinn, prompt: "Ask."}
  - {name: shell, agent: ann, playbook: [{call: shell_run, with: {command: "true"}}]}
  - {name: fails, agent: ann, playbook: [{call: file_read, with: {path: not-there}}]}
`

func newAPIFixture(t *testing.T) *apiFixture {
	t.Helper()
	return newAPIFixtureOf(t, apiConfig)
}

func newAPIFixtureOf(t *testing.T, config string) *apiFixture {
	t.Helper()
	does := modeltest.New(t, modeltest.Turn{Text: "All of it is done, as it was asked for.", Usage: model.Usage{Input: 7, Output: 3}})
	asks := modeltest.New(t, modeltest.Turn{Calls: []model.Call{{ID: "1", Name: "clarify", Args: json.RawMessage(`{"question":"Which account?","options":["A","B"]}`)}}})
	breaks := modeltest.New(t, modeltest.Turn{Status: http.StatusBadRequest, Raw: `{"error":{"message":"no"}}`})
	acme := signintest.New(t)
	skill := acmeSkill(t, acme)
	dir := cmdtest.Write(t, map[string]string{
		"rouse.yaml":              strings.NewReplacer("DOES", does.URL, "ASKS", asks.URL, "BREAKS", breaks.URL, "ACME", acme.Host(), "SITE", mcpSite(t).URL).Replace(config),
		"team/words/SKILL.md":     "---\nname: words\ndescription: Counts words.\n---\nCount them.\n",
		"team/acme/manifest.json": skill["skills/acme/manifest.json"],
		"team/acme/module.ts":     skill["skills/acme/module.ts"],
	})
	setSecret(t, filepath.Join(dir, "home"), "acme-id", signintest.ClientID)
	if err := os.Mkdir(filepath.Join(dir, "inbox"), 0o755); err != nil {
		t.Fatal(err)
	}

	f := &apiFixture{served: ServeIn(t, dir, "rouse.yaml")}
	f.base = strings.TrimSuffix(f.Door.URL("/"), "/")
	if f.base == "" {
		t.Fatalf("nobody listens on the network: %s", f.log)
	}
	f.token = f.readToken()
	return f
}

func (f *apiFixture) readToken() string {
	f.t.Helper()
	token, err := os.ReadFile(filepath.Join(f.Dir(), "dashboard", "token"))
	if err != nil {
		f.t.Fatal(err)
	}
	return strings.TrimSpace(string(token))
}

// run starts a run and waits until it is over or waits for a person.
func (f *apiFixture) run(ask api.RunRequest) (out api.Run) {
	f.t.Helper()
	if err := f.client.Post(f.t.Context(), "/v1/runs", ask, &out); err != nil {
		f.t.Fatal(err)
	}
	return f.over(out.ID)
}

func (f *apiFixture) over(id string) (out api.Run) {
	f.t.Helper()
	cmdtest.Until(f.t, "the end of run "+id, func() bool {
		var detail api.RunDetail
		if err := f.client.Get(f.t.Context(), "/v1/runs/"+id, nil, &detail); err != nil {
			f.t.Fatal(err)
		}
		out = detail.Run
		return out.State == domain.StateFinished || out.State == domain.StateWaiting
	})
	return out
}

// reported returns a finished run with all features of a playbook.
func (f *apiFixture) reported() api.Run {
	f.t.Helper()
	if f.done != nil {
		return *f.done
	}
	run := f.run(api.RunRequest{Job: "report"})
	f.done = &run
	if run.Outcome != domain.OutcomeSuccess {
		f.t.Fatalf("%+v", run)
	}
	return run
}

// signIn returns a started sign-in: a run asks for it, and its owner has the link.
func (f *apiFixture) signIn() string {
	f.t.Helper()
	const name = "clerk/acme/acme"
	var there []api.SignIn
	if err := f.client.Get(f.t.Context(), "/v1/sign-ins", nil, &there); err != nil {
		f.t.Fatal(err)
	}
	if len(there) > 0 {
		return name
	}

	f.run(api.RunRequest{Job: "acme"})
	var items []api.Item
	if err := f.client.Get(f.t.Context(), "/v1/inbox", nil, &items); err != nil || !slices.ContainsFunc(items, func(i api.Item) bool { return i.Link != "" }) {
		f.t.Fatalf("%+v (%v)", items, err)
	}
	return name
}

// lookAtMCP reads the tools of an MCP server.
func (f *apiFixture) lookAtMCP() {
	f.t.Helper()
	if err := f.client.Post(f.t.Context(), "/v1/mcp-servers/open/look", api.MCPLook{}, &api.MCPServer{}); err != nil {
		f.t.Fatal(err)
	}
}

// question returns an open item of the inbox.
func (f *apiFixture) question() string {
	f.t.Helper()
	asked := f.run(api.RunRequest{Job: "ask"})
	var detail api.RunDetail
	if err := f.client.Get(f.t.Context(), "/v1/runs/"+asked.ID, nil, &detail); err != nil || len(detail.Inbox) == 0 {
		f.t.Fatalf("%+v, %v", detail, err)
	}
	return detail.Inbox[0].ID
}

func (f *apiFixture) workspace(name string) workspace.Workspace {
	f.t.Helper()
	w, err := f.ledger.Workspaces.Create(f.t.Context(), workspace.Author{}, workspace.Workspace{Agent: "away", Skill: "trips", Name: name, State: json.RawMessage(`{"n":1}`)})
	if err != nil {
		f.t.Fatal(err)
	}
	return w
}

// send sends a request to the daemon's address, with the token unless change removes it.
func (f *apiFixture) send(method, path, contentType string, body io.Reader, change func(*http.Request)) *http.Response {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), method, f.base+path, body)
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+f.token)
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	if change != nil {
		change(r)
	}

	// Do not follow redirects. Use a new connection for each request, because some are closed
	// early.
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Transport: &http.Transport{DisableKeepAlives: true, ExpectContinueTimeout: cmdtest.Patience}}
	resp, err := client.Do(r)
	if err != nil {
		f.t.Fatalf("%s %s: %v", method, path, err)
	}
	f.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// routes returns all routes of the daemon.
func (f *apiFixture) routes() []web.Route {
	handler, ok := f.Handler.(*web.Handler)
	if !ok {
		f.t.Fatalf("%T", f.Handler)
	}
	return handler.Routes()
}

// request is a request to which a route responds with success.
type request struct {
	path string
	body string
}

// examples returns a request for each route. It is created when it is needed.
func (f *apiFixture) examples() map[string]func() request {
	at := func(path string) func() request { return func() request { return request{path: path} } }
	with := func(path, body string) func() request {
		return func() request { return request{path: path, body: body} }
	}
	inWorkspace := func(name, path string) func() request {
		return func() request {
			return request{path: strings.Replace(path, "ID", idOf(f.workspace(name).ID), 1), body: "{}"}
		}
	}

	return map[string]func() request{
		"GET /v1/status":  at("/v1/status"),
		"GET /v1/engine":  at("/v1/engine"),
		"GET /v1/state":   at("/v1/state"),
		"GET /v1/doctor":  at("/v1/doctor?offline=true"),
		"POST /v1/doctor": with("/v1/doctor", `{"offline":true}`),
		"POST /v1/reload": with("/v1/reload", "{}"),
		"GET /v1/events":  at("/v1/events?kind=run.*"),

		"GET /v1/jobs":   at("/v1/jobs"),
		"GET /v1/agents": at("/v1/agents"),
		"GET /v1/next":   at("/v1/next?n=3&job=report"),
		"GET /v1/budget": at("/v1/budget"),
		"GET /v1/cost":   at("/v1/cost"),
		"GET /v1/why":    at("/v1/why?job=report&n=5"),

		"GET /v1/why/file": func() request {
			return request{path: "/v1/why/file?path=" + url.QueryEscape(filepath.Join(filepath.Dir(f.Dir()), "inbox", "a.csv.part"))}
		},

		"POST /v1/jobs/{name}/backfill": with("/v1/jobs/report/backfill", `{"from":"2026-03-01","to":"2026-03-02","dry_run":true}`),

		"GET /v1/runs":                func() request { f.reported(); return request{path: "/v1/runs?n=5&state=finished&trigger=manual"} },
		"POST /v1/runs":               with("/v1/runs", `{"agent":"ann","prompt":"Do it."}`),
		"GET /v1/runs/{id}":           func() request { return request{path: "/v1/runs/" + f.reported().ID} },
		"GET /v1/runs/{id}/pending":   func() request { return request{path: "/v1/runs/" + f.run(api.RunRequest{Job: "ask"}).ID + "/pending"} },
		"GET /v1/runs/{id}/recording": func() request { return request{path: "/v1/runs/" + f.reported().ID + "/recording"} },
		"POST /v1/runs/{id}/replay":   func() request { return request{path: "/v1/runs/" + f.reported().ID + "/replay", body: `{}`} },
		"GET /v1/runs/{id}/artifacts/{artifact}": func() request {
			var d api.RunDetail
			if err := f.client.Get(f.t.Context(), "/v1/runs/"+f.reported().ID, nil, &d); err != nil {
				f.t.Fatal(err)
			}
			return request{path: "/v1/runs/" + d.ID + "/artifacts/" + d.ArtifactsDetail[0].ID}
		},
		"GET /v1/runs/{id}/artifacts/{artifact}/files": func() request {
			f.reported() // it writes a file
			run := f.run(api.RunRequest{Agent: "ann", Tool: "share_artifact", Args: json.RawMessage(`{"path":"."}`)})
			var d api.RunDetail
			if err := f.client.Get(f.t.Context(), "/v1/runs/"+run.ID, nil, &d); err != nil || len(d.ArtifactsDetail) != 1 {
				f.t.Fatal(d, err)
			}
			return request{path: "/v1/runs/" + d.ID + "/artifacts/" + d.ArtifactsDetail[0].ID + "/files"}
		},
		"POST /v1/runs/{id}/cancel": func() request {
			item := f.question()
			return request{path: "/v1/runs/" + f.itemRun(item) + "/cancel", body: "{}"}
		},
		"POST /v1/runs/{id}/retry": func() request {
			return request{path: "/v1/runs/" + f.run(api.RunRequest{Job: "fails"}).ID + "/retry", body: "{}"}
		},
		"POST /v1/runs/{id}/undo": func() request {
			return request{path: "/v1/runs/" + f.reported().ID + "/undo", body: `{"dry_run":true}`}
		},

		"GET /v1/checkouts": at("/v1/checkouts"),

		"GET /v1/inbox":              func() request { f.question(); return request{path: "/v1/inbox"} },
		"GET /v1/inbox/closed":       at("/v1/inbox/closed"),
		"POST /v1/inbox/{id}/answer": func() request { return request{path: "/v1/inbox/" + f.question() + "/answer", body: `{"text":"A"}`} },
		"GET /v1/incidents": func() request {
			f.run(api.RunRequest{Job: "fails"})
			return request{path: "/v1/incidents?job=fails&all=true"}
		},
		"POST /v1/incidents/{id}/acknowledge": func() request {
			f.run(api.RunRequest{Job: "fails"})
			var open []api.Incident
			if err := f.client.Get(f.t.Context(), "/v1/incidents", nil, &open); err != nil || len(open) == 0 {
				f.t.Fatalf("%+v, %v", open, err)
			}
			return request{path: "/v1/incidents/" + open[0].ID + "/acknowledge", body: `{"note":"known"}`}
		},
		"GET /v1/grants": func() request { f.grant(); return request{path: "/v1/grants"} },
		"POST /v1/grants/{id}/revoke": func() request {
			return request{path: "/v1/grants/" + f.grant() + "/revoke", body: "{}"}
		},
		"GET /v1/labels": func() request { f.label(); return request{path: "/v1/labels"} },
		"POST /v1/labels/clear": func() request {
			f.label()
			return request{path: "/v1/labels/clear", body: `{"label":"A","path":"/data/in"}`}
		},

		"GET /v1/agents/{agent}/schema":            at("/v1/agents/ann/schema"),
		"POST /v1/agents/{agent}/query":            with("/v1/agents/ann/query", `{"sql":"select n, 'x' t, null z from sums"}`),
		"GET /v1/agents/{agent}/stats":             at("/v1/agents/ann/stats"),
		"GET /v1/agents/{agent}/changes":           at("/v1/agents/ann/changes?n=3&before=1000000"),
		"GET /v1/agents/{agent}/views":             at("/v1/agents/ann/views"),
		"POST /v1/agents/{agent}/views/{view}/run": with("/v1/agents/ann/views/all_sums/run", `{}`),
		"POST /v1/agents/{agent}/backups":          with("/v1/agents/ann/backups", `{"force":false}`),
		"GET /v1/agents/{agent}/backups":           at("/v1/agents/ann/backups"),
		"POST /v1/agents/{agent}/restore":          with("/v1/agents/ann/restore", `{"from":"last","force":true}`),
		"POST /v1/agents/{agent}/reset":            with("/v1/agents/quinn/reset", `{"force":true}`),
		"POST /v1/agents/{agent}/import":           with("/v1/agents/ann/import?table=brought&name=a.csv", "a,b\n1,2\n"),
		"POST /v1/agents/{agent}/export":           with("/v1/agents/ann/export", `{"sql":"select n from sums","format":"csv"}`),

		"POST /v1/backups": func() request {
			return request{path: "/v1/backups", body: `{"dest":` + strconv.Quote(f.t.TempDir()) + `,"secrets":false,"no_files":false}`}
		},

		"GET /v1/ledger":          at("/v1/ledger"),
		"GET /v1/ledger/backups":  at("/v1/ledger/backups"),
		"POST /v1/ledger/backups": with("/v1/ledger/backups", `{"force":false}`),

		"GET /v1/pauses":      at("/v1/pauses"),
		"POST /v1/pauses":     with("/v1/pauses", `{"scope":"job","name":"fails","for":"1h"}`),
		"POST /v1/pauses/end": with("/v1/pauses/end", `{"scope":"job","name":"fails"}`),

		"GET /v1/slots":        at("/v1/slots"),
		"POST /v1/slots":       with("/v1/slots", `{"agent":"ann","in":"2h","instructions":"Look again."}`),
		"POST /v1/slots/clear": with("/v1/slots/clear", `{"agent":"ann"}`),

		"GET /v1/webhooks": at("/v1/webhooks"),

		"GET /v1/skills":        at("/v1/skills"),
		"GET /v1/skills/{name}": at("/v1/skills/words"),

		"GET /v1/sign-ins": func() request { f.signIn(); return request{path: "/v1/sign-ins"} },
		"POST /v1/sign-ins/remove": func() request {
			return request{path: "/v1/sign-ins/remove", body: `{"name":"` + f.signIn() + `"}`}
		},

		"GET /v1/mcp-servers":                 at("/v1/mcp-servers"),
		"POST /v1/mcp-servers/{name}/look":    with("/v1/mcp-servers/open/look", "{}"),
		"POST /v1/mcp-servers/{name}/approve": func() request { f.lookAtMCP(); return request{"/v1/mcp-servers/open/approve", `{"tools":["hello"]}`} },
		"POST /v1/mcp-servers/{name}/revoke":  with("/v1/mcp-servers/open/revoke", "{}"),
		"POST /v1/mcp-servers/{name}/sign-in": with("/v1/mcp-servers/guarded/sign-in", "{}"),

		"GET /v1/workspaces":               func() request { f.workspace("w0"); return request{path: "/v1/workspaces"} },
		"GET /v1/workspaces/{id}":          func() request { return request{path: "/v1/workspaces/" + idOf(f.workspace("w1").ID)} },
		"POST /v1/workspaces/{id}/pause":   inWorkspace("w2", "/v1/workspaces/ID/pause"),
		"POST /v1/workspaces/{id}/archive": inWorkspace("w3", "/v1/workspaces/ID/archive"),
		"POST /v1/workspaces/{id}/resume": func() request {
			w := f.workspace("w4")
			if _, err := f.ledger.Workspaces.Change(f.t.Context(), workspace.Author{}, w.ID, workspace.Change{Status: workspace.Paused}); err != nil {
				f.t.Fatal(err)
			}
			return request{path: "/v1/workspaces/" + idOf(w.ID) + "/resume", body: "{}"}
		},
		"POST /v1/workspaces/{id}/acknowledge":                  func() request { return request{path: "/v1/workspaces/" + f.review("w5") + "/acknowledge", body: "{}"} },
		"POST /v1/workspaces/{id}/discard":                      func() request { return request{path: "/v1/workspaces/" + f.review("w6") + "/discard", body: "{}"} },
		"POST /v1/workspaces/{id}/retry":                        func() request { return request{path: "/v1/workspaces/" + f.review("w7") + "/retry", body: "{}"} },
		"POST /v1/workspaces/{id}/artifacts/{artifact}/approve": func() request { return f.workspaceArtifact("w8", "approve") },
		"POST /v1/workspaces/{id}/artifacts/{artifact}/reject":  func() request { return f.workspaceArtifact("w9", "reject") },

		"POST /v1/agents/{agent}/run": with("/v1/agents/ann/run", `{"prompt":"Do it."}`),
		"POST /v1/chat/completions":   with("/v1/chat/completions", `{"model":"ann","messages":[{"role":"user","content":"Do it."}]}`),
		"GET /v1/models":              at("/v1/models"),
		"GET /v1/openapi.json":        at("/v1/openapi.json"),

		"GET /v1/access":                    at("/v1/access"),
		"POST /v1/access/logins":            with("/v1/access/logins", `{"path":"/runs/1"}`),
		"POST /v1/access/rotate":            with("/v1/access/rotate", `{}`),
		"POST /v1/access/sessions/{id}/end": func() request { return request{path: "/v1/access/sessions/" + f.session() + "/end", body: "{}"} },
	}
}

// notTried lists routes that cannot succeed here. They need a desktop, a damaged database, or a
// run with a repository.
var notTried = []string{"POST /v1/notices", "POST /v1/agents/{agent}/accept", "GET /v1/runs/{id}/checkout", "POST /v1/runs/{id}/apply", "POST /v1/runs/{id}/discard"}

func idOf(n int64) string { return strconv.FormatInt(n, 10) }

// itemRun returns the run of an item.
func (f *apiFixture) itemRun(item string) string {
	f.t.Helper()
	var all []api.Item
	if err := f.client.Get(f.t.Context(), "/v1/inbox", nil, &all); err != nil {
		f.t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(i api.Item) bool { return i.ID == item })
	if i < 0 {
		f.t.Fatalf("no item %s in %+v", item, all)
	}
	return all[i].Run
}

// started returns an attempt of a run that is scheduled for later, so no dispatcher executes it.
func (f *apiFixture) started(inWorkspace int64) ledger.Attempt {
	f.t.Helper()
	ctx := f.t.Context()
	accepted, err := f.ledger.Enqueue(ctx, ledger.Request{Agent: "away", Trigger: domain.TriggerManual, NotBefore: time.Now().Add(time.Hour)})
	if err != nil {
		f.t.Fatal(err)
	}
	_, a, err := f.ledger.StartAttempt(ctx, accepted[0].Run)
	if err != nil {
		f.t.Fatal(err)
	}
	if inWorkspace != 0 {
		if _, err := f.ledger.Workspaces.Enter(ctx, a, inWorkspace); err != nil {
			f.t.Fatal(err)
		}
	}
	return a
}

// review returns a workspace that a run has left in an inconsistent state.
func (f *apiFixture) review(name string) string {
	f.t.Helper()
	ctx, w := f.t.Context(), f.workspace(name)
	a := f.started(w.ID)
	if _, err := f.ledger.Workspaces.Change(ctx, workspace.Author{Attempt: a, Key: "k"}, w.ID, workspace.Change{State: json.RawMessage(`{"n":2}`)}); err != nil {
		f.t.Fatal(err)
	}
	if err := f.ledger.Interrupt(ctx, a, "killed", &ledger.Result{Outcome: domain.OutcomeInterrupted}); err != nil {
		f.t.Fatal(err)
	}
	return idOf(w.ID)
}

// workspaceArtifact returns a request that decides on an artifact of a workspace.
func (f *apiFixture) workspaceArtifact(name, decision string) request {
	f.t.Helper()
	w := f.workspace(name)
	a, err := f.ledger.Workspaces.AddArtifact(f.t.Context(), workspace.Author{Attempt: f.started(w.ID), Key: "k"}, artifact.Artifact{Workspace: w.ID, Title: "Plan", Type: "markdown"}, []byte("# Plan"))
	if err != nil {
		f.t.Fatal(err)
	}
	return request{path: "/v1/workspaces/" + idOf(w.ID) + "/artifacts/" + idOf(a.ID) + "/" + decision, body: "{}"}
}

// grant returns a standing approval.
func (f *apiFixture) grant() string {
	f.t.Helper()
	var given []api.Grant
	if err := f.client.Get(f.t.Context(), "/v1/grants", nil, &given); err != nil {
		f.t.Fatal(err)
	}
	if len(given) > 0 {
		return given[0].ID
	}

	var d api.RunDetail
	if err := f.client.Get(f.t.Context(), "/v1/runs/"+f.run(api.RunRequest{Job: "shell"}).ID, nil, &d); err != nil || len(d.Inbox) == 0 {
		f.t.Fatalf("%+v, %v", d, err)
	}
	if err := f.client.Post(f.t.Context(), "/v1/inbox/"+d.Inbox[0].ID+"/answer", api.Answer{Text: inbox.ApprovalAlways}, nil); err != nil {
		f.t.Fatal(err)
	}
	return f.grant()
}

// label adds a label to a file.
func (f *apiFixture) label() {
	f.t.Helper()
	if err := f.ledger.Labels.RecordTaint(f.t.Context(), f.started(0), label.TaintUpdate{Taint: label.TaintUntrusted, Writes: []label.Place{{Kind: label.PlaceFile, Name: "/data/in"}}}); err != nil {
		f.t.Fatal(err)
	}
}

// session logs a browser in.
func (f *apiFixture) session() string {
	f.t.Helper()
	var link api.Login
	if err := f.client.Post(f.t.Context(), "/v1/access/logins", api.LoginRequest{}, &link); err != nil {
		f.t.Fatal(err)
	}
	if resp := f.send(http.MethodGet, strings.TrimPrefix(link.URL, f.base), "", nil, nil); resp.StatusCode != http.StatusFound {
		f.t.Fatal(resp.Status)
	}
	var a api.Access
	if err := f.client.Get(f.t.Context(), "/v1/access", nil, &a); err != nil || len(a.Sessions) == 0 {
		f.t.Fatalf("%+v, %v", a, err)
	}
	return a.Sessions[0].ID
}

// socket returns a client of the daemon's socket.
func (f *apiFixture) socket() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", homedir.SocketPath(f.Dir()))
	}}}
}

// schemas holds the daemon's description of its routes.
type schemas struct {
	root     map[string]any
	paths    map[string]map[string]map[string]any
	resolved map[string]*jsonschema.Resolved // by the schema as JSON
}

// readSchemas fetches the description.
func (f *apiFixture) readSchemas() schemas {
	f.t.Helper()
	resp := f.send(http.MethodGet, "/v1/openapi.json", "", nil, nil)
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		f.t.Fatalf("%s, %v", resp.Status, err)
	}

	s := schemas{resolved: map[string]*jsonschema.Resolved{}}
	var paths struct {
		OpenAPI string                               `json:"openapi"`
		Paths   map[string]map[string]map[string]any `json:"paths"`
	}
	// OpenAPI has shared types in components, a single schema has them in $defs.
	text = bytes.ReplaceAll(text, []byte("#/components/schemas/"), []byte("#/$defs/"))
	if err := json.Unmarshal(text, &s.root); err != nil {
		f.t.Fatal(err)
	}
	if err := json.Unmarshal(text, &paths); err != nil || paths.OpenAPI != "3.1.0" {
		f.t.Fatalf("%q, %v", paths.OpenAPI, err)
	}
	s.paths = paths.Paths
	return s
}

// check validates a value against the described response of a route.
func (s schemas) check(t *testing.T, route web.Route, status, media string, value []byte) {
	t.Helper()
	operation := s.paths[route.Path][strings.ToLower(route.Method)]
	responses, _ := operation["responses"].(map[string]any)
	response, _ := responses[status].(map[string]any)
	content, _ := response["content"].(map[string]any)
	of, ok := content[media].(map[string]any)
	if !ok {
		t.Errorf("%s %s answers %s with %s, and says %v", route.Method, route.Path, status, media, slices.Collect(maps.Keys(content)))
		return
	}
	if of["schema"] == nil {
		return // bytes
	}

	resolved, err := s.resolve(of["schema"])
	if err != nil {
		t.Fatalf("%s %s: the description is no schema: %v", route.Method, route.Path, err)
	}

	var instance any
	if err := json.Unmarshal(value, &instance); err != nil {
		t.Errorf("%s %s: %v in %.300s", route.Method, route.Path, err, value)
		return
	}
	if err := resolved.Validate(instance); err != nil {
		t.Errorf("%s %s is not as described: %v\n%.1500s", route.Method, route.Path, err, value)
	}
}

// resolve prepares a schema for validation, once for all routes that use it. A schema contains the
// whole description.
func (s schemas) resolve(schema any) (*jsonschema.Resolved, error) {
	name, err := json.Marshal(schema)
	if err != nil {
		return nil, err
	}
	if r, ok := s.resolved[string(name)]; ok {
		return r, nil
	}

	components, _ := s.root["components"].(map[string]any)
	text, err := json.Marshal(map[string]any{"allOf": []any{schema}, "$defs": components["schemas"]})
	if err != nil {
		return nil, err
	}
	var parsed jsonschema.Schema
	if err := json.Unmarshal(text, &parsed); err != nil {
		return nil, err
	}
	r, err := parsed.Resolve(nil)
	if err == nil {
		s.resolved[string(name)] = r
	}
	return r, err
}

// TestEveryRouteIsAsDescribed checks that each route has a description and that its real response
// fits it. It covers all routes of the router.
func TestEveryRouteIsAsDescribed(t *testing.T) {
	t.Parallel()
	f := newAPIFixture(t)
	described, examples := f.readSchemas(), f.examples()
	f.reported()

	for _, route := range f.routes() {
		name := route.Method + " " + route.Path
		if route.Summary == "" || described.paths[route.Path][strings.ToLower(route.Method)] == nil {
			t.Errorf("%s has no description", name)
		}
		if slices.Contains(notTried, name) {
			continue
		}
		example, ok := examples[name]
		if !ok {
			t.Errorf("%s has no example here", name)
			continue
		}

		ask := example()
		status, media, answer := f.ask(route, ask)
		if name == "POST /v1/access/rotate" {
			f.token = f.readToken()
		}
		if status != http.StatusOK {
			t.Errorf("%s (%s) answers %d: %s", name, ask.path, status, answer)
			continue
		}
		if media != "application/x-ndjson" {
			described.check(t, route, "200", media, answer)
			continue
		}
		for line := range bytes.Lines(answer) {
			described.check(t, route, "200", media, line)
		}
	}

	// Errors are described as well.
	for _, route := range f.routes() {
		if !route.Local {
			resp := f.send(route.Method, fill(route.Path)+"?surely=not", "", nil, nil)
			text, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != http.StatusBadRequest {
				t.Errorf("%s %s: %s %s, %v", route.Method, route.Path, resp.Status, text, err)
			}
			described.check(t, route, "default", "application/json", text)
		}
	}
}

// ask sends an example over the network, or through the socket for local routes.
func (f *apiFixture) ask(route web.Route, ask request) (status int, media string, answer []byte) {
	f.t.Helper()
	if route.Local {
		r, err := http.NewRequestWithContext(context.WithoutCancel(f.t.Context()), route.Method, "http://rouse"+ask.path, strings.NewReader(ask.body))
		if err != nil {
			f.t.Fatal(err)
		}
		if ask.body != "" {
			r.Header.Set("Content-Type", route.Body.Media)
		}
		resp, err := f.socket().Do(r)
		if err != nil {
			f.t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			f.t.Fatal(err)
		}
		return resp.StatusCode, resp.Header.Get("Content-Type"), text
	}

	media = ""
	if ask.body != "" {
		media = route.Body.Media
	}
	resp := f.send(route.Method, ask.path, media, strings.NewReader(ask.body), nil)
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Content-Type"), text
}

var wildcard = regexp.MustCompile(`\{[a-z]+\}`)

// fill replaces the wildcards of a path by an existing number.
func fill(path string) string { return wildcard.ReplaceAllString(path, url.PathEscape("1")) }
