package control

import (
	"fmt"
	"strings"
	"unicode"

	"rouse/agent/tool"
	"rouse/internal/domain"
)

// minSummary is the minimum length of a summary, in letters and digits.
const minSummary = 16

// summaryRule describes the rule of checkSummary.
const summaryRule = "at least 16 letters or digits of any script, where characters of Chinese, Japanese and Korean count twice, " +
	"and more than words like done or ok; with the outcome nothing, one word is enough"

// fillers are words that report no result. A summary must also contain other words.
var fillers = wordSet("a all and been complete completed completely done everything fine finished good has have i is it job looks now " +
	"ok okay run success successful successfully task tasks that the this was well with work")

func wordSet(words string) map[string]bool {
	set := map[string]bool{}
	for w := range strings.FieldsSeq(words) {
		set[w] = true
	}
	return set
}

// wide lists the scripts in which one character carries as much as two letters of other scripts.
var wide = []*unicode.RangeTable{unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo, unicode.Yi}

// summaryWeight counts the letters and digits of a text. Characters of wide scripts count twice.
func summaryWeight(text string) (n int) {
	for _, c := range text {
		switch {
		case unicode.In(c, wide...) || c == 'ー': // Unicode assigns ー to more than one script
			n += 2
		case unicode.IsLetter(c) || unicode.IsDigit(c):
			n++
		}
	}
	return n
}

// checkSummary returns a failure if a summary reports no result.
func checkSummary(summary string, outcome domain.Outcome) *tool.Envelope {
	words := strings.FieldsFunc(strings.ToLower(summary), func(c rune) bool { return !unicode.IsLetter(c) && !unicode.IsMark(c) && !unicode.IsDigit(c) })
	placeholder := true
	for _, w := range words {
		placeholder = placeholder && fillers[w]
	}

	weight, why := summaryWeight(summary), ""
	switch {
	case weight == 0:
		why = "the summary is empty"
	case outcome == domain.OutcomeNothing:
		return nil
	case placeholder:
		why = "the summary does not report a result; write what was done and what came of it"
	case weight < minSummary:
		why = fmt.Sprintf("the summary has %d letters and digits and needs %d, so %d are missing; write what was done and what came of it", weight, minSummary, minSummary-weight)
	default:
		return nil
	}

	e := tool.Failure(tool.KindInvalidArgs, "%s", why).WithField("summary", summaryRule)
	return &e
}
