package agent_test

import (
	"testing"

	"rouse/internal/domain"
)

// TestVersionOfARenewedArtifact checks OSL-25 and OSL-26: a module identifies an artifact by its
// first ID, even after it has changed the content. Its next change creates the version after the
// newest one.
func TestVersionOfARenewedArtifact(t *testing.T) {
	t.Parallel()
	b, _ := moduleAgent(t)
	_, res := b.flow(`
		const first = await host.workspace.createArtifact({type: "plan", title: "Plan", content: {v: 1}});
		await host.workspace.updateArtifact(first.id, {status: "superseded", content: {v: 1, feedback: "more"}});
		const next = await host.workspace.createArtifact({type: "plan", title: "Plan", content: {v: 2}, parentArtifactId: first.id});
		await host.workspace.updateArtifact(next.id, {status: "approved"});
		return {message: (await host.workspace.listArtifacts()).map((a) => a.version + a.status + (a.parentArtifactId ? "<" : "")).join()}`, "trip", flows(nil))
	if want := "1superseded,2superseded<,3approved<"; res.Outcome != domain.OutcomeSuccess || res.Summary != want {
		t.Errorf("%s %q %s, want %s", res.Outcome, res.Summary, res.Error, want)
	}
}
