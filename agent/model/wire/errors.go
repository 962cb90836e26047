package wire

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"rouse/agent/model"
	"rouse/agent/redact"
	"rouse/internal/text"
)

var secretHeader = regexp.MustCompile(`(?i)auth|key|token|secret|cookie|password`)

// newRedactor returns a redactor for error messages, because a server may repeat a rejected key.
func newRedactor(e Endpoint, u *url.URL) *redact.Redactor {
	secrets := []string{e.APIKey}
	for name, v := range e.Headers {
		if secretHeader.MatchString(name) {
			_, token, _ := strings.Cut(v, " ") // Bearer TOKEN
			secrets = append(secrets, v, token)
		}
	}

	if password, ok := u.User.Password(); ok {
		secrets = append(secrets, password)
	}

	// Some gateways take the key as a query parameter, under any name.
	for _, values := range u.Query() {
		secrets = append(secrets, values...)
	}

	return redact.New(secrets)
}

// redactedError is an error with a redacted text. errors.Is and errors.As see the wrapped error.
type redactedError struct {
	text string
	err  error
}

func (e *redactedError) Error() string { return e.text }
func (e *redactedError) Unwrap() error { return e.err }

func (c *Client) redactError(err error) error {
	if err == nil {
		return nil
	}
	return &redactedError{c.redactor.Replace(err.Error()), err}
}

// timeoutError returns the error for a server that took too long.
func (c *Client) timeoutError(what string, d time.Duration) *model.Error {
	return c.newError(model.KindUnavailable, true, "the model %s at %s %s %s", c.endpoint.Model, c.shownURL, what, d)
}

// errClosed means that the server closed the connection without a response.
var errClosed = errors.New("it closed the connection without an answer")

// unreachableError returns the error for a request without a response.
func (c *Client) unreachableError(err error) error {
	var idle *idleTimeout
	if errors.As(err, &idle) {
		return idle.error
	}

	var outer *url.Error
	for errors.As(err, &outer) {
		err = outer.Err // without the URL, which may hold credentials
	}
	if errors.Is(err, io.EOF) { // "EOF" does not help the user
		err = errClosed
	}

	e := c.newError(model.KindUnavailable, true, "the model server %s cannot be reached for the model %s", c.shownURL, c.endpoint.Model)
	e.Message += c.hint(e.Kind, 0, ServerError{}, "")
	e.Err = c.redactError(err)
	return e
}

// ServerError is an error reported by a server.
type ServerError struct {
	Message string
	Code    string // codes and types, separated by spaces; may be empty
	// Window and Needed are the sizes of the context and of the request, in tokens. They are zero
	// if the server does not report them.
	Window, Needed int
}

// contextSizes are the patterns by which servers report the sizes of the context and the request.
var contextSizes = []struct {
	*regexp.Regexp
	window, needed int // numbers of the groups; 0 means not reported
}{
	{regexp.MustCompile(`\((\d+) tokens\) exceeds the available context size \((\d+) tokens\)`), 2, 1},                                                      // llama.cpp
	{regexp.MustCompile(`maximum context length (?:is|of) (\d+) tokens.*?(?:requested|resulted in|request has|contains)(?: about| at least)? (\d+)`), 1, 2}, // OpenAI, vLLM, OpenRouter
	{regexp.MustCompile(`maximum context length (?:is|of) (\d+)`), 1, 0},
	{regexp.MustCompile(`\(length (\d+)\) is longer than the maximum model length of (\d+)`), 2, 1},                   // vLLM
	{regexp.MustCompile(`(\d+) tokens > (\d+) maximum`), 2, 1},                                                        // Anthropic
	{regexp.MustCompile(`input token count \(?(\d+)\)? exceeds the maximum number of tokens allowed \(?(\d+)`), 2, 1}, // Gemini
	{regexp.MustCompile(`first (\d+) tokens.*?context length of only (\d+)`), 2, 1},                                   // LM Studio
	{regexp.MustCompile(`contains (\d+) tokens.*?(\d+) maximum context length`), 2, 1},                                // Mistral
	{regexp.MustCompile(`must be <= (\d+)\. given: (\d+)`), 1, 2},                                                     // TGI
	{regexp.MustCompile(`n_ctx\W+(\d+)`), 1, 0},
}

