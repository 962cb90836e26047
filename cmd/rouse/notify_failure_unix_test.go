//go:build unix

package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

// TestHangingProgramIsTold checks that a run with a hanging program ends with a timeout after
// bounds.wall. The job's channel must get a notice, with or without notify.on.
func TestHangingProgramIsTold(t *testing.T) {
	t.Parallel()
	notices := make(chan string, 10)
	ntfy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		notices <- r.Header.Get("Title") + "\n" + string(body)
		fmt.Fprint(w, `{"id":"x"}`)
	}))
	t.Cleanup(ntfy.Close)

	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
home: ./home
agents: [{name: keeper, workdir: ./work, grants: {commands: [{argv: [sleep, "*"]}]}}]
notifications: [{name: phone, kind: url, url: "ntfy://` + strings.TrimPrefix(ntfy.URL, "http://") + `/mine?scheme=http"}]
jobs:
  - name: backup
    agent: keeper
    playbook: [{call: shell_run, with: {command: sleep 600}}]
    bounds: {wall: 1s}
    notify: {on: [failure], channels: [phone]}
  - name: usual
    agent: keeper
    playbook: [{call: shell_run, with: {command: sleep 600}}]
    bounds: {wall: 1s}
    notify: {channels: [phone]}
`})
	config := filepath.Join(dir, "rouse.yaml")
	p := endtoend.Serve(t, config)
	defer p.Stop(t)
	for _, job := range []string{"backup", "usual"} {
		if out, err := endtoend.Rouse(t, "run", job, "--wait", "--config", config).Quietly(); err == nil {
			t.Fatalf("a program that hangs ends well: %s", out)
		}
		if got := <-notices; !strings.HasPrefix(got, job+": timeout\n") {
			t.Errorf("the notice of %s: %s", job, got)
		}
	}
}
