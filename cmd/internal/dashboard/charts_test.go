package dashboard_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/chromedp"

	"rouse/agentdb"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// heard returns the text a screen reader reads for a page, with one line per item, row, link,
// heading, paragraph and drawing.
func (b *browser) heard() string {
	b.t.Helper()
	tree, err := chromedp.Run(b.ctx, func(ctx context.Context, t *chromedp.Target) (accessibility.GetFullAXTreeResult, error) {
		return cdp.Call(ctx, t, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	})
	if err != nil {
		b.t.Fatal(err)
	}

	text := func(v *accessibility.Value) (s string) {
		if v != nil && json.Unmarshal(v.Value, &s) != nil {
			b.t.Fatalf("%s is no text", v.Value)
		}
		return s
	}
	nodes := map[accessibility.NodeID]*accessibility.Node{}
	for _, n := range tree.Nodes {
		nodes[n.NodeID] = n
	}

	var out strings.Builder
	var say func(*accessibility.Node)
	say = func(n *accessibility.Node) {
		switch role := text(n.Role); {
		case n.Ignored:
		case role == "StaticText":
			out.WriteString(text(n.Name))
		case slices.Contains([]string{"link", "image", "img"}, role):
			out.WriteString("\n" + text(n.Name) + "\n")
			return // only its label is read
		case role == "cell" || role == "gridcell":
			defer out.WriteString("\t")
		case slices.Contains([]string{"listitem", "row", "heading", "paragraph"}, role):
			out.WriteString("\n")
			defer out.WriteString("\n")
		}
		for _, id := range n.ChildIDs {
			if child := nodes[id]; child != nil {
				say(child)
			}
		}
	}
	say(tree.Nodes[0])
	return out.String()
}

// seen returns the visible text of a part of a page.
func (b *browser) seen(selector string) string {
	b.t.Helper()
	return script[string](b, fmt.Sprintf("document.querySelector(%q).innerText", selector))
}

// says fails the test unless a text contains all the given lines. Leading and trailing spaces are
// ignored.
func (b *browser) says(who, text string, lines ...string) {
	b.t.Helper()
	have := map[string]bool{}
	for l := range strings.Lines(text) {
		have[strings.TrimSpace(l)] = true
	}
	for _, l := range lines {
		if !have[l] {
			b.t.Errorf("%s: %s does not find %q in\n%s", b.window, who, l, text)
		}
	}
}

// nearest returns the smallest value that is not exceeded by the given percentage of the values.
func nearest[T cmp.Ordered](values []T, of float64) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[int(math.Ceil(float64(len(sorted))*of/100))-1]
}

