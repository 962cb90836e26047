package mcp_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/tool"
	"rouse/agent/tool/mcp"
	"rouse/agent/tool/shell"
)

// official returns a folder in which npm has installed the official conformance suite, the
// reference server and a node that runs them; see .ci/run. It skips the test if there is no such
// folder.
func official(t *testing.T) (node, modules string) {
	t.Helper()
	dir := os.Getenv("ROUSE_TEST_MCP")
	if dir == "" {
		t.Skip("ROUSE_TEST_MCP names no folder with the official suite")
	}
	found, err := filepath.Glob(filepath.Join(dir, "node_modules", "node-*", "bin", "node"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s has %q (%v)", dir, found, err)
	}
	return found[0], filepath.Join(dir, "node_modules")
}

// TestOfficialServer checks that the tools of the protocol's reference server can be listed,
// approved and called.
func TestOfficialServer(t *testing.T) {
	t.Parallel()
	node, modules := official(t)
	b := newBench(t)
	s := mcp.Server{Name: "every", Argv: []string{node, filepath.Join(modules, "@modelcontextprotocol", "server-everything", "dist", "index.js")}, Read: []string{modules}, Files: shell.ExposeNothing}
	b.approve(s)

	one := b.sessions()
	defer one.Close()
	for name, c := range map[string]struct {
		args map[string]any
		want string
	}{
		"echo":                    {map[string]any{"message": "hello"}, `"Echo: hello"`},
		"get-sum":                 {map[string]any{"a": 2, "b": 40}, "42"},
		"get-structured-content":  {map[string]any{"location": "Chicago"}, `"structured":{"conditions":`},
		"simulate-research-query": {map[string]any{"topic": "the sea"}, "# Research Report: the sea"},
		"gzip-file-as-resource":   {map[string]any{"name": "a.gz", "data": "data:text/plain;base64,aGVsbG8=", "outputType": "resource"}, `"name":"a.gz","media_type":"application/gzip"`},
		"get-resource-links":      {nil, `"links":[{"uri":"demo://`},
		"get-resource-reference":  {map[string]any{"resourceType": "Text", "resourceId": 1}, "Resource 1"},
	} {
		if e := b.callIn(one, s, name, c.args); !e.OK || !strings.Contains(string(e.Result), c.want) {
			t.Errorf("%s: %+v %s", name, e, e.Result)
		}
	}
	if e := b.callIn(one, s, "get-tiny-image", nil); !e.OK || len(e.Images) != 1 {
		t.Errorf("the picture: %+v", e)
	}
	if e := b.callIn(one, s, "get-sum", map[string]any{"a": "two"}); e.OK || e.Kind != tool.KindInvalidArgs {
		t.Errorf("wrong arguments: %+v", e)
	}
}

// TestConformanceClient runs the scenarios of the official conformance suite for clients. It leaves
// out elicitation, which rouse does not support, and sign-ins, which have their own test.
func TestConformanceClient(t *testing.T) {
	t.Parallel()
	node, modules := official(t)
	dir := t.TempDir()
	me, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	client := filepath.Join(dir, "client")
	if err := os.WriteFile(client, fmt.Appendf(nil, "#!/bin/sh\n%s=client exec %s \"$@\"\n", roleKey, me), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}

	for _, scenario := range []string{"initialize", "tools_call", "sse-retry"} {
		t.Run(scenario, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), node, filepath.Join(modules, "@modelcontextprotocol", "conformance", "dist", "index.js"), "client", "--command", client, "--scenario", scenario)
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil || bytes.Contains(out, []byte("FAILURE")) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// actAsClient does what a scenario requires of a client: it lists the tools and calls each with
// numbers.
func actAsClient(url string) error {
	dir, err := os.MkdirTemp("", "rouse-conformance-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	book := mcp.NewBook(dir)
	s := mcp.Server{Name: "srv", URL: url, Near: true}
	one := mcp.NewSessions(mcp.SessionOptions{Book: book})
	defer one.Close()
	// The suite makes clients use the name localhost, which is an address of this machine.
	ctx, cancel := withTimeout()
	defer cancel()
	if err := one.Look(ctx, s); err != nil {
		return err
	}
	if _, _, err := book.Approve(s, nil, nil); err != nil {
		return err
	}
	rec, err := book.Of(s)
	if err != nil {
		return err
	}
	all, err := one.Tools([]mcp.Given{{Server: s, Name: s.Name, Tools: rec.ApprovedTools(s)}}, nil, nil)
	if err != nil {
		return err
	}
	r, err := tool.NewRegistry(all...)
	if err != nil {
		return err
	}
	for _, name := range r.Names() {
		args := json.RawMessage(`{}`)
		if strings.Contains(name, "add") {
			args = json.RawMessage(`{"a":5,"b":3}`)
		}
		e, err := r.Call(ctx, tool.Invocation{}, name, args)
		if err != nil || !e.OK {
			return fmt.Errorf("%s: %+v (%w)", name, e, err)
		}
	}
	return nil
}
