package ledger

import (
	"fmt"
	"math"

	"rouse/internal/domain"
	"rouse/internal/ledger/pause"
	"rouse/internal/ledger/record"
	"rouse/internal/text"
)

// maxQueueAll is the maximum number of queued runs of a job with `overlap: queue_all`.
const maxQueueAll = 100

// overlappingRuns selects the runs that decide an overlap policy, as Run.Overlaps does. A run that
// waits for its model counts as queued, so that such runs do not pile up while the model is
// unavailable. The condition state <> 'finished' lets SQLite use the partial index.
const overlappingRuns = `select ` + record.RunColumns + ` from runs where job = $1
	and (state = 'queued' or state = 'waiting' and waiting_for = 'retry' and postponements > 0 or $2 = 1 and state in ('running', 'waiting')) and state <> 'finished'
	and not (state = 'queued' and triggered_by = 'backfill') order by id limit $3`

// OverlapCandidates returns the selection of runs that decide an overlap policy: the oldest queued
// runs of a job, at most the number in most. If begun is true, runs that run or wait are also
// selected. The limit keeps the transaction short, because all writers share it and a job can have
// any number of queued runs.
func OverlapCandidates(policy domain.Overlap) (begun bool, most int) {
	switch policy {
	case domain.OverlapAllow, domain.OverlapQueueOne: // allow needs only a blocked run
		return false, 1
	case domain.OverlapQueueAll:
		return false, maxQueueAll
	case domain.OverlapCancel:
		return true, math.MaxInt32
	}
	return true, 1
}

// ObstacleOverlap is the kind of obstacle of a run that waits behind an earlier run of its job. The
// earlier run waits for a person.
const ObstacleOverlap = "overlap"

// maxObstacles is the maximum length of the obstacles in the reason of a skipped occurrence, in
// characters.
const maxObstacles = 200

const replacedReason = "overlap: a newer occurrence took its place"

// DecideDue decides about a due time that is to run. others are the runs that it overlaps, oldest
// first. If cancelOthers is true, the new run replaces them. It does not read or write the ledger.
func DecideDue(d Due, others []Run, pauses []pause.Pause) (decision domain.Decision, reason string, cancelOthers bool) {
	if p, ok := pause.Paused(pauses, d.Job, d.Agent, d.Nominal); ok {
		return domain.DecisionSkipped, p.String(), false
	}

	decision, reason, cancelOthers = decideOverlap(d.Overlap, others)
	if reason == "" {
		reason = d.Reason
	}
	return decision, reason, cancelOthers
}

// decideOverlap applies an overlap policy. others are the runs that decide it, oldest first.
func decideOverlap(policy domain.Overlap, others []Run) (decision domain.Decision, reason string, cancelOthers bool) {
	var queued []Run
	for _, r := range others {
		if r.State == domain.StateQueued || r.Postponed() {
			queued = append(queued, r)
		}
	}

	// A blocked job keeps one waiting run, even if its runs may overlap. Otherwise all of them
	// would start at once when the obstacle is gone.
	if r, blocked := blockedFirst(queued); blocked && policy != domain.OverlapCancel {
		return domain.DecisionSkipped, fmt.Sprintf("overlap: run %d waits already: %s", r.ID, text.Truncate(record.ObstaclesText(r.Blocked.By), maxObstacles)), false
	}

	switch policy {
	case domain.OverlapAllow:
	case domain.OverlapCancel:
		return domain.DecisionRun, "", len(others) > 0
	case domain.OverlapQueueOne:
		if len(queued) > 0 {
			return domain.DecisionSkipped, fmt.Sprintf("overlap: run %d is already queued", queued[0].ID), false
		}
	case domain.OverlapQueueAll:
		if len(queued) >= maxQueueAll {
			return domain.DecisionSkipped, fmt.Sprintf("overlap: %d runs are already queued", len(queued)), false
		}
	default:
		if len(others) > 0 {
			return domain.DecisionSkipped, fmt.Sprintf("overlap: run %d %s", others[0].ID, others[0].WaitText()), false
		}
	}

	return domain.DecisionRun, "", false
}
