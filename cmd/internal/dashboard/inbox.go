package dashboard

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/a-h/templ"

	"rouse/cmd/internal/api"
	"rouse/internal/domain"
	"rouse/internal/form"
	"rouse/internal/ledger"
	"rouse/internal/text"
)

func (s *site) inboxRoutes(mux *http.ServeMux) {
	mux.Handle("GET /inbox", s.show(s.inbox))
	mux.Handle("GET /inbox/closed", s.show(s.closed))
	mux.Handle("GET /inbox/{id}", s.show(s.item))
	mux.Handle("GET /inbox/{id}/text", s.text(s.itemText))
	mux.Handle("POST /inbox/{id}", s.checked(s.answerItem))
}

const (
	itemsOnPage = 50
	// completions is how many runs that have ended are shown beside what waits.
	completions = 10
)

func (s *site) inbox(r *http.Request, p page) (templ.Component, error) {
	items, e1 := s.answers.Inbox.List(r.Context())
	branches, e2 := s.control.WaitingCheckouts(r.Context())
	ended, e3 := s.answers.Runs.List(r.Context(), ledger.RunFilter{State: domain.StateFinished, Limit: completions})
	return inboxPage(p.titled("Inbox", "Inbox"), items, branches, ended), cmp.Or(e1, e2, e3)
}

// closed lists what waits no more.
func (s *site) closed(r *http.Request, p page) (templ.Component, error) {
	before, err := before(r, "an item")
	if err != nil {
		return nil, err
	}

	items, err := s.answers.Inbox.Closed(r.Context(), before, itemsOnPage)
	older := ""
	if len(items) == itemsOnPage {
		older = items[len(items)-1].ID
	}
	return closedPage(p.titled("Closed items", "Inbox"), items, older), err
}

func (s *site) item(r *http.Request, p page) (templ.Component, error) {
	item, err := s.answers.Inbox.Item(r.Context(), pathID(r, "id"))
	return itemPage(p.titled("Inbox item "+item.ID, "Inbox"), item, nil), err
}

// itemText returns everything that an item says.
func (s *site) itemText(r *http.Request) (string, error) {
	item, err := s.answers.Inbox.Item(r.Context(), pathID(r, "id"))
	return strings.Join([]string{item.Title, item.Message, item.Action}, "\n\n"), err
}

// typed is an answer that was not taken: what was typed, and what is wrong with it.
type typed struct {
	Values   map[string][]string
	Message  string
	Problems []form.Problem
}

func (t *typed) value(name, fallback string) string {
	if t == nil || len(t.Values[name]) == 0 {
		return fallback
	}
	return t.Values[name][0]
}

// wrong is what is wrong with one field.
func (t *typed) wrong(field string) string {
	if t == nil {
		return ""
	}
	for _, p := range t.Problems {
		if p.Field == field {
			return p.Message
		}
	}
	return ""
}

