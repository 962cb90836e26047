package daemon

import (
	"fmt"
	"strings"
	"testing"

	"rouse/agent/model/modeltest"
	"rouse/cmd/internal/api"
	"rouse/internal/domain"
)

// The configuration gives a chat 15 steps, unless it sets bounds.steps.
func TestChatEndsAfterItsSteps(t *testing.T) {
	t.Parallel()
	for keys, want := range map[string]int{"": 15, ", bounds: {steps: 20}": 20} {
		var turns []modeltest.Turn
		for i := range 40 {
			turns = append(turns, says("file_write", fmt.Sprintf(`{"path":"%d.txt","content":"x"}`, i)))
		}
		o := openOffice(t, letter(nil), keys, "", turns...)
		id, err := o.Fire(t.Context(), api.RunRequest{Agent: "clerk", Prompt: "Write on.", Chat: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, res := o.attempt(id); res.Exit != domain.ExitIterationCap || !strings.Contains(res.Error, fmt.Sprintf("the %d steps of this run were used up", want)) {
			t.Errorf("%q: %+v", keys, res)
		}
	}
}
