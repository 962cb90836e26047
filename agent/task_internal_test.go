package agent

import "testing"

// OSA-40: the programs of an isolated agent are confined on tier B or A, whatever a job puts up with; those of any other
// agent on what its job says.
func TestTierOfAnIsolatedAgent(t *testing.T) {
	t.Parallel()
	for job, want := range map[string]string{"A": "A", "B": "B", "C": "B", "D": "B"} {
		if got := (&task{agent: Agent{Mode: ModeIsolated}, job: Job{MinTier: job}}).minTier(); got != want {
			t.Errorf("isolated, with a job of tier %s: %s, want %s", job, got, want)
		}
		if got := (&task{agent: Agent{Mode: ModeFolder}, job: Job{MinTier: job}}).minTier(); got != job {
			t.Errorf("in a folder, with a job of tier %s: %s", job, got)
		}
	}
	if got := (&task{agent: Agent{Mode: ModeIsolated}, job: Job{MinTier: "A"}, origin: &Job{MinTier: "D"}}).minTier(); got != "B" {
		t.Errorf("isolated, woken by a job of tier D: %s", got)
	}
}
