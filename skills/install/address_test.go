package install_test

import (
	"encoding/pem"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"rouse/skills/install"
)

// A redirect within the repository's server is followed; a redirect to another server is not.
func TestRedirects(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("needs git")
	}
	folder := t.TempDir()
	for _, args := range [][]string{
		{"init", "-q", "--bare", "a.git"}, {"init", "-q", "w"}, {"-C", "w", "-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false", "commit", "-qm", "one", "--allow-empty"},
		{"-C", "w", "push", "-q", "../a.git", "HEAD:refs/heads/main"}, {"--git-dir=a.git", "symbolic-ref", "HEAD", "refs/heads/main"},
	} {
		cmd := exec.CommandContext(t.Context(), git, args...)
		cmd.Dir = folder
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %s", args, out)
		}
	}

	var touched atomic.Int32
	inner := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { touched.Add(1) }))
	t.Cleanup(inner.Close)
	repositories := &cgi.Handler{Path: git, Args: []string{"http-backend"}, Env: []string{"GIT_PROJECT_ROOT=" + folder, "GIT_HTTP_EXPORT_ALL=1"}, InheritEnv: []string{"PATH"}}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if first, rest, _ := strings.Cut(r.URL.Path[1:], "/"); first == "old" || first == "evil" {
			to := map[string]string{"old": "/a.git/", "evil": inner.URL + "/"}[first] + rest
			http.Redirect(w, r, to+"?"+r.URL.RawQuery, http.StatusFound)
			return
		}
		repositories.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)

	trust := filepath.Join(t.TempDir(), "trust.pem")
	if err := os.WriteFile(trust, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GIT_SSL_CAINFO", trust)
	t.Setenv("SSL_CERT_FILE", trust) // Go reads this once; no other test here needs it

	for _, name := range []string{"/a.git", "/old"} {
		if commit, err := install.Latest(t.Context(), server.URL+name, ""); err != nil || len(commit) < 40 {
			t.Errorf("%s: %q, %v", name, commit, err)
		}
	}
	if _, err := install.Latest(t.Context(), server.URL+"/evil", ""); err == nil || !strings.Contains(err.Error(), "install from "+inner.URL) {
		t.Errorf("to another server: %v", err)
	}
	if _, err := install.Fetch(t.Context(), t.TempDir(), install.Source{From: server.URL + "/evil"}); err == nil || !strings.Contains(err.Error(), "redirects to another server") {
		t.Errorf("to another server: %v", err)
	}
	// Only Git trusts the server here, so its redirects are unknown.
	t.Setenv("GIT_SSL_NO_VERIFY", "1")
	if _, err := install.Latest(t.Context(), strings.Replace(server.URL, "127.0.0.1", "localhost", 1)+"/evil", ""); err == nil {
		t.Error("git followed the redirect")
	}
	if n := touched.Load(); n > 0 {
		t.Errorf("the other server was asked %d times", n)
	}
}
