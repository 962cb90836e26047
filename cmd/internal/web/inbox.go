package web

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"rouse/agentdb/ledger"
)

// maxAnswer bounds an answer, in characters.
const maxAnswer = 8000

// Item is something that waits for a person.
type Item struct {
	ID        string   `json:"id"`
	Run       string   `json:"run"`
	Job       string   `json:"job"`
	Agent     string   `json:"agent"`
	Kind      string   `json:"kind"`
	Title     string   `json:"title"`
	Message   string   `json:"message"`
	Options   []string `json:"options"`
	Multiple  bool     `json:"multiple"`
	Action    string   `json:"action"` // the command that answers it
	CreatedAt Time     `json:"created_at"`
	ExpiresAt Time     `json:"expires_at"`
}

// Answer answers an item.
type Answer struct {
	Text string `json:"text"`
}

func newItem(i ledger.Item) Item {
	options := i.Options
	if options == nil {
		options = []string{}
	}
	return Item{ID: id(i.ID), Run: id(i.Run), Job: i.Job, Agent: i.Agent, Kind: i.Kind, Title: i.Title, Message: i.Message, Options: options, Multiple: i.Multiple,
		Action: "rouse answer " + id(i.ID) + " TEXT", CreatedAt: Time{i.CreatedAt}, ExpiresAt: Time{i.ExpiresAt}}
}

func (s *server) inbox(r *http.Request) (any, error) {
	items, err := s.ledger.Inbox(r.Context())
	out := []Item{}
	for _, i := range items {
		out = append(out, newItem(i))
	}
	return out, err
}

func (s *server) answerItem(r *http.Request) (any, error) {
	n, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil || n < 1 {
		return nil, usage("%q is not an item; items have numbers, see: rouse inbox", r.PathValue("id"))
	}
	var in Answer
	if err := read(r, &in); err != nil {
		return nil, err
	}
	item, err := s.ledger.Item(r.Context(), n)
	if err != nil {
		return nil, err
	}
	text, err := chosen(item, in.Text)
	if err != nil {
		return nil, err
	}
	run, err := s.ledger.Answer(r.Context(), n, text)
	if errors.Is(err, ledger.ErrClosed) {
		return nil, &Error{Status: http.StatusConflict, Message: err.Error() + "; see: rouse show " + id(item.Run)}
	}
	if err != nil {
		return nil, err
	}
	run, err = s.ledger.Run(r.Context(), run.ID)
	return newRun(run), err
}

// chosen reads an answer: the words or the numbers of options, or else a text of its own.
func chosen(i ledger.Item, text string) (string, error) {
	text = strings.TrimSpace(text)
	switch n := len([]rune(text)); {
	case n == 0:
		return "", usage("the answer is empty")
	case n > maxAnswer:
		return "", usage("the answer has %d characters; at most %d are taken", n, maxAnswer)
	}
	if len(i.Options) == 0 {
		return text, nil
	}
	parts := []string{text}
	if i.Multiple {
		parts = strings.Split(text, ",")
	}
	var options []string
	for _, p := range parts {
		o, ok := option(i.Options, strings.TrimSpace(p))
		if !ok {
			return text, nil // an answer that none of the options foresaw
		}
		options = append(options, o)
	}
	return strings.Join(options, ", "), nil
}

func option(options []string, text string) (string, bool) {
	for _, o := range options {
		if strings.EqualFold(o, text) {
			return o, true
		}
	}
	if n, err := strconv.Atoi(text); err == nil && n >= 1 && n <= len(options) {
		return options[n-1], true
	}
	return "", false
}
