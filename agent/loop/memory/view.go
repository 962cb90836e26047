package memory

import (
	"fmt"
	"strings"

	"rouse/internal/text"
)

// Signals are what the view shows of the run beside the memory itself (AYA-09).
type Signals struct {
	Used, Budget int // steps
	Context      int // percent of the model's context
}

// Signals returns lines about the state of the run: ℹ informs, ⚠ warns.
func (m *Memory) Signals(s Signals) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if s.Budget > 0 {
		add("ℹ %d of %d steps used", s.Used, s.Budget)
	}

	// The thresholds are lower than those that end the run: the model is warned first.
	if n := m.failed[m.lastFailed]; n >= 2 && m.made[m.lastFailed] >= 2 {
		add("⚠ the same %s action has failed %d times: do something else", m.failedTool, n)
	}

	if m.idleSteps >= 3 {
		add("⚠ %d steps in a row without an action: act, or end", m.idleSteps)
	}

	if m.refused >= 2 {
		add("⚠ %d actions were refused: find another way, or ask with feedback", m.refused)
	}

	switch {
	case s.Context >= 90:
		add("⚠ more than 90 %% of the context is used")
	case s.Context >= 70:
		add("⚠ more than 70 %% of the context is used")
	case s.Context >= 50:
		add("ℹ more than 50 %% of the context is used")
	}

	return out
}

const (
	header = "--- Agent Working Memory ---"
	footer = "--- End Agent Working Memory ---"
	// briefLen is as much of a result as stands in its place once it is left out, in bytes.
	briefLen = 120
	// How many of the newest are shown in any case, even when the view gets too long.
	keptSteps, keptFacts, keptErrors = 3, 8, 4
)

// viewStart is the index of the first entry of each list that the view shows.
type viewStart struct{ step, fact, err int }

// omitOldest leaves out one more of the oldest entries: steps first, which are in the history too.
func (m *Memory) omitOldest(f *viewStart) bool {
	switch {
	case f.step < len(m.steps)-keptSteps:
		f.step++
	case f.err < len(m.errors)-keptErrors:
		f.err++
	case f.fact < len(m.facts)-keptFacts:
		f.fact++
	default:
		return false
	}
	return true
}

// View renders the memory within so many bytes if possible: the newest results whole, older ones in
// a line, the oldest steps not at all (AYA-04, C-9).
func (m *Memory) View(s Signals, budget int) string {
	signals := m.Signals(s)
	if len(m.steps) == 0 && m.board.Plan().Version == 0 && len(signals) == 0 {
		return ""
	}

	results := make([]string, len(m.steps))
	for i, step := range m.steps {
		results[i] = collapsed(step.Output, briefLen)
	}

	// First with all results shortened, to decide what is shown at all.
	var first viewStart
	for len(m.render(signals, results, first)) > budget && m.omitOldest(&first) {
	}
	// The rest of the budget goes to the newest results, until one does not fit.
	left := budget - len(m.render(signals, results, first))
	for i := len(m.steps) - 1; i >= first.step; i-- {
		more := len(oneLine(m.steps[i].Output)) - len(results[i])
		if more > left {
			if i == len(m.steps)-1 { // as much of the newest as there is room for
				results[i] = collapsed(m.steps[i].Output, max(briefLen, len(results[i])+left-len(pointer)-8))
			}
			break
		}

		results[i] = oneLine(m.steps[i].Output)
		left -= max(more, 0)
	}

	return m.render(signals, results, first)
}

const pointer = "… (%d bytes: see the result of that call, or make it again)"

func collapsed(output string, most int) string {
	output = oneLine(output)
	if len(output) <= most {
		return output
	}
	return text.HeadBytes(output, most) + fmt.Sprintf(pointer, len(output))
}

// shorten cuts a text of the model's own, without a pointer to the rest.
func shorten(said string, most int) string {
	if said = oneLine(said); len(said) > most {
		return text.HeadBytes(said, most) + "…"
	}
	return said
}

