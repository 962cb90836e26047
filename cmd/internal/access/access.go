package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"rouse/internal/atomicfile"
)

const (
	// codeFor is the lifetime of a login link.
	codeFor = 10 * time.Minute
	// sessionFor is the lifetime of a session.
	sessionFor = 30 * 24 * time.Hour
	// noteUseEvery is the precision of a session's time of last use.
	noteUseEvery = time.Hour
	// maxSessions and maxCodes limit the number of sessions and login codes. The oldest is dropped.
	maxSessions, maxCodes = 50, 50
	// maxRequests limits the open requests of one caller, so that event streams cannot use up all
	// connections.
	maxRequests = 64
	// secretBytes is the length of tokens, codes and session cookies: 256 bits.
	secretBytes = 32
	// maxAgent is the maximum length of a recorded User-Agent, in bytes.
	maxAgent = 200
)

// ErrNoSession is returned by End if there is no session with the given ID.
var ErrNoSession = errors.New("nobody is logged in by that id")

// Address is an address at which browsers reach rouse.
type Address struct {
	Scheme  string // "http" or "https"
	Host    string // with the port, unless it is the scheme's default
	Proxied bool   // requests for this address come from the proxy
}

// Proxy is a reverse proxy that forwards requests.
type Proxy struct {
	From   netip.Addr
	Header string // header with the original client; must not be empty
}

// Options holds the settings of an Access.
type Options struct {
	Dir       string    // directory of the secrets; created with access for the user only
	Addresses []Address // the first one is shown to people
	Proxy     Proxy
	Logger    *slog.Logger
}

// Access authenticates requests.
type Access struct {
	dir       string
	addresses map[string]Address // by host, in lower case
	first     Address
	proxy     Proxy
	log       *slog.Logger

	mu       sync.Mutex
	token    string
	live     context.Context // context of requests with the token; ends when the token is replaced
	end      context.CancelFunc
	codes    []code
	sessions []*session
	open     map[string]int // number of open requests by caller
}

type code struct {
	hash    string
	path    string // page to open after the login
	expires time.Time
}

