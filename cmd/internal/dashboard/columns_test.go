package dashboard_test

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"

	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// ordinary has jobs with the long names that people give them, several triggers and a failure with a long text.
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

// broken returns words that are split across lines, and cells that are too narrow for their text.
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

// TestInChromiumColumns reads the pages with long ordinary names in windows from a phone to a wide desk.
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
