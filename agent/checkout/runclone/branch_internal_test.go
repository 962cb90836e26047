package runclone

import (
	"errors"
	"strings"
	"testing"

	"rouse/agent/checkout"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

func TestReport(t *testing.T) {
	t.Parallel()
	run := ledger.Run{ID: 7}
	commits := waits(run, checkout.Result{Branch: "b", Commits: []checkout.Commit{{}}, Files: []checkout.FileStat{{}, {}}, Uncommitted: 1})
	if want := "the branch b waits for you (1 commit, 2 files): rouse apply 7, or rouse discard 7; not committed in its clone: 1 file"; commits != want {
		t.Errorf("got %q, want %q", commits, want)
	}

	success, failure := ledger.Result{Outcome: domain.OutcomeSuccess, Summary: "done", Verified: true}, ledger.Result{Outcome: domain.OutcomeError, Error: "broke"}
	for name, c := range map[string]struct {
		branch Branch
		res    ledger.Result
		want   ledger.Result
	}{
		"waits":              {Branch{waits: "w"}, success, ledger.Result{Outcome: domain.OutcomeSuccess, Summary: "done; w", Verified: true}},
		"not collected":      {Branch{failed: "f"}, success, ledger.Result{Outcome: domain.OutcomeError, Kind: "checkout", Summary: "done", Error: "f"}},
		"failed, waits":      {Branch{waits: "w"}, failure, ledger.Result{Outcome: domain.OutcomeError, Error: "broke; w"}},
		"no branch, success": {Branch{}, success, success},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := c.res
			c.branch.Report(&got)
			if got.Outcome != c.want.Outcome || got.Kind != c.want.Kind || got.Summary != c.want.Summary || got.Error != c.want.Error || got.Verified != c.want.Verified {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if KeepsBranch(got) != (c.want.Kind != "") {
				t.Errorf("KeepsBranch(%+v) = %t", got, KeepsBranch(got))
			}
		})
	}
}

// TestNoClones checks that all methods of a nil *Clones return without clones.
func TestNoClones(t *testing.T) {
	t.Parallel()
	var none *Clones
	_, err := none.Of(ledger.Run{ID: 1})
	if !errors.Is(err, checkout.ErrNone) {
		t.Errorf("Of: %v", err)
	}
	if all, err := none.Waiting(); len(all) > 0 || err != nil {
		t.Errorf("Waiting: %v %v", all, err)
	}
	if err := none.Prune(t.Context()); err != nil {
		t.Errorf("Prune: %v", err)
	}
	if _, err := none.Make(t.Context(), ledger.Run{ID: 1}, checkout.Spec{}); err == nil || !strings.Contains(err.Error(), "a daemon with a home") {
		t.Errorf("Make: %v", err)
	}
}

// TestPullRequestBody checks that the agent's text cannot leave the code block of a pull request.
func TestPullRequestBody(t *testing.T) {
	t.Parallel()
	got := pullRequestBody(ledger.Run{ID: 3, Job: "fix"}, checkout.Result{Commits: []checkout.Commit{{Hash: "0123456789abcdef", Subject: "a\nb"}}}, "```\n@someone")
	if strings.Count(got, "```") != 2 || !strings.Contains(got, "0123456789ab a b") || !strings.HasPrefix(got, "Run 3 of the job fix made 1 commit.") {
		t.Error(got)
	}
}
