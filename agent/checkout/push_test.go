package checkout_test

import (
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/checkout"
)

// remote serves a bare repository over HTTP to clients with the token.
func remote(t *testing.T, token string) (address, dir string) {
	t.Helper()
	base := t.TempDir()
	dir = filepath.Join(base, "app.git")
	git(t, ".", "init", "-q", "--bare", "-b", "main", dir)
	git(t, dir, "config", "http.receivepack", "true")
	backend := &cgi.Handler{
		Path: filepath.Join(git(t, ".", "--exec-path"), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + base, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull},
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, got, _ := r.BasicAuth(); got != token {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/app.git", dir
}

func TestPush(t *testing.T) {
	t.Parallel()
	repo, s := owner(t), store(t)
	address, served := remote(t, "granted")
	git(t, repo, "remote", "add", "origin", address)
	local := filepath.Join(t.TempDir(), "local.git")
	canary := filepath.Join(t.TempDir(), "canary")
	git(t, ".", "init", "-q", "--bare", local)
	write(t, filepath.Join(local, "hooks/post-receive"), "#!/bin/sh\ntouch "+canary+"\n")
	os.Chmod(filepath.Join(local, "hooks/post-receive"), 0o755)
	git(t, repo, "remote", "add", "local", local)
	git(t, repo, "remote", "add", "program", "ext::sh -c touch% "+canary)
	git(t, repo, "remote", "add", "plain", "http://git.example.com/x")
	git(t, repo, "remote", "add", "login", "https://me:hunter2@git.example.com/x")
	git(t, repo, "config", "remote.local.receivepack", "touch "+canary+";:")
	res := worked(t, s, repo, "1")

	for range 2 {
		for _, name := range []string{"origin", "local"} {
			if err := s.Push(t.Context(), res, name, checkout.Login{Token: "granted"}); err != nil {
				t.Fatal(name, err)
			}
		}
	}
	if git(t, served, "rev-parse", "rouse/fix-1") != res.Head || git(t, local, "rev-parse", "rouse/fix-1") != res.Head {
		t.Error("the branch was not pushed")
	}

	if at, err := s.Remote(t.Context(), res, "origin"); err != nil || at != address {
		t.Error(at, err)
	}

	for _, c := range []struct{ remote, token, want string }{
		{"origin", "wrong", "the remote"},
		{"origin", "", "grant a secret"},
		{"none", "", "has no remote none; add it"},
		{"program", "", "is neither https"},
		{"plain", "granted", "a token is not sent by http"},
		{"login", "granted", "holds a name or a token"},
		{"https://git.example.com/x", "granted", "is not the name of a remote"},
		{"--receive-pack=touch", "", "is not the name of a remote"},
		{"../" + local, "", "is not the name of a remote"},
	} {
		err := s.Push(t.Context(), res, c.remote, checkout.Login{Token: c.token})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.remote, err)
		}
		if err != nil && (strings.Contains(err.Error(), "wrong") || strings.Contains(err.Error(), "hunter2")) {
			t.Errorf("%s: the error holds a secret: %v", c.remote, err)
		}
	}
	if _, err := os.Lstat(canary); err == nil {
		t.Error("a program was run")
	}

	// The remote branch has other commits, which stay.
	other := git(t, repo, "commit-tree", "-m", "other", "main^{tree}")
	git(t, repo, "push", "-q", "--force", local, other+":refs/heads/rouse/fix-1")
	if err := s.Push(t.Context(), res, "local", checkout.Login{}); err == nil || !strings.Contains(err.Error(), "has other commits") {
		t.Error(err)
	}
	if git(t, local, "rev-parse", "rouse/fix-1") != other {
		t.Error("commits of the remote are lost")
	}
}
