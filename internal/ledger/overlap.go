package ledger

import (
	"fmt"
	"math"

	"rouse/internal/domain"
	"rouse/internal/ledger/pause"
	"rouse/internal/ledger/record"
	"rouse/internal/text"
)

// maxQueueAll is how many runs of a job `overlap: queue_all` keeps queued.
const maxQueueAll = 100

// overlappingRuns selects the runs that decide an overlap policy, as Run.Overlaps does. A run that waits for its model counts as queued,
// because a night without a model would pile such runs up. The condition state <> 'finished' lets SQLite use the partial index.
const overlappingRuns = `select ` + record.RunColumns + ` from runs where job = $1
	and (state = 'queued' or state = 'waiting' and waiting_for = 'retry' and postponements > 0 or $2 = 1 and state in ('running', 'waiting')) and state <> 'finished'
	and not (state = 'queued' and triggered_by = 'backfill') order by id limit $3`

// OverlapCandidates returns which runs of a job decide an overlap policy: the queued ones, and with begun also those that run or wait.
// The oldest of them are read, at most so many. The limit matters: a job can have any number of runs queued, and all writers share the
// transaction in which an instant is decided.
func OverlapCandidates(policy domain.Overlap) (begun bool, most int) {
	switch policy {
	case domain.OverlapAllow, domain.OverlapQueueOne: // of allow for one that is blocked alone
		return false, 1
	case domain.OverlapQueueAll:
		return false, maxQueueAll
	case domain.OverlapCancel:
		return true, math.MaxInt32
	}
	return true, 1
}

// ObstacleOverlap is the kind of the obstacle of a run that starts after an earlier run of its job, which waits for a person.
const ObstacleOverlap = "overlap"

// maxObstacles is how much of what is in the way of another run is told of an instant, in characters.
const maxObstacles = 200

const replacedReason = "overlap: a newer occurrence took its place"

// DecideDue says what becomes of an instant that is to run, given the runs that it overlaps with,
// oldest first, and the pauses. cancelOthers says that it replaces those runs. It is pure.
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

// decideOverlap applies an overlap policy; others are the runs that decide it, oldest first.
func decideOverlap(policy domain.Overlap, others []Run) (decision domain.Decision, reason string, cancelOthers bool) {
	var queued []Run
	for _, r := range others {
		if r.State == domain.StateQueued || r.Postponed() {
			queued = append(queued, r)
		}
	}

	// A job that cannot work now has one run that waits, whatever may run side by side: they would all begin at once when it can.
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
