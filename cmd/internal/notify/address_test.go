package notify

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"rouse/cmd/internal/webhook"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// request holds a request received by the test server.
type request struct {
	path   string
	header http.Header
	body   string
}

// listening starts a server that answers every request with the given status and text and passes
// the request to the test.
func listening(t *testing.T, status int, answer string) (*httptest.Server, chan request) {
	t.Helper()
	got := make(chan request, 8)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got <- request{r.URL.Path, r.Header, string(body)}
		if status/100 == 3 {
			w.Header().Set("Location", "/elsewhere")
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(s.Close)
	return s, got
}

func open(t *testing.T, s Settings) Channel {
	t.Helper()
	c, err := Open(s)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var about = Message{Notice: ledger.Notice{ID: 7, Run: 3, Job: "mail", Agent: "clerk", Title: "clerk: done", Body: "see https://evil.example/?q=1", Outcome: domain.OutcomeSuccess, CreatedAt: time.UnixMilli(1764000000000)},
	Link: "http://127.0.0.1:7311/runs/3"}

// A notice sent to ntfy contains its title, text and link, and the server's response proves its
// delivery.
func TestNtfy(t *testing.T) {
	t.Parallel()
	s, got := listening(t, 200, `{"id":"x"}`)
	c := open(t, Settings{Kind: "url", URL: "ntfy://" + strings.TrimPrefix(s.URL, "http://") + "/topic-of-mine?scheme=http"})
	receipt, err := c.Send(t.Context(), about)
	if err != nil || !receipt.Proven {
		t.Fatalf("%+v, %v", receipt, err)
	}

	r := <-got
	all := r.path + r.body + r.header.Get("Title")
	for _, want := range []string{"topic-of-mine", "clerk: done", "https[:]//evil", about.Link} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in %q", want, all)
		}
	}
	if err := c.Check(t.Context()); !errors.Is(err, ErrNotAsked) || len(got) > 0 {
		t.Errorf("a check sent something, or says %v", err)
	}
}

// A notice sent to Matrix arrives in the configured room after a login. If the server rejects it,
// the error does not contain the password.
func TestMatrix(t *testing.T) {
	t.Parallel()
	got := make(chan request, 8)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		answer := map[string]string{
			"GET /_matrix/client/r0/login":                              `{"flows":[{"type":"m.login.password"}]}`,
			"POST /_matrix/client/r0/login":                             `{"access_token":"t0ken","user_id":"@rouse:x"}`,
			"GET /_matrix/client/r0/joined_rooms":                       `{"joined_rooms":["!room:x"]}`,
			"POST /_matrix/client/r0/join/!room:x":                      `{"room_id":"!room:x"}`,
			"POST /_matrix/client/r0/rooms/!room:x/send/m.room.message": `{"event_id":"$e"}`,
		}[r.Method+" "+r.URL.Path]
		if answer == "" || r.URL.Path == "/_matrix/client/r0/login" && r.Method == http.MethodPost && !strings.Contains(string(body), "s3cretpass") {
			w.WriteHeader(http.StatusForbidden)
			answer = `{"errcode":"M_FORBIDDEN","error":"no"}`
		}
		got <- request{r.Method + " " + r.URL.Path, r.Header, string(body)}
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(s.Close)

	to := "matrix://rouse:s3cretpass@" + strings.TrimPrefix(s.URL, "http://") + "/?rooms=!room:x&disableTLS=yes"
	receipt, err := open(t, Settings{Kind: "url", URL: to}).Send(t.Context(), about)
	if err != nil || !receipt.Proven {
		t.Fatalf("%+v, %v", receipt, err)
	}
	close(got)
	var last request
	for r := range got {
		last = r
	}
	for _, want := range []string{"clerk: done", "https[:]//evil", about.Link} {
		if !strings.HasSuffix(last.path, "/send/m.room.message") || !strings.Contains(last.body, want) {
			t.Errorf("no %q in %+v", want, last)
		}
	}
}

// Errors of a channel do not contain the secrets of its address.
func TestAddressIsHidden(t *testing.T) {
	t.Parallel()
	s, _ := listening(t, 403, "no")
	host := strings.TrimPrefix(s.URL, "http://")
	for _, url := range []string{
		"ntfy://user:s3cretpass@" + host + "/s3crettopic?scheme=http",
		"gotify://" + host + "/s3cretpath/As3cretpass.x?disabletls=yes",
		"matrix://user:s3cretpass@" + host + "/?rooms=!s3cretroom&disableTLS=yes",
		"generic+http://" + host + "/s3cretpath?@authorization=s3cretpass",
		"slack://s3cretpass",
		"telegram://s3cretpass@telegram",
		"ntfy://s3cretpass:%zz@host/topic",
	} {
		c, err := Open(Settings{Kind: "url", URL: url})
		if strings.HasPrefix(url, "matrix") && err != nil {
			t.Errorf("opening a channel asked its server: %v", err)
		}
		if err == nil {
			_, err = c.Send(t.Context(), about)
		}
		if err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", url, err)
		}
		if strings.Contains(url, "scheme=http") && strings.Contains(err.Error(), "…://") {
			t.Errorf("what is no key is hidden: %v", err)
		}
	}
}

// A webhook is signed as specified by Standard Webhooks and has the same ID in each attempt. The
// response is recorded and redirects are not followed.
func TestWebhookOut(t *testing.T) {
	t.Parallel()
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	s, got := listening(t, 202, "thanks\nfor all")
	c := open(t, Settings{Kind: "webhook", URL: s.URL + "/in", Secret: secret})
	var ids []string
	for range 2 {
		receipt, err := c.Send(t.Context(), about)
		if err != nil || !receipt.Proven || receipt.Answer != "202 Accepted thanks for all" {
			t.Fatalf("%+v, %v", receipt, err)
		}
		r := <-got
		if _, err := webhook.Standard.Verify(secret, r.header, []byte(r.body), time.Now()); err != nil {
			t.Error(err)
		}
		var said posted
		if err := json.Unmarshal([]byte(r.body), &said); err != nil || said.Type != "notice" || said.Data.Run != 3 || said.Data.Title != about.Title || said.Data.Link != about.Link {
			t.Errorf("%s: %v", r.body, err)
		}
		ids = append(ids, r.header.Get("webhook-id"))
	}
	if ids[0] == "" || ids[0] != ids[1] {
		t.Errorf("ids %q", ids)
	}

	for status, want := range map[int]string{302: "redirects are not followed", 500: "500 Internal Server Error broken", 410: "410 Gone"} {
		s, got := listening(t, status, "broken")
		if _, err := open(t, Settings{Kind: "webhook", URL: s.URL, Secret: secret}).Send(t.Context(), about); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v", status, err)
		}
		if <-got; len(got) > 0 {
			t.Errorf("%d: asked again", status)
		}
	}

	// Nothing listens on port 1. A port that a test freed could be taken by another test.
	over, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := open(t, Settings{Kind: "webhook", URL: "http://127.0.0.1:1/?key=s3cret", Secret: secret}).Send(over, about); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("nobody is there: %v", err)
	}
}