// answerItem takes an answer. One that does not fit is shown again as it was typed, beside what is wrong.
func (s *site) answerItem(w http.ResponseWriter, r *http.Request) {
	id := pathID(r, "id")
	var item api.Item
	err := parseForm(w, r)
	if err == nil {
		item, err = s.answers.Inbox.Item(r.Context(), id)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}

	text, problems := answerOf(item, r.PostForm)
	if len(problems) == 0 {
		_, err = s.answers.Inbox.Answer(r.Context(), id, api.Answer{Text: text, Reason: r.PostFormValue("reason"), Kind: item.Kind, All: r.PostFormValue("all") != ""})
		if err == nil {
			http.Redirect(w, r, s.afterAnswer(r, item), http.StatusSeeOther)
			return
		}
	}

	failure := &api.Error{Status: http.StatusUnprocessableEntity, Message: "the answer does not fit", Fields: problems}
	if err != nil {
		failure = s.answers.Failure(r, err)
	}

	p, err := s.newPage(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	t := &typed{Values: r.PostForm, Message: failure.Message, Problems: failure.Fields}
	s.write(w, r, failure.Status, itemPage(p.titled("Inbox item "+item.ID, "Inbox"), item, t))
}

// afterAnswer is where an answer leads: to where it was given, and from the page of the item, which has
// nothing more to ask, to its run.
func (s *site) afterAnswer(r *http.Request, item api.Item) string {
	to := back(r)
	if strings.HasPrefix(to, "/inbox/") && item.Run != "" {
		return runPath(item.Run)
	}
	return to
}

// answerOf makes an answer of a form that was filled in.
func answerOf(item api.Item, posted map[string][]string) (answer string, problems []form.Problem) {
	if len(item.InputSchema) > 0 {
		return filled(item, posted)
	}

	// Options come as their numbers: what agents write stands in no attribute.
	var numbers, words []string
	numeric := false
	for _, v := range posted["option"] {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > len(item.Options) {
			return "", []form.Problem{{Message: "there is no option " + strconv.Quote(v)}}
		}
		numbers, words = append(numbers, v), append(words, item.Options[n-1])
		_, err = strconv.Atoi(item.Options[n-1])
		numeric = numeric || err == nil
	}

	switch free := posted["text"]; {
	case len(words) == 0 && len(free) > 0:
		return free[0], nil
	case len(words) == 1 || numeric: // an option that is a number means itself
		return strings.Join(words, ", "), nil
	}
	return strings.Join(numbers, ","), nil // one may hold a comma
}

// filled makes JSON of the fields of an input schema.
func filled(item api.Item, posted map[string][]string) (answer string, problems []form.Problem) {
	f, err := form.Parse(item.InputSchema)
	if err != nil {
		return "", []form.Problem{{Message: err.Error()}}
	}

	values := map[string]json.RawMessage{}
	for _, field := range f.Fields() {
		name := field.Name()
		written := strings.TrimSpace(strings.Join(posted[fieldName(name)], "\n"))
		if written == "" && (field.Kind != form.Text || !field.Required) {
			if field.Required {
				problems = append(problems, form.Problem{Field: name, Message: "it is needed"})
			}
			continue
		}

		value, err := field.Value(written)
		if err != nil {
			problems = append(problems, form.Problem{Field: name, Message: err.Error()})
			continue
		}
		values[name] = value
	}
	if len(problems) > 0 {
		return "", problems
	}

	made, err := f.Assemble(values)
	if err != nil {
		return "", []form.Problem{{Message: err.Error()}}
	}
	return string(made), nil
}

// fieldName keeps the names of a schema apart from those of the form itself.
func fieldName(name string) string { return "field." + name }

// fieldsOf are the fields of an item's schema; the error says why it has no form.
func fieldsOf(item api.Item) ([]form.Field, error) {
	f, err := form.Parse(item.InputSchema)
	if err != nil {
		return nil, fmt.Errorf("this cannot be asked on a page: %w", err)
	}
	return f.Fields(), nil
}

// plainDefault is what a field holds before somebody types.
func plainDefault(f form.Field) string {
	if f.Default == nil {
		return ""
	}
	return form.Plain(f.Default)
}

// label is what a field is called.
func label(f form.Field) string {
	return line(cmp.Or(f.Title, f.Name(), "answer"))
}

// asks says what an item is, in a word and a shape.
func asks(item api.Item) mark {
	switch item.Kind {
	case ledger.KindInput:
		return mark{"?", "accent", "question"}
	case ledger.KindApproval:
		return mark{"!", "amber", "approval"}
	case ledger.KindRecovery:
		return mark{"⚡", "amber", "recovery"}
	case ledger.KindPause:
		return mark{"■", "amber", "pause"}
	case ledger.KindDatabase:
		return mark{"!", "bad", "database"}
	}
	return mark{"i", "grey", "information"}
}

// optionWord says an option of ours as a button; those of agents stay as they are.
func optionWord(item api.Item, option string) string {
	if item.Kind != ledger.KindApproval {
		return line(option)
	}
	switch option {
	case ledger.ApprovalOnce:
		return "Approve once"
	case ledger.ApprovalAlways:
		return "Always approve this"
	case ledger.ApprovalDeny:
		return "Deny"
	}
	return line(option)
}

// freeText says whether an answer can be typed.
func freeText(item api.Item) bool { return item.Kind == ledger.KindInput && len(item.InputSchema) == 0 }

// diffLine is the class of a line of a difference.
func diffLine(l string) string {
	switch {
	case strings.HasPrefix(l, "+"):
		return "add"
	case strings.HasPrefix(l, "-"):
		return "del"
	case strings.HasPrefix(l, "@@"):
		return "at"
	}
	return ""
}

// maxAction is how much of an action is shown, in characters: it is all of what is decided on, up to a length at
// which nobody reads it.
const maxAction = 20_000

// actionLines are the lines of an action, with nothing hidden in them.
func actionLines(item api.Item) []string {
	return strings.Split(text.Visible(text.Truncate(item.Action, maxAction)), "\n")
}
