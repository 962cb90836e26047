package releases_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"rouse/cmd/internal/releases"
)

func TestLatest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ body, want, wrong string }{
		"one":           {`{"tag_name":"v1.4.0","html_url":"https://x/1.4.0"}`, "v1.4.0", ""},
		"a list":        {`[{"tag_name":"v1.9.0"},{"tag_name":"v1.10.0"},{"tag_name":"v1.2.0"}]`, "v1.10.0", ""},
		"without v":     {`[{"tag_name":"2.0.0"}]`, "v2.0.0", ""},
		"drafts":        {`[{"tag_name":"v3.0.0","draft":true},{"tag_name":"v2.9.0","prerelease":true},{"tag_name":"v2.8.0-rc.1"},{"tag_name":"v2.7.0"}]`, "v2.7.0", ""},
		"none":          {`[]`, "", "names no release"},
		"names no tag":  {`{"message":"Not Found"}`, "", "names no release"},
		"no JSON":       {`<html>`, "", "is no release"},
		"another shape": {`"v1"`, "", "is no release"},
		"large":         {strings.Repeat(" ", 5<<20), "", "more than"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.UserAgent() != "rouse/v1" {
				t.Errorf("asked as %s", r.UserAgent())
			}
			_, _ = w.Write([]byte(c.body))
		}))
		got, err := releases.Latest(t.Context(), server.URL, "rouse/v1")
		server.Close()
		switch {
		case c.wrong == "" && (err != nil || got.Version != c.want):
			t.Errorf("%s: %v, %v", name, got, err)
		case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// Addresses without TLS are rejected, also after a redirect.
func TestLatestIsAskedOverTLS(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, "http://releases.invalid/latest", http.StatusFound)
		case "/round":
			http.Redirect(w, r, "/round", http.StatusFound)
		default:
			http.Error(w, "no", http.StatusForbidden)
		}
	}))
	defer server.Close()

	for address, want := range map[string]string{
		"http://releases.invalid/latest": "over https alone",
		"ftp://x/":                       "is no address",
		"releases":                       "is no address",
		server.URL + "/away":             "over https alone",
		server.URL + "/round":            "without end",
		server.URL + "/":                 "answers 403 Forbidden",
		"http://127.0.0.1:1/":            "127.0.0.1:1 cannot be asked: ",
		"https://releases.invalid/x":     "releases.invalid cannot be found; is this machine offline?",
	} {
		if _, err := releases.Latest(t.Context(), address, "rouse"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestNewer(t *testing.T) {
	t.Parallel()
	latest := releases.Release{Version: "v1.10.0"}
	for version, want := range map[string][2]bool{
		"v1.9.9": {true, true}, "1.10.0": {false, true}, "v1.11.0": {false, true}, "v1.10.0-rc.1": {true, true},
		"devel": {false, false}, "devel-0123456789ab": {false, false}, "v0.0.0-20261125000000-0123456789ab": {true, true},
	} {
		if newer, known := latest.Newer(version); newer != want[0] || known != want[1] {
			t.Errorf("%s: %v, %v", version, newer, known)
		}
	}
}
