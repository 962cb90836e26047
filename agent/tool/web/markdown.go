package web

import (
	"net/url"
	"strings"

	"github.com/JohannesKaufmann/html-to-markdown/v2/converter"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/base"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/commonmark"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/table"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"rouse/internal/text"
)

// Limit of the Markdown's size relative to the page. Each line repeats the marks of all quotations
// and lists around it. Each table row gets as many cells as the longest row. A few hundred bytes of
// HTML could otherwise become gigabytes.
const (
	growthFactor = 16
	growthFree   = 64 << 10
)

// unescaped reverts escapes that the converter makes in every mode.
var unescaped = strings.NewReplacer("&lt;", "<", "&gt;", ">")

// markdown converts a page to Markdown with absolute links. A page that would grow too much becomes
// plain text.
func markdown(page string, from *url.URL) (title, out string) {
	doc, err := html.Parse(strings.NewReader(page))
	if err != nil {
		return "", page
	}

	title = titleOf(doc)
	dropAttributes(doc)
	if growsTooMuch(doc, len(page)*growthFactor+growthFree) {
		return title, plainWords(doc)
	}

	// The result is not rendered, so it needs no escaping. Escaping takes quadratic time for a text
	// of brackets.
	c := converter.NewConverter(converter.WithEscapeMode(converter.EscapeModeDisabled), converter.WithPlugins(base.NewBasePlugin(), commonmark.NewCommonmarkPlugin(),
		table.NewTablePlugin(table.WithCellPaddingBehavior(table.CellPaddingBehaviorMinimal))))
	c.Register.TextTransformer(func(_ converter.Context, text string) string { return unescaped.Replace(text) }, converter.PriorityLate)
	plain := *from // relative links do not depend on the query
	plain.RawQuery = ""
	md, err := c.ConvertNode(doc, converter.WithDomain(plain.String()))
	if err != nil {
		return title, plainWords(doc)
	}

	return title, string(md)
}

func titleOf(doc *html.Node) string {
	for n := range doc.Descendants() {
		if n.DataAtom == atom.Title && n.FirstChild != nil {
			return text.Head(text.Collapse(n.FirstChild.Data), 300)
		}
	}
	return ""
}

// dropAttributes removes attributes that can make Markdown huge: cell spans and inline pictures.
func dropAttributes(doc *html.Node) {
	for n := range doc.Descendants() {
		kept := n.Attr[:0]
		for _, a := range n.Attr {
			spans := a.Key == "colspan" || a.Key == "rowspan"
			if inline := n.DataAtom == atom.Img && (a.Key == "src" || a.Key == "srcset") && strings.HasPrefix(a.Val, "data:"); !spans && !inline {
				kept = append(kept, a)
			}
		}

		n.Attr = kept
	}
}

// growsTooMuch estimates whether the Markdown of a page would exceed a number of bytes.
func growsTooMuch(doc *html.Node, most int) bool {
	size := 0
	var walk func(n *html.Node, marks int)
	walk = func(n *html.Node, marks int) {
		switch n.DataAtom {
		case atom.Blockquote, atom.Ul, atom.Ol, atom.Li, atom.Dl, atom.Dd:
			marks += 4 // bytes at the beginning of each line
		case atom.Table:
			size += cells(n) * 4
		}

		size += marks // an element can be a line
		if n.Type == html.TextNode {
			size += len(n.Data) + marks*strings.Count(n.Data, "\n")
		}

		for c := n.FirstChild; c != nil && size <= most; c = c.NextSibling {
			walk(c, marks)
		}
	}

	walk(doc, 0)
	return size > most
}

// cells returns the number of cells of a table, with all rows as long as the longest.
func cells(t *html.Node) int {
	rows, longest := 0, 0
	for n := range t.Descendants() {
		if n.DataAtom != atom.Tr {
			continue
		}
		rows++
		count := 0
		for range n.ChildNodes() {
			count++
		}
		longest = max(longest, count)
	}
	return rows * longest
}

// plainWords returns the texts of a page, each on its own line.
func plainWords(doc *html.Node) string {
	var b strings.Builder
	var walk func(n *html.Node)
	walk = func(n *html.Node) {
		switch n.DataAtom {
		case atom.Script, atom.Style, atom.Head, atom.Template, atom.Noscript:
			return
		}

		if n.Type == html.TextNode {
			if line := text.Collapse(n.Data); line != "" {
				b.WriteString(line + "\n")
			}
		}

		for c := range n.ChildNodes() {
			walk(c)
		}
	}

	walk(doc)
	return b.String()
}

// Words returns the text of an HTML page without markup, scripts and styles.
func Words(page string) string {
	doc, err := html.Parse(strings.NewReader(page))
	if err != nil {
		return page
	}
	return plainWords(doc)
}
