// Package signintest provides an authorization server on the loopback interface and an in-memory
// store, for tests. The server accepts each code and each refresh token once. It checks the client
// authentication, the PKCE verifier (S256) and the redirect address.
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

// Credentials of the client that the server accepts.
const (
	ClientID     = "client-of-the-test"
	ClientSecret = "secret-of-the-test"
)

// Server is the authorization server, with an API under /api that accepts its tokens.
type Server struct {
	*httptest.Server

	// Set these fields before the first request.
	Method   string // client authentication, as in manifests; "" means client_secret_basic
	Lifetime int    // lifetime of tokens in seconds; 0 means unspecified
	Down     bool   // responds with 503

	mu       sync.Mutex
	codes    map[string]url.Values // unused codes with the query of their request
	refresh  map[string]bool
	access   map[string]bool
	issued   []string // all codes and tokens
	requests []string // grant types of the token requests
	api      []string // paths of the API requests
}

// New starts a server that is closed at the end of the test.
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

// Host returns the address of the server without the scheme.
func (s *Server) Host() string { return strings.TrimPrefix(s.URL, "http://") }

// Issued returns all codes and tokens that the server has issued.
func (s *Server) Issued() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.issued)
}

// Requests returns the grant types of the token requests, in order.
func (s *Server) Requests() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.requests, ", ")
}

// API returns the number of API requests with a valid token.
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

// SignIn opens a link like the owner's browser, consents, and returns the redirect address.
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

// knows reports whether a request authenticates the client with exactly the configured method.
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

// answer serves the API. It echoes the token of the request, as careless services do.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !s.access[token] {
		http.Error(w, "no", http.StatusUnauthorized)
		return
	}
	s.api = append(s.api, r.URL.Path)
	w.Header().Set("Content-Type", "text/plain") // otherwise the type is detected, and some tokens look like a font
	fmt.Fprintf(w, "you are %s", token)
}