// findSizes sets the sizes from the message.
func (e *ServerError) findSizes() {
	message := strings.ReplaceAll(strings.ToLower(e.Message), ",", "") // also matches 200,000
	for _, p := range contextSizes {
		m := p.FindStringSubmatch(message)
		if m == nil {
			continue
		}
		if n, err := strconv.Atoi(m[p.window]); err == nil && n >= minContext && n <= maxContext {
			e.Window = n
			if n, err := strconv.Atoi(m[p.needed]); err == nil && p.needed > 0 && n <= maxContext {
				e.Needed = n
			}
			return
		}
	}
}

// Plausible sizes of a context, in tokens.
const (
	minContext = 256
	maxContext = 1 << 30
)

const maxErrorText = 300 // characters of a server's message

// parseError parses an error in any of the formats that servers use, including HTML.
func (c *Client) parseError(raw []byte) ServerError {
	// Gemini sends a list with one error instead of a list of chunks.
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil && len(list) > 0 {
		raw = list[0]
	}

	serverErr := ServerError{Code: codes(raw)}
	for _, place := range [][]string{{"error", "message"}, {"error"}, {"message"}, {"detail"}, {"errors"}} {
		if serverErr.Message = lookup(raw, place...); serverErr.Message != "" {
			break
		}
	}

	// The outer type is often just "error".
	if inner := codes(raw, "error"); inner != "" {
		serverErr.Code = inner
	}

	if serverErr.Message == "" {
		serverErr.Message = describeBody(string(raw))
	}

	serverErr.findSizes()
	// Redaction must come before truncation: a secret that is cut in two would not be found.
	serverErr.Message = text.Truncate(c.redactor.Replace(text.Collapse(serverErr.Message)), maxErrorText)
	return serverErr
}

// codes returns the fields that identify the kind of the error, separated by spaces.
func codes(raw json.RawMessage, path ...string) string {
	var found []string
	for _, key := range []string{"code", "type", "status"} {
		if word := lookup(raw, append(slices.Clip(path), key)...); word != "" {
			found = append(found, word)
		}
	}
	return strings.Join(found, " ")
}

// lookup returns the value at a path within an object: the text of a string, any other value as
// JSON.
func lookup(raw json.RawMessage, path ...string) string {
	for _, key := range path {
		var object map[string]json.RawMessage
		if json.Unmarshal(raw, &object) != nil {
			return ""
		}
		raw = object[key]
	}

	var text string
	if len(raw) == 0 || string(raw) == "null" || json.Unmarshal(raw, &text) == nil {
		return text
	}

	return string(raw)
}

var htmlTitle = regexp.MustCompile(`(?is)<title[^>]*>(.*?)</title>`)

// describeBody returns a description of a body that is not JSON.
func describeBody(text string) string {
	text = strings.TrimSpace(text)
	switch m := htmlTitle.FindStringSubmatch(text); {
	case m != nil:
		return fmt.Sprintf("a web page titled %q", strings.TrimSpace(m[1]))
	case strings.HasPrefix(text, "<"):
		return "a web page"
	case text == "":
		return "no explanation"
	}

	return text
}

// statusError returns the error for a response with an error status.
func (c *Client) statusError(resp *http.Response, serverErr ServerError) error {
	kind, retryable := classify(resp.StatusCode, serverErr)
	e := c.newError(kind, retryable, "the model server %s answered %s for the model %s: %s", c.shownURL, resp.Status, c.endpoint.Model, serverErr.Message)
	if e.RetryAfter, _ = retryAfter(resp); e.RetryAfter == 0 {
		e.RetryAfter = namedWait(serverErr.Message, time.Now())
	}

	if kind == model.KindContextOverflow {
		e.Window, e.Needed = serverErr.Window, serverErr.Needed
	}
	e.Refused, e.Missing = !maybeBilled(resp.StatusCode), resp.StatusCode == http.StatusNotFound
	remedy := ""
	switch {
	case resp.StatusCode == http.StatusNotFound:
		remedy = "check base_url and the name of the model"
	case kind == model.KindAuth && c.endpoint.APIKey == "":
		remedy = "no api_key is set"
	case kind == model.KindAuth:
		remedy = "check api_key and what it is allowed to do"
	case resp.StatusCode/100 == 3:
		remedy = fmt.Sprintf("it redirects to %s: if that is right, put it into base_url", c.redactor.Replace(resp.Header.Get("Location")))
	}

	e.Message += c.hint(kind, resp.StatusCode, serverErr, remedy)
	return e
}

