package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"

	"rouse/internal/dial"
)

const maxRedirects = 10

// checkHTTP requests a page and judges by the status alone. A server that cannot be reached is an
// answer, too: false.
func (q conditionChecker) checkHTTP(ctx context.Context, g Condition) (value string, ok bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.HTTP, nil)
	if err != nil {
		return "", false, errors.New("its URL is broken") // the error would show all of it, secrets included
	}

	req.Header.Set("User-Agent", "rouse")
	client := http.Client{CheckRedirect: checkRedirect, Transport: dial.New(dial.Options{Own: []string{g.HTTP}, Proxy: true, HTTP: true})}
	resp, err := client.Do(req)
	if err != nil {
		return redactor(slices.Concat(q.task.secrets, urlSecrets(g.HTTP))).Replace(networkError(err, g)), false, nil
	}

	resp.Body.Close() // unread: it may be endless
	return fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode)), resp.StatusCode/100 == 2, nil
}

// checkRedirect keeps to the web, and keeps the queries of one server from the next.
func checkRedirect(req *http.Request, via []*http.Request) error {
	if req.URL.Scheme != "http" && req.URL.Scheme != "https" {
		return fmt.Errorf("a redirect to %s:, which is refused", req.URL.Scheme)
	}
	if len(via) >= maxRedirects {
		return fmt.Errorf("more than %d redirects", maxRedirects)
	}

	req.Header.Del("Referer")
	return nil
}

// networkError says why there was no answer, without the addresses in it.
func networkError(err error, g Condition) string {
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err
	}

	var dns *net.DNSError
	var errno syscall.Errno
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("no answer within %s", g.Timeout)
	case errors.As(err, &dns):
		return dns.Err
	case errors.As(err, &errno):
		return errno.Error()
	}

	return err.Error()
}

// displayURL is a URL without what may be secret in it: who asks, and the values of its query.
func displayURL(text string) string {
	text, _, _ = strings.Cut(text, "#")
	text, query, _ := strings.Cut(text, "?")
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		scheme, rest = "", text
	}

	host, path, inside := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(host, '@'); at >= 0 {
		host = "…" + host[at:]
	}

	out := host
	if ok {
		out = scheme + "://" + host
	}

	if inside {
		out += "/" + path
	}

	for i, pair := range strings.FieldsFunc(query, func(r rune) bool { return r == '&' }) {
		key, _, isPair := strings.Cut(pair, "=")
		if !isPair {
			key = "" // a word alone can be a key to something
		} else {
			key += "="
		}
		out += string("?&"[min(i, 1)]) + key + "…"
	}

	return out
}

// urlSecrets is what of a URL must not be told, should an error repeat it.
func urlSecrets(text string) []string {
	u, err := url.Parse(text)
	if err != nil {
		return nil
	}

	password, _ := u.User.Password()
	out := []string{u.User.Username(), password, u.RawQuery}
	for _, values := range u.Query() {
		for _, v := range values {
			out = append(out, v, url.QueryEscape(v))
		}
	}

	return out
}
