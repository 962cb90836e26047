// Package pullrequest opens a pull request at GitHub or a merge request at GitLab through their
// REST APIs.
//
// The caller supplies the token and the HTTP client. The client must enforce which hosts may be
// reached.
package pullrequest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"rouse/internal/text"
)

// Provider is a kind of server.
type Provider string

// The providers.
const (
	GitHub Provider = "github"
	GitLab Provider = "gitlab"
)

const maxAnswer = 4 << 20

// Client opens pull requests of one repository.
type Client struct {
	HTTP     *http.Client // HTTP client; redirects are not followed, see call
	Provider Provider
	Base     string // for a self-hosted server, such as https://git.example.com; empty means github.com or gitlab.com
	Project  string // owner/name; at GitLab including all groups
	Token    string
}

// For returns a client for the project at the address of a git remote. Its Provider is "" if it
// cannot be told from the host.
func For(remote string) (*Client, error) {
	u, err := url.Parse(remote)
	if err != nil || u.Host == "" { // git@host:owner/name.git
		host, path, ok := strings.Cut(remote, ":")
		if !ok || strings.Contains(host, "/") {
			return nil, fmt.Errorf("%q is not the address of a project at GitHub or GitLab", text.Visible(remote))
		}
		u = &url.URL{Scheme: "ssh", Host: host[strings.LastIndex(host, "@")+1:], Path: "/" + path}
	}
	c := &Client{Base: "https://" + u.Host, Project: strings.TrimSuffix(strings.Trim(u.Path, "/"), ".git")}
	switch {
	case u.Scheme == "http" && isLocal(u.Hostname()):
		c.Base = "http://" + u.Host
	case u.Scheme == "ssh":
		c.Base = "https://" + u.Hostname() // the port is the SSH port
	}
	switch {
	case !strings.Contains(c.Project, "/"):
		return nil, fmt.Errorf("the remote at %s names no project such as owner/name", u.Host)
	case u.Hostname() == "github.com":
		c.Provider = GitHub
	case u.Hostname() == "gitlab.com":
		c.Provider = GitLab
	}
	return c, nil
}

// Request is a pull request to open.
type Request struct {
	Branch string // branch with the changes; must have been pushed
	Target string // empty means the default branch
	Title  string
	Body   string
	Draft  bool
}

// Opened is an open pull request.
type Opened struct {
	Number  int    `json:"number"`
	URL     string `json:"url"`     // for browsers
	Existed bool   `json:"existed"` // it was already open
}

// Error is an error response of the provider.
type Error struct {
	Status int
	Advice string // meaning and remedy
	Said   string // message of the provider, which is not trusted
}

func (e *Error) Error() string {
	out := fmt.Sprintf("%s (HTTP %d)", e.Advice, e.Status)
	if e.Said != "" {
		out += ": " + e.Said
	}
	return out
}

// Open opens a pull request, or returns the one that is already open for the branch and the target.
func (c *Client) Open(ctx context.Context, r Request) (Opened, error) {
	o, err := c.open(ctx, r)
	if err != nil {
		return Opened{}, fmt.Errorf("open pull request for %s of %s: %w", r.Branch, c.Project, err)
	}
	return o, nil
}

func (c *Client) open(ctx context.Context, r Request) (Opened, error) {
	if owner, name, ok := strings.Cut(c.Project, "/"); !ok || owner == "" || name == "" {
		return Opened{}, fmt.Errorf("%q is not a project; write owner/name", c.Project)
	}
	if r.Branch == "" || strings.TrimSpace(r.Title) == "" {
		return Opened{}, errors.New("a pull request needs a branch and a title")
	}
	switch c.Provider {
	case GitHub, GitLab:
	default:
		return Opened{}, fmt.Errorf("%q is no provider; use %s or %s", c.Provider, GitHub, GitLab)
	}
	if c.Token == "" {
		return Opened{}, errors.New("a token is needed; grant a secret that holds one")
	}

	api, err := c.api()
	if err != nil {
		return Opened{}, err
	}
	if r.Target == "" {
		if r.Target, err = c.defaultBranch(ctx, api); err != nil {
			return Opened{}, err
		}
	}
	if o, err := c.find(ctx, api, r); err != nil || o.URL != "" {
		return o, err
	}

	o, err := c.create(ctx, api, r)
	// Another process may have opened it, or a response was lost.
	var refused *Error
	if errors.As(err, &refused) && (refused.Status == http.StatusConflict || refused.Status == http.StatusUnprocessableEntity) {
		if o, also := c.find(ctx, api, r); also == nil && o.URL != "" {
			return o, nil
		}
	}
	return o, err
}

// api returns the project's URL in the provider's API.
func (c *Client) api() (string, error) {
	base := strings.TrimSuffix(c.Base, "/")
	u, err := url.Parse(base)
	if base != "" && (err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" && (u.Scheme != "http" || !isLocal(u.Hostname()))) {
		return "", fmt.Errorf("%q is not the address of a server; write https://HOST", text.Visible(c.Base))
	}
	switch {
	case c.Provider == GitLab && base == "":
		base = "https://gitlab.com/api/v4"
	case c.Provider == GitLab:
		base += "/api/v4"
	case base == "" || u.Host == "github.com":
		base = "https://api.github.com"
	case u.Path == "": // GitHub Enterprise Server
		base += "/api/v3"
	}
	if c.Provider == GitLab {
		return base + "/projects/" + url.PathEscape(c.Project), nil
	}
	owner, name, _ := strings.Cut(c.Project, "/")
	return base + "/repos/" + url.PathEscape(owner) + "/" + url.PathEscape(name), nil
}

func isLocal(host string) bool { return host == "127.0.0.1" || host == "::1" || host == "localhost" }