// oneLine keeps text that others wrote from looking like a part of the view.
func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), " ")
}

func (m *Memory) render(signals, results []string, first viewStart) string {
	blocks := []string{header}
	add := func(title string, lines []string) {
		blocks = append(blocks, strings.Join(append([]string{title}, lines...), "\n"))
	}
	if p := m.board.Plan(); p.Version > 0 {
		title := fmt.Sprintf("[PLAN v%d]", p.Version)
		if p.Goal != "" { // a todo list has none
			title += "  Goal: " + shorten(p.Goal, 4*briefLen)
		}
		add(title, planLines(p))
	}

	if len(m.facts) > 0 {
		var lines []string
		if first.fact > 0 {
			lines = append(lines, "  (earlier facts are left out)")
		}

		for _, f := range m.facts[first.fact:] {
			source := ""
			if f.Tool != "" {
				source = " via " + shorten(f.Tool, briefLen)
			}
			lines = append(lines, fmt.Sprintf("  • %s  [step %d%s]", shorten(f.Fact, 4*briefLen), f.Step, source))
		}

		add("[Key Facts]", lines)
	}

	if len(m.steps) > 0 {
		add("[Steps]", m.stepLines(results, first.step))
	}

	lines := []string{"  (none)"}
	if len(m.errors) > 0 {
		lines = nil
	}

	for _, e := range m.errors[first.err:] {
		mark, most := "✗", 2*briefLen
		if e.Resolved {
			mark, most = "✓", briefLen
		}

		lines = append(lines, fmt.Sprintf("  %s [Step %d] %s — %s", mark, e.Step, shorten(e.Tool, briefLen), collapsed(e.Message, most)))
		if e.Resolved {
			lines = append(lines, "     → resolved: "+shorten(e.Resolution, 2*briefLen))
		}
	}

	add("[Errors]", lines)
	if len(signals) > 0 {
		var lines []string
		for _, s := range signals {
			lines = append(lines, "  "+s)
		}
		add("[Context Signals]", lines)
	}

	return strings.Join(append(blocks, footer), "\n\n")
}

func planLines(p Plan) []string {
	var lines []string
	for _, t := range p.SubTasks {
		mark := map[Status]string{Done: "✓", Failed: "✗"}[t.Status]
		switch {
		case mark != "":
		case t.ID == p.Current:
			mark = "→"
		default:
			mark = "○"
		}

		text := fmt.Sprintf("  %s Sub-task %s: %s", mark, shorten(t.ID, briefLen), shorten(t.Title, 2*briefLen))
		if len(t.DependsOn) > 0 && t.Status != Done {
			text += "  (needs: " + oneLine(strings.Join(t.DependsOn, ", ")) + ")"
		}

		if t.ID == p.Current {
			text += "         ← CURRENT"
		}

		lines = append(lines, text)
	}

	return lines
}

func (m *Memory) stepLines(results []string, first int) []string {
	var lines []string
	if first > 0 {
		lines = append(lines, "  (earlier steps are left out)")
	}

	for i := first; i < len(m.steps); i++ {
		s := m.steps[i]
		lines = append(lines, fmt.Sprintf("  [Step %d] %s: %s", s.Number, strings.ToUpper(string(s.Phase)), shorten(s.Summary, 4*briefLen)))
		if s.Tool == "" {
			continue
		}

		failed := ""
		if s.Failed {
			failed = " (FAILED)"
		}

		lines = append(lines, "    Tool: "+shorten(s.Tool, briefLen))
		if s.Input != "" {
			lines = append(lines, "    Input: "+shorten(s.Input, 2*briefLen))
		}
		lines = append(lines, fmt.Sprintf("    Result%s: %s", failed, results[i]), fmt.Sprintf("    Duration: %dms", s.Duration.Milliseconds()))
	}

	return lines
}
