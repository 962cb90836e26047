package calendars

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"rouse/internal/dial"
	"rouse/internal/text"
	"rouse/scheduler/calendar"
)

const (
	within       = 30 * time.Second // time limit of a request, including the body
	maxRedirects = 5
)

// Fetch downloads a calendar. Errors contain only the host of the address, because the address may
// be a secret.
func Fetch(ctx context.Context, from Source) ([]byte, error) {
	return fetch(ctx, from, dial.Options{})
}

func fetch(ctx context.Context, from Source, o dial.Options) ([]byte, error) {
	u, err := url.Parse(from.Address)
	if err != nil || u.Host == "" {
		return nil, errors.New("its address cannot be used")
	}

	if from.Near {
		o.Own = []string{from.Address}
	}
	client := &http.Client{Transport: dial.New(o), Timeout: within, CheckRedirect: func(_ *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects {
			return fmt.Errorf("it was redirected more than %d times", maxRedirects)
		}
		return nil
	}}

	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from.Address, nil)
	if err != nil {
		return nil, errors.New("its address cannot be used")
	}
	request.Header.Set("Accept", "text/calendar")
	response, err := client.Do(request)
	if err != nil {
		if inner, ok := errors.AsType[*url.Error](err); ok {
			err = inner.Err
		}
		return nil, fmt.Errorf("%s gave no calendar: %w", u.Host, err)
	}
	defer response.Body.Close()

	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s", u.Host, text.OneLine(response.Status))
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, calendar.MaxBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s broke off: %w", u.Host, err)
	case len(body) > calendar.MaxBytes:
		return nil, fmt.Errorf("%s sent more than %s", u.Host, text.Size(calendar.MaxBytes))
	}
	return body, nil
}
