package main

import (
	"net/http"
	"net/http/cookiejar"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

// TestDashboardLinks checks the login links. The link that serve prints works once. open leads to
// the page of an existing object. dashboard lists the logged-in browsers, logs them out, and
// rotates the token.
func TestDashboardLinks(t *testing.T) {
	t.Parallel()
	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": "version: 1\nhome: ./home\nagents: [{name: ann}]\njobs: [{name: look, agent: ann, playbook: [{call: file_read, with: {path: .}}]}]\n"})
	config := filepath.Join(dir, "rouse.yaml")
	p := endtoend.Serve(t, config)
	link := regexp.MustCompile(`http://\S+/login\?code=\S+`).FindString(p.Out.String())
	if link == "" {
		t.Fatalf("serve prints no link: %s", p.Out.String())
	}

	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := http.Client{Jar: jar}
	get := func(url string) (status int, path string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := browser.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode, resp.Request.URL.Path
	}
	if status, path := get(link); status != http.StatusOK || path != "/" {
		t.Errorf("the link leads to %s: %d", path, status)
	}
	if status, _ := get(link); status != http.StatusUnauthorized {
		t.Errorf("the second time: %d", status)
	}

	command := func(args ...string) (said string, failed bool) {
		c := endtoend.Rouse(t, append(args, "--config", config)...)
		err := c.Run()
		return c.Out.String() + c.Err.String(), err != nil
	}
	say := func(args ...string) string {
		t.Helper()
		said, failed := command(args...)
		if failed {
			t.Errorf("rouse %v: %s", args, said)
		}
		return said
	}
	say("run", "look")
	if _, path := get(strings.TrimSpace(say("open", "1", "--print"))); path != "/runs/1" {
		t.Errorf("open 1 leads to %s", path)
	}
	if _, path := get(strings.TrimSpace(say("open", "look", "--print"))); path != "/jobs/look" {
		t.Errorf("open look leads to %s", path)
	}
	if _, path := get(strings.TrimSpace(say("open", "7", "--item", "--print"))); path != "/inbox/7" {
		t.Errorf("open 7 --item leads to %s", path)
	}
	if said, failed := command("open", "lok", "--print"); !failed || !strings.Contains(said, `did you mean "look"`) {
		t.Errorf("a job that is none: %s", said)
	}

	sessions := say("dashboard", "--sessions")
	id := regexp.MustCompile(`(?m)^(\S{8})  since`).FindStringSubmatch(sessions)
	if id == nil || !strings.Contains(sessions, filepath.Join("dashboard", "token")) {
		t.Fatalf("the sessions: %s", sessions)
	}
	say("dashboard", "--end", id[1])
	say("dashboard", "--rotate")
	if status, _ := get(link[:strings.Index(link, "/login")] + "/"); status != http.StatusUnauthorized {
		t.Errorf("after another token: %d", status)
	}
	if said := say("dashboard", "--sessions"); !strings.Contains(said, "nobody is logged in") {
		t.Errorf("after another token: %s", said)
	}
	if said := say("status"); !strings.Contains(said, "pages at http://") {
		t.Errorf("the status: %s", said)
	}
}
