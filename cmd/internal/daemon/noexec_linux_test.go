package daemon

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
)

// canary is a program that records its start.
const canary = `#!/bin/sh
echo started >> CANARY
`

// canaryConfig uses a program of every kind: an executor, a condition, an MCP server and a granted
// command. The fixture adds a module.
const canaryConfig = `agents:
  - {name: bird, workdir: ./cage, mcp: [bird], min_tier: B, grants: {commands: [{argv: ["PROGRAM"]}]}}
  - {name: coder, workdir: ./code, executor: {argv: ["PROGRAM"]}}
`

const canaryJobs = `jobs:
  - {name: cage, agent: bird, when: [{command: ["PROGRAM"]}], playbook: [{call: shell_run, with: {command: "PROGRAM"}}, {call: bird__sing}]}
  - {name: code, agent: coder, prompt: "Do it."}
`

// programs returns the page faults of ended child processes. Any program causes some.
func programs(t *testing.T) int64 {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u); err != nil {
		t.Fatal(err)
	}
	return u.Minflt + u.Majflt
}

// running lists the children of this process that still run.
func running(t *testing.T) (out string) {
	t.Helper()
	found, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range found {
		text, _ := os.ReadFile(name) // a thread may have ended
		out += string(text)
	}
	return strings.TrimSpace(out)
}

var pagePattern = regexp.MustCompile(`"GET (/[^"]*)"`)

// pagePatterns returns the routes of the dashboard's pages, as found in its source.
func pagePatterns(t *testing.T) (out []string) {
	t.Helper()
	files, err := filepath.Glob("../dashboard/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range pagePattern.FindAllStringSubmatch(string(text), -1) {
			out = append(out, m[1])
		}
	}
	if len(out) < 30 {
		t.Fatalf("only %d pages were found: %q", len(out), out)
	}
	return out
}

// TestNoGetStartsAProgram checks that no GET of the API or of a page starts a program, over the
// socket or the network, although the configuration uses every kind of program. That includes the
// sandbox test and rouse itself. Responses contain earlier results. The test is not parallel,
// because it counts the programs of the whole process.
func TestNoGetStartsAProgram(t *testing.T) {
	place := t.TempDir()
	program, left := filepath.Join(place, "canary.sh"), filepath.Join(place, "left")
	if err := os.WriteFile(program, []byte(strings.Replace(canary, "CANARY", left, 1)), 0o755); err != nil {
		t.Fatal(err)
	}
	config := strings.Replace(apiConfig, "agents:\n", strings.ReplaceAll(canaryConfig, "PROGRAM", program), 1)
	config = strings.Replace(config, "jobs:\n", strings.ReplaceAll(canaryJobs, "PROGRAM", program), 1)
	config = strings.Replace(config, "mcp:\n", fmt.Sprintf("mcp:\n  - {name: bird, argv: [%q], files: write, network: host}\n", program), 1)
	f := newAPIFixtureOf(t, config)

	examples := f.examples()
	asked := map[string]request{}
	for _, route := range f.routes() {
		if name := route.Method + " " + route.Path; route.Method == http.MethodGet {
			example, ok := examples[name]
			asked[name] = request{path: fill(route.Path)}
			if ok {
				asked[name] = example()
			}
		}
	}
	asked["GET /v1/doctor of all"] = request{path: "/v1/doctor"}

	report := f.reported()
	var detail api.RunDetail
	if err := f.client.Get(t.Context(), "/v1/runs/"+report.ID, nil, &detail); err != nil {
		t.Fatal(err)
	}
	page := strings.NewReplacer("/runs/{id}", "/runs/"+report.ID, "/inbox/{id}", "/inbox/"+f.question(), "/workspaces/{id}", "/workspaces/"+idOf(f.workspace("walk").ID),
		"/jobs/{name}", "/jobs/cage", "/agents/{name}", "/agents/ann", "/skills/{name}", "/skills/acme", "{artifact}", detail.ArtifactsDetail[0].ID, "{file}", "app.css", "{$}", "")
	pages := []string{"/metrics", "/login", "/health?ask=network", "/jobs/code", "/agents/bird", "/agents/coder", "/jobs/report?simulate=week"}
	for _, pattern := range pagePatterns(t) {
		pages = append(pages, page.Replace(pattern))
	}

	// The daemon itself runs these checks once at the start.
	var checks []api.Check
	socket := f.socket()
	cmdtest.Until(t, "the first look at the sandbox", func() bool {
		resp, err := socket.Get("http://rouse/v1/doctor?offline=true") //nolint:noctx // the test ends it
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if err := json.NewDecoder(resp.Body).Decode(&checks); err != nil {
			t.Fatal(err)
		}
		return strings.Contains(checkNamed(t, checks, "confinement").Detail, "; tried ")
	})
	cmdtest.Until(t, "the end of what it started", func() bool { return running(t) == "" })

	before := programs(t)
	look := func(what string, resp *http.Response, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
		if !strings.Contains(resp.Header.Get("Content-Type"), "event-stream") {
			_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 16<<20))
		}
		resp.Body.Close()
		if resp.StatusCode >= http.StatusInternalServerError {
			t.Errorf("%s answers %s", what, resp.Status)
		}
		if now, alive := programs(t), running(t); now != before || alive != "" {
			t.Errorf("%s has started a program (%d page faults, children %q)", what, now-before, alive)
			before = now
		}
	}
	for name, ask := range asked {
		look(name+" over the network", f.send(http.MethodGet, ask.path, "", nil, nil), nil)
		resp, err := socket.Get("http://rouse" + ask.path) //nolint:noctx // the test ends it
		look(name+" by the socket", resp, err)
	}
	for _, path := range pages {
		if path == "/live" { // an endless stream
			continue
		}
		look("GET "+path, f.send(http.MethodGet, path, "", nil, nil), nil)
	}
	look("POST /v1/doctor over the network", f.send(http.MethodPost, "/v1/doctor", "application/json", strings.NewReader("{}"), nil), nil)
	look("POST /v1/reload over the network", f.send(http.MethodPost, "/v1/reload", "application/json", strings.NewReader("{}"), nil), nil)

	if text, err := os.ReadFile(left); err == nil {
		t.Errorf("the program was started: %s", text)
	}

	// Check that the count detects a program: the owner's own command starts one.
	if err := f.client.Post(t.Context(), "/v1/doctor", api.DoctorRequest{}, &checks); err != nil {
		t.Fatal(err)
	}
	if c := checkNamed(t, checks, "mcp bird"); programs(t) == before || c.OK {
		t.Errorf("doctor started no program: %+v", c)
	}
	if text, err := os.ReadFile(left); err == nil {
		t.Errorf("the server had a folder to write in: %s", text)
	}
}