func (c *Client) defaultBranch(ctx context.Context, api string) (string, error) {
	var project struct {
		Default string `json:"default_branch"`
	}
	err := c.call(ctx, http.MethodGet, api, nil, &project)
	if err == nil && project.Default == "" {
		err = errors.New("the project has no default branch; name the target")
	}
	return project.Default, err
}

// answer is a pull request of GitHub or a merge request of GitLab.
type answer struct {
	Number  int    `json:"number"`
	HTMLURL string `json:"html_url"`
	IID     int    `json:"iid"`
	WebURL  string `json:"web_url"`
}

func (a answer) opened(existed bool) (Opened, error) {
	o := Opened{a.Number + a.IID, a.HTMLURL + a.WebURL, existed}
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || o.Number == 0 {
		return Opened{}, errors.New("the server answered without the address of a pull request")
	}
	return o, nil
}

// find returns the open pull request of a branch. Its URL is "" if the branch has no open pull
// request.
func (c *Client) find(ctx context.Context, api string, r Request) (Opened, error) {
	at := api + "/merge_requests?" + url.Values{"state": {"opened"}, "source_branch": {r.Branch}, "target_branch": {r.Target}}.Encode()
	if c.Provider == GitHub {
		owner, _, _ := strings.Cut(c.Project, "/")
		at = api + "/pulls?" + url.Values{"state": {"open"}, "head": {owner + ":" + r.Branch}, "base": {r.Target}}.Encode()
	}
	var found []answer
	if err := c.call(ctx, http.MethodGet, at, nil, &found); err != nil || len(found) == 0 {
		return Opened{}, err
	}
	return found[0].opened(true)
}

func (c *Client) create(ctx context.Context, api string, r Request) (Opened, error) {
	at, body := api+"/pulls", map[string]any{"title": r.Title, "head": r.Branch, "base": r.Target, "body": r.Body, "draft": r.Draft}
	if c.Provider == GitLab {
		title := r.Title
		if r.Draft {
			title = "Draft: " + title
		}
		at, body = api+"/merge_requests", map[string]any{"title": title, "source_branch": r.Branch, "target_branch": r.Target, "description": r.Body}
	}
	var made answer
	if err := c.call(ctx, http.MethodPost, at, body, &made); err != nil {
		return Opened{}, err
	}
	return made.opened(false)
}

// call sends a request. It does not follow redirects, which would send the token to another
// address.
func (c *Client) call(ctx context.Context, method, at string, body, into any) error {
	content, err := json.Marshal(body)
	if err != nil {
		return err
	}
	if body == nil {
		content = nil
	}
	req, err := http.NewRequestWithContext(ctx, method, at, bytes.NewReader(content))
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "rouse")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.Provider == GitHub {
		req.Header.Set("Accept", "application/vnd.github+json")
		req.Header.Set("X-Github-Api-Version", "2022-11-28")
		req.Header.Set("Authorization", "Bearer "+c.Token)
	} else {
		req.Header.Set("Private-Token", c.Token)
	}

	client := *c.HTTP
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()

	said, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err != nil {
		return err
	}
	if len(said) > maxAnswer {
		return fmt.Errorf("the server answered with more than %d MiB", maxAnswer>>20)
	}
	if res.StatusCode/100 != 2 {
		return &Error{res.StatusCode, c.advice(res), c.message(said)}
	}
	if err := json.Unmarshal(said, into); err != nil {
		return fmt.Errorf("the server answered with no JSON of a pull request (HTTP %d): %w", res.StatusCode, err)
	}
	return nil
}

// advice explains a status.
func (c *Client) advice(res *http.Response) string {
	scope := "contents and pull requests: write"
	if c.Provider == GitLab {
		scope = "api"
	}
	switch {
	case res.StatusCode == http.StatusUnauthorized:
		return "the token is not valid, or has expired; renew the secret"
	case res.StatusCode == http.StatusTooManyRequests || res.StatusCode == http.StatusForbidden && res.Header.Get("X-Ratelimit-Remaining") == "0":
		return "the token has made too many requests; try again later"
	case res.StatusCode == http.StatusForbidden:
		return "the token may not open pull requests there; it needs the scope " + scope
	case res.StatusCode == http.StatusNotFound:
		return "there is no such project, or the token may not see it; check the name, and that the token has the scope " + scope
	case res.StatusCode == http.StatusConflict, res.StatusCode == http.StatusUnprocessableEntity, res.StatusCode == http.StatusBadRequest:
		return "the server refused the pull request; push the branch first, and check that it has commits that the target does not have"
	case res.StatusCode/100 == 3:
		return "the server redirects to " + text.Visible(text.Head(host(res.Header.Get("Location")), 100)) + ", which is not followed; use the project's new name or address"
	case res.StatusCode/100 == 5:
		return "the server has a fault of its own; try again later"
	}
	return "the server refused the request"
}

func host(location string) string {
	if u, err := url.Parse(location); err == nil && u.Host != "" {
		return u.Host
	}
	return "another address"
}

// message returns the server's error message, with the token removed.
func (c *Client) message(body []byte) string {
	var answer struct {
		Message any `json:"message"`
		Error   any `json:"error"`
		Errors  []struct {
			Message string `json:"message"`
		} `json:"errors"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return ""
	}
	var words []string
	for _, said := range []any{answer.Message, answer.Error} {
		if said != nil {
			words = append(words, fmt.Sprint(said))
		}
	}
	for _, e := range answer.Errors {
		if e.Message != "" {
			words = append(words, e.Message)
		}
	}
	return text.Visible(text.Head(strings.ReplaceAll(strings.Join(words, ": "), c.Token, "…"), 300))
}
