package dashboard_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"rouse/cmd/internal/api"
	"rouse/internal/domain"
	"rouse/internal/ledger/inbox"
)

// thumb is the minimum height of controls on a phone, in pixels, as promised in style.css.
const thumb = 44

// fitsThumbs returns the controls that are too small for a phone, including those in collapsed
// parts.
func (b *browser) fitsThumbs(path string) {
	b.t.Helper()
	low := script[[]string](b, fmt.Sprintf(`(() => {
		for (const d of document.querySelectorAll("details")) d.open = true;
		return [...document.querySelectorAll("button, .button, summary, select, textarea, input, label.check")].filter(e => e.checkVisibility() && !e.parentElement.matches("label.check"))
			.filter(e => e.getBoundingClientRect().height < %d).map(e => e.getBoundingClientRect().height + " " + e.outerHTML.slice(0, 120));
	})()`, thumb))
	for _, e := range low {
		b.t.Errorf("%s: %s: too low for a thumb: %s", b.window, path, e)
	}
}

// phone returns a browser with the size of a phone.
func phone(t *testing.T, h *home) *browser {
	t.Helper()
	return browse(t, h, windows[0].name, windows[0].width, windows[0].height)
}

// A new user on a phone sees a waiting item on Today, answers it there with a button, and sees the
// run finish.
func TestInChromiumAnswersOnAPhone(t *testing.T) {
	h := open(t, withModel(t, asking...), nil)
	run := h.fire("asks")
	b := phone(t, h)
	b.shows(".top .count", "1")
	b.shows("#needs", "Which account is")
	b.fits("/")

	b.click("#needs button", "Tagesgeld")
	b.holds("nothing that waits", "!document.querySelector('#open .count') && document.querySelector('#needs').textContent.includes('Nothing waits for you')")
	b.shows("#running", "Noted the account")
	if b.at() != "/" {
		t.Errorf("an answer leads from Today to %s", b.at())
	}
	b.fits("/")

	b.click("#running td a", run.ID)
	b.shows("h1", "success")
	b.fits("/runs/" + run.ID)
	if run = h.settled(run.ID); run.Outcome != domain.OutcomeSuccess || run.Inbox[0].Answer != "Tagesgeld" {
		t.Errorf("%+v", run)
	}
}

// Entered text survives live updates of the page, even after the focus has moved.
func TestInChromiumTypedIsKept(t *testing.T) {
	h := open(t, withModel(t, asking...), nil)
	run := h.fire("asks")
	b := phone(t, h)
	b.click("#needs input[name=text]", "")
	b.key("B", "a", "r")
	b.click("h1", "Today")
	other := h.fire("fails")
	b.shows("#running td a", other.ID)
	if typed := script[string](b, "document.querySelector('#needs input[name=text]').value"); typed != "Bar" {
		t.Errorf("what was typed is %q", typed)
	}

	b.click("#needs button.main, #needs button:not([name])", "Answer")
	b.shows("#running", "Noted the account")
	if run = h.settled(run.ID); run.Inbox[0].Answer != "Bar" {
		t.Errorf("%+v", run.Inbox)
	}
}

// All controls are large enough for a thumb, and no page is wider than a phone, including collapsed
// parts.
func TestInChromiumThumbs(t *testing.T) {
	h := open(t, configuration, seedHistory(t))
	ran, failed := h.fire("books"), h.fire("fails")
	b := phone(t, h)
	for _, path := range []string{"/", "/inbox", "/inbox/1", "/runs", "/runs/" + ran.ID, "/runs/" + failed.ID, "/runs/" + ran.ID + "/undo", "/jobs", "/jobs/books", "/agents/bookkeeper", "/agents/bookkeeper/data", "/agents/bookkeeper/row?table=expenses&key=%7B%22id%22%3A1%7D", "/agents/bookkeeper/views?view=by_what", "/workspaces/1", "/health", "/incidents"} {
		b.do(chromedp.Navigate(b.Door.URL(path)), chromedp.WaitReady("main"))
		b.fitsThumbs(path)
		b.fits(path)
	}
}

// codes maps keys other than letters to their key codes.
var codes = map[string]int64{"Enter": 13, "Escape": 27}

// key presses keys one after another, like a keyboard. A key that the page handles types nothing.
func (b *browser) key(keys ...string) {
	b.t.Helper()
	for _, k := range keys {
		press := input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: k, Text: k, WindowsVirtualKeyCode: codes[k]}
		switch k {
		case "Enter":
			press.Text = "\r"
		case "Escape":
			press.Text = ""
		}
		release := press
		release.Type, release.Text = input.DispatchKeyEventTypeKeyUp, ""
		b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
			if _, err := cdp.Call(ctx, t, input.DispatchKeyEvent, press); err != nil {
				return err
			}
			_, err := cdp.Call(ctx, t, input.DispatchKeyEvent, release)
			return err
		}))
	}
}

