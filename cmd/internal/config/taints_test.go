package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A job that can come to hold all three labels is warned of, with what brings each; one that
// cannot is not.
func TestTaintWarnings(t *testing.T) {
	const watch, plain = "watch: {path: ./in}", "every: 1h"
	for _, c := range []struct{ job, agent, says string }{
		{watch, "grants: {read: [.], network: [{host: a.example.com}]}", "untrusted content (a watch, web pages), private data (grants.read) and an effect beyond the host (grants.network)"},
		{plain, "grants: {read: [.], network: [{host: a.example.com}]}", "untrusted content (web pages), private data (grants.read)"},
		{plain, "grants: {read: ., commands: [{argv: [x], network: host}]}", "(commands with network), private data (grants.read) and an effect beyond the host (commands with network)"},
		{watch, "grants: {read: [{path: .}], commands: [{argv: [x]}]}, sandbox: off, reason: x", "(commands without a sandbox)"},
		{watch, "grants: {read: [.], commands: [{argv: [x]}]}", ""},
		{watch, "grants: {network: [{host: a.example.com}]}", ""},
		{watch, "grants: {read: [{path: ., private: false}], network: [{host: a.example.com}]}", ""},
		{watch, "grants: {read: [.], network: [{host: a.example.com}]}, tools: {deny: ['*']}", ""},
		{watch, "grants: {read: [.]}", ""},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "rouse.yaml")
		if err := os.Mkdir(filepath.Join(dir, "in"), 0o755); err != nil {
			t.Fatal(err)
		}

		text := "version: 1\nhome: ./h\nagents: [{name: a, " + c.agent + "}]\njobs: [{name: j, agent: a, prompt: x, " + c.job + "}]\n"
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}

		cfg, err := load(path, nil)
		if err != nil {
			t.Errorf("%s, %s: %v", c.job, c.agent, err)
			continue
		}

		said := ""
		for _, w := range cfg.Warnings {
			if strings.Contains(w.Message, "together") {
				said += w.Message
			}
		}
		if (said == "") != (c.says == "") || !strings.Contains(said, c.says) {
			t.Errorf("%s, %s: %q, want %q", c.job, c.agent, said, c.says)
		}
	}
}

// What may be read is named by a path, or with what it is.
func TestReads(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "rouse.yaml")
	if err := os.WriteFile(path, []byte("version: 1\nhome: ./h\nagents: [{name: a, grants: {read: [x, {path: y}, {path: z, private: false}]}}]\n"), 0o644); err != nil {
		t.Fatal(err)
	}

	cfg, err := load(path, nil)
	if err != nil {
		t.Fatal(err)
	}

	all, public := cfg.Agents[0].Reads()
	if len(all) != 3 || all[1] != filepath.Join(dir, "y") || len(public) != 1 || public[0] != filepath.Join(dir, "z") {
		t.Errorf("%q, public %q", all, public)
	}
}
