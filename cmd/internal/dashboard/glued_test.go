package dashboard_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/html"
)

// inline are the elements that stand in a line with the text around them.
var inline = []string{"a", "bdi", "span", "code", "kbd", "strong", "em", "small", "time", "meter"}

// joined is a sign that ends a word and touches the next one: "desktop:sent".
var joined = regexp.MustCompile(`\pL+[:,;]\pL+`)

// glued returns the words of a page that touch across elements without a space: "agentpaused".
func glued(root *html.Node) (out []string) {
	before := ""      // the text before in the same line
	apart := true     // a block begins, or a space came
	var in *html.Node // the element of before
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

// block returns the element that begins the line of a node.
func block(n *html.Node) *html.Node {
	for n = n.Parent; n != nil && slices.Contains(inline, n.Data); n = n.Parent {
	}
	return n
}

// laidOut reports whether the style sheet keeps the elements within a block apart.
func laidOut(n *html.Node) bool {
	class, _ := attribute(n, "class")
	return n.Data == "nav" || class == "strip"
}

// TestWordsAreApart reads every page of a home with something of each kind.
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
