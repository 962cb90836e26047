package mcp

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"rouse/agent/tool"
	"rouse/agent/tool/shell"
)

// Server is the configuration of a server.
type Server struct {
	Name string

	// For a program that serves on its standard input and output.
	Argv    []string
	Env     []string       // name=value, added to the default environment
	Read    []string       // absolute paths it may read besides the system
	Files   shell.Exposure // the agent's folders that it sees
	Network bool

	// For a server with a URL (streamable HTTP).
	URL     string
	Headers map[string]string // sent with each request
	Near    bool              // may be on this machine or its network
	OAuth   *OAuth            // configured sign-in; nil to discover it

	Private        bool          // results are private data
	Public         bool          // results are not private, even if the owner is signed in
	Start, Timeout time.Duration // timeouts of the start and the tool list, and of one call
	Allow          []string      // globs of the offered tools; empty means all
	ReadOnly       []string      // globs of tools the owner declares read-only
	Ask            []string      // globs of tools that need an approval for each call
}

// OAuth is a client that the owner registered at the authorization server.
type OAuth struct {
	Issuer                 string // authorization server; empty to let the server name it; required with a secret
	ClientID, ClientSecret string
	Scopes                 []string
}

// Default timeouts of a server.
const (
	DefaultStart   = 30 * time.Second
	DefaultTimeout = 2 * time.Minute
)

// Mark separates the server's name from the tool's name.
const Mark = "__"

// namePattern matches server names. They are short because providers limit tool names to 64
// characters.
var namePattern = regexp.MustCompile(`^[a-z0-9](?:[a-z0-9]|[-_][a-z0-9]){0,31}$`)

// toolPattern matches the tool names that providers accept.
var toolPattern = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// CheckName returns an error if name is not a valid server name.
func CheckName(name string) error {
	if !namePattern.MatchString(name) {
		return fmt.Errorf("%q cannot begin the names of tools; write small letters and digits, with single - or _ between them, 32 at most", name)
	}
	return nil
}

// ToolName returns the name that agents use to call a tool of a server.
func ToolName(server, name string) string { return server + Mark + name }

// SplitName splits a tool's full name into the server's name and the tool's own name.
func SplitName(name string) (server, its string, ok bool) {
	server, its, ok = strings.Cut(name, Mark)
	return server, its, ok && namePattern.MatchString(server) && its != ""
}

// Check returns an error if the configuration of the server is invalid.
func (s Server) Check() error {
	if err := CheckName(s.Name); err != nil {
		return err
	}

	switch {
	case len(s.Argv) == 0 && s.URL == "":
		return errors.New("it needs argv, a program that serves, or url, an address")
	case len(s.Argv) > 0 && s.URL != "":
		return errors.New("it has argv and url; give the one that it is")
	case len(s.Argv) > 0:
		return nil
	}

	u, err := url.Parse(s.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return errors.New("its url is no address like https://example.com/mcp")
	case u.User != nil || u.Fragment != "":
		return errors.New("its url holds a user, a password or a fragment; keys belong under headers")
	case s.OAuth != nil && s.OAuth.ClientSecret != "" && s.OAuth.Issuer == "":
		return errors.New("its oauth has a client_secret and no issuer: the server says who signs people in, and could name somebody who is to get the secret; name its authorization server under oauth.issuer")
	case u.Scheme == "http" && !s.Near:
		return errors.New("its url is plain http: others could read what it is sent, and say what it answers; use https, or private_network: true for one on this machine or its network")
	}
	return nil
}

// Host returns the host and port of a server with a URL, or "".
func (s Server) Host() string {
	if u, err := url.Parse(s.URL); err == nil {
		return u.Host
	}
	return ""
}

// Identity returns a hash of the server's program or URL. Approvals apply to this identity only,
// not to another server with the same name.
func (s Server) Identity() string {
	text, err := json.Marshal([]any{s.Argv, s.URL})
	if err != nil { // strings can always be encoded
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Where returns the server's program or URL for display.
func (s Server) Where() string {
	if s.URL != "" {
		return s.URL
	}
	return strings.Join(s.Argv, " ")
}

// IsOutward reports whether calls can reach beyond this machine.
func (s Server) IsOutward() bool { return s.URL != "" || s.Network }

// allows reports whether the configuration offers a tool of the server.
func (s Server) allows(name string) bool { return tool.IsAllowed(s.Allow, nil, name) }

func matches(globs []string, name string) bool {
	return slices.ContainsFunc(globs, func(g string) bool {
		ok, err := path.Match(g, name)
		return ok && err == nil
	})
}

// IsIssuer reports whether an authorization server may be used: it is the configured issuer, or no
// issuer is configured. The secret of a registered client must not go to another issuer.
func (s Server) IsIssuer(issuer string) bool {
	return s.OAuth == nil || s.OAuth.Issuer == "" || strings.TrimSuffix(s.OAuth.Issuer, "/") == strings.TrimSuffix(issuer, "/")
}
