package dashboard_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"rouse/agent/model/modeltest"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
)

// Window sizes in which pages are tested: a phone's and a desktop's.
var windows = []struct {
	name          string
	width, height int64
}{{"phone", 390, 844}, {"desk", 1440, 900}}

// browser is a Chromium window on a home.
type browser struct {
	*home
	ctx    context.Context
	window string
	clicks int
}

// browse opens a window on Today through a login link. ROUSE_TEST_CHROMIUM names the browser;
// without it, the test is skipped.
func browse(t *testing.T, h *home, name string, width, height int64) *browser {
	t.Helper()
	chromium := os.Getenv("ROUSE_TEST_CHROMIUM")
	if chromium == "" {
		t.Skip("ROUSE_TEST_CHROMIUM does not say where Chromium is")
	}

	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium), chromedp.NoSandbox, chromedp.Flag("disable-background-networking", true))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(cancel)

	b := &browser{home: h, ctx: ctx, window: name}
	b.do(chromedp.EmulateViewport(width, height))
	// Violations of the policy and exceptions in the script are test failures.
	if err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			t.Errorf("%s: %s", name, e.ExceptionDetails.Text)
		case *log.EventEntryAdded:
			if e.Entry.Source == "security" {
				t.Errorf("%s: %s", name, e.Entry.Text)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}

	login, err := h.Door.Login(t.Context(), "/")
	if err != nil {
		t.Fatal(err)
	}
	b.do(chromedp.Navigate(login.URL), chromedp.WaitReady("main"))
	return b
}

func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatalf("%s: %v", b.window, err)
	}
}

// script runs a script in the page and returns its result.
func script[T any](b *browser, text string, options ...chromedp.EvaluateOption) T {
	b.t.Helper()
	out, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](text, options...))
	if err != nil {
		b.t.Fatalf("%s: %v", b.window, err)
	}
	return out
}

// holds waits until a script returns true. Errors are ignored while the page is being replaced.
func (b *browser) holds(what, text string) {
	b.t.Helper()
	cmdtest.Until(b.t, b.window+": "+what, func() bool {
		ok, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](text))
		return err == nil && ok
	})
}

// visit opens a page and checks its accessibility, including collapsed parts.
func (b *browser) visit(path string) {
	b.t.Helper()
	b.open(path)
	b.fits(path)
	script[bool](b, "[...document.querySelectorAll('details:not([open])')].forEach(d => { d.dataset.folded = 'yes'; d.open = true; }); true")
	b.fits(path)
	b.accessible(path)
	script[bool](b, "document.querySelectorAll('[data-folded]').forEach(d => { delete d.dataset.folded; d.open = false; }); true")
}

// fits checks that a page needs no horizontal scrolling.
func (b *browser) fits(path string) {
	b.t.Helper()
	wide := script[[]string](b, `document.documentElement.scrollWidth <= document.documentElement.clientWidth ? [] :
		[...document.querySelectorAll("main *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".wide")).slice(0, 5).map(e => e.outerHTML.slice(0, 200))`)
	if len(wide) > 0 {
		b.t.Errorf("%s: %s is wider than its window: %q", b.window, path, wide)
	}
}

// accessible runs axe-core in both themes. ROUSE_TEST_AXE names its script.
func (b *browser) accessible(path string) {
	b.t.Helper()
	file := os.Getenv("ROUSE_TEST_AXE")
	if file == "" {
		return
	}
	axe, err := os.ReadFile(file)
	if err != nil {
		b.t.Fatal(err)
	}

	// The themes differ only in colors.
	script[bool](b, string(axe)+"; true")
	for theme, asked := range map[string]string{"light": "{}", "dark": `{runOnly: ["color-contrast"]}`} {
		b.prefers(theme)
		if !script[bool](b, fmt.Sprintf("matchMedia('(prefers-color-scheme: %s)').matches", theme)) {
			b.t.Fatalf("%s: the window is not %s", b.window, theme)
		}
		found := script[[]string](b, "axe.run("+asked+`).then(r => r.violations.flatMap(v => v.nodes.slice(0, 3).map(n => v.id + ": " + n.html.slice(0, 200) + " " + n.failureSummary)))`, chromedp.EvalAwaitPromise)
		for _, f := range found {
			b.t.Errorf("%s, %s: %s: %s", b.window, theme, path, f)
		}
	}
	b.prefers("")
}

