package example

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"rouse/cmd/internal/endtoend"
)

// forge is a git server with GitLab's API for merge requests. It requires a token.
type forge struct {
	*httptest.Server
	dir string // folder of the bare repository

	mu     sync.Mutex
	opened []map[string]string
	broken bool // the API returns an error
}

const forgeToken = "token-of-the-forge-1"

func newForge(t *testing.T) *forge {
	t.Helper()
	base := t.TempDir()
	f := &forge{dir: filepath.Join(base, "me", "app.git")}
	gitIn(t, base, "init", "-q", "--bare", "-b", "main", f.dir)
	gitIn(t, f.dir, "config", "http.receivepack", "true")
	backend := &cgi.Handler{
		Path: filepath.Join(gitIn(t, base, "--exec-path"), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + base, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull},
	}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/api/v4/") {
			f.api(w, r)
			return
		}
		if _, got, _ := r.BasicAuth(); got != forgeToken {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *forge) api(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken || r.Header.Get("Private-Token") != forgeToken || r.URL.EscapedPath() != "/api/v4/projects/me%2Fapp/merge_requests" {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	answer := map[string]any{"iid": 7, "web_url": f.URL + "/me/app/-/merge_requests/7"}
	if r.Method == http.MethodGet {
		found := []any{}
		for _, o := range f.opened {
			if o["source_branch"] == r.URL.Query().Get("source_branch") {
				found = append(found, answer)
			}
		}
		_ = json.NewEncoder(w).Encode(found)
		return
	}
	var in map[string]string
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	f.opened = append(f.opened, in)
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(answer)
}

// TestBranchIsPushed checks that the branch of a successful run is pushed and gets one merge
// request, even after retries. If the server refuses, the run fails with a remedy, but the branch
// is in the owner's repository.
func TestBranchIsPushed(t *testing.T) {
	e := newExample(t, "night-coder")
	needsConfinement(t)
	f, app := newForge(t), e.path("app")
	makeApp(t, app)
	gitIn(t, app, "remote", "add", "origin", f.URL+"/me/app.git")
	text, err := os.ReadFile(e.config)
	if err != nil {
		t.Fatal(err)
	}
	pushing := strings.Replace(string(text), "keep: 14d }", "keep: 14d, on_success: { push: origin, token: "+forgeToken+", open_pull_request: true, provider: gitlab } }", 1)
	if err := os.WriteFile(e.config, []byte(pushing), 0o600); err != nil {
		t.Fatal(err)
	}

	e.wants(e.run("night-coder"), "success", "it was pushed to origin; pull request: "+f.URL+"/me/app/-/merge_requests/7")
	if gitIn(t, f.dir, "rev-parse", "rouse/night-coder-1") != gitIn(t, app, "rev-parse", "rouse/night-coder-1") {
		t.Error("the branch of the server is another one")
	}
	if len(f.opened) != 1 || f.opened[0]["title"] != "Add the numbers" || f.opened[0]["target_branch"] != "main" || !strings.Contains(f.opened[0]["description"], "```text\n") {
		t.Errorf("%v", f.opened)
	}
	if out := endtoend.MustRun(t, "show", "1", "--config", e.config); !strings.Contains(out, "pushed to origin "+f.URL+"/me/app/-/merge_requests/7") {
		t.Error(out)
	}
	if out := endtoend.MustRun(t, "logs", "1", "--config", e.config); !strings.Contains(out, "checkout.pushed") || !strings.Contains(out, "checkout.proposed") || strings.Contains(out, forgeToken) {
		t.Error(out)
	}

	// Untrusted content could have made the model add private data to the commits.
	secret := filepath.Join(e.path("private"), "notes.txt")
	for path, content := range map[string]string{secret: "private", filepath.Join(e.path("in"), "a.txt"): "dropped"} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	_, calls, _ := strings.Cut(pushing, "    playbook:\n")
	calls, _, _ = strings.Cut(calls, "    #")
	job := "  - name: drop\n    agent: coder\n    min_tier: B\n    watch: { path: ./in }\n    playbook:\n      - { call: file_read, with: { path: " + secret + " } }\n" + calls
	mixed := strings.Replace(strings.Replace(pushing, "grants: { commands:", "grants: { read: [./private], commands:", 1), "jobs:\n", "jobs:\n"+job, 1)
	if err := os.WriteFile(e.config, []byte(mixed), 0o600); err != nil {
		t.Fatal(err)
	}
	e.wants(e.run("drop", "--file", filepath.Join(e.path("in"), "a.txt")), "error", "was not sent: the run met untrusted content and private data")
	if branches := gitIn(t, f.dir, "branch", "--list"); strings.Contains(branches, "drop") {
		t.Error(branches)
	}

	f.mu.Lock()
	f.broken = true
	f.mu.Unlock()
	e.wants(e.run("night-coder"), "error", "the branch rouse/night-coder-3 was pushed to origin, and no pull request could be opened: ")

	// Undoing the failed run would remove the branch that waits for its delivery.
	undoing := strings.Replace(strings.Replace(mixed, forgeToken, "another-token-than-the-one", 1), "  - name: night-coder\n", "  - name: night-coder\n    undo_on_failure: true\n", 1)
	if err := os.WriteFile(e.config, []byte(undoing), 0o600); err != nil {
		t.Fatal(err)
	}
	refused := e.run("night-coder")
	e.wants(refused, "error", "the branch rouse/night-coder-4 is in "+app+", and was not sent: ")
	e.wants(refused, "error", "send it with: git push origin rouse/night-coder-4")
	gitIn(t, app, "rev-parse", "rouse/night-coder-4")
}
