package pullrequest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"rouse/agent/checkout/pullrequest"
)

const token = "token-of-the-owner"

// server implements the documented APIs of GitHub and GitLab.
type server struct {
	*httptest.Server
	provider pullrequest.Provider
	open     []map[string]any
	lost     bool // the pull request is created, but the response is an error
	bodies   []map[string]any
}

func newServer(t *testing.T, provider pullrequest.Provider) *server {
	t.Helper()
	s := &server{provider: provider}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

func (s *server) client() *pullrequest.Client {
	return &pullrequest.Client{HTTP: s.Client(), Provider: s.provider, Base: s.URL, Project: "acme/app", Token: token}
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	fail := func(status int, body string) {
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
	github := s.provider == pullrequest.GitHub
	project, list := "/api/v4/projects/acme%2Fapp", "/merge_requests"
	if github {
		project, list = "/api/v3/repos/acme/app", "/pulls"
	}
	if github && r.Header.Get("Authorization") != "Bearer "+token || !github && r.Header.Get("Private-Token") != token {
		fail(http.StatusUnauthorized, `{"message":"Bad credentials `+r.Header.Get("Private-Token")+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")+`"}`)
		return
	}
	switch path := r.URL.EscapedPath(); {
	case path == project:
		fmt.Fprint(w, `{"default_branch":"trunk"}`)
	case path == project+list && r.Method == http.MethodGet:
		head, base := strings.TrimPrefix(r.FormValue("head"), "acme:"), r.FormValue("base")
		if !github {
			head, base = r.FormValue("source_branch"), r.FormValue("target_branch")
		}
		out := []map[string]any{}
		for _, one := range s.open {
			if one["head"] == head && one["base"] == base {
				out = append(out, one)
			}
		}
		_ = json.NewEncoder(w).Encode(out)
	case path == project+list:
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		s.bodies = append(s.bodies, body)
		head, base := body["head"], body["base"]
		if !github {
			head, base = body["source_branch"], body["target_branch"]
		}
		if head == "unpushed" {
			fail(http.StatusUnprocessableEntity, `{"message":"Validation Failed","errors":[{"resource":"PullRequest","field":"head","code":"invalid"},{"message":"No commits between trunk and unpushed"}]}`)
			return
		}
		n := len(s.open) + 1
		one := map[string]any{"head": head, "base": base, "number": n, "html_url": fmt.Sprintf("https://example.com/pull/%d", n)}
		if !github {
			one = map[string]any{"head": head, "base": base, "iid": n, "web_url": fmt.Sprintf("https://example.com/pull/%d", n)}
		}
		s.open = append(s.open, one)
		if s.lost {
			status := map[bool]int{true: http.StatusUnprocessableEntity, false: http.StatusConflict}[github]
			fail(status, `{"message":["Another open merge request already exists for this source branch: !1"]}`)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(one)
	default:
		fail(http.StatusNotFound, `{"message":"404 Project Not Found"}`)
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	for _, provider := range []pullrequest.Provider{pullrequest.GitHub, pullrequest.GitLab} {
		t.Run(string(provider), func(t *testing.T) {
			t.Parallel()
			s := newServer(t, provider)
			r := pullrequest.Request{Branch: "rouse/fix-7", Title: "Fix two", Body: "Tests pass.", Draft: true}
			for i := range 3 {
				o, err := s.client().Open(t.Context(), r)
				if err != nil || o.Number != 1 || o.URL != "https://example.com/pull/1" || o.Existed != (i > 0) {
					t.Fatalf("%+v, %v", o, err)
				}
			}
			if len(s.bodies) != 1 || s.open[0]["base"] != "trunk" {
				t.Errorf("%v", s.bodies)
			}
			if provider == pullrequest.GitLab && s.bodies[0]["title"] != "Draft: Fix two" || provider == pullrequest.GitHub && s.bodies[0]["draft"] != true {
				t.Errorf("%v", s.bodies)
			}

			// The pull request was opened, but the response was lost.
			s.lost = true
			o, err := s.client().Open(t.Context(), pullrequest.Request{Branch: "other", Target: "main", Title: "Other"})
			if err != nil || o.Number != 2 || !o.Existed {
				t.Errorf("%+v, %v", o, err)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	fine := pullrequest.Request{Branch: "b", Target: "main", Title: "t"}
	for name, c := range map[string]struct {
		change func(c *pullrequest.Client, r *pullrequest.Request)
		want   string
	}{
		"a wrong token":         {func(c *pullrequest.Client, _ *pullrequest.Request) { c.Token = "wrong-token" }, "the token is not valid, or has expired; renew the secret (HTTP 401): Bad credentials …"},
		"another project":       {func(c *pullrequest.Client, _ *pullrequest.Request) { c.Project = "acme/none" }, "there is no such project, or the token may not see it"},
		"nothing to merge":      {func(_ *pullrequest.Client, r *pullrequest.Request) { r.Branch = "unpushed" }, "push the branch first"},
		"no project":            {func(c *pullrequest.Client, _ *pullrequest.Request) { c.Project = "app" }, "write owner/name"},
		"no token":              {func(c *pullrequest.Client, _ *pullrequest.Request) { c.Token = "" }, "a token is needed"},
		"no title":              {func(_ *pullrequest.Client, r *pullrequest.Request) { r.Title = " " }, "needs a branch and a title"},
		"another provider":      {func(c *pullrequest.Client, _ *pullrequest.Request) { c.Provider = "svn" }, "is no provider"},
		"without TLS":           {func(c *pullrequest.Client, _ *pullrequest.Request) { c.Base = "http://git.example.com" }, "write https://HOST"},
		"a login in the server": {func(c *pullrequest.Client, _ *pullrequest.Request) { c.Base = "https://me:secret@git.example.com" }, "write https://HOST"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, pullrequest.GitHub)
			client, r := s.client(), fine
			c.change(client, &r)
			_, err := client.Open(t.Context(), r)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatal(err)
			}
			if strings.Contains(err.Error(), "wrong-token") || strings.Contains(err.Error(), token) {
				t.Error("the error holds the token:", err)
			}
		})
	}
}

// TestRedirect checks that the token is not sent to a redirect, even if the client follows
// redirects.
func TestRedirect(t *testing.T) {
	t.Parallel()
	reached := false
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reached = true
	}))
	defer other.Close()
	s := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusMovedPermanently))
	defer s.Close()
	for _, provider := range []pullrequest.Provider{pullrequest.GitHub, pullrequest.GitLab} {
		c := &pullrequest.Client{HTTP: s.Client(), Provider: provider, Base: s.URL, Project: "acme/app", Token: token}
		_, err := c.Open(t.Context(), pullrequest.Request{Branch: "b", Title: "t"})
		if err == nil || !strings.Contains(err.Error(), "which is not followed") || reached {
			t.Error(err, reached)
		}
	}
}

func TestFor(t *testing.T) {
	t.Parallel()
	for remote, want := range map[string]pullrequest.Client{
		"https://github.com/acme/app.git":           {Provider: pullrequest.GitHub, Base: "https://github.com", Project: "acme/app"},
		"git@github.com:acme/app.git":               {Provider: pullrequest.GitHub, Base: "https://github.com", Project: "acme/app"},
		"ssh://git@git.example.com:2222/a/b/app":    {Base: "https://git.example.com", Project: "a/b/app"},
		"https://gitlab.com/group/sub/app.git/":     {Provider: pullrequest.GitLab, Base: "https://gitlab.com", Project: "group/sub/app"},
		"https://git.example.com:8443/acme/app.git": {Base: "https://git.example.com:8443", Project: "acme/app"},
		"https://me:hunter2@github.com/acme/app":    {Provider: pullrequest.GitHub, Base: "https://github.com", Project: "acme/app"},
	} {
		c, err := pullrequest.For(remote)
		if err != nil {
			t.Errorf("%s: %v", remote, err)
		} else if *c != want {
			t.Errorf("%s: %+v", remote, *c)
		}
	}
	for _, remote := range []string{"/srv/app.git", "app", "https://github.com/app", "./x:y/z"} {
		if c, err := pullrequest.For(remote); err == nil {
			t.Errorf("%s: %+v", remote, *c)
		}
	}
}
