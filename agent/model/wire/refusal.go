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

// scrubber blacks out what must not be told: a server may echo the key that it refuses.
func scrubber(e Endpoint, u *url.URL) *redact.Redactor {
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

// scrubbed is an error whose text was cleaned; what it wraps can still be asked for.
type scrubbed struct {
	text string
	err  error
}

func (s *scrubbed) Error() string { return s.text }
func (s *scrubbed) Unwrap() error { return s.err }

func (s *Server) clean(err error) error {
	if err == nil {
		return nil
	}
	return &scrubbed{s.scrub.Replace(err.Error()), err}
}

// slow is a server that took too long.
func (s *Server) slow(what string, d time.Duration) *model.Error {
	return s.fault(model.KindUnavailable, true, "the model %s at %s %s %s", s.e.Model, s.place, what, d)
}

// unreachable words a request that got no answer.
func (s *Server) unreachable(x Exchange, err error) error {
	var silent *silence
	if errors.As(err, &silent) {
		return silent.error
	}

	var outer *url.Error
	for errors.As(err, &outer) {
		err = outer.Err // without its address, which may hold credentials
	}

	e := s.fault(model.KindUnavailable, true, "the model server %s cannot be reached for the model %s", s.place, s.e.Model)
	if advice := x.Advise(e.Kind, 0, Said{}); advice != "" {
		e.Message += "; " + advice
	}

	e.Err = s.clean(err)
	return e
}

// Said is what a server tells about a failure.
type Said struct {
	Text string
	Code string // its own codes and types, "" when it gives none
}

const maxSaid = 300

// understand reads an error in any of the shapes that servers use.
func (s *Server) understand(raw []byte) Said {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil && len(list) > 0 {
		raw = list[0]
	}

	said := Said{Code: codes(raw)}
	for _, place := range [][]string{{"error", "message"}, {"error"}, {"message"}, {"detail"}, {"errors"}} {
		if said.Text = member(raw, place...); said.Text != "" {
			break
		}
	}

	if inner := codes(raw, "error"); inner != "" {
		said.Code = inner
	}

	if said.Text == "" {
		said.Text = plain(string(raw))
	}

	said.Text = text.Truncate(s.scrub.Replace(text.Collapse(said.Text)), maxSaid) // a secret that is cut is not found any more
	return said
}

// codes are the words by which an object says what kind of failure it is.
func codes(raw json.RawMessage, path ...string) string {
	var found []string
	for _, key := range []string{"code", "type", "status"} {
		if word := member(raw, append(path[:len(path):len(path)], key)...); word != "" {
			found = append(found, word)
		}
	}
	return strings.Join(found, " ")
}

// member digs a value out of an object: a string as it is, anything else as JSON.
func member(raw json.RawMessage, path ...string) string {
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

var title = regexp.MustCompile(`(?is)<title[^>]*>(.*?)</title>`)

// plain is what to show of a body that is no JSON.
func plain(text string) string {
	text = strings.TrimSpace(text)
	switch m := title.FindStringSubmatch(text); {
	case m != nil:
		return fmt.Sprintf("a web page titled %q", strings.TrimSpace(m[1]))
	case strings.HasPrefix(text, "<"):
		return "a web page"
	case text == "":
		return "no explanation"
	}

	return text
}

// refusal words an answer that is not a success.
func (s *Server) refusal(x Exchange, resp *http.Response, said Said) error {
	kind, retryable := classify(resp.StatusCode, said)
	e := s.fault(kind, retryable, "the model server %s answered %s for the model %s: %s", s.place, resp.Status, s.e.Model, said.Text)
	e.RetryAfter, _ = retryAfter(resp)

	// Where time ran out, the model may have been at work.
	e.Refused = resp.StatusCode != http.StatusGatewayTimeout && resp.StatusCode != http.StatusRequestTimeout
	advice := x.Advise(kind, resp.StatusCode, said)
	switch {
	case advice != "":
	case resp.StatusCode == http.StatusNotFound:
		advice = "check base_url and the name of the model"
	case kind == model.KindAuth && s.e.APIKey == "":
		advice = "no api_key is set"
	case kind == model.KindAuth:
		advice = "check api_key and what it is allowed to do"
	case resp.StatusCode/100 == 3:
		advice = fmt.Sprintf("it redirects to %s: if that is right, put it into base_url", s.scrub.Replace(resp.Header.Get("Location")))
	}

	if advice != "" {
		e.Message += "; " + advice
	}

	return e
}

// Failure words an error that came where an answer was due.
func (s *Server) Failure(data []byte) error {
	said := s.understand(data)
	status := http.StatusOK
	for word := range strings.FieldsSeq(said.Code) {
		if n, err := strconv.Atoi(word); err == nil && n >= 400 && n < 600 {
			status = n
		}
	}

	kind, retryable := classify(status, said)
	return s.fault(kind, retryable, "the model %s at %s failed instead of answering: %s", s.e.Model, s.place, said.Text)
}

// Unreadable words a part of an answer that is not what the protocol allows.
func (s *Server) Unreadable(err error) error {
	return s.fault(model.KindNonsense, true, "the model %s at %s sent a chunk that cannot be read (%v)", s.e.Model, s.place, err)
}

// Pointless words a whole answer in which nothing answers.
func (s *Server) Pointless(data []byte) error {
	return s.fault(model.KindNonsense, true, "the model server %s answered without a choice: %s", s.place, s.understand(data).Text)
}

// Withheld words a prompt or an answer that the provider keeps back.
func (s *Server) Withheld(what, why string) error {
	return s.fault(model.KindBadRequest, false, "the provider of the model %s withheld %s (%s)", s.e.Model, what, s.scrub.Replace(why))
}

func (s *Server) fault(kind model.ErrorKind, retryable bool, format string, args ...any) *model.Error {
	return &model.Error{Kind: kind, Retryable: retryable, Message: fmt.Sprintf(format, args...)}
}

// classify says what kind of failure it is, and whether the same request may succeed later.
func classify(status int, said Said) (model.ErrorKind, bool) {
	words := strings.ToLower(said.Text + " " + said.Code)
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
