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
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/runs"
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
	// completions is the number of finished runs shown next to the waiting items.
	completions = 10
)

func (s *site) inbox(r *http.Request, p page) (templ.Component, error) {
	items, e1 := s.answers.Inbox.List(r.Context())
	branches, e2 := s.control.WaitingCheckouts(r.Context())
	ended, e3 := s.answers.Runs.List(r.Context(), runs.Filter{State: domain.StateFinished, Limit: completions})
	return inboxPage(p.titled("Inbox", "Inbox"), items, branches, ended), cmp.Or(e1, e2, e3)
}

// closed lists the closed items.
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

// itemText returns the full text of an item.
func (s *site) itemText(r *http.Request) (string, error) {
	item, err := s.answers.Inbox.Item(r.Context(), pathID(r, "id"))
	return strings.Join([]string{item.Title, item.Message, item.Action}, "\n\n"), err
}

// typed is a rejected answer: the entered values and their errors.
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

// wrong returns the error of a field, or "".
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

// answerItem submits an answer. If it is rejected, the form is shown again with the entered values
// and the errors.
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

// afterAnswer returns the page to show after an answer: the page of the form, or the run if the
// form was on the item's page.
func (s *site) afterAnswer(r *http.Request, item api.Item) string {
	to := back(r)
	if strings.HasPrefix(to, "/inbox/") && item.Run != "" {
		return runPath(item.Run)
	}
	return to
}

// answerOf returns the answer entered in a form.
func answerOf(item api.Item, posted map[string][]string) (answer string, problems []form.Problem) {
	if len(item.InputSchema) > 0 {
		return filled(item, posted)
	}

	// Options are submitted as numbers, so that text from agents is not used in attributes.
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
	case len(words) == 1 || numeric: // a numeric option is submitted as its text
		return strings.Join(words, ", "), nil
	}
	return strings.Join(numbers, ","), nil // an option can contain a comma
}

// filled returns the JSON for the fields of an input schema.
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

// fieldName returns the form name of a schema field. The prefix avoids conflicts with the form's
// own fields.
func fieldName(name string) string { return "field." + name }

// fieldsOf returns the fields of an item's schema. It returns an error if the schema cannot be
// shown as a form.
func fieldsOf(item api.Item) ([]form.Field, error) {
	f, err := form.Parse(item.InputSchema)
	if err != nil {
		return nil, fmt.Errorf("this cannot be asked on a page: %w", err)
	}
	return f.Fields(), nil
}

// plainDefault returns the initial value of a field.
func plainDefault(f form.Field) string {
	if f.Default == nil {
		return ""
	}
	return form.Plain(f.Default)
}

// label returns the label of a field.
func label(f form.Field) string {
	return line(cmp.Or(f.Title, f.Name(), "answer"))
}

// asks returns the mark of an item's kind.
func asks(item api.Item) mark {
	switch item.Kind {
	case inbox.KindInput:
		return mark{"?", "accent", "question"}
	case inbox.KindApproval:
		return mark{"!", "amber", "approval"}
	case inbox.KindRecovery:
		return mark{"⚡", "amber", "recovery"}
	case inbox.KindPause:
		return mark{"■", "amber", "pause"}
	case inbox.KindDatabase:
		return mark{"!", "bad", "database"}
	}
	return mark{"i", "grey", "information"}
}

// optionWord returns the label of an option's button. Options of agents are unchanged.
func optionWord(item api.Item, option string) string {
	if item.Kind != inbox.KindApproval {
		return line(option)
	}
	switch option {
	case inbox.ApprovalOnce:
		return "Approve once"
	case inbox.ApprovalAlways:
		return "Always approve this"
	case inbox.ApprovalDeny:
		return "Deny"
	}
	return line(option)
}

// freeText reports whether the answer is a free text.
func freeText(item api.Item) bool { return item.Kind == inbox.KindInput && len(item.InputSchema) == 0 }

// diffLine returns the CSS class of a line of a diff.
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

// maxAction is the maximum length of a displayed action, in characters. A person must see the whole
// action to decide on it, so the limit is high.
const maxAction = 20_000

// actionLines returns the lines of an action with invisible characters made visible.
func actionLines(item api.Item) []string {
	return strings.Split(text.Visible(text.Truncate(item.Action, maxAction)), "\n")
}
