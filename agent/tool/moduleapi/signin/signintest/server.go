// Package signintest is an authorization server on the loopback, for tests: it takes a client only as that has to say who it is, a code
// once, with the verifier of its challenge (S256) and for the address that it was sent to, and a refresh token once. Beside it is a store of
// sign-ins in memory.
package signintest

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
)

// The client that the server knows.
const (
	ClientID     = "client-of-the-test"
	ClientSecret = "secret-of-the-test"
)

// Server is the server, and the API that its tokens open under /api.
type Server struct {
	*httptest.Server

	// Set before the server is asked.
	Method   string // of client authentication, as manifests call it; "" is client_secret_basic
	Lifetime int    // of tokens, in seconds; 0: the server does not say
	Down     bool   // it answers 503

	mu       sync.Mutex
	codes    map[string]url.Values // that were not used yet, with what they were asked with
	refresh  map[string]bool
	access   map[string]bool
	issued   []string // all that is secret
	requests []string // the grant types of those for tokens
	api      []string // what the API was asked with
}

// New starts a server that ends with the test.
func New(t *testing.T) *Server {
	t.Helper()
	s := &Server{codes: map[string]url.Values{}, refresh: map[string]bool{}, access: map[string]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /authorize", s.authorize)
	mux.HandleFunc("POST /token", s.token)
	mux.HandleFunc("/api/", s.answer)
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// Host is the address of the server without its scheme.
func (s *Server) Host() string { return strings.TrimPrefix(s.URL, "http://") }

// Issued are all codes and tokens that were given to anybody.
func (s *Server) Issued() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.issued)
}

// Requests are the grant types of the requests for tokens, in order.
func (s *Server) Requests() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.requests, ", ")
}

// API is how often the API was asked with a token that is valid.
func (s *Server) API() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.api)
}

// Revoke makes all tokens invalid.
func (s *Server) Revoke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.refresh)
	clear(s.access)
}

// SignIn opens a link as an owner's browser does, agrees, and gives the address that it is sent to.
func (s *Server) SignIn(t *testing.T, link string) string {
	t.Helper()
	resp, err := http.DefaultTransport.RoundTrip(httptest.NewRequest(http.MethodGet, link, nil))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusFound {
		t.Fatalf("%s is answered %s", link, resp.Status)
	}
	return resp.Header.Get("Location")
}

func (s *Server) authorize(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := r.URL.Query()
	if q.Get("client_id") != ClientID || q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" || q.Get("code_challenge") == "" || len(q.Get("state")) < 20 {
		http.Error(w, "refused", http.StatusBadRequest)
		return
	}

	code := "code-" + rand.Text()
	s.codes[code], s.issued = q, append(s.issued, code)
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+url.Values{"code": {code}, "state": {q.Get("state")}}.Encode(), http.StatusFound)
}

func (s *Server) token(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = r.ParseForm()
	s.requests = append(s.requests, r.Form.Get("grant_type"))
	switch {
	case s.Down:
		http.Error(w, "later", http.StatusServiceUnavailable)
		return
	case !s.knows(r):
		refuse(w, http.StatusUnauthorized, "invalid_client")
		return
	}

	refreshes := true
	switch r.Form.Get("grant_type") {
	case "authorization_code":
		code := r.Form.Get("code")
		asked, ok := s.codes[code]
		delete(s.codes, code)
		sum := sha256.Sum256([]byte(r.Form.Get("code_verifier")))
		if !ok || asked.Get("redirect_uri") != r.Form.Get("redirect_uri") || asked.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) {
			refuse(w, http.StatusBadRequest, "invalid_grant")
			return
		}
	case "refresh_token":
		old := r.Form.Get("refresh_token")
		if !s.refresh[old] {
			refuse(w, http.StatusBadRequest, "invalid_grant")
			return
		}
		delete(s.refresh, old)
		clear(s.access)
	case "client_credentials":
		refreshes = false
	default:
		refuse(w, http.StatusBadRequest, "unsupported_grant_type")
		return
	}

	access := "access-" + rand.Text()
	s.access[access], s.issued = true, append(s.issued, access)
	out := map[string]any{"access_token": access, "token_type": "Bearer"}
	if s.Lifetime > 0 {
		out["expires_in"] = s.Lifetime
	}
	if refreshes {
		again := "refresh-" + rand.Text()
		s.refresh[again], s.issued = true, append(s.issued, again)
		out["refresh_token"] = again
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out)
}

// knows says whether a request is the client's, who says so as it has to and in no other way.
func (s *Server) knows(r *http.Request) bool {
	id, secret, basic := r.BasicAuth()
	form := r.PostForm
	switch s.Method {
	case "client_secret_post":
		return !basic && form.Get("client_id") == ClientID && form.Get("client_secret") == ClientSecret
	case "none":
		return !basic && form.Get("client_id") == ClientID && !form.Has("client_secret")
	}
	return basic && id == ClientID && secret == ClientSecret && !form.Has("client_secret")
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": code, "error_description": "this server does not take that"})
}

// answer is the API: it says who asked, with their token, as careless servers do.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !s.access[token] {
		http.Error(w, "no", http.StatusUnauthorized)
		return
	}
	s.api = append(s.api, r.URL.Path)
	w.Header().Set("Content-Type", "text/plain") // else one is guessed, and by some tokens it is a font
	fmt.Fprintf(w, "you are %s", token)
}
