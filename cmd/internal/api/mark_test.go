package api

import (
	"testing"

	"rouse/internal/domain"
)

// Each outcome and state has its own shape, so that it is recognizable without colors. The tone
// follows from the shape.
func TestMarksDiffer(t *testing.T) {
	seen := map[string]string{}
	look := func(what string, m Mark) {
		if other, twice := seen[m.Shape]; twice {
			t.Errorf("%s and %s are both %s", what, other, m.Shape)
		}
		seen[m.Shape] = what
		if m.Tone == "" || ShapeTone(m.Shape) != m.Tone {
			t.Errorf("%s is %s in %q, and its shape in %q", what, m.Shape, m.Tone, ShapeTone(m.Shape))
		}
	}

	for _, o := range domain.Outcomes() {
		look(string(o), MarkOf(domain.StateFinished, o))
	}
	for _, s := range []domain.State{domain.StateQueued, domain.StateRunning, domain.StateWaiting} {
		look(string(s), MarkOf(s, ""))
	}
	if ShapeTone("x") != "" {
		t.Error("a letter has a tone")
	}
}
