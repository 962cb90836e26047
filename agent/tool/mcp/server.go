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

// Server is a server as its owner configured it.
type Server struct {
	Name string

	// Of a program that serves on its standard input and output.
	Argv    []string
	Env     []string       // name=value, beside what every program is given
	Read    []string       // absolute paths that it may read beside the system
	Files   shell.Exposure // which of its agent's folders it sees
	Network bool

	// Of one that is asked at an address (streamable HTTP).
	URL     string
	Headers map[string]string // sent with each request
	Near    bool              // it may be on this machine or its network
	OAuth   *OAuth            // what is known of its sign-in beforehand; nil: what it says itself

	Private        bool          // what it answers is private data
	Public         bool          // it is not, also where its owner is signed in
	Start, Timeout time.Duration // until it has said which tools it has; of a call
	Allow          []string      // globs of its tools that there are; none: all
	ReadOnly       []string      // globs of those that only read, by the word of the owner
	Ask            []string      // globs of those whose every call is asked about
}

// OAuth is the client that the owner has registered where a server has people sign in.
type OAuth struct {
	Issuer                 string // who signs people in; "": whom the server names. A secret has one
	ClientID, ClientSecret string
	Scopes                 []string
}

// The times that a server has where its owner says nothing else.
const (
	DefaultStart   = 30 * time.Second
	DefaultTimeout = 2 * time.Minute
)

// Mark stands between the name of a server and that of its tool.
const Mark = "__"

// namePattern is what the name of a server looks like: it begins the names of tools, which providers take in 64 characters.
var namePattern = regexp.MustCompile(`^[a-z0-9](?:[a-z0-9]|[-_][a-z0-9]){0,31}$`)

// toolPattern is what providers take for the name of a tool.
var toolPattern = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// CheckName says what is wrong with the name of a server.
func CheckName(name string) error {
	if !namePattern.MatchString(name) {
		return fmt.Errorf("%q cannot begin the names of tools; write small letters and digits, with single - or _ between them, 32 at most", name)
	}
	return nil
}

// ToolName is the name by which agents call a tool of a server.
func ToolName(server, name string) string { return server + Mark + name }

// SplitName parts the name of a tool into those of its server and of the tool there.
func SplitName(name string) (server, its string, ok bool) {
	server, its, ok = strings.Cut(name, Mark)
	return server, its, ok && namePattern.MatchString(server) && its != ""
}

// Check says what is wrong with a server.
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

// Host is where a server with an address is, as people read it.
func (s Server) Host() string {
	if u, err := url.Parse(s.URL); err == nil {
		return u.Host
	}
	return ""
}

// Identity names what an approval of its tools is for: the program, or the address. Another one has approved nothing.
func (s Server) Identity() string {
	text, err := json.Marshal([]any{s.Argv, s.URL})
	if err != nil { // texts can always be written
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Where is what a server is, for people: its program or its address.
func (s Server) Where() string {
	if s.URL != "" {
		return s.URL
	}
	return strings.Join(s.Argv, " ")
}

// IsOutward says whether calls reach beyond this machine.
func (s Server) IsOutward() bool { return s.URL != "" || s.Network }

// allows says whether the owner lets a tool of the server be there at all.
func (s Server) allows(name string) bool { return tool.IsAllowed(s.Allow, nil, name) }

func matches(globs []string, name string) bool {
	return slices.ContainsFunc(globs, func(g string) bool {
		ok, err := path.Match(g, name)
		return ok && err == nil
	})
}

// IsIssuer says whether an authorization server is the one that the owner named, where they did. A registered client's secret goes to no other.
func (s Server) IsIssuer(issuer string) bool {
	return s.OAuth == nil || s.OAuth.Issuer == "" || strings.TrimSuffix(s.OAuth.Issuer, "/") == strings.TrimSuffix(issuer, "/")
}