// The charts of a job contain the duration and the cost of each run in words, for sighted users and
// for screen readers. Their percentiles match the runs.
func TestInChromiumJobCharts(t *testing.T) {
	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": configuration})
	now := time.Now().Add(-time.Hour)
	seedIn(t, dir, func() time.Time { return now }, func(l *ledger.Ledger) {
		for n := range int64(20) {
			out, err := l.Enqueue(t.Context(), ledger.Request{Job: "books", Agent: "bookkeeper", Trigger: domain.TriggerManual})
			if err != nil {
				t.Fatal(err)
			}
			_, a, err := l.StartAttempt(t.Context(), out[0].Run)
			now = now.Add(time.Duration(n*n%23+1) * time.Second)
			if err == nil {
				err = l.Finish(t.Context(), a, ledger.Result{Outcome: domain.OutcomeSuccess, Usage: ledger.Usage{CostMicroUSD: (n*7%20 + 1) * 10_000}})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	h := openIn(t, dir)
	var runs []api.Run
	if err := h.api.Get(t.Context(), "/v1/runs", url.Values{"job": {"books"}}, &runs); err != nil {
		t.Fatal(err)
	}
	if len(runs) != 20 {
		t.Fatalf("%d runs", len(runs))
	}

	var seconds []int
	var dollars []float64
	var lines []string
	for _, r := range runs {
		took := int(r.FinishedAt.Sub(r.StartedAt.Time) / time.Second)
		seconds, dollars = append(seconds, took), append(dollars, r.CostUSD)
		lines = append(lines, fmt.Sprintf("run %s: %d s, success", r.ID, took), fmt.Sprintf("run %s: $%.2f", r.ID, r.CostUSD))
	}
	headings := []string{
		fmt.Sprintf("How long its runs took: p50 %d s, p95 %d s", nearest(seconds, 50), nearest(seconds, 95)),
		fmt.Sprintf("What they cost: p50 $%.2f, p95 $%.2f", nearest(dollars, 50), nearest(dollars, 95)),
	}

	for _, w := range windows {
		b := browse(t, h, w.name, w.width, w.height)
		b.do(chromedp.Navigate(b.Door.URL("/jobs/books")), chromedp.WaitReady("main"))
		b.says("a screen reader", b.heard(), append(headings, lines...)...)
		b.click("summary", "duration of each run in words")
		b.click("summary", "cost of each run in words")
		b.says("a person", b.seen("main"), append(headings, lines...)...)
		b.fits("/jobs/books")
	}
}

// views are saved queries for each type of chart. They include too many rows for a chart, and a row
// without a value.
const views = `version: 1
home: ./home
agents: [{ name: bookkeeper, workdir: ./books }]
jobs:
  - name: books
    agent: bookkeeper
    playbook:
      - call: db_create_table
        with: { name: days, purpose: what was spent on a day, columns: [{ name: day, type: TEXT, primary_key: true }, { name: euro, type: REAL }] }
      - call: db_insert
        with: { table: days, rows: [%s] }
      - { call: db_define_view, with: { name: as_bars, sql: "select day, euro from days limit 12", render_hint: bar, refresh: manual, description: bars } }
      - { call: db_define_view, with: { name: more_bars, sql: "select day, euro from days", render_hint: bar, refresh: manual, description: more bars than there is room for } }
      - { call: db_define_view, with: { name: as_curve, sql: "select day, euro from days", render_hint: line, refresh: manual, description: a curve } }
      - { call: db_define_view, with: { name: as_pie, sql: "select day, euro from days limit 5", render_hint: pie, refresh: manual, description: a pie } }
      - { call: db_define_view, with: { name: as_number, sql: "select sum(euro) from days", render_hint: number, refresh: manual, description: a number } }
      - { call: db_define_view, with: { name: no_bars, sql: "select day from days limit 2", render_hint: bar, refresh: manual, description: what no bar can show } }
`

// A pinned view shows the values of its rows with every type of chart (OSA-60).
func TestInChromiumPinnedViews(t *testing.T) {
	var rows []string
	for n := range 30 {
		rows = append(rows, fmt.Sprintf("{ day: day-%02d, euro: %d.25 }", n, n*n%31+1))
	}
	rows = append(rows, "{ day: day-30, euro: null }")
	h := open(t, fmt.Sprintf(views, strings.Join(rows, ", ")), nil)
	if ran := h.fire("books"); ran.Outcome != domain.OutcomeSuccess {
		t.Fatalf("%+v", ran.Run)
	}
	ask := func(sql string) (out agentdb.Rows) {
		if err := h.api.Post(t.Context(), "/v1/agents/bookkeeper/query", api.QueryRequest{SQL: sql}, &out); err != nil {
			t.Fatal(err)
		}
		return out
	}

	var labels, cells []string
	for _, row := range ask("select day, euro from days").Rows {
		if row["euro"] == nil {
			cells = append(cells, fmt.Sprint(row["day"]))
			continue
		}
		labels, cells = append(labels, fmt.Sprintf("%s: %v", row["day"], row["euro"])), append(cells, fmt.Sprintf("%s\t%v", row["day"], row["euro"]))
	}
	total := fmt.Sprint(ask("select sum(euro) as sum from days").Rows[0]["sum"])

	for _, w := range windows {
		b := browse(t, h, w.name, w.width, w.height)
		for _, c := range []struct {
			view          string
			shown, behind []string // visible at once, and in the table below
		}{
			{"as_bars", labels[:12], cells[:12]},
			{"more_bars", append(labels[:20:20], "20 of 31 rows are drawn"), cells},
			{"as_curve", []string{"30 of 31 rows are drawn"}, cells},
			{"as_pie", labels[:5], cells[:5]},
			{"as_number", []string{total}, nil},
			{"no_bars", []string{"day-00", "day-01"}, nil},
		} {
			h.done("/agents/bookkeeper/pin", "view", c.view, "pinned", "yes")
			b.do(chromedp.Navigate(b.Door.URL("/agents/bookkeeper")), chromedp.WaitReady("main"))
			b.says("a screen reader", b.heard(), c.shown...)
			b.says("a person", b.seen(".views"), c.shown...)

			if c.behind != nil {
				b.click("summary", "these rows as a table")
				b.says("a screen reader", b.heard(), c.behind...)
				b.says("a person", b.seen(".views"), c.behind...)
			}
			b.fits(c.view)
			h.done("/agents/bookkeeper/pin", "view", c.view)
		}
	}
}
