package main

import (
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
	"rouse/cmd/internal/homedir"
)

// conformance lists the scenarios of the official conformance suite that apply to any server. The
// others need tools, prompts and resources with fixed names.
var conformance = []string{
	"server-initialize", "ping", "tools-list", "resources-list", "resources-subscribe", "resources-unsubscribe", "logging-set-level", "prompts-list",
	"server-sse-multiple-streams", "dns-rebinding-protection",
}

// TestConformanceServer runs these scenarios against rouse as an MCP server. A proxy in front of
// the dashboard adds the token, because the suite does not support tokens.
func TestConformanceServer(t *testing.T) {
	dir := os.Getenv("ROUSE_TEST_MCP")
	if dir == "" {
		t.Skip("ROUSE_TEST_MCP names no folder with the official suite")
	}
	found, err := filepath.Glob(filepath.Join(dir, "node_modules", "node-*", "bin", "node"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s has %q (%v)", dir, found, err)
	}

	home := cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
home: ./home
agents: [{name: clerk, workdir: ./work}]
jobs: [{name: note, agent: clerk, playbook: [{call: complete, with: {summary: "looked at everything that there is to see"}}]}]
`})
	p := endtoend.Serve(t, filepath.Join(home, "rouse.yaml"))
	defer p.Stop(t)
	client, st, err := homedir.Connect(t.Context(), filepath.Join(home, "home"))
	if err != nil {
		t.Fatal(err)
	}
	client.Close()
	token, err := os.ReadFile(filepath.Join(home, "home", "dashboard", "token"))
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(st.Dashboard)
	if err != nil {
		t.Fatal(err)
	}

	var own string
	proxy := httptest.NewServer(&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host
		if r.In.Host == own { // keep host names that the suite invents
			r.Out.Host = to.Host
		}
		if r.In.Header.Get("Origin") == "http://"+own {
			r.Out.Header.Set("Origin", "http://"+to.Host)
		}
		r.Out.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}})
	defer proxy.Close()
	own = strings.TrimPrefix(proxy.URL, "http://")

	for _, scenario := range conformance {
		t.Run(scenario, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), found[0], filepath.Join(dir, "node_modules", "@modelcontextprotocol", "conformance", "dist", "index.js"), "server", "--url", proxy.URL+"/mcp", "--scenario", scenario)
			cmd.Dir = t.TempDir()
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
