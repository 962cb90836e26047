package web

import (
	"strings"
	"testing"

	"rouse/internal/ledger/inbox"
)

// An answer may be an option in words or by its number. A probable typing error is refused.
func TestMatchAnswer(t *testing.T) {
	banks := []string{"GLS", "Sparkasse", "both, please"}
	recovery := []string{"done", "again", "skip", "stop"}
	for _, c := range []struct {
		kind       string
		options    []string
		multiple   bool
		text, want string // want: the parsed answer or the error
	}{
		{"input", nil, false, "  anything, at all ", "anything, at all"}, {"input", nil, false, "7", "7"},
		{"input", nil, false, " \n ", "refused: the answer is empty"}, {"input", nil, false, strings.Repeat("ä", 8001), "refused: the answer has 8001 characters"},
		{"input", banks, false, "2", "Sparkasse"}, {"input", banks, false, "gls", "GLS"}, {"input", banks, false, "both, please", "both, please"},
		{"input", banks, false, "neither", "neither"}, {"input", banks, false, "in 2026", "in 2026"}, {"input", banks, false, "2026", "2026"},
		{"input", banks, false, "4", "refused: there is no option 4; there are 1. GLS, 2. Sparkasse"}, {"input", banks, false, "0", "refused: there is no option 0"},
		{"input", banks, false, "1,2", "refused: only one of the options"}, {"input", banks, false, "1, 1", "GLS"},
		{"input", banks, true, "1,2", "GLS, Sparkasse"}, {"input", banks, true, "2, gls", "Sparkasse, GLS"}, {"input", banks, true, "1,9", "refused: there is no option 9"},
		{"input", banks, true, "1 but not today", "1 but not today"}, {"input", banks, true, "both, please", "both, please"},
		{"input", []string{"5", "10"}, false, "7", "7"}, {"input", []string{"5", "10"}, false, "10", "10"}, {"input", []string{"5", "10"}, false, "2", "10"},
		{"recovery", recovery, false, "Again", "again"}, {"recovery", recovery, false, "4", "stop"}, {"recovery", recovery, false, "yes", `refused: "yes" is no answer to this; the answers are 1. done`},
		{"recovery", recovery, false, "done,again", "refused: only one"}, {"info", []string{"seen"}, false, "1", "seen"}, {"info", []string{"seen"}, false, "why?", "refused: "},
	} {
		got, err := matchAnswer(inbox.Item{Kind: c.kind, Options: c.options, Multiple: c.multiple}, c.text)
		if err != nil {
			got = "refused: " + err.Error()
			got = got[:min(len(got), len(c.want))]
		}
		if got != c.want {
			t.Errorf("%s of %s %v: %.90s, want %s", c.text, c.kind, c.options, got, c.want)
		}
	}
}
