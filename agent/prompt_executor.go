package agent

import (
	"fmt"
	"strings"

	"rouse/agentdb/ledger"
)

// executorPrompt is what an agent program is told: what a model of the loop is told, without tools, and how it ends its
// answer. It begins with words of the host's: as an argument it can be no option.
func executorPrompt(t *attempt, prompt string, asked []ledger.Item) string {
	s, failedWith := t.found, t.past.failedWith
	var b strings.Builder
	fmt.Fprintf(&b, "You are %s, an agent that works unattended: nobody reads along, and nobody can answer while you work. ", t.agent.Name)
	b.WriteString(placePrompt(t.agent))
	b.WriteString("End with an answer that says what you did and what came of it: it is all that your owner reads. " +
		"If there was nothing to do, its last line is \"rouse-outcome: nothing\"; if a part is missing, \"rouse-outcome: partial\"; if you could not do it, \"rouse-outcome: error\". " +
		"If you cannot go on without your owner's word, its last line is \"rouse-question: \" and one question; you are started again with the answer.\n")
	if text := strings.TrimSpace(t.agent.Instructions); text != "" {
		b.WriteString("\n" + text + "\n")
	}

	if s.Soul != nil {
		b.WriteString("\n" + s.Soul.Text)
	}

	if s.Clock != "" {
		b.WriteString("\n" + s.Clock)
	}
	if told := triggerPrompt(t); told != "" {
		b.WriteString("\n" + told)
	}
	if s.Views != "" {
		b.WriteString("\n" + s.Views)
	}

	if s.Session != "" {
		b.WriteString("\n" + s.Session)
	}

	if failedWith != "" {
		fmt.Fprintf(&b, "\nAn earlier attempt at this task did not succeed: %q. What it did stands: look what is there before you do anything again.\n", failedWith)
	}
	for _, i := range asked {
		answer := "Nobody answered in time. Go on without an answer if that is possible."
		if i.State == ledger.ItemAnswered {
			answer = "Your owner answered: " + i.Answer
		}
		fmt.Fprintf(&b, "\nYou have asked: %s\n%s\n", i.Message, answer)
	}

	b.WriteString("\nYour task:\n" + prompt + "\n")
	return b.String()
}
