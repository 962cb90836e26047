package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"rouse/agent/model"
)

// maxListing is how much of a list of models is read, in bytes.
const maxListing = 8 << 20

// noHint leaves what to do about a failure to the general hints.
type noHint struct{}

func (noHint) Hint(model.ErrorKind, int, ServerError) string { return "" }

// Listing is a listing of the client's server of which nothing is known yet.
func (c *Client) Listing() model.Listing { return model.Listing{Server: c.shownURL} }

// Ask sends one request beside the endpoint of the turns, and reads the JSON of its answer. It is not repeated. path is below
// BaseURL, with a query or without; a question that is not nil is posted. found is false, without an error, when
// the server has no such thing. What it says of its clock is put into l.
func (c *Client) Ask(ctx context.Context, path string, question, answer any, l *model.Listing) (found bool, err error) {
	method, body := http.MethodGet, io.Reader(nil)
	if question != nil {
		text, err := json.Marshal(question)
		if err != nil {
			return false, err
		}
		method, body = http.MethodPost, bytes.NewReader(text)
	}

	path, query, _ := strings.Cut(path, "?")
	at := c.base.JoinPath(path)
	at.RawQuery = strings.Trim(at.RawQuery+"&"+query, "&")
	req, err := http.NewRequestWithContext(ctx, method, at.String(), body)
	if err != nil {
		return false, c.redactError(err)
	}

	req.Header = c.headers.Clone()
	req.Header.Set("Accept", "application/json")
	req.Close = true // nobody asks again soon
	resp, err := c.httpClient.HTTPClient.Do(req)
	if ctx.Err() != nil {
		return false, c.newError(model.KindUnavailable, true, "the model server %s gave no answer in time", c.shownURL)
	}
	if err != nil {
		return false, c.unreachableError(noHint{}, err)
	}
	defer resp.Body.Close()

	if at, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		l.Date = at
	}

	text, err := io.ReadAll(io.LimitReader(resp.Body, maxListing))
	switch {
	case resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusMethodNotAllowed:
		return false, nil
	case resp.StatusCode/100 != 2:
		return false, c.statusError(noHint{}, resp, c.parseError(text))
	case err != nil:
		return false, c.unreachableError(noHint{}, err)
	}

	// A page in the place of a list is no list: nothing is known then.
	return json.Unmarshal(text, answer) == nil, nil
}
