package memory

import (
	"fmt"
	"strings"

	"rouse/internal/text"
)

// Signals holds state of the run that is not part of the memory.
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

	// The thresholds are lower than those that end the run, so that the model is warned first.
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
	// briefLen is the length of a shortened result, in bytes.
	briefLen = 120
	// Minimum number of the newest entries shown, even if the view gets too long.
	keptSteps, keptFacts, keptErrors = 3, 8, 4
)

// viewStart holds the index of the first entry of each list that the view shows.
type viewStart struct{ step, fact, err int }

// omitOldest omits one more of the oldest entries. It omits steps first, because they are also in
// the history. It returns false if no more entries may be omitted.
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

// View renders the memory, if possible within budget bytes. The newest results are shown in full,
// older ones in one line, and the oldest steps are omitted.
func (m *Memory) View(s Signals, budget int) string {
	signals := m.Signals(s)
	if len(m.steps) == 0 && m.board.Plan().Version == 0 && len(signals) == 0 {
		return ""
	}

	results := make([]string, len(m.steps))
	for i, step := range m.steps {
		results[i] = collapsed(step.Output, briefLen)
	}

	// First shorten all results, to determine the entries that fit.
	var first viewStart
	for len(m.render(signals, results, first)) > budget && m.omitOldest(&first) {
	}
	// Use the rest of the budget for the newest results, until one does not fit.
	left := budget - len(m.render(signals, results, first))
	for i := len(m.steps) - 1; i >= first.step; i-- {
		more := len(oneLine(m.steps[i].Output)) - len(results[i])
		if more > left {
			if i == len(m.steps)-1 { // show the part of the newest result that fits
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

// shorten cuts a text that the model wrote, without a pointer to the rest.
func shorten(said string, most int) string {
	if said = oneLine(said); len(said) > most {
		return text.HeadBytes(said, most) + "…"
	}
	return said
}

// oneLine removes line breaks, so that untrusted text cannot imitate a part of the view.
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
		if p.Goal != "" { // a todo list has no goal
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
