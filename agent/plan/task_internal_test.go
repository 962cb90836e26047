package plan

import "testing"

// TestTierOfAnIsolatedAgent checks OSA-40. Programs of an isolated agent are confined on tier B or
// A, regardless of the job. Programs of other agents use the tier of the job.
func TestTierOfAnIsolatedAgent(t *testing.T) {
	t.Parallel()
	for job, want := range map[string]string{"A": "A", "B": "B", "C": "B", "D": "B"} {
		if got := (&Task{Agent: Agent{Mode: ModeIsolated}, Job: Job{MinTier: job}}).MinTier(); got != want {
			t.Errorf("isolated, with a job of tier %s: %s, want %s", job, got, want)
		}
		if got := (&Task{Agent: Agent{Mode: ModeFolder}, Job: Job{MinTier: job}}).MinTier(); got != job {
			t.Errorf("in a folder, with a job of tier %s: %s", job, got)
		}
	}
	if got := (&Task{Agent: Agent{Mode: ModeIsolated}, Job: Job{MinTier: "A"}, Origin: &Job{MinTier: "D"}}).MinTier(); got != "B" {
		t.Errorf("isolated, woken by a job of tier D: %s", got)
	}
}
