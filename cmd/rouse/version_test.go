package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"rouse/cmd/internal/endtoend"
)

// TestVersionCheck checks that rouse version sends a request only with --check, and only to the
// given address.
func TestVersionCheck(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = w.Write([]byte(`[{"tag_name":"v9.9.9","html_url":"https://releases.invalid/\u001b]0;owned\u0007v9.9.9"}]`))
	}))
	defer server.Close()

	run := func(env string, args ...string) (int, string) {
		t.Helper()
		p := endtoend.Rouse(t, append([]string{"version"}, args...)...)
		p.Env = append(p.Env, "ROUSE_RELEASES_URL="+env)
		err := p.Run()
		var failed *exec.ExitError
		if err != nil && !errors.As(err, &failed) {
			t.Fatal(err)
		}
		return p.ProcessState.ExitCode(), p.Out.String() + p.Err.String()
	}

	if code, out := run(server.URL); code != exitDone || !strings.HasPrefix(out, "rouse ") || asked.Load() != 0 {
		t.Errorf("%d: %s, asked %d times", code, out, asked.Load())
	}
	if code, out := run("", "--check"); code != exitUsage || !strings.Contains(out, "nobody knows where releases of this build are: give --url https://…, or set ROUSE_RELEASES_URL") {
		t.Errorf("%d: %s", code, out)
	}
	if code, out := run("", "--url", server.URL); code != exitUsage || !strings.Contains(out, "--url goes with --check") || asked.Load() != 0 {
		t.Errorf("%d: %s", code, out)
	}
	if code, out := run("http://127.0.0.1:1/", "--check"); code != exitFailed || !strings.Contains(out, "whether there is a newer release is not known: 127.0.0.1:1 cannot be asked") {
		t.Errorf("%d: %s", code, out)
	}
	if code, out := run("", "--check", "--json", "--url", server.URL); code != exitDone || !strings.Contains(out, `"latest": "v9.9.9"`) || asked.Load() != 1 {
		t.Errorf("%d: %s", code, out)
	}
	if _, out := run(server.URL, "--check"); !strings.Contains(out, "v9.9.9") || strings.Contains(out, "\x1b") {
		t.Errorf("%q", out)
	}
}

// TestPagesForPackages checks that every listed command, except help topics, has a manual page, and
// that each shell has its completions.
func TestPagesForPackages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := endtoend.Rouse(t, "man", dir)
	p.Env = append(p.Env, "SOURCE_DATE_EPOCH=1700000000")
	if err := p.Run(); err != nil {
		t.Fatalf("%v: %s", err, &p.Err)
	}
	for _, cmd := range newRoot(&cli{}).Commands() {
		if cmd.Hidden || cmd.Name() == "help" || cmd.IsAdditionalHelpTopicCommand() {
			continue
		}
		page, err := os.ReadFile(filepath.Join(dir, "rouse-"+cmd.Name()+".1"))
		if err != nil || !strings.Contains(string(page), "Nov 2023") {
			t.Errorf("%s: %v", cmd.Name(), err)
		}
	}

	for shell, want := range map[string]string{"bash": "__start_rouse", "zsh": "#compdef rouse", "fish": "complete -c rouse"} {
		p := endtoend.Rouse(t, "completion", shell)
		if err := p.Run(); err != nil || !strings.Contains(p.Out.String(), want) {
			t.Errorf("%s: %v", shell, err)
		}
	}
}
