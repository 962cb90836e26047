// Package ledgertest is the conformance test suite for ledgers on any database.
package ledgertest

import (
	"strings"
	"testing"
	"testing/synctest"

	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// Open opens the same database each time it is called within one test.
type Open func(t *testing.T) *ledger.Ledger

// Run runs the conformance suite. The function fresh returns an Open for a new, empty database.
// Several tests call it concurrently.
func Run(t *testing.T, fresh func(t *testing.T) Open) {
	for name, test := range map[string]func(*testing.T, Open){
		"Budget": budgets, "BudgetCrash": budgetCrash, "BudgetRace": budgetRace, "Months": months, "MonthRace": monthRace, "PruneSpending": pruneSpending,
		"Inbox": inboxItems, "InboxEnds": inboxEnds, "WaitingEvents": waitingEvents, "Recovery": recovery, "Paused": paused, "Infos": infos, "InfosOnce": infosOnce,
		"Approvals": approvals, "ApprovalWithdrawn": approvalWithdrawn, "ApprovalsTogether": approvalsTogether, "QuestionsTogether": questionsTogether, "WaitingOverlaps": waitingOverlaps, "ApprovalExpires": approvalExpires, "DefinitionApproval": definitionApproval, "RecordTaint": recordTaint, "Labels": labels, "InitialTaint": initialTaint,
		"KeyIsOneRun": keyIsOneRun, "Claims": claims, "ClaimsBack": claimsBack, "Overlap": overlap, "DueOnce": dueOnce, "Watermarks": watermarks,
		"Fencing": fencing, "RetryLater": retryLater, "Interrupt": interrupt, "Cancel": cancel, "Retry": retryFinished,
		"Record": recordSteps, "Outbox": outbox, "Prune": prune, "Filters": filters, "SurvivesReopen": survivesReopen, "Changed": changed,
		"Race": race, "IdlePrune": idlePrune, "HotReads": hotReads, "AnyText": anyText, "CancelIsKept": cancelIsKept, "InterruptedUsage": interruptedUsage, "FinishUnstarted": finishUnstarted, "EndWithoutStart": endWithoutStart,
		"PauseRefused": pauseRefused, "PauseRace": pauseRace, "WakeRace": wakeRace, "DueAgain": dueAgain, "DueRace": dueRace, "Stretches": stretches,
		"LargeBatch": largeBatch, "Delayed": delayed, "ManyQueued": manyQueued, "SkippedRun": skippedRun, "Backfill": backfill, "BriefRuns": briefRuns, "RecordWithEnd": recordWithEnd, "StepEvents": stepEvents, "BackfillYields": backfillYields, "JobsSync": jobsSync, "PruneMany": pruneMany, "NoticesOutliveRuns": noticesOutliveRuns, "FileOps": fileOps, "Artifacts": artifacts,
		"ModelPauses": modelPauses, "Obstacles": obstacles, "BlockedOverlaps": blockedOverlaps, "PostponedOverlaps": postponedOverlaps, "Identity": identity, "Touch": touch, "DatabaseItems": databaseItems,
		"Restored": restored, "Workspaces": workspaces, "WorkspaceStatus": workspaceStatus, "WorkspaceArtifacts": workspaceArtifacts, "WorkspaceReview": workspaceReview, "WorkspaceRemade": workspaceRemade, "Checkpoints": checkpoints, "SkillEvents": skillEvents, "InputSchema": inputSchema,
		"ReleaseClaims": releaseClaims, "ClaimsStuck": claimsStuck, "SameFollowers": sameFollowers, "Deliveries": deliveries,
		"Followers": followers, "FollowersRace": followersRace, "Incidents": incidents, "IncidentKinds": incidentKinds, "Acknowledge": acknowledge, "IncidentFenced": incidentFenced, "IncidentRace": incidentRace, "Digests": digests,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open := fresh(t)
			test(t, open)
			audited(t, open(t), sketched[name])
		})
	}

	Watches(t, fresh)
	// These tests wait for hours in the virtual time of synctest.
	for name, test := range map[string]func(*testing.T, Open){
		"PauseKept": pauseKept, "PauseCovers": pauseCovers, "PausedInstants": pausedInstants, "PlanChanges": planChanges,
		"PauseAfterFailures": pauseAfterFailures, "PauseReason": pauseReason, "PauseOrder": pauseOrder, "PrunePauses": prunePauses,
		"WakeLastWins": wakeLastWins, "WakePlannedOnce": wakePlannedOnce, "WakeRefused": wakeRefused, "WakeUsage": wakeUsage, "WakesCancelledExcept": wakesCancelledExcept, "WakeFires": wakeFires,
		"WakeEarly": wakeEarly, "WakePaused": wakePaused, "WakeStale": wakeStale, "WakeShed": wakeShed, "WakesSpaced": wakesSpaced, "WakeText": wakeText,
		"Rewind": rewind, "PruneTime": pruneTime, "History": history, "RunsByTime": runsByTime, "LastTimes": lastTimes, "IncidentsKept": incidentsKept,
		"ObstaclesAgain": obstaclesAgain,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open := fresh(t)
			synctest.Test(t, func(t *testing.T) {
				test(t, open)
				audited(t, open(t), "")
			})
		})
	}
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func manual(job string) ledger.Request {
	return ledger.Request{Job: job, Agent: "a", Trigger: domain.TriggerManual}
}

func enqueue(t *testing.T, l *ledger.Ledger, reqs ...ledger.Request) []ledger.Accepted {
	t.Helper()
	return must[[]ledger.Accepted](t)(l.Enqueue(t.Context(), reqs...))
}

func start(t *testing.T, l *ledger.Ledger, run int64) ledger.Attempt {
	t.Helper()
	_, a, err := l.StartAttempt(t.Context(), run)
	ok(t, err)
	return a
}

// recorded checks that a run has an event of a kind, and that the event's data contains a text.
func recorded(t *testing.T, l *ledger.Ledger, run int64, kind, text string) {
	t.Helper()
	if e, found, err := l.Events.Last(t.Context(), run, kind); err != nil || !found || !strings.Contains(string(e.Data), text) {
		t.Errorf("the event %s of run %d: %q, want %q in it (%v)", kind, run, e.Data, text, err)
	}
}

func get(t *testing.T, l *ledger.Ledger, run int64) ledger.Run {
	t.Helper()
	return must[ledger.Run](t)(l.Runs.Get(t.Context(), run))
}