// prefers sets the color scheme that the system prefers. "" restores the default.
func (b *browser) prefers(scheme string) {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		return err
	}))
}

// shot takes a screenshot for the docs if ROUSE_TEST_IMAGES is set.
func (b *browser) shot(name string) {
	b.t.Helper()
	dir := os.Getenv("ROUSE_TEST_IMAGES")
	if dir == "" {
		return
	}
	picture, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "dashboard-"+name+"-"+b.window+".png"), picture, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// shows waits until a page contains a text.
func (b *browser) shows(selector, text string) {
	b.t.Helper()
	b.holds(fmt.Sprintf("%q in %s", text, selector), fmt.Sprintf("[...document.querySelectorAll(%q)].some(e => e.textContent.includes(%q))", selector, text))
}

// press clicks the first element that matches a selector and a text, and waits for the next page.
func (b *browser) press(selector, text string) {
	b.t.Helper()
	if !script[bool](b, fmt.Sprintf("(() => { const e = [...document.querySelectorAll(%q)].find(e => e.textContent.includes(%q)); if (!e) return false; for (let d = e.parentElement; d; d = d.parentElement) if (d.tagName === 'DETAILS') d.open = true; e.scrollIntoView({block: 'center'}); document.body.dataset.left = 'yes'; e.click(); return true; })()", selector, text)) {
		b.t.Fatalf("%s: there is no %s with %q", b.window, selector, text)
	}
	b.holds("the page behind "+text, "document.readyState === 'complete' && !document.body.dataset.left")
}

// click clicks with the mouse in the middle of the first visible element that matches a selector
// and a text. It fails if another element covers it.
func (b *browser) click(selector, text string) {
	b.t.Helper()
	at := script[[]float64](b, fmt.Sprintf(`(() => {
		const e = [...document.querySelectorAll(%q)].find(e => e.checkVisibility() && e.textContent.includes(%q));
		if (!e) return [];
		e.scrollIntoView({block: "center"});
		const r = e.getClientRects()[0], x = r.x + r.width / 2, y = r.y + r.height / 2;
		return e.contains(document.elementFromPoint(x, y)) ? [x, y] : [];
	})()`, selector, text))
	if len(at) == 0 {
		b.t.Fatalf("%s: no %s with %q can be clicked on %s", b.window, selector, text, b.at())
	}
	b.clicks++
	b.do(chromedp.MouseClickXY(at[0], at[1]))
}

// at returns the path of the current page.
func (b *browser) at() string {
	b.t.Helper()
	return script[string](b, "location.pathname")
}

// A person manages a home on a desktop and on a phone: every action is possible, every page is
// accessible, and no page is wider than the window.
func TestInChromium(t *testing.T) {
	for _, w := range windows {
		t.Run(w.name, func(t *testing.T) {
			turns := append([]modeltest.Turn{}, asking...)
			h := open(t, withModel(t, turns...), func(l *ledger.Ledger) {
				seedHistory(t)(l)
			})
			b := browse(t, h, w.name, w.width, w.height)
			h.fire("books")
			failed := h.fire("fails")

			b.findsTheFailingCall(failed)
			b.watchesAndAnswers()
			b.approves()
			b.editsAndRestores()
			b.pausesAndResumes()
			b.searches(failed)
			b.undoes()
			ran := h.runs("books", "")[0].ID
			h.done("/agents/bookkeeper/pin", "view", "by_what", "pinned", "yes")
			for _, path := range []string{"/", "/inbox", "/inbox/1", "/inbox/closed", "/runs", "/runs?outcome=error&agent=bookkeeper&q=nowhere.txt&since=2026-01-01", "/runs?q=nothing+that+is+there", "/runs/" + ran, "/runs/" + ran + "/replay",
				"/jobs", "/jobs/books?simulate=week", "/jobs/fails", "/jobs/rests", "/agents", "/agents/bookkeeper", "/agents/bookkeeper/schema", "/agents/bookkeeper/data?table=expenses&show=all&q=ink", "/agents/bookkeeper/views?view=by_what",
				"/agents/bookkeeper/activity?run=" + ran, "/agents/idler", "/agents/idler/data", "/workspaces", "/workspaces?status=archived", "/workspaces/1", "/skills", "/skills?q=money", "/health", "/incidents", "/incidents?over=yes", "/nowhere", "/login?code=of+long+ago"} {
				b.visit(path)
			}
		})
	}
}