// Session is a logged-in browser.
type Session struct {
	ID        string    `json:"id"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
	UsedAt    time.Time `json:"used_at"` // precise to noteUseEvery
	Agent     string    `json:"agent"`   // User-Agent header
}

type session struct {
	Session
	Hash string `json:"hash"` // SHA-256 of the cookie, in hexadecimal

	live context.Context // ends with the session
	end  context.CancelFunc
}

// New reads the token and the sessions. If the token file does not exist, New creates one.
func New(o Options) (*Access, error) {
	if o.Dir == "" || len(o.Addresses) == 0 {
		return nil, errors.New("access: a folder and an address are needed")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}

	a := &Access{dir: o.Dir, addresses: map[string]Address{}, first: o.Addresses[0], proxy: o.Proxy, log: o.Logger}
	for _, address := range o.Addresses {
		a.addresses[strings.ToLower(address.Host)] = address
	}
	a.live, a.end = context.WithCancel(context.Background())

	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return nil, fmt.Errorf("the folder of the token cannot be made: %w", err)
	}
	if err := a.readToken(); err != nil {
		return nil, err
	}
	return a, a.readSessions()
}

// URL returns the address of a page.
func (a *Access) URL(path string) string { return a.first.Scheme + "://" + a.first.Host + path }

// TokenFile returns the path of the file with the token, which the owner can read.
func (a *Access) TokenFile() string { return filepath.Join(a.dir, "token") }

func (a *Access) sessionFile() string { return filepath.Join(a.dir, "sessions.json") }

func (a *Access) readToken() error {
	text, err := os.ReadFile(a.TokenFile())
	if errors.Is(err, fs.ErrNotExist) {
		return a.newToken()
	}
	if err != nil {
		return fmt.Errorf("the token cannot be read: %w", err)
	}

	a.token = strings.TrimSpace(string(text))
	if raw, err := base64.RawURLEncoding.DecodeString(a.token); err != nil || len(raw) < secretBytes {
		return fmt.Errorf("what is in %s is no token; remove the file, and another one is made at the next start", a.TokenFile())
	}
	return nil
}

func (a *Access) newToken() error {
	token := newSecret()
	if err := atomicfile.Write(a.TokenFile(), []byte(token+"\n"), 0o600); err != nil {
		return fmt.Errorf("the token cannot be kept: %w", err)
	}
	a.token = token
	return nil
}

// Rotate replaces the token and ends all sessions and login links.
func (a *Access) Rotate() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.newToken(); err != nil {
		return err
	}

	a.end()
	a.live, a.end = context.WithCancel(context.Background())
	a.codes = nil
	for _, s := range a.sessions {
		s.end()
	}
	a.sessions = nil
	return a.keepSessions()
}

func (a *Access) readSessions() error {
	text, err := os.ReadFile(a.sessionFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, &a.sessions)
	}
	if err != nil {
		return fmt.Errorf("who is logged in cannot be read from %s: %w; remove the file, and browsers log in again", a.sessionFile(), err)
	}

	for _, s := range a.sessions {
		s.live, s.end = context.WithCancel(context.Background())
	}
	return nil
}

// keepSessions writes the sessions that have not expired. The caller must hold the lock.
func (a *Access) keepSessions() error {
	now := time.Now()
	a.sessions = slices.DeleteFunc(a.sessions, func(s *session) bool { return !now.Before(s.ExpiresAt) })
	kept := a.sessions
	if kept == nil {
		kept = []*session{}
	}

	text, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(a.sessionFile(), text, 0o600); err != nil {
		return fmt.Errorf("who is logged in cannot be kept: %w", err)
	}
	return nil
}

// Login returns a link that logs a browser in and opens a page. The link works once, until expires.
func (a *Access) Login(path string) (url string, expires time.Time) {
	if !local(path) {
		path = "/"
	}

	secret := newSecret()
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.codes = slices.DeleteFunc(a.codes, func(c code) bool { return !now.Before(c.expires) })
	if len(a.codes) >= maxCodes {
		a.codes = a.codes[1:]
	}
	expires = now.Add(codeFor)
	a.codes = append(a.codes, code{hashOf(secret), path, expires})
	return a.URL("/login?code=" + secret), expires
}

// local reports whether a path belongs to this server. A path that begins with two slashes is
// another host.
func local(path string) bool {
	return strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "//") && !strings.ContainsAny(path, "\\\r\n")
}

// begin exchanges a login code for a session. It returns false if the code is not valid.
func (a *Access) begin(secret, agent string) (cookie, path string, ok bool, err error) {
	hash, now := hashOf(secret), time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.IndexFunc(a.codes, func(c code) bool {
		return subtle.ConstantTimeCompare([]byte(c.hash), []byte(hash)) == 1 && now.Before(c.expires)
	})
	if i < 0 {
		return "", "", false, nil
	}
	path = a.codes[i].path
	a.codes = slices.Delete(a.codes, i, i+1)

	cookie = newSecret()
	s := &session{Session: Session{ID: newSecret()[:8], CreatedAt: now, ExpiresAt: now.Add(sessionFor), UsedAt: now, Agent: strings.ToValidUTF8(agent[:min(len(agent), maxAgent)], "")}, Hash: hashOf(cookie)}
	s.live, s.end = context.WithCancel(context.Background())
	for len(a.sessions) >= maxSessions {
		a.sessions[0].end()
		a.sessions = a.sessions[1:]
	}
	a.sessions = append(a.sessions, s)
	return cookie, path, true, a.keepSessions()
}

// Sessions returns the sessions that have not expired.
func (a *Access) Sessions() []Session {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := []Session{}
	for _, s := range a.sessions {
		if time.Now().Before(s.ExpiresAt) {
			out = append(out, s.Session)
		}
	}
	return out
}

// End ends a session and its open requests. It returns ErrNoSession if the session does not exist.
func (a *Access) End(id string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.IndexFunc(a.sessions, func(s *session) bool { return s.ID == id })
	if i < 0 {
		return ErrNoSession
	}

	a.sessions[i].end()
	a.sessions = slices.Delete(a.sessions, i, i+1)
	return a.keepSessions()
}

// byToken returns the context that limits requests with the token, or nil if the token is wrong.
func (a *Access) byToken(token string) context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	if subtle.ConstantTimeCompare([]byte(hashOf(token)), []byte(hashOf(a.token))) != 1 {
		return nil
	}
	return a.live
}

// bySession returns the session of a cookie, or nil if there is none.
func (a *Access) bySession(cookie string) *session {
	hash, now := hashOf(cookie), time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.IndexFunc(a.sessions, func(s *session) bool {
		return subtle.ConstantTimeCompare([]byte(s.Hash), []byte(hash)) == 1 && now.Before(s.ExpiresAt)
	})
	if i < 0 {
		return nil
	}

	s := a.sessions[i]
	if now.Sub(s.UsedAt) >= noteUseEvery {
		s.UsedAt = now
		if err := a.keepSessions(); err != nil { // informational only, so the request continues
			a.log.Warn("the use of a session could not be noted", "error", err)
		}
	}
	return s
}

func newSecret() string {
	raw := make([]byte, secretBytes)
	_, _ = rand.Read(raw) // it never fails
	return base64.RawURLEncoding.EncodeToString(raw)
}

func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}
