package daemon

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"rouse/cmd/internal/api"
)

// A request can name a file for a run. From the network it must be a file that the job reads
// anyway. The owner's command can name other files, but not files of the home, configurations or
// secrets.
func TestFileOfARequest(t *testing.T) {
	t.Parallel()
	f := newAPIFixture(t)
	outer := filepath.Dir(f.Dir())
	inbox, away := filepath.Join(outer, "inbox"), t.TempDir()
	write := func(path string) string {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("of the test "+path), 0o600)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	work := f.Current().Plan.Runner.Agents["ann"].Workdir
	clerk := f.Current().Plan.Runner.Agents["clerk"].Workdir
	token := filepath.Join(f.Dir(), "dashboard", "token")
	linked := filepath.Join(away, "link")
	if err := os.Symlink(f.Dir(), linked); err != nil {
		t.Skip(err)
	}

	const (
		nobody = iota
		owner
		both
	)
	for name, c := range map[string]struct {
		job, path string
		who       int
	}{
		"dropped":                 {"drops", write(filepath.Join(inbox, "sub", "a.txt")), both},
		"in the workdir":          {"report", write(filepath.Join(work, "b.txt")), both},
		"of another agent":        {"report", write(filepath.Join(clerk, "c.txt")), owner},
		"of the agent, watched":   {"drops", write(filepath.Join(work, "d.txt")), owner},
		"elsewhere":               {"drops", write(filepath.Join(away, "e.txt")), owner},
		"elsewhere, by dots":      {"drops", inbox + "/../more/x.txt", owner},
		"the token":               {"drops", token, nobody},
		"the token, no watch":     {"report", token, nobody},
		"the token, by dots":      {"drops", inbox + "/sub/../../home/dashboard/token", nobody},
		"the token, by a link":    {"drops", filepath.Join(linked, "dashboard", "token"), nobody},
		"the ledger":              {"report", filepath.Join(f.Dir(), "ledger.db"), nobody},
		"the home from a workdir": {"report", work + "/../../../dashboard/token", nobody},
		"the configuration":       {"report", filepath.Join(outer, "rouse.yaml"), nobody},
		"secrets in the inbox":    {"drops", write(filepath.Join(inbox, "sub", ".env")), nobody},
		"keys":                    {"report", write(filepath.Join(away, ".ssh", "id_ed25519")), nobody},
		"relative":                {"drops", "inbox/sub/a.txt", nobody},
	} {
		if strings.Contains(name, "by dots") && c.who == owner {
			write(filepath.Join(outer, "more", "x.txt"))
		}
		body, err := json.Marshal(api.RunRequest{Job: c.job, File: api.Path(c.path)})
		if err != nil {
			t.Fatal(err)
		}

		resp := f.send(http.MethodPost, "/v1/runs", "application/json", strings.NewReader(string(body)), nil)
		said, _ := io.ReadAll(resp.Body)
		if taken := resp.StatusCode < 300; taken != (c.who == both) {
			t.Errorf("%s: the network: %s %s", name, resp.Status, said)
		}
		if c.who == owner && !strings.Contains(string(said), "start the run on the machine of rouse") {
			t.Errorf("%s: the refusal has no remedy: %s", name, said)
		}

		// The form of the job's page. Accepted files are skipped, so only refusals are compared.
		resp = f.send(http.MethodPost, "/jobs/"+c.job+"/run", "application/x-www-form-urlencoded", strings.NewReader(url.Values{"file": {c.path}}.Encode()), func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", "same-origin")
		})
		if c.who != both && resp.StatusCode < 400 {
			t.Errorf("%s: the page: %s", name, resp.Status)
		}

		if c.who == both {
			continue
		}
		err = f.client.Post(t.Context(), "/v1/runs", api.RunRequest{Job: c.job, File: api.Path(c.path)}, &api.Run{})
		if (err == nil) != (c.who == owner) {
			t.Errorf("%s: the command: %v", name, err)
		}
	}
}

// TestPathsOfRequests fails if an API request has a path of type string, which could be opened
// unchecked.
func TestPathsOfRequests(t *testing.T) {
	t.Parallel()
	f := newAPIFixture(t)
	found := 0
	for _, route := range f.routes() {
		if route.Body.Type == nil || route.Body.Type.Kind() != reflect.Struct {
			continue
		}
		for _, field := range reflect.VisibleFields(route.Body.Type) {
			text := strings.ToLower(field.Tag.Get("json") + " " + field.Name)
			if field.Type == reflect.TypeFor[api.Path]() {
				found++
				continue
			}
			for _, word := range []string{"file", "path", "dest", "folder", "dir"} {
				if field.Type.Kind() == reflect.String && strings.Contains(text, word) {
					// A page, and the path of a label, which is compared and not opened.
					if route.Path == "/v1/access/logins" || route.Path == "/v1/labels/clear" {
						continue
					}
					t.Errorf("%s %s: %s.%s is a %s; use api.Path", route.Method, route.Path, route.Body.Type, field.Name, field.Type)
				}
			}
		}
	}
	if found < 4 {
		t.Errorf("%d paths", found)
	}
}
