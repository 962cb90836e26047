// Package configtest provides helpers for tests that read a configuration.
package configtest

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/load"
	"rouse/cmd/internal/config/yaml"
)

// Update is the -update flag, which rewrites golden files.
var Update = flag.Bool("update", false, "rewrite the golden files")

// Write writes files to a temporary folder and returns the path of the first.
func Write(t testing.TB, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		path := filepath.Join(dir, files[i])
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(files[i+1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	return filepath.Join(dir, files[0])
}

// Load reads and checks a file with the variables of env. The variable secret:NAME is the secret
// NAME.
func Load(path string, env map[string]string) (*config.Config, error) {
	return load.Config(yaml.Options{Path: path, Getenv: func(name string) string {
		if name == "HOME" && env[name] == "" {
			return "/home/someone"
		}
		return env[name]
	}, Secret: func(name string) (string, bool, error) {
		if name == "locked" {
			return "", false, errors.New("the keyring gave no answer within 2s")
		}
		value, set := env["secret:"+name]
		return value, set, nil
	}}, agent.Specs())
}

// Golden compares a text with a golden file. With -update it writes the file.
func Golden(t *testing.T, path, got string) {
	t.Helper()
	if *Update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.ReplaceAll(string(want), "\r\n", "\n"); text != got {
		t.Errorf("got\n%s\nwant, as in %s,\n%s", got, path, text)
	}
}

// Valid is a configuration with most kinds of settings. It needs the variable TEST_KEY.
const Valid = `version: 1
home: ./state
timezone: Europe/Berlin
limits: {runs: 8, drain: 1m}
defaults: {retry: {attempts: 2, on: error}, notify: {on: [failure]}}
models:
  - {name: local, provider: openai, base_url: "http://127.0.0.1:8080/v1", model: qwen, api_key: "${TEST_KEY}"}
agents:
  - name: bookkeeper
    workdir: ./books
    database: {quota: 10MiB}
    grants: {read: [.]}
    bounds: {wall: 1d, steps: 5}
jobs:
  - name: morning
    agent: bookkeeper
    schedule: "0 8 * * 1-5"
    retry: {backoff: 5s}
    bounds: {calls: 9}
    prompt: "Costs $${5}, since {{ .LastSuccess }}"
  - name: inbox
    agent: bookkeeper
    watch: {path: ./in, include: "*.csv", on_success: {move: ./done}, on_failure: delete}
    playbook:
      - call: db_import
        with: {table: expenses, path: "{{ .File.Path }}", max_rows: 10}
        save: imported
      - {call: notify, if: imported.rows_imported > 0, with: {title: "{{ .imported.rows_imported }} rows"}}
      - {call: db_insert, with: {table: notes, row: {day: 2026-11-21, deep: [{a: null, b: true, c: 1.5, d: "007"}]}}}
    notify: {on: []}
`