// on waits until the window shows a page.
func (b *browser) on(path string) {
	b.t.Helper()
	b.holds("the page "+path, fmt.Sprintf("location.pathname === %q && document.readyState === 'complete'", path))
}

// open opens a page by its address.
func (b *browser) open(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.Door.URL(path)), chromedp.WaitReady("main"))
}

// row returns the row that has the focus.
func (b *browser) row() string {
	b.t.Helper()
	return script[string](b, "document.activeElement.closest('[data-row]')?.dataset.row ?? ''")
}

// Every page can be reached from every other page with keys.
func TestInChromiumKeysLead(t *testing.T) {
	b := browse(t, open(t, configuration, nil), "desk", 1440, 900)
	for _, c := range []struct{ key, path string }{{"i", "/inbox"}, {"r", "/runs"}, {"j", "/jobs"}, {"a", "/agents"}, {"w", "/workspaces"}, {"h", "/health"}, {"t", "/"}} {
		b.key("g", c.key)
		b.on(c.path)
	}
}

// Keys move through rows one at a time and open them. The focus survives live updates.
func TestInChromiumKeysMove(t *testing.T) {
	h := open(t, configuration, seedHistory(t))
	failed := h.fire("fails")
	b := browse(t, h, "desk", 1440, 900)
	for _, path := range []string{"/", "/runs", "/jobs", "/inbox", "/agents", "/workspaces"} {
		b.open(path)
		rows := script[[]string](b, "[...document.querySelectorAll('[data-row]')].map(r => r.dataset.row)")
		for _, want := range rows {
			b.key("j")
			if got := b.row(); got != want {
				t.Errorf("%s: j leads to the row %q, not %q of %q", path, got, want, rows)
			}
		}
		b.key("j")
		if got := b.row(); got != rows[len(rows)-1] {
			t.Errorf("%s: j leads from the last row to %q", path, got)
		}
		for i := len(rows) - 2; i >= 0; i-- {
			b.key("k")
			if got := b.row(); got != rows[i] {
				t.Errorf("%s: k leads to the row %q, not %q", path, got, rows[i])
			}
		}
	}

	b.open("/runs")
	b.key("j")
	next := h.fire("books")
	b.shows("#found", next.ID)
	if got := b.row(); got != failed.ID {
		t.Errorf("a run that came above the focus moved it to %q", got)
	}
	b.key("Enter")
	b.on("/runs/" + failed.ID)
	b.holds("the failing call", "location.hash === '#failing' && document.querySelector('#failing').open")

	// The same applies to buttons.
	b.open("/")
	script[bool](b, "(() => { const e = document.querySelector('#item-2 button[value=\"2\"]'); e.dataset.old = 'yes'; e.focus(); return true; })()")
	h.fire("fails")
	b.holds("another button in the place of the old one", "!document.querySelector('[data-old]')")
	if got := script[string](b, "document.activeElement.closest('#item-2')?.id + ' ' + document.activeElement.textContent"); got != "item-2 Deny" {
		t.Errorf("the focus is on %q", got)
	}
}

// Keys start, pause, resume, filter and show help. In a text field they type characters.
func TestInChromiumKeysDo(t *testing.T) {
	h := open(t, configuration, nil)
	b := browse(t, h, "desk", 1440, 900)

	b.open("/jobs/books")
	b.key("r", "Enter")
	b.on("/runs/1")
	if ran := h.settled("1"); ran.Job != "books" {
		t.Errorf("r and Enter start %+v", ran.Run)
	}

	b.open("/jobs/books")
	b.key("p")
	if got := script[string](b, "document.activeElement.name + ' ' + document.activeElement.closest('details').dataset.key"); got != "for p" {
		t.Errorf("p leads to %q", got)
	}
	h.done("/jobs/books/pause", "for", "1h")
	b.open("/jobs/books")
	b.key("p", "Enter")
	b.holds("the job that goes on", "document.querySelector('details[data-key=p]') && document.readyState === 'complete'")

	b.open("/agents/bookkeeper")
	b.key("r")
	if got := script[string](b, "document.activeElement.name"); got != "prompt" {
		t.Errorf("r leads to %q, and not to what has to be said", got)
	}

	b.open("/runs")
	b.key("/")
	if got := script[string](b, "document.activeElement.name"); got != "q" {
		t.Errorf("/ leads to %q", got)
	}
	b.key("g", "t", "j", "k", "r", "p", "/", "?")
	if got := script[string](b, "document.activeElement.value + (document.querySelector('dialog').open ? ' and a dialog' : '')"); got != "gtjkrp/?" || b.at() != "/runs" {
		t.Errorf("what was typed is %q on %s", got, b.at())
	}

	b.open("/runs")
	b.key("?")
	b.holds("the list of keys", "document.querySelector('dialog').open")
	b.key("Escape")
	b.holds("no list of keys", "!document.querySelector('dialog').open")
}

