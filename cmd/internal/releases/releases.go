// Package releases looks up the newest release of rouse.
//
// # Design
//
// A lookup happens only at a person's request, and only at an address named by that person or by
// the build. rouse never reports its presence on its own. The response is untrusted: its size and
// time are limited, it must come over TLS, and it is only displayed.
package releases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	goversion "go/version"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"rouse/internal/dial"
	"rouse/internal/text"
)

const (
	// Patience is the timeout of a lookup.
	Patience = 15 * time.Second
	maxBody  = 4 << 20
)

// Release describes a release, with the field names shared by the APIs of GitHub, GitLab and Gitea.
type Release struct {
	Version   string `json:"tag_name"`
	URL       string `json:"html_url"`
	Published string `json:"published_at"`
	Draft     bool   `json:"draft"`
	Pre       bool   `json:"prerelease"`
}

// Latest requests a release or a list of releases. It returns the highest version that is neither a
// draft nor a prerelease. agent is the User-Agent header.
func Latest(ctx context.Context, address, agent string) (Release, error) {
	u, err := check(address)
	if err != nil {
		return Release{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()

	body, err := get(ctx, u, agent)
	if err != nil {
		return Release{}, err
	}
	return newest(body)
}

// check returns an error for an address without TLS, unless it is on this machine.
func check(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, fmt.Errorf("%q is no address: write https://…", text.OneLine(address))
	}
	if ip, err := netip.ParseAddr(u.Hostname()); u.Scheme == "http" && u.Hostname() != "localhost" && (err != nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("%s is asked over https alone, since anybody on the way could answer", text.OneLine(u.Redacted()))
	}
	return u, nil
}

func get(ctx context.Context, u *url.URL, agent string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", agent)
	client := &http.Client{Transport: dial.New(dial.Options{Own: []string{u.String()}, Proxy: true}), CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if len(via) > 5 {
			return errors.New("it leads from one address to the next without end")
		}
		_, err := check(r.URL.String())
		return err
	}}

	answer, err := client.Do(request) //nolint:gosec // the user names the address
	if err != nil {
		return nil, unreachable(u, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", u.Host, text.OneLine(answer.Status))
	}

	body, err := io.ReadAll(io.LimitReader(answer.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, unreachable(u, err)
	case len(body) > maxBody:
		return nil, fmt.Errorf("%s answers with more than %s, which no list of releases is", u.Host, text.Size(maxBody))
	}
	return body, nil
}

// unreachable turns an error into a message that helps to find network problems.
func unreachable(u *url.URL, err error) error {
	var dns *net.DNSError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s did not answer within %s", u.Host, Patience)
	case errors.As(err, &dns):
		return fmt.Errorf("%s cannot be found; is this machine offline?", u.Host)
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) { // its text repeats the address
		err = wrapped.Err
	}
	return fmt.Errorf("%s cannot be asked: %w", u.Host, err)
}

// newest returns the highest version in a response.
func newest(body []byte) (best Release, err error) {
	var all []Release
	if err := json.Unmarshal(body, &all); err != nil {
		var one Release
		if json.Unmarshal(body, &one) != nil {
			return best, errors.New("the answer is no release and no list of releases, as the API of GitHub gives them (tag_name, html_url)")
		}
		all = []Release{one}
	}

	highest := ""
	for _, r := range all {
		number, pre, ok := parse(r.Version)
		if r.Draft || r.Pre || !ok || pre {
			continue
		}
		if best.Version == "" || goversion.Compare(number, highest) > 0 {
			r.Version = "v" + strings.TrimPrefix(r.Version, "v")
			best, highest = r, number
		}
	}
	if best.Version == "" {
		return best, errors.New("the answer names no release with a version like v1.2.3")
	}
	return best, nil
}

// parse returns a semantic version in the form that package go/version compares, and whether it is
// a prerelease.
func parse(version string) (number string, pre, ok bool) {
	number, _, _ = strings.Cut(strings.TrimPrefix(version, "v"), "+")
	number, _, pre = strings.Cut(number, "-")
	ok = strings.Trim(number, "0123456789.") == "" && goversion.IsValid("go"+number)
	return "go" + number, pre, ok
}

// Newer reports whether a release is newer than a version. known is false if the version cannot be
// compared, for example if it is a commit.
func (r Release) Newer(version string) (newer, known bool) {
	latest, _, _ := parse(r.Version)
	number, pre, ok := parse(version)
	order := goversion.Compare(latest, number)
	return ok && (order > 0 || order == 0 && pre), ok
}
