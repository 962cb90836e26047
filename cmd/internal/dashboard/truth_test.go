package dashboard_test

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/html"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/steps"
	"rouse/internal/ledger/workspace"
)

// nodes returns all elements of a page.
func nodes(t *testing.T, page string) (out []*html.Node) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	for n := range root.Descendants() {
		if n.Type == html.ElementNode {
			out = append(out, n)
		}
	}
	return out
}

func attribute(n *html.Node, key string) (string, bool) {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val, true
		}
	}
	return "", false
}

// walk fetches every page that can be reached from the first one and passes it to a function.
func (h *home) walk(visit func(path, page string)) {
	h.t.Helper()
	seen, next := map[string]bool{"/": true}, []string{"/"}
	for len(next) > 0 {
		path := next[0]
		next = next[1:]
		answer, err := h.http.Get(h.server.URL + path)
		if err != nil {
			h.t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			h.t.Errorf("%s: %s", path, answer.Status)
			continue
		}
		if !strings.HasPrefix(answer.Header.Get("Content-Type"), "text/html") {
			continue
		}

		page := h.get(path)
		visit(path, page)
		for _, n := range nodes(h.t, page) {
			to, ok := attribute(n, "href")
			if to, _, _ = strings.Cut(to, "#"); ok && to != "" && !seen[to] {
				seen[to] = true
				next = append(next, to)
			}
		}
	}
	if len(seen) < 30 {
		h.t.Errorf("only %d pages were found", len(seen))
	}
}

