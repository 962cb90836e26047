package calendars

import (
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/internal/dial"
	"rouse/scheduler/calendar"
)

const (
	first  = "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nSUMMARY:Off\r\nDTSTART;VALUE=DATE:20261224\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
	second = "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nSUMMARY:Off\r\nDTSTART;VALUE=DATE:20261231\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
)

var now = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// A valid calendar is kept whatever the next fetches return. It is used only for the address it
// came from.
func TestKeep(t *testing.T) {
	t.Parallel()
	s := NewStore(t.TempDir())
	from := Source{Name: "team", Address: "https://example.com/s3cret/team.ics", Refresh: time.Hour}
	other := from
	other.Address = "https://example.com/other.ics"
	beside := Source{Name: "team-b", Address: from.Address, Refresh: time.Hour}

	if k := s.Load(from, now); len(k.Entries) != 0 || !k.FetchedAt.IsZero() || k.Problem != "" || !k.Due(from).IsZero() {
		t.Errorf("before anything: %+v", k)
	}
	keep := func(at time.Duration, text string, failure error) (changed bool) {
		t.Helper()
		changed, err := s.Keep(from, now.Add(at), []byte(text), failure)
		if err != nil {
			t.Fatal(err)
		}
		return changed
	}

	if keep(0, "", os.ErrDeadlineExceeded) {
		t.Error("a failure changed something")
	}
	if k := s.Load(from, now); k.Problem == "" || !k.FetchedAt.IsZero() || k.Due(from) != now.Add(retryAfter) {
		t.Errorf("after a failure: %+v", k)
	}
	if !keep(time.Minute, first, nil) || keep(2*time.Minute, first, nil) {
		t.Error("the same twice is one change")
	}
	if k := s.Load(from, now); len(k.Entries) != 1 || k.Problem != "" || k.FetchedAt != now.Add(2*time.Minute) || k.ChangedAt != now.Add(time.Minute) || k.Due(from) != now.Add(62*time.Minute) {
		t.Errorf("kept: %+v", k)
	}
	if _, err := s.Keep(beside, now, []byte(first), nil); err != nil {
		t.Fatal(err)
	}

	// A login page, a truncated file and an unavailable server.
	for _, text := range []string{"<html>Log in</html>", first[:60]} {
		if keep(time.Hour, text, nil) {
			t.Errorf("%q changed something", text)
		}
	}
	if k := s.Load(from, now); len(k.Entries) != 1 || !strings.Contains(k.Problem, "is no calendar that can be used: it is cut off") || k.FetchedAt != now.Add(2*time.Minute) || k.Due(from) != now.Add(time.Hour+retryAfter) {
		t.Errorf("the copy goes on: %+v", k)
	}
	if !keep(2*time.Hour, second, nil) {
		t.Error("another calendar is no change")
	}
	if k := s.Load(from, now); k.Problem != "" || k.Entries[0].From.Day() != 31 {
		t.Errorf("the new one: %+v", k)
	}

	// A new address starts without a copy. The old copy is removed when the new one has been
	// fetched.
	if k := s.Load(other, now); len(k.Entries) != 0 || !k.FetchedAt.IsZero() {
		t.Errorf("of another address: %+v", k)
	}
	if _, err := s.Keep(other, now, []byte(first), nil); err != nil {
		t.Fatal(err)
	}
	if k := s.Load(from, now); !k.FetchedAt.IsZero() {
		t.Errorf("of the old address: %+v", k)
	}
	if k := s.Load(beside, now); len(k.Entries) != 1 {
		t.Errorf("of another calendar: %+v", k)
	}

	// A damaged copy counts as missing, is reported, and is fetched again.
	files, err := filepath.Glob(filepath.Join(s.dir, "team.*"))
	if err != nil || len(files) != 2 {
		t.Fatalf("%v %v", files, err)
	}
	for _, path := range files {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o077 != 0 || strings.Contains(path, "s3cret") {
			t.Errorf("%s: %v %v", path, info.Mode(), err)
		}
		if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if k := s.Load(other, now); len(k.Entries) != 0 || !strings.Contains(k.Problem, "cannot be read") {
		t.Errorf("damaged: %+v", k)
	}
	if changed, err := s.Keep(other, now, []byte(first), nil); err != nil || !changed {
		t.Errorf("made again: %t %v", changed, err)
	}
	if k := s.Load(other, now); len(k.Entries) != 1 || k.Problem != "" {
		t.Errorf("made again: %+v", k)
	}
}

// Calendars come from internet addresses, or from the owner's network if that is allowed, also
// after redirects. Errors do not contain the address.
func TestFetch(t *testing.T) {
	t.Parallel()
	inner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(first)) }))
	defer inner.Close()
	site := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/s3cret/ok.ics":
			_, _ = w.Write([]byte(first))
		case "/s3cret/gone.ics":
			w.WriteHeader(http.StatusNotFound)
		case "/s3cret/inwards.ics":
			http.Redirect(w, r, inner.URL+"/s3cret", http.StatusFound)
		case "/s3cret/round.ics":
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
		case "/s3cret/moved.ics":
			http.Redirect(w, r, "/s3cret/ok.ics", http.StatusMovedPermanently)
		case "/s3cret/huge.ics":
			_, _ = w.Write(make([]byte, calendar.MaxBytes+10))
		case "/s3cret/cut.ics":
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte(first))
		}
	}))
	defer site.Close()
	trust := x509.NewCertPool()
	trust.AddCert(site.Certificate())

	for path, want := range map[string]string{
		"ok.ics": "", "moved.ics": "", "gone.ics": "answered 404 Not Found", "inwards.ics": "gave no calendar", "round.ics": "redirected more than 5 times",
		"huge.ics": "sent more than 4.0 MiB", "cut.ics": "broke off",
	} {
		body, err := fetch(t.Context(), Source{Name: "c", Address: site.URL + "/s3cret/" + path, Near: true}, dial.Options{RootCAs: trust})
		switch {
		case want == "" && (err != nil || string(body) != first):
			t.Errorf("%s: %q %v", path, body, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret")):
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}

	// Without private_network, local servers are not contacted, by address or by name.
	for _, address := range []string{site.URL, strings.Replace(site.URL, "127.0.0.1", "localhost", 1)} {
		if _, err := fetch(t.Context(), Source{Name: "c", Address: address + "/s3cret/ok.ics"}, dial.Options{RootCAs: trust}); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", address, err)
		}
	}
	if _, err := Fetch(t.Context(), Source{Name: "c", Address: "::"}); err == nil {
		t.Error("a broken address was asked")
	}
}
