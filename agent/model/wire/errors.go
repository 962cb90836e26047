package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"rouse/agent/model"
	"rouse/agent/redact"
	"rouse/internal/text"
)

var secretHeader = regexp.MustCompile(`(?i)auth|key|token|secret|cookie|password`)

// newRedactor blacks out what must not be told: a server may echo the key that it refuses.
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

	for _, values := range u.Query() {
		secrets = append(secrets, values...)
	}

	return redact.New(secrets)
}

// redactedError is an error whose text was cleaned; what it wraps can still be asked for.
type redactedError struct {
	text string
	err  error
}

func (s *redactedError) Error() string { return s.text }
func (s *redactedError) Unwrap() error { return s.err }

func (s *Client) redactError(err error) error {
	if err == nil {
		return nil
	}
	return &redactedError{s.redactor.Replace(err.Error()), err}
}

// timeoutError is a server that took too long.
func (s *Client) timeoutError(what string, d time.Duration) *model.Error {
	return s.newError(model.KindUnavailable, true, "the model %s at %s %s %s", s.endpoint.Model, s.shownURL, what, d)
}

// unreachableError words a request that got no answer.
func (s *Client) unreachableError(x Exchange, err error) error {
	var silent *idleTimeout
	if errors.As(err, &silent) {
		return silent.error
	}

	var outer *url.Error
	for errors.As(err, &outer) {
		err = outer.Err // without its address, which may hold credentials
	}

	e := s.newError(model.KindUnavailable, true, "the model server %s cannot be reached for the model %s", s.shownURL, s.endpoint.Model)
	if advice := x.Hint(e.Kind, 0, ServerError{}); advice != "" {
		e.Message += "; " + advice
	}

	e.Err = s.redactError(err)
	return e
}

// ServerError is what a server tells about a failure.
type ServerError struct {
	Message string
	Code    string // its own codes and types, "" when it gives none
}

const maxErrorText = 300

// parseError reads an error in any of the shapes that servers use.
func (s *Client) parseError(raw []byte) ServerError {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil && len(list) > 0 {
		raw = list[0]
	}

	said := ServerError{Code: codes(raw)}
	for _, place := range [][]string{{"error", "message"}, {"error"}, {"message"}, {"detail"}, {"errors"}} {
		if said.Message = lookup(raw, place...); said.Message != "" {
			break
		}
	}

	if inner := codes(raw, "error"); inner != "" {
		said.Code = inner
	}

	if said.Message == "" {
		said.Message = describeBody(string(raw))
	}

	said.Message = text.Truncate(s.redactor.Replace(text.Collapse(said.Message)), maxErrorText) // a secret that is cut is not found any more
	return said
}

// codes are the words by which an object says what kind of failure it is.
func codes(raw json.RawMessage, path ...string) string {
	var found []string
	for _, key := range []string{"code", "type", "status"} {
		if word := lookup(raw, append(path[:len(path):len(path)], key)...); word != "" {
			found = append(found, word)
		}
	}
	return strings.Join(found, " ")
}

// lookup digs a value out of an object: a string as it is, anything else as JSON.
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

// describeBody is what to show of a body that is no JSON.
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

// statusError words an answer that is not a success.
func (s *Client) statusError(x Exchange, resp *http.Response, said ServerError) error {
	kind, retryable := classify(resp.StatusCode, said)
	e := s.newError(kind, retryable, "the model server %s answered %s for the model %s: %s", s.shownURL, resp.Status, s.endpoint.Model, said.Message)
	e.RetryAfter, _ = retryAfter(resp)

	// Where time ran out, the model may have been at work.
	e.Refused = resp.StatusCode != http.StatusGatewayTimeout && resp.StatusCode != http.StatusRequestTimeout
	advice := x.Hint(kind, resp.StatusCode, said)
	switch {
	case advice != "":
	case resp.StatusCode == http.StatusNotFound:
		advice = "check base_url and the name of the model"
	case kind == model.KindAuth && s.endpoint.APIKey == "":
		advice = "no api_key is set"
	case kind == model.KindAuth:
		advice = "check api_key and what it is allowed to do"
	case resp.StatusCode/100 == 3:
		advice = fmt.Sprintf("it redirects to %s: if that is right, put it into base_url", s.redactor.Replace(resp.Header.Get("Location")))
	}

	if advice != "" {
		e.Message += "; " + advice
	}

	return e
}

// APIError words an error that came where an answer was due.
func (s *Client) APIError(data []byte) error {
	said := s.parseError(data)
	status := http.StatusOK
	for word := range strings.FieldsSeq(said.Code) {
		if n, err := strconv.Atoi(word); err == nil && n >= 400 && n < 600 {
			status = n
		}
	}

	kind, retryable := classify(status, said)
	return s.newError(kind, retryable, "the model %s at %s failed instead of answering: %s", s.endpoint.Model, s.shownURL, said.Message)
}

// InvalidChunk words a part of an answer that is not what the protocol allows.
func (s *Client) InvalidChunk(err error) error {
	return s.newError(model.KindNonsense, true, "the model %s at %s sent a chunk that cannot be read (%v)", s.endpoint.Model, s.shownURL, err)
}

// NoAnswer words a whole answer in which nothing answers.
func (s *Client) NoAnswer(data []byte) error {
	return s.newError(model.KindNonsense, true, "the model server %s answered without a choice: %s", s.shownURL, s.parseError(data).Message)
}

// ContentFiltered words a prompt or an answer that the provider keeps back.
func (s *Client) ContentFiltered(what, why string) error {
	return s.newError(model.KindBadRequest, false, "the provider of the model %s withheld %s (%s)", s.endpoint.Model, what, s.redactor.Replace(why))
}

func (s *Client) newError(kind model.ErrorKind, retryable bool, format string, args ...any) *model.Error {
	return &model.Error{Kind: kind, Retryable: retryable, Message: fmt.Sprintf(format, args...)}
}

// classify says what kind of failure it is, and whether the same request may succeed later.
func classify(status int, said ServerError) (model.ErrorKind, bool) {
	words := strings.ToLower(said.Message + " " + said.Code)
	holds := func(any ...string) bool {
		for _, w := range any {
			if strings.Contains(words, w) {
				return true
			}
		}
		return false
	}

	long := holds("context") && holds("exceed", "length", "size", "window", "overflow", "too long") ||
		holds("prompt is too long", "input token count", "maximum number of tokens", "reduce the length", "request_too_large")
	switch {
	case status == http.StatusPaymentRequired, holds("insufficient_quota", "api usage limits", "credit balance"):
		return model.KindRateLimited, false // no pause helps: somebody has to pay
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return model.KindAuth, false
	case status == http.StatusTooManyRequests:
		return model.KindRateLimited, true
	case long, status == http.StatusRequestEntityTooLarge:
		return model.KindContextOverflow, false
	case holds("api key not valid", "api_key_invalid"):
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

	return model.KindUnavailable, true // it had accepted the request
}