// hint returns the remedy of the dialect, or the general remedy, as the end of a message.
func (c *Client) hint(kind model.ErrorKind, status int, refusal ServerError, general string) string {
	if c.dialect.Hint != nil {
		general = cmp.Or(c.dialect.Hint(kind, status, refusal), general)
	}
	if general == "" {
		return ""
	}
	return "; " + general
}

// APIError returns the error for an error object that a server sent with status 200.
func (c *Client) APIError(data []byte) error {
	serverErr := c.parseError(data)
	status := http.StatusOK
	for word := range strings.FieldsSeq(serverErr.Code) {
		if n, err := strconv.Atoi(word); err == nil && n >= 400 && n < 600 {
			status = n
		}
	}

	kind, retryable := classify(status, serverErr)
	e := c.newError(kind, retryable, "the model %s at %s failed instead of answering: %s", c.endpoint.Model, c.shownURL, serverErr.Message)
	e.RetryAfter = namedWait(serverErr.Message, time.Now())
	if kind == model.KindContextOverflow {
		e.Window, e.Needed = serverErr.Window, serverErr.Needed
	}
	return e
}

// InvalidChunk returns the error for a frame that violates the API.
func (c *Client) InvalidChunk(err error) error {
	return c.newError(model.KindInvalidResponse, true, "the model %s at %s sent a chunk that cannot be read (%v)", c.endpoint.Model, c.shownURL, err)
}

// NoAnswer returns the error for a document that is neither an answer nor an error.
func (c *Client) NoAnswer(data []byte) error {
	return c.newError(model.KindInvalidResponse, true, "the model server %s answered without a choice: %s", c.shownURL, c.parseError(data).Message)
}

// ContentFiltered returns the error for a prompt or an answer withheld by the provider's filter.
func (c *Client) ContentFiltered(what, reason string) error {
	return c.newError(model.KindBadRequest, false, "the provider of the model %s withheld %s (%s)", c.endpoint.Model, what, c.redactor.Replace(reason))
}

func (c *Client) newError(kind model.ErrorKind, retryable bool, format string, args ...any) *model.Error {
	return &model.Error{Kind: kind, Retryable: retryable, Message: fmt.Sprintf(format, args...)}
}

// classify returns the kind of a failure and reports whether the same request may succeed later.
func classify(status int, serverErr ServerError) (model.ErrorKind, bool) {
	words := strings.ToLower(serverErr.Message + " " + serverErr.Code)
	holds := func(any ...string) bool {
		for _, w := range any {
			if strings.Contains(words, w) {
				return true
			}
		}
		return false
	}

	// Most servers reject too long requests with status 400, so the text decides.
	long := holds("context") && holds("exceed", "length", "size", "window", "overflow", "too long") ||
		holds("prompt is too long", "maximum model length", "input token count", "maximum number of tokens", "reduce the length", "request_too_large")
	switch {
	case status == http.StatusPaymentRequired, holds("insufficient_quota", "api usage limits", "credit balance"):
		return model.KindQuota, false
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return model.KindAuth, false
	case status == http.StatusTooManyRequests:
		return model.KindRateLimited, true
	case long, status == http.StatusRequestEntityTooLarge:
		return model.KindContextOverflow, false
	case holds("api key not valid", "api_key_invalid"): // Gemini, with status 400
		return model.KindAuth, false
	case status == http.StatusNotImplemented:
		return model.KindBadRequest, false
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusTooEarly:
		return model.KindUnavailable, true
	case status != http.StatusOK:
		return model.KindBadRequest, false
	case holds("rate_limit", "rate limit"):
		return model.KindRateLimited, true
	case holds("invalid_api_key", "authentication", "permission_error"):
		return model.KindAuth, false
	case holds("invalid_request"):
		return model.KindBadRequest, false
	}

	return model.KindUnavailable, true // the server had accepted the request
}
