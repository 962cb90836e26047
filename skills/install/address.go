package install

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"rouse/internal/dial"
)

const (
	// resolveWithin bounds the requests that find the address of a repository.
	resolveWithin = 30 * time.Second
	maxRedirects  = 5
	advertised    = "/info/refs?service=git-upload-pack" // the first request of git
)

// elsewhereError is a repository whose server redirects to another one.
type elsewhereError struct{ source, to string }

func (e *elsewhereError) Error() string {
	return fmt.Sprintf("the repository %s redirects to another server, which is not followed; if you trust that server, install from %s", e.source, e.to)
}

// resolveRepository returns the address of a repository after the redirects of its own server, as for a missing .git or a new name.
// Git itself follows no redirect: the server could have it ask any address of this machine or its network.
func resolveRepository(ctx context.Context, source string) (string, error) {
	if !strings.HasPrefix(source, "https://") {
		return source, nil // only HTTP has redirects
	}

	ctx, cancel := context.WithTimeout(ctx, resolveWithin)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(source, "/")+advertised, nil)
	if err != nil {
		return source, nil //nolint:nilerr // git says what is wrong with the address
	}
	r.Header.Set("User-Agent", "git/rouse")
	client := &http.Client{Transport: dial.New(dial.Options{Own: []string{source}, Proxy: true}), CheckRedirect: func(next *http.Request, via []*http.Request) error {
		if next.URL.Scheme != r.URL.Scheme || next.URL.Host != r.URL.Host {
			to, _, _ := strings.Cut(next.URL.Redacted(), "/info/refs")
			return &elsewhereError{source, to}
		}
		if len(via) > maxRedirects {
			return errors.New("too many redirects")
		}
		return nil
	}}
	resp, err := client.Do(r)
	var elsewhere *elsewhereError
	switch {
	case errors.As(err, &elsewhere):
		return "", elsewhere
	case err != nil: // the owner's settings of git may know another way
		return source, nil //nolint:nilerr // git says what is wrong
	}
	resp.Body.Close()

	at, ok := strings.CutSuffix(resp.Request.URL.String(), advertised)
	if !ok {
		return source, nil
	}
	return at, nil
}