// One click leads from the first page to the failing call of a failed run.
func (b *browser) findsTheFailingCall(failed api.RunDetail) {
	b.t.Helper()
	b.visit("/")
	b.shot("today")
	script[bool](b, fmt.Sprintf("document.querySelector('#running a[href=\"/runs/%s#failing\"]').click(); true", failed.ID))
	b.do(chromedp.WaitVisible("#failing[open] pre"))
	b.shows("#failing", "nowhere.txt")
	b.accessible("/runs/" + failed.ID)
	b.shot("run")
}

// A running run is updated without a reload. Its question can be answered on the page, and the run
// continues.
func (b *browser) watchesAndAnswers() {
	b.t.Helper()
	b.visit("/jobs/asks")
	b.press("button", "Run now")
	b.shows("#steps", "I have to know one thing.")
	b.shows("#run-head", "Which account is")
	b.shot("question")

	// The answer is given elsewhere, and the open page is updated.
	id := strings.TrimPrefix(b.at(), "/runs/")
	item := b.settled(id).Inbox[0].ID
	b.visit("/inbox/" + item)
	b.press("button", "Tagesgeld")
	b.shows("#run-head", "Noted the account")
	b.shows("h1", "success")

	// An open page shows runs started elsewhere.
	b.visit("/runs?job=asks")
	next := b.fire("asks")
	b.shows("#found", next.ID)
}

func (b *browser) approves() {
	b.t.Helper()
	b.visit("/inbox")
	b.shot("inbox")
	b.press("section[aria-label='inbox item 2'] button", "Approve once")
	if item := b.run("10").Inbox[0]; item.State != inbox.ItemAnswered || item.Answer != inbox.ApprovalOnce {
		b.t.Errorf("%s: %+v", b.window, item)
	}
}

func (b *browser) editsAndRestores() {
	b.t.Helper()
	b.visit("/agents/bookkeeper/data?table=expenses")
	b.shot("data")
	b.press("a[aria-label^='open row']", "open")
	b.do(chromedp.SetValue("#value-2", "99.5"))
	b.press("button", "Save euro")
	if value := script[string](b, "document.querySelector('#value-2').value"); value != "99.5" {
		b.t.Errorf("%s: the cell holds %s", b.window, value)
	}
	b.press("button", "Delete (it can be restored)")
	b.shows("h2", "deleted")
	b.press("button", "Restore")
	b.shows("button", "Delete (it can be restored)")
}

func (b *browser) pausesAndResumes() {
	b.t.Helper()
	b.visit("/jobs/books")
	b.shot("job")
	b.press("details[data-key='p'] button", "Pause")
	b.shows("h1", "paused")
	b.press("button", "Resume")
	b.do(chromedp.WaitReady("details[data-key='p']"))
}

func (b *browser) searches(failed api.RunDetail) {
	b.t.Helper()
	b.visit("/runs")
	// The key that focuses the filter, and the way back.
	b.do(chromedp.KeyEvent("/"))
	if !script[bool](b, "document.activeElement.name === 'q'") {
		b.t.Errorf("%s: the key / leads elsewhere", b.window)
	}
	script[bool](b, "document.activeElement.value = ''; true") // chromedp also types the character of a handled key
	b.do(chromedp.KeyEvent("nowhere.txt"), chromedp.KeyEvent("\r"))
	b.holds("what was searched", "location.search.includes('q=nowhere.txt')")
	b.shows("#found", failed.ID)
	b.holds("the one row that was found", "document.querySelectorAll('#found tr[data-row]').length === 1")
}