// finished records a finished run.
func finished(t *testing.T, l *ledger.Ledger, job string, outcome domain.Outcome) {
	t.Helper()
	out, err := l.Enqueue(t.Context(), ledger.Request{Job: job, Agent: "bookkeeper", Trigger: domain.TriggerManual})
	if err != nil {
		t.Fatal(err)
	}
	_, a, err := l.StartAttempt(t.Context(), out[0].Run)
	if err == nil {
		err = l.Finish(t.Context(), a, ledger.Result{Outcome: outcome, Summary: fmt.Sprintf("summary %d", out[0].Run), Usage: ledger.Usage{CostMicroUSD: out[0].Run * 1000}})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// seedHistory records runs with every outcome, and some waiting runs.
func seedHistory(t *testing.T) func(*ledger.Ledger) {
	return func(l *ledger.Ledger) {
		for _, o := range []domain.Outcome{domain.OutcomeSuccess, domain.OutcomeNothing, domain.OutcomePartial, domain.OutcomeError, domain.OutcomeTimeout, domain.OutcomeBudget, domain.OutcomeCancelled, domain.OutcomeSkipped} {
			finished(t, l, "books", o)
		}
		seedItem(t, l, inbox.Question{Call: "c1", Title: "A question", Expires: inbox.ApprovalExpires})
		seedItem(t, l, inbox.Question{Kind: inbox.KindApproval, Call: "c1", Title: "An action", Options: []string{inbox.ApprovalOnce, inbox.ApprovalDeny}, Expires: inbox.ApprovalExpires, Action: inbox.Action{Tool: "x", Description: "y", Hash: "z"}})
		seedItem(t, l, inbox.Question{Kind: inbox.KindPause, Call: "c1", Title: "A pause", Options: []string{inbox.PauseContinue, inbox.PauseStop}})
		if _, err := l.Workspaces.Create(t.Context(), workspace.Author{}, workspace.Workspace{Agent: "bookkeeper", Skill: "tax", Name: "2026", State: []byte(`{"step":1}`)}); err != nil {
			t.Fatal(err)
		}
	}
}

// Every link works, every count matches the rows it links to, and IDs are unique per page. Pages
// contain no inline scripts, styles or handlers.
func TestLinksAndNumbers(t *testing.T) {
	h := open(t, configuration, seedHistory(t))
	h.fire("books")
	h.fire("fails")
	h.done("/agents/bookkeeper/pin", "view", "by_what", "pinned", "yes")

	numbers := map[string]string{}
	h.walk(func(path, page string) {
		ids := map[string]bool{}
		for _, n := range nodes(t, page) {
			if count, ok := attribute(n, "data-count"); ok {
				if n.Data != "a" {
					n = n.Parent
					for n.Data != "a" {
						n = n.Parent
					}
				}
				to, _ := attribute(n, "href")
				if before, ok := numbers[to]; ok && before != count {
					t.Errorf("%s: %s rows are behind %s, and elsewhere %s", path, count, to, before)
				}
				numbers[to] = count
			}

			id, _ := attribute(n, "id")
			if id != "" && ids[id] {
				t.Errorf("%s: the id %s stands there twice", path, id)
			}
			ids[id] = true

			if method, _ := attribute(n, "method"); method == "post" && !leadsBack(n) {
				action, _ := attribute(n, "action")
				t.Errorf("%s: who is refused by the form of %s does not come back", path, action)
			}
			src, external := attribute(n, "src")
			if n.Data == "style" || n.Data == "script" && (!external || !strings.HasPrefix(src, "/assets/")) {
				t.Errorf("%s has a <%s> of its own", path, n.Data)
			}
			for _, a := range n.Attr {
				if a.Key == "style" || strings.HasPrefix(a.Key, "on") || strings.HasPrefix(strings.ToLower(strings.TrimSpace(a.Val)), "javascript:") {
					t.Errorf("%s: <%s %s=%q>", path, n.Data, a.Key, a.Val)
				}
			}
		}
	})

	if len(numbers) < 6 {
		t.Errorf("only %d numbers lead anywhere: %v", len(numbers), numbers)
	}
	for to, count := range numbers {
		rows := 0
		for _, n := range nodes(t, h.get(to)) {
			if _, ok := attribute(n, "data-row"); ok && !beside(n) {
				rows++
			}
		}
		if strconv.Itoa(rows) != count {
			t.Errorf("%s is said to have %s rows, and has %d", to, count, rows)
		}
	}
}

// leadsBack reports whether a form contains the address of its page. Browsers send no Referer
// because the pages forbid it.
func leadsBack(form *html.Node) bool {
	for n := range form.Descendants() {
		if name, _ := attribute(n, "name"); name == "back" {
			return true
		}
	}
	return false
}

// beside reports whether a row is in a part of its page that the count does not cover.
func beside(n *html.Node) bool {
	for ; n != nil; n = n.Parent {
		if _, ok := attribute(n, "data-beside"); ok {
			return true
		}
	}
	return false
}

// hostile is untrusted text: markup, scripts, terminal escape sequences and bidirectional control
// characters.
const hostile = `"><script>alert(1)</script><img src=x onerror=alert(2)> </bdi></pre></textarea> javascript:alert(3) ` + "\x1b[2J\x1b]0;t\x07 \u202eevil\u2066 \u0000 \x7f"

var forbidden = regexp.MustCompile("(?i)<script>|<img|\x1b|\u202e|\u2066|\x00|\x07")

// Texts from models, files and rows are escaped and truncated with a link to the full text, and
// pages stay small.
func TestHostileContent(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	h := open(t, configuration, func(l *ledger.Ledger) {
		out, err := l.Enqueue(t.Context(), ledger.Request{Job: "books", Agent: "bookkeeper", Trigger: domain.TriggerManual, Detail: ledger.TriggerDetail{File: &ledger.File{Name: hostile, Path: "/" + hostile}}})
		if err != nil {
			t.Fatal(err)
		}
		run, a, err := l.StartAttempt(t.Context(), out[0].Run)
		if err != nil {
			t.Fatal(err)
		}
		step := steps.Step{Run: run.ID, Attempt: a.Number, Number: 1, Text: hostile + long, Model: "m", Notices: []string{hostile}}
		call := ledger.Call{Run: run.ID, Attempt: a.Number, Step: 1, ID: "1", Key: "1", Tool: "file_read", Args: object(t, map[string]any{"path": hostile + long}), Effect: domain.EffectRead}
		done := call
		done.State, done.Envelope = domain.CallDone, object(t, map[string]any{"ok": false, "kind": "not_found", "message": hostile + long})
		for _, err := range []error{
			l.Steps.StartStep(t.Context(), a, step), l.Steps.FinishStep(t.Context(), a, step), l.Steps.StartCall(t.Context(), a, call), l.Steps.FinishCall(t.Context(), a, done),
			l.Finish(t.Context(), a, ledger.Result{Outcome: domain.OutcomeError, Summary: hostile + long, Error: hostile + long}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		seedItem(t, l, inbox.Question{Call: "c1", Title: hostile, Message: hostile + long, Options: []string{hostile}, Expires: inbox.ApprovalExpires})
		seedItem(t, l, inbox.Question{Kind: inbox.KindApproval, Call: "c1", Title: hostile, Expires: inbox.ApprovalExpires, Options: []string{inbox.ApprovalOnce}, Action: inbox.Action{Tool: "shell_run", Description: hostile + long, Hash: "h"}})
		if _, err := l.Workspaces.Create(t.Context(), workspace.Author{}, workspace.Workspace{Agent: "bookkeeper", Skill: "tax", Name: "w", Phase: "p", State: object(t, map[string]any{"text": hostile + long[:200_000]})}); err != nil {
			t.Fatal(err)
		}
	})
	h.fire("books")
	h.done("/agents/bookkeeper/cell", "table", "expenses", "key", `{"id":1}`, "column", "what", "value", strings.ReplaceAll(hostile, "\x00", "")+long[:900_000])

	const largest = 200 << 10 // in bytes; much less than the megabyte of text
	for _, path := range []string{"/", "/runs", "/runs?q=alert", "/runs/1", "/inbox", "/inbox/1", "/inbox/2", "/jobs/books", "/agents/bookkeeper/activity", "/agents/bookkeeper/data", "/agents/bookkeeper/row?table=expenses&key=%7B%22id%22%3A1%7D", "/workspaces/1"} {
		page := h.get(path)
		if found := forbidden.FindString(page); found != "" {
			at := forbidden.FindStringIndex(page)[0]
			t.Errorf("%s has %q in it: %q", path, found, page[max(0, at-150):min(len(page), at+20)])
		}
		if len(page) > largest {
			t.Errorf("%s has %d bytes", path, len(page))
		}
	}

	// Each full text is available as plain text.
	for _, path := range []string{"/runs/1/text?of=error", "/runs/1/text?of=step&n=1", "/runs/1/text?of=args&n=1", "/runs/1/text?of=result&n=1", "/inbox/1/text", "/inbox/2/text", "/workspaces/1/text", "/agents/bookkeeper/cell?table=expenses&key=%7B%22id%22%3A1%7D&column=what"} {
		answer, err := h.http.Get(h.server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.Header.Get("Content-Type") != "text/plain; charset=utf-8" || answer.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", path, answer.Header)
		}
		if text := h.get(path); len(text) < 200_000 || strings.Contains(text, "\x1b") {
			t.Errorf("%s has %d bytes", path, len(text))
		}
	}
}

// A search covers exactly summaries, errors and steps. Wildcard characters are literal.
func TestSearch(t *testing.T) {
	h := open(t, configuration, seedHistory(t))
	failed := h.fire("fails")
	for query, rows := range map[string]int{"q=SUMMARY+3": 1, "q=summary": 8, "q=nowhere.txt": 1, "q=100%25": 0, "q=summar_": 0, "outcome=error": 2, "job=fails": 1, "outcome=error&job=books": 1, "state=waiting": 3, "before=3": 2, "agent=idler": 0, "until=2020-01-01": 0, "since=2099-01-01": 0} {
		page := h.get("/runs?" + query)
		if n := strings.Count(page, "<tr data-row="); n != rows {
			t.Errorf("%s: %d rows, not %d", query, n, rows)
		}
	}
	h.expect("/runs?q=nowhere.txt", "/runs/"+failed.ID+"#failing")
}

// The first page of a busy day, with all its assets, is small when compressed.
func TestFirstPageIsSmall(t *testing.T) {
	h := open(t, configuration, func(l *ledger.Ledger) {
		for range 40 {
			finished(t, l, "books", domain.OutcomeSuccess)
		}
	})
	page := h.get("/")
	paths := []string{"/"}
	for _, n := range nodes(t, page) {
		for _, key := range []string{"src", "href"} {
			if to, _ := attribute(n, key); strings.HasPrefix(to, "/assets/") {
				paths = append(paths, to)
			}
		}
	}

	size := 0
	for _, path := range paths {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Accept-Encoding", "gzip") // keeps the client from decompressing
		answer, err := h.http.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || answer.Header.Get("Content-Encoding") != "gzip" {
			t.Fatalf("%s: %v, %v", path, answer.Header, err)
		}
		size += len(raw)
	}
	if len(paths) != 4 || size > 60_000 {
		t.Errorf("%v have %d bytes together", paths, size)
	}
}

// inline lists the elements that do not break the line.
var inline = []string{"a", "bdi", "span", "code", "kbd", "strong", "em", "small", "time", "meter"}

// joined matches punctuation that touches the next word: "desktop:sent".
var joined = regexp.MustCompile(`\pL+[:,;]\pL+`)

// glued returns words of adjacent elements without a space in between: "agentpaused".
func glued(root *html.Node) (out []string) {
	before := ""      // preceding text of the line
	apart := true     // a block began or a space was read
	var in *html.Node // element of before
	for n := range root.Descendants() {
		switch {
		case n.Type == html.ElementNode && !slices.Contains(inline, n.Data):
			apart = true
		case n.Type == html.TextNode && strings.TrimSpace(n.Data) == "":
			apart = apart || n.Data != ""
		case n.Type == html.TextNode:
			first, _ := utf8.DecodeRuneInString(n.Data)
			last, _ := utf8.DecodeLastRuneInString(before)
			open := last == '(' || last == '/' || last == '\u201c'
			joins := unicode.IsLetter(first) || unicode.IsNumber(first) || strings.ContainsRune("($\u2013", first)
			if !apart && joins && !open && !unicode.IsSpace(last) && block(n) == block(in) && !laidOut(block(n)) {
				out = append(out, before+"|"+n.Data)
			}
			if !slices.Contains([]string{"pre", "code", "option", "textarea", "script"}, n.Parent.Data) {
				out = append(out, joined.FindAllString(n.Data, -1)...)
			}
			before, in, apart = n.Data, n, unicode.IsSpace(lastOf(n.Data))
		}
	}
	return out
}

func lastOf(s string) rune {
	r, _ := utf8.DecodeLastRuneInString(s)
	return r
}

// block returns the element that contains the line of a node.
func block(n *html.Node) *html.Node {
	for n = n.Parent; n != nil && slices.Contains(inline, n.Data); n = n.Parent {
	}
	return n
}

// laidOut reports whether the style sheet separates the elements of a block.
func laidOut(n *html.Node) bool {
	class, _ := attribute(n, "class")
	return n.Data == "nav" || class == "strip"
}

// TestWordsAreApart checks every page of a home with data of each kind.
func TestWordsAreApart(t *testing.T) {
	h := open(t, withModel(t, asking...), seedHistory(t))
	h.fire("books")
	h.fire("fails")
	h.done("/agents/bookkeeper/pin", "view", "by_what", "pinned", "yes")
	h.done("/agents/idler/pause", "for", "1h", "reason", "holidays")
	h.done("/jobs/fails/pause", "for", "1h")
	h.done("/agents/bookkeeper/wake", "at", "2099-01-01T08:00", "instructions", "Look again.")
	read := func(path, page string) {
		root, err := html.Parse(strings.NewReader(page))
		if err != nil {
			t.Fatal(err)
		}
		for _, words := range glued(root) {
			t.Errorf("%s: words without a space between them: %q", path, words)
		}
	}
	h.walk(read)
	for _, path := range []string{"/inbox/1", "/inbox/2", "/inbox/closed", "/jobs/books?simulate=week", "/agents/bookkeeper/activity?run=12", "/health?ask=network"} {
		read(path, h.get(path))
	}
}