// withEverything is a configuration with jobs that need an input, an answer and an approval. Its
// agent may run only the program true.
var withEverything = strings.Replace(configuration, "workdir: ./books\n", "workdir: ./books\n    grants: { commands: [{ argv: [\"true\"] }] }\n", 1) + `  - name: takes
    agent: bookkeeper
    playbook:
      - call: file_write
        with: { path: given.txt, content: "{{ .Input.who }}" }
  - name: wants
    agent: bookkeeper
    playbook:
      - call: shell_run
        with: { command: "touch approved.txt" }
`

// Without JavaScript, everything works except live updates.
func TestInChromiumWithoutScripts(t *testing.T) {
	h := open(t, withModelOf(t, withEverything, asking...), nil)
	b := browse(t, h, "desk", 1440, 900)
	login, err := h.Door.Login(t.Context(), "/")
	if err != nil {
		t.Fatal(err)
	}
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		if _, err := cdp.Call(ctx, t, network.ClearBrowserCookies, cdp.Empty{}); err != nil {
			return err
		}
		_, err := cdp.Call(ctx, t, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
		return err
	}), chromedp.Navigate(login.URL))
	b.on("/")
	if !script[bool](b, "document.querySelector('#theme').hidden") {
		t.Fatal("the script of the page was run")
	}

	asked := h.fire("asks")
	b.open("/")
	b.click("#needs button", "Girokonto")
	b.shows("#needs", "Nothing waits for you")
	if asked = h.settled(asked.ID); asked.Outcome != domain.OutcomeSuccess || asked.Inbox[0].Answer != "Girokonto" {
		t.Errorf("%+v", asked)
	}

	failed := h.fire("fails")
	b.click("nav a", "Runs")
	b.on("/runs")
	b.click("#found td a", failed.ID)
	b.on("/runs/" + failed.ID)
	b.holds("the failing call", "document.querySelector('#failing').open && document.querySelector('#failing').getBoundingClientRect().top < innerHeight")
	b.click("details:not([open]) > summary", "file_write")
	b.holds("the call before it", "document.querySelectorAll('.call details[open]').length === 2")

	wants := h.fire("wants")
	b.click("nav a", "Inbox")
	b.on("/inbox")
	b.shows("#items", "touch approved.txt")
	b.click("#items button", "Approve once")
	b.shows("#items", "Nothing waits for you")
	if wants = h.settled(wants.ID); wants.Inbox[0].Answer != inbox.ApprovalOnce || wants.Outcome != domain.OutcomeSuccess {
		t.Errorf("%+v", wants)
	}
	if _, err := os.Stat(filepath.Join(h.dir, "books", "approved.txt")); err != nil {
		t.Error(err)
	}

	b.open("/jobs/takes")
	b.click("summary", "Pause")
	b.click("details button", "Pause")
	b.shows("h1", "paused")
	b.click("button", "Resume")
	b.holds("the job that goes on", "document.querySelector('details[data-key=p]') && !document.querySelector('h1').textContent.includes('paused')")

	b.click("summary", "Run now")
	b.click("textarea[name=input]", "")
	b.key("w", "h", "o", "=", "A", "d", "a")
	b.click("details button", "Run now")
	b.shows("h1", "Run ")
	h.wrote("takes", "given.txt", "Ada")
}

// wrote waits for the first run of a job and checks the text it wrote into a file.
func (h *home) wrote(job, file, want string) {
	h.t.Helper()
	var all []api.Run
	if err := h.api.Get(h.t.Context(), "/v1/runs", map[string][]string{"job": {job}}, &all); err != nil {
		h.t.Fatal(err)
	}
	if len(all) != 1 {
		h.t.Fatalf("%d runs of %s", len(all), job)
	}
	if ran := h.settled(all[0].ID); ran.Outcome != domain.OutcomeSuccess {
		h.t.Errorf("%+v", ran.Run)
	}
	if got, err := os.ReadFile(filepath.Join(h.dir, "books", file)); err != nil || string(got) != want {
		h.t.Errorf("%q, %v", got, err)
	}
}