func (b *browser) undoes() {
	b.t.Helper()
	ran := b.runs("books", domain.OutcomeSuccess)[0]
	b.visit("/runs/" + ran.ID)
	b.press("a", "Undo: see first")
	b.shows("[data-undo]", "report.md")
	b.accessible("/undo")
	b.shot("undo")
	if _, err := os.Stat(filepath.Join(b.dir, "books", "report.md")); err != nil {
		b.t.Fatalf("a look at the undo undid something: %v", err)
	}
	// The owner has changed a row since the run. The page says so and asks for confirmation.
	script[bool](b, "document.querySelector('[name=force]').checked = true")
	b.press("button", "Undo run")
	if _, err := os.Stat(filepath.Join(b.dir, "books", "report.md")); !os.IsNotExist(err) {
		b.t.Errorf("%s: the file is still there: %v", b.window, err)
	}
}

// ordinary is a configuration with long job names, several triggers and a failure with a long text.
const ordinary = `version: 1
home: ./home
timezone: Europe/Berlin
agents: [{ name: office-assistant, workdir: ./office }]
jobs:
  - { name: nightly-backup-of-the-photo-library, agent: office-assistant, schedule: "30 2 * * *", playbook: [{ call: file_read, with: { path: no_such_file_of_the_backup.txt } }] }
  - { name: sort_incoming_invoices_by_vendor, agent: office-assistant, watch: { path: ./incoming/scanned_documents_of_the_office }, schedule: "*/15 * * * *", prompt: Sort it. }
  - { name: morning-digest, agent: office-assistant, schedule: "0 8 * * 1-5", enabled: false, prompt: Read it. }
  - { name: github-triage, agent: office-assistant, after: [{ job: morning-digest }], prompt: Triage it. }
`

// broken returns words that are split across lines, and cells that are too narrow.
const broken = `(() => {
	const out = [], walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
	for (let n; (n = walker.nextNode());) {
		const e = n.parentElement;
		if (!e.checkVisibility() || e.closest("svg, pre, option, textarea, script")) continue;
		for (const m of n.data.matchAll(/[\p{L}\p{N}_]{2,}/gu)) {
			const whole = /\S*$/.exec(n.data.slice(0, m.index))[0] + /^\S*/.exec(n.data.slice(m.index))[0];
			if (whole.length > 40) continue; // a path may be broken
			const r = document.createRange();
			r.setStart(n, m.index); r.setEnd(n, m.index + m[0].length);
			if (new Set([...r.getClientRects()].map(r => Math.round(r.top))).size > 1) out.push(m[0] + " is broken in " + e.outerHTML.slice(0, 160));
		}
	}
	for (const c of document.querySelectorAll("main td")) {
		const text = c.innerText.trim(), width = c.getBoundingClientRect().width;
		if (c.checkVisibility() && text.length > 12 && width < 64) out.push(width + " px for " + text.slice(0, 80));
	}
	return out.slice(0, 5);
})()`

// TestInChromiumColumns checks the layout of pages with long names at widths from phone to desktop.
func TestInChromiumColumns(t *testing.T) {
	h := open(t, ordinary, func(l *ledger.Ledger) {
		finished(t, l, "morning-digest", domain.OutcomeSuccess)
	})
	failed := h.fire("nightly-backup-of-the-photo-library")
	b := browse(t, h, "phone", 390, 844)
	for _, width := range []int64{390, 768, 1280, 1920} {
		b.window = fmt.Sprintf("%d px", width)
		b.do(chromedp.EmulateViewport(width, 900))
		for _, path := range []string{"/", "/inbox", "/runs", "/runs/" + failed.ID, "/jobs", "/jobs/nightly-backup-of-the-photo-library", "/agents", "/agents/office-assistant", "/agents/office-assistant/activity", "/skills", "/health", "/incidents"} {
			b.open(path)
			b.fits(path)
			for _, found := range script[[]string](b, broken) {
				t.Errorf("%s: %s: %s", b.window, path, found)
			}
		}
		b.open("/")
		if height := script[float64](b, "document.querySelector('#timeline').getBoundingClientRect().height"); width > 760 && height > 600 {
			t.Errorf("%s: the jobs of Today are %v px high", b.window, height)
		}
		b.shot("columns")
	}
}
